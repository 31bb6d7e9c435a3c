"""What runs in the worker of a pool.

Every new worker imports this module, so it imports nothing that workers do not have already.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterable
from typing import Any

import cloudpickle

import sooner
from sooner.exceptions import TaskError
from sooner.util.script_globals import ScriptGlobals


class UnknownFunction(Exception):
    """In a worker: a call refers to a function that did not arrive."""


class Worker:
    """What runs in a worker's process."""

    # Each call gets its own copies of array arguments, as with the pools of the standard library.
    __sooner_takes_copies__ = True

    def __init__(self, initializer: Callable[..., object] | None, initargs: tuple[Any, ...]) -> None:
        self._functions: dict[int, Callable[..., Any]] = {}
        self._globals = ScriptGlobals()
        if initializer is not None:
            self._globals.initialize(lambda: initializer(*initargs), initializer, initargs)

    def pid(self) -> int:
        """The process."""
        return os.getpid()

    def define(self, number: int, function: Callable[..., Any], forgotten: int | None) -> None:
        """Keep a function for later calls, and forget another one."""
        self._functions[number] = function
        if forgotten is not None:
            self._functions.pop(forgotten, None)

    def call(self, number: int, /, *args: Any, **kwargs: Any) -> Any:
        """One call."""
        return self._globals.call(self._function(number), *args, **kwargs)

    def map(self, number: int, items: list[Any]) -> list[Any]:
        """A call for every item."""
        return self._globals.call(_map, self._function(number), _values(items))

    def starmap(self, number: int, items: list[Iterable[Any]]) -> list[Any]:
        """A call for every item, which has the arguments."""
        function = self._function(number)
        return self._globals.call(_starmap, function, [_values(list(arguments)) for arguments in items])

    def each(self, number: int, items: list[Any]) -> list[tuple[BaseException | None, Any]]:
        """A call for every item, also after one that raised: error and result of each."""
        function = self._function(number)
        return self._globals.call(_each, function, _values(items))

    def _function(self, number: int) -> Callable[..., Any]:
        function = self._functions.get(number)
        if function is None:
            raise UnknownFunction("the function of this call could not be loaded in the worker")
        return function


def _map(function: Callable[[Any], Any], items: list[Any]) -> list[Any]:
    return list(map(function, items))


def _starmap(function: Callable[..., Any], items: list[list[Any]]) -> list[Any]:
    return [function(*arguments) for arguments in items]


def _each(function: Callable[[Any], Any], items: list[Any]) -> list[tuple[BaseException | None, Any]]:
    return [_outcome(function, item) for item in items]


def _values(items: list[Any]) -> list[Any]:
    """Replace references among the items by their values, as for arguments of remote functions."""
    if sooner.ObjectRef not in set(map(type, items)):
        return items
    return [sooner.get(item, copy=True) if type(item) is sooner.ObjectRef else item for item in items]


def _outcome(function: Callable[[Any], Any], item: Any) -> tuple[BaseException | None, Any]:
    try:
        return None, function(item)
    except Exception as error:
        name, text = getattr(function, "__name__", repr(function)), traceback.format_exc()
        # Wrapped in a `TaskError`: the state of an exception whose class is frozen cannot be set when it is
        # unpickled.
        carried = TaskError(name, text, error)
        try:
            cloudpickle.dumps(carried)
        except Exception:
            carried = TaskError(name, text, None)
        return carried, None
