"""Bad input, from the list "bad input and failure": each item ends in a clear typed error, and nothing is
lost or left.

One section for each item, in its words; `test_failure_list.py` has the failures.
"""

from __future__ import annotations

import gc
import mmap
import os
import shutil
import sys
import tempfile
import threading

import numpy as np
import pytest
from support import WAIT, is_alive, poll, run_driver

import sooner
from sooner.exceptions import (
    ActorDiedError,
    GetTimeoutError,
    ObjectStoreFullError,
    TaskError,
    UnserializableException,
    WorkerCrashedError,
)

pytestmark = pytest.mark.usefixtures("shared_session")


@sooner.remote
def identity(value):
    return value


class Holder:
    """Something that cannot be pickled lies two attributes deep."""

    def __init__(self):
        self.parts = {"guard": threading.Lock()}


@sooner.remote
class Plain:
    def __init__(self, first=None):
        self.first = first

    def echo(self, value):
        return value

    def pid(self):
        return os.getpid()


@pytest.fixture(autouse=True)
def the_session_still_works():
    """Whatever a test did, afterwards tasks run."""
    yield
    assert sooner.get([identity.remote(n) for n in range(4)], timeout=WAIT) == [0, 1, 2, 3]


# --- an argument, closure or result that cannot be pickled (name the attribute
# path) --------------------------------


@pytest.mark.parametrize(
    ("submit", "words"),
    [
        (lambda: identity.remote(Holder()), "parts.*guard"),
        (lambda: identity.remote(value=Holder()), "value.*parts.*guard"),
        (lambda: identity.remote([1, {"key": Holder()}]), "key.*parts.*guard"),
        (lambda: Plain.remote(Holder()), "parts.*guard"),
        (lambda: sooner.put({"deep": (Holder(),)}), "deep.*parts.*guard"),
        (lambda: Plain.remote().echo.remote(Holder()), "parts.*guard"),
    ],
    ids=["argument", "keyword", "nested", "constructor", "put", "method"],
)
def test_an_argument_that_cannot_be_pickled(submit, words):
    """An argument that cannot be pickled (name the attribute path)."""
    with pytest.raises(TypeError, match=f"(?s){words}"):
        submit()


def test_a_closure_that_cannot_be_pickled():
    """A closure that cannot be pickled (name the attribute path)."""
    holder = Holder()

    @sooner.remote
    def uses_it():
        return holder

    with pytest.raises(TypeError, match=r"(?s)holder.*parts.*guard"):
        uses_it.remote()


def test_a_default_argument_that_cannot_be_pickled():
    """A closure that cannot be pickled: a default argument belongs to the function."""

    def uses_it(lock=threading.Lock()):  # noqa: B008
        return lock

    with pytest.raises(TypeError, match=r"(?s)lock"):
        sooner.remote(uses_it).remote()


def test_a_class_whose_closure_cannot_be_pickled():
    """A closure that cannot be pickled, in a method of an actor class."""
    holder = Holder()

    @sooner.remote
    class Uses:
        def it(self):
            return holder

    with pytest.raises(TypeError, match=r"(?s)holder.*guard"):
        Uses.remote()


@pytest.mark.parametrize("where", ["task", "actor", "second of two"])
def test_a_result_that_cannot_be_pickled(where):
    """A result that cannot be pickled (name the attribute path)."""

    @sooner.remote
    class Gives:
        def it(self):
            return {"answer": Holder()}

        def ok(self):
            return "ok"

    @sooner.remote
    def gives():
        return {"answer": Holder()}

    @sooner.remote(num_returns=2)
    def gives_two():
        return "fine", {"answer": Holder()}

    actor = Gives.remote()
    if where == "second of two":
        _, ref = gives_two.remote()
    else:
        ref = gives.remote() if where == "task" else actor.it.remote()
    with pytest.raises(TypeError, match=r"(?s)answer.*parts.*guard"):
        sooner.get(ref, timeout=WAIT)
    assert sooner.get(actor.ok.remote(), timeout=WAIT) == "ok"


def test_a_value_whose_pickling_raises():
    """An argument that cannot be pickled, by an error of its own."""

    class Refuses:
        def __reduce__(self):
            raise LookupError("I stay here")

    with pytest.raises((TypeError, LookupError), match="I stay here"):
        identity.remote(Refuses())


def test_a_value_that_cannot_be_unpickled():
    """An argument that pickles here and fails to come back there."""

    class Falls:
        def __reduce__(self):
            return int, ("not a number",)

    with pytest.raises(ValueError, match="not a number") as caught:
        sooner.get(identity.remote(Falls()), timeout=WAIT)
    assert isinstance(caught.value, TaskError)
    with pytest.raises(ValueError, match="not a number"):
        sooner.get(sooner.put(Falls()))


def test_arguments_that_were_refused_hold_no_references():
    """Nothing is leaked by a call that was refused: the objects its arguments named are freed."""
    actor = Plain.remote()
    actor_pid = sooner.get(actor.pid.remote(), timeout=WAIT)
    with pytest.raises(TypeError):
        identity.remote([actor, Holder()])
    del actor
    poll("the actor ends with its last handle", lambda: gc.collect() >= 0 and not is_alive(actor_pid))


# --- a function that raises, also with an exception that cannot be pickled or whose class is
# missing -----------------


def test_a_function_that_raises():
    """A function that raises: sooner's class and the cause's class, with the remote traceback."""

    class Special(LookupError):
        def __init__(self, code):
            super().__init__(f"code {code}")
            self.code = code

    @sooner.remote
    def culprit():
        raise Special(7)

    with pytest.raises(LookupError) as caught:
        sooner.get(culprit.remote(), timeout=WAIT)
    error = caught.value
    assert isinstance(error, TaskError)
    assert type(error).__name__ == "TaskError(Special)"
    assert error.cause.code == 7
    assert "raise Special(7)" in str(error)
    assert "culprit" in str(error)


def test_the_remote_traceback_shows_nested_tasks():
    """A function that raises, two tasks deep: both places are named."""

    @sooner.remote
    def inner():
        raise KeyError("at the bottom")

    @sooner.remote
    def outer():
        return sooner.get(inner.remote())

    with pytest.raises(KeyError) as caught:
        sooner.get(outer.remote(), timeout=WAIT)
    assert "inner" in str(caught.value)
    assert "outer" in str(caught.value)


@pytest.mark.parametrize(
    "make", [SystemExit, KeyboardInterrupt, GeneratorExit, BaseException], ids=lambda c: c.__name__
)
def test_a_function_that_raises_what_is_no_exception(make):
    """A function that raises something that is not an `Exception`."""

    @sooner.remote(max_retries=0)
    def raises():
        raise make("on purpose")

    # The first ends the worker, the second the task.
    expected = {SystemExit: WorkerCrashedError, KeyboardInterrupt: sooner.exceptions.TaskCancelledError}
    with pytest.raises(expected.get(make, TaskError)) as caught:
        sooner.get(raises.remote(), timeout=WAIT)
    assert make in expected or "on purpose" in str(caught.value)


def test_an_exception_group():
    """A function that raises an exception group."""

    @sooner.remote
    def raises():
        raise ExceptionGroup("several", [ValueError("a"), KeyError("b")])

    with pytest.raises(TaskError) as caught:
        sooner.get(raises.remote(), timeout=WAIT)
    assert [type(one) for one in caught.value.cause.exceptions] == [ValueError, KeyError]


def test_an_exception_that_cannot_be_pickled():
    """An exception that cannot be pickled: its words arrive."""

    @sooner.remote
    def raises():
        error = ValueError("the words arrive")
        error.guard = threading.Lock()
        raise error

    with pytest.raises(TaskError, match="the words arrive") as caught:
        sooner.get(raises.remote(), timeout=WAIT)
    assert isinstance(caught.value.cause, ValueError | UnserializableException)


def test_an_exception_whose_constructor_takes_other_arguments():
    """An exception that pickle restores wrongly."""

    class Odd(Exception):
        def __init__(self, *, code, reason):
            super().__init__(f"{code}: {reason}")
            self.code = code

    @sooner.remote
    def raises():
        raise Odd(code=5, reason="odd")

    with pytest.raises(TaskError, match="5: odd"):
        sooner.get(raises.remote(), timeout=WAIT)


def test_an_exception_whose_text_raises():
    """An exception that fails when it is shown."""

    class Shy(Exception):
        def __str__(self):
            raise RuntimeError("no text")

        __repr__ = __str__

    @sooner.remote
    def raises():
        raise Shy

    with pytest.raises(TaskError, match="Shy"):
        sooner.get(raises.remote(), timeout=WAIT)


def test_an_exception_whose_class_is_missing_on_the_other_side():
    """An exception whose class is missing on the other side: its words arrive."""

    @sooner.remote
    def raises():
        import types

        module = types.ModuleType("only_over_there")
        sys.modules[module.__name__] = module
        exec("class Strange(Exception): pass", vars(module))
        raise module.Strange("the words arrive")

    with pytest.raises(TaskError, match="the words arrive") as caught:
        sooner.get(raises.remote(), timeout=WAIT)
    assert "Strange" in str(caught.value)


def test_an_exception_as_large_as_a_house():
    """An exception that drags megabytes along."""

    @sooner.remote
    def raises():
        raise ValueError("x" * (8 << 20), b"y" * (8 << 20))

    with pytest.raises(TaskError):
        sooner.get(raises.remote(), timeout=WAIT)


def test_a_recursion_without_end():
    """A function that raises from deep down: the traceback stays readable."""

    @sooner.remote
    def deeper(n):
        return deeper._function(n + 1)

    with pytest.raises(RecursionError) as caught:
        sooner.get(deeper.remote(0), timeout=WAIT)
    assert len(str(caught.value)) < 1 << 20


# --- a ref from an earlier
# `init` ------------------------------------------------------------------------------------


def test_a_ref_from_an_earlier_init():
    """A ref from an earlier `init`: every use of it says so."""
    done = run_driver(
        """
        import asyncio, pickle, sooner
        @sooner.remote
        def f(x):
            return x
        @sooner.remote
        class A:
            def f(self):
                return 1
        sooner.init(num_cpus=1)
        refs = [sooner.put(1), f.remote(2), sooner.put(b"x" * (1 << 20)), f.remote(b"x" * (1 << 20))]
        sooner.get(refs)
        refs.append(f.remote(3))
        actor = A.remote()
        sooner.get(actor.f.remote())
        sooner.shutdown()
        async def wait_for(ref):
            return await ref
        def refused(use):
            try:
                use()
            except (ValueError, TypeError, sooner.exceptions.SoonerError) as error:
                assert "session" in str(error), error
            except RuntimeError as error:
                assert "not started" in str(error) and not again, error
            else:
                raise AssertionError(ref)
        for again in (False, True):
            if again:
                sooner.init(num_cpus=1)
            for ref in refs:
                for use in (
                    lambda: sooner.get(ref, timeout=30),
                    lambda: sooner.get([ref], timeout=30),
                    lambda: sooner.wait([ref], timeout=30),
                    lambda: sooner.cancel(ref),
                    lambda: f.remote(ref),
                    lambda: f.remote([ref]),
                    lambda: sooner.put([ref]),
                    lambda: pickle.dumps(ref),
                    lambda: ref.future().result(30),
                    lambda: asyncio.run(wait_for(ref)),
                ):
                    refused(use)
                assert repr(ref) and hash(ref) and ref == ref
            refused(lambda: sooner.get(actor.f.remote(), timeout=30))
            refused(lambda: sooner.kill(actor))
            refused(lambda: f.remote(actor))
        assert sooner.get(f.remote("new"), timeout=30) == "new"
        assert sooner.get(f.remote(sooner.put("put")), timeout=30) == "put"
        print("refused")
        """,
        env=os.environ | {"SOONER_ENABLE_AUTO_CONNECT": "0"},
    )
    assert done.stdout == "refused\n"


# --- a resource that can never be had (warn with what was asked and what exists; `get(timeout)` still
# ends) ----------


@pytest.mark.api("failure.infeasible")
def test_a_resource_that_can_never_be_had(caplog):
    """Warn with what was asked and what exists; `get(timeout)` still ends; others run on."""
    ref = identity.options(num_cpus=1000, resources={"unobtainium": 3}).remote(1)
    with pytest.raises(GetTimeoutError):
        sooner.get(ref, timeout=0.5)
    poll("the warning is there", lambda: "unobtainium" in caplog.text)
    for word in ("1000", "unobtainium", "3", "CPU", "2"):
        assert word in caplog.text
    assert sooner.get(identity.remote(2), timeout=WAIT) == 2
    sooner.cancel(ref)
    with pytest.raises(sooner.exceptions.TaskCancelledError):
        sooner.get(ref, timeout=WAIT)


@pytest.mark.api("failure.infeasible")
def test_an_actor_that_can_never_be_placed(caplog):
    """The same for an actor."""
    actor = Plain.options(num_gpus=8).remote()
    ref = actor.pid.remote()
    with pytest.raises(GetTimeoutError):
        sooner.get(ref, timeout=0.5)
    poll("the warning is there", lambda: "GPU" in caplog.text)
    sooner.kill(actor)
    with pytest.raises(ActorDiedError):
        sooner.get(ref, timeout=WAIT)


def test_the_warning_is_not_repeated_for_each_task(caplog):
    """Warn, but not a thousand times."""
    refs = [identity.options(resources={"onlyonce": 1}).remote(n) for n in range(1000)]
    with pytest.raises(GetTimeoutError):
        sooner.get(refs, timeout=0.5)
    assert 1 <= caplog.text.count("onlyonce") < 20
    for ref in refs:
        sooner.cancel(ref)


# --- options that do not exist or have the wrong type (name the option and what is
# allowed) --------------------------


@pytest.mark.api("task.invalid_option")
@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ({"num_cpu": 1}, "num_cpus"),
        ({"colour": "red"}, "max_retries"),
        ({"num_cpus": "two"}, "number"),
        ({"num_cpus": -1}, "number"),
        ({"num_returns": 1.5}, "int"),
        ({"num_returns": -1}, "int"),
        ({"max_retries": "many"}, "int"),
        ({"max_retries": -2}, "-1"),
        ({"resources": {"CPU": 1}}, "num_cpus"),
        ({"resources": "tape"}, "dict"),
        ({"memory": "1G"}, "bytes"),
        ({"retry_exceptions": 5}, "exception classes"),
        ({"name": 5}, "string"),
        ({"max_restarts": 1}, "actor"),
    ],
    ids=str,
)
def test_options_that_do_not_exist_or_have_the_wrong_type(options, allowed):
    """Options that do not exist or have the wrong type (name the option and what is allowed)."""
    name = next(iter(options))
    for use in (lambda: sooner.remote(**options)(lambda: 1), lambda: identity.options(**options)):
        with pytest.raises(ValueError, match=f"(?s){name}.*{allowed}"):
            use()


@pytest.mark.parametrize(
    "options", [{"max_concurrency": 0}, {"max_concurrency": "x"}, {"num_returns": 2}, {"lifetime": "eternal"}], ids=str
)
def test_options_of_actors_that_do_not_exist_or_have_the_wrong_type(options):
    """The same for actors."""
    name = next(iter(options))
    for use in (lambda: sooner.remote(**options)(type("C", (), {})), lambda: Plain.options(**options)):
        with pytest.raises(ValueError, match=name):
            use()


def test_options_of_methods_that_do_not_exist():
    """The same for methods."""
    actor = Plain.remote()
    with pytest.raises(ValueError, match="num_cpus"):
        actor.pid.options(num_cpus=1)
    with pytest.raises(ValueError, match="nonsense"):
        sooner.method(nonsense=1)
    with pytest.raises((TypeError, ValueError)):
        sooner.method()


@pytest.mark.parametrize("arguments", [(1,), ("f",), (lambda: 1, 2)], ids=["int", "text", "two"])
def test_remote_of_something_else(arguments):
    """`sooner.remote` with what is neither a function, a class nor an option."""
    with pytest.raises(TypeError, match="remote"):
        sooner.remote(*arguments)


# --- a wrong number of returns or
# arguments --------------------------------------------------------------------------


@pytest.mark.parametrize("value", [(1, 2), (1, 2, 3, 4), 5, None, []], ids=repr)
def test_a_wrong_number_of_returns(value):
    """A wrong number of returns: each of the refs says how many were expected and what came."""

    @sooner.remote(num_returns=3)
    def returns():
        return value

    for ref in returns.remote():
        with pytest.raises((ValueError, TypeError), match="3") as caught:
            sooner.get(ref, timeout=WAIT)
        assert "returns" in str(caught.value)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: identity.remote(), "identity"),
        (lambda: identity.remote(1, 2), "identity"),
        (lambda: identity.remote(values=1), "identity"),
        (lambda: identity.remote(1, value=2), "identity"),
        (lambda: Plain.remote(1, 2), "Plain"),
        (lambda: Plain.remote(second=2), "Plain"),
        (lambda: Plain.remote().echo.remote(), "echo"),
        (lambda: Plain.remote().pid.remote(1), "pid"),
    ],
)
def test_a_wrong_number_of_arguments(call, name):
    """A wrong number of arguments: refused where the call is made, by name."""
    with pytest.raises(TypeError, match=name):
        call()


# --- a put larger than the store (say how large the store is and how to change
# it) -----------------------------------

SMALL_STORE = """
import gc, time, numpy as np, sooner
sooner.init(num_cpus=2, object_store_memory=32 << 20, spill_directories=[])
full = sooner.exceptions.ObjectStoreFullError
@sooner.remote
def make(megabytes):
    return np.zeros(megabytes << 20, dtype=np.uint8)
@sooner.remote
def size(array):
    return array.nbytes
def refused(use):
    try:
        use()
    except full as error:
        assert "object_store_memory" in str(error), error
        assert any(word in str(error) for word in (str(32 << 20), "33,554,432", "32 MiB", "32.0 MiB")), error
    else:
        raise AssertionError("it was taken")
"""


@pytest.mark.api("errors.store_full")
def test_a_put_larger_than_the_store():
    """A put larger than the store (say how large the store is and how to change it)."""
    done = run_driver(
        SMALL_STORE
        + """
big = np.zeros(40 << 20, dtype=np.uint8)
refused(lambda: sooner.put(big))
refused(lambda: sooner.get(make.remote(40), timeout=60))
refused(lambda: sooner.get(size.remote(big), timeout=60))
assert sooner.get(make.remote(20), timeout=60).nbytes == 20 << 20
print("said so")
"""
    )
    assert done.stdout == "said so\n"


@pytest.mark.api("errors.store_full")
def test_puts_that_together_are_larger_than_the_store():
    """Also the sum of what is kept; when some is dropped there is room again."""
    done = run_driver(
        SMALL_STORE
        + """
one = np.ones(10 << 20, dtype=np.uint8)
kept = [sooner.put(one) for _ in range(3)]
refused(lambda: sooner.put(one))
assert all((sooner.get(ref) == 1).all() for ref in kept)
view = sooner.get(kept[0])
del kept[0]
refused(lambda: sooner.put(one))
assert (view == 1).all()
del view
gc.collect()
for _ in range(10):
    kept[0] = None
    deadline = time.monotonic() + 60
    while True:
        try:
            kept[0] = sooner.put(one)
            break
        except full:
            assert time.monotonic() < deadline
            time.sleep(0.01)
print("room again")
"""
    )
    assert done.stdout == "room again\n"


# MAP_NORESERVE, which the module has from Python 3.13 on.
NO_RESERVE = 0x4000


def test_a_put_larger_than_the_disk():
    """What neither fits into the store nor onto the disk is refused before a byte is copied."""
    size = int(sooner.cluster_resources()["object_store_memory"]) + shutil.disk_usage(tempfile.gettempdir()).total
    # Address space only: nothing is touched.
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE) as region:
        array = np.frombuffer(region, dtype=np.uint8)
        with pytest.raises(ObjectStoreFullError, match="object_store_memory"):
            sooner.put(array)
        del array
