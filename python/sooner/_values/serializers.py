"""Serializers that users register for their classes, and how they reach other processes.

A registration is kept in `copyreg.dispatch_table`, which every pickler reads, so that values, arguments,
returns and closures are treated alike. It travels with each value that it has pickled, and with the code of
functions and classes (`code.py`). The process that unpickles it registers it, too, unless that process has a
registration of its own for the class or has deregistered the class. So workers can return the instances that
they received, and instances of their own.
"""

from __future__ import annotations

import copyreg
import types
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

# Picklers never ask the table for these.
_NEVER_ASKED = (
    *(type(None), bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset),
    *(type, types.FunctionType, types.BuiltinFunctionType),
)

_registered: dict[type, Registration] = {}
_deregistered: set[type] = set()


class Registration:
    """A class with its two functions."""

    def __init__(self, cls: type, serializer: Callable[[Any], Any], deserializer: Callable[[Any], Any]) -> None:
        self.cls = cls
        self.serializer = serializer
        self.deserializer = deserializer
        # The former entry of copyreg, to be put back.
        self.before = copyreg.dispatch_table.get(cls)

    def reduce(self, value: Any) -> tuple[Any, ...]:
        """What pickle writes for an instance."""
        return _restore, (self, self.serializer(value))

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrive, (self.cls, self.serializer, self.deserializer)


def register_serializer(cls: type[T], *, serializer: Callable[[T], Any], deserializer: Callable[[Any], T]) -> None:
    """Pickle instances of a class in a way of your own.

    Holds in this process at once, for `put`, arguments, returned values and closures, and for `pickle`
    itself. Tasks and actors learn it with the code of functions and classes that are first called after the
    registration, and with every value that was pickled by it. Subclasses are not concerned: pickle looks for
    the exact class.

    Args:
        cls: The class. One that is registered already gets the new functions.
        serializer: Takes an instance and returns something that can be pickled.
        deserializer: Takes what `serializer` returned, after its journey, and returns an instance.

    Raises:
        TypeError: `cls` is no class, or a function cannot be called.
        ValueError: Pickle has its own way for `cls`, which cannot be changed: numbers, text, containers,
            functions.

    Example:
        >>> import pickle, threading, sooner.util
        >>> class Account:
        ...     def __init__(self, balance: int) -> None:
        ...         self.balance, self.lock = balance, threading.Lock()
        >>> sooner.util.register_serializer(Account, serializer=lambda a: a.balance, deserializer=Account)
        >>> sooner.get(sooner.put(Account(7))).balance  # doctest: +SKIP
        7
        >>> sooner.util.deregister_serializer(Account)
    """
    _check_class(cls, "register_serializer")
    for name, function in (("serializer", serializer), ("deserializer", deserializer)):
        if not callable(function):
            raise TypeError(f"{name} must be callable, not {type(function).__name__}")
    if cls in _NEVER_ASKED:
        raise ValueError(
            f"{cls.__name__} has a fixed form in pickles, so a serializer for it would never be asked: "
            "make a class of your own, for instance a subclass"
        )
    _deregistered.discard(cls)
    _register(Registration(cls, serializer, deserializer))


def deregister_serializer(cls: type) -> None:
    """Forget a registration in this process; without one, nothing happens.

    Workers that have learned it keep it. Values that were pickled by it can still be read.

    Args:
        cls: The class.

    Raises:
        TypeError: `cls` is no class.
    """
    _check_class(cls, "deregister_serializer")
    _deregistered.add(cls)
    registration = _registered.pop(cls, None)
    if registration is None:
        return
    if registration.before is None:
        copyreg.dispatch_table.pop(cls, None)
    else:
        copyreg.dispatch_table[cls] = registration.before


def registrations() -> tuple[Registration, ...]:
    """The registrations of this process, for code that leaves it."""
    return tuple(_registered.values())


def _check_class(cls: Any, verb: str) -> None:
    if not isinstance(cls, type):
        raise TypeError(f"{verb}() takes a class, not {type(cls).__name__}")


def _register(registration: Registration) -> None:
    known = _registered.get(registration.cls)
    if known is not None:
        registration.before = known.before
    _registered[registration.cls] = registration
    copyreg.dispatch_table[registration.cls] = registration.reduce


def _arrive(cls: type, serializer: Callable[[Any], Any], deserializer: Callable[[Any], Any]) -> Registration:
    """Takes over a registration of another process."""
    registration = Registration(cls, serializer, deserializer)
    if cls not in _registered and cls not in _deregistered:
        _register(registration)
    return registration


def _restore(registration: Registration, data: Any) -> Any:
    return registration.deserializer(data)
