"""Asyncio actors: one event loop, many calls at a time."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest
from support import WAIT

import sooner
from sooner.exceptions import ActorDiedError, TaskError

pytestmark = pytest.mark.usefixtures("shared_session")


@sooner.remote
def identity(value):
    return value


@sooner.remote
def fails():
    raise KeyError("in a task")


@sooner.remote
class Gate:
    """Calls wait in it until it is opened."""

    def __init__(self):
        self.event = asyncio.Event()
        self.waiting = 0
        self.most = 0

    async def through(self, value=None):
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        try:
            await self.event.wait()
        finally:
            self.waiting -= 1
        return value

    async def open(self):
        self.event.set()

    def count(self):
        return self.waiting

    async def most_at_once(self):
        return self.most

    async def pid(self):
        return os.getpid()


def test_a_coroutine_method_returns_its_value():
    @sooner.remote
    class Plain:
        async def f(self, x):
            return x + 1

    plain = Plain.remote()
    assert sooner.get([plain.f.remote(n) for n in range(500)], timeout=WAIT) == list(range(1, 501))


@pytest.mark.api("actor.async")
def test_calls_overlap():
    gate = Gate.remote()
    refs = [gate.through.remote(n) for n in range(50)]
    gate.open.remote()
    assert sooner.get(refs, timeout=WAIT) == list(range(50))
    assert sooner.get(gate.most_at_once.remote(), timeout=WAIT) == 50


def test_calls_overlap_across_callers():
    gate = Gate.remote()

    @sooner.remote(num_cpus=0.1)
    def caller(handle, n):
        return sooner.get(handle.through.remote(n))

    refs = [caller.remote(gate, n) for n in range(4)]
    while sooner.get(gate.count.remote(), timeout=WAIT) < 4:
        pass
    gate.open.remote()
    assert sooner.get(refs, timeout=WAIT) == [0, 1, 2, 3]


@pytest.mark.api("actor.max_concurrency")
def test_max_concurrency_limits_the_calls_inside():
    @sooner.remote(max_concurrency=3)
    class Narrow:
        def __init__(self):
            self.inside = 0
            self.most = 0

        async def enter(self):
            self.inside += 1
            self.most = max(self.most, self.inside)
            for _ in range(5):
                await asyncio.sleep(0.001)
            self.inside -= 1
            return self.most

    narrow = Narrow.remote()
    assert max(sooner.get([narrow.enter.remote() for _ in range(30)], timeout=WAIT)) == 3


@pytest.mark.api("actor.max_concurrency")
def test_more_than_a_thousand_calls_wait_their_turn():
    gate = Gate.remote()
    refs = [gate.through.remote(n) for n in range(999)]
    gate.open.remote()
    refs += [gate.through.remote(n) for n in range(999, 2500)]
    assert sooner.get(refs, timeout=WAIT) == list(range(2500))


def test_calls_begin_in_the_order_of_their_caller():
    @sooner.remote
    class Log:
        def __init__(self):
            self.begun = []

        async def note(self, n):
            self.begun.append(n)
            await asyncio.sleep(0)

        async def all(self):
            return self.begun

    log = Log.remote()
    for n in range(500):
        log.note.remote(n)
    assert sooner.get(log.all.remote(), timeout=WAIT) == list(range(500))


@pytest.mark.api("actor.async")
def test_sync_methods_run_in_the_loops_thread():
    @sooner.remote
    class Mixed:
        async def in_loop(self):
            return threading.get_ident()

        def in_sync(self):
            return threading.get_ident()

    mixed = Mixed.remote()
    assert len(set(sooner.get([mixed.in_loop.remote(), mixed.in_sync.remote()], timeout=WAIT))) == 1


@pytest.mark.api("actor.async")
def test_await_a_ref():
    @sooner.remote
    class Awaits:
        async def one(self, x):
            return await identity.remote(x)

        async def many(self, n):
            return await asyncio.gather(*[identity.remote(i) for i in range(n)])

        async def given(self, box):
            return await box[0]

        async def put(self, x):
            return await sooner.put(x)

        async def large(self, n):
            return len(await identity.remote(b"x" * n))

    awaits = Awaits.remote()
    assert sooner.get(awaits.one.remote(5), timeout=WAIT) == 5
    assert sooner.get(awaits.many.remote(100), timeout=WAIT) == list(range(100))
    assert sooner.get(awaits.given.remote([identity.remote("borrowed")]), timeout=WAIT) == "borrowed"
    assert sooner.get(awaits.put.remote("mine"), timeout=WAIT) == "mine"
    assert sooner.get(awaits.large.remote(1 << 20), timeout=WAIT) == 1 << 20


def test_await_an_error():
    @sooner.remote
    class Awaits:
        async def f(self):
            try:
                await fails.remote()
            except KeyError as error:
                return type(error).__name__, isinstance(error, TaskError)

    assert sooner.get(Awaits.remote().f.remote(), timeout=WAIT) == ("TaskError(KeyError)", True)


@pytest.mark.api("actor.async")
def test_await_another_actor():
    gate = Gate.remote()

    @sooner.remote
    class Front:
        async def through(self, handle, x):
            return await handle.through.remote(x)

    front = Front.remote()
    refs = [front.through.remote(gate, n) for n in range(20)]
    gate.open.remote()
    assert sooner.get(refs, timeout=WAIT) == list(range(20))


def test_two_async_actors_call_each_other():
    @sooner.remote
    class Ping:
        async def hit(self, other, n):
            if n == 0:
                return "done"
            return await other.hit.remote(sooner.get_runtime_context().current_actor, n - 1)

    one, two = Ping.remote(), Ping.remote()
    assert sooner.get(one.hit.remote(two, 50), timeout=WAIT) == "done"


def test_a_late_argument_does_not_hold_back_running_calls():
    gate = Gate.remote()
    first = gate.through.remote("first")
    second = gate.through.remote(identity.remote("second"))
    gate.open.remote()
    assert sooner.get([first, second], timeout=WAIT) == ["first", "second"]


def test_an_error_in_a_coroutine():
    @sooner.remote
    class Fails:
        async def f(self):
            await asyncio.sleep(0)
            raise LookupError("async trouble")

        async def g(self):
            return "alive"

    actor = Fails.remote()
    with pytest.raises(LookupError, match="async trouble") as caught:
        sooner.get(actor.f.remote(), timeout=WAIT)
    assert isinstance(caught.value, TaskError)
    assert sooner.get(actor.g.remote(), timeout=WAIT) == "alive"


def test_a_cancelled_error_of_ones_own_is_an_error():
    @sooner.remote
    class Odd:
        async def f(self):
            raise asyncio.CancelledError

        async def g(self):
            return "alive"

    odd = Odd.remote()
    with pytest.raises((TaskError, sooner.exceptions.TaskCancelledError)):
        sooner.get(odd.f.remote(), timeout=WAIT)
    assert sooner.get(odd.g.remote(), timeout=WAIT) == "alive"


def test_several_returns():
    @sooner.remote
    class Two:
        @sooner.method(num_returns=2)
        async def pair(self):
            return "a", "b"

    assert sooner.get(Two.remote().pair.remote(), timeout=WAIT) == ["a", "b"]


def test_background_tasks_of_the_loop_go_on_between_calls():
    @sooner.remote
    class Ticker:
        def __init__(self):
            self.ticks = 0

        async def start(self):
            self.task = asyncio.create_task(self.tick())

        async def tick(self):
            while True:
                self.ticks += 1
                await asyncio.sleep(0.001)

        async def until(self, n):
            while self.ticks < n:
                await asyncio.sleep(0.001)
            return True

    ticker = Ticker.remote()
    sooner.get(ticker.start.remote(), timeout=WAIT)
    assert sooner.get(ticker.until.remote(50), timeout=WAIT)


def test_threads_of_the_actor_can_use_the_loop():
    @sooner.remote
    class Threads:
        async def f(self):
            return await asyncio.to_thread(lambda: sooner.get(identity.remote("from a thread")))

    assert sooner.get(Threads.remote().f.remote(), timeout=WAIT) == "from a thread"


def test_kill_with_calls_waiting():
    gate = Gate.remote()
    refs = [gate.through.remote() for _ in range(10)]
    sooner.get(gate.pid.remote(), timeout=WAIT)
    sooner.kill(gate)
    for ref in refs:
        with pytest.raises(ActorDiedError):
            sooner.get(ref, timeout=WAIT)


def test_pending_calls_are_done_when_the_last_handle_goes():
    @sooner.remote
    class Slow:
        async def f(self, n):
            await asyncio.sleep(0.1)
            return n

    slow = Slow.remote()
    refs = [slow.f.remote(n) for n in range(5)]
    del slow
    assert sooner.get(refs, timeout=WAIT) == list(range(5))


def test_the_constructor_may_use_sooner():
    @sooner.remote
    class Eager:
        def __init__(self):
            self.value = sooner.get(identity.remote("early"))

        async def read(self):
            return self.value

    assert sooner.get(Eager.remote().read.remote(), timeout=WAIT) == "early"


def test_the_runtime_context_is_that_of_each_call():
    gate = Gate.remote()

    @sooner.remote
    class Context:
        async def task_id(self, handle):
            before = sooner.get_runtime_context().get_task_id()
            await handle.through.remote()
            return before, sooner.get_runtime_context().get_task_id()

    context = Context.remote()
    refs = [context.task_id.remote(gate) for _ in range(5)]
    gate.open.remote()
    found = sooner.get(refs, timeout=WAIT)
    assert all(before == after for before, after in found)
    assert [before for before, _ in found] == [ref.task_id() for ref in refs]


def test_constructors_that_await_values_meet_the_thread_that_reads_them():
    """A value that comes as the constructor's loop begins: whoever reads it needs the interpreter."""

    @sooner.remote
    class Awaits:
        async def __init__(self, ref) -> None:
            await asyncio.sleep(0.01)
            self.value = await ref[0]

        async def read(self):
            return self.value

    for number in range(60):
        assert sooner.get(Awaits.remote([sooner.put(number)]).read.remote(), timeout=WAIT) == number
