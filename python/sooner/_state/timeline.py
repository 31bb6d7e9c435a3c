"""The timeline: a trace of every task in the format of Chrome's and Perfetto's viewers.

One track per worker (more where calls overlap) shows the tasks that ran there: the whole task, and within it
loading, the call and storing. A task's waits before that are on the track of the process that submitted it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO, Any

from sooner._state.snapshot import EVENTS, EVENTS_MAX, TASKS, Execution, Row, Snapshot
from sooner._state.task_rows import error_type, kind_of, phases

_WAITS = ("queued", "lease", "transfer")
_WORKERS, _OWNERS = 1, 2


def events(directory: str, timeout: float = 30) -> Iterator[Row]:
    """The events of the trace, one after the other."""
    snapshot = Snapshot(directory, TASKS | EVENTS, events=EVENTS_MAX, timeout=timeout, everywhere=True)
    executions = list(snapshot.executions())
    tracks = _Tracks(snapshot)
    for node in snapshot.told:
        yield _meta(tracks.place(node), 0, "process_name", f"workers of node {node}")
    yield _meta(_OWNERS, 0, "process_name", "waiting, by the process that submitted")
    owners: dict[str, int] = {}
    for owner, label, execution in executions:
        if owner not in owners:
            owners[owner] = len(owners) + 1
            yield _meta(_OWNERS, owners[owner], "thread_name", _title(snapshot, owner))
        yield from _waits(snapshot, owner, label, execution, owners[owner])
    ran = [one for one in executions if one[2].started]
    ran.sort(key=lambda one: one[2].started)
    for owner, label, execution in ran:
        worker = f"{execution.worker:016x}"
        end = execution.started + execution.run + execution.store
        track, is_new = tracks.take(worker, execution.started, end)
        if is_new:
            yield tracks.meta(worker, track)
        yield from _slices(tracks, owner, label, execution, track)
    yield from _running(snapshot, tracks)


class _Tracks:
    """Tracks by worker: calls that run at the same time lie on different ones."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._ends: dict[str, list[tuple[int, float]]] = {}
        self._count = 0
        # Each node is a process of the trace, and the node that was asked is the first. All processes that
        # submit tasks are together one process of the trace.
        self._places = {node: _WORKERS if at == 0 else _OWNERS + at for at, node in enumerate(snapshot.told)}

    def place(self, node: str) -> int:
        """The process of the trace for a node: the first one for a node that was not asked, or has ended."""
        return self._places.get(node, _WORKERS)

    def process(self, worker: str) -> int:
        """The process of the trace in which a worker has its tracks."""
        return self.place(self._snapshot.node_of(worker))

    def meta(self, worker: str, track: int) -> Row:
        """The event that names a new track."""
        return _meta(self.process(worker), track, "thread_name", self.title(worker, track))

    def take(self, worker: str, start: float, end: float) -> tuple[int, bool]:
        lanes = self._ends.setdefault(worker, [])
        for at, (track, busy_until) in enumerate(lanes):
            if busy_until <= start:
                lanes[at] = (track, end)
                return track, False
        self._count += 1
        lanes.append((self._count, end))
        return self._count, True

    def title(self, worker: str, track: int) -> str:
        lane = [number for number, _ in self._ends[worker]].index(track)
        return _title(self._snapshot, worker) + (f" ({lane + 1})" if lane else "")


def _title(snapshot: Snapshot, worker: str) -> str:
    kind = "driver" if worker in snapshot.drivers else "worker"
    pid = snapshot.pid(worker)
    return f"{kind} {pid}" if pid else f"{kind} {worker}"


def _meta(process: int, track: int, what: str, name: str) -> Row:
    return {"ph": "M", "pid": process, "tid": track, "name": what, "args": {"name": name}}


def _waits(snapshot: Snapshot, owner: str, label: Row, execution: Execution, track: int) -> Iterator[Row]:
    task = f"{owner}{execution.number:016x}"
    at = execution.submitted / 1e3
    common: dict[str, Any] = {"pid": _OWNERS, "tid": track, "id": f"{task}/{execution.attempt}"}
    for name, nanos in phases(execution):
        if name not in _WAITS:
            return
        if nanos:
            args = {"task_id": task, "task": label["name"]}
            yield common | {"ph": "b", "cat": name, "name": name, "ts": at, "args": args}
            yield common | {"ph": "e", "cat": name, "name": name, "ts": at + nanos / 1e3}
        at += nanos / 1e3


def _slices(tracks: _Tracks, owner: str, label: Row, execution: Execution, track: int) -> Iterator[Row]:
    at = execution.started / 1e3
    common: dict[str, Any] = {"ph": "X", "pid": tracks.process(f"{execution.worker:016x}"), "tid": track}
    took = {name: nanos / 1e3 for name, nanos in phases(execution)}
    whole = (execution.run + execution.store) / 1e3
    args = {
        "task_id": f"{owner}{execution.number:016x}",
        "attempt": execution.attempt,
        "state": "FAILED" if execution.outcome else "FINISHED",
        "error_type": error_type(execution.outcome),
        "owner_id": owner,
        "worker_id": f"{execution.worker:016x}",
        "actor_id": label["actor"],
        "parent_task_id": label["parent"],
        "submitted_us": execution.submitted / 1e3,
        "phases_us": took,
    }
    yield common | {"cat": kind_of(label), "name": label["name"], "ts": at, "dur": whole, "args": args}
    for name in ("deserialise", "run", "store"):
        if took[name]:
            yield common | {"cat": name, "name": name, "ts": at, "dur": took[name]}
        at += took[name]


def _running(snapshot: Snapshot, tracks: _Tracks) -> Iterator[Row]:
    running = snapshot.running()
    for report in snapshot.reports.values():
        for row in report["tasks"]:
            if row["task"] not in running:
                continue
            worker, since = running[row["task"]]
            track, is_new = tracks.take(worker, since, float("inf"))
            if is_new:
                yield tracks.meta(worker, track)
            yield {
                "ph": "X",
                "pid": tracks.process(worker),
                "tid": track,
                "cat": kind_of(row["label"]),
                "name": row["label"]["name"],
                "ts": since / 1e3,
                "dur": max(0, snapshot.now_ns - since) / 1e3,
                "args": {"task_id": row["task"], "state": "RUNNING", "worker_id": worker},
            }


def write(directory: str, file: IO[str], timeout: float = 30) -> int:
    """Writes the trace as JSON, without holding it in memory. Returns the number of events."""
    count = 0
    file.write("[")
    for event in events(directory, timeout):
        file.write((",\n" if count else "\n") + json.dumps(event))
        count += 1
    file.write("\n]\n")
    return count
