"""Options of tasks from Dask's annotations: `dask.annotate(sooner_remote_args={...})`.

Dask attaches annotations to layers of a graph and loses them when it fuses tasks of several layers. This
module reads them from the layers before fusion, and a fused task gets what its parts ask for.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any

import dask
from dask._expr import Expr, HLGExpr
from dask._task_spec import GraphNode, Task
from dask._task_spec import _execute_subgraph as execute_subgraph
from dask.highlevelgraph import HighLevelGraph, Layer

NAME = "sooner_remote_args"
# The name that programs for Ray use.
_RAY_NAME = "ray_remote_args"
# Dask's own annotation for resources. Its resource names are not those of sooner's options.
_FOREIGN = "resources"


def default_options(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """The options of all tasks of a computation.

    Args:
        given: To the scheduler; they go before those of an annotation around the computation.

    Raises:
        TypeError: They are no mapping.
        ValueError: They are about the number of returns, or there is a foreign annotation.
    """
    around = dask.get_annotations()
    _refuse_foreign(around)
    annotated = around.get(NAME, around.get(_RAY_NAME))
    # A callable gives options by key, which applies to layers only.
    options = {} if annotated is None or callable(annotated) else _checked(annotated)
    return options | ({} if given is None else _checked(given))


def options_by_key(dsk: Any) -> dict[Hashable, dict[str, Any]]:
    """The options of the tasks that have some of their own.

    Args:
        dsk: A graph or an expression.

    Raises:
        TypeError: They are no mapping.
        ValueError: They are about the number of returns, or there is a foreign annotation.
    """
    found: dict[Hashable, dict[str, Any]] = {}
    for layer in _layers(dsk):
        if not layer.annotations:
            continue
        _refuse_foreign(layer.annotations)
        annotated = layer.annotations.get(NAME, layer.annotations.get(_RAY_NAME))
        if annotated is None:
            continue
        shared = None if callable(annotated) else _checked(annotated)
        for key in layer:
            options = _checked(annotated(key)) if shared is None else shared
            if options:
                found[key] = options
    return found


def of_fused(nodes: Mapping[Hashable, GraphNode], by_key: Mapping[Hashable, dict[str, Any]]) -> dict[Hashable, Any]:
    """The options of tasks, with those of the tasks that were fused into them.

    Args:
        nodes: The tasks.
        by_key: Options before fusion.
    """
    if not by_key:
        return {}
    found: dict[Hashable, Any] = {}
    for key, node in nodes.items():
        parts = [by_key[part] for part in (*_parts(node), key) if part in by_key]
        if parts:
            # Equal options stay the same object, so that only one remote function is made from them.
            found[key] = parts[0] if all(part is parts[0] for part in parts) else _merged(parts)
    return found


def _parts(node: Any) -> Iterator[Hashable]:
    if isinstance(node, Task) and node.func is execute_subgraph:
        for key, part in node.args[0].items():
            yield key
            yield from _parts(part)


def _merged(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the options of all parts: the larger amount of a resource, otherwise the later part's option."""
    merged: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            before = merged.get(name)
            if name in ("num_cpus", "num_gpus", "memory") and before is not None and value is not None:
                value = max(before, value)
            elif name == "resources" and before and value:
                value = {kind: max(before.get(kind, 0), value.get(kind, 0)) for kind in {**before, **value}}
            merged[name] = value
    return merged


def _layers(dsk: Any) -> Iterator[Layer]:
    if isinstance(dsk, HighLevelGraph):
        yield from dsk.layers.values()
    elif isinstance(dsk, Expr):
        for part in dsk.walk():
            if isinstance(part, HLGExpr) and isinstance(part.hlg, HighLevelGraph):
                yield from part.hlg.layers.values()


def _checked(options: Any) -> dict[str, Any]:
    if not isinstance(options, Mapping):
        raise TypeError(
            f"{NAME} takes a dictionary of options as for .options() of a remote function, "
            f"such as {{'num_cpus': 2}}, not {type(options).__name__}"
        )
    if "num_returns" in options:
        raise ValueError(f"{NAME} cannot have num_returns: the scheduler decides how many values a task returns")
    return dict(options)


def _refuse_foreign(annotations: Mapping[str, Any]) -> None:
    if _FOREIGN in annotations:
        raise ValueError(
            f"dask.annotate({_FOREIGN}=...) means resources of Dask's own scheduler: "
            f"use dask.annotate({NAME}={{'num_gpus': 1}}) or {{'resources': {{...}}}}"
        )
