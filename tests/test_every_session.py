"""Tasks, objects, actors, asyncio and resources mean the same in every kind of session.

Each test runs in a session of this program, in a program whose node has no resources, so that everything
runs on another node, and in local mode. What needs processes leaves local mode out.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import math
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from clusters import cluster_of
from support import poll

import sooner
from sooner.exceptions import ActorAlreadyExistsError, ActorDiedError, GetTimeoutError, TaskError

WAIT = 60
Point = collections.namedtuple("Point", "x y")


class Wide(int):
    """A subclass of int with an attribute."""

    tag = "wide"


RESOURCES: dict[str, Any] = {"num_cpus": 2, "num_gpus": 2, "resources": {"slot": 3}}


@contextlib.contextmanager
def alone() -> Iterator[None]:
    with sooner.init(**RESOURCES):
        yield


@contextlib.contextmanager
def in_cluster() -> Iterator[None]:
    with cluster_of(0, RESOURCES, connects=True):
        yield


@contextlib.contextmanager
def in_local_mode() -> Iterator[None]:
    with sooner.init(**RESOURCES, local_mode=True):
        yield


KINDS = {"alone": alone, "in_cluster": in_cluster, "in_local_mode": in_local_mode}
# For tests of what only processes have: their ends, their memory, and calls at the same time.
with_processes = pytest.mark.parametrize("session", ["alone", "in_cluster"], indirect=True)


@pytest.fixture(scope="module", params=KINDS, autouse=True)
def session(request: pytest.FixtureRequest) -> Iterator[None]:
    """One session of each kind for the tests here."""
    with KINDS[request.param]():
        yield


def eventually(predicate: Callable[[], bool], seconds: float = 20) -> bool:
    """Polls until it holds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if predicate():
            return True
        time.sleep(0.02)
    return predicate()


@sooner.remote
def echo(value: Any) -> Any:
    return value


@sooner.remote
def add(a: int, b: int = 10, *more: int, scale: int = 1) -> int:
    return (a + b + sum(more)) * scale


# --- tasks -------------------------------------------------------------------------------------------


def test_arguments_of_every_kind() -> None:
    refs = [add.remote(1), add.remote(1, 2), add.remote(1, 2, 3, scale=2), add.remote(b=1, a=2)]
    assert sooner.get(refs, timeout=WAIT) == [11, 3, 12, 3]


def test_returns_none_one_and_many() -> None:
    @sooner.remote(num_returns=0)
    def nothing() -> None: ...

    @sooner.remote(num_returns=2)
    def two() -> list[int]:
        return [1, 2]

    assert nothing.remote() is None
    assert sooner.get(two.remote(), timeout=WAIT) == [1, 2]
    assert sooner.get(echo.options(num_returns=3).remote("abc"), timeout=WAIT) == ["a", "b", "c"]
    assert sooner.get(echo._remote(args=(5,), num_cpus=0.5), timeout=WAIT) == 5


def test_references_are_replaced_at_the_top_and_kept_inside() -> None:
    ref = sooner.put(5)

    @sooner.remote
    def look(value: int, box: list[Any]) -> tuple[int, bool, int]:
        return value, isinstance(box[0], sooner.ObjectRef), sooner.get(box[0])

    assert sooner.get(look.remote(ref, [ref]), timeout=WAIT) == (5, True, 5)


def test_reference_in_a_closure() -> None:
    ref = sooner.put([1, 2, 3])

    @sooner.remote
    def look() -> int:
        return sum(sooner.get(ref))

    assert sooner.get(look.remote(), timeout=WAIT) == 6


def test_a_chain_of_tasks_and_a_failure_that_runs_down_it() -> None:
    ref = echo.remote(0)
    for _ in range(200):
        ref = add.remote(ref, 1)
    assert sooner.get(ref, timeout=WAIT) == 200

    @sooner.remote
    def fails() -> int:
        raise ZeroDivisionError("at the start")

    ref = fails.remote()
    for _ in range(50):
        ref = add.remote(ref, 1)
    with pytest.raises(ZeroDivisionError, match="at the start"):
        sooner.get(ref, timeout=WAIT)


def test_retry_exceptions(tmp_path: Any) -> None:
    @sooner.remote(max_retries=5, retry_exceptions=[OSError])
    def flaky(path: str, error: type[Exception]) -> int:
        with open(path, "a") as file:
            file.write("x")
        tries = os.path.getsize(path)
        if tries < 3:
            raise error("again")
        return tries

    assert sooner.get(flaky.remote(str(tmp_path / "a"), OSError), timeout=WAIT) == 3
    with pytest.raises(ValueError, match="again"):
        sooner.get(flaky.remote(str(tmp_path / "b"), ValueError), timeout=WAIT)


def test_direct_calls_are_refused() -> None:
    with pytest.raises(TypeError, match="remote"):
        echo(1)
    with pytest.raises(TypeError, match="remote"):
        Counter()


def test_nested_tasks_lend_their_cpu() -> None:
    @sooner.remote(num_cpus=2)
    def outer() -> int:
        return sum(sooner.get([inner.remote(n) for n in range(4)]))

    @sooner.remote(num_cpus=2)
    def inner(n: int) -> int:
        return n

    assert sooner.get([outer.remote() for _ in range(3)], timeout=WAIT) == [6, 6, 6]


@with_processes
def test_a_task_is_not_held_up_behind_a_long_one() -> None:
    sooner.get([echo.remote(n) for n in range(200)], timeout=WAIT)

    @sooner.remote
    def wait(seconds: float) -> float:
        time.sleep(seconds)
        return seconds

    sooner.get([wait.remote(0) for _ in range(100)], timeout=WAIT)
    long = wait.remote(600)
    assert sooner.get([wait.remote(0) for _ in range(50)], timeout=WAIT) == [0] * 50
    sooner.cancel(long)


def test_a_hundred_thousand_tasks() -> None:
    refs = [echo.remote(n) for n in range(100_000)]
    assert sum(sooner.get(refs, timeout=120)) == sum(range(100_000))


@pytest.mark.parametrize("size", [1, 200_000], ids=["small", "large"])
def test_a_tree_of_tasks(size: int) -> None:
    parts = [echo.remote(bytes([number]) * size) for number in range(20)]
    whole = sooner.util.tree_reduce(lambda a, b: a + b, parts, fan_in=3)
    assert sooner.get(whole, timeout=WAIT) == b"".join(bytes([number]) * size for number in range(20))


# --- objects -----------------------------------------------------------------------------------------

VALUES: list[Any] = [
    None, True, False, 0, -1, 2**62, -(2**63), 2**63, 10**40, 0.0, -0.0, math.inf, 1e-300, "", "ä€😀", "\ud800", b"",
    (), (1, "a", (None, 2.5)), tuple(range(100)), [], [1, [2]], {}, {"a": {1, 2}}, frozenset({1}), range(5), 1 + 2j,
    Point(1, 2), Wide(7), "x" * 300_000, b"y" * 300_000, bytearray(b"z" * 200_000), list(range(50_000)),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{type(value).__name__}-{str(value)[:12]!r}")
def test_values_come_back_as_they_were(value: Any) -> None:
    for back in (sooner.get(sooner.put(value)), sooner.get(echo.remote(value), timeout=WAIT)):
        assert back == value
        assert type(back) is type(value)


def test_nan_aliases_and_cycles() -> None:
    assert math.isnan(sooner.get(sooner.put(math.nan)))
    inner = [1]
    first, second = sooner.get(sooner.put([inner, inner]))
    assert first is second
    cycle: list[Any] = []
    cycle.append(cycle)
    back = sooner.get(sooner.put(cycle))
    assert back[0] is back


def test_large_arrays_are_shared_read_only_and_outlive_their_reference() -> None:
    array = np.arange(1_000_000)
    ref = sooner.put({"a": array, "b": [array[:10], "text"]})
    one, two = sooner.get(ref), sooner.get(ref)
    assert not one["a"].flags.writeable
    assert one["a"].ctypes.data == two["a"].ctypes.data
    assert one["a"].ctypes.data % 64 == 0
    del ref, two
    for _ in range(5):
        sooner.get(sooner.put(np.zeros(1_000_000)))
    assert (one["a"] == array).all()


def test_views_of_arguments_and_results_survive_in_actor_state() -> None:
    @sooner.remote
    class Keeper:
        def keep(self, array: Any) -> None:
            self.array = array

        def total(self) -> float:
            return float(self.array.sum())

    keeper = Keeper.remote()
    ref = sooner.put(np.ones(500_000))
    sooner.get(keeper.keep.remote(ref), timeout=WAIT)
    del ref
    for _ in range(10):
        sooner.get(echo.remote(np.zeros(500_000)), timeout=WAIT)
    assert sooner.get(keeper.total.remote(), timeout=WAIT) == 500_000


def test_memory_is_reused() -> None:
    @sooner.remote
    def make() -> Any:
        return np.ones(4_000_000)

    store = sooner.cluster_resources()["object_store_memory"]
    rounds = int(store // 32_000_000) + 20
    for _ in range(min(rounds, 300)):
        assert sooner.get(make.remote(), timeout=WAIT)[0] == 1


def test_references_in_values_from_tasks() -> None:
    @sooner.remote
    def make(count: int) -> list[Any]:
        return [sooner.put((n, "x" * 10)) for n in range(count)]

    refs = sooner.get(make.remote(500), timeout=WAIT)
    assert [value[0] for value in sooner.get(refs, timeout=WAIT)] == list(range(500))
    nested = sooner.put({"refs": refs[:3]})
    del refs
    assert sooner.get(sooner.get(nested)["refs"][2], timeout=WAIT)[0] == 2


def test_a_borrowed_reference_is_passed_on() -> None:
    @sooner.remote
    def inner(box: list[Any]) -> int:
        return int(sooner.get(box[0]).sum())

    @sooner.remote
    def outer(box: list[Any]) -> Any:
        return [inner.remote(box)]

    box = [sooner.put(np.ones(200_000))]
    result = outer.remote(box)
    del box
    assert sooner.get(sooner.get(result, timeout=WAIT)[0], timeout=WAIT) == 200_000


@pytest.mark.api("ref.equality")
def test_identity_of_references() -> None:
    ref = sooner.put(1)
    again = pickle.loads(pickle.dumps(ref))
    assert ref == again
    assert len({ref, again}) == 1
    assert len(ref.binary()) == ref.size()
    assert ref.hex() == ref.binary().hex()
    assert sooner.get(again) == 1
    with pytest.raises(TypeError):
        sooner.put(ref)


# --- get and wait ------------------------------------------------------------------------------------


def test_wait_keeps_order_and_counts() -> None:
    event = Gate.remote()
    slow = event.wait.remote()
    quick = [echo.remote(n) for n in range(3)]
    ready, rest = sooner.wait([quick[0], slow, quick[1], quick[2]], num_returns=3, timeout=WAIT)
    assert (ready, rest) == (quick, [slow])
    assert sooner.wait([slow], timeout=0) == ([], [slow])
    sooner.get(event.open.remote(), timeout=WAIT)
    assert sooner.wait([slow], timeout=WAIT) == ([slow], [])
    with pytest.raises(ValueError, match="twice"):
        sooner.wait([slow, slow])
    with pytest.raises(ValueError, match="num_returns"):
        sooner.wait([slow], num_returns=2)
    with pytest.raises(TypeError):
        sooner.wait(slow)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="ObjectRef"):
        sooner.get(3)  # type: ignore[call-overload]


def test_get_timeout_is_a_timeout_error() -> None:
    gate = Gate.remote()
    with pytest.raises(TimeoutError) as caught:
        sooner.get([gate.wait.remote()], timeout=0.1)
    assert isinstance(caught.value, GetTimeoutError)


# --- actors ------------------------------------------------------------------------------------------


@sooner.remote
class Counter:
    def __init__(self, start: int = 0) -> None:
        self.value = start

    def add(self, n: int = 1) -> int:
        self.value += n
        return self.value

    @sooner.method(num_returns=2)
    def pair(self) -> tuple[int, int]:
        return self.value, -self.value

    def pid(self) -> int:
        return os.getpid()

    def fail(self) -> None:
        raise LookupError("in an actor")


@sooner.remote
class Gate:
    def __init__(self) -> None:
        self.event = asyncio.Event()

    async def wait(self) -> str:
        await self.event.wait()
        return "opened"

    async def open(self) -> None:
        self.event.set()


def test_calls_are_in_order_and_keep_state() -> None:
    counter = Counter.remote(5)
    assert sooner.get([counter.add.remote() for _ in range(2000)], timeout=WAIT) == list(range(6, 2006))
    assert sooner.get(counter.pair.remote(), timeout=WAIT) == [2005, -2005]
    with pytest.raises(LookupError) as caught:
        sooner.get(counter.fail.remote(), timeout=WAIT)
    assert isinstance(caught.value, TaskError)
    assert sooner.get(counter.add.remote(), timeout=WAIT) == 2006
    assert sooner.get(counter.__ray_ready__.remote(), timeout=WAIT) is True


def test_a_call_whose_argument_is_late_holds_the_later_ones_back() -> None:
    gate, counter = Gate.remote(), Counter.remote()

    @sooner.remote
    def after(_: str) -> int:
        return 100

    late = counter.add.remote(after.remote(gate.wait.remote()))
    quick = counter.add.remote(1)
    assert sooner.wait([quick], timeout=0.2)[0] == []
    sooner.get(gate.open.remote(), timeout=WAIT)
    assert sooner.get([late, quick], timeout=WAIT) == [100, 101]


def test_handles_travel() -> None:
    counter = Counter.remote()

    @sooner.remote
    def bump(handle: Any, box: dict[str, Any]) -> bool:
        sooner.get([handle.add.remote(), box["h"].add.remote()])
        return handle == box["h"]

    assert sooner.get(bump.remote(counter, {"h": counter}), timeout=WAIT)
    assert sooner.get(counter.add.remote(), timeout=WAIT) == 3
    with pytest.raises(AttributeError, match="nothing"):
        _ = counter.nothing
    with pytest.raises(TypeError, match="remote"):
        counter.add(1)


def gone(pid: int) -> bool:
    return not os.path.exists(f"/proc/{pid}")


@with_processes
def test_an_actor_ends_with_its_last_handle_after_its_calls() -> None:
    counter = Counter.remote()
    pid = sooner.get(counter.pid.remote(), timeout=WAIT)
    box = sooner.put([counter])
    refs = [counter.add.remote() for _ in range(100)]
    del counter
    assert sooner.get(refs, timeout=WAIT)[-1] == 100
    assert not gone(pid)
    del box
    assert eventually(lambda: gone(pid))


@pytest.mark.api("actor.get_if_exists")
def test_named_actors() -> None:
    first = Counter.options(name="shared").remote(1)
    assert sooner.get(sooner.get_actor("shared").add.remote(), timeout=WAIT) == 2
    with pytest.raises(ActorAlreadyExistsError):
        Counter.options(name="shared").remote()
    again = Counter.options(name="shared", get_if_exists=True).remote(50)
    assert sooner.get(again.add.remote(), timeout=WAIT) == 3

    @sooner.remote
    def through() -> int:
        return sooner.get(sooner.get_actor("shared").add.remote())

    assert sooner.get(through.remote(), timeout=WAIT) == 4
    sooner.kill(first)

    def is_dead() -> bool:
        try:
            sooner.get(first.add.remote(), timeout=WAIT)
        except ActorDiedError:
            return True
        return False

    # A kill is asynchronous: a call that was sent right after it may still be served.
    assert eventually(is_dead)

    def is_free() -> bool:
        try:
            sooner.get_actor("shared")
        except ValueError:
            return True
        return False

    assert eventually(is_free)


@with_processes
def test_threaded_actors_run_calls_at_the_same_time() -> None:
    @sooner.remote(max_concurrency=4)
    class Meeting:
        def __init__(self) -> None:
            self.barrier = threading.Barrier(4)

        def meet(self) -> int:
            return self.barrier.wait(WAIT) and threading.get_ident()

    meeting = Meeting.remote()
    assert len(sooner.get([meeting.meet.remote() for _ in range(4)], timeout=WAIT)) == 4


def test_async_actors_run_many_calls_at_once_and_in_one_loop() -> None:
    gate = Gate.remote()
    waits = [gate.wait.remote() for _ in range(300)]
    sooner.get(gate.open.remote(), timeout=WAIT)
    assert sooner.get(waits, timeout=WAIT) == ["opened"] * 300


def test_an_async_actor_busy_with_blocking_code_still_answers_afterwards() -> None:
    @sooner.remote
    class Busy:
        async def block(self) -> int:
            time.sleep(0.2)
            return 1

        async def quick(self) -> int:
            return 2

    busy = Busy.remote()
    for _ in range(5):
        refs = [busy.block.remote(), busy.quick.remote()]
        time.sleep(0.05)
        refs.append(busy.quick.remote())
        assert sooner.get(refs, timeout=WAIT) == [1, 2, 2]


def test_an_actor_calls_itself_through_its_handle() -> None:
    @sooner.remote
    class Mirror:
        async def look(self, box: list[Any]) -> int:
            return await box[0].answer.remote([sooner.put(41)]) if box else 0

        async def answer(self, box: list[Any]) -> int:
            return 1 + await box[0]

    mirror = Mirror.remote()
    assert sooner.get(mirror.look.remote([mirror]), timeout=WAIT) == 42


def test_a_returned_reference_of_a_task_that_is_still_to_run() -> None:
    @sooner.remote
    def outer() -> Any:
        return echo.remote("inner")

    refs = sooner.get([outer.remote() for _ in range(20)], timeout=WAIT)
    time.sleep(0.2)
    assert sooner.get(refs, timeout=WAIT) == ["inner"] * 20


def test_twenty_actors_and_an_inherited_method() -> None:
    class Base:
        def who(self) -> str:
            return type(self).__name__

    @sooner.remote
    class Child(Base):
        pass

    actors = [Child.remote() for _ in range(20)]
    assert set(sooner.get([actor.who.remote() for actor in actors], timeout=WAIT)) == {"Child"}
    with pytest.raises(TypeError, match="inherit"):

        class Wrong(Child):  # type: ignore[valid-type,misc]
            pass


# --- asyncio -----------------------------------------------------------------------------------------


def test_await_gather_and_futures() -> None:
    async def main() -> None:
        assert await add.remote(1, 2) == 3
        assert await asyncio.gather(*(echo.remote(n) for n in range(50))) == list(range(50))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(Gate.remote().wait.remote().as_future(), 0.1)

        @sooner.remote
        def fails() -> None:
            raise OSError("later")

        with pytest.raises(OSError, match="later"):
            await fails.remote()

    asyncio.run(main())
    assert add.remote(1, 2).future().result(timeout=WAIT) == 3


# --- resources and context ---------------------------------------------------------------------------


@with_processes
def test_gpus_are_distinct_and_visible() -> None:
    @sooner.remote(num_gpus=1)
    class Owner:
        def seen(self) -> tuple[str, list[int]]:
            return os.environ["CUDA_VISIBLE_DEVICES"], sooner.get_gpu_ids()

    owners = [Owner.remote(), Owner.remote()]
    seen = sooner.get([owner.seen.remote() for owner in owners], timeout=WAIT)
    assert sorted(seen) == [("0", [0]), ("1", [1])]
    del owners
    assert eventually(lambda: sooner.available_resources().get("GPU") == 2)


@with_processes
def test_custom_resources_and_fractions_limit_concurrency() -> None:
    @sooner.remote
    class Busy:
        def __init__(self) -> None:
            self.now = self.most = 0

        async def enter(self) -> None:
            self.now += 1
            self.most = max(self.most, self.now)

        async def leave(self) -> int:
            self.now -= 1
            return self.most

    busy = Busy.remote()

    @sooner.remote(num_cpus=0.1, resources={"slot": 1})
    def work(busy: Any) -> int:
        sooner.get(busy.enter.remote())
        time.sleep(0.05)
        return sooner.get(busy.leave.remote())

    assert max(sooner.get([work.remote(busy) for _ in range(12)], timeout=WAIT)) == 3
    assert eventually(lambda: sooner.available_resources().get("slot") == 3)


@with_processes
def test_runtime_context() -> None:
    @sooner.remote
    def facts() -> dict[str, Any]:
        context = sooner.get_runtime_context()
        return context.get() | {"name": context.get_task_name(), "worker": context.get_worker_id()}

    inside = sooner.get(facts.options(name="named").remote(), timeout=WAIT)
    outside = sooner.get_runtime_context()
    assert inside["job_id"] == outside.get_job_id()
    nodes = {row["NodeID"] for row in sooner.nodes()}
    assert {inside["node_id"], outside.get_node_id()} <= nodes
    assert inside["worker"] != outside.get_worker_id()
    assert (inside["name"], outside.get_task_id()) == ("named", None)


def test_second_init() -> None:
    with pytest.raises(RuntimeError, match="shutdown"):
        sooner.init()
    assert sooner.init(ignore_reinit_error=True)["node_id"] == sooner.nodes()[0]["NodeID"]


def test_tasks_run_although_nobody_waits_for_them(tmp_path):
    """What was submitted leaves and returns within moments, whether the driver sleeps before, after or in
    between.
    """

    @sooner.remote
    def mark(name):
        (tmp_path / name).touch()

    sooner.get(mark.remote("first"), timeout=WAIT)
    refs = []

    def have_all_run():
        return len(list(tmp_path.iterdir())) == len(refs) + 1

    for burst in range(3):
        # Longer than any nap of the background thread.
        time.sleep(0.05)
        refs += [mark.remote(f"{burst}-{number}") for number in range(burst * 40 + 2)]
        poll("the tasks of the burst have run", have_all_run)
    # Their results came by themselves, too.
    poll("the results are here", lambda: sooner.wait(refs, num_returns=len(refs), timeout=0)[1] == [])
