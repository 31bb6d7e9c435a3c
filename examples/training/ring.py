"""A ring all-reduce, written in actors (the Ray paper, section 5.1): each member adds one part in each round.

Each member hands a part to its right neighbour, which adds its own. After n - 1 rounds each has one part of
the sum. The other n - 1 rounds need no program: everybody reads all parts, and readers on many nodes pass
them on. `sooner.reduce` does all of it in one line.

    python examples/training/ring.py
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from network import Floats
from report import Report, count

import sooner


@sooner.remote(num_cpus=0)
class Member:
    """A member of the ring, and its array in as many parts as there are members."""

    def __init__(self, rank: int, members: int, size: int) -> None:
        values = np.random.default_rng(rank).standard_normal(size)
        self.parts = np.array_split(values, members)
        self.whole = values

    def array(self) -> Floats:
        """The whole array."""
        return self.whole

    def give(self, place: int) -> Floats:
        """One part."""
        return self.parts[place]

    def add(self, place: int, part: Floats) -> Floats:
        """One part and what came from the left."""
        array, _ = sooner.empty(part.size)
        return np.add(self.parts[place], part, out=array)

    def gather(self, *parts: Floats) -> Floats:
        """The sum."""
        return np.concatenate(parts)


def ring(members: list[Any]) -> list[Any]:
    """References of the sum, one for each member."""
    count = len(members)
    # What each member hands on: at first the part with its own number.
    hands = [member.give.remote(place) for place, member in enumerate(members)]
    for passed in range(1, count):
        hands = [members[place].add.remote((place - passed) % count, hands[place - 1]) for place in range(count)]
    # Member p has the whole sum of part p + 1.
    parts = hands[-1:] + hands[:-1]
    return [member.gather.remote(*parts) for member in members]


def in_one_line(members: list[Any]) -> list[Any]:
    """The same with `sooner.reduce`."""
    total = sooner.reduce([member.array.remote() for member in members])
    return [member.gather.remote(total) for member in members]


def added_by_one(members: list[Any]) -> list[Any]:
    """The same, if one process reads all arrays and adds them up."""
    total = sooner.put(np.sum(sooner.get([member.array.remote() for member in members]), axis=0))
    return [member.gather.remote(total) for member in members]


def main() -> None:
    """Compares the three, and draws how long each took."""
    report = Report("ring", __doc__, steps=20, quick=5)
    report.parser.add_argument("--members", type=int, default=8, help="default: %(default)s")
    report.parser.add_argument("--size", type=count, default=1_000_000, help="elements (8 bytes); default: %(default)s")
    options = report.options()
    if options.members < 2:
        report.parser.error(f"a ring has at least 2 members, not {options.members}")
    times: dict[str, list[float]] = {}
    with sooner.init():
        members = [Member.remote(rank, options.members, options.size) for rank in range(options.members)]
        expected = np.sum(sooner.get([member.array.remote() for member in members]), axis=0)
        ways = {"ring of actors": ring, "sooner.reduce": in_one_line, "added by one process": added_by_one}
        for _ in range(options.steps):
            for name, way in ways.items():
                begin = time.perf_counter()
                found = way(members)
                sooner.wait(found, num_returns=len(found), fetch_local=False)
                times.setdefault(name, []).append(1000 * (time.perf_counter() - begin))
                for total in sooner.get(found):
                    np.testing.assert_allclose(total, expected, rtol=1e-12, atol=1e-12)
                del found, total
    size = 8 * options.size / 1e6
    for name, each in times.items():
        print(f"{name:21} {np.median(each):7.1f} ms for {options.members} arrays of {size:g} MB")
    report.draw(times, "round", "milliseconds", f"All-reduce of {options.members} arrays of {size:g} MB")


if __name__ == "__main__":
    main()
