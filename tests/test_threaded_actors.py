"""Threaded actors: `max_concurrency` above 1 without coroutines."""

from __future__ import annotations

import os
import threading

import pytest
from support import WAIT, is_alive, poll

import sooner

pytestmark = pytest.mark.usefixtures("shared_session")


@sooner.remote
def identity(value):
    return value


@sooner.remote(max_concurrency=4)
class Meeting:
    """Calls meet in it."""

    def __init__(self, size=4):
        self.barrier = threading.Barrier(size)
        self.constructed_in = threading.get_ident()
        self.main = threading.main_thread().ident
        self.lock = threading.Lock()
        self.count = 0

    def join(self):
        self.barrier.wait(timeout=WAIT)
        return threading.get_ident()

    def where(self):
        return self.constructed_in == self.main

    def add(self):
        with self.lock:
            self.count += 1
            return self.count

    def get(self, box):
        return sooner.get(box[0])

    def task(self, x):
        return sooner.get(identity.remote(x))

    def task_id(self):
        self.barrier.wait(timeout=WAIT)
        return sooner.get_runtime_context().get_task_id()

    def fail(self):
        raise LookupError("in a thread")

    def pid(self):
        return os.getpid()


@pytest.mark.api("actor.max_concurrency", "actor.threaded")
def test_as_many_calls_as_max_concurrency_run_at_a_time():
    meeting = Meeting.remote()
    idents = sooner.get([meeting.join.remote() for _ in range(4)], timeout=WAIT)
    assert len(set(idents)) == 4


@pytest.mark.api("actor.max_concurrency")
def test_no_more_calls_than_max_concurrency_run_at_a_time():
    @sooner.remote(max_concurrency=3)
    class Narrow:
        def __init__(self):
            self.lock = threading.Lock()
            self.inside = 0
            self.most = 0

        def enter(self):
            with self.lock:
                self.inside += 1
                self.most = max(self.most, self.inside)
            threading.Event().wait(0.005)
            with self.lock:
                self.inside -= 1
                return self.most

    narrow = Narrow.remote()
    assert max(sooner.get([narrow.enter.remote() for _ in range(30)], timeout=WAIT)) == 3


@pytest.mark.api("actor.threaded")
def test_the_constructor_runs_on_the_main_thread():
    assert sooner.get(Meeting.remote().where.remote(), timeout=WAIT)


@pytest.mark.api("actor.threaded")
def test_state_is_shared():
    meeting = Meeting.remote()
    values = sooner.get([meeting.add.remote() for _ in range(400)], timeout=WAIT)
    assert sorted(values) == list(range(1, 401))


def test_max_concurrency_by_options():
    meeting = Meeting.options(max_concurrency=6).remote(6)
    assert len(set(sooner.get([meeting.join.remote() for _ in range(6)], timeout=WAIT))) == 6


def test_a_call_may_wait_for_another_call_of_its_actor():
    meeting = Meeting.remote(2)
    first = meeting.join.remote()
    second = meeting.get.remote([first])
    third = meeting.join.remote()
    one, two, three = sooner.get([first, second, third], timeout=WAIT)
    assert one == two != three


def test_tasks_submitted_from_threads():
    meeting = Meeting.remote()
    assert sooner.get([meeting.task.remote(n) for n in range(50)], timeout=WAIT) == list(range(50))


def test_the_runtime_context_is_that_of_each_call():
    meeting = Meeting.remote()
    refs = [meeting.task_id.remote() for _ in range(4)]
    assert sooner.get(refs, timeout=WAIT) == [ref.task_id() for ref in refs]


def test_an_error_in_a_thread():
    meeting = Meeting.remote()
    with pytest.raises(LookupError, match="in a thread"):
        sooner.get(meeting.fail.remote(), timeout=WAIT)
    assert sooner.get(meeting.add.remote(), timeout=WAIT) == 1


def test_it_ends_with_its_last_handle():
    meeting = Meeting.remote()
    pid = sooner.get(meeting.pid.remote(), timeout=WAIT)
    del meeting
    poll("the actor is gone", lambda: not is_alive(pid))
