"""Rows of tasks of a snapshot, and their counts: plain dictionaries. Times are milliseconds since 1970."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sooner import _sooner
from sooner._state.rows import actors as actors_of
from sooner._state.snapshot import ACTORS, EVENTS, EVENTS_MAX, ROWS_MAX, TASKS, Execution, Row, Snapshot

UNFINISHED = (*_sooner.TASK_STATES, "RUNNING")


def tasks(snapshot: Snapshot) -> Iterator[Row]:
    """Tasks that have not ended, oldest first, then executions that have, latest first."""
    running = snapshot.running()
    actors = {row["actor_id"]: row for row in actors_of(snapshot)}
    for owner, report in snapshot.reports.items():
        for row in report["tasks"]:
            yield _pending(snapshot, owner, row, running, actors)
    for owner, label, execution in snapshot.executions():
        yield _ended(snapshot, owner, label, execution, actors)


def kind_of(label: Row) -> str:
    """Ray's word for the kind of a task."""
    return _sooner.TASK_KINDS[label["kind"]]


def _function(label: Row, actors: dict[str, Row]) -> str:
    """The function of a task: "function", "Class.method" or "Class.__init__"."""
    name: str = label["function"]
    kind = kind_of(label)
    if kind == "ACTOR_CREATION_TASK":
        return f"{name}.__init__"
    if kind == "ACTOR_TASK" and (actor := actors.get(label["actor"])):
        return f"{actor['class_name']}.{name}"
    return name


def _task(snapshot: Snapshot, task: str, owner: str, label: Row, actors: dict[str, Row]) -> Row:
    function = _function(label, actors)
    return {
        "task_id": task,
        # The function's, unless the task was given a name.
        "name": function if label["name"] == label["function"] else label["name"],
        "state": "",
        "type": kind_of(label),
        "func_or_class_name": function,
        "attempt_number": 0,
        "job_id": snapshot.job(owner),
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


def _pending(
    snapshot: Snapshot, owner: str, row: Row, running: dict[str, tuple[str, int]], actors: dict[str, Row]
) -> Row:
    task = _task(snapshot, row["task"], owner, row["label"], actors)
    state = _sooner.TASK_STATES[row["state"]]
    worker, since = row["worker"], 0
    if row["task"] in running:
        state = "RUNNING"
        worker, since = running[row["task"]]
    if task["type"] == "ACTOR_CREATION_TASK" and state != "PENDING_ARGS_AVAIL":
        # The owner learns where the actor is, and the actor's node whether the constructor has returned.
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
        "node_id": snapshot.node_of(worker) if worker else None,
        "worker_id": worker,
        "worker_pid": snapshot.pid(worker),
        "required_resources": row["resources"],
        "creation_time_ms": snapshot.milliseconds(row["submitted"]),
        "start_time_ms": snapshot.milliseconds(since),
        "waits_for": row["missing"],
    }
    return task


def _ended(snapshot: Snapshot, owner: str, label: Row, execution: Execution, actors: dict[str, Row]) -> Row:
    task = _task(snapshot, f"{owner}{execution.number:016x}", owner, label, actors)
    worker = f"{execution.worker:016x}" if execution.worker else None
    task |= {
        "state": "FAILED" if execution.outcome else "FINISHED",
        "attempt_number": execution.attempt,
        "node_id": snapshot.node_of(worker) if worker else None,
        "worker_id": worker,
        "worker_pid": snapshot.pid(worker),
        "error_type": error_type(execution.outcome),
        "creation_time_ms": snapshot.milliseconds(execution.submitted),
        "start_time_ms": snapshot.milliseconds(execution.started),
        "end_time_ms": snapshot.milliseconds(execution.submitted + execution.ended),
        "phases_ms": {name: round(nanos / 1e6, 6) for name, nanos in phases(execution)},
    }
    return task


def error_type(outcome: int) -> str | None:
    """Ray's word for how an execution failed; None if it finished."""
    if outcome == 0:
        return None
    # A node of a later version may have codes that this version does not know.
    return _sooner.FAILURES[outcome - 1] if outcome <= len(_sooner.FAILURES) else "SYSTEM_ERROR"


def phases(execution: Execution) -> Iterator[tuple[str, float]]:
    """The phases of an execution and their durations (nanoseconds), without phases that did not happen."""
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


def summary_of_tasks(directory: str, timeout: float = 30) -> dict[str, Any]:
    """Tasks by function and state. Executions are counted by number, without a row for each."""
    snapshot = Snapshot(directory, TASKS | EVENTS | ACTORS, ROWS_MAX, EVENTS_MAX, timeout, everywhere=True)
    counts: dict[tuple[str, str], dict[str, int]] = {}
    peaks: dict[tuple[str, str], int] = {}
    running, actors = snapshot.running(), {row["actor_id"]: row for row in actors_of(snapshot)}
    for owner, report in snapshot.reports.items():
        for pending in report["tasks"]:
            row = _pending(snapshot, owner, pending, running, actors)
            key = (row["func_or_class_name"], row["type"])
            _count(counts, key, row["state"])
            _see_peak(peaks, key, snapshot.peak(pending["label"]))
    for _, label, execution in snapshot.executions():
        # An execution that is repeated is the task's former state.
        if not execution.again:
            key = (_function(label, actors), kind_of(label))
            _count(counts, key, "FAILED" if execution.outcome else "FINISHED")
            _see_peak(peaks, key, snapshot.peak(label))
    summary = {
        name: {
            "func_or_class_name": name,
            "type": kind,
            "state_counts": states,
            "peak_memory_bytes": peaks.get((name, kind)),
        }
        for (name, kind), states in counts.items()
    }
    totals = dict.fromkeys(_sooner.TASK_KINDS, 0)
    for (_, kind), states in counts.items():
        totals[kind] += sum(states.values())
    return {
        "summary": summary,
        "total_tasks": totals["NORMAL_TASK"],
        "total_actor_tasks": totals["ACTOR_TASK"],
        "total_actor_scheduled": totals["ACTOR_CREATION_TASK"],
        "events_lost": snapshot.events_lost(),
    }


def _see_peak(peaks: dict[tuple[str, str], int], key: tuple[str, str], peak: int | None) -> None:
    if peak is not None:
        peaks[key] = max(peak, peaks.get(key, 0))


def _count(counts: dict[tuple[str, str], dict[str, int]], key: tuple[str, str], state: str) -> None:
    states = counts.setdefault(key, {})
    states[state] = states.get(state, 0) + 1
