"""The sketch of a column for the divisions of a `set_index`: more even than Dask's, in less time.

Dask takes some dozens of quantiles of each partition, most of them at the same places in all partitions.
Where partitions are alike, these quantiles coincide, and no division can be found between them: of 50
partitions of random numbers the largest has almost three times its share. Here the places within a partition
are equally spaced and start at a different offset in each partition, so that the places of all partitions
together are spread evenly; and there are more of them. Each quantile stands for the same number of rows.

NumPy finds quantiles by moving all numbers about until those at the wanted places are where sorting would put
them. Here the range of the numbers is cut into equal cells, the numbers in each cell are counted, and only
the cells that hold a wanted place are sorted.

Columns of types other than numbers and times are left to Dask.
"""

from __future__ import annotations

from typing import Any

# How many times as many quantiles as Dask takes. With this factor, partition sizes differ by about a tenth.
_MORE = 4
# Quantiles of a partition, at least.
_QUANTILES_MIN = 16
# Cells that the range is cut into: as many as 16 bits can number.
_CELLS = 1 << 16
# Fewer numbers than this are sorted, which takes no longer.
_ROWS_MIN = 1 << 14
# Rows whose cells are computed at a time, so that the data needed for them stays in the processor's caches.
_BLOCK_ROWS = 1 << 16
# The share of all numbers that may lie in the cells to be sorted. If more do, all numbers are sorted.
_SORTED_SHARE = 1 / 8


def percentiles_summary(series: Any, num_old: int, num_new: int, upsample: float, state: Any) -> Any:
    """What `dask.dataframe.partitionquantiles.percentiles_summary` is for, and in its form.

    Args:
        series: The column of one partition.
        num_old: How many partitions there are.
        num_new: How many there are to be.
        upsample: How many times more quantiles than usual.
        state: The seed of this partition.

    Returns:
        Some of the numbers in order, from the smallest to the largest, and their weights: rows times 100,
        as Dask has it.
    """
    import numpy as np
    from dask.dataframe.dispatch import tolist_dispatch
    from dask.dataframe.partitionquantiles import percentiles_summary as dasks

    # Dask's formula: the number over all partitions grows with about the square root of the number of
    # partitions.
    wanted = int(_MORE * upsample * num_new * (num_old + 22) ** 0.55 / num_old)
    count, rows = max(wanted, _QUANTILES_MIN), len(series)
    if not _is_plain(series) or count + 2 >= rows:
        return dasks(series, num_old, num_new, upsample, state)
    first = np.random.RandomState(state).random_sample()
    shares = np.concatenate([[0.0], (np.arange(count) + first) / count, [1.0]])
    # The ends stand for one row each: many partitions have their ends in the same place.
    weights = [100.0, *[100.0 * (rows - 2) / count] * count, 100.0]
    found = at_shares(series.to_numpy(), shares) if series.dtype in ("f8", "i8") else None
    if found is None:
        found = series.quantile(q=shares, interpolation="linear" if series.dtype.kind == "f" else "nearest").to_numpy()
    return tolist_dispatch(found), weights


def _is_plain(series: Any) -> bool:
    import numpy as np
    import pandas as pd

    return type(series) is pd.Series and isinstance(series.dtype, np.dtype) and series.dtype.kind in "iufM"


def at_shares(values: Any, shares: Any) -> Any:
    """The quantiles of an array.

    Args:
        values: An array of numbers: whole ones give the nearest of them, others are interpolated (method 7 of
            Hyndman and Fan 1996, as in NumPy).
        shares: Which ones, from 0 to 1.

    Returns:
        An array as long as `shares`; None if some numbers are missing or infinite.
    """
    import numpy as np

    places = (len(values) - 1) * shares
    if values.dtype.kind == "i":
        return in_order(values, np.around(places).astype(np.intp))
    before = np.floor(places)
    found = in_order(values, np.concatenate([before, np.minimum(before + 1, len(values) - 1)]).astype(np.intp))
    if found is None:
        return None
    low, high = np.split(found, 2)
    # Interpolated from the nearer end, so that the result is exact at both ends.
    part, width = places - before, high - low
    return np.where(part < 0.5, low + width * part, high - width * (1 - part))


def in_order(values: Any, places: Any) -> Any:
    """The numbers that would be at these places if all were sorted.

    Args:
        values: An array of numbers.
        places: An array of whole numbers from 0 to below the number of values.

    Returns:
        An array as long as that of the places; None if some numbers are missing or infinite.
    """
    import numpy as np

    low, high = float(values.min()), float(values.max())
    width = high - low
    if not np.isfinite(width):
        return None
    if len(values) < _ROWS_MIN or width <= 0 or not np.isfinite(_CELLS / width):
        return np.sort(values)[places]
    # None of these operations reverses the order of two numbers: numbers in a lower cell are less.
    cells, counts = np.empty(len(values), dtype=np.uint16), np.zeros(_CELLS, dtype=np.intp)
    for begin in range(0, len(values), _BLOCK_ROWS):
        block = (values[begin : begin + _BLOCK_ROWS].astype(np.float64) - low) * (_CELLS / width)
        block = np.minimum(block, _CELLS - 1).astype(np.uint16)
        cells[begin : begin + _BLOCK_ROWS] = block
        counts += np.bincount(block, minlength=_CELLS)
    ends = counts.cumsum()
    of_places = np.searchsorted(ends, places, side="right")
    is_wanted = np.zeros(_CELLS, dtype=bool)
    is_wanted[of_places] = True
    if counts[is_wanted].sum() > len(values) * _SORTED_SHARE:
        return np.sort(values)[places]
    found = np.sort(values[is_wanted[cells]])
    # Convert to places among the sorted numbers: subtract the numbers in lower cells that are not wanted.
    left_out = np.where(is_wanted, 0, counts).cumsum()
    return found[places - left_out[of_places]]
