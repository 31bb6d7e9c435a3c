"""Several programs on one node: each has workers of its own, and its end is nobody else's."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from support import WAIT, children_of, is_alive, poll, run_driver, running_driver, stopped

import sooner

PIDS = """
import os, sys, time, sooner
sys.path.insert(0, sys.argv[1])
sooner.init()
@sooner.remote
def look():
    import which
    time.sleep(0.005)
    return which.NAME, os.getpid(), os.getcwd()
print("\\n".join(" ".join(map(str, found)) for found in sooner.get([look.remote() for _ in range(60)])))
"""

# Prints the processes of two tasks and an actor that wait for ever.
BUSY = """
import os, sys, time, sooner
sooner.init()
@sooner.remote
def pid():
    return os.getpid()
@sooner.remote(num_cpus=0)
def sleeps(path):
    open(os.path.join(path, str(os.getpid())), "w").close()
    time.sleep(1000)
@sooner.remote(num_cpus=0)
class Actor:
    def pid(self):
        return os.getpid()
path = sys.argv[1]
refs = [sleeps.remote(path) for _ in range(2)]
actor = Actor.remote()
big = sooner.put(bytes(4 << 20))
while len(os.listdir(path)) < 2:
    time.sleep(0.01)
print(*os.listdir(path), sooner.get(actor.pid.remote()), flush=True)
"""

WAITS = BUSY + "input()\n"


def test_jobs_with_different_paths_share_no_worker(node, tmp_path):
    outputs = []
    for name in ("left", "right"):
        place = tmp_path / name
        place.mkdir()
        (place / "which.py").write_text(f"NAME = {name!r}")
        outputs.append(node.driver(PIDS, place, cwd=place).stdout)
    seen = []
    for name, output in zip(("left", "right"), outputs, strict=True):
        rows = [line.split() for line in output.splitlines()]
        assert {row[0] for row in rows} == {name}
        assert {row[2] for row in rows} == {str(tmp_path / name)}
        seen.append({row[1] for row in rows})
    assert not seen[0] & seen[1]


def test_jobs_at_the_same_time_share_no_worker(node, tmp_path):
    import contextlib

    with contextlib.ExitStack() as stack:
        drivers = []
        for name in ("left", "right", "middle"):
            place = tmp_path / name
            place.mkdir()
            (place / "which.py").write_text(f"NAME = {name!r}")
            drivers.append((name, stack.enter_context(node.running_driver(PIDS, place))))
        pids = []
        for name, driver in drivers:
            rows = [line.split() for line in driver.communicate(timeout=WAIT)[0].splitlines()]
            assert driver.returncode == 0
            assert {row[0] for row in rows} == {name}
            pids += list({row[1] for row in rows})
        assert len(pids) == len(set(pids))


def test_the_end_of_a_driver_is_the_end_of_its_job(node):
    output = node.driver(
        """
        import os, sooner
        sooner.init()
        big = sooner.put(bytes(4 << 20))
        print(os.getpid(), *sooner.get([sooner.remote(os.getpid).remote() for _ in range(4)]))
        """
    ).stdout
    for pid in map(int, output.split()):
        assert not is_alive(pid)
    poll("only the node is left", lambda: node.processes() == {node.pid})
    assert node.json("list", "jobs") == []
    poll("its objects have ended", lambda: node.json("status")["object_store_used_bytes"] == 0)


def test_after_shutdown_nothing_is_left(node):
    node.driver(
        """
        import os, sooner
        sooner.init()
        @sooner.remote
        class Actor:
            def pid(self):
                return os.getpid()
        actor = Actor.remote()
        pids = sooner.get([sooner.remote(os.getpid).remote(), actor.pid.remote()])
        sooner.shutdown()
        for pid in pids:
            assert not os.path.exists(f"/proc/{pid}"), "a worker is left"
        sooner.init()
        assert sooner.get(sooner.remote(os.getpid).remote()) not in pids
        """
    )


def test_shutdown_waits_until_workers_are_reaped(node, tmp_path):
    """The process that forks them is stopped for a while: they have ended, and are not gone."""
    done = tmp_path / "done"
    with node.running_driver(
        """
        import os, sys, sooner
        sooner.init()
        @sooner.remote
        def pids():
            return os.getpid(), os.getppid()
        pid, template = sooner.get(pids.remote())
        print(pid, template, flush=True)
        sys.stdin.readline()
        sooner.shutdown()
        open(sys.argv[1], "w").close()
        assert not os.path.exists(f"/proc/{pid}"), "a worker is left"
        """,
        done,
    ) as driver:
        pid, template = map(int, driver.stdout.readline().split())
        with stopped(template):
            driver.stdin.write("\n")
            driver.stdin.flush()
            poll("the worker has ended", lambda: not is_alive(pid))
            time.sleep(0.2)
            assert not done.exists()
        assert driver.wait(WAIT) == 0


def test_what_a_session_started_is_reaped_by_it():
    """In a container, whose first process may reap nothing, it would be left for ever."""
    run_driver(
        """
        import ctypes, os, sooner, time
        PR_SET_CHILD_SUBREAPER = 36
        assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
        def sleep():
            time.sleep(60)
        for _ in range(10):
            sooner.init(num_cpus=2)
            sooner.get([sooner.remote(os.getpid).remote() for _ in range(4)])
            sleeping = [sooner.remote(sleep).remote() for _ in range(2)]
            sooner.shutdown()
            try:
                left = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                left = None
            assert left is None, left
        """
    )


def test_actors_leave_in_order_with_their_program(node, tmp_path):
    """As with a node of the program's own: clean-up hooks run, also of actors that tasks made."""
    node.driver(
        """
        import os, sys, sooner
        sooner.init()
        class Base:
            def __init__(self, path):
                self.path = path
            def ping(self):
                pass
            def __sooner_shutdown__(self):
                open(self.path, "w").close()
        @sooner.remote(num_cpus=0, max_restarts=-1)
        class Inner(Base):
            pass
        @sooner.remote(num_cpus=0, max_restarts=-1)
        class Actor(Base):
            def nested(self):
                self.inner = Inner.remote(self.path + "-inner")
                sooner.get(self.inner.ping.remote())
        actor = Actor.remote(sys.argv[1])
        sooner.get(actor.nested.remote())
        """,
        tmp_path / "outer",
    )
    assert sorted(os.listdir(tmp_path)) == ["outer", "outer-inner"]
    poll("only the node is left", lambda: node.processes() == {node.pid})


@pytest.mark.parametrize("end", ["kill", "exit"])
def test_one_driver_ends_and_the_other_goes_on(node, end, tmp_path):
    code = """
    import sys, sooner
    sooner.init()
    @sooner.remote(num_cpus=0)
    class Counter:
        def __init__(self):
            self.count = 0
        def add(self):
            self.count += 1
            return self.count
    @sooner.remote(max_retries=0)
    def square(x):
        return x * x
    counter = Counter.remote()
    number = 0
    print("begun", flush=True)
    while sys.stdin.readline() != "end\\n":
        for _ in range(20):
            assert sooner.get([square.remote(x) for x in range(100)]) == [x * x for x in range(100)]
            number += 1
            assert sooner.get(counter.add.remote()) == number
        print("fine", flush=True)
    """
    with node.running_driver(code) as living:
        assert living.stdout.readline() == "begun\n"
        with node.running_driver(WAITS, tmp_path) as dying:
            pids = list(map(int, dying.stdout.readline().split()))
            assert len(node.json("list", "jobs")) == 2
            living.stdin.write("go\n")
            living.stdin.flush()
            if end == "kill":
                dying.kill()
                dying.wait(WAIT)
            else:
                dying.communicate("\n", timeout=WAIT)
                assert dying.returncode == 0
            assert living.stdout.readline() == "fine\n"
            poll("its workers have ended", lambda: not any(map(is_alive, pids)))
        assert len(node.json("list", "jobs")) == 1
        living.stdin.write("go\n")
        living.stdin.flush()
        assert living.stdout.readline() == "fine\n"
        living.communicate("end\n", timeout=WAIT)
        assert living.returncode == 0
    poll("only the node is left", lambda: node.processes() == {node.pid})
    poll("its objects have ended", lambda: node.json("status")["object_store_used_bytes"] == 0)


def test_a_copy_of_a_driver_does_not_keep_its_job(node, tmp_path):
    """A process that a driver forked has copies of its sockets."""
    code = BUSY + "import signal; child = os.fork()\nif child == 0: time.sleep(1000)\nprint(child, flush=True); input()"
    with node.running_driver(code, tmp_path) as driver:
        pids = list(map(int, driver.stdout.readline().split()))
        child = int(driver.stdout.readline())
        try:
            driver.kill()
            poll("its workers have ended", lambda: not any(map(is_alive, pids)))
            assert is_alive(child)
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.api("actor.lifetime")
def test_a_detached_actor_outlives_its_job(node):
    node.driver(
        """
        import os, sooner
        sooner.init(namespace="shared")
        @sooner.remote
        class Store:
            def __init__(self, big):
                self.value = len(big)
            def set(self, value):
                self.value = value
            def get(self):
                return self.value, os.getpid()
            def nested(self):
                return sooner.get(sooner.remote(os.getpid).options(num_cpus=0).remote())
        big = sooner.put(bytes(1 << 20))
        store = Store.options(name="store", lifetime="detached", num_cpus=0, max_restarts=1).remote(big)
        other = Store.options(name="other", num_cpus=0).remote(b"")
        assert sooner.get(store.get.remote())[0] == 1 << 20
        sooner.get([store.set.remote(7), other.get.remote()])
        """
    )

    def living():
        return node.json("list", "actors", "--filter", "state=ALIVE")

    # The other one ends with its driver, which the node sees end.
    (actor,) = poll("one actor lives", lambda: len(found := living()) == 1 and found)
    assert actor["name"] == "store"
    (job,) = node.json("list", "jobs")
    assert (job["status"], job["namespace"]) == ("STOPPED", "shared")
    assert actor["job_id"] == job["job_id"]
    output = node.driver(
        """
        import os, signal, time, sooner
        sooner.init(namespace="shared")
        store = sooner.get_actor("store")
        try:
            sooner.get_actor("other")
        except ValueError:
            print("other is gone")
        value, pid = sooner.get(store.get.remote())
        assert sooner.get(store.nested.remote()) != os.getpid()
        os.kill(pid, signal.SIGKILL)
        # Its next process comes from the template of the job that has ended.
        while True:
            try:
                again = sooner.get(store.get.remote())
                break
            except sooner.exceptions.ActorUnavailableError:
                time.sleep(0.01)
        print(value, again[0])
        sooner.kill(store)
        """
    ).stdout
    assert output.split("\n")[:2] == ["other is gone", f"7 {1 << 20}"]
    poll("its job has ended", lambda: node.json("list", "jobs") == [])
    poll("only the node is left", lambda: node.processes() == {node.pid})


def test_names_are_found_in_their_namespace_only(node):
    code = """
    import sooner
    sooner.init(%s)
    @sooner.remote(num_cpus=0)
    class Actor:
        def ping(self):
            return 1
    sooner.get(Actor.options(name="same", lifetime="detached").remote().ping.remote())
    print(sooner.get_runtime_context().namespace)
    """
    spaces = {node.driver(code % arguments).stdout.strip() for arguments in ("", "", "namespace='mine'")}
    assert len(spaces) == 3
    assert "mine" in spaces
    assert 'exists in namespace "mine"' in node.driver(code % "namespace='mine'", check=False).stderr


def test_each_driver_sees_its_own_lines(node):
    code = """
    import sys, sooner
    sooner.init()
    name = sys.argv[1]
    @sooner.remote
    def shout(number, name):
        print(name, number)
        print(name, number, file=sys.stderr)
        return number
    sooner.get([shout.remote(number, name) for number in range(200)])
    """
    with node.running_driver(code, "left") as left, node.running_driver(code, "right") as right:
        outputs = {"left": left.communicate(timeout=WAIT)[0], "right": right.communicate(timeout=WAIT)[0]}
    for name, output in outputs.items():
        lines = [line.partition(") ")[2] for line in output.splitlines()]
        assert sorted(lines) == sorted(f"{name} {number}" for number in range(200)), name


def test_a_driver_that_shows_nothing_holds_up_its_own_workers_only(node, tmp_path):
    code = """
    import os, sys, sooner
    sooner.init()
    @sooner.remote(num_cpus=1)
    def prints():
        for number in range(400_000):
            print("x" * 40)
        return os.getpid()
    print("begun", flush=True)
    sooner.get(prints.remote())
    # One write: `print` writes the end of the line apart, and lines of the worker may come in between.
    sys.stdout.write("all\\n")
    """
    with node.running_driver(code) as full:
        assert full.stdout.readline() == "begun\n"
        # Nobody reads its output, so its pipe fills.
        poll("it prints", lambda: list((node.directory / "logs").glob("*.out")))
        done = node.driver("import sooner; sooner.init(); print(sooner.get(sooner.remote(lambda: 5).remote()))")
        assert done.stdout == "5\n"
        lines = full.communicate(timeout=WAIT)[0].splitlines()
        assert "all" in lines
        assert len(lines) == 400_001, "nothing is dropped"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_what_a_driver_prints_stays_whole_among_the_lines_of_its_workers(node, unbuffered):
    code = """
    import sys, sooner
    sooner.init()
    @sooner.remote(num_cpus=1)
    def prints():
        for number in range(40_000):
            print("x" * 40)
    sooner.get(prints.remote())
    for number in range(10_000):
        sys.stdout.write(f"own {number}\\n")
        sys.stdout.flush()
    """
    environment = node.environment | {"PYTHONUNBUFFERED": unbuffered}
    with running_driver(code, env=environment) as driver:
        output = bytearray()
        # Slower than it prints, so its pipe is full.
        while part := os.read(driver.stdout.fileno(), 4096):
            output += part
            time.sleep(0.0005)
    lines = output.decode().splitlines()
    assert [line for line in lines if "own" in line] == [f"own {number}" for number in range(10_000)]
    assert len(lines) == 50_000


def test_log_to_driver_can_be_switched_off(node):
    code = "import sooner; sooner.init(log_to_driver=False); sooner.get(sooner.remote(lambda: print('seen')).remote())"
    done = node.driver(code)
    assert done.stdout == ""


def test_a_preload_that_fails_is_told_to_its_driver(node):
    code = "import sooner; sooner.init(preload=['nowhere']); print(sooner.get(sooner.remote(lambda: 3).remote()))"
    done = node.driver(code)
    assert done.stdout == "3\n"
    assert "preload='nowhere' cannot be imported" in done.stderr


def test_a_job_whose_workers_cannot_start_ends(node, tmp_path):
    place = tmp_path / "gone"
    place.mkdir()
    done = node.driver(
        "import os, sooner; sooner.init(); os.rmdir(os.getcwd()); sooner.get(sooner.remote(lambda: 3).remote())",
        cwd=place,
        check=False,
    )
    assert done.returncode == 1
    assert f"its working directory {place} is not on this machine" in done.stderr
    assert node.json("health-check")["healthy"]


def test_drivers_share_the_resources(node, tmp_path):
    code = """
    import os, sys, time, sooner
    sooner.init()
    @sooner.remote
    def step(path):
        open(path, "a").write("x")
        time.sleep(0.005)
    print("begun", flush=True)
    input()
    sooner.get([step.remote(sys.argv[1]) for _ in range(400)])
    """
    first, second = tmp_path / "first", tmp_path / "second"
    with node.running_driver(code, first) as one, node.running_driver(code, second) as two:
        for driver in (one, two):
            driver.stdout.readline()
        for driver in (one, two):
            driver.stdin.write("\n")
            driver.stdin.flush()
        # The first one has asked for everything; the other one gets its turn before it is through. Or it is
        # the other way round.
        poll("the second one runs", lambda: second.exists() and second.stat().st_size > 20)
        assert not first.exists() or first.stat().st_size < 400 or second.stat().st_size > 200
        for driver in (one, two):
            driver.communicate(timeout=WAIT)
            assert driver.returncode == 0


@pytest.mark.api("init.address")
def test_a_driver_finds_the_node(node, monkeypatch, nothing_left):
    monkeypatch.setenv("SOONER_TMPDIR", str(node.base))
    for address in ("auto", str(node.directory), node.directory.name, None):
        if address is None:
            monkeypatch.setenv("SOONER_ADDRESS", str(node.directory))
        with sooner.init(address, namespace="n") as context:
            assert context.address_info["session_dir"] == str(node.directory)
            assert sooner.cluster_resources()["CPU"] == 2
            assert sooner.get(sooner.remote(os.getpid).remote()) not in children_of(os.getpid())
            (job,) = node.json("list", "jobs")
            assert job["driver_pid"] == os.getpid()
            assert job["job_id"] == sooner.get_runtime_context().get_job_id()
            tasks = node.json("list", "tasks")
            assert {row["job_id"] for row in tasks} == {job["job_id"]}
    assert node.json("list", "jobs") == []


def test_a_node_of_ones_own_is_not_touched_by_others(node, monkeypatch, nothing_left):
    monkeypatch.setenv("SOONER_TMPDIR", str(node.base))
    monkeypatch.delenv("SOONER_ADDRESS", raising=False)
    with sooner.init(num_cpus=1) as context:
        assert context.address_info["address"] == "local"
        assert Path(context["session_dir"]) != node.directory
        assert sooner.cluster_resources()["CPU"] == 1
    assert node.json("list", "jobs") == []


def test_a_signal_ends_a_question_to_a_node_that_does_not_answer(node):
    code = """
        import signal, sys
        import sooner

        sooner.init()

        class Rung(Exception):
            pass

        @sooner.remote
        class Single:
            pass

        def ring(*_):
            raise Rung

        signal.signal(signal.SIGALRM, ring)
        print("ready", flush=True)
        sys.stdin.readline()
        for ask in (
            lambda: sooner.get_actor("nobody"),
            sooner.available_resources,
            lambda: Single.options(name="mine", get_if_exists=True).remote(),
            lambda: Single.options(name="mine").remote(),
        ):
            signal.setitimer(signal.ITIMER_REAL, 0.5)
            try:
                ask()
            except Rung:
                print("rung", flush=True)
        """
    with node.running_driver(code) as program:
        assert program.stdout.readline() == "ready\n"
        with stopped(node.pid):
            program.stdin.write("\n")
            program.stdin.flush()
            assert [program.stdout.readline() for _ in range(4)] == ["rung\n"] * 4
