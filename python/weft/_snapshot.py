"""What a running session tells about itself, joined into rows: plain dictionaries, a few imports, no state.

`weft.state` makes typed records of the rows, the `weft` command prints them. Times are milliseconds since 1970; the
engine's own are monotonic nanoseconds of the same machine.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from weft import _weft
from weft._membership import base_directory, representative

TASKS, OBJECTS, ACTORS, EVENTS, METRICS, STACKS = 1, 2, 4, 8, 16, 32

# Rows per process and table that a question without a limit asks for (the engine's own bound).
ROWS_MAX = 100_000
# More than any ring holds.
EVENTS_MAX = 1 << 31

Row = dict[str, Any]

# One execution of a task, as `Record` of the engine lays it out.
_RECORD = struct.Struct("<4Q6fIBBH")

TASK_TYPES = ("NORMAL_TASK", "ACTOR_CREATION_TASK", "ACTOR_TASK")
UNFINISHED = ("PENDING_ARGS_AVAIL", "PENDING_NODE_ASSIGNMENT", "SUBMITTED_TO_WORKER", "RUNNING")
_ACTOR_STATES = ("DEPENDENCIES_UNREADY", "PENDING_CREATION", "PENDING_CREATION", "ALIVE", "DEAD", "RESTARTING")
_WORKER_STATES = ("STARTING", "IDLE", "LEASED", "ACTOR")
# In the order of the engine's failure codes.
_ERROR_TYPES = (
    "TASK_EXECUTION_EXCEPTION",
    "WORKER_DIED",
    "ACTOR_DIED",
    "ACTOR_UNAVAILABLE",
    "TASK_CANCELLED",
    "OWNER_DIED",
    "OBJECT_LOST",
    "OBJECT_FREED",
    "OBJECT_STORE_FULL",
    "OUT_OF_MEMORY",
    "TASK_UNSCHEDULABLE_ERROR",
    "ACTOR_UNSCHEDULABLE_ERROR",
    "SYSTEM_ERROR",
    "NODE_DIED",
    "PENDING_CALLS_LIMIT",
    "RUNTIME_ENV_SETUP_FAILED",
    "GET_TIMEOUT",
    "ACTOR_NAME_TAKEN",
    "ACTOR_INIT_FAILED",
    "END_OF_STREAM",
    "OBJECT_RECONSTRUCTION_FAILED",
    "OBJECT_RECONSTRUCTION_FAILED_LINEAGE_EVICTED",
    "TASK_PLACEMENT_GROUP_REMOVED",
    "ACTOR_PLACEMENT_GROUP_REMOVED",
)


class Execution(NamedTuple):
    """One execution of a task that has ended. Times in monotonic nanoseconds, durations in nanoseconds."""

    number: int
    submitted: int
    started: int
    worker: int
    ready: float
    pushed: float
    deserialise: float
    run: float
    store: float
    ended: float
    label: int
    outcome: int
    again: int
    attempt: int


class NoSessionError(ConnectionError):
    """There is no session to ask, or several to choose from."""


def running_sessions(base: str | None = None) -> list[str]:
    """The directories of running sessions, newest first: programs with nodes of their own, and nodes.

    Args:
        base: Where to look; where this user's are by default.
    """
    import fcntl

    found = []
    base = base or base_directory()
    try:
        names = os.listdir(base)
    except OSError:
        return []
    for name in names:
        path = os.path.join(base, name)
        try:
            lock = os.open(os.path.join(path, "lock"), os.O_RDONLY)
        except OSError:
            continue
        try:
            # The driver holds it for as long as it lives.
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            found.append((os.fstat(lock).st_mtime, path))
        finally:
            os.close(lock)
    return [path for _, path in sorted(found, reverse=True) if _is_kind(path, "session-", "node-")]


def running_nodes(base: str | None = None) -> list[str]:
    """The directories of this user's nodes that `weft start` started, newest first."""
    return [path for path in running_sessions(base) if _is_kind(path, "node-")]


def _is_kind(path: str, *prefixes: str) -> bool:
    return path.rpartition("/")[2].startswith(prefixes)


def choose_session(address: str | None) -> str:
    """The directory of the session that is meant.

    Raises:
        NoSessionError: None runs, several run, or the one that is named does not.
    """
    running = running_sessions()
    if address is not None:
        path = address.rstrip("/")
        matching = [one for one in running if path in (one, one.rpartition("/")[2])]
        if matching or os.path.exists(os.path.join(path, "node.sock")):
            return matching[0] if matching else path
        raise NoSessionError(f"no session runs in {address}. Running: {', '.join(running) or 'none'}")
    if not running:
        raise NoSessionError(f"no weft program of yours runs (looked in {base_directory()}; WEFT_TMPDIR sets where)")
    # Programs beside nodes have nodes of their own, and are named to be looked at.
    if chosen := representative(running_nodes()):
        return chosen
    if len(running) > 1:
        raise NoSessionError("several weft programs run; choose one of: " + " ".join(running))
    return running[0]


class Snapshot:
    """Answers of one moment. Processes are asked at the same time, not stopped: rows of two may be a little apart."""

    def __init__(self, directory: str, about: int, rows: int = ROWS_MAX, events: int = 0, timeout: float = 30) -> None:
        socket = os.path.join(directory, "node.sock")
        answer = _weft.inspect(socket, about, min(rows, ROWS_MAX), events, int(timeout * 1e9))
        self.directory = directory
        self.node, reports, self.silent = answer
        self.reports: dict[str, Row] = dict(reports)
        self.now_ns = time.monotonic_ns()
        self._epoch_ns = time.time_ns() - self.now_ns
        self._pids: dict[str, int] = {row["worker"]: row["pid"] for row in self.node["ended"]}
        self._pids |= {row["worker"]: row["pid"] for row in self.node["workers"]}
        # Those of a node that is a thread of a program: its only one.
        self.drivers: dict[str, Row] = {row["job"]: row for row in self.node["jobs"]}
        self._pids |= {job: row["pid"] for job, row in self.drivers.items()}
        self._jobs: dict[str, str] = {row["worker"]: row["job"] for row in self.node["workers"]}
        # What `weft start` called the node; None for a thread of a program.
        self.name: str | None = self.node["name"]

    def job(self, worker: str) -> str:
        """The job of a process: the id of its driver. A process that is gone may have any, if there are several."""
        if worker in self.drivers:
            return worker
        return self._jobs.get(worker) or next(iter(self.drivers), worker)

    def pid(self, worker: str | None) -> int | None:
        """The process id of a worker that lives or ended lately."""
        return self._pids.get(worker) if worker else None

    def milliseconds(self, nanos: float) -> float | None:
        """Milliseconds since 1970 of a monotonic time; None for zero."""
        return round((nanos + self._epoch_ns) / 1e6, 3) if nanos else None

    def tasks(self) -> Iterator[Row]:
        """Tasks that have not ended, oldest first, then executions that have, latest first."""
        running = self.running()
        actors = {row["actor_id"]: row for row in self.actors()}
        for owner, report in self.reports.items():
            for row in report["tasks"]:
                yield self._pending(owner, row, running, actors)
        for owner, label, execution in self.executions():
            yield self._ended(owner, label, execution)

    def running(self) -> dict[str, tuple[str, int]]:
        """Task id -> worker that runs it and since when (monotonic nanoseconds)."""
        return {
            row["task"]: (worker, row["since"]) for worker, report in self.reports.items() for row in report["running"]
        }

    def executions(self) -> Iterator[tuple[str, Row, Execution]]:
        """Owner, label and record of every execution that has ended, latest first."""
        for owner, report in self.reports.items():
            events = report["events"]
            if events is None:
                continue
            labels = events["labels"]
            for fields in reversed(list(_RECORD.iter_unpack(events["records"]))):
                yield owner, labels[fields[10]], Execution._make(fields)

    def events_lost(self) -> int:
        """Executions whose records made room for later ones."""
        return sum(report["events"]["lost"] for report in self.reports.values() if report["events"])

    def _task(self, task: str, owner: str, label: Row) -> Row:
        return {
            "task_id": task,
            "name": label["name"],
            "state": "",
            "type": TASK_TYPES[label["kind"]],
            "func_or_class_name": label["function"],
            "attempt_number": 0,
            "job_id": self.job(owner),
            "node_id": None,
            "worker_id": None,
            "worker_pid": None,
            "actor_id": label["actor"],
            "parent_task_id": label["parent"],
            "owner_id": owner,
            "required_resources": None,
            "error_type": None,
            "creation_time_ms": None,
            "start_time_ms": None,
            "end_time_ms": None,
            "waits_for": [],
            "phases_ms": {},
        }

    def _pending(self, owner: str, row: Row, running: dict[str, tuple[str, int]], actors: dict[str, Row]) -> Row:
        task = self._task(row["task"], owner, row["label"])
        state = ("PENDING_ARGS_AVAIL", "PENDING_NODE_ASSIGNMENT", "SUBMITTED_TO_WORKER")[row["state"]]
        worker, since = row["worker"], 0
        if row["task"] in running:
            state = "RUNNING"
            worker, since = running[row["task"]]
        if row["label"]["kind"] == 1 and row["state"] != 0:
            # Its owner hears where the actor is, its node whether the constructor has returned.
            actor = actors.get(row["task"], {})
            worker = actor.get("worker_id")
            if actor.get("state") == "ALIVE":
                state = "FINISHED"
            elif actor.get("state") == "DEAD":
                state = "FAILED"
            elif worker:
                state = "RUNNING"
        task |= {
            "state": state,
            "attempt_number": row["attempt"],
            "node_id": self.node["node"] if worker else None,
            "worker_id": worker,
            "worker_pid": self.pid(worker),
            "required_resources": row["resources"],
            "creation_time_ms": self.milliseconds(row["submitted"]),
            "start_time_ms": self.milliseconds(since),
            "waits_for": row["missing"],
        }
        return task

    def _ended(self, owner: str, label: Row, execution: Execution) -> Row:
        task = self._task(f"{owner}{execution.number:016x}", owner, label)
        worker = f"{execution.worker:016x}" if execution.worker else None
        task |= {
            "state": "FAILED" if execution.outcome else "FINISHED",
            "attempt_number": execution.attempt,
            "node_id": self.node["node"] if worker else None,
            "worker_id": worker,
            "worker_pid": self.pid(worker),
            "error_type": error_type(execution.outcome),
            "creation_time_ms": self.milliseconds(execution.submitted),
            "start_time_ms": self.milliseconds(execution.started),
            "end_time_ms": self.milliseconds(execution.submitted + execution.ended),
            "phases_ms": {name: round(nanos / 1e6, 6) for name, nanos in phases(execution)},
        }
        return task

    def actors(self) -> Iterator[Row]:
        """Actors that live, wait, or are dead and still referred to."""
        calls: dict[str, int] = {}
        kept: dict[str, int] = {}
        for report in self.reports.values():
            for known in report["actors"]:
                calls[known["actor"]] = calls.get(known["actor"], 0) + known["queued"] + known["in_flight"]
                kept[known["actor"]] = kept.get(known["actor"], 0) + (known["kept"] or 0)
        rows = {row["actor"]: row for row in self.node["actors"]}
        for owner, report in self.reports.items():
            for task in report["tasks"]:
                if task["label"]["kind"] == 1 and task["task"] not in rows:
                    # Its arguments are not there yet, so no node has heard of it.
                    yield self._actor(_unborn_actor(owner, task), 0, 0)
        for row in rows.values():
            yield self._actor(row, calls.get(row["actor"], 0), kept.get(row["actor"], 0))

    def _actor(self, row: Row, calls: int, kept: int) -> Row:
        namespace, name = row["name"] or (None, None)
        checkpoints = row.get("checkpoints")
        return {
            "actor_id": row["actor"],
            "class_name": row["class"],
            "state": _ACTOR_STATES[row["phase"]],
            "name": name,
            "namespace": namespace,
            "job_id": row.get("job") or self.job(row["owner"]),
            "node_id": self.node["node"] if row["worker"] else None,
            "worker_id": row["worker"],
            "pid": row["pid"] or None,
            "owner_id": row["owner"],
            "pending_calls": calls,
            "required_resources": row["resources"],
            "death_cause": row["death"],
            "is_detached": bool(row["detached"]),
            "restarts": row.get("restarts") or 0,
            "checkpoints": checkpoints,
            "calls_since_checkpoint": None if checkpoints is None else kept,
        }

    def objects(self) -> Iterator[Row]:
        """What every process owns or borrows, the largest first."""
        from weft._objects import Objects

        yield from Objects(self).rows()

    def workers(self) -> Iterator[Row]:
        """The drivers and their workers; then those that ended lately."""
        for job in self.drivers.values():
            if job["has_driver"]:
                driver: Row = {"worker": job["job"], "pid": job["pid"], "actor": None, "client": None}
                yield self._worker(driver | {"blocked": False, "resources": {}}, "DRIVER", "RUNNING")
        for row in self.node["workers"]:
            yield self._worker(row, "WORKER", _WORKER_STATES[row["state"]])
        for row in reversed(self.node["ended"]):
            base: Row = {"actor": None, "client": None, "blocked": False, "resources": {}}
            ended = self._worker(base | row, "WORKER", "DEAD")
            yield ended | {"exit_detail": row["reason"] or None, "end_time_ms": self.milliseconds(row["at"])}

    def _worker(self, row: Row, kind: str, state: str) -> Row:
        report = self.reports.get(row["worker"], {})
        return {
            "worker_id": row["worker"],
            "worker_type": kind,
            "state": state,
            "is_alive": state != "DEAD",
            "pid": row["pid"] or None,
            "node_id": self.node["node"],
            "actor_id": row["actor"],
            "client_id": row["client"],
            "running_tasks": [task["task"] for task in report.get("running", ())],
            "is_blocked": row["blocked"],
            "resources": row["resources"],
            "exit_detail": None,
            "end_time_ms": None,
        }

    def nodes(self) -> Iterator[Row]:
        """The node that was asked, then the others of its cluster, as that node knows them."""
        node, cluster = self.node, self.node["cluster"]
        yield {
            "node_id": node["node"],
            "node_ip": cluster["address"].rpartition(":")[0] if cluster else "127.0.0.1",
            "node_name": self.name or os.uname().nodename,
            "state": "ALIVE",
            "is_head_node": cluster is None or cluster["is_head"],
            "resources_total": node["total"],
            "resources_available": {name: node["free"].get(name, 0.0) for name in node["total"]},
            "object_store_used_bytes": node["store_used"],
            "object_store_capacity_bytes": node["store_capacity"],
            "start_time_ms": self.milliseconds(node["started"]),
            "labels": dict(node["labels"] or ()),
            "address": cluster["address"] if cluster else None,
            "host": os.uname().nodename,
        }
        if cluster:
            free = {row["node"]: row["free"] for row in cluster["view"]}
            yield from (self._other(row, free) for row in cluster["nodes"] if row["node"] != node["node"])

    def _other(self, row: Row, free: dict[str, Row]) -> Row:
        about = row["about"]
        total, now = about["resources"], free.get(row["node"])
        address = about["address"]
        return {
            "node_id": row["node"],
            "node_ip": address.rpartition(":")[0] if address else None,
            "node_name": about["name"],
            "state": "DRAINING" if row["state"] else "SLOW" if row["is_slow"] else "ALIVE",
            "is_head_node": address == self.node["cluster"]["head"],
            "resources_total": total,
            # Of large clusters, nobody knows what everybody has.
            "resources_available": None if now is None else {name: now.get(name, 0.0) for name in total},
            "object_store_used_bytes": None,
            "object_store_capacity_bytes": int(total.get("object_store_memory", 0)),
            "start_time_ms": None,
            "labels": dict(about["labels"]),
            "address": address,
            "host": about["host"],
        }

    def placement_groups(self) -> Iterator[Row]:
        """The placement groups, those that were removed last."""
        for row in self.node["groups"] or ():
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

    def jobs(self) -> Iterator[Row]:
        """Programs; those that have ended are there as long as their detached actors."""
        for job in self.drivers.values():
            yield {
                "job_id": job["job"],
                "type": "DRIVER",
                "status": "RUNNING" if job["has_driver"] else "STOPPED",
                "entrypoint": _entrypoint(job["pid"]) if job["has_driver"] else "",
                "driver_pid": job["pid"],
                "namespace": job["namespace"],
                "start_time_ms": self.milliseconds(job["started"]),
                "session_dir": self.directory,
            }


def _entrypoint(pid: int) -> str:
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
        "phase": 0,
        "worker": None,
        "pid": 0,
        "death": None,
        "resources": task["resources"] or {},
        "detached": False,
    }


def error_type(outcome: int) -> str | None:
    """Ray's word for how an execution failed; None if it finished."""
    return None if outcome == 0 else _ERROR_TYPES[min(outcome, len(_ERROR_TYPES)) - 1]


def phases(execution: Execution) -> Iterator[tuple[str, float]]:
    """The phases of an execution and how long they took (nanoseconds); those that did not happen are left out."""
    yield "queued", execution.ready
    if not execution.worker:
        return
    yield "lease", max(0.0, execution.pushed - execution.ready)
    if not execution.started:
        return
    yield "transfer", max(0.0, execution.started - execution.submitted - execution.pushed)
    yield "deserialise", execution.deserialise
    yield "run", max(0.0, execution.run - execution.deserialise)
    yield "store", execution.store


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
        if key not in known:
            raise ValueError(f"{key!r} is not a field to filter by; fields: {', '.join(known)}")
        if operator not in ("=", "!="):
            raise ValueError(f"the operator of a filter is '=' or '!=', not {operator!r}")
        checked.append((key, operator == "=", value))
    return lambda row: all(_is_equal(row[key], value) == wanted for key, wanted, value in checked)


def _is_equal(actual: Any, value: Any) -> bool:
    return bool(actual == value) or str(actual).lower() == str(value).lower()


KINDS: dict[str, tuple[int, Callable[[Snapshot], Iterator[Row]]]] = {
    "tasks": (TASKS | EVENTS, Snapshot.tasks),
    "actors": (ACTORS | TASKS, Snapshot.actors),
    "objects": (OBJECTS | TASKS, Snapshot.objects),
    "workers": (TASKS, Snapshot.workers),
    "nodes": (0, Snapshot.nodes),
    "jobs": (0, Snapshot.jobs),
    "placement-groups": (0, Snapshot.placement_groups),
}


def rows_of(
    directory: str, kind: str, filters: Iterable[Filter] = (), limit: int = 100, timeout: float = 30
) -> tuple[list[Row], Snapshot]:
    """Rows of one kind that match, and the snapshot they come from."""
    about, make = KINDS[kind]
    filters = list(filters)
    ends = {one[2] for one in filters if tuple(one[:2]) == ("state", "=")}
    # What has ended is only fetched as far as it can be among the rows.
    events = 0 if ends and ends <= set(UNFINISHED) else EVENTS_MAX if filters else limit
    rows = ROWS_MAX if filters or kind != "tasks" else limit
    snapshot = Snapshot(directory, about, rows, events, timeout)
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


def summary_of_tasks(directory: str, timeout: float = 30) -> dict[str, Any]:
    """Tasks by function and state. Executions are counted by number, without a row for each."""
    snapshot = Snapshot(directory, TASKS | EVENTS | ACTORS, ROWS_MAX, EVENTS_MAX, timeout)
    counts: dict[tuple[str, str], dict[str, int]] = {}
    running, actors = snapshot.running(), {row["actor_id"]: row for row in snapshot.actors()}
    for owner, report in snapshot.reports.items():
        for pending in report["tasks"]:
            row = snapshot._pending(owner, pending, running, actors)
            _count(counts, (row["func_or_class_name"], row["type"]), row["state"])
    for _, label, execution in snapshot.executions():
        # An execution that is repeated is the task's former state.
        if not execution.again:
            key = (label["function"], TASK_TYPES[label["kind"]])
            _count(counts, key, "FAILED" if execution.outcome else "FINISHED")
    summary = {
        name: {"func_or_class_name": name, "type": kind, "state_counts": states}
        for (name, kind), states in counts.items()
    }
    totals = dict.fromkeys(TASK_TYPES, 0)
    for (_, kind), states in counts.items():
        totals[kind] += sum(states.values())
    return {
        "summary": summary,
        "total_tasks": totals["NORMAL_TASK"],
        "total_actor_tasks": totals["ACTOR_TASK"],
        "total_actor_scheduled": totals["ACTOR_CREATION_TASK"],
        "events_lost": snapshot.events_lost(),
    }


def _count(counts: dict[tuple[str, str], dict[str, int]], key: tuple[str, str], state: str) -> None:
    states = counts.setdefault(key, {})
    states[state] = states.get(state, 0) + 1
