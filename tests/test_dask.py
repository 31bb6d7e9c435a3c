"""Dask on sooner: what Dask asks of schedulers, and its collections against its own scheduler."""

from __future__ import annotations

import operator
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support import WAIT, poll, run_driver

import sooner

dask = pytest.importorskip("dask")
import dask.array as da  # noqa: E402
import dask.bag as db  # noqa: E402
import dask.dataframe as dd  # noqa: E402
from dask._task_spec import Alias, DataNode, List, Task, TaskRef  # noqa: E402
from dask.utils_test import GetFunctionTestMixin, add, inc  # noqa: E402

from sooner.util.dask import (  # noqa: E402
    disable_dask_on_sooner,
    enable_dask_on_sooner,
    sooner_dask_get,
    sooner_dask_get_sync,
)

pytestmark = pytest.mark.usefixtures("shared_session")


@pytest.fixture
def enabled():
    with enable_dask_on_sooner():
        yield


def computed_alike(collection):
    """The result on sooner, after a look that Dask's own scheduler has the same one."""
    ours = collection.compute()
    theirs = collection.compute(scheduler="sync")
    if isinstance(theirs, pd.DataFrame):
        columns = list(theirs.columns)
        # Rows with the same index come in any order.
        pd.testing.assert_frame_equal(
            ours.reset_index().sort_values(
                ["index", *columns] if "index" in ours.reset_index() else columns, ignore_index=True
            ),
            theirs.reset_index().sort_values(
                ["index", *columns] if "index" in theirs.reset_index() else columns, ignore_index=True
            ),
        )
    elif isinstance(theirs, pd.Series):
        pd.testing.assert_series_equal(ours.sort_index(), theirs.sort_index())
    else:
        np.testing.assert_array_equal(ours, theirs)
    return ours


@pytest.mark.api("util.dask")
class TestGet(GetFunctionTestMixin):
    get = staticmethod(sooner_dask_get)


class TestGetSync(GetFunctionTestMixin):
    get = staticmethod(sooner_dask_get_sync)

    # One task after the other, ten thousand times, says nothing more than a thousand.
    def test_get_stack_limit(self):
        graph = {f"x{i + 1}": (inc, f"x{i}") for i in range(1000)} | {"x0": 0}
        assert self.get(graph, "x1000") == 1000


def test_graphs_in_the_present_form():
    graph = {
        "one": DataNode("one", 1),
        "two": Task("two", inc, TaskRef("one")),
        "alias": Alias("alias", "two"),
        "again": Alias("again", "alias"),
        "list": Task("list", sum, List(TaskRef("again"), Task(None, inc, TaskRef("alias")), 10)),
        "keyword": Task("keyword", int, "ff", base=Task(None, operator.mul, TaskRef("two"), 8)),
    }
    assert sooner_dask_get(graph, ["list", "again", "one", ["keyword"]]) == (15, 2, 1, (255,))
    assert sooner_dask_get(graph, "alias") == 2
    assert sooner_dask_get(graph, []) == ()


def test_what_is_not_needed_is_not_executed(tmp_path):
    mark = tmp_path / "executed"
    graph = {"bad": Task("bad", mark.touch), "x": 1, "good": (inc, "x")}
    assert sooner_dask_get(graph, "good") == 2
    assert not mark.exists()


def test_graphs_that_are_wrong():
    with pytest.raises(ValueError, match="'b' depends on 'nothing'"):
        sooner_dask_get({"b": Task("b", inc, TaskRef("nothing"))}, "b")
    with pytest.raises(RuntimeError, match="Cycle"):
        sooner_dask_get({"a": (inc, "b"), "b": (inc, "a")}, "a")


def test_arguments_that_are_wrong():
    with pytest.raises(TypeError, match="no argument 'sooner_presist'"):
        sooner_dask_get({"x": 1}, "x", sooner_presist=True)
    with pytest.raises(ValueError, match="num_workers"):
        sooner_dask_get({"x": 1}, "x", num_workers=0)
    with pytest.raises(ValueError, match="shuffle='p2p'"):
        enable_dask_on_sooner(shuffle="p2p")


def test_tasks_run_in_workers():
    pids = dask.compute(*[dask.delayed(os.getpid, pure=False)() for _ in range(10)], scheduler=sooner_dask_get)
    assert os.getpid() not in pids


def test_delayed(enabled):
    @dask.delayed
    def total(numbers, scale=1):
        return scale * sum(numbers)

    parts = [dask.delayed(lambda n: n * n)(n) for n in range(20)]
    assert total(parts, scale=total([parts[1], 1])).compute() == 2 * sum(n * n for n in range(20))
    assert dask.compute({"a": parts[3], "b": [parts[4]]}) == ({"a": 9, "b": [16]},)


def test_references_among_arguments_are_values():
    ref = sooner.put(np.arange(50_000))
    total = dask.delayed(lambda array, other: array.sum() + other.sum())(ref, sooner.put(np.ones(3)))
    assert total.compute(scheduler=sooner_dask_get) == np.arange(50_000).sum() + 3


@pytest.mark.parametrize(
    "make",
    [
        lambda x: (x + x.T).sum(axis=0),
        lambda x: x.rechunk((7, 60)) * 2,
        lambda x: x.rechunk((60, 7))[3:20:2, ::3],
        lambda x: da.tensordot(x, x.T, axes=1),
        lambda x: da.linalg.svd(x.rechunk((20, 60)))[1].round(6),
        lambda x: da.overlap.overlap(x, depth=2, boundary="reflect").std(),
        lambda x: x.map_blocks(lambda block: block[::-1]),
        lambda x: da.unique(x.astype(int) % 7),
        lambda x: x[x > 1800].compute_chunk_sizes(),
    ],
    ids=["transpose", "rechunk", "slice", "tensordot", "svd", "overlap", "map_blocks", "unique", "mask"],
)
def test_arrays(enabled, make):
    x = da.arange(3600, chunks=300, dtype=float).reshape(60, 60).rechunk((20, 15))
    computed_alike(make(x))


def test_arrays_that_were_computed_can_be_changed(enabled):
    array = da.zeros(200_000, chunks=50_000).compute()
    array[5] = 1
    assert array.sum() == 1
    one, same = dask.compute(*[da.ones(100_000, chunks=-1)] * 2)
    one += 1
    assert one.sum() == 200_000
    assert same.shape == one.shape


def test_bags(enabled):
    numbers = db.range(1000, npartitions=7)
    assert numbers.map(lambda n: n % 10).frequencies().compute() == [(n, 100) for n in range(10)]
    assert numbers.filter(lambda n: n % 2).map(inc).fold(add).compute() == sum(range(2, 1001, 2))
    groups = numbers.groupby(lambda n: n % 3).compute()
    assert {key: sorted(group) for key, group in groups} == {rest: list(range(rest, 1000, 3)) for rest in range(3)}


@pytest.fixture(scope="module")
def frames():
    random = np.random.default_rng(1)
    left = pd.DataFrame(
        {
            "key": random.integers(0, 100, 3000),
            "name": random.choice(["ada", "grace", "edsger"], 3000),
            "value": random.permutation(3000),
        }
    )
    right = pd.DataFrame({"key": random.permutation(150), "weight": random.random(150)})
    return dd.from_pandas(left, npartitions=9), dd.from_pandas(right, npartitions=5)


@pytest.mark.parametrize(
    "make",
    [
        lambda left, _: left.set_index("value"),
        lambda left, _: left.sort_values("value").reset_index(drop=True),
        lambda left, right: left.merge(right, on="key"),
        lambda left, right: left.merge(right, on="key", how="outer", shuffle_method="tasks", broadcast=False),
        lambda left, _: left.shuffle("name"),
        lambda left, _: left.shuffle("key", npartitions=40),
        lambda left, _: left.groupby("name").value.agg(["sum", "count"]),
        lambda left, _: left.groupby("key").value.apply(lambda group: group.max(), meta=("value", "int64")),
        lambda left, _: left.name.str.upper().value_counts(),
        lambda left, _: left.drop_duplicates("name")[["name"]].reset_index(drop=True),
        lambda left, _: left.value.rolling(5).sum(),
        lambda left, _: left[left.value > 100].key.mean(),
    ],
    ids=[
        "set_index",
        "sort",
        "merge",
        "outer",
        "shuffle",
        "more",
        "agg",
        "apply",
        "counts",
        "unique",
        "rolling",
        "mean",
    ],
)
def test_data_frames(enabled, frames, make):
    computed_alike(make(*frames))


def test_set_index_sorts(enabled, frames):
    left, _ = frames
    ours = left.set_index("value").compute()
    assert list(ours.index) == list(range(3000))


def test_a_shuffle_in_several_stages(enabled):
    frame = pd.DataFrame({"a": np.random.default_rng(2).permutation(800)})
    many = dd.from_pandas(frame, npartitions=40).shuffle("a", max_branch=4)
    computed_alike(many)


def test_data_frames_in_files(enabled, tmp_path):
    frame = dd.from_pandas(pd.DataFrame({"a": range(1000), "b": [f"row {n}" for n in range(1000)]}), npartitions=4)
    frame.to_parquet(tmp_path / "table")
    again = dd.read_parquet(tmp_path / "table", split_row_groups=False)
    assert again.npartitions == 4
    pd.testing.assert_frame_equal(again.compute(), frame.compute())
    assert again.a.sum().compute() == 499_500


def divide(a, b):
    return a / b


def test_an_exception_is_the_one_that_was_raised(enabled):
    bad = dask.delayed(inc)(dask.delayed(divide)(1, 0))
    with pytest.raises(ZeroDivisionError) as caught:
        bad.compute()
    assert isinstance(caught.value, sooner.exceptions.TaskError)
    assert "in divide" in str(caught.value)
    assert "return a / b" in str(caught.value)


def test_a_missing_item_is_its_error(enabled):
    producer = dask.delayed(dict)(a=1)
    with pytest.raises(KeyError, match="b"):
        dask.compute(producer["a"], producer["b"])


def test_a_task_whose_worker_dies_runs_again(enabled, tmp_path):
    def die_once():
        mark = tmp_path / "died"
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return {"a": 1, "b": 2}

    whole = dask.delayed(die_once)()
    assert dask.compute(whole["a"], whole["b"]) == (1, 2)


def touch_and_sleep(mark, seconds):
    Path(mark).touch()
    time.sleep(seconds)


def fail_after(mark):
    deadline = time.monotonic() + WAIT
    while not Path(mark).exists():
        assert time.monotonic() < deadline
        time.sleep(0.005)
    raise LookupError("failed")


def test_an_error_cancels_what_runs_and_what_waits(enabled, tmp_path):
    begun, after = tmp_path / "begun", tmp_path / "after"
    slow = dask.delayed(touch_and_sleep)(str(begun), 10 * WAIT)
    later = dask.delayed(lambda _, path: Path(path).touch())(slow, str(after))
    begin = time.monotonic()
    with pytest.raises(LookupError, match="failed"):
        dask.compute(later, dask.delayed(fail_after)(str(begun)))
    assert time.monotonic() - begin < 10 * WAIT
    poll("the CPUs are free", lambda: sooner.available_resources().get("CPU") == 2)
    assert not after.exists()


def test_an_error_ends_submission(enabled, tmp_path):
    def mark_and_fail(number):
        (tmp_path / str(number)).touch()
        raise LookupError(str(number))

    graph = {("x", number): Task(("x", number), mark_and_fail, number) for number in range(2000)}
    with pytest.raises(LookupError):
        sooner_dask_get(graph, list(graph))
    assert len(list(tmp_path.iterdir())) < 1000


INTERRUPTED = """
import sys, time, dask, sooner
from pathlib import Path
from sooner.util.dask import sooner_dask_get

sooner.init(num_cpus=2)

def sleep(mark):
    try:
        # Within: who sees the mark may interrupt at once.
        Path(mark).touch()
        time.sleep(600)
    finally:
        Path(mark + ".ended").touch()

directory = sys.argv[1]
try:
    dask.compute(*[dask.delayed(sleep)(f"{directory}/{n}") for n in range(3)], scheduler=sooner_dask_get)
except KeyboardInterrupt:
    deadline = time.monotonic() + 60
    while sooner.available_resources().get("CPU") != 2:
        assert time.monotonic() < deadline, "the tasks go on"
        time.sleep(0.01)
    marks = {path.name for path in Path(directory).iterdir()}
    begun = {name for name in marks if "." not in name}
    assert len(begun) == 2 and all(f"{name}.ended" in marks for name in begun), marks
    print("cancelled")
"""


def test_an_interrupt_cancels(tmp_path):
    program = subprocess.Popen([sys.executable, "-c", INTERRUPTED, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        poll("two tasks run", lambda: len(list(tmp_path.iterdir())) == 2)
        program.send_signal(signal.SIGINT)
        output, _ = program.communicate(timeout=WAIT)
    finally:
        program.kill()
        program.wait()
    assert output == "cancelled\n"


def test_a_session_is_started():
    program = """
        import dask, sooner
        from sooner.util.dask import sooner_dask_get
        assert not sooner.is_initialized()
        assert dask.delayed(sum)([1, 2]).compute(scheduler=sooner_dask_get) == 3
        assert sooner.is_initialized()
    """
    run_driver(program)


def test_enable_and_disable():
    assert dask.config.get("scheduler", None) is None
    with enable_dask_on_sooner():
        assert dask.config.get("scheduler") is sooner_dask_get
        assert dask.config.get("dataframe.shuffle.method") == "tasks"
        with disable_dask_on_sooner():
            assert dask.config.get("scheduler") is None
        assert dask.config.get("scheduler") is sooner_dask_get
    assert dask.config.get("scheduler", None) is None
    assert dask.config.get("dataframe.shuffle.method", None) is None
    enable_dask_on_sooner(shuffle=None)
    try:
        assert dask.config.get("dataframe.shuffle.method", None) is None
        assert dask.delayed(os.getpid)().compute() != os.getpid()
    finally:
        disable_dask_on_sooner()
    assert dask.delayed(os.getpid)().compute() == os.getpid()


@sooner.remote
def mean_of(size):
    with enable_dask_on_sooner():
        return float(da.arange(size, chunks=size // 4).mean().compute())


def test_in_a_task():
    # As many as there are CPUs: each gives its own back while it waits.
    assert sooner.get([mean_of.remote(size) for size in (101, 1001, 10_001)]) == [50, 500, 5000]


def test_in_a_task_of_dask():
    def inner(number):
        return sum(dask.compute(*[dask.delayed(inc)(number) for _ in range(3)], scheduler=sooner_dask_get))

    outer = [dask.delayed(inner)(number) for number in range(4)]
    assert dask.compute(*outer, scheduler=sooner_dask_get) == (3, 6, 9, 12)


def test_more_dependencies_than_a_call_has_arguments():
    number = 70_000
    graph = {("x", n): DataNode(("x", n), n) for n in range(number)}
    graph["y"] = Task("y", inc, TaskRef(("x", 0)))
    graph["sum"] = Task("sum", sum, List(*[TaskRef(("x", n)) for n in range(number)], TaskRef("y")))
    assert sooner_dask_get(graph, "sum") == sum(range(number)) + 1


def test_local_mode():
    program = """
        import os, dask, sooner
        import dask.array as da
        from sooner.util.dask import SoonerDaskCallback, sooner_dask_get

        sooner.init(local_mode=True)
        assert dask.delayed(os.getpid)().compute(scheduler=sooner_dask_get) == os.getpid()
        x = da.ones((20, 20), chunks=5).persist(scheduler=sooner_dask_get)
        assert (x + x.T).rechunk(4).sum().compute(scheduler=sooner_dask_get) == 800
        try:
            dask.delayed(lambda: 1 / 0)().compute(scheduler=sooner_dask_get)
        except ZeroDivisionError:
            print("as elsewhere")
    """
    assert run_driver(program).stdout == "as elsewhere\n"


def test_in_threads():
    results: dict[int, int] = {}

    def compute(number):
        graph = {("x", n): (add, n, number) for n in range(100)} | {"sum": (sum, [("x", n) for n in range(100)])}
        results[number] = sooner_dask_get(graph, "sum")

    threads = [threading.Thread(target=compute, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert results == {number: 4950 + 100 * number for number in range(4)}


def test_the_error_without_dask_says_what_to_do():
    program = """
        import sys
        sys.modules["dask"] = None
        import sooner.util
        try:
            sooner.util.dask
        except ImportError as error:
            assert "pip install 'sooner[dask]'" in str(error), error
        else:
            raise AssertionError("there is no error")
    """
    run_driver(program)
