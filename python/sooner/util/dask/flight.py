"""The tasks of a graph that were submitted and are not known to have ended.

A graph is not submitted as a whole. Dask's order goes deep before it goes wide, so that a task's result is
soon used up; if all runnable tasks were submitted, they would be executed wide instead, and fill the object
store. So only some more tasks than can run at the same time are under way, and more while tasks turn out to
be short and their results small. Tasks that wait for other tasks do not count: they must not keep the CPUs
from finding work.

This module never holds a result: each task has an additional last return, which becomes ready with the task
and says whether it failed, and how large its result is.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable

import sooner

# Runnable tasks under way for each task that can run at the same time, at least; and runnable tasks in all,
# at most.
_AHEAD_MIN = 3
_AHEAD_MAX = 4096
# Tasks under way at most, runnable or not.
_OPEN_MAX = 8192
# When half of the runnable tasks end within this time (seconds), tasks are short, and the limit is doubled.
_SOON_SECONDS = 0.02
# The share of the object store that results of tasks under way may fill while more tasks than the minimum are
# let through.
_STORE_SHARE = 0.2
# The share of the estimated result size that remains when a smaller result is seen. A larger result counts at
# once.
_DECAY = 0.98
# How long one look at the tasks may wait (seconds).
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
        # By task: how many tasks under way it still waits for. And by task: the tasks that wait for it.
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
        # The last tasks first: tasks that depend on others should not start when those are cancelled.
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
        """The tasks that have ended, after waiting until `number` have, or for `_LOOK_SECONDS`."""
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
        # A task's end may be seen before the ends of the tasks it waited for.
        if self._waits.pop(key, None) is None:
            self._runnable -= 1
        for waiter in self._waiters.pop(key, ()):
            waits = self._waits.get(waiter)
            if waits == 1:
                del self._waits[waiter]
                self._runnable += 1
            elif waits is not None:
                self._waits[waiter] = waits - 1
