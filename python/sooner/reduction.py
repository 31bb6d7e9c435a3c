"""Arrays behind references that become one, element by element: `sooner.reduce` and `sooner.reduce_first`.

Small sources that are all in the caller's memory are combined there, at once. Every other reduction is a
task: its caller owns the result, and a result that is lost is made again. It waits for its sources at the
caller, and no process waits with it. When the last one is there it begins, and combines those that are on its
own node in shared memory, without the GIL. The other nodes form a chain. Each adds its own values to what
comes from the node before, and passes the sum on in pieces while the rest is still coming. So a total over
many nodes takes little more time than one transfer, and no link carries more than one array. The bytes never
pass the program that asks.

The idea is Hoplite's (SIGCOMM'21, sections 3.3 and 3.4): the chain is its tree of degree 1.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, SupportsIndex, TypeVar

import sooner
from sooner import _sooner
from sooner.scheduling import NodeAffinitySchedulingStrategy

if TYPE_CHECKING:
    # NumPy is imported where arrays are there: a process that waits for them, or a program that only passes
    # references on, does not have its 20 MB.
    from sooner._values import elements

A = TypeVar("A")

Op = Literal["sum", "prod", "min", "max", "mean"]
Order = Literal["arrival", "given"]

_OPS = ("sum", "prod", "min", "max", "mean")
_ORDERS = ("arrival", "given")
# Values that are combined in one pass over memory. All of them are in memory at the same time.
_PASS = 8
# Sources on other nodes with fewer bytes in all come here one by one: a chain begins later.
_CHAIN_BYTES = 4 << 20
# What goes from node to node of a chain at once (bytes). It is small enough to travel in a message: nobody
# asks for it, and the next one is on its way meanwhile.
_PIECE = 96 << 10
# A result of fewer bytes is returned in a message, to the process that asked for it. Others stay in the
# store.
_STORED = 8 << 10
# Pieces that were made and not yet taken.
_AHEAD = 16
# Values that came in messages, of so many bytes in all, are combined by the caller itself: that takes less
# time than another process needs to begin.
_AT_ONCE = 1 << 20


def reduce(refs: Iterable[sooner.ObjectRef[A]], op: Op = "sum", *, order: Order = "arrival") -> sooner.ObjectRef[A]:
    """Combine the arrays behind references, element by element, into one.

    The call does not wait: sources may be made later, in any order. A total that many read needs no group of
    processes: pass its reference to all of them.

    Args:
        refs: At least one reference, to arrays of NumPy (or its scalars), floats, CPU tensors of PyTorch, or
            Arrow arrays without nulls; all of one kind, shape and dtype. The dtype is one of float16,
            bfloat16, float32, float64, int32 and int64. A reference that occurs twice counts twice.
        op: "sum", "prod", "min", "max", or "mean" (of floats). Whole numbers wrap around, as in NumPy, 16-bit
            floats are rounded after each step, and where a source has NaN, it comes out.
        order: "arrival" combines them in an order that depends on when and where they came, so the last bits
            of floats may differ between two runs. "given" combines them from the first to the last: the same
            bits in every run. It reads all of them on one node.

    Returns:
        The reference of the result, which is of the kind of the sources. A source that failed fails it with
        the source's error and a note that says which source it is. Sources that do not fit together fail it
        with `ValueError`, others than those above with `TypeError`; both name the source and its task.

    Raises:
        TypeError: `refs` holds something else than references.
        ValueError: There is no reference, or `op` or `order` is none of those above.

    Example:
        >>> total = sooner.reduce([worker.gradient.remote() for worker in workers])  # doctest: +SKIP
        >>> sooner.get([worker.apply.remote(total) for worker in workers])  # doctest: +SKIP
    """
    sources = _checked("reduce", refs, op)
    _check_one_of("order", order, _ORDERS)
    if (made := _at_once(sources, op)) is not None:
        return made
    submitter = _task(_sources, f"reduce({op})").remote
    total: sooner.ObjectRef[A] = submitter.after(len(sources), sources, (sources, op, order))
    return total


def reduce_first(
    refs: Iterable[sooner.ObjectRef[A]], num: int, op: Op = "sum"
) -> tuple[sooner.ObjectRef[A], sooner.ObjectRef[list[int]]]:
    """Combine the first `num` arrays that arrive.

    A source that failed does not count as long as enough others are left. The choice is kept for as long as
    the result can be lost: a result that is made again is made from the same sources.

    Args:
        refs: References, as for `reduce`.
        num: How many sources are combined: at least 1, and at most as many as there are references.
        op: How, as for `reduce`.

    Returns:
        The reference of the result, and that of the places in `refs` of the sources that are in it, in the
        order in which they were noticed; those that were noticed together in the order of `refs`. If fewer
        than `num` sources succeed, both fail with the error of the first one that failed.

    Raises:
        TypeError: `refs` holds something else than references.
        ValueError: There is no reference, `num` is out of its range, or `op` is none of those of `reduce`.
    """
    sources = _checked("reduce_first", refs, op)
    given: Any = num
    is_one = getattr(given, "shape", ()) == () and not isinstance(given, bool)
    if not is_one or not isinstance(given, SupportsIndex) or not 1 <= given.__index__() <= len(sources):
        raise ValueError(f"num must be a whole number from 1 to the number of references, {len(sources)}, not {num!r}")
    num = num.__index__()
    all_there = (place for place, ref in enumerate(sources) if _sooner.object_places(ref) is not None)
    there = list(itertools.islice(all_there, num))
    if len(there) == num and (made := _at_once([sources[place] for place in there], op)) is not None:
        return made, sooner.put(there)
    submitter = _task(_first, f"reduce_first({num} of {len(sources)})").remote
    chosen = submitter.after(num, sources, (sources, num))
    # A dependency: when the result is made again, it is there already.
    return _task(_chosen, f"reduce_first({op})").remote(chosen, sources, op), chosen


def _checked(call: str, refs: Any, op: Any) -> list[sooner.ObjectRef[Any]]:
    if isinstance(refs, sooner.ObjectRef):
        raise TypeError(f"{call}() takes an iterable of ObjectRefs, not one: put it into a list")
    if not isinstance(refs, Iterable):
        raise TypeError(f"{call}() takes an iterable of ObjectRefs, not {type(refs).__name__}")
    _check_one_of("op", op, _OPS)
    sources = list(refs)
    for index, ref in enumerate(sources):
        if not isinstance(ref, sooner.ObjectRef):
            raise TypeError(
                f"{call}() takes ObjectRefs, but item {index} of refs is of type {type(ref).__name__}: {_advice(ref)}"
            )
    if not sources:
        raise ValueError(f"{call}() needs at least one reference: without one it does not know the shape of the result")
    return sources


def _check_one_of(name: str, given: Any, allowed: Sequence[str]) -> None:
    # What is compared as an array has no truth value.
    if not isinstance(given, str) or given not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, not {given!r}")


def _advice(item: Any) -> str:
    """What to pass instead of something that is no reference."""
    if isinstance(item, sooner.ObjectRefGenerator):
        return "pass the generator itself, or a list of its items"
    if isinstance(item, list | tuple):
        return "pass the references in one list"
    return "make a reference to a value with sooner.put(value)"


def _at_once(sources: list[sooner.ObjectRef[Any]], op: Op) -> sooner.ObjectRef[Any] | None:
    """The result, if the values of all sources are small and in the memory of this process.

    Nothing is lost with the lineage that it lacks: it dies with this process alone.
    """
    if "numpy" not in sys.modules:
        return None
    size = 0
    for ref in sources:
        length, nodes, _ = _sooner.object_places(ref) or (0, ["unknown"], False)
        size += length
        if nodes or size > _AT_ONCE:
            return None
    total = _Total(op)
    try:
        total.add(sources, [""] * len(sources), is_all=False)
    except Exception:
        # The task says what is wrong with which source.
        return None
    # The sources were here, so the result is no more for this process to pass on.
    return sooner.put(total.value(len(sources)))


def first_sources(sources: list[sooner.ObjectRef[Any]], num: int) -> list[int]:
    """The places of the first `num` sources that are there, in the order in which they came."""
    arrivals = _Arrivals(sources)
    chosen: list[int] = []
    failed: list[int] = []
    while len(chosen) < num:
        for place in arrivals.come():
            (failed if _sooner.has_failed(sources[place]) else chosen).append(place)
        if len(sources) - len(failed) < num:
            _value(sources[failed[0]], _named(sources, failed[0]))
    return chosen[:num]


def reduce_chosen(chosen: list[int], sources: list[sooner.ObjectRef[Any]], op: Op) -> Any:
    """Combine the sources that were chosen."""
    return _gathered([sources[place] for place in chosen], [_named(sources, place) for place in chosen], op)


def reduce_sources(sources: list[sooner.ObjectRef[Any]], op: Op, order: Order) -> Any:
    """Combine all sources."""
    names = [_named(sources, place) for place in range(len(sources))]
    if order == "arrival":
        return _gathered(sources, names, op)
    arrivals = _Arrivals(sources)
    while arrivals.are_open():
        for place in arrivals.come():
            if _sooner.has_failed(sources[place]):
                _value(sources[place], names[place])
    total = _Total(op)
    total.add(sources, names, is_all=True)
    return total.value(len(sources))


def reduce_stage(op: Op, stages: list[_Stage]) -> Iterator[Any]:
    """Combine the values of the last stage, on this node, with what those before it make.

    Yields:
        The form of the result with the name of a source, and then its bytes in pieces, each as soon as it is
        made: the next stage works on one while this one makes the next.
    """
    import numpy as np

    *behind, own = stages
    with contextlib.ExitStack() as stack:
        # First: what is far away begins to come.
        before = stack.enter_context(_Pieces(op, behind)) if behind else None
        total = _Total(op)
        plain = total.opened([_value(*one) for one in zip(own.refs, own.names, strict=True)], own.names)
        if before is not None:
            total.check(*before.head)
        yield total.head
        for begin in range(0, plain[0].size, _PIECE):
            parts = [values[begin : begin + _PIECE] for values in plain]
            if before is not None:
                parts.append(before.next())
            piece = np.empty(parts[0].size, dtype=np.uint8)
            _sooner.fold(op, total.head[0].element, piece, False, parts)
            yield piece


_first = sooner.remote(first_sources)
_chosen = sooner.remote(reduce_chosen)
_sources = sooner.remote(reduce_sources)
_stage = sooner.remote(reduce_stage)


def _task(function: Any, name: str, strategy: Any = "DEFAULT") -> Any:
    # A stage waits for the network most of the time, so it takes no CPU from those that make the sources.
    return function.options(num_cpus=0, name=name, scheduling_strategy=strategy)


class _Stage(NamedTuple):
    """Values on one node.

    Attributes:
        node: The node.
        refs: Their references.
        names: What messages call them.
    """

    node: str
    refs: list[sooner.ObjectRef[Any]]
    names: list[str]


def _gathered(sources: Sequence[sooner.ObjectRef[Any]], names: Sequence[str], op: Op) -> Any:
    """Combine sources in the order of arrival: those on this node as they come, the others at the end."""
    here = sooner.get_runtime_context().get_node_id()
    total = _Total(op)
    arrivals = _Arrivals(sources)
    stages: dict[str, _Stage] = {}
    size = 0
    while arrivals.are_open():
        near = []
        for place in arrivals.come():
            size, nodes, _ = _sooner.object_places(sources[place]) or (size, [], False)
            # What is in messages, or has failed, is on no node: it comes with the question for it.
            if not nodes or here in nodes:
                near.append(place)
            else:
                stage = stages.setdefault(nodes[0], _Stage(nodes[0], [], []))
                stage.refs.append(sources[place])
                stage.names.append(names[place])
        if near:
            is_all = not arrivals.are_open() and not stages
            total.add([sources[place] for place in near], [names[place] for place in near], is_all)
    chain = list(stages.values())
    if size * sum(len(stage.refs) for stage in chain) < _CHAIN_BYTES:
        for stage in chain:
            total.add(stage.refs, stage.names, is_all=stage is chain[-1])
    else:
        with _Pieces(op, chain) as pieces:
            total.add_pieces(pieces)
    return total.value(len(sources))


class _Arrivals:
    """References, and which of them have come.

    Args:
        refs: The references. One that occurs twice comes twice, at the same time.
    """

    def __init__(self, refs: Iterable[sooner.ObjectRef[Any]]) -> None:
        self._places: dict[sooner.ObjectRef[Any], list[int]] = {}
        for place, ref in enumerate(refs):
            self._places.setdefault(ref, []).append(place)

    def are_open(self) -> bool:
        """Whether some have not come."""
        return bool(self._places)

    def come(self) -> list[int]:
        """Wait until at least one has come, and take the places of all that have."""
        open_ = list(self._places)
        sooner.wait(open_, num_returns=1, fetch_local=False)
        there, _ = sooner.wait(open_, num_returns=len(open_), timeout=0, fetch_local=False)
        return sorted(place for ref in there for place in self._places.pop(ref))


def _value(ref: sooner.ObjectRef[Any], name: str) -> Any:
    try:
        return sooner.get(ref)
    except Exception as error:
        error.add_note(f"This is the error of {name}.")
        raise


def _named(sources: Sequence[sooner.ObjectRef[Any]], place: int) -> str:
    return f"source {place} of {len(sources)} (task {sources[place].task_id().hex()})"


class _Pieces:
    """The pieces of what a chain of stages makes, in their order.

    Args:
        op: How values are combined.
        stages: The chain. The last one is asked, and asks the one before it.
    """

    def __init__(self, op: Op, stages: list[_Stage]) -> None:
        strategy = NodeAffinitySchedulingStrategy(stages[-1].node, soft=True)
        task = _task(_stage, f"reduce({op}) of a node", strategy)
        streams = task.options(num_returns="streaming", _generator_backpressure_num_objects=_AHEAD)
        # Means are divided once, at the end.
        self._items: Any = streams.remote("sum" if op == "mean" else op, stages)
        self.head: tuple[elements.Form, str] = self.next()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the chain, of which something may be left after an error."""
        sooner.cancel(self._items)

    def next(self) -> Any:
        """Wait for the next piece."""
        return sooner.get(next(self._items))


class _Total:
    """The result so far.

    Args:
        op: How values are combined.
    """

    def __init__(self, op: Op) -> None:
        self._op = op
        # Of the first value, which sets them for the others. Empty: what messages call it.
        self.head: tuple[elements.Form, str]
        self._is_empty = True
        self._bytes: elements.Bytes

    def add(self, refs: Sequence[sooner.ObjectRef[Any]], names: Sequence[str], is_all: bool) -> None:
        """Combine the values of references in their order, and wait for each.

        Args:
            refs: The references.
            names: What messages call them.
            is_all: No others follow, and the result may be made in the store.
        """
        for begin in range(0, len(refs), _PASS):
            those = slice(begin, begin + _PASS)
            values = [_value(*one) for one in zip(refs[those], names[those], strict=True)]
            is_first = self._is_empty
            plain = self.opened(values, names[those])
            if is_first:
                self._open(plain[0].size, in_store=is_all and len(refs) <= _PASS)
            self._fold(self._bytes, not is_first, plain)

    def add_pieces(self, pieces: _Pieces) -> None:
        """Combine what a chain makes, as it comes."""
        is_first = self._is_empty
        self.check(*pieces.head)
        if is_first:
            form = self.head[0]
            self._open(math.prod(form.shape) * form.dtype.itemsize, in_store=True)
        for begin in range(0, self._bytes.size, _PIECE):
            self._fold(self._bytes[begin : begin + _PIECE], not is_first, [pieces.next()])

    def _open(self, size: int, *, in_store: bool) -> None:
        """Make the memory of the result (bytes): in the store, if it does not have to wait for sources there.

        An array that is written cannot be spilled, and the sources may need the room. It is returned without
        a copy.
        """
        import numpy as np

        if in_store and size >= _STORED:
            self._bytes, _ = sooner.empty(size, np.uint8)
        else:
            self._bytes = np.empty(size, dtype=np.uint8)

    def _fold(self, into: elements.Bytes, keeps: bool, plain: list[elements.Bytes]) -> None:
        _sooner.fold("sum" if self._op == "mean" else self._op, self.head[0].element, into, keeps, plain)

    def opened(self, values: Sequence[Any], names: Sequence[str]) -> list[elements.Bytes]:
        """The bytes of values that fit together."""
        from sooner._values import elements  # start-up: 90 ms

        found = []
        for value, name in zip(values, names, strict=True):
            try:
                form, plain = elements.opened(value)
            except TypeError as error:
                raise TypeError(f"{name} cannot be combined: {error}") from None
            self.check(form, name)
            found.append(plain)
        return found

    def check(self, form: elements.Form, name: str) -> None:
        """Refuse a value that does not fit to the first one.

        Args:
            form: What it is.
            name: What messages call it.
        """
        from sooner._values import elements  # start-up: 90 ms

        if self._is_empty:
            if self._op == "mean" and form.element not in elements.FLOATS:
                raise TypeError(
                    f"{name} is {form}, and the mean of whole numbers is none: convert the sources to floats, or "
                    "divide their sum"
                )
            self.head, self._is_empty = (form, name), False
        elif form != self.head[0]:
            raise ValueError(
                f"all sources must have one kind, dtype and shape: {self.head[1]} is {self.head[0]}, and {name} "
                f"is {form}"
            )

    def value(self, count: int) -> Any:
        """The result, in which there are `count` sources."""
        from sooner._values import elements  # start-up: 90 ms

        form = self.head[0]
        if self._op == "mean":
            _sooner.divide(form.element, self._bytes, float(count))
        return elements.closed(form, self._bytes)
