"""Nodes of clusters put values for which they have no room on their disks, and other nodes read them
there.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from support import WAIT, poll

import sooner
from sooner.cluster_utils import Cluster

MIB = 1 << 20
SMALL_STORE = 64 * MIB
VALUE = 8 * MIB
# Together almost five times what a node has.
COUNT = 38


@pytest.fixture
def cluster():
    """A head that runs nothing, to which tests add nodes. All of them are small."""
    with Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": SMALL_STORE}) as made:
        yield made


def add(cluster, **arguments):
    arguments = {"num_cpus": 2, "object_store_memory": SMALL_STORE} | arguments
    node = cluster.add_node(**arguments)
    cluster.wait_for_nodes()
    return node


def metric(node, name):
    command = [sys.executable, "-m", "sooner", "metrics", "--json", "--address", node.session_dir]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=WAIT).stdout
    found = {series["name"]: series["values"][0] for series in json.loads(said) if series["values"]}
    return found[f"sooner_node_{name}"]


@sooner.remote
def make(number, size=VALUE):
    return np.full(size // 8, number)


@sooner.remote
def first(array):
    return int(array[0]), len(array)


def made(count=COUNT, **options):
    """Values that a node has made, and that nobody has read."""
    refs = [make.options(**options).remote(number) for number in range(count)]
    ready, _ = sooner.wait(refs, num_returns=count, timeout=WAIT, fetch_local=False)
    assert len(ready) == count
    return refs


def read_all(refs):
    """Looks at every value, which this program keeps no longer than that."""
    for number, ref in enumerate(refs):
        array = sooner.get(ref, timeout=WAIT)
        assert len(array) == VALUE // 8
        assert (array == number).all()
        del array


@pytest.mark.parametrize("shares", [True, False])
def test_what_a_node_had_no_room_for_is_read_at_another_one(monkeypatch, shares):
    # Between nodes of one machine values go from memory to memory; what is on disk does not.
    monkeypatch.setenv("SOONER_SHARE_MEMORY", str(int(shares)))
    small = {"num_cpus": 0, "object_store_memory": SMALL_STORE}
    with Cluster(initialize_head=True, head_node_args=small) as cluster:
        node = add(cluster)
        cluster.connect()
        refs = made()
        assert metric(node, "spilled_written_bytes") >= COUNT * VALUE - SMALL_STORE
        # There is no room for all of them here either.
        read_all(refs)
        read_all(refs)
        assert metric(node, "spilled_read_bytes") > 0
        assert metric(node, "values_sent_bytes") >= COUNT * VALUE
        refs.clear()
        poll("nothing is on disk", lambda: metric(node, "spill_files_bytes") == 0)


def test_tasks_at_a_third_node_read_what_is_on_the_disk_of_another(cluster):
    add(cluster, resources={"makes": 100})
    add(cluster, resources={"reads": 100})
    cluster.connect()
    refs = made(resources={"makes": 1})
    reading = [first.options(resources={"reads": 1}).remote(ref) for ref in refs]
    assert sooner.get(reading, timeout=WAIT) == [(number, VALUE // 8) for number in range(COUNT)]


def test_what_this_program_put_on_disk_is_read_by_tasks_elsewhere(cluster):
    add(cluster)
    cluster.connect()
    refs = [sooner.put(np.full(VALUE // 8, number)) for number in range(COUNT)]
    assert metric(cluster.head_node, "spilled_written_bytes") >= COUNT * VALUE - SMALL_STORE
    assert sooner.get([first.remote(ref) for ref in refs], timeout=WAIT) == [(n, VALUE // 8) for n in range(COUNT)]
    read_all(refs)


@sooner.remote
class Owner:
    """Owns values at its node."""

    def fill(self):
        self.refs = [sooner.put(np.full(VALUE // 8, number)) for number in range(COUNT)]
        return COUNT

    def sum(self):
        return sum(int(sooner.get(ref)[0]) for ref in self.refs)

    def lend(self):
        return self.refs


def test_an_owner_elsewhere_fills_its_own_node(cluster):
    node = add(cluster)
    cluster.connect()
    owner = Owner.remote()
    assert sooner.get(owner.fill.remote(), timeout=WAIT) == COUNT
    assert sooner.get(owner.sum.remote(), timeout=WAIT) == sum(range(COUNT))
    assert metric(node, "spilled_written_bytes") >= COUNT * VALUE - SMALL_STORE
    read_all(sooner.get(owner.lend.remote(), timeout=WAIT))


@sooner.remote
class Submitter:
    """Owns what tasks at another node return."""

    def fill(self):
        self.refs = made(resources={"makes": 1})
        return os.getpid()


def test_values_on_disk_go_with_their_owner_at_another_node(cluster):
    node = add(cluster, resources={"makes": 100})
    add(cluster, resources={"owns": 1})
    cluster.connect()
    owner = Submitter.options(resources={"owns": 1}).remote()
    pid = sooner.get(owner.fill.remote(), timeout=WAIT)
    assert metric(node, "spilled_bytes") > 0
    os.kill(pid, signal.SIGKILL)
    poll("nothing is on disk", lambda: metric(node, "spill_files_bytes") == 0)
    # The memory is free, too.
    assert sooner.get(first.options(resources={"makes": 1}).remote(np.full(6 * MIB, 3)), timeout=WAIT) == (3, 6 * MIB)


def test_values_on_the_disk_of_a_node_that_is_killed_are_made_again(cluster):
    first_node = add(cluster)
    cluster.connect()
    refs = made()
    assert metric(first_node, "spilled_bytes") > 0
    add(cluster)
    cluster.remove_node(first_node, allow_graceful=False)
    read_all(refs)


def test_values_on_the_disk_of_a_node_that_leaves_go_to_their_owner():
    large = {"num_cpus": 0, "object_store_memory": 512 * MIB}
    with Cluster(initialize_head=True, head_node_args=large) as cluster:
        node = add(cluster)
        cluster.connect()
        refs = [make.options(max_retries=0).remote(number) for number in range(COUNT)]
        sooner.wait(refs, num_returns=COUNT, timeout=WAIT, fetch_local=False)
        assert metric(node, "spilled_bytes") > 0
        cluster.remove_node(node)
        # None of them can be made again.
        read_all(refs)


def test_what_the_disk_of_a_node_does_not_take_goes_to_where_its_owner_is():
    large = {"num_cpus": 0, "object_store_memory": 512 * MIB}
    with Cluster(initialize_head=True, head_node_args=large) as cluster:
        node = add(cluster, max_spill_bytes=4 * VALUE)
        cluster.connect()
        refs = made(max_retries=0)
        # What is on disk needs no room, and stays there.
        assert 0 < metric(node, "spilled_bytes") <= 4 * VALUE
        assert metric(node, "values_sent_bytes") >= COUNT * VALUE - SMALL_STORE - 4 * VALUE
        read_all(refs)


def test_a_value_on_disk_is_broadcast(cluster):
    nodes = [add(cluster, resources={f"n{number}": 100}) for number in range(4)]
    cluster.connect()
    value = make.options(resources={"n0": 1}).remote(7, 32 * MIB)
    sooner.wait([value], timeout=WAIT, fetch_local=False)
    others = made(SMALL_STORE // VALUE, resources={"n0": 1})
    assert metric(nodes[0], "spilled_bytes") >= 32 * MIB
    reading = [first.options(resources={f"n{number}": 1}).remote(value) for number in (1, 2, 3)]
    assert sooner.get(reading, timeout=WAIT) == [(7, 4 * MIB)] * 3
    read_all(others)


def test_a_program_that_joins_by_itself_puts_its_values_on_its_own_disk(cluster, tmp_path):
    add(cluster)
    token = os.path.join(cluster.base_directory, "cluster", "token")
    with sooner.init(cluster.address, token_file=token, object_store_memory=SMALL_STORE, spill_directories=[tmp_path]):
        refs = [sooner.put(np.full(VALUE // 8, number)) for number in range(COUNT)]
        read_all(refs)
        expected = [(number, VALUE // 8) for number in range(COUNT)]
        assert sooner.get([first.remote(ref) for ref in refs], timeout=WAIT) == expected
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--spill-directory=/is/not/there"], "--spill-directory: /is/not/there is no directory"),
        (["--max-spill-bytes=much"], "--max-spill-bytes 'much'"),
        (["--max-spill-bytes=0"], "--max-spill-bytes must be positive"),
    ],
)
def test_a_node_with_a_wrong_place_for_its_values_does_not_start(tmp_path, options, said):
    command = [sys.executable, "-m", "sooner", "start", "--head", f"--cluster-dir={tmp_path}", *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=WAIT)
    assert ended.returncode != 0
    assert said in ended.stderr
