"""The resources and the work of a program or a cluster, as one row."""

from __future__ import annotations

from typing import Any

from sooner._state import rows, task_rows, text
from sooner._state.snapshot import Row, Snapshot


def status_of(snapshot: Snapshot) -> Row:
    """What `sooner status --json` prints of a snapshot with tasks and actors."""

    def count(listed: Any, wanted: Any = lambda row: True) -> dict[str, int]:
        states: dict[str, int] = {}
        for row in listed:
            if wanted(row):
                states[row["state"]] = states.get(row["state"], 0) + 1
        return states

    (node, *others), jobs = rows.nodes(snapshot), list(rows.jobs(snapshot))
    host: Row = next(iter(jobs), {}) if snapshot.name is None else {}
    problems = [
        f"{demand['count']} x {text.cell(demand['resources'])} can never be granted: no node has that"
        for demand in snapshot.node["demands"]
        if not demand["feasible"]
    ]
    problems += [
        f"placement group {row['name'] or row['placement_group_id']} is {row['state'].lower()}: {row['reason']}"
        for row in rows.placement_groups(snapshot)
        if row["reason"] and row["state"] != "REMOVED"
    ]
    problems += [f"no answer from {missing}" for missing in snapshot.missing()]
    return {
        "session_dir": snapshot.directory,
        "node_id": node["node_id"],
        "node_name": snapshot.name,
        "node_pid": snapshot.node["pid"],
        "cluster": _cluster_of(snapshot.node),
        "other_nodes": others,
        "entrypoint": host.get("entrypoint"),
        "driver_pid": host.get("driver_pid"),
        "jobs": jobs,
        "uptime_s": (snapshot.now_ns - snapshot.node["started"]) / 1e9,
        "workers": count(rows.workers(snapshot), lambda row: row["worker_type"] != "DRIVER" and row["is_alive"]),
        "actors": count(rows.actors(snapshot)),
        # An actor's constructor stays on record while the actor lives.
        "tasks": count(task_rows.tasks(snapshot), lambda row: row["type"] != "ACTOR_CREATION_TASK"),
        "placement_groups": count(rows.placement_groups(snapshot), lambda row: row["state"] != "REMOVED"),
        "demand": [
            {key: demand[key] for key in ("resources", "count", "feasible")} for demand in snapshot.node["demands"]
        ],
        "problems": problems,
        **{key: value for key, value in node.items() if key.startswith(("resources", "object_store"))},
    }


def _cluster_of(node: Row) -> Row | None:
    cluster = node["cluster"]
    if cluster is None:
        return None
    told: Row = {key: cluster[key] for key in ("fingerprint", "head", "is_head", "address", "lost")}
    return told | {"nodes": len(cluster["nodes"])}
