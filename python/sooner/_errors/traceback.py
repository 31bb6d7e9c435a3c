"""Tracebacks of failed tasks, as text.

The text is made where the exception was raised, because neither frames nor chains of exceptions travel.
Frames of sooner itself are left out where they are noise: at the start (how the worker got to the user's
function), and at the end of sooner's own errors (how `get` raised it).
"""

from __future__ import annotations

import linecache
import os
import stat
import sys
import threading
import traceback

from sooner import _sooner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# Characters. Nesting 200 tasks deep must still show both ends.
TEXT_CHARS_MAX = 128 << 10

_PACKAGE = __file__.removesuffix("_errors/traceback.py")


def format_error(exception: BaseException) -> str:
    """Return the traceback of an exception with its chain, without sooner's own frames.

    Example:
        >>> print(format_error(ValueError("boom")))
        ValueError: boom
    """
    try:
        formatted = traceback.TracebackException.from_exception(exception, compact=True)
        _trim(formatted, exception, set())
        return clip("".join(formatted.format()).rstrip("\n"))
    except BaseException as failure:
        text = f"{describe(exception)[2]}\n(its traceback cannot be shown: {type(failure).__name__})"
        return clip(text)


def _trim(shown: traceback.TracebackException, exception: BaseException, seen: set[int]) -> None:
    """Remove sooner's frames from one traceback and from those it is chained to."""
    if id(shown) in seen:
        return
    seen.add(id(shown))
    stack = shown.stack
    while stack and _is_ours(stack[0].filename):
        del stack[0]
    from sooner.exceptions import SoonerError  # start-up: 5.2 ms

    if isinstance(exception, SoonerError):
        while stack and _is_ours(stack[-1].filename):
            del stack[-1]
    links = [(shown.__cause__, exception.__cause__), (shown.__context__, exception.__context__)]
    if shown.exceptions is not None and isinstance(exception, BaseExceptionGroup):
        links += zip(shown.exceptions, exception.exceptions, strict=False)
    for inner, origin in links:
        if inner is not None and origin is not None:
            _trim(inner, origin, seen)


def _is_ours(filename: str) -> bool:
    return filename.startswith(_PACKAGE)


def guard_sources(guest: bool) -> None:
    """In a template: limits which files its workers read to show lines of source.

    Workers read regular files only; if the driver is on another machine, only files of this user. A source
    file is known by its name alone. The name may lead to a pipe by then, which keeps its reader for ever, or
    on another machine to another user's file.

    Args:
        guest: Whether the driver is on another machine.
    """
    read = linecache.updatecache

    def updatecache(filename: str, module_globals: dict[str, Any] | None = None) -> list[str]:
        names = [filename]
        if filename.startswith("<") and filename.endswith(">"):
            # The name stands for no file.
            names = []
        elif not os.path.isabs(filename):
            names += [os.path.join(place, filename) for place in sys.path]
        return read(filename, module_globals) if all(_may_be_read(name, guest) for name in names) else []

    # `traceback`, `warnings`, `inspect` and `pdb` get their lines from `linecache`.
    linecache.updatecache = updatecache
    if guest:
        # The interpreter's own hooks are written in C and read files without `linecache`.
        sys.excepthook = traceback.print_exception
        threading.excepthook = _on_error_of_thread
        sys.unraisablehook = _on_unraisable


def _may_be_read(name: str, guest: bool) -> bool:
    if guest and not _is_of_user(name) and not any(_is_below(name, place) for place in sys.path):
        return False
    try:
        return stat.S_ISREG(os.stat(name).st_mode)
    except OSError:
        # There is no file, but a loader may have the text.
        return True


def _is_of_user(name: str) -> bool:
    """Whether no other user has put a file there, or could now."""
    while True:
        try:
            return _sooner.strangers_at(name) is None
        except (FileNotFoundError, NotADirectoryError):
            if name in ("", "/"):
                return False
            name = os.path.dirname(name)
        except OSError:
            return False


def _is_below(name: str, place: str) -> bool:
    """Whether a file is below another user's `place`, which the node was told to search for modules."""
    return name.startswith(f"{place}/") and not _is_of_user(place)


def _on_error_of_thread(error: threading.ExceptHookArgs) -> None:
    """Prints the error as `threading` does."""
    if error.exc_type is SystemExit:
        return
    name = threading.get_ident() if error.thread is None else error.thread.name
    print(f"Exception in thread {name}:", file=sys.stderr)
    traceback.print_exception(error.exc_type, error.exc_value, error.exc_traceback)


def _on_unraisable(error: Any) -> None:
    """Prints the error as the interpreter does."""
    where = "" if error.object is None else f" {_shown(error.object)}"
    print(f"{error.err_msg or 'Exception ignored in'}:{where}", file=sys.stderr)
    traceback.print_exception(error.exc_type, error.exc_value, error.exc_traceback)


def _shown(value: object) -> str:
    try:
        return repr(value)
    except BaseException:
        return "<object repr() failed>"


def clip(text: str, limit: int = TEXT_CHARS_MAX) -> str:
    """Return `text` with its middle left out if it is longer than `limit` characters.

    Example:
        >>> clip("x" * 10, 4)
        'x\\n[... 6 characters left out ...]\\nxxx'
    """
    if len(text) <= limit:
        return text
    # The end says what went wrong, the start where it began.
    head = limit // 4
    tail = limit - head
    return f"{text[:head]}\n[... {len(text) - limit:,} characters left out ...]\n{text[-tail:]}"


def describe(exception: BaseException) -> tuple[str, str, str]:
    """Return class name, message and `repr()` of an exception; its methods may raise.

    Example:
        >>> describe(ValueError("boom"))
        ('ValueError', 'boom', "ValueError('boom')")
    """
    cls = type(exception)
    module = getattr(cls, "__module__", "")
    name = cls.__qualname__ if module in ("builtins", "") else f"{module}.{cls.__qualname__}"
    return name, _said(str, exception), _said(repr, exception)


def _said(how: Callable[[object], str], exception: BaseException) -> str:
    try:
        return clip(how(exception), 4096)
    except BaseException as failure:
        verb = "str()" if how is str else "repr()"
        return f"<{verb} of the exception raises {type(failure).__name__}>"
