"""Training of replicas that add up their gradients (Hoplite, section 5.3): no group, no rank, no barrier.

A gradient is a generator of layers, the last one first. A layer is summed as soon as all replicas have
yielded theirs, while they compute the one before. An all-reduce is a sum that every replica reads.

    python examples/training/allreduce.py
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from network import PARTS, Floats, accuracy, backward, first_parameters, load_digits, part_of, stored
from report import Report, count

import sooner
from sooner.util.flat import Layout

RATE = 0.5
LAYERS = ("output", "hidden")


@sooner.remote
class Replica:
    """A whole model, the same in all replicas."""

    def __init__(self, layout: Layout, parameters: Floats, data: Any) -> None:
        self.data = data
        self.parameters = parameters.copy()
        # Views: who changes one changes the other.
        self.tree = layout.tree(self.parameters)

    def gradient(self, step: int, part: int) -> Iterator[Any]:
        """The loss, and then the gradient of each layer as one array, the last layer first."""
        images, labels = self.data
        rows = part_of(step, part, len(images))
        for layer, (loss, tree) in zip(LAYERS, backward(self.tree, images[rows], labels[rows]), strict=True):
            if layer == LAYERS[0]:
                yield loss
            yield stored(np.concatenate([array.ravel() for array in tree.values()]))

    def apply(self, *totals: Floats) -> None:
        """Takes a step against the mean gradient of each layer."""
        for layer, total in zip(LAYERS, totals, strict=True):
            weight, bias = self.tree[layer], self.tree[f"{layer}_bias"]
            weight -= RATE * total[: weight.size].reshape(weight.shape)
            bias -= RATE * total[weight.size :]

    def weights(self) -> Floats:
        """The parameters."""
        return self.parameters


class Run(NamedTuple):
    """A finished training: the parameters of each replica, and the loss of each step."""

    parameters: list[Floats]
    losses: list[float]
    seconds: float


def train(replicas: int, steps: int) -> Run:
    """Trains replicas. Their parameters are the same in every bit, in every run, for any number of them."""
    flat = first_parameters(0)
    data = sooner.put(load_digits())
    models = [Replica.remote(flat.layout, flat.buffer, data) for _ in range(replicas)]
    begin = time.perf_counter()
    losses = []
    for step in range(steps):
        parts: list[Any] = [
            models[part % replicas].gradient.options(num_returns="streaming").remote(step, part)
            for part in range(PARTS)
        ]
        loss, *totals = [
            sooner.reduce([next(part) for part in parts], "mean", order="given") for _ in range(1 + len(LAYERS))
        ]
        for model in models:
            model.apply.remote(*totals)
        losses.append(loss)
    found = [float(loss) for loss in sooner.get(losses)]
    parameters = sooner.get([model.weights.remote() for model in models])
    return Run(parameters, found, time.perf_counter() - begin)


def main() -> None:
    """Trains, prints one summary, and draws the loss."""
    report = Report("allreduce", __doc__, steps=200, quick=60)
    report.parser.add_argument("--replicas", type=count, default=2, help="default: %(default)s")
    options = report.options()
    with sooner.init():
        run = train(options.replicas, options.steps)
    share = accuracy(first_parameters(0).layout.tree(run.parameters[0]), load_digits())
    report.show(run.losses, run.seconds)
    print(f"accuracy {share:.3f}; replicas differ by {np.ptp(run.parameters, axis=0).max():g}")


if __name__ == "__main__":
    main()
