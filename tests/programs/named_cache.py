"""A cache that all tasks share: a named actor that whoever comes first creates, in a namespace of its own."""

from __future__ import annotations

import asyncio

import ray

KEYS = 8


def partitions(number: int) -> int:
    """In how many ways a number is a sum of positive ones."""
    ways = [1] + [0] * number
    for part in range(1, number + 1):
        for total in range(part, number + 1):
            ways[total] += ways[total - part]
    return ways[number]


@ray.remote(num_cpus=0)
class Cache:
    """Whoever asks first for a key computes it, and the others wait."""

    def __init__(self) -> None:
        self.values: dict[int, asyncio.Future[int]] = {}
        self.hits = 0

    async def get(self, key: int) -> int | None:
        if key not in self.values:
            self.values[key] = asyncio.get_running_loop().create_future()
            return None
        self.hits += 1
        return await self.values[key]

    async def put(self, key: int, value: int) -> None:
        self.values[key].set_result(value)

    async def statistics(self) -> tuple[int, int]:
        return len(self.values), self.hits


def open_cache(namespace: str) -> ray.actor.ActorHandle:
    options = {"name": "partitions", "namespace": namespace, "get_if_exists": True, "lifetime": "detached"}
    return Cache.options(**options).remote()


@ray.remote
def look_up(key: int) -> int:
    cache = open_cache("numbers")
    value = ray.get(cache.get.remote(key))
    if value is None:
        value = partitions(key)
        ray.get(cache.put.remote(key, value))
    return value


def main() -> None:
    ray.init(num_cpus=2, namespace="program")
    keys = [20 + number for number in range(KEYS)] * 3
    values = ray.get([look_up.remote(key) for key in keys])
    expected = [partitions(key) for key in keys]
    assert values == expected, f"the values are {values} instead of {expected}"

    cache = ray.get_actor("partitions", namespace="numbers")
    computed, hits = ray.get(cache.statistics.remote())
    assert (computed, hits) == (KEYS, 2 * KEYS), f"{computed} values were computed, {hits} were there"

    other = open_cache("others")
    assert ray.get(other.statistics.remote()) == (0, 0), "two namespaces share an actor"
    try:
        ray.get_actor("partitions")
    except ValueError:
        pass
    else:
        raise AssertionError("the name is there in the namespace of the program, too")
    for handle in (cache, other):
        ray.kill(handle)
    print(f"answer: {computed} computed, {hits} found, the last is {values[-1]}")


if __name__ == "__main__":
    main()
