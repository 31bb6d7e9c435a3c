"""Quicksort by nested tasks: each splits its numbers at a pivot, and joins what two tasks have sorted."""

from __future__ import annotations

import numpy as np
import ray
from numpy.typing import NDArray

Array = NDArray[np.int64]

NUMBERS = 400_000
LEAF = 150_000


@ray.remote
def sort(numbers: Array) -> Array:
    if len(numbers) <= LEAF:
        return np.sort(numbers)
    # The median of a sample.
    pivot = np.median(numbers[:: len(numbers) // 101])
    smaller, larger = numbers[numbers < pivot], numbers[numbers >= pivot]
    if not len(smaller):
        # All numbers of the sample are equal, or nearly so.
        return np.sort(numbers)
    return np.concatenate(ray.get([sort.remote(smaller), sort.remote(larger)]))


def main() -> None:
    ray.init(num_cpus=2)
    numbers = np.random.default_rng(3).integers(0, 1_000_000, NUMBERS)
    few = np.random.default_rng(4).integers(0, 3, NUMBERS)
    results = ray.get([sort.remote(numbers), sort.remote(few)])
    for given, result in zip((numbers, few), results, strict=True):
        assert np.array_equal(result, np.sort(given)), "the order differs from that of one process"
    middle = results[0][NUMBERS // 2]
    print(f"answer: {NUMBERS} numbers from {results[0][0]} to {results[0][-1]}, {middle} in the middle")


if __name__ == "__main__":
    main()
