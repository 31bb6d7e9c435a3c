"""A tree of actors: each one creates its children, splits its work between them, and joins their results."""

from __future__ import annotations

import ray

FAN_OUT = 2
DEPTH = 2


def collatz_steps(number: int) -> int:
    steps = 0
    while number != 1:
        number = number // 2 if number % 2 == 0 else 3 * number + 1
        steps += 1
    return steps


def longest(start: int, stop: int) -> tuple[int, int]:
    """The most steps from a number in the range, and the first number that takes so many."""
    steps, negated = max((collatz_steps(number), -number) for number in range(start, stop))
    return steps, -negated


@ray.remote
class Node:
    def __init__(self, depth: int) -> None:
        self.children = [Node.remote(depth - 1) for _ in range(FAN_OUT)] if depth else []

    def search(self, start: int, stop: int) -> tuple[int, int]:
        if not self.children:
            return longest(start, stop)
        width = -(-(stop - start) // len(self.children))
        parts = [
            child.search.remote(start + index * width, min(start + (index + 1) * width, stop))
            for index, child in enumerate(self.children)
        ]
        return max(ray.get(parts), key=lambda found: (found[0], -found[1]))

    def size(self) -> int:
        return 1 + sum(ray.get([child.size.remote() for child in self.children]))


def main() -> None:
    ray.init(num_cpus=4)
    root = Node.remote(DEPTH)

    size = ray.get(root.size.remote())
    expected_size = sum(FAN_OUT**level for level in range(DEPTH + 1))
    assert size == expected_size, f"the tree has {size} actors instead of {expected_size}"

    found = ray.get(root.search.remote(1, 20_000))
    expected = longest(1, 20_000)
    assert found == expected, f"the tree found {found}, one process {expected}"
    print(f"answer: {size} actors found {found[0]} steps from {found[1]}")


if __name__ == "__main__":
    main()
