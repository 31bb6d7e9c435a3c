"""What can happen to one node: killed and not reaped, stopped, without descriptors, with a wrong clock."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from support import WAIT, Node, cpu_seconds_of, is_alive, no_descriptors, poll, processes_of, run_command, stop

import sooner
from sooner.cluster_utils import Cluster
from sooner.exceptions import WorkerCrashedError

pytestmark = pytest.mark.chaos

LARGE = 3_000_000


@pytest.fixture
def cluster():
    """A head without CPUs, where this program is, and a node that has what is asked for."""
    with Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "health_timeout": 1}) as made:
        made.add_node(num_cpus=4)
        made.wait_for_nodes()
        with made.connect():
            yield made


@sooner.remote(max_retries=2)
def slowly(directory, number):
    (directory / f"{number}-{os.getpid()}").touch()
    # The first time it takes too long for anybody to wait.
    if len(list(directory.glob(f"{number}-*"))) == 1:
        time.sleep(600)
    return number


@sooner.remote(num_cpus=1)
def where(seconds):
    time.sleep(seconds)
    return os.getpid()


@sooner.remote
def large():
    return bytes(LARGE)


def listed(cluster):
    return {node["NodeID"] for node in sooner.nodes() if node["Alive"]}


def test_a_killed_node_is_gone_although_nobody_reaps_it(cluster, tmp_path):
    """As in a container whose first process does not: the daemon's process id stays."""
    (node,) = cluster.worker_nodes
    refs = [slowly.remote(tmp_path, 0), slowly.options(max_retries=0).remote(tmp_path, 1)]
    poll("both run", lambda: len(list(tmp_path.iterdir())) == 2)
    os.kill(node.pid, signal.SIGKILL)
    with pytest.raises(WorkerCrashedError):
        sooner.get(refs[1], timeout=WAIT)
    poll("it is gone for the cluster", lambda: node.node_id not in listed(cluster))
    poll("its processes end", lambda: not processes_of(node.pid))
    # Nobody has waited for it: a zombie.
    assert Path(f"/proc/{node.pid}").exists()
    cluster.add_node(num_cpus=1)
    assert sooner.get(refs[0], timeout=WAIT) == 0


def test_gets_on_a_node_that_stands_still_end_and_it_ends_itself(cluster, tmp_path):
    (node,) = cluster.worker_nodes
    refs = [slowly.remote(tmp_path, 0), slowly.options(max_retries=0).remote(tmp_path, 1)]
    value = large.options(max_retries=3).remote()
    sooner.wait([value], fetch_local=False)
    poll("both run", lambda: len(list(tmp_path.iterdir())) == 2)
    stop(node.pid)
    # Nobody has ended it: what waits there is given up by those who wait.
    with pytest.raises(WorkerCrashedError):
        sooner.get(refs[1], timeout=WAIT)
    cluster.add_node(num_cpus=4)
    assert sooner.get(refs[0], timeout=WAIT) == 0
    assert len(sooner.get(value, timeout=WAIT)) == LARGE
    assert is_alive(node.pid)
    os.kill(node.pid, signal.SIGCONT)
    _, status = os.waitpid(node.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 1
    poll("its processes end", lambda: not processes_of(node.pid))


def test_a_node_without_descriptors_goes_on_with_what_it_has(cluster):
    (node,) = cluster.worker_nodes
    warm = sooner.get(where.remote(0), timeout=WAIT)
    host, port = node.address.rsplit(":", 1)
    with contextlib.ExitStack() as waiting:
        with no_descriptors(node.pid):
            used, begin = cpu_seconds_of(node.pid), time.monotonic()
            for _ in range(10):
                stranger = waiting.enter_context(socket.socket())
                stranger.setblocking(False)
                stranger.connect_ex((host, int(port)))
                program = waiting.enter_context(socket.socket(socket.AF_UNIX))
                program.connect(f"{node.session_dir}/node.sock")
            # The worker that is there does all of it, and no further one can be started.
            assert set(sooner.get([where.remote(0.5) for _ in range(6)], timeout=WAIT)) == {warm}
            share = (cpu_seconds_of(node.pid) - used) / (time.monotonic() - begin)
            assert share < 0.5, "it spins"
            value = large.remote()
        assert len(sooner.get(value, timeout=WAIT)) == LARGE
        poll("it starts workers again", lambda: len(set(sooner.get([where.remote(0.2) for _ in range(4)]))) > 1)
    log = (Path(node.session_dir) / "logs" / "node.log").read_text()
    assert "no process could connect for" in log
    assert "Too many open files" in log
    assert node.node_id in listed(cluster)


CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long skew(void) { const char *text = getenv("CLOCK_SKEW"); return text ? atol(text) : 0; }

int clock_gettime(clockid_t clock, struct timespec *time) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
  int code = real(clock, time);
  if (!code && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) time->tv_sec += skew();
  return code;
}

int gettimeofday(struct timeval *time, void *zone) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  time->tv_sec = now.tv_sec;
  time->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
"""


@pytest.fixture(scope="module")
def clock(tmp_path_factory):
    """A library that shifts the wall clock of a process by CLOCK_SKEW seconds."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler (`cc`) to make a clock that is wrong with")
    directory = tmp_path_factory.mktemp("clock")
    (directory / "clock.c").write_text(CLOCK)
    library = directory / "clock.so"
    build = ["cc", "-shared", "-fPIC", "-o", str(library), str(directory / "clock.c"), "-ldl"]
    subprocess.run(build, check=True, capture_output=True)
    return str(library)


@pytest.fixture
def bases():
    # Short, because the paths of sockets are.
    made = [Path(f"/tmp/wt-clock-{os.getpid()}-{name}") for name in "hn"]
    for base in made:
        base.mkdir(mode=0o700)
    yield made
    for base in made:
        run_command("stop", "--force", base=base, check=None)
        shutil.rmtree(base)


@pytest.mark.parametrize("skew", [-86_400, 3_600, 86_400])
def test_a_wrong_clock_has_no_effect(skew, clock, bases, monkeypatch):
    """Certificates, heartbeats and what the head writes down do not depend on the time of day."""
    head = Node(bases[0], "--node-name=head")
    told = head.json("list", "nodes")[0]
    token = head.run("token").strip()
    monkeypatch.setenv("LD_PRELOAD", clock)
    monkeypatch.setenv("CLOCK_SKEW", str(skew))
    node = Node(bases[1], "--node-name=wrong", "--resources", '{"there": 1}', join=(told["address"], token))
    code = """
    import time, sooner
    sooner.init(namespace="clock")

    @sooner.remote
    def now():
        return time.time()

    @sooner.remote
    class Keeper:
        def now(self):
            return time.time()

    there = sooner.get(now.options(resources={"there": 1}).remote(), timeout=60)
    large = sooner.remote(lambda: bytes(3_000_000)).options(resources={"there": 1})
    assert len(sooner.get(large.remote())) == 3_000_000
    keeper = Keeper.options(name="keeper", lifetime="detached", resources={"there": 0.5}).remote()
    assert abs(sooner.get(keeper.now.remote()) - there) < 600
    print(there - time.time(), flush=True)
    """
    monkeypatch.delenv("LD_PRELOAD")
    assert abs(float(head.driver(code).stdout) - skew) < 600, "the clock there is wrong"
    # The head starts again with the other time: its records and its nodes are those it knew.
    os.kill(head.pid, signal.SIGKILL)
    poll("the first head is gone", lambda: not is_alive(head.pid))
    monkeypatch.setenv("LD_PRELOAD", clock)
    again = Node(bases[0], "--node-name=head")
    poll("the node is back", lambda: {row["node_name"] for row in again.json("list", "nodes")} == {"head", "wrong"})
    found = (
        "import sooner; sooner.init(namespace='clock'); print(sooner.get(sooner.get_actor('keeper').now.remote()) > 0)"
    )
    assert again.driver(found).stdout == "True\n"
    assert is_alive(node.pid)
