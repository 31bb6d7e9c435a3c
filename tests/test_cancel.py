"""Cancelling: queued, running, forced, with children, in actors."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time

import pytest
from support import WAIT, is_alive, poll

import sooner
from sooner.exceptions import TaskCancelledError, WorkerCrashedError

pytestmark = pytest.mark.usefixtures("sooner_session")

# A task that is not cancelled outlives every wait of the tests.
LONG = 10 * WAIT


@sooner.remote
def sleeps(mark):
    """Blocks in one call of the system."""
    mark.write_text(str(os.getpid()))
    time.sleep(LONG)


@sooner.remote
def spins(mark):
    """Runs bytecode."""
    mark.write_text(str(os.getpid()))
    while True:
        pass


@sooner.remote
def identity(value):
    return value


@pytest.fixture
def mark(tmp_path):
    """A file into which a task writes its process id."""
    return tmp_path / "mark"


def pid_in(mark):
    return poll("the task runs", lambda: mark.exists() and int(mark.read_text() or 0))


def assert_cancelled(ref):
    with pytest.raises(TaskCancelledError):
        sooner.get(ref, timeout=WAIT)


@pytest.mark.api("errors.cancelled", "failure.cancel_running")
@pytest.mark.parametrize("task", [sleeps, spins], ids=["sleeps", "spins"])
def test_a_running_task_is_interrupted(mark, task):
    ref = task.remote(mark)
    pid_in(mark)
    sooner.cancel(ref)
    assert_cancelled(ref)
    assert sooner.get([identity.remote(n) for n in range(10)], timeout=WAIT) == list(range(10))


@pytest.mark.api("failure.cancel_force")
@pytest.mark.parametrize("task", [sleeps, spins], ids=["sleeps", "spins"])
def test_force_kills_the_worker(mark, task):
    ref = task.remote(mark)
    pid = pid_in(mark)
    sooner.cancel(ref, force=True)
    with pytest.raises((TaskCancelledError, WorkerCrashedError)) as caught:
        sooner.get(ref, timeout=WAIT)
    assert isinstance(caught.value, TaskCancelledError)
    poll("the worker is gone", lambda: not is_alive(pid))


@pytest.mark.api("failure.cancel_force")
def test_force_ends_a_task_that_ignores_interrupts(mark):
    @sooner.remote
    def stubborn(mark):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        mark.write_text(str(os.getpid()))
        time.sleep(LONG)

    ref = stubborn.remote(mark)
    pid = pid_in(mark)
    sooner.cancel(ref, force=True)
    assert_cancelled(ref)
    poll("the worker is gone", lambda: not is_alive(pid))


@pytest.mark.api("failure.cancel_running")
def test_a_task_blocked_in_get_is_interrupted(mark):
    @sooner.remote
    def waits(mark, inner):
        ref = sleeps.remote(inner)
        mark.write_text(str(os.getpid()))
        sooner.get(ref)

    ref = waits.remote(mark, mark.with_name("inner"))
    pid_in(mark)
    sooner.cancel(ref)
    assert_cancelled(ref)


@pytest.mark.api("failure.cancel_queued")
def test_a_queued_task_never_runs(tmp_path):
    mark, touched = tmp_path / "mark", tmp_path / "touched"

    @sooner.remote(num_cpus=2)
    def touch():
        touched.touch()

    running = sleeps.options(num_cpus=2).remote(mark)
    pid_in(mark)
    queued = [touch.remote() for _ in range(5)]
    for ref in queued:
        sooner.cancel(ref)
        assert_cancelled(ref)
    sooner.cancel(running)
    assert_cancelled(running)
    sooner.get(identity.options(num_cpus=2).remote(1), timeout=WAIT)
    assert not touched.exists()


@pytest.mark.api("failure.cancel_queued")
def test_a_task_that_waits_for_its_arguments(mark, tmp_path):
    touched = tmp_path / "touched"

    @sooner.remote
    def touch(_):
        touched.touch()

    slow = sleeps.remote(mark)
    ref = touch.remote(slow)
    sooner.cancel(ref)
    assert_cancelled(ref)
    assert sooner.wait([slow], timeout=0)[0] == []
    sooner.cancel(slow)
    assert_cancelled(slow)
    assert not touched.exists()


@pytest.mark.api("failure.cancel_queued")
def test_many_queued_tasks(mark):
    running = sleeps.options(num_cpus=2).remote(mark)
    pid_in(mark)
    refs = [identity.remote(n) for n in range(500)]
    for ref in refs[::2]:
        sooner.cancel(ref)
    sooner.cancel(running)
    for ref in refs[::2]:
        assert_cancelled(ref)
    assert sooner.get(refs[1::2], timeout=WAIT) == list(range(1, 500, 2))


def test_the_tasks_that_need_a_cancelled_one_fail_with_it(mark):
    first = sleeps.remote(mark)
    second = identity.remote(first)
    pid_in(mark)
    sooner.cancel(first)
    assert_cancelled(second)


@pytest.mark.api("cancel")
def test_a_task_that_has_ended_keeps_its_value():
    ref = identity.remote("kept")
    assert sooner.get(ref, timeout=WAIT) == "kept"
    sooner.cancel(ref)
    sooner.cancel(ref, force=True)
    assert sooner.get(ref, timeout=WAIT) == "kept"


def test_cancel_twice(mark):
    ref = sleeps.remote(mark)
    pid_in(mark)
    sooner.cancel(ref)
    sooner.cancel(ref)
    assert_cancelled(ref)
    sooner.cancel(ref)
    assert_cancelled(ref)


@pytest.mark.api("failure.cancel_no_retry")
def test_cancelled_work_is_not_retried(tmp_path):
    marks = tmp_path / "marks"

    @sooner.remote(max_retries=5, retry_exceptions=True)
    def counts():
        with marks.open("a") as file:
            file.write("x")
        time.sleep(LONG)

    for force in (False, True):
        marks.write_text("")
        ref = counts.remote()
        poll("the task runs", marks.read_text)
        sooner.cancel(ref, force=force)
        assert_cancelled(ref)
        sooner.get([identity.remote(n) for n in range(10)], timeout=WAIT)
        assert marks.read_text() == "x"


@pytest.mark.api("failure.cancel_recursive")
def test_children_are_cancelled_as_well(tmp_path):
    marks = [tmp_path / str(n) for n in range(3)]

    @sooner.remote
    def parent():
        return sooner.get([sleeps.options(num_cpus=0.1).remote(mark) for mark in marks])

    @sooner.remote
    def grandparent():
        return sooner.get(parent.remote())

    ref = grandparent.remote()
    pids = [pid_in(mark) for mark in marks]
    assert all(map(is_alive, pids))
    sooner.cancel(ref)
    assert_cancelled(ref)
    # All CPUs are free: nobody sleeps any more.
    assert sooner.get(identity.options(num_cpus=2).remote("free"), timeout=WAIT) == "free"


@pytest.mark.api("failure.cancel_recursive")
def test_children_are_spared_without_recursive(tmp_path):
    mark, gate = tmp_path / "mark", tmp_path / "gate"

    @sooner.remote(num_cpus=0.5)
    def child():
        mark.write_text(str(os.getpid()))
        while not gate.exists():
            time.sleep(0.005)
        mark.write_text("done")

    @sooner.remote
    def parent():
        sooner.get(child.remote())

    ref = parent.remote()
    pid_in(mark)
    sooner.cancel(ref, recursive=False)
    assert_cancelled(ref)
    gate.touch()
    poll("the child is done", lambda: mark.read_text() == "done")


def test_one_of_several_returns_cancels_the_task(mark):
    first, second = sleeps.options(num_returns=2).remote(mark)
    pid_in(mark)
    sooner.cancel(second)
    assert_cancelled(first)
    assert_cancelled(second)


@pytest.mark.api("cancel")
def test_cancel_from_a_task(mark):
    @sooner.remote
    def cancels(box):
        sooner.cancel(box[0])

    ref = sleeps.remote(mark)
    pid_in(mark)
    sooner.get(cancels.remote([ref]), timeout=WAIT)
    assert_cancelled(ref)


def test_a_task_may_clean_up(tmp_path):
    mark, cleaned = tmp_path / "mark", tmp_path / "cleaned"

    @sooner.remote
    def careful():
        try:
            mark.write_text(str(os.getpid()))
            time.sleep(LONG)
        finally:
            cleaned.touch()

    ref = careful.remote()
    pid_in(mark)
    sooner.cancel(ref)
    assert_cancelled(ref)
    poll("it has cleaned up", cleaned.exists)


def test_the_next_task_on_the_worker_is_not_hit(tmp_path):
    """Cancelling just as tasks end must never interrupt another task."""
    for n in range(100):
        ref = identity.remote(n)
        sooner.cancel(ref)
        try:
            assert sooner.get(ref, timeout=WAIT) == n
        except TaskCancelledError:
            pass
        assert sooner.get([identity.remote(n) for _ in range(3)], timeout=WAIT) == [n] * 3


@pytest.mark.api("cancel")
@pytest.mark.parametrize("thing", [None, "ref", [], 5], ids=repr)
def test_cancel_of_something_else(thing):
    with pytest.raises(TypeError, match="ObjectRef"):
        sooner.cancel(thing)


@sooner.remote
class Sync:
    def block(self, mark, gate):
        mark.write_text(str(os.getpid()))
        while not gate.exists():
            if sooner.get_runtime_context().is_canceled():
                return "saw it"
            time.sleep(0.005)
        return "did not"

    def touch(self, path):
        path.touch()

    def alive(self):
        return "alive"


@pytest.mark.api("failure.cancel_actor_call")
def test_a_queued_actor_call_is_dropped(tmp_path):
    sync = Sync.remote()
    mark, gate, touched = tmp_path / "mark", tmp_path / "gate", tmp_path / "touched"
    running = sync.block.remote(mark, gate)
    queued = sync.touch.remote(touched)
    pid_in(mark)
    sooner.cancel(queued)
    assert_cancelled(queued)
    gate.touch()
    assert sooner.get(running, timeout=WAIT) == "did not"
    assert sooner.get(sync.alive.remote(), timeout=WAIT) == "alive"
    assert not touched.exists()


@pytest.mark.api("failure.cancel_actor_call")
@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_running_actor_call_can_see_that_it_is_cancelled(tmp_path, concurrency):
    sync = Sync.options(max_concurrency=concurrency).remote()
    mark, gate = tmp_path / "mark", tmp_path / "gate"
    ref = sync.block.remote(mark, gate)
    pid_in(mark)
    sooner.cancel(ref)
    try:
        assert sooner.get(ref, timeout=WAIT) == "saw it"
    except TaskCancelledError:
        pass
    assert not gate.exists()
    assert sooner.get(sync.alive.remote(), timeout=WAIT) == "alive"


def test_a_call_that_was_not_cancelled_is_told_so():
    @sooner.remote
    class Asks:
        def asks(self):
            return sooner.get_runtime_context().is_canceled()

    assert sooner.get(Asks.remote().asks.remote(), timeout=WAIT) is False


@sooner.remote
class Async:
    def __init__(self):
        self.seen = []

    async def block(self, mark):
        mark.write_text(str(os.getpid()))
        try:
            await asyncio.sleep(LONG)
        except asyncio.CancelledError:
            self.seen.append("cancelled")
            raise

    async def what(self):
        return self.seen

    async def child(self, mark):
        await sleeps.remote(mark)


@pytest.mark.api("failure.cancel_actor_call")
def test_a_coroutine_is_cancelled(mark):
    actor = Async.remote()
    ref = actor.block.remote(mark)
    pid_in(mark)
    sooner.cancel(ref)
    assert_cancelled(ref)
    assert sooner.get(actor.what.remote(), timeout=WAIT) == ["cancelled"]


@pytest.mark.api("failure.cancel_recursive")
def test_children_of_a_coroutine_are_cancelled(mark):
    actor = Async.remote()
    ref = actor.child.remote(mark)
    pid_in(mark)
    sooner.cancel(ref)
    assert_cancelled(ref)
    assert sooner.get(identity.options(num_cpus=2).remote("free"), timeout=WAIT) == "free"


@pytest.mark.api("failure.cancel_actor_call")
@pytest.mark.parametrize("cls", [Sync, Async], ids=["sync", "async"])
def test_force_is_not_for_actors(tmp_path, cls):
    actor = cls.remote()
    mark, gate = tmp_path / "mark", tmp_path / "gate"
    ref = actor.block.remote(mark, gate) if cls is Sync else actor.block.remote(mark)
    pid_in(mark)
    with pytest.raises(ValueError, match="force"):
        sooner.cancel(ref, force=True)
    gate.touch()
    sooner.cancel(ref)


def test_an_asyncio_call_that_is_cancelled_before_its_first_step():
    @sooner.remote
    class Loop:
        async def sleep(self):
            await asyncio.sleep(3600)

        async def ping(self):
            return 1

    actor = Loop.remote()
    sooner.get(actor.ping.remote(), timeout=WAIT)
    for _ in range(50):
        ref = actor.sleep.remote()
        sooner.cancel(ref)
        with pytest.raises(TaskCancelledError):
            sooner.get(ref, timeout=WAIT)


@pytest.mark.api("failure.cancel_actor_call")
@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_call_that_returns_although_it_was_cancelled_was_cancelled(tmp_path, concurrency):
    @sooner.remote(max_concurrency=concurrency)
    class Deaf:
        def block(self, mark, gate, size):
            mark.write_text(str(os.getpid()))
            while not gate.exists():
                time.sleep(0.005)
            return b"x" * size

        def alive(self):
            return "alive"

    actor = Deaf.remote()
    for size in (1, 1 << 20):
        mark, gate = tmp_path / f"mark {size}", tmp_path / f"gate {size}"
        ref = actor.block.remote(mark, gate, size)
        pid_in(mark)
        sooner.cancel(ref)
        time.sleep(0.2)
        gate.touch()
        assert_cancelled(ref)
        assert sooner.get(actor.alive.remote(), timeout=WAIT) == "alive"


@sooner.remote(max_retries=0)
def calls(actor, method, *args):
    return sooner.get(getattr(actor, method).remote(*args))


@pytest.mark.api("failure.cancel_force")
@pytest.mark.parametrize("cls", [Sync, Async], ids=["sync", "async"])
def test_force_with_children_leaves_actors_alone(tmp_path, cls):
    actor = cls.remote()
    mark, gate = tmp_path / "mark", tmp_path / "gate"
    args = (mark, gate) if cls is Sync else (mark,)
    ref = calls.remote(actor, "block", *args)
    pid = pid_in(mark)
    sooner.cancel(ref, force=True)
    assert_cancelled(ref)
    gate.touch()
    assert sooner.get(actor.__ray_call__.remote(lambda _: os.getpid()), timeout=WAIT) == pid


@pytest.mark.api("failure.cancel_force")
def test_force_on_somebody_elses_call_leaves_the_actor_alone(tmp_path):
    @sooner.remote(num_cpus=0)
    class Broker:
        def call(self, actor, mark, gate):
            self.ref = actor.block.remote(mark, gate)
            return [self.ref]

    actor, broker = Sync.remote(), Broker.remote()
    mark, gate = tmp_path / "mark", tmp_path / "gate"
    (ref,) = sooner.get(broker.call.remote(actor, mark, gate), timeout=WAIT)
    pid = pid_in(mark)
    # Whoever has nothing but the reference cannot know that an actor makes its value.
    with contextlib.suppress(ValueError):
        sooner.cancel(ref, force=True)
    gate.touch()
    assert sooner.get(actor.__ray_call__.remote(lambda _: os.getpid()), timeout=WAIT) == pid
