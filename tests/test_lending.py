"""A task that waits gives its CPU to what it waits for, in whatever way it waits."""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import threading
import time

import pytest
from support import WAIT, poll

import sooner
from sooner.util import as_completed
from sooner.util.queue import Queue


@pytest.fixture(scope="module", autouse=True)
def one_cpu():
    """A session in which only one task runs at a time."""
    sooner.init(num_cpus=1)
    yield
    sooner.shutdown()


@sooner.remote
def child(n=1):
    return n + 1


def by_get():
    return sooner.get(child.remote())


def by_future():
    return child.remote().future().result()


def by_several_futures():
    futures = [child.remote().future() for _ in range(3)]
    concurrent.futures.wait(futures)
    return futures[0].result()


def by_await():
    async def main():
        return await child.remote()

    return asyncio.run(main())


def by_asyncio_gather():
    async def main():
        return (await asyncio.gather(child.remote(), child.remote()))[1]

    return asyncio.run(main())


def by_aio_gather():
    async def main():
        return (await sooner.aio.gather(child.remote(), child.remote()))[1]

    return asyncio.run(main())


def by_aio_as_completed():
    async def main():
        return [await ref async for ref in sooner.aio.as_completed([child.remote(), child.remote()])][1]

    return asyncio.run(main())


def by_an_async_generator():
    async def main():
        items = sooner.remote(lambda: iter([2])).options(num_returns="streaming").remote()
        return [await ref async for ref in items].pop()

    return asyncio.run(main())


def by_a_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(sooner.get(child.remote())))
    thread.start()
    thread.join()
    return found[0]


def by_a_thread_that_waits():
    ref = child.remote()
    thread = threading.Thread(target=sooner.wait, args=([ref],))
    thread.start()
    thread.join()
    return sooner.get(ref)


def by_a_thread_pool():
    with concurrent.futures.ThreadPoolExecutor() as pool:
        return list(pool.map(lambda n: sooner.get(child.remote(n)), [1, 1, 1]))[2]


def by_a_loop_in_a_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(by_await()))
    thread.start()
    thread.join()
    return found[0]


def by_a_nested_future():
    return sooner.remote(by_future).remote().future().result()


def by_as_completed():
    return next(iter(as_completed([child.remote()])))


def by_a_queue():
    queue = Queue()
    sooner.remote(lambda queue: queue.put(2)).remote(queue)
    return queue.get()


def by_looking_again_and_again():
    ref = child.remote()
    while not sooner.wait([ref], timeout=0)[0]:
        time.sleep(0.05)
    return sooner.get(ref)


def by_looking_without_a_pause():
    ref = child.remote()
    while not sooner.wait([ref], timeout=0)[0]:
        pass
    return sooner.get(ref)


def by_looking_with_short_pauses():
    ref = child.remote()
    while not sooner.wait([ref], timeout=0)[0]:
        time.sleep(0.005)
    return sooner.get(ref)


def by_short_gets():
    ref = child.remote()
    while True:
        try:
            return sooner.get(ref, timeout=0.001)
        except sooner.exceptions.GetTimeoutError:
            pass


def by_gets_that_do_not_wait():
    ref = child.remote()
    while True:
        try:
            return sooner.get(ref, timeout=0)
        except sooner.exceptions.GetTimeoutError:
            time.sleep(0.02)


def by_a_future_that_is_looked_at():
    future = child.remote().future()
    while not future.done():
        pass
    return future.result()


def by_turns_of_a_loop():
    async def main():
        task = asyncio.ensure_future(child.remote())
        while not task.done():
            await asyncio.sleep(0)
        return task.result()

    return asyncio.run(main())


def by_a_future_while_a_thread_computes():
    over = threading.Event()

    def compute():
        while not over.is_set():
            sum(range(1000))

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        return child.remote().future().result()
    finally:
        over.set()
        thread.join()


WAYS = [way for name, way in list(globals().items()) if name.startswith("by_")]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_task_on_the_only_cpu_waits_for_another(way):
    assert sooner.get(sooner.remote(max_retries=0)(way).remote(), timeout=WAIT) == 2


@pytest.mark.parametrize("way", [by_future, by_await, by_a_thread], ids=lambda way: way.__name__)
def test_a_method_on_the_only_cpu_waits_for_a_task(way):
    @sooner.remote(num_cpus=1)
    class Parent:
        def run(self, way):
            return way()

    parent = Parent.remote()
    assert [sooner.get(parent.run.remote(way), timeout=WAIT) for _ in range(2)] == [2, 2]


def test_calls_of_asyncio_and_threaded_actors_on_the_only_cpu_wait_for_tasks():
    @sooner.remote(num_cpus=1)
    class Loop:
        async def run(self):
            return await child.remote()

    loop = Loop.remote()
    assert sooner.get([loop.run.remote() for _ in range(3)], timeout=WAIT) == [2, 2, 2]
    del loop

    @sooner.remote(num_cpus=1, max_concurrency=3)
    class Threads:
        def run(self):
            return sooner.get(child.remote())

    threads = Threads.remote()
    assert sooner.get([threads.run.remote() for _ in range(3)], timeout=WAIT) == [2, 2, 2]


def test_a_task_that_computes_while_a_thread_of_it_waits_keeps_its_cpu(tmp_path):
    @sooner.remote
    def computes(path):
        thread = threading.Thread(target=lambda: sooner.get(touches.remote(path)), daemon=True)
        thread.start()
        end = time.monotonic() + 1
        while time.monotonic() < end:
            sum(range(1000))
        return path.exists()

    @sooner.remote
    def touches(path):
        path.touch()

    assert sooner.get(computes.remote(tmp_path / "ran"), timeout=WAIT) is False
    poll("the other task ran afterwards", (tmp_path / "ran").exists)


def test_the_cpu_is_taken_back_with_the_end_of_the_wait():
    @sooner.remote
    def waits():
        by_future()
        by_await()
        by_a_thread()

    @sooner.remote
    def now():
        return time.monotonic()

    sooner.get([waits.remote() for _ in range(5)], timeout=WAIT)
    # One at a time, as before.
    poll("one CPU is free", lambda: sooner.available_resources().get("CPU") == 1.0)

    @sooner.remote
    def spell():
        start = time.monotonic()
        time.sleep(0.2)
        return start, time.monotonic()

    spells = sorted(sooner.get([spell.remote() for _ in range(4)], timeout=WAIT))
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spells))


@pytest.mark.parametrize("left", ["future", "thread"])
def test_what_a_task_leaves_behind_lends_no_cpu_of_the_next(left):
    @sooner.remote(num_cpus=0, max_retries=0)
    def never():
        threading.Event().wait()

    @sooner.remote
    def leaves(refs):
        if left == "future":
            refs[0].future().add_done_callback(lambda _: None)
        else:
            threading.Thread(target=sooner.get, args=(refs[0],), daemon=True).start()

    @sooner.remote
    def spell():
        start = time.monotonic()
        time.sleep(0.2)
        return start, time.monotonic()

    ref = never.remote()
    sooner.get(leaves.remote([ref]), timeout=WAIT)
    spells = sorted(sooner.get([spell.remote() for _ in range(4)], timeout=WAIT))
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spells))
    sooner.cancel(ref, force=True)
