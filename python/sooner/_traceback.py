"""Tracebacks of failed tasks, as text.

The text is made where the exception was raised, because neither frames nor chains of exceptions travel. Frames of
sooner itself are left out where they are noise: at the start (how the worker got to the user's function), and at
the end of sooner's own errors (how `get` raised it).
"""

from __future__ import annotations

import traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# Characters. Nesting 200 tasks deep must still show both ends.
TEXT_CHARS_MAX = 128 << 10

_PACKAGE = __file__.removesuffix("_traceback.py")


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
    from sooner.exceptions import SoonerError

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
