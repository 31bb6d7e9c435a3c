"""Tasks and actors that call the engine themselves: the same text runs under sooner and under Ray.

Both offer the same core API, so the module takes the engine's name from the environment, which
workers inherit from the agent. Functions travel by reference; a worker imports this module once.
"""

from __future__ import annotations

import functools
import importlib
import os
import time
from pathlib import Path
from typing import Any

from bodies import plain as bodies

api: Any = importlib.import_module(os.environ["BENCH_API"])
ok_task = api.remote(bodies.ok)


@functools.cache
def touched_zeros(elements: int) -> Any:
    """Make an int64 array whose pages are really there.

    `numpy.zeros` alone maps the one zero page of the kernel: a copy would read from cache, not
    memory. Cached, because first-touch faults would otherwise be most of what a put costs.
    """
    import numpy as np

    array = np.empty(elements, dtype=np.int64)
    array.fill(0)
    return array


def put_small(count: int) -> bytes:
    """Put a small value `count` times and drop each ref at once."""
    for _ in range(count):
        api.put(0)
    return b"ok"


def put_large(count: int, elements: int) -> bytes:
    """Put an array `count` times and drop each ref at once."""
    array = touched_zeros(elements)
    for _ in range(count):
        api.put(array)
    return b"ok"


def make_refs(count: int) -> list[Any]:
    """Return refs inside a list, each from its own put."""
    return [api.put(1) for _ in range(count)]


def call_round_robin(servers: list[Any], count: int) -> bytes:
    """Call the actors in turn, `count` calls in all, and wait for every answer."""
    api.get([servers[index % len(servers)].ok.remote() for index in range(count)])
    return b"ok"


def hold(started: str, gate: str) -> bytes:
    """Keep a CPU until the gate file exists."""
    Path(started).touch()
    while not Path(gate).exists():
        time.sleep(0.01)
    return b"ok"


class TaskClient:
    """An actor that submits tasks."""

    def ready(self) -> bytes:
        """Answer once the constructor is done."""
        return b"ok"

    def submit(self, count: int) -> bytes:
        """Submit `count` tasks and wait for them all."""
        api.get([ok_task.remote() for _ in range(count)])
        return b"ok"


class ActorClient:
    """An actor that calls other actors."""

    def __init__(self, servers: list[Any]) -> None:
        self.servers = servers

    def ready(self) -> bytes:
        """Answer once every server has answered."""
        api.get([server.ok.remote() for server in self.servers])
        return b"ok"

    def call_each(self, count: int) -> bytes:
        """Call every server `count` times and wait once."""
        api.get([server.ok.remote() for server in self.servers for _ in range(count)])
        return b"ok"

    def call_each_with_ref(self, count: int) -> bytes:
        """Pass one ref of a small value to every call."""
        ref = api.put(0)
        api.get([server.ok_of.remote(ref) for server in self.servers for _ in range(count)])
        return b"ok"
