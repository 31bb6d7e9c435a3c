"""What a collective operation raises, and the reason for it as the members of a group tell it each other."""

from __future__ import annotations

from typing import NamedTuple


class CollectiveError(RuntimeError):
    """A group cannot be made, or is broken: every further operation on it raises the same.

    Attributes:
        rank: The member that caused it, where there is one.
    """

    def __init__(self, message: str = "", rank: int | None = None) -> None:
        super().__init__(message)
        self.rank = rank


class CollectiveMismatchError(CollectiveError):
    """Two members called different operations at the same place, or with unequal shapes or dtypes."""


class CollectiveMemberDiedError(CollectiveError):
    """A member has died, or has left the group."""


# TimeoutError comes first: an error that comes out of a task is made by the first built-in class.
class CollectiveTimeoutError(TimeoutError, CollectiveError):
    """Some members did not come in time; the message names their ranks."""

    def __init__(self, message: str = "", rank: int | None = None) -> None:
        super().__init__(message)
        self.rank = rank


_CLASSES = {
    "broken": CollectiveError,
    "died": CollectiveMemberDiedError,
    "mismatch": CollectiveMismatchError,
    "timeout": CollectiveTimeoutError,
}


class Failure(NamedTuple):
    """Why a group is broken.

    Attributes:
        kind: What is raised for it: "broken", "died", "mismatch" or "timeout".
        text: The message.
        rank: The member that caused it, where there is one.
    """

    kind: str
    text: str
    rank: int | None = None

    def error(self) -> CollectiveError:
        """A new exception for it."""
        return _CLASSES[self.kind](self.text, self.rank)
