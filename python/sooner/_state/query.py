"""Queries for rows of one kind: asks a session for no more than the rows need, and filters them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from sooner._state import rows as _rows
from sooner._state.snapshot import ACTORS, EVENTS, EVENTS_MAX, OBJECTS, ROWS_MAX, TASKS, Row, Snapshot
from sooner._state.task_rows import UNFINISHED, tasks

Filter = tuple[str, str, Any]


def matcher(filters: Iterable[Any], fields: Iterable[str]) -> Callable[[Row], bool]:
    """A test of rows.

    Raises:
        ValueError: A filter is not (field, "=" or "!=", value), or there is no such field.
    """
    known = list(fields)
    checked = []
    for one in filters:
        if not (isinstance(one, tuple | list) and len(one) == 3):
            raise ValueError(f"a filter is (field, '=' or '!=', value), not {one!r}")
        key, operator, value = one
        # As in Ray, case does not matter.
        key = key.lower() if isinstance(key, str) else key
        if key not in known:
            raise ValueError(f"{key!r} is not a field to filter by; fields: {', '.join(known)}")
        if operator not in ("=", "!="):
            raise ValueError(f"the operator of a filter is '=' or '!=', not {operator!r}")
        checked.append((key, operator == "=", value))
    return lambda row: all(_is_equal(row[key], value) == wanted for key, wanted, value in checked)


def _is_equal(actual: Any, value: Any) -> bool:
    return bool(actual == value) or str(actual).lower() == str(value).lower()


def _objects(snapshot: Snapshot) -> Iterator[Row]:
    # Only here: few commands look at objects.
    from sooner._state.objects import Objects  # start-up: 2.5 ms

    yield from Objects(snapshot).rows()


# Kinds of rows that the node that is asked knows for the whole cluster.
_KNOWN_EVERYWHERE = ("nodes", "placement-groups")

KINDS: dict[str, tuple[int, Callable[[Snapshot], Iterator[Row]]]] = {
    "tasks": (TASKS | EVENTS, tasks),
    "actors": (ACTORS | TASKS, _rows.actors),
    "objects": (OBJECTS | TASKS, _objects),
    "workers": (TASKS, _rows.workers),
    "nodes": (0, _rows.nodes),
    "jobs": (0, _rows.jobs),
    "placement-groups": (0, _rows.placement_groups),
}


def rows_of(
    directory: str, kind: str, filters: Iterable[Filter] = (), limit: int = 100, timeout: float = 30
) -> tuple[list[Row], Snapshot]:
    """Rows of one kind that match, and the snapshot they come from."""
    about, make = KINDS[kind]
    filters = list(filters)
    ends = {one[2] for one in filters if tuple(one[:2]) == ("state", "=")}
    # Events of ended executions are fetched only as far as they can be among the rows.
    events = 0 if ends and ends <= set(UNFINISHED) else EVENTS_MAX if filters else limit
    rows = ROWS_MAX if filters or kind != "tasks" else limit
    snapshot = Snapshot(directory, about, rows, events, timeout, everywhere=kind not in _KNOWN_EVERYWHERE)
    found = []
    matches: Callable[[Row], bool] | None = None
    for row in make(snapshot):
        if matches is None:
            matches = matcher(filters, row)
        if matches(row):
            found.append(row)
            if len(found) >= limit:
                break
    return found, snapshot
