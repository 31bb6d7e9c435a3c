"""A parameter server: an actor applies the gradients that workers compute on their shards of the data.

It trains a logistic regression twice: in lockstep, and with each worker at its own pace.
"""

from __future__ import annotations

import numpy as np
import ray
from numpy.typing import NDArray

Array = NDArray[np.float64]

WORKERS = 3
STEPS = 40
RATE = 1.0


def make_data(seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((400, 5))
    labels = (features @ np.arange(1.0, 6.0) + rng.standard_normal(400) > 0).astype(np.float64)
    return features, labels


def loss(weights: Array, features: Array, labels: Array) -> float:
    scores = features @ weights
    return float(np.mean(np.logaddexp(0.0, scores) - labels * scores) + 0.01 * weights @ weights)


def gradient(weights: Array, features: Array, labels: Array) -> Array:
    chances = 1.0 / (1.0 + np.exp(-(features @ weights)))
    return features.T @ (chances - labels) / len(labels) + 0.02 * weights


@ray.remote
class ParameterServer:
    def __init__(self, size: int) -> None:
        self.weights = np.zeros(size)

    def apply(self, *gradients: Array) -> Array:
        self.weights -= RATE * np.mean(gradients, axis=0)
        return self.weights

    def read(self) -> Array:
        return self.weights


@ray.remote
class Worker:
    def __init__(self, seed: int) -> None:
        self.features, self.labels = make_data(seed)

    def gradient(self, weights: Array) -> Array:
        return gradient(weights, self.features, self.labels)


def main() -> None:
    ray.init(num_cpus=4)
    workers = [Worker.remote(seed) for seed in range(WORKERS)]

    server = ParameterServer.remote(5)
    weights = server.read.remote()
    for _ in range(STEPS):
        weights = server.apply.remote(*[worker.gradient.remote(weights) for worker in workers])
    together = ray.get(weights)

    shards = [make_data(seed) for seed in range(WORKERS)]
    expected = np.zeros(5)
    for _ in range(STEPS):
        expected -= RATE * np.mean([gradient(expected, *shard) for shard in shards], axis=0)
    assert np.allclose(together, expected), f"{together} instead of {expected}"

    server = ParameterServer.remote(5)
    running = {worker.gradient.remote(server.read.remote()): worker for worker in workers}
    for _ in range(STEPS * WORKERS):
        [ready], _ = ray.wait(list(running))
        worker = running.pop(ready)
        running[worker.gradient.remote(server.apply.remote(ready))] = worker
    apart = ray.get(server.read.remote())

    features, labels = (np.concatenate(parts) for parts in zip(*shards, strict=True))
    first, second = loss(together, features, labels), loss(apart, features, labels)
    assert abs(first - second) < 0.01, f"the losses are {first} in lockstep and {second} otherwise"
    print(f"answer: loss {first:.4f} after {STEPS} steps")


if __name__ == "__main__":
    main()
