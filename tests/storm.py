"""A workload with known answers, for storms: tasks of tasks, values, borrowed references, streams, actors."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import threading
import time
from collections import Counter

from support import WAIT

import sooner
from sooner import state
from sooner.exceptions import ActorDiedError, ActorUnavailableError, OwnerDiedError

MIB = 1 << 20
LARGE = MIB // 2


def payload(seed, size):
    """Bytes that no other seed gives."""
    return hashlib.sha256(str(seed).encode()).digest() * (size // 32)


@sooner.remote(max_retries=-1, num_cpus=0.5)
def tree(depth, seed):
    """The number of leaves below, by tasks of tasks."""
    if depth == 0:
        return 1
    return sum(sooner.get([tree.remote(depth - 1, f"{seed} {n}") for n in range(2)]))


@sooner.remote(max_retries=-1, num_cpus=0.5)
def make(seed):
    return payload(seed, LARGE)


@sooner.remote(max_retries=-1, num_cpus=0.5)
def digest(*values):
    return hashlib.sha256(b"".join(values)).hexdigest()


@sooner.remote(max_retries=-1, num_cpus=0.5)
def digest_of_lent(box, hops):
    """Reads what is in the box, after lending it on so often."""
    if hops > 0:
        return sooner.get(digest_of_lent.remote(box, hops - 1))
    return hashlib.sha256(sooner.get(box[0])).hexdigest()


@sooner.remote(max_retries=-1, num_cpus=0.5)
def items(seed, count):
    for n in range(count):
        yield payload((seed, n), LARGE if n % 2 else 32)


@sooner.remote(max_retries=-1, num_cpus=0.5)
def give_refs(seed):
    """References whose owner is the process of this task."""
    return [sooner.put(payload(seed, LARGE)), make.remote(seed)]


@sooner.remote(max_restarts=-1, max_task_retries=-1, num_cpus=0)
class Keeper:
    """Counts its calls, and keeps what it was lent last."""

    def __init__(self):
        self.count = 0
        self.box = None

    def next(self):
        self.count += 1
        return os.getpid(), self.count

    def lend(self, box):
        self.box = box
        return hashlib.sha256(sooner.get(box[0])).hexdigest()

    def items(self, seed, count):
        for n in range(count):
            yield payload((seed, n), LARGE if n % 2 else 32)


def sha(data):
    return hashlib.sha256(data).hexdigest()


class Storm:
    """The workload and what went wrong. Subclasses disturb it, and may add work.

    Args:
        seed: Of all chance.
        seconds: How long it goes on.
    """

    def __init__(self, seed, seconds):
        self.deadline = time.monotonic() + seconds
        self.chance = random.Random(seed)
        self.keepers = [Keeper.remote() for _ in range(2)]
        self.done = Counter()
        self.problems = []

    def work(self):
        """What is done over and over, each in a thread of its own, with a text that no other call gets."""
        return [
            self.nested_tasks,
            self.large_values,
            self.borrowed_refs,
            self.generators,
            self.actor_calls,
            self.refs_of_mortals,
            self.mortal_actors,
        ]

    def check(self, what, is_right):
        self.done[what] += 1
        if not is_right:
            self.problems.append(what)

    def nested_tasks(self, seed):
        self.check("nested tasks", sooner.get(tree.remote(3, seed), timeout=WAIT) == 8)

    def large_values(self, seed):
        refs = [make.remote((seed, n)) for n in range(3)]
        expected = sha(b"".join(payload((seed, n), LARGE) for n in range(3)))
        self.check("large values", sooner.get(digest.remote(*refs), timeout=WAIT) == expected)

    def borrowed_refs(self, seed):
        box = [sooner.put(payload(seed, LARGE))]
        keeper = self.keepers[len(str(seed)) % 2]
        refs = [digest_of_lent.remote(box, 2), keeper.lend.remote(box)]
        expected = sha(payload(seed, LARGE))
        del box
        self.check("borrowed refs", sooner.get(refs, timeout=WAIT) == [expected] * 2)

    def generators(self, seed):
        keeper = self.keepers[len(str(seed)) % 2]
        for source in (items, keeper.items):
            found = [sooner.get(ref, timeout=WAIT) for ref in source.options(num_returns="streaming").remote(seed, 6)]
            self.check("generators", found == [payload((seed, n), LARGE if n % 2 else 32) for n in range(6)])

    def actor_calls(self, seed):
        keeper = self.keepers[len(str(seed)) % 2]
        found = sooner.get([keeper.next.remote() for _ in range(30)], timeout=WAIT)
        pids = list(dict.fromkeys(pid for pid, _ in found))
        lives = [[count for pid, count in found if pid == life] for life in pids]
        # A process that took over begins anew; within one the calls came in order.
        self.check("actor calls", all(life == sorted(set(life)) for life in lives))

    def refs_of_mortals(self, seed):
        try:
            refs = sooner.get(give_refs.remote(seed), timeout=WAIT)
            self.check("refs of mortals", sooner.get(refs, timeout=WAIT) == [payload(seed, LARGE)] * 2)
        except OwnerDiedError:
            self.done["refs whose owner died"] += 1

    def mortal_actors(self, seed):
        actor = Keeper.options(max_restarts=0, max_task_retries=0).remote()
        try:
            found = sooner.get([actor.next.remote() for _ in range(20)], timeout=WAIT)
            self.check("mortal actors", [count for _, count in found] == list(range(1, 21)))
        except (ActorDiedError, ActorUnavailableError):
            self.done["actors that died"] += 1

    def run(self, work):
        number = 0
        try:
            while time.monotonic() < self.deadline:
                number += 1
                work(f"{work.__name__} {number}")
        except BaseException as error:
            self.problems.append(f"{work.__name__}: {error!r}")

    def rage(self, disturb):
        """Works until the deadline, while `disturb` does harm and mends what it broke."""
        threads = [threading.Thread(target=self.run, args=(each,)) for each in self.work()]
        threads.append(threading.Thread(target=self._disturb, args=(disturb,)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _disturb(self, disturb):
        try:
            disturb()
        except BaseException as error:
            self.problems.append(f"disturb: {error!r}")


def send(pid, number):
    """Signals a worker; 1 if it was there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        return 1
    return 0


def what_is_held():
    """Entries of tables that belong to something: tasks, values, actors."""
    return [
        *(row for row in state.list_tasks() if row.state not in ("FINISHED", "FAILED")),
        *state.list_objects(),
        *(row for row in state.list_actors() if row.state != "DEAD"),
    ]
