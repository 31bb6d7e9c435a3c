"""Collective operations whose members are on several nodes."""

from __future__ import annotations

import itertools

import pytest
from clusters import cluster_of
from collectives import Member, check_all, group_of, values_of
from support import WAIT

import sooner
from sooner.util import collective as col
from sooner.util.collective import CollectiveMemberDiedError, ReduceOp

FAR = {"num_cpus": 1, "resources": {"far": 10}}


@pytest.fixture
def cluster(nothing_left):
    with cluster_of(1, FAR, connects=True) as made:
        yield made


@pytest.mark.api("util.collective")
def test_members_on_two_nodes(cluster):
    members = [Member.options(resources={"far": number % 2}).remote() for number in range(4)]
    group_of(members, "near-and-far")
    for dtype, shape in itertools.product(["float64", "float32"], [(5,), (700_001,)]):
        check_all(members, "near-and-far", values_of(4, dtype, shape), ReduceOp.SUM, 1)


@pytest.mark.chaos
@pytest.mark.api("util.collective")
def test_a_node_that_is_lost(cluster):
    far = Member.options(resources={"far": 1}).remote()
    joins = far.do.remote(col.init_collective_group, 2, 1, group_name="lost")
    col.init_collective_group(2, 0, group_name="lost")
    sooner.get(joins, timeout=WAIT)
    (other,) = [node for node in cluster.list_all_nodes() if node is not cluster.head_node]
    cluster.remove_node(other, allow_graceful=False)
    with pytest.raises(CollectiveMemberDiedError, match=r"rank 1 .* has died: its node is gone"):
        col.barrier("lost")
    col.destroy_collective_group("lost")
