"""Asyncio actors: one event loop on the main thread that reads the engine's sockets itself.

Before it blocks, the loop's selector polls the sockets for a moment and sends waiting messages, so that a
single call needs no hand-over between threads.

An actor with concurrency groups has one loop and one thread per group instead, so that a group that blocks
does not hold up the others. One more thread waits for calls and hands them to the loops; the engine keeps
each group to its number of places.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import selectors
import threading
from collections.abc import AsyncGenerator, Callable
from typing import Any

from sooner import _sooner
from sooner._engine import worker
from sooner._engine.worker import ActorExit

# The running call. It is kept per context, since calls take turns on one thread.
current_call: contextvars.ContextVar[tuple[str | None, str, str] | None]
current_call = contextvars.ContextVar("current_call", default=None)
_loop: asyncio.AbstractEventLoop | None = None
_running: dict[int, asyncio.Task[Any]] = {}
_limit = 1000
# Answers of `call_may_yield`.
_LATER = 1
_NEVER = 2
# Pauses between two checks whether the reader of a generator wants more items (seconds).
_PAUSE_SECONDS_MIN = 0.0005
_PAUSE_SECONDS_MAX = 0.02
_drain_scheduled = False
# Whether the loop reads the engine's sockets. While it constructs the actor, another thread does.
_reads = False


class _Selector(selectors.EpollSelector):
    def select(self, timeout: float | None = None) -> Any:
        if not _reads or (timeout is not None and timeout <= 0):
            return super().select(timeout)
        # True when there are calls to take: the loop must not block.
        if _sooner.loop_waits(True, len(_running) < _limit):
            _schedule_drain()
            return super().select(0)
        try:
            return super().select(timeout)
        finally:
            _sooner.loop_waits(False, False)


def run(limit: int) -> None:
    """Runs calls until the session is over."""
    global _limit, _reads
    if _sooner.group_places():
        _run_groups(len(_sooner.group_places()))
        return
    _limit = limit
    _make_loop()
    assert _loop is not None
    _reads = True
    _loop.add_reader(_sooner.loop_enter(), _drain)
    _loop.call_soon(_drain)
    _loop.run_forever()


def _run_groups(count: int) -> None:
    """Runs a loop per concurrency group until the session is over; the default group's on this thread."""
    global _loop
    _make_loop()
    # Calls are handed to these loops: none of them reads the engine's sockets.
    main, _loop = _loop, None
    assert main is not None
    loops = [main, *(asyncio.new_event_loop() for _ in range(count - 1))]

    def run_loop(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()

    def feed() -> None:
        while (groups := _sooner.feed_groups()) is not None:
            for group in groups:
                loops[group].call_soon_threadsafe(_take_calls, loops[group], group)
        for loop in loops:
            loop.call_soon_threadsafe(loop.stop)

    for number, loop in enumerate(loops[1:], 1):
        threading.Thread(target=run_loop, args=(loop,), name=f"sooner-group-{number}", daemon=True).start()
    threading.Thread(target=feed, name="sooner-calls", daemon=True).start()
    run_loop(main)


def _take_calls(loop: asyncio.AbstractEventLoop, group: int) -> None:
    for token, method, args, kwargs, name, streams in _sooner.group_calls(group):
        _running[token] = loop.create_task(_call(token, method, args, kwargs or {}, name, streams), name=name)


def _make_loop() -> None:
    global _loop
    if _loop is None:
        _loop = asyncio.SelectorEventLoop(_Selector())
        asyncio.set_event_loop(_loop)


def maker(cls: type) -> Callable[..., Any]:
    """Returns what makes an actor whose constructor is a coroutine: it runs in the loop of the calls."""

    def make(*args: Any, **kwargs: Any) -> Any:
        instance = cls.__new__(cls, *args, **kwargs)
        started = cls.__init__(instance, *args, **kwargs)  # type: ignore[misc]
        if _sooner.is_local():
            from sooner._engine.local import loop  # circle

            asyncio.run_coroutine_threadsafe(started, loop()).result()
        else:
            _make_loop()
            assert _loop is not None
            _loop.run_until_complete(started)
        return instance

    return make


def _system_exit(error: SystemExit) -> str:
    """`sys.exit()` in a call ends the process, or, with status 0, the actor in order."""
    if _sooner.is_local():
        return f"it called sys.exit({error.code!r})"
    return worker.exit_process(error) or ""


def _schedule_drain() -> None:
    global _drain_scheduled
    if _loop is not None and not _drain_scheduled:
        _drain_scheduled = True
        _loop.call_soon(_drain)


def _drain() -> None:
    global _drain_scheduled
    _drain_scheduled = False
    assert _loop is not None
    calls = _sooner.loop_calls(_limit - len(_running))
    if calls is None:
        _loop.stop()
        return
    for token, method, args, kwargs, name, streams in calls:
        task = _loop.create_task(_call(token, method, args, kwargs or {}, name, streams), name=name)
        _running[token] = task


async def _call(
    token: int, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str, streams: bool
) -> None:
    try:
        _sooner.set_current(token)
        identity = _sooner.current_task()
        current_call.set((identity[0] if identity else None, name, getattr(method, "__name__", name)))
        result = method(*args, **kwargs)
        if inspect.isawaitable(result):
            result = await result
        if streams:
            result = await _stream(token, result)
    except ActorExit as exit_:
        _running.pop(token, None)
        _sooner.call_exits(token, str(exit_))
    except SystemExit as error:
        _running.pop(token, None)
        _sooner.call_exits(token, _system_exit(error))
    except BaseException as error:
        _running.pop(token, None)
        _sooner.call_raised(token, error)
    else:
        _running.pop(token, None)
        _sooner.call_returned(token, result)
    if len(_running) + 1 >= _limit:
        _schedule_drain()


async def _stream(token: int, items: Any) -> Any:
    """Sends the items of a generator. A plain generator gives other calls a turn after each item."""
    if not hasattr(items, "__aiter__"):
        items = _in_turns(items)
    items = aiter(items)
    count = 0
    while True:
        if not await _may_yield(token, count + 1):
            if hasattr(items, "aclose"):
                await items.aclose()
            break
        try:
            item = await anext(items)
        except StopAsyncIteration:
            break
        count += 1
        _sooner.call_yielded(token, count, item)
    return _sooner.call_streamed(token, count)


async def _in_turns(items: Any) -> AsyncGenerator[Any, None]:
    if not hasattr(items, "__iter__"):
        raise TypeError(f"a method with num_returns='streaming' must return a generator, not {type(items).__name__}")
    try:
        for item in items:
            yield item
            await asyncio.sleep(0)
    finally:
        if hasattr(items, "close"):
            items.close()


async def _may_yield(token: int, index: int) -> bool:
    """Waits until the reader wants item `index`; False when it never will."""
    pause = _PAUSE_SECONDS_MIN
    while (answer := _sooner.call_may_yield(token, index)) == _LATER:
        await asyncio.sleep(pause)
        pause = min(2 * pause, _PAUSE_SECONDS_MAX)
    return answer != _NEVER


def cancel(token: int) -> None:
    """Cancels a running call; called from the engine's thread."""
    task = _running.get(token)
    loop = _loop if task is None else task.get_loop()
    if loop is not None:
        loop.call_soon_threadsafe(_cancel_now, token)


def _cancel_now(token: int) -> None:
    task = _running.get(token)
    if task is not None:
        task.add_done_callback(functools.partial(_cancelled, token))
        task.cancel()


def _cancelled(token: int, _task: asyncio.Task[Any]) -> None:
    # A coroutine that was cancelled before its first step ends without running any of its code.
    if _running.pop(token, None) is not None:
        _sooner.call_raised(token, asyncio.CancelledError())
