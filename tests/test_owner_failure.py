"""Owners that are killed while others wait for what they own, read it, or hand it on."""

from __future__ import annotations

import os
import signal
import time

import pytest
from support import WAIT, is_alive, poll

import sooner
from sooner import state
from sooner.exceptions import (
    ActorDiedError,
    OwnerDiedError,
    TaskCancelledError,
    WorkerCrashedError,
)

pytestmark = [pytest.mark.chaos, pytest.mark.usefixtures("nothing_left")]

LARGE = 1 << 20


@pytest.fixture(autouse=True)
def session(nothing_left):
    context = sooner.init(num_cpus=4, object_store_memory=64 << 20)
    nothing_left.append(context["session_dir"])
    yield
    sooner.shutdown()


@sooner.remote
def never():
    time.sleep(10 * WAIT)


@sooner.remote(num_cpus=0)
class Owner:
    """Owns values and tasks."""

    def pid(self):
        return os.getpid()

    def own(self, size):
        self.refs = [sooner.put(b"x" * size)]
        return self.refs

    def submit(self, count):
        self.tasks = [never.remote() for _ in range(count)]
        return self.tasks


@sooner.remote(num_cpus=0)
class Borrower:
    """Holds what it is handed."""

    def hold(self, box):
        self.box = box

    def read(self):
        return len(sooner.get(self.box[0]))

    def read_and_keep(self):
        self.value = sooner.get(self.box[0])
        return memoryview(self.value).nbytes

    def look_again(self):
        return set(self.value)

    def lend(self):
        return self.box

    def what_reading_raises(self):
        try:
            sooner.get(self.box[0])
        except OwnerDiedError as error:
            return type(error), str(error)
        return None


def kill(owner):
    """Kills the process of an actor and gives its id."""
    pid = sooner.get(owner.pid.remote(), timeout=WAIT)
    os.kill(pid, signal.SIGKILL)
    return pid


def all_cpus_are_free():
    return sooner.available_resources().get("CPU") == 4


def assert_names(text, pid):
    """The error says whose process it was, and how it ended."""
    assert f"actor Owner (pid {pid})" in text
    assert "signal 9" in text


@pytest.mark.api("errors.lost", "failure.owner")
def test_borrowers_that_wait_learn_who_died_and_how():
    owner, borrowers = Owner.remote(), [Borrower.remote() for _ in range(2)]
    box = sooner.get(owner.submit.remote(2), timeout=WAIT)
    sooner.get([borrower.hold.remote(box) for borrower in borrowers], timeout=WAIT)
    waiting = [borrower.what_reading_raises.remote() for borrower in borrowers]
    assert sooner.wait(waiting, timeout=0.2)[0] == []
    pid = kill(owner)
    for kind, text in sooner.get(waiting, timeout=WAIT):
        assert kind is OwnerDiedError
        assert_names(text, pid)
    with pytest.raises(OwnerDiedError) as caught:
        sooner.get(box, timeout=WAIT)
    assert_names(str(caught.value), pid)


@pytest.mark.api("failure.owner")
@pytest.mark.parametrize("size", [10, LARGE], ids=["inline", "stored"])
def test_whoever_asks_later_learns_it_as_well(size):
    """Also a process that never spoke with the owner."""
    owner, borrower = Owner.remote(), Borrower.remote()
    box = sooner.get(owner.own.remote(size), timeout=WAIT)
    sooner.get(borrower.hold.remote(box), timeout=WAIT)
    pid = kill(owner)
    poll("the owner is gone", lambda: not is_alive(pid))
    assert_names(sooner.get(borrower.what_reading_raises.remote(), timeout=WAIT)[1], pid)
    stranger = Borrower.remote()
    sooner.get(stranger.hold.remote(sooner.get(borrower.lend.remote(), timeout=WAIT)), timeout=WAIT)
    kind, text = sooner.get(stranger.what_reading_raises.remote(), timeout=WAIT)
    assert kind is OwnerDiedError
    assert_names(text, pid)


@pytest.mark.api("failure.owner")
def test_who_reads_goes_on_reading():
    owner, borrower = Owner.remote(), Borrower.remote()
    sooner.get(borrower.hold.remote(sooner.get(owner.own.remote(LARGE), timeout=WAIT)), timeout=WAIT)
    assert sooner.get(borrower.read_and_keep.remote(), timeout=WAIT) == LARGE
    pid = kill(owner)
    poll("the owner is gone", lambda: not is_alive(pid))
    # What would take the place of the value if its memory were free.
    del [sooner.put(b"y" * LARGE) for _ in range(50)][:]
    assert sooner.get(borrower.look_again.remote(), timeout=WAIT) == set(b"x")


@pytest.mark.api("failure.owner")
def test_a_task_that_gets_a_lost_argument_fails_with_its_cause():
    owner = Owner.remote()
    (ref,) = sooner.get(owner.submit.remote(1), timeout=WAIT)
    later = sooner.remote(lambda value: value).remote(ref)
    pid = kill(owner)
    with pytest.raises(OwnerDiedError) as caught:
        sooner.get(later, timeout=WAIT)
    assert_names(str(caught.value), pid)


@pytest.mark.api("failure.owner")
def test_the_leases_of_a_dead_owner_come_back():
    owner = Owner.remote()
    sooner.get(owner.submit.remote(9), timeout=WAIT)
    poll("its tasks have all CPUs", lambda: not sooner.available_resources().get("CPU"))
    kill(owner)
    poll("all CPUs are free", all_cpus_are_free)
    assert sooner.get(sooner.remote(num_cpus=4)(lambda: "free").remote(), timeout=WAIT) == "free"


@pytest.mark.api("failure.owner")
def test_an_actor_shares_the_fate_of_its_owner():
    @sooner.remote(num_cpus=0)
    class Parent:
        def pid(self):
            return os.getpid()

        def child(self):
            self.actor = Owner.remote()
            sooner.get(self.actor.pid.remote())
            return self.actor

    parent = Parent.remote()
    child = sooner.get(parent.child.remote(), timeout=WAIT)
    child_pid = sooner.get(child.pid.remote(), timeout=WAIT)
    kill(parent)
    poll("the child is gone", lambda: not is_alive(child_pid))
    with pytest.raises(ActorDiedError, match="owned it"):
        sooner.get(child.pid.remote(), timeout=WAIT)


@pytest.mark.api("failure.owner", "task.max_retries")
def test_a_retried_task_makes_its_children_again(tmp_path):
    attempts = tmp_path / "attempts"

    @sooner.remote(num_cpus=0.5)
    def child(n):
        with (tmp_path / f"child {n}").open("a") as file:
            file.write("x")
        return b"c" * LARGE

    @sooner.remote(max_retries=2)
    def parent():
        with attempts.open("a") as file:
            file.write("x")
        refs = [child.remote(n) for n in range(3)]
        values = sooner.get(refs)
        if len(attempts.read_text()) < 3:
            never.remote()
            os.kill(os.getpid(), signal.SIGKILL)
        return sum(map(len, values)), refs

    size, refs = sooner.get(parent.remote(), timeout=WAIT)
    assert size == 3 * LARGE
    assert attempts.read_text() == "xxx"
    assert [(tmp_path / f"child {n}").read_text() for n in range(3)] == ["xxx"] * 3
    # The children of the last attempt belong to a process that lives.
    assert [len(value) for value in sooner.get(refs, timeout=WAIT)] == [LARGE] * 3
    del refs
    poll("the children of dead parents are gone", all_cpus_are_free)


def blocks():
    """Values that are in the store and that somebody knows."""
    return [row for row in state.list_objects() if row.object_size >= LARGE]


@pytest.mark.api("failure.cancel_recursive")
@pytest.mark.parametrize("force", [False, True])
def test_what_a_cancelled_task_used_is_released(tmp_path, force):
    mark = tmp_path / "mark"

    @sooner.remote(num_cpus=0.5)
    def child(box):
        mark.touch()
        time.sleep(10 * WAIT)

    @sooner.remote
    def parent(value, box):
        sooner.get(child.remote(box))

    argument, inner = sooner.put(b"a" * LARGE), sooner.put(b"b" * LARGE)
    ref = parent.remote(argument, [inner])
    queued = [sooner.remote(lambda value, box: None).remote(ref, [inner]) for _ in range(3)]
    poll("the child runs", mark.exists)
    del argument, inner
    assert len(blocks()) >= 2
    sooner.cancel(ref, force=force)
    for each in (ref, *queued):
        with pytest.raises(TaskCancelledError):
            sooner.get(each, timeout=WAIT)
    poll("its arguments are gone", lambda: not blocks())
    poll("all CPUs are free", all_cpus_are_free)


@pytest.mark.api("failure.cancel_recursive")
def test_queued_children_of_children_are_cancelled(tmp_path):
    ran = tmp_path / "ran"

    @sooner.remote(num_cpus=4)
    def leaf():
        ran.touch()

    @sooner.remote(num_cpus=1)
    def middle():
        return sooner.get([leaf.remote() for _ in range(3)])

    @sooner.remote(num_cpus=1)
    def root():
        return sooner.get([middle.remote() for _ in range(2)])

    # One CPU is taken, so that no leaf ever fits.
    blocker = never.remote()
    ref = root.remote()
    poll("leaves are queued", lambda: len(state.list_tasks(filters=[("name", "=", "leaf")])) == 6)
    sooner.cancel(ref)
    with pytest.raises(TaskCancelledError):
        sooner.get(ref, timeout=WAIT)
    poll("nothing waits", lambda: all(row.state in ("FINISHED", "FAILED") for row in tasks_but(blocker)))
    sooner.cancel(blocker)
    poll("all CPUs are free", all_cpus_are_free)
    assert not ran.exists()


def tasks_but(ref):
    return [row for row in state.list_tasks() if row.task_id != ref.task_id()]


def test_each_cause_has_its_error(tmp_path):
    """What happened to the process is in the type: a crash, an actor's end, the owner's end, a
    cancellation.
    """
    owner, mark = Owner.remote(), tmp_path / "mark"

    @sooner.remote(max_retries=0)
    def crashes():
        os.kill(os.getpid(), signal.SIGKILL)

    @sooner.remote(max_retries=-1)
    def sleeps():
        mark.touch()
        time.sleep(10 * WAIT)

    (owned,) = sooner.get(owner.submit.remote(1), timeout=WAIT)
    cancelled = sleeps.remote()
    poll("it runs", mark.exists)
    sooner.cancel(cancelled, force=True)
    kill(owner)
    for ref, error in [
        (crashes.remote(), WorkerCrashedError),
        (owner.pid.remote(), ActorDiedError),
        (owned, OwnerDiedError),
        (cancelled, TaskCancelledError),
    ]:
        with pytest.raises(sooner.exceptions.SoonerError) as caught:
            sooner.get(ref, timeout=WAIT)
        assert type(caught.value) is error


# Idle workers beyond one for each CPU end after so many seconds.
IDLE_S = 2


@sooner.remote(num_cpus=4)
def own_after_waiting(depth):
    """Has another worker started for each level, since this one waits; what is returned belongs to this
    one.
    """
    inner = sooner.get(own_after_waiting.remote(depth - 1)) if depth else []
    return [*inner, sooner.put(b"x" * LARGE), later.remote(depth)]


@sooner.remote
def later(number):
    time.sleep(IDLE_S)
    return number


def workers():
    return [row for row in state.list_workers() if row.worker_type == "WORKER" and row.is_alive]


def test_idle_workers_stay_as_long_as_what_they_own_is_needed():
    refs = sooner.get(own_after_waiting.remote(9), timeout=WAIT)
    assert len(workers()) > 4
    time.sleep(2 * IDLE_S + 1)
    found = sooner.get(refs, timeout=WAIT)
    assert found[1::2] == list(range(10))
    assert found[::2] == [b"x" * LARGE] * 10
    del refs
    poll("those that nobody needs have ended", lambda: len(workers()) <= 4)
