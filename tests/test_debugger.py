"""`breakpoint()` in tasks: with a terminal, without one, several at once."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from screen import on_terminal
from support import WAIT, Node, poll, run_driver

from sooner._engine import debugger, worker
from sooner._session import membership, trust

HEAD = """
import sooner

sooner.init(num_cpus=2)

@sooner.remote
def double(x):
    inside = x * 10
    breakpoint()
    return inside * 2
"""


def has(*parts):
    return lambda lines: all(any(part in line for line in lines) for part in parts)


def prompts(count):
    return lambda lines: sum("(Pdb)" in line for line in lines) >= count


@pytest.mark.api("own.breakpoint")
def test_a_terminal_becomes_the_debugger():
    with on_terminal(HEAD + "print('result', sooner.get(double.remote(4)))") as program:
        program.wait_for("the debugger", has("stopped at", "(Pdb)"))
        program.type("p inside\n")
        program.wait_for("the value", lambda lines: "40" in lines)
        program.type("inside = 7\n")
        program.wait_for("a third prompt", prompts(3))
        program.type("c\n")
        lines = program.finish()
    assert "result 14" in lines
    assert any(line.startswith("(double pid=") and line.endswith("goes on") for line in lines)


def test_stepping_out_of_the_task_ends_the_debugger():
    with on_terminal(HEAD + "print('results', sooner.get([double.remote(4), double.remote(5)]))") as program:
        for count in (1, 2):
            program.wait_for("a debugger", prompts(count))
            program.type("r\n")
        lines = program.finish()
    assert "results [80, 100]" in lines


def test_quitting_ends_the_task():
    code = """
try:
    sooner.get(double.remote(4))
except Exception as error:
    print("failed with", type(error.cause).__name__)
"""
    with on_terminal(HEAD + code) as program:
        program.wait_for("the debugger", prompts(1))
        program.type("q\n")
        lines = program.finish()
    assert "failed with BdbQuit" in lines


def test_an_actor_stops_too():
    code = """
@sooner.remote
class Counter:
    def add(self, n):
        breakpoint()
        return n + 1

print("result", sooner.get(Counter.remote().add.remote(1)))
"""
    with on_terminal(HEAD + code) as program:
        program.wait_for("the debugger", prompts(1))
        program.type("!n = 41\n")
        program.wait_for("the next prompt", prompts(2))
        program.type("c\n")
        lines = program.finish()
    assert "result 42" in lines


def test_without_a_terminal_the_task_goes_on():
    done = run_driver(HEAD + "print(sooner.get(double.remote(4)))")
    assert done.stdout == "80\n"
    assert "passed over: the driver has no terminal" in done.stderr
    assert "\x1e" not in done.stderr


@pytest.mark.parametrize("setting", ["0", "builtins.print"])
def test_the_environment_can_choose_another_debugger(setting, monkeypatch):
    monkeypatch.setenv("PYTHONBREAKPOINT", setting)
    done = run_driver(HEAD + "print(sooner.get(double.remote(4)))")
    assert "80" in done.stdout
    assert "passed over" not in done.stderr


# Connects to whatever listens on this machine under a name that is in no directory, as any user can.
STRANGER = """
import os, socket
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
known = {}
print("on", flush=True)
while True:
    for line in open("/proc/net/unix"):
        name = line.rstrip("\\n").rpartition(" ")[2]
        if name.startswith("@") and "sooner" in name and name not in known:
            known[name] = one = socket.socket(socket.AF_UNIX)
            one.setblocking(False)
            try:
                one.connect("\\0" + name[1:])
            except OSError:
                pass
"""


@pytest.mark.skipif(os.getuid() != 0, reason="acting as another user needs root")
def test_another_user_does_not_have_a_breakpoint_passed_over():
    stranger = subprocess.Popen([sys.executable, "-S", "-c", STRANGER], stdout=subprocess.PIPE, text=True)
    try:
        assert stranger.stdout.readline() == "on\n"
        code = "print('results', sooner.get([double.remote(n) for n in range(4)]))"
        with on_terminal(HEAD + code) as program:
            for count in range(1, 5):
                program.wait_for("a debugger", prompts(count))
                program.type("c\n")
            lines = program.finish()
    finally:
        stranger.kill()
        stranger.communicate()
    assert "results [0, 20, 40, 60]" in lines


@pytest.fixture
def stopped(short_dir, monkeypatch):
    """A task that stops at a breakpoint; gives where the driver has to come."""
    monkeypatch.setattr(worker, "session_directory", str(short_dir))
    addresses = []
    task = threading.Thread(target=lambda: debugger.stop_here(sys._getframe(), addresses.append), daemon=True)
    task.start()
    line = poll("it has stopped", lambda: addresses and addresses[0])
    found = debugger._LINE.match(line)
    assert found is not None
    yield task, json.loads(found["message"])["address"]
    task.join(WAIT)
    assert not task.is_alive()
    assert os.listdir(short_dir) == []


def test_a_connection_of_another_user_does_not_end_the_wait(stopped, monkeypatch, capsys):
    _, address = stopped
    users = [os.getuid() + 1, os.getuid()]
    monkeypatch.setattr(trust, "peer_of", lambda connection: (1, users.pop(0)))
    assert os.stat(address).st_mode & 0o777 == 0o600
    for answer in (b"", None):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(address)
            if answer is None:
                connection.sendall(b"0")
            assert connection.recv(1) == b"", "it was closed"
    assert capsys.readouterr().err == "", "whoever has no terminal says so"


def test_a_driver_that_goes_has_the_breakpoint_passed_over(stopped, capsys):
    task, address = stopped
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
    task.join(WAIT)
    assert "is passed over: the driver has gone" in capsys.readouterr().err


def test_without_a_driver_that_comes_the_task_goes_on(monkeypatch, capsys, short_dir):
    monkeypatch.setattr(debugger, "_ATTACH_SECONDS", 0.1)
    monkeypatch.setattr(worker, "session_directory", str(short_dir))
    debugger.stop_here(sys._getframe(), lambda line: None)
    assert "is passed over: the driver does not show output of workers" in capsys.readouterr().err
    monkeypatch.setattr(worker, "session_directory", str(short_dir / "removed"))
    debugger.stop_here(sys._getframe(), lambda line: None)
    assert "is passed over: the driver cannot come here: [Errno 2]" in capsys.readouterr().err


def test_a_breakpoint_of_a_worker_of_another_node_of_the_machine_is_served(short_dir, monkeypatch):
    (short_dir / "b").mkdir()
    head = Node(short_dir)
    told = membership.membership(str(head.directory))
    token = Path(told["token_file"]).read_text().strip()
    other = Node(short_dir / "b", "--resources", '{"b": 1}', join=(told["head"], token))
    code = HEAD.replace("num_cpus=2", "") + "print('result', sooner.get(double.options(resources={'b': 1}).remote(4)))"
    monkeypatch.setenv("SOONER_TMPDIR", str(short_dir))
    monkeypatch.setenv("SOONER_ADDRESS", "auto")
    try:
        with on_terminal(code, columns=160) as program:
            program.wait_for("the debugger", prompts(1))
            program.type("c\n")
            lines = program.finish()
    finally:
        other.run("stop", "--force")
        head.run("stop", "--force")
    assert "result 80" in lines
