"""The actors of an `ActorPool`: how many calls each of them has, and what takes the place of one that died.

Invariants:
    1. No actor has more than `in_flight` calls.
    2. The factory is called once for each actor that died. Only a call that was interrupted (Ctrl-C) is made
       again: what the factory cannot make is not asked for again and again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Generic, TypeVar

import sooner

H = TypeVar("H")


class Member(Generic[H]):
    """An actor and the number of its calls that have not ended.

    Attributes:
        actor: Its handle.
        calls: How many calls it has.
        is_dead: It has left the pool; some of its calls may not have been heard of yet.
    """

    def __init__(self, actor: H) -> None:
        self.actor = actor
        self.calls = 0
        self.is_dead = False


class Members(Generic[H]):
    """The actors of a pool.

    Args:
        in_flight: How many calls each may have.
        factory: Makes an actor in the place of one that died.
    """

    def __init__(self, in_flight: int, factory: Callable[[], H] | None) -> None:
        self._in_flight = in_flight
        self._factory = factory
        # The living ones. A member goes to the end when one of its calls ends, so that those that are equally
        # busy take turns.
        self._members: list[Member[H]] = []
        # Actors that have died and have not been replaced.
        self._missing = 0

    def __len__(self) -> int:
        return len(self._members)

    def add(self, actor: H, giver: str = "an ActorPool takes") -> None:
        """Add an actor that has no calls.

        Raises:
            TypeError: It is no handle; `giver` begins the sentence that says so.
            ValueError: It is in the pool already.
        """
        if not isinstance(actor, sooner.ActorHandle):
            raise TypeError(f"{giver} actor handles, not {type(actor).__name__}")
        if any(member.actor == actor for member in self._members):
            raise ValueError("this actor is in the pool already")
        self._members.append(Member(actor))

    def has_room(self) -> bool:
        """Whether an actor may get another call."""
        return any(member.calls < self._in_flight for member in self._members)

    def take(self) -> Member[H] | None:
        """Count a call for the least busy actor; None if none may get another call."""
        member = min(self._members, key=_calls_of, default=None)
        if member is None or member.calls >= self._in_flight:
            return None
        member.calls += 1
        return member

    def give_back(self, member: Member[H]) -> None:
        """The call that was counted was not made."""
        member.calls -= 1

    def on_ended(self, member: Member[H]) -> None:
        """A call of this member has ended."""
        member.calls -= 1
        if not member.is_dead:
            self._members.remove(member)
            self._members.append(member)

    def on_died(self, member: Member[H]) -> None:
        """A call of this member has failed because its actor is dead. The first of them counts."""
        member.calls -= 1
        if not member.is_dead:
            member.is_dead = True
            self._members.remove(member)
            self._missing += self._factory is not None

    def pop_idle(self) -> H | None:
        """Remove an actor that has no calls; None if there is none."""
        member = min(self._members, key=_calls_of, default=None)
        if member is None or member.calls:
            return None
        self._members.remove(member)
        return member.actor

    def replace_dead(self) -> None:
        """Make an actor in the place of each that has died.

        Raises:
            TypeError: The factory made no handle.
            ValueError: It gave an actor that is in the pool.
            Exception: What the factory raised. The pool goes on without this actor; others that are missing
                are made by the next call.
        """
        while self._factory is not None and self._missing:
            # Before the factory runs, which may use the pool.
            self._missing -= 1
            try:
                self.add(self._factory(), "the factory of an ActorPool returns")
            except Exception as error:
                # The class of the error may be frozen. The error matters more than the note.
                with contextlib.suppress(Exception):
                    error.add_note(
                        "An actor of an ActorPool died, and this came of the factory that was to replace it. "
                        f"Actors left in the pool: {len(self)}."
                    )
                raise
            except BaseException:
                # For instance, Ctrl-C.
                self._missing += 1
                raise


def _calls_of(member: Member[H]) -> int:
    return member.calls
