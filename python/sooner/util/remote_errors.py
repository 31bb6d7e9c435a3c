"""Errors of calls as the standard library shows them: the exception itself, with the worker's traceback as cause."""

from __future__ import annotations

from collections.abc import Callable

from sooner.exceptions import TaskError, UnserializableException


def of_pool(text: str) -> BaseException:
    """The cause that `multiprocessing.Pool` gives to errors."""
    # Imported when it is needed: it takes longer than a worker takes to start.
    from multiprocessing.pool import RemoteTraceback  # type: ignore[attr-defined]

    return RemoteTraceback(text)  # type: ignore[no-any-return]


def of_executor(text: str) -> BaseException:
    """The cause that `concurrent.futures.ProcessPoolExecutor` gives to errors."""
    from concurrent.futures.process import _RemoteTraceback

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
    error.__cause__ = cause_of(f'\n"""\n{text}"""')
    return error


def unpickled(error: BaseException) -> BaseException:
    """What the program's own code raised while an argument was pickled, as the standard library hands it on.

    A `TypeError`, as most values raise that cannot be pickled, is left in the words that name the place of the value.
    """
    cause = error.__cause__
    if not isinstance(error, TypeError) or cause is None or isinstance(cause, TypeError):
        return error
    cause.add_note(str(error))
    return cause
