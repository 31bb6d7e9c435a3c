"""A first-in, first-out queue that any task, actor or driver of the session can use at the same time.

The items lie with an actor of its own; large values go there as references to shared memory.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic

import sooner
from sooner.exceptions import ActorError
from sooner.util.checks import check_at_least, is_whole

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # A queue whose items are not declared holds anything.
    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")

Empty = queue.Empty
Full = queue.Full

__all__ = ["Empty", "Full", "Queue"]

# Users that may wait in `put` and `get` at the same time.
_WAITING_MAX = 1000


class Queue(Generic[T]):
    """A queue in an actor.

    A handle can be passed to tasks and actors; all of them use the same queue.

    Args:
        maxsize: Items at most; unbounded when 0 or less.
        actor_options: Options of the actor, as for `.options()`; `num_cpus` is 0 by default.

    Attributes:
        actor: The handle of the actor.
        maxsize: As given.

    Raises:
        TypeError: `maxsize` is no whole number.

    Example:
        >>> queue = sooner.util.queue.Queue(maxsize=100)  # doctest: +SKIP
        >>> queue.put("item")  # doctest: +SKIP
        >>> queue.get(timeout=10)  # doctest: +SKIP
        'item'
    """

    def __init__(self, maxsize: int = 0, actor_options: dict[str, Any] | None = None) -> None:
        if not is_whole(maxsize):
            raise TypeError(f"maxsize must be a whole number, not {maxsize!r}")
        options = {"num_cpus": 0, "max_concurrency": _WAITING_MAX, **(actor_options or {})}
        self.maxsize = maxsize
        self.actor: Any = sooner.remote(self._actor_class()).options(**options).remote(maxsize)

    def _actor_class(self) -> type:
        return QueueActor

    def __len__(self) -> int:
        return self.qsize()

    def size(self) -> int:
        """The number of items."""
        return self.qsize()

    def qsize(self) -> int:
        """The number of items."""
        return int(sooner.get(self.actor.qsize.remote()))

    def empty(self) -> bool:
        """Whether there is no item."""
        return self.qsize() == 0

    def full(self) -> bool:
        """Whether there are `maxsize` items."""
        return 0 < self.maxsize <= self.qsize()

    def put(self, item: T, block: bool = True, timeout: float | None = None) -> None:
        """Add an item.

        Args:
            item: Anything that can be pickled.
            block: Wait while the queue is full.
            timeout: Seconds to wait at most.

        Raises:
            Full: There was no room in time.
            ValueError: `timeout` is negative.
            ActorDiedError: The queue is gone.
        """
        if not sooner.get(self.actor.put.remote(item, _patience(block, timeout))):
            raise Full

    def get(self, block: bool = True, timeout: float | None = None) -> T:
        """Take the oldest item.

        Args:
            block: Wait while the queue is empty.
            timeout: Seconds to wait at most.

        Raises:
            Empty: There was no item in time.
            ValueError: `timeout` is negative.
            ActorDiedError: The queue is gone.
        """
        items: list[T] = sooner.get(self.actor.get.remote(_patience(block, timeout)))
        return _only(items)

    async def put_async(self, item: T, block: bool = True, timeout: float | None = None) -> None:
        """`put` for asyncio."""
        if not await self.actor.put.remote(item, _patience(block, timeout)):
            raise Full

    async def get_async(self, block: bool = True, timeout: float | None = None) -> T:
        """`get` for asyncio."""
        items: list[T] = await self.actor.get.remote(_patience(block, timeout))
        return _only(items)

    def put_nowait(self, item: T) -> None:
        """Add an item if there is room now; otherwise `Full`."""
        self.put(item, block=False)

    def get_nowait(self) -> T:
        """Take an item if there is one now; otherwise `Empty`."""
        return self.get(block=False)

    def put_nowait_batch(self, items: Iterable[T]) -> None:
        """Add all items, or none of them and raise `Full`."""
        batch = list(items)
        left = sooner.get(self.actor.put_batch.remote(batch))
        if left is not None:
            raise Full(f"there is room for {left} items, not for {len(batch)}")

    def get_nowait_batch(self, num_items: int) -> list[T]:
        """Take `num_items` items, or none of them and raise `Empty`."""
        check_at_least("num_items", num_items, 0)
        found, items = sooner.get(self.actor.get_batch.remote(num_items))
        if items is None:
            raise Empty(f"there are {found} items, not {num_items}")
        return list(items)

    def shutdown(self, force: bool = False, grace_period_s: float = 5) -> None:
        """End the actor; the items are gone. Whoever waits for the queue gets `ActorDiedError`.

        Args:
            force: At once, also while calls are being served.
            grace_period_s: Seconds for calls that were made before, without `force`.
        """
        if not force:
            try:
                sooner.wait([self.actor.drain.remote()], timeout=grace_period_s)
            except ActorError:
                return
        sooner.kill(self.actor)


class QueueActor:
    """What holds the items."""

    def __init__(self, maxsize: int) -> None:
        self._maxsize = maxsize
        self._queue: asyncio.Queue[Any] = asyncio.Queue(maxsize)

    async def qsize(self) -> int:
        return self._queue.qsize()

    async def put(self, item: Any, patience: float | None) -> bool:
        try:
            if patience == 0:
                self._queue.put_nowait(item)
            else:
                await asyncio.wait_for(self._queue.put(item), patience)
        except (TimeoutError, asyncio.QueueFull):
            return False
        return True

    async def get(self, patience: float | None) -> list[Any]:
        """A list of one item, or an empty one."""
        try:
            if patience == 0:
                return [self._queue.get_nowait()]
            return [await asyncio.wait_for(self._queue.get(), patience)]
        except (TimeoutError, asyncio.QueueEmpty):
            return []

    async def put_batch(self, items: list[Any]) -> int | None:
        """Adds all, or none and says how much room there is."""
        room = self._maxsize - self._queue.qsize()
        if self._maxsize > 0 and room < len(items):
            return room
        for item in items:
            self._queue.put_nowait(item)
        return None

    async def get_batch(self, count: int) -> tuple[int, list[Any] | None]:
        """Takes as many, or none."""
        found = self._queue.qsize()
        return found, None if found < count else [self._queue.get_nowait() for _ in range(count)]

    async def drain(self) -> None:
        """Calls of one caller are begun in order: those before this one have been."""


def _patience(block: bool, timeout: float | None) -> float | None:
    """Seconds to wait; 0 for not at all, `None` for ever."""
    if not block:
        return 0
    if timeout is not None and timeout < 0:
        raise ValueError(f"timeout must not be negative, but it is {timeout}")
    return timeout


def _only(items: list[T]) -> T:
    if not items:
        raise Empty
    return items[0]
