"""Shuffles of data frames by tasks: one stage, the rows that Dask's own scheduler finds, and only they are
moved.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sooner.util.state import list_tasks

dask = pytest.importorskip("dask")
import dask.dataframe as dd  # noqa: E402
from dask.dataframe.dask_expr import new_collection  # noqa: E402
from dask.dataframe.dask_expr._shuffle import TaskShuffle  # noqa: E402

from sooner.util.dask import SoonerDaskCallback, enable_dask_on_sooner, shuffle, sooner_dask_get  # noqa: E402
from sooner.util.dask.shuffle import joined, split  # noqa: E402

pytestmark = pytest.mark.usefixtures("shared_session")

# More than Dask shuffles in one stage.
PARTITIONS = 34


@pytest.fixture
def frame():
    random = np.random.default_rng(1)
    size = 4000
    table = pd.DataFrame(
        {
            "key": random.integers(0, 300, size),
            "value": random.random(size),
            "name": pd.Categorical(random.choice(["a", "b", "c"], size)),
            "text": random.choice(["x", "y", "z"], size),
        }
    )
    with dask.config.set({"dataframe.shuffle.method": "tasks"}):
        yield dd.from_pandas(table, npartitions=PARTITIONS, sort=False)


SHUFFLES = {
    "an index": lambda frame: frame.set_index("value"),
    "an index of few values": lambda frame: frame.set_index("key"),
    "sorted": lambda frame: frame.sort_values("value"),
    "sorted backwards by two": lambda frame: frame.sort_values(["name", "value"], ascending=False),
    "by a column": lambda frame: frame.shuffle("key"),
    "by two columns": lambda frame: frame.shuffle(["key", "name"]),
    "by the index": lambda frame: frame.shuffle(on_index=True),
    "into more partitions": lambda frame: frame.shuffle("key", npartitions=PARTITIONS + 11),
    "into fewer partitions": lambda frame: frame.shuffle("key", npartitions=PARTITIONS - 3),
    "with an index that means nothing": lambda frame: frame.shuffle("key", ignore_index=True),
    "only some partitions": lambda frame: frame.shuffle("key").partitions[3:7],
    "most are empty": lambda frame: frame[frame.key == 7].shuffle("key"),
    "all are empty": lambda frame: frame[frame.key < 0].shuffle("key"),
    "one column": lambda frame: frame.shuffle("key")[["value"]],
    "merged": lambda frame: frame.merge(frame, on="key", how="outer", shuffle_method="tasks", broadcast=False),
    "grouped": lambda frame: frame.groupby("key").value.apply(np.ptp, meta=("value", "f8")).to_frame(),
}


@pytest.fixture(params=["one", "some"])
def together(request, monkeypatch):
    """Partitions are taken apart one by one, or some together."""
    if request.param == "some":
        monkeypatch.setattr(shuffle, "_PIECES_GOOD", PARTITIONS * PARTITIONS // 4)


@pytest.mark.usefixtures("together")
@pytest.mark.parametrize("make", SHUFFLES.values(), ids=SHUFFLES)
def test_partitions_have_the_rows_that_dask_finds(make, frame):
    made = make(frame)
    counts = made.map_partitions(len)
    assert list(counts.compute(scheduler=sooner_dask_get)) == list(counts.compute(scheduler="synchronous"))
    expected = made.compute(scheduler="synchronous")
    found = made.compute(scheduler=sooner_dask_get)
    pd.testing.assert_frame_equal(in_one_order(found), in_one_order(expected))


def in_one_order(table):
    """Stages leave the rows of one partition in another order, and an index that means nothing is another
    one.
    """
    keys = [name for name in table.columns if table[name].dtype != "category"]
    return table.sort_values(keys).reset_index(drop=table.index.name is None)


def executed(collection):
    """How many tasks a computation takes."""
    before = len(list_tasks(limit=1_000_000))
    collection.compute(scheduler=sooner_dask_get)
    return len(list_tasks(limit=1_000_000)) - before


def test_it_takes_one_task_for_each_partition_before_and_after(frame):
    # And a last one. In two stages there are half as many again, and more if what is taken apart is stored
    # first.
    assert executed(frame.shuffle("key").map_partitions(len)) <= 2 * PARTITIONS + 1


def test_what_is_taken_apart_together_is_one_task(frame, monkeypatch):
    monkeypatch.setattr(shuffle, "_PIECES_GOOD", 300)
    # Four partitions each, with what makes them.
    assert executed(frame.shuffle("key").map_partitions(len)) <= 9 + PARTITIONS + 1
    monkeypatch.setattr(shuffle, "_PIECES_MAX", 100)
    # Twelve each would be too much at a time for a worker: there are stages again.
    assert executed(frame.shuffle("key").map_partitions(len)) > 3 * PARTITIONS


def test_branches_that_were_asked_for_are_kept(frame):
    assert executed(frame.shuffle("key", max_branch=7).map_partitions(len)) > 3 * PARTITIONS
    assert executed(frame.shuffle("value", max_branch=PARTITIONS).map_partitions(len)) <= 2 * PARTITIONS + 1


def test_there_are_stages_where_items_are_tasks(frame):
    with enable_dask_on_sooner(use_shuffle_optimization=False):
        # In one stage there would be over a thousand for the pieces.
        assert 3 * PARTITIONS < executed(frame.shuffle("key").map_partitions(len)) < PARTITIONS * PARTITIONS


def test_the_numbers_of_partitions_do_not_travel():
    rows = pd.DataFrame({"a": range(6), "_partitions": [2, 0, 5, 0, 2, 3], "b": 1.0}, index=list("uvwxyz"))
    parts = split([rows], 3, False, None)
    assert {number: list(part.columns) for number, part in parts.items()} == {number: ["a", "b"] for number in range(3)}
    # As Dask counts: five is two of three partitions.
    assert [list(part.index) for _, part in sorted(parts.items())] == [["v", "x", "z"], [], ["u", "w", "y"]]
    assert list(split([rows], 3, False, {2})) == [2]
    whole = joined([parts[2], parts[1]], False, 1, 2, np.dtype("int64"))
    expected = pd.DataFrame({"a": [0, 2, 4], "_partitions": 2, "b": 1.0}, index=["u", "w", "y"])
    pd.testing.assert_frame_equal(whole, expected)
    assert list(parts[2].columns) == ["a", "b"]
    nothing = joined([parts[1]], True, 1, 1, np.dtype("int64"))
    assert list(nothing.columns) == ["a", "_partitions", "b"]
    assert list(parts[1].columns) == ["a", "b"]


def test_the_numbers_of_partitions_are_there_for_who_asks(frame):
    numbered = frame.assign(_partitions=frame.key % PARTITIONS)
    shuffled = new_collection(TaskShuffle(numbered.expr, "_partitions", PARTITIONS))
    found = shuffled.compute(scheduler=sooner_dask_get)
    assert list(found.columns) == [*frame.columns, "_partitions"]
    assert (found._partitions == found.key % PARTITIONS).all()
    assert found._partitions.dtype == numbered["_partitions"].dtype
    # It may be written to like any other column.
    found["_partitions"] += 1
    assert found._partitions.sum() == (found.key % PARTITIONS).sum() + 4000


def submitted(compute):
    """The keys of tasks in the order in which they were submitted."""
    order = []
    with SoonerDaskCallback(sooner_postsubmit=lambda task, key, deps, object_ref: order.append(key)):
        compute()
    return order


def test_what_needs_one_result_and_nothing_else_follows_it():
    """Otherwise all results are kept from the first reduction to the second."""
    tables = [dask.delayed(np.arange)(n + 1, dask_key_name=("table", n)) for n in range(20)]
    least = [dask.delayed(np.min)(table, dask_key_name=("least", n)) for n, table in enumerate(tables)]
    largest = [dask.delayed(np.max)(table, dask_key_name=("largest", n)) for n, table in enumerate(tables)]
    sums = [dask.delayed(sum)(parts, dask_key_name=name) for name, parts in (("a", least), ("b", largest))]

    def compute():
        assert dask.compute(*sums, scheduler=sooner_dask_get) == (0, sum(range(20)))

    order = submitted(compute)
    for number in range(20):
        places = sorted(order.index((name, number)) for name in ("table", "least", "largest"))
        assert places[0] == order.index(("table", number))
        assert places[2] - places[0] == 2, order


def test_what_makes_one_of_them_smaller_goes_before_the_next():
    """Otherwise all that was made of one result is there at the same time."""
    table = dask.delayed(np.arange)(10, dask_key_name="table")
    wide = [dask.delayed(np.add)(table, n, dask_key_name=("wide", n)) for n in range(5)]
    least = [dask.delayed(np.min)(part, dask_key_name=("least", n)) for n, part in enumerate(wide)]

    def compute():
        assert dask.compute(*least, scheduler=sooner_dask_get) == tuple(range(5))

    order = submitted(compute)
    assert order[0] == "table"
    assert all(order.index(("least", n)) - order.index(("wide", n)) == 1 for n in range(5)), order
