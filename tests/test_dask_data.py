"""Where the data of Dask's graphs lies: behind references, in items instead of wholes, no longer than
used.
"""

from __future__ import annotations

import operator

import numpy as np
import pandas as pd
import pytest
from support import poll, run_driver

import sooner
from sooner.util.state import list_objects, list_tasks

dask = pytest.importorskip("dask")
import dask.array as da  # noqa: E402
import dask.bag as db  # noqa: E402
import dask.dataframe as dd  # noqa: E402
from dask._task_spec import Alias, DataNode, Task, TaskRef  # noqa: E402
from dask.utils_test import add, inc  # noqa: E402

from sooner.util.dask import (  # noqa: E402
    SoonerDaskCallback,
    enable_dask_on_sooner,
    sooner_dask_get,
    sooner_dask_get_sync,
)
from sooner.util.dask.graph import are_disjoint  # noqa: E402

pytestmark = pytest.mark.usefixtures("shared_session")

MIB = 1 << 20


def refs_of(collection):
    """The references in the graph of a persisted collection, which has nothing else."""
    values = list(dict(collection.__dask_graph__()).values())
    refs = [value.value if isinstance(value, DataNode) else value for value in values]
    refs = [ref for ref in refs if not isinstance(ref, Alias)]
    assert all(isinstance(ref, sooner.ObjectRef) for ref in refs), refs
    return refs


@pytest.mark.parametrize("get", [sooner_dask_get, sooner_dask_get_sync], ids=["get", "sync"])
def test_persist_leaves_references(get):
    x = da.ones(400_000, chunks=100_000) + 1
    kept = x.persist(scheduler=get)
    assert len(refs_of(kept)) == 4
    assert kept.sum().compute(scheduler=get) == 800_000
    assert (kept + kept[::-1])[:3].compute(scheduler=get).tolist() == [4, 4, 4]
    (also,) = dask.persist(x, scheduler=get)
    assert len(refs_of(also)) == 4


def test_persist_by_request():
    x = da.ones(10, chunks=5)
    with enable_dask_on_sooner():
        assert len(refs_of(x.persist())) == 2
        values = dict(x.persist(sooner_persist=False).__dask_graph__()).values()
    assert all(isinstance(getattr(value, "value", value), np.ndarray) for value in values)
    graph = {"x": 1, "y": (inc, "x")}
    (ref,) = sooner_dask_get(graph, ["y"], sooner_persist=True)
    assert sooner.get(ref) == 2


def test_persisted_bags_delayed_and_data_frames():
    with enable_dask_on_sooner():
        bag = db.range(100, npartitions=4).map(inc).persist()
        assert len(refs_of(bag)) == 4
        assert bag.sum().compute() == 5050

        value = dask.delayed(add)(1, 2).persist()
        (ref,) = refs_of(value)
        assert dask.delayed(inc)(value).compute() == 4
        assert sooner.get(ref) == 3

        table = pd.DataFrame({"a": range(1000), "b": [f"name {n % 7}" for n in range(1000)]})
        frame = dd.from_pandas(table, npartitions=5)
        kept = frame[frame.a > 100].persist()
        assert len(refs_of(kept)) == 5
        assert kept.a.sum().compute() == sum(range(101, 1000))
        assert kept.b.nunique().compute() == 7
        assert len(kept.merge(kept, on="a").compute()) == 899
        expected = frame[frame.a > 100].compute(scheduler="sync")
        pd.testing.assert_frame_equal(kept.compute(), expected)
        assert len(refs_of(kept.persist())) == 5


def test_persisted_collections_travel():
    with enable_dask_on_sooner():
        kept = da.arange(1000, chunks=100).persist()

        @sooner.remote
        def total(array):
            return int(array.sum().compute(scheduler=sooner_dask_get))

        assert sooner.get(total.remote(kept)) == 499_500


def test_what_is_persisted_lives_as_long_as_the_collection():
    before = stored_bytes()
    kept = da.ones(4 * MIB, chunks=MIB, dtype="u1").persist(scheduler=sooner_dask_get)
    poll("four blocks are stored", lambda: stored_bytes() >= before + 4 * MIB)
    del kept
    poll("nothing is kept", lambda: stored_bytes() <= before)


def stored_bytes():
    """Bytes in shared memory that this session's processes keep, each object once."""
    rows = {row.object_id: row for row in list_objects(limit=100_000) if row.location == "shared memory"}
    return sum(row.object_size for row in rows.values() if row.hint is None)


def parts_graph(number, size):
    """A task that makes some arrays, a task for each that takes it, and one for each that uses it."""
    graph = {"whole": Task("whole", lambda: [np.full(size, n, "u1") for n in range(number)])}
    for n in range(number):
        graph["part", n] = Task(("part", n), operator.getitem, TaskRef("whole"), n)
        graph["sum", n] = Task(("sum", n), lambda part: int(part.sum(dtype=int)), TaskRef(("part", n)))
    return graph


def names_of_tasks():
    return {row.name for row in list_tasks(limit=100_000)}


def test_items_are_returns_of_their_own():
    before = stored_bytes()
    graph = parts_graph(4, 2 * MIB)
    refs = sooner_dask_get(graph, [("part", n) for n in range(4)], sooner_persist=True)
    assert sooner.get(refs[3])[0] == 3
    rows = {row.object_id: row for row in list_objects(limit=100_000)}
    # Each array is an object. A whole that held them would be four times as large.
    assert all(2 * MIB <= rows[ref.hex()].object_size < 3 * MIB for ref in refs)
    assert before + 8 * MIB <= stored_bytes() < before + 9 * MIB
    assert "dask:part" not in names_of_tasks()
    del refs
    poll("nothing is kept", lambda: stored_bytes() <= before)


def test_a_consumer_gets_its_item_and_no_more(tmp_path):
    def note(key, values):
        (tmp_path / f"{key[0]}-{key[1]}").write_text(str([getattr(value, "nbytes", -1) for value in values]))

    graph = parts_graph(3, MIB)
    with SoonerDaskCallback(sooner_pretask=lambda key, values: note(key, values) if key != "whole" else None):
        sums = sooner_dask_get(graph, [("sum", n) for n in range(3)])
    assert sums == (0, MIB, 2 * MIB)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {f"sum-{n}": f"[{MIB}]" for n in range(3)}


def test_without_the_optimization_items_are_tasks():
    with enable_dask_on_sooner(use_shuffle_optimization=False):
        graph = {
            "whole": Task("whole", list, "abc"),
            ("bit", 0): Task(("bit", 0), operator.getitem, TaskRef("whole"), 0),
        }
        assert sooner_dask_get(graph, [("bit", 0)]) == ("a",)
    assert "dask:bit" in names_of_tasks()


def test_a_shuffle_has_no_tasks_that_only_take_items():
    table = pd.DataFrame({"a": np.random.default_rng(3).permutation(1000), "b": 1.0})
    with enable_dask_on_sooner():
        frame = dd.from_pandas(table, npartitions=8).shuffle("a")
        assert sorted(frame.compute().a) == list(range(1000))
    names = names_of_tasks()
    assert any(name.endswith("group-taskshuffle") for name in names)
    assert "dask:split-taskshuffle" not in names


def test_chains_of_data_frames_are_one_task_each():
    before = len(list_tasks(limit=100_000))
    with enable_dask_on_sooner():
        frame = dd.from_pandas(pd.DataFrame({"a": range(100)}), npartitions=4)
        chain = frame.set_index("a", divisions=[0, 25, 50, 75, 99]).map_partitions(len)
        assert sorted(chain.compute()) == [25, 25, 25, 25]
    # Otherwise there are nine for each partition, and a last one.
    assert len(list_tasks(limit=100_000)) - before <= 4 * 4 + 1


def test_what_reads_one_partition_twice_is_one_task():
    before = len(list_tasks(limit=100_000))
    with enable_dask_on_sooner():
        frame = dd.from_pandas(pd.DataFrame({"a": range(100)}), npartitions=4)
        twice = frame.assign(b=frame.a * 2, c=frame.a + 1)
        # What was fused bears another name than the one that is asked for.
        kept = twice.persist()
        assert len(refs_of(kept)) == 4
        assert kept.c.sum().compute() == 5050
        assert dask.compute(twice.b.sum(), twice.c.sum()) == (9900, 5050)
        assert list(twice[twice.a > 97].compute().b) == [196, 198]
    # It takes 28; 64 when chains alone are fused. What two results share is made once.
    assert len(list_tasks(limit=100_000)) - before <= 32


def test_what_a_shuffle_takes_apart_is_made_in_the_same_task():
    rows = pd.DataFrame({"a": np.random.default_rng(5).permutation(1000)})
    before = len(list_tasks(limit=100_000))
    with enable_dask_on_sooner():
        frame = dd.from_pandas(rows, npartitions=6).assign(b=1).shuffle("a").map_partitions(len)
        assert sum(frame.compute()) == 1000
    # One for each partition before the shuffle and one after, and the last one; 19 if a partition is stored
    # first.
    assert len(list_tasks(limit=100_000)) - before <= 2 * 6 + 2


def test_what_users_wrote_as_tasks_stays_so():
    value = dask.delayed(inc)(dask.delayed(abs)(-1))
    assert value.compute(scheduler=sooner_dask_get) == 2
    assert {"dask:inc", "dask:abs"} <= names_of_tasks()


def test_what_is_wanted_whole_stays_whole():
    graph = parts_graph(3, 10)
    whole, part = sooner_dask_get(graph, ["whole", ("part", 1)])
    assert [array.tolist() for array in whole] == [[n] * 10 for n in range(3)]
    assert part.tolist() == [1] * 10


def test_a_task_with_very_many_items():
    number = 3000
    graph = {"whole": Task("whole", range, number)}
    graph |= {("part", n): Task(("part", n), operator.getitem, TaskRef("whole"), n) for n in range(number)}
    assert sooner_dask_get(graph, list(graph)[1:]) == tuple(range(number))


@pytest.mark.parametrize(
    ("indices", "expected"),
    [
        ([0, 1, 2], True),
        (["a", "b"], True),
        ([0, 0], False),
        ([0, -1], False),
        ([(slice(0, 5),), (slice(5, 9),)], True),
        ([(slice(0, 5),), (slice(4, 9),)], False),
        ([(slice(0, 5), slice(0, 2)), (slice(0, 5), slice(2, 4)), (slice(5, 6), slice(0, 2))], True),
        ([(slice(0, 5), slice(0, 2)), (slice(0, 5), slice(0, 2))], False),
        ([(slice(0, 5, 2),), (slice(5, 9),)], False),
        ([(slice(0, None),), (slice(5, 9),)], False),
        ([(slice(0, 5),), (slice(5, 9), 1)], False),
        ([["a", "b"], ["c"]], False),
        ([(0, 1), (1, 1)], True),
    ],
)
def test_which_items_have_nothing_in_common(indices, expected):
    assert are_disjoint(indices) is expected


SMALL_STORE = """
import sys, threading, time, numpy as np, dask, sooner
import dask.array as da
from sooner.util.dask import sooner_dask_get
from sooner.util.state import list_objects

MIB = 1 << 20
sooner.init(num_cpus=2, object_store_memory=64 * MIB)
most, over = 0, threading.Event()

def watch():
    global most
    while not over.wait(0.005):
        rows = [row for row in list_objects(limit=10000) if row.location == "shared memory"]
        stored = {row.object_id: row.object_size for row in rows}
        most = max(most, sum(stored.values()))

watcher = threading.Thread(target=watch)
watcher.start()
try:
    SHAPE
finally:
    over.set()
    watcher.join()
assert 4 * MIB <= most <= 64 * MIB, most
"""


@pytest.mark.parametrize(
    "shape",
    [
        """
    graph = {("x", 0): (np.zeros, MIB)}
    graph |= {("x", n): (np.add, ("x", n - 1), 1.0) for n in range(1, 100)}
    assert sooner_dask_get(graph, ("x", 99))[0] == 99
    """,
        """
    graph = {"sum": (sum, [("row", n) for n in range(100)])}
    graph |= {("x", n): (np.full, MIB // 2, n) for n in range(100)}
    graph |= {("row", n): (np.mean, ("x", n)) for n in range(100)}
    assert sooner_dask_get(graph, "sum") == 4950
    """,
        """
    assert da.ones((64, MIB // 2), chunks=(1, -1)).sum(axis=0, split_every=2)[:2].compute(
        scheduler=sooner_dask_get).tolist() == [64, 64]
    """,
    ],
    ids=["chain", "wide", "tree"],
)
def test_more_than_the_store_holds(shape):
    run_driver(SMALL_STORE.replace("    SHAPE", shape.strip("\n")))
