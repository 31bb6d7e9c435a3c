"""Estimates pi by sampling in tasks, which report to an actor how far they are; the driver polls it."""

from __future__ import annotations

import time

import numpy as np
import ray
from ray.actor import ActorHandle

TASKS = 6
BATCHES = 10
BATCH_SIZE = 50_000


@ray.remote
class Progress:
    def __init__(self, total: int) -> None:
        self.total = total
        self.done: dict[int, int] = {}

    def report(self, task: int, batches: int) -> None:
        self.done[task] = batches

    def fraction(self) -> float:
        return sum(self.done.values()) / self.total


def count_inside(rng: np.random.Generator) -> int:
    x, y = rng.random((2, BATCH_SIZE))
    return int(np.count_nonzero(x * x + y * y <= 1.0))


@ray.remote
def sample(task: int, progress: ActorHandle) -> int:
    rng = np.random.default_rng(task)
    inside = 0
    for batch in range(BATCHES):
        inside += count_inside(rng)
        progress.report.remote(task, batch + 1)
    return inside


def sample_here(task: int) -> int:
    rng = np.random.default_rng(task)
    return sum(count_inside(rng) for _ in range(BATCHES))


def main() -> None:
    ray.init(num_cpus=2)
    progress = Progress.remote(TASKS * BATCHES)
    results = [sample.remote(task, progress) for task in range(TASKS)]

    seen = [0.0]
    while seen[-1] < 1.0:
        time.sleep(0.02)
        seen.append(ray.get(progress.fraction.remote()))
        if seen[-1] > seen[-2]:
            print(f"{seen[-1]:.0%} of the samples are drawn")
    assert seen == sorted(seen), f"the progress went back: {seen}"

    inside = sum(ray.get(results))
    expected = sum(sample_here(task) for task in range(TASKS))
    assert inside == expected, f"{inside} points inside instead of {expected}"
    samples = TASKS * BATCHES * BATCH_SIZE
    print(f"answer: pi is about {4 * inside / samples:.6f} from {samples} samples")


if __name__ == "__main__":
    main()
