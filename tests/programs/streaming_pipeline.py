"""A pipeline of generators: a task yields blocks, tasks transform them, and an actor yields running totals.

Back-pressure keeps the source from running far ahead of the reader.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import ray
from numpy.typing import NDArray
from ray.actor import ActorHandle

Array = NDArray[np.float64]

BLOCKS = 20
AHEAD = 3


def make_block(number: int) -> Array:
    return np.random.default_rng(number).random(30_000)


def transform(block: Array) -> Array:
    return np.sqrt(block) + 1.0


@ray.remote
class Meter:
    def __init__(self) -> None:
        self.made = 0

    def count(self) -> None:
        self.made += 1

    def read(self) -> int:
        return self.made


@ray.remote(num_returns="streaming", _generator_backpressure_num_objects=AHEAD)
def read_blocks(meter: ActorHandle) -> Iterator[Array]:
    for number in range(BLOCKS):
        ray.get(meter.count.remote())
        yield make_block(number)


@ray.remote
def transform_block(block: Array) -> Array:
    return transform(block)


@ray.remote
class Totals:
    def __init__(self) -> None:
        self.total = 0.0

    def add(self, *blocks: Array) -> Iterator[float]:
        for block in blocks:
            self.total += float(block.sum())
            yield self.total


def main() -> None:
    ray.init(num_cpus=2)
    meter, totals = Meter.remote(), Totals.remote()
    running: list[float] = []
    group: list[ray.ObjectRef] = []
    for taken, block in enumerate(read_blocks.remote(meter), start=1):
        ahead = ray.get(meter.read.remote()) - taken
        assert ahead <= AHEAD + 1, f"the source is {ahead} blocks ahead"
        group.append(transform_block.remote(block))
        if len(group) == 5:
            stream = totals.add.options(num_returns="streaming").remote(*group)
            running += [ray.get(ref) for ref in stream]
            group = []
    assert ray.get(meter.read.remote()) == BLOCKS, "the source ran more than once"

    expected = np.cumsum([transform(make_block(number)).sum() for number in range(BLOCKS)])
    assert np.allclose(running, expected), f"the totals are {running} instead of {expected}"
    print(f"answer: {len(running)} totals, the last is {running[-1]:.3f}")


if __name__ == "__main__":
    main()
