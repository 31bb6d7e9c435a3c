"""`breakpoint()` in tasks: with a terminal, without one, several at once."""

from __future__ import annotations

import pytest
from screen import on_terminal
from support import run_driver

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
