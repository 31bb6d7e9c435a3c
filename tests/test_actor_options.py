"""Actors in full: restarts, retries, detached ones, groups, limits on pending calls, and ending in order."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import os
import threading
import time

import pytest
from support import WAIT, is_alive, poll, run_driver

import sooner
from sooner.exceptions import ActorDiedError, ActorUnavailableError, PendingCallsLimitExceeded, TaskCancelledError

pytestmark = pytest.mark.usefixtures("shared_session")


@sooner.remote
class Counter:
    def __init__(self, start=0):
        self.value = start

    def add(self, n=1):
        self.value += n
        return self.value

    def pid(self):
        return os.getpid()

    def die(self):
        os._exit(1)

    def die_once(self, path):
        if not path.exists():
            path.touch()
            os._exit(1)
        return self.add()

    def was_rebuilt(self):
        return sooner.get_runtime_context().was_current_actor_reconstructed

    def leave(self):
        sooner.actor.exit_actor()


def has_ended(actor):
    try:
        sooner.get(actor.pid.remote(), timeout=WAIT)
    except ActorDiedError:
        return True
    return False


# ---
# restarts ---------------------------------------------------------------------------------------------------------


@pytest.mark.api("actor.max_restarts", "actor.restarts_seen", "context.reconstructed")
def test_an_actor_restarts_with_its_constructor():
    counter = Counter.options(max_restarts=1).remote(10)
    assert sooner.get(counter.add.remote()) == 11
    assert not sooner.get(counter.was_rebuilt.remote())
    first = sooner.get(counter.pid.remote())
    with pytest.raises(ActorUnavailableError, match="max_task_retries=0"):
        sooner.get(counter.die.remote(), timeout=WAIT)
    assert sooner.get(counter.add.remote(), timeout=WAIT) == 11
    assert sooner.get(counter.was_rebuilt.remote())
    assert sooner.get(counter.pid.remote()) != first


@pytest.mark.api("actor.max_restarts")
def test_restarts_run_out():
    counter = Counter.options(max_restarts=1).remote()
    for expected in (ActorUnavailableError, ActorDiedError):
        with pytest.raises(expected):
            sooner.get(counter.die.remote(), timeout=WAIT)
    assert has_ended(counter)


@pytest.mark.api("actor.max_task_retries", "actor.restarts_seen", "errors.actor")
def test_calls_are_retried_after_a_restart(tmp_path):
    counter = Counter.options(max_restarts=-1, max_task_retries=2).remote()
    died = counter.die_once.remote(tmp_path / "died")
    later = [counter.add.remote() for _ in range(5)]
    assert sooner.get(died, timeout=WAIT) == 1
    assert sooner.get(later, timeout=WAIT) == [2, 3, 4, 5, 6]


@pytest.mark.api("method.max_task_retries")
def test_a_method_has_its_own_retries(tmp_path):
    counter = Counter.options(max_restarts=1).remote()
    retried = counter.die_once.options(max_task_retries=1)
    assert sooner.get(retried.remote(tmp_path / "died"), timeout=WAIT) == 1


@pytest.mark.api("kill")
def test_killed_without_no_restart_an_actor_comes_back():
    counter = Counter.options(max_restarts=1).remote()
    first = sooner.get(counter.pid.remote())
    sooner.kill(counter, no_restart=False)
    poll("its process ends", lambda: not is_alive(first))

    def second():
        try:
            return sooner.get(counter.pid.remote(), timeout=WAIT)
        except ActorUnavailableError:
            # The call was under way to the old process.
            return None

    assert poll("it is back", second) != first
    sooner.kill(counter)
    assert has_ended(counter)


def test_killed_again_while_it_starts_an_actor_still_comes_back():
    counter = Counter.options(max_restarts=-1, max_task_retries=-1).remote()
    sooner.get(counter.pid.remote())
    for _ in range(20):
        sooner.kill(counter, no_restart=False)
    assert sooner.get(counter.add.remote(), timeout=WAIT) == 1


def test_a_killed_actor_without_restarts_ends():
    counter = Counter.remote()
    sooner.get(counter.pid.remote())
    sooner.kill(counter, no_restart=False)
    poll("it has ended", lambda: has_ended(counter))


def test_a_named_actor_keeps_its_name_over_a_restart():
    counter = Counter.options(name="phoenix", max_restarts=1).remote()
    with pytest.raises(ActorUnavailableError):
        sooner.get(counter.die.remote(), timeout=WAIT)
    assert sooner.get(sooner.get_actor("phoenix").add.remote(), timeout=WAIT) == 1


def test_a_constructor_that_fails_on_restart_ends_the_actor(tmp_path):
    @sooner.remote(max_restarts=5)
    class Fragile:
        def __init__(self, path):
            if path.exists():
                raise ValueError("not again")
            path.touch()

        def die(self):
            os._exit(1)

        def ping(self):
            return "pong"

    actor = Fragile.remote(tmp_path / "built")
    with pytest.raises(ActorUnavailableError):
        sooner.get(actor.die.remote(), timeout=WAIT)
    with pytest.raises(ActorDiedError, match="not again"):
        sooner.get(actor.ping.remote(), timeout=WAIT)


def test_the_resources_of_a_restarting_actor_are_counted_once():
    actor = Counter.options(num_cpus=1, max_restarts=1).remote()
    sooner.get(actor.add.remote())
    with pytest.raises(ActorUnavailableError):
        sooner.get(actor.die.remote(), timeout=WAIT)
    sooner.get(actor.add.remote(), timeout=WAIT)
    sooner.kill(actor)
    total = sooner.cluster_resources()["CPU"]
    poll("its CPU is free", lambda: sooner.available_resources().get("CPU") == total)


# --- ending in
# order --------------------------------------------------------------------------------------------------


@pytest.mark.api("actor.exit_actor")
def test_exit_actor_ends_it_for_good():
    counter = Counter.options(max_restarts=5).remote()
    with pytest.raises(ActorDiedError, match=r"exit_actor\(\) was called"):
        sooner.get(counter.leave.remote(), timeout=WAIT)
    assert has_ended(counter)


@pytest.mark.api("actor.exit_actor")
def test_exit_actor_outside_of_an_actor():
    with pytest.raises(RuntimeError, match="does not run in an actor"):
        sooner.actor.exit_actor()


@pytest.mark.api("actor.exit_actor")
def test_an_asyncio_actor_exits():
    @sooner.remote
    class Leaving:
        async def leave(self):
            sooner.actor.exit_actor()

        async def wait(self):
            await asyncio.sleep(3600)

    actor = Leaving.remote()
    waiting = actor.wait.remote()
    with pytest.raises(ActorDiedError, match="exit_actor"):
        sooner.get(actor.leave.remote(), timeout=WAIT)
    with pytest.raises(ActorDiedError):
        sooner.get(waiting, timeout=WAIT)


@pytest.mark.api("actor.exit_actor")
def test_a_threaded_actor_exits():
    counter = Counter.options(max_concurrency=3).remote()
    with pytest.raises(ActorDiedError, match="exit_actor"):
        sooner.get(counter.leave.remote(), timeout=WAIT)


@pytest.mark.api("actor.ready")
def test_terminate_waits_for_the_calls_before_it():
    counter = Counter.remote()
    calls = [counter.add.remote() for _ in range(20)]
    ended = counter.__ray_terminate__.remote()
    assert sooner.get(calls, timeout=WAIT) == list(range(1, 21))
    with pytest.raises(ActorDiedError, match="asked to terminate"):
        sooner.get(ended, timeout=WAIT)


@sooner.remote
class Tidy:
    def __init__(self, path):
        self.path = path

    def ping(self):
        return "pong"

    def leave(self):
        sooner.actor.exit_actor()

    def __sooner_shutdown__(self):
        self.path.touch()


@sooner.remote
class TidyLoop(Tidy._cls):
    async def nothing(self):
        pass


@pytest.mark.api("own.clean_up")
@pytest.mark.parametrize("how", ["exit", "terminate", "out of scope"])
@pytest.mark.parametrize("kind", [Tidy, Tidy.options(max_concurrency=3), TidyLoop], ids=["plain", "threads", "loop"])
def test_the_clean_up_hook_runs(tmp_path, how, kind):
    actor = kind.remote(tmp_path / "clean")
    assert sooner.get(actor.ping.remote(), timeout=WAIT) == "pong"
    if how == "exit":
        actor.leave.remote()
    elif how == "terminate":
        actor.__ray_terminate__.remote()
    else:
        del actor
        gc.collect()
    poll("it has cleaned up", (tmp_path / "clean").exists)


@pytest.mark.api("own.clean_up")
def test_kill_runs_no_clean_up_hook(tmp_path):
    actor = Tidy.remote(tmp_path / "clean")
    sooner.get(actor.ping.remote(), timeout=WAIT)
    sooner.kill(actor)
    with pytest.raises(ActorDiedError):
        sooner.get(actor.ping.remote(), timeout=WAIT)
    assert not (tmp_path / "clean").exists()


@pytest.mark.api("own.clean_up")
def test_the_clean_up_hook_runs_at_shutdown(tmp_path):
    run_driver(
        """
        import pathlib, sys, sooner

        @sooner.remote
        class Tidy:
            def ping(self):
                return 1

            def __ray_shutdown__(self):
                pathlib.Path(path).touch()

        path = sys.argv[1]
        sooner.init(num_cpus=1)
        tidy = Tidy.remote()
        sooner.get(tidy.ping.remote())
        sooner.shutdown()
        """,
        tmp_path / "clean",
    )
    assert (tmp_path / "clean").exists()


# --- detached
# actors --------------------------------------------------------------------------------------------------


@pytest.mark.api("actor.lifetime")
def test_a_detached_actor_outlives_its_handles_and_its_owner():
    @sooner.remote
    def create(name):
        Counter.options(name=name, lifetime="detached").remote(5)
        return os.getpid()

    owner = sooner.get(create.options(max_calls=1).remote("lasting"), timeout=WAIT)
    poll("its owner ends", lambda: not is_alive(owner))
    gc.collect()
    counter = sooner.get_actor("lasting")
    assert sooner.get(counter.add.remote(), timeout=WAIT) == 6
    del counter
    gc.collect()
    assert sooner.get(sooner.get_actor("lasting").add.remote(), timeout=WAIT) == 7
    sooner.kill(sooner.get_actor("lasting"))
    poll("its name is free", lambda: "lasting" not in sooner.list_named_actors())


@pytest.mark.api("actor.lifetime")
def test_an_actor_that_is_not_detached_ends_with_its_owner():
    @sooner.remote
    class Owner:
        def create(self):
            self.child = Counter.remote()
            return self.child, sooner.get(self.child.pid.remote())

    owner = Owner.remote()
    _, pid = sooner.get(owner.create.remote(), timeout=WAIT)
    sooner.kill(owner)
    poll("the child ends", lambda: not is_alive(pid))


@pytest.mark.api("actor.name", "actor.get_if_exists")
def test_names_live_in_namespaces():
    first = Counter.options(name="twin", namespace="one").remote(1)
    second = Counter.options(name="twin", namespace="two").remote(2)
    assert sooner.get(sooner.get_actor("twin", namespace="one").add.remote()) == 2
    assert sooner.get(sooner.get_actor("twin", namespace="two").add.remote()) == 3
    with pytest.raises(ValueError, match="three"):
        sooner.get_actor("twin", namespace="three")
    with pytest.raises(sooner.exceptions.ActorAlreadyExistsError, match="twin"):
        Counter.options(name="twin", namespace="one").remote()
    same = Counter.options(name="twin", namespace="one", get_if_exists=True).remote(100)
    assert same == first
    assert second != first


# --- concurrency
# groups -----------------------------------------------------------------------------------------------


@sooner.remote(concurrency_groups={"io": 2, "check": 1})
class Grouped:
    def __init__(self):
        self.lock = threading.Lock()
        self.running = 0
        self.most = 0
        self.gate = threading.Event()

    @sooner.method(concurrency_group="io")
    def io(self):
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
        self.gate.wait(WAIT)
        with self.lock:
            self.running -= 1
        return threading.get_ident()

    @sooner.method(concurrency_group="check")
    def count(self):
        return self.running

    @sooner.method(concurrency_group="check")
    def open(self):
        self.gate.set()
        return True

    def plain(self):
        return self.most


@pytest.mark.api("actor.concurrency_groups", "method.concurrency_group")
def test_groups_have_limits_of_their_own():
    actor = Grouped.remote()
    calls = [actor.io.remote() for _ in range(6)]
    poll("two calls run", lambda: sooner.get(actor.count.remote(), timeout=WAIT) == 2)
    assert sooner.get(actor.plain.remote(), timeout=WAIT) == 2
    sooner.get(actor.open.remote(), timeout=WAIT)
    sooner.get(calls, timeout=WAIT)
    assert sooner.get(actor.plain.remote()) == 2


@pytest.mark.api("method.concurrency_group")
def test_a_call_can_choose_its_group():
    actor = Grouped.remote()
    calls = [actor.io.remote() for _ in range(3)]
    poll("two calls run", lambda: sooner.get(actor.count.remote(), timeout=WAIT) == 2)
    assert sooner.get(actor.plain.options(concurrency_group="check").remote(), timeout=WAIT) == 2
    sooner.get(actor.open.remote(), timeout=WAIT)
    sooner.get(calls, timeout=WAIT)


@pytest.mark.api("actor.concurrency_groups")
def test_groups_of_an_asyncio_actor():
    @sooner.remote(concurrency_groups={"few": 2})
    class Loop:
        def __init__(self):
            self.running = 0
            self.most = 0

        @sooner.method(concurrency_group="few")
        async def work(self):
            self.running += 1
            self.most = max(self.most, self.running)
            await asyncio.sleep(0.002)
            self.running -= 1

        async def highest(self):
            return self.most

    actor = Loop.remote()
    calls = [actor.work.remote() for _ in range(20)]
    assert sooner.get(actor.highest.remote(), timeout=WAIT) <= 2
    sooner.get(calls, timeout=WAIT)
    assert sooner.get(actor.highest.remote()) == 2


@pytest.mark.api("actor.concurrency_groups")
def test_a_group_that_does_not_exist():
    actor = Grouped.remote()
    with pytest.raises(ValueError, match=r"'nowhere', which the actor does not have: it has 'io', 'check'"):
        actor.plain.options(concurrency_group="nowhere")

    @sooner.remote
    class Wrong:
        @sooner.method(concurrency_group="io")
        def call(self):
            pass

    with pytest.raises(ValueError, match="Give concurrency_groups"):
        Wrong.remote()


def test_groups_reach_handles_by_name():
    actor = Grouped.options(name="grouped").remote()
    again = sooner.get_actor("grouped")
    assert sooner.get(again.open.remote(), timeout=WAIT)
    assert sooner.get(again.io.remote(), timeout=WAIT)
    assert again == actor


# --- order and
# limits -------------------------------------------------------------------------------------------------


@pytest.mark.api("actor.out_of_order")
def test_calls_wait_for_the_arguments_of_earlier_ones_unless_told_not_to(tmp_path):
    gate = tmp_path / "gate"

    @sooner.remote
    def when(gate):
        while not gate.exists():
            time.sleep(0.005)
        return 10

    counter = Counter.options(allow_out_of_order_execution=True).remote()
    late = counter.add.remote(when.remote(gate))
    assert sooner.get(counter.add.remote(), timeout=WAIT) == 1
    gate.touch()
    assert sooner.get(late, timeout=WAIT) == 11


@pytest.mark.api("actor.out_of_order")
def test_an_unordered_call_whose_argument_fails():
    @sooner.remote
    def fail():
        raise ValueError("no value")

    counter = Counter.options(allow_out_of_order_execution=True).remote()
    with pytest.raises(ValueError, match="no value"):
        sooner.get(counter.add.remote(fail.remote()), timeout=WAIT)
    assert sooner.get(counter.add.remote(), timeout=WAIT) == 1


@pytest.mark.api("actor.max_pending_calls", "errors.named")
def test_pending_calls_are_limited(tmp_path):
    gate = tmp_path / "gate"

    @sooner.remote(max_pending_calls=3)
    class Slow:
        def wait(self, gate):
            while not gate.exists():
                time.sleep(0.005)
            return True

    actor = Slow.remote()
    calls = [actor.wait.remote(gate) for _ in range(3)]
    with pytest.raises(PendingCallsLimitExceeded, match="max_pending_calls is 3"):
        actor.wait.remote(gate)
    gate.touch()
    assert all(sooner.get(calls, timeout=WAIT))
    assert sooner.get(actor.wait.remote(gate), timeout=WAIT)


# ---
# max_calls --------------------------------------------------------------------------------------------------------


@pytest.mark.api("task.max_calls")
def test_a_worker_ends_after_max_calls():
    @sooner.remote(max_calls=2)
    def pid():
        return os.getpid()

    pids = sooner.get([pid.remote() for _ in range(8)], timeout=WAIT)
    assert all(pids.count(one) <= 2 for one in pids)
    # Nobody says that each worker gets two: one that had a single call may wait for another.
    used_up = {one for one in pids if pids.count(one) == 2}
    assert used_up
    poll("the workers end", lambda: not any(is_alive(one) for one in used_up))


@pytest.mark.api("task.max_calls")
def test_other_tasks_survive_max_calls():
    @sooner.remote(max_calls=1)
    def leaving(i):
        return i

    @sooner.remote(max_retries=0)
    def staying(i):
        return -i

    refs = [f.remote(i) for i in range(40) for f in (leaving, staying)]
    expected = [sign * i for i in range(40) for sign in (1, -1)]
    assert sooner.get(refs, timeout=WAIT) == expected


@pytest.mark.api("task.max_calls")
def test_what_a_worker_owns_outlives_its_last_call(tmp_path):
    @sooner.remote(num_cpus=0)
    def slow():
        poll("the gate opens", lambda: (tmp_path / "gate").exists())
        return 1

    @sooner.remote(max_calls=1)
    def leaving():
        return os.getpid(), slow.remote(), sooner.put("kept")

    @sooner.remote(max_calls=1)
    def forgetful():
        slow.remote()
        return os.getpid()

    @sooner.remote
    def use(refs):
        return sooner.get(refs[0])

    @sooner.remote
    def pid():
        return os.getpid()

    results = sooner.get([leaving.remote() for _ in range(3)], timeout=WAIT)
    pids = [owner for owner, *_ in results] + [sooner.get(forgetful.remote(), timeout=WAIT)]
    assert len(set(pids)) == len(pids)
    # They take no more tasks, and keep no CPU.
    assert not set(sooner.get([pid.remote() for _ in range(20)], timeout=WAIT)) & set(pids)
    (tmp_path / "gate").touch()
    assert sooner.get([slowly for _, slowly, _ in results], timeout=WAIT) == [1, 1, 1]
    assert sooner.get([use.remote([kept]) for _, _, kept in results], timeout=WAIT) == ["kept"] * 3
    del results
    poll("they end when nobody needs them", lambda: not any(is_alive(owner) for owner in pids))


# --- retries of
# exceptions --------------------------------------------------------------------------------------------


@sooner.remote
class Flaky:
    def __init__(self):
        self.calls = 0

    def fail(self, error, times):
        self.calls += 1
        if self.calls <= times:
            raise error("not yet")
        return self.calls


@sooner.remote
class FlakyLoop(Flaky._cls):
    async def nothing(self):
        pass


@pytest.mark.parametrize("kind", [Flaky, FlakyLoop], ids=["plain", "loop"])
@pytest.mark.api("method.retry_exceptions")
def test_listed_exceptions_of_a_call_are_retried(kind):
    fail = kind.remote().fail.options(max_task_retries=3, retry_exceptions=[KeyError, OSError])
    assert sooner.get(fail.remote(KeyError, 2), timeout=WAIT) == 3
    other = kind.remote().fail.options(max_task_retries=3, retry_exceptions=[KeyError])
    with pytest.raises(ValueError, match="not yet"):
        sooner.get(other.remote(ValueError, 1), timeout=WAIT)
    every = kind.remote().fail.options(max_task_retries=2, retry_exceptions=True)
    assert sooner.get(every.remote(ValueError, 2), timeout=WAIT) == 3
    spent = kind.remote().fail.options(max_task_retries=1, retry_exceptions=True)
    with pytest.raises(ValueError, match="not yet"):
        sooner.get(spent.remote(ValueError, 2), timeout=WAIT)


def _overlapping(kind):
    if kind == "async":

        @sooner.remote
        class Echo:
            async def echo(self, x):
                return x

        return Echo

    @sooner.remote
    class Threads:
        def echo(self, x):
            return x

    return Threads.options(max_concurrency=2)


@pytest.mark.api("actor.out_of_order")
@pytest.mark.parametrize("kind", ["async", "threads"])
@pytest.mark.parametrize("by", ["handle", "name", "task"])
def test_a_late_argument_does_not_hold_up_calls_that_overlap_anyway(tmp_path, kind, by):
    @sooner.remote(num_cpus=0)
    def when(gate):
        while not gate.exists():
            time.sleep(0.005)
        return "late"

    @sooner.remote(num_cpus=0)
    def both(actor, gate):
        late = actor.echo.remote(when.remote(gate))
        now = sooner.get(actor.echo.remote("now"), timeout=WAIT)
        gate.touch()
        return [now, sooner.get(late, timeout=WAIT)]

    gate = tmp_path / "gate"
    created = _overlapping(kind).options(name="overlapping").remote()
    if by == "task":
        assert sooner.get(both.remote(created, gate), timeout=WAIT) == ["now", "late"]
        return
    actor = sooner.get_actor("overlapping") if by == "name" else created
    late = actor.echo.remote(when.remote(gate))
    assert sooner.get(actor.echo.remote("now"), timeout=WAIT) == "now"
    gate.touch()
    assert sooner.get(late, timeout=WAIT) == "late"


@pytest.mark.api("actor.out_of_order")
def test_a_late_argument_holds_up_the_calls_of_a_plain_actor(tmp_path):
    gate = tmp_path / "gate"

    @sooner.remote(num_cpus=0)
    def when(gate):
        while not gate.exists():
            time.sleep(0.005)
        return 10

    counter = Counter.remote()
    calls = [counter.add.remote(when.remote(gate)), counter.add.remote()]
    assert sooner.wait(calls, timeout=0.3)[0] == []
    gate.touch()
    assert sooner.get(calls, timeout=WAIT) == [10, 11]


@pytest.mark.api("actor.out_of_order")
@pytest.mark.parametrize("kind", ["async", "threads"])
def test_calls_that_overlap_cannot_be_kept_in_order(kind):
    cls = _overlapping(kind)
    with pytest.raises(ValueError, match="allow_out_of_order_execution=False"):
        cls.options(allow_out_of_order_execution=False)
    assert sooner.get(cls.options(allow_out_of_order_execution=True).remote().echo.remote(1), timeout=WAIT) == 1


# --- the actor of a
# name ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lifetime", ["detached", None])
def test_get_if_exists_from_many_threads(lifetime):
    @sooner.remote(num_cpus=0)
    class Single:
        def pid(self):
            return os.getpid()

    start = threading.Barrier(6)
    for n in range(20):

        def one(_, n=n):
            start.wait()
            actor = Single.options(name=f"single {n}", get_if_exists=True, lifetime=lifetime).remote()
            return actor, sooner.get(actor.pid.remote(), timeout=WAIT)

        with concurrent.futures.ThreadPoolExecutor(6) as threads:
            found = list(threads.map(one, range(6)))
        if lifetime == "detached":
            assert len({pid for _, pid in found}) == 1
            sooner.kill(found[0][0])


def test_get_if_exists_with_handles_that_go_at_once():
    @sooner.remote(num_cpus=0)
    class Brief:
        def touch(self):
            return "ok"

    def loop(count):
        for _ in range(count):
            actor = Brief.options(name="brief", get_if_exists=True).remote()
            assert sooner.get(actor.touch.remote(), timeout=WAIT) == "ok"
            del actor
        return True

    assert loop(20)
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        assert all(threads.map(loop, [15] * 4))
    # In several processes, each of which may own the actor that the others find.
    in_task = sooner.remote(num_cpus=0, max_retries=0)(loop)
    assert all(sooner.get([in_task.remote(10) for _ in range(8)], timeout=WAIT))


# --- threads and loops of
# groups --------------------------------------------------------------------------------------


@sooner.remote(concurrency_groups={"io": 1, "check": 2})
class Loops:
    def __init__(self):
        self.where = {"init": threading.get_ident()}

    async def block(self, gate):
        while not gate.exists():
            time.sleep(0.005)
        return "default"

    @sooner.method(concurrency_group="io")
    async def block_io(self, gate):
        while not gate.exists():
            time.sleep(0.005)
        return "io"

    @sooner.method(concurrency_group="check")
    async def ping(self):
        return 1

    @sooner.method(concurrency_group="check")
    async def sleep(self):
        await asyncio.sleep(3600)

    @sooner.method(concurrency_group="check")
    async def items(self):
        for n in range(3):
            yield n

    @sooner.method(concurrency_group="check")
    async def nested(self):
        ref = sooner.remote(num_cpus=0)(lambda: 2).remote()
        return await ref + sooner.get(sooner.put(1))

    @sooner.method(concurrency_group="check")
    def plain(self):
        return threading.get_ident()

    async def name(self):
        return threading.get_ident(), asyncio.get_running_loop() is not None


@pytest.mark.api("actor.concurrency_groups")
def test_a_group_of_an_asyncio_actor_that_blocks_leaves_the_others_alone(tmp_path):
    gate = tmp_path / "gate"
    actor = Loops.remote()
    stuck = [actor.block.remote(gate), actor.block_io.remote(gate)]
    for _ in range(20):
        assert sooner.get(actor.ping.remote(), timeout=WAIT) == 1
    assert sooner.get([actor.ping.remote() for _ in range(200)], timeout=WAIT) == [1] * 200
    assert sooner.get(actor.nested.remote(), timeout=WAIT) == 3
    stream = actor.items.options(num_returns="streaming").remote()
    assert [sooner.get(ref, timeout=WAIT) for ref in stream] == [0, 1, 2]
    sleeping = [actor.sleep.remote() for _ in range(2)]
    waits = actor.ping.remote()
    assert sooner.wait([waits], timeout=0.2)[0] == []
    sooner.cancel(sleeping[0])
    with pytest.raises(TaskCancelledError):
        sooner.get(sleeping[0], timeout=WAIT)
    assert sooner.get(waits, timeout=WAIT) == 1
    assert sooner.wait(stuck, timeout=0)[0] == []
    gate.touch()
    assert sooner.get(stuck, timeout=WAIT) == ["default", "io"]
    assert sooner.get(actor.name.remote(), timeout=WAIT)[1]
    assert len({*sooner.get([actor.plain.remote() for _ in range(10)], timeout=WAIT)}) == 1


@pytest.mark.api("actor.concurrency_groups")
def test_an_asyncio_actor_with_groups_ends_in_order(tmp_path):
    mark = tmp_path / "mark"

    @sooner.remote(concurrency_groups={"io": 1})
    class Ends:
        @sooner.method(concurrency_group="io")
        async def pid(self):
            return os.getpid()

        async def leave(self):
            mark.touch()
            sooner.actor.exit_actor()

    for how in ("handle", "exit"):
        actor = Ends.remote()
        pid = sooner.get(actor.pid.remote(), timeout=WAIT)
        if how == "exit":
            with pytest.raises(ActorDiedError):
                sooner.get(actor.leave.remote(), timeout=WAIT)
        del actor
        poll("the process has ended", lambda pid=pid: not is_alive(pid))
    assert mark.exists()


@pytest.mark.api("actor.concurrency_groups")
def test_threads_of_a_group_are_its_own(tmp_path):
    @sooner.remote(concurrency_groups={"io": 1, "pair": 2}, max_concurrency=2)
    class Threads:
        def __init__(self):
            self.local = threading.local()

        def count(self):
            self.local.count = getattr(self.local, "count", 0) + 1
            return threading.get_ident(), self.local.count

        def hold(self, gate):
            while not gate.exists():
                time.sleep(0.005)

    actor = Threads.remote()

    def threads(group):
        method = actor.count if group is None else actor.count.options(concurrency_group=group)
        return {ident for ident, _ in sooner.get([method.remote() for _ in range(50)], timeout=WAIT)}

    io, pair, default = threads("io"), threads("pair"), threads(None)
    assert [len(io), len(pair) <= 2, len(default) <= 2] == [1, True, True]
    assert len(io | pair | default) == len(io) + len(pair) + len(default)
    counts = sooner.get(actor.count.options(concurrency_group="io").remote(), timeout=WAIT)
    assert counts[1] == 51
    gate = tmp_path / "gate"
    held = [actor.hold.options(concurrency_group=group).remote(gate) for group in ("io", "pair", "pair")]
    assert len(threads(None)) >= 1
    gate.touch()
    sooner.get(held, timeout=WAIT)
