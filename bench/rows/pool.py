"""The task rows on the standard library's process pools."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing.pool import Pool

from bodies import plain as bodies
from harness.measure import Body, Row
from rows import drop_in as rows_drop_in

# A hundred thousand of its futures would take ten seconds and more.
FUTURES = 10_000


def pool_rows(pool: Pool) -> dict[str, Row]:
    """Rows of `multiprocessing.Pool`: one task at a time, and a map of 1000 in chunks of one."""

    def sync() -> Body:
        return lambda: pool.apply(bodies.ok)

    def batch() -> Body:
        items = range(1000)
        return lambda: pool.map(bodies.ok_of, items, chunksize=1)

    return {
        "task_sync": Row(sync),
        "tasks_async": Row(batch, 1000),
        "tasks_batch": Row(batch),
        **rows_drop_in.pool_rows(lambda: pool),
    }


def executor_rows(executor: ProcessPoolExecutor) -> dict[str, Row]:
    """Rows of `ProcessPoolExecutor`: one task at a time, and 1000 futures collected at the end."""

    def sync() -> Body:
        return lambda: executor.submit(bodies.ok).result()

    def batch() -> Body:
        def submit_and_collect() -> None:
            futures = [executor.submit(bodies.ok) for _ in range(1000)]
            for future in futures:
                future.result()

        return submit_and_collect

    def collect_as_completed() -> None:
        for future in as_completed([executor.submit(bodies.ok) for _ in range(FUTURES)]):
            future.result()

    return {
        "task_sync": Row(sync),
        "tasks_async": Row(batch, 1000),
        "tasks_batch": Row(batch),
        **rows_drop_in.executor_rows(lambda: executor),
        "as_completed": Row(lambda: collect_as_completed, FUTURES),
    }
