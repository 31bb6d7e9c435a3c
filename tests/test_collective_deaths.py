"""Members of a collective group that die."""

from __future__ import annotations

import os

import pytest
from collectives import (
    IN_ALL,
    Member,
    check_all,
    destroy,
    error_of,
    group_of,
    has_coordinator,
    joined,
    kill,
    new_name,
    poll_waiting,
    run,
    values_of,
)
from support import WAIT, is_alive, poll

import sooner
from sooner.exceptions import ActorDiedError
from sooner.util import collective as col
from sooner.util.collective import (
    CollectiveMemberDiedError,
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


@pytest.mark.chaos
@pytest.mark.api("util.collective")
@pytest.mark.parametrize("operation", IN_ALL)
def test_a_death_ends_the_operation_of_those_that_wait(crew, name, operation):
    members = group_of([*crew[:2], Member.remote()], name)
    calls = [member.do.remote(IN_ALL[operation], name) for member in members[:2]]
    poll_waiting(name, 2)
    pid = kill(members[2])
    for call in calls:
        error = error_of(call, CollectiveMemberDiedError)
        assert error.rank == 2
        text = str(error)
        assert text.startswith(f"rank 2 (an actor, pid {pid}) of group '{name}' has died: was killed by signal 9 ")
        assert f"(actor Member (pid {pid}))" in text
    for member in members[:2]:
        assert str(error_of(member.do.remote(col.barrier, name), CollectiveMemberDiedError)) == text
    destroy(members[:2], name)


@pytest.mark.chaos
def test_a_death_before_the_operation_and_another_member_in_its_place(crew, name):
    members = group_of([*crew[:2], Member.remote()], name)
    pid = kill(members[2])
    poll("it is gone", lambda: not is_alive(pid))
    for member in members[:2]:
        error = error_of(member.do.remote(IN_ALL["allreduce"], name), CollectiveMemberDiedError)
        assert error.rank == 2
    # Without a call of destroy_collective_group.
    members[2] = crew[2]
    group_of(members, name)
    check_all(members, name, values_of(3, "float64", (10,)), ReduceOp.SUM, 2)
    destroy(members, name)


@pytest.mark.chaos
def test_a_group_can_be_made_again_at_once(crew, name):
    """Those that were in it have not noticed the death yet."""
    members = group_of([*crew[:2], Member.remote()], name)
    for _ in range(5):
        kill(members[2])
        members[2] = Member.remote()
        group_of(members, name)
    check_all(members, name, values_of(3, "float64", (10,)), ReduceOp.SUM, 2)
    destroy(members, name)


@pytest.mark.chaos
def test_a_restart_is_a_death(crew, name):
    restarting = Member.options(max_restarts=1).remote()
    members = group_of([crew[0], restarting], name)
    kill(restarting)
    error = error_of(members[0].do.remote(col.barrier, name), CollectiveMemberDiedError)
    assert error.rank == 1
    assert not sooner.get(restarting.do.remote(col.is_group_initialized, name), timeout=WAIT)
    group_of(members, name)
    check_all(members, name, values_of(2, "float64", (10,)), ReduceOp.SUM, 1)
    destroy(members, name)


@pytest.mark.chaos
def test_a_task_that_dies_is_named(crew, name):
    @sooner.remote(num_cpus=0, max_retries=0)
    def task():
        col.init_collective_group(2, 1, group_name=name)
        os._exit(3)

    running = task.remote()
    sooner.get(crew[0].do.remote(col.init_collective_group, 2, 0, group_name=name), timeout=WAIT)
    error = error_of(crew[0].do.remote(col.barrier, name), CollectiveMemberDiedError)
    assert "rank 1 (a task, pid " in str(error)
    assert "status 3" in str(error)
    sooner.wait([running], timeout=WAIT)
    destroy(crew[:1], name)


@pytest.mark.chaos
def test_a_death_while_others_join(crew, name):
    doomed = Member.remote()
    calls = [crew[0].do.remote(col.init_collective_group, 3, 0, group_name=name, timeout=WAIT)]
    poll("the coordinator is there", lambda: has_coordinator(name))
    doomed.do.remote(col.init_collective_group, 3, 2, group_name=name, timeout=WAIT)
    poll("two have joined", lambda: joined(name) == 2)
    kill(doomed)
    assert error_of(calls[0], CollectiveMemberDiedError).rank == 2
    group_of(crew[:3], name)
    destroy(crew[:3], name)


@pytest.mark.chaos
def test_the_first_member_may_die_like_any_other(crew, name):
    """The coordinator is not one of the things that its process owns."""
    first = Member.remote()
    members = [first, *crew[:2]]
    calls = [first.do.remote(col.init_collective_group, 3, 0, group_name=name, timeout=WAIT)]
    poll("the coordinator is there", lambda: has_coordinator(name))
    calls += [
        member.do.remote(col.init_collective_group, 3, rank, group_name=name, timeout=WAIT)
        for rank, member in enumerate(crew[:2], 1)
    ]
    sooner.get(calls, timeout=WAIT)
    kill(first)
    for member in members[1:]:
        assert error_of(member.do.remote(col.barrier, name), CollectiveMemberDiedError).rank == 0
    destroy(members[1:], name)


@pytest.mark.chaos
def test_a_coordinator_that_dies(crew, name):
    members = group_of(crew[:2], name)
    call = members[0].do.remote(col.barrier, name)
    poll_waiting(name, 1)
    sooner.kill(sooner.get_actor(f"collective:{name}"))
    assert "the coordinator of group" in str(error_of(call))
    error_of(members[1].do.remote(col.barrier, name))
    group_of(members, name)
    run(members, lambda _: col.barrier(name))
    destroy(members, name)


def test_create_raises_when_an_actor_is_dead(crew, name):
    dead = Member.remote()
    sooner.get(dead.pid.remote(), timeout=WAIT)
    sooner.kill(dead)
    with pytest.raises(ActorDiedError):
        group_of([dead, crew[0]], name, timeout=0.3)
    poll("the coordinator ends", lambda: not has_coordinator(name))
