"""The code that runs in workers: one task of a graph with the values it depends on.

Nothing here knows the rest of the graph. Nothing waits either, since the engine brings the values before the
task starts; except for a task that needs more values than a call can have arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dask.sizeof import sizeof

import sooner

# About how many items of a result are measured.
_SAMPLES = 3


class Hooks(NamedTuple):
    """What callbacks want to hear about in workers; as many of both, None where one does not care."""

    before: Sequence[Callable[[Any, tuple[Any, ...]], Any] | None]
    after: Sequence[Callable[[Any, Any, Any], object] | None]


class Listed:
    """Values for a task that needs more of them than a call can have arguments.

    Args:
        places: References, or values.
    """

    def __init__(self, places: list[Any]) -> None:
        self._places = places

    def values(self) -> tuple[Any, ...]:
        """The values, fetched together."""
        refs = [place for place in self._places if isinstance(place, sooner.ObjectRef)]
        fetched = iter(sooner.get(refs))
        return tuple(next(fetched) if isinstance(place, sooner.ObjectRef) else place for place in self._places)


def run(work: tuple[Any, ...], *values: Any) -> tuple[Any, ...]:
    """Executes a task of a graph, with those that are nested in it.

    Args:
        work: The task; the keys it depends on; how many of them are its own, and not what was taken out of
            it; the tasks that each take one item of its result, or None; the hooks, or None.
        *values: The values of those keys.

    Returns:
        The result, or the items that were taken from it; and at the end how many bytes that is, roughly.
        It comes to the one who submits, who needs to know that the task is done, and not the result.
    """
    node, names, needs, takers, hooks = work
    if len(values) == 1 and isinstance(values[0], Listed):
        values = values[0].values()
    if hooks is not None:
        states = [None if hook is None else hook(node.key, values[:needs]) for hook in hooks.before]
    result = node(dict(zip(names, values, strict=True)))
    if hooks is not None:
        for hook, state in zip(hooks.after, states, strict=True):
            if hook is not None:
                hook(node.key, result, state)
    if takers is None:
        return result, _size_of(result)
    items = take(takers, result)
    # A sample of the items stands for all: measuring a data frame takes as long as pickling it.
    some = items[:: max(1, len(items) // _SAMPLES)]
    return (*items, sum(map(_size_of, some)) * len(items) // max(1, len(some)))


def _size_of(value: Any) -> int:
    # `sizeof` calls methods of the value. What they raise has nothing to do with the task.
    try:
        return int(sizeof(value))
    except Exception:
        return 0


def take(takers: Sequence[Any], result: Any) -> list[Any]:
    """The values of tasks that each take one item of a result.

    Args:
        takers: The tasks, which depend on nothing else, by whatever name they know it.
        result: It.
    """
    return [taker(dict.fromkeys(taker.dependencies, result)) for taker in takers]
