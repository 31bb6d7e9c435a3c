"""cloudpickle under sooner's name, for programs that import it from here."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from cloudpickle import CloudPickler, dump, dumps, load, loads

from sooner._culprit import explain_pickle_failure

__all__ = ["CloudPickler", "dump", "dumps", "dumps_debug", "load", "loads", "pickle"]


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
        raise explain_pickle_failure(obj, error, "the value") from error
    return pickled
