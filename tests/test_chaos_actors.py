"""Actors under failures: restarts while many call, what restarted ones read, exits with calls queued, mass
ends.
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from support import WAIT, is_alive, poll, poll_store_has_room, run_driver

import sooner
from sooner.exceptions import ActorDiedError, ActorUnavailableError

pytestmark = pytest.mark.chaos

MIB = 1 << 20
STORE_MIB = 64
# The value that is put to see how much room there is has a head, and lies in whole pages.
SPARE_MIB = 2


@pytest.fixture
def session(nothing_left):
    context = sooner.init(num_cpus=3, object_store_memory=STORE_MIB * MIB)
    nothing_left.append(context["session_dir"])
    yield
    sooner.shutdown()


def assert_store_is_empty():
    """Kills cost nothing: what the killed had given away without a word to the receiver is free again."""
    poll_store_has_room((STORE_MIB - SPARE_MIB) * MIB)


class Keeper:
    """Holds a large argument of its constructor."""

    def __init__(self, data):
        self.data = data

    def look(self):
        return os.getpid(), len(self.data), set(self.data)


def test_a_detached_actor_restarts_with_its_arguments_when_their_owner_is_gone(session):
    @sooner.remote(max_calls=1)
    def create():
        options = {"name": "keeper", "lifetime": "detached", "max_restarts": -1}
        keeper = sooner.remote(Keeper).options(**options).remote(sooner.put(b"A" * (8 * MIB)))
        sooner.get(keeper.look.remote())
        return os.getpid()

    owner = sooner.get(create.remote(), timeout=WAIT)
    poll("the owner of the argument ends", lambda: not is_alive(owner))
    keeper = sooner.get_actor("keeper")

    def look(keeper):
        # The process is gone before everybody has heard of it: a call may still be sent there.
        with contextlib.suppress(ActorUnavailableError):
            return sooner.get(keeper.look.remote(), timeout=WAIT)
        return None

    pids = set()
    for _ in range(3):
        pid, length, letters = poll("the actor answers", lambda keeper=keeper: look(keeper))
        pids.add(pid)
        assert (length, letters) == (8 * MIB, set(b"A"))
        os.kill(pid, signal.SIGKILL)
        poll("the process ends", lambda pid=pid: not is_alive(pid))
        # What has taken the place of the argument if it was freed.
        del [sooner.put(b"B" * (8 * MIB)) for _ in range(6)][:]
    assert len(pids) == 3
    sooner.kill(keeper)
    del keeper
    assert_store_is_empty()


@sooner.remote
class Log:
    """Notes which calls were executed, over all processes of an actor."""

    def __init__(self, path):
        self.path = path

    def note(self, caller, number):
        with open(self.path, "a") as file:
            file.write(f"{caller} {number}\n")
        return number

    def large(self, n):
        return bytes(n)

    def pid(self):
        return os.getpid()


def kill_now_and_then(actor, times, seed):
    """Kills the actor's process at random moments."""
    chance = random.Random(seed)
    last = None
    for _ in range(times):
        with contextlib.suppress(ActorDiedError, ActorUnavailableError):
            pid = sooner.get(actor.pid.remote(), timeout=WAIT)
            time.sleep(chance.random() * 0.02)
            if pid != last:
                os.kill(pid, signal.SIGKILL)
                last = pid


@pytest.mark.parametrize("seed", range(3))
def test_callers_on_four_threads_of_an_actor_that_is_killed_again_and_again(session, tmp_path, seed):
    calls_of_four_threads(tmp_path, seed)
    assert_store_is_empty()


def calls_of_four_threads(tmp_path, seed):
    log = Log.options(max_restarts=-1, max_task_retries=-1).remote(tmp_path / "log")
    calls = 150

    def call(caller):
        refs = [log.note.remote(caller, number) for number in range(calls)]
        large = [log.large.remote(MIB // 2) for _ in range(4)]
        assert sooner.get(refs, timeout=WAIT) == list(range(calls))
        assert [len(value) for value in sooner.get(large, timeout=WAIT)] == [MIB // 2] * 4

    with ThreadPoolExecutor(5) as pool:
        callers = [pool.submit(call, caller) for caller in range(4)]
        pool.submit(kill_now_and_then, log, 8, seed).result(3 * WAIT)
        for caller in callers:
            caller.result(WAIT)
    done = [tuple(map(int, line.split())) for line in (tmp_path / "log").read_text().splitlines()]
    for caller in range(4):
        # A call may be executed again, but never after a later one had its turn for the first time.
        firsts = list(dict.fromkeys(number for other, number in done if other == caller))
        assert firsts == list(range(calls))


@pytest.mark.parametrize("seed", range(2))
def test_without_retries_each_call_ends_in_its_value_or_a_typed_error(session, tmp_path, seed):
    log = Log.options(max_restarts=4, max_task_retries=0).remote(tmp_path / "log")

    def call(caller):
        ends = []
        for number in range(150):
            try:
                ends.append(sooner.get(log.note.remote(caller, number), timeout=WAIT) == number)
            except (ActorUnavailableError, ActorDiedError):
                ends.append(None)
        return ends

    with ThreadPoolExecutor(5) as pool:
        callers = [pool.submit(call, caller) for caller in range(4)]
        pool.submit(kill_now_and_then, log, 6, seed).result(3 * WAIT)
        ends = [caller.result(2 * WAIT) for caller in callers]
    assert all(end is not False for caller in ends for end in caller)
    noted = (tmp_path / "log").read_text().splitlines()
    assert len(noted) == len(set(noted))


@pytest.mark.parametrize("kind", ["plain", "threads", "asyncio"])
def test_exit_actor_with_calls_queued(session, kind):
    class Plain:
        def leave(self):
            sooner.actor.exit_actor()

        def work(self, n):
            time.sleep(0.001)
            return n

    class Async(Plain):
        async def other(self):
            pass

    cls = Async if kind == "asyncio" else Plain
    actor = sooner.remote(cls).options(max_concurrency=4 if kind == "threads" else None, max_restarts=5).remote()
    before = [actor.work.remote(n) for n in range(20)]
    leaving = actor.leave.remote()
    behind = [actor.work.remote(n) for n in range(200)]
    with pytest.raises(ActorDiedError, match="exit_actor"):
        sooner.get(leaving, timeout=WAIT)
    if kind == "plain":
        assert sooner.get(before, timeout=WAIT) == list(range(20))
    for n, ref in enumerate(behind):
        try:
            assert sooner.get(ref, timeout=WAIT) == n
            assert kind != "plain"
        except ActorDiedError:
            pass
    with pytest.raises(ActorDiedError):
        sooner.get(actor.work.remote(1), timeout=WAIT)


def test_two_hundred_actors_clean_up_at_shutdown(tmp_path):
    run_driver(
        """
        import os, sys
        import sooner

        class Plain:
            def __init__(self, path):
                self.path = path

            def ping(self):
                return 1

            def __sooner_shutdown__(self):
                open(self.path, "w").close()

        class Async(Plain):
            async def other(self):
                pass

        sooner.init(num_cpus=4)
        kinds = [sooner.remote(Plain), sooner.remote(Plain).options(max_concurrency=3), sooner.remote(Async)]
        actors = [kinds[n % 3].remote(os.path.join(sys.argv[1], str(n))) for n in range(200)]
        assert sum(sooner.get([actor.ping.remote() for actor in actors])) == 200
        sooner.shutdown()
        """,
        tmp_path,
        timeout=240,
    )
    assert len(os.listdir(tmp_path)) == 200


def test_an_actor_that_is_dropped_before_its_arguments_are_there(session, tmp_path):
    """It must not be created: nobody could end it."""

    @sooner.remote
    def waits(path):
        while not path.exists():
            time.sleep(0.005)

    @sooner.remote
    class Born:
        def __init__(self, _, path):
            path.touch()

    actor = Born.remote(waits.remote(tmp_path / "go"), tmp_path / "born")
    del actor
    gc.collect()
    (tmp_path / "go").touch()
    # What is created later is placed later.
    for _ in range(3):
        sooner.get(Log.remote(tmp_path).pid.remote(), timeout=WAIT)
    assert not (tmp_path / "born").exists()


def test_a_storm_of_cancellations(session):
    @sooner.remote
    def work(n):
        time.sleep(0.002)
        return bytes(n)

    @sooner.remote(max_concurrency=3)
    class Threads:
        def work(self, n):
            time.sleep(0.002)
            return bytes(n)

    @sooner.remote
    class Async:
        async def work(self, n):
            import asyncio

            await asyncio.sleep(0.002)
            return bytes(n)

    targets = [work, Threads.remote().work, Async.remote().work]
    sizes = (10, MIB // 4)
    problems = []

    def storm(seed):
        chance = random.Random(seed)
        for _ in range(6):
            refs = [(size, targets[chance.randrange(3)].remote(size)) for size in sizes * 6]
            chance.shuffle(refs)
            for _, ref in refs[::2]:
                sooner.cancel(ref)
                sooner.cancel(ref)
            for size, ref in refs:
                try:
                    if len(sooner.get(ref, timeout=WAIT)) != size:
                        problems.append(size)
                except sooner.exceptions.TaskCancelledError:
                    pass

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(storm, range(4), timeout=3 * WAIT))
    assert not problems
    for target in targets:
        assert len(sooner.get(target.remote(5), timeout=WAIT)) == 5
    assert_store_is_empty()


def test_restarting_actors_with_groups_and_unordered_calls(session):
    """Calls that wait for arguments, in groups, over restarts: each ends, none is lost."""

    @sooner.remote
    def later(n):
        time.sleep(0.01)
        return n

    class Server:
        @sooner.method(concurrency_group="io")
        def fetch(self, n):
            return n

        def work(self, n):
            return n

        def pid(self):
            return os.getpid()

    options = {"max_restarts": -1, "max_task_retries": -1, "allow_out_of_order_execution": True}
    server = sooner.remote(Server).options(concurrency_groups={"io": 2}, **options).remote()
    stop = threading.Event()

    def call(caller):
        rounds = 0
        while not stop.is_set() or rounds < 3:
            rounds += 1
            refs = [getattr(server, ("fetch", "work")[n % 2]).remote(later.remote(n)) for n in range(8)]
            assert sooner.get(refs, timeout=WAIT) == list(range(8))

    with ThreadPoolExecutor(3) as pool:
        callers = [pool.submit(call, caller) for caller in range(2)]
        pool.submit(kill_now_and_then, server, 6, 0).result(3 * WAIT)
        stop.set()
        for caller in callers:
            caller.result(2 * WAIT)
