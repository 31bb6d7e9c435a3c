"""The workers of a pool, one actor each, and which call goes to which worker.

Each call of the pool is one call of an actor. A worker has a few calls queued, more while calls turn out to
be short, so that it never waits for its next call. Calls queued behind a long call are taken back when
another worker is idle.

A thread that waits for a result drives the crew: it takes outcomes and hands over waiting calls. When work is
left and no thread waits, a thread of the crew (the minder) does so.

Invariants:
    1. A call is waiting, with one worker, or ended. It runs at most once.
    2. `Job.on_outcome` runs under the lock, `Job.finish` never does: user code runs without the lock.
    3. Waiting for the first call of every worker is waiting for any progress: workers are single-threaded.
    4. Whatever an exception interrupts, the outcome of each call that has left its worker is with its job,
       and each job that has ended is finished: one caller's bad input affects no other caller.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeAlias

import sooner
from sooner import cloudpickle as pickling
from sooner.exceptions import ActorDiedError, ActorUnschedulableError, TaskCancelledError
from sooner.util import clock
from sooner.util.pool_worker import UnknownFunction
from sooner.util.remote_errors import original, outcome, unpickled

# Calls queued at one worker, at most.
_WINDOW_MAX = 128
# A call that ends sooner than this (seconds) after its hand-over was short: workers then get more at once.
_SOON_SECONDS = 0.005
# After a call that takes longer (seconds), workers get one call at a time.
_LATE_SECONDS = 0.05
# How long (seconds) calls stay queued behind another call while a worker is idle.
_TAKE_BACK_SECONDS = 0.005
# How often (seconds) the minder looks for calls that were handed over after its wait began.
_MIND_SECONDS = 0.005
# The minder ends after being idle for this long (seconds).
_LINGER_SECONDS = 1.0
# Functions that a worker keeps.
_FUNCTIONS_MAX = 64

_Ref: TypeAlias = "sooner.ObjectRef[Any]"
_log = logging.getLogger("sooner")


class Job(Protocol):
    """What calls belong to: collects their outcomes."""

    @property
    def is_minded(self) -> bool:
        """Whether its end must be noticed although nobody waits for it."""

    def on_outcome(self, index: int, error: BaseException | None, value: Any) -> bool:
        """One call has ended. Says whether it was the last one."""

    def abort(self, error: BaseException) -> None:
        """No further call will end."""

    def finish(self) -> None:
        """All calls have ended. Called once, without the lock of the crew."""


class Function:
    """A function for workers: pickled once, when the first call is handed over."""

    __slots__ = ("_made", "_target", "number")
    _numbers = itertools.count()

    def __init__(self, target: Callable[..., Any]) -> None:
        self.number = next(self._numbers)
        self._target: Callable[..., Any] | None = target
        self._made: _Ref | None = None

    def ref(self) -> _Ref:
        """Where it lies."""
        if self._made is None:
            if not sooner.is_initialized():
                # `sooner.put` would begin a new session.
                raise RuntimeError("the session of this pool was shut down: make a new pool after sooner.init()")
            self._made = sooner.put(self._target)
            # The target is released: pools remember what they have pickled as long as the program has the
            # function.
            self._target = None
        return self._made


class Call:
    """One call of a worker's method for a job."""

    __slots__ = ("arguments", "begun", "function", "index", "is_taken_back", "job", "keywords", "method")

    def __init__(
        self,
        job: Job,
        index: int,
        method: str,
        function: Function,
        arguments: Iterable[Any],
        keywords: dict[str, Any] | None = None,
    ) -> None:
        self.job = job
        self.index = index
        self.method = method
        self.function = function
        # For `starmap`, an item that the user gave: iterated at the hand-over. If that raises, the call
        # raises.
        self.arguments = arguments
        self.keywords = keywords
        self.begun = 0.0
        self.is_taken_back = False


class _Member:
    """A worker as the crew sees it."""

    __slots__ = ("actor", "calls", "functions", "left")

    def __init__(self, actor: Any, left: float) -> None:
        self.actor = actor
        self.calls: dict[_Ref, Call] = {}
        # Calls the worker may still take before it is replaced.
        self.left = left
        # Numbers of the functions the worker keeps, oldest first, with the `define` calls that sent them.
        self.functions: dict[int, _Ref] = {}

    def hand_over(self, call: Call, now: float) -> None:
        """Send a call to the worker."""
        # Arrays that lie in files are passed as references to the files, so that the call's writes reach the
        # files.
        pickling.passing.by_file = True
        try:
            self._hand_over(call, now)
        finally:
            pickling.passing.by_file = False

    def _hand_over(self, call: Call, now: float) -> None:
        function = call.function
        if function.number not in self.functions:
            self._define(function)
        method = getattr(self.actor, call.method).remote
        # The tuple is kept: the call may be handed over again, and an iterator yields its items only once.
        arguments = call.arguments = tuple(call.arguments)
        keywords = call.keywords
        ref = method(function.number, *arguments, **keywords) if keywords else method(function.number, *arguments)
        call.begun = now
        self.calls[ref] = call
        self.left -= 1

    def _define(self, function: Function) -> None:
        forgotten = None
        if len(self.functions) >= _FUNCTIONS_MAX:
            forgotten = next(iter(self.functions))
            del self.functions[forgotten]
        # Calls arrive in order: the function is there before those that need it, and gone after them.
        self.functions[function.number] = self.actor.define.remote(function.number, function.ref(), forgotten)

    def error_of(self, call: Call, error: BaseException) -> BaseException:
        """The error of a call in the form that the caller expects."""
        try:
            found = original(error)
            return self._why_unknown(call, found) if isinstance(found, UnknownFunction) else found
        except Exception:
            # At interpreter shutdown the standard library's counterpart of the error may be gone.
            return error

    def _why_unknown(self, call: Call, error: BaseException) -> BaseException:
        """Why the worker could not load the function: for instance, its module cannot be imported."""
        ref = self.functions.get(call.function.number)
        try:
            sooner.get(ref if ref is not None else [])
        except Exception as reason:
            return reason
        return error


class Crew:
    """Workers, and the calls for them.

    Args:
        size: Number of workers.
        actor: Makes a worker: a remote class with its options.
        setup: Arguments of the constructor.
        calls_max: Calls after which a worker is replaced; never by default.
    """

    def __init__(self, size: int, actor: Any, setup: tuple[Any, ...], calls_max: int | None) -> None:
        self._actor = actor
        self._setup = setup
        self._calls_max = math.inf if calls_max is None else calls_max
        # Reentrant: a signal handler may use the pool.
        self._lock = threading.RLock()
        self._jobs: set[Job] = set()
        # How many of the jobs are minded.
        self._minded = 0
        # Waiting calls: first those taken back from workers, then those of each job, made as they are needed.
        self._returned: deque[Call] = deque()
        self._sources: deque[tuple[Job, Iterator[Call]]] = deque()
        self._window = 1
        self._waiters = 0
        self._minder: threading.Thread | None = None
        self._must_mind = threading.Condition(self._lock)
        self._failure: BaseException | None = None
        # An error that `collect` passes to `fail` as soon as it has released the lock.
        self._doom: BaseException | None = None
        self._ends_when_done = False
        self._members = [self._new_member() for _ in range(size)]
        self._size = size

    def _new_member(self) -> _Member:
        return _Member(self._actor.remote(*self._setup), self._calls_max)

    @property
    def ahead(self) -> int:
        """Calls that keep all workers busy: more are not needed before results were taken."""
        return self._size * max(4, 2 * self._window)

    def submit(self, job: Job, calls: Iterable[Call], *, is_waited: bool = False) -> None:
        """Add calls of a job.

        Args:
            job: Collects the outcomes.
            calls: Taken as workers have room, under the lock.
            is_waited: `wait` is called next.
        """
        ended: list[Job] = []
        try:
            with self._lock:
                if self._failure is None:
                    self._add(job, calls, is_waited, ended)
                else:
                    job.abort(self._failure)
                    ended.append(job)
        finally:
            self._finish(ended)

    def _add(self, job: Job, calls: Iterable[Call], is_waited: bool, ended: list[Job]) -> None:
        if job not in self._jobs:
            self._jobs.add(job)
            self._minded += job.is_minded
        self._sources.append((job, iter(calls)))
        try:
            self._hand_over(ended)
        finally:
            if not is_waited and self._has_more():
                self._mind()

    def wait(self, is_done: Callable[[], bool], timeout: float | None = None) -> bool:
        """Drive the crew until something holds, or the time is over. Says whether it holds."""
        deadline = None if timeout is None else clock.monotonic() + timeout
        with self._lock:
            self._waiters += 1
        try:
            while not is_done():
                left = None if deadline is None else max(0.0, deadline - clock.monotonic())
                self._step(left)
                if left == 0:
                    break
        finally:
            with self._lock:
                self._waiters -= 1
                if self._has_more():
                    self._mind()
        return is_done()

    def collect(self) -> None:
        """Take what has come, and hand over what waits."""
        ended: list[Job] = []
        try:
            with self._lock:
                for place, member in enumerate(self._members):
                    if member.calls:
                        self._take_ready(member, ended)
                        if not member.calls and member.left <= 0:
                            self._members[place] = self._new_member()
                self._hand_over(ended)
                if self._ends_when_done and not self._jobs:
                    self._members = []
                doom, self._doom = self._doom, None
        finally:
            self._finish(ended)
        if doom is not None:
            self.fail(doom)

    def actors(self) -> list[Any]:
        """The workers of now."""
        with self._lock:
            return [member.actor for member in self._members]

    def is_done(self) -> bool:
        """Whether no job is left."""
        return not self._jobs

    def end_when_done(self) -> None:
        """Let the workers go after the last job."""
        with self._lock:
            self._ends_when_done = True
            if not self._jobs:
                self._members = []
            else:
                self._mind()

    def fail(self, error: BaseException) -> None:
        """End the workers now, and every job with an error."""
        with self._lock:
            members, self._members = self._members, []
            jobs, self._jobs = self._jobs, set()
            self._minded = 0
            self._sources.clear()
            self._returned.clear()
            self._failure = self._failure or error
            for job in jobs:
                job.abort(error)
        for member in members:
            try:
                sooner.kill(member.actor)
            except Exception:
                _log.debug("a worker of a pool had ended already", exc_info=True)
        self._finish(list(jobs))

    def _step(self, limit: float | None) -> None:
        """Wait for some progress, but for at most `limit` seconds."""
        with self._lock:
            heads = [next(iter(member.calls)) for member in self._members if member.calls]
            can_take_back = self._can_take_back()
        if not heads:
            # Another thread has taken the outcomes and is about to report them.
            time.sleep(0)
        elif not can_take_back:
            sooner.wait(heads, timeout=limit)
        else:
            patience = _TAKE_BACK_SECONDS if limit is None else min(limit, _TAKE_BACK_SECONDS)
            if not sooner.wait(heads, timeout=patience)[0]:
                self._take_back()
        self.collect()

    def _hand_over(self, ended: list[Job]) -> None:
        """Hand waiting calls to the least loaded workers.

        Jobs that end because a call cannot be sent are added to `ended`.
        """
        if not self._returned and not self._sources:
            return
        now = clock.monotonic()
        room = [(len(member.calls), place) for place, member in enumerate(self._members) if member.left > 0]
        heapq.heapify(room)
        while room and room[0][0] < self._window:
            call = self._next_call(ended)
            if call is None:
                break
            load, place = room[0]
            member = self._members[place]
            try:
                member.hand_over(call, now)
            except Exception as error:
                # For instance, an argument cannot be pickled.
                self._end(call, unpickled(error), None, ended)
                continue
            except BaseException as error:
                # For instance, Ctrl-C.
                self._end(call, error, None, ended)
                raise
            if member.left > 0:
                heapq.heapreplace(room, (load + 1, place))
            else:
                heapq.heappop(room)

    def _next_call(self, ended: list[Job]) -> Call | None:
        if self._returned:
            return self._returned.popleft()
        while self._sources:
            job, calls = self._sources[0]
            try:
                call = next(calls, None)
            except BaseException as error:
                # A source that has raised yields no more calls.
                self._sources.popleft()
                self._abort(job, error, ended)
                if not isinstance(error, Exception):
                    # For instance, Ctrl-C.
                    raise
                continue
            if call is not None:
                return call
            self._sources.popleft()
        return None

    def _take_ready(self, member: _Member, ended: list[Job]) -> None:
        refs = list(member.calls)
        ready, _ = sooner.wait(refs, num_returns=len(refs), timeout=0)
        if not ready:
            return
        self._adapt(clock.monotonic() - member.calls[ready[0]].begun)
        try:
            values = sooner.get(ready, copy=True)
        except BaseException as error:
            self._take_each(member, ready, None if isinstance(error, Exception) else error, ended)
            return
        for ref, value in zip(ready, values, strict=True):
            self._end(member.calls.pop(ref), None, value, ended)

    def _take_each(self, member: _Member, ready: list[_Ref], interrupt: BaseException | None, ended: list[Job]) -> None:
        """Take each outcome by itself, because a call failed or a signal handler raised meanwhile."""
        error = found = None
        try:
            for ref in ready:
                error, value, found = outcome(functools.partial(sooner.get, ref, copy=True))
                if found is not None:
                    interrupt = found
                elif error is not None and type(error) is type(interrupt):
                    # This call raised the error, not a signal handler.
                    interrupt = None
                self._take(member, ref, error, value, ended)
            if interrupt is not None:
                raise interrupt
        finally:
            # A reference cycle through their tracebacks would keep the worker alive.
            del error, found, interrupt

    def _take(self, member: _Member, ref: _Ref, error: BaseException | None, value: Any, ended: list[Job]) -> None:
        call = member.calls.pop(ref)
        if isinstance(error, TaskCancelledError) and call.is_taken_back:
            call.is_taken_back = False
            member.left += 1
            self._returned.append(call)
            return
        if isinstance(error, ActorDiedError | ActorUnschedulableError):
            self._on_death(member, error)
        self._end(call, None if error is None else member.error_of(call, error), value, ended)

    def _on_death(self, member: _Member, error: ActorDiedError | ActorUnschedulableError) -> None:
        if isinstance(error, ActorUnschedulableError) or error.actor_init_failed:
            # A new worker would fail in the same way.
            self._doom = error
        elif member.left > 0:
            # The dead worker gets no more calls, and is replaced when all its calls have ended.
            member.left = -math.inf

    def _end(self, call: Call, error: BaseException | None, value: Any, ended: list[Job]) -> None:
        job = call.job
        if job in self._jobs and job.on_outcome(call.index, error, value):
            self._jobs.discard(job)
            self._minded -= job.is_minded
            ended.append(job)

    def _abort(self, job: Job, error: BaseException, ended: list[Job]) -> None:
        if job in self._jobs:
            self._jobs.discard(job)
            self._minded -= job.is_minded
            job.abort(error)
            ended.append(job)

    def _finish(self, ended: Iterable[Job]) -> None:
        jobs = iter(ended)
        for job in jobs:
            try:
                job.finish()
            except BaseException:
                # A callback raised something that is no `Exception`; the other jobs still have to be
                # finished.
                self._finish(jobs)
                raise

    def _adapt(self, took: float) -> None:
        if took < _SOON_SECONDS:
            self._window = min(2 * self._window, _WINDOW_MAX)
        elif took > _LATE_SECONDS:
            self._window = 1

    def _can_take_back(self) -> bool:
        """Whether a worker is idle while calls wait behind other calls."""
        if self._returned or self._sources:
            return False
        loads = [len(member.calls) for member in self._members]
        return min(loads, default=0) == 0 and max(loads, default=0) > 1

    def _take_back(self) -> None:
        """Cancel the later half of the calls queued at the busiest worker: they come back as not begun."""
        with self._lock:
            if not self._can_take_back():
                return
            member = max(self._members, key=lambda member: len(member.calls))
            behind = list(member.calls.items())[1:]
            for ref, call in behind[len(behind) // 2 :]:
                if not call.is_taken_back:
                    call.is_taken_back = True
                    sooner.cancel(ref, recursive=False)

    def _has_more(self) -> bool:
        """Whether the crew needs the minder when no thread waits for a result."""
        if self._returned or self._sources or self._minded:
            return True
        return any(len(member.calls) > 1 for member in self._members)

    def _mind(self) -> None:
        if self._minder is None:
            self._minder = threading.Thread(target=self._run_minder, name="sooner-pool", daemon=True)
            self._minder.start()
        else:
            self._must_mind.notify()

    def _run_minder(self) -> None:
        while True:
            with self._lock:
                is_needed = self._must_mind.wait_for(
                    lambda: not self._waiters and self._has_more() and self._failure is None, _LINGER_SECONDS
                )
                if not is_needed:
                    self._minder = None
                    return
            try:
                self._step(_MIND_SECONDS)
            except Exception as error:
                # The session has ended.
                self.fail(error)
            except BaseException:
                # Nothing interrupts this thread: a call or a callback raised this, and its outcome is
                # recorded already.
                _log.debug("something that a call of a pool has raised", exc_info=True)
