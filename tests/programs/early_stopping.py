"""Successive halving: trials train up to a rung, where the worse half is cancelled and the rest trains on."""

from __future__ import annotations

import asyncio

import numpy as np
import ray
from ray.actor import ActorHandle
from ray.exceptions import TaskCancelledError

RATES = (0.01, 0.5, 0.05, 2.2, 1.0, 0.2)
RUNG = 10
STEPS = 40


def train(rate: float, weights: np.ndarray, steps: int) -> tuple[np.ndarray, float]:
    """Steps of gradient descent on a quadratic function: the weights, and their loss."""
    curvature = np.array([1.0, 0.3, 0.1])
    for _ in range(steps):
        weights = weights - rate * curvature * weights
    return weights, float(curvature @ weights**2)


@ray.remote
class Rung:
    """Where trials stop until they may go on."""

    def __init__(self, trials: int) -> None:
        self.losses: dict[int, float] = {}
        self.arrivals = [asyncio.Event() for _ in range(trials)]
        self.promotions = [asyncio.Event() for _ in range(trials)]

    async def arrive(self, trial: int, loss: float) -> None:
        self.losses[trial] = loss
        self.arrivals[trial].set()
        await self.promotions[trial].wait()

    async def loss(self, trial: int) -> float:
        await self.arrivals[trial].wait()
        return self.losses[trial]

    async def promote(self, trial: int) -> None:
        self.promotions[trial].set()


@ray.remote(num_cpus=0.25, max_retries=0)
def run_trial(trial: int, rung: ActorHandle) -> float:
    weights, loss = train(RATES[trial], np.ones(3), RUNG)
    ray.get(rung.arrive.remote(trial, loss))
    return train(RATES[trial], weights, STEPS - RUNG)[1]


def main() -> None:
    ray.init(num_cpus=2)
    rung = Rung.remote(len(RATES))
    trials = [run_trial.remote(trial, rung) for trial in range(len(RATES))]

    waiting = {rung.loss.remote(trial): trial for trial in range(len(RATES))}
    losses: dict[int, float] = {}
    while waiting:
        [ready], _ = ray.wait(list(waiting), num_returns=1)
        losses[waiting.pop(ready)] = ray.get(ready)
    ranked = sorted(losses, key=losses.__getitem__)
    better, worse = ranked[: len(ranked) // 2], ranked[len(ranked) // 2 :]
    for trial in worse:
        ray.cancel(trials[trial])
    ray.get([rung.promote.remote(trial) for trial in better])

    for trial in worse:
        try:
            ray.get(trials[trial], timeout=60)
        except TaskCancelledError:
            continue
        raise AssertionError(f"trial {trial} was not cancelled")
    final = dict(zip(better, ray.get([trials[trial] for trial in better]), strict=True))

    for trial in better:
        expected = train(RATES[trial], np.ones(3), STEPS)[1]
        assert np.isclose(final[trial], expected), f"trial {trial} ended at {final[trial]}, not at {expected}"
    plain = sorted(range(len(RATES)), key=lambda trial: train(RATES[trial], np.ones(3), RUNG)[1])
    assert better == plain[: len(better)], f"{better} went on instead of {plain[: len(better)]}"
    best = min(final, key=final.__getitem__)
    stopped = sorted(RATES[trial] for trial in worse)
    print(f"answer: rate {RATES[best]} is the best, rates {stopped} were stopped")


if __name__ == "__main__":
    main()
