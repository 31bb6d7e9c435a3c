"""How soon a death is known, and how soon an actor is usable again: processes are killed with -9.

    python bench/recovery_latency.py [kills of workers] [kills of actors]

Prints, in milliseconds from the signal, the distribution of

- the typed error of a task whose worker was killed and that is not retried;
- the first answer of an actor that restarts. Each actor is killed five times: one that ends again
  and again within a second of its start is given pauses.
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import sooner

KILLS_PER_ACTOR = 5


@sooner.remote(max_retries=0)
def sleeps(mark: Path) -> None:
    """A task that is killed while it runs."""
    mark.write_text(str(os.getpid()))
    time.sleep(1000)


@sooner.remote(max_restarts=-1, max_task_retries=-1)
class Phoenix:
    """An actor that is killed between calls."""

    def pid(self) -> int:
        """Of its process."""
        return os.getpid()


def pid_in(mark: Path) -> int:
    """The number that a task has written into a file."""
    while not mark.exists() or not mark.read_text():
        time.sleep(0.001)
    return int(mark.read_text())


def since_kill(pid: int, wait: Callable[[], object]) -> float:
    """Milliseconds from the signal to the end of a wait."""
    begin = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    wait()
    return 1e3 * (time.perf_counter() - begin)


def typed_error(ref: sooner.ObjectRef[None]) -> None:
    """Waits for the error."""
    try:
        sooner.get(ref, timeout=60)
    except sooner.exceptions.WorkerCrashedError:
        return
    raise AssertionError("the crash went unnoticed")


def task_errors(kills: int, directory: Path) -> list[float]:
    """Kills a worker in a task, so many times."""
    times = []
    for number in range(kills):
        mark = directory / str(number)
        ref = sleeps.remote(mark)
        times.append(since_kill(pid_in(mark), lambda ref=ref: typed_error(ref)))
    return times


def actor_restarts(kills: int) -> list[float]:
    """Kills actors, so many times in all."""
    times: list[float] = []
    while len(times) < kills:
        actor = Phoenix.remote()
        for _ in range(min(KILLS_PER_ACTOR, kills - len(times))):
            pid = sooner.get(actor.pid.remote(), timeout=60)
            times.append(since_kill(pid, lambda a=actor: sooner.get(a.pid.remote(), timeout=60)))
    return times


def row(name: str, times: list[float]) -> None:
    """Prints one distribution."""
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    print(
        f"{name:34} {len(times):4} kills   median {cuts[49]:6.1f}   p90 {cuts[89]:6.1f}"
        f"   p99 {cuts[98]:6.1f}   max {max(times):6.1f} ms"
    )


def main() -> None:
    """Kills and measures."""
    workers = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    actors = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    with TemporaryDirectory() as directory, sooner.init(num_cpus=2):
        row("worker killed: WorkerCrashedError", task_errors(workers, Path(directory)))
        row("actor killed: usable again", actor_restarts(actors))


if __name__ == "__main__":
    main()
