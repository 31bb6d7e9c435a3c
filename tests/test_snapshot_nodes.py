"""Answers of several nodes, joined: whose each row is, and whose clock a time is of. The answers are made
up.
"""

from __future__ import annotations

import copy
import struct
import time

import pytest

from sooner import _sooner
from sooner._state import rows as _rows
from sooner._state import snapshot as _snapshot
from sooner._state import task_rows, timeline

HERE, THERE = "00000000aa000000", "00000000bb000000"
DRIVER, AWAY = "00000000aa000001", "00000000bb000001"
ACTOR = f"{DRIVER}{7:016x}"
# The other node's clock is so far ahead (nanoseconds).
AHEAD = 5_000_000_000_000
MILLI = 1_000_000


def row_of_node(node, name):
    about = {
        "name": name,
        "address": "127.0.0.1:1",
        "host": "h",
        "boot_id": "",
        "resources": {"CPU": 1.0},
        "labels": [],
    }
    return {"node": node, "about": about | {"kind": 0}, "state": 0, "is_slow": False}


def node(identity, **more):
    empty = {key: [] for key in ("workers", "actors", "demands", "ended", "metrics", "jobs")}
    told = {"node": identity, "name": "n", "pid": 1, "started": 1, "total": {"CPU": 1.0}, "free": {"CPU": 1.0}}
    told |= {
        "store_used": 1,
        "store_capacity": 10,
        "blocks": 1,
        "groups": None,
        "labels": None,
        "files": None,
        "peaks": None,
        "memory": None,
    }
    return empty | told | {"cluster": None} | more


def report(**more):
    empty = {key: [] for key in ("tasks", "running", "objects", "actors", "shapes")}
    return empty | {"pid": 5, "events": None, "stack": None, "queued": 0} | more


@pytest.fixture
def snapshot(monkeypatch):
    """A driver here, whose tasks and actor are at the other node; a third node is silent."""
    now = time.monotonic_ns()
    submitted, began = now - 50 * MILLI, now - 40 * MILLI
    record = struct.pack(
        "<4Q6fIBBH", 1, submitted, began + AHEAD, int(AWAY, 16), 0, 0, 0, MILLI, 0, 11 * MILLI, 0, 0, 0, 0
    )
    label = {"name": "f", "function": "f", "kind": 0, "actor": None, "parent": None, "code": None}
    events = {"records": record, "labels": [label], "lost": 0}
    running = f"{DRIVER}{2:016x}"
    pending = {"task": running, "label": label, "state": 2, "worker": AWAY, "submitted": submitted, "pushed": 0}
    pending |= {"missing": [], "resources": {}, "attempt": 0, "retries": 0, "cancelled": False}
    job = {"job": DRIVER, "pid": 5, "namespace": "", "started": 1, "has_driver": True, "entrypoint": None}
    actor = {"actor": ACTOR, "owner": DRIVER, "class": "A", "name": None, "phase": 3, "worker": AWAY, "pid": 0}
    actor |= {"death": None, "resources": {}, "detached": False, "restarts": 0, "checkpoints": None, "job": DRIVER}
    worker = {"worker": AWAY, "pid": 77, "state": 2, "client": DRIVER, "actor": None, "blocked": False, "resources": {}}
    rows = [row_of_node(HERE, "here"), row_of_node(THERE, "there"), row_of_node("00000000cc000000", "third")]
    cluster = {"nodes": rows, "view": [], "address": "127.0.0.1:1", "head": "127.0.0.1:1", "is_head": True}
    here = node(HERE, cluster=cluster, jobs=[job], actors=[actor])
    there = node(
        THERE,
        started=1 + AHEAD,
        workers=[worker | {"job": DRIVER}],
        actors=[actor | {"pid": 77, "resources": {"CPU": 1.0}}],
        ended=[{"worker": "00000000bb000002", "pid": 78, "reason": "r", "at": began + AHEAD}],
    )
    reports = [
        (DRIVER, report(tasks=[pending], events=events)),
        (AWAY, report(pid=77, running=[{"task": running, "since": began + AHEAD, "cancelled": False}])),
    ]
    answer = (here, reports, [], [(AHEAD, there)], ["00000000cc000000"])
    monkeypatch.setattr(_sooner, "inspect", lambda *_: copy.deepcopy(answer))
    return _snapshot.Snapshot("/nowhere", 0, everywhere=True)


def test_rows_name_their_node(snapshot):
    running, finished = task_rows.tasks(snapshot)
    assert (running["state"], running["node_id"], running["worker_pid"]) == ("RUNNING", THERE, 77)
    assert (finished["state"], finished["node_id"], finished["worker_pid"]) == ("FINISHED", THERE, 77)
    (actor,) = _rows.actors(snapshot)
    assert (actor["node_id"], actor["pid"], actor["required_resources"]) == (THERE, 77, {"CPU": 1.0})
    assert [(row["node_id"], row["state"]) for row in _rows.workers(snapshot)] == [
        (HERE, "RUNNING"),
        (THERE, "LEASED"),
        (THERE, "DEAD"),
    ]


def test_times_are_of_one_clock(snapshot):
    running, finished = task_rows.tasks(snapshot)
    for task in (running, finished):
        assert task["start_time_ms"] - task["creation_time_ms"] == pytest.approx(10, abs=0.01)
    *_, ended = _rows.workers(snapshot)
    assert abs(ended["end_time_ms"] - time.time() * 1000) < 60_000


def test_who_is_silent_is_named(snapshot):
    assert snapshot.missing() == ["nodes third"]


def test_each_node_is_a_process_of_the_timeline(snapshot):
    events = list(timeline.events("/nowhere"))
    names = {one["pid"]: one["args"]["name"] for one in events if one["name"] == "process_name"}
    assert sorted(names.values()) == [
        "waiting, by the process that submitted",
        f"workers of node {HERE}",
        f"workers of node {THERE}",
    ]
    ran = [one for one in events if one["ph"] == "X" and one["name"] == "f"]
    assert len(ran) == 2
    assert {names[one["pid"]] for one in ran} == {f"workers of node {THERE}"}
