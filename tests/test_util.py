"""sooner.util: results as they come, actor pools, queues, names of actors."""

from __future__ import annotations

import asyncio
import concurrent.futures
import multiprocessing as stdlib_multiprocessing
import os
import queue as stdlib_queue
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import WAIT, poll

import sooner
from sooner.exceptions import ActorDiedError
from sooner.util import ActorPool, as_completed, list_named_actors, map_unordered
from sooner.util.multiprocessing import Pool
from sooner.util.queue import Empty, Full, Queue

pytestmark = pytest.mark.usefixtures("shared_session")


@sooner.remote
def double(number):
    return 2 * number


@sooner.remote
def wait_for_file(path, result):
    deadline = time.monotonic() + WAIT
    while not Path(path).exists():
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return result


@sooner.remote
def fail(message):
    raise ValueError(message)


@sooner.remote
class Worker:
    def double(self, number):
        return 2 * number

    def slow_first(self, number, path):
        if number == 0:
            deadline = time.monotonic() + WAIT
            while not Path(path).exists():
                assert time.monotonic() < deadline
                time.sleep(0.005)
        return number

    def fail_at(self, number, bad):
        if number == bad:
            raise ValueError(f"bad {number}")
        return number

    def made(self, make):
        return make()

    def die(self, number):
        import os

        os._exit(1)


# --- as_completed and
# map_unordered ----------------------------------------------------------------------------------


@pytest.mark.api("util.iteration")
def test_as_completed_yields_the_fast_before_the_slow(tmp_path):
    slow = wait_for_file.remote(str(tmp_path / "go"), "slow")
    results = as_completed([slow, double.remote(1), double.remote(2)])
    assert {next(results), next(results)} == {2, 4}
    (tmp_path / "go").touch()
    assert list(results) == ["slow"]


@pytest.mark.api("util.iteration")
def test_as_completed_can_yield_references():
    refs = [double.remote(number) for number in range(5)]
    assert set(as_completed(refs, yield_obj_refs=True)) == set(refs)
    assert list(as_completed([])) == []
    assert sorted(as_completed(iter(refs), chunk_size=1)) == [0, 2, 4, 6, 8]


def test_an_error_ends_as_completed_but_not_the_references():
    refs = [fail.remote("no"), double.remote(1)]
    with pytest.raises(ValueError, match="no"):
        list(as_completed(refs))
    for ref in as_completed(refs, yield_obj_refs=True):
        if ref == refs[1]:
            assert sooner.get(ref) == 2


def test_as_completed_over_many_references():
    refs = [double.remote(number) for number in range(20_000)]
    assert sorted(as_completed(refs)) == list(range(0, 40_000, 2))


@pytest.mark.parametrize("refs", [5, ["x"], [None]], ids=repr)
def test_as_completed_of_something_else(refs):
    with pytest.raises(TypeError):
        as_completed(refs)


def test_as_completed_of_one_reference_or_one_twice():
    ref = double.remote(1)
    with pytest.raises(TypeError, match="list"):
        as_completed(ref)
    with pytest.raises(ValueError, match="twice"):
        as_completed([ref, ref])


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "10"], ids=repr)
def test_sizes_that_are_none(size):
    with pytest.raises(ValueError, match="chunk_size"):
        as_completed([], chunk_size=size)
    with pytest.raises(ValueError, match="backpressure_size"):
        map_unordered(double, [], backpressure_size=size)


@pytest.mark.api("util.iteration")
def test_map_unordered():
    assert sorted(map_unordered(double, range(250))) == list(range(0, 500, 2))
    assert list(map_unordered(double, [])) == []
    assert {sooner.get(ref) for ref in map_unordered(double, [1, 2], yield_obj_refs=True)} == {2, 4}
    actor = Worker.remote()
    assert sorted(map_unordered(actor.double, range(3), chunk_size=1)) == [0, 2, 4]


@pytest.mark.api("util.iteration")
def test_map_unordered_takes_items_as_results_are_taken():
    taken = []

    def items() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    results = map_unordered(double, items(), backpressure_size=4)
    assert taken == []
    next(results)
    assert len(taken) == 4
    assert len(list(results)) == 99


def test_map_unordered_of_something_that_is_not_remote():
    with pytest.raises(TypeError, match=r"sooner\.remote"):
        map_unordered(lambda x: x, [1])


# ---
# ActorPool -------------------------------------------------------------------------------------------------------


@pytest.fixture
def pool():
    return ActorPool([Worker.options(num_cpus=0).remote() for _ in range(2)])


@pytest.mark.api("util.actor_pool")
def test_an_actor_pool_maps_in_order(pool, tmp_path):
    path = str(tmp_path / "go")
    results = pool.map(lambda actor, number: actor.slow_first.remote(number, path), range(4))
    threading.Timer(0.1, Path(path).touch).start()
    assert list(results) == [0, 1, 2, 3]


@pytest.mark.api("util.actor_pool")
def test_an_actor_pool_maps_out_of_order(pool, tmp_path):
    path = tmp_path / "go"
    results = pool.map_unordered(lambda actor, number: actor.slow_first.remote(number, str(path)), range(4))
    assert [next(results), next(results), next(results)] == [1, 2, 3]
    path.touch()
    assert list(results) == [0]


@pytest.mark.api("util.actor_pool")
def test_submit_and_get_next(pool):
    assert not pool.has_next()
    with pytest.raises(StopIteration):
        pool.get_next()
    with pytest.raises(StopIteration):
        pool.get_next_unordered()
    for number in range(5):
        pool.submit(lambda actor, n: actor.double.remote(n), number)
    assert pool.get_next(timeout=WAIT) == 0
    others = {pool.get_next_unordered(timeout=WAIT) for _ in range(2)}
    assert others < {2, 4, 6, 8}
    rest = [pool.get_next(), pool.get_next()]
    assert rest == sorted({2, 4, 6, 8} - others)
    assert not pool.has_next()


@pytest.mark.api("util.actor_pool")
def test_has_free_pop_and_push(pool, tmp_path):
    path = tmp_path / "go"
    pool.submit(lambda actor, n: actor.slow_first.remote(n, str(path)), 0)
    assert pool.has_free()
    idle = pool.pop_idle()
    assert sooner.get(idle.double.remote(1)) == 2
    assert not pool.has_free()
    assert pool.pop_idle() is None
    pool.submit(lambda actor, n: actor.double.remote(n), 7)
    pool.push(idle)
    assert pool.get_next_unordered(timeout=WAIT) == 14
    with pytest.raises(ValueError, match="already"):
        pool.push(idle)
    path.touch()
    assert pool.get_next(timeout=WAIT) == 0


@pytest.mark.api("util.actor_pool")
def test_a_call_that_takes_too_long(pool, tmp_path):
    path = tmp_path / "go"
    pool.submit(lambda actor, n: actor.slow_first.remote(n, str(path)), 0)
    pool.submit(lambda actor, n: actor.slow_first.remote(n, str(path)), 1)
    for _ in range(2):
        with pytest.raises(TimeoutError):
            pool.get_next(timeout=0.02)
    with pytest.raises(TimeoutError):
        pool.get_next(timeout=0.02, ignore_if_timedout=True)
    assert pool.get_next(timeout=WAIT) == 1
    assert not pool.has_next()
    with pytest.raises(StopIteration):
        pool.get_next()
    path.touch()
    # Nobody wants its result, and its actor is free again.
    assert pool.pop_idle() is not None
    poll("the other actor is free, too", pool.has_free)


def test_an_error_takes_its_place(pool):
    for number in range(3):
        pool.submit(lambda actor, n: actor.fail_at.remote(n, 1), number)
    assert pool.get_next() == 0
    with pytest.raises(ValueError, match="bad 1"):
        pool.get_next()
    assert pool.get_next() == 2


def test_a_map_drops_what_was_left(pool):
    for number in range(3):
        pool.submit(lambda actor, n: actor.fail_at.remote(n, 1), number)
    assert list(pool.map(lambda actor, n: actor.double.remote(n), [10, 20])) == [20, 40]


@pytest.mark.parametrize(
    "wrong", [lambda actor, _: actor.double, lambda *_: [], lambda *_: None], ids=["method", "list", "none"]
)
def test_a_function_that_makes_no_call(pool, wrong):
    for use in (pool.map, pool.map_unordered):
        with pytest.raises(TypeError, match=r"actor\.method\.remote"):
            use(wrong, [1, 2])
        assert sorted(use(lambda actor, n: actor.double.remote(n), [10, 20, 30])) == [20, 40, 60]
    assert not pool.has_next()
    assert pool.has_free()


def test_a_function_that_makes_no_call_when_it_gets_an_actor(pool, tmp_path):
    """Whoever asks for that result is told, and nobody else."""
    path = str(tmp_path / "go")
    for number in range(2):
        pool.submit(lambda actor, n: actor.slow_first.remote(n - n, path), number)
    pool.submit(lambda actor, _: actor.double, 2)
    pool.submit(lambda _, n: n / 0, 3)
    pool.submit(lambda actor, n: actor.double.remote(n), 4)
    Path(path).touch()
    assert [pool.get_next(timeout=WAIT) for _ in range(2)] == [0, 0]
    with pytest.raises(TypeError, match="ActorMethod"):
        pool.get_next(timeout=WAIT)
    with pytest.raises(ZeroDivisionError):
        pool.get_next(timeout=WAIT)
    assert pool.get_next(timeout=WAIT) == 8
    assert not pool.has_next()


def test_a_map_drops_what_nobody_can_take(pool):
    """All actors were taken out of the pool."""
    actors = [pool.pop_idle(), pool.pop_idle()]
    pool.submit(lambda actor, n: actor.double.remote(n), 1)
    results = pool.map(lambda actor, n: actor.double.remote(n), [2, 3])
    for actor in actors:
        pool.push(actor)
    assert list(results) == [4, 6]


class Exits:
    def __reduce__(self):
        return _exit_elsewhere, (os.getpid(),)


def _exit_elsewhere(pid):
    if pid != os.getpid():
        raise SystemExit("read")


def test_a_result_that_raises_as_it_is_read_does_not_cost_its_actor(pool):
    for _ in range(4):
        pool.submit(lambda actor, _: actor.made.remote(Exits), None)
    for _ in range(4):
        with pytest.raises(SystemExit):
            pool.get_next(timeout=WAIT)
    assert list(pool.map(lambda actor, n: actor.double.remote(n), range(4))) == [0, 2, 4, 6]


def test_a_dead_actor_gets_no_more_calls(pool):
    pool.submit(lambda actor, n: actor.die.remote(n), 0)
    for number in range(1, 4):
        pool.submit(lambda actor, n: actor.double.remote(n), number)
    with pytest.raises(ActorDiedError):
        pool.get_next(timeout=WAIT)
    assert [pool.get_next(timeout=WAIT) for _ in range(3)] == [2, 4, 6]


def test_a_pool_whose_actors_are_all_dead(pool):
    for number in range(4):
        pool.submit(lambda actor, n: actor.die.remote(n), number)
    for _ in range(3):
        with pytest.raises(ActorDiedError):
            pool.get_next(timeout=WAIT)
    assert not pool.has_next()


@pytest.mark.parametrize("actors", [[], [1], ["x"], [None]], ids=repr)
def test_pools_of_nothing(actors):
    with pytest.raises((TypeError, ValueError), match="actor"):
        ActorPool(actors)


# ---
# Queue -----------------------------------------------------------------------------------------------------------


@pytest.mark.api("util.queue")
def test_a_queue_is_first_in_first_out():
    queue = Queue()
    for number in range(5):
        queue.put(number)
    assert len(queue) == queue.qsize() == queue.size() == 5
    assert not queue.empty()
    assert not queue.full()
    assert [queue.get(timeout=WAIT) for _ in range(5)] == list(range(5))
    assert queue.empty()


@pytest.mark.api("util.queue")
def test_a_bounded_queue():
    queue = Queue(maxsize=2)
    queue.put_nowait(1)
    queue.put(2, block=False)
    assert queue.full()
    for put in (queue.put_nowait, lambda item: queue.put(item, timeout=0.02), lambda item: queue.put(item, timeout=0)):
        with pytest.raises(Full):
            put(3)
    assert Full is stdlib_queue.Full
    assert queue.get() == 1
    queue.put(3, timeout=WAIT)
    assert queue.get_nowait_batch(2) == [2, 3]


@pytest.mark.api("util.queue")
def test_an_empty_queue():
    queue = Queue()
    for get in (queue.get_nowait, lambda: queue.get(block=False), lambda: queue.get(timeout=0.02)):
        with pytest.raises(Empty):
            get()
    assert Empty is stdlib_queue.Empty


@pytest.mark.api("util.queue")
def test_batches_are_all_or_nothing():
    queue = Queue(maxsize=3)
    queue.put_nowait_batch([1, 2])
    with pytest.raises(Full, match="1 items, not for 2"):
        queue.put_nowait_batch(iter([3, 4]))
    with pytest.raises(Empty, match="2 items, not 3"):
        queue.get_nowait_batch(3)
    assert queue.get_nowait_batch(2) == [1, 2]
    assert queue.get_nowait_batch(0) == []


def test_a_queue_between_tasks_and_a_thread():
    queue = Queue(maxsize=4)

    @sooner.remote
    def produce(queue, start):
        for number in range(start, start + 50):
            queue.put(number)

    refs = [produce.remote(queue, 0), produce.remote(queue, 50)]
    items = [queue.get(timeout=WAIT) for _ in range(100)]
    sooner.get(refs, timeout=WAIT)
    assert sorted(items) == list(range(100))
    # Each producer's items stay in order.
    assert [item for item in items if item < 50] == list(range(50))


@pytest.mark.api("util.queue")
def test_a_queue_in_asyncio():
    queue = Queue(maxsize=1)

    async def main():
        await queue.put_async("first")
        with pytest.raises(Full):
            await queue.put_async("second", timeout=0.02)
        waiting = asyncio.ensure_future(queue.put_async("second"))
        assert await queue.get_async() == "first"
        await waiting
        assert await queue.get_async(timeout=WAIT) == "second"
        with pytest.raises(Empty):
            await queue.get_async(block=False)

    asyncio.run(main())


def test_what_a_queue_refuses():
    for maxsize in (1.5, "1", None, True):
        with pytest.raises(TypeError, match="maxsize"):
            Queue(maxsize)
    queue = Queue()
    with pytest.raises(ValueError, match="timeout"):
        queue.get(timeout=-1)
    with pytest.raises(ValueError, match="timeout"):
        queue.put(1, timeout=-1)
    with pytest.raises(ValueError, match="num_items"):
        queue.get_nowait_batch(-1)
    with pytest.raises(TypeError, match="pickled"):
        queue.put(threading.Lock())
    queue.put("still alive")
    assert queue.get() == "still alive"


@pytest.mark.api("util.queue")
@pytest.mark.parametrize("force", [False, True])
def test_shutdown_of_a_queue(force):
    queue = Queue()
    queue.put(1)
    queue.shutdown(force=force)
    with pytest.raises(ActorDiedError):
        queue.get(timeout=WAIT)
    queue.shutdown()


@pytest.mark.api("util.queue")
def test_a_queue_with_options():
    queue = Queue(actor_options={"name": "the-queue", "num_cpus": 1})
    queue.put(1)
    assert "the-queue" in list_named_actors()
    assert sooner.get(sooner.get_actor("the-queue").qsize.remote()) == 1


# ---
# names -----------------------------------------------------------------------------------------------------------


@pytest.mark.api("util.named_actors")
def test_list_named_actors():
    before = set(list_named_actors())
    here = Worker.options(name="here").remote()
    there = Worker.options(name="there", namespace="elsewhere").remote()
    sooner.get([here.double.remote(1), there.double.remote(1)])
    assert set(list_named_actors()) - before == {"here"}
    everywhere = list_named_actors(all_namespaces=True)
    assert {"name": "there", "namespace": "elsewhere"} in everywhere
    assert "here" in {actor["name"] for actor in everywhere}
    assert sooner.list_named_actors is list_named_actors


def test_a_queue_whose_actor_died_says_so():
    queue = Queue(maxsize=2)
    queue.put(1)
    sooner.kill(queue.actor)
    for use in (lambda: queue.put(2), queue.get, queue.qsize, queue.get_nowait, lambda: queue.put_nowait(3)):
        with pytest.raises(ActorDiedError):
            use()


# --- queues and those who wait for
# them -------------------------------------------------------------------------------


@pytest.mark.parametrize("calls", [1, 2, 10])
def test_more_wait_for_an_item_than_the_queue_serves(calls):
    queue = Queue(actor_options={"max_concurrency": calls})

    async def main():
        getting = [asyncio.ensure_future(queue.get_async(timeout=WAIT)) for _ in range(25)]
        await asyncio.sleep(0.5)
        for n in range(25):
            await asyncio.wait_for(queue.put_async(n), WAIT)
        return await asyncio.gather(*getting)

    assert sorted(asyncio.run(main())) == list(range(25))


def test_more_wait_for_room_than_the_queue_serves():
    queue = Queue(maxsize=1, actor_options={"max_concurrency": 5})

    async def main():
        putting = [asyncio.ensure_future(queue.put_async(n, timeout=WAIT)) for n in range(20)]
        await asyncio.sleep(0.5)
        found = [await asyncio.wait_for(queue.get_async(), WAIT) for _ in range(20)]
        await asyncio.gather(*putting)
        return found

    assert sorted(asyncio.run(main())) == list(range(20))


def test_who_is_told_to_come_again_keeps_to_the_timeout():
    queue = Queue(actor_options={"max_concurrency": 2})
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        begin = time.monotonic()
        waits = [threads.submit(queue.get, timeout=0.3) for _ in range(4)]
        for wait in waits:
            with pytest.raises(Empty):
                wait.result(WAIT)
        assert time.monotonic() - begin >= 0.3
    assert queue.empty()


def test_a_get_that_is_given_up_loses_no_item():
    queue = Queue()

    async def main():
        for n in range(200):
            waiting = asyncio.ensure_future(queue.get_async())
            await asyncio.sleep(0.001 * (n % 3))
            putting = asyncio.ensure_future(queue.put_async(n))
            # While it waits, while the item is on its way, or after that.
            await asyncio.sleep(0.0005 * (n % 7))
            waiting.cancel()
            await putting
            found = (await asyncio.gather(waiting, return_exceptions=True))[0]
            if isinstance(found, asyncio.CancelledError):
                found = await queue.get_async(timeout=WAIT)
            assert found == n
        assert await queue.actor.qsize.remote() == 0

    asyncio.run(main())


def test_a_put_that_is_given_up_adds_nothing():
    queue = Queue(maxsize=1)
    queue.put("first")

    async def main():
        waiting = asyncio.ensure_future(queue.put_async("second"))
        await asyncio.sleep(0.2)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    asyncio.run(main())
    assert queue.get() == "first"
    with pytest.raises(Empty):
        queue.get(timeout=0.2)


def test_a_get_that_an_exception_ends_loses_no_item():
    queue = Queue()

    @sooner.remote
    def waits(queue):
        queue.get()

    ref = waits.remote(queue)
    time.sleep(0.5)
    sooner.cancel(ref)
    sooner.wait([ref], timeout=WAIT)
    time.sleep(0.2)
    queue.put(1)
    assert queue.get(timeout=WAIT) == 1


def test_items_given_back_come_first():
    queue = Queue()
    queue.put_nowait_batch([2, 3])
    sooner.get(queue.actor.put_back.remote([0, 1]))
    assert [queue.get() for _ in range(4)] == [0, 1, 2, 3]


def test_timeouts_pass_while_the_clocks_of_a_program_stand_still(monkeypatch):
    # What such libraries do: in each module that has the function, it is replaced.
    monkeypatch.setattr(time, "monotonic", lambda: 1.0)
    with Pool(1) as pool, pytest.raises(stdlib_multiprocessing.TimeoutError):
        pool.imap(time.sleep, [3]).next(timeout=0.3)
    executor = sooner.Executor(1)
    with pytest.raises(TimeoutError):
        list(executor.map(time.sleep, [3], timeout=0.3))
    executor.shutdown(wait=False, cancel_futures=True)
