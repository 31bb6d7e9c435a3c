"""What tasks and actors do, without any engine: Pool, the executor and Dask run these as they are.

Nothing that costs time is imported at the top: a worker that runs its first task imports this
module, which is part of the time to the first answer.
"""

from collections.abc import Iterator
from typing import Any


def ok() -> bytes:
    """Answer with two bytes, as every task and every method of the rows does."""
    return b"ok"


def ok_of(_item: object) -> bytes:
    """Answer with two bytes for one item of a `map`."""
    return b"ok"


def items(count: int) -> Iterator[bytes]:
    """Yield two bytes `count` times."""
    for _ in range(count):
        yield b"ok"


def first_of(array: object) -> float:
    """Read one number of a large array."""
    return float(array[0])  # type: ignore[index]


class Server:
    """An actor whose methods answer with two bytes."""

    def ok(self) -> bytes:
        """Answer a call without arguments."""
        return b"ok"

    def ok_of(self, _item: object) -> bytes:
        """Answer a call with one argument."""
        return b"ok"

    def ones(self, size: int) -> Any:
        """Answer with a float32 array of so many bytes."""
        import numpy as np

        return np.ones(size // 4, np.float32)

    def pid(self) -> int:
        """Say which process the actor lives in."""
        import os

        return os.getpid()


class AsyncServer:
    """The same as a class of coroutines, which makes it an asyncio actor."""

    async def ok(self) -> bytes:
        """Answer a call without arguments."""
        return b"ok"

    async def ok_of(self, _item: object) -> bytes:
        """Answer a call with one argument."""
        return b"ok"
