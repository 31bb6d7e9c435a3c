"""Programs whose actors and tasks run on nodes that the program is not connected to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
from clusters import cluster_of
from support import is_alive, poll, run_driver, running_driver

import sooner
from sooner.cluster_utils import Cluster

# Only the second node has it.
THERE = {"there": 0.01}

PROGRAM = """
import os, sys, sooner
sooner.init(address=sys.argv[1], namespace="x")

@sooner.remote(resources={"there": 0.01})
class Probe:
    def __init__(self, path):
        import json, mine
        found = {
            "pid": os.getpid(),
            "mine": mine.VALUE,
            "cwd": os.getcwd(),
            "path": sys.path,
            "node": sooner.get_runtime_context().get_node_id(),
            "namespace": sooner.get_runtime_context().namespace,
        }
        with open(path + ".part", "w") as file:
            json.dump(found, file)
        os.rename(path + ".part", path)
        print("hello from there")

    def ping(self):
        return os.getpid()
"""


@pytest.fixture
def cluster():
    with cluster_of(2, {"num_cpus": 2, "resources": {"there": 1}}) as made:
        yield made


@pytest.fixture
def place(tmp_path):
    """A directory with a module of the program's own."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "mine.py").write_text("VALUE = 42\n")
    return tmp_path


def run(cluster, place, rest, *arguments):
    """Runs a program at the head; its actors' processes run on the other node."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(place / "modules"), *_own_path()])}
    return run_driver(PROGRAM + rest, cluster.head_node.session_dir, *arguments, env=environment, cwd=place)


def _own_path():
    return [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]


def found(path):
    return json.loads(poll("the actor has begun", lambda: path.exists() and path.read_text()))


WAIT_FOR_FILE = """
import time
probe = Probe.remote(sys.argv[2])
while not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
"""


def test_workers_elsewhere_have_the_programs_modules_directory_and_namespace(cluster, place):
    path = place / "found"
    done = run(cluster, place, WAIT_FOR_FILE, path)
    assert done.returncode == 0, done.stderr
    row = found(path)
    (other,) = cluster.worker_nodes
    assert (row["mine"], row["node"], row["namespace"]) == (42, other.node_id, "x")
    assert row["cwd"] == str(place), "it is there, too"
    assert row["path"][0] == str(place) or str(place / "modules") in row["path"]


def test_lines_of_workers_elsewhere_are_shown_with_their_address(cluster, place):
    path = place / "found"
    done = run(cluster, place, WAIT_FOR_FILE + "time.sleep(1)\n", path)
    assert done.returncode == 0, done.stderr
    pid = found(path)["pid"]
    (line,) = [line for line in done.stdout.splitlines() if "hello from there" in line]
    assert line == f"(Probe pid={pid}, ip=127.0.0.1) hello from there"


def test_no_line_of_workers_elsewhere_is_lost_however_many_there_are(cluster):
    code = """
        import sys, sooner
        sooner.init(address=sys.argv[1])

        @sooner.remote(num_cpus=0, resources={"there": 0.1})
        def talk(lines):
            for number in range(lines):
                print("x" * 100, number)

        sooner.get([talk.remote(20_000) for _ in range(2)])
    """
    lines = run_driver(code, cluster.head_node.session_dir).stdout.splitlines()
    assert len(lines) == 40_000
    assert sum(line.endswith(f"{'x' * 100} 19999") for line in lines) == 2


def test_workers_elsewhere_end_with_their_program(cluster, place):
    path = place / "found"
    done = run(cluster, place, WAIT_FOR_FILE, path)
    assert done.returncode == 0, done.stderr
    pid = found(path)["pid"]
    poll("the actor's process is gone", lambda: not is_alive(pid))


def test_workers_elsewhere_end_when_their_program_is_killed(cluster, place):
    path = place / "found"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(place / "modules"), *_own_path()])}
    code = PROGRAM + WAIT_FOR_FILE + "time.sleep(600)\n"
    with running_driver(code, cluster.head_node.session_dir, path, env=environment, cwd=place) as program:
        pid = found(path)["pid"]
        assert is_alive(pid)
        os.kill(program.pid, signal.SIGKILL)
        poll("the actor's process is gone", lambda: not is_alive(pid))


def test_a_detached_actor_elsewhere_outlives_its_program(cluster, place):
    path = place / "found"
    rest = WAIT_FOR_FILE.replace("Probe.remote", 'Probe.options(name="p", lifetime="detached").remote')
    done = run(cluster, place, rest, path)
    assert done.returncode == 0, done.stderr
    row = found(path)
    with sooner.init(address=cluster.head_node.session_dir, namespace="x", log_to_driver=False):
        assert is_alive(row["pid"])
        sooner.kill(sooner.get_actor("p"))
        poll("the actor's process is gone", lambda: not is_alive(row["pid"]))


def test_a_module_that_is_not_there_is_named_with_the_error(cluster, place):
    (place / "modules" / "mine.py").write_text("import found_on_no_node")
    rest = """
try:
    sooner.get(Probe.remote(sys.argv[2]).ping.remote())
except sooner.exceptions.ActorDiedError as error:
    print(error)
"""
    done = run(cluster, place, rest, place / "found")
    assert "No module named 'found_on_no_node'" in done.stdout, (done.stdout, done.stderr)


def test_a_call_of_an_actor_elsewhere_is_answered(cluster, place):
    path = place / "found"
    done = run(cluster, place, "print('answer', sooner.get(Probe.remote(sys.argv[2]).ping.remote()))", path)
    assert f"answer {found(path)['pid']}" in done.stdout


@pytest.mark.api("nodes", "cluster_resources")
def test_a_program_sees_all_nodes_with_their_addresses(cluster):
    third = cluster.add_node(num_cpus=1, host="127.0.0.2")
    with cluster.connect():
        context = sooner.get_runtime_context()
        assert context.gcs_address == cluster.address
        rows = {row["NodeID"]: row for row in sooner.nodes()}
        assert rows[third.node_id]["NodeManagerAddress"] == "127.0.0.2"
        assert rows[third.node_id]["Resources"]["node:127.0.0.2"] == 1
        assert rows[context.get_node_id()]["Resources"]["CPU"] == 2, "its own, not those of all"
        total = sooner.cluster_resources()
        assert (total["CPU"], total["node:127.0.0.1"], total["node:127.0.0.2"]) == (5, 2, 1)


BARREN = """
import os
if os.environ.get("SOONER_TEST_BARREN"):
    os._exit(3)
"""

FRUSTRATED = """
import sys, sooner
sooner.init(address=sys.argv[1], preload=["barren"])

@sooner.remote(num_cpus=0, resources={"there": 0.01})
def bound():
    return 1

@sooner.remote(num_cpus=0, resources={"there": 0.01})
class Bound:
    def ping(self):
        return 1

@sooner.remote
def anywhere():
    return sooner.get_runtime_context().get_node_id()

@sooner.remote(num_cpus=0, scheduling_strategy="SPREAD")
class Spread:
    def place(self):
        return sooner.get_runtime_context().get_node_id()

spread = [Spread.remote() for _ in range(4)]
places = set(sooner.get([actor.place.remote() for actor in spread], timeout=90))
try:
    sooner.get(bound.remote(), timeout=90)
except sooner.exceptions.TaskUnschedulableError as error:
    print("task:", error)
try:
    sooner.get(Bound.remote().ping.remote(), timeout=90)
except sooner.exceptions.ActorDiedError as error:
    print("actor:", error)
here = sooner.get_runtime_context().get_node_id()
print("spread:", places == {here})
print("elsewhere:", set(sooner.get([anywhere.remote() for _ in range(50)], timeout=90)) == {here})
"""


@pytest.fixture
def barren(place, monkeypatch):
    """A cluster whose second node cannot begin the template of a program that preloads `barren`."""
    (place / "modules" / "barren.py").write_text(BARREN)
    with Cluster(initialize_head=True, head_node_args={"num_cpus": 1}) as made:
        with monkeypatch.context() as there:
            there.setenv("SOONER_TEST_BARREN", "1")
            made.add_node(num_cpus=4, resources={"there": 1})
        made.wait_for_nodes()
        yield made


def test_what_a_node_cannot_start_workers_for_is_refused_with_the_reason(barren, place):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(place / "modules"), *_own_path()])}
    done = run_driver(FRUSTRATED, barren.head_node.session_dir, env=environment, cwd=place)
    assert done.returncode == 0, (done.stdout, done.stderr)
    said = dict(line.split(":", 1) for line in done.stdout.splitlines() if ":" in line)
    for who in ("task", "actor"):
        assert "no more workers can be started" in said[who], (done.stdout, done.stderr)
    assert (said["elsewhere"], said["spread"]) == (" True", " True"), (done.stdout, done.stderr)
    assert "no more workers can be started" in done.stderr, "it is said once where it happens, too"


@pytest.mark.parametrize(
    ("flags", "environment"),
    [
        ([], {}),
        (["-O"], {}),
        (["-OO", "-B", "-b"], {}),
        (["-X", "dev", "-X", "tracemalloc=3"], {}),
        (["-W", "error::UserWarning", "-X", "utf8=1"], {}),
        (["-I"], {}),
        ([], {"PYTHONOPTIMIZE": "2", "PYTHONWARNINGS": "ignore", "PYTHONDEVMODE": "1"}),
    ],
    ids=lambda given: " ".join(given) or "none",
)
def test_workers_elsewhere_have_the_flags_of_the_program(flags, environment, cluster, tmp_path):
    (tmp_path / "program.py").write_text(
        f"""
import sys
sys.path[:0] = {[entry for entry in sys.path if entry]!r}
import sooner

@sooner.remote(resources={{"there": 0.01}})
def look():
    options = {{name: value for name, value in sys._xoptions.items() if name != "utf8"}}
    return tuple(sys.flags), sys.warnoptions, options, __debug__

@sooner.remote(resources={{"there": 0.01}})
def runs():
    assert False

sooner.init(address={cluster.head_node.session_dir!r})
found, own = sooner.get(look.remote()), look._function()
if sys.flags.dev_mode and not sys._xoptions.get("dev"):
    # The environment has said it.
    own[2]["dev"] = True
assert found == own, (found, own)
try:
    sooner.get(runs.remote())
except AssertionError:
    assert __debug__
else:
    assert not __debug__
"""
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [sys.executable, *flags, tmp_path / "program.py"],
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_flag_that_the_interpreter_elsewhere_does_not_know_is_named_once(capsys):
    from sooner._engine.template import _flags_of

    known = _flags_of("optimize=2,quiet=1,dev_mode=1")
    names = dict(zip(type(sys.flags).__match_args__, known, strict=True))
    assert (names["optimize"], names["quiet"], names["dev_mode"]) == (2, 1, True)
    assert capsys.readouterr().err == ""
    assert len(_flags_of("optimize=1,of_a_later_version=3,off_there=0")) == len(known)
    said = capsys.readouterr().err
    assert said.count("of_a_later_version") == 1
    assert "off_there" not in said
