"""A workload with known answers while its processes are killed and stopped at random; afterwards nothing is
left.

`SOONER_CHAOS_SECONDS` says for how long; `make chaos` takes three minutes, the test suite ten seconds.
"""

from __future__ import annotations

import gc
import os
import signal
import time

import pytest
from storm import MIB, Storm, send, tree, what_is_held
from support import WAIT, Footprint, descriptors_of, poll, poll_store_has_room

import sooner
from sooner import _sooner, state

SECONDS = float(os.environ.get("SOONER_CHAOS_SECONDS", "10"))

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(max(240, SECONDS + 100))]

STORE_MIB = 96
CPUS = 4


class KillsAndStops(Storm):
    """Processes are killed and stopped, on one node."""

    def disturb(self):
        """Kills and stops processes; none is stopped at the end."""
        stopped = {}
        try:
            while time.monotonic() < self.deadline:
                time.sleep(self.chance.uniform(0.02, 0.15))
                for pid in [pid for pid, until in stopped.items() if until < time.monotonic()]:
                    send(pid, signal.SIGCONT)
                    del stopped[pid]
                # Asked of the node alone: processes that are stopped do not answer. Zero stands for one that
                # begins.
                pids = [pid for pid in _sooner.worker_pids() if pid > 0]
                if not pids:
                    continue
                victim = self.chance.choice(pids)
                if self.chance.random() < 0.7:
                    self.done["kills"] += send(victim, signal.SIGKILL)
                else:
                    self.done["stops"] += send(victim, signal.SIGSTOP)
                    stopped[victim] = time.monotonic() + self.chance.uniform(0, 0.4)
        finally:
            for pid in stopped:
                send(pid, signal.SIGCONT)


def warm_up():
    """As many workers as there stay when nothing runs."""
    sooner.get([tree.options(num_cpus=1).remote(0, n) for n in range(2 * CPUS)], timeout=WAIT)


def has_settled():
    """Nothing runs, waits or is held, and no more workers are there than the pool keeps."""
    rows = state.list_workers(filters=[("state", "!=", "DEAD")])
    workers = [row for row in rows if row.worker_type == "WORKER"]
    is_idle = all(row.state == "IDLE" for row in workers) and len(workers) <= CPUS
    return is_idle and sooner.available_resources().get("CPU") == CPUS


def test_a_storm_of_kills_and_stops(nothing_left):
    context = sooner.init(num_cpus=CPUS, object_store_memory=STORE_MIB * MIB)
    nothing_left.append(context["session_dir"])
    warm_up()
    poll("the session has settled", has_settled)
    before = Footprint.now()
    storm = KillsAndStops(4, SECONDS)
    storm.rage(storm.disturb)
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
    sooner.shutdown()
