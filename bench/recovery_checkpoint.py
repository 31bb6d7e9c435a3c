"""Recovery of an actor with checkpoints (Ray, figure 11b): what is executed again, and how long.

An actor executes calls, then its process is killed. Compared are checkpoints, no checkpoint so far
(every call is made again), and a plain restart, which keeps no call and loses the state.

    python bench/recovery_checkpoint.py [--calls 10000] [--every 500] [--repeats 5]
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import sooner


class Counter:
    """Counts what it executes: in its state, and in a file that outlives its process."""

    def __init__(self, path: str) -> None:
        self.value = 0
        self.executed = Path(path).open("ab", buffering=0)  # noqa: SIM115  open as long as the actor lives

    def add(self) -> int:
        """Change the state."""
        self.value += 1
        self.executed.write(b".")
        return self.value

    @sooner.method(read_only=True)
    def read(self) -> int:
        """Tell the state."""
        return self.value

    @sooner.method(read_only=True)
    def pid(self) -> int:
        """Tell the process to kill."""
        return os.getpid()

    def __sooner_checkpoint__(self) -> int:
        return self.value

    def __sooner_restore__(self, state: int) -> None:
        self.value = state


class Recovery(NamedTuple):
    """One recovery: calls executed again, calls that the state lacks, and how long it took."""

    executed_again: int
    lost: int
    seconds: float


def recover(calls: int, options: dict[str, Any]) -> Recovery:
    """Let an actor execute so many calls, kill its process, and wait until it answers again."""
    with tempfile.NamedTemporaryFile() as file:
        actor = sooner.remote(Counter).options(**options).remote(file.name)
        sooner.get([actor.add.remote() for _ in range(calls)])
        pid = sooner.get(actor.pid.remote())
        start = time.perf_counter()
        os.kill(pid, signal.SIGKILL)
        value = sooner.get(actor.read.options(max_task_retries=-1).remote())
        seconds = time.perf_counter() - start
        executed = Path(file.name).stat().st_size
        sooner.kill(actor)
    return Recovery(executed - calls, calls - value, seconds)


def variants(every: int) -> dict[str, dict[str, Any]]:
    """Return the options of each variant."""
    return {
        f"a checkpoint every {every} calls": {"checkpoint_every": every},
        "no checkpoint so far": {"checkpoint_every": 2**31 - 1},
        "plain restart": {"max_restarts": -1},
    }


def main() -> None:
    """Print one line per variant."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--every", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    # One call before a checkpoint is as far from the last one as it gets.
    calls = asked.calls - 1
    with sooner.init(num_cpus=2):
        for name, options in variants(asked.every).items():
            found = [recover(calls, options) for _ in range(asked.repeats)]
            again, lost, seconds = (statistics.median(part) for part in zip(*found, strict=True))
            print(
                f"{name}: of {calls} calls {again} executed again, {lost} lost; "
                f"it answers {1000 * seconds:.0f} ms after the kill"
            )


if __name__ == "__main__":
    main()
