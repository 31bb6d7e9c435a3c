"""Worker memory: who is stopped when it runs out, what becomes of the tasks, and who goes on."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from control_groups import control_group, kernel_kills
from support import children_of, is_alive, poll, run_driver, running_driver, stop

import sooner
from sooner import exceptions, state

MIB = 1 << 20
# What all workers may hold together, besides what an interpreter takes.
LIMIT = 400 * MIB


@pytest.fixture
def limited(monkeypatch):
    """Sessions in which workers may hold so much together, whatever the machine has."""
    monkeypatch.setenv("SOONER_TEST_WORKER_MEMORY", str(LIMIT))
    yield
    sooner.shutdown()


def hold(mebibytes: int) -> bytearray:
    """Takes memory, and writes to every page of it."""
    held = bytearray(mebibytes * MIB)
    held[::4096] = b"x" * len(held[::4096])
    return held


@sooner.remote(max_retries=0)
def grow(most: int) -> int:
    held = []
    for _ in range(most // 20):
        held.append(hold(20))
        time.sleep(0.01)
    return len(held)


@sooner.remote
def stay(mebibytes: int, path: str) -> int:
    """Holds memory until there is a file."""
    held = hold(mebibytes)
    while not os.path.exists(path):
        time.sleep(0.01)
    return len(held)


@pytest.mark.api("errors.memory")
def test_a_task_that_grows_is_stopped_with_a_table_of_sizes(limited):
    sooner.init(num_cpus=1)
    with pytest.raises(exceptions.OutOfMemoryError) as caught:
        sooner.get(grow.remote(4000), timeout=60)
    text = str(caught.value)
    assert "grow() was stopped because memory ran out" in text
    assert "max_retries=0" in text
    assert "memory=BYTES" in text
    assert "memory_usage_threshold" in text
    [row] = re.findall(r"^\* ([0-9a-f]{16}) +(\d+) +(\d+\.\d\d) MiB +- +task grow, which is not retried$", text, re.M)
    assert 300 < float(row[2]) < 4000
    poll("the stopped process is gone", lambda: not os.path.exists(f"/proc/{row[1]}"))
    # The node and the driver live, and the next task finds its memory.
    assert sooner.get(grow.remote(40), timeout=60) == 2


@pytest.mark.api("errors.memory")
def test_a_retriable_task_succeeds_when_memory_is_there(limited, tmp_path):
    sooner.init(num_cpus=2)

    @sooner.remote(max_retries=1)
    def need(mebibytes: int, log: str) -> int:
        with open(log, "a") as file:
            file.write(f"{sooner.get_runtime_context().get_assigned_resources().get('memory', 0):.0f}\n")
        held = hold(mebibytes)
        time.sleep(0.4)
        return len(held)

    log = tmp_path / "log"
    # Two of them do not fit beside each other: one is stopped, and comes back with a reservation.
    refs = [need.remote(250, str(log)) for _ in range(2)]
    assert sooner.get(refs, timeout=120) == [250 * MIB] * 2
    reserved = [int(line) for line in log.read_text().split()]
    assert len(reserved) >= 3
    assert reserved[:2] == [0, 0]
    assert all(250 * MIB < amount <= LIMIT for amount in reserved[2:]), reserved


@sooner.remote(max_retries=0)
def fill(mebibytes: int, filled: str, end: str) -> bool:
    """Grows until it holds so much, and then waits for a file."""
    held = []
    while held_by(os.getpid()) < mebibytes:
        held.append(hold(2))
        time.sleep(0.01)
    Path(filled).touch()
    while not os.path.exists(end):
        time.sleep(0.01)
    return True


def held_by(pid: int) -> float:
    """What a process holds (MiB)."""
    with open(f"/proc/{pid}/status") as file:
        return int(re.search(r"RssAnon:\s+(\d+)", file.read()).group(1)) / 1024


def test_the_newest_goes_first(limited, tmp_path):
    sooner.init(num_cpus=2)
    filled, end, never = (str(tmp_path / name) for name in ("filled", "end", "never"))
    old = fill.remote(195, filled, end)
    poll("the first one holds its memory", lambda: os.path.exists(filled))
    # Together they reach the threshold of 380 MiB when this one holds a little less than the other.
    with pytest.raises(exceptions.OutOfMemoryError, match="which is not retried"):
        sooner.get(fill.remote(300, never, end), timeout=60)
    Path(end).touch()
    assert sooner.get(old, timeout=60)
    assert not os.path.exists(never)


def test_a_retriable_task_goes_before_a_larger_one_that_is_not_retried_and_actors_go_last(limited, tmp_path):
    session = sooner.init(num_cpus=3)
    path = str(tmp_path / "go")

    @sooner.remote
    class Keeper:
        def hold(self, mebibytes: int) -> int:
            self.held = hold(mebibytes)
            return os.getpid()

    keeper = Keeper.remote()
    pid = sooner.get(keeper.hold.remote(200), timeout=60)
    firm = stay.options(max_retries=0, name="firm", memory=200 * MIB).remote(100, path)
    soft = stay.options(max_retries=3, name="soft").remote(90, path)
    # The retriable one is the smallest and goes; it is tried again, and again, until there is room.
    log = Path(session["session_dir"], "logs", "node.log")

    def soft_was_stopped() -> bool:
        return log.exists() and re.search(r"\* [0-9a-f]{16}.* task soft", log.read_text()) is not None

    poll("the retriable task was stopped", soft_was_stopped)
    assert not sooner.wait([firm], timeout=0)[0]
    # One more that is not retried: it goes before the actor, and before the one that holds less than it
    # reserved.
    with pytest.raises(exceptions.OutOfMemoryError):
        sooner.get(grow.options(num_cpus=0).remote(4000), timeout=60)
    with open(path, "w"):
        pass
    assert sooner.get(firm, timeout=60) == 100 * MIB
    assert sooner.get(soft, timeout=60) == 90 * MIB
    assert sooner.get(keeper.hold.remote(1), timeout=60) == pid, "the actor was never stopped"


@pytest.mark.api("errors.memory")
def test_an_actor_goes_when_nobody_else_can(limited):
    sooner.init(num_cpus=1)

    @sooner.remote
    class Grower:
        def __init__(self) -> None:
            self.held = []

        def grow(self) -> None:
            while True:
                self.held.append(hold(20))
                time.sleep(0.01)

    with pytest.raises(exceptions.ActorDiedError, match=r"it was stopped because memory ran out: it held .* MiB"):
        sooner.get(Grower.remote().grow.remote(), timeout=60)
    assert sooner.get(grow.remote(20), timeout=60) == 1


def test_a_task_that_needs_more_than_there_is_ends_although_it_may_be_retried(limited):
    sooner.init(num_cpus=1)
    with pytest.raises(exceptions.OutOfMemoryError, match=r"it had reserved all the memory that can be reserved there"):
        sooner.get(grow.options(max_retries=-1).remote(4000), timeout=120)


def test_shared_memory_is_not_counted_against_workers(limited):
    numpy = pytest.importorskip("numpy")
    sooner.init(num_cpus=2, object_store_memory=2 * LIMIT)

    @sooner.remote(max_retries=0)
    def read(array) -> float:
        total = float(array.sum())
        time.sleep(0.6)
        return total

    # More than both workers may hold together, mapped by both.
    ref = sooner.put(numpy.ones(450 * MIB // 8))
    assert sooner.get([read.remote(ref), read.remote(ref)], timeout=60) == [450 * MIB / 8] * 2


@pytest.mark.parametrize("threshold", [0, 1.0])
def test_it_can_be_switched_off(limited, threshold):
    sooner.init(num_cpus=1, memory_usage_threshold=threshold)
    assert sooner.get(grow.remote(LIMIT // MIB + 60), timeout=60) == (LIMIT // MIB + 60) // 20


def test_the_environment_says_the_threshold_too(limited, monkeypatch):
    monkeypatch.setenv("SOONER_MEMORY_USAGE_THRESHOLD", "0.25")
    sooner.init(num_cpus=1)
    with pytest.raises(exceptions.OutOfMemoryError, match=r"workers are stopped from 100\.00 MiB on"):
        sooner.get(grow.remote(4000), timeout=60)


@pytest.mark.parametrize("wrong", [-0.1, 1.5, "95%", True, float("nan")])
def test_bad_thresholds(wrong):
    with pytest.raises(ValueError, match=r"memory_usage_threshold must be a number from 0 to 1"):
        sooner.init(memory_usage_threshold=wrong)


def test_bad_threshold_in_the_environment(monkeypatch):
    monkeypatch.setenv("SOONER_MEMORY_USAGE_THRESHOLD", "most")
    with pytest.raises(ValueError, match="SOONER_MEMORY_USAGE_THRESHOLD must be a number from 0 to 1, not 'most'"):
        sooner.init()


def test_peaks_are_in_the_summary_of_tasks(limited):
    session = sooner.init(num_cpus=1)

    @sooner.remote
    def large() -> int:
        held = hold(120)
        time.sleep(0.7)
        return len(held)

    @sooner.remote
    def small() -> None:
        time.sleep(0.7)

    sooner.get([large.remote(), small.remote()], timeout=60)
    summary = state.summarize_tasks()["summary"]
    [(name, row)] = [(name, row) for name, row in summary.items() if name.endswith("large")]
    assert 120 * MIB <= row["peak_memory_bytes"] < 220 * MIB
    [least] = [row["peak_memory_bytes"] for name, row in summary.items() if name.endswith("small")]
    assert 0 < least < row["peak_memory_bytes"]
    command = [sys.executable, "-m", "sooner", "summary", "tasks", "--address", session["session_dir"]]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert re.search(r"PEAK_MEMORY\s*$", printed.splitlines()[0])
    assert any(name in line and "MiB" in line for line in printed.splitlines())


def test_nothing_is_left_behind(limited):
    sooner.init(num_cpus=2)
    before = sooner.available_resources()
    refs = [grow.remote(4000) for _ in range(3)]
    for ref in refs:
        with pytest.raises(exceptions.OutOfMemoryError):
            sooner.get(ref, timeout=60)
    del refs, ref
    gc.collect()
    poll("all resources are free", lambda: sooner.available_resources() == before)
    poll("no object is left", lambda: not state.list_objects())


def test_what_the_machine_really_has_is_looked_at(capfd):
    # Any machine is fuller than that: a worker goes as soon as its end frees anything worth having.
    sooner.init(num_cpus=1, memory_usage_threshold=0.0001)
    try:
        assert sooner.get(grow.remote(20), timeout=60) == 1
        with pytest.raises(exceptions.OutOfMemoryError, match=r"of (this machine|the control group .*) were in use"):
            sooner.get(grow.remote(_megabytes_of_the_machine()), timeout=120)
        assert sooner.get(grow.remote(20), timeout=60) == 1
    finally:
        sooner.shutdown()
    assert capfd.readouterr().err.count("workers hold next to nothing of it") >= 1


def _megabytes_of_the_machine() -> int:
    """A tenth of it: more than is next to nothing, and less than would hurt."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 10 // MIB


def test_nodes_of_a_cluster_watch_theirs(limited):
    from sooner.cluster_utils import Cluster

    with Cluster(initialize_head=True, head_node_args={"num_cpus": 1}) as cluster:
        cluster.add_node(num_cpus=1, resources={"small": 1}, memory_usage_threshold=0.3)
        cluster.connect()
        with pytest.raises(exceptions.OutOfMemoryError, match=r"workers are stopped from 120\.00 MiB on"):
            sooner.get(grow.options(resources={"small": 1}).remote(4000), timeout=60)
        # The same is no trouble on the other node, whose threshold is another.
        assert sooner.get(grow.options(resources={"node:__internal_head__": 0.1}).remote(160), timeout=60) == 8
        assert len([node for node in sooner.nodes() if node["Alive"]]) == 2
        sooner.shutdown()


def test_a_bad_threshold_of_sooner_start():
    command = [sys.executable, "-m", "sooner", "start", "--head", "--memory-usage-threshold", "95"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert "memory_usage_threshold must be a number from 0 to 1, not 95.0" in done.stderr


def test_the_kernel_would_end_workers_first():
    def score():
        return int(Path("/proc/self/oom_score_adj").read_text())

    sooner.init(num_cpus=1)
    try:
        before = score()
        assert sooner.get(sooner.remote(score).remote(), timeout=60) == 1000
        assert score() == before < 1000, "the driver and its node are as they were"
    finally:
        sooner.shutdown()


# What fills memory in one call of the kernel, faster than anybody looks; it says that it will, and waits for
# a file.
FILLING = """
    import mmap, os, sys, time
    from pathlib import Path

    group, threshold, retries, directory = sys.argv[1:]
    Path(group, "cgroup.procs").write_text(str(os.getpid()))
    import sooner

    sooner.init(num_cpus=2, memory_usage_threshold=float(threshold), object_store_memory=50_000_000)

    def populate(mebibytes):
        Path(directory, "begun").touch()
        while not Path(directory, "go").exists():
            time.sleep(0.005)
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
        return len(mmap.mmap(-1, mebibytes << 20, flags=flags)) >> 20

    @sooner.remote(max_retries=int(retries))
    def fill(mebibytes):
        return populate(mebibytes)

    @sooner.remote
    class Filler:
        def fill(self, mebibytes):
            return populate(mebibytes)
"""


def _filled_before_the_node_looks(group: Path, directory: Path, rest: str) -> str:
    """What a program prints whose node is stopped while a worker fills all memory, until the kernel has
    ended that.
    """
    code = textwrap.dedent(FILLING) + textwrap.dedent(rest)
    with running_driver(code, group, 0.95, 0, directory) as driver:
        poll("a worker is about to fill the memory", (directory / "begun").exists)
        processes = children_of(driver.pid)
        stop(driver.pid)
        (directory / "go").touch()
        poll("the kernel ended it", lambda: kernel_kills(group) == 1)
        poll("its memory is free", lambda: not all(is_alive(pid) for pid in processes))
        driver.send_signal(signal.SIGCONT)
        return driver.communicate(timeout=100)[0]


def test_who_was_ended_by_the_kernel_has_run_out_of_memory(tmp_path):
    rest = """
    try:
        sooner.get(fill.remote(4000), timeout=60)
    except sooner.exceptions.OutOfMemoryError as error:
        print(error)
    print("then", sooner.get([fill.remote(20) for _ in range(4)], timeout=60))
    """
    with control_group(600 * MIB) as group:
        printed = _filled_before_the_node_looks(group, tmp_path, rest)
        assert kernel_kills(group) == 1
    first = printed.splitlines()[0]
    assert re.match(r"fill\(\) was stopped because memory ran out; its worker held \d+\.\d+ MiB, and", first), printed
    held = float(re.search(r"held ([\d.]+) MiB", first)[1])
    assert 300 < held < 600, printed
    assert "(memory_usage_threshold), but the kernel was faster." in printed
    assert "task fill, which is not retried" in printed
    assert printed.splitlines()[-1] == "then [20, 20, 20, 20]"


def test_an_actor_that_the_kernel_ended_says_so(tmp_path):
    rest = """
    filler = Filler.remote()
    try:
        sooner.get(filler.fill.remote(4000), timeout=60)
    except sooner.exceptions.ActorDiedError as error:
        print(error)
    """
    with control_group(600 * MIB) as group:
        printed = _filled_before_the_node_looks(group, tmp_path, rest)
    assert "the kernel ended it because memory ran out: it held about" in printed


def test_tasks_that_the_kernel_ends_take_turns(tmp_path):
    # Two of them at a time do not fit, and nobody said so: they reserve what they need once they were ended.
    rest = "print(sooner.get([fill.remote(300) for _ in range(8)], timeout=100))"
    (tmp_path / "go").touch()
    with control_group(600 * MIB) as group:
        done = run_driver(textwrap.dedent(FILLING) + rest, group, 0.9999, 3, tmp_path)
    assert done.stdout == f"{[300] * 8}\n"


def test_a_worker_that_somebody_else_kills_has_not_run_out_of_memory(tmp_path):
    rest = """
    @sooner.remote(max_retries=0)
    def end():
        os.kill(os.getpid(), 9)

    try:
        sooner.get(end.remote(), timeout=60)
    except sooner.exceptions.SoonerError as error:
        print(type(error).__name__)
    """
    with control_group(600 * MIB) as group:
        done = run_driver(textwrap.dedent(FILLING) + textwrap.dedent(rest), group, 0.95, 0, tmp_path)
    assert done.stdout == "WorkerCrashedError\n"
