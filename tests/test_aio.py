"""sooner.aio: `get`, `wait`, `as_completed` and `gather` in event loops of drivers, tasks and asyncio
actors.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref

import numpy as np
import pytest
from support import WAIT, run_driver

import sooner
from sooner.exceptions import GetTimeoutError, TaskError

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


async def taken(iterator):
    return [item async for item in iterator]


@pytest.mark.api("own.aio")
def test_get_one_and_several():
    async def main():
        assert await sooner.aio.get(identity.remote(1)) == 1
        assert await sooner.aio.get([identity.remote(n) for n in range(3)]) == [0, 1, 2]
        assert await sooner.aio.get((sooner.put("a"), sooner.put("b")), timeout=WAIT) == ["a", "b"]
        ref = identity.remote("twice")
        assert await sooner.aio.get([ref, ref]) == ["twice", "twice"]
        assert await sooner.aio.get([]) == []

    run(main())


def test_get_of_many():
    async def main():
        return await sooner.aio.get([identity.remote(n) for n in range(3000)])

    assert run(main()) == list(range(3000))


def test_get_raises_the_first_failure_in_order(gate):
    async def main():
        refs = [identity.remote(1), when.remote(gate), fails.remote("first"), fails.remote("second")]
        await sooner.aio.wait(refs[2:], num_returns=2)
        for timeout in (None, 0, WAIT):
            with pytest.raises(LookupError, match="first") as caught:
                await sooner.aio.get(refs, timeout=timeout)
            assert isinstance(caught.value, TaskError)
        assert not gate.exists()

    run(main())


@pytest.mark.parametrize("verb", ["get", "gather", "asyncio.gather"])
def test_many_raise_as_soon_as_one_has_failed(gate, verb):
    async def main():
        refs = [when.remote(gate), fails.remote("early"), when.remote(gate)]
        with pytest.raises(LookupError, match="early"):
            if verb == "get":
                await sooner.aio.get(refs, timeout=WAIT)
            elif verb == "gather":
                await sooner.aio.gather(*refs)
            else:
                await asyncio.gather(*refs)
        assert not gate.exists()

    run(main())


def test_get_gives_up_in_time_and_the_task_goes_on(gate):
    async def main():
        slow = when.remote(gate, "late")
        with pytest.raises(GetTimeoutError, match="1 of 2 objects"):
            await sooner.aio.get([identity.remote(1), slow], timeout=2)
        for look in (0, -1):
            with pytest.raises(TimeoutError):
                await sooner.aio.get(slow, timeout=look)
        gate.touch()
        return await sooner.aio.get(slow, timeout=WAIT)

    assert run(main()) == "late"


@pytest.mark.api("own.aio")
def test_wait_keeps_the_order_of_its_input(gate):
    async def main():
        slow = when.remote(gate, "slow")
        quick = [identity.remote(n) for n in range(4)]
        ready, rest = await sooner.aio.wait([slow, *quick], num_returns=4)
        assert (ready, rest) == (quick, [slow])
        ready, rest = await sooner.aio.wait([slow, *quick], num_returns=5, timeout=0.05)
        assert (ready, rest) == (quick, [slow])
        assert await sooner.aio.wait((slow,), timeout=0) == ([], [slow])
        waiting = asyncio.ensure_future(sooner.aio.wait([slow]))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        gate.touch()
        assert await waiting == ([slow], [])

    run(main())


def test_wait_does_not_read_values():
    async def main():
        bad = fails.remote("x")
        assert await sooner.aio.wait([bad]) == ([bad], [])

    run(main())


@pytest.mark.api("own.aio")
def test_as_completed(gate):
    async def main():
        slow = when.remote(gate, "slow")
        seen = []
        async for ref in sooner.aio.as_completed([slow, *(identity.remote(n) for n in range(3))]):
            seen.append(await ref)
            if len(seen) == 3:
                gate.touch()
        assert sorted(seen[:3]) == [0, 1, 2]
        assert seen[3] == "slow"
        assert await taken(sooner.aio.as_completed([])) == []
        assert await taken(sooner.aio.as_completed([slow, slow])) == [slow]

    run(main())


def test_as_completed_leaves_failures_to_the_caller():
    async def main():
        failed = 0
        async for ref in sooner.aio.as_completed((fails.remote("x"), identity.remote(1))):
            try:
                await ref
            except LookupError:
                failed += 1
        return failed

    assert run(main()) == 1


def test_as_completed_with_a_timeout(gate):
    async def main():
        seen = []
        with pytest.raises(GetTimeoutError, match="1 of 2"):
            async for ref in sooner.aio.as_completed([when.remote(gate), sooner.put("there")], timeout=0.1):
                seen.append(await ref)  # noqa: PERF401  what came before the error counts
        assert seen == ["there"]

    run(main())


@pytest.mark.api("own.aio")
def test_gather():
    async def main():
        ref = identity.remote("x")
        assert await sooner.aio.gather(*(identity.remote(n) for n in range(500))) == list(range(500))
        assert await sooner.aio.gather(ref, identity.remote(1), ref) == ["x", 1, "x"]
        assert await sooner.aio.gather() == []
        good, bad = await sooner.aio.gather(ref, fails.remote("why"), return_exceptions=True)
        assert good == "x"
        assert isinstance(bad, LookupError)

    run(main())


def test_gather_raises_what_comes_first(gate):
    async def main():
        slow = when.remote(gate, "goes on")
        with pytest.raises(LookupError, match="early"):
            await sooner.aio.gather(slow, fails.remote("early"))
        gate.touch()
        return await slow

    assert run(main()) == "goes on"


@pytest.mark.parametrize(
    "start",
    [
        lambda ref: sooner.aio.get(ref),
        lambda ref: sooner.aio.get([ref], timeout=WAIT),
        lambda ref: sooner.aio.wait([ref]),
        lambda ref: sooner.aio.gather(ref),
        lambda ref: taken(sooner.aio.as_completed([ref])),
    ],
    ids=["get", "get list", "wait", "gather", "as_completed"],
)
def test_a_cancelled_wait_leaves_the_task_and_other_waits_alone(start, gate):
    async def main():
        ref = when.remote(gate, "done")
        cancelled, kept = asyncio.ensure_future(start(ref)), asyncio.ensure_future(start(ref))
        await asyncio.sleep(0.01)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        gate.touch()
        await kept
        return await sooner.aio.get(ref)

    assert run(main()) == "done"


def test_a_wait_that_gave_up_keeps_no_reference(gate):
    async def main():
        ref = when.remote(gate, b"x" * 200_000)
        alive = weakref.ref(ref)
        for _ in range(20):
            await sooner.aio.wait([ref], timeout=0.001)
            with pytest.raises(GetTimeoutError):
                await sooner.aio.get(ref, timeout=0.001)
        del ref
        gc.collect()
        assert alive() is None

    run(main())


def test_waits_keep_what_nobody_else_has(gate):
    async def main():
        waiting = asyncio.ensure_future(sooner.aio.get(when.remote(gate, np.arange(50_000))))
        await asyncio.sleep(0.01)
        gc.collect()
        gate.touch()
        return int((await waiting).sum())

    assert run(main()) == sum(range(50_000))


def test_what_is_ready_does_not_starve_the_loop():
    async def main():
        ref = sooner.put(1)
        turns = 0

        async def other():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(other())
        for _ in range(50):
            await sooner.aio.get(ref)
            await sooner.aio.wait([ref])
            await sooner.aio.gather(ref)
        beside.cancel()
        return turns

    assert run(main()) >= 75


@pytest.mark.api("own.aio")
def test_no_threads_and_no_loops():
    async def main():
        before = set(threading.enumerate())
        await sooner.aio.get([identity.remote(n) for n in range(100)])
        await sooner.aio.gather(*(identity.remote(n) for n in range(100)))
        assert set(threading.enumerate()) <= before

    run(main())


def test_in_a_task():
    @sooner.remote
    def inside():
        async def main():
            return await sooner.aio.get([identity.remote(n) for n in range(20)])

        return asyncio.run(main())

    assert sooner.get(inside.remote(), timeout=WAIT) == list(range(20))


def test_in_an_asyncio_actor(gate):
    @sooner.remote
    class Caller:
        def __init__(self):
            self.seen = []

        async def all_ways(self, path):
            slow = when.remote(path, "slow")
            ready, rest = await sooner.aio.wait([slow, identity.remote(1)])
            assert rest == [slow]
            assert await sooner.aio.get(ready) == [1]
            try:
                await sooner.aio.get(slow, timeout=0.05)
            except sooner.exceptions.GetTimeoutError:
                self.seen.append("late")
            path.touch()
            async for ref in sooner.aio.as_completed([slow, identity.remote(2)]):
                self.seen.append(await ref)
            return await sooner.aio.gather(*(identity.remote(n) for n in range(10)))

        async def borrowed(self, refs):
            return await sooner.aio.get(refs, timeout=60)

        async def what(self):
            return self.seen

    caller = Caller.remote()
    mine = when.remote(gate, "mine")
    borrowed = caller.borrowed.remote([mine])
    assert sooner.get(caller.all_ways.remote(gate), timeout=WAIT) == list(range(10))
    assert sooner.get(borrowed, timeout=WAIT) == ["mine"]
    seen = sooner.get(caller.what.remote(), timeout=WAIT)
    assert seen[0] == "late"
    assert set(seen[1:]) == {"slow", 2}


def test_what_it_refuses():
    ref = sooner.put(1)

    async def main():
        for bad in (5, None, "ref", {ref}):
            with pytest.raises(TypeError, match="ObjectRef"):
                await sooner.aio.get(bad)
            with pytest.raises(TypeError, match="list or tuple"):
                await sooner.aio.wait(bad)
            with pytest.raises(TypeError, match="list or tuple"):
                sooner.aio.as_completed(bad)
        with pytest.raises(TypeError, match="list or tuple"):
            await sooner.aio.wait(ref)
        for verb in (sooner.aio.get, sooner.aio.wait):
            with pytest.raises(TypeError, match="not int"):
                await verb([ref, 5])
            with pytest.raises(TypeError, match="timeout"):
                await verb([ref], timeout="1")
            with pytest.raises(ValueError, match="NaN"):
                await verb([ref], timeout=float("nan"))
        with pytest.raises(TypeError, match="not int"):
            sooner.aio.as_completed([5])
        with pytest.raises(TypeError, match=r"gather\(\*refs\)"):
            await sooner.aio.gather([ref])
        with pytest.raises(TypeError, match="not int"):
            await sooner.aio.gather(ref, 5)
        for count in (0, -1, 2):
            with pytest.raises(ValueError, match="num_returns"):
                await sooner.aio.wait([ref], num_returns=count)
        with pytest.raises(ValueError, match="twice"):
            await sooner.aio.wait([ref, ref])

    run(main())


def test_a_session_that_ends_under_a_wait():
    done = run_driver(
        """
        import asyncio, time, sooner
        sooner.init(num_cpus=1)
        sleep = sooner.remote(time.sleep)

        async def ends(waiting):
            try:
                await waiting
            except (ValueError, sooner.exceptions.SoonerError) as error:
                return True

        async def main():
            refs = [sleep.remote(100) for _ in range(2)]
            waits = [sooner.aio.get(refs), sooner.aio.get(refs[0], timeout=90)]
            waits += [sooner.aio.wait(refs), sooner.aio.gather(*refs)]
            waits = [asyncio.ensure_future(ends(wait)) for wait in waits]
            await asyncio.sleep(0.1)
            sooner.shutdown()
            print(await asyncio.wait_for(asyncio.gather(*waits), 50))
            print(await ends(sooner.aio.get(refs)))

        asyncio.run(main())
        """
    )
    assert done.stdout == "[True, True, True, True]\nTrue\n", done.stderr


@pytest.mark.parametrize("timeout", [None, 0, 0.1])
def test_wait_for_nothing(timeout):
    """As `sooner.wait`: a loop over what is left may ask once more."""
    assert run(sooner.aio.wait([], timeout=timeout)) == ([], [])
    assert run(sooner.aio.wait((), num_returns=3, timeout=timeout)) == ([], [])


def test_no_wait_begins_a_session():
    """Those that the end of a session wakes raise, and look for nothing in another one."""
    done = run_driver(
        """
        import asyncio, threading, time, sooner
        sooner.init(num_cpus=1)
        ref = sooner.remote(time.sleep).remote(100)
        begun = threading.Semaphore(0)

        async def first(refs):
            return [ref async for ref in sooner.aio.as_completed(refs)]

        async def ends(waiting):
            task = asyncio.ensure_future(waiting)
            for _ in range(10):
                await asyncio.sleep(0)
            begun.release()
            try:
                return await task
            except (ValueError, sooner.exceptions.SoonerError) as error:
                return True

        waits = [sooner.aio.get, sooner.aio.wait, first, lambda refs: sooner.aio.get(*refs)]
        outcomes = []

        def wait(use):
            outcomes.append(asyncio.run(ends(use([ref]))))

        threads = [threading.Thread(target=wait, args=(use,)) for use in waits]
        for thread in threads:
            thread.start()
        for thread in threads:
            begun.acquire()
        sooner.shutdown()
        for thread in threads:
            thread.join()
        print(outcomes, sooner.is_initialized())
        """
    )
    assert done.stdout == "[True, True, True, True] False\n", done.stderr
