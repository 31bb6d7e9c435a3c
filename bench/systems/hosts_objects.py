"""The rows on shaped hosts under sooner and under Ray: a program on the first host.

python -m systems.hosts_objects <plan>
"""

from __future__ import annotations

import importlib
import math
import os
import signal
import sys
import time
from typing import Any

from bodies import hosts as bodies_hosts
from bodies.hosts import AHEAD_S, DONE_S, LAYERS, STEPS, WARM_STEPS, Plan, tell

READY_S = 60.0
# When the last values come of which a sum needs the first half only.
LATE_S = 5.0


class Cast:
    """A driver on the first host, and an actor on each of the others."""

    def __init__(self, api: Any, given: Plan) -> None:
        self.api, self.plan = api, given
        self.receivers = {number: self._receiver(number) for number in range(1, given.hosts)}
        self.ready()

    def _receiver(self, number: int) -> Any:
        made = self.api.remote(bodies_hosts.Receiver)
        return made.options(num_cpus=0, resources={f"host{number}": 1}).remote()

    def ready(self) -> None:
        """Wait until all receivers answer."""
        answers = [receiver.ready.remote() for receiver in self.receivers.values()]
        assert all(self.api.get(answers, timeout=READY_S)), "a receiver is not ready"

    def once(self, size: int, seed: int) -> tuple[float, float]:
        """Have all receivers fetch one value: when the last began, and when the last had it."""
        value = bodies_hosts.content(size, seed)
        ref = self.api.put(value)
        begin = time.monotonic() + AHEAD_S
        calls = self._calls(ref, begin)
        end = max(self.api.get(list(calls.values()), timeout=DONE_S))
        self._verify(value, list(calls))
        return begin + self.plan.gap_s * (len(calls) - 1), end

    def _calls(self, ref: Any, begin: float) -> dict[int, Any]:
        return {
            number: receiver.receive.remote([ref], begin + self.plan.gap_s * place)
            for place, (number, receiver) in enumerate(self.receivers.items())
        }

    def _verify(self, value: Any, numbers: list[int]) -> None:
        expected = bodies_hosts.checksum(value)
        checks = [self.receivers[number].check.remote() for number in numbers]
        got = self.api.get(checks, timeout=DONE_S)
        assert got == [expected] * len(numbers), "a receiver has other bytes"

    def back(self, size: int, seed: int) -> tuple[float, float]:
        """Have a value fetched by the second host and the result fetched from there."""
        value = bodies_hosts.content(size, seed)
        ref = self.api.put(value)
        begin = time.monotonic() + AHEAD_S
        came = self.api.get(self.receivers[1].back.remote([ref], begin), timeout=DONE_S)
        end = time.monotonic()
        assert bodies_hosts.checksum(came) == bodies_hosts.checksum(value), "other bytes came back"
        return begin, end

    def gather(self, size: int, seed: int) -> tuple[float, float]:
        """Read a value of each other host."""
        refs = self._parts(size, seed)[1:]
        begin = time.monotonic()
        values = self.api.get(refs, timeout=DONE_S)
        end = time.monotonic()
        for number, value in enumerate(values, 1):
            expected = bodies_hosts.part(size, seed, number)
            assert bodies_hosts.checksum(value) == bodies_hosts.checksum(expected), "other bytes"
        return begin, end

    def first(self, size: int, seed: int) -> tuple[float, float]:
        """Have the first half of the values summed, when the last two come much later."""
        hosts, half = self.plan.hosts, self.plan.hosts // 2
        refs = self._parts(size, seed)[: hosts - 2]
        begin = time.monotonic()
        refs += self._late(size, seed, range(hosts - 2, hosts), begin + LATE_S)
        total, chosen = self.api.reduce_first(refs, half)
        found = self.api.get(total, timeout=DONE_S)
        end = time.monotonic()
        expected = sum(bodies_hosts.part(size, seed, number) for number in self.api.get(chosen))
        assert bodies_hosts.checksum(found) == bodies_hosts.checksum(expected), "another sum"
        self.api.wait(refs, num_returns=len(refs), timeout=READY_S, fetch_local=False)
        return begin, end

    def _late(self, size: int, seed: int, numbers: range, begin: float) -> list[Any]:
        """Values of hosts that are made one after the other."""
        gap_s = self.plan.gap_s
        return [
            self.receivers[number].late_part.remote(size, seed, number, begin + gap_s * place)
            for place, number in enumerate(numbers)
        ]

    def ring(self, size: int, seed: int) -> tuple[float, float]:
        """Have actors sum their values: each hands a part to its right neighbour in each round."""
        members = list(self.receivers.values())
        count = len(members)
        held = [one.hold.remote(size, seed, place, count) for place, one in enumerate(members)]
        self.api.get(held, timeout=READY_S)
        begin = time.monotonic()
        hands = [one.give.remote(place) for place, one in enumerate(members)]
        for step in range(1, count):
            hands = [
                one.add.remote((place - step) % count, hands[place - 1])
                for place, one in enumerate(members)
            ]
        for step in range(count - 1):
            hands = [
                one.keep.remote((place - step) % count, hands[place - 1])
                for place, one in enumerate(members)
            ]
        ends = [one.has_all.remote() for one in members]
        end = max(self.api.get(ends, timeout=DONE_S))
        expected = bodies_hosts.checksum(bodies_hosts.total(size, seed, count))
        sums = self.api.get([one.check_ring.remote() for one in members], timeout=DONE_S)
        assert sums == [expected] * count, "another sum"
        return begin, end

    def reduce(self, size: int, seed: int) -> tuple[float, float]:
        """Have a value of each host summed here."""
        refs, begin = self._sources(size, seed)
        found = self.api.get(self._sum(refs), timeout=DONE_S)
        end = time.monotonic()
        expected = bodies_hosts.total(size, seed, self.plan.hosts)
        assert bodies_hosts.checksum(found) == bodies_hosts.checksum(expected), "another sum"
        return begin, end

    def sum_calm(self, size: int, seed: int) -> tuple[float, float]:
        """Have values summed here that tasks of all hosts have made, and can make again."""
        return self._sum_of_tasks(size, seed, victim=None)

    def sum_killed(self, size: int, seed: int, victim: int) -> tuple[float, float]:
        """The same, and the node of one host is killed half-way."""
        return self._sum_of_tasks(size, seed, victim)

    def _sum_of_tasks(self, size: int, seed: int, victim: int | None) -> tuple[float, float]:
        affinity = self.api.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        make = self.api.remote(bodies_hosts.part)
        refs = [self.api.put(bodies_hosts.part(size, seed, 0))]
        for number, receiver in self.receivers.items():
            node = self.api.get(receiver.node.remote(), timeout=READY_S)
            placed = make.options(num_cpus=0, scheduling_strategy=affinity(node, soft=True))
            refs.append(placed.remote(size, seed, number))
        self.api.wait(refs, num_returns=len(refs), timeout=READY_S, fetch_local=False)
        begin = time.monotonic()
        ref = self._sum(refs)
        if victim is not None:
            bodies_hosts.wait_until(begin + self.plan.kill_after_s)
            os.kill(self.plan.pids[victim], signal.SIGKILL)
        found = self.api.get(ref, timeout=DONE_S)
        end = time.monotonic()
        expected = bodies_hosts.total(size, seed, self.plan.hosts)
        assert bodies_hosts.checksum(found) == bodies_hosts.checksum(expected), "another sum"
        return begin, end

    def sgd_async(self, size: int, seed: int) -> tuple[float, float]:
        """Train: add the first half of the gradients, and give their workers the new parameters."""
        import numpy as np

        half = (self.plan.hosts - 1) // 2
        parameters, added = np.zeros(size // 4, dtype=np.float32), 0
        ref = self.api.put(parameters)
        gradients = {number: self._gradient(number, ref) for number in self.receivers}
        begin = 0.0
        for step in range(WARM_STEPS + STEPS):
            if step == WARM_STEPS:
                begin = time.monotonic()
            total, numbers = self._first(gradients, half)
            parameters = parameters + total
            ref = self.api.put(parameters)
            gradients |= {number: self._gradient(number, ref) for number in numbers}
            added += sum(numbers)
        end = time.monotonic()
        assert (parameters == added).all(), f"other parameters than {added}"
        left = list(gradients.values())
        self.api.wait(left, num_returns=len(left), timeout=READY_S, fetch_local=False)
        return begin, end

    def _gradient(self, number: int, ref: Any) -> Any:
        return self.receivers[number].gradient.remote([ref], self.plan.compute_s, number)

    def _first(self, gradients: dict[int, Any], half: int) -> tuple[Any, list[int]]:
        """The sum of the first gradients that come, and the numbers of their hosts."""
        numbers, refs = list(gradients), list(gradients.values())
        if hasattr(self.api, "reduce_first"):
            total, chosen = self.api.reduce_first(refs, half)
            found = self.api.get(total, timeout=DONE_S)
            return found, [numbers[place] for place in self.api.get(chosen)]
        there, _ = self.api.wait(refs, num_returns=half, timeout=DONE_S)
        return bodies_hosts.summed(self.api, there), [numbers[refs.index(one)] for one in there]

    def sgd_sync(self, size: int, seed: int) -> tuple[float, float]:
        """Train: each host has a worker and some layers, whose gradients go there one by one."""
        servers, workers = list(self.receivers.values()), list(self.receivers.items())
        refs: list[Any] = [None] * LAYERS
        for place, server in enumerate(servers):
            own = list(range(place, LAYERS, len(servers)))
            kept = self.api.get(server.keep_layers.remote(own, size // LAYERS), timeout=READY_S)
            for number, ref in zip(own, kept, strict=True):
                refs[number] = ref
        begin = 0.0
        for step in range(WARM_STEPS + STEPS):
            if step == WARM_STEPS:
                self.api.wait(refs, num_returns=LAYERS, timeout=DONE_S, fetch_local=False)
                begin = time.monotonic()
            streams = [
                one.layers.options(num_returns="streaming").remote(
                    refs, self.plan.compute_s, number
                )
                for number, one in workers
            ]
            refs = [
                servers[layer % len(servers)].apply.remote(layer, [next(one) for one in streams])
                for layer in range(LAYERS)
            ]
        self.api.wait(refs, num_returns=LAYERS, timeout=DONE_S, fetch_local=False)
        end = time.monotonic()
        expected = (WARM_STEPS + STEPS) * sum(self.receivers)
        for layer in self.api.get(refs, timeout=DONE_S):
            assert (layer == expected).all(), f"other parameters than {expected}"
        return begin, end

    def allreduce(self, size: int, seed: int) -> tuple[float, float]:
        """Have a value of each host summed, and the sum fetched by all."""
        refs, begin = self._sources(size, seed)
        ref = self._sum(refs)
        calls = {number: one.receive.remote([ref], begin) for number, one in self.receivers.items()}
        self.api.get(ref, timeout=DONE_S)
        end = max([time.monotonic(), *self.api.get(list(calls.values()), timeout=DONE_S)])
        self._verify(bodies_hosts.total(size, seed, self.plan.hosts), list(calls))
        return begin, end

    def _sources(self, size: int, seed: int) -> tuple[list[Any], float]:
        """A value of each host, and from when on the time counts: the last one is there."""
        if not self.plan.gap_s:
            return self._parts(size, seed), time.monotonic()
        own = self.api.put(bodies_hosts.part(size, seed, 0))
        begin = time.monotonic() + AHEAD_S
        others = range(1, self.plan.hosts)
        refs = [own, *self._late(size, seed, others, begin)]
        return refs, begin + self.plan.gap_s * (len(others) - 1)

    def _parts(self, size: int, seed: int) -> list[Any]:
        """A value on each host."""
        refs = [self.api.put(bodies_hosts.part(size, seed, 0))]
        refs += [one.part.remote(size, seed, number) for number, one in self.receivers.items()]
        self.api.wait(refs, num_returns=len(refs), timeout=READY_S, fetch_local=False)
        return refs

    def _sum(self, refs: list[Any]) -> Any:
        """The reference of the sum: sooner makes it, with Ray the driver does."""
        if hasattr(self.api, "reduce"):
            return self.api.reduce(refs)
        return self.api.put(bodies_hosts.summed(self.api, refs))

    def killed(self, size: int, seed: int, victim: int) -> tuple[float, float]:
        """Kill the node of one host half-way: when it began, and when the last other had all."""
        value = bodies_hosts.content(size, seed)
        ref = self.api.put(value)
        begin = time.monotonic() + AHEAD_S
        calls = self._calls(ref, begin)
        lost = calls.pop(victim)
        bodies_hosts.wait_until(begin + self.plan.kill_after_s)
        os.kill(self.plan.pids[victim], signal.SIGKILL)
        end = max(self.api.get(list(calls.values()), timeout=DONE_S))
        try:
            self.api.get(lost, timeout=DONE_S)
        except self.api.exceptions.ActorDiedError:
            self._verify(value, list(calls))
            return begin, end
        raise AssertionError("the value was there before its node was killed")


def kill_hosts(cast: Cast) -> None:
    """Cast, or sum, with and without the end of one host's node in the middle of it, in turns.

    What is lost counts from the shortest time that it has taken without that.
    """
    given = cast.plan
    sums = given.kind == "sum_killed"
    calmly, fatally = (cast.sum_calm, cast.sum_killed) if sums else (cast.once, cast.killed)
    # The last one of a broadcast sends to nobody.
    victims = given.hosts - 1 if sums else given.hosts - 2
    size, calm_s = given.sizes[0], math.inf
    for counts, seed in given.repetitions(size):
        first, calm_end = calmly(size, seed)
        begin = first if sums else first - given.gap_s * (given.hosts - 2)
        calm_s = min(calm_s, calm_end - begin)
        if not counts:
            continue
        victim = 1 + seed % victims
        killed, end = fatally(size, seed + 500, victim)
        tell(event="turn", size=size, begin=killed, end=end, calm=calm_s, victim=victim)
        tell(event="killed", host=victim)
        pids = list(given.pids)
        pids[victim] = int(sys.stdin.readline())
        cast.plan = given = Plan(**{**given.__dict__, "pids": pids})
        cast.receivers[victim] = cast._receiver(victim)
        cast.ready()


def main() -> None:
    """Run the plan."""
    given = bodies_hosts.plan(sys.argv[1])
    api = importlib.import_module(os.environ["BENCH_API"])
    options: dict[str, Any] = {"log_to_driver": False}
    api.init(address=given.address, **options)
    tell(event="started", version=api.__version__)
    cast = Cast(api, given)
    if given.kind in ("killed", "sum_killed"):
        kill_hosts(cast)
    else:
        once = cast.once if given.kind == "cast" else getattr(cast, given.kind)
        bodies_hosts.repeat(given, once)
    api.shutdown()
    tell(event="done")


if __name__ == "__main__":
    main()
