"""Shuffles of data frames in one stage, and without the column that says where each row goes.

From 33 partitions on Dask shuffles in stages, which take all rows apart and put them together twice or more.
It does so for schedulers that mind many tasks: there, each piece taken out of a result is a task. Here a
piece is one more return of a task. And the column of partition numbers, which Dask adds to each row, is not
needed once the rows are apart: it is made again where rows are put together, instead of travelling through
memory and disk.

Expressions are read here and never changed.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Hashable
from typing import Any

from dask._expr import Expr

from sooner.util.dask.grouping import grouped

# Pieces of a shuffle in one stage, at most. Each piece costs the program that computes about a tenth of a
# millisecond; another stage costs time for each byte.
_PIECES_MAX = 1 << 16
# With more pieces than `_PIECES_GOOD`, one task takes several partitions before the shuffle apart, at most
# `_TOGETHER_MAX`. If that leaves more than `_PIECES_MAX` pieces, Dask's stages are used. A piece costs
# workers and the store about as much as the program.
_PIECES_GOOD = 1 << 15
_TOGETHER_MAX = 8
# Dask's name for the column of partition numbers.
_NUMBERS = "_partitions"


def one_stage_shuffles(expression: Expr) -> dict[Hashable, Any]:
    """Tasks that make the partitions of shuffles by tasks in one stage, by the keys that Dask's own tasks
    have.

    What only the stages of Dask's tasks needed is not needed any more. An option `max_branch` that was given
    to a shuffle, and is less than its partitions, leaves it to Dask.

    Args:
        expression: What is computed, as Dask lowered it.

    Returns:
        Tasks in Dask's former form, which replace those of the same keys.
    """
    try:
        import pandas as pd
        from dask.dataframe.dask_expr._shuffle import TaskShuffle
    except ImportError:
        # Without pandas there are no data frames.
        return {}
    found: dict[Hashable, Any] = {}
    for shuffle in expression.find_operations(TaskShuffle):
        if isinstance(shuffle._meta, pd.DataFrame) and _is_one_stage(shuffle):
            found.update(_tasks(shuffle))
    return found


def _is_one_stage(shuffle: Any) -> bool:
    if shuffle.partitioning_index not in (_NUMBERS, [_NUMBERS]) or len(shuffle.columns) < 2:
        return False
    before, after = shuffle.frame.npartitions, len(shuffle._partitions)
    branches = (shuffle.options or {}).get("max_branch")
    if branches is not None:
        return bool(min(before, after) <= branches)
    return bool(before * after <= _PIECES_MAX * _TOGETHER_MAX)


def _tasks(shuffle: Any) -> dict[Hashable, Any]:
    wanted = list(shuffle._partitions)
    keys_before = [(shuffle.frame._name, source) for source in range(shuffle.frame.npartitions)]
    # `wanted` may be empty, and then there are no pieces.
    together = max(1, min(-(-len(keys_before) * len(wanted) // _PIECES_GOOD), _TOGETHER_MAX))
    sources = [keys_before[at : at + together] for at in range(0, len(keys_before), together)]
    groups, pieces = f"group-{shuffle._name}", f"split-{shuffle._name}"
    place = list(shuffle.columns).index(_NUMBERS)
    kind = shuffle._meta[_NUMBERS].dtype
    kept = frozenset(wanted) if shuffle._filtered else None
    found: dict[Hashable, Any] = {
        (groups, number): (split, source, shuffle.npartitions_out, shuffle.ignore_index, kept)
        for number, source in enumerate(sources)
    }
    for index, number in enumerate(wanted):
        keys = [(pieces, number, source) for source in range(len(sources))]
        found |= {key: (operator.getitem, (groups, key[-1]), number) for key in keys}
        found[shuffle._name, index] = (joined, keys, shuffle.ignore_index, place, number, kind)
    return found


def split(frames: list[Any], count: int, ignore_index: bool, kept: Collection[int] | None) -> dict[int, Any]:
    """The rows of partitions by the partition each of them goes to.

    Args:
        frames: The partitions, with a column of partition numbers.
        count: How many partitions there are.
        ignore_index: Whether the index of the rows means nothing.
        kept: Numbers of the partitions that are wanted; None for all.

    Returns:
        By number: the rows without the column of numbers.
    """
    numbers = [frame[_NUMBERS].to_numpy() for frame in frames]
    if not all(len(some) and some.min() >= 0 and some.max() < count for some in numbers):
        numbers = [some % count for some in numbers]
    rows = [frame.drop(columns=_NUMBERS) for frame in frames]
    parts = grouped(rows, numbers, count, ignore_index)
    return {number: part for number, part in parts.items() if kept is None or number in kept}


def joined(parts: list[Any], ignore_index: bool, place: int, number: int, kind: Any) -> Any:
    """A partition out of the rows that go to it.

    Args:
        parts: From each partition before the shuffle, its rows.
        ignore_index: Whether the index of the rows means nothing.
        place: Where the column of partition numbers was among the columns.
        number: That of this partition.
        kind: The type of the column of numbers.

    Returns:
        The partition, with the column of partition numbers.
    """
    import numpy as np
    import pandas as pd
    from dask.dataframe.core import _concat

    # Copies the frame, not its columns: if no part has rows, `_concat` returns one of the parts itself.
    frame = _concat(parts, ignore_index).copy(deep=False)
    # One number in memory, shown for all rows: Dask drops the column at once.
    column = np.broadcast_to(np.array(number, dtype=kind), len(frame))
    frame.insert(place, _NUMBERS, pd.Series(column, index=frame.index, copy=False))
    return frame
