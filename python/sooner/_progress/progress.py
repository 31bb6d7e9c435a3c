"""`tqdm` for tasks, actors and the driver, and `progress` over references."""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

import sooner
from sooner import _sooner
from sooner._progress.bar import Bar

T = TypeVar("T")

# The least time between two reports of a bar (seconds). A worker's reports go through a pipe, and into its
# log file.
_DRIVER_SECONDS = 0.05
_WORKER_SECONDS = 0.1
# After this long without a result (seconds), a bar of `progress` is shown anew, since its times go on.
_STILL_SECONDS = 1.0

_numbers = itertools.count()


class tqdm(Generic[T]):  # noqa: N801  the name that programs know
    """A progress bar, with the most used part of tqdm's interface.

    It works in the driver, in tasks and in actors. The driver draws the bars of all processes below each
    other; what anybody prints goes above them. When the driver's standard error is no terminal, a bar prints
    a line for every 10 % instead, at most one a second.

    Args:
        iterable: What to iterate over; without one, call `update`.
        desc: What is done.
        total: How much there is to do; by default the length of `iterable`, if it has one.
        leave: Whether the bar stays when it is over; by default those of the driver do and those of workers
            do not.
        unit: What is counted.
        initial: What is done already.
        disable: Show nothing.

    Attributes:
        n: How much is done.
        total: Of how much.

    Raises:
        TypeError: `iterable` is none, or `total` or `initial` is no number.
        ValueError: `total` or `initial` is negative.

    Example:
        >>> from sooner.util.progress import tqdm
        >>> @sooner.remote
        ... def train(epochs: int) -> None:
        ...     for epoch in tqdm(range(epochs), desc="train"):
        ...         step(epoch)
    """

    def __init__(
        self,
        iterable: Iterable[T] | None = None,
        desc: str | None = None,
        total: float | None = None,
        leave: bool | None = None,
        *,
        unit: str = "it",
        initial: float = 0,
        disable: bool = False,
    ) -> None:
        # First, so that an object whose construction fails can be destroyed.
        self._is_open = False
        length = _length(iterable)
        if total is None:
            total = length
        self._iterable = iterable
        self.n = _number("initial", initial)
        self.total = None if total is None else _number("total", total)
        self.disable = disable
        self._is_worker = _in_worker()
        self._begin = time.monotonic()
        self._pause = _WORKER_SECONDS if self._is_worker else _DRIVER_SECONDS
        self._reported = 0.0
        pid = os.getpid()
        self._bar = Bar(
            f"{pid}.{next(_numbers)}",
            title=str(desc or ""),
            unit=str(unit),
            initial=self.n,
            is_kept=not self._is_worker if leave is None else bool(leave),
            pid=pid if self._is_worker else 0,
        )
        self._is_open = not disable
        self.refresh()

    def __iter__(self) -> Iterator[T]:
        if self._iterable is None:
            raise TypeError("this tqdm has no iterable: call update(), or give one")
        try:
            for item in self._iterable:
                yield item
                self.update()
        finally:
            self.close()

    def __len__(self) -> int:
        if self.total is None:
            raise TypeError("this tqdm has no length: its total is not known")
        return int(self.total)

    def __bool__(self) -> bool:
        return True

    def update(self, n: float = 1) -> None:
        """So much more is done; a negative number takes it back."""
        self.n += n
        if self._is_open and time.monotonic() - self._reported >= self._pause:
            self.refresh()

    def set_description(self, desc: str | None = None, refresh: bool = True) -> None:
        """Changes what stands in front of the bar."""
        self._bar.title = str(desc or "")
        if refresh:
            self.refresh()

    def set_postfix(self, ordered_dict: dict[str, Any] | None = None, refresh: bool = True, **kwargs: Any) -> None:
        """Changes what stands behind the bar: names with values, for instance `set_postfix(loss=0.25)`."""
        self.set_postfix_str(
            ", ".join(f"{name}={_shown(value)}" for name, value in {**(ordered_dict or {}), **kwargs}.items()), refresh
        )

    def set_postfix_str(self, s: str = "", refresh: bool = True) -> None:
        """Changes what stands behind the bar."""
        self._bar.note = str(s)
        if refresh:
            self.refresh()

    def refresh(self) -> None:
        """Shows how the bar stands, now."""
        if not self._is_open:
            return
        self._reported = time.monotonic()
        self._set()
        if self._is_worker:
            _tell(self._bar.message())
        else:
            from sooner._progress.bars import board  # start-up: 19.3 ms

            board.update(self._bar)

    def close(self) -> None:
        """The bar is over. May be called again."""
        if not self._is_open:
            return
        self._is_open = False
        self._set()
        if self._is_worker:
            _tell(self._bar.message(closed=True))
        else:
            from sooner._progress.bars import board  # start-up: 19.3 ms

            board.close(self._bar)

    def _set(self) -> None:
        self._bar.done, self._bar.total = self.n, self.total
        self._bar.elapsed = time.monotonic() - self._begin

    def __enter__(self) -> tqdm[T]:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if self._is_open and not sys.is_finalizing():
            self.close()

    def __repr__(self) -> str:
        return f"tqdm({self._bar.title!r}, n={self.n}, total={self.total})"


def progress(
    refs: Iterable[_sooner.ObjectRef[T]] | _sooner.ObjectRefGenerator[T],
    *,
    description: str | None = None,
    total: float | None = None,
    unit: str = "it",
    leave: bool | None = None,
    disable: bool = False,
    yield_obj_refs: bool = False,
) -> Iterator[Any]:
    """Yield the results of references as they come, with a progress bar.

    Args:
        refs: References, each at most once; or the generator of a streaming task, whose items come in their
            order.
        description: What stands in front of the bar.
        total: How many results count as all; by default as many as there are references.
        unit: What is counted.
        leave: Whether the bar stays when it is over; True by default in the driver.
        disable: Show no bar.
        yield_obj_refs: Yield the references, which are ready, instead of their values.

    Yields:
        Values, or references. A task that failed raises its error and ends the iteration; with
        `yield_obj_refs` the caller decides.

    Raises:
        TypeError: `refs` is one reference, or holds something else; or `total` is no number.
        ValueError: A reference is there twice, or `total` is negative.

    Example:
        >>> squares = [f.remote(i) for i in range(100)]  # doctest: +SKIP
        >>> total = sum(sooner.progress(squares, description="squares"))  # doctest: +SKIP
    """
    given: Any = refs
    if isinstance(given, _sooner.ObjectRef) or not isinstance(given, Iterable):
        raise TypeError(f"progress() takes an iterable of ObjectRefs, not {type(given).__name__}: put it into a list")
    if total is not None:
        _number("total", total)
    if isinstance(refs, _sooner.ObjectRefGenerator):
        bar = tqdm[Any](desc=description, total=total, unit=unit, leave=leave, disable=disable)
        return _iterate_stream(refs, bar, yield_obj_refs)
    pending = list(refs)
    if pending:
        # Errors in the references are raised at the call, not at the first `next`.
        _sooner.wait(pending, num_returns=1, timeout=0)
    return _iterate(pending, description, total, unit, leave, disable, yield_obj_refs)


def _iterate(
    pending: list[_sooner.ObjectRef[Any]],
    description: str | None,
    total: float | None,
    unit: str,
    leave: bool | None,
    disable: bool,
    yield_obj_refs: bool,
) -> Iterator[Any]:
    with tqdm[Any](
        desc=description, total=len(pending) if total is None else total, unit=unit, leave=leave, disable=disable
    ) as bar:
        while pending:
            # By its public name: an interrupt here may cancel the tasks (sooner._engine.interrupt).
            if not sooner.wait(pending, num_returns=1, timeout=_STILL_SECONDS)[0]:
                bar.refresh()
                continue
            ready, pending = sooner.wait(pending, num_returns=len(pending), timeout=0)
            # References are dropped one by one: a yielded value may be freed while others are still needed.
            ready.reverse()
            while ready:
                ref = ready.pop()
                value = ref if yield_obj_refs else sooner.get(ref)
                bar.update()
                del ref
                yield value
                del value


def _iterate_stream(generator: _sooner.ObjectRefGenerator[Any], bar: tqdm[Any], yield_obj_refs: bool) -> Iterator[Any]:
    with bar:
        while True:
            if not sooner.wait([generator], timeout=_STILL_SECONDS)[0]:
                bar.refresh()
                continue
            ref = next(generator, None)
            if ref is None:
                return
            value = ref if yield_obj_refs else sooner.get(ref)
            bar.update()
            yield value


def _in_worker() -> bool:
    return _sooner.is_running() and _sooner.identity()[4]


def _tell(message: dict[str, Any]) -> None:
    from sooner._engine import worker  # start-up: 37.1 ms

    worker.tell_driver(message)


def _length(iterable: Any) -> int | None:
    if iterable is not None and not hasattr(iterable, "__iter__"):
        raise TypeError(f"tqdm() takes an iterable, not {type(iterable).__name__}: give a number as total=")
    return len(iterable) if hasattr(iterable, "__len__") else None


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    if not value >= 0:
        raise ValueError(f"{name} must be a number of at least 0, not {value!r}")
    return value


def _shown(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
