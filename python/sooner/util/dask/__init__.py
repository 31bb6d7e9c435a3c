"""Dask on sooner: a scheduler that runs the graphs of Dask's collections as sooner's tasks.

Every task of a graph becomes a task of sooner, with references to the results of others among its arguments:
values move from worker to worker and never through the program that computes. The names follow Dask-on-Ray's.

Example:
    >>> import dask.array
    >>> from sooner.util.dask import enable_dask_on_sooner
    >>> with enable_dask_on_sooner():  # doctest: +SKIP
    ...     dask.array.ones(1000, chunks=100).sum().compute()
    np.float64(1000.0)
"""

from __future__ import annotations

try:
    # Fails without Dask, or with a version that is too old.
    import dask._expr
    import dask._task_spec  # noqa: F401
except ImportError as missing:
    raise ImportError("sooner.util.dask needs Dask 2025.5 or later: pip install 'sooner[dask]'") from missing

from sooner.util.dask.callbacks import SoonerDaskCallback
from sooner.util.dask.scheduler import (
    disable_dask_on_sooner,
    enable_dask_on_sooner,
    sooner_dask_get,
    sooner_dask_get_sync,
)

__all__ = [
    "SoonerDaskCallback",
    "disable_dask_on_sooner",
    "enable_dask_on_sooner",
    "sooner_dask_get",
    "sooner_dask_get_sync",
]
