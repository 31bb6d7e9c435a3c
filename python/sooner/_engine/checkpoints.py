"""Actors with checkpoints: which classes can have them, and how a new process restores one."""

from __future__ import annotations

import inspect
import traceback
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

HOOKS: Final = ("__sooner_checkpoint__", "__sooner_restore__")

_TEXT_LENGTH_MAX: Final = 32 << 10


def check_class(cls: type, options: Mapping[str, Any]) -> None:
    """Check that an actor of this class can have checkpoints with these options.

    Raises:
        TypeError: A hook is missing, or does not take the arguments that it is called with.
        ValueError: The options or a method of the class do not go with checkpoints.

    Example:
        >>> class Log:
        ...     def __sooner_checkpoint__(self): return []
        ...     @classmethod
        ...     def __sooner_restore__(cls, state): return cls()
        >>> check_class(Log, {"checkpoint_every": 500})
    """
    if not all(callable(getattr(cls, hook, None)) for hook in HOOKS):
        raise TypeError(
            f"checkpoint_every needs a class with the methods __sooner_checkpoint__(self), which returns the state, "
            f"and __sooner_restore__(self, state), or a class method with (cls, state) that returns an instance; "
            f"{cls.__name__} lacks {' and '.join(hook for hook in HOOKS if not callable(getattr(cls, hook, None)))}"
        )
    _check_takes(cls, "__sooner_checkpoint__", 0)
    _check_takes(cls, "__sooner_restore__", 1)
    for reason in _misfits(cls, options):
        raise ValueError(
            f"checkpoint_every does not go with {reason}: the calls since a checkpoint are made again one by one, in "
            "their order"
        )
    if options.get("max_restarts") == 0:
        raise ValueError(
            "checkpoint_every needs restarts, but max_restarts is 0: leave it out for no limit, or give a number"
        )


def _check_takes(cls: type, hook: str, count: int) -> None:
    found = inspect.getattr_static(cls, hook)
    is_bound = isinstance(found, classmethod | staticmethod)
    if count == 0 and is_bound:
        raise TypeError(f"{cls.__name__}.{hook} is no method of an instance: it returns the state of `self`")
    call: Callable[..., Any] = getattr(cls, hook)
    if inspect.iscoroutinefunction(call) or inspect.isgeneratorfunction(call):
        raise TypeError(f"{cls.__name__}.{hook} is called between two calls of the actor: it is no async function")
    given = [None] * (count if is_bound else count + 1)
    try:
        inspect.signature(call).bind(*given)
    except TypeError as error:
        wanted = "the state alone" if count else "nothing"
        raise TypeError(f"{cls.__name__}.{hook} is given {wanted}, but its signature says: {error}") from None


def _misfits(cls: type, options: Mapping[str, Any]) -> list[str]:
    reasons = []
    concurrency = options.get("max_concurrency")
    if concurrency is not None and concurrency > 1:
        reasons.append(f"max_concurrency={concurrency}")
    if options.get("concurrency_groups"):
        reasons.append("concurrency_groups")
    if options.get("allow_out_of_order_execution"):
        reasons.append("allow_out_of_order_execution=True")
    for name, function in inspect.getmembers(cls, callable):
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            reasons.append(f"the async method {cls.__name__}.{name}")
        elif inspect.isgeneratorfunction(function):
            reasons.append(f"the generator {cls.__name__}.{name}")
    return reasons


def check_call(class_name: str, method: str, streams: bool, retries_exceptions: bool, is_kept: bool) -> None:
    """Check how a method of an actor with checkpoints is called.

    Raises:
        ValueError: The call streams, or would be retried after an exception although it changes the state.
    """
    if streams:
        raise ValueError(
            f"{class_name}.{method} cannot stream: calls of an actor with checkpoint_every are made again after a "
            "failure, and items that were read cannot be taken back"
        )
    if retries_exceptions and is_kept:
        raise ValueError(
            f"{class_name}.{method} cannot have retry_exceptions: each execution changes the state of an actor with "
            "checkpoint_every, and a call is executed once. Mark the method with @sooner.method(read_only=True) if it "
            "changes nothing"
        )


def restore(cls: type, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None, state: Any) -> Any:
    """Make the actor's instance from a checkpoint.

    A hook that is a class method or static method makes the instance from the state alone. A hook that is a
    method of the instance gets the state after the constructor has run, with its original arguments.
    """
    hook = inspect.getattr_static(cls, "__sooner_restore__")
    if not isinstance(hook, classmethod | staticmethod):
        instance = cls(*args, **(kwargs or {}))
        instance.__sooner_restore__(state)
        return instance
    make: Any = cls
    instance = make.__sooner_restore__(state)
    if not isinstance(instance, cls):
        raise TypeError(
            f"{cls.__name__}.__sooner_restore__ returned {type(instance).__name__}: a class method or static method "
            f"makes the {cls.__name__} that goes on from the state"
        )
    return instance


def hook_failed(cls: type, hook: str, error: BaseException) -> str:
    """Return the reason why an actor ended whose hook raised, with the traceback."""
    text = "".join(traceback.format_exception(error))[-_TEXT_LENGTH_MAX:]
    return f"actor {cls.__name__} ended because {hook} raised, so that it could not have been restored:\n{text}"
