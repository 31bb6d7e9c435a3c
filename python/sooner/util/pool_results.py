"""What the calls of a pool give: a result, the results of a map, an iterator over results."""

from __future__ import annotations

import itertools
import logging
import multiprocessing
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from sooner.util import clock
from sooner.util.crew import Call, Crew, Function
from sooner.util.remote_errors import original

_Callback = Callable[[Any], object]
_Outcome = tuple[BaseException | None, Any]
_log = logging.getLogger("sooner")


class AsyncResult:
    """The result of a call that may not have ended, made by `apply_async`."""

    def __init__(
        self,
        crew: Crew,
        count: int,
        callback: _Callback | None = None,
        error_callback: _Callback | None = None,
    ) -> None:
        for name, given in (("callback", callback), ("error_callback", error_callback)):
            if given is not None and not callable(given):
                raise TypeError(f"{name} must be callable, not {type(given).__name__}")
        self._crew = crew
        self._left = count
        self._callback = callback
        self._error_callback = error_callback
        self.is_minded = callback is not None or error_callback is not None
        # Set after the callbacks have run, which is after the last call has ended.
        self._is_called_back = threading.Event() if self.is_minded else None
        self._error: BaseException | None = None
        self._value: Any = None

    def get(self, timeout: float | None = None) -> Any:
        """Wait for the result.

        Args:
            timeout: Seconds to wait; for ever by default.

        Raises:
            multiprocessing.TimeoutError: The time is over.
            Exception: What the call raised.
        """
        if not self._wait(timeout):
            raise multiprocessing.TimeoutError(f"no result within {timeout} s; the call goes on")
        if self._error is not None:
            raise self._error
        return self._value

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the result is ready, for at most `timeout` seconds."""
        self._wait(timeout)

    def ready(self) -> bool:
        """Whether the call has ended."""
        if self._left:
            self._crew.collect()
        return self._is_ready()

    def successful(self) -> bool:
        """Whether the call has ended without an exception.

        Raises:
            ValueError: It has not ended.
        """
        if not self.ready():
            raise ValueError(f"{self!r} not ready: call wait() first")
        return self._error is None

    def _wait(self, timeout: float | None) -> bool:
        deadline = None if timeout is None else clock.monotonic() + timeout
        if self._left and not self._crew.wait(lambda: not self._left, timeout):
            return False
        if self._is_called_back is None:
            return True
        return self._is_called_back.wait(None if deadline is None else max(0.0, deadline - clock.monotonic()))

    def _is_ready(self) -> bool:
        return not self._left and (self._is_called_back is None or self._is_called_back.is_set())

    def on_outcome(self, _index: int, error: BaseException | None, value: Any) -> bool:
        """For the crew: the call has ended."""
        self._error = error
        self._value = value
        self._left = 0
        return True

    def abort(self, error: BaseException) -> None:
        """For the crew: the call will not end."""
        self._error = self._error or error
        self._left = 0

    def finish(self) -> None:
        """For the crew: call back."""
        if self._is_called_back is None:
            return
        callback, given = (self._callback, self._value) if self._error is None else (self._error_callback, self._error)
        try:
            if callback is not None:
                callback(given)
        except Exception:
            _log.exception("a callback of a pool raised; the result stands")
        finally:
            self._is_called_back.set()


class MapResult(AsyncResult):
    """The results of a map, made by `map_async` and `starmap_async`."""

    def __init__(
        self,
        crew: Crew,
        count: int,
        chunksize: int,
        length: int,
        callback: _Callback | None,
        error_callback: _Callback | None,
    ) -> None:
        super().__init__(crew, count, callback, error_callback)
        self._chunksize = chunksize
        self._value = [None] * length
        if not count and self._is_called_back is not None:
            # As in the standard library: an empty map is ready at once, and no callback is called.
            self._is_called_back.set()

    def on_outcome(self, index: int, error: BaseException | None, value: Any) -> bool:
        """For the crew: a chunk has ended."""
        if error is None and self._chunksize == 1:
            self._value[index] = value
        elif error is None:
            self._value[index * self._chunksize : (index + 1) * self._chunksize] = value
        elif self._error is None:
            self._error = error
        self._left -= 1
        return self._left == 0


class IMapIterator:
    """The results of `imap` and `imap_unordered`.

    Items of a collection are taken by whoever takes results. Those of an iterator are taken by a thread,
    as in the standard library: it may be slow, or wait for what the program does with earlier results.
    """

    is_minded = False

    def __init__(
        self, crew: Crew, function: Function, iterable: Iterable[Any], chunksize: int, is_ordered: bool
    ) -> None:
        self._crew = crew
        self._function = function
        self._items = iter(iterable)
        self._chunksize = chunksize
        self._is_ordered = is_ordered
        self._fed = threading.Condition()
        self._has_more = True
        self._is_bounded = True
        # The iterable's error, raised after the results of the items before it.
        self._broken: BaseException | None = None
        # How many chunks were submitted, have ended, and have had their results taken.
        self._submitted = 0
        self._ended = 0
        self._taken = 0
        # Outcomes by number of the chunk; without order, by number of arrival.
        self._outcomes: dict[int, list[_Outcome]] = {}
        # Outcomes of the current chunk that were not taken yet.
        self._current: deque[_Outcome] = deque()
        self._feeder: threading.Thread | None = None
        self._must_feed = threading.Event()
        if not hasattr(iterable, "__len__"):
            # The feeder thread must not keep an iterator alive that the program has dropped.
            weakref.finalize(self, self._must_feed.set)
            arguments = (weakref.ref(self), self._must_feed)
            self._feeder = threading.Thread(target=_feed, args=arguments, name="sooner-imap", daemon=True)
            self._feeder.start()
        self._ask_for_more()

    def __iter__(self) -> IMapIterator:
        return self

    def __next__(self) -> Any:
        return self.next()

    def next(self, timeout: float | None = None) -> Any:
        """The next result.

        Args:
            timeout: Seconds to wait; for ever by default.

        Raises:
            StopIteration: There is none.
            multiprocessing.TimeoutError: The time is over; the result can still be had.
            Exception: What the call raised. The results after it can still be had.
        """
        deadline = None if timeout is None else clock.monotonic() + timeout
        while not self._current:
            if self._taken not in self._outcomes and not self._wait(deadline):
                raise multiprocessing.TimeoutError(f"no result within {timeout} s; the calls go on")
            self._current.extend(self._outcomes.pop(self._taken))
            self._taken += 1
            self._ask_for_more()
        error, value = self._current.popleft()
        if error is not None:
            raise error
        return value

    def _wait(self, deadline: float | None) -> bool:
        """Wait for the next chunk; False when the time is up first."""

        def left() -> float | None:
            return None if deadline is None else max(0.0, deadline - clock.monotonic())

        number = self._taken
        with self._fed:
            if not self._fed.wait_for(lambda: self._submitted > number or not self._has_more, left()):
                return False
        if self._submitted == number:
            broken, self._broken = self._broken, None
            raise StopIteration if broken is None else broken
        return self._crew.wait(lambda: number in self._outcomes, left())

    @property
    def has_more(self) -> bool:
        """Whether items are left that were not submitted."""
        return self._has_more

    def take_all(self) -> None:
        """Submit all that is left: the pool is closed and waits for the end."""
        self._is_bounded = False
        self._ask_for_more()
        if self._feeder is not None:
            self._feeder.join()

    def _ask_for_more(self) -> None:
        # Submitting many chunks at once is cheaper than one by one.
        if not self._has_more or (self._is_bounded and 2 * (self._submitted - self._taken) > self._crew.ahead):
            return
        if self._feeder is not None:
            self._must_feed.set()
            return
        with self._fed:
            room = self._crew.ahead - (self._submitted - self._taken) if self._is_bounded else None
            chunks = list(itertools.islice(self._chunks(), room))
            self._submit(chunks, has_more=len(chunks) == room)

    def feed(self) -> bool:
        """For the thread: submit until there is enough. Says whether there is more."""
        chunks = self._chunks()
        while self._has_more and not (self._is_bounded and self._submitted - self._taken >= self._crew.ahead):
            # The user's iterable runs without a lock.
            chunk = next(chunks, None)
            with self._fed:
                self._submit([] if chunk is None else [chunk], has_more=chunk is not None)
                self._fed.notify_all()
        return self._has_more

    def end(self, error: BaseException) -> None:
        """The pool was terminated: nothing more is taken."""
        with self._fed:
            if self._has_more:
                self._has_more = False
                self._broken = error
            self._fed.notify_all()

    def _chunks(self) -> Iterator[list[Any]]:
        chunk: list[Any] = []
        try:
            for item in self._items:
                chunk.append(item)
                if len(chunk) == self._chunksize:
                    yield chunk
                    chunk = []
        except Exception as error:
            # Raised in the place of the next result. As in the standard library, the items of an incomplete
            # chunk are not called.
            self._broken = error
            return
        if chunk:
            yield chunk

    def _submit(self, chunks: list[list[Any]], *, has_more: bool) -> None:
        """Submit chunks under the lock `_fed`: waiting threads see the last chunk and the end together."""
        self._has_more = self._has_more and has_more
        if not chunks:
            return
        method = "call" if self._chunksize == 1 else "each"
        calls = [
            Call(self, index, method, self._function, tuple(chunk) if self._chunksize == 1 else (chunk,))
            for index, chunk in enumerate(chunks, self._submitted)
        ]
        self._submitted += len(calls)
        self._crew.submit(self, calls)

    def on_outcome(self, index: int, error: BaseException | None, value: Any) -> bool:
        """For the crew: a chunk has ended."""
        if error is not None or self._chunksize == 1:
            outcome = [(error, value)]
        else:
            outcome = [(None if error is None else original(error), result) for error, result in value]
        self._outcomes[index if self._is_ordered else self._ended] = outcome
        self._ended += 1
        return self._ended == self._submitted

    def abort(self, error: BaseException) -> None:
        """For the crew: what has not ended will not."""
        for number in range(self._taken, self._submitted):
            self._outcomes.setdefault(number, [(error, None)])

    def finish(self) -> None:
        """For the crew: nothing is in flight."""


def _feed(iterator: weakref.ref[IMapIterator], must_feed: threading.Event) -> None:
    has_more = True
    while has_more:
        must_feed.wait()
        must_feed.clear()
        alive = iterator()
        has_more = alive is not None and alive.feed()
        del alive
