"""Signatures of callables: checked where a callable is called, and described in a few bytes to be sent.

The engine checks the common case (a number of positional arguments) by itself, and calls this module else.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any, NamedTuple

_MANY = 65535
_BINDS_PARTIALS = sys.version_info >= (3, 14)
# The attribute in which a function that `functools.partialmethod` has made keeps the `partialmethod`.
_PARTIAL = "__partialmethod__" if sys.version_info >= (3, 13) else "_partialmethod"


class Signature(NamedTuple):
    """The parameters of a callable.

    Attributes:
        name: For messages.
        parameters: Name, kind (`inspect.Parameter.kind`) and whether there is a default, in order.
    """

    name: str
    parameters: tuple[tuple[str, int, bool], ...]

    def arity(self) -> tuple[int, int, bool]:
        """Least and most positional arguments, and whether these numbers alone decide."""
        positional = [p for p in self.parameters if p[1] in (0, 1)]
        least = sum(1 for p in positional if not p[2])
        most = _MANY if any(p[1] == 2 for p in self.parameters) else len(positional)
        needs_keyword = any(p[1] == 3 and not p[2] for p in self.parameters)
        return least, most, not needs_keyword

    def check(self, /, *args: Any, **kwargs: Any) -> None:
        """Raises TypeError when a call with these arguments would."""
        parameters = [
            inspect.Parameter(
                name,
                list(inspect._ParameterKind)[kind],
                default=None if has_default else inspect.Parameter.empty,
            )
            for name, kind, has_default in self.parameters
        ]
        try:
            inspect.Signature(parameters).bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.name}(): {error}") from None


_ANYTHING = (("args", 2, False), ("kwargs", 4, False))


def describe(function: Callable[..., Any], name: str, skip_first: bool = False) -> Signature:
    """Describes a callable; one without a readable signature takes anything.

    A wrapper is described as it is called: `functools.wraps` makes it look like the wrapped function, which
    may take other arguments. A cache passes its arguments on, so the cached function is described.
    """
    while isinstance(function, functools._lru_cache_wrapper):
        function = function.__wrapped__
    try:
        parameters = list(inspect.signature(function, follow_wrapped=False).parameters.values())
    except (TypeError, ValueError):
        return Signature(name, _ANYTHING)
    if skip_first and parameters and int(parameters[0].kind) in (0, 1):
        parameters = parameters[1:]
    return Signature(name, tuple((p.name, int(p.kind), p.default is not p.empty) for p in parameters))


def describe_method(cls: type, name: str, found: Any) -> Signature:
    """Describes a method as it is called through an instance.

    Args:
        cls: The class.
        name: The name of the method.
        found: The attribute of the class with that name.
    """
    shown = f"{cls.__name__}.{name}"
    takes_instance = _takes_instance(inspect.getattr_static(cls, name), found)
    return Signature(shown, _ANYTHING) if takes_instance is None else describe(found, shown, takes_instance)


def _takes_instance(raw: Any, found: Any) -> bool | None:
    """Whether the first parameter of `found` is the instance; None if only a call can tell.

    Args:
        raw: The attribute as it is stored in the class.
        found: The attribute as the class gives it.
    """
    get = getattr(type(raw), "__get__", None)
    if get is None or isinstance(raw, staticmethod | classmethod | types.ClassMethodDescriptorType):
        return False
    if isinstance(raw, functools.partial):
        return _BINDS_PARTIALS
    if isinstance(raw, functools.partialmethod):
        # A `partialmethod` of a class method or static method takes no instance.
        return inspect.isfunction(found)
    # A descriptor that is written in Python may do anything. Those of the interpreter and of compilers are
    # functions.
    return None if inspect.isfunction(get) or found is not raw else True


def code_of(method: Any) -> Any:
    """Returns the function that a method calls: `functools.partialmethod` hides it behind another one."""
    while inspect.isfunction(method) and _PARTIAL in vars(method):
        method = vars(method)[_PARTIAL].func
    return method
