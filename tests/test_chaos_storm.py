"""A workload with known answers while its processes are killed and stopped at random; afterwards nothing is left.

`WEFT_CHAOS_SECONDS` says for how long; `make chaos` takes three minutes, the test suite ten seconds.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
import random
import signal
import threading
import time
from collections import Counter

import pytest
from support import WAIT, Footprint, descriptors_of, poll, poll_store_has_room

import weft
from weft import _weft, state
from weft.exceptions import ActorDiedError, ActorUnavailableError, OwnerDiedError

SECONDS = float(os.environ.get("WEFT_CHAOS_SECONDS", "10"))

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(max(240, SECONDS + 100))]

MIB = 1 << 20
STORE_MIB = 96
CPUS = 4
LARGE = MIB // 2


def payload(seed, size):
    """Bytes that no other seed gives."""
    return hashlib.sha256(str(seed).encode()).digest() * (size // 32)


@weft.remote(max_retries=-1, num_cpus=0.5)
def tree(depth, seed):
    """The number of leaves below, by tasks of tasks."""
    if depth == 0:
        return 1
    return sum(weft.get([tree.remote(depth - 1, f"{seed} {n}") for n in range(2)]))


@weft.remote(max_retries=-1, num_cpus=0.5)
def make(seed):
    return payload(seed, LARGE)


@weft.remote(max_retries=-1, num_cpus=0.5)
def digest(*values):
    return hashlib.sha256(b"".join(values)).hexdigest()


@weft.remote(max_retries=-1, num_cpus=0.5)
def digest_of_lent(box, hops):
    """Reads what is in the box, after lending it on so often."""
    if hops > 0:
        return weft.get(digest_of_lent.remote(box, hops - 1))
    return hashlib.sha256(weft.get(box[0])).hexdigest()


@weft.remote(max_retries=-1, num_cpus=0.5)
def items(seed, count):
    for n in range(count):
        yield payload((seed, n), LARGE if n % 2 else 32)


@weft.remote(max_retries=-1, num_cpus=0.5)
def give_refs(seed):
    """References whose owner is the process of this task."""
    return [weft.put(payload(seed, LARGE)), make.remote(seed)]


@weft.remote(max_restarts=-1, max_task_retries=-1, num_cpus=0)
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
        return hashlib.sha256(weft.get(box[0])).hexdigest()

    def items(self, seed, count):
        for n in range(count):
            yield payload((seed, n), LARGE if n % 2 else 32)


def sha(data):
    return hashlib.sha256(data).hexdigest()


class Storm:
    """The workload, who disturbs it, and what went wrong."""

    def __init__(self, seed):
        self.deadline = time.monotonic() + SECONDS
        self.chance = random.Random(seed)
        self.keepers = [Keeper.remote() for _ in range(2)]
        self.done = Counter()
        self.problems = []

    def check(self, what, is_right):
        self.done[what] += 1
        if not is_right:
            self.problems.append(what)

    def nested_tasks(self, seed):
        self.check("nested tasks", weft.get(tree.remote(3, seed), timeout=WAIT) == 8)

    def large_values(self, seed):
        refs = [make.remote((seed, n)) for n in range(3)]
        expected = sha(b"".join(payload((seed, n), LARGE) for n in range(3)))
        self.check("large values", weft.get(digest.remote(*refs), timeout=WAIT) == expected)

    def borrowed_refs(self, seed):
        box = [weft.put(payload(seed, LARGE))]
        keeper = self.keepers[len(str(seed)) % 2]
        refs = [digest_of_lent.remote(box, 2), keeper.lend.remote(box)]
        expected = sha(payload(seed, LARGE))
        del box
        self.check("borrowed refs", weft.get(refs, timeout=WAIT) == [expected] * 2)

    def generators(self, seed):
        keeper = self.keepers[len(str(seed)) % 2]
        for source in (items, keeper.items):
            found = [weft.get(ref, timeout=WAIT) for ref in source.options(num_returns="streaming").remote(seed, 6)]
            self.check("generators", found == [payload((seed, n), LARGE if n % 2 else 32) for n in range(6)])

    def actor_calls(self, seed):
        keeper = self.keepers[len(str(seed)) % 2]
        found = weft.get([keeper.next.remote() for _ in range(30)], timeout=WAIT)
        pids = list(dict.fromkeys(pid for pid, _ in found))
        lives = [[count for pid, count in found if pid == life] for life in pids]
        # A process that took over begins anew; within one the calls came in order.
        self.check("actor calls", all(life == sorted(set(life)) for life in lives))

    def refs_of_mortals(self, seed):
        try:
            refs = weft.get(give_refs.remote(seed), timeout=WAIT)
            self.check("refs of mortals", weft.get(refs, timeout=WAIT) == [payload(seed, LARGE)] * 2)
        except OwnerDiedError:
            self.done["refs whose owner died"] += 1

    def mortal_actors(self, seed):
        actor = Keeper.options(max_restarts=0, max_task_retries=0).remote()
        try:
            found = weft.get([actor.next.remote() for _ in range(20)], timeout=WAIT)
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

    def disturb(self):
        """Kills and stops processes; none is stopped at the end."""
        stopped = {}
        try:
            while time.monotonic() < self.deadline:
                time.sleep(self.chance.uniform(0.02, 0.15))
                for pid in [pid for pid, until in stopped.items() if until < time.monotonic()]:
                    send(pid, signal.SIGCONT)
                    del stopped[pid]
                # Asked of the node alone: processes that are stopped do not answer. Zero stands for one that begins.
                pids = [pid for pid in _weft.worker_pids() if pid > 0]
                if not pids:
                    continue
                victim = self.chance.choice(pids)
                if self.chance.random() < 0.7:
                    self.done["kills"] += send(victim, signal.SIGKILL)
                else:
                    self.done["stops"] += send(victim, signal.SIGSTOP)
                    stopped[victim] = time.monotonic() + self.chance.uniform(0, 0.4)
        except BaseException as error:
            self.problems.append(f"disturb: {error!r}")
        finally:
            for pid in stopped:
                send(pid, signal.SIGCONT)

    def rage(self):
        work = [
            self.nested_tasks,
            self.large_values,
            self.borrowed_refs,
            self.generators,
            self.actor_calls,
            self.refs_of_mortals,
            self.mortal_actors,
        ]
        threads = [threading.Thread(target=self.run, args=(each,)) for each in work]
        threads.append(threading.Thread(target=self.disturb))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def send(pid, number):
    """Signals a worker; 1 if it was there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        return 1
    return 0


def warm_up():
    """As many workers as there stay when nothing runs."""
    weft.get([tree.options(num_cpus=1).remote(0, n) for n in range(2 * CPUS)], timeout=WAIT)


def has_settled():
    """Nothing runs, waits or is held, and no more workers are there than the pool keeps."""
    rows = state.list_workers(filters=[("state", "!=", "DEAD")])
    workers = [row for row in rows if row.worker_type == "WORKER"]
    is_idle = all(row.state == "IDLE" for row in workers) and len(workers) <= CPUS
    return is_idle and weft.available_resources().get("CPU") == CPUS


def what_is_held():
    """Entries of tables that belong to something: tasks, values, actors."""
    return [
        *(row for row in state.list_tasks() if row.state not in ("FINISHED", "FAILED")),
        *state.list_objects(),
        *(row for row in state.list_actors() if row.state != "DEAD"),
    ]


def test_a_storm_of_kills_and_stops(nothing_left):
    context = weft.init(num_cpus=CPUS, object_store_memory=STORE_MIB * MIB)
    nothing_left.append(context["session_dir"])
    warm_up()
    poll("the session has settled", has_settled)
    before = Footprint.now()
    storm = Storm(seed=4)
    storm.rage()
    assert not storm.problems
    print(dict(storm.done))
    storm.keepers.clear()
    gc.collect()
    assert storm.done["kills"] > 0
    for what in ("nested tasks", "large values", "borrowed refs", "generators", "actor calls"):
        assert storm.done[what] > 0, what
    poll("nothing is held", lambda: not what_is_held())
    poll_store_has_room((STORE_MIB - 2) * MIB)
    warm_up()
    poll("the session has settled", has_settled)
    # The pool keeps from one to CPUS workers, each with its sockets and pipes.
    spare = 6 * CPUS
    poll("descriptors as before", lambda: len(descriptors_of(os.getpid())) <= len(before.descriptors) + spare)
    poll("threads as before", lambda: len(Footprint.now().threads) <= len(before.threads))
    weft.shutdown()
