"""One row measured: warm up, then windows; and what a list of samples comes to."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

Body = Callable[[], object]


@dataclass(frozen=True)
class Pace:
    """How long to measure.

    Attributes:
        warm_s: The body is repeated this long before anything counts.
        window_s: A window lasts at least this long.
        windows: How many windows one visit of a row has.
        scale: What the largest bodies are shortened by; rates stay comparable.
    """

    warm_s: float
    window_s: float
    windows: int
    scale: float


FULL = Pace(warm_s=0.5, window_s=1.0, windows=2, scale=1.0)
QUICK = Pace(warm_s=0.1, window_s=0.2, windows=2, scale=0.1)


@dataclass(frozen=True)
class Row:
    """One thing to measure.

    Attributes:
        setup: Makes what the row needs and returns the body.
        items: What one call of the body counts for.
        micros: Report microseconds per item instead of items per second.
        fresh: Set up so many times, a window each: the outcome depends on where processes land.
        warm: Warm up so many times longer, where memory is touched for the first time.
    """

    setup: Callable[[], Body]
    items: float = 1
    micros: bool = False
    fresh: int = 0
    warm: float = 1


def _window(body: Body, step: int, seconds_min: float) -> tuple[int, float]:
    calls = 0
    start = time.perf_counter()
    while True:
        for _ in range(step):
            body()
        calls += step
        elapsed = time.perf_counter() - start
        if elapsed >= seconds_min:
            return calls, elapsed


def windows(body: Body, pace: Pace, count: int, warm: float = 1) -> list[tuple[int, float]]:
    """Warm up, then measure `count` windows; (calls, seconds) of each.

    The clock is read once a step, a tenth of the calls of the warm-up. A body that lasts longer
    than several windows is called once more after the warm-up and no further: on the slow peers
    each call of the largest rows costs half a minute.
    """
    start = time.perf_counter()
    body()
    first = time.perf_counter() - start
    if first > 4 * pace.window_s:
        return [_window(body, 1, 0.0)]
    calls, _ = _window(body, 1, warm * pace.warm_s)
    return [_window(body, calls // 10 + 1, pace.window_s) for _ in range(count)]


def run(row: Row, pace: Pace) -> list[float]:
    """Measure one row; one sample per window."""
    if row.fresh:
        taken = [sample for _ in range(row.fresh) for sample in windows(row.setup(), pace, 1)]
    else:
        taken = windows(row.setup(), pace, pace.windows, row.warm)
    if row.micros:
        return [1e6 * seconds / (row.items * calls) for calls, seconds in taken]
    return [row.items * calls / seconds for calls, seconds in taken]


def median(samples: list[float]) -> float:
    """The middle of the samples."""
    return statistics.median(samples)


def spread(samples: list[float]) -> float:
    """Half the distance between the largest and the smallest sample, as a part of the median."""
    middle = statistics.median(samples)
    return (max(samples) - min(samples)) / 2 / middle if middle else 0.0
