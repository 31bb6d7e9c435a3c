"""Serializers of users, `inspect_serializability`, and cloudpickle under sooner's name."""

from __future__ import annotations

import contextlib
import copyreg
import io
import pickle
import subprocess
import sys
import threading

import pytest
from support import WAIT, run_driver

import sooner
from sooner.util import deregister_serializer, inspect_serializability, register_serializer

pytestmark = pytest.mark.usefixtures("shared_session")


class Account:
    """Cannot be pickled without help."""

    def __init__(self, balance):
        self.balance = balance
        self.lock = threading.Lock()


class Savings(Account):
    pass


@contextlib.contextmanager
def registered(cls=Account, serializer=lambda account: account.balance, deserializer=Account):
    register_serializer(cls, serializer=serializer, deserializer=deserializer)
    try:
        yield
    finally:
        deregister_serializer(cls)


def get(ref):
    return sooner.get(ref, timeout=WAIT)


def remote(function):
    """A remote function that no session has seen yet, so that it takes the registrations of now along."""
    return sooner.remote(function)


@pytest.mark.api("values.serializers")
def test_put_arguments_returns_and_closures():
    with registered():
        assert get(sooner.put(Account(1))).balance == 1
        assert get(sooner.put({"inside": [Account(2)]}))["inside"][0].balance == 2
        account = Account(3)

        @remote
        def add(other, amount):
            assert other.lock.acquire(blocking=False)
            return Account(account.balance + other.balance + amount)

        assert get(add.remote(Account(4), amount=5)).balance == 12
        # What came back may be sent again.
        assert get(add.remote(get(add.remote(Account(1), 0)), 0)).balance == 7


def test_tasks_learn_it_with_their_code():
    """The worker makes an instance without ever having received one, also two levels down."""
    with registered():

        @remote
        def make(balance):
            return Account(balance)

        @remote
        def outer(balance):
            return get(sooner.put(get(remote(lambda n: Account(n)).remote(balance))))

        @remote
        class Bank:
            def open(self, balance):
                return Account(balance)

        assert get(make.remote(8)).balance == 8
        assert get(outer.remote(9)).balance == 9
        assert get(Bank.remote().open.remote(10)).balance == 10


def test_a_worker_may_register_for_its_returns():
    @remote
    def local():
        register_serializer(Savings, serializer=lambda savings: savings.balance, deserializer=Savings)
        return Savings(5)

    came = get(local.remote())
    assert came.balance == 5
    # The registration came with the value.
    assert get(sooner.put(came)).balance == 5
    deregister_serializer(Savings)
    with pytest.raises(TypeError, match="lock"):
        sooner.put(came)


def test_without_it_the_culprit_is_named():
    with pytest.raises(TypeError, match=r"\.lock"):
        sooner.put(Account(1))


@pytest.mark.api("values.serializers")
def test_deregister():
    with registered():
        ref = sooner.put(Account(6))
    assert Account not in copyreg.dispatch_table
    # What was pickled can be read, and reading it registers nothing.
    assert get(ref).balance == 6
    with pytest.raises(TypeError, match="lock"):
        sooner.put(Account(7))
    deregister_serializer(Account)


def test_register_again_and_what_was_there_before():
    def reduce(account):
        return Account, (-account.balance,)

    copyreg.pickle(Account, reduce)
    try:
        with registered():
            register_serializer(Account, serializer=lambda account: account.balance * 10, deserializer=Account)
            assert get(sooner.put(Account(1))).balance == 10
        assert copyreg.dispatch_table[Account] is reduce
        assert get(sooner.put(Account(1))).balance == -1
    finally:
        del copyreg.dispatch_table[Account]


def test_subclasses_are_not_concerned():
    with registered(), pytest.raises(TypeError, match="lock"):
        sooner.put(Savings(1))


def test_references_inside_stay_references():
    inner = sooner.put("inner")
    with registered(serializer=lambda account: [inner, account.balance], deserializer=lambda parts: tuple(parts)):
        outer = get(sooner.put(Account(2)))
        assert outer == (inner, 2)
        assert get(remote(lambda pair: sooner.get(pair[0])).remote(Account(3))) == "inner"


def test_a_serializer_that_fails():
    def bad(account):
        raise ArithmeticError("cannot be said")

    with registered(serializer=bad), pytest.raises(TypeError, match="cannot be said"):
        sooner.put(Account(1))
    with registered(deserializer=lambda balance: balance / 0), pytest.raises(ZeroDivisionError):
        get(sooner.put(Account(1)))


@pytest.mark.api("values.serializers")
def test_register_refuses():
    with pytest.raises(TypeError, match="takes a class, not Account"):
        register_serializer(Account(1), serializer=str, deserializer=str)
    with pytest.raises(TypeError, match="takes a class, not str"):
        deregister_serializer("Account")
    for name in ("serializer", "deserializer"):
        functions = {"serializer": str, "deserializer": str, name: "no function"}
        with pytest.raises(TypeError, match=f"^{name} must be callable"):
            register_serializer(Account, **functions)
    for cls in (int, dict, list, str, type, type(lambda: 0)):
        with pytest.raises(ValueError, match="fixed form"):
            register_serializer(cls, serializer=str, deserializer=str)


def test_classes_and_functions_of_a_script():
    done = run_driver(
        """
        import threading, sooner
        from sooner.util.serialization import register_serializer

        class Account:
            def __init__(self, balance):
                self.balance, self.lock = balance, threading.Lock()

        def add(account, amount):
            return Account(account.balance + amount)

        register_serializer(Account, serializer=lambda a: a.balance, deserializer=lambda b: Account(b))
        sooner.init(num_cpus=1)
        account = sooner.get(sooner.remote(add).remote(Account(1), 2))
        print(type(account) is Account, account.balance)
        """
    )
    assert done.stdout == "True 3\n", done.stderr


def inspect(value, **options):
    out = io.StringIO()
    good, failures = inspect_serializability(value, print_file=out, **options)
    assert good == (not failures)
    return out.getvalue(), sorted(failures, key=lambda failure: failure.name)


@pytest.mark.api("values.inspect")
def test_inspect_what_is_fine(capsys):
    assert inspect_serializability([1, lambda: 2], name="values") == (True, set())
    assert capsys.readouterr().out == "values: can be pickled\n"
    assert inspect(sooner.put(1))[1] == []


@pytest.mark.api("values.inspect")
def test_inspect_finds_all_culprits():
    lock, other = threading.Lock(), threading.Lock()

    def function(file=other):
        return lock

    text, failures = inspect(function, name="function")
    assert [(failure.name, failure.obj, failure.parent) for failure in failures] == [
        ("closure variable 'lock'", lock, function),
        ("default of parameter 'file'", other, function),
    ]
    assert text.splitlines()[0].startswith("function: ")
    assert text.count("what to do: Make the lock inside") == 2


@pytest.mark.api("values.inspect")
def test_inspect_draws_a_tree():
    text, _ = inspect({"a": {"b": threading.Lock()}, "c": threading.Lock()}, name="state")
    assert text.splitlines() == [
        "state: cannot pickle '_thread.lock' object",
        "├─ ['a']: {'b': <unlocked _thread.lock object>}",
        "│  └─ ['b']: <unlocked _thread.lock object>",
        "│       cannot pickle '_thread.lock' object",
        "│       what to do: Make the lock inside the task or actor.",
        "└─ ['c']: <unlocked _thread.lock object>",
        "     cannot pickle '_thread.lock' object",
        "     what to do: Make the lock inside the task or actor.",
    ]


def test_inspect_goes_as_deep_as_it_may():
    value = {"a": {"b": {"c": {"d": threading.Lock()}}}}
    for depth, name in ((1, "['a']"), (2, "['b']"), (4, "['d']"), (9, "['d']")):
        assert [failure.name for failure in inspect(value, depth=depth)[1]] == [name]


def test_inspect_values_that_are_strange():
    loop = []
    loop += [loop, threading.Lock()]
    assert [failure.name for failure in inspect(loop)[1]] == ["[1]"]
    lock = threading.Lock()
    assert [failure.obj for failure in inspect(lock)[1]] == [lock]
    deep = []
    for _ in range(100_000):
        deep = [deep]
    text, failures = inspect(deep)
    assert len(failures) == 1
    assert "nested" in text

    class Bad:
        def __repr__(self):
            raise ValueError

        def __reduce__(self):
            raise OSError("never")

    assert "never" in inspect(Bad())[0]
    while deep:
        deep = deep[0]


def test_inspect_leaves_references_alone():
    done = run_driver(
        """
        import gc, sooner
        from sooner.util import inspect_serializability
        sooner.init(num_cpus=1, object_store_memory=8 << 20)
        for _ in range(20):
            # More than fits, if one of them was kept.
            inspect_serializability({"ref": sooner.put(bytes(3 << 20))}, name="x")
        old = sooner.put(1)
        sooner.shutdown()
        print(inspect_serializability([old], name="old")[0])
        """
    )
    assert done.stdout.splitlines()[:20] == ["x: can be pickled"] * 20
    assert done.stdout.splitlines()[-1] == "False"


@pytest.mark.parametrize("depth", [0, -1, 1.5, True, "3"], ids=repr)
def test_inspect_refuses(depth):
    with pytest.raises(ValueError, match="depth"):
        inspect_serializability(1, depth=depth)


@pytest.mark.api("values.cloudpickle")
def test_cloudpickle_under_our_name():
    from sooner import cloudpickle

    assert sooner.cloudpickle is cloudpickle
    assert cloudpickle.pickle is pickle
    assert cloudpickle.loads(cloudpickle.dumps(lambda: 5))() == 5
    file = io.BytesIO()
    cloudpickle.dump([1], file)
    file.seek(0)
    assert cloudpickle.load(file) == [1]
    assert issubclass(cloudpickle.CloudPickler, pickle.Pickler)
    assert cloudpickle.loads(cloudpickle.dumps_debug({"a": 1})) == {"a": 1}
    with pytest.raises(TypeError, match=r"the value -> \['lock'\] -> <unlocked _thread.lock object>"):
        cloudpickle.dumps_debug({"lock": threading.Lock()})


SCRIPT_WITH_DECORATORS = """
import functools, sooner

@functools.lru_cache(maxsize=None)
def factorial(n):
    return n * factorial(n - 1) if n else 1

class Frog:
    @staticmethod
    @functools.lru_cache(maxsize=8)
    def cost(n):
        return n * 2
    @functools.cached_property
    def weight(self):
        return 7
    @functools.lru_cache
    def jump(self, n):
        return n + 1

@functools.singledispatch
def kind(x):
    return "object"

@kind.register
def _(x: int):
    return "int"

sooner.init(num_cpus=1)
run = lambda function, *arguments: sooner.get(sooner.remote(function).remote(*arguments), timeout=60)
assert run(lambda: factorial(5)) == run(factorial, 5) == 120
assert factorial.cache_info().currsize == 0, "it was executed elsewhere"
assert run(lambda: Frog.cost(2)) == 4
assert run(lambda frog: (frog.jump(1), frog.weight, frog.weight), Frog()) == (2, 7, 7)
assert run(lambda: (kind(1), kind("1"))) == ("int", "object")
assert run(lambda: factorial.cache_parameters()["maxsize"]) is None
import pickle
assert run(lambda frog: type(pickle.loads(pickle.dumps(frog))) is Frog, Frog())
print("ok")
"""


def test_what_functools_makes_of_functions_of_a_script(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT_WITH_DECORATORS)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "ok\n", done.stderr
