"""`sooner.get` and `sooner.wait` for event loops, and what asyncio has for futures.

Nothing here starts a thread or a loop: every function waits in the event loop of its caller, also inside
asyncio actors. When a wait is cancelled or its time is up, the tasks go on; `sooner.cancel` ends them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal, TypeVar, overload

from sooner import _sooner
from sooner._engine.aio import Arrivals, check_session
from sooner.exceptions import GetTimeoutError

__all__ = ["as_completed", "gather", "get", "wait"]

T = TypeVar("T")

# Longer waits (seconds) overflow the clocks of some event loops.
_TIMEOUT_MAX = 1e8

# How long reading values from disk may take after the timeout of a `get` (seconds): as in the engine.
_FROM_DISK_SECONDS = 10.0


@overload
async def get(refs: _sooner.ObjectRef[T], *, timeout: float | None = None) -> T: ...
@overload
async def get(
    refs: list[_sooner.ObjectRef[T]] | tuple[_sooner.ObjectRef[T], ...], *, timeout: float | None = None
) -> list[T]: ...
async def get(refs: Any, *, timeout: float | None = None) -> Any:
    """Wait for one reference or several of them, and return the value or the list of values.

    Args:
        refs: One reference, or a list or tuple of them.
        timeout: Seconds to wait at most; 0 or less looks without waiting; None waits for ever. What is
            on disk is ready, and is read within 10 s even if the time is up.

    Returns:
        The value of the reference; for several, the list of their values in their order.

    Raises:
        GetTimeoutError: A value was not there in time. The task goes on.
        Exception: What a task raised, as soon as one has failed: the first one in their order of those that
            have by then. The others go on.
        TypeError: `refs` holds something else, or `timeout` is no number.
        ValueError: `timeout` is not a number of seconds (NaN), or a reference belongs to an earlier session.

    Example:
        >>> async def main() -> None:  # doctest: +SKIP
        ...     print(await sooner.aio.get([f.remote(1), f.remote(2)], timeout=10))
    """
    listed = dict.fromkeys([refs] if isinstance(refs, _sooner.ObjectRef) else _listed(refs, "get"))
    seconds = _seconds(timeout)
    in_time = await _come(listed, seconds)
    if any(map(_sooner.has_failed, listed)):
        # A failure is raised without waiting for the other references.
        return _sooner.get(refs)
    if not in_time and all(map(_sooner.is_at_node, listed)):
        # A value on disk is ready: it only has to be read.
        in_time = await _come(listed, _FROM_DISK_SECONDS)
    if not in_time:
        raise _too_late(sum(not _sooner.is_ready(ref) for ref in listed), len(listed), seconds)
    return _sooner.get(refs)


async def wait(
    refs: Sequence[_sooner.ObjectRef[T]], *, num_returns: int = 1, timeout: float | None = None
) -> tuple[list[_sooner.ObjectRef[T]], list[_sooner.ObjectRef[T]]]:
    """Wait until some of the references are ready: until `get` would not wait for them.

    Args:
        refs: A list or tuple of references, each at most once.
        num_returns: How many of them, at least 1 and at most all; of no references none are ready.
        timeout: Seconds to wait at most; 0 or less looks without waiting; None waits for ever.

    Returns:
        `num_returns` references that are ready, or fewer when the time is up, and the rest; both in the order
        of `refs`. A reference whose task failed is ready.

    Raises:
        TypeError: `refs` holds something else, or `timeout` is no number.
        ValueError: `num_returns` does not fit, a reference is there twice or belongs to an earlier
            session, or `timeout` is not a number of seconds (NaN).
    """
    listed = _listed(refs, "wait")
    seconds = _seconds(timeout)
    if not listed:
        await asyncio.sleep(0)
        return [], []
    # Checks the arguments, and takes the references that are ready already.
    ready, rest = _sooner.wait(listed, num_returns=num_returns, timeout=0)
    arrivals = Arrivals(rest if len(ready) < num_returns else [])
    try:
        await _all_came(arrivals, num_returns - len(ready), seconds)
    finally:
        arrivals.close()
    return _sooner.wait(listed, num_returns=num_returns, timeout=0)


def as_completed(
    refs: Sequence[_sooner.ObjectRef[T]], *, timeout: float | None = None
) -> AsyncIterator[_sooner.ObjectRef[T]]:
    """Iterate over references in the order in which they get ready.

    Args:
        refs: A list or tuple of references; one that is there twice comes once.
        timeout: Seconds for the whole iteration, from its first step; None waits for ever.

    Returns:
        An asynchronous iterator of references that are ready: awaiting them returns or raises without delay.

    Raises:
        GetTimeoutError: Some were not ready in time (by the iterator).
        TypeError: `refs` holds something else, or `timeout` is no number.
        ValueError: `timeout` is not a number of seconds (NaN).

    Example:
        >>> async def main() -> None:  # doctest: +SKIP
        ...     async for ref in sooner.aio.as_completed([f.remote(n) for n in range(10)]):
        ...         print(await ref)
    """
    return _completed(dict.fromkeys(_listed(refs, "as_completed")), _seconds(timeout))


async def _completed(
    pending: dict[_sooner.ObjectRef[T], None], seconds: float | None
) -> AsyncIterator[_sooner.ObjectRef[T]]:
    deadline = _deadline(seconds)
    total = len(pending)
    arrivals = Arrivals(pending)
    try:
        while pending:
            ref = await arrivals.next(deadline)
            if ref is None:
                raise _too_late(len(pending), total, seconds)
            check_session(ref)
            del pending[ref]
            yield ref
    finally:
        arrivals.close()


@overload
async def gather(*refs: _sooner.ObjectRef[T], return_exceptions: Literal[False] = False) -> list[T]: ...
@overload
async def gather(*refs: _sooner.ObjectRef[T], return_exceptions: bool) -> list[T | BaseException]: ...
async def gather(*refs: _sooner.ObjectRef[Any], return_exceptions: bool = False) -> list[Any]:
    """Wait for all references, as `asyncio.gather` does for awaitables, at one wake-up per batch of results.

    Args:
        *refs: References.
        return_exceptions: Put the exceptions of failed tasks into the list instead of raising the first that
            comes.

    Returns:
        The values in the order of `refs`.

    Raises:
        Exception: What the first task that failed raised; the others go on.
        TypeError: An argument is no reference.
    """
    given: tuple[Any, ...] = refs
    if len(given) == 1 and isinstance(given[0], list | tuple):
        raise TypeError("gather() takes references one by one, not a list: call gather(*refs)")
    listed = _listed(given, "gather")
    places: dict[_sooner.ObjectRef[Any], list[int]] = {}
    for index, ref in enumerate(listed):
        places.setdefault(ref, []).append(index)
    values: list[Any] = [None] * len(listed)
    arrivals = Arrivals(places)
    try:
        await asyncio.sleep(0)
        for _ in range(len(places)):
            came = await arrivals.next(None)
            assert came is not None, "there is no deadline"
            value = _value(came, return_exceptions)
            for index in places[came]:
                values[index] = value
    finally:
        arrivals.close()
    return values


def _value(ref: _sooner.ObjectRef[Any], return_exceptions: bool) -> Any:
    try:
        return _sooner.get(ref, timeout=0)
    except Exception as error:
        if not return_exceptions:
            raise
        return error


async def _come(refs: dict[_sooner.ObjectRef[Any], None], seconds: float | None) -> bool:
    """Wait until all of `refs` are ready or one has failed. False when the time is up first."""
    arrivals = Arrivals(refs)
    try:
        return await _all_came(arrivals, len(refs), seconds, until_failure=True)
    finally:
        arrivals.close()


async def _all_came(arrivals: Arrivals, count: int, seconds: float | None, *, until_failure: bool = False) -> bool:
    """Wait for `count` references (`until_failure`: or for a failed one). False if the time is up first."""
    # One turn of the loop, as any other await would give: references that are ready must not starve other
    # coroutines.
    await asyncio.sleep(0)
    deadline = _deadline(seconds)
    for _ in range(count):
        came = await arrivals.next(deadline)
        if came is None:
            return False
        check_session(came)
        if until_failure and _sooner.has_failed(came):
            break
    return True


def _too_late(late: int, total: int, seconds: float | None) -> GetTimeoutError:
    return GetTimeoutError(f"{late} of {total} objects were not ready within {seconds} s; their tasks go on")


def _listed(refs: Any, verb: str) -> list[_sooner.ObjectRef[Any]]:
    if not isinstance(refs, list | tuple):
        also = "an ObjectRef, or " if verb == "get" else ""
        raise TypeError(f"sooner.aio.{verb}() takes {also}a list or tuple of ObjectRefs, not {type(refs).__name__}")
    for ref in refs:
        if not isinstance(ref, _sooner.ObjectRef):
            raise TypeError(f"sooner.aio.{verb}() takes ObjectRefs, not {type(ref).__name__}")
    return list(refs)


def _seconds(timeout: Any) -> float | None:
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise TypeError(f"timeout must be a number of seconds or None, not {type(timeout).__name__}")
    if timeout != timeout:
        raise ValueError("timeout must be a number of seconds or None, not NaN")
    return min(max(0.0, float(timeout)), _TIMEOUT_MAX)


def _deadline(seconds: float | None) -> float | None:
    return None if seconds is None else asyncio.get_running_loop().time() + seconds
