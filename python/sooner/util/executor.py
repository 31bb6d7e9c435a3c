"""`concurrent.futures.Executor` on sooner's workers.

Calls wait in a queue of the executor, which hands a few at a time to the engine: waiting calls can be
cancelled, as the standard library promises; calls that were handed over count as running. How many are handed
over adapts to how long calls take, so that short calls do not each wait for a round trip.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import logging
import os
import secrets
import sys
import threading
import traceback
import types
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Executor as _StandardExecutor
from concurrent.futures import Future, InvalidStateError
from typing import Any, ParamSpec, TypeVar

import sooner
from sooner import cloudpickle as pickling
from sooner.exceptions import WorkerCrashedError
from sooner.util import clock
from sooner.util.checks import check_at_least, is_whole
from sooner.util.conditions import SafeCondition
from sooner.util.remote_errors import of_executor, original, unpickled
from sooner.util.script_globals import ScriptGlobals

P = ParamSpec("P")
T = TypeVar("T")

# Calls handed over per worker, at least and at most.
_AHEAD_MIN = 2
_AHEAD_MAX = 256
# A call that ends sooner than this (seconds) after its hand-over was short: the executor hands over more.
_SOON_SECONDS = 0.005
# A call that takes longer (seconds) was long: the executor hands over fewer, so that more can be cancelled.
_LATE_SECONDS = 0.1
# Amounts of resources are rounded to parts of one, each `1 / _SHARES`.
_SHARES = 10_000
# How long `_attend` waits for a result, and how long it pauses when there is none to wait for (seconds).
_ATTEND_SECONDS = 0.02
_ATTEND_PAUSE_SECONDS = 0.0005
# Distinct functions whose remote function the executor keeps.
_FUNCTIONS_MAX = 128

# In a worker: by executor whose initializer has run there, what it has set in the program's script.
_initialized: dict[str, ScriptGlobals] = {}
# Whether an initializer has redirected standard output or standard error, for all later calls. The clean-up
# between a worker's tasks (`sooner._engine.tidying`) reads this.
has_new_streams = False
_alive: weakref.WeakSet[Executor] = weakref.WeakSet()
# The logger on which the standard library's executors report a failed initializer.
_log = logging.getLogger("concurrent.futures")


class Executor(_StandardExecutor):
    """Runs calls on sooner's workers, with the interface of `concurrent.futures.ProcessPoolExecutor`.

    Functions, arguments and results are pickled with cloudpickle, so lambdas and closures work. A sooner
    session is started if there is none.

    Args:
        max_workers: Calls at the same time at most; as many as the session has CPUs by default.
        mp_context: Taken for compatibility: how sooner starts its workers does not depend on it.
        initializer: Called once in every worker process before its first call. Once it raises, the executor
            is broken.
        initargs: Its arguments.
        max_tasks_per_child: Calls (chunks, with `map`) after which a worker process is replaced, at least 1;
            never by default.
        options: Options of the tasks, as for `.options()` of a remote function, such as `num_gpus` or
            `max_retries`.

    Raises:
        ValueError: `max_workers` or `max_tasks_per_child` is below 1, or an option does not exist or has a
            wrong value: `num_returns` is 1, as a call has one future.
        TypeError: `initializer` cannot be called, or another argument has a wrong type.

    Example:
        >>> with sooner.Executor() as executor:  # doctest: +SKIP
        ...     print(list(executor.map(pow, [2, 3], [10, 10])))
        [1024, 59049]
    """

    def __init__(
        self,
        max_workers: int | None = None,
        mp_context: Any = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        *,
        max_tasks_per_child: int | None = None,
        options: dict[str, Any] | None = None,
        _takes_copies: bool = True,
    ) -> None:
        if max_workers is not None and (not is_whole(max_workers) or max_workers < 1):
            raise ValueError(f"max_workers must be greater than 0: a whole number, not {max_workers!r}")
        if mp_context is not None and not hasattr(mp_context, "get_start_method"):
            raise TypeError(f"mp_context must be a context of multiprocessing, not {type(mp_context).__name__}")
        if initializer is not None and not callable(initializer):
            raise TypeError(f"initializer must be callable, not {type(initializer).__name__}")
        if max_tasks_per_child is not None:
            if not is_whole(max_tasks_per_child):
                raise TypeError(f"max_tasks_per_child must be an integer, not {type(max_tasks_per_child).__name__}")
            check_at_least("max_tasks_per_child", max_tasks_per_child, 1)
        cpus = max(1, int(sooner.cluster_resources().get("CPU", 1)))
        self._options = dict(options or {})
        if self._options.get("num_returns") not in (None, 1):
            raise ValueError(
                f"num_returns={self._options['num_returns']!r} does not go with an Executor: a call has one future, "
                "with whatever it returns as its result"
            )
        # Set explicitly: a generator function would otherwise return a generator of references instead of a
        # future.
        self._options["num_returns"] = 1
        if max_tasks_per_child is not None:
            self._options.setdefault("max_calls", max_tasks_per_child)
        if max_workers is not None and max_workers > cpus:
            # More processes than CPUs: each takes a fraction of a CPU, rounded down so that all of them fit.
            self._options.setdefault("num_cpus", max(1, _SHARES * cpus // max_workers) / _SHARES)
        workers = self._max_workers = max_workers or cpus
        # The only way to use fewer CPUs than the session has is to hand over no more calls than that.
        self._window_min = workers if workers < cpus else _AHEAD_MIN * workers
        self._window_max = workers if workers < cpus else _AHEAD_MAX * workers
        self._window = self._window_min
        self._setup = None if initializer is None else (secrets.token_hex(8), initializer, initargs)
        # Why no call can run any more: the traceback of its initializer.
        self._broken: str | None = None
        self._remote: dict[types.FunctionType, sooner.RemoteFunction[..., Any]] = {}
        # Whether calls get copies, which they may change, as with the standard library's executors.
        self._takes_copies = _takes_copies
        self._call_any: sooner.RemoteFunction[..., Any] = self._make_remote(_call)
        self._waiting: deque[_Call] = deque()
        # Calls in the order of their hand-over.
        self._in_flight: dict[_Call, None] = {}
        self._is_shut_down = False
        # Once the calls are to be ended: whether their processes are killed. `None` before that.
        self._ends_by_force: bool | None = None
        # Reentrant: a done-callback may submit.
        self._lock = threading.RLock()
        self._idle = threading.Condition(self._lock)
        if not _alive:
            # Registered after sooner's own handler, so that this one runs before the other ends the session.
            atexit.unregister(_wait_at_exit)
            atexit.register(_wait_at_exit)
        _alive.add(self)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Schedule `fn(*args, **kwargs)`.

        Returns:
            A future. Its `cancel` succeeds until the call is handed to the engine.

        Raises:
            RuntimeError: The executor was shut down.
            BrokenProcessPool: Its initializer has failed.
            TypeError: `fn` is not callable.
        """
        if not callable(fn):
            raise TypeError(f"submit() takes a callable, not {type(fn).__name__}")
        future: _Future[T] = _Future()
        with self._lock:
            if self._broken is not None:
                raise _broken_pool(self._broken)
            if self._is_shut_down:
                raise RuntimeError("cannot schedule new futures after shutdown")
            call = _Call(future, fn, args, kwargs)
            self._waiting.append(call)
        self._hand_over(call)
        return future

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[T]:
        """`map(fn, *iterables)` with calls at the same time; results in order, as they are ready.

        Args:
            fn: The function.
            iterables: Taken at once, unless there is a `buffersize`.
            timeout: Seconds from now within which each result must be there.
            chunksize: Calls per task, at least 1. Short calls need none: sooner batches by itself.
            buffersize: Tasks whose results have not been taken, at most: `iterables` are taken as results
                are, so that they may be endless.

        Raises:
            TimeoutError: A result was not there in time (by the iterator).
            ValueError: `chunksize` or `buffersize` is below 1.
        """
        check_at_least("chunksize", chunksize, 1)
        if buffersize is not None:
            check_at_least("buffersize", buffersize, 1)
        deadline = None if timeout is None else clock.monotonic() + timeout
        calls = zip(*iterables, strict=False)
        if chunksize == 1:
            return self._stream(lambda args: self.submit(fn, *args), calls, deadline, buffersize)
        chunks = self._stream(
            lambda chunk: self.submit(_call_chunk, fn, chunk), _chunks(calls, chunksize), deadline, buffersize
        )
        return _flat(chunks)

    def _stream(
        self, submit: Callable[[Any], Future[Any]], items: Iterator[Any], deadline: float | None, limit: int | None
    ) -> Generator[Any, None, None]:
        futures = deque(map(submit, itertools.islice(items, limit)))
        return _in_order(futures, submit, items, deadline)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls.

        Args:
            wait: Return when all calls have ended. The session goes on.
            cancel_futures: Cancel those that wait.
        """
        with self._lock:
            self._is_shut_down = True
            cancelled = list(self._waiting) if cancel_futures else []
            if cancel_futures:
                self._waiting.clear()
        for call in cancelled:
            call.future.cancel()
            call.future.set_running_or_notify_cancel()
        if wait:
            # Ctrl-C may have struck after a call was queued and before it was handed over.
            self._hand_over()
            with self._idle:
                self._idle.wait_for(lambda: not self._waiting and not self._in_flight)

    def __exit__(self, kind: type[BaseException] | None, *error: Any) -> None:
        """Waits for all calls, as `shutdown` does. Ctrl-C ends them instead.

        On a terminal it reaches the workers of the standard library's executors, too; sooner's have
        process groups of their own.
        """
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self.terminate_workers()
        else:
            self.shutdown()

    def terminate_workers(self) -> None:
        """Take no more calls, cancel those that wait, and interrupt those that run, also while they sleep.

        The futures of the interrupted ones raise `TaskCancelledError`. As in Python 3.14, this does not wait.
        """
        self._end_calls(force=False)

    def kill_workers(self) -> None:
        """`terminate_workers` for calls that ignore interrupts: their processes are killed."""
        self._end_calls(force=True)

    def _end_calls(self, force: bool) -> None:
        self.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._ends_by_force = force
            refs = [call.ref for call in self._in_flight if call.ref is not None]
        # The latest calls first, so that calls queued behind others do not start when those end.
        for ref in reversed(refs):
            sooner.cancel(ref, force=force)

    def _attend(self, until: threading.Event) -> None:
        """Wait for results on behalf of a program that sleeps, so that results are noticed at once.

        While no thread waits, the engine looks for results only after a millisecond.
        """
        while not until.is_set():
            with self._lock:
                refs = [call.ref for call in self._in_flight if call.ref is not None]
            # References that are ready are about to be reported by another thread.
            missing = sooner.wait(refs, num_returns=len(refs), timeout=0)[1] if refs else []
            if missing:
                sooner.wait(missing, timeout=_ATTEND_SECONDS)
            else:
                until.wait(_ATTEND_PAUSE_SECONDS)
            del refs, missing

    def _hand_over(self, submitted: _Call | None = None) -> None:
        """Hand over waiting calls as far as there is room.

        Args:
            submitted: The call whose `submit` runs this method: Ctrl-C is raised from there. Elsewhere no
                caller could handle it.
        """
        while self._hand_over_one(submitted):
            pass

    def _hand_over_one(self, submitted: _Call | None) -> bool:
        call = None
        try:
            with self._lock:
                if not self._waiting or len(self._in_flight) >= self._window:
                    return False
                # Ctrl-C may strike at any step: a call that has left the queue is in `call` and gets an
                # outcome in any case.
                call = self._waiting[0]
                self._waiting.popleft()
                if not call.future.set_running_or_notify_cancel():
                    self._idle.notify_all()
                    return True
                self._in_flight[call] = None
            begin = clock.monotonic()
            pickling.passing.by_file = True
            ref = call.ref = call.future.ref = self._start(call)
            pickling.passing.by_file = False
            done = ref.future(copy=True)
            # The future may be kept for long: it must not keep the arguments alive.
            call.forget()
            done.add_done_callback(functools.partial(self._on_done, call, begin))
            with self._lock:
                ends_by_force = self._ends_by_force
            if ends_by_force is not None:
                # Another thread ended all calls while this call was being handed over.
                sooner.cancel(ref, force=ends_by_force)
        except BaseException as error:
            # For instance, an argument cannot be pickled.
            pickling.passing.by_file = False
            if call is None:
                raise
            self._end(call, None)
            passes = submitted is not None and not isinstance(error, Exception)
            if not passes or call is not submitted:
                _settle(call.future, unpickled(error))
            if passes and submitted is not None:
                self._take_back(submitted)
                raise
        return True

    def _take_back(self, call: _Call) -> None:
        """Drop a call whose future no caller receives, unless it was handed over."""
        with self._lock:
            if call in self._waiting:
                self._waiting.remove(call)
            self._idle.notify_all()

    def _start(self, call: _Call) -> sooner.ObjectRef[Any]:
        if not sooner.is_initialized():
            raise RuntimeError("the session of this executor was shut down: make a new executor after sooner.init()")
        # A plain function is pickled once. What a closure refers to may change from call to call.
        if self._setup is None and isinstance(call.fn, types.FunctionType) and call.fn.__closure__ is None:
            remote = self._remote.get(call.fn)
            if remote is None:
                if len(self._remote) >= _FUNCTIONS_MAX:
                    self._remote.clear()
                remote = self._remote[call.fn] = self._make_remote(call.fn)
            ref: sooner.ObjectRef[Any] = remote.remote(*call.args, **call.kwargs)
        else:
            ref = self._call_any.remote(self._setup, call.fn, call.args, call.kwargs)
        return ref

    def _make_remote(self, function: Callable[..., Any]) -> sooner.RemoteFunction[..., Any]:
        remote = sooner.RemoteFunction(function, {}, takes_copies=self._takes_copies)
        made: sooner.RemoteFunction[..., Any] = remote.options(**self._options)
        return made

    def _on_done(self, call: _Call, begin: float, done: Future[Any]) -> None:
        self._end(call, begin)
        error = done.exception()
        if error is not None:
            # At interpreter shutdown the standard library's counterpart of the error may be gone.
            with contextlib.suppress(Exception):
                error = self._as_standard(error)
        try:
            self._hand_over()
        finally:
            _settle(call.future, error, done)

    def _as_standard(self, error: BaseException) -> BaseException:
        """Convert an error of the engine into the error that a standard executor raises."""
        error = original(error, of_executor)
        if isinstance(error, _InitializerError):
            self._break(str(error))
            return _broken_pool(str(error))
        return _crashed(error) if type(error) is WorkerCrashedError else error

    def _break(self, reason: str) -> None:
        """Fail all waiting calls, because the initializer would fail in a new process, too."""
        with self._lock:
            is_new, self._broken = self._broken is None, reason
            waiting = list(self._waiting)
            self._waiting.clear()
            self._idle.notify_all()
        if is_new:
            _log.critical("Exception in initializer:\n%s", reason)
        for call in waiting:
            if call.future.set_running_or_notify_cancel():
                call.future.set_exception(_broken_pool(reason))

    def _end(self, call: _Call, begin: float | None) -> None:
        with self._lock:
            self._in_flight.pop(call, None)
            call.ref = call.future.ref = None
            if begin is not None:
                took = clock.monotonic() - begin
                if took < _SOON_SECONDS:
                    self._window = min(self._window * 2, self._window_max)
                elif took > _LATE_SECONDS:
                    self._window = max(self._window // 2, self._window_min)
            if not self._in_flight and not self._waiting:
                self._idle.notify_all()


def _settle(future: Future[Any], error: BaseException | None, done: Future[Any] | None = None) -> None:
    """Give a future its outcome, unless it has one because Ctrl-C struck after the hand-over."""
    with contextlib.suppress(InvalidStateError):
        if error is not None:
            future.set_exception(error)
        elif done is not None:
            future.set_result(done.result())


def _in_order(
    futures: deque[Future[Any]], submit: Callable[[Any], Future[Any]], items: Iterator[Any], deadline: float | None
) -> Generator[Any, None, None]:
    """Yield results in order; submit a call for each result taken; cancel the rest when the caller stops."""
    try:
        while futures:
            # Not bound to a name: a result that was yielded may be freed.
            yield futures.popleft().result(None if deadline is None else max(0.0, deadline - clock.monotonic()))
            futures.extend(map(submit, itertools.islice(items, 1)))
    finally:
        for future in futures:
            future.cancel()


def _flat(chunks: Generator[list[Any], None, None]) -> Generator[Any, None, None]:
    with contextlib.closing(chunks):
        for chunk in chunks:
            chunk.reverse()
            while chunk:
                # Not bound to a name: a result that was yielded may be freed.
                yield chunk.pop()


def _wait_at_exit() -> None:
    """Wait for all calls when the program ends, as standard executors do. After Ctrl-C, end them instead."""
    is_interrupted = isinstance(getattr(sys, "last_value", None), KeyboardInterrupt)
    for executor in list(_alive):
        try:
            if not is_interrupted:
                executor.shutdown()
        except KeyboardInterrupt:
            is_interrupted = True
        if is_interrupted:
            executor.terminate_workers()


class _Future(Future[T]):
    """A future whose waiting thread reads the engine's messages itself: no other thread has to wake it."""

    ref: sooner.ObjectRef[Any] | None = None

    def __init__(self) -> None:
        super().__init__()
        self._condition = SafeCondition()

    def result(self, timeout: float | None = None) -> T:
        return super().result(self._left_after_wait(timeout))

    def exception(self, timeout: float | None = None) -> BaseException | None:
        return super().exception(self._left_after_wait(timeout))

    def _left_after_wait(self, timeout: float | None) -> float | None:
        ref = self.ref
        if ref is None:
            return timeout
        begin = clock.monotonic()
        try:
            sooner.wait([ref], timeout=None if timeout is None else max(0.0, timeout))
        except RuntimeError:
            # The session has ended: the future gets an error from that.
            return timeout
        return None if timeout is None else max(0.0, timeout - (clock.monotonic() - begin))


class _Call:
    __slots__ = ("args", "fn", "future", "kwargs", "ref")

    def __init__(
        self, future: _Future[Any], fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.future = future
        self.fn = fn
        self.args = args
        self.kwargs = kwargs
        self.ref: sooner.ObjectRef[Any] | None = None

    def forget(self) -> None:
        """Release the function and its arguments: the engine has them."""
        self.fn = _call
        self.args = ()
        self.kwargs = {}


class _InitializerError(Exception):
    """Raised in a worker when the initializer has raised; holds its traceback as text."""


def _broken_pool(reason: str) -> BaseException:
    # Imported on use: the module starts multiprocessing.
    from concurrent.futures.process import BrokenProcessPool  # start-up: 14.1 ms

    return BrokenProcessPool(f"the initializer of the executor has failed: make a new executor\n{reason}")


def _crashed(error: WorkerCrashedError) -> BaseException:
    """The error as an instance of `BrokenProcessPool`, too, for programs that expect the standard executor's.

    Unlike a standard executor, this one goes on after it.
    """
    from concurrent.futures.process import BrokenProcessPool  # start-up: 14.1 ms

    class WorkerCrashed(WorkerCrashedError, BrokenProcessPool):
        def __reduce__(self) -> Any:
            return _crashed, (error,)

    WorkerCrashed.__name__ = WorkerCrashed.__qualname__ = WorkerCrashedError.__name__
    WorkerCrashed.__module__ = WorkerCrashedError.__module__
    return WorkerCrashed(*error.args)


def _call(setup: Any, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    global has_new_streams
    if setup is not None:
        key, initializer, initargs = setup
        if key not in _initialized:
            before = _streams()
            found = ScriptGlobals()
            try:
                found.initialize(lambda: _initialize(initializer, initargs), initializer, initargs)
            except (Exception, SystemExit):
                raise _InitializerError(traceback.format_exc()) from None
            _initialized[key] = found
            has_new_streams = _streams() != before
        return _initialized[key].call(fn, *args, **kwargs)
    return fn(*args, **kwargs)


def _streams() -> list[object]:
    found: list[object] = [sys.stdout, sys.stderr]
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            there = os.fstat(descriptor)
            found.append((descriptor, there.st_dev, there.st_ino))
    return found


def _call_chunk(fn: Callable[..., Any], chunk: list[tuple[Any, ...]]) -> list[Any]:
    return [fn(*args) for args in chunk]


def _chunks(items: Iterator[tuple[Any, ...]], size: int) -> Iterator[list[tuple[Any, ...]]]:
    while chunk := list(itertools.islice(items, size)):
        yield chunk


def _initialize(initializer: Callable[..., object], initargs: tuple[Any, ...]) -> None:
    """Run the initializer. The worker's clean-up knows by this function's name that its changes stay."""
    initializer(*initargs)
