"""Streams under failures: killed workers, many readers, large items, dropped generators; the store ends
empty.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from support import WAIT, poll, poll_store_has_room

import sooner
from sooner.exceptions import ActorDiedError, ActorUnavailableError, SoonerError, TaskCancelledError, WorkerCrashedError

pytestmark = pytest.mark.chaos

MIB = 1 << 20
STORE_MIB = 64
LARGE = MIB // 4
KILLS = 20


@pytest.fixture
def session(nothing_left):
    context = sooner.init(num_cpus=3, object_store_memory=STORE_MIB * MIB)
    nothing_left.append(context["session_dir"])
    yield
    sooner.shutdown()


# The value that is put to see how much room there is has a head, and lies in whole pages.
SPARE_MIB = 2


def assert_store_is_empty():
    """Kills cost nothing: what the killed had given away without a word to the receiver is free again."""
    poll_store_has_room((STORE_MIB - SPARE_MIB) * MIB)
    poll("all CPUs are free", lambda: sooner.available_resources().get("CPU", 0) == 3)


@sooner.remote
def stream(n, path):
    """Items that are small and large in turn. Says under which process it runs."""
    (path / str(os.getpid())).touch()
    for i in range(n):
        time.sleep(0.001)
        yield (i, b"" if i % 2 else bytes(LARGE))


def kill_those_who_said_so(path, times, seed):
    """Kills processes that run streams, each at a random moment."""
    chance = random.Random(seed)
    for _ in range(times):
        pids = poll("a stream runs", lambda: [entry for entry in path.iterdir() if entry.name.isdigit()])
        time.sleep(chance.random() * 0.02)
        victim = chance.choice(pids)
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(victim.name), signal.SIGKILL)
        victim.unlink()


def take_all(generator):
    """The numbers of the items that this reader got, and the error that it met."""
    numbers, errors = [], []
    for ref in generator:
        try:
            number, data = sooner.get(ref, timeout=WAIT)
            assert data == (b"" if number % 2 else bytes(LARGE))
            numbers.append(number)
        except WorkerCrashedError as error:
            errors.append(error)
    return numbers, errors


@pytest.mark.parametrize("unread", [-1, 3], ids=["runs ahead", "waits for its readers"])
@pytest.mark.parametrize("seed", range(2))
def test_workers_are_killed_while_several_read_and_tasks_are_retried(session, tmp_path, seed, unread):
    options = {"max_retries": -1, "_generator_backpressure_num_objects": unread}
    generators = [stream.options(**options).remote(40, tmp_path) for _ in range(2)]
    with ThreadPoolExecutor(7) as pool:
        readers = [pool.submit(take_all, generators[n % 2]) for n in range(6)]
        pool.submit(kill_those_who_said_so, tmp_path, 4, seed).result(3 * WAIT)
        found = [reader.result(2 * WAIT) for reader in readers]
    for at in range(2):
        numbers = [number for numbers, _ in found[at::2] for number in numbers]
        assert sorted(numbers) == list(range(40))
    for numbers, errors in found:
        assert numbers == sorted(numbers)
        assert errors == []
    generators.clear()
    assert_store_is_empty()


@pytest.mark.parametrize("seed", range(3))
def test_workers_are_killed_while_several_read_and_nothing_is_retried(session, tmp_path, seed):
    generators = [stream.options(max_retries=0).remote(60, tmp_path) for _ in range(2)]
    with ThreadPoolExecutor(7) as pool:
        readers = [pool.submit(take_all, generators[n % 2]) for n in range(6)]
        pool.submit(kill_those_who_said_so, tmp_path, 2, seed).result(3 * WAIT)
        found = [reader.result(2 * WAIT) for reader in readers]
    for at in range(2):
        numbers = sorted(number for numbers, _ in found[at::2] for number in numbers)
        errors = [error for _, errors in found[at::2] for error in errors]
        # The first items, once each; and then the error, once, if it did not come to its end before.
        assert numbers == list(range(len(numbers)))
        assert len(errors) == (len(numbers) < 60)
    generators.clear()
    found.clear()
    del errors
    assert_store_is_empty()


@sooner.remote(max_restarts=-1, max_task_retries=-1)
class Streamer:
    def items(self, n, path):
        (path / str(os.getpid())).touch()
        for i in range(n):
            time.sleep(0.001)
            yield (i, b"" if i % 2 else bytes(LARGE))

    def ping(self):
        return True


@sooner.remote(max_restarts=-1, max_task_retries=-1)
class AsyncStreamer:
    async def items(self, n, path):
        import asyncio

        (path / str(os.getpid())).touch()
        for i in range(n):
            await asyncio.sleep(0.001)
            yield (i, b"" if i % 2 else bytes(LARGE))

    def ping(self):
        return True


@pytest.mark.parametrize("kind", ["plain", "threads", "asyncio"])
def test_an_actor_is_killed_while_it_streams(session, tmp_path, kind):
    cls = AsyncStreamer if kind == "asyncio" else Streamer
    actor = cls.options(max_concurrency=3 if kind == "threads" else None).remote()
    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(take_all, actor.items.remote(25, tmp_path)) for _ in range(3)]
        pool.submit(kill_those_who_said_so, tmp_path, 3, 1).result(3 * WAIT)
        for reader in readers:
            assert reader.result(2 * WAIT) == (list(range(25)), [])
    assert sooner.get(actor.ping.remote(), timeout=WAIT)
    del actor
    assert_store_is_empty()


@pytest.mark.parametrize("seed", range(3))
def test_generators_are_left_cancelled_and_killed_at_random(session, tmp_path, seed):
    chance = random.Random(seed)
    actors = [Streamer.remote(), Streamer.options(max_concurrency=2).remote(), AsyncStreamer.remote()]
    stop = threading.Event()

    def read(number):
        chance = random.Random(number)
        for _ in range(8):
            unread = chance.choice([-1, 1, 4])
            target = chance.choice([stream, *[actor.items for actor in actors]])
            generator = target.options(_generator_backpressure_num_objects=unread).remote(12, tmp_path)
            leave_at, how = chance.randrange(14), chance.choice(["drop", "close", "cancel", "completed"])
            completed = None
            if how == "completed":
                # Its end comes only when the items are read.
                completed, leave_at = generator.completed(), 99
            try:
                for at, ref in enumerate(generator):
                    if at == leave_at:
                        break
                    assert sooner.get(ref, timeout=WAIT)[0] == at
                if how == "close":
                    generator.close()
                if how == "cancel":
                    sooner.cancel(generator)
                    for ref in generator:
                        sooner.get(ref, timeout=WAIT)
                if completed is not None:
                    assert sooner.get(completed, timeout=WAIT) is None
            except (TaskCancelledError, ActorDiedError, ActorUnavailableError, WorkerCrashedError):
                pass

    def kill():
        # A bound: on a busy machine streams would be killed faster than they come to their ends.
        for _ in range(KILLS):
            if stop.is_set():
                break
            kill_those_who_said_so(tmp_path, 1, chance.random())

    with ThreadPoolExecutor(4) as pool:
        killer = pool.submit(kill)
        readers = [pool.submit(read, 10 * seed + n) for n in range(3)]
        try:
            for reader in readers:
                reader.result(3 * WAIT)
        finally:
            stop.set()
            (tmp_path / "999999999").touch()
        killer.result(WAIT)
    assert all(sooner.get([actor.ping.remote() for actor in actors], timeout=WAIT))
    actors.clear()
    assert_store_is_empty()


def test_the_reader_dies_with_large_items_on_their_way(session, tmp_path):
    @sooner.remote(max_retries=0)
    def reads_and_dies(path):
        readers = [stream.remote(200, path) for _ in range(2)]
        for reader in readers:
            sooner.get(next(reader))
        os.kill(os.getpid(), signal.SIGKILL)

    for _ in range(3):
        with pytest.raises(WorkerCrashedError):
            sooner.get(reads_and_dies.remote(tmp_path), timeout=WAIT)
    assert_store_is_empty()


@pytest.fixture
def full_session(nothing_left):
    """A store that is full when it is full."""
    context = sooner.init(num_cpus=3, object_store_memory=STORE_MIB * MIB, spill_directories=[])
    nothing_left.append(context["session_dir"])
    yield
    sooner.shutdown()


def test_items_that_do_not_fit_into_the_store(full_session):
    @sooner.remote(max_retries=0)
    def too_many():
        while True:
            yield bytes(4 * MIB)

    generator = too_many.remote()
    refs = list(generator)
    with pytest.raises(SoonerError, match="does not fit"):
        sooner.get(refs[-1], timeout=WAIT)
    assert len(refs) > STORE_MIB // 8
    refs.clear()
    assert_store_is_empty()


def test_dynamic_generators_are_killed_and_repeated(session, tmp_path):
    refs = [stream.options(num_returns="dynamic", max_retries=-1).remote(20, tmp_path) for _ in range(3)]
    kill_those_who_said_so(tmp_path, 3, 5)
    for ref in refs:
        assert [number for number, _ in sooner.get(list(sooner.get(ref, timeout=WAIT)))] == list(range(20))
    refs.clear()
    del ref
    assert_store_is_empty()
