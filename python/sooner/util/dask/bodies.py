"""Faster bodies of tasks on data frames: the same results as Dask's own, with fewer arrays beside the data.

Most of the computation of a `set_index` is sorting partitions by their index and looking up where each row
goes. Dask's bodies handle every kind of column; most keys are plain NumPy numbers, for which less is enough.

Data that is not plain is left to Dask's own bodies, and nothing here changes its input.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from dask._task_spec import GraphNode, Task
from dask._task_spec import _execute_subgraph as execute_subgraph

from sooner.util.dask.quantiles import percentiles_summary

# Rows that are looked up at a time: the data needed for them stays in the processor's caches.
_BLOCK_ROWS = 1 << 15
# With fewer rows than this, searching all divisions is as fast.
_ROWS_MIN = 1 << 14
# Cells that the range of the divisions is cut into: at least, for each division, and at most.
_CELLS_MIN = 1 << 12
_CELLS_PER_DIVISION = 16
_CELLS_MAX = 1 << 20
# Divisions in one cell, at most: each number is compared with all divisions of its cell.
_DIVISIONS_IN_CELL_MAX = 4


def with_faster_bodies(graph: dict[Any, GraphNode]) -> dict[Any, GraphNode]:
    """The graph with the bodies of this module where Dask's own would be called.

    Args:
        graph: In Dask's present form. It is not changed.
    """
    replaced = _replacements()
    return {key: _with_faster(node, replaced) for key, node in graph.items()} if replaced else graph


def _replacements() -> dict[Any, Callable[..., Any]]:
    # These functions occur only in graphs of data frames, and then their module is loaded already. Importing
    # it here would load pandas.
    if "dask.dataframe.dask_expr._shuffle" not in sys.modules:
        return {}
    from dask.dataframe import partitionquantiles
    from dask.dataframe.dask_expr._shuffle import SortIndexBlockwise
    from dask.dataframe.shuffle import set_partitions_pre

    return {
        SortIndexBlockwise.operation: sorted_by_index,
        set_partitions_pre: partition_numbers,
        partitionquantiles.percentiles_summary: percentiles_summary,
    }


def _with_faster(node: GraphNode, replaced: dict[Any, Callable[..., Any]]) -> GraphNode:
    if type(node) is not Task:
        return node
    if node.func is execute_subgraph:
        inner, *others = node.args
        nodes = {key: _with_faster(part, replaced) for key, part in inner.items()}
        if all(nodes[key] is part for key, part in inner.items()):
            return node
        return Task(node.key, node.func, nodes, *others, **node.kwargs)
    try:
        function = replaced.get(node.func)
    except TypeError:
        # The function is not hashable.
        return node
    return node if function is None else Task(node.key, function, *node.args, **node.kwargs)


def sorted_by_index(frame: Any, *args: Any, **kwargs: Any) -> Any:
    """The rows in the order of their index, as `sort_index` gives them.

    pandas looks for missing values first, and sorts by way of seven arrays of the size of the index.

    Args:
        frame: A data frame or series.
        *args: Of `sort_index`. With any of them, that is called.
        **kwargs: The same.
    """
    import numpy as np
    import pandas as pd

    index = frame.index
    is_plain = type(index) is pd.Index and _is_number(index.dtype)
    if args or kwargs or not is_plain or index.is_monotonic_increasing:
        return frame.sort_index(*args, **kwargs)
    # Missing numbers come last, in NumPy as in pandas.
    if frame.ndim == 2 and not len(frame.columns):
        # Without columns, rows of the same index cannot be told apart. Sorting numbers takes a fraction of
        # the time of computing their order.
        return frame.set_axis(pd.Index(np.sort(index.to_numpy()), name=index.name))
    return frame.take(np.argsort(index.to_numpy()))


def partition_numbers(series: Any, divisions: Any, ascending: bool = True, na_position: str = "last") -> Any:
    """The number of the partition that each row goes to, as `dask.dataframe.shuffle.set_partitions_pre` gives
    it.

    Args:
        series: What the rows are sorted by.
        divisions: The least of each partition, and the largest of all, in order.
        ascending: Whether the first partition has the least rows.
        na_position: Where rows without a value go: "first" or "last".

    Returns:
        An array of integers, one for each row.
    """
    import numpy as np
    from dask.dataframe.shuffle import set_partitions_pre

    values: Any = getattr(series, "values", None)
    bounds: Any = getattr(divisions, "values", None)
    table = None
    if isinstance(values, np.ndarray) and isinstance(bounds, np.ndarray) and len(values) >= _ROWS_MIN:
        table = _Table.of(bounds, values.dtype)
    if table is None:
        return set_partitions_pre(series, divisions, ascending=ascending, na_position=na_position)
    count = len(bounds) - 1
    found = np.empty(len(values), dtype=np.intp)
    with np.errstate(over="ignore", invalid="ignore"):
        for begin in range(0, len(values), _BLOCK_ROWS):
            block = values[begin : begin + _BLOCK_ROWS]
            numbers = table.places(block)
            numbers = numbers - 1 if ascending else len(bounds) - numbers - 1
            numbers[(numbers < 0) | (numbers >= count)] = count - 1 if ascending else 0
            if block.dtype.kind == "f":
                numbers[np.isnan(block)] = count - 1 if na_position == "last" else 0
            found[begin : begin + _BLOCK_ROWS] = numbers
    return found


class _Table:
    """For many numbers at a time: how many divisions are not above a number.

    A binary search for random numbers suffers from branch mispredictions, one for about each division it
    looks at. Here the range of the divisions is cut into equal cells. A number's cell says how many divisions
    lie in the cells below; the number is compared only with the divisions of its own cell, most often one.
    The cell of a number follows from a few floating-point operations that never reverse the order of two
    numbers: so divisions in cells below are less than the number, divisions in cells above are larger, and
    the exact borders of the cells do not matter.
    """

    def __init__(self, bounds: Any, cells: int) -> None:
        import numpy as np

        self._least = float(bounds[0])
        self._scale = cells / (float(bounds[-1]) - self._least)
        self._cells = cells
        of_bounds = self._cell(bounds)
        # A comparison beyond the last division counts one too many; `places` takes that back.
        self._bounds = np.append(bounds, bounds[-1])
        self._below = np.searchsorted(of_bounds, np.arange(cells)).astype(np.intp)
        self.most = int(np.bincount(of_bounds, minlength=cells).max())

    @classmethod
    def of(cls, bounds: Any, kind: Any) -> _Table | None:
        """A table for numbers of this type; `None` if these divisions allow none.

        Args:
            bounds: The divisions, in order.
            kind: The type of the numbers.
        """
        import numpy as np

        if bounds.dtype != kind or not _is_number(kind) or len(bounds) < 2:
            return None
        width = float(bounds[-1]) - float(bounds[0])
        # Divisions that include missing values, for instance, are not in order.
        if not np.isfinite(width) or width <= 0 or not bool((bounds[1:] >= bounds[:-1]).all()):
            return None
        cells = min(max(_CELLS_MIN, _CELLS_PER_DIVISION * len(bounds)), _CELLS_MAX)
        if not np.isfinite(cells / width):
            return None
        table = cls(bounds, cells)
        return table if table.most <= _DIVISIONS_IN_CELL_MAX else None

    def places(self, numbers: Any) -> Any:
        """For each number, how many divisions are not above it; for missing numbers, any value."""
        import numpy as np

        found = self._below[self._cell(numbers)]
        for _ in range(self.most):
            found += numbers >= self._bounds[found]
            np.minimum(found, len(self._bounds) - 1, out=found)
        return found

    def _cell(self, numbers: Any) -> Any:
        import numpy as np

        cells = (numbers.astype(np.float64) - self._least) * self._scale
        # A missing number gets some cell, too, so that it can be converted to an integer.
        return np.fmin(np.fmax(cells, 0), self._cells - 1).astype(np.int32)


def _is_number(kind: Any) -> bool:
    import numpy as np

    return isinstance(kind, np.dtype) and kind.kind in "iuf"
