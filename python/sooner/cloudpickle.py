"""cloudpickle under sooner's name, for programs that import it from here."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from cloudpickle import CloudPickler, dump, dumps, load, loads

from sooner._errors.culprit import explain_pickle_failure
from sooner._values.pickling import ValuePickler, passing

__all__ = [
    "CloudPickler",
    "ValuePickler",
    "dump",
    "dumps",
    "dumps_debug",
    "load",
    "loads",
    "passing",
    "pickle",
    "reduce_to_file",
]


def reduce_to_file(array: Any) -> tuple[Any, ...] | None:
    """How pickle writes an array that lies in a file and may be written to, so that it arrives over the same
    file.

    Args:
        array: The array.

    Returns:
        What `__reduce__` gives; None for an array that lies in no file.

    Raises:
        ValueError: The file is gone.
    """
    from sooner._values import memmaps  # optional

    return memmaps.reduce_to_file(array)


def dumps_debug(
    obj: Any, protocol: int | None = None, buffer_callback: Callable[[pickle.PickleBuffer], Any] | None = None
) -> bytes:
    """`dumps` that says what inside `obj` cannot be pickled.

    Args:
        obj: The value.
        protocol: Of pickle; the highest by default.
        buffer_callback: Takes large buffers out of band, as for `pickle.dumps`.

    Raises:
        TypeError: It cannot be pickled; the error names the path to the culprit.
    """
    try:
        pickled: bytes = dumps(obj, protocol=protocol, buffer_callback=buffer_callback)
    except Exception as error:
        explained = explain_pickle_failure(obj, error, "the value")
        if explained is error:
            raise
        raise explained from error
    return pickled
