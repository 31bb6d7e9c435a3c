"""Finds what inside a value cannot be pickled, and says where it is and what to do.

The search walks down from the value: of the parts that pickle would visit it follows the first that cannot
be pickled on its own, until all parts of that one can be. Only failing values are searched, so the search may
cost something; depth, number of attempts and time are bounded, and cycles are walked once.
"""

from __future__ import annotations

import builtins
import copyreg
import functools
import re
import signal
import time
import types
from collections import deque
from typing import TYPE_CHECKING, Any

from sooner._values.code import Code
from sooner.exceptions import ObjectFreedError

if TYPE_CHECKING:
    from collections.abc import Iterator

DEPTH_MAX = 40
ATTEMPTS_MAX = 5000
SECONDS_MAX = 1.0

_ADVICE: tuple[tuple[str, str], ...] = (
    ("_thread.RLock _thread.lock threading. multiprocessing.synchronize", "Make the lock inside the task or actor."),
    ("_io. tempfile. mmap.", "Pass the path and open the file inside the task or actor."),
    ("socket. ssl. selectors.", "Open the connection inside the task or actor."),
    ("async_generator coroutine", "Pass a list of its items, or the arguments it is made from."),
    (
        "generator",
        "Pass a list of its items, or the arguments it is made from; a task or method that returns one needs "
        "num_returns='streaming', or `yield from`.",
    ),
    ("sqlite3. psycopg redis. sqlalchemy.", "Open the connection inside the task or actor."),
    ("frame traceback", "Pass its text (traceback.format_exception)."),
    ("sooner.ObjectRef sooner.actor.ActorHandle", "Create it again in this session."),
    ("concurrent.futures. _asyncio. asyncio.", "Pass its result, or make it inside the task or actor."),
    ("weakref. weakref ReferenceType", "Pass the object that the weak reference points to."),
)
_GENERAL_ADVICE = (
    "Make it inside the task or actor, leave it out with __getstate__, or register a serializer for its class."
)


def explain_pickle_failure(value: object, error: BaseException, what: str) -> BaseException:
    """Return a TypeError that names the part of `value` that cannot be pickled.

    An error that a signal handler raised meanwhile, for instance for a time limit, is no fault of the value
    and is returned as it is, and so is that of a reference whose value was freed.

    Args:
        value: What was to be pickled.
        error: What pickling it raised; becomes the `__cause__`.
        what: How the user knows the value, for instance "argument 0".

    Example:
        >>> import threading
        >>> try:
        ...     __import__("pickle").dumps(threading.Lock())
        ... except TypeError as failure:
        ...     print(str(explain_pickle_failure([threading.Lock()], failure, "argument 0")).splitlines()[1])
          where: argument 0 -> [0] -> <unlocked _thread.lock object>
    """
    if was_raised_by_handler(error) or isinstance(error, ObjectFreedError):
        return error
    search = Search()
    try:
        path, culprit = search.run(value)
    except Exception as failure:
        path, culprit = [], value
        search.note = f"the search for the culprit ended with {type(failure).__name__}"
    explained = TypeError(_text(what, path, culprit, search, error))
    explained.__cause__ = error
    return explained


def was_raised_by_handler(error: BaseException) -> bool:
    """Return whether a signal handler raised the error, and not the code that the signal interrupted."""
    handlers = set()
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        handler = getattr(handler, "func", handler)
        function = getattr(handler, "__func__", handler)
        # The code of an instance with `__call__` is in its class.
        called = function if hasattr(function, "__code__") else vars(type(handler)).get("__call__")
        code = getattr(called, "__code__", None)
        if code is not None:
            handlers.add(code)
    step = error.__traceback__
    while step is not None:
        if step.tb_frame.f_code in handlers:
            return True
        step = step.tb_next
    return False


def _text(what: str, path: list[str], culprit: object, search: Search, error: BaseException) -> str:
    said, advice = verdict(search.reason or error, culprit)
    where = " -> ".join([what, *path, show(culprit)])
    lines = [f"{what} cannot be pickled: {said}", f"  where: {where}", f"  what to do: {advice}"]
    if search.note:
        lines.append(f"  note: {search.note}; the culprit may lie deeper.")
    return "\n".join(lines)


def verdict(failure: BaseException, culprit: object) -> tuple[str, str]:
    """Return what is wrong with a part that cannot be pickled, and what to do about it; each one line."""
    if is_too_deep(failure):
        return (
            "it is nested too deeply, or its __reduce__ never ends",
            "Flatten it, or raise sys.setrecursionlimit() in the caller.",
        )
    said = " ".join(_safe(str, failure).split())
    return said or type(failure).__name__, _advise(culprit)


def is_too_deep(failure: BaseException) -> bool:
    """Return whether pickling went down until the stack was full."""
    # cloudpickle turns a RecursionError into a PicklingError.
    return isinstance(failure, RecursionError) or isinstance(failure.__context__, RecursionError)


def _advise(culprit: object) -> str:
    cls = type(culprit)
    name = f"{cls.__module__}.{cls.__qualname__}"
    for prefixes, advice in _ADVICE:
        for prefix in prefixes.split():
            if name.startswith(prefix) or name == f"builtins.{prefix}":
                return advice
    return _GENERAL_ADVICE


def show(value: object) -> str:
    """Return a short `repr()` without addresses, for any value.

    Example:
        >>> show("x" * 200)[-7:], show(object())
        ("xxx...'", '<object object>')
    """
    text = re.sub(r" at 0x[0-9a-fA-F]+", "", _safe(repr, value) or f"<{type(value).__qualname__} object>")
    text = " ".join(text.split())
    return text if len(text) <= 120 else f"{text[:100]}...{text[-1]}"


def _safe(how: Any, value: object) -> str:
    try:
        return str(how(value))
    except BaseException:
        return ""


class _Sink:
    """Counts the bytes that a pickler writes, and forgets them."""

    def __init__(self) -> None:
        self.size = 0

    def write(self, data: Any) -> int:
        length = len(data)
        self.size += length
        return length


class Search:
    """One search. `reason` is what pickling the culprit raised, `note` why the search ended early."""

    def __init__(self) -> None:
        self.reason: BaseException | None = None
        self.note = ""
        self._attempts = 0
        self._deadline = time.monotonic() + SECONDS_MAX
        # Parts by id. Parts made for the search only (state dicts) must live on, or ids would be used again.
        self._seen: dict[int, object] = {}

    def run(self, value: object) -> tuple[list[str], object]:
        """Return the path to the first culprit, and the culprit."""
        path: list[str] = []
        failure = self.failure(value)
        # A value that can be pickled here but not by the engine has no culprit to be found.
        while failure is not None and not self.note:
            self.reason = failure
            if is_too_deep(failure):
                # Every part on the way down fails for the same reason, and none is to blame.
                break
            if len(path) >= DEPTH_MAX:
                self.note = f"the search ended at a depth of {DEPTH_MAX}"
                break
            found = next(self.failing_parts(value), None)
            if found is None:
                break
            label, value, failure = found
            if label:
                path.append(label)
        return path, value

    def failing_parts(self, value: object) -> Iterator[tuple[str, object, BaseException]]:
        """Yield the parts of `value` that cannot be pickled on their own, each once per search."""
        for label, part in _parts(value):
            if id(part) in self._seen or _is_atom(part):
                continue
            if self._attempts >= ATTEMPTS_MAX or time.monotonic() > self._deadline:
                self.note = f"the search ended after {self._attempts:,} attempts"
                return
            self._seen[id(part)] = part
            failure = self.failure(part)
            if failure is not None:
                yield label, part, failure

    def failure(self, value: object) -> BaseException | None:
        """Return what pickling `value` raises, None if it works."""
        self._attempts += 1
        self._seen[id(value)] = value
        try:
            pickled_size(value)
        except Exception as failure:
            return failure
        return None


def pickled_size(value: object) -> int:
    """Return the size of a pickle of `value` (bytes), without making one. References are left alone.

    Raises:
        Exception: What pickling it raised.
    """
    sizes: list[int] = []
    sink = _Sink()
    # Buffers are taken out of band so that large arrays cost nothing.
    _probe()(sink, protocol=5, buffer_callback=lambda buffer: sizes.append(buffer.raw().nbytes)).dump(value)
    return sink.size + sum(sizes)


@functools.cache
def _probe() -> Any:
    import cloudpickle

    from sooner import _sooner

    class Probe(cloudpickle.Pickler):  # type: ignore[misc]
        """Leaves references out: one that is really pickled is kept for the rest of the session."""

        def reducer_override(self, value: Any) -> Any:
            if type(value) is _sooner.ObjectRef and _is_of_this_session(value):
                return int, ()
            return super().reducer_override(value)

    return Probe


def _is_of_this_session(ref: Any) -> bool:
    from sooner import _sooner

    return _sooner.is_running() and ref.job_id() == _sooner.identity()[2]


def _is_atom(value: object) -> bool:
    return value is None or isinstance(value, str | bytes | bytearray | int | float | complex)


def _parts(value: object) -> Iterator[tuple[str, object]]:
    """Yield what pickle would visit next below `value`, each with the label a user would write.

    An empty label stands for a step that a user would not see.
    """
    if isinstance(value, types.FunctionType):
        yield from function_parts(value)
    elif isinstance(value, Code):
        yield "", value.target
    elif isinstance(value, types.MethodType):
        yield ".__self__", value.__self__
        yield ".__func__", value.__func__
    elif isinstance(value, functools.partial):
        yield ".func", value.func
        yield from ((f".args[{index}]", part) for index, part in enumerate(value.args))
        yield from ((f".keywords[{key!r}]", part) for key, part in value.keywords.items())
    elif isinstance(value, type):
        yield from ((f".{name}", part) for name, part in list(vars(value).items()) if _is_own(value, name))
        yield from (("base class", base) for base in value.__bases__)
    elif isinstance(value, staticmethod | classmethod):
        yield "", value.__func__
    elif isinstance(value, property):
        yield from ((f".{name}", getattr(value, name)) for name in ("fget", "fset", "fdel"))
    elif type(value) is types.CellType:
        yield "", value.cell_contents
    else:
        yield from _container_parts(value)
        yield from _reduced_parts(value)


def _is_own(cls: type, name: str) -> bool:
    return name not in ("__dict__", "__weakref__", "__doc__", "__module__", "__abstractmethods__", "_abc_impl")


def function_parts(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    """Yield what a function carries, each with the label a user would write."""
    cells = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, cells, strict=False):
        try:
            yield f"closure variable {name!r}", cell.cell_contents
        except ValueError:
            # The variable is not assigned yet.
            continue
    for name in _global_names(function.__code__):
        if name in function.__globals__ and not hasattr(builtins, name):
            yield f"global {name!r}", function.__globals__[name]
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    defaults = function.__defaults__ or ()
    for name, part in zip(names[len(names) - len(defaults) :], defaults, strict=False):
        yield f"default of parameter {name!r}", part
    for name, part in (function.__kwdefaults__ or {}).items():
        yield f"default of parameter {name!r}", part
    for name, part in function.__dict__.items():
        yield f".{name}", part
    for name, part in getattr(function, "__annotations__", {}).items():
        yield f"annotation of {name!r}", part


def _global_names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _global_names(constant)


def _container_parts(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for key, part in list(value.items()):
            yield "a key", key
            yield f"[{show(key)}]", part
    elif isinstance(value, list | tuple | deque):
        names = getattr(value, "_fields", None)
        for index, part in enumerate(value):
            yield (f".{names[index]}" if isinstance(names, tuple) and index < len(names) else f"[{index}]"), part
    elif isinstance(value, set | frozenset):
        for part in list(value):
            yield "an element", part


def _reduced_parts(value: object) -> Iterator[tuple[str, object]]:
    """Yield what the object's own `__reduce__` hands to pickle."""
    cls = type(value)
    if cls in (dict, list, tuple, set, frozenset):
        return
    try:
        reducer = copyreg.dispatch_table.get(cls)
        reduced = reducer(value) if reducer else value.__reduce_ex__(5)
    except Exception:
        # The object itself refuses: it is the culprit.
        return
    if not isinstance(reduced, tuple) or len(reduced) < 2:
        return
    attributes = {id(part): name for name, part in getattr(value, "__dict__", {}).items()}
    padded: tuple[Any, ...] = (*reduced, None, None, None)
    make, arguments, state, items, pairs = padded[:5]
    yield from _state_parts(state)
    for index, part in enumerate(arguments or ()):
        if part is cls or part is value:
            continue
        name = attributes.get(id(part))
        yield (f".{name}" if name else f"argument {index} of its __reduce__"), part
    if items is not None and not isinstance(value, list | tuple | deque):
        yield from ((f"[{index}]", part) for index, part in enumerate(items))
    if pairs is not None and not isinstance(value, dict):
        yield from ((f"[{show(key)}]", part) for key, part in pairs)
    yield "its class", cls
    yield "its __reduce__ function", make


def _state_parts(state: object) -> Iterator[tuple[str, object]]:
    if isinstance(state, dict):
        yield from ((f".{name}" if isinstance(name, str) else f"[{show(name)}]", part) for name, part in state.items())
    elif isinstance(state, tuple) and len(state) == 2 and isinstance(state[1], dict):
        # Fields of __dict__ and of __slots__.
        yield from _state_parts(state[0])
        yield from _state_parts(state[1])
    elif state is not None:
        yield "its __getstate__", state
