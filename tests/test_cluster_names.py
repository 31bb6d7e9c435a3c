"""Names of actors are those of the whole cluster, on whatever node the actor and whoever asks are."""

from __future__ import annotations

import contextlib
import os
import signal

import pytest
from clusters import cluster_of
from support import poll

import sooner


@pytest.fixture
def cluster():
    with cluster_of(2, {"num_cpus": 2}) as made:
        yield made


@sooner.remote
class Keeper:
    def __init__(self, value):
        self.value = value

    def get(self):
        return self.value


@contextlib.contextmanager
def program(node, namespace="x"):
    """A program that uses this node."""
    with sooner.init(address=node.session_dir, namespace=namespace, log_to_driver=False):
        yield


def keep(name, value):
    keeper = Keeper.options(name=name, lifetime="detached").remote(value)
    assert sooner.get(keeper.get.remote()) == value


@pytest.mark.api("get_actor")
def test_a_name_is_found_from_every_node(cluster):
    head, (other,) = cluster.head_node, cluster.worker_nodes
    with program(head):
        keep("a", 1)
    with program(other):
        assert sooner.get_actor("a")._actor_id is not None
        with pytest.raises(ValueError, match='an actor named "a" exists'):
            Keeper.options(name="a").remote(2)
        keep("b", 2)
        assert sorted(sooner.list_named_actors()) == ["a", "b"]
    with program(head, namespace="y"):
        with pytest.raises(ValueError, match='no actor named "b" lives'):
            sooner.get_actor("b")
        found = sooner.list_named_actors(all_namespaces=True)
        assert sorted(row["name"] for row in found) == ["a", "b"]
        assert sooner.get(sooner.get_actor("a", namespace="x").get.remote()) == 1, "it is on this node"


def test_a_name_is_free_when_its_actor_is_gone(cluster):
    (other,) = cluster.worker_nodes
    with program(other):
        keep("a", 1)
        sooner.kill(sooner.get_actor("a"))
    with program(cluster.head_node):
        poll("the name is free", lambda: sooner.list_named_actors() == [])
        keep("a", 2)


def test_names_of_a_node_that_is_gone_are_free(cluster):
    (other,) = cluster.worker_nodes
    with program(other):
        keep("a", 1)
    os.kill(other.pid, signal.SIGKILL)
    with program(cluster.head_node):
        poll("the name is free", lambda: sooner.list_named_actors() == [])
        keep("a", 2)


def test_a_burst_of_large_actors_reaches_the_directory(cluster):
    for node in cluster.list_all_nodes():
        with program(node):
            waiting = [Keeper.options(resources={"nowhere": 1}).remote(bytes(90_000)) for _ in range(200)]
            keep("a", 1)
            sooner.kill(sooner.get_actor("a"))
            del waiting
