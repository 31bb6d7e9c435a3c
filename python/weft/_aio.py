"""References as futures: `await ref`, `ref.future()`, `ref.as_future()`.

The engine reports finished references in batches; each event loop is woken once per batch.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import queue
import threading
from collections.abc import Generator
from typing import Any

from weft import _weft

_Waiter = tuple[asyncio.AbstractEventLoop | None, Any, Any]


def await_ref(ref: _weft.ObjectRef[Any]) -> Generator[Any, None, Any]:
    """What `await ref` runs."""
    if _weft.is_ready(ref):
        # One turn of the loop, as awaiting anything else would give.
        yield from asyncio.sleep(0).__await__()
        return _weft.get(ref)
    return (yield from to_asyncio(ref).__await__())


def to_asyncio(ref: _weft.ObjectRef[Any]) -> asyncio.Future[Any]:
    """A future of the running loop."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    if not _weft.watch(ref, (loop, future, ref)):
        _resolve([(loop, future, ref)])
    return future


async def next_item(generator: _weft.ObjectRefGenerator[Any]) -> _weft.ObjectRef[Any]:
    """What `anext(generator)` runs."""
    loop = asyncio.get_running_loop()
    while True:
        is_known, ref = generator._poll()
        if ref is not None:
            return ref
        if is_known:
            raise StopAsyncIteration
        future: asyncio.Future[None] = loop.create_future()
        if _weft.watch(generator._peek(), (loop, future, None)):
            await future


async def close_generator(generator: _weft.ObjectRefGenerator[Any], error: BaseException | None = None) -> None:
    """What `aclose()` and `athrow()` run."""
    generator.close()
    if error is not None:
        raise error


def to_concurrent(ref: _weft.ObjectRef[Any]) -> concurrent.futures.Future[Any]:
    """A `concurrent.futures.Future`."""
    future: concurrent.futures.Future[Any] = concurrent.futures.Future()
    if not _weft.watch(ref, (None, future, ref)):
        _resolve([(None, future, ref)])
    return future


def deliver(waiters: list[_Waiter]) -> None:
    """References have their outcome; called from an engine thread."""
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
            # The loop is closed: nobody waits any more.
            continue
    if direct:
        _futures.put(direct)


class _Futures:
    """Resolves `concurrent.futures` on a thread of its own: their callbacks may wait for other results, and the
    thread that reports results is the one that would bring them.
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
                self._thread = threading.Thread(target=self._run, name="weft-futures", daemon=True)
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
            _resolve(waiters)


_futures = _Futures()


def _resolve(waiters: list[_Waiter]) -> None:
    for _, future, ref in waiters:
        if future.done():
            continue
        if ref is None:
            # Only the fact is awaited: the next item of a generator.
            future.set_result(None)
            continue
        try:
            value = _weft.get(ref)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(value)
