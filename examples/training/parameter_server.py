"""Training with a parameter server in shards (the Ray paper, section 5.2.1): synchronous, or without waiting.

The parameters lie in shards, which are actors with checkpoints. Workers compute gradients of parts of a
batch. This program holds references only: gradients go from workers into sums, sums to shards, parameters to
workers.

    python examples/training/parameter_server.py            # every part of a batch counts
    python examples/training/parameter_server.py --async    # the first half of the workers counts
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from network import PARTS, Floats, accuracy, first_parameters, load_digits, part_gradient

import sooner
from sooner.util.flat import Layout

RATE = 0.5
# Gradients of older parameters: with larger steps they would lead astray.
RATE_ASYNC = 0.1
MOMENTUM = 0.5
# Steps that are submitted ahead of the last one whose loss is known.
AHEAD = 2


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
        return self.parameters

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
        return [loss, *np.split(gradient, self.cuts)]


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
        self.weights = [sooner.put(part) for part in first]
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


def train(server: Server, steps: int, on_step: Callable[[int], None] = lambda _: None) -> Run:
    """Every step waits for all parts of its batch: the parameters are the same in every bit in every run."""
    begin = time.perf_counter()
    losses: list[sooner.ObjectRef[Any]] = []
    for step in range(steps):
        parts = [server.gradient(part % len(server.workers), step, part) for part in range(PARTS)]
        losses.append(sooner.reduce([part[0] for part in parts], "mean", order="given"))
        for place, shard in enumerate(server.shards):
            total = sooner.reduce([part[1 + place] for part in parts], "mean", order="given")
            server.weights[place] = shard.apply.remote(total)
        on_step(step)
        if step >= AHEAD:
            sooner.wait([losses[step - AHEAD]])
    return server.finished(list(map(float, sooner.get(losses))), begin, [])


def train_async(server: Server, steps: int) -> Run:
    """Each step takes the first half of the gradients, and only their workers get new parameters."""
    begin = time.perf_counter()
    items = map(divmod, itertools.count(), itertools.repeat(PARTS))
    pending = {number: server.gradient(number, *next(items)) for number in range(len(server.workers))}
    losses: list[float] = []
    used = [0] * len(server.workers)
    num = max(1, len(server.workers) // 2)
    for _ in range(steps):
        order = list(pending)
        # The choice is made once. It holds for all shards.
        loss, chosen = sooner.reduce_first([pending[number][0] for number in order], num, "mean")
        numbers = [order[place] for place in sooner.get(chosen)]
        for place, shard in enumerate(server.shards):
            total = sooner.reduce([pending[number][1 + place] for number in numbers], "mean")
            server.weights[place] = shard.apply.remote(total)
        for number in numbers:
            used[number] += 1
            pending[number] = server.gradient(number, *next(items))
        losses.append(float(sooner.get(loss)))
    return server.finished(losses, begin, used)


def main() -> None:
    """Trains, and prints one summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--async", action="store_true", dest="is_async", help="take the first half of the gradients")
    parser.add_argument("--workers", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--shards", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--steps", type=int, default=300, help="default: %(default)s")
    parser.add_argument("--slow", type=float, default=0.0, help="seconds that one worker sleeps before each gradient")
    options = parser.parse_args()
    with sooner.init():
        rate = RATE_ASYNC if options.is_async else RATE
        server = Server(options.workers, options.shards, options.slow, rate)
        run = train_async(server, options.steps) if options.is_async else train(server, options.steps)
        share = accuracy(server.layout.tree(run.parameters), load_digits())
    print(f"{options.steps} steps in {run.seconds:.1f} s: loss {run.losses[0]:.2f} -> {run.losses[-1]:.2f}")
    print(f"accuracy {share:.3f}; steps of each shard {run.steps}" + (f"; used {run.used}" if run.used else ""))


if __name__ == "__main__":
    main()
