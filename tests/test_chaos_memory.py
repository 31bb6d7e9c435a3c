"""Values that do not fit, at random, while workers die and the disk is full or gone; nothing is lost, nothing
is left.

`SOONER_CHAOS_SECONDS` says for how long: `CHAOS_SECONDS=1800 make chaos ARGS='-k memory'` takes half an hour.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import time
from collections import Counter

import pytest
from model_memory import MIB, Disk, Model, content, in_threads, spill_files_of
from storm import send, what_is_held
from support import WAIT, Footprint, children_of, descriptors_of, poll, poll_store_has_room

import sooner
from sooner import _sooner
from sooner._state.snapshot import METRICS, Snapshot

SECONDS = max(20.0, float(os.environ.get("SOONER_CHAOS_SECONDS", "20")))
SEED = int(os.environ.get("SOONER_CHAOS_SEED", "6"))

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(max(280, SECONDS + 250))]

STORE_MIB = 64
CPUS = 2
THREADS = 3
# Room for all that is kept, twice, since files are rewritten.
DISK_MIB = 512


def metric(session, name):
    series = {series["name"]: series["values"] for series in Snapshot(session, METRICS).node["metrics"]}
    return series[name][0]


def disturb(disk, deadline, done, faults):
    """One fault after the other; the disk is whole at the end."""
    chance = random.Random(SEED)
    while time.monotonic() < deadline:
        time.sleep(chance.uniform(0.05, 0.6))
        fault = chance.choices(list(faults), list(faults.values()))[0]
        done[fault] += 1
        if fault == "kill":
            pids = [pid for pid in _sooner.worker_pids() if pid > 0]
            if pids:
                send(chance.choice(pids), signal.SIGKILL)
        else:
            with disk.full() if fault == "full" else disk.removed():
                time.sleep(chance.uniform(0.1, 3))


@pytest.fixture
def disk(short_dir):
    made = Disk(short_dir, DISK_MIB * MIB)
    yield made
    made.close()


@pytest.fixture
def store(nothing_left, disk, eviction):
    size = STORE_MIB * MIB
    place = [disk.directory]
    with sooner.init(num_cpus=CPUS, object_store_memory=size, spill_directories=place, eviction=eviction) as context:
        nothing_left.append(context["session_dir"])
        yield context


@pytest.mark.parametrize(
    ("faults", "eviction"),
    [({"kill": 1}, "spill"), ({"kill": 4, "full": 1, "removed": 1}, "spill"), ({"kill": 1}, "recompute")],
    ids=["kills", "kills-and-a-bad-disk", "kills-while-values-are-dropped"],
)
def test_nothing_is_lost_and_nothing_is_left(store, disk, faults, eviction):
    session = store["session_dir"]
    sooner.get([sooner.remote(content).remote(n, 64) for n in range(2 * CPUS)], timeout=WAIT)
    before = Footprint.now()
    models = [Model(SEED * 100 + number, disk) for number in range(THREADS)]
    deadline = time.monotonic() + SECONDS
    done = Counter()
    in_threads(
        [
            *(lambda model=model: model.run(deadline) for model in models),
            lambda: disturb(disk, deadline, done, faults),
        ]
    )
    for model in models:
        model.views.clear()
        model.verify_all()
        done.update(model.done)
    print(dict(done), f"spilled {metric(session, 'sooner_node_spilled_written_bytes') / MIB:.0f} MiB")
    assert not [problem for model in models for problem in model.problems]
    assert metric(session, "sooner_node_spilled_written_bytes") > STORE_MIB * MIB, "next to nothing was spilled"
    for model in models:
        model.forget_all()
    gc.collect()
    poll("nothing is held", lambda: not what_is_held())
    poll("nothing is on disk", lambda: metric(session, "sooner_node_spill_files_bytes") == 0)
    poll("no spill file is open", lambda: not spill_files_of({os.getpid(), *children_of(os.getpid())}, disk.directory))
    poll_store_has_room((STORE_MIB - 2) * MIB)
    # Workers that took the place of others have a socket and pipes each.
    poll("descriptors as before", lambda: len(descriptors_of(os.getpid())) <= len(before.descriptors) + 6 * CPUS)
