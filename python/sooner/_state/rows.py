"""Rows of actors, workers, nodes, placement groups and programs of a snapshot: plain dictionaries.

`sooner.state` makes typed records of them, the `sooner` command prints them. Times are milliseconds since
1970.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from sooner import _sooner
from sooner._state.snapshot import Row, Snapshot

# Ray's names for the phases of an actor.
_ACTOR_STATES = {
    "reserved": "DEPENDENCIES_UNREADY",
    "pending": "PENDING_CREATION",
    "starting": "PENDING_CREATION",
    "alive": "ALIVE",
    "dead": "DEAD",
    "restarting": "RESTARTING",
}


def actors(snapshot: Snapshot) -> Iterator[Row]:
    """Actors that live, wait, or are dead and still referred to."""
    calls: dict[str, int] = {}
    kept: dict[str, int] = {}
    for report in snapshot.reports.values():
        for known in report["actors"]:
            calls[known["actor"]] = calls.get(known["actor"], 0) + known["queued"] + known["in_flight"]
            kept[known["actor"]] = kept.get(known["actor"], 0) + (known["kept"] or 0)
    rows = actor_rows(snapshot)
    for owner, report in snapshot.reports.items():
        for task in report["tasks"]:
            if _sooner.TASK_KINDS[task["label"]["kind"]] == "ACTOR_CREATION_TASK" and task["task"] not in rows:
                # The constructor's arguments are not there yet, so no node knows the actor.
                yield _actor(snapshot, _unborn_actor(owner, task), 0, 0)
    for row in rows.values():
        yield _actor(snapshot, row, calls.get(row["actor"], 0), kept.get(row["actor"], 0))


def actor_rows(snapshot: Snapshot) -> dict[str, Row]:
    """Rows of actors by id, from the cluster's directory and from the nodes that the actors are on."""
    rows = {row["actor"]: row for row in snapshot.node["actors"]}
    for told in (told for told in snapshot.told.values() if told is not snapshot.node):
        for row in told["actors"]:
            known = rows.setdefault(row["actor"], row)
            if known["worker"] == row["worker"]:
                known |= {"pid": row["pid"], "resources": row["resources"]}
    return rows


def _actor(snapshot: Snapshot, row: Row, calls: int, kept: int) -> Row:
    namespace, name = row["name"] or (None, None)
    checkpoints = row.get("checkpoints")
    return {
        "actor_id": row["actor"],
        "class_name": row["class"],
        "state": _ACTOR_STATES[_sooner.ACTOR_PHASES[row["phase"]]],
        "name": name,
        "namespace": namespace,
        "job_id": row.get("job") or snapshot.job(row["owner"]),
        "node_id": snapshot.node_of(row["worker"]) if row["worker"] else None,
        "worker_id": row["worker"],
        "pid": row["pid"] or snapshot.pid(row["worker"]),
        "owner_id": row["owner"],
        "pending_calls": calls,
        "required_resources": row["resources"],
        "death_cause": row["death"],
        "is_detached": bool(row["detached"]),
        "restarts": row.get("restarts") or 0,
        "checkpoints": checkpoints,
        "calls_since_checkpoint": None if checkpoints is None else kept,
    }


def workers(snapshot: Snapshot) -> Iterator[Row]:
    """The drivers and their workers; then those that ended lately."""
    for job in snapshot.drivers.values():
        if job["has_driver"]:
            driver: Row = {"worker": job["job"], "pid": job["pid"], "actor": None, "client": None}
            yield _worker(snapshot, driver | {"blocked": False, "resources": {}}, "DRIVER", "RUNNING")
    for told in snapshot.told.values():
        for row in told["workers"]:
            yield _worker(snapshot, row, "WORKER", _sooner.WORKER_STATES[row["state"]].upper())
    gone = [row for told in snapshot.told.values() for row in told["ended"]]
    for row in sorted(gone, key=lambda row: -row["at"]):
        base: Row = {"actor": None, "client": None, "blocked": False, "resources": {}}
        ended = _worker(snapshot, base | row, "WORKER", "DEAD")
        reason = row["reason"] or None
        at = snapshot.milliseconds(row["at"])
        yield ended | {"exit_detail": reason, "end_time_ms": at, "exit_type": _exit_type(reason)}


def _exit_type(reason: str | None) -> str:
    """Ray's word for why a worker has ended."""
    if reason is None:
        return "INTENDED_SYSTEM_EXIT"
    if "memory" in reason:
        return "NODE_OUT_OF_MEMORY"
    is_failure = "exited with status" in reason or "killed by signal" in reason
    return "SYSTEM_ERROR" if is_failure else "INTENDED_SYSTEM_EXIT"


def _worker(snapshot: Snapshot, row: Row, kind: str, state: str) -> Row:
    report = snapshot.reports.get(row["worker"], {})
    return {
        "worker_id": row["worker"],
        "worker_type": kind,
        "state": state,
        "is_alive": state != "DEAD",
        "pid": row["pid"] or None,
        "node_id": snapshot.node_of(row["worker"]),
        "actor_id": row["actor"],
        "client_id": row["client"],
        "running_tasks": [task["task"] for task in report.get("running", ())],
        "is_blocked": row["blocked"],
        "resources": row["resources"],
        "exit_detail": None,
        "end_time_ms": None,
        "exit_type": None,
    }


def nodes(snapshot: Snapshot) -> Iterator[Row]:
    """The node that was asked, then the others of its cluster, as that node knows them."""
    node, cluster = snapshot.node, snapshot.node["cluster"]
    yield {
        "node_id": node["node"],
        "node_ip": cluster["address"].rpartition(":")[0] if cluster else "127.0.0.1",
        "node_name": snapshot.name or os.uname().nodename,
        "state": "ALIVE",
        "is_head_node": cluster is None or cluster["is_head"],
        "resources_total": node["total"],
        "resources_available": {name: node["free"].get(name, 0.0) for name in node["total"]},
        "object_store_used_bytes": node["store_used"],
        "object_store_capacity_bytes": node["store_capacity"],
        "start_time_ms": snapshot.milliseconds(node["started"]),
        "labels": dict(node["labels"] or ()),
        "address": cluster["address"] if cluster else None,
        "host": os.uname().nodename,
    }
    if cluster:
        free = {row["node"]: row["free"] for row in cluster["view"]}
        yield from (_other(snapshot, row, free) for row in cluster["nodes"] if row["node"] != node["node"])


def gone_nodes(snapshot: Snapshot) -> Iterator[Row]:
    """The latest nodes that died or left, as the node that was asked knew them: with a `reason`."""
    cluster = snapshot.node["cluster"]
    for gone in (cluster["gone"] if cluster else None) or ():
        about = gone["row"]["about"]
        yield {
            "node_id": gone["row"]["node"],
            "host": about["host"],
            "address": about["address"],
            "labels": dict(about["labels"]),
            "reason": gone["reason"],
        }


def _other(snapshot: Snapshot, row: Row, free: dict[str, Row]) -> Row:
    about = row["about"]
    # The other node's own report, if it was asked.
    told = snapshot.told.get(row["node"])
    total, now = about["resources"], told["free"] if told else free.get(row["node"])
    capacity = int(total.get("object_store_memory", 0))
    address = about["address"]
    return {
        "node_id": row["node"],
        "node_ip": address.rpartition(":")[0] if address else None,
        "node_name": about["name"],
        "state": "DRAINING" if row["state"] else "SLOW" if row["is_slow"] else "ALIVE",
        "is_head_node": address == snapshot.node["cluster"]["head"],
        "resources_total": total,
        # In a large cluster no node knows the free resources of all nodes.
        "resources_available": None if now is None else {name: now.get(name, 0.0) for name in total},
        "object_store_used_bytes": told["store_used"] if told else None,
        "object_store_capacity_bytes": told["store_capacity"] if told else capacity,
        "start_time_ms": snapshot.milliseconds(told["started"]) if told else None,
        "labels": dict(about["labels"]),
        "address": address,
        "host": about["host"],
    }


def placement_groups(snapshot: Snapshot) -> Iterator[Row]:
    """The placement groups, those that were removed last."""
    for row in snapshot.node["groups"] or ():
        namespace, name = row["title"] or (None, None)
        yield {
            "placement_group_id": row["group"],
            "name": name,
            "namespace": namespace,
            "state": row["phase"],
            "strategy": row["strategy"],
            "bundles": [
                {"bundle_index": index, "node_id": bundle["node"], "resources": bundle["resources"]}
                for index, bundle in enumerate(row["bundles"])
            ],
            "is_detached": row["detached"],
            "reason": row["reason"],
        }


def jobs(snapshot: Snapshot) -> Iterator[Row]:
    """Programs; those that have ended are there as long as their detached actors."""
    for job in snapshot.drivers.values():
        yield {
            "job_id": job["job"],
            "type": "DRIVER",
            "status": "RUNNING" if job["has_driver"] else "STOPPED",
            "entrypoint": _entrypoint(snapshot, job) if job["has_driver"] else "",
            "driver_pid": job["pid"],
            "namespace": job["namespace"],
            "start_time_ms": snapshot.milliseconds(job["started"]),
            "session_dir": snapshot.directory if snapshot.is_here(job["job"]) else "",
        }


def _entrypoint(snapshot: Snapshot, job: Row) -> str:
    # The process ids of other nodes may be those of other machines.
    return _command_line(job["pid"]) if snapshot.is_here(job["job"]) else job["entrypoint"] or ""


def _command_line(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _unborn_actor(owner: str, task: Row) -> Row:
    return {
        "actor": task["task"],
        "owner": owner,
        "class": task["label"]["function"],
        "name": None,
        "phase": _sooner.ACTOR_PHASES.index("reserved"),
        "worker": None,
        "pid": 0,
        "death": None,
        "resources": task["resources"] or {},
        "detached": False,
    }
