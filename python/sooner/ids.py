"""Ids as values: what the engine shows as hexadecimal text, for programs that keep, compare or send ids.

The id of an object is an `ObjectRef`. Ids of everything else are instances of these classes; `hex()` is the
text that the runtime context, `nodes()` and error messages show.
"""

from __future__ import annotations

import os
from typing import Any, ClassVar, TypeVar

_T = TypeVar("_T", bound="BaseID")


class BaseID(str):
    """An id: some bytes with a meaning that only the engine knows.

    It is its hexadecimal text as well, and equal to it, so that it can be compared with ids as rows of the
    state API, `nodes()` and messages have them. Ids of different classes are never equal.

    Args:
        data: Its bytes; their number is `size()`.

    Raises:
        ValueError: `data` has another length.

    Example:
        >>> task = TaskID.from_hex("00" * 15 + "01")
        >>> task == TaskID(task.binary()), task.is_nil()
        (True, False)
    """

    _BYTES: ClassVar[int] = 16
    __slots__ = ()

    def __new__(cls: type[_T], data: bytes) -> _T:  # noqa: D102  as the class says
        given: object = data
        if not isinstance(given, bytes) or len(given) != cls._BYTES:
            raise ValueError(f"a {cls.__name__} has {cls._BYTES} bytes, not {data!r:.80}")
        return str.__new__(cls, data.hex())

    @classmethod
    def from_binary(cls: type[_T], data: bytes) -> _T:
        """The id with these bytes."""
        return cls(data)

    @classmethod
    def from_hex(cls: type[_T], text: str) -> _T:
        """The id that is written so."""
        try:
            return cls(bytes.fromhex(text))
        except (TypeError, ValueError):
            raise ValueError(f"a {cls.__name__} is {2 * cls._BYTES} hexadecimal digits, not {text!r:.80}") from None

    @classmethod
    def from_random(cls: type[_T]) -> _T:
        """An id that nothing has."""
        return cls(os.urandom(cls._BYTES))

    @classmethod
    def nil(cls: type[_T]) -> _T:
        """The id that stands for nothing."""
        return cls(bytes(cls._BYTES))

    @classmethod
    def size(cls) -> int:
        """Its length in bytes."""
        return cls._BYTES

    def binary(self) -> bytes:
        """Its bytes."""
        return bytes.fromhex(self.hex())

    def hex(self) -> str:
        """Its bytes as text."""
        return str.__str__(self)

    def is_nil(self) -> bool:
        """Whether it stands for nothing."""
        return not self.strip("0")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, BaseID) and type(other) is not type(self):
            return False
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return str.__hash__(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.binary(),)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.hex()})"


class TaskID(BaseID):
    """A task: the process that submitted it, and its number there."""

    __slots__ = ()


class ActorID(BaseID):
    """An actor: the task that created it."""

    __slots__ = ()


class UniqueID(BaseID):
    """Anything else."""

    _BYTES = 8
    __slots__ = ()


class JobID(UniqueID):
    """A job: its driver."""

    __slots__ = ()


class NodeID(UniqueID):
    """A node."""

    __slots__ = ()


class WorkerID(UniqueID):
    """A process that executes tasks."""

    __slots__ = ()


class FunctionID(UniqueID):
    """A remote function."""

    __slots__ = ()


class ActorClassID(UniqueID):
    """A remote class."""

    __slots__ = ()


class ClusterID(UniqueID):
    """A cluster."""

    __slots__ = ()


class PlacementGroupID(BaseID):
    """A placement group."""

    __slots__ = ()
