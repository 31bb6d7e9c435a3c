"""Actors that are called from programs on other nodes of their cluster."""

from __future__ import annotations

import contextlib
import os
import signal

import numpy as np
import pytest
from checkpointed import RemoteBox, kill, row_of
from clusters import cluster_of
from support import WAIT, poll

import sooner
from sooner.util.scheduling_strategies import NodeAffinitySchedulingStrategy


@pytest.fixture
def cluster():
    with cluster_of(2, {"num_cpus": 2}) as made:
        yield made


@sooner.remote
class Counter:
    def __init__(self):
        self.count = 0

    def add(self, number=1):
        self.count += number
        return self.count

    def pid(self):
        return os.getpid()

    def echo(self, value):
        return value


@contextlib.contextmanager
def program(node):
    """A program that uses this node."""
    with sooner.init(address=node.session_dir, namespace="x", log_to_driver=False):
        yield


def count_at(node):
    with program(node):
        counter = Counter.options(name="counter", lifetime="detached").remote()
        assert sooner.get(counter.add.remote()) == 1


def test_call_over_nodes(cluster):
    (other,) = cluster.worker_nodes
    count_at(other)
    with program(cluster.head_node):
        counter = sooner.get_actor("counter")
        assert sooner.get(counter.add.remote()) == 2
        assert sooner.get([counter.add.remote() for _ in range(1000)]) == list(range(3, 1003)), "in order"
        assert sooner.get(counter.echo.remote(b"x" * 50_000)) == b"x" * 50_000
    # Both programs are gone, the actor is not.
    with program(other):
        assert sooner.get(sooner.get_actor("counter").add.remote()) == 1003


def test_the_end_of_an_actor_is_told_to_callers_at_other_nodes(cluster):
    (other,) = cluster.worker_nodes
    count_at(other)
    with program(cluster.head_node):
        counter = sooner.get_actor("counter")
        os.kill(sooner.get(counter.pid.remote()), signal.SIGKILL)
        with pytest.raises(sooner.exceptions.ActorDiedError):
            sooner.get([counter.add.remote() for _ in range(10)])
        poll("the name is free", lambda: sooner.list_named_actors() == [])
        keeper = Counter.options(name="counter").remote()
        assert sooner.get(keeper.add.remote()) == 1


def test_a_kill_reaches_an_actor_at_another_node(cluster):
    (other,) = cluster.worker_nodes
    count_at(other)
    with program(cluster.head_node):
        counter = sooner.get_actor("counter")
        sooner.get(counter.add.remote())
        sooner.kill(counter)
        with pytest.raises(sooner.exceptions.ActorDiedError, match=r"sooner\.kill"):
            sooner.get(counter.add.remote())


@sooner.remote(num_cpus=2)
def hold(started):
    started.touch()
    poll("it may end", lambda: not started.exists())


def test_a_state_that_one_node_keeps_is_what_the_next_process_at_another_one_begins_with(cluster, tmp_path):
    data = os.urandom(3_000_000)
    with program(cluster.head_node):
        box = RemoteBox.options(num_cpus=2).remote()
        sooner.get(box.set.remote(data), timeout=WAIT)
        poll("a checkpoint", lambda: row_of(box).checkpoints)
        before = row_of(box).node_id
        # Whoever waits there for what it holds gets that first.
        there = NodeAffinitySchedulingStrategy(before, soft=False)
        held = hold.options(scheduling_strategy=there).remote(tmp_path / "held")
        kill(box)
        poll("its place is taken", (tmp_path / "held").exists)
        assert sooner.get(box.get.remote(), timeout=WAIT) == data
        assert row_of(box).node_id != before
        (tmp_path / "held").unlink()
        sooner.get(held, timeout=WAIT)


@sooner.remote
class Sum:
    """Adds arrays up, and gives the sum in shared memory."""

    def __init__(self):
        self.total = np.zeros(100_000)

    def add(self, values):
        self.total = self.total + values
        return float(self.total[0])

    @sooner.method(read_only=True)
    def read(self):
        return self.total

    def __sooner_checkpoint__(self):
        return self.total

    def __sooner_restore__(self, state):
        self.total = state


@sooner.remote
def ones():
    return np.ones(100_000)


def test_what_was_read_of_an_actor_is_read_again_between_the_same_calls(cluster):
    (other,) = cluster.worker_nodes
    with program(cluster.head_node):
        there = {"scheduling_strategy": NodeAffinitySchedulingStrategy(other.node_id, soft=True)}
        actor = Sum.options(checkpoint_every=100, max_task_retries=-1, **there).remote()
        first = ones.options(**there).remote()
        answers = [actor.add.remote(first)]
        reads = [actor.read.remote()]
        for _ in range(2):
            answers.append(actor.add.remote(reads[-1]))
            reads.append(actor.read.remote())
        assert sooner.get(answers, timeout=WAIT) == [1, 2, 4]
        sooner.wait(reads, num_returns=3, fetch_local=False, timeout=WAIT)
        # The actor, the array that it was given first and all that was read of it are there alone.
        cluster.remove_node(other, allow_graceful=False)
        assert [float(value[0]) for value in sooner.get(reads, timeout=WAIT)] == [1, 2, 4]
        assert sooner.get(actor.add.remote(first), timeout=WAIT) == 5
