"""Lines between processes of different nodes: cut under load, and gone with the programs that had them."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time

import pytest
from clusters import cluster_of
from support import poll

import sooner
from sooner.cluster_utils import Cluster

CALLS = 2000
CUT_SECONDS = 0.05


@pytest.fixture
def cluster():
    with cluster_of(2, {"num_cpus": 2}) as made:
        yield made


@sooner.remote
class Counter:
    def __init__(self):
        self.count = 0

    def add(self):
        self.count += 1
        return self.count

    def length(self, value):
        return len(value)


@contextlib.contextmanager
def program(node):
    """A program that uses this node."""
    with sooner.init(address=node.session_dir, namespace="x", log_to_driver=False):
        yield


@contextlib.contextmanager
def counter_elsewhere(cluster):
    """A program at the head, with an actor at the other node."""
    (other,) = cluster.worker_nodes
    with program(other):
        counter = Counter.options(name="counter", lifetime="detached").remote()
        assert sooner.get(counter.add.remote()) == 1
    with program(cluster.head_node):
        yield sooner.get_actor("counter")


def connections():
    """Sockets of this process that lead to other machines, opened once more."""
    for number in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{number}").startswith("socket:"):
                continue
            one = socket.socket(fileno=os.dup(int(number)))
        except OSError:
            continue
        with one:
            if one.family in (socket.AF_INET, socket.AF_INET6):
                yield one


def cut_all():
    """Cuts what leads to other machines, both ways. How many connections that were."""
    count = 0
    for one in connections():
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
            count += 1
    return count


@contextlib.contextmanager
def cutting(cuts):
    """Cuts all lines of this process again and again, and notes how many it were."""
    is_over = threading.Event()

    def cut():
        while not is_over.wait(CUT_SECONDS):
            cuts.append(cut_all())

    thread = threading.Thread(target=cut)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_a_program_has_no_connection_to_another_machine_before_it_needs_one(cluster):
    with counter_elsewhere(cluster) as counter:
        assert list(connections()) == []
        assert sooner.get(counter.add.remote()) == 2
        assert len(list(connections())) == 1
        assert sooner.get([counter.add.remote() for _ in range(100)]) == list(range(3, 103))
        assert len(list(connections())) == 1
    poll("the line is gone with the program", lambda: list(connections()) == [])


@pytest.mark.timeout(120)
def test_calls_are_executed_once_and_in_order_although_lines_are_cut(cluster):
    cuts = []
    with counter_elsewhere(cluster) as counter, cutting(cuts):
        expected = 2
        while sum(cuts) < 5 or expected < CALLS:
            calls = [counter.add.remote() for _ in range(50)]
            assert sooner.get(calls) == list(range(expected, expected + 50))
            expected += 50
            assert sooner.get(counter.length.remote(b"x" * 40_000)) == 40_000


@sooner.remote
def same(value):
    return os.getpid(), value


@pytest.mark.timeout(120)
def test_tasks_go_on_at_the_workers_where_they_are_although_lines_are_cut():
    cuts = []
    with Cluster(initialize_head=True, head_node_args={"num_cpus": 0}) as made:
        made.add_node(num_cpus=1)
        made.wait_for_nodes()
        with program(made.head_node), cutting(cuts):
            pids = set()
            while sum(cuts) < 6:
                done = sooner.get([same.remote(number) for number in range(300)])
                assert [value for _, value in done] == list(range(300))
                pids |= {pid for pid, _ in done}
            # No line was given up: else its worker would have been ended.
            assert len(pids) == 1


def test_a_cut_is_not_felt_when_nothing_is_said(cluster):
    with counter_elsewhere(cluster) as counter:
        assert sooner.get(counter.add.remote()) == 2
        assert cut_all() == 1
        time.sleep(CUT_SECONDS)
        assert sooner.get(counter.add.remote()) == 3
