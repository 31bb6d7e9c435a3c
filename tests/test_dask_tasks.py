"""Tasks of Dask's graphs: callbacks around them, and what they ask for through annotations."""

from __future__ import annotations

import io
import itertools
import string
import threading

import pytest
from support import WAIT

import sooner
from sooner.util.state import list_tasks

dask = pytest.importorskip("dask")
import dask.array as da  # noqa: E402
from dask._task_spec import DataNode, Task, TaskRef  # noqa: E402
from dask.callbacks import Callback  # noqa: E402
from dask.diagnostics import ProgressBar  # noqa: E402
from dask.utils_test import add, inc  # noqa: E402

from sooner.util.dask import (  # noqa: E402
    SoonerDaskCallback,
    enable_dask_on_sooner,
    sooner_dask_get,
    sooner_dask_get_sync,
)

pytestmark = pytest.mark.usefixtures("shared_session")

GRAPH = {"x": 1, "y": (inc, "x"), "z": (add, "y", "x")}


@sooner.remote
class Notes:
    def __init__(self):
        self.notes = []

    def add(self, note):
        self.notes.append(note)

    def all(self):
        return self.notes


@pytest.fixture
def notes():
    return Notes.remote()


class Recorder(SoonerDaskCallback):
    """Notes every event, wherever it happens."""

    def __init__(self, notes):
        super().__init__()
        self.notes = notes

    def _note(self, *note):
        sooner.get(self.notes.add.remote(note))

    def _sooner_presubmit(self, task, key, deps):
        self._note("presubmit", key, sorted(deps))

    def _sooner_postsubmit(self, task, key, deps, object_ref):
        self._note("postsubmit", key, isinstance(object_ref, sooner.ObjectRef))

    def _sooner_pretask(self, key, object_refs):
        self._note("pretask", key, object_refs)
        return f"before {key}"

    def _sooner_posttask(self, key, result, pre_state):
        self._note("posttask", key, result, pre_state)

    def _sooner_postsubmit_all(self, object_refs, dsk):
        self._note("postsubmit_all", len(object_refs), sorted(dsk))

    def _sooner_finish(self, result):
        self._note("finish", result)


@pytest.mark.api("util.dask_callbacks")
def test_every_event(notes):
    assert not SoonerDaskCallback.sooner_active
    with Recorder(notes) as callback:
        assert callback in SoonerDaskCallback.sooner_active
        # One task after the other, so that the order is certain.
        assert sooner_dask_get_sync(GRAPH, "z") == 3
    assert not SoonerDaskCallback.sooner_active
    heard = sooner.get(notes.all.remote())
    # The order of what a task depends on is not defined.
    (before,) = [note for note in heard if note[:2] == ("pretask", "z")]
    assert sorted(before[2]) == [1, 2]
    heard.remove(before)
    # The last task is executed while the program goes on.
    heard.remove(("posttask", "z", 3, "before z"))
    assert heard == [
        ("presubmit", "y", ["x"]),
        ("postsubmit", "y", True),
        ("pretask", "y", (1,)),
        ("posttask", "y", 2, "before y"),
        ("presubmit", "z", ["x", "y"]),
        ("postsubmit", "z", True),
        ("postsubmit_all", 1, ["x", "y", "z"]),
        ("finish", [3]),
    ]


def test_functions(notes):
    def note(*note):
        sooner.get(notes.add.remote(note))

    callback = SoonerDaskCallback(
        sooner_presubmit=lambda task, key, deps: note("presubmit", type(task).__name__, key),
        sooner_pretask=lambda key, values: note("pretask", key) or 17,
        sooner_posttask=lambda key, result, state: note("posttask", key, result, state),
        sooner_finish=lambda result: note("finish", result),
    )
    with callback:
        assert sooner_dask_get({"y": (inc, 1)}, "y") == 2
    assert sooner.get(notes.all.remote()) == [
        ("presubmit", "Task", "y"),
        ("pretask", "y"),
        ("posttask", "y", 2, 17),
        ("finish", [2]),
    ]


def test_a_value_of_presubmit_takes_the_place_of_the_task(notes):
    def replace(task, key, deps):
        return 100 if key == "y" else None

    with SoonerDaskCallback(sooner_presubmit=replace), SoonerDaskCallback(sooner_presubmit=lambda *_: None):
        assert sooner_dask_get(GRAPH, ["y", "z"]) == (100, 101)
    graph = {"d": (dict, [["one", 1], ["two", 2]]), "a": (dict.get, "d", "one"), "b": (dict.get, "d", "two")}
    for value in ({"one": 10, "two": 20}, sooner.put({"one": 10, "two": 20})):
        with SoonerDaskCallback(sooner_presubmit=lambda task, key, deps, value=value: value if key == "d" else None):
            assert sooner_dask_get(graph, ["a", "b"]) == (10, 20)


def test_registered_until_unregistered(notes):
    callback = SoonerDaskCallback(sooner_finish=lambda result: sooner.get(notes.add.remote(result)))
    callback.register()
    try:
        sooner_dask_get(GRAPH, "y")
    finally:
        callback.unregister()
    sooner_dask_get(GRAPH, "z")
    assert sooner.get(notes.all.remote()) == [[2]]


def test_given_callbacks_go_before_those_that_are_active(notes):
    def noting(name):
        return SoonerDaskCallback(sooner_finish=lambda _: sooner.get(notes.add.remote(name)))

    with noting("active"):
        sooner_dask_get(GRAPH, "y", sooner_callbacks=[noting("given")])
        sooner_dask_get(GRAPH, "y", sooner_callbacks=[])
        sooner_dask_get(GRAPH, "y")
    assert sooner.get(notes.all.remote()) == ["given", "active"]
    with pytest.raises(TypeError, match="sooner_callbacks takes SoonerDaskCallback objects, not str"):
        sooner_dask_get(GRAPH, "y", sooner_callbacks=["callback"])


def test_what_is_computed_inside_is_not_heard(notes):
    def compute(*_):
        sooner.get(notes.add.remote(sooner_dask_get(GRAPH, "z")))

    with SoonerDaskCallback(sooner_postsubmit_all=compute):
        sooner_dask_get(GRAPH, "y")
    assert sooner.get(notes.all.remote()) == [3]


def test_threads_do_not_take_callbacks_from_each_other(notes):
    begun, go = threading.Event(), threading.Event()

    def pause(*_):
        begun.set()
        assert go.wait(WAIT)

    with SoonerDaskCallback(sooner_postsubmit_all=pause):
        thread = threading.Thread(target=sooner_dask_get, args=(GRAPH, "z"))
        thread.start()
        assert begun.wait(WAIT)
        with SoonerDaskCallback(sooner_finish=lambda result: sooner.get(notes.add.remote(result))):
            go.set()
            sooner_dask_get(GRAPH, "y")
    thread.join(WAIT)
    assert sooner.get(notes.all.remote()) == [[2]]


def test_an_error_in_a_worker_is_the_tasks():
    def fail(key, values):
        raise LookupError(f"before {key}")

    with SoonerDaskCallback(sooner_pretask=fail), pytest.raises(LookupError, match="before y"):
        sooner_dask_get(GRAPH, "y")


def test_callbacks_of_dask():
    events = []
    callback = Callback(
        start=lambda dsk: events.append(("start", set(dsk))),
        start_state=lambda dsk, state: events.append(("start_state", set(state["waiting"]))),
        pretask=lambda key, dsk, state: events.append(("pretask", key)),
        posttask=lambda key, value, dsk, state, worker: events.append(("posttask", key)),
        finish=lambda dsk, state, failed: events.append(("finish", state["finished"], failed)),
    )
    with callback:
        sooner_dask_get_sync(GRAPH, "z")
    begin = [("start", {"x", "y", "z"}), ("start_state", {"y", "z"}), ("pretask", "y"), ("posttask", "y")]
    assert events == [*begin, ("pretask", "z"), ("posttask", "z"), ("finish", {"y", "z"}, False)]
    events.clear()
    with callback, pytest.raises(TypeError):
        sooner_dask_get({"y": (inc, None)}, "y")
    assert events[-1] == ("finish", set(), True)


def test_a_progress_bar_of_dask():
    shown = io.StringIO()
    with ProgressBar(out=shown):
        da.ones(100, chunks=10).sum().compute(scheduler=sooner_dask_get)
    assert "100% Completed" in shown.getvalue()


def resources():
    return sooner.get_runtime_context().get_assigned_resources()


def assigned(graph, keys, **options):
    return [dict(found) for found in sooner_dask_get(graph, keys, **options)]


def test_options_of_all_tasks():
    graph = {"a": Task("a", resources), "b": Task("b", resources)}
    assert assigned(graph, ["a", "b"]) == [{"CPU": 1.0}] * 2
    assert assigned(graph, ["a", "b"], sooner_remote_args={"num_cpus": 2}) == [{"CPU": 2.0}] * 2
    with dask.annotate(sooner_remote_args={"num_cpus": 0.5}):
        assert assigned(graph, ["a"]) == [{"CPU": 0.5}]
        assert assigned(graph, ["a"], sooner_remote_args={"num_cpus": 2}) == [{"CPU": 2.0}]


def test_options_of_some_tasks():
    with dask.annotate(sooner_remote_args={"num_cpus": 2}):
        two = dask.delayed(resources, pure=False)()
    with dask.annotate(sooner_remote_args=lambda key: {"num_cpus": 0.25}):
        quarter = dask.delayed(resources, pure=False)()
    one = dask.delayed(resources, pure=False)()
    with enable_dask_on_sooner():
        found = dask.compute(two, quarter, one)
        assert [dict(each) for each in found] == [{"CPU": 2.0}, {"CPU": 0.25}, {"CPU": 1.0}]
        assert [each.get("CPU") for each in dask.compute(two, one, sooner_remote_args={"num_cpus": 0.5})] == [2, 0.5]


@pytest.mark.parametrize("fuses", [True, False])
def test_options_survive_fusion(fuses):
    def cpus(block):
        return block * 0 + resources().get("CPU", 0)

    x = da.ones(20, chunks=10)
    with dask.annotate(sooner_remote_args={"num_cpus": 2}):
        annotated = x.map_blocks(cpus, dtype=float)
    after = (annotated + 0)[::2]
    assert after.compute(scheduler=sooner_dask_get, optimize_graph=fuses).tolist() == [2] * 10
    plain = (x.map_blocks(cpus, dtype=float) + 0)[::2]
    assert plain.compute(scheduler=sooner_dask_get, optimize_graph=fuses).tolist() == [1] * 10


def test_tasks_with_options_of_their_own_stay_tasks():
    whole = dask.delayed(lambda: {"a": 1, "b": 2}, pure=False)()
    with dask.annotate(sooner_remote_args={"num_cpus": 2, "name": "annotated item"}):
        item = whole["a"]
    assert dask.compute(item, whole["b"], scheduler=sooner_dask_get) == (1, 2)
    assert "annotated item" in {row.name for row in list_tasks(limit=100_000)}


def test_options_that_are_wrong():
    with pytest.raises(TypeError, match=r"sooner_remote_args takes a dictionary .* not int"):
        sooner_dask_get(GRAPH, "y", sooner_remote_args=2)
    with pytest.raises(ValueError, match="num_returns"):
        sooner_dask_get(GRAPH, "y", sooner_remote_args={"num_returns": 2})
    with pytest.raises(ValueError, match="num_cpu"):
        sooner_dask_get(GRAPH, "y", sooner_remote_args={"num_cpu": 2})
    with dask.annotate(resources={"GPU": 1}):
        delayed = dask.delayed(inc)(1)
        with pytest.raises(ValueError, match="sooner_remote_args"):
            delayed.compute(scheduler=sooner_dask_get)
    with pytest.raises(ValueError, match="sooner_remote_args"):
        delayed.compute(scheduler=sooner_dask_get)


class Pickled:
    """Counts how often it is pickled."""

    count = 0

    def __reduce__(self):
        Pickled.count += 1
        return int, ("7",)


def test_functions_are_pickled_once_for_all_tasks():
    captured = Pickled()
    Pickled.count = 0

    def function(number):
        return number + captured

    graph = {("x", n): Task(("x", n), function, n) for n in range(50)}
    graph |= {("y", n): Task(("y", n), list, Task(None, map, function, [n])) for n in range(50)}
    wanted = list(graph)
    assert sooner_dask_get(graph, wanted) == (*range(7, 57), *([n] for n in range(7, 57)))
    assert Pickled.count <= 2
    x = da.ones(200, chunks=10)
    assert x.map_blocks(lambda block: block + captured, dtype=float).sum().compute(scheduler=sooner_dask_get) == 1600


def test_names_of_tasks():
    graph = {("step", n): Task(("step", n), inc, n) for n in range(3)}
    words = ["kind" + "".join(letters) for letters in itertools.product(string.ascii_lowercase, repeat=2)]
    graph |= {word: Task(word, inc, 1) for word in words}
    sooner_dask_get(graph, [("step", n) for n in range(3)])
    sooner_dask_get(graph, words)
    names = {row.name for row in list_tasks(limit=100_000)}
    assert {"dask:step", "dask"} <= names
    # Each name is a kind of task: there are no more of them than anyone would read.
    assert 10 < len([name for name in names if name.startswith("dask:kind")]) <= 100


def test_so_many_at_a_time():
    most = 0

    class Count(Callback):
        def _pretask(self, key, dsk, state):
            nonlocal most
            most = max(most, len(state["running"]))

    graph = {("x", n): Task(("x", n), inc, n) for n in range(100)}
    with Count():
        sooner_dask_get(graph, list(graph), num_workers=3)
    assert 1 <= most <= 3


def test_data_that_many_tasks_use_is_stored_once():
    table = list(range(100_000))
    graph = {"table": DataNode("table", table)}
    graph |= {("n", n): Task(("n", n), lambda table, n=n: table[n], TaskRef("table")) for n in range(5)}
    arguments = {}

    def note(task, key, deps, ref):
        arguments[key] = deps["table"]

    with SoonerDaskCallback(sooner_postsubmit=note):
        assert sooner_dask_get(graph, [("n", n) for n in range(5)]) == (0, 1, 2, 3, 4)
    assert len({id(value) for value in list(arguments.values())[1:]}) == 1
    assert all(isinstance(value, sooner.ObjectRef) for value in list(arguments.values())[1:])
