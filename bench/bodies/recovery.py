"""Tasks of the rows on recovery and references: the same text runs under sooner and under Ray.

The engine is the one that the environment names; workers import this module once.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from bodies import plain as bodies
from bodies.core import api, touched_zeros

MIB = 1 << 20


def link(
    _previous: object, index: int, sleep_s: float, elements: int, crash: tuple[int, str]
) -> Any:
    """One task of a chain: sleep, then return two bytes or an array of `elements` numbers.

    The task with the number in `crash` kills its process in the middle of its sleep, unless the
    file in it says that this has happened.
    """
    at, told = crash
    if index == at and not Path(told).exists():
        time.sleep(sleep_s / 2)
        Path(told).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(sleep_s)
    return touched_zeros(elements) if elements else b"ok"


def make(number: int, size: int) -> Any:
    """Return an array of `size` bytes that hold the number."""
    import numpy as np

    return np.full(size, number % 251, dtype=np.uint8)


def reads(_array: object) -> bytes:
    """Answer with two bytes; the argument is there."""
    return b"ok"


def delegate(refs: list[Any], count: int) -> bytes:
    """Submit `count` tasks that all read what the caller owns, and wait for them."""
    task = api.remote(reads)
    answers = api.get([task.remote(refs[0]) for _ in range(count)])
    assert answers.count(b"ok") == count, "not every task answered"
    return b"ok"


def fold(cumulative: Any, update: Any) -> Any:
    """Return a new cumulative object, as large as both."""
    return cumulative + update


class Source:
    """An actor whose calls return objects of the size that is asked for."""

    def __init__(self, pins: int) -> None:
        if pins > 1:
            from sooner import _sooner

            _sooner.repeat_pins(pins)

    def ok(self) -> bytes:
        """Answer once the constructor is done."""
        return b"ok"

    def array(self, size: int) -> Any:
        """Return an array of so many bytes."""
        import numpy as np

        return np.empty(size, dtype=np.uint8)


class Reader:
    """An actor that calls a source and fetches what it returns."""

    def __init__(self, source: Any) -> None:
        self.source = source

    def ok(self) -> bytes:
        """Answer once the constructor is done."""
        return bodies.ok()

    def fetch(self, count: int, size: int) -> float:
        """Fetch a batch; the time it took (seconds)."""
        begin = time.perf_counter()
        api.get([self.source.array.remote(size) for _ in range(count)])
        return time.perf_counter() - begin
