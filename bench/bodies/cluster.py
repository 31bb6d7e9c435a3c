"""Tasks and actors of the rows on several nodes: the same text runs under sooner and under Ray.

The engine is the one that the environment names; workers import this module once. Times are those
of the monotonic clock, which all processes of one machine share.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from bodies import plain as bodies
from bodies.core import api, touched_zeros


def began(_argument: object = None) -> float:
    """Return when it began (seconds)."""
    return time.monotonic()


def drive(count: int, batch: int, options: dict[str, Any]) -> bytes:
    """Submit `count` tasks, `batch` at a time, and wait for them."""
    task = api.remote(bodies.ok).options(**options)
    batch = min(batch, count)
    for _ in range(count // batch):
        api.get([task.remote() for _ in range(batch)])
    return b"ok"


def make(elements: int) -> Any:
    """Return an array of so many int64, whose pages are there."""
    return touched_zeros(elements)


def reads(array: Any) -> int:
    """Look at the last number of an array."""
    return int(array[-1])


def outlives(directory: str) -> bytes:
    """Say where and when it began; the first time, never end."""
    path = Path(directory)
    attempt = len(list(path.iterdir()))
    # What is read is whole: it appears under its name with its contents.
    draft = path.parent / f"draft-{os.getpid()}"
    draft.write_text(f"{time.monotonic()} {api.get_runtime_context().get_node_id()}")
    draft.rename(path / str(attempt))
    if attempt == 0:
        time.sleep(3600)
    return b"ok"


def link(_previous: object, sleep_s: float, elements: int) -> Any:
    """One task of a chain: sleep, then return two bytes or an array of `elements` numbers."""
    time.sleep(sleep_s)
    return touched_zeros(elements) if elements else b"ok"


class Counter:
    """An actor whose answers tell whether a call was lost or executed twice."""

    def __init__(self) -> None:
        self.count = 0

    def add(self) -> int:
        """Count one call."""
        self.count += 1
        return self.count
