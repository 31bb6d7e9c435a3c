"""A first-in, first-out queue that any task, actor or driver of the session can use at the same time.

The queue's own actor holds the items; large values are sent to it as references to shared memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import queue
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
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

# Calls that the actor serves at the same time. One fewer may wait there, so that a call that wakes a waiting
# one always gets in. Further calls that would have to wait are repeated later.
_CALLS_MAX = 1000
# The pause before such a call is repeated (seconds), at first and at most.
_AGAIN_SECONDS = 0.005
_AGAIN_SECONDS_MAX = 0.2
# Longer waits (seconds) overflow the clocks of event loops.
_PATIENCE_SECONDS_MAX = 1e8

# Calls the actor. Arguments: the seconds that the call may wait there, and a ticket by which it can be given
# up.
_CallOfActor = Callable[["float | None", "bytes | None"], "sooner.ObjectRef[Any]"]


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
        options = {"num_cpus": 0, "max_concurrency": _CALLS_MAX, **(actor_options or {})}
        self.maxsize = maxsize
        calls = options["max_concurrency"] or _CALLS_MAX
        self.actor: Any = sooner.remote(self._actor_class()).options(**options).remote(maxsize, calls - 1)

    def _actor_class(self) -> type:
        return QueueActor

    # A class attribute until `close` sets it on the handle: a copy that was passed on is another handle, and
    # open.
    _is_closed = False

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_is_closed"}

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
            ValueError: `timeout` is negative, or this handle was closed.
            ActorDiedError: The queue is gone.
        """
        self._check_open()
        patience = _patience(block, timeout)
        if not self._ask(lambda left, ticket: self.actor.put.remote(item, left, ticket), patience):
            raise Full

    def get(self, block: bool = True, timeout: float | None = None) -> T:
        """Take the oldest item.

        Args:
            block: Wait while the queue is empty.
            timeout: Seconds to wait at most.

        Raises:
            Empty: There was no item in time.
            ValueError: `timeout` is negative, or this handle was closed.
            ActorDiedError: The queue is gone.
        """
        self._check_open()
        items: list[T] | None = self._ask(self._ask_for_item, _patience(block, timeout))
        return _only(items)

    async def put_async(self, item: T, block: bool = True, timeout: float | None = None) -> None:
        """`put` for asyncio. One that is cancelled while it waits adds nothing."""
        self._check_open()
        patience = _patience(block, timeout)
        if not await self._ask_async(lambda left, ticket: self.actor.put.remote(item, left, ticket), patience):
            raise Full

    async def get_async(self, block: bool = True, timeout: float | None = None) -> T:
        """`get` for asyncio. One that is cancelled takes nothing: an item that was on its way goes back."""
        self._check_open()
        items: list[T] | None = await self._ask_async(self._ask_for_item, _patience(block, timeout))
        return _only(items)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ValueError(f"Queue {self!r} is closed: close() was called on this handle")

    def _ask_for_item(self, left: float | None, ticket: bytes | None) -> sooner.ObjectRef[Any]:
        ref: sooner.ObjectRef[Any] = self.actor.get.remote(left, ticket)
        return ref

    def _ask(self, call: _CallOfActor, patience: float | None) -> Any:
        """The actor's answer to a call that may wait there; None when the time is up."""
        for left, pause in _attempts(patience):
            time.sleep(pause)
            with self._asking(call, left) as ref:
                answer = sooner.get(ref)
            if answer is not None:
                return answer
        return None

    async def _ask_async(self, call: _CallOfActor, patience: float | None) -> Any:
        for left, pause in _attempts(patience):
            if pause:
                await asyncio.sleep(pause)
            with self._asking(call, left) as ref:
                answer = await ref
            if answer is not None:
                return answer
        return None

    @contextlib.contextmanager
    def _asking(self, call: _CallOfActor, left: float | None) -> Iterator[sooner.ObjectRef[Any]]:
        """Make one call; give it up if an exception ends the wait for its answer."""
        ticket = None if left == 0 else secrets.token_bytes(8)
        ref = call(left, ticket)
        try:
            yield ref
        except BaseException:
            self._give_up(ref, ticket)
            raise

    def _give_up(self, ref: sooner.ObjectRef[Any], ticket: bytes | None) -> None:
        """Give up a call whose caller stopped waiting: it does nothing more, or its item goes back."""
        # The session or the queue may have ended.
        with contextlib.suppress(Exception):
            if ticket is not None:
                self.actor.give_up.remote(ticket)
            ref.future().add_done_callback(functools.partial(_put_back, self.actor))

    def put_nowait(self, item: T) -> None:
        """Add an item if there is room now; otherwise `Full`."""
        self.put(item, block=False)

    def get_nowait(self) -> T:
        """Take an item if there is one now; otherwise `Empty`."""
        return self.get(block=False)

    def put_nowait_batch(self, items: Iterable[T]) -> None:
        """Add all items, or none of them and raise `Full`."""
        self._check_open()
        batch = list(items)
        left = sooner.get(self.actor.put_batch.remote(batch))
        if left is not None:
            raise Full(f"there is room for {left} items, not for {len(batch)}")

    def get_nowait_batch(self, num_items: int) -> list[T]:
        """Take `num_items` items, or none of them and raise `Empty`."""
        self._check_open()
        check_at_least("num_items", num_items, 0)
        found, items = sooner.get(self.actor.get_batch.remote(num_items))
        if items is None:
            raise Empty(f"there are {found} items, not {num_items}")
        return list(items)

    def close(self) -> None:
        """Say that nothing more is put or taken through this handle, as with the queues of `multiprocessing`.

        The items stay, and other handles go on: `shutdown` ends the queue.
        """
        self._is_closed = True

    def join_thread(self) -> None:
        """Return at once: unlike those of `multiprocessing`, an item is in the queue when `put` returns."""

    def cancel_join_thread(self) -> None:
        """Do nothing: a program that ends need not wait for what it has put."""

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
    """What holds the items.

    Calls that wait do so here, in order, up to a number of them; whoever would wait beyond that is told to
    come again (None). An item is in the queue, or on its way to one who waits and still wants it.

    Invariants:
        1. While somebody waits for an item there is none.
        2. While somebody waits for room there is none.
    """

    def __init__(self, maxsize: int, waiting_max: int) -> None:
        self._maxsize = maxsize
        self._waiting_max = waiting_max
        self._items: deque[Any] = deque()
        # Waiting calls by ticket, the earliest first.
        self._getters: dict[bytes, asyncio.Future[list[Any]]] = {}
        self._putters: dict[bytes, tuple[asyncio.Future[bool], Any]] = {}
        # Items that were put and not yet reported done.
        self._open = 0
        self._joiners: dict[bytes, asyncio.Future[bool]] = {}

    async def qsize(self) -> int:
        return len(self._items)

    async def put(self, item: Any, patience: float | None, ticket: bytes | None) -> bool | None:
        """Whether it was added."""
        if not self._is_full():
            self._open += 1
            self._add(item)
            return True
        if ticket is None or patience == 0:
            return False
        if self._must_come_again():
            return None
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._putters[ticket] = (future, item)
        try:
            return await _within(future, patience, False)
        finally:
            self._putters.pop(ticket, None)

    async def get(self, patience: float | None, ticket: bytes | None) -> list[Any] | None:
        """A list of one item, or an empty one."""
        if self._items:
            return [self._take()]
        if ticket is None or patience == 0:
            return []
        if self._must_come_again():
            return None
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._getters[ticket] = future
        try:
            return await _within(future, patience, [])
        except asyncio.CancelledError:
            # The item may have been handed to this call already.
            await self.put_back(future.result() if future.done() and not future.cancelled() else [])
            raise
        finally:
            self._getters.pop(ticket, None)

    async def give_up(self, ticket: bytes) -> None:
        """Who waits with this ticket does not any more."""
        getter = self._getters.pop(ticket, None)
        if getter is not None and not getter.done():
            getter.set_result([])
        putter, _ = self._putters.pop(ticket, (None, None))
        if putter is not None and not putter.done():
            putter.set_result(False)

    async def put_back(self, items: list[Any]) -> None:
        """Items that nobody wanted any more when they came: they are the next ones."""
        for item in reversed(items):
            self._add(item, is_first=True)

    async def put_batch(self, items: list[Any]) -> int | None:
        """Adds all, or none and says how much room there is."""
        room = self._maxsize - len(self._items)
        if self._maxsize > 0 and room < len(items):
            return max(0, room)
        self._open += len(items)
        for item in items:
            self._add(item)
        return None

    async def get_batch(self, count: int) -> tuple[int, list[Any] | None]:
        """Takes as many, or none."""
        found = len(self._items)
        return found, None if found < count else [self._take() for _ in range(count)]

    async def drain(self) -> None:
        """Calls of one caller are begun in order: those before this one have been."""

    def _is_full(self) -> bool:
        return 0 < self._maxsize <= len(self._items)

    def _must_come_again(self) -> bool:
        return len(self._getters) + len(self._putters) + len(self._joiners) >= self._waiting_max

    def _add(self, item: Any, *, is_first: bool = False) -> None:
        while self._getters:
            getter = self._getters.pop(next(iter(self._getters)))
            if not getter.done():
                getter.set_result([item])
                return
        if is_first:
            self._items.appendleft(item)
        else:
            self._items.append(item)

    def _take(self) -> Any:
        item = self._items.popleft()
        while self._putters and not self._is_full():
            future, waiting = self._putters.pop(next(iter(self._putters)))
            if not future.done():
                future.set_result(True)
                self._open += 1
                self._add(waiting)
        return item


async def _within(future: asyncio.Future[T], seconds: float | None, otherwise: T) -> T:
    """The result of a future, or `otherwise` when the time is up. A result that is there is never lost."""
    if seconds is None:
        return await future

    def give_up() -> None:
        if not future.done():
            future.set_result(otherwise)

    timer = asyncio.get_running_loop().call_later(min(seconds, _PATIENCE_SECONDS_MAX), give_up)
    try:
        return await future
    finally:
        timer.cancel()


def _attempts(patience: float | None) -> Iterator[tuple[float | None, float]]:
    """For each attempt: how long it may wait in the actor, and the pause before it (seconds)."""
    deadline = None if patience is None else time.monotonic() + patience
    yield patience, 0.0
    pause = _AGAIN_SECONDS
    while True:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return
        pause = pause if left is None else min(pause, left)
        yield None if left is None else max(0.0, left - pause), pause
        pause = min(2 * pause, _AGAIN_SECONDS_MAX)


def _put_back(actor: Any, answer: Future[Any]) -> None:
    """Return the item in an answer to the queue, since its caller has stopped waiting."""
    if answer.exception() is None and isinstance(answer.result(), list) and answer.result():
        # The queue may have ended.
        with contextlib.suppress(Exception):
            actor.put_back.remote(answer.result())


def _patience(block: bool, timeout: float | None) -> float | None:
    """Seconds to wait; 0 for not at all, `None` for ever."""
    if not block:
        return 0
    if timeout is not None and timeout < 0:
        raise ValueError(f"timeout must not be negative, but it is {timeout}")
    return timeout


def _only(items: list[T] | None) -> T:
    if not items:
        raise Empty
    return items[0]
