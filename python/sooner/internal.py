"""Freeing objects by hand. Programs do not need it: objects are freed with their last reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sooner import _sooner


def free(refs: _sooner.ObjectRef[Any] | Sequence[_sooner.ObjectRef[Any]], local_only: bool = False) -> None:
    """Gives objects up although references to them are left.

    Getting one afterwards raises `ObjectFreedError` in the process that freed it. The memory is free at once
    when no other process borrows the object and no array of it is in use, else when those are gone. Objects
    of other owners, and those that are not there yet, stay.

    Args:
        refs: One reference, or several.
        local_only: Accepted; there is one node.

    Raises:
        TypeError: `refs` holds something else.

    Example:
        >>> import sooner
        >>> ref = sooner.put(bytes(1_000_000))  # doctest: +SKIP
        >>> sooner.internal.free(ref)  # doctest: +SKIP
    """
    given = [refs] if isinstance(refs, _sooner.ObjectRef) else list(refs)
    for ref in given:
        if not isinstance(ref, _sooner.ObjectRef):
            raise TypeError(f"free() takes ObjectRefs, not {type(ref).__name__}")
    _sooner.free_objects(given)
