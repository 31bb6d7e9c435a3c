"""Local mode: the threads of its own.

One has the event loop in which calls of asyncio actors run. Another one waits for those who have no thread
that does: who awaits a reference in an event loop, or has a future of it. It runs the tasks and advances
the generators that are waited for. It is a thread of `threading`, so that debuggers and coverage see it.
"""

from __future__ import annotations

import asyncio
import os
import threading

from sooner import _sooner
from sooner._engine import async_actor

_lock = threading.Lock()


def _after_fork() -> None:
    # The loop's thread does not exist here, and another one may have held the lock.
    global _lock
    _lock = threading.Lock()
    async_actor._loop = None
    async_actor._running.clear()


os.register_at_fork(after_in_child=_after_fork)


def wake() -> None:
    """Calls wait for the loop; starts it for the first one."""
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
    # Nothing holds calls back: each actor's limit would need a loop of its own.
    async_actor._limit = 1 << 62
    threading.Thread(target=loop.run_forever, name="sooner-local", daemon=True).start()


def serve() -> None:
    """Starts the thread that waits for others."""
    threading.Thread(target=_sooner.serve_watchers, name="sooner-local-waits", daemon=True).start()


def _drain() -> None:
    loop = asyncio.get_running_loop()
    for token, method, args, kwargs, name, streams in _sooner.local_calls():
        call = async_actor._call(token, method, args, kwargs or {}, name, streams)
        async_actor._running[token] = loop.create_task(call, name=name)
