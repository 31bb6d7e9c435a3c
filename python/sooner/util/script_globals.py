"""Globals that the initializer of a pool or an executor sets in the program's script.

Functions of a script are pickled by value, each pickle with globals of its own. So a call would not see the
globals that an initializer sets there, although initializers exist mostly for that. This module records what
the initializer sets, copies it into the globals of each call's functions, and keeps what a call changes for
the next call. Modules that workers import have one set of globals anyway, and are left alone.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import itertools
import sys
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

T = TypeVar("T")
# Limits of the search for functions and instances in arguments and closures, because arguments may be long:
# depth, values in all, and values per container.
_DEPTH_MAX = 5
_LOOKS_MAX = 1000
_ITEMS_MAX = 256
_PLAIN = (int, float, complex, bool, str, bytes, types.NoneType)

_Globals = dict[str, Any]
# During a call: the globals that its function was given.
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
    """The globals of functions that were pickled by value, and of the classes of instances."""
    search = _Search()
    for what in given:
        search.look(what, 0)
    return list(search.found.values())


class _Search:
    def __init__(self) -> None:
        self.found: dict[int, _Globals] = {}
        self._left = _LOOKS_MAX

    def look(self, what: Any, depth: int) -> None:
        """Look at a value and the values it consists of."""
        if isinstance(what, _PLAIN) or depth > _DEPTH_MAX or self._left <= 0:
            return
        self._left -= 1
        if isinstance(what, types.FunctionType):
            self._look_at_function(what, depth)
        elif isinstance(what, types.MethodType):
            self._look_at_each((what.__func__, what.__self__), depth)
        elif isinstance(what, functools.partial):
            self._look_at_each((what.func, what.args, what.keywords), depth)
        elif isinstance(what, list | tuple | set | frozenset):
            self._look_at_each(what, depth)
        elif isinstance(what, dict):
            self._look_at_each(what.values(), depth)
        else:
            for one in _globals_of(what if isinstance(what, type) else type(what)):
                self.found[id(one)] = one
            if callable(what) and not isinstance(what, type):
                # For instance, joblib's batch of calls.
                self.look(getattr(what, "__dict__", None), depth + 1)

    def _look_at_each(self, items: Iterable[Any], depth: int) -> None:
        for item in itertools.islice(items, _ITEMS_MAX):
            self.look(item, depth + 1)

    def _look_at_function(self, function: types.FunctionType, depth: int) -> None:
        if _came_by_value(function):
            self.found[id(function.__globals__)] = function.__globals__
        for cell in function.__closure__ or ():
            # An empty cell raises.
            with contextlib.suppress(ValueError):
                if callable(cell.cell_contents):
                    self.look(cell.cell_contents, depth + 1)
        self.look(getattr(function, "__wrapped__", None), depth + 1)


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
