"""Local mode: its two threads.

One runs the event loop for the calls of asyncio actors. The other serves waits that have no thread of their
own: references awaited in an event loop, and futures of references. It runs the tasks and advances the
generators that are waited for. It is a thread of `threading`, so that debuggers and coverage see it.
"""

from __future__ import annotations

import asyncio
import os
import threading

from sooner import _sooner
from sooner._engine import async_actor

_lock = threading.Lock()


def _after_fork() -> None:
    # The loop's thread does not exist in the child, and another thread may have held the lock at the fork.
    global _lock
    _lock = threading.Lock()
    async_actor._loop = None
    async_actor._running.clear()


os.register_at_fork(after_in_child=_after_fork)


def wake() -> None:
    """Has the loop take the calls that wait for it; starts the loop for the first call."""
    loop().call_soon_threadsafe(_drain)


def loop() -> asyncio.AbstractEventLoop:
    """The loop, which is started if it does not run yet."""
    with _lock:
        if async_actor._loop is None:
            _start()
        started = async_actor._loop
    assert started is not None
    return started


def _start() -> None:
    loop = asyncio.new_event_loop()
    async_actor._loop = loop
    # No limit on concurrent calls: a limit per actor would need a loop per actor.
    async_actor._limit = 1 << 62
    threading.Thread(target=loop.run_forever, name="sooner-local", daemon=True).start()


def serve() -> None:
    """Starts the thread for waits that have no thread of their own."""
    threading.Thread(target=_sooner.serve_watchers, name="sooner-local-waits", daemon=True).start()


def _drain() -> None:
    loop = asyncio.get_running_loop()
    for token, method, args, kwargs, name, streams in _sooner.local_calls():
        call = async_actor._call(token, method, args, kwargs or {}, name, streams)
        async_actor._running[token] = loop.create_task(call, name=name)
