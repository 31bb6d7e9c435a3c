"""Programs that type checkers must accept, with the types they must find. Checked by `make lint`, never
run.
"""

import asyncio
import concurrent.futures
import functools
import operator
from abc import ABC
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, assert_type, cast

import sooner
from sooner.util import ActorPool, as_completed, map_unordered, tree_reduce
from sooner.util.queue import Queue

# --- functions: keywords, defaults and references as arguments -----------------------------------------


@sooner.remote
def scale(values: list[float], by: float = 2.0, *, offset: float = 0.0) -> list[float]:
    return [value * by + offset for value in values]


@sooner.remote
def nothing() -> None: ...


@sooner.remote
def total(*numbers: int, **named: int) -> int:
    return sum(numbers) + sum(named.values())


@sooner.remote
def joined(separator: str, *numbers: int) -> str:
    return separator.join(map(str, numbers))


@sooner.remote
def add(a: int, b: int) -> int:
    return a + b


@sooner.remote
def anything(value: Any) -> Any:
    return value


@sooner.remote
def mapping(value: dict[str, Any]) -> dict[str, Any]:
    return value


@sooner.remote
def untyped(value, other=1):  # type: ignore[no-untyped-def]  # pyright: ignore[reportUnknownParameterType, reportMissingParameterType]
    return value  # pyright: ignore[reportUnknownVariableType]


@sooner.remote
def ten(a: int, b: int, c: int, d: int, e: int, f: int, g: int, h: int, i: int, j: str) -> int:
    return a + b + c + d + e + f + g + h + i + len(j)


def functions() -> None:
    assert_type(scale.remote([1.0]), sooner.ObjectRef[list[float]])
    assert_type(scale.remote([1.0], 3.0, offset=1.0), sooner.ObjectRef[list[float]])
    assert_type(scale.remote(values=[1.0], by=3.0), sooner.ObjectRef[list[float]])
    assert_type(nothing.remote(), sooner.ObjectRef[None])
    assert_type(total.remote(1, 2, three=3), sooner.ObjectRef[int])

    one = sooner.put(1)
    values = scale.remote([1.0])
    factor = sooner.put(2.0)
    assert_type(factor, sooner.ObjectRef[float])
    assert_type(scale.remote(values), sooner.ObjectRef[list[float]])
    assert_type(scale.remote(values, 3.0), sooner.ObjectRef[list[float]])
    assert_type(scale.remote(values, factor), sooner.ObjectRef[list[float]])
    assert_type(scale.remote([1.0], factor), sooner.ObjectRef[list[float]])
    assert_type(scale.remote(values, by=3.0, offset=1.0), sooner.ObjectRef[list[float]])
    assert_type(scale.remote(values, factor, offset=1.0), sooner.ObjectRef[list[float]])
    assert_type(total.remote(sooner.put(1), 2, sooner.put(3)), sooner.ObjectRef[int])
    ones = [one] * 3
    assert_type(total.remote(*ones), sooner.ObjectRef[int])
    assert_type(total.remote(1, *ones), sooner.ObjectRef[int])
    assert_type(total.remote(one, *ones, 1), sooner.ObjectRef[int])
    assert_type(total.remote(*[1, 2]), sooner.ObjectRef[int])
    assert_type(joined.remote(", ", *ones), sooner.ObjectRef[str])
    assert_type(joined.remote(sooner.put(", "), *ones, 4), sooner.ObjectRef[str])
    # As many as there are may fit.
    assert_type(add.remote(*ones), sooner.ObjectRef[int])
    # A reference by keyword cannot be told from a wrong argument; a cast says that it is meant.
    scale.remote(values, offset=cast("float", factor))
    # A reference to a subclass of what is taken.
    scale.remote([1.0], sooner.put(True))

    assert_type(ten.remote(1, 2, 3, 4, 5, 6, 7, 8, 9, sooner.put("j")), sooner.ObjectRef[int])
    assert_type(ten.remote(one, one, one, one, one, one, one, one, one, sooner.put("j")), sooner.ObjectRef[int])
    assert_type(ten.remote(one, 2, one, 4, one, f=6, g=7, h=8, i=9, j="j"), sooner.ObjectRef[int])

    assert_type(sooner.get(anything.remote(one)), Any)
    assert_type(mapping.remote({"a": None}), sooner.ObjectRef[dict[str, Any]])
    untyped.remote(1)  # pyright: ignore[reportUnknownMemberType]
    untyped.remote(one, other=2)  # pyright: ignore[reportUnknownMemberType]


T = TypeVar("T")


@sooner.remote
def first(values: list[T], key: str = "") -> T:
    return values[0]


class Shout:
    def __call__(self, text: str) -> str:
        return text.upper()


def generic_functions() -> None:
    assert_type(first.remote([1]), sooner.ObjectRef[int])
    assert_type(first.remote(["a"], key="b"), sooner.ObjectRef[str])
    assert_type(first.options(num_cpus=2).remote(values=[1]), sooner.ObjectRef[int])


def other_callables() -> None:
    assert_type(sooner.remote(Shout()).remote("a"), sooner.ObjectRef[str])
    assert_type(sooner.remote(functools.partial(parse, base=2)).remote("11"), sooner.ObjectRef[int])
    assert_type(sooner.remote(divmod).remote(7, 2), sooner.ObjectRef[tuple[int, int]])


def plain_functions() -> None:
    # As a call; of builtins and lambdas, too.
    length = sooner.remote(len)
    assert_type(sooner.get(length.remote("abc")), int)
    declared: sooner.RemoteFunction[[str, int], int] = sooner.remote(power)
    assert_type(declared.remote("2", 10), sooner.ObjectRef[int])
    assert_type(declared.options(num_cpus=2).remote(sooner.put("2"), 10), sooner.ObjectRef[int])


def power(text: str, exponent: int, /) -> int:
    return int(int(text) ** exponent)


def parse(text: str, base: int = 10) -> int:
    return int(text, base)


# --- options -------------------------------------------------------------------------------------------


@sooner.remote(num_cpus=0.5, max_retries=1, retry_exceptions=[ValueError])
def with_options(x: int, *, y: str = "") -> str:
    return y * x


@sooner.remote(num_returns=2)
def pair(x: int) -> tuple[int, str]:
    return x, str(x)


@sooner.remote(num_returns=0)
def gone(x: int) -> None: ...


def task_options(count: int, more: dict[str, Any]) -> None:
    assert_type(with_options.remote(1, y="a"), sooner.ObjectRef[str])
    assert_type(with_options.remote(sooner.put(1), y="a"), sooner.ObjectRef[str])
    fast = with_options.options(num_cpus=2, name="fast", resources={"disk": 1.0})
    assert_type(fast.remote(1, y="a"), sooner.ObjectRef[str])
    assert_type(with_options.options(num_returns=1).remote(1), sooner.ObjectRef[str])

    first, second = pair.remote(1)
    assert_type([first, second], list[sooner.ObjectRef[Any]])
    assert_type(pair.remote(sooner.put(1)), list[sooner.ObjectRef[Any]])
    assert_type(pair.options(num_cpus=2).remote(1), list[sooner.ObjectRef[Any]])
    assert_type(gone.remote(1), None)
    assert_type(gone.options(num_cpus=2).remote(1), None)
    assert_type(with_options.options(num_returns=3).remote(1), list[sooner.ObjectRef[Any]])
    assert_type(with_options.options(num_returns=count).remote(1), Any)
    with_options.options(**more).remote(1)
    decorate = cast("Any", sooner.remote(**more))
    decorate(len).remote("abc")


# --- generators ----------------------------------------------------------------------------------------


@sooner.remote
def count_up(n: int) -> Iterator[int]:
    yield from range(n)


@sooner.remote(num_cpus=1)
def count_down(n: int) -> Generator[int, None, str]:
    yield from range(n, 0, -1)
    return "done"


def declared_generators() -> None:
    # The option says what is so without it.
    streaming = sooner.remote(num_returns="streaming", num_cpus=1)(up_to)
    assert_type(next(streaming.remote(3)), sooner.ObjectRef[int])
    assert_type(next(streaming.options(num_returns="streaming").remote(3)), sooner.ObjectRef[int])
    assert_type(sooner.remote(num_returns="dynamic")(up_to).remote(3), Any)


def up_to(n: int) -> Iterator[int]:
    yield from range(n)


async def generators() -> None:
    for ref in count_up.remote(3):
        assert_type(ref, sooner.ObjectRef[int])
    async for ref in count_down.remote(sooner.put(3)):
        assert_type(ref, sooner.ObjectRef[int])
        assert_type(await ref, int)
    assert_type(next(count_up.options(num_cpus=2).remote(3)), sooner.ObjectRef[int])


# --- references ----------------------------------------------------------------------------------------


def references(refs: list[sooner.ObjectRef[int]], mixed: list[sooner.ObjectRef[int] | sooner.ObjectRef[str]]) -> None:
    number, text = sooner.put(1), sooner.put("a")
    assert_type(sooner.get(number), int)
    assert_type(sooner.get(number, timeout=1.0), int)
    assert_type(sooner.get(refs), list[int])
    assert_type(sooner.get([scale.remote([1.0]) for _ in range(3)]), list[list[float]])
    assert_type(sooner.get(tuple(refs)), list[int])
    assert_type(sooner.get((number, text)), list[int | str])
    assert_type(sooner.get((number, text, sooner.put(b""))), list[int | str | bytes])
    assert_type(sooner.get(mixed), list[Any])
    assert_type(sooner.get(pair.remote(1)), list[Any])

    ready, rest = sooner.wait(refs, num_returns=2, timeout=0)
    assert_type(ready, list[sooner.ObjectRef[int]])
    assert_type(rest, list[sooner.ObjectRef[int]])
    sooner.wait(mixed)

    assert_type(number.hex(), str)
    assert_type({number: 1}[number], int)
    sooner.cancel(number, recursive=False)
    anything.remote([number, text])
    as_object: sooner.ObjectRef[object] = number
    sooner.wait([as_object])


async def awaited(refs: list[sooner.ObjectRef[int]]) -> None:
    ref = sooner.put(1)
    assert_type(await ref, int)
    assert_type(ref.future(), concurrent.futures.Future[int])
    assert_type(ref.as_future(), asyncio.Future[int])
    assert_type(await asyncio.wait_for(ref.as_future(), 1), int)
    assert_type(await asyncio.gather(*(each.as_future() for each in refs)), list[int])


# --- actors: any class ----------------------------------------------------------------------------------


class Plain:
    def __init__(self, start: int, step: int = 1) -> None:
        self.value = start
        self.step = step

    def add(self, n: int) -> int:
        self.value += n
        return self.value

    @sooner.method(num_returns=2)
    def split(self, text: str) -> list[str]:
        return text.split(maxsplit=1)


@dataclass
class Point:
    x: int
    y: int = 0


RemotePlain = sooner.remote(Plain)


def plain_actors(cls: type[Plain], more: dict[str, Any]) -> None:
    handle = RemotePlain.remote(1, step=2)
    assert_type(handle, sooner.ActorHandle[Plain])
    RemotePlain.remote(sooner.put(1))
    RemotePlain.remote(sooner.put(1), sooner.put(2))
    RemotePlain.options(name="plain", get_if_exists=True, max_concurrency=4).remote(start=1)
    assert_type(sooner.remote(num_cpus=1)(Plain).remote(1), sooner.ActorHandle[Plain])
    assert_type(sooner.remote(max_concurrency=2)(Plain).remote(1), sooner.ActorHandle[Plain])
    assert_type(sooner.remote(checkpoint_every=500)(Plain).remote(1), sooner.ActorHandle[Plain])
    RemotePlain.options(checkpoint_every=500, max_restarts=3).remote(1)
    assert_type(sooner.remote(Point).remote(1, y=2), sooner.ActorHandle[Point])
    sooner.remote(cls).remote(1)
    sooner.remote(Plain).options(**more).remote(1)
    named: sooner.ActorClass[Plain] = RemotePlain
    assert_type(named.remote(1), sooner.ActorHandle[Plain])

    # What a checker cannot know of a plain class is accepted.
    assert_type(sooner.get(handle.add.remote(2)), Any)
    handle.add.options(name="adding").remote(sooner.put(2))
    one, two = handle.split.remote("a b")
    sooner.get([one, two])
    anything.remote(handle)
    sooner.kill(handle)
    sooner.kill(sooner.get_actor("plain", namespace="here"), no_restart=True)
    assert_type(sooner.get_actor("plain"), sooner.ActorHandle[Any])
    # On the object itself a marked method stays what it is.
    assert_type(Plain(1).split("a b"), list[str])


# --- actors: classes that checkers know -----------------------------------------------------------------


class Counter(sooner.TypedActor):
    def __init__(self, start: int = 0) -> None:
        self.value = start

    @sooner.method
    def add(self, n: int, *, times: int = 1) -> int:
        self.value += n * times
        return self.value

    @sooner.method(read_only=True)
    def read(self) -> int:
        return self.value

    @sooner.method
    def add_twice(self, n: int) -> int:
        assert_type(self.add(n, times=1), int)
        return self.add(n) + self.add(n)

    @sooner.method
    async def later(self, seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "done"

    @sooner.method
    def up_to(self, n: int) -> Iterator[int]:
        yield from range(n)

    @sooner.method
    async def slowly(self, n: int) -> AsyncIterator[str]:
        for i in range(n):
            yield str(i)

    @sooner.method(num_returns=2)
    def both(self) -> tuple[int, int]:
        return self.value, -self.value

    @sooner.method(enable_task_events=False)
    async def fetch(self, name: str) -> bytes:
        return name.encode()

    @sooner.method
    def any_of(self, value: Any) -> Any:
        return value


class Loud(Counter):
    @sooner.method
    def shout(self, text: str) -> str:
        return text.upper()


RemoteCounter = sooner.remote(Counter)


# Decorated classes, which mypy takes for what they were before.
@sooner.remote
class Decorated(sooner.TypedActor):
    def __init__(self, start: int) -> None:
        self.value = start

    @sooner.method
    def add(self, n: int) -> int:
        return self.value + n


@sooner.remote(max_concurrency=2)
class Abstract(sooner.TypedActor, ABC):
    @sooner.method
    def name(self) -> str:
        return "abstract"


def decorated_actors() -> None:
    assert_type(Decorated.remote(start=1).add.remote(2), sooner.ObjectRef[int])
    assert_type(Decorated.remote(sooner.put(1)).add.remote(sooner.put(2)), sooner.ObjectRef[int])
    assert_type(Decorated.options(num_cpus=1).remote(1).add.remote(2), sooner.ObjectRef[int])
    assert_type(Abstract.remote().name.remote(), sooner.ObjectRef[str])


def adds(counter: sooner.ActorProxy[Counter]) -> int:
    return sooner.get(counter.add.remote(1))


async def typed_actors() -> None:
    counter = RemoteCounter.remote(start=1)
    assert_type(counter, sooner.ActorProxy[Counter])
    assert_type(counter.add.remote(2), sooner.ObjectRef[int])
    assert_type(counter.add.remote(2, times=3), sooner.ObjectRef[int])
    assert_type(counter.add.remote(sooner.put(2), times=3), sooner.ObjectRef[int])
    assert_type(counter.add.options(name="adding").remote(2), sooner.ObjectRef[int])
    assert_type(counter.later.remote(0.1), sooner.ObjectRef[str])
    assert_type(await counter.later.remote(0.1), str)
    assert_type(next(counter.up_to.remote(3)), sooner.ObjectRef[int])
    assert_type(next(counter.up_to.options(num_returns="streaming").remote(3)), sooner.ObjectRef[int])
    async for ref in counter.slowly.remote(3):
        assert_type(ref, sooner.ObjectRef[str])
    assert_type(counter.both.remote(), list[sooner.ObjectRef[Any]])
    assert_type(counter.fetch.remote("x"), sooner.ObjectRef[bytes])
    assert_type(sooner.get(counter.any_of.remote(1)), Any)
    assert_type(counter.__ray_ready__.remote(), sooner.ObjectRef[bool])

    RemoteCounter.options(num_cpus=1).remote(sooner.put(1))
    assert_type(sooner.remote(num_cpus=1)(Counter).remote(), sooner.ActorProxy[Counter])
    loud = sooner.remote(Loud).remote()
    assert_type(loud.shout.remote("a"), sooner.ObjectRef[str])
    assert_type(loud.add.remote(1), sooner.ObjectRef[int])
    adds(counter)
    adds(loud)
    sooner.remote(adds).remote(counter)
    sooner.kill(counter)


# --- helpers -------------------------------------------------------------------------------------------


def helpers(refs: list[sooner.ObjectRef[int]], flag: bool) -> None:
    with sooner.Executor(max_workers=2, options={"num_cpus": 1}) as executor:
        assert_type(executor.submit(pow, 2, 10), concurrent.futures.Future[int])
        assert_type(executor.submit(sorted, ["a"], reverse=True).result(), list[str])
        assert_type(list(executor.map(len, ["a", "b"])), list[int])

    for value in as_completed(refs):
        assert_type(value, int)
    for ref in as_completed(refs, yield_obj_refs=True):
        assert_type(ref, sooner.ObjectRef[int])
    for either in as_completed(refs, yield_obj_refs=flag):
        assert_type(either, Any)
    assert_type(list(map_unordered(with_options, [1, 2])), list[str])
    counter = RemoteCounter.remote()
    assert_type(list(map_unordered(counter.add, [1, 2])), list[int])
    map_unordered(RemotePlain.remote(1).add, [1, 2])

    assert_type(tree_reduce(max, refs), sooner.ObjectRef[int])
    assert_type(tree_reduce(lambda a, b: a + b, refs, fan_in=4), sooner.ObjectRef[int])
    assert_type(tree_reduce(operator.add, (ref for ref in refs)), sooner.ObjectRef[int])
    assert_type(tree_reduce(add, refs), sooner.ObjectRef[int])
    assert_type(tree_reduce(add.options(num_cpus=0.5), refs), sooner.ObjectRef[int])

    assert_type(sooner.reduce(refs, "max", order="given"), sooner.ObjectRef[int])
    assert_type(sooner.reduce_first(refs, 2), tuple[sooner.ObjectRef[int], sooner.ObjectRef[list[int]]])

    pool = ActorPool([counter])
    assert_type(list(pool.map(lambda actor, n: actor.add.remote(n), [1, 2])), list[int])
    assert_type(pool.pop_idle(), sooner.ActorProxy[Counter] | None)
    grown = ActorPool([counter], in_flight=2, factory=RemoteCounter.remote)
    assert_type(grown, ActorPool[sooner.ActorProxy[Counter]])
    ActorPool([RemotePlain.remote(1)], 2, lambda: RemotePlain.remote(1))
    plain = ActorPool([RemotePlain.remote(1) for _ in range(2)])
    plain.submit(lambda actor, n: actor.add.remote(n), 1)
    assert_type(list(plain.map_unordered(lambda actor, n: actor.add.remote(n), [1, 2])), list[Any])

    queue: Queue[int] = Queue(maxsize=3)
    queue.put(1)
    assert_type(queue.get(timeout=1), int)
    assert_type(queue.get_nowait_batch(2), list[int])
    anything_goes = Queue(maxsize=3)
    anything_goes.put("a")
    anything_goes.put(1)


def session() -> None:
    with sooner.init(num_cpus=2, resources={"disk": 1.0}):
        assert_type(sooner.cluster_resources(), dict[str, float])
        assert_type(sooner.is_initialized(), bool)
    sooner.util.list_named_actors()
    assert_type(sooner.get_gpu_ids(), list[int | str])


def apply(function: Callable[[int], sooner.ObjectRef[str]]) -> sooner.ObjectRef[str]:
    return function(1)


def passed_on() -> None:
    # `.remote` is a callable like any other.
    assert_type(apply(with_options.remote), sooner.ObjectRef[str])
    refs = map(with_options.remote, [1, 2])
    assert_type(list(refs), list[sooner.ObjectRef[str]])
