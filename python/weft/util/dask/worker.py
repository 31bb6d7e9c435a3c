"""What runs in workers: one task of a graph with the values it depends on.

Nothing here knows the rest of the graph, and nothing waits: the engine brings the values before the task starts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dask.sizeof import sizeof


class Hooks(NamedTuple):
    """What callbacks want to hear about in workers; as many of both, None where one does not care."""

    before: Sequence[Callable[[Any, tuple[Any, ...]], Any] | None]
    after: Sequence[Callable[[Any, Any, Any], object] | None]


def run(work: tuple[Any, ...], *values: Any) -> tuple[Any, ...]:
    """Executes a task of a graph, with those that are nested in it.

    Args:
        work: The task; the keys it depends on; the tasks that each take one item of its result, or None; the hooks,
            or None.
        *values: The values of those keys.

    Returns:
        The result, or the items that were taken from it; and at the end how many bytes that is, roughly. It comes to
        the one who submits, who needs to know that the task is done, and not the result.
    """
    node, names, takers, hooks = work
    if hooks is not None:
        states = [None if hook is None else hook(node.key, values) for hook in hooks.before]
    result = node(dict(zip(names, values, strict=True)))
    if hooks is not None:
        for hook, state in zip(hooks.after, states, strict=True):
            if hook is not None:
                hook(node.key, result, state)
    if takers is None:
        return result, sizeof(result)
    items = take(takers, node.key, result)
    return (*items, sum(map(sizeof, items)))


def take(takers: Sequence[Any], key: Any, result: Any) -> list[Any]:
    """The values of tasks that each take one item of a result.

    Args:
        takers: The tasks.
        key: The key they know the result by.
        result: It.
    """
    values = {key: result}
    return [taker(values) for taker in takers]
