"""`sooner stack` shows what runs and disturbs nobody."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from support import poll

import sooner
from sooner.util import state


def stacks():
    directory = sooner.init(ignore_reinit_error=True)["session_dir"]
    done = subprocess.run(
        [sys.executable, "-m", "sooner", "stack", "--json", "--address", directory],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return {row["task"]: row["stack"] for row in json.loads(done.stdout)}


def sleeps():
    begin = time.monotonic()
    time.sleep(1.5)
    return time.monotonic() - begin >= 1.5


def reads():
    ours, theirs = socket.socketpair()
    threading.Timer(1.5, theirs.send, [b"x"]).start()
    return ours.recv(1) == b"x"


def selects():
    begin = time.monotonic()
    return select.select([], [], [], 1.5) == ([], [], []) and time.monotonic() - begin >= 1.5


def waits_for_a_lock():
    lock = threading.Lock()
    lock.acquire()
    return lock.acquire(timeout=1.5) is False


def waits_for_a_process():
    return subprocess.run(["sleep", "1.5"], check=False).returncode == 0


def holds_the_interpreter():
    # Backtracks for a good while in C, without giving the interpreter to anyone.
    return re.match(r"(a+)+$", "a" * 25 + "b") is None


CALLS = [sleeps, reads, selects, waits_for_a_lock, waits_for_a_process, holds_the_interpreter]


@pytest.mark.parametrize("call", CALLS, ids=[call.__name__ for call in CALLS])
def test_what_runs_is_shown_and_goes_on(shared_session, call):
    def is_shown():
        ref = sooner.remote(call).remote()
        poll("it has begun", lambda: state.get_task(ref.task_id()).state in ("RUNNING", "FINISHED"))
        shown = [stacks() for _ in range(2)]
        assert sooner.get(ref) is True
        return any(f" in {call.__name__}\n" in (one.get(call.__name__) or "") for one in shown)

    # On a busy machine a call may be over before anybody asks: then it is made again.
    poll("it is shown", is_shown)


def test_all_threads_of_an_actor_are_shown(shared_session, tmp_path):
    gate = str(tmp_path / "gate")

    @sooner.remote(max_concurrency=2)
    class Threads:
        def first_call(self):
            self._wait()

        def second_call(self):
            self._wait()

        def _wait(self):
            while not os.path.exists(gate):
                time.sleep(0.01)

    actor = Threads.remote()
    refs = [actor.first_call.remote(), actor.second_call.remote()]
    poll("both run", lambda: [state.get_task(ref.task_id()).state for ref in refs] == ["RUNNING"] * 2)
    text = "".join(stacks().values())
    assert " in first_call\n" in text
    assert " in second_call\n" in text
    (tmp_path / "gate").touch()
    sooner.get(refs)


def test_the_signals_of_a_program_stay_its_own(shared_session):
    caught = []
    before = signal.signal(signal.SIGUSR1, lambda *_: caught.append(1))
    try:
        ref = sooner.remote(sleeps).remote()
        stacks()
        assert sooner.get(ref) is True
        assert caught == []
    finally:
        signal.signal(signal.SIGUSR1, before)
