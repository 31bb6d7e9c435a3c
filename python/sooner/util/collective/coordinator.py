"""The actor in which the members of a group meet.

It passes references on and reads none. It serves the group's name for as long as somebody uses it: when a
member dies or leaves, the generation of members breaks, and the next one that joins begins another.

Each member has a call `stay` parked here, and hands over the reference of that call. The member's process
owns the reference, so that it fails, with the reason, as soon as the process ends: whether it is an actor, a
restarted actor, the worker of a task or a driver, on this node or another one. `sooner.util.ended` would
know actors alone, and miss their restarts.

Invariant: an actor without members, without joining ones and without parked calls ends.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from typing import Any

import sooner
from sooner.util.collective.errors import Failure
from sooner.util.collective.generation import Generation, Given
from sooner.util.collective.types import Call, Patience

# Calls at the same time: each member has one parked, and one for each thread that is in an operation.
CALLS_MAX = 10_000
WORLD_SIZE_MAX = 1_000
# How long one that joins waits for the news that the group it finds under the name is broken (seconds): the
# member may have died just now.
_GRACE_SECONDS = 5.0
# How long an actor waits for its first member (seconds): the one that made it may be dead.
_FIRST_SECONDS = 60.0

_OWNER_DIED = re.compile(r"the owner of object \w+, (?P<who>.*), is gone \((?P<how>.*?)\), and")


class Coordinator:
    """Where members meet.

    Args:
        name: Of the group.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._current: Generation | None = None
        # By ticket: the members of all generations that somebody still knows.
        self._members: dict[bytes, tuple[Generation, int]] = {}
        self._stays: dict[bytes, asyncio.Event] = {}
        # Tickets of those that left and were no members: they may be about to join.
        self._dismissed: deque[bytes] = deque(maxlen=CALLS_MAX)
        self._joining = 0
        # An event loop holds its tasks weakly.
        self._watches: set[asyncio.Task[None]] = set()
        self._has_timer = False

    async def is_apart_from(self, member: str) -> bool:
        """Whether this actor has a process of its own, and not, in local mode, that of a member."""
        if sooner.get_runtime_context().get_worker_id() == member:
            return False
        if not self._has_timer:
            self._has_timer = True
            asyncio.get_running_loop().call_later(_FIRST_SECONDS, self._end_if_idle)
        return True

    async def stay(self, ticket: bytes) -> None:
        """Return when the member leaves. Its reference tells of the member's death."""
        if ticket in self._dismissed:
            return self._end_if_idle()
        event = self._stays.setdefault(ticket, asyncio.Event())
        try:
            await event.wait()
        finally:
            self._stays.pop(ticket, None)
            self._end_if_idle()

    async def join(
        self,
        ticket: bytes,
        former: bytes | None,
        world_size: int,
        rank: int,
        who: str,
        box: list[Any],
        patience: Patience,
    ) -> Failure | None:
        """Take a place in the group and wait until it is complete.

        Args:
            ticket: The new member.
            former: What the same process was in a group of this name before.
            world_size: How many members the group has.
            rank: The place.
            who: What the member runs in, for messages.
            box: A list with the reference of its `stay`.
            patience: Seconds for the others to come.
        """
        if ticket in self._dismissed:
            self._part(ticket)
            return self._gone()
        self._joining += 1
        # The parked call may arrive after this one, even after the member has left again.
        self._stays.setdefault(ticket, asyncio.Event())
        try:
            clock = asyncio.get_running_loop().time
            begun = clock()
            while True:
                generation = self._current
                if generation is None or generation.failure is not None:
                    generation = self._current = Generation(self._name, world_size)
                problem = generation.refusal(world_size, rank)
                if problem is None:
                    break
                left = begun + min(patience.left, _GRACE_SECONDS) - clock()
                if left <= 0:
                    self._part(ticket)
                    return Failure("broken", problem, rank)
                await asyncio.wait([generation.end], timeout=left)
            if former is not None:
                self._part(former)
            self._members[ticket] = generation, rank
            watch = asyncio.create_task(self._watch(ticket, box))
            self._watches.add(watch)
            watch.add_done_callback(self._watches.discard)
            failure = await generation.join(
                rank, who, patience._replace(left=max(0.0, begun + patience.left - clock()))
            )
            if failure is not None:
                self._part(ticket)
            return failure
        finally:
            self._joining -= 1
            self._end_if_idle()

    async def _watch(self, ticket: bytes, box: list[Any]) -> None:
        try:
            await box[0]
        except Exception as error:
            text = str(error)
        else:
            return
        # If the process ended early, the parked call has never arrived.
        self._stays.pop(ticket, None)
        generation, rank = self._members.get(ticket, (None, 0))
        if generation is not None:
            found = _OWNER_DIED.match(text)
            how = f"{found['how']} ({found['who']})" if found else text
            generation.fail(Failure("died", f"{generation.who(rank)} has died: {how}", rank))
        self._part(ticket)
        self._end_if_idle()

    async def leave(self, ticket: bytes) -> None:
        """Take a member out, and break its generation."""
        generation, rank = self._members.get(ticket, (None, 0))
        if generation is None:
            self._dismissed.append(ticket)
        else:
            generation.fail(Failure("died", f"{generation.who(rank)} has left the group", rank))
        self._part(ticket)
        self._end_if_idle()

    async def fail(self, ticket: bytes, failure: Failure) -> None:
        """Break the generation of a member, whose part of an operation failed."""
        generation, _ = self._members.get(ticket, (None, 0))
        if generation is not None:
            generation.fail(failure)

    async def meet(
        self, ticket: bytes, number: int, step: int, call: Call, given: Given, patience: Patience
    ) -> Failure | list[Any]:
        """See `Generation.meet`."""
        generation, rank = self._members.get(ticket, (None, 0))
        return self._gone() if generation is None else await generation.meet(rank, number, step, call, given, patience)

    async def send(
        self, ticket: bytes, to: int, number: int, call: Call, box: Given, patience: Patience
    ) -> Failure | None:
        """See `Generation.send`."""
        generation, rank = self._members.get(ticket, (None, 0))
        if generation is None:
            return self._gone()
        return await generation.send((rank, to), number, call, box, patience)

    async def recv(
        self, ticket: bytes, source: int, number: int, call: Call, patience: Patience
    ) -> Failure | list[Any]:
        """See `Generation.recv`."""
        generation, rank = self._members.get(ticket, (None, 0))
        if generation is None:
            return self._gone()
        return await generation.recv((source, rank), number, call, patience)

    async def end(self) -> None:
        """End this actor if nobody uses it."""
        if self._is_idle():
            sooner.actor.exit_actor()

    def _gone(self) -> Failure:
        return Failure("broken", f"this member has left group {self._name!r}")

    def _part(self, ticket: bytes) -> None:
        self._members.pop(ticket, None)
        event = self._stays.get(ticket)
        if event is not None:
            event.set()

    def _is_idle(self) -> bool:
        return not (self._members or self._joining or self._stays)

    def _end_if_idle(self) -> None:
        if self._is_idle():
            # A call, and not at once: the answer of the running one is still to be sent.
            sooner.get_runtime_context().current_actor.end.remote()
