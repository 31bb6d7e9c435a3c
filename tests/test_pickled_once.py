"""Values are pickled once, and what interrupts that comes out as it is."""

from __future__ import annotations

import array
import datetime as dt
import enum
import functools
import logging
import os
import pickle
import signal
import threading
import types

import numpy as np
import pytest
from support import WAIT, poll, run_driver

import sooner
from sooner.exceptions import TaskCancelledError
from sooner.util.multiprocessing import Pool

pytestmark = pytest.mark.usefixtures("shared_session")


class Outbox:
    """Hands its items to whoever it is sent to."""

    def __init__(self):
        self.items = [1, 2, 3]

    def __getstate__(self):
        taken, self.items = self.items, []
        return {"items": taken}


class Stream:
    """Pickles an iterator that can be read once."""

    def __init__(self, source=()):
        self.source = source
        self.items = []

    def append(self, item):
        self.items.append(item)

    def extend(self, items):
        self.items.extend(items)

    def __reduce__(self):
        return Stream, (), None, iter(self.source)


class Slow:
    """Takes as long to pickle as somebody else wants."""

    pickled = 0

    def __init__(self, begun=lambda: None):
        self.begun = begun

    def __getstate__(self):
        Slow.pickled += 1
        self.begun()
        threading.Event().wait(WAIT)
        return {}


@sooner.remote
def items_of(value):
    return value.items


@sooner.remote
def make(cls, *args):
    return cls(*args)


def test_a_class_that_gives_its_state_away():
    assert sooner.get(sooner.put(Outbox())).items == [1, 2, 3]
    assert sooner.get(sooner.put([Outbox(), lambda: 1]))[0].items == [1, 2, 3]
    assert sooner.get(sooner.put(Stream(iter([1, 2])))).items == [1, 2]
    assert sooner.get(items_of.remote(Outbox())) == [1, 2, 3]
    assert sooner.get(make.remote(Outbox)).items == [1, 2, 3]


def test_a_class_of_a_module_that_others_can_import(tmp_path, monkeypatch):
    (tmp_path / "counted_pickles.py").write_text(
        "class Counted:\n"
        "    pickled = 0\n"
        "    def __getstate__(self):\n"
        "        Counted.pickled += 1\n"
        "        return {'count': Counted.pickled}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    from counted_pickles import Counted

    assert sooner.get(sooner.put(Counted())).count == 1
    assert sooner.get(sooner.put([Counted(), lambda: 1]))[0].count == 2
    assert sooner.get(sooner.put([Counted(), Outbox()]))[0].count == 3
    # It travels by name: it is the same class that comes back.
    assert type(sooner.get(sooner.put(Counted()))) is Counted


class Colour(enum.Enum):
    RED = 1


class Base:
    def method(self):
        return "base"

    @classmethod
    def of_class(cls):
        return cls.__name__


@pytest.mark.parametrize(
    "value",
    [
        {"a": [1, (2.0, b"3", None, True)], "b": {"c": bytearray(b"d")}},
        dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
        [Colour.RED, Colour],
        functools.partial(int, base=2),
        frozenset({1, 2}),
        types.SimpleNamespace(a=1),
        [int, dict, type(None), logging.Handler, os.path.join],
        10**40,
        "a" * 100_000,
        [[[[[[[[[[[[1]]]]]]]]]]]],
        list(range(10_000)),
        "__main__",
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_are_what_they_were(value):
    found = sooner.get(sooner.put(value))
    assert repr(found) == repr(value)
    assert type(found) is type(value)


def test_methods_travel_with_what_they_are_bound_to():
    path = logging.getLogger("some").getEffectiveLevel
    assert sooner.get(sooner.put(path))() == path()
    assert sooner.get(sooner.put(Base().method))() == "base"
    assert sooner.get(sooner.put(Base.of_class))() == "Base"
    assert sooner.get(sooner.put(dt.datetime.fromisoformat))("2026-01-02").year == 2026


def test_what_a_handler_of_a_signal_raises_while_a_value_is_pickled():
    def on_alarm(*_):
        raise TimeoutError("it takes too long")

    former = signal.signal(signal.SIGALRM, on_alarm)
    try:
        for use in (sooner.put, items_of.remote, lambda value: sooner.put([value, lambda: 1])):
            before = Slow.pickled
            with pytest.raises(TimeoutError, match="it takes too long"):
                use(Slow(lambda: signal.setitimer(signal.ITIMER_REAL, 0.01)))
            assert Slow.pickled == before + 1
    finally:
        signal.signal(signal.SIGALRM, former)


def test_ctrl_c_while_a_value_is_pickled():
    done = run_driver(
        """
        import os, signal, sooner
        class Slow:
            def __getstate__(self):
                os.kill(os.getpid(), signal.SIGINT)
                return {}
        sooner.init(num_cpus=1)
        for use in (sooner.put, sooner.remote(len).remote):
            try:
                use(Slow())
            except KeyboardInterrupt:
                print("interrupted")
        """
    )
    assert done.stdout.split() == ["interrupted"] * 2


def test_a_task_that_is_cancelled_while_it_packs_its_result(tmp_path):
    begun = tmp_path / "begun"

    @sooner.remote(max_retries=0)
    def slow():
        return Slow(begun.touch)

    ref = slow.remote()
    poll("it packs", begun.exists)
    sooner.cancel(ref)
    with pytest.raises(TaskCancelledError):
        sooner.get(ref, timeout=WAIT)


class Node:
    def __init__(self):
        self.is_marked = False


class Graph:
    def __init__(self):
        self.nodes = [Node(), Node()]

    def mark(self, node):
        node.is_marked = True
        return [node.is_marked for node in self.nodes]


def mark(graph, node=None, *, other=None):
    return graph.mark(node or other)


def test_what_arguments_share_they_share_in_pools_and_executors_too():
    graph = Graph()
    with sooner.Executor(1) as executor:
        assert executor.submit(mark, graph, graph.nodes[0]).result(WAIT) == [True, False]
        assert executor.submit(mark, graph, other=graph.nodes[1]).result(WAIT) == [False, True]
        assert executor.submit(graph.mark, graph.nodes[0]).result(WAIT) == [True, False]
        assert list(executor.map(mark, [graph], [graph.nodes[1]])) == [[False, True]]
        # What cannot be pickled is named as before.
        with pytest.raises(TypeError, match="argument 1 cannot be pickled"):
            executor.submit(mark, graph, threading.Lock()).result(WAIT)
    with Pool(1) as pool:
        assert pool.apply(mark, (graph, graph.nodes[0])) == [True, False]
        assert pool.apply(mark, (graph,), {"other": graph.nodes[1]}) == [False, True]
        assert pool.starmap(mark, [(graph, graph.nodes[0])]) == [[True, False]]


def test_large_arguments_that_are_encoded_together():
    numbers = np.arange(1_000_000.0)
    with sooner.Executor(1) as executor:
        assert executor.submit(lambda a, n, b: (a is b, n, float(a[-1])), numbers, 3, numbers).result(WAIT) == (
            True,
            3,
            999_999.0,
        )
        ref = sooner.put(numbers)
        assert executor.submit(lambda a, b, r: (a == b).all() and (b == r).all(), numbers, numbers[:], ref).result(WAIT)


@pytest.mark.parametrize("size", [3, 100_000])
def test_arrays_of_pools_and_executors_are_the_receivers_own(size):
    numbers = np.arange(float(size))
    numbers.flags.writeable = False
    values = [numbers, {"a": numbers}, np.broadcast_to(np.float64(1), (size,)), np.asfortranarray(numbers)]

    def change(value):
        found = value["a"] if isinstance(value, dict) else value
        found += 1
        found.flags.writeable = False
        return value

    with sooner.Executor(1) as executor, Pool(1) as pool:
        for value in values:
            for found in executor.submit(change, value).result(WAIT), pool.apply(change, (value,)):
                first = (found["a"] if isinstance(found, dict) else found)[:1]
                first += 1
    assert numbers[1] == 1
    # With remote functions values never change.
    assert not sooner.get(sooner.put(numbers)).flags.writeable


class Frame:
    """Keeps the memory that it was made with."""

    def __init__(self, memory):
        self.memory = memory

    def __reduce_ex__(self, protocol):
        return Frame, (pickle.PickleBuffer(self.memory),)


@pytest.mark.parametrize("size", [4, 1_000_000])
def test_memory_that_a_class_keeps(size):
    found = sooner.get(sooner.put(Frame(b"abcd" * size)))
    assert len(found.memory) == 4 * size
    assert bytes(found.memory[1:3]) == b"bc"
    assert found.memory == b"abcd" * size
    again = sooner.get(sooner.remote(lambda frame: frame).remote(found))
    assert again.memory == found.memory
    assert sooner.get(sooner.put(found.memory)) == found.memory


@pytest.mark.parametrize(
    "view",
    [
        memoryview(b"abc"),
        memoryview(array.array("i", range(1000))),
        memoryview(np.ones((3, 4))),
        memoryview(b"abcd")[::2],
    ],
    ids=["bytes", "ints", "matrix", "steps"],
)
def test_a_memoryview_is_one_afterwards(view):
    found = sooner.get(sooner.put([view]))[0]
    assert type(found) is memoryview
    assert (found.format, found.shape) == (view.format, view.shape)
    assert found.tolist() == view.tolist()
