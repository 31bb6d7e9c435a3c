"""Reductions whose sources are on several nodes."""

from __future__ import annotations

import time

import numpy as np
import pytest
from clusters import cluster_of
from support import WAIT

import sooner
from sooner.experimental import get_object_locations
from sooner.scheduling import NodeAffinitySchedulingStrategy

pytestmark = pytest.mark.usefixtures("nothing_left")

SIZE = 300_000


def get(refs):
    return sooner.get(refs, timeout=WAIT)


@sooner.remote(num_cpus=0)
def made(value, size=SIZE):
    return np.full(size, float(value))


@sooner.remote(num_cpus=0)
def late(path):
    while not path.exists():
        time.sleep(0.01)
    return np.full(SIZE, 1000.0)


@pytest.fixture
def cluster(nothing_left):
    nodes = [{"num_cpus": 1, "resources": {name: 100}} for name in ("one", "two", "three")]
    with cluster_of(1, *nodes, connects=True) as made:
        yield made


def at(name, value, size=SIZE):
    return made.options(resources={name: 1}).remote(value, size)


@pytest.mark.api("own.reduce")
def test_sources_on_other_nodes_are_combined_there(cluster):
    refs = [at(name, value) for value, name in enumerate(["one", "two", "three"] * 4)]
    refs += [sooner.put(np.full(SIZE, 100.0)), sooner.put(np.full(SIZE, 1000.0))]
    sooner.wait(refs, num_returns=len(refs), timeout=WAIT, fetch_local=False)
    assert (get(sooner.reduce(refs)) == 1166.0).all()
    # No source came to the node of the result.
    here = sooner.get_runtime_context().get_node_id()
    assert all(here not in place["node_ids"] for place in get_object_locations(refs[:12]).values())
    for op, expected in (("mean", 1166.0 / 14), ("max", 1000.0)):
        assert (get(sooner.reduce(refs, op)) == expected).all()
    for op, expected in (("sum", 1166.0), ("min", 0.0)):
        assert (get(sooner.reduce(refs, op, order="given")) == expected).all()


def test_small_sources_on_other_nodes(cluster):
    refs = [at(name, value, 10) for value, name in enumerate(["one", "two", "three"])]
    assert get(sooner.reduce(refs)).tolist() == [3.0] * 10


@pytest.mark.api("own.reduce_first")
def test_the_first_that_arrive_on_several_nodes(cluster):
    refs = [at(name, value) for value, name in enumerate(["one", "two", "three"])]
    total, chosen = sooner.reduce_first(refs, 2)
    assert (get(total) == sum(get(chosen))).all()


def test_sources_that_do_not_fit_together_are_named(cluster):
    refs = [at("one", 1), at("two", 1, SIZE + 1)]
    with pytest.raises(ValueError, match=r"all sources must have one kind, dtype and shape") as caught:
        get(sooner.reduce(refs))
    assert "source 0 of 2" in str(caught.value)
    assert "source 1 of 2" in str(caught.value)


@pytest.mark.chaos
def test_a_node_that_is_lost_is_done_without(cluster, tmp_path):
    others = [node for node in cluster.list_all_nodes() if node is not cluster.head_node]
    strategies = [NodeAffinitySchedulingStrategy(node.node_id, soft=True) for node in others]
    there = [
        made.options(scheduling_strategy=strategy).remote(value) for value, strategy in enumerate(strategies * 4, 1)
    ]
    sooner.wait(there, num_returns=12, timeout=WAIT, fetch_local=False)
    missing = late.remote(tmp_path / "now")
    total = sooner.reduce([*there, missing])
    cluster.remove_node(others[0], allow_graceful=False)
    (tmp_path / "now").touch()
    # Sources that were there, and partial results, are made again elsewhere.
    assert (get(total) == 78 + 1000).all()
