"""A gang: a placement group reserves a CPU for each member, and an asyncio actor is their barrier."""

from __future__ import annotations

import asyncio

import ray
from ray.actor import ActorHandle
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

MEMBERS = 3
ROUNDS = 6


def advance(rank: int, round_: int, values: list[int]) -> int:
    return (values[rank] * (rank + 2) + sum(values) + round_) % 1009


@ray.remote(num_cpus=0)
class Barrier:
    """Lets nobody pass until all members have come, and gives each the values of all."""

    def __init__(self, members: int) -> None:
        self.members = members
        self.values: dict[tuple[int, int], int] = {}
        self.arrivals: list[int] = []
        self.changed = asyncio.Condition()

    async def meet(self, round_: int, rank: int, value: int) -> list[int]:
        keys = [(round_, member) for member in range(self.members)]
        async with self.changed:
            self.values[round_, rank] = value
            self.arrivals.append(round_)
            self.changed.notify_all()
            await self.changed.wait_for(lambda: all(key in self.values for key in keys))
        return [self.values[key] for key in keys]

    async def order(self) -> list[int]:
        return self.arrivals


def take_part(rank: int, barrier: ActorHandle) -> tuple[int, str | None]:
    """The last value of a member, and the placement group in which it ran."""
    value = rank + 1
    for round_ in range(ROUNDS):
        values = ray.get(barrier.meet.remote(round_, rank, value))
        value = advance(rank, round_, values)
    return value, ray.get_runtime_context().get_placement_group_id()


@ray.remote(num_cpus=1)
class Member:
    def __init__(self, rank: int) -> None:
        self.rank = rank

    def run(self, barrier: ActorHandle) -> tuple[int, str | None]:
        return take_part(self.rank, barrier)


def main() -> None:
    ray.init(num_cpus=MEMBERS)
    group = placement_group([{"CPU": 1}] * MEMBERS, strategy="PACK")
    assert group.wait(60), "the group was not placed"
    assert ray.available_resources().get("CPU", 0) == 0, "the group did not reserve all CPUs"

    strategies = [PlacementGroupSchedulingStrategy(group, index) for index in range(MEMBERS)]
    barrier = Barrier.remote(MEMBERS)
    actors = [Member.options(scheduling_strategy=strategies[rank]).remote(rank) for rank in (0, 1)]
    last = ray.remote(take_part).options(num_cpus=1, scheduling_strategy=strategies[2])
    ended = ray.get([*(actor.run.remote(barrier) for actor in actors), last.remote(2, barrier)])

    expected = [rank + 1 for rank in range(MEMBERS)]
    for round_ in range(ROUNDS):
        expected = [advance(rank, round_, expected) for rank in range(MEMBERS)]
    assert [value for value, _ in ended] == expected, f"the members have {ended}, one process has {expected}"
    assert {place for _, place in ended} == {group.id.hex()}, f"a member ran elsewhere: {ended}"
    order = ray.get(barrier.order.remote())
    assert order == sorted(order), f"a member passed the barrier too early: {order}"

    remove_placement_group(group)
    state = placement_group_table(group)["state"]
    assert state == "REMOVED", f"the group is {state}"
    print(f"answer: {expected} after {ROUNDS} rounds of {MEMBERS} members")


if __name__ == "__main__":
    main()
