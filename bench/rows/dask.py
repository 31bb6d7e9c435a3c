"""The rows that Dask distributed has a counterpart for: tasks, one actor, and small values."""

from __future__ import annotations

from typing import Any

from bodies import plain as bodies
from harness.measure import Body, Row


def rows(client: Any) -> dict[str, Row]:
    """Rows over a `distributed.Client`; `pure=False`, or equal calls are answered from memory."""

    def get_small() -> Body:
        future = client.scatter(0, hash=False)
        return lambda: future.result()

    def put_small() -> Body:
        return lambda: client.scatter(0, hash=False)

    def task_sync() -> Body:
        return lambda: client.submit(bodies.ok, pure=False).result()

    def tasks_async() -> Body:
        items = range(1000)
        return lambda: client.gather(client.map(bodies.ok_of, items, pure=False))

    def actor_sync() -> Body:
        actor = client.submit(bodies.Server, actor=True, pure=False).result()
        return lambda: actor.ok().result()

    def actor_async() -> Body:
        actor = client.submit(bodies.Server, actor=True, pure=False).result()

        def call_and_collect() -> None:
            futures = [actor.ok() for _ in range(1000)]
            for future in futures:
                future.result()

        return call_and_collect

    return {
        "get_small": Row(get_small),
        "put_small": Row(put_small),
        "task_sync": Row(task_sync),
        "tasks_async": Row(tasks_async, 1000),
        "tasks_batch": Row(tasks_async),
        "actor_sync": Row(actor_sync),
        "actor_async": Row(actor_async, 1000),
    }
