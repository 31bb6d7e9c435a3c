"""Training with a parameter server in shards (the Ray paper, section 5.2.1): synchronous, or without waiting.

This program holds references only: gradients go from workers into sums, sums to shards, parameters to
workers.

    python examples/training/parameter_server.py --sync     # every part of a batch counts
    python examples/training/parameter_server.py --async    # the first half of the workers counts
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

from network import PARTS, accuracy, load_digits
from report import Report, count
from shards import RATE, Run, Server

import sooner

# Gradients of older parameters: with larger steps they would lead astray.
RATE_ASYNC = 0.1
# Steps that are submitted ahead of the last one whose loss is known.
AHEAD = 2


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
    """Trains, prints one summary, and draws the loss."""
    report = Report("parameter_server", __doc__, steps=300, quick=60)
    kind = report.parser.add_mutually_exclusive_group()
    kind.add_argument("--sync", action="store_false", dest="is_async", help="wait for every gradient (default)")
    kind.add_argument("--async", action="store_true", dest="is_async", help="take the first half of the gradients")
    report.parser.add_argument("--workers", type=count, default=2, help="default: %(default)s")
    report.parser.add_argument("--shards", type=count, default=2, help="default: %(default)s")
    report.parser.add_argument(
        "--slow", type=float, default=0.0, help="seconds that one worker sleeps before each gradient"
    )
    report.parser.set_defaults(is_async=False)
    options = report.options()
    if not options.slow >= 0:
        report.parser.error(f"--slow takes seconds, 0 or more, not {options.slow}")
    with sooner.init():
        rate = RATE_ASYNC if options.is_async else RATE
        server = Server(options.workers, options.shards, options.slow, rate)
        run = train_async(server, options.steps) if options.is_async else train(server, options.steps)
        share = accuracy(server.layout.tree(run.parameters), load_digits())
    report.show(run.losses, run.seconds)
    print(f"accuracy {share:.3f}; steps of each shard {run.steps}" + (f"; used {run.used}" if run.used else ""))


if __name__ == "__main__":
    main()
