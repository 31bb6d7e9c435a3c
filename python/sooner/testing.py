"""Faults on request, to test how a program recovers from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sooner import _sooner


def lose_objects(refs: _sooner.ObjectRef[Any] | Sequence[_sooner.ObjectRef[Any]]) -> int:
    """Has the values of objects be lost, as if the memory they are in had failed.

    Values of tasks come back by themselves: their owner executes the creating tasks again. Others raise
    `ObjectLostError` or one of its subclasses from now on. What already reads a value, such as an array from
    `sooner.get`, keeps it.

    Args:
        refs: One reference, or several. Values that travel in messages (up to 100 KiB) are not in shared
            memory and cannot be lost without their owner; references without a value yet are passed over,
            too.

    Returns:
        How many values were lost.

    Raises:
        TypeError: `refs` holds something else.

    Example:
        >>> from sooner.testing import lose_objects
        >>> lose_objects(f.remote())  # doctest: +SKIP
        1
    """
    given = [refs] if isinstance(refs, _sooner.ObjectRef) else list(refs)
    for ref in given:
        if not isinstance(ref, _sooner.ObjectRef):
            raise TypeError(f"lose_objects() takes ObjectRefs, not {type(ref).__name__}")
    return _sooner.lose_objects(given)
