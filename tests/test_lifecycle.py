"""Beginning and end: everything ends with the driver, however that ends; what dies alone is replaced."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from support import (
    WAIT,
    Footprint,
    children_of,
    descriptors_of,
    is_alive,
    memfds_of,
    poll,
    run_driver,
    running_driver,
    stop,
    templates_of,
    threads_of,
)

import sooner

HEAD = """
import atexit, gc, os, signal, subprocess, sys, threading, time
from pathlib import Path
import sooner

@sooner.remote
def identity(x):
    return x

@sooner.remote
def sleeps():
    time.sleep(1000)

@sooner.remote
def spins():
    while True:
        pass

@sooner.remote
class Actor:
    def pid(self):
        return os.getpid()
    def sleep(self):
        time.sleep(1000)

def get(refs):
    return sooner.get(refs, timeout=100)
"""

READY = """
print(context["session_dir"], flush=True)
time.sleep(1000)
"""

# What a driver is doing when it is killed.
DOING = {
    "nothing": "",
    "tasks": "refs = [f.remote() for f in (sleeps, spins) for _ in range(5)]; get(identity.options(num_cpus=0).remote(1))",  # noqa: E501
    "actors": "actors = [Actor.remote() for _ in range(5)]; get([a.pid.remote() for a in actors])\n"
    "refs = [a.sleep.remote() for a in actors]",
    "objects": "big = sooner.put(b'x' * (64 << 20)); view = get(big); get(identity.remote(big))",
    "nested": """
@sooner.remote
def nest(depth):
    return sooner.get(nest.remote(depth - 1)) if depth else time.sleep(1000)
ref = nest.remote(5)
time.sleep(0.2)
""",
    "get": """
threading.Timer(0.2, lambda: print(context['session_dir'], flush=True)).start()
sooner.get(sleeps.remote())
""",
    "printing": """
@sooner.remote
def prints():
    while True:
        print("x" * 100, file=sys.stderr)
sys.stderr = None
ref = prints.remote()
time.sleep(0.2)
""",
    "stopped worker": """
actor = Actor.remote()
os.kill(get(actor.pid.remote()), signal.SIGSTOP)
""",
}


def assert_gone(pids, directory=None):
    """No process, no socket, no directory."""
    poll(f"processes {pids} are gone", lambda: not any(map(is_alive, pids)))
    if directory is not None:
        poll("no socket is left", lambda: str(directory) not in Path("/proc/net/unix").read_text())
        poll("the directory is gone", lambda: not Path(directory).exists())


@pytest.mark.api("failure.driver")
@pytest.mark.chaos
@pytest.mark.parametrize("doing", DOING)
def test_nothing_is_left_of_a_driver_that_is_killed(doing):
    with running_driver(HEAD + "context = sooner.init(num_cpus=2)\n" + DOING[doing] + READY) as driver:
        directory = Path(driver.stdout.readline().strip())
        assert directory.is_dir()
        pids = children_of(driver.pid)
        assert pids
        assert not any("/dev/shm" in link for pid in (driver.pid, *pids) for link in descriptors_of(pid))
        driver.kill()
        driver.wait()
        assert_gone(pids, directory)


@pytest.mark.api("failure.driver")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGABRT], ids=str)
def test_nothing_is_left_of_a_driver_that_ends_by_a_signal(number):
    code = HEAD + "context = sooner.init(num_cpus=2); refs = [sleeps.remote() for _ in range(3)]" + READY
    with running_driver("import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n" + code) as driver:
        directory = Path(driver.stdout.readline().strip())
        pids = children_of(driver.pid)
        driver.send_signal(number)
        driver.wait()
        assert_gone(pids, directory)


@pytest.mark.chaos
def test_a_stale_directory_is_removed_by_the_next_start(short_dir):
    """Driver and template are killed at once: nobody is there to clean up."""
    env = os.environ | {"SOONER_TMPDIR": str(short_dir)}
    code = HEAD + "context = sooner.init(num_cpus=1); get(identity.remote(1))" + READY
    with running_driver(code, env=env) as driver:
        directory = Path(driver.stdout.readline().strip())
        pids = children_of(driver.pid)
        for pid in (driver.pid, *pids):
            stop(pid)
        for pid in (*pids, driver.pid):
            os.kill(pid, signal.SIGKILL)
        driver.wait()
        assert_gone(pids)
    run_driver(HEAD + "sooner.init(num_cpus=1); get(identity.remote(1)); sooner.shutdown()", env=env)
    assert not directory.exists()
    assert not list(short_dir.rglob("session-*"))


def test_two_drivers_at_once(short_dir):
    """Each has its own session; the end of one, and the start of another, leaves the other alone."""
    env = os.environ | {"SOONER_TMPDIR": str(short_dir)}
    serve = """
context = sooner.init(num_cpus=1)
held = sooner.put(b"z" * (1 << 20))
print(context["session_dir"], flush=True)
for line in sys.stdin:
    print(get(identity.remote(line.strip())), len(get(held)), flush=True)
"""

    def ask(driver, what):
        driver.stdin.write(f"{what}\n")
        driver.stdin.flush()
        return driver.stdout.readline()

    with running_driver(HEAD + serve, env=env) as one, running_driver(HEAD + serve, env=env) as two:
        directories = {driver.stdout.readline() for driver in (one, two)}
        assert len(directories) == 2
        assert [ask(one, "a"), ask(two, "b")] == [f"a {1 << 20}\n", f"b {1 << 20}\n"]
        one.kill()
        one.wait()
        run_driver(HEAD + "sooner.init(num_cpus=1); get(identity.remote(1)); sooner.shutdown()", env=env)
        assert ask(two, "c") == f"c {1 << 20}\n"


@pytest.mark.api("shutdown", "failure.driver")
@pytest.mark.parametrize(
    ("ending", "status"),
    [
        ("", 0),
        ("sys.exit(3)", 3),
        ("raise KeyError('by design')", 1),
        ("os._exit(4)", 4),
        ("sooner.shutdown()", 0),
        ("threading.Thread(target=lambda: (time.sleep(0.2), get(quick.remote(1)))).start()", 0),
        ("threading.Thread(target=lambda: ended(sooner.get, refs), daemon=True).start(); time.sleep(0.1)", 0),
        ("atexit.register(lambda: print('late', sooner.is_initialized()))", 0),
        ("keep = [sooner.put(b'x' * (1 << 20)), actor, refs]; view = get(keep[0])", 0),
        ("cycle = [sooner.put(1)]; cycle.append(cycle); del refs, actor", 0),
    ],
)
def test_ways_a_driver_ends(ending, status, short_dir):
    code = (
        HEAD
        + "sooner.init(num_cpus=2); refs = [sleeps.remote() for _ in range(5)]\n"
        + "actor = Actor.remote(); pid = get(actor.pid.remote()); print(pid, flush=True)\n"
        + "quick = identity.options(num_cpus=0)\n"
        + "def ended(verb, *args):\n    try:\n        verb(*args)\n    except Exception:\n        pass\n"
        + ending
    )
    done = run_driver(code, check=False, env=os.environ | {"SOONER_TMPDIR": str(short_dir)})
    assert done.returncode == status, done.stderr
    assert_gone([int(done.stdout.split()[0])])
    poll("no directory is left", lambda: not list(short_dir.rglob("session-*")))
    if "KeyError" not in ending:
        assert done.stderr == ""


@pytest.mark.api("shutdown", "failure.driver")
@pytest.mark.parametrize("_run", range(4))
def test_daemon_threads_that_call_sooner_until_the_end(_run):
    done = run_driver(
        HEAD
        + """
class Python:
    def __reduce__(self):
        for _ in range(200):  # the interpreter hands the GIL over in here
            threading.get_ident()
        return Python, ()

def without_end():
    while True:
        try:
            get(identity.remote(get(sooner.put(Python()))))
        except Exception:
            pass

sooner.init(num_cpus=1)
sys.setswitchinterval(1e-5)
for _ in range(4):
    threading.Thread(target=without_end, daemon=True).start()
time.sleep(0.1)
"""
    )
    assert done.stderr == ""


def test_exit_handlers_of_the_program_may_still_use_sooner():
    done = run_driver(
        HEAD
        + """
sooner.init(num_cpus=1)
atexit.register(lambda: print("late", get(identity.remote(1))))
"""
    )
    assert done.stdout == "late 1\n"


def template_of(pid):
    (template,) = templates_of(pid)
    return template


@pytest.mark.chaos
def test_work_goes_on_when_the_template_is_killed(sooner_session):
    @sooner.remote
    class Keeper:
        def __init__(self):
            self.value = "kept"

        def read(self):
            return self.value

    @sooner.remote
    def identity(x):
        return x

    keeper = Keeper.remote()
    assert sooner.get(keeper.read.remote(), timeout=WAIT) == "kept"
    template = template_of(os.getpid())
    for _ in range(3):
        os.kill(template, signal.SIGKILL)
        # Workers that live go on; new ones come from a new template.
        assert sooner.get(keeper.read.remote(), timeout=WAIT) == "kept"
        actors = [Keeper.remote() for _ in range(3)]
        assert sooner.get([actor.read.remote() for actor in actors], timeout=WAIT) == ["kept"] * 3
        assert sooner.get([identity.remote(n) for n in range(20)], timeout=WAIT) == list(range(20))
        template = template_of(os.getpid())


def test_a_warning_that_nobody_can_read_ends_nothing():
    """The node, which is a thread of the program, says that workers could not be started; the disk behind
    is full.
    """
    with Path("/dev/full").open("w") as full:
        done = run_driver(
            HEAD
            + """
sooner.init(num_cpus=1)
worker = sooner.get(Actor.remote().pid.remote())
template = int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1])
os.kill(template, signal.SIGSTOP)
late = [Actor.remote() for _ in range(3)]
time.sleep(0.2)
os.kill(template, signal.SIGKILL)
print(len(set(sooner.get([actor.pid.remote() for actor in late], timeout=60))))
""",
            stdout=subprocess.PIPE,
            stderr=full,
            capture_output=False,
        )
    assert done.stdout == "3\n"


@pytest.mark.chaos
def test_idle_workers_that_are_killed_are_replaced(sooner_session):
    @sooner.remote
    def pid():
        return os.getpid()

    for _ in range(10):
        victims = set(sooner.get([pid.remote() for _ in range(10)], timeout=WAIT))
        for victim in victims:
            os.kill(victim, signal.SIGKILL)
        assert not victims & set(sooner.get([pid.remote() for _ in range(10)], timeout=WAIT))


@pytest.mark.api("shutdown")
def test_shutdown_with_work_in_flight(nothing_left):
    """Running and queued tasks, actors, streams of results, a thread in `get`: all end, and a new session
    works.
    """

    @sooner.remote
    def sleeps():
        time.sleep(10 * WAIT)

    @sooner.remote
    def identity(x):
        return x

    @sooner.remote
    class Sleeper:
        def sleep(self):
            time.sleep(10 * WAIT)

    for round_number in range(3):
        nothing_left.append(sooner.init(num_cpus=2)["session_dir"])
        actors = [Sleeper.remote() for _ in range(3)]
        refs = [actor.sleep.remote() for actor in actors]
        refs += [sleeps.remote() for _ in range(20)]
        refs += [identity.remote(n) for n in range(1000)]
        refs += [sooner.put(b"x" * (1 << 20))]
        if round_number:
            sooner.wait(refs, timeout=0.1)
        sooner.shutdown()
        for ref in (refs[0], refs[-1], refs[500]):
            with pytest.raises(ValueError, match="session"):
                sooner.get(ref, timeout=WAIT)
        del ref, refs, actors


def test_a_thread_that_waits_is_released_by_shutdown():
    done = run_driver(
        HEAD
        + """
sooner.init(num_cpus=1)
ref = sleeps.remote()
outcome = []
def wait(verb):
    try:
        outcome.append(verb())
    except Exception as error:
        outcome.append(error)
verbs = [lambda: sooner.get(ref), lambda: sooner.get([ref]), lambda: sooner.wait([ref]), lambda: ref.future().result()]
threads = [threading.Thread(target=wait, args=(verb,)) for verb in verbs]
for thread in threads:
    thread.start()
time.sleep(0.3)
sooner.shutdown()
for thread in threads:
    thread.join(15)
if any(thread.is_alive() for thread in threads):
    print("still waiting:", [n for n, thread in enumerate(threads) if thread.is_alive()], outcome, flush=True)
    os._exit(1)
assert all(isinstance(one, Exception) for one in outcome), outcome
print("released")
"""
    )
    assert done.stdout == "released\n"


def test_shutdown_from_another_thread_and_from_several():
    done = run_driver(
        HEAD
        + """
sooner.init(num_cpus=1)
get(identity.remote(1))
threads = [threading.Thread(target=sooner.shutdown) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(60)
assert not sooner.is_initialized()
sooner.init(num_cpus=1)
print(get(identity.remote(2)))
"""
    )
    assert done.stdout == "2\n"


def test_init_in_another_thread():
    done = run_driver(
        HEAD
        + """
thread = threading.Thread(target=sooner.init, kwargs={"num_cpus": 1})
thread.start()
thread.join()
print(get(identity.remote(1)))
"""
    )
    assert done.stdout == "1\n"


def test_what_is_kept_of_an_ended_session_holds_no_descriptors():
    """References, handles and views may live on; a view keeps its memory and nothing else."""
    done = run_driver(
        HEAD
        + """
kept = []
counts = []
for n in range(4):
    sooner.init(num_cpus=1)
    ref = sooner.put(bytes([n]) * (1 << 20))
    import numpy
    view = get(sooner.put(numpy.full(1 << 20, n, dtype=numpy.uint8)))
    kept.append((ref, view, Actor.remote(), identity.remote(1)))
    sooner.shutdown()
    gc.collect()
    counts.append(len(os.listdir("/proc/self/fd")))
assert all((view == n).all() for n, (_, view, _, _) in enumerate(kept))
print(counts[0] == counts[-1], counts)
"""
    )
    assert done.stdout.startswith("True"), done.stdout


def test_memory_of_an_ended_session_is_given_back(nothing_left):
    nothing_left.append(sooner.init(num_cpus=1)["session_dir"])
    ref = sooner.put(b"x" * (1 << 20))
    sooner.get(ref)
    del ref
    sooner.shutdown()
    assert not memfds_of(os.getpid())


def test_a_task_whose_child_process_lives_on():
    """A process that a task has started does not outlive the session."""
    done = run_driver(
        HEAD
        + """
@sooner.remote
def starts():
    return subprocess.Popen(["sleep", "1000"]).pid
@sooner.remote
class Starts:
    def __init__(self):
        self.child = subprocess.Popen(["sleep", "1000"])
    def pid(self):
        return self.child.pid
sooner.init(num_cpus=1)
starter = Starts.remote()
print(get(starts.remote()), get(starter.pid.remote()))
sooner.shutdown()
"""
    )
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 2
    try:
        assert_gone(pids)
    finally:
        for pid in filter(is_alive, pids):
            os.kill(pid, signal.SIGKILL)


def test_a_program_that_ends_flushes_its_files(tmp_path):
    """Remote functions and classes keep nothing of the user's module alive: its open files are written and
    closed.
    """
    file = tmp_path / "file"
    run_driver(
        """
        import sys, sooner
        file = open(sys.argv[1], "w")
        file.write("written")
        @sooner.remote
        def f(x):
            return file and x
        @sooner.remote
        class Sync:
            def f(self):
                return 1
        @sooner.remote
        class Async:
            async def f(self):
                return 1
        g = f.options(num_cpus=0.5)
        sooner.init(num_cpus=2)
        sync, parallel = Sync.remote(), Async.options(name="parallel").remote()
        sooner.get([sync.f.remote(), parallel.f.remote(), Sync.options(num_cpus=0).remote().f.remote()])
        # Cannot be pickled, since it refers to the file.
        try:
            sooner.get(g.remote(1))
        except TypeError:
            refused = True
        """,
        file,
    )
    assert file.read_text() == "written"


@pytest.mark.chaos
def test_shutdown_ends_the_session_although_a_forked_child_lives():
    """The child has copies of the driver's descriptors; `shutdown` does not wait for them to be closed."""
    code = (
        HEAD
        + """
context = sooner.init(num_cpus=1)
actor = Actor.remote()
print(context["session_dir"], get(actor.pid.remote()), end=" ", flush=True)
pid = os.fork()
if pid == 0:
    time.sleep(1000)
sooner.shutdown()
print(pid, flush=True)
time.sleep(1000)
"""
    )
    with running_driver(code) as driver:
        directory, actor, child = driver.stdout.readline().split()
        try:
            assert_gone([int(actor)], directory)
        finally:
            os.kill(int(child), signal.SIGKILL)


@pytest.mark.chaos
def test_a_forked_child_of_the_driver_does_not_keep_the_session():
    """The child has copies of the driver's descriptors; the end of the driver is the end of the session."""
    code = (
        HEAD
        + """
context = sooner.init(num_cpus=1)
actor = Actor.remote()
print(context["session_dir"], get(actor.pid.remote()), end=" ", flush=True)
pid = os.fork()
if pid == 0:
    time.sleep(1000)
print(pid, flush=True)
time.sleep(1000)
"""
    )
    with running_driver(code) as driver:
        directory, actor, child = driver.stdout.readline().split()
        driver.kill()
        try:
            assert_gone([int(actor)], directory)
        finally:
            os.kill(int(child), signal.SIGKILL)


def test_a_forked_child_that_exits_leaves_the_session_alone():
    """Also one that runs the exit handlers, or collects the references it has copies of."""
    done = run_driver(
        HEAD
        + """
sooner.init(num_cpus=1)
refs = [sooner.put(n) for n in range(3)] + [identity.remote(b"x" * (1 << 20))]
actor = Actor.remote()
before = get(actor.pid.remote())
get(refs)
for ending in (sys.exit, lambda: os._exit(0), lambda: sooner.shutdown(), lambda: (refs.clear(), gc.collect())):
    pid = os.fork()
    if pid == 0:
        try:
            ending()
        finally:
            sys.stdout.flush()
            atexit._run_exitfuncs()
            os._exit(0)
    os.waitpid(pid, 0)
    assert get(refs)[:3] == [0, 1, 2] and len(get(refs[3])) == 1 << 20
    assert get(actor.pid.remote()) == before
    assert get(identity.remote(5)) == 5
print("unharmed")
"""
    )
    assert done.stdout == "unharmed\n"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_beside_sooner(method, tmp_path):
    """A pool of the standard library works while a session runs, and its processes can have sessions of
    their own.
    """
    script = tmp_path / "script.py"
    script.write_text(
        f"""
import multiprocessing
import sooner

@sooner.remote
def double(x):
    return 2 * x

def plain(x):
    return x + 1

def own_session(x):
    with sooner.init(num_cpus=1):
        return sooner.get(double.remote(x), timeout=100)

if __name__ == "__main__":
    sooner.init(num_cpus=1)
    assert sooner.get(double.remote(1), timeout=100) == 2
    with multiprocessing.get_context({method!r}).Pool(2) as pool:
        assert pool.map(plain, range(10)) == list(range(1, 11))
        assert pool.map(own_session, [5, 6], chunksize=1) == [10, 12]
    assert sooner.get(double.remote(2), timeout=100) == 4
    print("fine")
"""
    )
    done = run_driver(
        "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')", script
    )
    assert done.stdout == "fine\n"


def test_standard_streams_that_are_closed(tmp_path):
    """Descriptors 0 to 2 are free: the session must not put its own there."""
    result = tmp_path / "result"
    code = (
        HEAD
        + """
sooner.init(num_cpus=1)
@sooner.remote
def prints():
    print("to nobody")
    os.write(1, b"to nobody")
    return "well"
answer = get([prints.remote(), identity.remote(1)])
os.write(2, b"garbage for whoever is descriptor 2") if len(sys.argv) > 2 else None
sooner.shutdown()
Path(sys.argv[1]).write_text(repr(answer))
"""
    )

    def close_all():
        for descriptor in range(3):
            os.close(descriptor)

    import subprocess
    import sys

    done = subprocess.run([sys.executable, "-c", code, result], preexec_fn=close_all, check=False, timeout=100)
    assert done.returncode == 0
    assert result.read_text() == "['well', 1]"


def test_an_idle_session_is_small():
    """At most 12 threads beside the driver's own, all processes together."""
    code = HEAD + "context = sooner.init(num_cpus=2); get([identity.remote(n) for n in range(10)])" + READY
    with running_driver(code) as driver:
        driver.stdout.readline()
        pids = (driver.pid, *children_of(driver.pid))
        assert sum(len(threads_of(pid)) for pid in pids) - 1 <= 12


def test_the_template_has_one_thread(sooner_session):
    assert len(threads_of(template_of(os.getpid()))) == 1


# `SOONER_LONG=1` takes some minutes.
SESSIONS = 1000 if os.environ.get("SOONER_LONG") else 50


@pytest.mark.timeout(240 + SESSIONS)
def test_many_sessions_leave_the_process_as_it_was(short_dir):
    done = run_driver(
        HEAD
        + """
from support import Footprint
def anonymous_kib():
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0])
def round():
    sooner.init(num_cpus=2, _temp_dir=sys.argv[2])
    actor = Actor.remote()
    get([identity.remote(b"x" * 200_000), actor.pid.remote()])
    sooner.shutdown()
for _ in range(10):
    round()
gc.collect()
before, kib = Footprint.now(), anonymous_kib()
for _ in range(int(sys.argv[1])):
    round()
gc.collect()
print("memory", anonymous_kib() - kib, file=sys.stderr)
print(before.left_over(Footprint.now()) or "nothing")
print(anonymous_kib() - kib < 8 << 10 or "memory")
print([path for path in Path(sys.argv[2]).rglob("*") if path.is_file()])
""",
        SESSIONS,
        short_dir,
        cwd=Path(__file__).parent,
        timeout=200 + SESSIONS,
    )
    print(done.stderr)
    assert done.stdout.splitlines() == ["nothing", "True", "[]"]


def test_footprints_see_what_is_left(sooner_session):
    """The check that all these tests rely on finds a session when there is one."""
    nothing = Footprint(set(), [], [], [])
    found = nothing.left_over(Footprint.now())
    for what in ("processes", "descriptors", "shared memory", "threads"):
        assert what in found
