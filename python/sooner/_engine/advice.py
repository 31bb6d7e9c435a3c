"""Warnings about code that works but is slower than it need be. Each is given once per place."""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Iterator
from typing import Any

from sooner._engine.driver import warn
from sooner._errors.culprit import function_parts, pickled_size

# A captured object of at most this size (bytes) is not named.
_SHARE_BYTES_MIN = 1 << 20

_PACKAGE = __file__.removesuffix("_engine/advice.py")

_warned: set[tuple[str, int]] = set()


def large_code(target: Any, size: int) -> None:
    """Warns that the code of a function or class is so large that it must have captured data.

    Args:
        target: The function or class.
        size: Of its pickle (bytes).
    """
    place = _place(target)
    if place in _warned:
        return
    _warned.add(place)
    name = getattr(target, "__qualname__", type(target).__name__)
    what = _largest(target)
    captured = f", most of it in the {what}" if what else ""
    warn(
        f"{place[0]}:{place[1]}: the code of {name} takes {_megabytes(size)}{captured}. It is sent to every worker "
        "that runs it. Store the data once with sooner.put() and pass the reference as an argument, or load it inside"
    )


def get_in_loop(count: int) -> None:
    """Warns that a thread has waited for `count` tasks, each before it submitted the next one."""
    frame: types.FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    if frame is None:
        return
    place = frame.f_code.co_filename, frame.f_lineno
    if place in _warned:
        return
    _warned.add(place)
    warn(
        f"{place[0]}:{place[1]}: {count} tasks were waited for one by one, each before the next one was submitted, so "
        "they did not run at the same time. Submit all of them first and call sooner.get() with the list"
    )


def _place(target: Any) -> tuple[str, int]:
    for function in _functions(target):
        return function.__code__.co_filename, function.__code__.co_firstlineno
    return getattr(target, "__module__", "?"), 0


def _functions(target: Any) -> Iterator[types.FunctionType]:
    if isinstance(target, type):
        for member in vars(target).values():
            if not isinstance(member, type):
                yield from _functions(getattr(member, "__func__", member))
        return
    function = inspect.unwrap(target) if callable(target) else target
    if isinstance(function, types.FunctionType):
        yield function


def _largest(target: Any) -> str:
    """Describes the largest object that the target has captured; empty if no object is large."""
    sizes = [(_size(part), label, part) for label, part in _captured(target)]
    size, label, part = max(sizes, key=lambda found: found[0], default=(0, "", None))
    return f"{label} ({type(part).__name__}, {_megabytes(size)})" if size > _SHARE_BYTES_MIN else ""


def _captured(target: Any) -> Iterator[tuple[str, Any]]:
    for function in _functions(target):
        yield from function_parts(function)
    if isinstance(target, type):
        attributes = vars(target).items()
        yield from ((f"class attribute {name!r}", part) for name, part in attributes if not hasattr(part, "__get__"))


def _size(part: Any) -> int:
    try:
        return pickled_size(part)
    except Exception:
        return 0


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
