"""Training of PyTorch models that add up their gradients, layer by layer: `allreduce.py` with autograd.

Every parameter's gradient is yielded as a tensor, the last one first, and summed with those of the other
replicas while the caller goes on.

    python examples/training/allreduce_torch.py
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from network import PARTS, SIZES, load_digits, part_of
from report import Report, count

import sooner

try:
    import torch
except ImportError as error:
    raise SystemExit("this example needs PyTorch: pip install torch") from error

RATE = 0.5
MOMENTUM = 0.5


def network() -> torch.nn.Sequential:
    """A network with one hidden layer, with the same parameters in every process."""
    torch.manual_seed(0)
    inputs, hidden, outputs = SIZES
    layers = torch.nn.Linear(inputs, hidden), torch.nn.Tanh(), torch.nn.Linear(hidden, outputs)
    return torch.nn.Sequential(*layers).double()


@sooner.remote
class Replica:
    """A whole model and its optimizer, the same in all replicas."""

    def __init__(self, data: Any) -> None:
        images, labels = data
        self.images, self.labels = torch.tensor(images), torch.tensor(labels)
        self.model = network()
        self.optimizer = torch.optim.SGD(self.model.parameters(), RATE, MOMENTUM)

    def gradient(self, step: int, part: int) -> Iterator[Any]:
        """The loss, and then the gradient of each parameter, the last one first."""
        rows = torch.tensor(part_of(step, part, len(self.images)))
        loss = torch.nn.functional.cross_entropy(self.model(self.images[rows]), self.labels[rows])
        self.optimizer.zero_grad()
        loss.backward()
        yield loss.item()
        for parameter in reversed(list(self.model.parameters())):
            yield parameter.grad

    def apply(self, *totals: torch.Tensor) -> None:
        """Takes a step against the mean gradients."""
        for parameter, total in zip(reversed(list(self.model.parameters())), totals, strict=True):
            parameter.grad = total
        self.optimizer.step()

    def weights(self) -> Any:
        """The parameters as one array, and the share of images that are read right."""
        with torch.no_grad():
            share = (self.model(self.images).argmax(1) == self.labels).double().mean().item()
        return torch.nn.utils.parameters_to_vector(self.model.parameters()).detach().numpy(), share


class Run(NamedTuple):
    """A finished training: parameters and accuracy of each replica, and the loss of each step."""

    weights: list[Any]
    losses: list[float]
    seconds: float


def train(replicas: int, steps: int) -> Run:
    """Trains replicas. Their parameters are the same in every bit, in every run, for any number of them."""
    data = sooner.put(load_digits())
    models = [Replica.remote(data) for _ in range(replicas)]
    count = 1 + len(list(network().parameters()))
    begin = time.perf_counter()
    losses = []
    for step in range(steps):
        parts: list[Any] = [
            models[part % replicas].gradient.options(num_returns="streaming").remote(step, part)
            for part in range(PARTS)
        ]
        loss, *totals = [sooner.reduce([next(part) for part in parts], "mean", order="given") for _ in range(count)]
        for model in models:
            model.apply.remote(*totals)
        losses.append(loss)
    found = [float(loss) for loss in sooner.get(losses)]
    return Run(sooner.get([model.weights.remote() for model in models]), found, time.perf_counter() - begin)


def main() -> None:
    """Trains, prints one summary, and draws the loss."""
    report = Report("allreduce_torch", __doc__, steps=200, quick=40)
    report.parser.add_argument("--replicas", type=count, default=2, help="default: %(default)s")
    options = report.options()
    with sooner.init():
        run = train(options.replicas, options.steps)
    report.show(run.losses, run.seconds)
    parameters = np.array([values for values, _ in run.weights])
    print(f"accuracy {run.weights[0][1]:.3f}; replicas differ by {np.ptp(parameters, axis=0).max():g}")


if __name__ == "__main__":
    main()
