"""Errors: the classes, the dual class of a task's error, and their way between processes.

Nothing here needs the engine.
"""

import contextlib
import copy
import dataclasses
import doctest
import errno
import functools
import importlib
import pickle
import subprocess
import sys
import textwrap
import threading
import traceback
import types

import cloudpickle
import pytest

from sooner import exceptions
from sooner._errors import packing
from sooner.exceptions import ActorDiedError, SoonerError, TaskError, UnserializableException

CLASSES = sorted(
    {cls for cls in vars(exceptions).values() if isinstance(cls, type) and issubclass(cls, SoonerError)},
    key=lambda cls: cls.__name__,
)
ARGUMENTS = {"TaskError": ("f", "Traceback ...", KeyError("k")), "SoonerSystemError": ("x",), "RpcError": ("x", 3)}


def failed(exception, name="f", **actor):
    """Return what a caller gets for an exception that a task raises."""
    try:
        raise exception
    except BaseException as error:
        return packing.unpack_task_error(
            packing.pack_task_error(error, name, 17, actor.get("repr"), actor.get("actor_id"))
        )


def in_new_process(code):
    path = [entry for entry in sys.path if entry]
    code = f"import sys; sys.path[:0] = {path!r}\n" + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# The classes


@pytest.mark.parametrize(
    "module", ["exceptions", "_errors.packing", "_errors.dual", "_errors.culprit", "_errors.traceback", "options"]
)
def test_examples_in_docstrings_hold(module):
    tried = doctest.testmod(importlib.import_module(f"sooner.{module}"))
    assert tried.failed == 0
    assert tried.attempted > 0


@pytest.mark.api("errors.base", "errors.node", "errors.unused")
@pytest.mark.parametrize("cls", CLASSES)
def test_every_class_survives_pickling(cls):
    error = cls(*ARGUMENTS.get(cls.__name__, ()))
    error.note = "kept"
    for again in (
        pickle.loads(pickle.dumps(error)),
        copy.copy(error),
        copy.deepcopy(error),
        SoonerError.from_bytes(error.to_bytes()),
    ):
        assert type(again) is cls
        assert str(again) == str(error)
        if cls is not TaskError:
            assert again.args == error.args
            assert vars(again) == vars(error)


@pytest.mark.api("errors.lost_reasons", "errors.memory", "errors.unschedulable", "errors.placement_group")
@pytest.mark.parametrize("cls", CLASSES)
def test_every_class_says_something_and_is_documented(cls):
    error = cls(*ARGUMENTS.get(cls.__name__, ()))
    assert cls.__doc__
    if cls not in (SoonerError, exceptions.UserCodeException) and cls._default_message:
        assert cls._default_message in str(error)
    assert cls.__name__ in exceptions.__all__


@pytest.mark.api("errors.base", "errors.node")
@pytest.mark.parametrize(
    ("ray", "sooner"),
    [
        ("RayError", "SoonerError"),
        ("RayTaskError", "TaskError"),
        ("RayActorError", "ActorError"),
        ("RaySystemError", "SoonerSystemError"),
        ("LocalRayletDiedError", "LocalNodeDiedError"),
        ("PlasmaObjectNotAvailable", "ObjectNotAvailableError"),
    ],
)
def test_ray_names_are_the_same_classes(ray, sooner):
    assert getattr(exceptions, ray) is getattr(exceptions, sooner)
    assert {ray, sooner} <= set(exceptions.__all__)


@pytest.mark.api("errors.lost_reasons", "errors.timeout")
@pytest.mark.parametrize(
    ("cls", "base"),
    [
        ("GetTimeoutError", TimeoutError),
        ("ActorAlreadyExistsError", ValueError),
        ("ReferenceCountingAssertionError", AssertionError),
        ("ActorDiedError", exceptions.ActorError),
        ("ActorUnavailableError", exceptions.ActorError),
        ("OwnerDiedError", exceptions.ObjectLostError),
        ("ObjectFreedError", exceptions.ObjectLostError),
        ("ObjectFetchTimedOutError", exceptions.ObjectLostError),
        ("ObjectReconstructionFailedError", exceptions.ObjectLostError),
    ],
)
def test_bases_that_programs_catch(cls, base):
    assert issubclass(getattr(exceptions, cls), base)


def test_import_is_light():
    # By its file, so that what the package itself imports does not count.
    loaded = in_new_process(f"""
        import importlib.util
        spec = importlib.util.spec_from_file_location("alone", {exceptions.__file__!r})
        module = importlib.util.module_from_spec(spec)
        before = set(sys.modules)
        spec.loader.exec_module(module)
        print(module.TaskError.__name__, *sorted(set(sys.modules) - before))
    """).split()
    assert loaded[0] == "TaskError"
    assert loaded[1:] in ([], ["__future__"])


@pytest.mark.api("errors.base")
@pytest.mark.parametrize("data", [b"", b"garbage", pickle.dumps([1]), pickle.dumps(ValueError("x"))])
def test_from_bytes_refuses_other_bytes(data):
    with pytest.raises(ValueError, match="these bytes hold"):
        SoonerError.from_bytes(data)


@pytest.mark.api("errors.base", "errors.system")
def test_from_sooner_exception():
    plain = TaskError("f", "tb", KeyError("k"))
    assert isinstance(SoonerError.from_sooner_exception(plain), KeyError)
    assert isinstance(SoonerError.from_ray_exception(plain.to_bytes()), KeyError)
    died = exceptions.NodeDiedError()
    assert SoonerError.from_sooner_exception(died) is died
    wrapped = SoonerError.from_sooner_exception(KeyError("k"))
    assert isinstance(wrapped, exceptions.UserCodeException)
    assert isinstance(wrapped.__cause__, KeyError)


# The dual class


class Plain(Exception):
    pass


class TwoArguments(Exception):
    """Takes other arguments than it passes on: the most common flaw."""

    def __init__(self, code, text):
        super().__init__(f"{code}: {text}")
        self.code = code


class Slotted(Exception):
    __slots__ = ("slot",)

    def __init__(self, slot):
        super().__init__(slot)
        self.slot = slot


class OddNew(Exception):
    def __new__(cls, *, key):
        return super().__new__(cls, key)

    def __init__(self, *, key):
        self.key = key

    def __reduce__(self):
        return functools.partial(OddNew, key=self.key), ()


class Hooked(Exception):
    seen: list = []  # noqa: RUF012

    def __init_subclass__(cls, *, required):
        Hooked.seen.append(cls)


class Meta(type):
    pass


class WithMeta(Exception, metaclass=Meta):
    pass


class Sealed(type):
    def __new__(mcs, name, bases, body, **kwargs):
        if any(isinstance(base, Sealed) for base in bases):
            raise TypeError("sealed")
        return super().__new__(mcs, name, bases, body)


class CannotBeSubclassed(Exception, metaclass=Sealed):
    pass


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    code: int


class Guarded(Exception):
    """Refuses what code does with errors on their way."""

    def __getattribute__(self, name):
        if name in ("function_name", "add_note"):
            raise AttributeError(name)
        return super().__getattribute__(name)

    def __setattr__(self, name, value):
        raise AttributeError("read-only")


class ShadowsFields(Exception):
    function_name = "class attribute"

    @property
    def cause(self):
        return "property"


class Overridden(Exception):
    level = 1

    def __init__(self, level):
        super().__init__(level)
        self.level = level

    def doubled(self):
        return self.level * 2


class HexError(OSError):
    def __init__(self, number, text, extra):
        super().__init__(number, text)
        self.extra = extra


class _Late(RuntimeError, TimeoutError):
    """Its memory is that of its second base."""


DUALS = [
    (MemoryError("no"), {}),
    (_Late("late"), {}),
    (ValueError("boom"), {"args": ("boom",)}),
    (KeyError("k"), {"args": ("k",)}),
    (FileNotFoundError(2, "missing", "a.txt"), {"errno": 2, "strerror": "missing", "filename": "a.txt"}),
    (OSError("only text"), {"errno": None, "args": ("only text",)}),
    (HexError(errno.EACCES, "no", extra=7), {"errno": errno.EACCES, "extra": 7}),
    (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), {"encoding": "utf-8", "object": b"\xff", "reason": "bad"}),
    (SyntaxError("bad", ("f.py", 3, 4, "x = = 1")), {"filename": "f.py", "lineno": 3, "msg": "bad"}),
    (ImportError("no", name="mod", path="/x"), {"name": "mod", "path": "/x"}),
    (Plain("x", 2), {"args": ("x", 2)}),
    (TwoArguments(3, "bad"), {"code": 3, "args": ("3: bad",)}),
    (Slotted([1]), {"slot": [1]}),
    (OddNew(key=5), {"key": 5}),
    (WithMeta("m"), {"args": ("m",)}),
    (Frozen(4), {"code": 4}),
    (Guarded("g"), {"args": ("g",)}),
    (Overridden(5), {"level": 5}),
    (subprocess.CalledProcessError(3, ["ls"], b"out"), {"returncode": 3, "cmd": ["ls"], "output": b"out"}),
    (ActorDiedError("gone", actor_id="0a"), {"error_msg": "gone", "actor_id": "0a"}),
    (exceptions.TaskCancelledError("0b"), {"task_id": "0b"}),
    (exceptions.GetTimeoutError("late"), {"args": ("late",)}),
]


@pytest.mark.api("errors.task")
@pytest.mark.parametrize(("cause", "attributes"), DUALS, ids=lambda value: type(value).__name__)
def test_error_is_of_the_class_of_its_cause(cause, attributes):
    error = failed(cause, "job")
    for _ in range(3):
        assert isinstance(error, TaskError)
        assert isinstance(error, type(cause))
        assert type(error).__name__ == f"TaskError({type(cause).__name__})"
        assert type(error.cause) is type(cause)
        assert error.function_name == "job"
        assert error.pid == 17
        assert "sooner::job() (pid=17" in str(error)
        assert "raise exception" in str(error)
        assert {name: getattr(error, name) for name in attributes} == attributes
        assert error in {error}
        assert f"{error}" == str(error)
        error = pickle.loads(pickle.dumps(error))


def test_dual_classes_are_cached():
    assert type(failed(Plain())) is type(failed(Plain()))
    assert type(failed(Plain())) is not type(failed(WithMeta()))


@pytest.mark.api("errors.task")
@pytest.mark.parametrize(
    "cause",
    [
        KeyboardInterrupt(),
        SystemExit(0),
        GeneratorExit(),
        StopIteration(1),
        StopAsyncIteration(),
        CannotBeSubclassed("x"),
        BaseExceptionGroup("g", [KeyboardInterrupt()]),
    ],
    ids=lambda cause: type(cause).__name__,
)
def test_plain_error_where_a_dual_one_is_impossible_or_harmful(cause):
    error = failed(cause)
    assert type(error) is TaskError
    assert type(error.cause) is type(cause)
    assert type(cause).__name__ in str(error)
    assert error.as_instanceof_cause() is error
    with pytest.raises(TypeError, match="cannot be combined"):
        error.make_dual_exception_instance()


def test_errors_of_general_classes_need_no_dual():
    for cause in (Exception("x"), SoonerError("x"), None):
        error = TaskError("f", "tb", cause)
        assert error.as_instanceof_cause() is error


def test_hooks_of_the_cause_class_do_not_run():
    assert isinstance(failed(Hooked("x")), Hooked)
    assert Hooked.seen == []


def test_fields_of_the_error_win_and_the_cause_keeps_its_own():
    error = failed(ShadowsFields("x"), "job")
    assert error.function_name == "job"
    assert isinstance(error.cause, ShadowsFields)
    assert error.cause.cause == "property"


def test_methods_and_new_instances():
    error = failed(Overridden(5))
    assert error.doubled() == 10
    again = type(error)(6)
    assert type(again) is Overridden
    assert again.level == 6
    with pytest.raises(AttributeError):
        error.nothing  # noqa: B018


def test_dual_of_a_guarded_class_can_be_changed():
    error = failed(Guarded("g"))
    error.seen = True
    error.add_note("a note")
    assert error.seen


def test_dual_can_be_raised_noted_and_chained():
    error = failed(Frozen(4))
    with pytest.raises(Frozen) as caught:
        raise error from KeyError("k")
    caught.value.add_note("later")
    assert caught.value.__notes__ == ["later"]
    assert "Frozen" in "".join(traceback.format_exception(caught.value))
    assert not hasattr(error.cause, "__notes__")


@pytest.mark.api("errors.task")
def test_exception_groups():
    error = failed(ExceptionGroup("both", [ValueError("a"), KeyError("b")]))
    assert isinstance(error, ExceptionGroup)
    assert error.message == "both"
    assert [type(part) for part in error.exceptions] == [ValueError, KeyError]
    caught = []
    try:
        raise error
    except* ValueError as group:
        caught.append(group)
    except* KeyError as group:
        caught.append(group)
    assert [repr(part) for group in caught for part in group.exceptions] == ["ValueError('a')", "KeyError('b')"]
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, ExceptionGroup)
    assert len(again.exceptions) == 2


def test_uncaught_syntax_error_shows_the_worker():
    shown = "".join(traceback.format_exception(failed(SyntaxError("bad", ("f.py", 3, 4, "x = = 1")))))
    assert "raise exception" in shown


# On the way


def test_chain_is_kept():
    def work():
        try:
            {}["missing"]
        except KeyError as error:
            error.add_note("a note")
            raise ValueError("boom") from error

    try:
        work()
    except ValueError as error:
        text = str(packing.unpack_task_error(packing.pack_task_error(error, "work", 1, None, None)))
    assert text.index("KeyError: 'missing'") < text.index("direct cause") < text.index("ValueError: boom")
    assert "a note" in text
    assert 'raise ValueError("boom")' in text


def test_nested_tasks_keep_the_innermost_cause_and_show_all_tracebacks():
    inner = failed(FileNotFoundError(2, "missing", "a.txt"), "inner")
    middle = failed(inner, "middle")
    outer = failed(middle, "Counter.add", repr="Counter(3)", actor_id="00ff")
    assert isinstance(outer, FileNotFoundError)
    assert type(outer).__name__ == "TaskError(FileNotFoundError)"
    assert type(outer.cause) is FileNotFoundError
    text = str(outer)
    places = [text.index(f"sooner::{name}()") for name in ("Counter.add", "middle", "inner")]
    assert places == sorted(places)
    assert text.splitlines()[0] == "sooner::Counter.add() (pid=17, actor_id=00ff, repr=Counter(3))"
    assert text.endswith("FileNotFoundError: [Errno 2] missing: 'a.txt'")


def test_nesting_200_deep_stays_readable():
    error = failed(ValueError("the root"), "task0")
    for depth in range(1, 200):
        error = failed(error, f"task{depth}")
    assert isinstance(error, ValueError)
    assert "task199" in str(error).splitlines()[0]
    assert str(error).endswith("ValueError: the root")


def test_frames_of_sooner_are_left_out():
    # A function that the interpreter takes for one of sooner's own, as the caller and as the callee.
    place = exceptions.__file__.replace("exceptions.py", "worker.py")
    body = "def run(f):\n    f()\ndef get(error):\n    raise error\n"
    ours = {}
    exec(compile(body, place, "exec"), ours)

    def fail():
        ours["get"](exceptions.ObjectLostError("0a"))

    try:
        ours["run"](fail)
    except SoonerError as error:
        # The frame of this test comes first; a worker's first frame is sooner's.
        error.__traceback__ = error.__traceback__.tb_next
        text = str(packing.unpack_task_error(packing.pack_task_error(error, "fail", 1, None, None)))
    assert "worker.py" not in text
    assert "in fail" in text


def test_long_messages_are_clipped_in_the_middle():
    error = failed(ValueError("a" * 1_000_000 + "the end"))
    assert len(error.traceback_str) < 200_000
    assert "characters left out" in str(error)
    assert str(error).endswith("the end")


class Locked(Exception):
    def __init__(self):
        super().__init__("locked up")
        self.lock = threading.Lock()


class Refuses(Exception):
    def __reduce__(self):
        raise RuntimeError("never")


class ReducesToOther(Exception):
    def __reduce__(self):
        return list, ()


class BadState(Exception):
    def __reduce__(self):
        return BadState, self.args, {"x": 1}

    def __setstate__(self, state):
        raise RuntimeError("no state")


class Exits(Exception):
    def __str__(self):
        raise SystemExit(3)

    __repr__ = __str__

    def __reduce__(self):
        raise KeyboardInterrupt


class Huge(Exception):
    def __init__(self):
        super().__init__("huge")
        self.data = bytes(packing.CAUSE_BYTES_MAX + 1)


@pytest.mark.api("errors.system")
@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        (Locked(), "cannot pickle '_thread.lock' object"),
        (Refuses("x"), "never"),
        (ReducesToOther("x"), "as a list"),
        (BadState("x"), "no state"),
        (Huge(), "bytes long"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_exceptions_that_cannot_travel(cause, reason):
    error = failed(cause)
    assert isinstance(error, TaskError)
    assert not isinstance(error, type(cause))
    assert isinstance(error.cause, UnserializableException)
    assert error.cause.class_name == f"{__name__}.{type(cause).__qualname__}"
    assert error.cause.original_message == str(cause)
    assert error.cause.original_repr == repr(cause)
    assert reason in error.cause.reason
    assert reason in str(error)
    assert "raise exception" in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert again.cause.class_name == error.cause.class_name


def test_exception_whose_methods_exit():
    error = failed(Exits())
    assert isinstance(error.cause, UnserializableException)
    assert error.cause.original_message == "<str() of the exception raises SystemExit>"
    assert "Exits" in str(error)


def test_constructor_with_other_arguments_than_it_passes_on_still_travels():
    class Local(OSError):
        def __init__(self, *, number):
            super().__init__(number, "text")
            self.number = number

    error = failed(Local(number=13))
    assert isinstance(error, Local)
    assert (error.number, error.errno, error.args) == (13, 13, (13, "text"))


def test_cycle_between_errors_ends():
    first, second = Plain("first"), TaskError("g", "tb", None)
    first.other, second.cause = second, first
    error = failed(first)
    assert isinstance(error, Plain)
    assert isinstance(error.other, TaskError)
    depth, link = 0, error.cause
    while isinstance(link, Plain):
        depth, link = depth + 1, link.other.cause
    assert 1 < depth < 20
    assert "too deep inside other errors" in link.reason


def test_class_that_is_missing_on_the_other_side(monkeypatch):
    module = types.ModuleType("only_on_the_worker")
    exec("class Custom(Exception): pass", module.__dict__)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "only_on_the_worker", module)
        payload = packing.pack_task_error(module.Custom("boom"), "f", 1, None, None)
        assert isinstance(packing.unpack_task_error(payload), module.Custom)
    error = packing.unpack_task_error(payload)
    assert isinstance(error, TaskError)
    assert isinstance(error.cause, UnserializableException)
    assert error.cause.class_name == "only_on_the_worker.Custom"
    assert "No module named 'only_on_the_worker'" in str(error)
    assert "boom" in str(error)


def test_class_of_the_main_program_travels_by_value():
    payload = in_new_process("""
        import sooner._errors.packing
        class Mine(Exception):
            def __init__(self, code):
                super().__init__(code)
                self.code = code
        print(sooner._errors.packing.pack_task_error(Mine(7), "f", 1, None, None).hex())
    """)
    error = packing.unpack_task_error(bytes.fromhex(payload))
    assert type(error).__name__ == "TaskError(Mine)"
    assert error.code == 7


def test_module_registered_by_value_travels_by_value(monkeypatch):
    module = types.ModuleType("mine_by_value")
    exec("class Custom(Exception): pass", module.__dict__)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "mine_by_value", module)
        cloudpickle.register_pickle_by_value(module)
        try:
            payload = packing.pack_task_error(module.Custom("boom"), "f", 1, None, None)
        finally:
            cloudpickle.unregister_pickle_by_value(module)
    assert type(packing.unpack_task_error(payload)).__name__ == "TaskError(Custom)"


GOOD = packing.pack_task_error(ValueError("x"), "f", 1, None, None)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"x",
        GOOD[:-3],
        None,
        7,
        pickle.dumps(3),
        pickle.dumps((1, 2, 3)),
        pickle.dumps((9, (), None)),
        pickle.dumps((1, ("f",), None)),
        pickle.dumps((1, ("f", "tb", None, 1, None, None, None), (1, 2))),
    ],
)
def test_garbage_gives_an_error_that_says_so(payload):
    error = packing.unpack_task_error(payload)
    assert isinstance(error, TaskError)
    assert isinstance(error.cause, UnserializableException)
    assert "cannot be read" in str(error)


def test_every_truncation_and_flip_gives_an_error():
    for index in range(len(GOOD)):
        assert isinstance(packing.unpack_task_error(GOOD[:index]), TaskError)
        flipped = bytes([*GOOD[:index], GOOD[index] ^ 0x55, *GOOD[index + 1 :]])
        assert isinstance(packing.unpack_task_error(flipped), TaskError)


CODES = {
    1: "WorkerCrashedError",
    2: "ActorDiedError",
    3: "ActorUnavailableError",
    4: "TaskCancelledError",
    5: "OwnerDiedError",
    6: "ObjectLostError",
    7: "ObjectFreedError",
    8: "ObjectStoreFullError",
    9: "OutOfMemoryError",
    10: "TaskUnschedulableError",
    11: "ActorUnschedulableError",
    12: "SoonerSystemError",
    13: "NodeDiedError",
    14: "PendingCallsLimitExceeded",
    15: "RuntimeEnvSetupError",
    16: "GetTimeoutError",
    17: "ActorAlreadyExistsError",
    18: "ActorDiedError",
    0: "SoonerSystemError",
    19: "ObjectRefStreamEndOfStreamError",
    99: "SoonerSystemError",
    -1: "SoonerSystemError",
}


@pytest.mark.api("errors.system")
@pytest.mark.parametrize("code", CODES)
def test_system_errors(code):
    error = packing.system_error(code, "what happened")
    assert type(error) is getattr(exceptions, CODES[code])
    assert "what happened" in str(error)
    assert getattr(error, "actor_init_failed", False) is (code == 18)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.api("errors.actor")
def test_actor_init_error():
    try:
        raise FileNotFoundError(2, "missing", "model.bin")
    except OSError as cause:
        payload = packing.pack_task_error(cause, "Model.__init__", 5, None, "0a0b")
    error = packing.actor_init_error(payload, "Model")
    for again in (error, pickle.loads(pickle.dumps(error))):
        assert type(again) is ActorDiedError
        assert again.actor_init_failed
        assert again.actor_id == "0a0b"
        assert isinstance(again.__cause__, TaskError)
        assert isinstance(again.__cause__, FileNotFoundError)
        assert isinstance(again.cause, FileNotFoundError)
        assert "Model died because its constructor raised" in str(again)
        assert 'raise FileNotFoundError(2, "missing"' in str(again)
    garbage = packing.actor_init_error(b"x", "Model")
    assert garbage.actor_init_failed
    assert "cannot be read" in str(garbage)


# What cannot be pickled

LOCK = threading.Lock()
SHOWN = "<unlocked _thread.lock object>"


class Model:
    def __init__(self):
        self.parts = {"lock": LOCK}


class SlottedModel:
    __slots__ = ("lock",)

    def __init__(self):
        self.lock = LOCK


class WithState:
    def __getstate__(self):
        return {"handle": LOCK}


class WithReduce:
    def __init__(self):
        self.handle = LOCK

    def __reduce__(self):
        return WithReduce, (self.handle,)


class BrokenReduce:
    def __reduce__(self):
        raise RuntimeError("not me")

    def __repr__(self):
        raise RuntimeError("not me either")


@dataclasses.dataclass
class Record:
    number: int
    models: list


Pair = __import__("collections").namedtuple("Pair", "left right")


def closure():
    guard = LOCK
    return lambda: guard


def with_default():
    return lambda x=1, y=LOCK, *, z=2: x


def with_global():
    # cloudpickle sends functions of the main program by value, with the globals they name.
    scope = {"__name__": "__main__", "GUARD": LOCK}
    exec("def work():\n    def deeper():\n        return GUARD\n    return deeper", scope)
    return scope["work"]


def cyclic():
    ring = []
    ring.append(ring)
    ring.append(Model())
    return ring


def deep():
    nest = []
    for _ in range(100_000):
        nest = [nest]
    return nest


CULPRITS = [
    (LOCK, SHOWN),
    (Model(), f".parts -> ['lock'] -> {SHOWN}"),
    (SlottedModel(), f".lock -> {SHOWN}"),
    (Record(1, [0, Model()]), f".models -> [1] -> .parts -> ['lock'] -> {SHOWN}"),
    (Pair(1, (LOCK,)), f".right -> [0] -> {SHOWN}"),
    ({"a": {2: LOCK}}, f"['a'] -> [2] -> {SHOWN}"),
    ({LOCK: 1}, f"a key -> {SHOWN}"),
    ({LOCK}, f"an element -> {SHOWN}"),
    (WithState(), f".handle -> {SHOWN}"),
    (WithReduce(), f".handle -> {SHOWN}"),
    (BrokenReduce(), "<BrokenReduce object>"),
    (closure(), f"closure variable 'guard' -> {SHOWN}"),
    (with_default(), f"default of parameter 'y' -> {SHOWN}"),
    (with_global(), f"global 'GUARD' -> {SHOWN}"),
    (functools.partial(print, 1, key=LOCK), f".keywords['key'] -> {SHOWN}"),
    (Model().__init__, f".__self__ -> .parts -> ['lock'] -> {SHOWN}"),
    (cyclic(), f"[1] -> .parts -> ['lock'] -> {SHOWN}"),
    ([i for i in range(3000)] + [LOCK], f"[3000] -> {SHOWN}"),  # noqa: C416
    ((x for x in []), "<generator object <genexpr>>"),
]


def explained(value, what="argument 0"):
    with pytest.raises(Exception) as caught:  # noqa: PT011
        cloudpickle.dumps(value)
    error = packing.explain_pickle_failure(value, caught.value, what)
    assert type(error) is TypeError
    assert error.__cause__ is caught.value
    return str(error).splitlines()


@pytest.mark.api("own.culprits")
@pytest.mark.parametrize(("value", "path"), CULPRITS, ids=[path for _, path in CULPRITS])
def test_culprits_are_found(value, path):
    first, where, advice = explained(value)
    assert first.startswith("argument 0 cannot be pickled: ")
    assert where == f"  where: argument 0 -> {path}"
    assert advice.startswith("  what to do: ")


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        (LOCK, "Make the lock inside"),
        ((x for x in []), "Pass a list of its items"),
        (sys._getframe(), "traceback.format_exception"),
        (BrokenReduce(), "__getstate__"),
    ],
)
def test_advice_fits_the_culprit(value, advice):
    assert advice in explained(value)[2]


def test_open_file_and_socket():
    import socket

    with socket.socket() as connection, contextlib.closing(connection):
        assert "Open the connection inside" in explained([connection])[2]
    with open(__file__, "ab") as file:
        _, where, advice = explained({"out": file})
    assert "['out'] -> <_io.BufferedWriter" in where
    assert "open the file inside" in advice


def test_too_deep_nesting_is_named_as_such():
    first, where, advice = explained(deep())
    assert "nested too deeply" in first
    assert len(where) < 300
    assert "Flatten" in advice


def test_search_is_bounded():
    lines = explained([Model() if index == 20_000 else object() for index in range(30_000)])
    assert "the search ended after" in lines[3]
    assert "attempts" in lines[3]
    chain = LOCK
    for _ in range(60):
        chain = [chain]
    assert "depth of 40" in explained(chain)[3]


def test_a_failure_that_cannot_be_repeated_is_still_told():
    error = packing.explain_pickle_failure([1], RuntimeError("the engine says no"), "the result of f()")
    assert str(error).splitlines()[:2] == [
        "the result of f() cannot be pickled: the engine says no",
        "  where: the result of f() -> [1]",
    ]
