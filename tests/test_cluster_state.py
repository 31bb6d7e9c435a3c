"""What the `sooner` command and the state API tell of a cluster: of all its nodes, whichever is asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from clusters import cluster_of
from support import WAIT, poll, stopped

import sooner
from sooner import state
from sooner._state import snapshot as _snapshot
from sooner._state import stacks


@pytest.fixture(scope="module")
def cluster():
    """A head without CPUs, where the program is, and a node with all its work."""
    with cluster_of(0, {"num_cpus": 4, "node_name": "other"}, connects=True) as made:
        yield made


@pytest.fixture(scope="module")
def busy(cluster, tmp_path_factory):
    """The references to what runs there; ends with the gate."""
    gate = tmp_path_factory.mktemp("gate") / "open"
    actor = Keeper.options(name="keeper").remote()
    big = actor.make.remote()
    sooner.wait([big], fetch_local=False)
    held = hold.remote(str(gate))
    poll("it runs", lambda: state.list_tasks(filters=[("state", "=", "RUNNING"), ("name", "=", "hold")]))
    yield actor, big, held
    gate.touch()
    sooner.get(held, timeout=WAIT)


@sooner.remote(num_cpus=1)
class Keeper:
    def make(self):
        return bytes(1 << 20)


@sooner.remote(num_cpus=1)
def hold(gate):
    import time

    print("holding there", flush=True)
    while not os.path.exists(gate):
        time.sleep(0.01)


@sooner.remote(num_cpus=1)
def quick():
    return 1


def command(node, *arguments, check=0):
    done = subprocess.run(
        [sys.executable, "-m", "sooner", *arguments, "--address", node.session_dir],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == check, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def told(node, *arguments):
    return json.loads(command(node, *arguments, "--json"))


def test_rows_of_all_nodes_wherever_one_asks(cluster, busy):
    (other,) = cluster.worker_nodes
    for node in cluster.list_all_nodes():
        (task,) = told(node, "list", "tasks", "--filter", "state=RUNNING", "--filter", "name=hold")
        assert task["node_id"] == other.node_id
        assert task["worker_pid"] is not None
        (actor,) = told(node, "list", "actors", "--filter", "state=ALIVE")
        assert (actor["node_id"], actor["name"]) == (other.node_id, "keeper")
        assert actor["pid"] is not None
        workers = told(node, "list", "workers", "--filter", "is_alive=True")
        assert {row["node_id"] for row in workers} == {row.node_id for row in cluster.list_all_nodes()}
        (driver,) = [row for row in workers if row["worker_type"] == "DRIVER"]
        assert driver["pid"] == os.getpid()
        (job,) = told(node, "list", "jobs")
        assert job["driver_pid"] == os.getpid()
        assert job["entrypoint"]
        objects = told(node, "list", "objects")
        assert any(row["object_size"] > 1 << 20 for row in objects)
        assert told(node, "get", "actor", actor["actor_id"])["name"] == "keeper"


def test_tables_name_the_node(cluster, busy):
    assert "NODE" in command(cluster.head_node, "list", "actors")
    assert "other" in command(cluster.head_node, "list", "actors")


def test_status_counts_what_all_nodes_have(cluster, busy):
    status = told(cluster.head_node, "status")
    assert status["tasks"]["RUNNING"] == 1
    assert status["actors"] == {"ALIVE": 1}
    (node,) = status["other_nodes"]
    assert node["node_name"] == "other"
    assert "other at 127.0.0.1" in command(cluster.head_node, "status")


def test_what_waits_at_any_node_is_told_by_all(cluster, busy):
    waiting = quick.options(resources={"nobody has that": 1}).remote()
    for node in cluster.list_all_nodes():

        def demand(node=node):
            rows = told(node, "status")["demand"]
            return [row for row in rows if "nobody has that" in row["resources"]]

        ((row,),) = [poll("it is told", demand)]
        assert (row["count"], row["feasible"]) == (1, False)
    sooner.cancel(waiting)


def test_summary_and_memory(cluster, busy):
    for node in cluster.list_all_nodes():
        assert told(node, "summary", "tasks")["summary"]["hold"]["state_counts"] == {"RUNNING": 1}
        memory = told(node, "memory")
        assert memory["store_capacity"] == sum(
            snapshot.node["store_capacity"]
            for snapshot in (_snapshot.Snapshot(one.session_dir, 0) for one in cluster.list_all_nodes())
        )


def test_stacks_of_other_nodes(cluster, busy):
    text = command(cluster.head_node, "stack")
    assert "in hold" in text
    assert "on other" in text
    assert stacks._SILENT not in text


def test_logs_of_other_nodes(cluster, busy):
    rows = told(cluster.head_node, "logs")
    there = [row["file"] for row in rows if row["node"] == "other" and row["file"].endswith(".out")]
    assert there
    assert "holding there" in "".join(command(cluster.head_node, "logs", file) for file in there)


def test_logs_of_other_nodes_can_be_followed(cluster, busy):
    arguments = [sys.executable, "-m", "sooner", "logs", ".out", "-f", "--address", cluster.head_node.session_dir]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as following:
        try:
            assert any("holding there" in line for line in following.stdout)
        finally:
            following.terminate()


def test_timeline_has_the_tasks_of_other_nodes(cluster, busy):
    sooner.get([quick.remote() for _ in range(5)])
    events = json.loads(command(cluster.head_node, "timeline"))
    (other,) = cluster.worker_nodes
    places = {one["args"]["name"]: one["pid"] for one in events if one["name"] == "process_name"}
    ran = [one for one in events if one["ph"] == "X" and one["name"] == "quick"]
    assert len(ran) >= 5
    assert {one["pid"] for one in ran} == {places[f"workers of node {other.node_id}"]}
    # Both nodes read one clock here: no task began before it was submitted.
    assert all(one["ts"] >= one["args"]["submitted_us"] for one in ran if "submitted_us" in one["args"])


def test_a_node_that_does_not_answer_is_named(cluster, busy):
    (other,) = cluster.worker_nodes
    with stopped(other.pid):
        snapshot = _snapshot.Snapshot(cluster.head_node.session_dir, 0, everywhere=True)
    assert snapshot.silent_nodes == [other.node_id]
    assert snapshot.missing() == ["nodes other"]
    poll(
        "it answers again", lambda: not _snapshot.Snapshot(cluster.head_node.session_dir, 0, everywhere=True).missing()
    )


def test_files_that_are_no_logs_cannot_be_read(cluster):
    (other,) = cluster.worker_nodes
    parts = [(other.node_id, file, 0) for file in ("lock", "logs/../lock", "../cluster/token", "logs/nobody.out")]
    snapshot = _snapshot.Snapshot(cluster.head_node.session_dir, _snapshot.FILES, everywhere=True, parts=parts)
    assert [told["files"] for told in snapshot.told.values()] == [[], []]
