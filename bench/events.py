"""What the record of task events costs: recorded and unrecorded calls take turns in one session.

    python bench/events.py [batches] [calls]

Prints, for tasks and for calls of an actor, nanoseconds per call with and without a record, and the
difference. Both kinds of batches meet the same disturbances, so the lower quartile of many short
batches says more than one long run.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import sooner


@sooner.remote
def nothing() -> None:
    """A task that does nothing."""


@sooner.remote
class Nobody:
    """An actor that does nothing."""

    def call(self) -> None:
        """Nothing."""


def measure(submit: Callable[[], Any], calls: int) -> float:
    """Nanoseconds per call."""
    begin = time.perf_counter_ns()
    sooner.get([submit() for _ in range(calls)])
    return (time.perf_counter_ns() - begin) / calls


def compare(
    name: str, recorded: Callable[[], Any], unrecorded: Callable[[], Any], batches: int, calls: int
) -> None:
    """Prints one row."""
    for submit in (recorded, unrecorded):
        measure(submit, calls)
    pairs = [(measure(recorded, calls), measure(unrecorded, calls)) for _ in range(batches)]
    on, off = (statistics.quantiles(side, n=4)[0] for side in zip(*pairs, strict=True))
    print(
        f"{name:12} {on:8.0f} ns {off:8.0f} ns {on - off:+7.0f} ns {100 * (on - off) / off:+6.1f} %"
    )


def main() -> None:
    """Compares."""
    batches = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    calls = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    with sooner.init(num_cpus=2):
        actor = Nobody.remote()
        print(f"{'':12} {'recorded':>11} {'not':>11} {'difference':>10}")
        compare(
            "tasks",
            nothing.remote,
            nothing.options(enable_task_events=False).remote,
            batches,
            calls,
        )
        silent = actor.call.options(enable_task_events=False)
        compare("actor calls", actor.call.remote, silent.remote, batches, calls)


if __name__ == "__main__":
    main()
