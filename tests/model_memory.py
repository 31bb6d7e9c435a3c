"""Random use of values in a small store, checked against a model in the driver: what exists, and what is in
    it.

A model remembers a number for each value; the bytes follow from it. Whatever is read is compared whole.
`Disk` breaks and mends the place where values are spilled to.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
from support import WAIT

import sooner
from sooner.exceptions import ObjectStoreFullError, TaskError

KIB = 1 << 10
MIB = 1 << 20
# Small ones travel in messages, the others lie in the store.
SIZES = (64, 120 * KIB, 700 * KIB, 2 * MIB, 4 * MIB)
# What one thread keeps in all, and in views at a time. Three of them keep three times what there is room for.
KEPT_BYTES_MAX = 64 * MIB
VIEW_BYTES_MAX = 4 * MIB
# How long after the last fault somebody may still be told that there is no room (seconds): waits for room end
# by then.
GRACE = 45


def content(number, size):
    """The value of a number: no two have an element in common at the same place."""
    return np.arange(size // 8, dtype=np.int64) + (number << 24)


def is_content(array, number, size):
    return array.nbytes == size and bool((array == content(number, size)).all())


@sooner.remote(max_retries=-1)
def make(number, size):
    return content(number, size)


@sooner.remote(max_retries=-1)
def make_from(number, size, expected, *arrays):
    """Checks what it was given, and makes another value."""
    for array, (its_number, its_size) in zip(arrays, expected, strict=True):
        assert is_content(array, its_number, its_size), f"argument {its_number} has other bytes"
    return content(number, size)


@sooner.remote(max_retries=-1)
def read_lent(box, number, size):
    return is_content(sooner.get(box[0]), number, size)


class Disk:
    """The directory that values are spilled to, which can be full or gone for a while.

    Args:
        place: Where to make it. With root it is a file system of its own.
        size: Of that (bytes).
    """

    def __init__(self, place, size):
        self.top = place / "disk"
        self.top.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", self.top]
        self.is_mounted = os.getuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0
        self.directory = self.top / "spill"
        self.directory.mkdir()
        self._ballast = self.top / "ballast"
        # When it was whole again; None while it is not.
        self.whole_since = time.monotonic()

    @contextlib.contextmanager
    def full(self):
        """No room. Without a file system of its own, nothing happens."""
        if not self.is_mounted:
            yield
            return
        self.whole_since = None
        with contextlib.suppress(OSError), self._ballast.open("wb", buffering=0) as file:
            while file.write(bytes(MIB)) > 0:
                pass
        try:
            yield
        finally:
            self._ballast.unlink()
            self.whole_since = time.monotonic()

    @contextlib.contextmanager
    def removed(self):
        """No directory."""
        self.whole_since = None
        shutil.rmtree(self.directory)
        try:
            yield
        finally:
            self.directory.mkdir()
            self.whole_since = time.monotonic()

    def close(self):
        if self.is_mounted:
            subprocess.run(["umount", "-l", self.top], check=True)


class Model:
    """What one thread made and did not drop, and what it does with it at random.

    Args:
        seed: Of its chance. Values of different seeds have different numbers.
        disk: Where values go; while it is broken, and for some time after, there may be no room.
    """

    def __init__(self, seed, disk):
        self.chance = random.Random(seed)
        self.disk = disk
        self.done = Counter()
        self.problems = []
        # By number: the size and the reference.
        self.kept = {}
        # Numbers and arrays that are looked at for a while.
        self.views = []
        self._next = seed << 20

    def run(self, deadline):
        actions = [self.put, self.make, self.make_from, self.get, self.view, self.lend, self.drop, self.drop_many]
        weights = [5, 4, 5, 6, 2, 2, 6, 0.3]
        while time.monotonic() < deadline and not self.problems:
            action = self.chance.choices(actions, weights)[0]
            begin = time.monotonic()
            try:
                action()
                self.done[action.__name__] += 1
            except ObjectStoreFullError as error:
                self._no_room(f"{action.__name__}: {error}", begin)
            except BaseException as error:
                self.problems.append(f"{action.__name__}: {error!r}")

    def verify_all(self):
        """Everything that was kept is there and has its bytes."""
        for number, (size, _) in list(self.kept.items()):
            try:
                self._check(number)
            except BaseException as error:
                self.problems.append(f"value {number} of {size} bytes: {error!r}")
            # Each of them may have waited for a minute.
            if len(self.problems) > 2:
                return

    def forget_all(self):
        self.views.clear()
        self.kept.clear()

    # --- what it does

    def put(self):
        number, size = self._new()
        self._keep(number, size, sooner.put(content(number, size)))

    def make(self):
        number, size = self._new()
        self._keep(number, size, make.remote(number, size))

    def make_from(self):
        number, size = self._new()
        given = [(one, *self.kept[one]) for one in self._some(2)]
        expected = [(one, its_size) for one, its_size, _ in given]
        self._keep(number, size, make_from.remote(number, size, expected, *[ref for _, _, ref in given]))

    def get(self):
        for number in self._some(1):
            self._check(number)

    def view(self):
        """Looks at a value for longer; and at one that was looked at before, which has not changed."""
        for number in self._some(1):
            if (array := self._read(number)) is not None:
                self.views.append((number, array.nbytes, array))
        while sum(size for _, size, _ in self.views) > VIEW_BYTES_MAX:
            number, size, array = self.views.pop(0)
            self._must(is_content(array, number, size), f"value {number} changed while it was looked at")

    def lend(self):
        for number in self._some(1):
            size, ref = self.kept[number]
            sooner.wait([ref], timeout=WAIT)
            self._must(sooner.get(read_lent.remote([ref], number, size), timeout=WAIT), f"value {number}, lent")

    def drop(self):
        for number in self._some(1):
            del self.kept[number]

    def drop_many(self):
        for number in self._some(len(self.kept) // 2):
            del self.kept[number]

    # --- helpers

    def _new(self):
        self._next += 1
        return self._next, self.chance.choice(SIZES)

    def _keep(self, number, size, ref):
        """Keeps it, and drops others until there is not too much."""
        self.kept[number] = size, ref
        while sum(its_size for its_size, _ in self.kept.values()) > KEPT_BYTES_MAX:
            self.drop()

    def _some(self, count):
        return self.chance.sample(sorted(self.kept), min(count, len(self.kept)))

    def _check(self, number):
        size, _ = self.kept[number]
        array = self._read(number)
        self._must(array is None or is_content(array, number, size), f"value {number} has other bytes")

    def _read(self, number):
        """The value; None, and it is dropped, if the task that should make it had no room for that: it
        never was.
        """
        begin = time.monotonic()
        try:
            return sooner.get(self.kept[number][1], timeout=WAIT)
        except TaskError as error:
            if not isinstance(error, ObjectStoreFullError):
                raise
            del self.kept[number]
            self._no_room(f"value {number}: {error}", begin)
            return None

    def _no_room(self, what, begin):
        """Counts it. It is wrong when the disk was whole all the time."""
        self.done["no room"] += 1
        since = self.disk.whole_since
        if since is not None and since + GRACE < begin:
            self.problems.append(what)

    def _must(self, is_right, what):
        if not is_right:
            self.problems.append(what)


def in_threads(functions):
    """Runs them at the same time, each in a thread, to the end."""
    threads = [threading.Thread(target=function) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def spill_files_of(pids, directory):
    """Files below a directory that processes have open and that take room there."""
    found = []
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(FileNotFoundError):
                    if os.readlink(entry).startswith(str(directory)) and entry.stat().st_blocks > 0:
                        found.append((pid, os.readlink(entry)))
    return found
