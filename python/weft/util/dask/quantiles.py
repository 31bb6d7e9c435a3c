"""The sketch of a column from which Dask finds the divisions of a `set_index`, in less time.

Dask asks for some dozens of quantiles of each partition. NumPy moves all numbers about until those at the wanted places
are where sorting would put them. Here the range of the numbers is cut into equal cells, the numbers in each are
counted, and only the cells that hold a wanted place are sorted.

Columns that are not plain, and numbers of which most lie in few cells, are left to Dask's own way.
"""

from __future__ import annotations

from typing import Any

# Into how many cells the range is cut: what 16 bits can number.
_CELLS = 1 << 16
# With fewer rows NumPy's way is as good.
_ROWS_MIN = 1 << 17
# Rows whose cells are found at a time, so that what is needed for them stays in the caches of the processor.
_BLOCK_ROWS = 1 << 16
# The part of all numbers that may lie in cells that are sorted.
_SORTED_SHARE = 1 / 8


def percentiles_summary(series: Any, *args: Any) -> Any:
    """What `dask.dataframe.partitionquantiles.percentiles_summary` gives.

    Args:
        series: The column of one partition.
        *args: Its other arguments.
    """
    from dask.dataframe.partitionquantiles import percentiles_summary as dasks

    return dasks(_Column(series) if _is_plain(series) else series, *args)


def _is_plain(series: Any) -> bool:
    import numpy as np
    import pandas as pd

    kind = series.dtype
    return (
        type(series) is pd.Series and isinstance(kind, np.dtype) and kind in ("f8", "i8") and len(series) >= _ROWS_MIN
    )


class _Column:
    """What Dask's function asks of a series, with a `quantile` of its own.

    Args:
        series: A series of numbers of 64 bits.
    """

    def __init__(self, series: Any) -> None:
        self._series = series
        self.dtype = series.dtype

    def __len__(self) -> int:
        return len(self._series)

    def quantile(self, q: Any, interpolation: str) -> Any:
        """As that of a series, but an array.

        Args:
            q: Which ones, from 0 to 1.
            interpolation: "linear" or "nearest".
        """
        import numpy as np

        # Between which two places each lies, and how far it is from the first to the second (method 7 of Hyndman and
        # Fan 1996, as in NumPy).
        places = (len(self) - 1) * q
        before = np.floor(places) if interpolation == "linear" else np.around(places)
        found = None
        if interpolation in ("linear", "nearest") and q.min() >= 0 and q.max() <= 1:
            last = len(self) - 1
            wanted = np.concatenate([before, np.minimum(before + 1, last)]).astype(np.intp)
            found = in_order(self._series.to_numpy(), wanted)
        if found is None:
            return self._series.quantile(q=q, interpolation=interpolation).to_numpy()
        low, high = np.split(found, 2)
        if interpolation == "nearest":
            return low
        # From the nearer end, so that the result is exact at both.
        part, width = places - before, high - low
        return np.where(part < 0.5, low + width * part, high - width * (1 - part))


def in_order(values: Any, places: Any) -> Any:
    """The numbers that would be at these places if all were sorted.

    Args:
        values: An array of numbers.
        places: An array of whole numbers from 0 to below the number of values.

    Returns:
        An array as long as that of the places; None if they have to be found in another way, because of missing or
        infinite numbers, or because too many lie too close to each other.
    """
    import numpy as np

    low, high = float(values.min()), float(values.max())
    width = high - low
    if not np.isfinite(width) or width <= 0 or not np.isfinite(_CELLS / width):
        return None
    # None of these operations turns the order of two numbers around: what is in a cell below is less.
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
        return None
    found = np.sort(values[is_wanted[cells]])
    # Places in what was sorted: without what lies in the cells below that nobody wants.
    left_out = np.where(is_wanted, 0, counts).cumsum()
    return found[places - left_out[of_places]]
