"""Ids as values: what the engine shows as hexadecimal text, for programs that keep, compare or send ids.

An id of an object is an `ObjectRef`. Everything else that has an id has one of these classes; `hex()` is the text that
the runtime context, `nodes()` and error messages show.
"""

from __future__ import annotations

import secrets
from typing import Any, ClassVar, TypeVar

_T = TypeVar("_T", bound="BaseID")


class BaseID:
    """An id: some bytes with a meaning that only the engine knows.

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
    __slots__ = ("_data",)

    def __init__(self, data: bytes) -> None:
        given: object = data
        if not isinstance(given, bytes) or len(given) != self._BYTES:
            raise ValueError(f"a {type(self).__name__} has {self._BYTES} bytes, not {data!r:.80}")
        self._data = data

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
        return cls(secrets.token_bytes(cls._BYTES))

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
        return self._data

    def hex(self) -> str:
        """Its bytes as text."""
        return self._data.hex()

    def is_nil(self) -> bool:
        """Whether it stands for nothing."""
        return not any(self._data)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._data == self._data

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._data))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._data,)

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
