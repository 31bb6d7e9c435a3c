"""A rate limiter: tasks ask an asyncio actor for permits, and it grants so many in any window of time."""

from __future__ import annotations

import asyncio
import time
from itertools import chain

import ray
from ray.actor import ActorHandle

REQUESTS = 24
LIMIT = 6
WINDOW = 0.25


@ray.remote
class RateLimiter:
    def __init__(self) -> None:
        self.granted: list[float] = []
        self.waiting = 0
        self.most_waiting = 0
        self.turn = asyncio.Lock()

    async def acquire(self) -> int:
        """Wait for a permit: its number."""
        self.waiting += 1
        self.most_waiting = max(self.most_waiting, self.waiting)
        async with self.turn:
            if len(self.granted) >= LIMIT:
                while (left := self.granted[-LIMIT] + WINDOW - time.monotonic()) > 0:
                    await asyncio.sleep(left)
            self.waiting -= 1
            self.granted.append(time.monotonic())
            return len(self.granted)

    async def grants(self) -> list[float]:
        return self.granted

    async def longest_queue(self) -> int:
        return self.most_waiting


@ray.remote(num_cpus=0.25)
def serve(limiter: ActorHandle, requests: range) -> list[tuple[int, int]]:
    """The numbers of the permits, and the answers."""
    permits = ray.get([limiter.acquire.remote() for _ in requests])
    return [(permit, request * request) for permit, request in zip(permits, requests, strict=True)]


def main() -> None:
    ray.init(num_cpus=2)
    limiter = RateLimiter.remote()
    clients = 4
    shares = [range(client, REQUESTS, clients) for client in range(clients)]
    served = ray.get([serve.remote(limiter, share) for share in shares])
    permits, answers = zip(*chain(*served), strict=True)
    expected = [request * request for share in shares for request in share]
    assert list(answers) == expected, f"the answers are {answers} instead of {expected}"
    assert sorted(permits) == list(range(1, REQUESTS + 1)), f"the permits are {sorted(permits)}"

    times = ray.get(limiter.grants.remote())
    for earlier, later in zip(times, times[LIMIT:], strict=False):
        assert later - earlier >= WINDOW - 1e-6, f"{LIMIT + 1} permits within {later - earlier:.3f} s"
    assert ray.get(limiter.longest_queue.remote()) > 1, "the calls did not overlap"
    print(f"answer: {len(times)} permits, never more than {LIMIT} in {WINDOW} s, sum {sum(answers)}")


if __name__ == "__main__":
    main()
