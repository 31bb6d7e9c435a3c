"""References as futures (`await ref`, `ref.future()`, `ref.as_future()`), and `Arrivals` for `sooner.aio`.

The engine reports finished references in batches; each event loop is woken once per batch.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import queue
import threading
import traceback
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import Any

from sooner import _sooner

_Waiter = tuple[asyncio.AbstractEventLoop | None, Any, Any]
_log = logging.getLogger("sooner")


def await_ref(ref: _sooner.ObjectRef[Any]) -> Generator[Any, None, Any]:
    """What `await ref` runs."""
    if _sooner.is_ready(ref):
        # One turn of the loop, as awaiting anything else would give.
        yield from asyncio.sleep(0).__await__()
        return _sooner.get(ref)
    return (yield from to_asyncio(ref).__await__())


def to_asyncio(ref: _sooner.ObjectRef[Any]) -> asyncio.Future[Any]:
    """A future of the running loop, or of the one that was set."""
    loop = asyncio.get_running_loop() if asyncio._get_running_loop() is not None else _set_loop()
    future: asyncio.Future[Any] = loop.create_future()
    if not _sooner.watch(ref, (loop, future, ref)):
        _resolve([(loop, future, ref)])
    return future


def _set_loop() -> asyncio.AbstractEventLoop:
    """The loop that runs later: programs ask for futures before `run_until_complete`."""
    with warnings.catch_warnings():
        # Before Python 3.14 the first loop of a thread is made here, with a warning in some versions.
        warnings.simplefilter("ignore", DeprecationWarning)
        return asyncio.get_event_loop()


async def next_item(generator: _sooner.ObjectRefGenerator[Any]) -> _sooner.ObjectRef[Any]:
    """What `anext(generator)` runs."""
    loop = asyncio.get_running_loop()
    while True:
        is_known, ref = generator._poll()
        if ref is not None:
            return ref
        if is_known:
            raise StopAsyncIteration
        item = _NextItem(loop.create_future())
        if _sooner.watch(generator._peek(), (loop, item, None)):
            await item.future


class _NextItem:
    """Whether the next item of a generator has come; its value is not asked for."""

    def __init__(self, future: asyncio.Future[None]) -> None:
        self.future = future

    def arrive(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


async def close_generator(generator: _sooner.ObjectRefGenerator[Any], error: BaseException | None = None) -> None:
    """What `aclose()` and `athrow()` run."""
    generator.close()
    if error is not None:
        raise error


class _SafeCondition(threading.Condition):
    """As `sooner.util.conditions` has it, which says why."""

    _lock: Any

    @property
    def __enter__(self) -> Any:
        return self._lock.__enter__

    @property
    def __exit__(self) -> Any:
        return self._lock.__exit__


class _Future(concurrent.futures.Future[Any]):
    """A future that a thread may wait for when Ctrl-C is pressed: others are delivered all the same."""

    def __init__(self) -> None:
        super().__init__()
        self._condition = _SafeCondition()


class _CopyFuture(_Future):
    """A future whose result is its reader's own, to be changed."""


def to_concurrent(ref: _sooner.ObjectRef[Any], copy: bool = False) -> concurrent.futures.Future[Any]:
    """A `concurrent.futures.Future`; with `copy` arrays in its result may be changed."""
    future: concurrent.futures.Future[Any] = _CopyFuture() if copy else _Future()
    if not _sooner.watch(ref, (None, future, ref)):
        _resolve([(None, future, ref)])
    return future


def on_completed(ref: _sooner.ObjectRef[Any], callback: Callable[[Any], object]) -> None:
    """What `ref._on_completed(callback)` runs: the callback takes the value or the error."""

    def done(future: concurrent.futures.Future[Any]) -> None:
        error = future.exception()
        callback(future.result() if error is None else error)

    to_concurrent(ref).add_done_callback(done)


def deliver(waiters: list[_Waiter]) -> None:
    """Resolves the waits for references that have their outcome; called from an engine thread."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Waiter]] = {}
    direct = []
    for waiter in waiters:
        if waiter[0] is None:
            direct.append(waiter)
        else:
            by_loop.setdefault(waiter[0], []).append(waiter)
    for loop, batch in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, batch)
        except RuntimeError:
            # The loop is closed, and its waits with it.
            continue
    if direct:
        _futures.put(direct)


class _Futures:
    """Resolves `concurrent.futures` on a thread of its own.

    Their callbacks may wait for other results, which would never come if the callbacks ran on the engine
    thread that reports results.
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[list[_Waiter]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def put(self, waiters: list[_Waiter]) -> None:
        """Resolves them soon."""
        self._queue.put(waiters)
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="sooner-futures", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                waiters = self._queue.get(timeout=5)
            except queue.Empty:
                with self._lock:
                    if self._queue.empty():
                        self._thread = None
                        return
                continue
            try:
                _resolve(waiters)
            except BaseException:
                # The thread must go on: later results have callbacks, too.
                _log.error("a callback of a future raised; the result stands\n%s", traceback.format_exc())
            # Otherwise the variable would keep the last batch and its references until the next batch.
            del waiters


_futures = _Futures()


def _resolve(waiters: list[_Waiter]) -> None:
    failure: BaseException | None = None
    for _, future, ref in waiters:
        try:
            _settle(future, ref)
        except BaseException as error:
            # A callback raised, or Ctrl-C was pressed: the other futures must be resolved all the same.
            failure = error
    if failure is not None:
        try:
            raise failure
        finally:
            # A cycle with its traceback would keep the references.
            del failure


def _settle(future: Any, ref: Any) -> None:
    if ref is None:
        future.arrive()
        return
    if future.done():
        return
    try:
        value = _sooner.get(ref, copy=type(future) is _CopyFuture)
    except BaseException as error:
        _fail(future, error)
        return
    try:
        future.set_result(value)
    except concurrent.futures.InvalidStateError:
        # Another thread has cancelled it meanwhile.
        return


def _fail(future: Any, error: BaseException) -> None:
    if isinstance(error, StopIteration) and isinstance(future, asyncio.Future):
        # asyncio refuses StopIteration, which would end the generator it is raised in. RuntimeError is what a
        # coroutine that raises StopIteration gives.
        stopped = RuntimeError("the value raised StopIteration when it was read")
        stopped.__cause__ = error
        error = stopped
    with contextlib.suppress(concurrent.futures.InvalidStateError):
        future.set_exception(error)


class Arrivals:
    """References of one wait in an event loop, taken in the order in which their outcomes come.

    Values are not read. `close` must be called when the wait is over: it forgets the references without an
    outcome, so that a wait that was cancelled or timed out leaves nothing behind.
    """

    def __init__(self, refs: Iterable[_sooner.ObjectRef[Any]]) -> None:
        self._came: deque[_sooner.ObjectRef[Any]] = deque()
        self._watches: dict[_sooner.ObjectRef[Any], _Watch] = {}
        self._wake: asyncio.Future[None] | None = None
        watches = _watches_of(asyncio.get_running_loop())
        try:
            for ref in refs:
                self._add(ref, watches)
        except BaseException:
            self.close()
            raise

    def _add(self, ref: _sooner.ObjectRef[Any], watches: _Watches) -> None:
        if _sooner.is_ready(ref):
            self._came.append(ref)
            return
        watch = watches.get(ref)
        if watch is None or watch.is_over:
            watch = _Watch()
            if not _sooner.watch(ref, (asyncio.get_running_loop(), watch, None)):
                self._came.append(ref)
                return
            watches[ref] = watch
        watch.join(ref, self)
        self._watches[ref] = watch

    def came(self, ref: _sooner.ObjectRef[Any]) -> None:
        """A reference has its outcome."""
        del self._watches[ref]
        self._came.append(ref)
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def next(self, deadline: float | None) -> _sooner.ObjectRef[Any] | None:
        """The next reference with an outcome.

        Args:
            deadline: Time of the loop's clock at which to give up; None waits for ever.

        Returns:
            The reference; None at the deadline.
        """
        loop = asyncio.get_running_loop()
        while not self._came:
            seconds = None if deadline is None else deadline - loop.time()
            if seconds is not None and seconds <= 0:
                return None
            self._wake = loop.create_future()
            try:
                await asyncio.wait([self._wake], timeout=seconds)
            finally:
                self._wake = None
        return self._came.popleft()

    def close(self) -> None:
        """Forgets all references that `next` has not returned."""
        for watch in self._watches.values():
            watch.leave(self)
        self._watches.clear()
        self._came.clear()


class _Watch:
    """One reference that an event loop waits for: the engine is asked once for all waits of the loop.

    It keeps the reference only while a wait has joined it, so that a value without waits can be freed.
    """

    def __init__(self) -> None:
        self._ref: _sooner.ObjectRef[Any] | None = None
        self._waits: dict[Arrivals, None] = {}
        self.is_over = False

    def join(self, ref: _sooner.ObjectRef[Any], wait: Arrivals) -> None:
        """Adds a wait."""
        self._ref = ref
        self._waits[wait] = None

    def leave(self, wait: Arrivals) -> None:
        """Removes a wait that is over before the outcome came."""
        del self._waits[wait]
        if not self._waits:
            self._ref = None

    def arrive(self) -> None:
        """The outcome came; called in the loop."""
        # The reference is ready, or its session is over. In the second case the next wait must not join this
        # watch: a new one raises.
        self.is_over = True
        ref = self._ref
        waits, self._waits, self._ref = self._waits, {}, None
        if ref is not None:
            for wait in waits:
                wait.came(ref)


def check_session(ref: _sooner.ObjectRef[Any]) -> None:
    """Raises if a reference was reported because its session is over: that wakes waits, too."""
    if not _sooner.is_ready(ref):
        # Otherwise the value has left memory since, and this watch has no waits.
        _sooner.watch(ref, (asyncio.get_running_loop(), _Watch(), None))


_Watches = weakref.WeakKeyDictionary[_sooner.ObjectRef[Any], _Watch]
_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Watches] = weakref.WeakKeyDictionary()


def _watches_of(loop: asyncio.AbstractEventLoop) -> _Watches:
    """The watches of a loop. Only its own thread uses them."""
    watches = _loops.get(loop)
    if watches is None:
        watches = _loops[loop] = weakref.WeakKeyDictionary()
    return watches
