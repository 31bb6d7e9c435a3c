"""The process that measures one peer: starts it, runs the rows it is told to, reports over a pipe.

    python -m harness.agent <peer> <workers> <plan> <descriptor>

The plan is JSON: the keys of the rows, and the pace. Reports are JSON lines on the descriptor:
`started`, `begin`, `row`, `error`, `done`. The start is timed before anything else is imported.
"""

from __future__ import annotations

import sys
import time

from systems import peers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from harness.measure import Row


def main() -> None:
    """Start the peer, run the plan, stop the peer."""
    name, workers = sys.argv[1], int(sys.argv[2])
    begin = time.perf_counter()
    handle, version, stop = peers.start(name, workers)
    seconds = time.perf_counter() - begin

    import gc
    import json
    import os
    import traceback

    from harness import measure

    descriptor = int(sys.argv[4])
    os.set_inheritable(descriptor, False)

    def tell(**event: object) -> None:
        os.write(descriptor, json.dumps(event).encode() + b"\n")

    tell(event="started", seconds=seconds, version=version)
    plan = json.loads(sys.argv[3])
    pace = measure.Pace(**plan["pace"])
    rows = _rows(name, handle, pace.scale) if plan["keys"] else {}
    for key in plan["keys"]:
        if key not in rows:
            continue
        tell(event="begin", key=key)
        try:
            tell(event="row", key=key, samples=measure.run(rows[key], pace))
        except Exception:
            tell(event="error", key=key, text=traceback.format_exc(limit=-4))
        # Actors and arrays of this row go before the next one begins.
        gc.collect()
    tell(event="done")
    stop()


def _rows(name: str, handle: Any, scale: float) -> dict[str, Row]:
    """The rows of a peer. Imported late: numpy and the rest are no part of the peer's start."""
    if name in ("sooner", "ray"):
        from rows import core as rows_core

        core = rows_core.rows(scale)
        if name == "ray":
            return core
        from rows import drop_in as rows_drop_in

        return core | rows_drop_in.rows(scale)
    if name == "loky":
        from rows import drop_in as rows_drop_in

        return rows_drop_in.joblib_rows("loky", handle)
    if name == "limits":
        from rows import limits

        return limits.rows()
    if name == "dask":
        from rows import dask as rows_dask

        return rows_dask.rows(handle)
    from rows import pool as rows_pool

    return rows_pool.pool_rows(handle) if name == "pool" else rows_pool.executor_rows(handle)


if __name__ == "__main__":
    main()
