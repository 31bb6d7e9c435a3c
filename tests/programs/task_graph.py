"""A graph of tasks that grows while it runs. Some fail at first: exceptions and crashes are retried."""

from __future__ import annotations

import os
import random
from itertools import product

import ray
from ray.actor import ActorHandle

LAYERS = 4
WIDTH = 6
RETRIES = 2
# The task that fails by the end of its process.
CRASHES = (1, 0)


@ray.remote
class Attempts:
    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def begin(self, name: str) -> int:
        self.counts[name] = self.counts.get(name, 0) + 1
        return self.counts[name]

    def read(self) -> dict[str, int]:
        return self.counts


def combine(layer: int, place: int, *inputs: int) -> int:
    return (sum(inputs) * 31 + 7 * layer + place) % 10_007


def failures(layer: int, place: int) -> int:
    """How many attempts of a task fail."""
    return (layer + 2 * place) % (RETRIES + 1)


def sources(layer: int, value: int) -> list[list[int]]:
    """From which tasks of the layer before each task has its inputs. It depends on a value of that layer."""
    rng = random.Random(f"{layer} {value}")
    return [rng.sample(range(WIDTH), 2) for _ in range(WIDTH)]


@ray.remote(max_retries=RETRIES, retry_exceptions=[ConnectionError])
def node(attempts: ActorHandle, layer: int, place: int, *inputs: int) -> int:
    attempt = ray.get(attempts.begin.remote(f"{layer}/{place}"))
    if attempt <= failures(layer, place):
        if (layer, place) == CRASHES:
            os._exit(1)
        raise ConnectionError(f"attempt {attempt} fails")
    return combine(layer, place, *inputs)


@ray.remote(max_retries=RETRIES)
def fail(attempts: ActorHandle, error: type[Exception]) -> None:
    attempt = ray.get(attempts.begin.remote(error.__name__))
    raise error(f"attempt {attempt} fails")


def main() -> None:
    ray.init(num_cpus=2)
    attempts = Attempts.remote()
    layer = [node.remote(attempts, 0, place) for place in range(WIDTH)]
    plain = [combine(0, place) for place in range(WIDTH)]
    for depth in range(1, LAYERS):
        inputs = [[layer[at] for at in places] for places in sources(depth, ray.get(layer[0]))]
        layer = [node.remote(attempts, depth, place, *inputs[place]) for place in range(WIDTH)]
        values = [[plain[at] for at in places] for places in sources(depth, plain[0])]
        plain = [combine(depth, place, *values[place]) for place in range(WIDTH)]
    results = ray.get(layer)
    assert results == plain, f"the graph gave {results}, one process {plain}"

    for error, retried in ((OSError, [OSError]), (ValueError, True), (KeyError, [OSError])):
        try:
            ray.get(fail.options(retry_exceptions=retried).remote(attempts, error))
        except error:
            continue
        raise AssertionError(f"the {error.__name__} was lost")

    expected = {"OSError": 1 + RETRIES, "ValueError": 1 + RETRIES, "KeyError": 1}
    for depth, place in product(range(LAYERS), range(WIDTH)):
        expected[f"{depth}/{place}"] = 1 + failures(depth, place)
    counts = ray.get(attempts.read.remote())
    assert counts == expected, f"the attempts are {counts} instead of {expected}"
    # What is shown of the retries comes before the answer.
    ray.shutdown()
    print(f"answer: {results} after {sum(counts.values())} attempts at {len(counts)} tasks")


if __name__ == "__main__":
    main()
