"""A table of the memory of this machine that nodes of this user offer, shared by nodes that start at the
same moment.

Each node locks its entry for as long as it lives: the kernel drops the lock with the process, however the
process ends. So an entry without a lock counts for nothing, and the next node takes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from sooner._session import trust
from sooner._session.membership import base_directory

# The table's file, in the directory of all nodes of a user.
_NAME = "offers"
_ENTRY_BYTES = 64
# `struct flock`: kind, whence, start, length, process (none: the lock is that of an open file).
_LOCK = struct.Struct("@hhqqi4x")
# How long a node waits for the table (seconds). Others hold it for microseconds, unless they were stopped.
_PATIENCE = 5.0
_POLL_SECONDS = 0.005


class Table:
    """The table, while no other process changes it."""

    def __init__(self, file: int | None) -> None:
        # None if there can be no table: the node itself reports why.
        self._file = file
        self._free = 0
        self.offered = 0 if file is None else self._add_up(file)
        """What nodes of this machine offer (bytes)."""

    def _add_up(self, file: int) -> int:
        found, free = 0, []
        entries = os.fstat(file).st_size // _ENTRY_BYTES
        for at in range(entries):
            if not _is_locked(file, at):
                free.append(at)
                continue
            text = os.pread(file, _ENTRY_BYTES, at * _ENTRY_BYTES)
            with contextlib.suppress(ValueError):
                found += sum(map(int, text.split()))
        self._free = free[0] if free else entries
        return found

    def enter(self, memory: int, store: int) -> int | None:
        """Enters what one more node offers.

        Args:
            memory: Logical memory (bytes).
            store: Its object store (bytes).

        Returns:
            A descriptor: the entry counts as long as some process has it open. None if there is no table.
        """
        if self._file is None:
            return None
        entry = f"{memory} {store}\n".encode().ljust(_ENTRY_BYTES)
        try:
            os.pwrite(self._file, entry, self._free * _ENTRY_BYTES)
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, _lock(fcntl.F_WRLCK, self._free))
            fcntl.flock(self._file, fcntl.LOCK_UN)
        except OSError:
            # The disk is full, for instance: the node goes on without an entry, or reports that itself.
            return None
        file, self._file = self._file, None
        return file

    def close(self) -> None:
        """Lets other processes change the table."""
        if self._file is not None:
            os.close(self._file)


@contextlib.contextmanager
def table(parent: str) -> Iterator[Table]:
    """The table of this user's nodes.

    Args:
        parent: The directory that has the directory of the nodes.
    """
    made = Table(_open(base_directory(parent)))
    try:
        yield made
    finally:
        made.close()


def _open(base: str) -> int | None:
    try:
        with contextlib.suppress(FileExistsError):
            Path(base).mkdir(0o700)
        directory = trust.open_directory(base)
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            file = os.open(_NAME, flags, 0o600, dir_fd=directory)
        finally:
            os.close(directory)
    except OSError:
        return None
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return file
            time.sleep(_POLL_SECONDS)
        except OSError:
            os.close(file)
            return None
        else:
            return file


def _lock(kind: int, at: int) -> bytes:
    return _LOCK.pack(kind, os.SEEK_SET, at * _ENTRY_BYTES, _ENTRY_BYTES, 0)


def _is_locked(file: int, at: int) -> bool:
    """Whether another open file has locked an entry."""
    found = fcntl.fcntl(file, fcntl.F_OFD_GETLK, _lock(fcntl.F_WRLCK, at))
    return bool(_LOCK.unpack(found)[0] != fcntl.F_UNLCK)
