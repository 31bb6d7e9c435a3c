"""Actors with checkpoints: what comes back after a failure, what is made again, and what is refused."""

from __future__ import annotations

import gc
import os
import signal
import threading

import numpy as np
import pytest
from checkpointed import Box, Log, RemoteBox, RemoteLog, kill, row_of
from support import WAIT, poll

import sooner
from sooner.exceptions import ActorDiedError, ActorUnavailableError, OwnerDiedError, TaskCancelledError
from sooner.util import state

pytestmark = pytest.mark.usefixtures("shared_session")


def notes_of(path):
    return path.read_text().split()


# --- what comes
# back --------------------------------------------------------------------------------------------------


@pytest.mark.api("actor.checkpoints", "method.read_only", "context.reconstructed")
def test_calls_since_the_checkpoint_are_made_again(tmp_path):
    notes = tmp_path / "notes"
    log = RemoteLog.remote(notes)
    assert sooner.get([log.add.remote(n) for n in range(7)], timeout=WAIT) == list(range(1, 8))
    kill(log)
    assert sooner.get(log.read.remote(), timeout=WAIT) == list(range(7))
    assert sooner.get(log.was_rebuilt.remote())
    assert notes_of(notes) == ["init", *"01234", "checkpoint", *"56", "init", "restore", *"56", "read"]


def test_without_a_checkpoint_yet_all_calls_are_made_again(tmp_path):
    notes = tmp_path / "notes"
    log = RemoteLog.options(checkpoint_every=100).remote(notes)
    sooner.get([log.add.remote(n) for n in range(4)], timeout=WAIT)
    kill(log)
    assert sooner.get(log.read.remote(), timeout=WAIT) == list(range(4))
    assert notes_of(notes) == ["init", *"0123", "init", *"0123", "read"]


def test_several_restarts_from_the_same_checkpoint():
    log = RemoteLog.remote()
    refs = [log.add.remote(n) for n in range(8)]
    for _ in range(4):
        kill(log)
    assert sooner.get(log.read.remote(), timeout=WAIT) == list(range(8))
    assert sooner.get(refs) == list(range(1, 9))
    assert row_of(log).restarts == 4


def test_calls_in_flight_need_no_retries(tmp_path):
    log = RemoteLog.remote()
    refs = [log.add.remote(n) for n in range(3)]
    refs.append(log.die.remote(tmp_path / "died"))
    refs += [log.add.remote(n) for n in range(3, 20)]
    assert sooner.get(refs, timeout=WAIT) == list(range(1, 22))
    assert sooner.get(log.read.remote()) == [0, 1, 2, "died", *range(3, 20)]


def test_a_call_that_raised_is_made_again_and_its_error_stays():
    log = RemoteLog.remote()
    refs = [log.add.remote(0), log.add_and_raise.remote(1), log.add.remote(2)]
    with pytest.raises(ValueError, match="1"):
        sooner.get(refs[1], timeout=WAIT)
    kill(log)
    assert sooner.get(log.read.remote(), timeout=WAIT) == [0, 1, 2]
    with pytest.raises(ValueError, match="1"):
        sooner.get(refs[1])


def test_arguments_of_kept_calls_stay():
    class Sum:
        def __init__(self):
            self.total = 0.0

        def add(self, values):
            self.total += float(values.sum())

        @sooner.method(read_only=True)
        def pid(self):
            return os.getpid()

        @sooner.method(read_only=True)
        def read(self):
            return self.total

        def __sooner_checkpoint__(self):
            return self.total

        def __sooner_restore__(self, total):
            self.total = total

    total = sooner.remote(checkpoint_every=100)(Sum).remote()
    for _ in range(3):
        sooner.get(total.add.remote(np.ones(200_000)), timeout=WAIT)
    gc.collect()
    kill(total)
    assert sooner.get(total.read.remote(), timeout=WAIT) == 600_000


def test_a_cancelled_call_that_waited_is_not_executed(tmp_path):
    class Slow(Log):
        def wait_for(self, path):
            poll("it may go on", path.exists)

    gate = tmp_path / "gate"
    log = sooner.remote(checkpoint_every=5)(Slow).remote()
    log.wait_for.remote(gate)
    refs = [log.add.remote(n) for n in range(4)]
    sooner.cancel(refs[1])
    with pytest.raises(TaskCancelledError):
        sooner.get(refs[1], timeout=WAIT)
    gate.touch()
    sooner.get(refs[3], timeout=WAIT)
    kill(log)
    assert sooner.get(log.read.remote(), timeout=WAIT) == [0, 2, 3]


def test_a_caller_that_is_done_with_the_actor_holds_nobody_up():
    @sooner.remote
    def look(log):
        return sooner.get(log.read.remote())

    log = RemoteLog.remote()
    refs = [log.add.remote(n) for n in range(3)]
    assert sooner.get([look.remote(log) for _ in range(4)], timeout=WAIT)
    kill(log)
    assert sooner.get(log.read.remote(), timeout=WAIT) == [0, 1, 2]
    del refs


def test_restarts_run_out(tmp_path):
    log = RemoteLog.options(max_restarts=1).remote()
    sooner.get(log.add.remote(0), timeout=WAIT)
    kill(log)
    sooner.get(log.add.remote(1), timeout=WAIT)
    kill(log)
    with pytest.raises(ActorDiedError):
        sooner.get(log.add.remote(2), timeout=WAIT)


def test_a_call_that_ends_every_process_is_given_up():
    log = RemoteLog.remote()
    refs = [log.add.remote(0), log.__ray_call__.remote(lambda actor: os.kill(os.getpid(), signal.SIGKILL))]
    refs.append(log.add.remote(1))
    with pytest.raises(ActorUnavailableError, match="max_task_retries=3"):
        sooner.get(refs[1], timeout=WAIT)
    assert sooner.get([refs[0], refs[2]], timeout=WAIT) == [1, 2]
    assert row_of(log).restarts == 4


def test_a_detached_actor_comes_back_after_its_creator():
    @sooner.remote(max_calls=1)
    def create():
        log = RemoteLog.options(name="kept", lifetime="detached").remote()
        sooner.get([log.add.remote(n) for n in range(10)])
        return os.getpid()

    creator = sooner.get(create.remote(), timeout=WAIT)
    log = sooner.get_actor("kept")
    poll("its creator has ended", lambda: all(row.pid != creator for row in state.list_workers() if row.is_alive))
    kill(log)
    assert sooner.get(sooner.get_actor("kept").read.remote(), timeout=WAIT) == list(range(10))
    sooner.kill(log)


# ---
# states -----------------------------------------------------------------------------------------------------------


def test_references_in_a_state_keep_their_objects():
    box = RemoteBox.remote()
    ref = sooner.put(np.arange(100_000))
    identity = ref.hex()
    sooner.get(box.set.remote([ref]), timeout=WAIT)
    del ref
    for _ in range(2):
        gc.collect()
        kill(box)
        assert sooner.get(box.inner.remote(), timeout=WAIT).sum() == sum(range(100_000))
    sooner.get(box.set.remote(None))
    poll("the object is let go", lambda: all(row.object_id != identity for row in state.list_objects()))


def test_objects_of_the_actor_itself_share_its_fate():
    box = RemoteBox.remote()
    sooner.get(box.put_own.remote(), timeout=WAIT)
    kill(box)
    ref = sooner.get(box.get.remote(), timeout=WAIT)
    with pytest.raises(OwnerDiedError):
        sooner.get(ref, timeout=WAIT)


@pytest.mark.parametrize("kind", [classmethod, staticmethod, None], ids=["class", "static", "instance"])
def test_ways_to_restore(kind):
    class Value:
        def __init__(self, start):
            self.value = start
            self.made_by = "init"

        def add(self):
            self.value += 1

        @sooner.method(read_only=True)
        def read(self):
            return self.value, self.made_by

        @sooner.method(read_only=True)
        def pid(self):
            return os.getpid()

        def __sooner_checkpoint__(self):
            return self.value

    def fill(made, state):
        made.value = state
        made.made_by = made.__dict__.get("made_by", "nothing") + " and restore"
        return made

    if kind is classmethod:
        Value.__sooner_restore__ = classmethod(lambda cls, state: fill(cls.__new__(cls), state))
    elif kind is staticmethod:
        Value.__sooner_restore__ = staticmethod(lambda state: fill(Value.__new__(Value), state))
    else:
        Value.__sooner_restore__ = fill
    actor = sooner.remote(checkpoint_every=1)(Value).remote(10)
    sooner.get(actor.add.remote(), timeout=WAIT)
    kill(actor)
    expected = "nothing and restore" if kind else "init and restore"
    assert sooner.get(actor.read.remote(), timeout=WAIT) == (11, expected)


# --- hooks that
# fail --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("problem", ["raises", "unpicklable"])
def test_an_actor_whose_checkpoint_fails_ends(problem):
    class Failing(Box):
        def __sooner_checkpoint__(self):
            if problem == "raises":
                raise ValueError("no state today")
            return threading.Lock()

    box = sooner.remote(checkpoint_every=2)(Failing).remote()
    sooner.get(box.set.remote(1), timeout=WAIT)
    sooner.get(box.set.remote(2), timeout=WAIT)
    expected = "no state today" if problem == "raises" else "lock"
    with pytest.raises(ActorDiedError, match=f"(?s)Failing ended because __sooner_checkpoint__ raised.*{expected}"):
        sooner.get(box.get.remote(), timeout=WAIT)


def test_an_actor_that_cannot_be_restored_ends():
    class Failing(Box):
        def __sooner_restore__(self, value):
            raise ValueError("no way back")

    box = sooner.remote(checkpoint_every=1)(Failing).remote()
    sooner.get(box.set.remote(1), timeout=WAIT)
    kill(box)
    with pytest.raises(ActorDiedError, match=r"(?s)__sooner_restore__.*no way back"):
        sooner.get(box.get.remote(), timeout=WAIT)


def test_a_process_that_dies_while_it_takes_a_checkpoint(tmp_path):
    class Dying(Log):
        def __sooner_checkpoint__(self):
            path = tmp_path / str(len(self.entries))
            if not path.exists():
                path.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return super().__sooner_checkpoint__()

    log = sooner.remote(checkpoint_every=3)(Dying).remote()
    assert sooner.get([log.add.remote(n) for n in range(20)], timeout=WAIT) == list(range(1, 21))
    assert sooner.get(log.read.remote(), timeout=WAIT) == list(range(20))
    assert row_of(log).restarts == 6


# --- what is left
# over ------------------------------------------------------------------------------------------------


def test_kept_calls_keep_no_actor_alive_and_leave_nothing():
    log = RemoteLog.options(checkpoint_every=1000).remote()
    pid = sooner.get(log.pid.remote(), timeout=WAIT)
    sooner.get([log.add.remote(sooner.put(np.ones(50_000))) for _ in range(10)], timeout=WAIT)
    row = row_of(log)
    assert (row.checkpoints, row.calls_since_checkpoint, row.restarts) == (0, 10, 0)
    del log
    gc.collect()
    poll("the actor has ended", lambda: all(row.pid != pid for row in state.list_workers() if row.is_alive))
    poll("nothing is left", lambda: state.list_objects() == [])


def test_checkpoints_are_seen():
    log = RemoteLog.remote()
    sooner.get([log.add.remote(n) for n in range(12)], timeout=WAIT)
    row = poll("the second one stands", lambda: (row := row_of(log)).checkpoints == 2 and row)
    assert row.calls_since_checkpoint == 2
    plain = sooner.remote(Box).remote()
    sooner.get(plain.get.remote(), timeout=WAIT)
    assert (row_of(plain).checkpoints, row_of(plain).calls_since_checkpoint) == (None, None)


def test_calls_that_do_not_go_with_checkpoints():
    log = RemoteLog.remote()
    with pytest.raises(ValueError, match="cannot stream"):
        log.read.options(num_returns="streaming")
    with pytest.raises(ValueError, match="retry_exceptions"):
        log.add.options(retry_exceptions=True)
    assert sooner.get(log.read.options(retry_exceptions=True).remote(), timeout=WAIT) == []
