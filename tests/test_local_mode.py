"""`init(local_mode=True)`: everything in this process.

What it has in common with other sessions is in `test_every_session.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from support import WAIT, children_of, memfds_of, poll, run_driver

import sooner
from sooner.exceptions import ActorDiedError, GetTimeoutError, TaskCancelledError, TaskError
from sooner.util.collective import CollectiveError, allreduce, init_collective_group, is_group_initialized


@pytest.fixture(autouse=True)
def session():
    before = children_of(os.getpid())
    sooner.init(num_cpus=2, num_gpus=2, resources={"tape": 1}, local_mode=True)
    yield
    sooner.shutdown()
    assert children_of(os.getpid()) <= before


@sooner.remote
def here():
    return os.getpid(), threading.get_ident()


@sooner.remote
def identity(value):
    return value


@sooner.remote
class Counter:
    def __init__(self, start=0):
        self.value = start

    def add(self, n=1):
        self.value += n
        return self.value

    def count(self):
        i = 0
        while True:
            yield i
            i += 1

    def leave(self):
        sooner.actor.exit_actor()

    def facts(self):
        context = sooner.get_runtime_context()
        return context.get_actor_id(), context.get_task_name(), context.current_actor


@pytest.mark.api("own.local_mode")
def test_tasks_run_on_the_calling_thread():
    assert sooner.get(here.remote()) == (os.getpid(), threading.get_ident())


@pytest.mark.api("own.local_mode")
def test_a_breakpoint_works(monkeypatch):
    seen = []
    monkeypatch.setattr(sys, "breakpointhook", lambda: seen.append(sys._getframe(1).f_code.co_name))

    @sooner.remote
    def stops():
        breakpoint()  # noqa: T100
        return 1

    assert sooner.get(stops.remote()) == 1
    assert seen == ["stops"]


@pytest.mark.api("own.local_mode")
def test_values_are_pickled_as_otherwise():
    value = {"list": [1]}
    back = sooner.get(identity.remote(value))
    assert back == value
    assert back is not value
    array = np.zeros(1_000_000)
    shared = sooner.get(identity.remote(array))
    assert not shared.flags.writeable
    with pytest.raises(TypeError, match="argument 0"):
        identity.remote(threading.Lock())


@pytest.mark.api("own.local_mode")
def test_errors_are_the_same():
    @sooner.remote
    def fail(ref):
        raise KeyError(sooner.get(ref[0]))

    ref = fail.remote([sooner.put("key")])
    with pytest.raises(KeyError, match="key") as caught:
        sooner.get(ref)
    assert isinstance(caught.value, TaskError)
    with pytest.raises(KeyError):
        sooner.get(identity.remote(ref))


@pytest.mark.api("own.local_mode")
def test_actors():
    counter = Counter.remote(5)
    assert sooner.get([counter.add.remote() for _ in range(3)]) == [6, 7, 8]
    identity_, name, handle = sooner.get(counter.facts.remote())
    assert identity_ == counter._actor_id
    assert name == "facts"
    assert handle == counter


def test_the_ends_of_actors(tmp_path):
    @sooner.remote
    class Tidy:
        def __init__(self, path):
            self.path = path

        def ping(self):
            return 1

        def __sooner_shutdown__(self):
            self.path.touch()

    counter = Counter.remote()
    with pytest.raises(ActorDiedError, match="exit_actor"):
        sooner.get(counter.leave.remote())
    tidy = Tidy.remote(tmp_path / "scope")
    sooner.get(tidy.ping.remote())
    del tidy
    gc.collect()
    poll("it is cleaned up", (tmp_path / "scope").exists)
    killed = Tidy.remote(tmp_path / "killed")
    sooner.kill(killed)
    assert not (tmp_path / "killed").exists()

    @sooner.remote
    class Fails:
        def __init__(self):
            raise ValueError("cannot begin")

        def ping(self):
            return 1

    with pytest.raises(ActorDiedError, match="cannot begin"):
        sooner.get(Fails.remote().ping.remote())


@sooner.remote
def numbers(n):
    yield from range(n)


@sooner.remote
class Plain:
    def numbers(self, n):
        yield from range(n)

    def take(self, value):
        return value


@sooner.remote
class Slow:
    """Its calls end when another thread says so."""

    def __init__(self):
        self.opened = asyncio.Event()

    async def wait(self, value):
        await self.opened.wait()
        return value

    async def open(self):
        self.opened.set()


def test_generators_are_read_in_an_event_loop():
    async def read(generator):
        return [await ref async for ref in generator]

    async def first(generator):
        return await (await anext(generator))

    async def end(generator):
        return await generator.completed()

    async def wait_for_end(generator):
        ready, rest = await sooner.aio.wait([generator.completed()])
        return len(ready), len(rest)

    def run(coroutine):
        return asyncio.run(asyncio.wait_for(coroutine, WAIT))

    plain, counter = Plain.remote(), Counter.remote()
    for remote in (numbers.remote, plain.numbers.remote):
        assert run(read(remote(3))) == [0, 1, 2]
        assert run(first(remote(3))) == 0
        assert run(end(remote(3))) is None
        assert run(wait_for_end(remote(3))) == (1, 0)
        assert remote(3).completed().future().result(WAIT) is None
    endless = counter.count.remote()
    assert [run(first(endless)) for _ in range(3)] == [0, 1, 2]
    endless.close()
    assert run(read(endless)) == []


def test_a_generator_is_advanced_for_a_loop_while_a_thread_is_at_it(tmp_path):
    # The loop's generator is taken up again when the other thread leaves it where it is.
    running, go_on = tmp_path / "running", tmp_path / "go_on"

    @sooner.remote
    def slowly():
        for i in range(3):
            running.touch()
            while not go_on.exists():
                time.sleep(0.001)
            yield i

    generator = slowly.remote()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(lambda: sooner.get(next(generator)))
        poll("the generator runs", running.exists)
        end = generator.completed().future()
        go_on.touch()
        assert first.result(WAIT) == 0
        assert end.result(WAIT) is None


def test_a_generator_that_fails_is_retried(tmp_path):
    @sooner.remote
    class Flaky:
        def items(self, path, kind):
            with path.open("a") as file:
                file.write("x")
            yield 1
            if len(path.read_text()) < 3:
                raise kind("again")
            yield 2

    def items(path, kind):
        with path.open("a") as file:
            file.write("x")
        yield 1
        if len(path.read_text()) < 3:
            raise kind("again")
        yield 2

    actor, task = Flaky.remote(), sooner.remote(items)
    retries = {"max_retries": 3}, {"max_task_retries": 3}
    for number, (remote, counts) in enumerate(zip((task, actor.items), retries, strict=True)):
        path = tmp_path / f"all{number}"
        generator = remote.options(retry_exceptions=True, **counts).remote(path, ValueError)
        assert [sooner.get(ref, timeout=WAIT) for ref in generator] == [1, 2]
        assert path.read_text() == "xxx"
        path = tmp_path / f"listed{number}"
        generator = remote.options(retry_exceptions=[ValueError], **counts).remote(path, KeyError)
        assert sooner.get(next(generator), timeout=WAIT) == 1
        with pytest.raises(KeyError, match="again"):
            sooner.get(next(generator), timeout=WAIT)
        assert path.read_text() == "x"


def test_what_waits_for_a_generator_or_an_asyncio_actor_runs():
    assert sooner.get(identity.remote(numbers.remote(3).completed()), timeout=WAIT) is None
    assert identity.remote(numbers.remote(3).completed()).future().result(WAIT) is None
    slow, plain = Slow.remote(), Plain.remote()
    waiting = slow.wait.remote(1)
    later = [identity.remote(waiting), plain.take.remote(waiting), identity.remote(identity.remote(waiting))]
    future = identity.remote(waiting).future()
    sooner.get(slow.open.remote(), timeout=WAIT)
    assert sooner.get(later, timeout=WAIT) == [1, 1, 1]
    assert future.result(WAIT) == 1


def test_a_wait_in_an_actor_does_not_begin_another_call_of_it():
    @sooner.remote
    class Careful:
        def __init__(self):
            self.is_busy = False

        def work(self, slow, value):
            assert not self.is_busy
            self.is_busy = True
            # What this waits for comes together with what the other call waits for.
            got = sooner.get(identity.remote(value[0]), timeout=WAIT)
            self.is_busy = False
            return got

        def other(self, value):
            assert not self.is_busy
            return value

    slow, actor = Slow.remote(), Careful.remote()
    waiting = slow.wait.remote(1)
    other = actor.other.remote(waiting)
    with ThreadPoolExecutor(1) as pool:
        opened = pool.submit(lambda: sooner.get(slow.open.remote(), timeout=WAIT))
        assert sooner.get(actor.work.remote(slow, [waiting]), timeout=WAIT) == 1
        opened.result(WAIT)
    assert sooner.get(other, timeout=WAIT) == 1


def test_a_session_ends_while_a_loop_waits():
    async def wait(generator):
        return await anext(generator)

    def stopped(generator):
        try:
            return asyncio.run(wait(generator))
        except (ValueError, sooner.exceptions.SoonerError) as error:
            return type(error)

    never = identity.options(num_cpus=64, num_returns="streaming").remote([1])
    with ThreadPoolExecutor(1) as pool:
        future = never.completed().future()
        waits = pool.submit(stopped, never)
        sooner.shutdown()
        assert issubclass(waits.result(WAIT), (ValueError, sooner.exceptions.SoonerError))
        assert isinstance(future.exception(WAIT), ValueError)
    assert not sooner.is_initialized()
    # The next session has a thread of its own for its waits.
    sooner.init(num_cpus=1, local_mode=True)
    assert numbers.remote(2).completed().future().result(WAIT) is None


def test_an_interrupt_is_the_programs(tmp_path):
    def interrupted():
        # As Ctrl-C does while this runs.
        signal.raise_signal(signal.SIGINT)

    @sooner.remote(max_retries=3, retry_exceptions=True)
    def task(path):
        with path.open("a") as file:
            file.write("x")
        interrupted()

    @sooner.remote
    def outer(path):
        with contextlib.suppress(Exception):
            sooner.get(task.remote(path))

    @sooner.remote
    def items():
        yield 1
        interrupted()
        yield 2

    @sooner.remote
    class Actor:
        def __init__(self, how):
            if how == "at once":
                interrupted()

        def call(self):
            interrupted()

        def ping(self):
            return "pong"

    for remote in (task.remote, outer.remote):
        path = tmp_path / str(remote)
        with pytest.raises(KeyboardInterrupt):
            remote(path)
        assert path.read_text() == "x", "it is not tried again"
    with pytest.raises(KeyboardInterrupt):
        Actor.remote("at once")
    actor = Actor.remote("later")
    with pytest.raises(KeyboardInterrupt):
        actor.call.remote()
    assert sooner.get(actor.ping.remote(), timeout=WAIT) == "pong"
    generator = items.remote()
    assert sooner.get(next(generator)) == 1
    with pytest.raises(KeyboardInterrupt):
        next(generator)
    with pytest.raises(TaskCancelledError):
        sooner.get(next(generator))
    assert list(generator) == []
    with pytest.raises(KeyboardInterrupt):
        sooner.get(items.remote().completed())
    assert sooner.get(identity.remote(1), timeout=WAIT) == 1


def test_generators_without_an_end():
    counter = Counter.remote()
    generator = counter.count.remote()
    assert [sooner.get(next(generator)) for _ in range(5)] == [0, 1, 2, 3, 4]
    generator.close()
    assert list(generator) == []

    @sooner.remote
    def three():
        yield from range(3)

    assert sooner.get(three.remote().completed()) is None
    ready, _ = sooner.wait([three.remote()], timeout=WAIT)
    assert sooner.get(list(ready[0])) == [0, 1, 2]


def test_asyncio_actors_wait_for_each_other():
    @sooner.remote
    class Gate:
        def __init__(self):
            self.opened = asyncio.Event()

        async def through(self, n):
            await self.opened.wait()
            return n

        async def open(self):
            self.opened.set()
            return await identity.remote("open")

        async def forever(self):
            await asyncio.sleep(3600)

    gate = Gate.remote()
    waiting = [gate.through.remote(n) for n in range(3)]
    assert sooner.get(gate.open.remote(), timeout=WAIT) == "open"
    assert sooner.get(waiting, timeout=WAIT) == [0, 1, 2]
    endless = gate.forever.remote()
    sooner.cancel(endless)
    with pytest.raises(TaskCancelledError):
        sooner.get(endless, timeout=WAIT)


def test_what_cannot_be_had_stays_pending():
    with pytest.raises(GetTimeoutError):
        sooner.get(identity.options(num_cpus=64).remote(1), timeout=0.05)
    with pytest.raises(GetTimeoutError):
        sooner.get(Counter.options(resources={"tape": 2}).remote().add.remote(), timeout=0.05)
    assert sooner.get(identity.options(num_gpus=2, resources={"tape": 1}).remote(1)) == 1


def test_threads_submit():
    results = []

    def work(n):
        results.append(sooner.get([identity.remote(n * 100 + i) for i in range(50)]))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert sorted(results) == [[n * 100 + i for i in range(50)] for n in range(4)]


def on_threads(count, work):
    """Runs `work(n)` on so many threads; raises what one of them raised."""
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count), timeout=WAIT))


def test_an_actor_runs_one_call_at_a_time():
    @sooner.remote
    class Careless:
        def __init__(self):
            self.value = 0
            self.order = []

        def add(self, thread, n):
            before = self.value
            time.sleep(0.0005)
            self.value = before + 1
            self.order.append((thread, n))
            return n

        def count(self):
            for _ in range(5):
                before = self.value
                time.sleep(0.0005)
                self.value = before + 1
                yield before

        def seen(self):
            return self.value, self.order

    actor = Careless.remote()

    def work(thread):
        calls = [actor.add.remote(thread, n) for n in range(20)]
        assert len(list(actor.count.remote())) == 5
        return sooner.get(calls, timeout=WAIT)

    assert on_threads(4, work) == [list(range(20))] * 4
    value, order = sooner.get(actor.seen.remote())
    assert value == 4 * 25
    for thread in range(4):
        assert [n for other, n in order if other == thread] == list(range(20))


def test_a_generator_is_advanced_by_whoever_waits(tmp_path):
    # The thread that waits for the end meets a generator that another thread is advancing, by one item only.
    running, go_on = tmp_path / "running", tmp_path / "go_on"

    @sooner.remote
    def slowly():
        for i in range(3):
            running.touch()
            while not go_on.exists():
                time.sleep(0.001)
            yield i

    generator = slowly.remote()
    completed = generator.completed()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(lambda: sooner.get(next(generator)))
        poll("the generator runs", running.exists)
        end = pool.submit(sooner.get, completed, timeout=WAIT)
        time.sleep(0.05)
        go_on.touch()
        assert first.result(WAIT) == 0
        assert end.result(WAIT) is None


def test_a_wait_with_a_deadline_ends_beside_an_endless_generator():
    generator = Counter.remote().count.remote()
    with pytest.raises(GetTimeoutError):
        sooner.get(generator.completed(), timeout=0.05)
    assert sooner.get(next(generator)) == 0


def test_cancel_ends_a_generator():
    generator = Counter.remote().count.remote()
    assert sooner.get(next(generator)) == 0
    sooner.cancel(generator)
    with pytest.raises(TaskCancelledError):
        sooner.get(next(generator))
    assert list(generator) == []


def test_an_actor_exits_from_a_generator():
    @sooner.remote
    class Leaves:
        def items(self):
            yield 1
            sooner.actor.exit_actor()

        def ping(self):
            return 1

    actor = Leaves.remote()
    item, end = actor.items.remote()
    assert sooner.get(item) == 1
    with pytest.raises(ActorDiedError, match="exit_actor"):
        sooner.get(end)
    with pytest.raises(ActorDiedError, match="exit_actor"):
        sooner.get(actor.ping.remote())


@sooner.remote
class UsesSooner:
    """Its clean-up hook stores a large value and reads a generator."""

    def __init__(self, path):
        self.path = path

    def ping(self):
        return 1

    def __sooner_shutdown__(self):
        @sooner.remote
        def items(value):
            yield len(value)

        sizes = [sooner.get(ref) for ref in items.remote(sooner.put(b"x" * (1 << 20)))]
        self.path.write_text(str(sizes))


def test_a_clean_up_hook_uses_sooner(tmp_path):
    path = tmp_path / "sizes"
    actor = UsesSooner.remote(path)
    sooner.get(actor.ping.remote())
    del actor
    gc.collect()
    poll("the hook has run", lambda: path.exists() and path.read_text() == str([1 << 20]))


def test_a_clean_up_hook_uses_sooner_at_the_end(tmp_path):
    path = tmp_path / "sizes"
    actor = UsesSooner.remote(path)
    sooner.get(actor.ping.remote())
    sooner.shutdown()
    assert path.read_text() == str([1 << 20])
    assert not sooner.is_initialized()


def test_a_forked_process_has_nothing_of_it(tmp_path):
    done = run_driver(
        """
        import os, sys, warnings
        import sooner

        warnings.simplefilter("ignore")

        @sooner.remote
        class Actor:
            def ping(self):
                return 1

            def __sooner_shutdown__(self):
                print("cleaned up", os.getpid() == parent, flush=True)

        @sooner.remote
        class Async:
            async def ping(self):
                return 2

        parent = os.getpid()
        sooner.init(local_mode=True)
        actor, other = Actor.remote(), Async.remote()
        assert sooner.get([actor.ping.remote(), other.ping.remote()]) == [1, 2]
        child = os.fork()
        if child == 0:
            sooner.init(local_mode=True)
            assert sooner.get(Async.remote().ping.remote(), timeout=30) == 2
            sooner.shutdown()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        sooner.shutdown()
        """
    )
    assert done.stdout.split("\n")[:-1] == ["cleaned up True"]


def test_helpers_work():
    with sooner.Executor() as executor:
        assert list(executor.map(pow, range(4), [2] * 4)) == [0, 1, 4, 9]
    pool = sooner.util.ActorPool([Counter.remote(), Counter.remote()])
    assert len(list(pool.map_unordered(lambda actor, n: actor.add.remote(n), [10, 20, 30]))) == 3


def test_an_actor_pool_replaces_an_actor_that_left():
    made = []

    def factory():
        made.append(Counter.remote(10))
        return made[-1]

    pool = sooner.util.ActorPool([Counter.remote()], in_flight=2, factory=factory)
    pool.submit(lambda actor, _: actor.leave.remote(), None)
    for n in range(1, 4):
        pool.submit(lambda actor, n: actor.add.remote(n), n)
    # The second call was with the actor already.
    for _ in range(2):
        with pytest.raises(ActorDiedError, match="exit_actor"):
            pool.get_next()
    assert [pool.get_next(), pool.get_next()] == [12, 15]
    assert len(made) == 1


def test_nothing_of_a_session_stays_in_memory():
    """Functions that were executed here have references in their closures, and objects their classes."""

    def use():
        ref = sooner.put(bytes(1 << 20))

        @sooner.remote
        class Holder:
            given = ref

            def size(self):
                return len(sooner.get(self.given))

        assert sooner.get(sooner.remote(lambda: len(sooner.get(ref))).remote()) == 1 << 20
        assert sooner.get(Holder.remote().size.remote()) == 1 << 20

    use()
    sooner.shutdown()
    gc.collect()
    assert not memfds_of(os.getpid())


def test_several_sessions_after_each_other():
    run_driver("""
        import sooner

        @sooner.remote
        def f(x):
            return x + 1

        for local in (True, False, True):
            sooner.init(num_cpus=1, local_mode=local)
            assert sooner.get(f.remote(1)) == 2
            sooner.shutdown()
    """)


def test_a_collective_group_has_one_member():
    with pytest.raises(CollectiveError, match="local_mode=True"):
        init_collective_group(2, 0)
    assert sooner.util.list_named_actors() == []
    init_collective_group(1, 0)
    array = np.ones(3)
    allreduce(array)
    assert list(array) == [1.0] * 3
    sooner.shutdown()
    assert not is_group_initialized()
    assert not sooner.is_initialized()
    init_collective_group(1, 0)


def test_a_collective_group_that_was_refused_begins_no_session_later(monkeypatch):
    """The timer of its coordinator, which lives in this process, would: it looks once more after a while."""
    monkeypatch.setattr("sooner.util.collective.coordinator._FIRST_SECONDS", 0.1)
    with pytest.raises(CollectiveError, match="local_mode=True"):
        init_collective_group(2, 0)
    sooner.shutdown()
    threading.Event().wait(0.5)
    assert not sooner.is_initialized()
