"""What decorators and descriptors make of functions and methods is called as Python calls it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import io
import random
import typing

import numpy as np
import pytest
from support import WAIT

import sooner

pytestmark = pytest.mark.usefixtures("shared_session")


def get(ref):
    return sooner.get(ref, timeout=WAIT)


# Generators


def listed(function):
    @functools.wraps(function)
    def call(*args):
        return list(function(*args))

    return call


def streamed(function):
    @functools.wraps(function)
    def call(*args):
        yield from function(*args)

    return call


def handed_on(function):
    @functools.wraps(function)
    def call(*args):
        return function(*args)

    return call


def awaited(function):
    @functools.wraps(function)
    def call(*args):
        return asyncio.run(function(*args))

    return call


def collected(function):
    @functools.wraps(function)
    async def call(*args):
        return [item async for item in function(*args)]

    return call


@listed
def evens(n):
    for i in range(n):
        yield 2 * i


@streamed
def numbers(n):
    return range(n)


@handed_on
def count(n):
    yield from range(n)


@contextlib.contextmanager
def opened(n):
    yield n


@pytest.mark.api("generator")
def test_a_function_is_a_generator_if_it_yields_itself_and_not_what_it_wraps():
    assert get(sooner.remote(evens).remote(3)) == [0, 2, 4]
    assert [get(ref) for ref in sooner.remote(numbers).remote(3)] == [0, 1, 2]
    partial = functools.partial(numbers, 2)
    assert [get(ref) for ref in sooner.remote(partial).remote()] == [0, 1]
    with sooner.Executor(1) as executor:
        assert executor.submit(evens, 2).result(WAIT) == [0, 2]


@pytest.mark.api("actor.generators")
def test_a_method_is_a_generator_if_it_yields_itself_and_not_what_it_wraps():
    @sooner.remote
    class Numbers:
        @listed
        def evens(self, n):
            for i in range(n):
                yield 2 * i

        @streamed
        def numbers(self, n):
            return range(n)

        def upto(self, n):
            yield from range(n)

        three = functools.partialmethod(upto, 3)

    @sooner.remote
    class Async:
        @collected
        async def all(self, n):
            for i in range(n):
                yield i

        @awaited
        async def alone(self, n):
            return n

        async def upto(self, n):
            for i in range(n):
                yield i

        three = functools.partialmethod(upto, 3)

    @sooner.remote
    class Plain:
        @awaited
        async def alone(self, n):
            return n

    actor = Numbers.remote()
    assert get(actor.evens.remote(3)) == [0, 2, 4]
    assert [get(ref) for ref in actor.numbers.remote(3)] == [0, 1, 2]
    assert [get(ref) for ref in actor.three.remote()] == [0, 1, 2]
    others = Async.remote()
    assert get(others.all.remote(3)) == [0, 1, 2]
    assert [get(ref) for ref in others.three.remote()] == [0, 1, 2]
    # A wrapper that runs the coroutine to its end makes no asyncio actor, whose loop would run already.
    assert get(Plain.remote().alone.remote(3)) == 3


def test_what_only_hands_a_generator_on_streams_if_it_is_told_to():
    class Handing:
        @handed_on
        def count(self, n):
            yield from range(n)

    method = sooner.remote(Handing).remote().count
    for call in sooner.remote(count), method:
        with pytest.raises(TypeError, match="returned value cannot be pickled: cannot pickle 'generator'"):
            get(call.remote(3))
        assert [get(ref) for ref in call.options(num_returns="streaming").remote(3)] == [0, 1, 2]
    # Of a context manager there is nothing to stream.
    with pytest.raises(TypeError, match="cannot be pickled"):
        get(sooner.remote(opened).remote(1))


def test_a_class_whose_coroutine_methods_are_partial_ones_is_an_asyncio_actor():
    @sooner.remote
    class Later:
        @functools.partialmethod
        async def value(self):
            await asyncio.sleep(0)
            return 4

    assert get(Later.remote().value.remote()) == 4

    class Kept:
        @functools.partialmethod
        async def value(self):
            return 4

        def __sooner_checkpoint__(self):
            return None

        def __sooner_restore__(self, state):
            pass

    with pytest.raises(ValueError, match="checkpoint_every does not go with"):
        sooner.remote(checkpoint_every=5)(Kept)


# What methods take


def total(self, a, b):
    return a + b


class Static:
    """Gives what it was made of."""

    def __init__(self, function):
        self.function = function

    def __get__(self, instance, owner=None):
        return self.function


class Bound:
    """Gives itself to the class, and to instances a part of what it was made of."""

    def __init__(self, function):
        self.function = function

    def __get__(self, instance, owner=None):
        return self if instance is None else functools.partial(self.function, instance)

    def __call__(self, *args):
        return self.function(*args)


class Methods:
    lent = total
    partial_method = functools.partialmethod(total, 1)
    keyword = functools.partialmethod(total, b=1)
    builtin = max
    static = Static(lambda a, b: a + b)
    bound = Bound(total)

    @functools.lru_cache  # noqa: B019  the instance lives as long as the process
    def cached(self, a, b=2):
        return a + b

    @classmethod
    @functools.lru_cache
    def cached_of_class(cls, a):
        return cls.__name__, a

    @staticmethod
    @functools.lru_cache
    def cached_static(a):
        return a

    @functools.singledispatchmethod
    def dispatched(self, a, b=2):
        return a + b

    @dispatched.register
    def _(self, a: str):
        return a.upper()

    @classmethod
    def of_class(cls, a, b):
        return cls.__name__, a + b

    partial_of_class = functools.partialmethod(of_class, 1)

    class Inner:
        def __init__(self, a):
            self.a = a


CALLS = [
    ("lent", (1, 2), 3),
    ("partial_method", (2,), 3),
    ("keyword", (2,), 3),
    ("builtin", (1, 2), 2),
    ("static", (1, 2), 3),
    ("bound", (1, 2), 3),
    ("cached", (1,), 3),
    ("cached", (1, 5), 6),
    ("cached_of_class", (1,), ("Methods", 1)),
    ("cached_static", (1,), 1),
    ("dispatched", (1,), 3),
    ("dispatched", ("a",), "A"),
    ("of_class", (1, 2), ("Methods", 3)),
    ("partial_of_class", (2,), ("Methods", 3)),
]


@pytest.mark.api("actor.handle")
def test_methods_take_what_they_take_of_an_instance():
    here, actor = Methods(), sooner.remote(Methods).remote()
    for name, args, expected in CALLS:
        assert getattr(here, name)(*args) == expected, name
        assert get(getattr(actor, name).remote(*args)) == expected, name
    assert get(actor.Inner.remote(3)).a == 3


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("partial_method", ()),
        ("partial_method", (1, 2)),
        ("cached", ()),
        ("cached_static", ()),
        ("of_class", (1,)),
        ("partial_of_class", (1, 2)),
        ("Inner", ()),
    ],
)
def test_methods_that_are_no_functions_refuse_wrong_arguments_where_they_are_called(name, args):
    actor = sooner.remote(Methods).remote()
    with pytest.raises(TypeError, match=rf"Methods\.{name}\(\): "):
        getattr(actor, name).remote(*args)


class Stack(list):
    def top(self):
        return self[-1]


class Table(dict):
    pass


@pytest.mark.parametrize(
    ("cls", "args", "calls"),
    [
        (
            Stack,
            ([1],),
            [("append", (2,), None), ("top", (), 2), ("index", (2,), 1), ("pop", (), 2), ("__len__", (), 1)],
        ),
        (Table, (), [("setdefault", ("a", 1), 1), ("get", ("a",), 1), ("get", ("b", 3), 3), ("__len__", (), 1)]),
        (Table, (), [("fromkeys", (["a"],), {"a": None})]),
        (io.BytesIO, (b"abc",), [("write", (b"x",), 1), ("getvalue", (), b"xbc"), ("read", (1,), b"b")]),
        (random.Random, (1,), [("seed", (3,), None), ("getrandbits", (3,), random.Random(3).getrandbits(3))]),
        # Compiled by Cython.
        (np.random.RandomState, (1,), [("randint", (5,), np.random.RandomState(1).randint(5))]),
    ],
)
def test_methods_that_are_not_written_in_python(cls, args, calls):
    actor = sooner.remote(cls).remote(*args)
    for name, given, expected in calls:
        assert get(getattr(actor, name).remote(*given)) == expected, name


def test_methods_that_are_not_written_in_python_refuse_wrong_arguments_where_they_are_called():
    stack = sooner.remote(Stack).remote()
    with pytest.raises(TypeError, match=r"Stack\.append\(\): missing"):
        stack.append.remote()
    with pytest.raises(TypeError, match=r"Stack\.append\(\): too many"):
        stack.append.remote(1, 2)


# Marks


@pytest.mark.api("method", "method.num_returns")
def test_a_mark_may_stand_above_what_binds_the_method():
    class Marked:
        @sooner.method(num_returns=2)
        @staticmethod
        def static(a):
            return a, a

        @sooner.method(num_returns=2)
        @classmethod
        def of_class(cls, a):
            return cls.__name__, a

        @staticmethod
        @sooner.method(num_returns=2)
        def below(a):
            return a, a

        @sooner.method(num_returns=2)
        @functools.singledispatchmethod
        def dispatched(self, a):
            return a, a

        @sooner.method(concurrency_group="io")
        @staticmethod
        def grouped():
            return 1

        @sooner.method
        @classmethod
        def plain(cls):
            return 2

        def pair(self, a, b):
            return a, b

        partial = sooner.method(num_returns=2)(functools.partialmethod(pair, 1))

    assert Marked.static(1) == (1, 1)
    actor = sooner.remote(concurrency_groups={"io": 1})(Marked).remote()
    assert get(actor.static.remote(1)) == [1, 1]
    assert get(actor.of_class.remote(1)) == ["Marked", 1]
    assert get(actor.below.remote(1)) == [1, 1]
    assert get(actor.dispatched.remote(1)) == [1, 1]
    assert get(actor.partial.remote(2)) == [1, 2]
    assert get([actor.grouped.remote(), actor.plain.remote()]) == [1, 2]
    # Its group is looked for.
    with pytest.raises(ValueError, match="concurrency group 'io'"):
        sooner.remote(Marked).remote()


@pytest.mark.parametrize("target", [5, property(len), list.append], ids=["number", "property", "of C"])
def test_what_cannot_be_marked_is_refused(target):
    with pytest.raises(TypeError, match="marks a method"):
        sooner.method(num_returns=2)(target)


# What is made remote


@pytest.mark.api("remote")
def test_what_is_remote_already_is_refused():
    remote = sooner.remote(Methods)
    for make in sooner.remote, sooner.remote(num_cpus=1):
        with pytest.raises(TypeError, match=r"Methods is an actor class already: use \.options"):
            make(remote)
        with pytest.raises(TypeError, match=r"method of an actor: it is called with \.remote"):
            make(remote.remote().lent)


@pytest.mark.api("remote")
def test_a_class_with_its_type_arguments_is_the_class():
    T = typing.TypeVar("T")

    class Box(typing.Generic[T]):
        def __init__(self, value: T) -> None:
            self.value = value

        def content(self) -> T:
            return self.value

    assert get(sooner.remote(Box[int]).remote(1).content.remote()) == 1
    assert get(sooner.remote(num_cpus=0)(Box[int]).remote(2).content.remote()) == 2
    with pytest.raises(TypeError, match=r"takes a function or a class, not typing\."):
        sooner.remote(typing.Optional[int])  # noqa: UP045  `int | None` cannot be called


def test_a_part_of_an_async_function_is_refused_by_its_name():
    async def fetch(a, b):
        return a + b

    with pytest.raises(ValueError, match="fetch is an async function"):
        sooner.remote(functools.partial(functools.partial(fetch, 1), 2))
