"""Globals that the initializer of a pool or an executor sets in the program's script.

Functions of a script come by value, each pickle with globals of its own: what an initializer sets there no call would
find, although that is what initializers are mostly for. Here it is noted, shown to the functions of each call, and what
a call makes of it is kept for the next. Modules that workers import have one set of globals anyway, and are left alone.
"""

from __future__ import annotations

import contextvars
import functools
import sys
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

T = TypeVar("T")
# How deep in arguments and closures functions and instances are looked for.
_DEPTH_MAX = 5
_PLAIN = (int, float, complex, bool, str, bytes, types.NoneType)

_Globals = dict[str, Any]
# In a call: what its function was shown.
_of_call: contextvars.ContextVar[ScriptGlobals | None] = contextvars.ContextVar("_of_call", default=None)
_of_class: weakref.WeakKeyDictionary[type, list[_Globals]] = weakref.WeakKeyDictionary()


class ScriptGlobals:
    """What an initializer has set: by the name of the module, which no worker can import."""

    def __init__(self) -> None:
        self._set: dict[str, _Globals] = {}

    def initialize(self, run: Callable[[], object], *given: Any) -> None:
        """Runs an initializer; `given` is what it consists of."""
        found = _find(given)
        before = [dict(one) for one in found]
        run()
        for one, was in zip(found, before, strict=True):
            changed = {name: value for name, value in one.items() if name not in was or was[name] is not value}
            if changed:
                self._set.setdefault(one.get("__name__", ""), {}).update(changed)

    def call(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """A call that finds what was set."""
        if not self._set:
            return function(*args, **kwargs)
        shown = [
            (one, self._set[name])
            for one in _find((function, args, kwargs))
            if (name := one.get("__name__")) in self._set
        ]
        for one, values in shown:
            one.update(values)
        token = _of_call.set(self)
        try:
            return function(*args, **kwargs)
        finally:
            _of_call.reset(token)
            for one, values in shown:
                values.update({name: one[name] for name in values if name in one})


def call_inner(function: Callable[[], T]) -> T:
    """Calls what has come to light in the middle of a call: that a pickle was hidden in its arguments."""
    found = _of_call.get()
    return function() if found is None else found.call(function)


def _find(given: Iterable[Any]) -> list[_Globals]:
    """The globals of functions that came by value, and of the classes of instances."""
    found: dict[int, _Globals] = {}
    for what in given:
        _look(what, found, 0)
    return list(found.values())


def _look(what: Any, found: dict[int, _Globals], depth: int) -> None:
    if depth > _DEPTH_MAX or isinstance(what, _PLAIN):
        return
    if isinstance(what, types.FunctionType):
        _look_at_function(what, found, depth)
    elif isinstance(what, types.MethodType):
        _look(what.__func__, found, depth + 1)
        _look(what.__self__, found, depth + 1)
    elif isinstance(what, functools.partial):
        _look((what.func, what.args, what.keywords), found, depth + 1)
    elif isinstance(what, list | tuple | set | frozenset):
        for item in what:
            _look(item, found, depth + 1)
    elif isinstance(what, dict):
        for item in what.values():
            _look(item, found, depth + 1)
    else:
        for one in _globals_of(what if isinstance(what, type) else type(what)):
            found[id(one)] = one
        if callable(what) and not isinstance(what, type):
            # A batch of calls, as joblib makes them.
            _look(getattr(what, "__dict__", None), found, depth + 1)


def _look_at_function(function: types.FunctionType, found: dict[int, _Globals], depth: int) -> None:
    if _came_by_value(function):
        found[id(function.__globals__)] = function.__globals__
    for cell in function.__closure__ or ():
        try:
            inner = cell.cell_contents
        except ValueError:
            continue
        if callable(inner):
            _look(inner, found, depth + 1)
    if (wrapped := getattr(function, "__wrapped__", None)) is not None:
        _look(wrapped, found, depth + 1)


def _came_by_value(function: types.FunctionType) -> bool:
    module = sys.modules.get(function.__module__)
    return module is None or vars(module) is not function.__globals__


def _globals_of(cls: type) -> list[_Globals]:
    known = _of_class.get(cls)
    if known is None:
        found: dict[int, _Globals] = {}
        for base in cls.__mro__:
            for value in vars(base).values():
                function = getattr(value, "__func__", None) or getattr(value, "fget", None) or value
                if isinstance(function, types.FunctionType) and _came_by_value(function):
                    found[id(function.__globals__)] = function.__globals__
        known = _of_class[cls] = list(found.values())
    return known
