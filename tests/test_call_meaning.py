"""Calls mean what Ray's and Python's mean: how tasks and actors end, what the class behind an actor class
has.
"""

from __future__ import annotations

import asyncio
import collections.abc
import copy
import functools
import os
import signal
import sys

import pytest
from support import WAIT, is_alive, poll, run_driver

import sooner
from sooner import state
from sooner.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    GetTimeoutError,
    ObjectFreedError,
    ObjectLostError,
    OwnerDiedError,
    TaskCancelledError,
    TaskError,
    WorkerCrashedError,
)

pytestmark = pytest.mark.usefixtures("shared_session")


# sys.exit


@sooner.remote
class Leaver:
    def __init__(self, status: object = None) -> None:
        if status is not None:
            sys.exit(status)

    def leave(self, *status: object) -> None:
        sys.exit(*status)

    def leave_late(self, *status: object):
        yield 1
        sys.exit(*status)

    def pid(self) -> int:
        return os.getpid()


@pytest.mark.api("errors.process")
@pytest.mark.parametrize("status", [(), (0,), (1,), ("with a word",)], ids=repr)
def test_sys_exit_ends_the_worker_of_a_task(status) -> None:
    @sooner.remote(max_retries=0)
    def leaves() -> None:
        sys.exit(*status)

    with pytest.raises(WorkerCrashedError):
        sooner.get(leaves.remote())
    # Others go on.
    assert sooner.get(sooner.remote(lambda: 1).remote()) == 1


def test_a_task_that_leaves_is_retried(tmp_path) -> None:
    @sooner.remote(max_retries=2)
    def leaves_twice() -> int:
        count = len(os.listdir(tmp_path))
        (tmp_path / str(count)).touch()
        if count < 2:
            sys.exit(count)
        return count

    assert sooner.get(leaves_twice.remote()) == 2


def test_results_of_earlier_tasks_survive_one_that_leaves() -> None:
    square = sooner.remote(lambda x: x * x)

    @sooner.remote(max_retries=0)
    def leaves() -> None:
        sys.exit(3)

    refs = []
    for number in range(50):
        refs.append(square.remote(number))
        if number % 10 == 9:
            with pytest.raises(WorkerCrashedError):
                sooner.get(leaves.remote())
    assert sooner.get(refs) == [number * number for number in range(50)]


@pytest.mark.parametrize("status", [(1,), ("with a word",), ("0",)], ids=repr)
@pytest.mark.parametrize("method", ["leave", "leave_late"])
def test_sys_exit_ends_an_actor_which_restarts(status, method) -> None:
    actor = Leaver.options(max_restarts=1).remote()
    first = sooner.get(actor.pid.remote())
    with pytest.raises(ActorUnavailableError, match="exited with status"):
        got = getattr(actor, method).remote(*status)
        sooner.get(got if method == "leave" else list(got))
    assert sooner.get(actor.pid.options(max_task_retries=-1).remote()) != first
    once_more = getattr(actor, method).remote(*status)
    with pytest.raises(ActorDiedError):
        sooner.get(once_more if method == "leave" else list(once_more))
    with pytest.raises(ActorDiedError):
        sooner.get(actor.pid.remote())


class AsyncLeaver:
    async def leave(self, *status: object) -> None:
        await asyncio.sleep(0)
        sys.exit(*status)

    async def pid(self) -> int:
        return os.getpid()


@pytest.mark.parametrize(("status", "said"), [((0,), "0"), ((), ""), ((None,), ""), ((False,), "False")], ids=repr)
@pytest.mark.parametrize("kind", ["plain", "threaded", "asyncio"])
def test_sys_exit_with_status_0_ends_an_actor_in_order(status, said, kind) -> None:
    cls = sooner.remote(AsyncLeaver) if kind == "asyncio" else Leaver
    actor = cls.options(max_restarts=-1, max_concurrency=1 if kind == "plain" else 3).remote()
    with pytest.raises(ActorDiedError, match=rf"sys\.exit\({said}\)"):
        sooner.get(actor.leave.remote(*status))
    with pytest.raises(ActorDiedError):
        sooner.get(actor.pid.remote())


def test_a_call_whose_actor_leaves_is_retried_if_it_wants_that(tmp_path) -> None:
    @sooner.remote(max_restarts=-1, max_task_retries=-1)
    class Once:
        def leave_once(self) -> int:
            count = len(os.listdir(tmp_path))
            (tmp_path / str(count)).touch()
            if count == 0:
                sys.exit(1)
            return count

    assert sooner.get(Once.remote().leave_once.remote()) == 1


@pytest.mark.parametrize("status", [1, 0, "a word"], ids=repr)
def test_a_constructor_that_leaves_ends_the_actor(status) -> None:
    with pytest.raises(ActorDiedError):
        sooner.get(Leaver.remote(status).pid.remote())


@pytest.mark.parametrize("status", [0, 1])
def test_sys_exit_in_an_asyncio_and_in_a_threaded_actor(status) -> None:
    @sooner.remote
    class Async:
        async def leave(self) -> None:
            await asyncio.sleep(0)
            sys.exit(status)

        async def ping(self) -> int:
            return 1

    for actor in (Async.remote(), Leaver.options(max_concurrency=3).remote()):
        with pytest.raises(ActorDiedError):
            sooner.get(actor.leave.remote() if hasattr(actor, "ping") else actor.leave.remote(status))
        other = actor.ping if hasattr(actor, "ping") else actor.pid
        with pytest.raises(ActorDiedError):
            sooner.get(other.remote())


def test_keyboard_interrupt_in_a_task_is_a_cancelled_task() -> None:
    @sooner.remote
    def interrupts() -> None:
        raise KeyboardInterrupt

    with pytest.raises(TaskCancelledError):
        sooner.get(interrupts.remote())


# Errors


class Plea(BaseException):
    """Not an Exception."""


class Frozen(Exception):
    """Its `args` cannot be set."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    @property
    def args(self):  # type: ignore[override]
        return (self.text,)


@pytest.mark.api("errors.task")
@pytest.mark.parametrize("kind", [Plea, Frozen])
def test_the_error_is_of_the_class_that_was_raised(kind) -> None:
    @sooner.remote
    def fails() -> None:
        raise kind("why")

    with pytest.raises(kind) as caught:
        sooner.get(fails.remote())
    assert isinstance(caught.value, TaskError)
    assert caught.value.args == ("why",)

    @sooner.remote
    class Actor:
        async def fails(self) -> None:
            raise kind("why")

    with pytest.raises(kind):
        sooner.get(Actor.remote().fails.remote())


@pytest.mark.parametrize("kind", [asyncio.CancelledError, GeneratorExit, StopIteration])
def test_errors_that_end_a_loop_or_a_coroutine_stay_errors(kind) -> None:
    @sooner.remote
    def fails() -> None:
        raise kind

    with pytest.raises(TaskError) as caught:
        sooner.get(fails.remote())
    assert not isinstance(caught.value, kind)


# The class behind an actor class


@sooner.remote
class Constants:
    LIMIT = 3

    def __init__(self, value: int = 0) -> None:
        self.value = value

    def limit(self) -> int:
        return Constants.LIMIT

    @staticmethod
    def double(x: int) -> int:
        return 2 * x

    @classmethod
    def named(cls) -> str:
        return cls.__name__

    def use(self) -> tuple[int, str]:
        return Constants.double(2), Constants.named()


@pytest.mark.api("actor.class")
def test_what_the_class_has_can_be_had_from_the_actor_class() -> None:
    assert (Constants.LIMIT, Constants.double(4), Constants.named()) == (3, 8, "Constants")
    assert {"LIMIT", "double", "remote", "options"} <= set(dir(Constants))
    actor = Constants.remote()
    assert sooner.get([actor.limit.remote(), actor.use.remote()]) == [3, (4, "Constants")]
    with pytest.raises(AttributeError, match="actor class Constants has no attribute 'LIMITS'"):
        _ = Constants.LIMITS
    assert not hasattr(Constants, "bind")


@pytest.mark.api("actor.class")
def test_a_class_and_a_function_may_name_themselves() -> None:
    @sooner.remote(num_cpus=0)
    class Tree:
        def __init__(self, depth: int = 0, *, width: int = 2) -> None:
            self.children = [Tree.remote(depth - 1, width=width) for _ in range(width)] if depth else []

        def total(self) -> int:
            return 1 + sum(sooner.get([child.total.remote() for child in self.children]))

    assert sooner.get(Tree.remote(2).total.remote()) == 7

    @sooner.remote(num_cpus=0)
    def count(n: int, step: int = 1, *, least: int = 0) -> int:
        return n if n <= least else sooner.get(count.remote(n - step)) + 1

    assert sooner.get(count.remote(3)) == 3

    @sooner.remote(num_cpus=0)
    def even(n: int, _: int = 0) -> bool:
        return True if n == 0 else sooner.get(odd.remote(n - 1))

    @sooner.remote(num_cpus=0)
    def odd(n: int, _: int = 0) -> bool:
        return False if n == 0 else sooner.get(even.remote(n - 1))

    assert sooner.get(even.remote(4)) is True


def test_methods_are_those_of_the_class() -> None:
    @sooner.remote
    class Shadowed:
        def __init__(self) -> None:
            self.seen = set()
            self.helper = 1
            self.same = self.other

        def seen(self) -> str:
            return "seen"

        def same(self) -> str:
            return "same"

        def other(self) -> str:
            return "other"

        @staticmethod
        def helper() -> str:
            return "helper"

        @classmethod
        def cls(cls) -> str:
            return cls.__name__

        def hide(self) -> None:
            self.other = 5

    actor = Shadowed.remote()
    for _ in range(2):
        calls = [actor.seen, actor.same, actor.other, actor.helper, actor.cls]
        assert sooner.get([call.remote() for call in calls]) == ["seen", "same", "other", "helper", "Shadowed"]
        sooner.get(actor.hide.remote())


def test_a_method_can_be_an_argument() -> None:
    @sooner.remote
    class Sum:
        def __init__(self) -> None:
            self.total = 0

        def add(self, n: int) -> int:
            self.total += n
            return self.total

        @sooner.method(num_returns=2)
        def pair(self) -> tuple[int, int]:
            return 1, 2

    @sooner.remote
    def call(method, *args):
        return sooner.get(method.remote(*args))

    actor = Sum.remote()
    assert sooner.get(call.remote(actor.add, 5)) == 5
    assert sooner.get(call.remote(actor.pair)) == [1, 2]
    assert sooner.get(call.remote(actor.pair.options(num_returns=1))) == (1, 2)
    assert sooner.get(sooner.put([actor.add]))[0].remote(1) is not None


@pytest.mark.api("actor.async")
def test_an_asyncio_actor_may_have_an_async_constructor() -> None:
    @sooner.remote
    class Server:
        async def __init__(self, value, *, ref) -> None:
            await asyncio.sleep(0.01)
            self.value = value
            self.other = await ref[0]
            self.loop = asyncio.get_running_loop()

        async def values(self):
            return self.value, self.other, self.loop is asyncio.get_running_loop()

    assert sooner.get(Server.remote(1, ref=[sooner.put(2)]).values.remote()) == (1, 2, True)

    @sooner.remote
    class Fails:
        async def __init__(self) -> None:
            await asyncio.sleep(0)
            raise KeyError("why")

        async def ping(self) -> None: ...

    with pytest.raises(ActorDiedError, match="KeyError"):
        sooner.get(Fails.remote().ping.remote())


def test_special_methods_of_the_class_can_be_called_by_name() -> None:
    class Base(collections.abc.Sequence):
        def __call__(self, x):
            return self, x

    @sooner.remote
    class Three(Base):
        def __len__(self):
            return 3

        def __getitem__(self, at):
            return [5, 6, 7][at]

        def __call__(self, x):
            return x

        def __deepcopy__(self, memo):
            raise AssertionError("a handle is copied, not the actor")

        def __array__(self, *_):
            raise AssertionError("a handle is no array")

    actor = Three.remote()
    calls = [
        actor.__len__.remote(),
        actor.__getitem__.remote(1),
        actor.__contains__.remote(7),
        actor.__call__.remote(4),
    ]
    assert sooner.get(calls) == [3, 6, True, 4]
    # The handle itself is none of that.
    assert copy.deepcopy(actor) == actor == sooner.get(sooner.put(actor))
    for use in (len, lambda handle: handle[1], lambda handle: handle(1)):
        with pytest.raises(TypeError):
            use(actor)
    with pytest.raises(AttributeError):
        _ = actor.__array__
    with pytest.raises(AttributeError):
        _ = actor.__setitem__


# Arguments


def test_the_signature_is_that_of_what_is_called() -> None:
    def audited(function):
        @functools.wraps(function)
        def call(*args, **kwargs):
            kwargs.pop("reason")
            return function(*args, **kwargs)

        return call

    def with_unit(function):
        @functools.wraps(function)
        def call(value):
            return function(value, "kg")

        return call

    @sooner.remote
    @audited
    def total(a, b):
        return a + b

    @sooner.remote
    @with_unit
    def label(value, unit):
        return f"{value} {unit}"

    class Scale:
        @audited
        def __init__(self, unit) -> None:
            self.unit = unit

        @audited
        def weigh(self, n):
            return 2 * n

    assert sooner.get(total.remote(1, 2, reason="test")) == 3
    assert sooner.get(label.remote(4)) == "4 kg"
    with pytest.raises(TypeError, match="label"):
        label.remote(4, "g")
    assert sooner.get(sooner.remote(Scale).remote("kg", reason="test").weigh.remote(3, reason="test")) == 6

    @sooner.remote
    @functools.lru_cache
    def cached(a, b=2):
        return a + b

    with pytest.raises(TypeError, match="cached"):
        cached.remote()


@pytest.mark.parametrize("name", ["self", "cls", "args", "kwargs", "function", "name", "method", "actor", "ref"])
def test_parameters_may_have_any_name(name) -> None:
    def names(**given):
        return sorted(given)

    class Any:
        def __init__(this, **given) -> None:  # noqa: N805  the name is what this is about
            this.given = sorted(given)

        def first(this):  # noqa: N805
            return this.given

        def call(this, **given):  # noqa: N805
            return sorted(given)

    actor = sooner.remote(Any).remote(**{name: 1})
    assert sooner.get(actor.first.remote()) == [name]
    assert sooner.get(actor.call.remote(**{name: 1})) == [name]
    assert sooner.get(sooner.remote(names).remote(**{name: 1})) == [name]
    assert sooner.get(actor.__ray_call__.remote(lambda this, /, **given: sorted(given), **{name: 1})) == [name]


# Verbs


@pytest.mark.api("wait")
def test_waiting_for_nothing_gives_nothing() -> None:
    assert sooner.wait([]) == ([], [])
    assert sooner.wait([], num_returns=3, timeout=0) == ([], [])


@pytest.mark.api("get")
def test_a_generator_is_its_own_value() -> None:
    @sooner.remote(num_returns="streaming")
    def numbers():
        yield from range(3)

    generator = numbers.remote()
    assert sooner.get(generator) is generator
    assert sooner.get(list(generator)) == [0, 1, 2]


def test_as_future_takes_the_loop_that_was_set() -> None:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        future = sooner.remote(lambda: 7).remote().as_future()
        assert loop.run_until_complete(future) == 7
    finally:
        asyncio.set_event_loop(None)
        loop.close()


# Ids


@pytest.mark.api("ids")
def test_ids_are_objects_and_their_text() -> None:
    @sooner.remote
    class Actor:
        def facts(self) -> dict:
            return sooner.get_runtime_context().get()

    actor = Actor.remote()
    facts = sooner.get(actor.facts.remote())
    context = sooner.get_runtime_context()
    ref = actor.facts.remote()
    for made, text in (
        (actor._actor_id, facts["actor_id"]),
        (facts["job_id"], context.get_job_id()),
        (facts["node_id"], context.get_node_id()),
        (ref.job_id(), context.get_job_id()),
        (context.node_id, context.get_node_id()),
    ):
        assert made == text
        assert made.hex() == text
        assert bytes.fromhex(text) == made.binary()
        assert type(made).from_hex(made.hex()) == made
        assert hash(made) == hash(text)
        assert f"{made}" == text
    assert ref.task_id().hex() == ref.task_id()
    assert isinstance(ref.task_id(), sooner.TaskID)
    assert isinstance(actor._actor_id, sooner.ActorID)
    from sooner.util.state import get_actor

    assert get_actor(actor._actor_id).actor_id == get_actor(actor._actor_id.hex()).actor_id == actor._actor_id
    assert sooner.TaskID.from_hex("00" * 16) != sooner.ActorID.from_hex("00" * 16)


def test_a_reference_can_be_made_of_the_id_of_any_object() -> None:
    for value in (1, "text", b"x" * 1000, list(range(1000))):
        ref = sooner.put(value)
        assert sooner.get(sooner.ObjectRef.from_binary(ref.binary())) == value
        assert sooner.get(sooner.ObjectRef.from_hex(ref.hex())) == value
        again = sooner.ObjectRef.from_binary(ref.binary())
        del ref
        assert sooner.get(again) == value


def test_local_mode_leaves_tasks_and_actors_too() -> None:
    run_driver(
        """
        import asyncio, sys, sooner
        from sooner.exceptions import ActorDiedError, WorkerCrashedError
        sooner.init(local_mode=True)
        def expect(kind, ref):
            try:
                sooner.get(ref, timeout=30)
            except kind:
                return
            raise AssertionError(kind)
        expect(WorkerCrashedError, sooner.remote(lambda: sys.exit(1)).remote())
        @sooner.remote
        class A:
            def seen(self): return 1
            def leave(self): sys.exit(1)
            def hide(self): self.seen = 5
        a = A.remote()
        sooner.get(a.hide.remote())
        assert sooner.get(a.seen.remote()) == 1
        expect(ActorDiedError, a.leave.remote())
        expect(ActorDiedError, a.seen.remote())
        @sooner.remote
        class B:
            async def __init__(self): self.x = await asyncio.sleep(0, 4)
            async def get(self): return self.x
            async def leave(self): sys.exit(1)
        b = B.remote()
        assert sooner.get(b.get.remote()) == 4
        expect(ActorDiedError, b.leave.remote())
        """
    )


# Handles that keep nothing alive


@sooner.remote
class Keeper:
    def keep(self) -> None:
        self.me = sooner.get_runtime_context().current_actor

    def pid(self) -> int:
        return os.getpid()

    def call_itself(self):
        return self.me.pid.remote()

    def hand_out(self):
        return self.me


def ends(pid: int) -> None:
    poll(f"process {pid} ends", lambda: not os.path.exists(f"/proc/{pid}"))


@pytest.mark.api("actor.scope")
def test_an_actor_that_keeps_its_own_handle_ends_with_the_others() -> None:
    actor = Keeper.remote()
    sooner.get(actor.keep.remote())
    pid = sooner.get(actor.pid.remote())
    assert sooner.get(sooner.get(actor.call_itself.remote())) == pid
    given = sooner.get(actor.hand_out.remote())
    del actor
    # Whoever was given one by the actor keeps it alive.
    assert sooner.get(given.pid.remote()) == pid
    del given
    ends(pid)


@pytest.mark.api("get_actor")
def test_a_handle_by_name_keeps_no_actor_alive() -> None:
    actor = Keeper.options(name="weak").remote()
    pid = sooner.get(actor.pid.remote())

    @sooner.remote
    class Other:
        def find(self) -> int:
            self.found = sooner.get_actor("weak")
            return sooner.get(self.found.pid.remote())

        def call(self) -> int:
            return sooner.get(self.found.pid.remote())

    here, other = sooner.get_actor("weak"), Other.remote()
    assert sooner.get([here.pid.remote(), other.find.remote(), other.call.remote()]) == [pid] * 3
    del actor
    ends(pid)
    with pytest.raises(ActorDiedError):
        sooner.get(here.pid.remote())
    with pytest.raises(ActorDiedError):
        sooner.get(other.call.remote())


@pytest.mark.api("task.invalid_option")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_cpus", "2"),
        ("num_cpus", True),
        ("num_gpus", [1]),
        ("memory", "1 GB"),
        ("resources", ["tape"]),
        ("max_retries", 1.5),
        ("num_returns", 2.5),
        ("retry_exceptions", "yes"),
        ("name", 5),
        ("scheduling_strategy", 5),
        ("enable_task_events", "no"),
        ("label_selector", "zone"),
    ],
)
def test_a_value_of_a_wrong_type_is_a_type_error(name, value) -> None:
    with pytest.raises(TypeError, match=name) as caught:
        sooner.remote(**{name: value})(lambda: 1)
    # Who checked for it as sooner documents it goes on.
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(("name", "value"), [("num_cpus", -1), ("num_gpus", 1.5), ("name", ""), ("max_retries", -2)])
def test_a_wrong_value_of_the_right_type_is_a_value_error(name, value) -> None:
    with pytest.raises(ValueError, match=name) as caught:
        sooner.remote(**{name: value})(lambda: 1)
    assert not isinstance(caught.value, TypeError)


def test_an_actor_pool_takes_calls_with_several_returns() -> None:
    from sooner.util import ActorPool

    @sooner.remote
    class Splitter:
        @sooner.method(num_returns=2)
        def split(self, n: int) -> tuple[int, int]:
            if n == 3:
                raise KeyError(n)
            return n // 10, n % 10

    pool = ActorPool([Splitter.remote(), Splitter.remote()])
    assert list(pool.map(lambda actor, n: actor.split.remote(n), [12, 34, 56])) == [[1, 2], [3, 4], [5, 6]]
    pool.submit(lambda actor, n: actor.split.remote(n), 3)
    with pytest.raises(KeyError):
        pool.get_next()


@pytest.mark.api("ids")
def test_references_are_made_of_bytes_and_of_nothing() -> None:
    ref = sooner.put(7)
    assert sooner.ObjectRef(ref.binary()) == ref
    assert sooner.get(sooner.ObjectRef(ref.binary())) == 7
    random = sooner.ObjectRef.from_random()
    assert random != sooner.ObjectRef.from_random()
    assert len(random.binary()) == sooner.ObjectRef.size()
    with pytest.raises(ObjectLostError):
        sooner.get(random, timeout=WAIT)


def test_a_callback_takes_the_value_or_the_error() -> None:
    seen: list[object] = []
    sooner.remote(lambda: 3).remote()._on_completed(seen.append)
    poll("the value", lambda: seen == [3])
    sooner.remote(lambda: [][1]).remote()._on_completed(seen.append)
    poll("the error", lambda: len(seen) == 2 and isinstance(seen[1], IndexError))


@pytest.mark.api("errors.task", "errors.lost")
def test_the_error_of_a_task_whose_argument_is_lost_is_one_of_the_task() -> None:
    ref = sooner.put(b"x")
    use = sooner.remote(lambda x: x)

    @sooner.remote
    class Owner:
        def make(self):
            return os.getpid(), [sooner.put(b"y" * 10)]

    owner = Owner.remote()
    pid, (theirs,) = sooner.get(owner.make.remote())
    sooner.kill(owner)
    # Until then it answers.
    poll("the owner is gone", lambda: not is_alive(pid))
    with pytest.raises(OwnerDiedError) as plain:
        sooner.get(theirs, timeout=WAIT)
    assert not isinstance(plain.value, TaskError)
    with pytest.raises(OwnerDiedError) as caught:
        sooner.get(use.remote(theirs), timeout=WAIT)
    assert isinstance(caught.value, TaskError)
    assert "an argument of it is lost" in str(caught.value)
    # Also of a task that has the result of that one.
    with pytest.raises(TaskError):
        sooner.get(use.remote(use.remote(theirs)), timeout=WAIT)
    assert sooner.get(use.remote(ref)) == b"x"


@pytest.mark.api("errors.lost")
def test_the_error_of_a_task_whose_argument_was_freed_is_one_of_the_task() -> None:
    @sooner.remote
    class Keeper:
        def keep(self, value, *, more=None):
            return value

    keeper = Keeper.remote()
    for size in (1, 1 << 20):
        ref = sooner.put(b"x" * size)
        sooner.internal.free(ref)
        for call in (
            sooner.remote(lambda x: x).remote(ref),
            sooner.remote(lambda x, y: x).remote(1, y=ref),
            keeper.keep.remote(ref),
            keeper.keep.remote(1, more=ref),
        ):
            with pytest.raises(ObjectFreedError, match=r"was freed with sooner.internal.free\(\)") as caught:
                sooner.get(call, timeout=WAIT)
            assert isinstance(caught.value, TaskError)
        with pytest.raises(ObjectFreedError) as plain:
            sooner.get(ref)
        assert not isinstance(plain.value, TaskError)
    # The others go on.
    assert sooner.get(keeper.keep.remote(2), timeout=WAIT) == 2


@pytest.mark.api("actor.max_restarts")
def test_a_call_to_an_actor_that_restarts_waits_for_it_as_long_as_the_caller_says(tmp_path) -> None:
    """In Ray it raises `ActorUnavailableError`."""

    @sooner.remote(max_restarts=1)
    class Slow:
        def __init__(self) -> None:
            if (tmp_path / "began").exists():
                poll("the word", (tmp_path / "go on").exists)
            (tmp_path / "began").touch()

        def pid(self) -> int:
            return os.getpid()

    actor = Slow.remote()
    os.kill(sooner.get(actor.pid.remote(), timeout=WAIT), signal.SIGKILL)
    poll("its end is known", lambda: state.list_actors(filters=[("state", "=", "RESTARTING")]))
    call = actor.pid.remote()
    with pytest.raises(GetTimeoutError):
        sooner.get(call, timeout=0.3)
    assert sooner.wait([call], timeout=0.1) == ([], [call])
    (tmp_path / "go on").touch()
    assert sooner.get(call, timeout=WAIT)


@pytest.mark.api("context.names")
def test_the_name_of_a_function_has_its_module_and_class() -> None:
    def names() -> tuple[str | None, str | None]:
        context = sooner.get_runtime_context()
        return context.get_task_function_name(), context.get_task_name()

    class Named:
        def __init__(self) -> None:
            self.first = names()

        def call(self):
            return names()

        def of_constructor(self):
            return self.first

    class AsyncNamed(Named):
        async def call(self):
            await asyncio.sleep(0)
            return names()

    here = f"{__name__}.test_the_name_of_a_function_has_its_module_and_class.<locals>."
    plain, named = sooner.remote(names), sooner.remote(names).options(name="mine")
    assert sooner.get([plain.remote(), named.remote()]) == [(f"{here}names", "names"), (f"{here}names", "mine")]
    for cls in (Named, AsyncNamed):
        actor = sooner.remote(cls).remote()
        own = f"{here}{cls.__name__}"
        assert sooner.get(actor.of_constructor.remote()) == (f"{own}.__init__", cls.__name__)
        assert sooner.get(actor.call.remote()) == (f"{own}.call", "call")
        assert sooner.get(actor.call.options(name="mine").remote()) == (f"{own}.call", "mine")
    assert sooner.get_runtime_context().get_task_function_name() is None


@pytest.mark.api("state.list")
def test_the_state_of_calls_names_class_and_method() -> None:
    from sooner.util.state import list_tasks, list_workers

    @sooner.remote
    class Named:
        def method(self) -> None: ...

    actor = Named.remote()
    sooner.get([actor.method.remote(), actor.method.options(name="special").remote()])

    def rows():
        found = list_tasks(filters=[("ACTOR_ID", "=", actor._actor_id)], detail=True)
        return {(row.name, row.func_or_class_name) for row in found}

    calls = {("Named.method", "Named.method"), ("special", "Named.method")}
    poll("calls and constructor are shown", lambda: calls <= rows())
    assert ("Named.__init__", "Named.__init__") in {(row.name, row.func_or_class_name) for row in list_tasks()}
    assert list_tasks(filters=[("func_or_class_name", "=", "Named.method")])
    with pytest.raises(WorkerCrashedError):
        sooner.get(sooner.remote(max_retries=0)(lambda: sys.exit(3)).remote())
    poll("it is listed", lambda: "SYSTEM_ERROR" in {row.exit_type for row in list_workers() if not row.is_alive})
