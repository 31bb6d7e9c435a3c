"""One value from many, by a tree of tasks that combine a few values each.

The values go from worker to worker. The program that asks for the tree has references only, and of those no
more than a few at a time.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar

import sooner
from sooner.util.checks import check_at_least

T = TypeVar("T")

# Values of one task. All of them are in memory at the same time.
_FAN_IN_MAX = 10_000


class _Remote(Protocol[T]):
    """A remote function that combines two values."""

    @property
    def _function(self) -> Callable[[T, T], T]: ...


def tree_reduce(
    function: Callable[[T, T], T] | _Remote[T], refs: Iterable[sooner.ObjectRef[T]], *, fan_in: int = 8
) -> sooner.ObjectRef[T]:
    """Combine the values of references with a function, by a tree of tasks.

    A task takes up to `fan_in` neighbouring values and folds them from the left, as `functools.reduce` does:
    `function(function(a, b), c)`. The function must be associative. It need not be commutative, because the
    order of `refs` is kept.

    Each level of the tree cuts its values into groups of `fan_in` from the left. The rest is a smaller group,
    and a rest of one value goes up without a task. So the tree depends on nothing but `fan_in` and the number
    of references: the result is the same in every run, also that of floating-point numbers. Among n values
    there are n - 1 calls of the function, and ceil(log(n) / log(fan_in)) levels of tasks.

    The call does not wait for values. The value of each level is freed when the next level has used it, and
    so are those of `refs` that nobody else refers to.

    Args:
        function: Takes two values and returns a third one, without changing the two: arrays among them are
            read-only. It is pickled once per call, and freed with the tree. A remote function is its function
            with its options, such as `num_cpus` or `max_retries`, which then hold for every task of the tree.
        refs: At least one reference. A collection is checked before any task is submitted. Of a generator no
            more is taken than the next group needs, so the first tasks are submitted while it goes on; the
            call ends with it.
        fan_in: Values of one task, from 2 to 10,000. All of them are in memory at the same time: large values
            need a small number.

    Returns:
        The reference of the result. If there is only one reference in `refs`, it is this reference, and the
        function is not called. If a value cannot be had, or the function raises, the result has this error.

    Raises:
        TypeError: `function` cannot be called as a function, or `refs` holds something else than references.
        ValueError: There is no reference, `fan_in` is out of its range, or the function cannot return one
            value.

    Example:
        >>> words = [sooner.put(word) for word in ("a", "b", "c")]  # doctest: +SKIP
        >>> sooner.get(sooner.util.tree_reduce(lambda a, b: a + b, words))  # doctest: +SKIP
        'abc'
    """
    check_at_least("fan_in", fan_in, 2)
    if fan_in > _FAN_IN_MAX:
        raise ValueError(f"fan_in must be at most {_FAN_IN_MAX}, not {fan_in}: a task has all its values in memory")
    tree: _Tree[T] = _Tree(_plain(function), _options(function), fan_in)
    for ref in _checked(refs):
        tree.add(ref)
    return tree.root()


def tree_reduce_group(function: Callable[[T, T], T], *values: T) -> T:
    """Fold the values of one group from the left, in a task."""
    return functools.reduce(function, values)


_group = sooner.remote(tree_reduce_group)


class _Tree(Generic[T]):
    """The tree of one call. It grows from the left: a group's task is submitted as soon as the group is full.

    Args:
        function: Combines two values.
        options: Of every task.
        fan_in: The size of a full group.
    """

    def __init__(self, function: Callable[[T, T], T], options: dict[str, Any], fan_in: int) -> None:
        self._function = function
        self._stored: sooner.ObjectRef[Callable[[T, T], T]] | None = None
        self._remote: sooner.RemoteFunction[..., Any] = _group.options(**options)
        self._fan_in = fan_in
        # By level, the last group: it is not full yet. Submitted tasks hold the references of full groups.
        self._groups: list[list[sooner.ObjectRef[T]]] = []

    def add(self, ref: sooner.ObjectRef[T]) -> None:
        """Add the next value."""
        for group in self._groups:
            group.append(ref)
            if len(group) < self._fan_in:
                return
            ref = self._submit(group)
            group.clear()
        self._groups.append([ref])

    def root(self) -> sooner.ObjectRef[T]:
        """Close the groups, from the lowest level up, and return what is left at the top."""
        root: sooner.ObjectRef[T] | None = None
        for group in self._groups:
            whole = group if root is None else [*group, root]
            if whole:
                root = whole[0] if len(whole) == 1 else self._submit(whole)
        if root is None:
            raise ValueError(
                "tree_reduce() needs at least one reference: there is no initial value. "
                "Put one in front, as in [sooner.put(0), *refs]"
            )
        return root

    def _submit(self, group: list[sooner.ObjectRef[T]]) -> sooner.ObjectRef[T]:
        if self._stored is None:
            # An argument, and not a part of the task's code: code is kept for the rest of the session, and a
            # closure may be another one at each call, with data of its own.
            self._stored = sooner.put(self._function)
        ref: sooner.ObjectRef[T] = self._remote.remote(self._stored, *group)
        return ref


def _plain(function: Any) -> Callable[[Any, Any], Any]:
    """The function that combines two values, of a remote function its own."""
    plain: Callable[[Any, Any], Any] = function._function if isinstance(function, sooner.RemoteFunction) else function
    # If the module was not imported, nothing can come from it.
    actor = sys.modules.get("sooner.actor")
    if actor is not None and isinstance(plain, actor.ActorClass | actor.ActorMethod):
        raise TypeError(
            f"tree_reduce() runs tasks, and {plain!r} belongs to an actor: give a function of two values, "
            "plain or remote"
        )
    if not callable(plain):
        raise TypeError(f"tree_reduce() takes a function of two values, not {type(plain).__name__}")
    is_asynchronous = inspect.iscoroutinefunction(plain) or inspect.isasyncgenfunction(plain)
    if is_asynchronous or inspect.isgeneratorfunction(plain):
        raise ValueError(
            f"{_name(plain)} is {'an async' if is_asynchronous else 'a generator'} function: tree_reduce() needs a "
            "plain function that returns the combined value"
        )
    return plain


def _options(function: Any) -> dict[str, Any]:
    """The options of the tasks: those of a remote function, and a name."""
    given = function.given_options() if isinstance(function, sooner.RemoteFunction) else {}
    if given.get("num_returns") not in (None, 1):
        raise ValueError(
            f"{function.__name__} has num_returns={given['num_returns']!r}: a function for tree_reduce() returns one "
            "value, so give it .options(num_returns=1)"
        )
    name = given.get("name") or f"tree_reduce({_name(function)})"
    return {**given, "name": name}


def _name(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))


def _checked(refs: Any) -> Iterable[sooner.ObjectRef[Any]]:
    """The references. Something else is a TypeError: of a collection before the first, else when it comes."""
    if isinstance(refs, sooner.ObjectRef):
        raise TypeError("tree_reduce() takes an iterable of ObjectRefs, not one: put it into a list")
    if not isinstance(refs, Iterable):
        raise TypeError(f"tree_reduce() takes an iterable of ObjectRefs, not {type(refs).__name__}")
    checked = _one_by_one(refs)
    return list(checked) if isinstance(refs, Collection) else checked


def _one_by_one(refs: Iterable[Any]) -> Iterator[sooner.ObjectRef[Any]]:
    for index, ref in enumerate(refs):
        if not isinstance(ref, sooner.ObjectRef):
            raise TypeError(
                f"tree_reduce() takes ObjectRefs, but item {index} of refs is of type {type(ref).__name__}: "
                "make a reference to a value with sooner.put(value)"
            )
        yield ref
