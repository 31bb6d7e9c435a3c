"""Nodes that leave in order: nothing that they had has to be made again."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest
from support import WAIT, poll

import sooner
from sooner import state
from sooner.cluster_utils import Cluster
from sooner.exceptions import ActorDiedError

LARGE = 3_000_000


@pytest.fixture
def cluster():
    """A head without CPUs, where this program is, and a node with all the work."""
    with Cluster(initialize_head=True, head_node_args={"num_cpus": 0}) as made:
        made.add_node(num_cpus=2, node_name="leaves")
        made.wait_for_nodes()
        with made.connect():
            yield made


def drain(cluster, *arguments, node="leaves", check=0):
    done = subprocess.run(
        [sys.executable, "-m", "sooner", "drain-node", node, "--address", cluster.head_node.session_dir, *arguments],
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
    )
    assert done.returncode == check, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def has_left(cluster, node):
    return node.node_id not in {row.node_id for row in state.list_nodes()}


@sooner.remote(max_retries=5)
def large(directory, number):
    (directory / f"{number}-{time.monotonic_ns()}").touch()
    return bytes([number]) * LARGE


@sooner.remote(max_retries=5)
def waits(directory, number):
    (directory / f"{number}-{os.getpid()}").touch()
    while not (directory / "open").exists():
        time.sleep(0.01)
    return number


@sooner.remote(max_restarts=1, max_task_retries=5)
class Counter:
    def __init__(self, directory):
        (directory / f"begun-{os.getpid()}").touch()

    def where(self):
        return sooner.get_runtime_context().get_node_id(), os.getpid()


@sooner.remote
def length(value):
    return len(value)


@pytest.mark.api("cli.drain-node")
def test_values_of_a_node_that_leaves_are_not_made_again(cluster, tmp_path):
    refs = [large.remote(tmp_path, number) for number in range(4)]
    sooner.wait(refs, num_returns=4, fetch_local=False)
    drain(cluster)
    assert has_left(cluster, cluster.worker_nodes[0])
    assert [value[:1] for value in sooner.get(refs, timeout=WAIT)] == [bytes([number]) for number in range(4)]
    assert len(list(tmp_path.iterdir())) == 4


def test_values_that_were_handed_over_are_arguments_elsewhere(cluster, tmp_path):
    ref = large.remote(tmp_path, 1)
    sooner.wait([ref], fetch_local=False)
    drain(cluster)
    cluster.add_node(num_cpus=1)
    assert sooner.get(length.remote(ref), timeout=WAIT) == LARGE
    assert len(list(tmp_path.iterdir())) == 1


def test_a_stopped_node_hands_its_values_over_too(cluster, tmp_path):
    ref = large.remote(tmp_path, 1)
    sooner.wait([ref], fetch_local=False)
    cluster.remove_node(cluster.worker_nodes[0])
    assert len(sooner.get(ref, timeout=WAIT)) == LARGE
    assert len(list(tmp_path.iterdir())) == 1


def test_a_task_that_runs_may_end_and_those_behind_it_run_elsewhere(cluster, tmp_path):
    refs = [waits.remote(tmp_path, number) for number in range(4)]
    poll("two run", lambda: len(list(tmp_path.iterdir())) == 2)
    leaving = threading.Thread(target=drain, args=(cluster,))
    leaving.start()
    (node,) = cluster.worker_nodes
    poll("it drains", lambda: [row for row in state.list_nodes() if row.state == "DRAINING"])
    cluster.add_node(num_cpus=2)
    poll("all run", lambda: len(list(tmp_path.iterdir())) == 4)
    (tmp_path / "open").touch()
    assert sooner.get(refs, timeout=WAIT) == [0, 1, 2, 3]
    leaving.join(WAIT)
    assert has_left(cluster, node)
    # None was begun twice.
    assert len(list(tmp_path.glob("[0-9]*"))) == 4


def test_a_node_ends_at_its_deadline_and_its_tasks_begin_elsewhere(cluster, tmp_path):
    ref = waits.remote(tmp_path, 0)
    poll("it runs", lambda: list(tmp_path.iterdir()))
    cluster.add_node(num_cpus=2)
    drain(cluster, "--deadline", "1")
    poll("it runs again", lambda: len(list(tmp_path.iterdir())) == 2)
    (tmp_path / "open").touch()
    assert sooner.get(ref, timeout=WAIT) == 0


def test_an_actor_moves_without_using_up_a_restart(cluster, tmp_path):
    counter = Counter.remote(tmp_path)
    (leaves,) = cluster.worker_nodes
    assert sooner.get(counter.where.remote(), timeout=WAIT)[0] == leaves.node_id
    stays = cluster.add_node(num_cpus=1)
    drain(cluster)
    node, pid = sooner.get(counter.where.remote(), timeout=WAIT)
    assert node == stays.node_id
    # Its one restart is still there.
    os.kill(pid, 9)
    assert sooner.get(counter.where.remote(), timeout=WAIT)[1] != pid
    assert len(list(tmp_path.iterdir())) == 3


def test_an_actor_without_restarts_ends_with_its_node(cluster, tmp_path):
    counter = Counter.options(max_restarts=0, max_task_retries=0).remote(tmp_path)
    sooner.get(counter.where.remote(), timeout=WAIT)
    cluster.add_node(num_cpus=1)
    drain(cluster)
    with pytest.raises(ActorDiedError):
        sooner.get(counter.where.remote(), timeout=WAIT)
    assert len(list(tmp_path.iterdir())) == 1


def test_an_actor_that_waits_for_room_begins_elsewhere(cluster, tmp_path):
    first = Counter.options(num_cpus=2).remote(tmp_path)
    sooner.get(first.where.remote(), timeout=WAIT)
    second = Counter.options(num_cpus=2, max_restarts=0, max_task_retries=0).remote(tmp_path)
    drain(cluster)
    stays = cluster.add_node(num_cpus=4)
    assert sooner.get(second.where.remote(), timeout=WAIT)[0] == stays.node_id


@pytest.mark.parametrize(
    ("arguments", "node", "status", "text"),
    [
        ((), "nobody", 1, "there is no node nobody"),
        ((), "head", 1, "that is the head"),
        (("--deadline", "0"), "leaves", 2, "--deadline must be between 0 and 3600 seconds"),
        (("--deadline", "1e9"), "leaves", 2, "--deadline must be between 0 and 3600 seconds"),
    ],
)
def test_wrong_use(cluster, arguments, node, status, text):
    assert text in drain(cluster, *arguments, node=node, check=status).stderr


def test_a_node_of_a_program_cannot_leave(short_dir):
    program = "import sooner, sys; print(sooner.init(num_cpus=1)['session_dir'], flush=True); sys.stdin.read()"
    environment = os.environ | {"SOONER_TMPDIR": str(short_dir)}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as driver:
        directory = driver.stdout.readline().strip()
        (node,) = state.list_nodes(address=directory)
        done = subprocess.run(
            [sys.executable, "-m", "sooner", "drain-node", node.node_id, "--address", directory],
            capture_output=True,
            text=True,
            timeout=WAIT,
            check=False,
        )
        driver.stdin.close()
    assert done.returncode == 1
    assert "this node belongs to a program" in done.stderr
