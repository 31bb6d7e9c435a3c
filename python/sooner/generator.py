"""The value of a task with `num_returns="dynamic"`: references to everything the task yielded.

The engine makes `ObjectRefGenerator`, which streaming tasks return.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from sooner import _sooner

T = TypeVar("T")


class DynamicObjectRefGenerator(Generic[T]):
    """References to the items of a task whose number was not known when it was called.

    `num_returns="streaming"` gives each item as soon as it is yielded and is the better choice for new code.

    Example:
        >>> import sooner
        >>> @sooner.remote(num_returns="dynamic")
        ... def count(n: int):
        ...     yield from range(n)
        >>> sooner.get(list(sooner.get(count.remote(3))))  # doctest: +SKIP
        [0, 1, 2]
    """

    def __init__(self, refs: list[_sooner.ObjectRef[T]]) -> None:
        self._refs = refs

    def __iter__(self) -> Iterator[_sooner.ObjectRef[T]]:
        return iter(self._refs)

    def __len__(self) -> int:
        return len(self._refs)

    def __reduce__(self) -> tuple[Any, ...]:
        return DynamicObjectRefGenerator, (self._refs,)

    def __repr__(self) -> str:
        return f"DynamicObjectRefGenerator({len(self._refs)} refs)"
