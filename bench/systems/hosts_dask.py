"""The rows on shaped hosts under Dask: a client on the first host.

python -m systems.hosts_dask <plan>

The value lies on the worker of the first host. A task on each of the others has it as its argument;
that it begins says that all is there.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import distributed

from bodies import hosts as bodies_hosts
from bodies.hosts import Plan, tell

READY_S = 60.0
DONE_S = 120.0


def came(*_values: Any) -> float:
    """Return when the arguments were there."""
    return time.monotonic()


def added(*values: Any) -> Any:
    """Return the sum of the arguments."""
    found = values[0].copy()
    for value in values[1:]:
        found += value
    return found


def same(value: Any) -> Any:
    """Return the argument as a value of its own."""
    return value.copy()


class Cast:
    """A client, and the workers' addresses in the order of the hosts."""

    def __init__(self, client: Any, given: Plan) -> None:
        self.client = client
        client.wait_for_workers(given.hosts, timeout=READY_S)
        named = {
            int(worker["name"]): address
            for address, worker in client.scheduler_info(n_workers=-1)["workers"].items()
        }
        self.workers = [named[number] for number in range(given.hosts)]

    def _at(self, number: int, task: Any, value: Any) -> Any:
        return self.client.submit(task, value, workers=[self.workers[number]], pure=False)

    def _value(self, size: int, seed: int) -> tuple[Any, int]:
        """A value on the first host, and what its bytes come to."""
        array = bodies_hosts.content(size, seed)
        ref = self.client.scatter(array, workers=[self.workers[0]], direct=True, hash=False)
        return ref, bodies_hosts.checksum(array)

    def once(self, size: int, seed: int) -> tuple[float, float]:
        """Have the value brought to all: when that was begun, and when the last one had it."""
        ref, expected = self._value(size, seed)
        others = range(1, len(self.workers))
        begin = time.monotonic()
        ends = self.client.gather([self._at(number, came, ref) for number in others])
        # The value is still where it was brought.
        checks = [self._at(number, bodies_hosts.checksum, ref) for number in others]
        assert self.client.gather(checks) == [expected] * len(others), "a worker has other bytes"
        return begin, max(ends)

    def reduce(self, size: int, seed: int) -> tuple[float, float]:
        """Have a value of each host summed on the first."""
        total, begin = self._sum(size, seed)
        end = self._at(0, came, total).result(timeout=DONE_S)
        self._verify_sum(total, size, seed, [0])
        return begin, end

    def gather(self, size: int, seed: int) -> tuple[float, float]:
        """Have a value of each other host read by a task on the first."""
        parts = self._parts(size, seed)[1:]
        begin = time.monotonic()
        there = self.client.submit(came, *parts, workers=[self.workers[0]], pure=False)
        end = there.result(timeout=DONE_S)
        for number, ref in enumerate(parts, 1):
            expected = bodies_hosts.checksum(bodies_hosts.part(size, seed, number))
            check = self._at(0, bodies_hosts.checksum, ref).result(timeout=DONE_S)
            assert check == expected, "other bytes"
        return begin, end

    def allreduce(self, size: int, seed: int) -> tuple[float, float]:
        """Have a value of each host summed on the first, and the sum brought to all."""
        total, begin = self._sum(size, seed)
        hosts = list(range(len(self.workers)))
        end = max(self.client.gather([self._at(number, came, total) for number in hosts]))
        self._verify_sum(total, size, seed, hosts)
        return begin, end

    def _parts(self, size: int, seed: int) -> list[Any]:
        """A value on each host."""
        make = bodies_hosts.part
        parts = [
            self.client.submit(make, size, seed, number, workers=[address], pure=False)
            for number, address in enumerate(self.workers)
        ]
        distributed.wait(parts, timeout=READY_S)
        return parts

    def _sum(self, size: int, seed: int) -> tuple[Any, float]:
        parts = self._parts(size, seed)
        begin = time.monotonic()
        return self.client.submit(added, *parts, workers=[self.workers[0]], pure=False), begin

    def _verify_sum(self, total: Any, size: int, seed: int, hosts: list[int]) -> None:
        expected = bodies_hosts.checksum(bodies_hosts.total(size, seed, len(self.workers)))
        checks = [self._at(number, bodies_hosts.checksum, total) for number in hosts]
        assert self.client.gather(checks) == [expected] * len(hosts), "another sum"

    def back(self, size: int, seed: int) -> tuple[float, float]:
        """Have the value brought to the second host and the result brought from there."""
        ref, expected = self._value(size, seed)
        begin = time.monotonic()
        returned = self._at(1, same, ref)
        end = self._at(0, came, returned).result(timeout=DONE_S)
        check = self._at(0, bodies_hosts.checksum, returned).result(timeout=DONE_S)
        assert check == expected, "other bytes came back"
        return begin, end


def main() -> None:
    """Run the plan."""
    given = bodies_hosts.plan(sys.argv[1])
    tell(event="started", version=distributed.__version__)
    with distributed.Client(given.address, timeout=READY_S) as client:
        cast = Cast(client, given)
        once = cast.once if given.kind == "cast" else getattr(cast, given.kind)
        bodies_hosts.repeat(given, once)
    tell(event="done")


if __name__ == "__main__":
    main()
