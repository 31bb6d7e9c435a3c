"""Dask on weft: a scheduler that runs the graphs of Dask's collections as weft's tasks.

Every task of a graph becomes a task of weft, with the results of others as references among its arguments: values go
from worker to worker and never through the program that computes. The names follow Dask-on-Ray's.

Example:
    >>> import dask.array
    >>> from weft.util.dask import enable_dask_on_weft
    >>> with enable_dask_on_weft():  # doctest: +SKIP
    ...     dask.array.ones(1000, chunks=100).sum().compute()
    np.float64(1000.0)
"""

from __future__ import annotations

try:
    # Without it or with one that is too old.
    import dask._expr
    import dask._task_spec  # noqa: F401
except ImportError as missing:
    raise ImportError("weft.util.dask needs Dask 2025.5 or later: pip install 'weft[dask]'") from missing

from weft.util.dask.callbacks import WeftDaskCallback
from weft.util.dask.scheduler import (
    disable_dask_on_weft,
    enable_dask_on_weft,
    weft_dask_get,
    weft_dask_get_sync,
)

__all__ = [
    "WeftDaskCallback",
    "disable_dask_on_weft",
    "enable_dask_on_weft",
    "weft_dask_get",
    "weft_dask_get_sync",
]
