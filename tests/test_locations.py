"""`get_object_locations` says where values are, and never waits."""

from __future__ import annotations

import time

import numpy as np
import pytest
from clusters import cluster_of
from support import poll

import sooner
from sooner.experimental import get_object_locations

_BYTES = 4_000_000


@pytest.fixture(scope="module")
def cluster():
    with cluster_of(1, {"num_cpus": 1, "resources": {"there": 100}}, connects=True) as made:
        yield made


@sooner.remote(num_cpus=0, resources={"there": 1})
def make():
    return np.zeros(_BYTES, np.uint8)


@sooner.remote(num_cpus=0, resources={"there": 1})
def node_of():
    return sooner.get_runtime_context().get_node_id()


def nodes_of(ref):
    return get_object_locations([ref])[ref]["node_ids"]


@pytest.mark.api("values.locations")
def test_a_value_is_where_it_was_made_and_where_it_was_brought(cluster):
    there, here = sooner.get(node_of.remote()), sooner.get_runtime_context().get_node_id()
    assert there != here
    ref = make.remote()
    sooner.wait([ref], fetch_local=False)
    assert nodes_of(ref) == [there]
    assert get_object_locations([ref])[ref]["object_size"] >= _BYTES
    # The question has not brought it here.
    assert nodes_of(ref) == [there]
    value = sooner.get(ref)
    assert set(nodes_of(ref)) == {there, here}
    del value
    mine = sooner.put(np.zeros(_BYTES, np.uint8))
    assert nodes_of(mine) == [here]
    other = sooner.remote(num_cpus=0, resources={"there": 1})(lambda a: len(a))
    sooner.get(other.remote(mine))
    poll("the copy is known of", lambda: set(nodes_of(mine)) == {there, here})


def test_a_borrower_hears_it_from_the_owner(cluster):
    there = sooner.get(node_of.remote())
    ref = make.remote()
    sooner.wait([ref], fetch_local=False)

    @sooner.remote(num_cpus=0)
    def ask(box):
        return list(get_object_locations(box).values())

    (found,) = sooner.get(ask.remote([ref]))
    assert found["node_ids"] == [there]
    assert found["object_size"] >= _BYTES


def test_it_does_not_wait(cluster):
    @sooner.remote(num_cpus=0)
    def endless():
        while True:
            time.sleep(0.1)

    @sooner.remote(num_cpus=0)
    def fail():
        raise ValueError

    @sooner.remote(num_cpus=0)
    def ask(box):
        return list(get_object_locations(box).values())

    ref = endless.remote()
    nowhere = {"node_ids": [], "object_size": None, "did_spill": False}
    for timeout_ms in (-1, 0, 60_000):
        assert get_object_locations([ref], timeout_ms=timeout_ms) == {ref: nowhere}
    assert sooner.get(ask.remote([ref])) == [nowhere]
    sooner.cancel(ref)
    failed = fail.remote()
    sooner.wait([failed])
    assert get_object_locations([failed])[failed] == nowhere
    with pytest.raises(TypeError, match="ObjectRefs"):
        get_object_locations([1])
