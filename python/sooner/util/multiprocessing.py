"""`multiprocessing.Pool` on sooner's workers.

Use it by changing one import: `from sooner.util.multiprocessing import Pool`. Functions are pickled with
cloudpickle, large arguments and results lie in shared memory, and a worker that dies fails its calls
instead of hanging the program.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import secrets
import time
import types
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping
from multiprocessing import TimeoutError  # noqa: A004  the name that multiprocessing has
from typing import Any

import sooner
from sooner.state import get_actor
from sooner.util.checks import check_at_least
from sooner.util.crew import Call, Crew, Function
from sooner.util.pool_results import AsyncResult, IMapIterator, MapResult
from sooner.util.pool_worker import Worker
from sooner.util.queue import Queue, QueueActor

__all__ = ["AsyncResult", "JoinableQueue", "Pool", "TimeoutError"]

# Chunks of a map per worker, as in the standard library.
_CHUNKS_PER_WORKER = 4

# Types of functions that are pickled once, unless the function is a closure.
_PLAIN = frozenset({types.FunctionType, types.BuiltinFunctionType})

_Callback = Callable[[Any], object]


class Pool:
    """A fixed number of worker processes that share calls, with the interface of `multiprocessing.Pool`.

    A sooner session is started if there is none. The workers are actors that hold no CPU of the session, so
    that a pool never waits for tasks and may have more workers than there are CPUs.

    Args:
        processes: Number of workers, at least 1; as many as the session has CPUs by default.
        initializer: Called once in every worker before its first call.
        initargs: Its arguments.
        maxtasksperchild: Calls (chunks, with `map`) after which a worker is replaced by a new one, at least
            1; never by default.
        context: Taken for compatibility: how sooner starts its workers does not depend on it.
        ray_address: Address for `sooner.init`, if there is no session yet.
        ray_remote_args: Options of the workers, as for `.options()` of an actor class, such as `num_gpus`.

    Raises:
        ValueError: `processes` or `maxtasksperchild` is below 1, or an option does not exist or has a wrong
            value.
        TypeError: `initializer` cannot be called, or another argument has a wrong type.

    Example:
        >>> with Pool(2) as pool:  # doctest: +SKIP
        ...     print(pool.map(abs, range(-3, 0)))
        [3, 2, 1]
    """

    def __init__(
        self,
        processes: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[Any] = (),
        maxtasksperchild: int | None = None,
        context: Any = None,
        ray_address: str | None = None,
        ray_remote_args: Mapping[str, Any] | None = None,
    ) -> None:
        # `__del__` reads it, also if one of the checks below fails.
        self._state = "INIT"
        if processes is not None:
            check_at_least("processes", processes, 1)
        if maxtasksperchild is not None:
            check_at_least("maxtasksperchild", maxtasksperchild, 1)
        if initializer is not None and not callable(initializer):
            raise TypeError(f"initializer must be callable, not {type(initializer).__name__}")
        if context is not None and not hasattr(context, "get_start_method"):
            raise TypeError(f"context must be a context of multiprocessing, not {type(context).__name__}")
        if ray_address is not None and not isinstance(ray_address, str):
            raise TypeError(f"ray_address must be a string, not {type(ray_address).__name__}")
        if ray_remote_args is not None and not isinstance(ray_remote_args, Mapping):
            raise TypeError(f"ray_remote_args must be a dictionary of options, not {type(ray_remote_args).__name__}")
        setup = (initializer, tuple(initargs))
        if ray_address is not None and not sooner.is_initialized():
            sooner.init(ray_address)
        self._processes = processes or max(1, int(sooner.cluster_resources().get("CPU", 1)))
        worker = sooner.remote(Worker).options(**{"num_cpus": 0, **(ray_remote_args or {})})
        self._crew = Crew(self._processes, worker, setup, maxtasksperchild)
        self._functions: weakref.WeakKeyDictionary[Any, Function] = weakref.WeakKeyDictionary()
        self._iterators: weakref.WeakSet[IMapIterator] = weakref.WeakSet()
        self._state = "RUN"

    def apply(self, func: Callable[..., Any], args: Iterable[Any] = (), kwds: Mapping[str, Any] | None = None) -> Any:
        """Call `func(*args, **kwds)` in a worker and wait for its result.

        Raises:
            ValueError: The pool is closed.
            Exception: What the call raised.
        """
        result = AsyncResult(self._crew, 1)
        self._submit(result, [self._call(result, func, args, kwds)], is_waited=True)
        return result.get()

    def apply_async(
        self,
        func: Callable[..., Any],
        args: Iterable[Any] = (),
        kwds: Mapping[str, Any] | None = None,
        callback: _Callback | None = None,
        error_callback: _Callback | None = None,
    ) -> AsyncResult:
        """`apply` that does not wait.

        Args:
            func: The function.
            args: Its positional arguments. References are replaced by their values.
            kwds: Its keyword arguments.
            callback: Called with the result, in this process; the result is ready when it returns.
            error_callback: Called with the exception, if there is one.
        """
        result = AsyncResult(self._crew, 1, callback, error_callback)
        self._submit(result, [self._call(result, func, args, kwds)])
        return result

    def map(self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int | None = None) -> list[Any]:
        """Call `func` with every item; the results in order.

        Args:
            func: A function of one argument.
            iterable: The items, taken at once. References are replaced by their values.
            chunksize: Items per call of a worker, at least 1; by default so that each worker has about four
                chunks.

        Raises:
            ValueError: The pool is closed, or `chunksize` is below 1.
            Exception: The first exception that came, when all chunks have ended.
        """
        return self._map("map", func, iterable, chunksize, is_waited=True).get()  # type: ignore[no-any-return]

    def map_async(
        self,
        func: Callable[[Any], Any],
        iterable: Iterable[Any],
        chunksize: int | None = None,
        callback: _Callback | None = None,
        error_callback: _Callback | None = None,
    ) -> AsyncResult:
        """`map` that does not wait. The callbacks are those of `apply_async`."""
        return self._map("map", func, iterable, chunksize, callback, error_callback)

    def starmap(
        self, func: Callable[..., Any], iterable: Iterable[Iterable[Any]], chunksize: int | None = None
    ) -> list[Any]:
        """`map` whose items are argument lists: `func(*item)`."""
        return self._map("starmap", func, iterable, chunksize, is_waited=True).get()  # type: ignore[no-any-return]

    def starmap_async(
        self,
        func: Callable[..., Any],
        iterable: Iterable[Iterable[Any]],
        chunksize: int | None = None,
        callback: _Callback | None = None,
        error_callback: _Callback | None = None,
    ) -> AsyncResult:
        """`starmap` that does not wait. The callbacks are those of `apply_async`."""
        return self._map("starmap", func, iterable, chunksize, callback, error_callback)

    def imap(self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int = 1) -> IMapIterator:
        """`map` as an iterator: results in order, as they are ready.

        Args:
            func: A function of one argument.
            iterable: The items, taken a bounded number ahead of the results, so that it may be endless.
            chunksize: Items per call of a worker, at least 1.

        Returns:
            An iterator; its `next` takes a timeout. An item whose call raised raises at its place.

        Raises:
            ValueError: The pool is closed, or `chunksize` is below 1.
        """
        return self._imap(func, iterable, chunksize, is_ordered=True)

    def imap_unordered(self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int = 1) -> IMapIterator:
        """`imap` with the results in the order in which they come."""
        return self._imap(func, iterable, chunksize, is_ordered=False)

    def close(self) -> None:
        """Take no more calls. The workers end when all calls have ended."""
        if self._state == "RUN":
            self._state = "CLOSE"
            # While iterables of `imap` have items left, workers are still needed; `join` ends them.
            if not any(iterator.has_more for iterator in list(self._iterators)):
                self._crew.end_when_done()

    def terminate(self) -> None:
        """End the workers now. Results that are not ready raise `multiprocessing.ProcessError`."""
        self._state = "TERMINATE"
        error = multiprocessing.ProcessError("the pool was terminated before this call had ended")
        self._crew.fail(error)
        for iterator in list(self._iterators):
            iterator.end(error)
        self._functions.clear()

    def join(self) -> None:
        """Wait until all calls have ended and the workers are told to go.

        Raises:
            ValueError: Neither `close` nor `terminate` was called.
        """
        if self._state == "RUN":
            raise ValueError("Pool is still running: call close() or terminate() before join()")
        for iterator in list(self._iterators):
            iterator.take_all()
        self._crew.end_when_done()
        self._crew.wait(self._crew.is_done)
        # The ended pool may be kept for long: it must hold no references of the session.
        self._functions.clear()

    def __enter__(self) -> Pool:
        self._check_running()
        return self

    def __exit__(self, *_: object) -> None:
        self.terminate()

    def __del__(self) -> None:
        if self._state == "RUN":
            message = f"unclosed running multiprocessing pool {self!r}: use `with`, or close()"
            warnings.warn(message, ResourceWarning, stacklevel=2, source=self)

    def __reduce__(self) -> Any:
        raise TypeError("pool objects cannot be passed between processes or pickled: pass the arguments of the calls")

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.Pool state={self._state} pool_size={self._processes}>"

    @property
    def _pool(self) -> list[_Process]:
        """The present workers. Programs read this attribute of standard pools to find the processes."""
        return [_Process(actor) for actor in self._crew.actors()]

    def _repopulate_pool(self) -> None:
        """Replace workers that are known to be dead; the pool also does so by itself."""
        self._crew.collect()

    def _check_running(self) -> None:
        if self._state != "RUN":
            raise ValueError("Pool not running: it was closed or terminated")

    def _submit(self, result: AsyncResult, calls: Iterable[Call], *, is_waited: bool = False) -> None:
        self._check_running()
        self._crew.submit(result, calls, is_waited=is_waited)

    def _function(self, func: Callable[..., Any]) -> Function:
        if not callable(func):
            raise TypeError(f"a pool calls functions, not {type(func).__name__}")
        if type(func) not in _PLAIN or getattr(func, "__closure__", None):
            # What the function refers to may change from call to call.
            return Function(func)
        function = self._functions.get(func)
        if function is None:
            function = self._functions[func] = Function(func)
        return function

    def _call(
        self, result: AsyncResult, func: Callable[..., Any], args: Iterable[Any], kwds: Mapping[str, Any] | None
    ) -> Call:
        return Call(result, 0, "call", self._function(func), tuple(args), dict(kwds) if kwds else None)

    def _map(
        self,
        method: str,
        func: Callable[..., Any],
        iterable: Iterable[Any],
        chunksize: int | None,
        callback: _Callback | None = None,
        error_callback: _Callback | None = None,
        *,
        is_waited: bool = False,
    ) -> AsyncResult:
        self._check_running()
        if chunksize is not None:
            check_at_least("chunksize", chunksize, 1)
        function = self._function(func)
        items = list(iterable)
        size = chunksize or -(-len(items) // (self._processes * _CHUNKS_PER_WORKER)) or 1
        count = -(-len(items) // size)
        result = MapResult(self._crew, count, size, len(items), callback, error_callback)
        if size == 1:
            calls = (
                Call(result, index, "call", function, (item,) if method == "map" else item)
                for index, item in enumerate(items)
            )
        else:
            calls = (
                Call(result, index, method, function, (items[index * size : (index + 1) * size],))
                for index in range(count)
            )
        if count:
            self._submit(result, calls, is_waited=is_waited)
        return result

    def _imap(
        self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int, is_ordered: bool
    ) -> IMapIterator:
        self._check_running()
        check_at_least("chunksize", chunksize, 1)
        iterator = IMapIterator(self._crew, self._function(func), iterable, chunksize, is_ordered)
        self._iterators.add(iterator)
        return iterator


class _Process:
    """A worker, with the attributes of `multiprocessing.Pool`'s processes that programs use."""

    def __init__(self, actor: Any) -> None:
        self._id: str = actor._actor_id
        # Weak: keeping this object must not keep the worker.
        self._actor = weakref.ref(actor)

    @property
    def pid(self) -> int | None:
        """The pid of the worker; `None` once it has ended. Waits for the initializer."""
        found = get_actor(self._id)
        if found is None or found.state == "DEAD":
            return None
        if found.pid:
            # The worker itself is not asked: it may be busy with a long call.
            return found.pid
        actor = self._actor()
        return None if actor is None else int(sooner.get(actor.pid.remote()))

    def is_alive(self) -> bool:
        """Whether the worker has not ended."""
        found = get_actor(self._id)
        return found is not None and found.state != "DEAD"


class JoinableQueue(Queue):
    """A queue that knows how many of its items are done, with the interface of
    `multiprocessing.JoinableQueue`.

    Its handle can be passed to tasks, actors and workers of a pool.

    Args:
        maxsize: Items at most; unbounded when 0 or less.
        actor_options: Options of the actor, as for `.options()`; `num_cpus` is 0 by default.

    Example:
        >>> queue = JoinableQueue()  # doctest: +SKIP
        >>> queue.put("work")  # doctest: +SKIP
        >>> queue.get(), queue.task_done(), queue.join()  # doctest: +SKIP
        ('work', None, None)
    """

    def _actor_class(self) -> type:
        return _JoinableQueueActor

    def task_done(self) -> None:
        """Say that an item from `get` is done.

        Raises:
            ValueError: Called more often than there were items.
        """
        if not sooner.get(self.actor.task_done.remote()):
            raise ValueError("task_done() called too many times: once for every item that was put")

    def join(self) -> None:
        """Wait until every item that was put is done."""
        pause = 0.005
        while not sooner.get(self.actor.all_done.remote(secrets.token_bytes(8))):
            # The actor already has as many waiting calls as it may have.
            time.sleep(pause)
            pause = min(2 * pause, 0.2)


class _JoinableQueueActor(QueueActor):
    async def task_done(self) -> bool:
        """Record one item as done; False if all items were done already."""
        if self._open == 0:
            return False
        self._open -= 1
        if self._open == 0:
            for joiner in self._joiners.values():
                if not joiner.done():
                    joiner.set_result(True)
        return True

    async def all_done(self, ticket: bytes) -> bool:
        """Wait until every item is done; False at once if too many calls wait already."""
        if self._open == 0:
            return True
        if self._must_come_again():
            return False
        self._joiners[ticket] = asyncio.get_running_loop().create_future()
        try:
            return await self._joiners[ticket]
        finally:
            del self._joiners[ticket]
