"""The `sooner` command against programs that run beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest
from support import poll, running_driver

PROGRAM = """
import os, sys, threading, time, sooner

# The lines below are the only ones: a worker's line might come between a text and the end of its line.
sooner.init(num_cpus=2, log_to_driver=False)
gate = sys.argv[1]

@sooner.remote
def holds(number):
    print("holding", number)
    while not os.path.exists(gate):
        time.sleep(0.01)
    return number

@sooner.remote
def follows(value):
    return value

@sooner.remote(num_gpus=1)
def never():
    pass

@sooner.remote
class Keeper:
    def get(self):
        return 1

# First: the tasks take both CPUs until the gate is there, and an actor needs one to be placed.
keeper = Keeper.options(name="keeper").remote()
sooner.get(keeper.get.remote())
held = [holds.remote(number) for number in range(3)]
later = follows.remote(held[0])
big = sooner.put(bytes(1 << 20))
stuck = never.remote()
print(sooner.init(ignore_reinit_error=True)["session_dir"], flush=True)
print(held[2].hex(), later.hex(), big.hex(), stuck.task_id(), flush=True)
sys.stdin.readline()
"""


def command(*arguments, base, check=0, columns="100", **more):
    environment = os.environ | {"SOONER_TMPDIR": str(base), "COLUMNS": columns}
    done = subprocess.run(
        [sys.executable, "-m", "sooner", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
        **more,
    )
    assert done.returncode == check, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


class Program:
    """A program and what it said about itself."""

    def __init__(self, driver, base):
        self.driver = driver
        self.base = base
        self.directory = driver.stdout.readline().strip()
        self.waiting, self.later, self.big, self.stuck = driver.stdout.readline().split()

    def run(self, *arguments, **options):
        return command(*arguments, base=self.base, **options).stdout

    def json(self, *arguments):
        return json.loads(self.run(*arguments, "--json"))


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    base = tmp_path_factory.mktemp("w")
    # Short enough for a socket below it.
    short = f"/tmp/wt-cli-{os.getpid()}"
    os.symlink(base, short)
    environment = os.environ | {"SOONER_TMPDIR": short}
    try:
        with running_driver(PROGRAM, base / "gate", env=environment, stderr=subprocess.DEVNULL) as driver:
            started = Program(driver, short)
            poll("two run", lambda: len(started.json("list", "tasks", "--filter", "state=RUNNING")) == 2)
            yield started
            (base / "gate").touch()
            driver.stdin.write("\n")
            driver.stdin.flush()
            driver.wait(60)
    finally:
        os.unlink(short)


def test_nothing_runs(short_dir):
    for arguments in (("status",), ("list", "tasks"), ("stack",), ("why", "abc"), ("logs",)):
        done = command(*arguments, base=short_dir, check=3)
        assert "no program of yours runs sooner" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [(), ("dance",), ("list",), ("list", "fish"), ("get", "task"), ("list", "tasks", "--limit", "x")],
)
def test_wrong_usage(arguments, short_dir):
    assert "usage: sooner" in command(*arguments, base=short_dir, check=2).stderr


@pytest.mark.parametrize("option", [("--filter", "x"), ("--filter", "colour=red"), ("--limit", "0")])
def test_wrong_values(program, option):
    assert command("list", "tasks", *option, base=program.base, check=2).stderr.startswith("sooner: ")


@pytest.mark.api("cli.status")
def test_status(program):
    status = program.json("status")
    assert status["session_dir"] == program.directory
    assert status["driver_pid"] == program.driver.pid
    assert status["tasks"]["RUNNING"] == 2
    assert status["actors"] == {"ALIVE": 1}
    assert "can never be granted" in status["problems"][0]
    text = program.run("status")
    assert "CPU        2 of 2 in use" in text
    assert "problem" in text


@pytest.mark.parametrize("kind", ["tasks", "actors", "objects", "workers", "nodes", "jobs"])
@pytest.mark.api("cli.list")
def test_list(program, kind):
    rows = program.json("list", kind)
    assert rows
    for columns in ("40", "80", "200"):
        table = program.run("list", kind, columns=columns)
        assert all(len(line) <= int(columns) for line in table.splitlines())
    singular = kind.removesuffix("s")
    identity = rows[0][f"{singular}_id"]
    one = program.json("get", singular, identity)
    assert (one if isinstance(one, dict) else one[0])[f"{singular}_id"] == identity


@pytest.mark.api("cli.list")
def test_list_filters_and_limits(program):
    rows = program.json("list", "tasks", "--filter", "name=holds", "--filter", "state!=RUNNING")
    assert [row["state"] for row in rows] == ["PENDING_NODE_ASSIGNMENT"]
    assert len(program.json("list", "tasks", "--limit", "1")) == 1
    assert program.run("list", "actors", "--filter", "state=DEAD") == "no actors\n"


@pytest.mark.api("cli.get")
def test_get_what_is_not_there(program):
    done = command("get", "task", "feedfeed", base=program.base, check=1)
    assert "there is no task" in done.stderr


@pytest.mark.parametrize("kind", ["tasks", "actors", "objects"])
@pytest.mark.api("cli.summary")
def test_summary(program, kind):
    assert program.json("summary", kind)["summary"]
    assert len(program.run("summary", kind).splitlines()) >= 2


@pytest.mark.api("cli.memory")
def test_memory(program):
    memory = program.json("memory")
    assert memory["store_used"] >= 1 << 20
    assert memory["objects"][0]["object_id"] == program.big
    assert program.run("memory").startswith("shared memory: 1.0 MiB of")


@pytest.mark.api("cli.timeline")
def test_timeline(program, tmp_path):
    path = tmp_path / "trace.json"
    assert "events written" in program.run("timeline", "-o", str(path))
    trace = json.loads(path.read_text())
    assert [event for event in trace if event["name"] == "holds"]
    assert len(json.loads(program.run("timeline"))) >= len(trace)


@pytest.mark.api("cli.logs")
def test_logs(program):
    files = [row["file"] for row in program.json("logs")]
    assert any(name.endswith(".out") for name in files)
    assert "holding" in program.run("logs", ".out")
    pid = program.json("list", "tasks", "--filter", "state=RUNNING")[0]["worker_pid"]
    assert f"pid={pid}) holding" in program.run("logs", str(pid))
    assert "no log's name" in command("logs", "nobody", base=program.base, check=1).stderr


def test_logs_can_be_followed(program):
    environment = os.environ | {"SOONER_TMPDIR": str(program.base)}
    with subprocess.Popen(
        [sys.executable, "-m", "sooner", "logs", ".out", "-f"], stdout=subprocess.PIPE, text=True, env=environment
    ) as following:
        assert "holding" in following.stdout.readline()
        time.sleep(0.3)
        assert following.poll() is None
        following.terminate()


@pytest.mark.api("cli.stack")
def test_stacks_of_everyone(program):
    stacks = program.json("stack")
    tasks = [row for row in stacks if row["task"] == "holds"]
    assert len(tasks) == 2
    assert all(" in holds\n" in row["stack"] for row in tasks)
    (driver,) = [row for row in stacks if row["pid"] == program.driver.pid]
    assert "<module>" in driver["stack"]
    text = program.run("stack")
    assert text.startswith(f"== driver {program.driver.pid}\n")
    assert ", runs holds\n" in text
    # Nobody was disturbed.
    assert program.json("status")["tasks"]["RUNNING"] == 2


@pytest.mark.api("cli.why")
def test_why(program):
    lines = program.json("why", program.later)["explanation"]
    assert "waits for arguments" in lines[0]
    assert "has been running for" in lines[1]
    lines = program.json("why", program.waiting)["explanation"]
    assert "waits for a worker" in lines[0]
    assert "asks for 1 CPU; 0 of 2 are free" in lines[1]
    assert "which runs holds" in lines[2]
    assert "can never run here: it asks for 1 GPU" in program.run("why", program.stuck)
    kept = program.run("why", program.big)
    assert "(1.0 MiB in shared memory)" in kept
    assert "has 1 reference to it in Python" in kept
    assert "nothing with the id" in command("why", "feedfeed", base=program.base, check=1).stderr


def test_metrics(program):
    text = program.run("metrics")
    assert 'sooner_workers{state="leased"} 2' in text
    assert any(series["name"] == "sooner_tasks_submitted_total" for series in program.json("metrics"))


def test_one_of_several_programs_is_chosen(program, tmp_path):
    environment = os.environ | {"SOONER_TMPDIR": str(program.base)}
    with running_driver(PROGRAM, tmp_path / "gate", env=environment, stderr=subprocess.DEVNULL) as driver:
        second = Program(driver, program.base)
        done = command("status", base=program.base, check=3)
        assert program.directory in done.stderr
        assert second.directory in done.stderr
        for one in (program, second):
            assert one.json("status", "--address", one.directory)["session_dir"] == one.directory
        name = second.directory.rpartition("/")[2]
        assert second.json("status", "--address", name)["session_dir"] == second.directory
        assert "no session runs in" in command("status", "--address", "/nowhere", base=program.base, check=3).stderr


def test_a_program_that_was_killed_does_not_run(short_dir, tmp_path):
    environment = os.environ | {"SOONER_TMPDIR": str(short_dir)}
    with running_driver(PROGRAM, tmp_path / "gate", env=environment, stderr=subprocess.DEVNULL) as driver:
        Program(driver, short_dir)
        command("status", base=short_dir)
        driver.kill()
        driver.wait()
        command("status", base=short_dir, check=3)
