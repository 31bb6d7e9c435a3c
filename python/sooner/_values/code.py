"""Pickling of functions and classes for workers, with what else the workers must know."""

from __future__ import annotations

import functools
import os
import pickle
from collections.abc import Callable
from typing import Any

from sooner import _sooner
from sooner._values.serializers import Registration, registrations

# A pickle above this size (bytes) carries data along that should be passed as an argument.
_CODE_BYTES_MAX = 10 << 20


class Code:
    """What the engine pickles in place of a function or class, once per session.

    The pickle holds the serializers that users have registered, which are read first, and the pickled target.
    The size of the code is known only here.
    """

    def __init__(self, target: Any, hides_gpus: bool = False) -> None:
        """`hides_gpus`: whether the task or actor was asked for with `num_gpus=0`."""
        self.target = target
        self.hides_gpus = hides_gpus

    @property
    def place(self) -> str | None:
        """File and line of a function, for advice."""
        code = getattr(self.target, "__code__", None)
        return None if code is None else f"{code.co_filename}:{code.co_firstlineno}"

    def __reduce__(self) -> tuple[Any, ...]:
        from sooner._values.pickling import dumps  # start-up: 36.3 ms

        pickled = dumps(self.target)
        if len(pickled) > _CODE_BYTES_MAX:
            from sooner._engine.advice import large_code  # circle

            large_code(self.target, len(pickled))
        return (_load_without_gpus if self.hides_gpus else _load), (registrations(), pickled)


def _load(_: tuple[Registration, ...], pickled: bytes) -> Any:
    return pickle.loads(pickled)


def _load_without_gpus(_: tuple[Registration, ...], pickled: bytes) -> Any:
    function = pickle.loads(pickled)
    if isinstance(function, type):
        # An actor's class is called once, in a process of the actor's own.
        hide_gpus()
        return function
    return _without_gpus(function)


def hide_gpus() -> None:
    """Hides all GPUs from this process, but not in local mode, where it is the program's."""
    if not _sooner.is_local():
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def _without_gpus(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        hide_gpus()
        return function(*args, **kwargs)

    return run
