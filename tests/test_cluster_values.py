"""Values of any size between nodes: results, arguments, and what lies in other values."""

from __future__ import annotations

import time

import pytest
from clusters import cluster_of
from support import poll

import sooner

LARGE = 8_000_000
SIZES = [1, 50_000, 200_000, 8_000_000]


@pytest.fixture(scope="module")
def cluster():
    nodes = [{"num_cpus": 1, "resources": {f"n{number}": 100}} for number in (1, 2)]
    with cluster_of(1, *nodes, connects=True) as made:
        yield made


def pattern(size):
    return bytes(range(256)) * (size // 256 + 1)


def at(number):
    return {"num_cpus": 0, "resources": {f"n{number}": 1}}


@sooner.remote
def make(size):
    return pattern(size)


@sooner.remote
def length(value):
    assert value == pattern(len(value) - 1)
    return len(value)


@sooner.remote
def length_inside(box):
    return length_of(sooner.get(box[0]))


def length_of(value):
    return len(value)


@sooner.remote
class Shelf:
    def put(self, value):
        self.value = value
        return len(value)

    def get(self):
        return self.value


@pytest.mark.parametrize("size", SIZES)
def test_results_come_here(cluster, size):
    assert sooner.get(make.options(**at(1)).remote(size)) == pattern(size)


@pytest.mark.parametrize("size", SIZES)
def test_arguments_go_there(cluster, size):
    value = pattern(size)
    assert sooner.get(length.options(**at(1)).remote(value)) == len(value)
    ref = sooner.put(value)
    assert sooner.get([length.options(**at(number)).remote(ref) for number in (1, 2)]) == [len(value)] * 2


@pytest.mark.parametrize("size", SIZES)
def test_values_go_from_one_node_to_another(cluster, size):
    made = make.options(**at(1)).remote(size)
    assert sooner.get(length.options(**at(2)).remote(made)) == len(pattern(size))
    assert sooner.get(length.options(**at(1)).remote(made)) == len(pattern(size))


def test_references_inside_values_are_read_where_they_arrive(cluster):
    made = make.options(**at(1)).remote(SIZES[-1])
    assert sooner.get(length_inside.options(**at(2)).remote([made])) == len(pattern(SIZES[-1]))


def test_actors_at_other_nodes_keep_and_give_values(cluster):
    shelf = Shelf.options(**at(1)).remote()
    value = pattern(SIZES[-1])
    assert sooner.get(shelf.put.remote(value)) == len(value)
    assert sooner.get(shelf.get.remote()) == value
    del shelf


def test_memory_is_free_when_values_are_not_needed_any_more(cluster):
    for _ in range(30):
        made = make.options(**at(1)).remote(SIZES[-1])
        assert sooner.get(length.options(**at(2)).remote(made)) == len(pattern(SIZES[-1]))
        del made


@sooner.remote
def where(*values):
    return sooner.get_runtime_context().get_node_id()


@sooner.remote
def slowly_where(value):
    time.sleep(0.5)
    return sooner.get_runtime_context().get_node_id()


def test_a_task_goes_to_the_node_that_holds_most_of_its_arguments(cluster):
    nodes = {name: row["NodeID"] for row in sooner.nodes() for name in row["Resources"]}

    def runs_there():
        # What runs elsewhere has its argument brought, and is of no use for another try.
        large = make.options(**at(2)).remote(LARGE)
        small = make.options(**at(1)).remote(200_000)
        return sooner.get(where.remote(small, large)) == nodes["n2"]

    assert poll("what is said to be free there is up to a tenth of a second old", runs_there)


def test_arguments_elsewhere_hold_up_no_task(cluster):
    large = make.options(**at(2)).remote(LARGE)
    sooner.wait([large], fetch_local=False)
    used = set(sooner.get([slowly_where.remote(large) for _ in range(9)]))
    assert len(used) > 1, "there is one processor where the argument is"


@sooner.remote
class Writer:
    """Writes an array in the store of its node."""

    def __init__(self, size):
        self.array, self.ref = sooner.empty(size, "uint8")

    def give_unsealed(self, reader):
        return reader.remote(self.ref)

    def seal(self):
        self.array[:] = 7
        self.ref.seal()

    def drop(self):
        del self.array, self.ref


@sooner.remote
def written(size, returns):
    array, ref = sooner.empty(size, "uint8")
    array[:] = 7
    return array if returns == "array" else ref


@sooner.remote
def added(array):
    return int(array.sum())


@pytest.mark.usefixtures("cluster")
class TestWrittenInPlace:
    """Arrays of `sooner.empty` on one node, and those who want them on others."""

    @pytest.mark.parametrize("size", SIZES)
    def test_readers_on_other_nodes_wait_for_the_seal(self, size):
        writer = Writer.options(**at(1)).remote(size)
        readers = [
            sooner.get(writer.give_unsealed.remote(added.options(**options)), timeout=20) for options in (at(1), at(2))
        ]
        assert sooner.wait(readers, num_returns=1, timeout=0.3)[0] == []
        writer.seal.remote()
        assert sooner.get(readers, timeout=20) == [7 * size] * 2

    @pytest.mark.parametrize("size", SIZES)
    @pytest.mark.parametrize("returns", ["array", "reference"])
    def test_returned_from_another_node(self, size, returns):
        result = written.options(**at(1)).remote(size, returns)
        if returns == "reference":
            result = sooner.get(result, timeout=20)
        assert sooner.get(added.options(**at(2)).remote(result), timeout=20) == 7 * size
        assert int(sooner.get(result, timeout=20).sum()) == 7 * size

    def test_readers_on_other_nodes_learn_that_nobody_seals_it(self):
        writer = Writer.options(**at(1)).remote(LARGE)
        reader = sooner.get(writer.give_unsealed.remote(added.options(**at(2))), timeout=20)
        writer.drop.remote()
        with pytest.raises(sooner.exceptions.ObjectLostError, match="dropped before it was sealed"):
            sooner.get(reader, timeout=20)

    def test_readers_on_other_nodes_learn_that_the_writer_is_dead(self):
        writer = Writer.options(**at(1)).remote(LARGE)
        reader = sooner.get(writer.give_unsealed.remote(added.options(**at(2))), timeout=20)
        sooner.kill(writer)
        with pytest.raises(sooner.exceptions.OwnerDiedError):
            sooner.get(reader, timeout=20)
