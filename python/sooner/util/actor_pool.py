"""A set of actors that share work: each call goes to the actor that has the fewest."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

import sooner
from sooner.exceptions import ActorDiedError, TaskError
from sooner.util import clock
from sooner.util.checks import check_at_least, is_number
from sooner.util.pool_members import Member, Members
from sooner.util.remote_errors import outcome

H = TypeVar("H")
T = TypeVar("T")
V = TypeVar("V")
_Call = Callable[[Any, Any], "sooner.ObjectRef[Any]"]


class _Outcome(NamedTuple):
    value: Any
    error: BaseException | None


class ActorPool(Generic[H]):
    """Actors that share work. A pool is used by one thread at a time.

    A call goes to the actor that has the fewest, and among equals to the one that has waited longest. While
    every actor has `in_flight` calls, it waits in the pool.

    An actor that is dead for good leaves the pool when one of its calls has failed with `ActorDiedError`. The
    pool does not know of the death before, even if the actor had nothing to do when it died. Each call that
    the actor had raises `ActorDiedError` at its place, and none is repeated: it may have run in part. An
    actor that restarts (`max_restarts`) is not dead.

    With a `factory`, a new actor takes the place of each that died, and calls that wait go to it, too. What
    the factory raises comes out of the method of the pool that noticed the death, once. No result is lost by
    it, and the pool goes on with the actors that are left. When none is left, calls that wait raise the death
    of the last one.

    Args:
        actors: Handles, at least one. The pool is their user; it does not end them.
        in_flight: How many calls each actor may have at once. With 2, the next call is at the actor
            already when one ends. A call can then wait behind a long one, although another actor is free.
        factory: Makes a handle of a new actor, without arguments, for instance `Worker.remote`.

    Raises:
        TypeError: Something in `actors` is no handle, or `factory` cannot be called.
        ValueError: There is no actor, or one is there twice, or `in_flight` is no whole number of at least 1.

    Example:
        >>> pool = sooner.util.ActorPool([Worker.remote() for _ in range(2)])  # doctest: +SKIP
        >>> list(pool.map(lambda actor, n: actor.double.remote(n), [1, 2, 3]))  # doctest: +SKIP
        [2, 4, 6]
    """

    def __init__(self, actors: Iterable[H], in_flight: int = 1, factory: Callable[[], H] | None = None) -> None:
        check_at_least("in_flight", in_flight, 1)
        if isinstance(factory, sooner.ActorClass):
            raise TypeError(f"factory is a function that makes an actor: factory={factory.__name__}.remote")
        if factory is not None and not callable(factory):
            raise TypeError(f"factory is a function that makes an actor, not {type(factory).__name__}")
        self._members: Members[H] = Members(in_flight, factory)
        # Calls by submission number: `_waiting` for an actor, `_running`, or `_ended`.
        self._waiting: deque[tuple[int, _Call, Any]] = deque()
        self._running: dict[sooner.ObjectRef[Any], tuple[int, Member[H]]] = {}
        # For calls with several returns: all references, by the first one.
        self._lists: dict[sooner.ObjectRef[Any], list[sooner.ObjectRef[Any]]] = {}
        self._ended: dict[int, _Outcome] = {}
        # Running calls whose result the program has given up.
        self._given_up: set[int] = set()
        self._submitted = 0
        self._next = 0
        self._death: BaseException | None = None
        for actor in actors:
            self._members.add(actor)
        if not self._members:
            raise ValueError("an ActorPool needs at least one actor")

    def submit(self, fn: Callable[[H, V], sooner.ObjectRef[Any]], value: V) -> None:
        """Call `fn(actor, value)` with the least busy actor; wait in a queue while none may have more calls.

        Args:
            fn: Makes the call and returns its reference, or the list of them of a call with several returns.
            value: Its second argument.

        Raises:
            TypeError: `fn` returned something else.
            Exception: What `fn` raised. If the call had to wait, both are raised in the place of its result.
        """
        number = self._submitted
        self._submitted += 1
        self._waiting.append((number, fn, value))
        self._start()
        made = self._ended.get(number)
        if made is not None and made.error is not None:
            del self._ended[number]
            raise made.error

    def map(self, fn: Callable[[H, V], sooner.ObjectRef[T]], values: Iterable[V]) -> Iterator[T]:
        """Call `fn(actor, value)` for every value; results in the order of the values.

        What is left from earlier `submit`s is dropped. An error of a call is raised at its place; the results
        after it can still be taken.
        """
        self._forget_earlier()
        for value in values:
            self.submit(fn, value)
        return _Results(self.has_next, self.get_next)

    def map_unordered(self, fn: Callable[[H, V], sooner.ObjectRef[T]], values: Iterable[V]) -> Iterator[T]:
        """Call `fn(actor, value)` for every value; results as they come.

        What is left from earlier `submit`s is dropped. After an error of a call, more results can be taken.
        """
        self._forget_earlier()
        for value in values:
            self.submit(fn, value)
        return _Results(self.has_next, self.get_next_unordered)

    def _forget_earlier(self) -> None:
        while self.has_next():
            # Results are dropped, errors too.
            self._ended.clear()
            if self._running:
                self._collect(None)
            else:
                # No live actor is left to take these calls.
                self._waiting.clear()

    def has_next(self) -> bool:
        """Whether a result is still to be taken."""
        return bool(self._ended or self._waiting) or len(self._running) > len(self._given_up)

    def has_free(self) -> bool:
        """Whether a call would go to an actor at once: one of them has fewer than `in_flight` calls."""
        self._collect(0)
        return self._members.has_room() and not self._waiting

    def pop_idle(self) -> H | None:
        """Take an actor that has no calls out of the pool; `None` when each of them has one.

        The pool does not replace it. With `in_flight` above 1 there may be none although `has_free()` holds.
        """
        self._collect(0)
        return self._members.pop_idle()

    def push(self, actor: H) -> None:
        """Add an actor.

        Raises:
            TypeError: It is no handle.
            ValueError: It is in the pool already.
        """
        self._members.add(actor)
        self._start()

    def get_next(self, timeout: float | None = None, ignore_if_timedout: bool = False) -> Any:
        """Take the result of the earliest call whose result has not been taken.

        Args:
            timeout: Seconds to wait; for ever by default.
            ignore_if_timedout: Give the call up when the time is over, so that the next `get_next` takes the
                one after.

        Raises:
            StopIteration: Nothing is left.
            TimeoutError: The time is over.
            RuntimeError: The pool has no actor for the calls that wait.
            Exception: What the call raised.
        """
        deadline = _deadline(timeout)
        if not self.has_next():
            raise StopIteration("no result is left in the pool")
        number = self._earliest()
        while number not in self._ended:
            if self._collect(_left(deadline)) or number in self._ended:
                continue
            self._check_served()
            if ignore_if_timedout:
                self._give_up(number)
            raise TimeoutError(f"no result within {timeout} s; the call goes on")
        return self._take(number)

    def get_next_unordered(self, timeout: float | None = None, ignore_if_timedout: bool = False) -> Any:
        """Take the result of any call that has ended.

        Args:
            timeout: Seconds to wait; for ever by default.
            ignore_if_timedout: Taken for compatibility: nothing in particular is given up when the time is
                over.

        Raises:
            StopIteration: Nothing is left.
            TimeoutError: The time is over.
            RuntimeError: The pool has no actor for the calls that wait.
            Exception: What the call raised.
        """
        deadline = _deadline(timeout)
        if not self.has_next():
            raise StopIteration("no result is left in the pool")
        while not self._ended:
            if not self._collect(_left(deadline)) and not self._ended:
                self._check_served()
                raise TimeoutError(f"no result within {timeout} s; the calls go on")
        return self._take(next(iter(self._ended)))

    def _check_served(self) -> None:
        if self._waiting and not self._running:
            raise RuntimeError(
                f"the pool has no actor, and {len(self._waiting)} calls wait for one: push() an actor, and they run"
            )

    def _earliest(self) -> int:
        """The number of the earliest call whose result was not taken. All calls below `_next` were taken."""
        known = (
            {number for number, _ in self._running.values()} - self._given_up if self._next not in self._ended else ()
        )
        while self._next not in self._ended and self._next not in known and self._next < self._first_waiting():
            self._next += 1
        return self._next

    def _take(self, number: int) -> Any:
        outcome = self._ended.pop(number)
        if outcome.error is not None:
            raise outcome.error
        return outcome.value

    def _give_up(self, number: int) -> None:
        if any(number == running for running, _ in self._running.values()):
            self._given_up.add(number)
        else:
            self._waiting = deque(call for call in self._waiting if call[0] != number)
        self._next = number + 1

    def _first_waiting(self) -> int:
        return self._waiting[0][0] if self._waiting else self._submitted

    def _fill(self) -> None:
        """Replace actors that have died, and start calls that wait."""
        try:
            self._members.replace_dead()
        finally:
            self._start()

    def _start(self) -> None:
        while self._waiting and (member := self._members.take()) is not None:
            try:
                number, fn, value = self._waiting.popleft()
            except IndexError:
                # Another thread submitted it and has just taken it.
                self._members.give_back(member)
                return
            try:
                made: Any = fn(member.actor, value)
                # The returns of one call become ready together: the first reference stands for all.
                ref = _first(made)
            except BaseException as error:
                self._members.give_back(member)
                if not isinstance(error, Exception):
                    raise
                self._ended[number] = _Outcome(None, error)
                continue
            if ref is not made:
                self._lists[ref] = made
            self._running[ref] = (number, member)

    def _collect(self, timeout: float | None) -> bool:
        """Take the outcomes of calls that have ended and start others; False if none ended in time."""
        known = len(self._ended)
        # What an exception kept from being done when the last outcomes were taken.
        self._fill()
        if len(self._ended) > known:
            # A call could not be made, which is an outcome: nobody has to wait for that of another one.
            timeout = 0
        if not self._running:
            if self._waiting and self._death is not None:
                # No live actor is left to take these calls.
                self._waiting.clear()
                raise self._death
            return False
        refs = list(self._running)
        sooner.wait(refs, num_returns=1, timeout=timeout)
        ready, _ = sooner.wait(refs, num_returns=len(refs), timeout=0)
        interrupt: BaseException | None = None
        for ref in ready:
            found = self._take_ended(ref)
            interrupt = interrupt if found is None else found
        if interrupt is not None:
            self._start()
            raise interrupt
        self._fill()
        return bool(ready)

    def _take_ended(self, ref: sooner.ObjectRef[Any]) -> BaseException | None:
        """Take the outcome of one call. Returns an exception that a signal handler raised meanwhile."""
        error, value, interrupt = outcome(functools.partial(sooner.get, self._lists.get(ref, ref)))
        try:
            self._lists.pop(ref, None)
            number, member = self._running.pop(ref)
            if number in self._given_up:
                self._given_up.discard(number)
            else:
                self._ended[number] = _Outcome(value, error)
            if _is_death(error):
                self._death = error
                self._members.on_died(member)
            else:
                self._members.on_ended(member)
            return interrupt
        finally:
            # A reference cycle through the traceback would keep the actor alive.
            del error, interrupt


class _Results(Iterator[Any]):
    """The results that are left in a pool. Unlike a generator, it goes on after an error of a call."""

    def __init__(self, has_next: Callable[[], bool], get_next: Callable[[], Any]) -> None:
        self._has_next = has_next
        self._get_next = get_next

    def __next__(self) -> Any:
        if not self._has_next():
            raise StopIteration
        try:
            return self._get_next()
        except StopIteration as error:
            # It would end a loop without a word.
            raise RuntimeError("a call of an ActorPool raised StopIteration") from error


def _is_death(error: BaseException | None) -> bool:
    """Whether the called actor is dead, rather than having raised the error of another actor's death."""
    return isinstance(error, ActorDiedError) and TaskError not in type(error).__mro__


def _first(made: Any) -> Any:
    """The reference that stands for a call: what `.remote()` returned, or the first of its list."""
    given = made if isinstance(made, list) and made else [made]
    for ref in given:
        if not isinstance(ref, sooner.ObjectRef | sooner.ObjectRefGenerator):
            raise TypeError(
                "the function of an ActorPool returns what .remote() gave, a reference or a list of references, "
                f"not {type(ref).__name__}: lambda actor, value: actor.method.remote(value)"
            )
    return given[0]


def _deadline(timeout: float | None) -> float | None:
    if timeout is None:
        return None
    if not is_number(timeout):
        raise TypeError(f"timeout must be a number of seconds or None, not {timeout!r}")
    return clock.monotonic() + float(timeout)


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - clock.monotonic())
