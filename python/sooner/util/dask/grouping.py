"""Groups rows of data frames by target partition, with fewer passes over memory than pandas needs.

pandas computes the order of all rows and takes the rows in that order, together with an index that the caller
may not want; each row is a jump in memory. Here, blocks of rows that fit into the processor's caches are put
in order, and each run of rows is copied to its place. Several frames need not be put together first.

Data that is not plain is left to pandas, and nothing here changes its input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# Rows that are put in order at a time. More rows would not fit the caches; fewer would make more and shorter
# runs to copy.
_BLOCK_ROWS = 1 << 18
# How many group numbers fit into 8 and 16 bits: NumPy sorts such numbers digit by digit (radix sort).
_BYTE = 1 << 8
_SHORT = 1 << 16
# With columns of different types, each column lies in an array of its own here, and all pieces share these
# arrays. With more columns than this each piece would be larger than its rows.
_MIXED_COLUMNS_MAX = 8


def grouped(frames: Sequence[Any], numbers: Sequence[Any], count: int, ignore_index: bool) -> dict[int, Any]:
    """The rows by their numbers, as `group_split_dispatch` of Dask gives them.

    Args:
        frames: Data frames of the same columns, whose rows are put together.
        numbers: For each of them, an array with one number for each row, from 0 to below `count`.
        count: How many groups there are.
        ignore_index: Whether the index of the rows means nothing.

    Returns:
        By number: its rows, in the order in which they were.
    """
    if count > _SHORT or not _is_plain(frames, ignore_index):
        return _as_dask(frames, numbers, count, ignore_index)
    import numpy as np
    import pandas as pd

    runs = _Runs(numbers, count)
    kinds = frames[0].dtypes.to_list()
    if len(set(kinds)) == 1:
        together = np.empty((len(kinds), runs.rows), dtype=kinds[0])
        for at in range(len(kinds)):
            runs.copy([frame.iloc[:, at].to_numpy() for frame in frames], together[at])
        whole = pd.DataFrame(together.T, copy=False)
    else:
        columns = {at: np.empty(runs.rows, dtype=kind) for at, kind in enumerate(kinds)}
        for at, column in columns.items():
            runs.copy([frame.iloc[:, at].to_numpy() for frame in frames], column)
        whole = pd.DataFrame(columns, copy=False)
    whole.columns = frames[0].columns
    if not ignore_index:
        index = np.empty(runs.rows, dtype=frames[0].index.dtype)
        runs.copy([frame.index.to_numpy() for frame in frames], index)
        whole.index = pd.Index(index, name=frames[0].index.name)
    found = {}
    for number in range(count):
        found[number] = part = whole.iloc[runs.ends[number] : runs.ends[number + 1]]
        if ignore_index:
            part.index = pd.RangeIndex(len(part))
    return found


def _is_plain(frames: Sequence[Any], ignore_index: bool) -> bool:
    """Whether everything to be moved is NumPy arrays, of the same types in all frames."""
    import numpy as np
    import pandas as pd

    first = frames[0]
    kinds = first.dtypes.to_list()
    if not kinds or not all(isinstance(kind, np.dtype) for kind in kinds):
        return False
    if len(set(kinds)) > 1 and len(kinds) > _MIXED_COLUMNS_MAX:
        return False

    def is_alike(frame: Any) -> bool:
        is_same = frame.columns.equals(first.columns) and frame.dtypes.to_list() == kinds
        is_bare = type(frame) is pd.DataFrame and not frame.attrs
        index = frame.index
        is_index = type(index) is pd.Index and index.dtype.kind in "iuf" and isinstance(index.dtype, np.dtype)
        is_index = is_index and index.dtype == first.index.dtype and index.name == first.index.name
        return is_same and is_bare and (ignore_index or is_index)

    return all(is_alike(frame) for frame in frames)


def _as_dask(frames: Sequence[Any], numbers: Sequence[Any], count: int, ignore_index: bool) -> dict[int, Any]:
    import numpy as np
    from dask.dataframe.core import _concat
    from dask.dataframe.dispatch import group_split_dispatch

    frame = _concat(list(frames), ignore_index) if len(frames) > 1 else frames[0]
    places = np.concatenate(numbers) if len(numbers) > 1 else numbers[0]
    parts: dict[int, Any] = group_split_dispatch(frame, places, count, ignore_index=ignore_index)
    return parts


class _Runs:
    """Where the rows of each group lie in each block, and where they are copied to.

    Attributes:
        rows: The number of rows in all.
        ends: Where each group ends, beginning with 0.
    """

    def __init__(self, numbers: Sequence[Any], count: int) -> None:
        import numpy as np

        short: Any = np.uint8 if count <= _BYTE else np.uint16
        # For each block: the number of its array, its first row there, the order of its rows, and the rows
        # per group.
        self._blocks: list[tuple[int, int, Any, Any]] = []
        for number, places in enumerate(numbers):
            for begin in range(0, len(places), _BLOCK_ROWS):
                block = places[begin : begin + _BLOCK_ROWS].astype(short)
                order = np.argsort(block, kind="stable")
                self._blocks.append((number, begin, order, np.bincount(block, minlength=count)))
        counts = np.array([block[3] for block in self._blocks], dtype=np.intp).reshape(-1, count)
        self.ends: list[int] = [0, *counts.sum(axis=0).cumsum().tolist()]
        self.rows = self.ends[-1]
        self._before = counts.cumsum(axis=0) - counts

    def copy(self, arrays: Sequence[Any], to: Any) -> None:
        """Copy the rows of all groups together.

        Args:
            arrays: One for each array of numbers, and of the same length.
            to: The array that gets the rows, group by group.
        """
        for (number, begin, order, counts), before in zip(self._blocks, self._before, strict=True):
            block = arrays[number][begin : begin + len(order)].take(order)
            ends = counts.cumsum().tolist()
            begins = [0, *ends[:-1]]
            places = (before + self.ends[:-1]).tolist()
            for first, last, place in zip(begins, ends, places, strict=True):
                to[place : place + last - first] = block[first:last]
