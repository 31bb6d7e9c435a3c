"""sooner.util.tree_reduce: the shape of the tree, what it takes, what it keeps, and how it fails."""

from __future__ import annotations

import asyncio
import functools
import gc
import operator
import os
import random
import threading
from typing import NamedTuple

import numpy as np
import pytest
from support import WAIT, poll, run_driver

import sooner
from sooner.exceptions import TaskError, WorkerCrashedError
from sooner.generator import DynamicObjectRefGenerator
from sooner.util import state, tree_reduce
from sooner.util.testing import lose_objects

pytestmark = pytest.mark.usefixtures("shared_session")

MIB = 1 << 20


class Part(NamedTuple):
    """A value that knows how it was made.

    Attributes:
        text: The calls of the function, as nested brackets.
        height: Levels of tasks below.
        task: The task that made it; None for a leaf.
        tasks: All tasks below, and this one.
    """

    text: str
    height: int = 0
    task: str | None = None
    tasks: frozenset[str] = frozenset()


def join(a, b):
    here = sooner.get_runtime_context().get_task_id()
    height = max(a.height - (a.task == here), b.height) + 1
    return Part(f"({a.text}{b.text})", height, here, a.tasks | b.tasks | {here})


def leaves(count):
    return [Part(f"{number}.") for number in range(count)]


def levels_of(values, fan_in, combine):
    """The levels of a tree, its leaves first, built one after the other."""
    levels = [values]
    while len(levels[-1]) > 1:
        below = levels[-1]
        groups = [below[at : at + fan_in] for at in range(0, len(below), fan_in)]
        levels.append([functools.reduce(combine, group) for group in groups])
    return levels


def concatenate(a, b):
    return a + b


@sooner.remote
def identity(value):
    return value


@sooner.remote
def block(number):
    return np.full(MIB, number, "u1")


@sooner.remote
def fail(message):
    raise ValueError(message)


def large_objects():
    """The ids of values that are in the store."""
    gc.collect()
    return {row.object_id for row in state.list_objects(limit=100_000) if row.object_size >= MIB}


# --- the tree ---


@pytest.mark.api("own.tree_reduce")
@pytest.mark.parametrize("fan_in", [2, 3, 4, 8, 64])
def test_order_and_shape_for_many_lengths(fan_in):
    counts = [*range(1, 28), 63, 64, 65, 81, 82, 128, 129]
    expected = {
        count: levels_of(leaves(count), fan_in, lambda a, b: Part(f"({a.text}{b.text})"))[-1][0].text
        for count in counts
    }
    refs = [sooner.put(leaf) for leaf in leaves(max(counts))]
    roots = {count: tree_reduce(join, refs[:count], fan_in=fan_in) for count in counts}
    for count, root in zip(counts, sooner.get(list(roots.values()), timeout=WAIT), strict=True):
        assert root.text == expected[count]
        assert root.text.replace("(", "").replace(")", "") == "".join(leaf.text for leaf in leaves(count))


@pytest.mark.api("own.tree_reduce")
@pytest.mark.parametrize(
    ("count", "fan_in", "tasks", "height"),
    [
        (1, 8, 0, 0),
        (2, 8, 1, 1),
        (8, 8, 1, 1),
        # A rest of one value goes up without a task.
        (9, 8, 2, 2),
        (10, 8, 3, 2),
        (64, 8, 9, 2),
        (65, 8, 10, 3),
        (66, 8, 11, 3),
        (5, 2, 4, 3),
        (28, 3, 14, 4),
        (50, 10_000, 1, 1),
    ],
)
def test_as_many_tasks_and_levels_as_are_needed(count, fan_in, tasks, height):
    name = f"join {count} by {fan_in}"
    refs = [sooner.put(leaf) for leaf in leaves(count)]
    root = sooner.get(tree_reduce(sooner.remote(name=name)(join), refs, fan_in=fan_in))
    assert (len(root.tasks), root.height) == (tasks, height)
    assert len(state.list_tasks(filters=[("name", "=", name)])) == tasks


@pytest.mark.api("own.tree_reduce")
def test_floating_point_results_are_the_same_in_every_bit():
    random_numbers = random.Random(7)
    numbers = [random_numbers.uniform(-1, 1) * 10.0 ** random_numbers.randrange(-8, 9) for _ in range(200)]
    ((expected,),) = levels_of(numbers, 8, operator.add)[-1:]
    assert expected != functools.reduce(operator.add, numbers)
    for _ in range(5):
        assert sooner.get(tree_reduce(operator.add, [identity.remote(number) for number in numbers])) == expected


def test_one_reference_is_the_result():
    ref = sooner.put("only")
    assert tree_reduce(concatenate, [ref]) is ref
    assert tree_reduce(concatenate, iter([ref])) is ref


def test_a_value_may_be_there_more_than_once():
    ref = sooner.put("ab")
    assert sooner.get(tree_reduce(concatenate, [ref] * 20, fan_in=3)) == "ab" * 20


# --- functions ---


class Joiner:
    def __init__(self, between):
        self.between = between

    def __call__(self, a, b):
        return f"{a}{self.between}{b}"

    def meet(self, a, b):
        return f"{b}{self.between}{a}"


def join_with(between, a, b):
    return f"{a}{between}{b}"


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda a, b: a + b, "abcde"),
        (operator.add, "abcde"),
        (max, "e"),
        (functools.partial(join_with, "-"), "a-b-c-d-e"),
        (Joiner("+"), "a+b+c+d+e"),
        (Joiner("/").meet, "e/d/c/b/a"),
        (sooner.remote(concatenate), "abcde"),
        (sooner.remote(functools.partial(join_with, "-")), "a-b-c-d-e"),
    ],
    ids=["lambda", "builtin", "max", "partial", "object", "method", "remote", "remote partial"],
)
def test_any_function_of_two_values(function, expected):
    assert sooner.get(tree_reduce(function, map(sooner.put, "abcde"), fan_in=2)) == expected


def test_a_closure_and_a_global_are_what_they_are_at_the_call():
    results = []
    for between in "-+":
        refs = [sooner.put(letter) for letter in "abc"]
        results.append(tree_reduce(lambda a, b: f"{a}{between}{b}", refs))  # noqa: B023
    assert sooner.get(results) == ["a-b-c", "a+b+c"]


def with_between(between):
    return lambda a, b: a + sooner.get(between) + b


def test_a_closure_may_hold_a_reference():
    # Nothing but the closure refers to it.
    function = with_between(sooner.put(" and "))
    root = tree_reduce(function, [identity.remote(letter) for letter in "abcd"], fan_in=2)
    del function
    gc.collect()
    assert sooner.get(root) == "a and b and c and d"


@pytest.mark.api("own.tree_reduce")
def test_a_remote_function_brings_its_options():
    @sooner.remote(num_cpus=0.25)
    def look(a, b):
        context = sooner.get_runtime_context()
        return [*a, *b, (context.get_task_name(), context.get_assigned_resources()["CPU"])]

    empty = sooner.put([])
    assert sooner.get(tree_reduce(look, [empty] * 4, fan_in=2)) == [("tree_reduce(look)", 0.25)] * 3
    named = look.options(num_cpus=0.5, name="looking")
    assert sooner.get(tree_reduce(named, [empty] * 2)) == [("looking", 0.5)]
    assert sooner.get(tree_reduce(look._function, [empty] * 2)) == [("tree_reduce(look)", 1.0)]


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (concatenate, "tree_reduce(concatenate)"),
        (functools.partial(functools.partial(join_with, "-")), "tree_reduce(join_with)"),
        (Joiner("-"), "tree_reduce(Joiner)"),
        (lambda a, _: a, "tree_reduce(<lambda>)"),
        (np.multiply, "tree_reduce(multiply)"),
    ],
    ids=["function", "partial", "object", "lambda", "ufunc"],
)
def test_listings_name_the_function(function, name):
    def count():
        return len(state.list_tasks(filters=[("name", "=", name)], limit=100_000))

    before = count()
    sooner.get(tree_reduce(function, [identity.remote(1) for _ in range(5)], fan_in=4))
    assert count() == before + 2


# --- references ---


@pytest.mark.parametrize(
    "kind", [list, tuple, iter, lambda refs: (ref for ref in refs)], ids=["list", "tuple", "iterator", "generator"]
)
def test_any_iterable_of_references(kind):
    assert sooner.get(tree_reduce(concatenate, kind([sooner.put(letter) for letter in "abcdef"]), fan_in=4)) == "abcdef"


@pytest.mark.api("own.tree_reduce")
def test_the_items_of_a_generator_task():
    @sooner.remote
    def letters(count):
        yield from "abcdefghij"[:count]

    assert sooner.get(tree_reduce(concatenate, letters.remote(10), fan_in=3)) == "abcdefghij"
    dynamic = sooner.get(letters.options(num_returns="dynamic").remote(7))
    assert isinstance(dynamic, DynamicObjectRefGenerator)
    assert sooner.get(tree_reduce(concatenate, dynamic, fan_in=3)) == "abcdefg"
    with pytest.raises(ValueError, match="at least one"):
        tree_reduce(concatenate, letters.remote(0))


def test_a_generator_task_that_fails_fails_the_result():
    @sooner.remote
    def letters():
        yield "a"
        yield "b"
        raise ValueError("no c")

    root = tree_reduce(concatenate, letters.remote(), fan_in=2)
    with pytest.raises(ValueError, match="no c"):
        sooner.get(root)


def test_tasks_begin_while_the_references_still_come(tmp_path):
    def mark(a, b):
        (tmp_path / a[0]).touch()
        return a + b

    def refs():
        yield sooner.put("a")
        yield sooner.put("b")
        poll("the first two are combined", (tmp_path / "a").exists)
        yield sooner.put("c")

    assert sooner.get(tree_reduce(mark, refs(), fan_in=2)) == "abc"


def test_it_does_not_wait_for_values(tmp_path):
    @sooner.remote
    def gated(letter):
        poll("the gate opens", (tmp_path / "open").exists)
        return letter

    root = tree_reduce(concatenate, [gated.remote("a"), sooner.put("b"), gated.remote("c")], fan_in=2)
    assert sooner.wait([root], timeout=0) == ([], [root])
    (tmp_path / "open").touch()
    assert sooner.get(root, timeout=WAIT) == "abc"


# --- memory ---


def sum_of_blocks(count):
    carried = np.ones(2 * MIB, "u1")
    return tree_reduce(lambda a, b: a + b * carried[0], (block.remote(1) for _ in range(count)), fan_in=3)


@pytest.mark.api("own.tree_reduce")
def test_values_are_freed_as_the_tree_goes_up():
    before = large_objects()
    roots = [sum_of_blocks(20)]
    assert sooner.get(roots[0]).tolist() == [20] * MIB
    # The data that the function carries is freed, too.
    poll("only the result is left", lambda: large_objects() == before | {ref.hex() for ref in roots})
    roots.clear()
    poll("nothing is left", lambda: large_objects() == before)


def test_references_of_the_caller_keep_their_values():
    before = large_objects()
    refs = [block.remote(1) for _ in range(5)]
    root = tree_reduce(np.add, refs, fan_in=2)
    sooner.wait([root], timeout=WAIT)
    kept = {ref.hex() for ref in [*refs, root]}
    poll("all intermediate values are freed", lambda: large_objects() == before | kept)
    assert [int(sooner.get(ref)[0]) for ref in [*refs, root]] == [1, 1, 1, 1, 1, 5]


class NotHere:
    """A value that one process must never read."""

    def __init__(self, process, size):
        self.process, self.size = process, size

    def __reduce__(self):
        return _read_elsewhere, (self.process, self.size)


def _read_elsewhere(process, size):
    assert os.getpid() != process, "the driver has read a value"
    return NotHere(process, size)


@pytest.mark.api("own.tree_reduce")
def test_the_driver_reads_no_value():
    @sooner.remote
    def make(process, size):
        return NotHere(process, size)

    @sooner.remote
    def size(value):
        return value.size

    def add_sizes(a, b):
        return NotHere(a.process, a.size + b.size)

    root = tree_reduce(add_sizes, [make.remote(os.getpid(), number) for number in range(30)], fan_in=4)
    assert sooner.get(size.remote(root)) == sum(range(30))
    with pytest.raises(AssertionError, match="the driver has read"):
        sooner.get(root)


def test_a_lost_result_is_made_again():
    root = tree_reduce(lambda a, b: a + b, (block.remote(2) for _ in range(9)), fan_in=3)
    assert sooner.get(root)[0] == 18
    gc.collect()
    lose_objects(root)
    assert sooner.get(root, timeout=WAIT)[0] == 18


# --- failures ---


@pytest.mark.api("own.tree_reduce")
@pytest.mark.parametrize("at", [0, 4, 9, 16])
def test_a_failed_source_fails_the_result_with_its_error(at):
    refs = [fail.remote(f"source {number}") if number == at else identity.remote("x") for number in range(17)]
    with pytest.raises(ValueError, match=f"source {at}") as caught:
        sooner.get(tree_reduce(concatenate, refs, fan_in=4))
    assert isinstance(caught.value, TaskError)
    assert caught.value.function_name == "fail"


@pytest.mark.api("own.tree_reduce")
def test_what_the_function_raises_is_the_error_of_its_task():
    def refuse(a, b):
        if "c" in b:
            raise LookupError(f"no {b}")
        return a + b

    with pytest.raises(LookupError, match="no cd") as caught:
        sooner.get(tree_reduce(refuse, map(sooner.put, ["a", "b", "cd", "e", "f"]), fan_in=2))
    assert isinstance(caught.value, TaskError)
    assert caught.value.function_name == "tree_reduce(refuse)"
    assert 'raise LookupError(f"no {b}")' in caught.value.traceback_str


def die_once(path):
    def die(a, b):
        if not path.exists():
            path.touch()
            os._exit(1)
        return a + b

    return die


def test_tasks_are_retried_by_the_default_options(tmp_path):
    root = tree_reduce(die_once(tmp_path / "died"), map(sooner.put, "abcde"), fan_in=2)
    assert sooner.get(root, timeout=WAIT) == "abcde"
    assert (tmp_path / "died").exists()


def test_tasks_are_not_retried_if_the_remote_function_says_so(tmp_path):
    once = sooner.remote(max_retries=0)(die_once(tmp_path / "died"))
    with pytest.raises(WorkerCrashedError):
        sooner.get(tree_reduce(once, map(sooner.put, "ab")), timeout=WAIT)


def test_tasks_are_retried_for_the_exceptions_of_the_remote_function(tmp_path):
    @sooner.remote(retry_exceptions=[ConnectionError])
    def connect(a, b):
        if not (tmp_path / "tried").exists():
            (tmp_path / "tried").touch()
            raise ConnectionError("not yet")
        return a + b

    assert sooner.get(tree_reduce(connect, map(sooner.put, "abc")), timeout=WAIT) == "abc"


def test_what_the_iterator_raises_comes_out():
    def refs():
        yield from map(sooner.put, "abc")
        raise KeyError("no more")

    with pytest.raises(KeyError, match="no more"):
        tree_reduce(concatenate, refs(), fan_in=2)


# --- bad input ---


class Actor:
    def join(self, a, b):
        return a + b


@pytest.mark.parametrize("refs", [[], (), iter([])], ids=["list", "tuple", "iterator"])
def test_no_references(refs):
    with pytest.raises(ValueError, match=r"no initial value.*sooner\.put"):
        tree_reduce(concatenate, refs)


@pytest.mark.parametrize("kind", [list, iter])
def test_something_that_is_no_reference(kind):
    with pytest.raises(TypeError, match=r"item 2 of refs is of type str.*sooner\.put"):
        tree_reduce(concatenate, kind([sooner.put("a"), sooner.put("b"), "c"]))


def test_a_collection_is_checked_before_anything_is_submitted():
    def never(a, b):
        return a + b

    with pytest.raises(TypeError, match="item 6"):
        tree_reduce(never, [*map(sooner.put, "abcdef"), "g"], fan_in=2)
    assert state.list_tasks(filters=[("name", "=", "tree_reduce(never)")]) == []


def test_what_is_no_iterable_of_references():
    with pytest.raises(TypeError, match="not one: put it into a list"):
        tree_reduce(concatenate, sooner.put("a"))
    with pytest.raises(TypeError, match="iterable of ObjectRefs, not int"):
        tree_reduce(concatenate, 3)
    with pytest.raises(TypeError, match="item 0 of refs is of type str"):
        tree_reduce(concatenate, "abc")


@pytest.mark.parametrize("fan_in", [1, 0, -1, 2.0, True, "8", None], ids=repr)
def test_numbers_that_are_no_fan_in(fan_in):
    with pytest.raises(ValueError, match="fan_in must be a whole number of at least 2"):
        tree_reduce(concatenate, [sooner.put("a")], fan_in=fan_in)


def test_a_task_takes_only_so_many_values():
    with pytest.raises(ValueError, match="at most 10000"):
        tree_reduce(concatenate, [sooner.put("a")], fan_in=10_001)
    one = sooner.put(1)
    assert sooner.get(tree_reduce(operator.add, [one] * 10_001, fan_in=10_000)) == 10_001


@pytest.mark.parametrize("function", [None, 3, "add"], ids=repr)
def test_what_cannot_be_called(function):
    with pytest.raises(TypeError, match=f"a function of two values, not {type(function).__name__}"):
        tree_reduce(function, [sooner.put("a")])


def test_actors_and_their_methods_are_no_functions():
    remote = sooner.remote(Actor)
    handle = remote.options(num_cpus=0).remote()
    for wrong in (remote, handle.join):
        with pytest.raises(TypeError, match=r"Actor.* belongs to an actor: give a function"):
            tree_reduce(wrong, [sooner.put("a")])


async def asynchronous(a, b):
    return a + b


async def asynchronous_generator(a, b):
    yield a + b


def generator(a, b):
    yield a + b


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (asynchronous, "asynchronous is an async function"),
        (asynchronous_generator, "asynchronous_generator is an async function"),
        (generator, "generator is a generator function"),
        (functools.partial(asynchronous), "asynchronous is an async function"),
        (sooner.remote(generator), "generator is a generator function"),
        (sooner.remote(num_returns=2)(concatenate), r"concatenate has num_returns=2.*num_returns=1"),
        (sooner.remote(num_returns=0)(concatenate), "concatenate has num_returns=0"),
        (sooner.remote(concatenate).options(num_returns="streaming"), "concatenate has num_returns='streaming'"),
    ],
    ids=["async", "async generator", "generator", "partial", "remote generator", "two", "none", "streaming"],
)
def test_functions_that_return_no_single_value(function, text):
    with pytest.raises(ValueError, match=text):
        tree_reduce(function, [sooner.put("a")])


def test_one_return_may_be_asked_for():
    refs = [sooner.put("a"), sooner.put("b")]
    assert sooner.get(tree_reduce(sooner.remote(num_returns=1)(concatenate), refs)) == "ab"


def test_a_function_that_cannot_be_pickled():
    lock = threading.Lock()
    with pytest.raises(TypeError, match="cannot be pickled"):
        tree_reduce(lambda a, _: (a, lock), [sooner.put("a"), sooner.put("b")])


# --- where it is called ---


def combined(letters):
    return tree_reduce(concatenate, [identity.remote(letter) for letter in letters], fan_in=3)


@sooner.remote
def combine_in_a_task(letters):
    return sooner.get(combined(letters))


@sooner.remote
def pass_the_reference_on(letters):
    return [combined(letters)]


@sooner.remote
class Combiner:
    def combine(self, letters):
        return sooner.get(combined(letters))


@sooner.remote
class AsynchronousCombiner:
    async def combine(self, letters):
        return await combined(letters)


def test_in_tasks_and_actors():
    letters = "abcdefghij"
    assert sooner.get(combine_in_a_task.remote(letters), timeout=WAIT) == letters
    holder = pass_the_reference_on.remote(letters)
    assert sooner.get(sooner.get(holder, timeout=WAIT)[0], timeout=WAIT) == letters
    for actor in (Combiner, AsynchronousCombiner):
        assert sooner.get(actor.options(num_cpus=0).remote().combine.remote(letters), timeout=WAIT) == letters


def test_in_an_asynchronous_driver():
    async def main():
        return await asyncio.gather(combined("abcdefgh"), combined("ijk"))

    assert asyncio.run(main()) == ["abcdefgh", "ijk"]


def test_in_local_mode():
    done = run_driver(
        """
        import operator
        import sooner
        from sooner.util import tree_reduce

        sooner.init(local_mode=True)
        letters = [sooner.put(letter) for letter in "abcdefghij"]
        print(sooner.get(tree_reduce(operator.add, letters, fan_in=3)))

        @sooner.remote
        def refuse(a, b):
            raise LookupError(a + b)

        try:
            sooner.get(tree_reduce(refuse, letters))
        except LookupError as error:
            print(error.function_name, error.args)
        """
    )
    assert done.stdout.splitlines() == ["abcdefghij", "tree_reduce(refuse) ('ab',)"], done.stderr
