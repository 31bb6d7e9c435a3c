"""One computation: submits the tasks of a graph in order, and drops values that are used up.

A value of the graph is in one of two places: in the object store, behind a reference that is held here only
until the last task that uses it was submitted, or in the graph itself. Nothing is fetched before the end, and
then only the values that were asked for.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from dask._task_spec import DataNode, GraphNode
from dask.utils import key_split

import sooner
from sooner.util.dask.callbacks import Callbacks, Progress
from sooner.util.dask.flight import Flight
from sooner.util.dask.graph import Graph
from sooner.util.dask.lifting import Functions, Lifted
from sooner.util.dask.worker import Listed, run, take

# Distinct task names in one computation. Tasks beyond that share one name.
_NAMES_MAX = 100
_NAME = "dask"
# Data of the graph up to this size (bytes or characters) is sent with each task that uses it.
_SMALL = 1024

# Arguments of one task that the engine brings. A task with more of them fetches their values itself.
_ARGUMENTS_MAX = 10_000

_run = sooner.remote(run)


class Calls:
    """The remote functions of a computation: one for each combination of name, number of returns and options.

    Args:
        options: Of all tasks.
        by_key: Of single tasks; they go before.
    """

    def __init__(self, options: Mapping[str, Any], by_key: Mapping[Hashable, Mapping[str, Any]]) -> None:
        self._options = options
        self._by_key = by_key
        self._made: dict[tuple[str, int, int], Any] = {}
        self._names: set[str] = set()

    def of(self, key: Hashable, returns: int) -> Any:
        """The remote function for a task.

        Args:
            key: The task's.
            returns: How many values it returns, its end among them.
        """
        own = self._by_key.get(key)
        made = self._name(key), returns, id(own)
        call = self._made.get(made)
        if call is None:
            options = {"name": made[0], **self._options, **(own or {}), "num_returns": returns}
            call = self._made[made] = _run.options(**options)
        return call

    def flight(self, exactly: int | None) -> Flight:
        """What keeps account of the tasks under way.

        Args:
            exactly: So many at most; None for what the session has room for.
        """
        has = sooner.cluster_resources()
        asked = [self._options, *{id(own): own for own in self._by_key.values()}.values()]
        smallest = min((options.get("num_cpus") or 0.1) if "num_cpus" in options else 1 for options in asked)
        slots = has.get("CPU", 1) / max(0.1, min(1, smallest))
        return Flight(slots, has.get("object_store_memory", 0), exactly)

    def _name(self, key: Hashable) -> str:
        name = f"{_NAME}:{key_split(key)}"
        if name not in self._names:
            if len(self._names) >= _NAMES_MAX:
                return _NAME
            self._names.add(name)
        return name


class Computation:
    """Runs a graph.

    Args:
        graph: It.
        calls: What its tasks are submitted with.
        callbacks: Whom to tell.
        progress: Whom to tell of Dask's own callbacks.
        flight: The tasks under way.
    """

    def __init__(self, graph: Graph, calls: Calls, callbacks: Callbacks, progress: Progress, flight: Flight) -> None:
        self._graph = graph
        self._calls = calls
        self._callbacks = callbacks
        self._progress = progress
        self._flight = flight
        self._functions = Functions()
        # By key, the values that are still used: references, or data of the graph.
        self._places: dict[Hashable, Any] = {}
        self._uses = dict(graph.uses)
        # By the key of an item's taker: the task that returns the item.
        self._makers = {taker: key for key, takers in graph.takers.items() for taker in takers}

    def submit(self) -> None:
        """Submits every task. Waits while too many are under way.

        Raises:
            Exception: What a task raised.
        """
        for key, node in self._graph.nodes.items():
            if isinstance(node, DataNode):
                self._places[key] = node.value
            elif key not in self._makers:
                self._progress.ended(self._flight.make_room())
                self._progress.submitted(key)
                self._submit(key, node)

    def wait(self) -> None:
        """Waits for the tasks under way.

        Raises:
            Exception: What a task raised.
        """
        while ended := self._flight.wait():
            self._progress.ended(ended)

    def places(self, keys: Sequence[Hashable]) -> list[Any]:
        """References, or data of the graph, for what was asked for."""
        return [self._places[self._graph.origin(key)] for key in keys]

    def clear(self) -> None:
        """Drops the references to what was computed."""
        self._places.clear()

    def _submit(self, key: Hashable, node: GraphNode) -> None:
        names = self._graph.names[key]
        origins = [self._graph.origin(name) for name in names]
        deps = {}
        if self._callbacks.presubmit or self._callbacks.postsubmit:
            deps = {name: self._places[origin] for name, origin in zip(names, origins, strict=True)}
            value = self._callbacks.replacement(node, key, deps)
            if value is not None:
                self._keep(key, value)
                self._release(origins)
                self._progress.ended([key])
                return
        args = [self._argument(origin) for origin in origins]
        lifted = Lifted(node, self._functions)
        takers = self._graph.takers.get(key)
        takers_nodes = None if takers is None else [self._graph.nodes[taker] for taker in takers]
        call = self._calls.of(key, 2 if takers is None else len(takers) + 1)
        args += lifted.found.values()
        carried = lifted.node, (*names, *lifted.found), len(names), takers_nodes, self._callbacks.hooks
        refs = call.remote(carried, *args) if len(args) <= _ARGUMENTS_MAX else call.remote(carried, Listed(args))
        *items, end = refs
        self._flight.add(key, end, {self._makers.get(origin, origin) for origin in origins})
        for place, ref in zip((key,) if takers is None else takers, items, strict=True):
            self._places[place] = ref
        for function in self._callbacks.postsubmit:
            function(node, key, deps, items[0] if takers is None else items)
        self._release(origins)

    def _argument(self, origin: Hashable) -> Any:
        """A reference, or data of the graph that is sent with the task."""
        place = self._places[origin]
        if isinstance(place, sooner.ObjectRef) or self._graph.uses[origin] == 1 or _is_small(place):
            return place
        # Put once, for all the tasks that use the value.
        ref = self._places[origin] = sooner.put(place)
        return ref

    def _keep(self, key: Hashable, value: Any) -> None:
        """Keep a value in the place of a task's result."""
        takers = self._graph.takers.get(key)
        if takers is None:
            self._places[key] = value
        else:
            if isinstance(value, sooner.ObjectRef):
                value = sooner.get(value)
            nodes = [self._graph.nodes[taker] for taker in takers]
            self._places.update(zip(takers, take(nodes, value), strict=True))

    def _release(self, origins: Sequence[Hashable]) -> None:
        for origin in origins:
            self._uses[origin] -= 1
            if not self._uses[origin]:
                del self._places[origin]


def _is_small(value: object) -> bool:
    if value is None or isinstance(value, int | float | complex):
        return True
    return isinstance(value, str | bytes) and len(value) <= _SMALL
