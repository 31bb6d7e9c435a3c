"""How the `sooner` command prints rows: tables that fit the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

Row = dict[str, Any]

# The columns of a table of a kind, from left to right. All fields are in `sooner get` and in --json.
COLUMNS: dict[str, tuple[str, ...]] = {
    "tasks": ("task_id", "name", "state", "type", "worker_pid", "error_type", "duration"),
    "actors": ("actor_id", "class_name", "state", "name", "pid", "pending_calls", "death_cause"),
    "objects": ("object_id", "object_size", "task_status", "location", "type", "pid", "reference_type"),
    "workers": ("worker_id", "worker_type", "state", "pid", "actor_id", "resources", "exit_detail"),
    "nodes": ("node_id", "node_name", "address", "state", "is_head_node", "in_use"),
    "jobs": ("job_id", "status", "driver_pid", "entrypoint"),
    "placement-groups": ("placement_group_id", "name", "state", "strategy", "bundles", "reason"),
}
# The position at which a column with the node is inserted, if there are several nodes.
NODE_AT = {"tasks": 3, "actors": 3, "objects": 5, "workers": 3, "jobs": 2, "placement-groups": 2}
MEMORY_COLUMNS = ("object_id", "size", "location", "owner", "created_by", "call_site", "kept_by")
_WIDTH_MIN = 6
_WORDS = {
    "LOCAL_REFERENCE": "reference",
    "VIEW": "view",
    "TASK": "task",
    "RUNNING_TASK": "running task",
    "QUEUED_TASK": "queued task",
    "CONTAINED_IN": "containing object",
    "FUNCTION": "function",
    "ACTOR_CONSTRUCTOR": "constructor of an actor",
    "DETACHED_ACTOR": "detached actor",
    "GENERATOR": "generator",
    "PINNED": "pickle outside of sooner",
    "KEPT_CALL": "call kept for its actor",
    "CHECKPOINT": "checkpoint",
    "LENT": "work of a process that is gone",
    "LINEAGE": "lineage",
}


def width() -> int | None:
    """Columns of the terminal; None if the output goes elsewhere."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError):
        columns = os.environ.get("COLUMNS", "")
        return int(columns) if columns.isdigit() and int(columns) > 0 else None


def table(rows: Sequence[Row], columns: Sequence[str], most: int | None) -> str:
    """Rows as a table that is at most `most` characters wide."""
    cells = [[column.upper() for column in columns]]
    cells += [[cell(row.get(column)) for column in columns] for row in rows]
    widths = [max(len(line[at]) for line in cells) for at in range(len(columns))]
    if most is not None:
        _shrink(widths, most - 2 * (len(columns) - 1))
    lines = []
    for line in cells:
        shown = [_cut(text, size).ljust(size) for text, size in zip(line, widths, strict=True)]
        lines.append("  ".join(shown).rstrip())
    return "\n".join(line[:most] for line in lines)


def _shrink(widths: list[int], most: int) -> None:
    """Takes from the widest until the sum fits."""
    while sum(widths) > most and max(widths) > _WIDTH_MIN:
        widths[widths.index(max(widths))] -= 1


def _cut(text: str, size: int) -> str:
    if len(text) <= size:
        return text
    # Ids differ at their ends.
    if all(letter in "0123456789abcdef" for letter in text):
        return "…" + text[len(text) - size + 1 :]
    return text[: size - 1] + "…"


def cell(value: Any) -> str:
    """A value as one line."""
    if value is None or value == [] or value == {}:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}" if abs(value) < 1e6 else f"{value:.0f}"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {cell(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(cell(item) for item in value)
    return " ".join(str(value).split())


def size(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return ""


def shown_resources(total: dict[str, float]) -> dict[str, float]:
    """The resources that people ask for: no names of nodes, and not the store, which is shown on its own."""
    return {name: count for name, count in total.items() if name != "object_store_memory" and ":" not in name}


def amounts(name: str, used: float | None, total: float) -> str:
    """How much of a resource is in use; None: unknown."""
    shown = size if name in ("memory", "store") else "{:g}".format
    return f"{'?' if used is None else shown(used)} of {shown(total)}"


def in_use(node: Row) -> str:
    """What is in use of a node's resources and its memory for objects."""
    free = node["resources_available"]
    told = [
        f"{amounts(name, None if free is None else total - free[name], total)} {name}"
        for name, total in shown_resources(node["resources_total"]).items()
    ]
    store = node["object_store_used_bytes"], node["object_store_capacity_bytes"]
    return ", ".join([*told, f"{amounts('store', *store)} store"])


def node_row(row: Row) -> Row:
    """A node in a table."""
    return row | {"in_use": in_use(row)}


def fields(row: Row) -> str:
    """One row, a line per field."""
    longest = max(len(name) for name in row)
    return "\n".join(f"{name.ljust(longest)}  {cell(value)}" for name, value in row.items())


def with_duration(row: Row) -> Row:
    """A task's row with how long it took."""
    start, end = row.get("start_time_ms"), row.get("end_time_ms")
    return row | {"duration": f"{end - start:.1f} ms" if start and end else None}


def store_row(row: Row) -> Row:
    """An object store in a table: bytes for people."""
    shown = {key: value if key == "node" or value is None else size(value) for key, value in row.items()}
    in_flight = [row[key] for key in ("incoming", "outgoing") if row[key] is not None]
    return {
        "node": shown["node"],
        "used": shown["used"],
        "pinned": shown["pinned"],
        "cached": shown["cached"],
        "in_flight": size(sum(in_flight)) if in_flight else None,
        "on_disk": shown["spilled"],
        "values_on_disk": row["spilled_values"],
        "files": shown["spill_files"],
        "fallback": shown["fallback"],
    }


def memory_row(rows: Sequence[Row], place: Callable[[str], str]) -> Row:
    """One object in a table, from all processes' rows, its owner's first. `place` follows process ids."""
    first = rows[0]
    kept = [_kept(first)] if first["holds"] else []
    kept += [f"{row['process']} {row['pid']}{place(row['worker_id'])}: {_kept(row)}" for row in rows[1:]]
    return {
        "object_id": first["object_id"],
        "size": size(first["object_size"]),
        "location": "actor" if first["is_actor_handle"] else first["location"] or first["task_status"].lower(),
        "owner": f"{first['owner_process']} {first['owner_pid'] or first['owner_id']}{place(first['owner_id'])}",
        "created_by": first["created_by"],
        "call_site": first["call_site"],
        "kept_by": "; ".join(kept) or "nothing",
    }


def _kept(row: Row) -> str:
    """The holds of one process, counted by reason. Borrowers have rows of their own."""
    counts: dict[str, int] = {}
    for hold in row["holds"]:
        word = _WORDS.get(hold["reason"])
        if word is not None:
            counts[word] = counts.get(word, 0) + hold["count"]
    if row["borrowers"]:
        counts["borrower"] = len(row["borrowers"])
    return ", ".join(f"{count} {word}" if count == 1 else f"{count} x {word}" for word, count in counts.items())
