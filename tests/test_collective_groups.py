"""Groups of sooner.util.collective: who joins, members that differ or come late, and what is left."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest
from collectives import (
    IN_ALL,
    LARGE,
    Member,
    destroy,
    error_of,
    group_of,
    has_coordinator,
    joined,
    kill,
    look,
    new_name,
    poll_waiting,
    run,
    start,
)
from support import WAIT, is_alive, poll, stopped

import sooner
from sooner import state
from sooner.exceptions import ActorDiedError
from sooner.util import collective as col
from sooner.util.collective import (
    CollectiveError,
    CollectiveMemberDiedError,
    CollectiveMismatchError,
    CollectiveTimeoutError,
    ReduceOp,
    membership,
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


# --- groups --------------------------------------------------------------------------------------------


@pytest.mark.api("util.collective")
def test_members_join_by_themselves(crew, name):
    def join(rank):
        assert not col.is_group_initialized(name)
        assert col.get_rank(name) == col.get_collective_group_size(name) == -1
        col.init_collective_group(3, rank, "nccl", name)
        assert col.is_group_initialized(name)
        return col.get_rank(name), col.get_collective_group_size(name)

    assert run(crew[:3], join) == [(0, 3), (1, 3), (2, 3)]
    assert not col.is_group_initialized(name)
    destroy(crew[:3], name)
    run(crew[:3], lambda _: col.destroy_collective_group(name))
    assert run(crew[:3], lambda _: (col.is_group_initialized(name), col.get_rank(name))) == [(False, -1)] * 3


def test_ranks_in_another_order(crew, name):
    col.create_collective_group(crew[:3], 3, [2, 0, 1], "gloo", name)
    assert run(crew[:3], lambda _: col.get_rank(name)) == [2, 0, 1]
    destroy(crew[:3], name)


def test_drivers_and_tasks_are_members(name):
    @sooner.remote(num_cpus=0)
    def task(rank):
        col.init_collective_group(3, rank, group_name=name)
        array = np.array([rank])
        col.allreduce(array, name)
        col.barrier(name)
        return int(array[0])

    found = [task.remote(1), task.remote(2)]
    col.init_collective_group(3, 0, group_name=name)
    array = np.array([10])
    col.allreduce(array, name)
    col.barrier(name)
    assert array[0] == 13
    assert sooner.get(found, timeout=WAIT) == [13, 13]
    col.destroy_collective_group(name)


def test_what_a_task_leaves_behind_is_not_of_the_next_one(name):
    @sooner.remote(num_cpus=2)
    def leave_behind():
        col.init_collective_group(2, 1, group_name=name)
        return os.getpid()

    @sooner.remote(num_cpus=2)
    def next_one():
        return os.getpid(), col.is_group_initialized(name)

    first = leave_behind.remote()
    col.init_collective_group(2, 0, group_name=name)
    pid = sooner.get(first, timeout=WAIT)

    def is_noticed():
        other, is_member = sooner.get(next_one.remote(), timeout=WAIT)
        assert not is_member
        return other == pid

    poll("the same process", is_noticed)
    with pytest.raises(CollectiveMemberDiedError, match=r"rank 1 .* has left"):
        col.barrier(name)
    col.destroy_collective_group(name)


def test_two_groups_at_once(crew, name):
    other = new_name()
    group_of(crew[:3], name)
    group_of(crew[1:4], other)

    def add(rank, name, rounds):
        array = np.full(1000, col.get_rank(name) + 1.0)
        for _ in range(rounds):
            col.allreduce(array, name)
        return array[0]

    found = start(crew[:3], add, name, 4), start(crew[1:4], add, other, 5)
    assert sooner.get(found[0], timeout=WAIT) == [6.0 * 27] * 3
    assert sooner.get(found[1], timeout=WAIT) == [6.0 * 81] * 3
    destroy(crew[:3], name)
    assert run(crew[1:4], add, other, 1) == [6.0] * 3
    destroy(crew[1:4], other)


def test_threads_of_a_member(crew, name):
    members = group_of(crew[:3], name)

    def threads(rank):
        arrays = [np.ones(10) for _ in range(4)]

        def add(array):
            for _ in range(10):
                array[:] = 1
                col.allreduce(array, name)

        running = [threading.Thread(target=add, args=[array]) for array in arrays]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        return [set(array) for array in arrays]

    assert run(members, threads) == [[{3.0}] * 4] * 3
    destroy(members, name)


def test_a_group_of_one_needs_no_actor(name):
    col.init_collective_group(1, 0, group_name=name)
    assert not has_coordinator(name)
    with pytest.raises(CollectiveError, match="exists already"):
        col.init_collective_group(1, 0, group_name=name)
    with pytest.raises(ValueError, match="this member itself"):
        col.send(np.zeros(1), 0, name)
    col.destroy_collective_group(name)
    assert not col.is_group_initialized(name)


def test_a_name_that_is_taken(crew, name):
    members = group_of(crew[:2], name)
    for member, size, rank, said in [
        (crew[0], 2, 0, "rank 0 of group .* is taken: an actor"),
        (crew[2], 2, 1, "rank 1 of group .* is taken: an actor"),
        (crew[2], 3, 2, "has 2 members, and rank 2 asked for 3"),
    ]:
        with pytest.raises(CollectiveError, match=said):
            sooner.get(member.do.remote(col.init_collective_group, size, rank, "gloo", name, timeout=0.1), timeout=WAIT)
    assert run(members, lambda rank: col.barrier(name)) == [None, None]
    destroy(members, name)


def test_the_name_is_free_when_a_member_has_left(crew, name):
    members = group_of(crew[:3], name)
    sooner.get(members[1].do.remote(col.destroy_collective_group, name), timeout=WAIT)
    for rank, member in [(0, members[0]), (2, members[2])]:
        error = error_of(member.do.remote(col.barrier, name), CollectiveMemberDiedError)
        assert error.rank == 1
        assert "has left the group" in str(error)
        assert sooner.get(member.do.remote(col.get_rank, name), timeout=WAIT) == rank
    # The others need not destroy what is broken.
    group_of(crew[1:4], name)
    run(crew[1:4], lambda _: col.barrier(name))
    error_of(members[0].do.remote(col.barrier, name), CollectiveMemberDiedError)
    sooner.get(members[0].do.remote(col.destroy_collective_group, name), timeout=WAIT)
    run(crew[1:4], lambda _: col.barrier(name))
    destroy(crew[1:4], name)


def test_members_that_do_not_join_are_named(crew, name):
    def join(rank, timeout):
        return crew[rank].do.remote(col.init_collective_group, 4, rank, group_name=name, timeout=timeout)

    def missing(rank):
        error = error_of(join(rank, 0.1), CollectiveTimeoutError)
        assert isinstance(error, TimeoutError)
        return str(error)

    assert missing(0) == f"group '{name}': ranks 1, 2, 3 did not join within 0.1 s"
    poll("the coordinator ends", lambda: not has_coordinator(name))
    second = join(2, WAIT)
    poll("it waits", lambda: has_coordinator(name) and joined(name) == 1)
    assert missing(0) == f"group '{name}': ranks 1, 3 did not join within 0.1 s"
    # Rank 2 still waits, and rank 0 may come again.
    assert sooner.wait([second], timeout=0)[0] == []
    sooner.get([second, *(join(rank, WAIT) for rank in (0, 1, 3))], timeout=WAIT)
    run(crew, lambda _: col.barrier(name))
    destroy(crew, name)


def test_numbers_may_be_of_numpy_and_arguments_as_in_ray(crew, name):
    col.create_collective_group(crew[:2], np.int64(2), np.arange(2), "gloo", name, 30_000)

    def program(rank):
        array = np.full(3, rank)
        col.broadcast(array, np.int64(1), name, timeout=np.float32(WAIT))
        return array.tolist(), type(col.get_rank(name))

    assert run(crew[:2], program) == [([1, 1, 1], int)] * 2
    destroy(crew[:2], name)
    join = [
        member.do.remote(col.init_collective_group, np.int32(2), np.int64(rank), "torch_gloo", name, 30_000)
        for rank, member in enumerate(crew[:2])
    ]
    sooner.get(join, timeout=WAIT)
    destroy(crew[:2], name)
    with pytest.raises(CollectiveTimeoutError, match="did not join within"):
        col.init_collective_group(2, 0, "gloo", name, gloo_timeout=100)


def test_what_sooner_does_not_have_of_ray_says_so():
    assert col.gloo_available()
    assert not col.nccl_available()
    with pytest.raises(AttributeError, match=r"allreduce_multigpu: sooner does not have .* call allreduce\(\)"):
        col.allreduce_multigpu([])
    with pytest.raises(AttributeError, match="get_group_handle: sooner does not have handles of groups"):
        col.get_group_handle("default")
    with pytest.raises(AttributeError, match="has no attribute 'nope'"):
        col.nope()


def test_actors_of_a_group_that_was_not_made_can_make_another_one(crew, name):
    dead = Member.remote()
    sooner.get(dead.pid.remote(), timeout=WAIT)
    sooner.kill(dead)
    with pytest.raises(ActorDiedError):
        col.create_collective_group([crew[0], dead, crew[1]], 3, [0, 1, 2], group_name=name)
    # Neither waits for the dead one any more.
    col.create_collective_group(crew[:2], 2, [1, 0], group_name=name, timeout=WAIT)
    run(crew[:2], lambda _: col.barrier(name))
    destroy(crew[:2], name)


def test_an_actor_that_is_busy_does_not_join_later(crew, name, monkeypatch, tmp_path):
    monkeypatch.setattr(membership, "_ANSWER_SECONDS", 0.1)
    busy = Member.options(max_concurrency=1).remote()
    held = busy.do.remote(lambda: poll("it may end", (tmp_path / "end").exists))
    with pytest.raises(CollectiveTimeoutError):
        col.create_collective_group([crew[0], busy], 2, [0, 1], group_name=name, timeout=0.1)
    (tmp_path / "end").touch()
    sooner.get(held, timeout=WAIT)
    assert not sooner.get(busy.do.remote(col.is_group_initialized, name), timeout=WAIT)
    group_of([crew[0], busy], name)
    run([crew[0], busy], lambda _: col.barrier(name))
    destroy([crew[0], busy], name)


def test_busy_actors_are_not_waited_for_for_ever(name, monkeypatch):
    monkeypatch.setattr(membership, "_ANSWER_SECONDS", 0.1)
    busy = Member.options(max_concurrency=1).remote()
    busy.do.remote(lambda: threading.Event().wait(10 * WAIT))
    with pytest.raises(CollectiveTimeoutError, match=r"did not begin to join within 0.1 s; their ranks: \[0\]"):
        col.create_collective_group([busy], 1, [0], group_name=name, timeout=0.1)
    sooner.kill(busy)


def test_a_group_of_one_and_a_larger_one_of_the_same_name(crew, name):
    def alone():
        col.init_collective_group(1, 0, group_name=name)

    members = group_of(crew[:2], name)
    assert "exists already" in str(error_of(members[0].do.remote(alone)))
    run(members, lambda _: col.barrier(name))
    sooner.get(members[1].do.remote(col.destroy_collective_group, name), timeout=WAIT)
    error_of(members[0].do.remote(col.barrier, name), CollectiveMemberDiedError)
    sooner.get(members[0].do.remote(alone), timeout=WAIT)
    poll("the coordinator ends", lambda: not has_coordinator(name))
    with pytest.raises(CollectiveError, match="exists already"):
        group_of(members[:1], name)
    destroy(members[:1], name)
    group_of(members, name)
    destroy(members, name)


def test_members_may_be_coroutines(name):
    @sooner.remote(num_cpus=0)
    class Coroutines:
        async def add(self, rank):
            col.init_collective_group(2, rank, group_name=name)
            array = np.ones(3)
            col.allreduce(array, name)
            col.barrier(name)
            return list(array)

    members = [Coroutines.remote(), Coroutines.remote()]
    assert sooner.get([member.add.remote(rank) for rank, member in enumerate(members)], timeout=WAIT) == [[2.0] * 3] * 2


# --- members that differ -------------------------------------------------------------------------------


@pytest.mark.api("util.collective")
@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (
            lambda name: col.allreduce(np.zeros(3), name),
            lambda name: col.broadcast(np.zeros(3), 1, name),
            ("allreduce(float64 of shape (3,), SUM)", "broadcast(float64 of shape (3,), src_rank=1)"),
        ),
        (
            lambda name: col.allreduce(np.zeros(3), name),
            lambda name: col.allreduce(np.zeros((3, 1)), name),
            ("allreduce(float64 of shape (3,), SUM)", "allreduce(float64 of shape (3, 1), SUM)"),
        ),
        (
            lambda name: col.allreduce(np.zeros(3), name),
            lambda name: col.allreduce(np.zeros(3, "f4"), name),
            ("allreduce(float64 of shape (3,), SUM)", "allreduce(float32 of shape (3,), SUM)"),
        ),
        (
            lambda name: col.allreduce(np.zeros(3), name),
            lambda name: col.allreduce(np.zeros(3), name, ReduceOp.MAX),
            ("allreduce(float64 of shape (3,), SUM)", "allreduce(float64 of shape (3,), MAX)"),
        ),
        (
            lambda name: col.reduce(np.zeros(3), 0, name),
            lambda name: col.reduce(np.zeros(3), 1, name),
            ("dst_rank=0", "dst_rank=1"),
        ),
        (
            lambda name: col.barrier(name),
            lambda name: col.allgather([np.zeros(1)] * 2, np.ones(1), name),
            ("barrier()", "allgather"),
        ),
    ],
)
def test_members_that_call_different_things_learn_both(crew, name, first, second, said):
    members = group_of(crew[:2], name)
    run(members, lambda _: col.barrier(name))
    calls = [members[0].do.remote(first, name)]
    poll_waiting(name, 1)
    calls.append(members[1].do.remote(second, name))
    for call in calls:
        text = str(error_of(call, CollectiveMismatchError))
        assert f"operation 1 of group '{name}': rank 0 called {said[0]}" in text or said[0].startswith("dst")
        assert text.index(said[0]) < text.index("but rank 1 called") < text.index(said[1])
    # The group is broken.
    for member in members:
        assert str(error_of(member.do.remote(col.barrier, name), CollectiveMismatchError)) == text
    group_of(members, name)
    run(members, lambda _: col.barrier(name))
    destroy(members, name)


def test_byte_orders_may_differ(crew, name):
    members = group_of(crew[:2], name)

    def add(rank):
        array = np.array([1, 2], "<i4" if rank else ">i4")
        col.allreduce(array, name)
        return array.dtype.byteorder, array.tolist()

    assert {tuple(found[1]) for found in run(members, add)} == {(2, 4)}
    destroy(members, name)


# --- members that come late ----------------------------------------------------------------------------


@pytest.mark.parametrize("default", [True, False])
def test_a_timeout_names_who_did_not_come_and_breaks_the_group(crew, name, default):
    members = group_of(crew[:3], name, **({"operation_timeout": 0.2} if default else {}))
    own = {} if default else {"timeout": 0.2}

    def add(**options):
        array = np.full(3, 5.0)
        with pytest.raises(CollectiveTimeoutError) as caught:
            col.allreduce(array, name, **options)
        return caught.value, array

    error, kept = sooner.get(members[1].do.remote(add, **own), timeout=WAIT)
    what = f"allreduce(float64 of shape (3,), SUM), operation 0 of group '{name}'"
    said = f"{what}: ranks 0, 2 did not come to it within 0.2 s"
    assert str(error) == said
    assert list(kept) == [5.0] * 3
    for member in members:
        assert str(error_of(member.do.remote(col.barrier, name), CollectiveTimeoutError)) == said
    destroy(members, name)


def test_timeouts_of_messages(crew, name):
    members = group_of(crew[:2], name)
    error = error_of(members[0].do.remote(lambda: col.recv(np.zeros(1), 1, name, timeout=0.1)), CollectiveTimeoutError)
    assert "rank 1 did not send it within 0.1 s" in str(error)
    group_of(members, name)
    error = error_of(
        members[0].do.remote(lambda: [col.send(np.zeros(1), 1, name, timeout=0.1) for _ in range(65)]),
        CollectiveTimeoutError,
    )
    assert "rank 1 did not take earlier ones within 0.1 s" in str(error)
    destroy(members, name)


def test_a_member_that_fails_fails_the_operation_on_all(crew, name):
    members = group_of(crew[:3], name)

    def interrupted():
        def put(_value):
            raise ZeroDivisionError("none left")

        before, sooner.put = sooner.put, put
        try:
            col.allreduce(np.zeros(3), name)
        finally:
            sooner.put = before

    calls = [member.do.remote(lambda: col.allreduce(np.zeros(3), name)) for member in members[:2]]
    poll_waiting(name, 2)
    with pytest.raises(ZeroDivisionError):
        sooner.get(members[2].do.remote(interrupted), timeout=WAIT)
    for call in calls:
        error = error_of(call)
        assert error.rank == 2
        assert "rank 2 ended it with ZeroDivisionError: none left" in str(error)
    destroy(members, name)


# --- what is left --------------------------------------------------------------------------------------


def stored():
    return [row for row in state.list_objects(limit=10_000) if row.location == "shared memory"]


def test_no_value_is_left_after_an_operation(crew, name):
    members = group_of(crew[:3], name)
    before = len(state.list_objects(limit=10_000))

    def use(rank):
        array = np.ones(LARGE)
        for operation in ("allreduce_large", "reduce_large", "broadcast", "barrier"):
            IN_ALL[operation](name)
        col.allgather([np.zeros(LARGE) for _ in range(3)], array, name)
        col.reducescatter(array, [np.zeros(LARGE)] * 3, name)
        col.send(array, (rank + 1) % 3, name)
        col.recv(array, (rank - 1) % 3, name)

    run(members, use)
    poll("nothing is in the store", lambda: stored() == [])
    poll("nor anywhere else", lambda: len(state.list_objects(limit=10_000)) <= before)
    destroy(members, name)


def test_no_value_is_left_after_a_failure(crew, name):
    members = group_of(crew[:3], name)
    sooner.get(members[0].do.remote(lambda: col.send(np.zeros(LARGE), 1, name)), timeout=WAIT)
    calls = [member.do.remote(IN_ALL["allreduce_large"], name) for member in members[:2]]
    poll_waiting(name, 2)
    assert stored()
    sooner.get(members[2].do.remote(col.destroy_collective_group, name), timeout=WAIT)
    for call in calls:
        error_of(call, CollectiveMemberDiedError)
    poll("nothing is in the store", lambda: stored() == [])
    destroy(members, name)


def test_bytes_do_not_pass_the_coordinator(crew, name):
    members = group_of(crew[:3], name)
    run(members, lambda _: IN_ALL["allreduce_large"](name))
    pid = look(name, lambda _: os.getpid())

    def peak():
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024

    def use(rank):
        array = np.ones(4_000_000)
        col.allreduce(array, name)
        col.broadcast(array, 0, name)
        if rank < 2:
            (col.recv if rank else col.send)(array, 1 - rank, name)

    before = peak()
    run(members, use)
    assert peak() - before < 8_000_000
    destroy(members, name)


@pytest.mark.parametrize("how", ["destroyed", "killed", "dropped"])
def test_the_coordinator_ends(name, how):
    members = group_of([Member.remote(), Member.remote()], name)
    pid = look(name, lambda _: os.getpid())
    if how == "destroyed":
        destroy(members[:1], name)
        # The other member has still to learn why.
        error_of(members[1].do.remote(col.barrier, name), CollectiveMemberDiedError)
        assert is_alive(pid)
        destroy(members[1:], name)
    elif how == "killed":
        for member in members:
            kill(member)
    members.clear()
    poll("its name is free", lambda: not has_coordinator(name))
    poll("it has ended", lambda: not is_alive(pid))


def test_a_stopped_coordinator_does_not_keep_members_for_ever(crew, name, monkeypatch):
    from sooner.util.collective import group

    monkeypatch.setattr(group, "_SLACK_SECONDS", 0.1)
    other = crew[0].do.remote(col.init_collective_group, 2, 1, group_name=name)
    col.init_collective_group(2, 0, group_name=name)
    sooner.get(other, timeout=WAIT)
    with (
        stopped(look(name, lambda _: os.getpid())),
        pytest.raises(CollectiveTimeoutError, match="did not answer within"),
    ):
        col.barrier(name, timeout=0.1)
    col.destroy_collective_group(name)
    destroy(crew[:1], name)
