"""Takes references and functions out of a task before it is submitted, and passes them as dependencies.

References, since the engine brings values only for direct arguments: persisted collections have references
where other collections have data, and Dask's optimizations move data into tasks. And functions that would be
pickled with their code: that takes a millisecond or more, and thousands of tasks share a function.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable
from typing import Any

from dask._task_spec import Alias, DataNode, GraphNode, NestedContainer, Task, TaskRef
from dask._task_spec import _execute_subgraph as execute_subgraph

import sooner

_PARTS = (sooner.ObjectRef, GraphNode, types.FunctionType)


class Functions:
    """The functions of one computation that are pickled with their code, each stored once."""

    def __init__(self) -> None:
        # By `id(function)`: the function, kept alive so that its id is not reused, and the reference to it.
        self._stored: dict[int, tuple[Any, sooner.ObjectRef[Any]]] = {}

    def ref(self, function: Any) -> sooner.ObjectRef[Any]:
        """The reference of a function."""
        known = self._stored.get(id(function))
        if known is None:
            known = self._stored[id(function)] = function, sooner.put(function)
        return known[1]


class Lifted:
    """A task without what was taken out.

    Args:
        node: The task.
        functions: Where functions go.

    Attributes:
        node: It; the one that was given is not changed, since it may belong to a collection.
        found: By the key that it now depends on: references.
    """

    def __init__(self, node: GraphNode, functions: Functions) -> None:
        self._functions = functions
        self.found: dict[Hashable, sooner.ObjectRef[Any]] = {}
        self.node: Any = self._without(node, self.found)

    def _without(self, node: Any, found: dict[Hashable, sooner.ObjectRef[Any]]) -> Any:
        if isinstance(node, sooner.ObjectRef):
            return _named(node, found)
        if isinstance(node, types.FunctionType):
            return _named(self._functions.ref(node), found) if _has_code(node) else node
        if isinstance(node, DataNode):
            return _named(node.value, found) if isinstance(node.value, sooner.ObjectRef) else node
        if not isinstance(node, Task):
            return node
        if node.func is execute_subgraph:
            return self._without_in_subgraph(node, found)
        has_code = _has_code(node.func)
        if not has_code and not any(isinstance(arg, _PARTS) for arg in (*node.args, *node.kwargs.values())):
            # A short cut for nearly all tasks, since this runs for each task that is submitted.
            return node
        args = tuple(self._without(arg, found) for arg in node.args)
        kwargs = {name: self._without(arg, found) for name, arg in node.kwargs.items()}
        if has_code:
            return Task(node.key, call, _named(self._functions.ref(node.func), found), *args, **kwargs)
        if all(one is other for one, other in zip(args, node.args, strict=True)) and all(
            kwargs[name] is arg for name, arg in node.kwargs.items()
        ):
            return node
        if isinstance(node, NestedContainer):
            return type(node)(*args)
        return Task(node.key, node.func, *args, **kwargs)

    def _without_in_subgraph(self, node: Task, found: dict[Hashable, sooner.ObjectRef[Any]]) -> Task:
        """A task with others fused into it: what is lifted out of those becomes a dependency of it."""
        inner, out, names, *values = node.args
        here: dict[Hashable, sooner.ObjectRef[Any]] = {}
        nodes: dict[Hashable, Any] = {}
        for key, part in inner.items():
            new = self._without(part, here)
            # Data that was a reference: now an alias of the key under which the value arrives.
            nodes[key] = Alias(key, new.key) if isinstance(new, TaskRef) else new
        if not here:
            return node
        found.update(here)
        comes = tuple(here)
        comers = (TaskRef(key) for key in comes)
        return Task(node.key, execute_subgraph, nodes, out, (*names, *comes), *values, *comers, **node.kwargs)


def call(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """In a worker: calls a function that came as a value."""
    return function(*args, **kwargs)


def _has_code(function: object) -> bool:
    """Whether pickling a function includes its code, because no worker can import the function."""
    if not isinstance(function, types.FunctionType):
        return False
    return function.__module__ in ("__main__", "__mp_main__") or "<" in function.__qualname__


def _named(ref: sooner.ObjectRef[Any], found: dict[Hashable, sooner.ObjectRef[Any]]) -> Any:
    key = f"sooner-{ref.hex()}"
    found[key] = ref
    return TaskRef(key)
