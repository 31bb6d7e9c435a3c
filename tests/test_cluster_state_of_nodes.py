"""What programs are told of the nodes of their cluster: also of those that are gone, and while the head
hangs.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import re
import signal
import time
from pathlib import Path

import pytest
from clusters import cluster_of
from support import is_alive, poll, run_command, stopped

import sooner
from sooner._session import resources
from sooner._session.resources import memory_bytes
from sooner.util import metrics


def alive():
    return {node["NodeID"]: node["Alive"] for node in sooner.nodes()}


def test_nodes_that_are_gone_stay_listed():
    with cluster_of(1, {"num_cpus": 1, "resources": {"a": 1}}, {"num_cpus": 1}, connects=True) as made:
        killed, left = made.worker_nodes
        here = made.head_node.node_id
        assert alive() == {here: True, killed.node_id: True, left.node_id: True}
        made.remove_node(killed, allow_graceful=False)
        made.remove_node(left)
        poll("both are gone", lambda: alive() == {here: True, killed.node_id: False, left.node_id: False})
        gone = next(node for node in sooner.nodes() if node["NodeID"] == killed.node_id)
        assert gone["Resources"] == {}
        assert gone["DeathReasonMessage"]
        assert f"{gone['NodeManagerAddress']}:{gone['NodeManagerPort']}" == killed.address
        assert "a" not in sooner.cluster_resources()


def test_all_nodes_are_counted_as_soon_as_they_have_joined():
    with cluster_of(1, *({"num_cpus": 1} for _ in range(3))) as made:
        for node in [made.head_node, *made.worker_nodes]:
            with sooner.init(address=node.session_dir, log_to_driver=False):
                assert sooner.cluster_resources()["CPU"] == 4
                assert sooner.available_resources().get("CPU", 0) == 4


def test_what_is_all_in_use_is_left_out():
    sooner.init(num_cpus=1, resources={"tape": 1})
    try:
        hold = sooner.remote(num_cpus=0, resources={"tape": 1})(lambda: sooner.available_resources())
        free = sooner.get(hold.remote())
        assert "tape" not in free
        assert free["CPU"] == 1
    finally:
        sooner.shutdown()


def status_of(cluster, node):
    done = run_command("status", "--json", "--address", node.session_dir, base=Path(cluster.base_directory))
    return json.loads(done.stdout), done.stderr


def test_the_status_is_told_while_the_head_hangs():
    with cluster_of(1, {"num_cpus": 1}) as made:
        (other,) = made.worker_nodes
        status_of(made, other)
        with stopped(made.head_node.pid):
            status, errors = status_of(made, other)
            assert status["node_id"] == other.node_id
            assert f"nodes {made.head_node.node_name}" in errors


@pytest.mark.parametrize("others", [1, 0])
def test_the_status_is_told_when_the_head_that_is_asked_hangs(others):
    with cluster_of(1, *[{"num_cpus": 1, "resources": {"a": 1}}] * others) as made:
        head = made.head_node
        with stopped(head.pid):
            began = time.monotonic()
            arguments = ["status", "--json", "--address", head.session_dir]
            done = run_command(*arguments, base=Path(made.base_directory), check=None)
            took = time.monotonic() - began
        said = f"the head of the cluster does not answer: its process {head.pid} is stopped"
        assert said in done.stderr
        assert done.returncode == (0 if others else 1)
        status = json.loads(done.stdout)
        if others:
            assert said in status["problems"][0]
            assert status["node_id"] == made.worker_nodes[0].node_id
            assert status["resources_total"]["a"] == 1
        else:
            assert said in status["problem"]
        # It is told at once, and not when the patience for a busy node is over (30 s).
        assert took < 15


@pytest.fixture
def alone(monkeypatch, short_dir):
    """Nodes of other tests that run now share no memory with those of this one."""
    monkeypatch.setenv("SOONER_TMPDIR", str(short_dir))


def test_nodes_of_one_machine_share_its_memory(alone):
    with cluster_of(1, {"num_cpus": 1}, {"num_cpus": 1, "memory": 123 << 20}, connects=True) as made:
        here = {node["NodeID"]: node["Resources"] for node in sooner.nodes()}
        first, second, stated = (here[node.node_id] for node in [made.head_node, *made.worker_nodes])
        offered = sum(row["memory"] + row["object_store_memory"] for row in here.values())
        assert offered <= memory_bytes() + stated["memory"]
        # Of the rest the second one has the same share as the first had of all.
        rest = memory_bytes() - first["memory"] - first["object_store_memory"]
        assert 0 < second["memory"] == pytest.approx(0.7 * rest, rel=0.01)
        assert stated["memory"] == 123 << 20
        # What a node that is gone offered, others can offer.
        made.remove_node(made.worker_nodes[0])
        again = made.add_node(num_cpus=1)
        rest -= stated["memory"] + stated["object_store_memory"]
        rows = {node["NodeID"]: node["Resources"] for node in sooner.nodes()}
        assert rows[again.node_id]["memory"] == pytest.approx(0.7 * rest, rel=0.01)


def test_nodes_that_start_at_the_same_moment_share_the_machines_memory(alone):
    def offered(nodes):
        rows = {node["NodeID"]: node["Resources"] for node in sooner.nodes() if node["Alive"]}
        return [rows[node.node_id]["memory"] + rows[node.node_id]["object_store_memory"] for node in nodes]

    with cluster_of(1, connects=True) as made, concurrent.futures.ThreadPoolExecutor(4) as threads:
        (first,) = offered([made.head_node])

        def add(_):
            return made.add_node(num_cpus=1, object_store_memory=64 << 20)

        nodes = list(threads.map(add, range(4)))
        # What was said is theirs however much is left.
        assert first + sum(offered(nodes)) <= memory_bytes() + 4 * (64 << 20), offered(nodes)
        # However they end, others can offer what they did.
        for node in nodes:
            os.kill(node.pid, signal.SIGKILL)
        poll("they are gone", lambda: not any(is_alive(node.pid) for node in nodes))
        again = made.add_node(num_cpus=1, object_store_memory=64 << 20)
        assert offered([again])[0] == pytest.approx(0.7 * (memory_bytes() - first) + (64 << 20), rel=0.01)


def test_a_node_without_memory_left_has_a_store():
    machine = memory_bytes()
    assert resources.default_memory(machine) == 0
    assert resources.store_bytes(None, machine) == min(256 << 20, int(machine * 0.3))
    assert resources.store_bytes(None) == int(machine * 0.3) // 4096 * 4096
    assert resources.store_bytes(5 << 20, machine) == 5 << 20


def test_the_engines_metrics_are_on_their_page():
    page = (Path(__file__).parent.parent / "docs" / "state.md").read_text()
    with cluster_of(1, {"num_cpus": 1}, connects=True):
        flaky = sooner.remote(lambda: 1 / 0).options(max_retries=1, retry_exceptions=True)
        with pytest.raises(ZeroDivisionError):
            sooner.get(flaky.remote())
        help_of = dict(re.findall(r"^# HELP (\w+) (.*)$", metrics.prometheus_text(), re.MULTILINE))
    assert {"sooner_tasks_retried_total", "sooner_node_values_copied_bytes"} <= help_of.keys()
    missing = [name for name, text in help_of.items() if f"| `{name}` | {text} |" not in page]
    assert not missing
