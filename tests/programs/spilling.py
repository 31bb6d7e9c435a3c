"""More data than memory: of 200 MB in a store of 80 MB most goes to disk, and comes back when it is read."""

from __future__ import annotations

import numpy as np
import ray
from numpy.typing import NDArray

Array = NDArray[np.int64]

PARTS = 25
LENGTH = 1_000_000


def make_part(number: int) -> Array:
    return np.arange(LENGTH) * (number + 1) % 1_000


@ray.remote
def make(number: int) -> Array:
    return make_part(number)


@ray.remote
def add(part: Array) -> int:
    return int(part.sum())


def main() -> None:
    ray.init(object_store_memory=80 * 1024 * 1024, num_cpus=2)
    # Some values come from tasks, the others from the driver.
    parts = [make.remote(number) if number % 2 else ray.put(make_part(number)) for number in range(PARTS)]
    sums = ray.get([add.remote(part) for part in parts])
    # The oldest values have long left the memory.
    firsts = [int(ray.get(part)[:100].sum()) for part in parts]

    for number in range(PARTS):
        expected = make_part(number)
        assert sums[number] == expected.sum(), f"the sum of part {number} is {sums[number]}"
        assert firsts[number] == expected[:100].sum(), f"part {number} came back changed"
    size = PARTS * LENGTH * 8 // 1_000_000
    print(f"answer: {size} MB, sum {sum(sums)}, {sum(firsts)} at the beginnings")


if __name__ == "__main__":
    main()
