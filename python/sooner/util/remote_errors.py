"""Errors of calls as the standard library shows them.

The exception itself, with the worker's traceback as its cause.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from sooner.exceptions import TaskError, UnserializableException

# Set through the descriptor: an error's class may be frozen or refuse attributes in another way.
_CAUSE: Any = vars(BaseException)["__cause__"]


def of_pool(text: str) -> BaseException:
    """The cause that `multiprocessing.Pool` gives to errors."""
    # Imported on use: the import takes longer than starting a worker.
    from multiprocessing.pool import RemoteTraceback  # type: ignore[attr-defined]  # start-up: 24.8 ms

    return RemoteTraceback(text)  # type: ignore[no-any-return]


def of_executor(text: str) -> BaseException:
    """The cause that `concurrent.futures.ProcessPoolExecutor` gives to errors."""
    from concurrent.futures.process import _RemoteTraceback  # start-up: 28.4 ms

    return _RemoteTraceback(text)  # type: ignore[arg-type]


def original(error: BaseException, cause_of: Callable[[str], BaseException] = of_pool) -> BaseException:
    """What the call raised, if it can be had; otherwise the error as it is.

    Args:
        error: What the engine raised.
        cause_of: Makes the cause from the text of the traceback: as the standard library's counterpart does.
    """
    if not isinstance(error, TaskError):
        return error
    cause = error.cause
    if cause is None or isinstance(cause, UnserializableException):
        return error
    return with_traceback(cause, error.traceback_str, cause_of)


def with_traceback(
    error: BaseException, text: str, cause_of: Callable[[str], BaseException] = of_pool
) -> BaseException:
    """An error whose cause is the traceback of the worker that raised it, as text."""
    _CAUSE.__set__(error, cause_of(f'\n"""\n{text}"""'))
    return error


def unpickled(error: BaseException) -> BaseException:
    """What the program's own code raised while an argument was pickled, as the standard library hands it on.

    A `TypeError`, as most values raise that cannot be pickled, is left in the words that name the place of
    the value.
    """
    cause = error.__cause__
    if not isinstance(error, TypeError) or cause is None or isinstance(cause, TypeError):
        return error
    # The class of `cause` may be frozen. The error matters more than the note.
    with contextlib.suppress(Exception):
        cause.add_note(str(error))
    return cause


def outcome(get: Callable[[], Any]) -> tuple[BaseException | None, Any, BaseException | None]:
    """What a call has come to, whatever reading it raises.

    What is no `Exception` may have been raised by the value as it was unpickled, or by a handler of a signal,
    as Ctrl-C does: it is the value's if reading raises again.

    Args:
        get: Reads the outcome; may be called twice.

    Returns:
        The call's error or None; its value; what a handler has raised meanwhile, which is to be raised
        when the outcome is kept, or None.
    """
    try:
        return None, get(), None
    except Exception as error:
        return error, None, None
    except BaseException as error:
        interrupt = error
    try:
        return None, get(), interrupt
    except Exception as error:
        return error, None, interrupt
    except BaseException as error:
        return error, None, None
