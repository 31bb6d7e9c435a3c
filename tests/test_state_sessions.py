"""The state of sessions with options of their own, and of those that do not run."""

from __future__ import annotations

import os
import time

import pytest
from support import poll, run_driver, stopped

import sooner
from sooner.util import state


@sooner.remote
def passes(value=None):
    return value


@sooner.remote
def waits_for_file(path):
    while not os.path.exists(path):
        time.sleep(0.01)


@pytest.fixture
def gate(tmp_path):
    """A file that tasks wait for; it appears at the end of the test at the latest."""
    path = tmp_path / "gate"
    yield path
    path.touch()


def test_the_record_is_bounded_and_the_latest_stay(nothing_left):
    context = sooner.init(num_cpus=1, task_events_bytes=64 << 10)
    nothing_left.append(context["session_dir"])
    sooner.get([passes.remote(number) for number in range(2000)])
    last = passes.options(name="last").remote(1)
    sooner.get(last)
    kept = state.list_tasks(limit=5000)
    # 64 bytes each, beside an eighth for names.
    assert len(kept) == 896
    assert state.get_task(last.task_id()).state == "FINISHED"
    assert state.summarize_tasks()["events_lost"] == 2001 - 896
    sooner.shutdown()


def test_without_memory_nothing_is_recorded(nothing_left, tmp_path):
    context = sooner.init(num_cpus=1, task_events_bytes=0)
    nothing_left.append(context["session_dir"])
    sooner.get(passes.remote(1))
    gate = tmp_path / "gate"
    running = waits_for_file.remote(str(gate))
    poll("it runs", lambda: [task.state for task in state.list_tasks()] == ["RUNNING"])
    gate.touch()
    sooner.get(running)
    assert state.list_tasks() == []
    sooner.shutdown()


@pytest.mark.parametrize("value", [-1, 1.5, "16", True, 1 << 40])
def test_a_wrong_bound_is_refused(value):
    with pytest.raises(ValueError, match="task_events_bytes"):
        sooner.init(task_events_bytes=value)


def test_without_a_session_there_is_nobody_to_ask(short_dir, monkeypatch):
    monkeypatch.setenv("SOONER_TMPDIR", str(short_dir))
    with pytest.raises(ConnectionError, match="no program of yours"):
        state.list_tasks()
    with pytest.raises(RuntimeError, match="not started"):
        sooner.timeline()


def test_a_process_that_stands_still_is_named_and_the_others_answer(nothing_left, gate):
    context = sooner.init(num_cpus=2)
    nothing_left.append(context["session_dir"])
    running = waits_for_file.remote(str(gate))
    pid = poll("it runs", lambda: state.get_task(running.task_id()).worker_pid)
    with stopped(pid):
        with pytest.warns(UserWarning, match=f"did not answer: processes {pid}"):
            tasks = state.list_tasks()
        assert [task.task_id for task in tasks] == [running.task_id()]
    gate.touch()
    sooner.get(running)
    sooner.shutdown()


def test_a_tool_may_only_ask(nothing_left):
    run_driver(
        """
        import socket, struct, sooner

        path = sooner.init(num_cpus=1)["raylet_socket_name"]

        def frame(kind, body):
            return struct.pack("<IHH", len(body), kind, 0) + body

        # [major, minor, features, role, pid, python, worker]: a tool's greeting.
        hello = frame(1, bytes([0x87, 1, 0, 0, 2, 0, 0x60, 0]))
        tool = socket.socket(socket.AF_UNIX)
        tool.connect(path)
        # Kill an actor (54): refused, and the connection ends.
        tool.sendall(hello + frame(54, bytes([0x81, 0x82, 1, 1])))
        data = b""
        while part := tool.recv(1 << 16):
            data += part
        assert b"a tool only asks" in data, data
        assert sooner.get(sooner.remote(lambda: 1).remote()) == 1
        """
    )
