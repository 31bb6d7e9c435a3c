"""Batch prediction: a pool of actors, each with the model, takes one batch after the other."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import ray
from numpy.typing import NDArray
from ray.util import ActorPool

Array = NDArray[np.float64]

ACTORS = 2
BATCHES = 24
SIZES = (16, 64, 32, 4)


class Model:
    """A network with random weights."""

    def __init__(self, layers: list[Array]) -> None:
        self.layers = layers

    def predict(self, batch: Array) -> NDArray[np.int64]:
        *hidden, last = self.layers
        for layer in hidden:
            batch = np.maximum(batch @ layer, 0.0)
        return np.argmax(batch @ last, axis=1)


@ray.remote
class Predictor:
    def __init__(self, layers: list[Array]) -> None:
        self.model = Model(layers)

    def predict(self, batch: Array) -> NDArray[np.int64]:
        return self.model.predict(batch)

    def count(self, batch: Array) -> list[int]:
        return np.bincount(self.model.predict(batch), minlength=SIZES[-1]).tolist()


def main() -> None:
    ray.init(num_cpus=2)
    rng = np.random.default_rng(11)
    layers = [rng.standard_normal(shape) for shape in pairwise(SIZES)]
    batches = [rng.standard_normal((500, SIZES[0])) for _ in range(BATCHES)]

    shared = ray.put(layers)
    pool = ActorPool([Predictor.remote(shared) for _ in range(ACTORS)])
    predictions = list(pool.map(lambda actor, batch: actor.predict.remote(batch), batches))

    model = Model(layers)
    for number, (batch, found) in enumerate(zip(batches, predictions, strict=True)):
        assert np.array_equal(found, model.predict(batch)), f"batch {number} differs"

    counts = pool.map_unordered(lambda actor, batch: actor.count.remote(batch), batches)
    total = np.sum(list(counts), axis=0)
    expected = np.bincount(np.concatenate(predictions), minlength=SIZES[-1])
    assert np.array_equal(total, expected), f"{total} predictions for each class instead of {expected}"

    pool.submit(lambda actor, batch: actor.count.remote(batch), batches[0])
    assert pool.has_next(), "the pool lost a batch"
    assert pool.has_free(), "only one of two actors is busy"
    assert sum(pool.get_next(timeout=60)) == len(batches[0]), "a batch lost rows"
    print(f"answer: {total.tolist()} rows for each class")


if __name__ == "__main__":
    main()
