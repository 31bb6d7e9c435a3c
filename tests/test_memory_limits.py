"""Limits on the memory of single workers: who has one, what becomes of who goes beyond, and that nothing
is left.
"""

from __future__ import annotations

import gc
import mmap
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest
from control_groups import MOUNT, groups_of_nodes
from support import children_of, is_alive, poll, run_driver, running_driver, stop

import sooner
from sooner import exceptions, state

MIB = 1 << 20
STORE = 50 * MIB


def populate(mebibytes: int) -> int:
    """Takes so much memory in one call of the kernel, faster than any node looks."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    with mmap.mmap(-1, mebibytes * MIB, flags=flags) as held:
        return len(held) // MIB


def limit_of_this() -> tuple[int, int | None]:
    """This process, and the limit of the group of its own that it is in, if it is in one."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        below = MOUNT / "memory" if controllers == "memory" else MOUNT
        group = below / path.lstrip("/")
        for name in ("memory.limit_in_bytes", "memory.max"):
            if group.name.startswith("worker-") and (group / name).exists():
                text = (group / name).read_text().strip()
                return os.getpid(), None if text == "max" or int(text) > 1 << 60 else int(text)
    return os.getpid(), None


@pytest.fixture(scope="module")
def limits() -> None:
    """Skips where a node can limit nobody, or where a disk takes what is too much."""
    if len(Path("/proc/swaps").read_text().splitlines()) > 1:
        pytest.skip("this machine has swap space: what is beyond a limit goes there")
    session = sooner.init(num_cpus=1, worker_memory_limits="all", object_store_memory=STORE)
    try:
        _, limit = sooner.get(sooner.remote(limit_of_this).options(memory=MIB).remote(), timeout=60)
        log = Path(session["session_dir"], "logs", "node.log")
        why = log.read_text() if log.exists() else ""
    finally:
        sooner.shutdown()
    if limit is None:
        pytest.skip(f"no control groups can be made here: {why}")


@pytest.fixture
def session(limits):
    """Sessions with a small store."""

    def start(**options):
        return sooner.init(object_store_memory=STORE, **{"num_cpus": 1} | options)

    yield start
    sooner.shutdown()


@pytest.mark.api("errors.memory")
def test_a_task_that_needs_more_than_it_said_ends_with_its_result(session, tmp_path):
    started = session(num_cpus=2)

    @sooner.remote
    def neighbour(end: str) -> int:
        while not os.path.exists(end):
            time.sleep(0.01)
        return os.getpid()

    @sooner.remote(memory=100 * MIB)
    def need(mebibytes: int, log: str) -> int:
        with open(log, "a") as file:
            file.write(f"{sooner.get_runtime_context().get_assigned_resources()['memory']:.0f} {os.getpid()}\n")
        return populate(mebibytes)

    log, end = tmp_path / "log", tmp_path / "end"
    other = neighbour.remote(str(end))
    assert sooner.get(need.remote(700, str(log)), timeout=60) == 700
    begun = [[int(word) for word in line.split()] for line in log.read_text().splitlines()]
    assert begun[0][0] == 100 * MIB
    assert begun[1][0] > 1.5 * 200 * MIB, "half as much again as its limit was, and not as it said"
    assert begun[0][1] != begun[1][1]
    said = Path(started["session_dir"], "logs", "node.log").read_text()
    assert re.search(r"the kernel ended it because it took more memory than its limit of 2\d\d\.\d+ MiB", said), said
    end.touch()
    assert sooner.get(other, timeout=60) not in (begun[0][1], begun[1][1])
    rows = [row for row in state.list_workers(filters=[("is_alive", "=", "True")]) if row["pid"] == begun[0][1]]
    assert not rows


def test_a_limit_of_all_is_an_error_for_who_is_not_tried_again(session):
    session(worker_memory_limits="all")
    fill = sooner.remote(populate).options(memory=100 * MIB, max_retries=0)
    with pytest.raises(exceptions.OutOfMemoryError) as caught:
        sooner.get(fill.remote(700), timeout=60)
    text = str(caught.value)
    assert "populate() was ended because it took more memory than its limit of 2" in text
    assert "max_retries=0" in text
    assert "(worker_memory_limits)." in text
    assert re.search(r"^\* [0-9a-f]{16} +\d+ +2\d\d\.\d+ MiB +100\.00 MiB +task populate, which is not", text, re.M), (
        text
    )
    assert sooner.get(fill.remote(20), timeout=60) == 20


def test_a_limit_of_all_is_one_for_actors(session):
    session(worker_memory_limits="all")

    @sooner.remote(memory=100 * MIB)
    class Filler:
        def fill(self, mebibytes: int) -> int:
            return populate(mebibytes)

    filler = Filler.remote()
    assert sooner.get(filler.fill.remote(20), timeout=60) == 20
    with pytest.raises(
        exceptions.ActorDiedError, match=r"took more memory than its limit of .* it had reserved 100\.00 MiB"
    ):
        sooner.get(filler.fill.remote(700), timeout=60)


def test_without_a_retry_that_reserves_more_there_is_no_limit(session):
    session(num_cpus=2)
    look = sooner.remote(limit_of_this)

    @sooner.remote
    def parent():
        return sooner.get(look.options(memory=100 * MIB).remote())

    @sooner.remote(memory=100 * MIB)
    class Actor:
        def look(self):
            return limit_of_this()

    @sooner.remote(memory=100 * MIB)
    def given(references):
        return limit_of_this()

    alone = look.options(memory=100 * MIB, max_retries=0).remote()
    rest = [alone, parent.remote(), Actor.remote().look.remote(), given.remote([sooner.put(1)])]
    assert [limit for _, limit in sooner.get(rest, timeout=60)] == [None] * 4
    assert sooner.get(look.options(memory=100 * MIB).remote(), timeout=60)[1] is not None
    total = int(sooner.cluster_resources()["memory"])
    del rest
    gc.collect()
    assert sooner.get(look.options(memory=total).remote(), timeout=60)[1] is None, "it has all there is"


def test_a_retry_waits_for_nobody_who_never_ends(session):
    session(num_cpus=2)

    @sooner.remote
    class Holder:
        def ready(self) -> None:
            pass

    rest = int(sooner.cluster_resources()["memory"]) - 150 * MIB
    holder = Holder.options(memory=rest).remote()
    sooner.get(holder.ready.remote(), timeout=60)

    @sooner.remote(memory=100 * MIB)
    def need(mebibytes: int) -> float:
        populate(mebibytes)
        return sooner.get_runtime_context().get_assigned_resources()["memory"]

    # There is room on the machine, and nobody has reserved what is free of it.
    assert 100 * MIB < sooner.get(need.remote(700), timeout=60) <= 151 * MIB


def test_a_limit_follows_the_lease(session):
    session()
    look = sooner.remote(limit_of_this)
    seen = []
    for memory in (100 * MIB, 300 * MIB, 0, 200 * MIB):
        options = {"memory": memory} if memory else {}
        seen.append(sooner.get(look.options(**options).remote(), timeout=60))
    assert len({pid for pid, _ in seen}) == 1, "it is one worker"
    first, second, none, last = (limit for _, limit in seen)
    assert none is None
    for limit, reserved in ((first, 100), (second, 300), (last, 200)):
        # What it said, an eighth of that, 128 MiB, tables, and what the worker held already.
        assert 0 <= limit - (reserved * 9 / 8 + 128) * MIB < 60 * MIB, seen


def test_shared_memory_does_not_count(session):
    numpy = pytest.importorskip("numpy")
    sooner.init(num_cpus=1, object_store_memory=1200 * MIB, worker_memory_limits="all")

    @sooner.remote(memory=50 * MIB, max_retries=0)
    def read(array) -> float:
        return float(array[:: 4096 // 8].sum())

    @sooner.remote(memory=50 * MIB, max_retries=0)
    def write(rounds: int):
        # One at a time is what it takes itself.
        for number in range(rounds):
            yield numpy.full(40 * MIB // 8, float(number))

    ref = sooner.put(numpy.ones(500 * MIB // 8))
    assert sooner.get(read.remote(ref), timeout=60) == 500 * MIB / 4096
    refs = list(write.remote(12))
    assert [sooner.get(ref, timeout=60)[0] for ref in refs] == list(range(12))


def test_who_says_nothing_is_left_alone(session):
    started = session(worker_memory_limits="all")
    assert sooner.get(sooner.remote(limit_of_this).remote(), timeout=60)[1] is None
    assert not Path(started["session_dir"], "groups").exists()


@pytest.mark.parametrize("is_said", ["here", "in the environment"])
def test_it_can_be_switched_off(session, monkeypatch, is_said):
    if is_said == "here":
        session(worker_memory_limits="off")
    else:
        monkeypatch.setenv("SOONER_WORKER_MEMORY_LIMITS", "off")
        session()
    assert sooner.get(sooner.remote(limit_of_this).options(memory=MIB).remote(), timeout=60)[1] is None


def test_without_the_monitor_there_are_limits_nevertheless(session):
    session(worker_memory_limits="all", memory_usage_threshold=0)
    with pytest.raises(exceptions.OutOfMemoryError, match="more memory than its limit"):
        sooner.get(sooner.remote(populate).options(memory=MIB, max_retries=0).remote(700), timeout=60)


def test_who_is_killed_by_somebody_else_has_not_reached_a_limit(session):
    session(worker_memory_limits="all")

    @sooner.remote(max_retries=0, memory=MIB)
    def end():
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(exceptions.WorkerCrashedError):
        sooner.get(end.remote(), timeout=60)


def test_nodes_of_a_cluster_limit_theirs(limits):
    from sooner.cluster_utils import Cluster

    before = groups_of_nodes()
    with Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "worker_memory_limits": "off"}) as cluster:
        cluster.add_node(num_cpus=1, resources={"there": 1})
        cluster.connect()
        look = sooner.remote(limit_of_this).options(memory=MIB)
        there = look.options(resources={"there": 1})
        assert sooner.get(there.remote(), timeout=60)[1] is not None
        fill = sooner.remote(populate).options(memory=MIB, resources={"there": 1})
        assert sooner.get(fill.remote(400), timeout=60) == 400
        here = look.options(resources={"node:__internal_head__": 0.1})
        assert sooner.get(here.remote(), timeout=60)[1] is None
        own = {
            name
            for name in groups_of_nodes() - before
            if name.removeprefix("sooner-") == cluster.worker_nodes[0].node_id
        }
        assert own
        sooner.shutdown()
    # Its nodes were killed.
    assert not own & groups_of_nodes()


def test_nothing_is_left_after_the_end(session, tmp_path):
    before = groups_of_nodes()
    started = session(num_cpus=3, worker_memory_limits="all")

    @sooner.remote(memory=MIB)
    def leave(file: str) -> None:
        # It is of no process group of ours, and lives on.
        sleeper = subprocess.Popen(["sleep", "60"], start_new_session=True)
        Path(file).write_text(str(sleeper.pid))

    @sooner.remote(memory=MIB)
    class Actor:
        def look(self):
            return limit_of_this()

    actors = [Actor.remote() for _ in range(2)]
    assert all(limit for _, limit in sooner.get([actor.look.remote() for actor in actors], timeout=60))
    file = tmp_path / "pid"
    sooner.get(leave.remote(str(file)), timeout=60)
    own = groups_of_nodes() - before
    assert any(Path(started["session_dir"]).name.endswith(name.removeprefix("sooner-")) for name in own)
    sooner.kill(actors.pop())
    sooner.shutdown()
    try:
        assert is_alive(int(file.read_text())), "what a task left running is nobody's to end"
        assert not Path(started["session_dir"]).exists()
        assert not [
            name for name in own & groups_of_nodes() if started["session_dir"].endswith(name.removeprefix("sooner-"))
        ]
    finally:
        os.kill(int(file.read_text()), signal.SIGKILL)


LIMITED = """
    import os, sys, time
    import sooner

    session = sooner.init(num_cpus=2, worker_memory_limits="all", object_store_memory=50_000_000)

    @sooner.remote(memory=1 << 20)
    class Actor:
        def look(self):
            return os.getpid()

    actor = Actor.remote()
    print(session["session_dir"], sooner.get(actor.look.remote(), timeout=60), flush=True)
    time.sleep(60)
"""


@pytest.fixture
def base():
    """A directory of its own for sessions; short, because the path of a socket is."""
    with tempfile.TemporaryDirectory(prefix="sooner-t-", dir="/tmp") as directory:
        yield directory


@pytest.mark.chaos
def test_nothing_is_left_when_the_program_is_killed(limits, base):
    with running_driver(textwrap.dedent(LIMITED), env=os.environ | {"SOONER_TMPDIR": base}) as driver:
        directory, pid = driver.stdout.readline().split()
        name = "sooner-" + directory.rpartition("-")[2]
        assert name in groups_of_nodes()
        driver.kill()
        driver.wait()
        poll("its group is gone", lambda: name not in groups_of_nodes())
        poll("its directory is gone", lambda: not os.path.exists(directory))
        assert not is_alive(int(pid))


@pytest.mark.chaos
def test_what_is_left_when_all_are_killed_goes_with_the_next_start(limits, base):
    with running_driver(textwrap.dedent(LIMITED), env=os.environ | {"SOONER_TMPDIR": base}) as driver:
        directory, _ = driver.stdout.readline().split()
        name = "sooner-" + directory.rpartition("-")[2]
        processes = children_of(driver.pid)
        stop(driver.pid)
        for pid in processes:
            stop(pid)
        for pid in (*processes, driver.pid):
            os.kill(pid, signal.SIGKILL)
        driver.wait()
        poll("all are gone", lambda: not any(is_alive(pid) for pid in processes))
    assert name in groups_of_nodes()
    assert os.path.exists(directory)
    run_driver("import sooner; sooner.init(num_cpus=1)", env=os.environ | {"SOONER_TMPDIR": base})
    assert name not in groups_of_nodes()
    assert not os.path.exists(directory)


@pytest.mark.parametrize("wrong", ["on", "", True, 1])
def test_bad_limits(wrong):
    with pytest.raises(ValueError, match=r'worker_memory_limits must be "auto", "all" or "off", not'):
        sooner.init(worker_memory_limits=wrong)


def test_bad_limits_in_the_environment(monkeypatch):
    monkeypatch.setenv("SOONER_WORKER_MEMORY_LIMITS", "strict")
    with pytest.raises(ValueError, match='SOONER_WORKER_MEMORY_LIMITS must be "auto", "all" or "off", not \'strict\''):
        sooner.init()


def test_bad_limits_of_sooner_start():
    command = [sys.executable, "-m", "sooner", "start", "--head", "--worker-memory-limits", "on"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "invalid choice: 'on'" in done.stderr
