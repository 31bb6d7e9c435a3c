"""The rows of sooner's drop-ins, and the same bodies on what they stand in for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bodies import plain as bodies
from harness import environment
from harness.measure import Body, Row

ITEMS = 1000
TINY_CALLS = 10_000
ARRAY_CALLS = 100
ARRAY_BYTES = 100_000_000
REFS = 100_000


def executor_rows(make: Callable[[], Any]) -> dict[str, Row]:
    """Rows of a `concurrent.futures.Executor`."""

    def sync() -> Body:
        executor = make()
        return lambda: executor.submit(bodies.ok).result()

    def many() -> Body:
        executor = make()
        return lambda: list(executor.map(bodies.ok_of, range(ITEMS)))

    return {"executor_sync": Row(sync), "executor_map": Row(many, ITEMS)}


def pool_rows(make: Callable[[], Any]) -> dict[str, Row]:
    """Rows of a `multiprocessing.Pool`."""

    def apply() -> Body:
        pool = make()
        return lambda: pool.apply(bodies.ok)

    def one_by_one() -> Body:
        pool = make()
        return lambda: pool.map(bodies.ok_of, range(ITEMS), chunksize=1)

    def in_chunks() -> Body:
        pool = make()
        return lambda: pool.map(bodies.ok_of, range(ITEMS))

    return {
        "pool_apply": Row(apply),
        "pool_map_one": Row(one_by_one, ITEMS),
        "pool_map": Row(in_chunks, ITEMS),
    }


def joblib_rows(backend: str, workers: int) -> dict[str, Row]:
    """Rows of a joblib backend."""

    def tiny() -> Body:
        from joblib import Parallel, delayed

        _register(backend)

        def run() -> None:
            calls = (delayed(bodies.ok_of)(index) for index in range(TINY_CALLS))
            Parallel(n_jobs=workers, backend=backend)(calls)

        return run

    def array() -> Body:
        import numpy as np
        from joblib import Parallel, delayed

        _register(backend)
        shared = np.ones(ARRAY_BYTES // 8)

        def run() -> None:
            calls = (delayed(bodies.first_of)(shared) for _ in range(ARRAY_CALLS))
            Parallel(n_jobs=workers, backend=backend)(calls)

        return run

    return {"joblib_tiny": Row(tiny, TINY_CALLS), "joblib_array": Row(array, ARRAY_CALLS)}


def _register(backend: str) -> None:
    if backend == "sooner":
        import sooner.util.joblib

        sooner.util.joblib.register()


def rows(scale: float) -> dict[str, Row]:
    """The rows of sooner."""
    import sooner
    from sooner.util import as_completed
    from sooner.util.multiprocessing import Pool

    workers = environment.workers()
    task = sooner.remote(bodies.ok)
    count = int(REFS * scale)

    def collect_as_completed() -> None:
        for _ in as_completed([task.remote() for _ in range(count)]):
            pass

    return {
        **executor_rows(lambda: sooner.Executor(workers)),
        **pool_rows(lambda: Pool(workers)),
        **joblib_rows("sooner", workers),
        "as_completed": Row(lambda: collect_as_completed, count),
    }
