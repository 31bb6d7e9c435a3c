"""A key-value store of actors. Consistent hashing chooses the shard of a key: a new shard moves few keys."""

from __future__ import annotations

import bisect
import hashlib
from itertools import chain

import ray
from ray.actor import ActorHandle

KEYS = 600
POINTS = 40

# Points with the name of a shard, which owns the keys that lie before its points.
Ring = list[tuple[int, str]]


def position(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def owner(ring: Ring, key: str) -> str:
    return ring[bisect.bisect(ring, (position(key), "")) % len(ring)][1]


@ray.remote
class Shard:
    def __init__(self) -> None:
        self.values: dict[str, int] = {}

    def put(self, items: dict[str, int]) -> int:
        self.values |= items
        return len(items)

    def get(self, keys: list[str]) -> list[int | None]:
        return [self.values.get(key) for key in keys]

    def give(self, ring: Ring, name: str) -> dict[str, int]:
        """The items that another shard owns now. They leave this one."""
        return {key: self.values.pop(key) for key in list(self.values) if owner(ring, key) == name}

    def size(self) -> int:
        return len(self.values)


class Store:
    def __init__(self, names: list[str]) -> None:
        self.shards: dict[str, ActorHandle] = {}
        self.ring: Ring = []
        for name in names:
            self.add_shard(name)

    def by_owner(self, keys: list[str]) -> dict[str, list[str]]:
        grouped: dict[str, list[str]] = {}
        for key in keys:
            grouped.setdefault(owner(self.ring, key), []).append(key)
        return grouped

    def put(self, items: dict[str, int]) -> None:
        grouped = self.by_owner(list(items))
        parts = {name: {key: items[key] for key in keys} for name, keys in grouped.items()}
        ray.get([self.shards[name].put.remote(part) for name, part in parts.items()])

    def get(self, keys: list[str]) -> dict[str, int | None]:
        grouped = self.by_owner(keys)
        found = ray.get([self.shards[name].get.remote(part) for name, part in grouped.items()])
        return dict(zip(chain(*grouped.values()), chain(*found), strict=True))

    def add_shard(self, name: str) -> int:
        """Add a shard: how many keys move to it."""
        self.ring = sorted([*self.ring, *((position(f"{name}/{point}"), name) for point in range(POINTS))])
        given = [shard.give.remote(self.ring, name) for shard in self.shards.values()]
        self.shards[name] = Shard.remote()
        return sum(ray.get([self.shards[name].put.remote(items) for items in given]))


def main() -> None:
    ray.init(num_cpus=2)
    plain = {f"key {number}": number * number for number in range(KEYS)}
    store = Store(["north", "east", "south"])
    store.put(plain)
    assert store.get(list(plain)) == plain, "the store lost or changed a value"
    assert store.get(["nothing"]) == {"nothing": None}, "the store has a key that nobody put"

    moved = store.add_shard("west")
    assert store.get(list(plain)) == plain, "a value was lost or changed by the move"
    sizes = {name: ray.get(shard.size.remote()) for name, shard in store.shards.items()}
    assert sum(sizes.values()) == KEYS, f"a key is in two shards: {sizes}"
    assert 0 < moved == sizes["west"] < KEYS / 2, f"{moved} of {KEYS} keys moved"
    print(f"answer: {moved} of {KEYS} keys moved; {sizes}")


if __name__ == "__main__":
    main()
