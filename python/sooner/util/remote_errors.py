"""Errors of calls as the standard library shows them: the exception itself, with the worker's traceback as cause."""

from __future__ import annotations

from sooner.exceptions import TaskError, UnserializableException


class RemoteTraceback(Exception):
    """Shows, as the cause of an error, the traceback of the worker that raised it."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


def original(error: BaseException) -> BaseException:
    """What the call raised, if it can be had; otherwise the error as it is."""
    if not isinstance(error, TaskError):
        return error
    cause = error.cause
    if cause is None or isinstance(cause, UnserializableException):
        return error
    cause.__cause__ = RemoteTraceback(error.traceback_str)
    return cause
