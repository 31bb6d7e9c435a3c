"""L-BFGS on data that stays in actors: the driver adds up the losses and gradients of their shards.

The optimizer is SciPy's, or without SciPy a short one of its own.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import ray
from numpy.typing import NDArray

Array = NDArray[np.float64]
Objective = Callable[[Array], tuple[float, Array]]

SHARDS = 3
FEATURES = 8


def make_shard(seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((500, FEATURES))
    noise = rng.standard_normal(500)
    return features, np.sign(features @ np.linspace(-2.0, 2.0, FEATURES) + noise)


def loss_and_gradient(weights: Array, features: Array, labels: Array) -> tuple[float, Array]:
    """Those of a logistic regression, with a penalty for large weights."""
    margins = labels * (features @ weights)
    loss = np.logaddexp(0.0, -margins).sum() + 0.0005 * len(labels) * weights @ weights
    slope = features.T @ (-labels / (1.0 + np.exp(margins))) + 0.001 * len(labels) * weights
    return float(loss), slope


@ray.remote
class Shard:
    def __init__(self, seed: int) -> None:
        self.features, self.labels = make_shard(seed)

    def evaluate(self, weights: Array) -> tuple[float, Array]:
        return loss_and_gradient(weights, self.features, self.labels)


def minimize_here(objective: Objective, point: Array, memory: int = 8) -> Array:
    value, slope = objective(point)
    pairs: list[tuple[Array, Array]] = []
    while np.linalg.norm(slope) > 1e-5:
        direction, factors = -slope, []
        for move, change in reversed(pairs):
            factors.append(move @ direction / (move @ change))
            direction = direction - factors[-1] * change
        if pairs:
            move, change = pairs[-1]
            direction = direction * (move @ change) / (change @ change)
        for (move, change), factor in zip(pairs, reversed(factors), strict=True):
            direction = direction + (factor - change @ direction / (move @ change)) * move
        step = 1.0 if pairs else 1.0 / float(np.linalg.norm(slope))
        while (found := objective(point + step * direction))[0] > value + 1e-4 * step * (slope @ direction):
            step /= 2.0
        pairs = [*pairs, (step * direction, found[1] - slope)][-memory:]
        point, (value, slope) = point + step * direction, found
    return point


def minimize(objective: Objective, point: Array) -> Array:
    try:
        from scipy.optimize import minimize as minimize_by_scipy
    except ImportError:
        return minimize_here(objective, point)
    options = {"gtol": 1e-7, "ftol": 1e-14}
    return minimize_by_scipy(objective, point, jac=True, method="L-BFGS-B", options=options).x


def main() -> None:
    ray.init(num_cpus=3)
    shards = [Shard.remote(seed) for seed in range(SHARDS)]

    def summed(weights: Array) -> tuple[float, Array]:
        shared = ray.put(weights)
        losses, gradients = zip(*ray.get([shard.evaluate.remote(shared) for shard in shards]), strict=True)
        return sum(losses), np.sum(gradients, axis=0)

    plain = [np.concatenate(parts) for parts in zip(*map(make_shard, range(SHARDS)), strict=True)]

    def whole(weights: Array) -> tuple[float, Array]:
        return loss_and_gradient(weights, *plain)

    weights = minimize(summed, np.zeros(FEATURES))
    expected = minimize_here(whole, np.zeros(FEATURES))
    assert np.allclose(weights, expected, atol=1e-4), f"the weights are {weights}, in one process {expected}"
    loss, slope = whole(weights)
    assert np.linalg.norm(slope) < 1e-2, f"the gradient is still {slope}"
    print(f"answer: loss {loss:.4f}, first weight {weights[0]:.3f}")


if __name__ == "__main__":
    main()
