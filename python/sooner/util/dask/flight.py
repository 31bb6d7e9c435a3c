"""The tasks of a graph that were submitted and are not known to have ended.

A graph is not submitted as a whole. Dask's order goes deep before it goes wide, so that what a task makes is
soon used up; tasks that could all run would be executed wide instead, and fill the object store. So only some
more than can run at the same time are under way, and more while they turn out to be short and their results
small. Tasks that wait for others do not count: they must not keep the CPUs from finding work.

Never holds a result: each task has a last return, which ends with it and says whether it failed, and how
large its result is.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable

import sooner

# Tasks that can run and are under way, for each of those that run at the same time at least, and at most.
_AHEAD_MIN = 3
_AHEAD_MAX = 4096
# Tasks under way at most, whatever they wait for.
_OPEN_MAX = 8192
# When half of them have ended this soon (seconds), they are short: twice as many are let through.
_SOON_SECONDS = 0.02
# The part of the object store that results of tasks under way may fill when more than the fewest are let
# through.
_STORE_SHARE = 0.2
# How much of the estimate of a result's size remains when a smaller one is seen. A larger one counts at once.
_DECAY = 0.98
# How long one look at them takes at most (seconds).
_LOOK_SECONDS = 0.1


class Flight:
    """Tasks under way.

    Args:
        slots: How many can run at the same time, roughly.
        store_bytes: The size of the object stores.
        exactly: So many are under way at most, instead.
    """

    def __init__(self, slots: float, store_bytes: float, exactly: int | None = None) -> None:
        self._window_min = self._window = max(_AHEAD_MIN, min(_AHEAD_MAX, int(_AHEAD_MIN * slots)))
        self._results_bytes_max = _STORE_SHARE * store_bytes
        self._result_bytes = 0.0
        self._exactly = exactly
        self._keys: dict[sooner.ObjectRef[int], Hashable] = {}
        self._open: set[Hashable] = set()
        # How many tasks under way each one still waits for; and the other way round.
        self._waits: dict[Hashable, int] = {}
        self._waiters: dict[Hashable, list[Hashable]] = {}
        self._runnable = 0

    def add(self, key: Hashable, end: sooner.ObjectRef[int], makers: Iterable[Hashable]) -> None:
        """A task was submitted.

        Args:
            key: Its key.
            end: Its last return.
            makers: The tasks that make its arguments.
        """
        waits = 0
        for maker in makers:
            if maker in self._open:
                self._waiters.setdefault(maker, []).append(key)
                waits += 1
        if waits:
            self._waits[key] = waits
        else:
            self._runnable += 1
        self._keys[end] = key
        self._open.add(key)

    def make_room(self) -> list[Hashable]:
        """Waits until another task may be submitted. Returns the keys of those that have ended meanwhile.

        Raises:
            Exception: What a task raised.
        """
        ended: list[Hashable] = []
        while self._is_full():
            if self._exactly is not None:
                ended += self._look(1)
                continue
            half = max(1, min(self._window, self._runnable) // 2)
            begin = time.monotonic()
            found = self._look(half)
            seconds = time.monotonic() - begin
            if len(found) >= half and seconds < _SOON_SECONDS:
                self._window = min(2 * self._window, _AHEAD_MAX)
            elif len(found) < half:
                self._window = max(self._window // 2, self._window_min)
            ended += found
        return ended

    def wait(self) -> list[Hashable]:
        """Waits until some tasks have ended, or for a while. Returns their keys; empty when none is under
        way.

        Raises:
            Exception: What a task raised.
        """
        while self._keys:
            if ended := self._look(max(1, len(self._keys) // 2)):
                return ended
        return []

    def cancel(self) -> None:
        """Cancels the tasks under way: those that wait never run, those that run are interrupted."""
        # The last ones first: what depends on others should not start when these are gone.
        for end in reversed(self._keys):
            sooner.cancel(end)
        self._keys.clear()

    def _is_full(self) -> bool:
        if self._exactly is not None:
            return len(self._open) >= self._exactly
        window = self._window
        if window * self._result_bytes > self._results_bytes_max:
            window = max(self._window_min, int(self._results_bytes_max / self._result_bytes))
        return self._runnable >= window or len(self._open) >= _OPEN_MAX

    def _look(self, number: int) -> list[Hashable]:
        """The tasks that have ended, after a wait for so many of them, or for some time."""
        refs = list(self._keys)
        sooner.wait(refs, num_returns=min(number, len(refs)), timeout=_LOOK_SECONDS)
        ready, _ = sooner.wait(refs, num_returns=len(refs), timeout=0)
        for size in sooner.get(list(ready)):
            self._result_bytes = max(size, _DECAY * self._result_bytes)
        ended = [self._keys.pop(ref) for ref in ready]
        for key in ended:
            self._end(key)
        return ended

    def _end(self, key: Hashable) -> None:
        self._open.discard(key)
        # Its end can be seen before the end of what it waited for.
        if self._waits.pop(key, None) is None:
            self._runnable -= 1
        for waiter in self._waiters.pop(key, ()):
            waits = self._waits.get(waiter)
            if waits == 1:
                del self._waits[waiter]
                self._runnable += 1
            elif waits is not None:
                self._waits[waiter] = waits - 1
