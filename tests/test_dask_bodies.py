"""Bodies of tasks on data frames that stand for Dask's own: the same values for all kinds of columns."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

dask = pytest.importorskip("dask")
import dask.dataframe as dd  # noqa: E402
from dask.core import flatten  # noqa: E402
from dask.dataframe.dask_expr._quantiles import RepartitionQuantiles  # noqa: E402
from dask.dataframe.dispatch import group_split_dispatch  # noqa: E402
from dask.dataframe.partitionquantiles import (  # noqa: E402
    merge_and_compress_summaries,
    process_val_weights,
)
from dask.dataframe.partitionquantiles import percentiles_summary as dask_summary  # noqa: E402
from dask.dataframe.shuffle import set_partitions_pre  # noqa: E402
from dask.utils import random_state_data  # noqa: E402

from sooner.util.dask import bodies, grouping, quantiles  # noqa: E402
from sooner.util.dask.bodies import partition_numbers, sorted_by_index  # noqa: E402
from sooner.util.dask.graph import fused  # noqa: E402
from sooner.util.dask.grouping import grouped  # noqa: E402
from sooner.util.dask.quantiles import percentiles_summary  # noqa: E402

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


def frame_of(random, size, is_mixed):
    frame = pd.DataFrame({"x": random.random(size), "y": random.random(size)}, index=random.integers(0, 9, size))
    if is_mixed:
        frame = frame.assign(n=random.integers(0, 9, size), t=np.datetime64("2026-01-01", "ns"), b=True)
    return frame.rename_axis("place")


def of_dask(frames, numbers, count, ignore_index):
    """What Dask makes of them together."""
    frame = pd.concat(frames, ignore_index=ignore_index)
    return group_split_dispatch(frame, np.concatenate(numbers), count, ignore_index=ignore_index)


def assert_grouped(frames, count, ignore_index, random):
    numbers = [random.integers(0, count, len(frame)) for frame in frames]
    before = [frame.copy() for frame in frames]
    found = grouped(frames, numbers, count, ignore_index)
    expected = of_dask(frames, numbers, count, ignore_index)
    assert list(found) == list(expected)
    for number in range(count):
        pd.testing.assert_frame_equal(found[number], expected[number])
    for frame, copy in zip(frames, before, strict=True):
        pd.testing.assert_frame_equal(frame, copy)


@pytest.mark.parametrize("ignore_index", [False, True])
@pytest.mark.parametrize("count", [1, 7, 256, 257, 301])
@pytest.mark.parametrize("is_mixed", [False, True])
def test_rows_are_grouped_by_their_numbers(ignore_index, count, is_mixed, monkeypatch):
    # Several blocks, and more groups than short numbers.
    monkeypatch.setattr(grouping, "_BLOCK_ROWS", 128)
    monkeypatch.setattr(grouping, "_SHORT", 300)
    random = np.random.default_rng(3)
    for sizes in ([500], [500, 0, 300], [0]):
        assert_grouped([frame_of(random, size, is_mixed) for size in sizes], count, ignore_index, random)


def test_plain_rows_are_not_grouped_by_pandas(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("these rows are plain")

    random = np.random.default_rng(3)
    frames = [frame_of(random, 50, True), frame_of(random, 50, True)]
    numbers = [random.integers(0, 5, 50) for _ in frames]
    expected = of_dask(frames, numbers, 5, False)
    monkeypatch.setattr("dask.dataframe.dispatch.group_split_dispatch", refuse)
    found = grouped(frames, numbers, 5, False)
    for number in range(5):
        pd.testing.assert_frame_equal(found[number], expected[number])


@pytest.mark.parametrize("ignore_index", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame.assign(z=pd.Categorical(["a"] * len(frame), categories=["a", "b"])),
        lambda frame: frame.assign(z="text"),
        lambda frame: frame.assign(z=pd.array([None] * len(frame), dtype="Int64")),
        lambda frame: frame[[]],
        lambda frame: frame.assign(**{f"c{number}": number for number in range(9)}),
        lambda frame: frame.set_axis(pd.MultiIndex.from_product([frame.index[:50], [1, 2]])),
        lambda frame: frame.reset_index(drop=True),
        lambda frame: frame.set_axis(pd.date_range("2026-01-01", periods=len(frame))),
        lambda frame: frame.set_axis([("a", 1), ("a", 1)], axis=1),
    ],
    ids=["categories", "text", "nullable", "no columns", "many types", "levels", "range", "times", "twice a name"],
)
def test_frames_that_are_not_plain_are_grouped_too(ignore_index, change):
    random = np.random.default_rng(4)
    frames = [change(frame_of(random, 100, False)) for _ in range(2)]
    assert_grouped(frames, 7, ignore_index, random)
    assert_grouped([frames[0], frame_of(random, 20, True)][:1], 7, ignore_index, random)


def test_frames_of_different_types_are_grouped_as_they_are_put_together():
    random = np.random.default_rng(5)
    frames = [frame_of(random, 30, False), frame_of(random, 30, False).astype({"x": "f4"})]
    assert_grouped(frames, 3, True, random)


@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize("kind", ["f8", "i8", "f4", "i4", "u2", "M8[ns]"])
def test_sketches_are_quantiles_of_the_column(kind, monkeypatch):
    monkeypatch.setattr(quantiles, "_ROWS_MIN", 500)
    monkeypatch.setattr(quantiles, "_BLOCK_ROWS", 64)
    for seed in SEEDS:
        random = np.random.default_rng(seed)
        if seed % 2 and kind in ("f8", "i8", "f4", "i4"):
            values = numbers_of(random, kind, 300)
        else:
            wide = random.normal(0, random.choice([1e-3, 1, 1e9]), 5000) * 100
            values = (np.abs(wide) % 60_000).astype("i8").astype(kind)
        column = pd.Series(values)
        found, weights = percentiles_summary(column, 20, int(random.integers(1, 60)), 1.0, seed)
        assert np.sum(weights) == pytest.approx(100 * len(column)), seed
        # The shares that the weights stand for lead back to the values: by the way that pandas goes.
        first = np.random.RandomState(seed).random_sample()
        count = len(found) - 2
        shares = np.concatenate([[0.0], (np.arange(count) + first) / count, [1.0]])
        way = "linear" if column.dtype.kind == "f" else "nearest"
        expected = column.quantile(q=shares, interpolation=way).to_numpy()
        np.testing.assert_array_equal(np.asarray(found, dtype=expected.dtype), expected, err_msg=f"seed {seed}")


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(["b", "a", "c"] * 40),
        pd.Series(pd.date_range("2026-01-01", periods=120, tz="UTC")),
        pd.Series(pd.array([3, None, 1] * 40, dtype="Int64")),
        pd.Series(pd.Categorical(["b", "a", "c"] * 40)),
        pd.Series([True, False] * 60),
        pd.Series([2.0, 1.0, 3.0]),
        pd.Series([], dtype="f8"),
    ],
    ids=["text", "times", "nullable", "categories", "truths", "few", "none"],
)
def test_sketches_of_columns_that_are_not_plain_are_those_of_dask(column):
    found, expected = (some(column, 5, 5, 1.0, 3) for some in (percentiles_summary, dask_summary))
    assert repr(found) == repr(expected)


def sizes(body, partitions):
    """How many rows a shuffle of these columns gives each partition, of as many, by the sketches of a
    body.
    """
    count = len(partitions)
    seeds = random_state_data(count, 7)
    sketches = [body(pd.Series(part), count, count, 1.0, seed) for part, seed in zip(partitions, seeds, strict=True)]
    merged = merge_and_compress_summaries(sketches)
    divisions = process_val_weights(merged, count, (np.dtype("f8"), None))
    return np.histogram(np.concatenate(partitions), np.asarray(divisions))[0]


@pytest.mark.parametrize(
    "draw",
    [
        lambda random, _: random.random(20_000),
        lambda random, _: random.lognormal(0, 2, 20_000),
        lambda random, number: number + random.random(20_000),
    ],
    ids=["uniform", "heavy tail", "in order"],
)
def test_divisions_are_even(draw):
    partitions = [draw(np.random.default_rng(number), number) for number in range(50)]
    found = sizes(percentiles_summary, partitions) / 20_000
    assert found.min() > 0.6
    assert found.max() < 1.4


def test_divisions_of_dask_are_not():
    """If they are one day, this module can go."""
    partitions = [np.random.default_rng(number).random(20_000) for number in range(50)]
    assert (sizes(dask_summary, partitions) / 20_000).max() > 2


def test_numbers_in_order_are_found_without_sorting_all(monkeypatch):
    values = np.random.default_rng(1).random(200_000)
    places = np.array([0, 1, 77_777, 77_777, 199_999])
    expected = np.sort(values)[places]
    with monkeypatch.context() as patched:
        lengths, sort = [], np.sort
        patched.setattr(np, "sort", lambda some: lengths.append(len(some)) or sort(some))
        np.testing.assert_array_equal(quantiles.in_order(values, places), expected)
        assert sum(lengths) < 1000
    # Nearly all of them are in one cell.
    values[0] = 1e9
    np.testing.assert_array_equal(quantiles.in_order(values, places), np.sort(values)[places])
    values[1] = np.nan
    assert quantiles.in_order(values, places) is None


def functions(node):
    """All that a task calls, inside of fused tasks, too."""
    yield getattr(node, "func", None)
    for part in getattr(node, "args", ()):
        for inner in part.values() if isinstance(part, dict) else ():
            yield from functions(inner)


def called_by(expression):
    graph = fused(expression, list(flatten(expression.__dask_keys__())), splits=True)
    return {function for node in graph.values() for function in functions(node)}


def test_a_set_index_calls_these_bodies():
    table = dd.from_pandas(pd.DataFrame({"key": [3.0, 1.0, 2.0] * 20, "value": 1}), npartitions=3, sort=False)
    with dask.config.set({"dataframe.shuffle.method": "tasks"}):
        called = called_by(table.set_index("key").optimize(fuse=False).expr)
    assert {sorted_by_index, partition_numbers} <= called
    assert set_partitions_pre not in called
    # How `set_index` finds the divisions, when it is computed.
    called = called_by(RepartitionQuantiles(table["key"].expr, 3))
    assert percentiles_summary in called
    assert dask_summary not in called
