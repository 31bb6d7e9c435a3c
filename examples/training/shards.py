"""A parameter server in shards, and the workers around it (the Ray paper, section 5.2.1).

Parameters lie in shards, which are actors with checkpoints. Workers keep nothing. So any of these processes
may die at any time.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
from network import Floats, first_parameters, load_digits, part_gradient, stored

import sooner
from sooner.util.flat import Layout

RATE = 0.5
MOMENTUM = 0.5


@sooner.remote(checkpoint_every=10)
class Shard:
    """A part of the parameters, and how they change."""

    def __init__(self, parameters: Floats, rate: float) -> None:
        self.parameters, self.rate = parameters.copy(), rate
        self.velocity = np.zeros_like(parameters)
        self.steps = 0

    def apply(self, gradient: Floats) -> Floats:
        """Takes a step against the gradient, and returns the new parameters."""
        self.velocity = MOMENTUM * self.velocity - self.rate * gradient
        self.parameters = self.parameters + self.velocity
        self.steps += 1
        return stored(self.parameters)

    @sooner.method(read_only=True)
    def count(self) -> int:
        """How many steps were taken."""
        return self.steps

    def __sooner_checkpoint__(self) -> Any:
        return self.parameters, self.rate, self.velocity, self.steps

    def __sooner_restore__(self, state: Any) -> None:
        self.parameters, self.rate, self.velocity, self.steps = state


@sooner.remote(max_restarts=-1, max_task_retries=-1)
class Worker:
    """Computes gradients. It keeps nothing, so any call can be made again."""

    def __init__(self, layout: Layout, cuts: list[int], data: Any, pause: float = 0.0) -> None:
        self.layout, self.cuts, self.data, self.pause = layout, cuts, data, pause

    def gradient(self, step: int, part: int, *shards: Floats) -> list[Any]:
        """The loss of a part, and its gradient for each shard."""
        time.sleep(self.pause)
        loss, gradient = part_gradient(self.layout, np.concatenate(shards), self.data, step, part)
        return [loss, *map(stored, np.split(gradient, self.cuts))]


class Run(NamedTuple):
    """A finished training."""

    parameters: Floats
    losses: list[float]
    steps: list[int]
    seconds: float
    # How often each worker's gradient was in a step, if not all are.
    used: list[int]


class Server:
    """Shards, and the workers around them.

    Args:
        workers: How many workers.
        shards: How many shards.
        slow: Seconds that the first worker sleeps before each gradient.
        rate: How far a step goes.
    """

    def __init__(self, workers: int, shards: int, slow: float = 0.0, rate: float = RATE) -> None:
        flat = first_parameters(0)
        if workers < 1 or not 1 <= shards <= flat.buffer.size:
            raise ValueError(f"at least one worker, and 1 to {flat.buffer.size} shards, not {workers} and {shards}")
        self.layout = flat.layout
        bounds = [place * flat.buffer.size // shards for place in range(1, shards)]
        data = sooner.put(load_digits())
        first = np.split(flat.buffer, bounds)
        self.shards = [Shard.remote(part, rate) for part in first]
        self.weights: list[Any] = [sooner.put(part) for part in first]
        pauses = [slow] + [0.0] * (workers - 1)
        self.workers = [Worker.remote(self.layout, bounds, data, pause) for pause in pauses]

    def gradient(self, worker: int, step: int, part: int) -> list[sooner.ObjectRef[Any]]:
        """References of a loss, and of a gradient for each shard."""
        method: Any = self.workers[worker].gradient
        refs: list[sooner.ObjectRef[Any]] = method.options(num_returns=1 + len(self.shards)).remote(
            step, part, *self.weights
        )
        return refs

    def finished(self, losses: list[float], begin: float, used: list[int]) -> Run:
        """Waits for the parameters."""
        parameters = np.concatenate(sooner.get(self.weights))
        steps = sooner.get([shard.count.remote() for shard in self.shards])
        return Run(parameters, losses, steps, time.perf_counter() - begin, used)
