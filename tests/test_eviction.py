"""What leaves memory by setting: values that tasks can make again, instead of going to disk, and copies
late.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support import WAIT, poll

import sooner
from sooner._state.snapshot import METRICS, Snapshot
from sooner.cluster_utils import Cluster
from sooner.exceptions import ObjectStoreFullError
from sooner.util.state import list_objects

MIB = 1 << 20
STORE = 64 * MIB
VALUE = 8 * MIB
# Almost five times what there is room for.
COUNT = 38
# What fits, with room for one that is being made.
FITTING = STORE // VALUE - 2


def metrics(session):
    rows = Snapshot(session, METRICS).node["metrics"]
    return {row["name"]: row["values"][0] for row in rows if row["values"]}


def written():
    session = sooner.init(ignore_reinit_error=True)["session_dir"]
    # A node without a disk has none.
    return metrics(session).get("sooner_node_spilled_written_bytes", 0)


@sooner.remote
def make(number, log=None):
    if log is not None:
        with Path(log).open("a") as file:
            file.write(f"{number}\n")
    return np.full(VALUE // 8, number)


@sooner.remote
def first(array):
    return int(array[0])


@sooner.remote
def half(array):
    return array[::2].copy()


def times_made(log):
    numbers = [int(line) for line in log.read_text().split()]
    return [numbers.count(number) for number in range(COUNT)]


def read_all(refs):
    """Looks at every value, which this program keeps no longer than that."""
    for number, ref in enumerate(refs):
        assert int(sooner.get(ref, timeout=WAIT)[0]) == number


@pytest.fixture
def start(nothing_left):
    def begin(**arguments):
        context = sooner.init(**{"num_cpus": 2, "object_store_memory": STORE, "eviction": "recompute"} | arguments)
        nothing_left.append(context["session_dir"])
        return context

    yield begin
    sooner.shutdown()


def made(log=None, **options):
    refs = [make.options(**options).remote(number, log) for number in range(COUNT)]
    sooner.wait(refs, num_returns=COUNT, timeout=WAIT, fetch_local=False)
    return refs


@pytest.mark.parametrize("where", [{}, {"spill_directories": []}], ids=["disk", "nowhere"])
def test_what_was_dropped_is_made_again_and_nothing_is_written(start, tmp_path, where):
    start(**where)
    log = tmp_path / "log"
    refs = made(str(log))
    assert times_made(log) == [1] * COUNT
    places = {row.object_id: row.location for row in list_objects(limit=1000)}
    dropped = [places[ref.hex()] for ref in refs].count("dropped")
    assert dropped >= COUNT - STORE // VALUE
    read_all(refs)
    counts = times_made(log)
    assert sum(counts) >= COUNT + dropped
    assert written() == 0


def test_otherwise_values_are_written_and_made_once(start, tmp_path):
    start(eviction="spill")
    log = tmp_path / "log"
    read_all(made(str(log)))
    assert times_made(log) == [1] * COUNT
    assert written() > 0


def test_it_costs_no_retry(start, tmp_path):
    start()
    log = tmp_path / "log"
    refs = made(str(log), max_retries=1)
    for _ in range(4):
        read_all(refs)
    assert max(times_made(log)) > 2
    assert written() == 0


def test_what_may_not_be_executed_again_is_written(start, tmp_path):
    start()
    log = tmp_path / "log"
    refs = made(str(log), max_retries=0)
    read_all(refs)
    assert times_made(log) == [1] * COUNT
    assert written() > 0


def test_what_was_put_is_written_and_so_is_what_was_made_of_it(start):
    start()
    values = [sooner.put(np.full(VALUE // 8, number)) for number in range(COUNT)]
    read_all(values)
    assert written() > 0
    halves = [half.remote(value) for value in values]
    sooner.wait(halves, num_returns=COUNT, timeout=WAIT, fetch_local=False)
    # Nobody could make the halves again.
    del values
    more = [make.remote(number) for number in range(FITTING)]
    read_all(more)
    read_all(halves)


def test_what_was_made_of_what_can_be_made_again_can_be_made_again(start):
    start()
    refs = made()
    halves = [half.remote(ref) for ref in refs]
    del refs
    read_all(halves)
    read_all(halves)


def test_tasks_whose_arguments_were_dropped_do_not_hold_the_workers_that_make_them(start):
    start(num_cpus=1)
    refs = made()
    assert sooner.get([first.remote(ref) for ref in refs], timeout=WAIT) == list(range(COUNT))


def test_an_actor_takes_what_was_dropped(start):
    start()

    @sooner.remote(num_cpus=0)
    class Reader:
        def first(self, array):
            return int(array[0])

    reader = Reader.remote()
    refs = made()
    assert sooner.get([reader.first.remote(ref) for ref in refs], timeout=WAIT) == list(range(COUNT))


def test_without_a_disk_what_cannot_be_made_again_is_an_error(start):
    start(spill_directories=[])
    with pytest.raises(ObjectStoreFullError):
        [sooner.put(np.zeros(VALUE // 8)) for _ in range(COUNT)]


def test_nodes_of_clusters_drop_what_others_own():
    small = {"object_store_memory": STORE, "eviction": "recompute"}
    with Cluster(initialize_head=True, connect=True, head_node_args={"num_cpus": 0} | small) as cluster:
        node = cluster.add_node(num_cpus=2, **small)
        cluster.wait_for_nodes()
        refs = made()
        places = [row.location for row in list_objects(limit=1000)]
        assert places.count("dropped") >= COUNT - 2 * STORE // VALUE
        read_all(refs)
        read_all(refs)
        assert sooner.get([first.remote(ref) for ref in refs], timeout=WAIT) == list(range(COUNT))
        del refs
        cluster.remove_node(node)


@sooner.remote(resources={"there": 1}, num_cpus=0)
def total(array):
    return float(array.sum())


def cached(node):
    return metrics(node.session_dir)["sooner_node_cached_bytes"]


@pytest.fixture
def two_nodes():
    """Gives what begins a cluster of the head with this program and another node, and gives that one."""
    clusters = []

    def begin(eviction):
        both = {"object_store_memory": STORE, "eviction": eviction}
        cluster = Cluster(initialize_head=True, connect=True, head_node_args={"num_cpus": 0} | both)
        clusters.append(cluster)
        node = cluster.add_node(num_cpus=1, resources={"there": 100}, **both)
        cluster.wait_for_nodes()
        return cluster, node

    yield begin
    for cluster in clusters:
        cluster.shutdown()


def read_there(number):
    """Has the other node bring a value, which nobody has any more afterwards."""
    ref = sooner.put(np.full(VALUE // 8, number, dtype=np.float64))
    assert sooner.get(total.remote(ref), timeout=WAIT) == number * (VALUE // 8)


def leave_copies(node):
    """Has three copies stay there. One of which the owner has not heard yet that it is complete goes with
    its value.
    """
    for number in range(100):
        read_there(number)
        if cached(node) >= 3 * VALUE:
            return
    raise AssertionError("no copies stay")


def test_copies_go_with_their_value(two_nodes):
    _, node = two_nodes("spill")
    for number in range(3):
        read_there(number)
    poll("the copies are gone", lambda: cached(node) == 0)


def test_copies_stay_beyond_their_value_until_there_is_no_room(two_nodes):
    _, node = two_nodes("unpin")
    leave_copies(node)
    # Five times what there is room for.
    for number in range(5 * STORE // VALUE):
        read_there(number)
    row = metrics(node.session_dir)
    assert STORE // 2 < row["sooner_node_cached_bytes"] <= STORE
    # They are no values: nothing is written for them.
    assert row["sooner_node_spilled_written_bytes"] == 0
    # What is made there has all of the room.
    refs = [make.options(resources={"there": 1}, num_cpus=0).remote(number) for number in range(FITTING)]
    sooner.wait(refs, num_returns=FITTING, timeout=WAIT, fetch_local=False)
    assert metrics(node.session_dir)["sooner_node_spilled_written_bytes"] == 0
    assert cached(node) <= 2 * VALUE
    read_all(refs)


def test_copies_do_not_outlive_their_owner(two_nodes):
    cluster, node = two_nodes("unpin")
    leave_copies(node)
    sooner.shutdown()
    poll("the copies are gone", lambda: cached(node) == 0)
    cluster.connect()
    read_there(4)


def test_it_has_three_values():
    with pytest.raises(ValueError, match='eviction must be "spill", "recompute" or "unpin", not \'lru\''):
        sooner.init(num_cpus=1, eviction="lru")
    command = [sys.executable, "-m", "sooner", "start", "--head", "--eviction=lru"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=WAIT, env=dict(os.environ))
    assert ended.returncode == 2
    assert "invalid choice: 'lru'" in ended.stderr
