"""Actors with checkpoints in sessions of their own: many kills under many callers, large states, local
mode.
"""

from __future__ import annotations

import gc
import os
import signal
import threading

import pytest
from checkpointed import RemoteBox, RemoteLog, kill, row_of
from support import WAIT, poll, poll_store_has_room

import sooner
from sooner.util import state

MIB = 1 << 20


@pytest.fixture
def session(nothing_left):
    context = sooner.init(num_cpus=4, object_store_memory=64 * MIB)
    nothing_left.append(context["session_dir"])
    yield
    sooner.shutdown()


def killer(actor, times):
    """Kills the actor's process again and again, at any moment."""
    last = None

    def next_process():
        row = row_of(actor)
        return row.pid if row.state == "ALIVE" and row.pid != last else None

    for _ in range(times):
        last = poll("there is a process", next_process)
        os.kill(last, signal.SIGKILL)


@pytest.mark.chaos
@pytest.mark.parametrize("every", [3, 50])
def test_every_call_counts_once_whatever_dies(session, every):

    @sooner.remote(max_retries=0)
    def caller(log, name, count):
        entries = [(name, n) for n in range(count)]
        results = []
        for n, entry in enumerate(entries):
            results.append(log.add.remote(entry))
            if n % 20 == 0:
                sooner.get(results)
                seen = sooner.get(log.read.remote())
                # What was answered is there, whoever looks, even while others make their calls again.
                assert [entry for entry in seen if entry[0] == name] == entries[: n + 1]
        return sooner.get(results)

    log = RemoteLog.options(checkpoint_every=every, max_task_retries=-1).remote()
    tasks = [caller.remote(log, name, 150) for name in ("a", "b")]
    thread = threading.Thread(target=killer, args=(log, 12))
    thread.start()
    own = [log.add.remote(("driver", n)) for n in range(300)]
    thread.join()
    results = [sooner.get(own, timeout=WAIT), *sooner.get(tasks, timeout=WAIT)]
    entries = sooner.get(log.read.remote(), timeout=WAIT)
    for name, count, positions in zip(["driver", "a", "b"], [300, 150, 150], results, strict=True):
        assert [n for of, n in entries if of == name] == list(range(count))
        assert positions == sorted(positions)
    assert len(entries) == 600
    assert row_of(log).restarts >= 12
    del log, tasks, own
    gc.collect()
    poll("nothing is left", lambda: state.list_objects() == [])


def test_large_states_are_restored_writable_and_let_go(session):
    box = RemoteBox.remote()
    sooner.get(box.fill.remote(MIB), timeout=WAIT)
    for expected in range(1, 4):
        kill(box)
        sooner.get([box.bump.remote() for _ in range(5)], timeout=WAIT)
        values = sooner.get(box.get.remote())
        assert values.shape == (MIB,)
        assert (values == 5 * expected).all()
    assert row_of(box).checkpoints >= 16
    del values, box
    poll_store_has_room(56 * MIB)


@pytest.fixture
def session_without_disk(nothing_left):
    context = sooner.init(num_cpus=4, object_store_memory=64 * MIB, spill_directories=[])
    nothing_left.append(context["session_dir"])
    yield
    sooner.shutdown()


def test_a_state_that_does_not_fit_leaves_the_checkpoint_before(session_without_disk, capfd):
    box = RemoteBox.remote()
    sooner.get(box.fill.remote(100_000), timeout=WAIT)
    sooner.get(box.fill.remote(16 * MIB), timeout=WAIT)
    sooner.get(box.bump.remote(), timeout=WAIT)
    row = row_of(box)
    assert row.checkpoints == 1
    assert row.calls_since_checkpoint == 2
    kill(box)
    size = box.__ray_call__.options(read_only=True).remote(lambda actor: actor.value.sum())
    assert sooner.get(size, timeout=WAIT) == 16 * MIB
    del box
    poll("the terminal says why", lambda: "ObjectStoreFullError" in capfd.readouterr().err)


def test_in_local_mode_nothing_fails_and_nothing_is_kept(nothing_left):
    context = sooner.init(local_mode=True)
    nothing_left.append(context["session_dir"])
    log = RemoteLog.remote()
    assert sooner.get([log.add.remote(n) for n in range(20)]) == list(range(1, 21))
    assert sooner.get(log.read.remote()) == list(range(20))
    del log
    sooner.shutdown()
