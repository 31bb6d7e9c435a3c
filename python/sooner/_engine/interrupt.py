"""An interrupted wait cancels the tasks that it waited for: in notebooks, or where the user asks for it.

In a program an interrupt usually ends the session, and the tasks with it. In a notebook the session goes
on, and so would tasks that nobody waits for any more. `sooner.get` and `sooner.wait` are wrapped only
where this is wanted, so that they cost nothing elsewhere.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import sooner
from sooner import _sooner
from sooner._engine import notebook
from sooner.exceptions import SoonerError

_VERBS = ("get", "wait")
_MARK = "_sooner_cancels"


def install(wanted: bool | None) -> None:
    """Makes `sooner.get` and `sooner.wait` cancel when they are interrupted, or not.

    Args:
        wanted: Whether they cancel; None: in notebooks only.
    """
    cancels = notebook.is_kernel() if wanted is None else wanted
    for name in _VERBS:
        verb = getattr(sooner, name)
        if cancels and not hasattr(verb, _MARK):
            setattr(sooner, name, _cancelling(verb))
        elif not cancels and hasattr(verb, _MARK):
            setattr(sooner, name, inspect.unwrap(verb))


def _cancelling(verb: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(verb)
    def call(refs: Any, *args: Any, **options: Any) -> Any:
        try:
            return verb(refs, *args, **options)
        except KeyboardInterrupt as error:
            # A task may have raised KeyboardInterrupt: then the user has not pressed a key.
            if not isinstance(error, SoonerError):
                _cancel(refs)
            raise

    setattr(call, _MARK, True)
    return call


def _cancel(refs: Any) -> None:
    for ref in refs if isinstance(refs, list | tuple) else [refs]:
        try:
            _sooner.cancel_task(ref, False, True)
        except (TypeError, ValueError):
            # Not a reference, or one of a session that is over: the wait was not for it.
            continue
