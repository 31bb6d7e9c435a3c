"""SIGINT in workers: what a call sends to its own process interrupts it, as in any process."""

from __future__ import annotations

import _thread
import os
import signal
import threading
import time

import pytest
from support import WAIT, poll

import sooner

pytestmark = pytest.mark.usefixtures("shared_session")


def by_timer():
    """The usual recipe for a time limit."""
    timer = threading.Timer(0.01, _thread.interrupt_main)
    timer.start()


def by_raising():
    signal.raise_signal(signal.SIGINT)


def by_kill():
    os.kill(os.getpid(), signal.SIGINT)


def is_interrupted(by):
    try:
        by()
        # Not in one piece: `interrupt_main` wakes nobody.
        for _ in range(100 * WAIT):
            time.sleep(0.01)
    except KeyboardInterrupt:
        return True
    return False


@sooner.remote
class Holder:
    def is_interrupted(self, by):
        return is_interrupted(by)

    def pid(self):
        return os.getpid()


@pytest.mark.parametrize("by", [by_timer, by_raising, by_kill])
def test_what_a_call_sends_to_its_own_process(by):
    assert sooner.get(sooner.remote(is_interrupted).remote(by), timeout=WAIT)
    assert sooner.get(Holder.remote().is_interrupted.remote(by), timeout=WAIT)
    with sooner.Executor(1) as executor:
        assert executor.submit(is_interrupted, by).result(WAIT)


def test_what_is_sent_from_outside(tmp_path):
    mark = tmp_path / "pid"

    @sooner.remote
    def wait():
        return is_interrupted(lambda: mark.write_text(f"{os.getpid()}\n"))

    ref = wait.remote()
    pid = int(poll("it runs", lambda: mark.exists() and mark.read_text().endswith("\n") and mark.read_text()))
    os.kill(pid, signal.SIGINT)
    assert sooner.get(ref, timeout=WAIT)


def test_a_worker_with_nothing_to_do_lives_on():
    get_pid = sooner.remote(os.getpid)
    pid = sooner.get(get_pid.remote())
    for _ in range(20):
        os.kill(pid, signal.SIGINT)
        assert sooner.get([get_pid.remote() for _ in range(3)], timeout=WAIT)


def test_what_comes_to_a_worker_with_nothing_to_do_is_not_for_the_next_call():
    """A worker that has just answered looks for the next call for a moment before it sleeps. While it looks,
    no signal wakes it.
    """
    holder = Holder.remote()
    alone = sooner.remote(os.getpid).options(num_cpus=2, max_retries=0)
    for call in (holder.pid, alone):
        pid = sooner.get(call.remote(), timeout=WAIT)
        for _ in range(300):
            os.kill(pid, signal.SIGINT)
            assert sooner.get(call.remote(), timeout=WAIT)


def test_late_interrupts_of_cancelled_tasks_meet_nobody():
    @sooner.remote(max_retries=0)
    def short():
        return 1

    for _ in range(200):
        refs = [short.remote() for _ in range(3)]
        sooner.cancel(refs[0])
        assert sooner.get(refs[1:], timeout=WAIT) == [1, 1]
