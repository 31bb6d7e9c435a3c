"""Errors on their way between processes. The engine calls the functions of this module, users never do.

A failing task: the worker packs the exception (`pack_task_error`), the caller unpacks it
    (`unpack_task_error`).
A failing system: the engine has a code and a text and asks for the instance (`system_error`).
A value that cannot be pickled: `explain_pickle_failure` finds the culprit inside it.

Invariants:
    1. `pack_task_error` and `unpack_task_error` never raise, whatever the exception's class does.
    2. The packed form is a pickle of plain values; the cause is one byte string in it. So all but the
       cause can be read everywhere, and the cause is loaded last and may fail alone.
"""

from __future__ import annotations

import pickle
import sys
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from sooner import _sooner
from sooner._errors.culprit import explain_pickle_failure
from sooner._errors.traceback import clip, describe, format_error
from sooner.exceptions import (
    ActorAlreadyExistsError,
    ActorDiedError,
    ActorPlacementGroupRemoved,
    ActorUnavailableError,
    ActorUnschedulableError,
    GetTimeoutError,
    NodeDiedError,
    ObjectFreedError,
    ObjectLostError,
    ObjectReconstructionFailedError,
    ObjectReconstructionFailedLineageEvictedError,
    ObjectRefStreamEndOfStreamError,
    ObjectStoreFullError,
    OutOfDiskError,
    OutOfMemoryError,
    OwnerDiedError,
    PeerUnreachableError,
    PendingCallsLimitExceeded,
    RuntimeEnvSetupError,
    SoonerSystemError,
    TaskCancelledError,
    TaskError,
    TaskPlacementGroupRemoved,
    TaskUnschedulableError,
    UnserializableException,
    WorkerCrashedError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "actor_init_error",
    "argument_error",
    "explain_pickle_failure",
    "pack_task_error",
    "reduce_task_error",
    "system_error",
    "unpack_task_error",
]

_VERSION = 1

# The largest cause that is sent (bytes), well below a frame's limit. A larger one has data in it by accident.
CAUSE_BYTES_MAX = 16 << 20

# How deep errors inside errors are packed, each on its own. This also ends cycles among them.
_NESTING_MAX = 8


# Arguments are listed in the error if one has at least this size (bytes), and at most so many of them.
_LARGE_ARGUMENT = 1000
_ARGUMENTS_SHOWN = 8

_PACKAGE = __file__.removesuffix("_errors/packing.py")


class _Nesting(threading.local):
    depth = 0


_nesting = _Nesting()


class PackedCause(NamedTuple):
    """An exception as bytes, and in words for when the bytes cannot be loaded.

    Attributes:
        class_name: Module and qualified name of the class.
        original_repr: `repr()` of the exception.
        original_message: `str()` of the exception.
        reason: Why there are no bytes; empty if there are.
        data: The pickled exception, or None.
    """

    class_name: str
    original_repr: str
    original_message: str
    reason: str
    data: bytes | None


def pack_task_error(
    exception: BaseException,
    function_name: str,
    pid: int,
    actor_repr: str | None,
    actor_id: str | None,
    notes: str = "",
) -> bytes:
    """Pack an exception of user code for the caller. Never raises.

    Args:
        exception: What user code raised, with its traceback.
        function_name: The task's function, or `Class.method`.
        pid: Process id of this worker.
        actor_repr: `repr()` of the actor, None in a task.
        actor_id: Id of the actor (hex), None in a task.
        notes: Whole lines about the call, shown above the traceback.

    Returns:
        Bytes for `unpack_task_error`.

    Example:
        >>> payload = pack_task_error(ValueError("boom"), "f", 17, None, None)
        >>> unpack_task_error(payload).cause
        ValueError('boom')
    """
    try:
        traceback_str = notes + format_error(exception)
        cause = _innermost(exception)
        packed = None if cause is None else _pack_cause(cause)
        return _dump(function_name, traceback_str, packed, None, pid, None, actor_repr, actor_id)
    except BaseException as failure:
        text = f"{describe(exception)[1]}\n(its traceback could not be packed: {type(failure).__name__})"
        lost = PackedCause(type(exception).__name__, "", "", f"packing it raised {type(failure).__name__}", None)
        return _dump(str(function_name), text, lost, None, pid, None, None, actor_id)


def call_notes(sizes: list[tuple[str, int]], site: str | None) -> str:
    """Return lines that describe a call: the sizes of its arguments if one is large, and where it was made.

    Example:
        >>> print(call_notes([("0", 8_000_000), ("mode", 3)], "train.py:41 in main"), end="")
          arguments: 0: 8.0 MB, mode: 3 B
          submitted at train.py:41 in main
    """
    text = ""
    if any(size >= _LARGE_ARGUMENT for _, size in sizes):
        shown = [f"{name}: {_bytes(size)}" for name, size in sizes[:_ARGUMENTS_SHOWN]]
        rest = len(sizes) - len(shown)
        text += f"  arguments: {', '.join(shown)}{f' and {rest} more' if rest else ''}\n"
    return text if site is None else f"{text}  submitted at {site}\n"


def _bytes(size: int) -> str:
    amount = float(size)
    for unit in ("B", "kB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"


def call_site() -> str:
    """Return the line of user code that makes a call, for errors."""
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"


def unpack_task_error(payload: bytes) -> TaskError:
    """Return the error that `pack_task_error` packed, as an instance of the cause's class where possible.

    Never raises. If the cause cannot be restored, the error's text says so and its `cause` is an
    `UnserializableException`.
    """
    try:
        error = _load(payload)
    except BaseException as failure:
        reason = f"the bytes that describe it cannot be read: {describe(failure)[1]}"
        text = f"The task raised an exception, but {reason}."
        error = TaskError("(unknown)", text, UnserializableException(reason=reason))
    try:
        return error.as_instanceof_cause()
    except BaseException:
        return error


def actor_init_error(payload: bytes, class_name: str) -> ActorDiedError:
    """Return the error for calls to an actor whose constructor raised.

    Args:
        payload: The constructor's exception from `pack_task_error`.
        class_name: The actor's class.

    Example:
        >>> error = actor_init_error(pack_task_error(ValueError("boom"), "A.__init__", 17, None, "0a"), "A")
        >>> error.actor_init_failed, error.actor_id, error.cause.cause
        (True, '0a', ValueError('boom'))
    """
    cause = unpack_task_error(payload)
    message = f"The actor {class_name} died because its constructor raised:\n{cause}"
    return ActorDiedError(cause, error_msg=message)


def argument_error(code: int, message: str, task: bytes) -> BaseException:
    """Return the error of a task that did not run because an argument is lost: it has the class of the loss.

    Example:
        >>> error = argument_error(5, "its owner is gone", b"train")
        >>> isinstance(error, TaskError), isinstance(error, OwnerDiedError)
        (True, True)
    """
    name = task.decode(errors="replace")
    cause = system_error(code, message)
    text = f"{name}() did not run: an argument of it is lost.\n{type(cause).__name__}: {message}"
    return TaskError(name, text, cause).as_instanceof_cause()


def system_error(code: int, message: str) -> BaseException:
    """Return the error for a failure of the engine. The codes are those of `FailureCode` in `sooner-wire`.

    Example:
        >>> system_error(1, "worker 17 was killed")
        WorkerCrashedError('worker 17 was killed')
    """
    make = _SYSTEM_ERRORS.get(_sooner.FAILURES[code]) if 0 <= code < len(_sooner.FAILURES) else None
    if make is None:
        return SoonerSystemError(f"{message} (failure code {code}, which this version does not know)")
    return make(message)


def _actor_init_failed(message: str) -> BaseException:
    return ActorDiedError(error_msg=message, actor_init_failed=True)


_SYSTEM_ERRORS: dict[str, Callable[[str], BaseException]] = {
    "WORKER_DIED": WorkerCrashedError,
    "ACTOR_DIED": ActorDiedError,
    "ACTOR_UNAVAILABLE": ActorUnavailableError,
    "TASK_CANCELLED": lambda message: TaskCancelledError(error_message=message),
    "OWNER_DIED": lambda message: OwnerDiedError(message=message),
    "OBJECT_LOST": lambda message: ObjectLostError(message=message),
    "OBJECT_FREED": lambda message: ObjectFreedError(message=message),
    "OBJECT_STORE_FULL": ObjectStoreFullError,
    "OUT_OF_MEMORY": OutOfMemoryError,
    "TASK_UNSCHEDULABLE_ERROR": TaskUnschedulableError,
    "ACTOR_UNSCHEDULABLE_ERROR": ActorUnschedulableError,
    "SYSTEM_ERROR": SoonerSystemError,
    "NODE_DIED": NodeDiedError,
    "PENDING_CALLS_LIMIT": PendingCallsLimitExceeded,
    "RUNTIME_ENV_SETUP_FAILED": RuntimeEnvSetupError,
    "GET_TIMEOUT": GetTimeoutError,
    "ACTOR_NAME_TAKEN": ActorAlreadyExistsError,
    "ACTOR_INIT_FAILED": _actor_init_failed,
    "END_OF_STREAM": ObjectRefStreamEndOfStreamError,
    "OBJECT_RECONSTRUCTION_FAILED": lambda message: ObjectReconstructionFailedError(message=message),
    "OBJECT_RECONSTRUCTION_FAILED_LINEAGE_EVICTED": lambda message: ObjectReconstructionFailedLineageEvictedError(
        message=message
    ),
    "TASK_PLACEMENT_GROUP_REMOVED": TaskPlacementGroupRemoved,
    "ACTOR_PLACEMENT_GROUP_REMOVED": ActorPlacementGroupRemoved,
    "PEER_UNREACHABLE": lambda message: PeerUnreachableError(message=message),
    "OUT_OF_DISK": OutOfDiskError,
}


def reduce_task_error(error: TaskError) -> tuple[Any, ...]:
    """Return how pickle rebuilds a `TaskError`, dual or not, whatever its cause.

    Example:
        >>> make, arguments = reduce_task_error(TaskError("f", "Traceback ...", ValueError("boom")))
        >>> make(*arguments).cause
        ValueError('boom')
    """
    payload = _dump(
        error.function_name,
        error.traceback_str,
        None if error.cause is None else _pack_cause(error.cause),
        error.proctitle,
        error.pid,
        error.ip,
        error.actor_repr,
        error.actor_id,
    )
    base = TaskError if error._sooner_dual_of is not None else type(error)
    # A plain error of a subclass keeps its class; a dual one is made again from the cause that arrives.
    return _rebuild_task_error, (base, payload, error._sooner_dual_of is not None)


def _rebuild_task_error(cls: type[TaskError], payload: bytes, dual: bool) -> TaskError:
    if dual:
        return unpack_task_error(payload)
    return _load(payload, cls)


def _innermost(exception: BaseException) -> BaseException | None:
    """Return the original exception, below the `TaskError`s of nested tasks."""
    cause: BaseException | None = exception
    for _ in range(1000):
        if not isinstance(cause, TaskError):
            break
        cause = cause.cause
    return cause


def _dump(
    function_name: str,
    traceback_str: str,
    cause: PackedCause | None,
    proctitle: str | None,
    pid: int | None,
    ip: str | None,
    actor_repr: str | None,
    actor_id: str | None,
) -> bytes:
    fields = (function_name, clip(traceback_str), proctitle, pid, ip, actor_repr and clip(actor_repr, 1000), actor_id)
    return pickle.dumps((_VERSION, fields, None if cause is None else tuple(cause)), protocol=5)


def _load(payload: bytes, cls: type[TaskError] = TaskError) -> TaskError:
    version, fields, packed = pickle.loads(payload)
    if version != _VERSION:
        raise ValueError(f"it has format {version}, this version of sooner reads format {_VERSION}")
    function_name, traceback_str, proctitle, pid, ip, actor_repr, actor_id = fields
    cause = None if packed is None else _unpack_cause(PackedCause(*packed))
    if isinstance(cause, UnserializableException) and cause.reason and cause.reason not in traceback_str:
        traceback_str += f"\n(the exception itself could not be sent here: {cause.reason})"
    error = cls.__new__(cls)
    TaskError.__init__(error, function_name, traceback_str, cause, proctitle, pid, ip, actor_repr, actor_id)
    return error


def _pack_cause(cause: BaseException) -> PackedCause:
    class_name, message, text = describe(cause)
    if _nesting.depth >= _NESTING_MAX:
        return PackedCause(class_name, text, message, "it lies too deep inside other errors", None)
    _nesting.depth += 1
    try:
        data = _pickle_cause(cause)
    except BaseException as failure:
        return PackedCause(class_name, text, message, describe(failure)[1], None)
    finally:
        _nesting.depth -= 1
    if len(data) > CAUSE_BYTES_MAX:
        reason = f"it is {len(data):,} bytes long, more than the {CAUSE_BYTES_MAX:,} bytes that an error may have"
        return PackedCause(class_name, text, message, reason, None)
    return PackedCause(class_name, text, message, "", data)


def _pickle_cause(cause: BaseException) -> bytes:
    """Pickle an exception, and check that it can be unpickled.

    The last way is for the most common flaw: a constructor that takes other arguments than it passes on.
    """
    from sooner._values.pickling import dumps  # start-up: 30.5 ms

    ways: list[Callable[[], bytes]] = [lambda: dumps(cause)]
    if _is_plain(type(cause)):
        fields = {name: value for name, value in cause.__dict__.items() if not name.startswith("__")}
        ways.append(lambda: dumps(_Rebuilt(type(cause), cause.args, fields)))
    failures: list[BaseException] = []
    for way in ways:
        try:
            data = way()
            if type(_load_cause(data)).__qualname__ != type(cause).__qualname__:
                raise TypeError("it comes back from pickling as an instance of another class")
            return data
        except BaseException as failure:
            failures.append(failure)
    # The first failure tells what is wrong with the exception as it is.
    raise failures[0]


def _load_cause(data: bytes) -> BaseException:
    cause = pickle.loads(data)
    if not isinstance(cause, BaseException):
        raise TypeError(f"it comes back from pickling as a {type(cause).__name__}")
    return cause


def _unpack_cause(packed: PackedCause) -> BaseException:
    reason = packed.reason
    if packed.data is not None:
        try:
            return _load_cause(packed.data)
        except BaseException as failure:
            reason = f"it cannot be restored in this process: {describe(failure)[1]}"
    return UnserializableException(
        class_name=packed.class_name,
        original_repr=packed.original_repr,
        original_message=packed.original_message,
        reason=reason,
    )


class _Rebuilt:
    """Pickles as an exception that is made from class, arguments and fields, without its constructor."""

    def __init__(self, *parts: object) -> None:
        self._parts = parts

    def __reduce__(self) -> tuple[Any, ...]:
        from sooner._errors.dual import restored_blank  # start-up: 1.9 ms

        return restored_blank, self._parts


def _is_plain(cls: type) -> bool:
    """Tell whether a class leaves pickling to BaseException: arguments and fields are its whole state."""
    hooks = ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__")
    for base in cls.__mro__:
        if base.__module__ == "builtins":
            # Groups need their constructor; C fields beyond those of OSError would be lost.
            return base in (Exception, BaseException) or issubclass(base, OSError)
        if any(hook in vars(base) for hook in hooks) or vars(base).get("__slots__"):
            return False
    return False
