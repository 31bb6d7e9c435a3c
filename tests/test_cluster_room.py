"""Tasks that return more than their node has room for, and no disk: the values go to where their owners
are.
"""

from __future__ import annotations

import numpy as np
import pytest
from support import WAIT

import sooner
from sooner.cluster_utils import Cluster
from sooner.exceptions import ObjectStoreFullError

MIB = 1 << 20
SMALL_STORE = 64 * MIB
VALUE = 8 * MIB


@pytest.fixture
def cluster():
    """A head with room, where this program is, and a small node with all the work."""
    with Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": 512 * MIB}) as made:
        made.add_node(num_cpus=2, object_store_memory=SMALL_STORE, spill_directories=[])
        made.wait_for_nodes()
        with made.connect():
            yield made


@sooner.remote
def make(number):
    return np.full(VALUE // 8, number)


@sooner.remote
def total(*arrays):
    return sum(int(array[0]) for array in arrays), sum(len(array) for array in arrays)


def test_a_producer_may_return_more_than_its_node_has_room_for(cluster):
    count = 4 * SMALL_STORE // VALUE
    refs = [make.remote(number) for number in range(count)]
    for number, ref in enumerate(refs):
        array = sooner.get(ref, timeout=WAIT)
        assert (array == number).all()
    # They can be read again where they came from.
    assert sooner.get(total.remote(*refs[:4]), timeout=WAIT) == (0 + 1 + 2 + 3, 4 * VALUE // 8)


def test_nobody_has_to_read_the_values_for_that(cluster):
    refs = [make.remote(number) for number in range(3 * SMALL_STORE // VALUE)]
    ready, rest = sooner.wait(refs, num_returns=len(refs), timeout=WAIT, fetch_local=False)
    assert not rest
    assert [int(array[0]) for array in sooner.get(ready, timeout=WAIT)] == list(range(len(refs)))


def test_values_that_tasks_still_read_stay_until_they_are_done(cluster):
    inputs = [make.remote(number) for number in range(4)]
    sums = [total.remote(*inputs) for _ in range(4)]
    refs = [make.remote(number) for number in range(2 * SMALL_STORE // VALUE)]
    assert sooner.get(sums, timeout=WAIT) == [(0 + 1 + 2 + 3, 4 * VALUE // 8)] * 4
    assert [int(array[0]) for array in sooner.get(refs, timeout=WAIT)] == list(range(len(refs)))


@sooner.remote
class Owner:
    """Owns what it makes, on the small node: nobody elsewhere can be asked to take it."""

    def fill(self):
        self.refs = [sooner.put(np.zeros(VALUE // 8)) for _ in range(2 * SMALL_STORE // VALUE)]


def test_values_whose_owner_is_there_do_not_go_elsewhere(cluster):
    owner = Owner.remote()
    with pytest.raises(ObjectStoreFullError, match="object_store_memory"):
        sooner.get(owner.fill.remote(), timeout=WAIT)
