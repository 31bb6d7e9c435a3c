"""Dual error classes: a `TaskError` that is also an instance of the class of its cause.

The cause's own `__new__` and `__init__` are never called, because their signatures are unknown. The instance
is made by the C constructor both classes share, and then gets the fields of the error and copies of the
cause's fields: C members (`errno`, `name`, ...), slots, and `__dict__`. What is still missing is looked up on
the cause.

The fields of `TaskError` win over fields of the cause with the same name; the latter are found at
`error.cause`.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from sooner.exceptions import TaskError

FIELDS = ("function_name", "traceback_str", "cause", "proctitle", "pid", "ip", "actor_repr", "actor_id")

# Raised in the caller, these would silently end a loop (`for x in map(get, refs)`), a generator, a thread or
# the program, although the task meant only itself. A `CancelledError` would end a coroutine.
_SILENT = (StopIteration, StopAsyncIteration, GeneratorExit, KeyboardInterrupt, SystemExit)

# How many classes the cache keeps alive at most. Some programs make classes on the fly.
_CACHE_MAX = 512
_HEAP_TYPE = 1 << 9
_ARGS: Any = vars(BaseException)["args"]

_cache: dict[type[BaseException], type[TaskError] | None] = {}


def dual_instance(error: TaskError) -> TaskError | None:
    """Return `error` as an instance of its cause's class, too; None where that cannot be.

    Example:
        >>> dual = dual_instance(TaskError("f", "Traceback ...", FileNotFoundError(2, "missing", "a.txt")))
        >>> dual.errno, dual.filename, isinstance(dual, FileNotFoundError)
        (2, 'a.txt', True)
    """
    cause = error.cause
    if cause is None or error._sooner_dual_of is not None or isinstance(error, type(cause)):
        return error
    cls = _dual_class(type(cause))
    if cls is None:
        return None
    try:
        return _fill(cls, error, cause)
    except Exception:
        # Classes of extension modules may insist on their own constructor.
        return None


def _dual_class(cause_class: type[BaseException]) -> type[TaskError] | None:
    """Return the dual class for a cause's class, None if there can be none."""
    try:
        return _cache[cause_class]
    except (KeyError, TypeError):
        pass
    if issubclass(cause_class, _SILENT) or _is_cancellation(cause_class):
        return None
    try:
        cls = _make_class(cause_class)
    except Exception:
        cls = None
    try:
        if len(_cache) >= _CACHE_MAX:
            _cache.clear()
        # Two threads may get here with the same class: both use the first one's.
        return _cache.setdefault(cause_class, cls)
    except TypeError:
        return cls


def _is_cancellation(cause_class: type[BaseException]) -> bool:
    asyncio = sys.modules.get("asyncio.exceptions")
    return asyncio is not None and issubclass(cause_class, asyncio.CancelledError)


def _make_class(cause_class: type[BaseException]) -> type[TaskError]:
    name = f"TaskError({cause_class.__name__})"

    def new(_cls: type[TaskError], /, *args: Any, **kwargs: Any) -> BaseException:
        # For `raise type(error)("more context") from error`: the caller means the cause's class.
        return cause_class(*args, **kwargs)

    def forward(self: TaskError, attribute: str) -> Any:
        if attribute.startswith("__") and attribute.endswith("__"):
            raise AttributeError(attribute)
        cause = object.__getattribute__(self, "__dict__").get("cause")
        if cause is None:
            raise AttributeError(attribute)
        return getattr(cause, attribute)

    body: dict[str, Any] = {
        "__module__": TaskError.__module__,
        "__qualname__": name,
        "__doc__": f"A TaskError whose cause is a {cause_class.__qualname__}.",
        "_sooner_dual_of": cause_class,
        "__new__": new,
        "__getattr__": forward,
        # The cause's class may be frozen, unhashable, or count accesses. None of that suits an error on its
        # way.
        "__getattribute__": object.__getattribute__,
        "__setattr__": object.__setattr__,
        "__delattr__": object.__delattr__,
        "__eq__": object.__eq__,
        "__ne__": object.__ne__,
        "__hash__": object.__hash__,
        "__format__": object.__format__,
    }
    if hasattr(cause_class, "__del__"):
        body["__del__"] = lambda self: None
    for field in FIELDS:
        if hasattr(cause_class, field):
            # A property or slot of that name would hide the field of the error.
            body[field] = _field(field)
    cls: Any = types.new_class(name, (TaskError, cause_class), {}, lambda namespace: namespace.update(body))
    if not (isinstance(cls, type) and issubclass(cls, TaskError) and issubclass(cls, cause_class)):
        raise TypeError(f"the metaclass of {cause_class.__name__} returns something else")
    return cls


def _field(name: str) -> property:
    def read(self: TaskError) -> Any:
        return self.__dict__[name]

    def write(self: TaskError, value: Any) -> None:
        self.__dict__[name] = value

    return property(read, write)


def _fill(cls: type[TaskError], error: TaskError, cause: BaseException) -> TaskError:
    """Make an instance of the dual class `cls` from the fields of both."""
    dual: Any = _blank(cls, cause)
    for base in type(cause).__mro__:
        if base is BaseException or base is object:
            continue
        for name, member in vars(base).items():
            if name in FIELDS or name.startswith("__"):
                continue
            if isinstance(member, types.MemberDescriptorType | types.GetSetDescriptorType):
                _copy_member(member, cause, dual)
    # By the descriptor: `args` may be a property of the cause's class.
    _ARGS.__set__(dual, tuple(_ARGS.__get__(cause)))
    fields = dual.__dict__
    fields.update(error.__dict__)
    for name, value in cause.__dict__.items():
        # Notes are part of the remote traceback already.
        if not name.startswith("__") and (name not in FIELDS or fields.get(name) is None):
            fields[name] = value
    if isinstance(dual, SyntaxError):
        # Tracebacks show the fields of a SyntaxError instead of its str().
        dual.add_note(str(dual))
    if error.__cause__ is not None:
        dual.__cause__ = error.__cause__
    return dual  # type: ignore[no-any-return]


def restored_blank(cls: type[BaseException], args: tuple[object, ...], fields: dict[str, Any]) -> BaseException:
    """Make an exception from its class, arguments and fields without calling its constructor.

    Example:
        >>> restored_blank(ValueError, ("boom",), {"code": 3}).code
        3
    """
    base: Any = _static_base(cls)
    error: BaseException = base.__new__(cls)
    if isinstance(error, OSError):
        OSError.__init__(error, *args)
    # The class may be frozen, or `args` a property of it.
    _ARGS.__set__(error, args)
    error.__dict__.update(fields)
    return error


def _blank(cls: type[BaseException], cause: BaseException) -> BaseException:
    base: Any = _static_base(cls)
    if isinstance(cause, BaseExceptionGroup):
        group: BaseException = base.__new__(cls, cause.message, cause.exceptions)
        return group
    blank: BaseException = base.__new__(cls)
    return blank


def _static_base(cls: type[BaseException]) -> type:
    """Return the C class whose constructor makes instances of `cls`: the one that determines the memory of an
    instance. With several bases this need not be the first one, and Python refuses any other.
    """
    base: Any = cls
    while base.__flags__ & _HEAP_TYPE:
        base = base.__base__
    return base  # type: ignore[no-any-return]


def _copy_member(member: Any, source: object, target: object) -> None:
    try:
        member.__set__(target, member.__get__(source))
    except (AttributeError, TypeError, ValueError):
        # Unset in the source, or read-only and set by the constructor.
        pass
