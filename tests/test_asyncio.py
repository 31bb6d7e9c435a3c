"""References in event loops and as futures: `await`, `gather`, `wait_for`, `future()`, `as_future()`."""

from __future__ import annotations

import asyncio
import concurrent.futures
import sys
import threading
import time

import numpy as np
import pytest
from support import WAIT

import sooner
from sooner.exceptions import ActorDiedError, TaskError

pytestmark = pytest.mark.usefixtures("shared_session")


@sooner.remote
def identity(value):
    return value


@sooner.remote
def fails(text):
    raise LookupError(text)


@sooner.remote(num_cpus=0)
def when(path, value=None):
    """Returns once a file exists."""
    while not path.exists():
        time.sleep(0.005)
    return value


@pytest.fixture
def gate(tmp_path):
    """A file that does not exist yet; tasks that wait for it end with the test at the latest."""
    path = tmp_path / "gate"
    yield path
    path.touch()


def run(coroutine):
    """Runs a coroutine in a loop of its own; a hang is an error."""
    return asyncio.run(asyncio.wait_for(coroutine, WAIT))


async def value_of(ref):
    return await ref


@pytest.mark.api("ref.await")
def test_await_a_task_and_a_put():
    async def main():
        return await identity.remote(1), await sooner.put("two")

    assert run(main()) == (1, "two")


def test_await_a_ref_that_is_not_ready_yet(gate):
    async def main():
        ref = when.remote(gate, "late")
        waiting = asyncio.create_task(value_of(ref))
        done, _ = await asyncio.wait([waiting], timeout=0.1)
        assert not done
        gate.touch()
        return await waiting

    assert run(main()) == "late"


def test_await_keeps_a_ref_that_nobody_else_has(gate):
    async def main():
        waiting = asyncio.create_task(value_of(when.remote(gate, np.arange(50_000))))
        await asyncio.sleep(0)
        gate.touch()
        return int((await waiting).sum())

    assert run(main()) == sum(range(50_000))


def test_await_twice_and_from_several_coroutines(gate):
    async def main():
        ref = when.remote(gate, [1])
        waiting = [asyncio.create_task(value_of(ref)) for _ in range(10)]
        await asyncio.sleep(0)
        gate.touch()
        assert await asyncio.gather(*waiting) == [[1]] * 10
        return await ref, await ref

    assert run(main()) == ([1], [1])


@pytest.mark.api("ref.await")
def test_gather_keeps_the_order():
    async def main():
        return await asyncio.gather(*(identity.remote(n) for n in range(2000)))

    assert run(main()) == list(range(2000))


def test_a_large_value_is_the_shared_read_only_view():
    async def main():
        array = await identity.remote(np.arange(200_000))
        assert not array.flags.writeable
        assert int(array[-1]) == 199_999

    run(main())


@pytest.mark.api("ref.await")
def test_an_error_is_raised_by_await():
    async def main():
        with pytest.raises(LookupError, match="why") as caught:
            await fails.remote("why")
        assert isinstance(caught.value, TaskError)

    run(main())


def test_gather_with_errors():
    async def main():
        good, bad = await asyncio.gather(identity.remote(1), fails.remote("x"), return_exceptions=True)
        assert good == 1
        assert isinstance(bad, LookupError)
        with pytest.raises(LookupError):
            await asyncio.gather(identity.remote(1), fails.remote("x"))

    run(main())


@pytest.mark.api("ref.await")
def test_wait_for_times_out_and_the_ref_stays_usable(gate):
    async def main():
        ref = when.remote(gate, "after all")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ref, 0.05)
        gate.touch()
        return await asyncio.wait_for(ref, WAIT)

    assert run(main()) == "after all"


def test_a_cancelled_await_leaves_the_task_alone(gate):
    async def main():
        ref = when.remote(gate, "done")
        waiting = asyncio.create_task(value_of(ref))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        gate.touch()
        return await ref

    assert run(main()) == "done"


@pytest.mark.api("ref.await")
def test_as_completed_and_wait_of_futures(gate):
    async def main():
        slow = when.remote(gate, "slow")
        pending = {slow.as_future(), *(identity.remote(n).as_future() for n in range(3))}
        seen = []
        while len(pending) > 1:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            seen += [future.result() for future in done]
        assert sorted(seen) == [0, 1, 2]
        gate.touch()
        return [await next_one for next_one in asyncio.as_completed(pending)]

    assert run(main()) == ["slow"]


def test_the_loop_runs_on_while_a_ref_is_awaited(gate):
    async def main():
        turns = 0
        waiting = asyncio.create_task(value_of(when.remote(gate, "opened by the loop")))
        while not waiting.done():
            turns += 1
            if turns == 50:
                gate.touch()
            await asyncio.sleep(0.001)
        assert turns >= 50
        return await waiting

    assert run(main()) == "opened by the loop"


def test_a_ready_ref_does_not_starve_the_loop():
    async def main():
        ref = sooner.put(1)
        sooner.get(ref, timeout=WAIT)
        others = 0

        async def other():
            nonlocal others
            while True:
                others += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(other())
        for _ in range(100):
            await ref
        beside.cancel()
        return others

    assert run(main()) >= 50


def test_loops_in_several_threads():
    def work(base):
        async def main():
            return await asyncio.gather(*(identity.remote(base + n) for n in range(100)))

        return run(main())

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = list(pool.map(work, range(0, 4000, 1000)))
    assert results == [list(range(base, base + 100)) for base in range(0, 4000, 1000)]


def test_a_loop_that_is_closed_before_the_result_comes(gate):
    ref = when.remote(gate, "kept")

    async def main():
        ref.as_future()

    run(main())
    gate.touch()
    assert sooner.get(ref, timeout=WAIT) == "kept"
    assert run(value_of(identity.remote("next loop"))) == "next loop"


def test_calls_of_actors_can_be_awaited():
    @sooner.remote
    class Counter:
        def __init__(self):
            self.value = 0

        def add(self):
            self.value += 1
            return self.value

    async def main():
        counter = Counter.remote()
        assert await asyncio.gather(*(counter.add.remote() for _ in range(100))) == list(range(1, 101))
        sooner.kill(counter)
        with pytest.raises(ActorDiedError):
            while True:
                await counter.add.remote()

    run(main())


@pytest.mark.api("ref.future")
def test_as_future_is_an_asyncio_future():
    async def main():
        future = identity.remote(5).as_future()
        assert asyncio.isfuture(future)
        assert await future == 5
        failed = fails.remote("there").as_future()
        with pytest.raises(LookupError, match="there"):
            await failed
        assert isinstance(failed.exception(), TaskError)

    run(main())


def test_as_future_needs_a_running_loop():
    with pytest.raises(RuntimeError):
        identity.remote(1).as_future()


@pytest.mark.api("ref.future")
def test_future_is_a_concurrent_future():
    future = identity.remote(6).future()
    assert isinstance(future, concurrent.futures.Future)
    assert future.result(timeout=WAIT) == 6
    assert identity.remote(np.arange(3)).future().result(timeout=WAIT).tolist() == [0, 1, 2]
    assert sooner.put("stored").future().result(timeout=WAIT) == "stored"


@pytest.mark.api("ref.future")
def test_future_with_an_error():
    future = fails.remote("here").future()
    assert isinstance(future.exception(timeout=WAIT), LookupError)
    with pytest.raises(LookupError, match="here"):
        future.result(timeout=WAIT)


@pytest.mark.api("ref.future")
def test_future_with_a_timeout(gate):
    ref = when.remote(gate, 1)
    future = ref.future()
    with pytest.raises(concurrent.futures.TimeoutError):
        future.result(timeout=0.05)
    assert not future.done()
    gate.touch()
    assert future.result(timeout=WAIT) == 1


def test_a_future_keeps_a_ref_that_nobody_else_has(gate):
    future = when.remote(gate, b"x" * 300_000).future()
    gate.touch()
    assert future.result(timeout=WAIT) == b"x" * 300_000


def test_callbacks_of_futures_run(gate):
    called = threading.Event()
    future = when.remote(gate).future()
    future.add_done_callback(lambda _: called.set())
    assert not called.is_set()
    gate.touch()
    assert called.wait(WAIT)


def test_a_callback_may_use_sooner(gate):
    results = []
    done = threading.Event()

    def callback(future):
        # A callback that blocks the thread which delivers results would deadlock here.
        try:
            results.append(sooner.get(identity.remote(future.result() + 1), timeout=WAIT))
        finally:
            done.set()

    when.remote(gate, 1).future().add_done_callback(callback)
    gate.touch()
    assert done.wait(WAIT)
    assert results == [2]


def test_a_cancelled_future_leaves_the_others(gate):
    ref = when.remote(gate, 2)
    cancelled, kept = ref.future(), ref.future()
    assert cancelled.cancel()
    gate.touch()
    assert kept.result(timeout=WAIT) == 2
    assert cancelled.cancelled()


def test_wait_of_concurrent_futures(gate):
    slow = when.remote(gate).future()
    quick = [identity.remote(n).future() for n in range(20)]
    done, rest = concurrent.futures.wait([slow, *quick], timeout=WAIT, return_when=concurrent.futures.FIRST_COMPLETED)
    assert done
    assert slow in rest
    assert {future.result(timeout=WAIT) for future in quick} == set(range(20))
    assert [future.result() for future in concurrent.futures.as_completed(quick, timeout=WAIT)]


def test_asyncio_inside_a_task():
    @sooner.remote
    def inside():
        async def main():
            return await asyncio.gather(*(identity.remote(n) for n in range(20)))

        return asyncio.run(main())

    assert sooner.get(inside.remote(), timeout=WAIT) == list(range(20))


class Stops:
    """Raises StopIteration where it is read, as `next()` of something empty does."""

    def __reduce__(self):
        return next, (iter([]),)


@sooner.remote(num_cpus=0)
def stops(path):
    while not path.exists():
        time.sleep(0.005)
    return Stops()


@pytest.mark.parametrize("is_ready", [False, True])
def test_a_value_that_raises_stop_iteration(gate, is_ready):
    """As in a coroutine, it is a RuntimeError; what comes with it comes."""

    async def value(ref):
        return await ref

    async def main():
        refs = [make.remote(gate) for _ in range(3) for make in (stops, when)]
        tasks = [asyncio.ensure_future(value(ref)) for ref in refs]
        tasks += [ref.as_future() for ref in refs]
        await asyncio.sleep(0)
        gate.touch()
        if is_ready:
            # The loop stands still until all have come.
            sooner.wait(refs, num_returns=len(refs))
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert results[1::2] == [None] * 6
        for error in results[::2]:
            assert type(error) is RuntimeError
            assert isinstance(error.__cause__, StopIteration)
        with pytest.raises(RuntimeError):
            await refs[0]

    run(main())


def test_a_callback_that_ends_its_thread_leaves_other_futures_alone(gate):
    futures = [when.remote(gate, number).future() for number in range(4)]
    for future in futures:
        future.add_done_callback(lambda _: sys.exit(3))
    gate.touch()
    assert [future.result(WAIT) for future in futures] == [0, 1, 2, 3]
    assert identity.remote(4).future().result(WAIT) == 4
