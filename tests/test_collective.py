"""sooner.util.collective: results against NumPy's, messages, and bad arguments."""

from __future__ import annotations

import itertools
import pickle
import sys
import time
import types

import numpy as np
import pytest
from collectives import (
    DTYPES,
    IN_ALL,
    LARGE,
    SIZES,
    UFUNCS,
    Member,
    assert_same_bits,
    check_all,
    destroy,
    error_of,
    group_of,
    look,
    new_name,
    poll_waiting,
    run,
    start,
    values_of,
)
from support import WAIT, poll

import sooner
from sooner.util import collective as col
from sooner.util.collective import (
    CollectiveError,
    CollectiveMismatchError,
    CollectiveTimeoutError,
    ReduceOp,
)

pytestmark = pytest.mark.usefixtures("shared_session")


@pytest.fixture
def name():
    return new_name()


@pytest.fixture(scope="module")
def crew(shared_session):
    """Actors that tests share which kill none."""
    members = [Member.remote() for _ in range(4)]
    yield members
    # The last test has the list until the session has ended.
    members.clear()


@pytest.fixture
def alone(name):
    col.init_collective_group(1, 0, group_name=name)
    yield name
    col.destroy_collective_group(name)


# --- results -------------------------------------------------------------------------------------------


@pytest.mark.api("util.collective")
@pytest.mark.parametrize("size", SIZES)
def test_all_operations(crew, name, size):
    members = group_of(crew[:size], name)
    for (number, dtype), op in itertools.product(enumerate(DTYPES), UFUNCS):
        check_all(members, name, values_of(size, dtype, (3, 5), number), op, number % size)
    for dtype in ("float64", "float32", "float16", "complex64"):
        check_all(members, name, values_of(size, dtype, (7,)), ReduceOp.AVERAGE, 0)
    destroy(members, name)


@pytest.mark.api("util.collective")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shape", [(LARGE,), (), (0,), (0, 3), (1,)])
def test_sizes(crew, name, size, shape):
    members = group_of(crew[:size], name)
    for root, dtype in enumerate(["float64", ">f4"][:size]):
        check_all(members, name, values_of(size, dtype, shape), ReduceOp.SUM, root)
    destroy(members, name)


def test_whole_numbers_wrap_around(crew, name):
    members = group_of(crew[:3], name)
    check_all(members, name, [np.full(4, 200, np.uint8)] * 3, ReduceOp.SUM, 1)
    check_all(members, name, [np.full(4, 2**62)] * 3, ReduceOp.PRODUCT, 1)
    destroy(members, name)


def test_runs_give_the_same_bits(crew, name):
    """A sum in the order in which members come would differ: 0.1 + 0.2 + 0.3 is not 0.3 + 0.2 + 0.1."""
    members = group_of(crew[:3], name)
    values = [np.full(LARGE, value) for value in (0.1, 0.2, 0.3)]

    def late(rank, value, first):
        if rank != first:
            col.recv(np.zeros(1), first, name)
        else:
            for other in {0, 1, 2} - {first}:
                col.send(np.zeros(1), other, name)
        col.allreduce(value, name)
        return value

    expected = (values[0] + values[1]) + values[2]
    for first in range(3):
        for found in run(members, lambda rank, first=first: late(rank, values[rank].copy(), first)):
            assert_same_bits(found, expected)
    destroy(members, name)


@pytest.mark.parametrize(("operation", "parts"), [("allreduce", 1), ("allreduce_large", 2), ("reduce_large", 2)])
def test_large_arrays_are_cut(crew, name, operation, parts):
    """Each member gives one part to each other one."""
    members = group_of(crew[:3], name)

    def given(coordinator):
        (meeting,) = coordinator._current._meetings.values()
        return [sum(ref is not None for ref in refs) for refs in meeting.given.values()]

    calls = [member.do.remote(IN_ALL[operation], name) for member in members[:2]]
    poll_waiting(name, 2)
    assert look(name, given) == [parts, parts]
    sooner.get([*calls, members[2].do.remote(IN_ALL[operation], name)], timeout=WAIT)
    destroy(members, name)


@pytest.mark.parametrize("count", [40, LARGE])
def test_arrays_of_any_layout_are_changed_in_place(crew, name, count):
    members = group_of(crew[:3], name)

    def in_place(rank):
        base = np.zeros((2 * count, 2), order="F")
        view = base[::2, 0]
        view += rank + np.arange(count)
        reverse = np.arange(count)[::-1]
        square = np.asfortranarray(np.arange(2 * count, dtype=float).reshape(2, count)) * (rank + 1)
        for array in (view, reverse, square):
            col.allreduce(array, name)
        return base, reverse, square

    for base, reverse, square in run(members, in_place):
        assert np.array_equal(base[::2, 0], 3 * np.arange(count) + 3)
        assert not base[1::2].any()
        assert not base[:, 1].any()
        assert np.array_equal(reverse, 3 * np.arange(count)[::-1])
        assert np.array_equal(square, 6 * np.arange(2 * count).reshape(2, count))
    destroy(members, name)


def test_functions_return_nothing_and_keep_what_they_only_read(crew, name):
    members = group_of(crew[:2], name)

    def read(rank):
        frozen = np.full(3, rank + 1.0)
        frozen.flags.writeable = False
        place = np.zeros(3)
        assert col.reducescatter(place, [frozen, frozen], name) is None
        assert col.allgather([np.zeros(3), place], frozen, name) is None
        assert col.allreduce(np.zeros(3), name) is None
        assert col.reduce(place if rank == 1 else frozen, 1, name) is None
        assert col.broadcast(frozen if rank == 0 else np.zeros(3), 0, name) is None
        assert col.barrier(name) is None
        if rank:
            assert col.recv(place, 0, name) is None
        else:
            assert col.send(frozen, 1, name) is None
        return frozen

    assert [list(found) for found in run(members, read)] == [[1.0] * 3, [2.0] * 3]
    destroy(members, name)


def test_tensors_of_torch(crew, name):
    pytest.importorskip("torch", reason="PyTorch is not installed")

    def add(rank):
        import torch

        weights = torch.nn.Parameter(torch.full((2, 3), float(rank)))
        col.allreduce(weights.data.t(), name)
        col.allreduce(weights, name)
        with pytest.raises(TypeError, match="is on meta"):
            col.allreduce(torch.zeros(2, device="meta"), name)
        return weights.sum().item()

    members = group_of(crew[:2], name)
    assert run(members, add) == [12.0, 12.0]
    destroy(members, name)


def test_what_is_asked_of_torch(alone, monkeypatch):
    """Also where PyTorch is not installed."""

    class Tensor:
        def __init__(self, array, device="cpu"):
            self.array = array
            self.device = types.SimpleNamespace(type=device)

        def detach(self):
            return types.SimpleNamespace(numpy=self.numpy)

        def numpy(self):
            if self.array is None:
                raise TypeError("Got unsupported ScalarType BFloat16")
            return self.array

    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(Tensor=Tensor))
    array = np.array([4.0, 5.0])
    col.allreduce(Tensor(array), alone)
    place = np.zeros(2)
    col.allgather([Tensor(place)], Tensor(array), alone)
    assert list(place) == [4.0, 5.0]
    with pytest.raises(TypeError, match="CPU tensors only"):
        col.allreduce(Tensor(array, "cuda"), alone)
    with pytest.raises(TypeError, match=r"tensor cannot be seen as a NumPy array \(Got unsupported"):
        col.allreduce(Tensor(None), alone)


# --- messages ------------------------------------------------------------------------------------------


@pytest.mark.api("util.collective")
def test_messages_arrive_in_order(crew, name):
    members = group_of(crew[:3], name)

    def ring(rank):
        came = []
        for number in range(20):
            col.send(np.array([rank, number]), (rank + 1) % 3, name)
        for _ in range(20):
            message = np.zeros(2, int)
            col.recv(message, (rank - 1) % 3, name)
            came.append(message.tolist())
        return came

    for rank, came in enumerate(run(members, ring)):
        assert came == [[(rank - 1) % 3, number] for number in range(20)]
    destroy(members, name)


@pytest.mark.parametrize("given", ["message", "broadcast"])
def test_a_member_that_leaves_waits_until_the_others_have_what_it_gave(name, given):
    members = group_of([Member.remote() for _ in range(2)], name)

    def give(array):
        if given == "message":
            col.send(array, 1, name)
        else:
            col.broadcast(array, 0, name)

    def program(rank):
        array = np.full(LARGE, float(rank))
        if rank == 0:
            give(array)
            col.destroy_collective_group(name)
            sooner.actor.exit_actor()
        if given == "message":
            time.sleep(0.3)
            col.recv(array, 0, name)
        else:
            give(array)
        return set(array)

    _, reads = start(members, program)
    assert sooner.get(reads, timeout=WAIT) == {0.0}


def test_a_member_does_not_wait_for_ever_for_who_takes_nothing(name):
    members = group_of([Member.remote() for _ in range(2)], name)

    def program(rank):
        if rank == 0:
            col.send(np.ones(3), 1, name)
            col.destroy_collective_group(name, timeout=0.1)
        return col.is_group_initialized(name)

    assert run(members, program)[0] is False
    with pytest.raises(ValueError, match="timeout must be a number of seconds"):
        col.destroy_collective_group(name, timeout=-1)


@pytest.mark.parametrize("own", [slice(0, 2), slice(1, 3)])
def test_what_a_member_gives_may_lie_where_it_gathers(crew, name, own):
    members = group_of(crew[:2], name)

    def gather(rank):
        memory = np.zeros(4)
        memory[own] = [10 * rank + 1, 10 * rank + 2]
        col.allgather([memory[:2], memory[2:]], memory[own], name)
        return memory.tolist()

    assert run(members, gather) == [[1, 2, 11, 12]] * 2
    destroy(members, name)


def test_a_sent_array_may_be_changed(crew, name):
    members = group_of(crew[:2], name)

    def change(rank):
        array = np.ones(LARGE)
        if rank == 0:
            col.send(array, 1, name)
            array[:] = 2
            col.barrier(name)
        else:
            col.barrier(name)
            col.recv(array, 0, name)
        return set(array)

    assert run(members, change) == [{2.0}, {1.0}]
    destroy(members, name)


def test_a_sender_that_is_far_ahead_waits(crew, name):
    members = group_of(crew[:2], name)
    sent = members[0].do.remote(lambda: [col.send(np.array([n]), 1, name) for n in range(66)])
    poll(
        "it waits",
        lambda: look(name, lambda actor: [list(p.senders) for p in actor._current._pairs.values()]) == [[64]],
    )

    def take(count):
        messages = [np.zeros(1, int) for _ in range(count)]
        for message in messages:
            col.recv(message, 0, name)
        return [int(message[0]) for message in messages]

    assert sooner.wait([sent], timeout=0)[0] == []
    assert sooner.get(members[1].do.remote(take, 2), timeout=WAIT) == [0, 1]
    sooner.get(sent, timeout=WAIT)
    assert sooner.get(members[1].do.remote(take, 64), timeout=WAIT) == list(range(2, 66))
    destroy(members, name)


def test_messages_of_unequal_shapes(crew, name):
    members = group_of(crew[:2], name)
    sooner.get(members[0].do.remote(lambda: col.send(np.zeros(3), 1, name)), timeout=WAIT)
    error = error_of(members[1].do.remote(lambda: col.recv(np.zeros(4), 0, name)), CollectiveMismatchError)
    sent = "rank 0 called send(float64 of shape (3,), dst_rank=1)"
    assert f"{sent}, but rank 1 called recv(float64 of shape (4,), src_rank=0)" in str(error)
    assert str(error_of(members[0].do.remote(col.barrier, name))) == str(error)
    destroy(members, name)


# --- bad arguments -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"world_size": 0}, "world_size must be a whole number of at least 1"),
        ({"world_size": 2.0}, "world_size must be a whole number"),
        ({"world_size": 100_000}, "world_size is 1000 at most"),
        ({"rank": 2}, "rank must be a rank from 0 to 1, not 2"),
        ({"rank": -1}, "rank must be a rank from 0 to 1, not -1"),
        ({"rank": True}, "rank must be a rank"),
        ({"backend": "mpich"}, "backend must be one of 'sooner', 'nccl'"),
        ({"group_name": ""}, "group_name must be a string of 1 to 1000 characters"),
        ({"group_name": "x" * 1001}, "group_name must be a string of 1 to 1000 characters, not 'xxx"),
        ({"gloo_timeout": -1}, "gloo_timeout must be a number of seconds"),
        ({"timeout": -1}, "timeout must be a number of seconds"),
        ({"operation_timeout": "1"}, "operation_timeout must be a number of seconds"),
    ],
)
def test_bad_arguments_of_init(options, said):
    with pytest.raises(ValueError, match=said):
        col.init_collective_group(**({"world_size": 2, "rank": 0} | options))


@pytest.mark.parametrize("ranks", [[0], [0, 0], [0, 2], [1, 2], [0, 1, 2], [0.0, 1.0]])
def test_bad_ranks(crew, ranks):
    with pytest.raises(ValueError, match="a group of 2 has 2 actors with the ranks 0 to 1"):
        col.create_collective_group(crew[:2], 2, ranks)


def test_bad_actors(crew):
    with pytest.raises(ValueError, match="one of these is there twice"):
        col.create_collective_group([crew[0], crew[0]], 2, [0, 1])
    with pytest.raises(TypeError, match="actor handles, not int"):
        col.create_collective_group([1, 2], 2, [0, 1])
    with pytest.raises(TypeError, match="actors must be a list of actor handles, not ActorHandle"):
        col.create_collective_group(crew[0], 1, [0])
    with pytest.raises(TypeError, match="ranks must be a list of whole numbers, not int"):
        col.create_collective_group(crew[:2], 2, 2)


@pytest.mark.parametrize(
    ("call", "kind", "said"),
    [
        (lambda name: col.allreduce([1, 2], name), TypeError, "tensor must be a NumPy array .* not list"),
        (lambda name: col.allreduce(np.float64(1), name), TypeError, "not float64"),
        (lambda name: col.allreduce(np.array([None]), name), TypeError, "numbers, not elements of dtype object"),
        (lambda name: col.allreduce(np.zeros(2, "U3"), name), TypeError, "numbers, not elements of dtype <U3"),
        (lambda name: col.allreduce(np.broadcast_to(1.0, 3), name), ValueError, "tensor is read-only"),
        (lambda name: col.allreduce(np.zeros(2), name, "sum"), TypeError, "op must be a ReduceOp, not 'sum'"),
        (lambda name: col.allreduce(np.zeros(2, int), name, ReduceOp.AVERAGE), TypeError, "AVERAGE is for floating"),
        (lambda name: col.allreduce(np.zeros(2), name, timeout=-1), ValueError, "timeout must be a number of seconds"),
        (lambda name: col.barrier(name, timeout=float("nan")), ValueError, "timeout must be a number of seconds"),
        (lambda name: col.reduce(np.zeros(2), 1, name), ValueError, "dst_rank must be a rank from 0 to 0, not 1"),
        (lambda name: col.broadcast(np.zeros(2), 1, name), ValueError, "src_rank must be a rank from 0 to 0, not 1"),
        (lambda name: col.allgather([], np.zeros(2), name), ValueError, "tensor_list has 0 tensors, and group"),
        (lambda name: col.allgather(iter([]), np.zeros(2), name), TypeError, "tensor_list must be a list of tensors"),
        (
            lambda _: col.allreduce(np.zeros(2), ReduceOp.SUM),
            ValueError,
            "group_name must be a string .* not <ReduceOp",
        ),
        (lambda _: col.get_rank(3), ValueError, "group_name must be a string .* not 3"),
        (
            lambda name: col.allgather([np.zeros(3)], np.zeros(2), name),
            ValueError,
            r"tensor_list\[0\] is float64 of shape \(3,\)",
        ),
        (lambda name: col.reducescatter(np.zeros(2), [np.zeros(2, int)], name), ValueError, "is int64 of shape"),
        (lambda _: col.barrier("nowhere"), CollectiveError, "this process is not in group 'nowhere'"),
    ],
)
def test_bad_arguments_of_operations(alone, call, kind, said):
    with pytest.raises(kind, match=said):
        call(alone)
    # It was no operation: the group goes on.
    col.barrier(alone)


def test_errors_can_be_pickled():
    error = CollectiveTimeoutError("late", 3)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.rank) == (CollectiveTimeoutError, "late", 3)
    assert isinstance(error, TimeoutError)
    assert isinstance(error, RuntimeError)
