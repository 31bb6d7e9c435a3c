"""Asyncio actors: one event loop on the main thread that reads the engine's sockets itself.

The loop's selector looks at the sockets for a moment before it blocks, and sends what waits; so a single call has no
hand-over between threads.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import selectors
from typing import Any

from weft import _weft

# What runs is known per context: calls take turns on one thread.
current_call: contextvars.ContextVar[tuple[str | None, str] | None]
current_call = contextvars.ContextVar("current_call", default=None)
_loop: asyncio.AbstractEventLoop | None = None
_running: dict[int, asyncio.Task[Any]] = {}
_limit = 1000
_drain_scheduled = False


class _Selector(selectors.EpollSelector):
    def select(self, timeout: float | None = None) -> Any:
        if timeout is not None and timeout <= 0:
            return super().select(timeout)
        # True when there are calls to take: the loop must not block.
        if _weft.loop_waits(True, len(_running) < _limit):
            _schedule_drain()
            return super().select(0)
        try:
            return super().select(timeout)
        finally:
            _weft.loop_waits(False, False)


def run(limit: int) -> None:
    """Runs calls until the session is over."""
    global _loop, _limit
    _limit = limit
    _loop = asyncio.SelectorEventLoop(_Selector())
    asyncio.set_event_loop(_loop)
    _loop.add_reader(_weft.loop_enter(), _drain)
    _loop.call_soon(_drain)
    _loop.run_forever()


def _schedule_drain() -> None:
    global _drain_scheduled
    if _loop is not None and not _drain_scheduled:
        _drain_scheduled = True
        _loop.call_soon(_drain)


def _drain() -> None:
    global _drain_scheduled
    _drain_scheduled = False
    assert _loop is not None
    calls = _weft.loop_calls(_limit - len(_running))
    if calls is None:
        _loop.stop()
        return
    for token, method, args, kwargs, name in calls:
        task = _loop.create_task(_call(token, method, args, kwargs or {}, name), name=name)
        _running[token] = task


async def _call(token: int, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> None:
    try:
        _weft.set_current(token)
        identity = _weft.current_task()
        current_call.set((identity[0] if identity else None, name))
        result = method(*args, **kwargs)
        if inspect.isawaitable(result):
            result = await result
    except BaseException as error:
        _running.pop(token, None)
        _weft.call_raised(token, error)
        if isinstance(error, SystemExit):
            raise
    else:
        _running.pop(token, None)
        _weft.call_returned(token, result)
    if len(_running) + 1 >= _limit:
        _schedule_drain()


def cancel(token: int) -> None:
    """Cancels a running call; called from the engine's thread."""
    if _loop is not None:
        _loop.call_soon_threadsafe(_cancel_now, token)


def _cancel_now(token: int) -> None:
    task = _running.get(token)
    if task is not None:
        task.cancel()
