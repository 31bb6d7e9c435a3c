"""Programs that type checkers must accept, with the types they must find. Checked by `make lint`, never run."""

import asyncio
import concurrent.futures
import functools
from abc import ABC
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, assert_type, cast

import weft
from weft.util import ActorPool, as_completed, map_unordered
from weft.util.queue import Queue

# --- functions: keywords, defaults and references as arguments -----------------------------------------


@weft.remote
def scale(values: list[float], by: float = 2.0, *, offset: float = 0.0) -> list[float]:
    return [value * by + offset for value in values]


@weft.remote
def nothing() -> None: ...


@weft.remote
def total(*numbers: int, **named: int) -> int:
    return sum(numbers) + sum(named.values())


@weft.remote
def joined(separator: str, *numbers: int) -> str:
    return separator.join(map(str, numbers))


@weft.remote
def add(a: int, b: int) -> int:
    return a + b


@weft.remote
def anything(value: Any) -> Any:
    return value


@weft.remote
def mapping(value: dict[str, Any]) -> dict[str, Any]:
    return value


@weft.remote
def untyped(value, other=1):  # type: ignore[no-untyped-def]  # pyright: ignore[reportUnknownParameterType, reportMissingParameterType]
    return value  # pyright: ignore[reportUnknownVariableType]


@weft.remote
def ten(a: int, b: int, c: int, d: int, e: int, f: int, g: int, h: int, i: int, j: str) -> int:
    return a + b + c + d + e + f + g + h + i + len(j)


def functions() -> None:
    assert_type(scale.remote([1.0]), weft.ObjectRef[list[float]])
    assert_type(scale.remote([1.0], 3.0, offset=1.0), weft.ObjectRef[list[float]])
    assert_type(scale.remote(values=[1.0], by=3.0), weft.ObjectRef[list[float]])
    assert_type(nothing.remote(), weft.ObjectRef[None])
    assert_type(total.remote(1, 2, three=3), weft.ObjectRef[int])

    one = weft.put(1)
    values = scale.remote([1.0])
    factor = weft.put(2.0)
    assert_type(factor, weft.ObjectRef[float])
    assert_type(scale.remote(values), weft.ObjectRef[list[float]])
    assert_type(scale.remote(values, 3.0), weft.ObjectRef[list[float]])
    assert_type(scale.remote(values, factor), weft.ObjectRef[list[float]])
    assert_type(scale.remote([1.0], factor), weft.ObjectRef[list[float]])
    assert_type(scale.remote(values, by=3.0, offset=1.0), weft.ObjectRef[list[float]])
    assert_type(scale.remote(values, factor, offset=1.0), weft.ObjectRef[list[float]])
    assert_type(total.remote(weft.put(1), 2, weft.put(3)), weft.ObjectRef[int])
    ones = [one] * 3
    assert_type(total.remote(*ones), weft.ObjectRef[int])
    assert_type(total.remote(1, *ones), weft.ObjectRef[int])
    assert_type(total.remote(one, *ones, 1), weft.ObjectRef[int])
    assert_type(total.remote(*[1, 2]), weft.ObjectRef[int])
    assert_type(joined.remote(", ", *ones), weft.ObjectRef[str])
    assert_type(joined.remote(weft.put(", "), *ones, 4), weft.ObjectRef[str])
    # As many as there are may fit.
    assert_type(add.remote(*ones), weft.ObjectRef[int])
    # A reference by keyword cannot be told from a wrong argument; a cast says that it is meant.
    scale.remote(values, offset=cast("float", factor))
    # A reference to a subclass of what is taken.
    scale.remote([1.0], weft.put(True))

    assert_type(ten.remote(1, 2, 3, 4, 5, 6, 7, 8, 9, weft.put("j")), weft.ObjectRef[int])
    assert_type(ten.remote(one, one, one, one, one, one, one, one, one, weft.put("j")), weft.ObjectRef[int])
    assert_type(ten.remote(one, 2, one, 4, one, f=6, g=7, h=8, i=9, j="j"), weft.ObjectRef[int])

    assert_type(weft.get(anything.remote(one)), Any)
    assert_type(mapping.remote({"a": None}), weft.ObjectRef[dict[str, Any]])
    untyped.remote(1)  # pyright: ignore[reportUnknownMemberType]
    untyped.remote(one, other=2)  # pyright: ignore[reportUnknownMemberType]


T = TypeVar("T")


@weft.remote
def first(values: list[T], key: str = "") -> T:
    return values[0]


class Shout:
    def __call__(self, text: str) -> str:
        return text.upper()


def generic_functions() -> None:
    assert_type(first.remote([1]), weft.ObjectRef[int])
    assert_type(first.remote(["a"], key="b"), weft.ObjectRef[str])
    assert_type(first.options(num_cpus=2).remote(values=[1]), weft.ObjectRef[int])


def other_callables() -> None:
    assert_type(weft.remote(Shout()).remote("a"), weft.ObjectRef[str])
    assert_type(weft.remote(functools.partial(parse, base=2)).remote("11"), weft.ObjectRef[int])
    assert_type(weft.remote(divmod).remote(7, 2), weft.ObjectRef[tuple[int, int]])


def plain_functions() -> None:
    # As a call; of builtins and lambdas, too.
    length = weft.remote(len)
    assert_type(weft.get(length.remote("abc")), int)
    declared: weft.RemoteFunction[[str, int], int] = weft.remote(power)
    assert_type(declared.remote("2", 10), weft.ObjectRef[int])
    assert_type(declared.options(num_cpus=2).remote(weft.put("2"), 10), weft.ObjectRef[int])


def power(text: str, exponent: int, /) -> int:
    return int(int(text) ** exponent)


def parse(text: str, base: int = 10) -> int:
    return int(text, base)


# --- options -------------------------------------------------------------------------------------------


@weft.remote(num_cpus=0.5, max_retries=1, retry_exceptions=[ValueError])
def with_options(x: int, *, y: str = "") -> str:
    return y * x


@weft.remote(num_returns=2)
def pair(x: int) -> tuple[int, str]:
    return x, str(x)


@weft.remote(num_returns=0)
def gone(x: int) -> None: ...


def task_options(count: int, more: dict[str, Any]) -> None:
    assert_type(with_options.remote(1, y="a"), weft.ObjectRef[str])
    assert_type(with_options.remote(weft.put(1), y="a"), weft.ObjectRef[str])
    fast = with_options.options(num_cpus=2, name="fast", resources={"disk": 1.0})
    assert_type(fast.remote(1, y="a"), weft.ObjectRef[str])
    assert_type(with_options.options(num_returns=1).remote(1), weft.ObjectRef[str])

    first, second = pair.remote(1)
    assert_type([first, second], list[weft.ObjectRef[Any]])
    assert_type(pair.remote(weft.put(1)), list[weft.ObjectRef[Any]])
    assert_type(pair.options(num_cpus=2).remote(1), list[weft.ObjectRef[Any]])
    assert_type(gone.remote(1), None)
    assert_type(gone.options(num_cpus=2).remote(1), None)
    assert_type(with_options.options(num_returns=3).remote(1), list[weft.ObjectRef[Any]])
    assert_type(with_options.options(num_returns=count).remote(1), Any)
    with_options.options(**more).remote(1)
    decorate = cast("Any", weft.remote(**more))
    decorate(len).remote("abc")


# --- generators ----------------------------------------------------------------------------------------


@weft.remote
def count_up(n: int) -> Iterator[int]:
    yield from range(n)


@weft.remote(num_cpus=1)
def count_down(n: int) -> Generator[int, None, str]:
    yield from range(n, 0, -1)
    return "done"


def declared_generators() -> None:
    # The option says what is so without it.
    streaming = weft.remote(num_returns="streaming", num_cpus=1)(up_to)
    assert_type(next(streaming.remote(3)), weft.ObjectRef[int])
    assert_type(next(streaming.options(num_returns="streaming").remote(3)), weft.ObjectRef[int])
    assert_type(weft.remote(num_returns="dynamic")(up_to).remote(3), Any)


def up_to(n: int) -> Iterator[int]:
    yield from range(n)


async def generators() -> None:
    for ref in count_up.remote(3):
        assert_type(ref, weft.ObjectRef[int])
    async for ref in count_down.remote(weft.put(3)):
        assert_type(ref, weft.ObjectRef[int])
        assert_type(await ref, int)
    assert_type(next(count_up.options(num_cpus=2).remote(3)), weft.ObjectRef[int])


# --- references ----------------------------------------------------------------------------------------


def references(refs: list[weft.ObjectRef[int]], mixed: list[weft.ObjectRef[int] | weft.ObjectRef[str]]) -> None:
    number, text = weft.put(1), weft.put("a")
    assert_type(weft.get(number), int)
    assert_type(weft.get(number, timeout=1.0), int)
    assert_type(weft.get(refs), list[int])
    assert_type(weft.get([scale.remote([1.0]) for _ in range(3)]), list[list[float]])
    assert_type(weft.get(tuple(refs)), list[int])
    assert_type(weft.get((number, text)), list[int | str])
    assert_type(weft.get((number, text, weft.put(b""))), list[int | str | bytes])
    assert_type(weft.get(mixed), list[Any])
    assert_type(weft.get(pair.remote(1)), list[Any])

    ready, rest = weft.wait(refs, num_returns=2, timeout=0)
    assert_type(ready, list[weft.ObjectRef[int]])
    assert_type(rest, list[weft.ObjectRef[int]])
    weft.wait(mixed)

    assert_type(number.hex(), str)
    assert_type({number: 1}[number], int)
    weft.cancel(number, recursive=False)
    anything.remote([number, text])
    as_object: weft.ObjectRef[object] = number
    weft.wait([as_object])


async def awaited(refs: list[weft.ObjectRef[int]]) -> None:
    ref = weft.put(1)
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

    @weft.method(num_returns=2)
    def split(self, text: str) -> list[str]:
        return text.split(maxsplit=1)


@dataclass
class Point:
    x: int
    y: int = 0


RemotePlain = weft.remote(Plain)


def plain_actors(cls: type[Plain], more: dict[str, Any]) -> None:
    handle = RemotePlain.remote(1, step=2)
    assert_type(handle, weft.ActorHandle[Plain])
    RemotePlain.remote(weft.put(1))
    RemotePlain.remote(weft.put(1), weft.put(2))
    RemotePlain.options(name="plain", get_if_exists=True, max_concurrency=4).remote(start=1)
    assert_type(weft.remote(num_cpus=1)(Plain).remote(1), weft.ActorHandle[Plain])
    assert_type(weft.remote(max_concurrency=2)(Plain).remote(1), weft.ActorHandle[Plain])
    assert_type(weft.remote(checkpoint_every=500)(Plain).remote(1), weft.ActorHandle[Plain])
    RemotePlain.options(checkpoint_every=500, max_restarts=3).remote(1)
    assert_type(weft.remote(Point).remote(1, y=2), weft.ActorHandle[Point])
    weft.remote(cls).remote(1)
    weft.remote(Plain).options(**more).remote(1)
    named: weft.ActorClass[Plain] = RemotePlain
    assert_type(named.remote(1), weft.ActorHandle[Plain])

    # What a checker cannot know of a plain class is accepted.
    assert_type(weft.get(handle.add.remote(2)), Any)
    handle.add.options(name="adding").remote(weft.put(2))
    one, two = handle.split.remote("a b")
    weft.get([one, two])
    anything.remote(handle)
    weft.kill(handle)
    weft.kill(weft.get_actor("plain", namespace="here"), no_restart=True)
    assert_type(weft.get_actor("plain"), weft.ActorHandle[Any])
    # On the object itself a marked method stays what it is.
    assert_type(Plain(1).split("a b"), list[str])


# --- actors: classes that checkers know -----------------------------------------------------------------


class Counter(weft.TypedActor):
    def __init__(self, start: int = 0) -> None:
        self.value = start

    @weft.method
    def add(self, n: int, *, times: int = 1) -> int:
        self.value += n * times
        return self.value

    @weft.method(read_only=True)
    def read(self) -> int:
        return self.value

    @weft.method
    def add_twice(self, n: int) -> int:
        assert_type(self.add(n, times=1), int)
        return self.add(n) + self.add(n)

    @weft.method
    async def later(self, seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "done"

    @weft.method
    def up_to(self, n: int) -> Iterator[int]:
        yield from range(n)

    @weft.method
    async def slowly(self, n: int) -> AsyncIterator[str]:
        for i in range(n):
            yield str(i)

    @weft.method(num_returns=2)
    def both(self) -> tuple[int, int]:
        return self.value, -self.value

    @weft.method(enable_task_events=False)
    async def fetch(self, name: str) -> bytes:
        return name.encode()

    @weft.method
    def any_of(self, value: Any) -> Any:
        return value


class Loud(Counter):
    @weft.method
    def shout(self, text: str) -> str:
        return text.upper()


RemoteCounter = weft.remote(Counter)


# Decorated classes, which mypy takes for what they were before.
@weft.remote
class Decorated(weft.TypedActor):
    def __init__(self, start: int) -> None:
        self.value = start

    @weft.method
    def add(self, n: int) -> int:
        return self.value + n


@weft.remote(max_concurrency=2)
class Abstract(weft.TypedActor, ABC):
    @weft.method
    def name(self) -> str:
        return "abstract"


def decorated_actors() -> None:
    assert_type(Decorated.remote(start=1).add.remote(2), weft.ObjectRef[int])
    assert_type(Decorated.remote(weft.put(1)).add.remote(weft.put(2)), weft.ObjectRef[int])
    assert_type(Decorated.options(num_cpus=1).remote(1).add.remote(2), weft.ObjectRef[int])
    assert_type(Abstract.remote().name.remote(), weft.ObjectRef[str])


def adds(counter: weft.ActorProxy[Counter]) -> int:
    return weft.get(counter.add.remote(1))


async def typed_actors() -> None:
    counter = RemoteCounter.remote(start=1)
    assert_type(counter, weft.ActorProxy[Counter])
    assert_type(counter.add.remote(2), weft.ObjectRef[int])
    assert_type(counter.add.remote(2, times=3), weft.ObjectRef[int])
    assert_type(counter.add.remote(weft.put(2), times=3), weft.ObjectRef[int])
    assert_type(counter.add.options(name="adding").remote(2), weft.ObjectRef[int])
    assert_type(counter.later.remote(0.1), weft.ObjectRef[str])
    assert_type(await counter.later.remote(0.1), str)
    assert_type(next(counter.up_to.remote(3)), weft.ObjectRef[int])
    assert_type(next(counter.up_to.options(num_returns="streaming").remote(3)), weft.ObjectRef[int])
    async for ref in counter.slowly.remote(3):
        assert_type(ref, weft.ObjectRef[str])
    assert_type(counter.both.remote(), list[weft.ObjectRef[Any]])
    assert_type(counter.fetch.remote("x"), weft.ObjectRef[bytes])
    assert_type(weft.get(counter.any_of.remote(1)), Any)
    assert_type(counter.__ray_ready__.remote(), weft.ObjectRef[bool])

    RemoteCounter.options(num_cpus=1).remote(weft.put(1))
    assert_type(weft.remote(num_cpus=1)(Counter).remote(), weft.ActorProxy[Counter])
    loud = weft.remote(Loud).remote()
    assert_type(loud.shout.remote("a"), weft.ObjectRef[str])
    assert_type(loud.add.remote(1), weft.ObjectRef[int])
    adds(counter)
    adds(loud)
    weft.remote(adds).remote(counter)
    weft.kill(counter)


# --- helpers -------------------------------------------------------------------------------------------


def helpers(refs: list[weft.ObjectRef[int]], flag: bool) -> None:
    with weft.Executor(max_workers=2, options={"num_cpus": 1}) as executor:
        assert_type(executor.submit(pow, 2, 10), concurrent.futures.Future[int])
        assert_type(executor.submit(sorted, ["a"], reverse=True).result(), list[str])
        assert_type(list(executor.map(len, ["a", "b"])), list[int])

    for value in as_completed(refs):
        assert_type(value, int)
    for ref in as_completed(refs, yield_obj_refs=True):
        assert_type(ref, weft.ObjectRef[int])
    for either in as_completed(refs, yield_obj_refs=flag):
        assert_type(either, Any)
    assert_type(list(map_unordered(with_options, [1, 2])), list[str])
    counter = RemoteCounter.remote()
    assert_type(list(map_unordered(counter.add, [1, 2])), list[int])
    map_unordered(RemotePlain.remote(1).add, [1, 2])

    pool = ActorPool([counter])
    assert_type(list(pool.map(lambda actor, n: actor.add.remote(n), [1, 2])), list[int])
    assert_type(pool.pop_idle(), weft.ActorProxy[Counter] | None)
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
    with weft.init(num_cpus=2, resources={"disk": 1.0}):
        assert_type(weft.cluster_resources(), dict[str, float])
        assert_type(weft.is_initialized(), bool)
    weft.util.list_named_actors()
    assert_type(weft.get_gpu_ids(), list[int])


def apply(function: Callable[[int], weft.ObjectRef[str]]) -> weft.ObjectRef[str]:
    return function(1)


def passed_on() -> None:
    # `.remote` is a callable like any other.
    assert_type(apply(with_options.remote), weft.ObjectRef[str])
    refs = map(with_options.remote, [1, 2])
    assert_type(list(refs), list[weft.ObjectRef[str]])
