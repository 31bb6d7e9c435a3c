"""Tasks and actors that kill every process they get: they cost little beside the others, and they end."""

from __future__ import annotations

import gc
import os
import signal
import time

import pytest
from support import WAIT, poll

import sooner
from sooner import state
from sooner.exceptions import TaskCancelledError, WorkerCrashedError

pytestmark = [pytest.mark.chaos, pytest.mark.usefixtures("sooner_session")]


@sooner.remote
def identity(value):
    return value


@sooner.remote(max_retries=-1)
def poison(marks):
    with marks.open("a") as file:
        file.write("x")
    os.kill(os.getpid(), signal.SIGKILL)


def attempts(marks):
    return len(marks.read_text()) if marks.exists() else 0


def run_beside(seconds):
    """Normal tasks, one after the other, for so long: how many there were."""
    deadline, count = time.monotonic() + seconds, 0
    while time.monotonic() < deadline:
        assert sooner.get([identity.remote(n) for n in range(20)], timeout=WAIT) == list(range(20))
        count += 20
    return count


def test_poison_beside_normal_tasks_until_it_is_cancelled(tmp_path):
    marks = [tmp_path / str(n) for n in range(4)]
    refs = [poison.remote(mark) for mark in marks]
    poll("each is tried again and again", lambda: all(attempts(mark) >= 3 for mark in marks))
    begun, before = time.monotonic(), sum(map(attempts, marks))
    assert run_beside(2) > 0
    # After three crashes the pauses are 100, 200, 400 ... ms; without them there were hundreds of attempts.
    allowed = 4 * (3 + (time.monotonic() - begun) / 0.4)
    assert sum(map(attempts, marks)) - before <= allowed
    for ref in refs:
        sooner.cancel(ref)
        with pytest.raises((TaskCancelledError, WorkerCrashedError)) as caught:
            sooner.get(ref, timeout=WAIT)
        assert isinstance(caught.value, TaskCancelledError)
    assert run_beside(0.1) > 0


def test_poison_ends_when_nobody_waits_for_it(tmp_path):
    mark = tmp_path / "mark"
    ref = poison.remote(mark)
    poll("it is tried again", lambda: attempts(mark) >= 2)
    del ref
    gc.collect()
    poll("it is given up", lambda: not state.list_tasks(filters=[("state", "!=", "FAILED")]))


def test_poison_with_few_retries_ends_in_its_error(tmp_path):
    mark = tmp_path / "mark"
    ref = poison.options(max_retries=3).remote(mark)
    assert run_beside(0.2) > 0
    with pytest.raises(WorkerCrashedError, match=r"poison.*signal 9.*max_retries=3"):
        sooner.get(ref, timeout=WAIT)
    assert attempts(mark) == 4


def test_a_child_of_an_asyncio_actor_is_tried_again_while_the_loop_waits(tmp_path):
    """The event loop reads by itself, and knows of no timer of ours."""

    @sooner.remote(max_retries=5)
    def dies_thrice(mark):
        with mark.open("a") as file:
            file.write("x")
        if len(mark.read_text()) <= 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return "alive"

    @sooner.remote
    class Parent:
        async def wait(self, mark):
            return await dies_thrice.remote(mark)

    parent = Parent.remote()
    assert sooner.get(parent.wait.remote(tmp_path / "mark"), timeout=WAIT) == "alive"


def test_an_actor_whose_constructor_kills_it(tmp_path):
    mark = tmp_path / "mark"

    @sooner.remote(max_restarts=-1)
    class Poison:
        def __init__(self):
            with mark.open("a") as file:
                file.write("x")
            os.kill(os.getpid(), signal.SIGKILL)

        def ping(self):
            return "alive"

    actor = Poison.remote()
    poll("it is started again", lambda: attempts(mark) >= 3)
    begun, before = time.monotonic(), attempts(mark)
    assert run_beside(1) > 0
    assert attempts(mark) - before <= 4 + (time.monotonic() - begun) / 0.4
    sooner.kill(actor)
    with pytest.raises(sooner.exceptions.ActorDiedError):
        sooner.get(actor.ping.remote(), timeout=WAIT)


def test_a_call_that_kills_its_actor_until_it_is_cancelled(tmp_path):
    """Calls behind it wait; when it is gone they have their turn."""
    mark = tmp_path / "mark"

    @sooner.remote(max_restarts=-1, max_task_retries=-1)
    class Mortal:
        def die(self):
            with mark.open("a") as file:
                file.write("x")
            os.kill(os.getpid(), signal.SIGKILL)

        def ping(self):
            return "alive"

    actor = Mortal.remote()
    poisoned, behind = actor.die.remote(), [actor.ping.remote() for _ in range(5)]
    poll("it is tried again", lambda: attempts(mark) >= 25)
    assert run_beside(0.2) > 0
    sooner.cancel(poisoned)
    with pytest.raises(TaskCancelledError):
        sooner.get(poisoned, timeout=WAIT)
    assert sooner.get(behind, timeout=WAIT) == ["alive"] * 5
