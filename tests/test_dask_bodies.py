"""Bodies of tasks on data frames that stand for Dask's own: the same values for all kinds of columns."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

dask = pytest.importorskip("dask")
import dask.dataframe as dd  # noqa: E402
from dask.core import flatten  # noqa: E402
from dask.dataframe.dispatch import group_split_dispatch  # noqa: E402
from dask.dataframe.shuffle import set_partitions_pre  # noqa: E402

from weft.util.dask import bodies  # noqa: E402
from weft.util.dask.bodies import grouped, partition_numbers, sorted_by_index  # noqa: E402
from weft.util.dask.graph import fused  # noqa: E402

KINDS = ["f8", "f4", "i8", "i4", "u8", "u1"]
SEEDS = range(60)


def numbers_of(random, kind, size):
    """Numbers of which some are equal, far apart, infinite or missing."""
    dtype = np.dtype(kind)
    limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    values = random.integers(0, 200, size) * random.choice([1, 0.25])
    if dtype.kind != "u" and random.random() < 0.5:
        values = values - 50
    values = values.astype(dtype)
    special = [limits.min, limits.max, 0] + ([np.nan, np.inf, -np.inf, -0.0] if dtype.kind == "f" else [])
    if random.random() < 0.5:
        return values
    return np.where(random.random(size) < 0.1, random.choice(np.array(special, dtype=dtype), size), values)


@pytest.fixture(autouse=True)
def few_rows(monkeypatch):
    """Also a few rows are looked up in the table, in several blocks."""
    monkeypatch.setattr(bodies, "_ROWS_MIN", 1)
    monkeypatch.setattr(bodies, "_BLOCK_ROWS", 64)


def expected_numbers(values, divisions, **options):
    return set_partitions_pre(pd.Series(values), pd.Series(divisions), **options)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_go_to_the_partitions_that_dask_sends_them_to(kind):
    for seed in SEEDS:
        random = np.random.default_rng(seed)
        divisions = numbers_of(random, kind, random.integers(2, 40))
        divisions = np.sort(divisions[~np.isnan(divisions)])
        if len(divisions) < 2:
            continue
        # Some rows are exactly at a division.
        values = np.concatenate([numbers_of(random, kind, 150), divisions, numbers_of(random, kind, 50)])
        options = {"ascending": random.random() < 0.5, "na_position": random.choice(["first", "last"])}
        found = partition_numbers(pd.Series(values), pd.Series(divisions), **options)
        expected = expected_numbers(values, divisions, **options)
        np.testing.assert_array_equal(found, expected, err_msg=f"seed {seed}")
        assert found.dtype == expected.dtype


@pytest.mark.parametrize("kind", ["f8", "f4", "i8", "u2"])
def test_many_rows_are_looked_up_in_a_table(kind, monkeypatch):
    random = np.random.default_rng(7)
    values = (random.normal(0, 1, 100_000) * 5000 + 30_000).astype(kind)
    divisions = np.quantile(values, np.linspace(0, 1, 60)).astype(kind)
    expected = expected_numbers(values, divisions)

    def refuse(*_):
        raise AssertionError("the table does not do")

    monkeypatch.setattr("dask.dataframe.shuffle.set_partitions_pre", refuse)
    np.testing.assert_array_equal(partition_numbers(pd.Series(values), pd.Series(divisions)), expected)


@pytest.mark.parametrize(
    ("values", "divisions"),
    [
        (["b", "a", None, "c"] * 10, ["a", "b", "c"]),
        (pd.to_datetime(["2026-01-02", "2026-01-01", None, "2026-01-09"] * 10), pd.date_range("2026-01-01", periods=4)),
        (pd.array([3, None, 1, 2] * 10, dtype="Int64"), [1, 2, 3]),
        ([1.5, 2.5, np.nan, 9.5] * 10, [1, 2, 9]),
        ([True, False] * 20, [False, True]),
        (np.geomspace(1e-300, 1e300, 50), np.geomspace(1e-300, 1e300, 40)),
        (np.array([-1e308, 0, 1e308] * 10), np.array([-1e308, 0.0, 1e308])),
        ([2.0] * 40, [2.0, 2.0, 2.0]),
    ],
    ids=["text", "times", "nullable", "other types", "booleans", "far apart", "wider than numbers", "no width"],
)
def test_columns_that_are_not_plain_go_where_dask_sends_them(values, divisions):
    expected = expected_numbers(values, divisions)
    np.testing.assert_array_equal(partition_numbers(pd.Series(values), pd.Series(divisions)), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_sorted_by_their_index(kind):
    for seed in SEEDS:
        random = np.random.default_rng(seed)
        values = numbers_of(random, kind, random.integers(0, 300))
        index, order = pd.Index(values, name="key"), np.arange(len(values))
        for frame in (pd.DataFrame(index=index), pd.DataFrame({"a": values, "b": order}, index=index)):
            before = frame.copy()
            found, expected = sorted_by_index(frame), frame.sort_index()
            # Rows with the same index may be in any order.
            pd.testing.assert_frame_equal(found[found.columns[:1]], expected[expected.columns[:1]])
            pd.testing.assert_frame_equal(frame, before)
            assert sorted(found.get("b", [])) == sorted(expected.get("b", []))
        series = pd.Series(values, index=index)
        pd.testing.assert_series_equal(sorted_by_index(series), series.sort_index())


@pytest.mark.parametrize(
    "index",
    [
        pd.Index(["b", "a", None], name="text"),
        pd.DatetimeIndex(["2026-01-02", None, "2026-01-01"]),
        pd.MultiIndex.from_tuples([(2, "a"), (1, "b"), (1, "a")]),
        pd.CategoricalIndex(["b", "a", "c"], categories=["c", "b", "a"]),
        pd.RangeIndex(3, 0, -1),
        pd.Index([], dtype="f8"),
    ],
    ids=lambda index: type(index).__name__,
)
def test_rows_with_an_index_that_is_not_plain_are_sorted(index):
    frame = pd.DataFrame({"value": range(len(index))}, index=index)
    frame.attrs["kept"] = 1
    found = sorted_by_index(frame)
    pd.testing.assert_frame_equal(found, frame.sort_index())
    assert found.attrs == {"kept": 1}
    pd.testing.assert_frame_equal(sorted_by_index(frame, ascending=False), frame.sort_index(ascending=False))


@pytest.mark.parametrize("ignore_index", [False, True])
@pytest.mark.parametrize("count", [1, 7, 300, 301])
def test_rows_are_grouped_by_their_numbers(ignore_index, count, monkeypatch):
    # More groups than short numbers.
    monkeypatch.setattr(bodies, "_SHORT", 300)
    random = np.random.default_rng(3)
    names = pd.Categorical(random.choice(["a", "b"], 500))
    frame = pd.DataFrame({"x": random.random(500), "y": names, "z": "text"}, index=random.integers(0, 9, 500))
    numbers = pd.Series(random.integers(0, count, 500), index=frame.index)
    found = grouped(frame, numbers, count, ignore_index)
    expected = group_split_dispatch(frame, numbers, count, ignore_index=ignore_index)
    assert list(found) == list(expected)
    for number in range(count):
        pd.testing.assert_frame_equal(found[number], expected[number])


def functions(node):
    """All that a task calls, inside of fused tasks, too."""
    yield getattr(node, "func", None)
    for part in getattr(node, "args", ()):
        for inner in part.values() if isinstance(part, dict) else ():
            yield from functions(inner)


def test_a_set_index_calls_these_bodies():
    table = dd.from_pandas(pd.DataFrame({"key": [3.0, 1.0, 2.0] * 20, "value": 1}), npartitions=3, sort=False)
    with dask.config.set({"dataframe.shuffle.method": "tasks"}):
        expression = table.set_index("key").optimize(fuse=False).expr
    graph = fused(expression, list(flatten(expression.__dask_keys__())), splits=True)
    called = {function for node in graph.values() for function in functions(node)}
    assert {sorted_by_index, partition_numbers} <= called
    assert set_partitions_pre not in called
