"""Conway's Game of Life: actors hold strips of a torus, and exchange outer rows before each step."""

from __future__ import annotations

import zlib

import numpy as np
import ray
from numpy.typing import NDArray

Cells = NDArray[np.uint8]

ROWS, COLUMNS = 60, 80
STRIPS = 4
GENERATIONS = 30


def next_inside(cells: Cells) -> Cells:
    """The next generation of all rows but the first and the last. The columns wrap around."""
    below_and_above = cells[:-2] + cells[1:-1] + cells[2:]
    neighbours = sum(np.roll(below_and_above, shift, axis=1) for shift in (-1, 0, 1)) - cells[1:-1]
    return ((neighbours == 3) | ((neighbours == 2) & (cells[1:-1] == 1))).astype(np.uint8)


@ray.remote
class Strip:
    def __init__(self, cells: Cells) -> None:
        self.cells = cells

    @ray.method(num_returns=2)
    def edges(self) -> tuple[Cells, Cells]:
        return self.cells[:1], self.cells[-1:]

    def step(self, above: Cells, below: Cells) -> None:
        self.cells = next_inside(np.concatenate([above, self.cells, below]))

    def read(self) -> Cells:
        return self.cells


def main() -> None:
    ray.init(num_cpus=4)
    world = np.random.default_rng(8).integers(0, 2, (ROWS, COLUMNS), dtype=np.uint8)
    strips = [Strip.remote(cells) for cells in np.split(world, STRIPS)]
    for _ in range(GENERATIONS):
        edges = [strip.edges.remote() for strip in strips]
        for number, strip in enumerate(strips):
            strip.step.remote(edges[number - 1][1], edges[(number + 1) % STRIPS][0])
    result = np.concatenate(ray.get([strip.read.remote() for strip in strips]))

    for _ in range(GENERATIONS):
        moves = [(row, column) for row in (-1, 0, 1) for column in (-1, 0, 1) if (row, column) != (0, 0)]
        neighbours = sum(np.roll(world, move, axis=(0, 1)) for move in moves)
        world = ((neighbours == 3) | ((world == 1) & (neighbours == 2))).astype(np.uint8)
    assert np.array_equal(result, world), f"{np.count_nonzero(result != world)} cells differ from numpy's"
    print(f"answer: {result.sum()} cells live, checksum {zlib.crc32(result.tobytes())}")


if __name__ == "__main__":
    main()
