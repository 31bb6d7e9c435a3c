"""Results in the order in which they become ready, without waiting for the slowest.

Both functions are generators over `sooner.wait`. They take everything that is ready in one pass, so that many
references cost little even when results arrive one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, Protocol, TypeVar, overload

import sooner
from sooner.util.checks import check_at_least

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
A_contra = TypeVar("A_contra", contravariant=True)


class _Function(Protocol[A_contra, T_co]):
    """A remote function of one argument."""

    @property
    def _function(self) -> Callable[[A_contra], T_co]: ...


class _Method(Protocol[A_contra, T_co]):
    """A method of an actor, of one argument."""

    @property
    def remote(self) -> Callable[[A_contra], sooner.ObjectRef[T_co]]: ...


@overload
def as_completed(
    refs: Iterable[sooner.ObjectRef[T]], *, chunk_size: int = 10, yield_obj_refs: Literal[False] = False
) -> Iterator[T]: ...
@overload
def as_completed(
    refs: Iterable[sooner.ObjectRef[T]], *, chunk_size: int = 10, yield_obj_refs: Literal[True]
) -> Iterator[sooner.ObjectRef[T]]: ...
@overload
def as_completed(
    refs: Iterable[sooner.ObjectRef[Any]], *, chunk_size: int = 10, yield_obj_refs: bool = False
) -> Iterator[Any]: ...
def as_completed(
    refs: Iterable[sooner.ObjectRef[Any]], *, chunk_size: int = 10, yield_obj_refs: bool = False
) -> Iterator[Any]:
    """Yield the results of references as they come.

    Args:
        refs: References, each at most once.
        chunk_size: At least 1. Taken for compatibility; every result that has come is yielded at once.
        yield_obj_refs: Yield the references instead of their values.

    Yields:
        Values, or references that are ready. A reference whose task failed raises its error and ends the
        iteration; with `yield_obj_refs` the caller decides.

    Raises:
        TypeError: `refs` is one reference, or holds something else.
        ValueError: A reference is there twice, or `chunk_size` is below 1.

    Example:
        >>> for value in sooner.util.as_completed([f.remote(i) for i in range(3)]):  # doctest: +SKIP
        ...     print(value)
    """
    check_at_least("chunk_size", chunk_size, 1)
    given: Any = refs
    if isinstance(given, sooner.ObjectRef):
        raise TypeError("as_completed() takes an iterable of ObjectRefs, not one: put it into a list")
    pending = list(refs)
    # Wrong arguments raise at the call, not at the first `next`.
    if pending:
        sooner.wait(pending, num_returns=1, timeout=0)
    return _completed(pending, yield_obj_refs)


def _completed(pending: list[sooner.ObjectRef[Any]], yield_obj_refs: bool) -> Iterator[Any]:
    while pending:
        ready, pending = _take_ready(pending)
        # References are dropped one by one: a value that was yielded may be freed while later ones are
        # pending.
        ready.reverse()
        while ready:
            ref = ready.pop()
            yield ref if yield_obj_refs else sooner.get(ref)


@overload
def map_unordered(
    fn: _Function[A_contra, T] | _Method[A_contra, T],
    items: Iterable[A_contra],
    *,
    backpressure_size: int = 100,
    chunk_size: int = 10,
    yield_obj_refs: Literal[False] = False,
) -> Iterator[T]: ...
@overload
def map_unordered(
    fn: _Function[A_contra, T] | _Method[A_contra, T],
    items: Iterable[A_contra],
    *,
    backpressure_size: int = 100,
    chunk_size: int = 10,
    yield_obj_refs: Literal[True],
) -> Iterator[sooner.ObjectRef[T]]: ...
@overload
def map_unordered(
    fn: _Function[A_contra, Any] | _Method[A_contra, Any],
    items: Iterable[A_contra],
    *,
    backpressure_size: int = 100,
    chunk_size: int = 10,
    yield_obj_refs: bool = False,
) -> Iterator[Any]: ...
def map_unordered(
    fn: Any,
    items: Iterable[Any],
    *,
    backpressure_size: int = 100,
    chunk_size: int = 10,
    yield_obj_refs: bool = False,
) -> Iterator[Any]:
    """Call a remote function or method for every item and yield the results as they come.

    Args:
        fn: A remote function, or a method of an actor: something with `.remote(item)`.
        items: The arguments; taken lazily.
        backpressure_size: Calls in flight at most, at least 1. No more is taken from `items` until some are
            done.
        chunk_size: At least 1. Taken for compatibility; every result that has come is yielded at once.
        yield_obj_refs: Yield the references instead of their values.

    Yields:
        Values, or references that are ready, in the order in which they come.

    Raises:
        TypeError: `fn` cannot be called remotely.
        ValueError: A size is below 1.
    """
    check_at_least("backpressure_size", backpressure_size, 1)
    check_at_least("chunk_size", chunk_size, 1)
    call = getattr(fn, "remote", None)
    if call is None:
        raise TypeError(
            f"map_unordered() takes a remote function or an actor's method, not {type(fn).__name__}: "
            "make one with sooner.remote()"
        )
    return _mapped(call, iter(items), backpressure_size, yield_obj_refs)


def _mapped(
    call: Callable[[Any], Any], items: Iterator[Any], in_flight_max: int, yield_obj_refs: bool
) -> Iterator[Any]:
    pending: list[sooner.ObjectRef[Any]] = []
    has_more = True
    while has_more or pending:
        while has_more and len(pending) < in_flight_max:
            try:
                item = next(items)
            except StopIteration:
                has_more = False
                break
            pending.append(call(item))
        if not pending:
            return
        ready, pending = _take_ready(pending)
        ready.reverse()
        while ready:
            ref = ready.pop()
            yield ref if yield_obj_refs else sooner.get(ref)


def _take_ready(
    pending: Sequence[sooner.ObjectRef[Any]],
) -> tuple[list[sooner.ObjectRef[Any]], list[sooner.ObjectRef[Any]]]:
    """The references that are ready, at least one, and the rest."""
    refs = list(pending)
    sooner.wait(refs, num_returns=1)
    ready, rest = sooner.wait(refs, num_returns=len(refs), timeout=0)
    return list(ready), list(rest)
