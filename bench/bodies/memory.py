"""What the rows on memory compute: bodies of tasks, without any engine, and data that tasks make.

Every system runs these as they are. Nothing here measures.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

ITEMS = 10_000
MB = 1_000_000


def array_of(size: int) -> Any:
    """An array of so many bytes whose pages were touched, each number its own."""
    return np.arange(size // 8, dtype=np.float64)


def total(array: Any) -> float:
    """The sum of the array; NumPy gives up the GIL meanwhile."""
    return float(array.sum())


def items(array: Any) -> float:
    """The sum of some items at random places, one by one: the GIL is held all the time."""
    found = 0.0
    for place in random.choices(range(len(array)), k=ITEMS):
        found += array[place]
    return found


BODIES = {"sum": total, "items": items}


def frame(number: int, rows: int) -> Any:
    """One partition of a table with one column of random numbers, the same ones each time."""
    import pandas as pd

    return pd.DataFrame({"key": np.random.default_rng(number).random(rows)})


def judged(part: Any) -> Any:
    """What one partition of a sorted table comes to: rows, smallest, largest, whether in order."""
    import pandas as pd

    index = part.index
    if not len(index):
        return pd.DataFrame({"rows": [0], "first": [0.0], "last": [0.0], "sorted": [True]})
    ordered = bool(index.is_monotonic_increasing)
    ends = {"first": [float(index[0])], "last": [float(index[-1])]}
    return pd.DataFrame({"rows": [len(index)], **ends, "sorted": [ordered]})


def verify(found: Any, rows: int) -> None:
    """Assert that judged partitions, in order, are all the rows of the table in order."""
    assert int(found["rows"].sum()) == rows, f"{found['rows'].sum()} of {rows} rows are left"
    assert bool(found["sorted"].all()), "a partition is not in order"
    full = found[found["rows"] > 0]
    firsts, lasts = full["first"].to_list(), full["last"].to_list()
    in_order = all(last <= first for last, first in zip(lasts, firsts[1:], strict=False))
    assert in_order, "partitions overlap"
