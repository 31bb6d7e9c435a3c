"""Programs with one mistake a line, which type checkers must report. Checked by `make lint`, never run.

The comment of a line names the codes under which mypy and pyright report it; `-` stands for a checker that
does not.
"""

from collections.abc import Iterator
from typing import Any, TypeVar, assert_type

import sooner
from sooner.util import ActorPool, as_completed, map_unordered, tree_reduce
from sooner.util.queue import Queue

T = TypeVar("T")


@sooner.remote
def scale(values: list[float], by: float = 2.0, *, offset: float = 0.0) -> list[float]:
    return [value * by + offset for value in values]


@sooner.remote(num_returns=2)
def pair(x: int) -> tuple[int, str]:
    return x, str(x)


@sooner.remote
def count_up(n: int) -> Iterator[int]:
    yield from range(n)


@sooner.remote
def total(*numbers: int) -> int:
    return sum(numbers)


@sooner.remote
def anything(x: int) -> Any:
    return x


@sooner.remote
def first(values: list[T], key: str = "") -> T:
    return values[0]


@sooner.remote
def length(text: str) -> int:
    return len(text)


class Plain:
    def __init__(self, start: int, step: int = 1) -> None:
        self.value = start

    def add(self, n: int) -> int:
        return self.value + n


class Counter(sooner.TypedActor):
    def __init__(self, start: int = 0) -> None:
        self.value = start

    @sooner.method
    def add(self, n: int, *, times: int = 1) -> int:
        return self.value + n * times

    @sooner.method
    async def later(self, seconds: float) -> str:
        return str(seconds)

    def forgotten(self) -> None: ...


@sooner.remote
class Decorated(sooner.TypedActor):
    def __init__(self, start: int) -> None:
        self.value = start

    @sooner.method
    def add(self, n: int) -> int:
        return self.value + n


RemotePlain = sooner.remote(Plain)
RemoteCounter = sooner.remote(Counter)

# --- arguments of functions ----------------------------------------------------------------------------

scale.remote()  # mypy: call-overload; pyright: reportCallIssue
scale.remote("abc")  # mypy: call-overload; pyright: reportArgumentType
scale.remote([1.0], "2")  # mypy: call-overload; pyright: reportArgumentType
scale.remote([1.0], 2.0, 3.0)  # mypy: call-overload; pyright: reportCallIssue
scale.remote([1.0], offset="a")  # mypy: call-overload; pyright: reportArgumentType
scale.remote([1.0], of=1.0)  # mypy: call-overload; pyright: reportCallIssue
scale.remote([1.0], values=[2.0])  # mypy: call-overload; pyright: reportCallIssue
length.remote(sooner.put(1))  # mypy: arg-type; pyright: reportArgumentType
scale.remote(sooner.put([1.0]), "2")  # mypy: call-overload; pyright: reportArgumentType
scale.remote(sooner.put([1.0]), sooner.put("2"))  # mypy: arg-type; pyright: reportArgumentType
scale.remote(sooner.put([1.0]), of=1.0)  # mypy: call-overload; pyright: reportCallIssue
scale.remote(sooner.put([1.0]), offset="a")  # mypy: call-overload; pyright: reportArgumentType
total.remote(*[sooner.put("1")])  # mypy: arg-type; pyright: reportArgumentType
total.remote(1, *["1"])  # mypy: call-overload; pyright: reportArgumentType
length.remote(length.remote("abc"))  # mypy: arg-type; pyright: reportArgumentType
scale([1.0])  # mypy: operator; pyright: reportCallIssue
scale.remotely([1.0])  # mypy: attr-defined; pyright: reportAttributeAccessIssue

anything.remote("a")  # mypy: -; pyright: reportArgumentType
first.remote([1], key=2)  # mypy: call-overload; pyright: reportArgumentType
sooner.get(first.remote([1])).upper()  # mypy: attr-defined; pyright: reportAttributeAccessIssue

# --- results -------------------------------------------------------------------------------------------

length.remote("abc") + 1  # mypy: operator; pyright: reportOperatorIssue
sooner.get(length.remote("abc")).upper()  # mypy: attr-defined; pyright: reportAttributeAccessIssue
assert_type(sooner.get(length.remote("abc")), str)  # mypy: assert-type; pyright: reportAssertTypeFailure
pair.remote(1).hex()  # mypy: attr-defined; pyright: reportAttributeAccessIssue
count_up.remote(3).hex()  # mypy: attr-defined; pyright: reportAttributeAccessIssue
for _ in length.remote("abc"):  # mypy: attr-defined; pyright: reportGeneralTypeIssues
    ...
sooner.get(3)  # mypy: call-overload; pyright: reportArgumentType
sooner.get(["abc"])  # mypy: arg-type; pyright: reportArgumentType
sooner.get(length.remote("abc"), 3.0)  # mypy: call-overload; pyright: reportCallIssue
sooner.get({length.remote("abc")})  # mypy: call-overload; pyright: reportArgumentType
sooner.wait(length.remote("abc"))  # mypy: arg-type; pyright: reportArgumentType
sooner.wait((length.remote("abc"),))  # mypy: arg-type; pyright: reportArgumentType
sooner.cancel("abc")  # mypy: arg-type; pyright: reportArgumentType
sooner.gett(length.remote("abc"))  # mypy: attr-defined; pyright: reportAttributeAccessIssue

# --- options -------------------------------------------------------------------------------------------

length.options(num_cpu=1)  # mypy: call-overload; pyright: reportCallIssue
length.options(num_cpus="1")  # mypy: call-overload; pyright: reportArgumentType
length.options(max_restarts=1)  # mypy: call-overload; pyright: reportCallIssue
length.options(num_returns="many")  # mypy: call-overload; pyright: reportArgumentType
sooner.remote(num_cpu=1)  # mypy: call-overload; pyright: reportCallIssue
sooner.remote(max_restarts=1)(len)  # mypy: call-overload; pyright: reportArgumentType
sooner.remote(3)  # mypy: call-overload; pyright: reportArgumentType
sooner.remote(length)  # mypy: call-overload; pyright: reportArgumentType
RemotePlain.options(max_retries=1)  # mypy: call-arg; pyright: reportCallIssue
RemotePlain.options(lifetime="for ever")  # mypy: arg-type; pyright: reportArgumentType
RemotePlain.options(checkpoint_every="often")  # mypy: arg-type; pyright: reportArgumentType
length.options(checkpoint_every=5)  # mypy: call-overload; pyright: reportCallIssue
sooner.method(read_only="yes")  # mypy: call-overload; pyright: reportArgumentType
sooner.method(num_cpus=1)  # mypy: call-overload; pyright: reportCallIssue
sooner.method(3)  # mypy: call-overload; pyright: reportArgumentType

# --- actors --------------------------------------------------------------------------------------------

plain = RemotePlain.remote(1)
counter = RemoteCounter.remote()

RemotePlain.remote()  # mypy: call-overload; pyright: reportCallIssue
RemotePlain.remote("1")  # mypy: call-overload; pyright: reportArgumentType
RemotePlain.remote(1, stop=2)  # mypy: call-overload; pyright: reportCallIssue
RemotePlain.remote(sooner.put("1"))  # mypy: arg-type; pyright: reportArgumentType
RemotePlain(1)  # mypy: operator; pyright: reportCallIssue
plain.add(1)  # mypy: operator; pyright: reportCallIssue
RemoteCounter.remote("1")  # mypy: call-overload; pyright: reportArgumentType
Decorated.remote()  # mypy: call-overload; pyright: reportCallIssue
Decorated.remote("1")  # mypy: call-overload; pyright: reportArgumentType
Decorated.remote(1).add.remote("1")  # mypy: call-overload; pyright: reportArgumentType
Decorated.options(max_retries=1)  # mypy: call-arg; pyright: reportCallIssue
counter.add.remote()  # mypy: call-overload; pyright: reportCallIssue
counter.add.remote("1")  # mypy: call-overload; pyright: reportArgumentType
counter.add.remote(1, 2)  # mypy: call-overload; pyright: reportCallIssue
counter.add.remote(1, times="2")  # mypy: call-overload; pyright: reportArgumentType
counter.add.remote(sooner.put("1"))  # mypy: arg-type; pyright: reportArgumentType
counter.add.options(num_cpus=1)  # mypy: call-overload; pyright: reportCallIssue
counter.add(1)  # mypy: operator; pyright: reportCallIssue
counter.ad.remote(1)  # mypy: attr-defined; pyright: reportAttributeAccessIssue
counter.forgotten.remote()  # mypy: attr-defined; pyright: reportFunctionMemberAccess
sooner.get(counter.later.remote(0.1)) + 1  # mypy: operator; pyright: reportOperatorIssue
Counter().add("1")  # mypy: arg-type; pyright: reportArgumentType
sooner.kill(Counter())  # mypy: arg-type; pyright: reportArgumentType
sooner.kill("counter")  # mypy: arg-type; pyright: reportArgumentType
sooner.get(counter)  # mypy: call-overload; pyright: reportArgumentType


def adds(actor: sooner.ActorProxy[Counter]) -> None:
    actor.add.remote("1")  # mypy: call-overload; pyright: reportArgumentType


adds(plain)  # mypy: arg-type; pyright: reportArgumentType

# --- helpers -------------------------------------------------------------------------------------------

with sooner.Executor() as executor:
    executor.submit(len)  # mypy: call-arg; pyright: reportCallIssue
    executor.submit(len, "abc").result().upper()  # mypy: attr-defined; pyright: reportAttributeAccessIssue
    executor.map(3, [1])  # mypy: arg-type; pyright: reportArgumentType
as_completed(length.remote("abc"))  # mypy: call-overload; pyright: reportArgumentType
for value in as_completed([length.remote("abc")]):
    value.upper()  # mypy: attr-defined; pyright: reportAttributeAccessIssue
map_unordered(length, [1, 2])  # mypy: misc; pyright: reportArgumentType
map_unordered(len, ["a"])  # mypy: call-overload; pyright: reportArgumentType
tree_reduce(length, [length.remote("abc")])  # mypy: arg-type; pyright: reportArgumentType
tree_reduce(lambda a, b: f"{a}{b}", [length.remote("abc")])  # mypy: arg-type; pyright: reportArgumentType
tree_reduce(max, length.remote("abc"))  # mypy: arg-type; pyright: reportArgumentType
tree_reduce(max, [1, 2])  # mypy: arg-type; pyright: reportArgumentType
sooner.get(tree_reduce(max, [length.remote("abc")])).upper()  # mypy: attr-defined; pyright: reportAttributeAccessIssue
pool = ActorPool([counter])
pool.submit(lambda actor, n: actor.add.remote(str(n)), 1)  # mypy: call-overload; pyright: reportArgumentType
ActorPool([counter], in_flight="2")  # mypy: arg-type; pyright: reportArgumentType
ActorPool([counter], factory="Counter")  # mypy: arg-type; pyright: reportArgumentType
ActorPool([counter], factory=lambda value: counter)  # mypy: arg-type; pyright: reportArgumentType
numbers: Queue[int] = Queue()
numbers.put("1")  # mypy: arg-type; pyright: reportArgumentType
numbers.get().upper()  # mypy: attr-defined; pyright: reportAttributeAccessIssue
