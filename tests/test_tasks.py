"""Tasks: calling, arguments, returns, options, nesting, retries."""

from __future__ import annotations

import functools
import os
import time
from pathlib import Path

import pytest
from support import WAIT

import sooner
from sooner.exceptions import TaskError

pytestmark = pytest.mark.usefixtures("shared_session")


@sooner.remote
def identity(value):
    return value


@sooner.remote
def add(a, b):
    return a + b


@sooner.remote
def pid():
    return os.getpid()


@pytest.mark.api("task.remote")
def test_a_task_returns_its_value():
    ref = add.remote(1, 2)
    assert isinstance(ref, sooner.ObjectRef)
    assert sooner.get(ref, timeout=WAIT) == 3


@pytest.mark.api("task.remote")
def test_a_task_runs_in_another_process():
    assert sooner.get(pid.remote(), timeout=WAIT) != os.getpid()


def test_many_tasks_keep_their_order_in_get():
    assert sooner.get([identity.remote(n) for n in range(3000)], timeout=WAIT) == list(range(3000))


@pytest.mark.api("remote")
def test_decorator_with_options():
    @sooner.remote(num_cpus=0.5, max_retries=0)
    def f():
        return "f"

    assert sooner.get(f.remote(), timeout=WAIT) == "f"


@pytest.mark.api("remote")
def test_remote_as_a_call():
    def f(x):
        return x + 1

    assert sooner.get(sooner.remote(f).remote(1), timeout=WAIT) == 2
    assert sooner.get(sooner.remote(num_cpus=1)(f).remote(1), timeout=WAIT) == 2


@pytest.mark.api("remote")
@pytest.mark.parametrize(
    "make",
    [lambda: lambda x: x + 1, lambda: functools.partial(lambda a, b: a + b, 1), lambda: (1).__add__],
    ids=["lambda", "partial", "bound builtin"],
)
def test_any_callable_can_be_remote(make):
    assert sooner.get(sooner.remote(make()).remote(2), timeout=WAIT) == 3


@pytest.mark.api("task.options")
def test_options_returns_a_copy():
    other = add.options(num_cpus=0.1, name="sum")
    assert other is not add
    assert sooner.get([other.remote(1, 2), add.remote(3, 4)], timeout=WAIT) == [3, 7]


@pytest.mark.api("own.given_options")
def test_the_options_of_a_function_can_be_given_to_another():
    given = {"num_cpus": 1, "resources": {"tape": 0.5}, "retry_exceptions": [ValueError], "name": None}
    function = sooner.remote(**given)(len).options(num_cpus=2)
    options = function.given_options()
    assert options == {"num_cpus": 2.0, "resources": {"tape": 0.5}, "retry_exceptions": (ValueError,), "name": None}
    assert sooner.remote(max).options(**options).given_options() == options
    assert sooner.remote(len).given_options() == {}
    options["num_cpus"] = 3
    assert function.given_options()["num_cpus"] == 2


@pytest.mark.api("task.options")
def test_name_and_docstring_stay():
    @sooner.remote
    def documented():
        """What it does."""

    assert documented.__name__ == "documented"
    assert documented.__doc__ == "What it does."


@pytest.mark.api("task.function")
def test_direct_call_is_refused():
    with pytest.raises(TypeError, match="remote"):
        add(1, 2)
    assert add._function(1, 2) == 3


@pytest.mark.api("task._remote")
def test_underscore_remote():
    assert sooner.get(add._remote(args=[1, 2]), timeout=WAIT) == 3
    assert sooner.get(add._remote([1], {"b": 5}, num_cpus=1), timeout=WAIT) == 6
    assert isinstance(sooner.get(pid._remote(), timeout=WAIT), int)


@pytest.mark.api("task.remote")
def test_keyword_and_default_arguments():
    @sooner.remote
    def f(a, /, b, c=3, *rest, d, e=5, **more):
        return a, b, c, rest, d, e, more

    assert sooner.get(f.remote(1, 2, d=4), timeout=WAIT) == (1, 2, 3, (), 4, 5, {})
    expected = (1, 2, 7, (8, 9), 4, 6, {"x": "y"})
    assert sooner.get(f.remote(1, 2, 7, 8, 9, d=4, e=6, x="y"), timeout=WAIT) == expected


def test_keyword_only_and_positional_only_with_refs():
    @sooner.remote
    def f(a, /, *, b):
        return a, b

    assert sooner.get(f.remote(sooner.put(1), b=sooner.put(2)), timeout=WAIT) == (1, 2)


def test_many_arguments():
    @sooner.remote
    def count(*args, **kwargs):
        return sum(args) + sum(kwargs.values())

    kwargs = {f"k{n}": n for n in range(300)}
    assert sooner.get(count.remote(*range(500), **kwargs), timeout=WAIT) == sum(range(500)) + sum(range(300))


@pytest.mark.api("task.arguments")
def test_argument_refs_are_replaced_by_values():
    assert sooner.get(add.remote(identity.remote(1), sooner.put(2)), timeout=WAIT) == 3
    assert sooner.get(add.remote(b=identity.remote("y"), a=sooner.put("x")), timeout=WAIT) == "xy"


def test_the_same_ref_twice():
    ref = identity.remote([1])
    assert sooner.get(add.remote(ref, ref), timeout=WAIT) == [1, 1]


@pytest.mark.api("task.arguments")
def test_refs_in_containers_stay_refs():
    @sooner.remote
    def f(box):
        assert isinstance(box[0], sooner.ObjectRef)
        return sooner.get(box[0]) + sooner.get(box[1]["key"])

    assert sooner.get(f.remote([identity.remote(1), {"key": sooner.put(2)}]), timeout=WAIT) == 3


def test_a_chain_of_dependencies():
    ref = sooner.put(0)
    for _ in range(200):
        ref = add.remote(ref, 1)
    assert sooner.get(ref, timeout=WAIT) == 200


def test_a_tree_of_dependencies():
    refs = [identity.remote(n) for n in range(64)]
    while len(refs) > 1:
        refs = [add.remote(*pair) for pair in zip(refs[::2], refs[1::2], strict=True)]
    assert sooner.get(refs[0], timeout=WAIT) == sum(range(64))


@pytest.mark.api("task.arguments")
def test_a_task_does_not_start_before_its_arguments_are_there(tmp_path):
    gate = tmp_path / "gate"

    @sooner.remote(num_cpus=0.5)
    def waits():
        while not gate.exists():
            time.sleep(0.01)
        return "first"

    second = identity.options(num_cpus=0.5).remote(waits.remote())
    assert sooner.wait([second], timeout=0.2) == ([], [second])
    gate.touch()
    assert sooner.get(second, timeout=WAIT) == "first"


def test_dropping_the_refs_of_arguments_and_results_loses_nothing():
    ref = add.remote(identity.remote(identity.remote(20)), sooner.put(22))
    assert sooner.get(ref, timeout=WAIT) == 42


def test_a_task_whose_ref_is_dropped_runs_nevertheless(tmp_path):
    mark = tmp_path / "mark"

    @sooner.remote
    def touch(after):
        mark.touch()

    done = touch.remote(identity.remote(1))
    sooner.get(done, timeout=WAIT)
    mark.unlink()
    touch.remote(identity.remote(1))
    deadline = time.monotonic() + WAIT
    while not mark.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.api("task.num_returns")
def test_several_returns():
    @sooner.remote(num_returns=3)
    def three():
        return 1, "two", [3]

    refs = three.remote()
    assert isinstance(refs, list)
    assert sooner.get(refs, timeout=WAIT) == [1, "two", [3]]


def test_several_returns_may_be_any_iterable_of_that_length():
    @sooner.remote(num_returns=2)
    def listed():
        return ["a", "b"]

    first, second = listed.remote()
    assert sooner.get([second, first], timeout=WAIT) == ["b", "a"]


@pytest.mark.api("task.num_returns")
def test_no_returns():
    @sooner.remote(num_returns=0)
    def none():
        return None

    assert none.remote() is None


@pytest.mark.api("task.num_returns")
def test_num_returns_by_options():
    assert sooner.get(identity.options(num_returns=2).remote((1, 2)), timeout=WAIT) == [1, 2]


def test_one_of_several_returns_can_be_an_argument():
    @sooner.remote(num_returns=2)
    def pair(x):
        return x, x * 10

    low, high = pair.remote(3)
    del low
    assert sooner.get(identity.remote(high), timeout=WAIT) == 30


def test_an_error_with_several_returns_is_in_each():
    @sooner.remote(num_returns=2)
    def fails():
        raise KeyError("gone")

    for ref in fails.remote():
        with pytest.raises(KeyError):
            sooner.get(ref, timeout=WAIT)


def test_a_tuple_is_one_value_without_num_returns():
    assert sooner.get(identity.remote((1, 2)), timeout=WAIT) == (1, 2)


def test_a_returned_ref_stays_a_ref():
    @sooner.remote
    def makes():
        return identity.remote("inner")

    inner = sooner.get(makes.remote(), timeout=WAIT)
    assert isinstance(inner, sooner.ObjectRef)
    assert sooner.get(inner, timeout=WAIT) == "inner"


def test_nested_tasks():
    @sooner.remote
    def fib(n):
        return n if n < 2 else sum(sooner.get([fib.remote(n - 1), fib.remote(n - 2)]))

    assert sooner.get(fib.remote(9), timeout=WAIT) == 34


@pytest.mark.api("task.closures")
def test_globals_and_closures_travel():
    base = {"x": 40}

    @sooner.remote
    def f(y):
        return base["x"] + y

    assert sooner.get(f.remote(2), timeout=WAIT) == 42


def test_a_remote_function_can_be_an_argument_a_result_and_in_a_closure():
    @sooner.remote
    def apply(function, x):
        return sooner.get(function.remote(x))

    @sooner.remote
    def give():
        return identity

    assert sooner.get(apply.remote(identity, 5), timeout=WAIT) == 5
    assert sooner.get(sooner.get(give.remote(), timeout=WAIT).remote(6), timeout=WAIT) == 6


def test_a_function_is_exported_with_what_it_captured_at_its_first_call():
    values = []
    for n in range(3):

        @sooner.remote
        def f(captured=n):
            return captured

        values.append(f.remote())
    assert sooner.get(values, timeout=WAIT) == [0, 1, 2]


def test_arguments_are_copied_when_the_task_is_submitted():
    box = [1]
    ref = identity.remote(box)
    box.append(2)
    assert sooner.get(ref, timeout=WAIT) == [1]


def test_large_arguments_and_results():
    data = os.urandom(3 << 20)
    assert sooner.get(identity.remote(data), timeout=WAIT) == data


def test_an_error_of_an_argument_reaches_the_task_that_needs_it():
    @sooner.remote
    def fails():
        raise ZeroDivisionError("deep down")

    with pytest.raises(ZeroDivisionError, match="deep down") as caught:
        sooner.get(identity.remote(identity.remote(fails.remote())), timeout=WAIT)
    assert isinstance(caught.value, TaskError)


@pytest.mark.api("task.max_retries")
def test_user_errors_are_not_retried_by_default(tmp_path):
    marks = tmp_path / "marks"

    @sooner.remote(max_retries=5)
    def fails():
        with marks.open("a") as file:
            file.write("x")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        sooner.get(fails.remote(), timeout=WAIT)
    assert marks.read_text() == "x"


@pytest.mark.api("task.retry_exceptions")
@pytest.mark.parametrize("which", [True, [OSError, ValueError]], ids=["any", "listed"])
def test_retry_exceptions(tmp_path, which):
    marks = tmp_path / "marks"

    @sooner.remote(max_retries=2, retry_exceptions=which)
    def flaky(path):
        with path.open("a") as file:
            file.write("x")
        if len(path.read_text()) < 3:
            raise ValueError("again")
        return "done"

    assert sooner.get(flaky.remote(marks), timeout=WAIT) == "done"
    assert marks.read_text() == "xxx"


@pytest.mark.api("task.retry_exceptions")
def test_retry_exceptions_ends_at_max_retries(tmp_path):
    marks = tmp_path / "marks"

    @sooner.remote(max_retries=2, retry_exceptions=True)
    def fails():
        with marks.open("a") as file:
            file.write("x")
        raise ValueError("always")

    with pytest.raises(ValueError, match="always"):
        sooner.get(fails.remote(), timeout=WAIT)
    assert marks.read_text() == "xxx"


@pytest.mark.api("task.retry_exceptions")
def test_retry_exceptions_leaves_other_classes_alone(tmp_path):
    marks = tmp_path / "marks"

    @sooner.remote(max_retries=5, retry_exceptions=[KeyError])
    def fails():
        with marks.open("a") as file:
            file.write("x")
        raise ValueError("another")

    with pytest.raises(ValueError, match="another"):
        sooner.get(fails.remote(), timeout=WAIT)
    assert marks.read_text() == "x"


def test_a_class_of_this_module_travels():
    assert sooner.get(identity.remote(Point(1, 2)), timeout=WAIT) == Point(1, 2)


class Point:
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __eq__(self, other):
        return (self.x, self.y) == (other.x, other.y)

    __hash__ = None


def test_the_working_directory_is_the_drivers():
    @sooner.remote
    def where():
        return Path.cwd()

    assert sooner.get(where.remote(), timeout=WAIT) == Path.cwd()


def test_a_generator_object_is_not_a_value():
    @sooner.remote
    def generates():
        return (n for n in range(3))

    with pytest.raises(TypeError, match="generator"):
        sooner.get(generates.remote(), timeout=WAIT)


def test_an_async_function_is_refused():
    async def f():
        pass

    with pytest.raises(ValueError, match="async"):
        sooner.remote(f)


@pytest.mark.api("remote")
@pytest.mark.parametrize("target", [3, "f", None], ids=repr)
def test_only_functions_and_classes_can_be_remote(target):
    with pytest.raises(TypeError):
        sooner.remote(target)


def test_a_remote_function_of_a_remote_function_is_refused():
    with pytest.raises(TypeError, match="already"):
        sooner.remote(add)
