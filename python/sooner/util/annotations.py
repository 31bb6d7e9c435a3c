"""Marks of how stable a name is, as libraries on top of Ray's API put them on their functions and classes.

A mark changes what the documentation says, never what the code does; only `Deprecated(warning=True)` warns
when the name is used.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any, TypeVar, overload

__all__ = [
    "Deprecated",
    "DeveloperAPI",
    "PublicAPI",
    "RayDeprecationWarning",
    "SoonerDeprecationWarning",
]

T = TypeVar("T")

_STABILITIES = ("stable", "beta", "alpha")


class SoonerDeprecationWarning(DeprecationWarning):
    """A name that will be removed was used."""


RayDeprecationWarning = SoonerDeprecationWarning


@overload
def PublicAPI(target: T, /) -> T: ...
@overload
def PublicAPI(*, stability: str = "stable", api_group: str = "Others") -> Callable[[T], T]: ...
def PublicAPI(*targets: Any, stability: str = "stable", api_group: str = "Others") -> Any:
    """Marks a function or class as one for users.

    Args:
        *targets: What is marked, when used without arguments.
        stability: "stable", "beta" or "alpha": whether it may still change.
        api_group: Heading it belongs under in a reference.

    Returns:
        What was marked, or a decorator.

    Raises:
        ValueError: `stability` is none of the three.
        TypeError: There is an argument besides the function or class.

    Example:
        >>> @PublicAPI(stability="beta")
        ... def plan() -> None:
        ...     '''Makes a plan.'''
        >>> print(plan.__doc__)
        Makes a plan.
        <BLANKLINE>
        **Public API (beta)**: it may still change.
    """
    if stability not in _STABILITIES:
        raise ValueError(f"stability={stability!r} is not allowed: give one of {', '.join(map(repr, _STABILITIES))}")
    note = "" if stability == "stable" else f"**Public API ({stability})**: it may still change."
    return _marker("PublicAPI", targets, lambda target: _annotate(target, "PublicAPI", api_group, note))


@overload
def DeveloperAPI(target: T, /) -> T: ...
@overload
def DeveloperAPI(*, api_group: str = "Others") -> Callable[[T], T]: ...
def DeveloperAPI(*targets: Any, api_group: str = "Others") -> Any:
    """Marks a function or class as one for authors of libraries: it may change between minor versions.

    Args:
        *targets: What is marked, when used without arguments.
        api_group: Heading it belongs under in a reference.

    Returns:
        What was marked, or a decorator.
    """
    note = "**Developer API**: it may change between minor versions."
    return _marker("DeveloperAPI", targets, lambda target: _annotate(target, "DeveloperAPI", api_group, note))


@overload
def Deprecated(target: T, /) -> T: ...
@overload
def Deprecated(*, message: str = "", warning: bool = False) -> Callable[[T], T]: ...
def Deprecated(*targets: Any, message: str = "", warning: bool = False) -> Any:
    """Marks a function or class as one that will be removed.

    Args:
        *targets: What is marked, when used without arguments.
        message: What to use instead.
        warning: Also warn (`SoonerDeprecationWarning`) when the function is called or the class is
            instantiated.

    Returns:
        What was marked, or a decorator.

    Example:
        >>> @Deprecated(message="Use new().")
        ... def old() -> int:
        ...     return 1
        >>> old(), old.__doc__
        (1, '**Deprecated**: it will be removed. Use new().')
    """
    note = f"**Deprecated**: it will be removed. {message}".rstrip()

    def mark(target: Any) -> Any:
        if warning:
            target = _warning(target, f"{target.__name__} is deprecated and will be removed. {message}".rstrip())
        return _annotate(target, "Deprecated", "Others", note)

    return _marker("Deprecated", targets, mark)


def _marker(name: str, targets: tuple[Any, ...], mark: Callable[[Any], Any]) -> Any:
    if not targets:
        return mark
    if len(targets) == 1 and callable(targets[0]):
        return mark(targets[0])
    raise TypeError(f"{name} is used as @{name} or @{name}(name=value, ...), not with {targets!r}")


def _annotate(target: Any, kind: str, group: str, note: str) -> Any:
    if note:
        # `cleandoc`, so that a note after an indented docstring is not indented.
        target.__doc__ = f"{inspect.cleandoc(target.__doc__)}\n\n{note}" if target.__doc__ else note
    # The name, not True: a subclass inherits the attribute but is not marked itself.
    target._annotated = target.__name__
    target._annotated_type = kind
    target._annotated_api_group = group
    return target


def _warning(target: Any, text: str) -> Any:
    if inspect.isclass(target):
        construct = target.__init__

        @functools.wraps(construct)
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            warnings.warn(text, SoonerDeprecationWarning, stacklevel=2)
            construct(self, *args, **kwargs)

        setattr(target, "__init__", init)  # noqa: B010  assigning to it is what type checkers forbid
        return target

    @functools.wraps(target)
    def call(*args: Any, **kwargs: Any) -> Any:
        warnings.warn(text, SoonerDeprecationWarning, stacklevel=2)
        return target(*args, **kwargs)

    return call
