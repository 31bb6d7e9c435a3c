"""Streaming and dynamic generators: order, errors, back-pressure, ends, and what nobody reads."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from support import WAIT, poll, run_driver

import sooner
from sooner.exceptions import ActorDiedError, TaskCancelledError, WorkerCrashedError

pytestmark = pytest.mark.usefixtures("shared_session")


@sooner.remote
def count(n):
    yield from range(n)


@sooner.remote
def count_and_fail(n):
    yield from range(n)
    raise ValueError(f"after {n}")


def note(path, text):
    with open(path, "a") as file:
        file.write(f"{text}\n")


def notes(path):
    return Path(path).read_text().split() if os.path.exists(path) else []


@sooner.remote
def noting(path, n):
    """Writes down each item before it yields it, and how it ended."""
    try:
        for i in range(n):
            note(path, i)
            yield i
        note(path, "end")
    finally:
        note(path, "closed")


@sooner.remote
class Source:
    def items(self, n):
        yield from range(n)

    @sooner.method(num_returns="streaming")
    def listed(self, n):
        return list(range(n))

    def die_after(self, n):
        yield from range(n)
        os._exit(1)


@sooner.remote
class AsyncSource:
    async def items(self, n):
        for i in range(n):
            await asyncio.sleep(0)
            yield i

    def plain(self, n):
        yield from range(n)

    async def forever(self, path):
        try:
            while True:
                yield 0
                await asyncio.sleep(0.001)
        finally:
            note(path, "closed")


@pytest.mark.api("generator")
def test_a_generator_streams_by_default():
    generator = count.remote(4)
    assert isinstance(generator, sooner.ObjectRefGenerator)
    assert [sooner.get(ref) for ref in generator] == [0, 1, 2, 3]
    assert generator.is_finished()
    assert next(generator, None) is None


def test_an_empty_generator_ends_at_once():
    assert list(count.remote(0)) == []


@pytest.mark.api("task.num_returns")
def test_any_iterable_streams_when_asked():
    @sooner.remote(num_returns="streaming")
    def letters():
        return "abc"

    assert sooner.get(list(letters.remote())) == ["a", "b", "c"]


def test_what_cannot_be_iterated_is_refused():
    @sooner.remote(num_returns="streaming")
    def number():
        return 3

    with pytest.raises(TypeError, match="must return a generator"):
        sooner.get(list(number.remote()))


def test_a_generator_with_a_number_of_returns_is_not_streamed():
    first, second = count.options(num_returns=2).remote(2)
    assert sooner.get([first, second]) == [0, 1]


@pytest.mark.api("generator")
def test_items_come_as_they_are_yielded(tmp_path):
    @sooner.remote
    def two(gate):
        yield "first"
        while not gate.exists():
            time.sleep(0.005)
        yield "second"

    gate = tmp_path / "gate"
    generator = two.remote(gate)
    assert sooner.get(next(generator), timeout=WAIT) == "first"
    assert not generator.next_ready()
    gate.touch()
    assert sooner.get(next(generator), timeout=WAIT) == "second"


@pytest.mark.api("generator")
def test_an_error_is_the_last_item():
    refs = list(count_and_fail.remote(2))
    assert sooner.get(refs[:2]) == [0, 1]
    assert len(refs) == 3
    with pytest.raises(ValueError, match="after 2"):
        sooner.get(refs[2])


def test_an_item_that_cannot_be_pickled_is_an_error_item():
    @sooner.remote
    def locks():
        yield 1
        yield threading.Lock()

    first, second = locks.remote()
    assert sooner.get(first) == 1
    with pytest.raises(TypeError, match="item 2 of the generator"):
        sooner.get(second)


def test_large_items_lie_in_shared_memory():
    @sooner.remote
    def arrays(n):
        for i in range(n):
            yield np.full(100_000, i)

    for i, ref in enumerate(arrays.remote(5)):
        array = sooner.get(ref)
        assert not array.flags.writeable
        assert (array == i).all()


def test_items_may_hold_references_and_be_passed_on():
    @sooner.remote
    def boxes(n):
        for i in range(n):
            yield [sooner.put(i)]

    @sooner.remote
    def open_box(box):
        return sooner.get(box[0])

    refs = [open_box.remote(ref) for ref in boxes.remote(4)]
    assert sooner.get(refs, timeout=WAIT) == [0, 1, 2, 3]


@pytest.mark.api("generator.protocol")
def test_completed_is_ready_at_the_end():
    generator = count.remote(3)
    assert sooner.get(generator.completed(), timeout=WAIT) is None
    assert generator._generator_ref == generator.completed()
    assert sooner.get(list(generator)) == [0, 1, 2]
    failed = count_and_fail.remote(1)
    with pytest.raises(ValueError, match="after 1"):
        sooner.get(failed.completed(), timeout=WAIT)


@pytest.mark.api("task.backpressure")
def test_back_pressure_holds_the_producer(tmp_path):
    path = tmp_path / "notes"
    generator = noting.options(_generator_backpressure_num_objects=3).remote(path, 100)
    poll("three items", lambda: len(notes(path)) == 3)
    time.sleep(0.05)
    assert len(notes(path)) == 3
    assert sooner.get([next(generator), next(generator)]) == [0, 1]
    poll("two more", lambda: len(notes(path)) == 5)
    assert sooner.get(list(generator)) == list(range(2, 100))


@pytest.mark.api("generator.protocol")
def test_closing_ends_the_producer(tmp_path):
    path = tmp_path / "notes"
    generator = noting.options(_generator_backpressure_num_objects=2).remote(path, 10**9)
    next(generator)
    generator.close()
    generator.close()
    poll("the generator is closed", lambda: "closed" in notes(path))
    assert "end" not in notes(path)
    assert list(generator) == []


@pytest.mark.api("generator.dropped")
def test_a_dropped_generator_ends_the_producer(tmp_path):
    path = tmp_path / "notes"
    generator = noting.remote(path, 10**9)
    next(generator)
    del generator
    gc.collect()
    poll("the generator is closed", lambda: "closed" in notes(path))


def test_a_dropped_generator_goes_on_when_its_end_is_awaited(tmp_path):
    path = tmp_path / "notes"
    generator = noting.options(_generator_backpressure_num_objects=1).remote(path, 50)
    end = generator.completed()
    del generator
    gc.collect()
    assert sooner.get(end, timeout=WAIT) is None
    assert notes(path)[-2:] == ["end", "closed"]


@pytest.mark.api("generator.dropped")
def test_unread_items_are_freed():
    # Each round fills most of the store; the second one only fits when the items of the first are freed.
    run_driver("""
        import numpy, sooner

        sooner.init(num_cpus=1, object_store_memory=64 << 20)

        @sooner.remote
        def arrays():
            for _ in range(20):
                yield numpy.zeros(250_000)

        for end in ("del", "close", "read one"):
            generator = arrays.remote()
            sooner.get(generator.completed())
            if end == "read one":
                next(generator)
            if end == "close":
                generator.close()
            del generator
    """)


@pytest.mark.api("generator.verbs")
def test_wait_takes_generators(tmp_path):
    gate = tmp_path / "gate"

    @sooner.remote
    def when(gate):
        while not gate.exists():
            time.sleep(0.005)
        yield 1

    closed, open_ = when.remote(gate), count.remote(1)
    ready, rest = sooner.wait([closed, open_], num_returns=1, timeout=WAIT)
    assert ready == [open_]
    assert rest == [closed]
    with pytest.raises(ValueError, match="twice"):
        sooner.wait([closed, closed])
    gate.touch()
    ready, rest = sooner.wait([closed, sooner.put(1)], num_returns=2, timeout=WAIT)
    assert len(ready) == 2
    assert rest == []


@pytest.mark.api("get")
def test_get_gives_a_generator_back():
    generator = count.remote(1)
    assert sooner.get(generator) is generator
    assert sooner.get(next(generator), timeout=WAIT) == 0


@pytest.mark.api("generator.verbs")
def test_cancel_ends_a_running_generator(tmp_path):
    @sooner.remote
    def slow(path):
        note(path, "runs")
        yield 1
        time.sleep(3600)

    generator = slow.remote(tmp_path / "notes")
    assert sooner.get(next(generator), timeout=WAIT) == 1
    sooner.cancel(generator)
    error = next(generator)
    with pytest.raises(TaskCancelledError):
        sooner.get(error, timeout=WAIT)
    assert next(generator, None) is None


def test_a_crash_repeats_the_task_and_no_item(tmp_path):
    @sooner.remote(max_retries=1)
    def crashing(path):
        for i in range(6):
            if i == 3 and not path.exists():
                path.touch()
                time.sleep(0.05)
                os._exit(1)
            yield i

    assert sooner.get(list(crashing.remote(tmp_path / "crashed")), timeout=WAIT) == list(range(6))


def test_without_retries_a_crash_is_the_last_item():
    @sooner.remote(max_retries=0)
    def crashing():
        yield 1
        time.sleep(0.05)
        os._exit(1)

    refs = list(crashing.remote())
    assert len(refs) <= 2
    with pytest.raises(sooner.exceptions.WorkerCrashedError):
        sooner.get(refs[-1], timeout=WAIT)


def test_two_threads_share_the_items():
    generator = count.remote(500)
    seen = [[], []]

    def read(values):
        values.extend(sooner.get(ref) for ref in generator)

    threads = [threading.Thread(target=read, args=(values,)) for values in seen]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert sorted(seen[0] + seen[1]) == list(range(500))
    assert all(values == sorted(values) for values in seen)


@pytest.mark.api("actor.generators")
def test_actors_stream():
    source = Source.remote()
    assert sooner.get(list(source.items.remote(3))) == [0, 1, 2]
    assert sooner.get(list(source.listed.remote(3))) == [0, 1, 2]
    assert sooner.get(source.items.options(num_returns=3).remote(3)) == [0, 1, 2]


def test_an_actor_that_dies_ends_its_streams():
    source = Source.remote()
    generator = source.die_after.remote(2)
    refs = list(generator)
    with pytest.raises(ActorDiedError):
        sooner.get(refs[-1], timeout=WAIT)


@sooner.remote
class Endless:
    def count(self):
        i = 0
        while True:
            yield i
            i += 1

    def ping(self):
        return "pong"


@pytest.mark.parametrize("unread", [-1, 2], ids=["runs ahead", "waits for its reader"])
def test_cancel_ends_the_generator_of_an_actor(unread):
    actor = Endless.remote()
    generator = actor.count.options(_generator_backpressure_num_objects=unread).remote()
    assert sooner.get(next(generator)) == 0
    sooner.cancel(generator)
    with pytest.raises(TaskCancelledError):
        for ref in generator:
            sooner.get(ref)
    assert sooner.get(actor.ping.remote(), timeout=WAIT) == "pong"


@pytest.mark.chaos
@pytest.mark.parametrize("calls_at_a_time", [1, 2])
@pytest.mark.parametrize("unread", [-1, 2], ids=["runs ahead", "waits for its reader"])
def test_an_actor_goes_on_when_the_reader_of_its_items_dies(unread, calls_at_a_time):
    actor = Endless.options(max_concurrency=calls_at_a_time).remote()

    @sooner.remote(max_retries=0)
    def reads_and_dies(actor):
        readers = [
            actor.count.options(_generator_backpressure_num_objects=unread).remote() for _ in range(calls_at_a_time)
        ]
        for reader in readers:
            sooner.get(next(reader))
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(WorkerCrashedError):
        sooner.get(reads_and_dies.remote(actor), timeout=WAIT)
    assert sooner.get(actor.ping.remote(), timeout=WAIT) == "pong"


@pytest.mark.api("actor.generators")
def test_asyncio_actors_stream():
    source = AsyncSource.remote()
    assert sooner.get(list(source.items.remote(3))) == [0, 1, 2]
    assert sooner.get(list(source.plain.remote(3))) == [0, 1, 2]
    both = [source.items.remote(50), source.plain.remote(50)]
    assert [sooner.get(list(generator)) for generator in both] == [list(range(50))] * 2


@pytest.mark.api("generator.protocol")
def test_closing_ends_an_asynchronous_generator(tmp_path):
    path = tmp_path / "notes"
    source = AsyncSource.remote()
    generator = source.forever.options(_generator_backpressure_num_objects=4).remote(path)
    next(generator)
    generator.close()
    poll("the generator is closed", lambda: notes(path) == ["closed"])


@pytest.mark.api("generator")
def test_asynchronous_iteration():
    async def collect():
        values = [await ref async for ref in count.remote(20)]
        generator = count.remote(3)
        first = await generator.asend(None)
        await generator.aclose()
        rest = [ref async for ref in generator]
        return values, await first, rest

    assert asyncio.run(collect()) == (list(range(20)), 0, [])


def test_generators_inside_tasks():
    @sooner.remote
    def total(n):
        return sum(sooner.get(ref) for ref in count.remote(n))

    assert sooner.get(total.remote(100), timeout=WAIT) == sum(range(100))


@pytest.mark.api("generator.protocol")
def test_generator_protocol():
    generator = count.remote(3)
    assert sooner.get(generator.send(None)) == 0
    with pytest.raises(TypeError, match="cannot be sent"):
        generator.send(1)
    with pytest.raises(KeyError, match="mine"):
        generator.throw(KeyError("mine"))
    assert list(generator) == []


def test_a_generator_stays_in_its_process():
    with pytest.raises(TypeError, match="stays in the process"):
        pickle.dumps(count.remote(1))


@pytest.mark.api("task.num_returns", "generator.dynamic")
def test_dynamic_generators_give_all_references_at_the_end():
    @sooner.remote(num_returns="dynamic")
    def squares(n):
        for i in range(n):
            yield np.full(50_000, i * i)

    ref = squares.remote(4)
    assert isinstance(ref, sooner.ObjectRef)
    items = sooner.get(ref, timeout=WAIT)
    del ref
    assert len(items) == 4
    assert [sooner.get(item)[0] for item in items] == [0, 1, 4, 9]

    @sooner.remote
    def firsts(items):
        return [int(sooner.get(item)[0]) for item in items]

    assert sooner.get(firsts.remote(items), timeout=WAIT) == [0, 1, 4, 9]


@pytest.mark.api("generator.dynamic")
def test_a_failing_dynamic_generator_raises():
    with pytest.raises(ValueError, match="after 2"):
        sooner.get(count_and_fail.options(num_returns="dynamic").remote(2), timeout=WAIT)
