"""The members of a group from the first that comes to the failure of an operation, as its coordinator knows
them.

It holds references and never reads what they refer to.

Invariants:
    1. Whoever waits is woken when what it waits for is there, and when the group breaks.
    2. A broken generation holds no reference, and stays broken.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from sooner.util.collective.errors import Failure
from sooner.util.collective.types import Call, Patience

# Messages from one member to another that wait for their receiver. A sender with more waits.
SENDS_MAX = 64

# For each rank a reference or None; or one reference for all ranks; or nothing.
Given = list[Any]


class _Meeting:
    """One step of an operation: complete when all members have come."""

    def __init__(self, done: asyncio.Future[None]) -> None:
        self.done = done
        self.is_complete = False
        self.calls: dict[int, Call] = {}
        self.given: dict[int, Given] = {}

    def refs_for(self, rank: int) -> list[Any]:
        """What each other member, in the order of ranks, has given for one of them."""
        size = len(self.given)
        columns = [self.given[giver] for giver in range(size)]
        chosen = [given[rank] if len(given) == size else next(iter(given), None) for given in columns]
        chosen[rank] = None
        return chosen


class _Message(NamedTuple):
    """A message, or the place for it, if its receiver has come first."""

    came: asyncio.Future[None]
    content: list[tuple[Call, Any]]


class _Pair:
    """Messages from one member to another."""

    def __init__(self) -> None:
        self.messages: dict[int, _Message] = {}
        self.taken = 0
        # Senders that wait until so many have been taken that theirs is within the bound, by its number.
        self.senders: dict[int, asyncio.Future[None]] = {}


class Generation:
    """One life of a group.

    Args:
        name: Of the group.
        world_size: Its number of members.
    """

    def __init__(self, name: str, world_size: int) -> None:
        self.name = name
        self.world_size = world_size
        self.failure: Failure | None = None
        self._waits: set[asyncio.Future[None]] = set()
        self._members: dict[int, str] = {}
        self._meetings: dict[tuple[int, int], _Meeting] = {}
        self._pairs: dict[tuple[int, int], _Pair] = {}
        self._full = self._future()
        self.end = self._future()

    def _future(self) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waits.add(future)
        future.add_done_callback(self._waits.discard)
        return future

    def fail(self, failure: Failure) -> Failure:
        """Break the group. The first reason stays, and is returned."""
        if self.failure is not None:
            return self.failure
        self.failure = failure
        self._meetings.clear()
        self._pairs.clear()
        for future in list(self._waits):
            _wake(future)
        return failure

    def refusal(self, world_size: int, rank: int) -> str | None:
        """Why a member cannot join; None if it can."""
        if world_size != self.world_size:
            return f"group {self.name!r} has {self.world_size} members, and rank {rank} asked for {world_size}"
        holder = self._members.get(rank)
        if holder is not None:
            return f"rank {rank} of group {self.name!r} is taken: {holder} has it"
        return None

    async def join(self, rank: int, who: str, patience: Patience) -> Failure | None:
        """Take a place and wait for the others. A member that gives up frees its place."""
        self._members[rank] = who
        if len(self._members) == self.world_size:
            _wake(self._full)
        await asyncio.wait([self._full], timeout=patience.left)
        if len(self._members) == self.world_size or self.failure is not None:
            return self.failure
        missing = [other for other in range(self.world_size) if other not in self._members]
        del self._members[rank]
        text = f"group {self.name!r}: {_ranks(missing)} did not join within {patience.whole:g} s"
        return Failure("timeout", text, missing[0])

    def who(self, rank: int) -> str:
        """A member with what it runs in, for messages."""
        return f"rank {rank} ({self._members.get(rank, 'unknown')}) of group {self.name!r}"

    async def meet(
        self, rank: int, number: int, step: int, call: Call, given: Given, patience: Patience
    ) -> Failure | list[Any]:
        """Wait until all members have come to a step of an operation.

        Returns:
            What the others have given for this member, in the order of ranks.
        """
        if self.failure is not None:
            return self.failure
        key = number, step
        meeting = self._meetings.get(key)
        if meeting is None:
            meeting = self._meetings[key] = _Meeting(self._future())
        meeting.calls[rank], meeting.given[rank] = call, given
        other, expected = next(iter(meeting.calls.items()))
        if call != expected:
            self.fail(self._mismatch(f"operation {number}", {other: expected, rank: call}))
        elif len(meeting.calls) == self.world_size:
            meeting.is_complete = True
            del self._meetings[key]
            _wake(meeting.done)
        await asyncio.wait([meeting.done], timeout=patience.left)
        if meeting.is_complete:
            return meeting.refs_for(rank)
        missing = [other for other in range(self.world_size) if other not in meeting.calls]
        return self._late(f"{call}, operation {number}", missing, "did not come to it", patience)

    async def send(
        self, ranks: tuple[int, int], number: int, call: Call, box: Given, patience: Patience
    ) -> Failure | None:
        """Hand over a message. The sender waits only while too many of its messages have not been taken."""
        if self.failure is not None:
            return self.failure
        pair, message = self._message(ranks, number)
        message.content.append((call, box[0]))
        _wake(message.came)
        if number < pair.taken + SENDS_MAX:
            return None
        has_room = pair.senders[number] = self._future()
        await asyncio.wait([has_room], timeout=patience.left)
        if number < pair.taken + SENDS_MAX:
            return None
        return self._late(f"{call}, message {number}", [ranks[1]], "did not take earlier ones", patience)

    async def recv(self, ranks: tuple[int, int], number: int, call: Call, patience: Patience) -> Failure | list[Any]:
        """Wait for a message.

        Returns:
            A list with its reference.
        """
        if self.failure is not None:
            return self.failure
        pair, message = self._message(ranks, number)
        await asyncio.wait([message.came], timeout=patience.left)
        if not message.content:
            return self._late(f"{call}, message {number}", [ranks[0]], "did not send it", patience)
        sent, ref = message.content[0]
        pair.messages.pop(number, None)
        pair.taken += 1
        has_room = pair.senders.pop(pair.taken + SENDS_MAX - 1, None)
        if has_room is not None:
            _wake(has_room)
        if (sent.dtype, sent.shape) != (call.dtype, call.shape):
            return self.fail(self._mismatch(f"message {number}", {ranks[0]: sent, ranks[1]: call}))
        return [ref]

    def _message(self, ranks: tuple[int, int], number: int) -> tuple[_Pair, _Message]:
        pair = self._pairs.setdefault(ranks, _Pair())
        message = pair.messages.get(number)
        if message is None:
            message = pair.messages[number] = _Message(self._future(), [])
        return pair, message

    def _mismatch(self, what: str, calls: dict[int, Call]) -> Failure:
        said = ", but ".join(f"rank {rank} called {calls[rank]}" for rank in sorted(calls))
        return Failure("mismatch", f"{what} of group {self.name!r}: {said}")

    def _late(self, what: str, missing: list[int], lack: str, patience: Patience) -> Failure:
        """The failure of a wait that ended without what it was for: an earlier one, or that of this wait."""
        text = f"{what} of group {self.name!r}: {_ranks(missing)} {lack} within {patience.whole:g} s"
        return self.fail(Failure("timeout", text, next(iter(missing), None)))


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _ranks(ranks: list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
