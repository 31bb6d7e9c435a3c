"""A worker is a process of the program's own as far as it can tell, and nothing that it is not."""

from __future__ import annotations

import functools
import importlib
import io
import os
import signal
import subprocess
import sys
import time

import pytest
from support import WAIT, is_alive, poll, run_driver, running_driver

import sooner
from sooner._engine import program
from sooner.util.multiprocessing import Pool


@pytest.fixture
def session():
    with sooner.init(num_cpus=2) as context:
        yield context


def _exits() -> str:
    if (pid := os.fork()) == 0:
        sys.exit(3)
    return f"parent of {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}"


def _raises() -> str:
    if (pid := os.fork()) == 0:
        raise ValueError("in the child")
    return f"parent of {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}"


def _returns() -> str:
    if (pid := os.fork()) == 0:
        return "child"
    return f"parent of {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}"


_FORKS = {_exits: "parent of 3", _raises: "parent of 1", _returns: "parent of 0"}


@pytest.mark.parametrize("way", list(_FORKS), ids=lambda way: way.__name__.strip("_"))
def test_a_process_that_a_task_forked_never_answers_for_its_worker(session, way) -> None:
    forking = sooner.remote(max_retries=0)(way)
    assert sooner.get([forking.remote() for _ in range(3)], timeout=WAIT) == [_FORKS[way]] * 3
    assert sooner.get([sooner.remote(abs).remote(n) for n in range(40)], timeout=WAIT) == list(range(40))


@pytest.mark.parametrize("options", [{}, {"max_concurrency": 2}], ids=["plain", "threads"])
def test_a_process_that_an_actor_forked_never_answers_for_it(session, options) -> None:
    class Forks:
        def __init__(self) -> None:
            self.made = _returns()

        def forks(self, way):
            return self.made, way()

        def items(self):
            yield 1
            yield _returns()

    actor = sooner.remote(Forks).options(**options).remote()
    for way, expected in _FORKS.items():
        assert sooner.get(actor.forks.remote(way), timeout=WAIT) == ("parent of 0", expected)
    items = actor.items.options(num_returns="streaming").remote()
    assert [sooner.get(item, timeout=WAIT) for item in items] == [1, "parent of 0"]


def test_a_process_that_an_asyncio_actor_forked_never_answers_for_it(session) -> None:
    class Forks:
        async def forks(self, way):
            return way()

    actor = sooner.remote(Forks).remote()
    for way, expected in _FORKS.items():
        assert sooner.get(actor.forks.remote(way), timeout=WAIT) == expected


def test_what_a_task_has_begun_to_print_is_not_printed_by_its_child_again() -> None:
    code = """
import os, sooner
sooner.init(num_cpus=1)
def prints():
    print("begun", end="")
    if (pid := os.fork()) == 0:
        return
    os.waitpid(pid, 0)
sooner.get(sooner.remote(prints).remote())
sooner.shutdown()
"""
    done = run_driver(code)
    assert (done.stdout + done.stderr).count("begun") == 1


def _see() -> tuple[str | None, str]:
    return os.environ.get("SEEN_BY_WORKERS"), os.getcwd()


def test_workers_see_the_environment_and_the_directory_as_they_are_at_the_call(session, monkeypatch, tmp_path) -> None:
    seen = sooner.remote(_see)
    home = os.getcwd()
    assert sooner.get(seen.remote()) == (None, home)
    for number in range(2):
        place = tmp_path.resolve() / str(number)
        place.mkdir()
        monkeypatch.chdir(place)
        monkeypatch.setenv("SEEN_BY_WORKERS", str(number))
        expected = str(number), str(place)
        assert sooner.get([seen.remote() for _ in range(8)]) == [expected] * 8
        actor = sooner.remote(type("Sees", (), {"see": lambda self: _see()})).remote()
        assert sooner.get(actor.see.remote()) == expected
        assert sooner.get(sooner.remote(lambda: sooner.get(seen.remote())).remote()) == expected, "in a nested task"
        with Pool(1) as pool:
            assert pool.apply(_see) == expected
        with sooner.Executor(1) as executor:
            assert executor.submit(_see).result() == expected
    monkeypatch.undo()
    assert sooner.get([seen.remote() for _ in range(8)]) == [(None, home)] * 8, "what is taken back is gone"


def test_a_variable_that_is_removed_is_gone_in_workers(monkeypatch) -> None:
    monkeypatch.setenv("SEEN_BY_WORKERS", "before")
    with sooner.init(num_cpus=1):
        seen = sooner.remote(lambda: os.environ.get("SEEN_BY_WORKERS"))
        assert sooner.get(seen.remote()) == "before"
        monkeypatch.delenv("SEEN_BY_WORKERS")
        assert sooner.get(seen.remote()) is None


def test_workers_of_a_node_of_its_own_follow_their_program(node, tmp_path) -> None:
    code = """
import os, sys, sooner
sooner.init()
see = sooner.remote(lambda: (os.environ.get("SEEN_BY_WORKERS"), os.getcwd(), sys.argv[2:]))
assert sooner.get(see.remote()) == (None, os.getcwd(), ["--rate", "2"]), sooner.get(see.remote())
os.environ["SEEN_BY_WORKERS"] = "now"
os.chdir(sys.argv[1])
assert sooner.get(see.remote()) == ("now", os.getcwd(), ["--rate", "2"]), sooner.get(see.remote())
print("followed")
"""
    assert "followed" in node.driver(code, tmp_path, "--rate", "2").stdout


def test_modules_of_workers_read_the_arguments_of_the_program(tmp_path) -> None:
    (tmp_path / "of_arguments.py").write_text("import sys\nRATE = float(sys.argv[1])\ndef scaled(n): return n * RATE\n")
    code = f"""
import sys; sys.path.insert(0, {str(tmp_path)!r})
import sooner, of_arguments
sooner.init(num_cpus=1)
print("scaled", sooner.get(sooner.remote(of_arguments.scaled).remote(2)))
sys.argv[1] = "5"
print("argv", sooner.get(sooner.remote(lambda: __import__("sys").argv[1]).remote()))
"""
    done = run_driver(code, "2.5")
    assert done.stdout.split() == ["scaled", "5.0", "argv", "5"]


def test_workers_find_modules_where_the_program_looks_by_now(session, monkeypatch, tmp_path) -> None:
    task = sooner.remote(lambda: __import__("found_later").VALUE)
    with pytest.raises(ModuleNotFoundError):
        sooner.get(task.remote())
    (tmp_path / "found_later.py").write_text("VALUE = 7\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert sooner.get(task.remote()) == 7


def test_entries_that_the_import_system_passes_over_do_not_reach_workers(tmp_path) -> None:
    code = """
import pathlib, sys
sys.path += [pathlib.Path(sys.argv[1]), b"bytes", None]
import sooner
sooner.init(num_cpus=1)
entries = sooner.remote(lambda: [entry for entry in sys.path if not isinstance(entry, str)])
assert sooner.get(entries.remote()) == []
sys.path += [pathlib.Path(sys.argv[1], "later"), sys.argv[1]]
assert sooner.get(entries.remote()) == []
assert sooner.get(sooner.remote(lambda place: place in sys.path).remote(sys.argv[1]))
"""
    run_driver(code, tmp_path)


def test_a_program_whose_directory_was_removed_has_workers(tmp_path) -> None:
    code = """
import os, sys
os.mkdir(sys.argv[1])
os.chdir(sys.argv[1])
os.rmdir(sys.argv[1])
import sooner
assert "" in sys.path
sooner.init(num_cpus=1)
assert sooner.get(sooner.remote(abs).remote(-5)) == 5
os.environ["SEEN_BY_WORKERS"] = "now"
sys.path.append("/nowhere")
assert sooner.get(sooner.remote(os.environ.get).remote("SEEN_BY_WORKERS")) == "now"
"""
    run_driver(code, tmp_path / "removed")


_OWN_WAYS = """
import os, sys
sys.path.append(sys.path[0] + "/vendored")
sys.path.insert(1, sys.path[0] + "/nearer")
os.chdir("/")
os.umask(0o027)
os.environ["OF_BOTH"] = "module"
def late():
    import vendored_part, nearer_part
    mask = os.umask(0)
    os.umask(mask)
    return vendored_part.PART + nearer_part.PART, os.getcwd(), mask, os.environ["OF_BOTH"]
"""


@pytest.mark.parametrize("preload", [False, True], ids=["by a task", "preload"])
def test_what_a_module_sets_while_it_is_imported_outlives_changes_of_the_program(tmp_path, preload) -> None:
    (tmp_path / "own_ways.py").write_text(_OWN_WAYS)
    for place in ("vendored", "nearer"):
        (tmp_path / place).mkdir()
        (tmp_path / place / f"{place}_part.py").write_text(f"PART = {place!r}\n")
    code = f"""
import os, sys, sooner
sys.path.insert(0, sys.argv[1])
os.environ["OF_BOTH"] = "program"
sooner.init(num_cpus=1, preload={["own_ways"] if preload else []})
def late():
    import own_ways
    return own_ways.late(), [entry for entry in sys.path if entry.startswith(sys.argv[1])]
ways = "vendorednearer", "/", 0o027, "module"
before = sooner.get(sooner.remote(late).remote())
assert before[0] == ways, before
os.environ["UNRELATED"] = "1"
assert sooner.get(sooner.remote(late).remote()) == before
sys.path.append(sys.argv[1] + "/later")
after = sooner.get(sooner.remote(late).remote())
assert after[0] == ways and after[1][:2] == before[1][:2] and len(after[1]) == 4, (before, after)
sys.path.remove(sys.argv[1] + "/later")
assert sooner.get(sooner.remote(late).remote()) == before
os.umask(0o077)
os.environ["OF_BOTH"] = "program again"
found = sooner.get(sooner.remote(late).remote())[0]
assert found[2:] == (0o077, "program again"), found
"""
    run_driver(code, tmp_path)


def test_on_another_machine_modules_are_looked_for_where_nobody_else_decides(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(program, "is_guest", True)
    own = tmp_path / "open" / "own"
    own.mkdir(parents=True)
    assert program._is_safe(str(own))
    # Who may write to a directory on the way may put another one in its place.
    own.parent.chmod(0o777)
    assert not program._is_safe(str(own))
    own.parent.chmod(0o755)
    own.chmod(0o777)
    assert not program._is_safe(str(own))
    assert not program._is_safe(str(tmp_path / "none"))


def test_proxies_of_a_manager_work_in_workers(session) -> None:
    import multiprocessing

    put = sooner.remote(lambda table, n: table.__setitem__(n, n))
    with multiprocessing.Manager() as manager:
        table = manager.dict()
        sooner.get([put.remote(table, n) for n in range(4)], timeout=WAIT)
        assert dict(table) == {n: n for n in range(4)}


def test_signals_that_the_program_has_blocked_are_not_blocked_in_workers() -> None:
    code = """
import signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
import sooner
sooner.init(num_cpus=1)
print("blocked", sooner.get(sooner.remote(lambda: len(signal.pthread_sigmask(signal.SIG_BLOCK, []))).remote()))
ref = sooner.remote(max_retries=0)(time.sleep).remote(3600)
time.sleep(0.5)
sooner.cancel(ref)
try:
    sooner.get(ref, timeout=60)
except sooner.exceptions.TaskCancelledError:
    print("cancelled")
sooner.shutdown()
"""
    done = run_driver(code)
    assert done.stdout.split() == ["blocked", "0", "cancelled"]


def test_standard_output_is_a_text_stream(session) -> None:
    def uses():
        out = sys.stdout
        out.reconfigure(encoding="utf-8", line_buffering=True)
        try:
            out.reconfigure(encoding="no such thing")
        except LookupError:
            pass
        else:
            raise AssertionError("it takes any encoding")
        found = out.name, out.mode, out.encoding, out.errors, out.newlines, out.line_buffering, out.write_through
        wrapper = io.TextIOWrapper(out.buffer, encoding="utf-8")
        wrapper.write("wrapped\n")
        del wrapper
        out.close()
        print("printed")
        out.buffer.write(b"bytes\n")
        return found, out.closed, out.buffer.closed

    for _ in range(3):
        found, *closed = sooner.get(sooner.remote(uses).remote(), timeout=WAIT)
        assert found == ("<stdout>", "w", "utf-8", "backslashreplace", None, True, False)
        assert closed == [False, False]


def test_a_task_lays_a_text_stream_of_its_own_around_standard_output() -> None:
    code = """
import codecs, io, sys, sooner
sooner.init(num_cpus=1)
def first():
    sys.stdout = sys.kept = io.TextIOWrapper(sys.stdout.detach(), encoding="utf-8")
    print("detached \u00e9")
def second():
    sys.stderr = codecs.getwriter("utf-8")(sys.stderr.detach())
    print("written \u00e9", file=sys.stderr)
def third():
    sys.stdout = sys.kept = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8")
    print("unfinished", end="")
def fourth():
    sys.stdin = io.TextIOWrapper(sys.stdin.detach(), encoding="utf-8")
    del sys.stdin
    io.TextIOWrapper(sys.__stdin__.buffer).read()
def last():
    print("plain")
    return [type(stream).__name__ for stream in (sys.stdin, sys.stdout, sys.stderr)], sys.stdin.read()
for function in (first, second, third, fourth):
    sooner.get(sooner.remote(max_retries=0)(function).remote())
assert sooner.get(sooner.remote(last).remote()) == (["TaskInput", "TaskStream", "TaskStream"], "")
sooner.shutdown()
"""
    done = run_driver(code)
    printed = [line.split(" pid=")[0] + line.partition(")")[2] for line in done.stdout.splitlines()]
    assert printed == ["(first detached \u00e9", "(third unfinished", "(last plain"]
    assert "(second" in done.stderr
    assert "written \u00e9" in done.stderr


def test_init_and_shutdown_in_workers_say_what_to_do(session) -> None:
    assert (
        sooner.get(sooner.remote(lambda: sooner.init(ignore_reinit_error=True)["session_dir"]).remote())
        == (session["session_dir"])
    )
    with pytest.raises(RuntimeError, match=r"in a task or an actor.*ignore_reinit_error"):
        sooner.get(sooner.remote(lambda: sooner.init() and None).remote())

    class Ends:
        def end(self):
            sooner.shutdown()

        def use(self):
            return 1

    actor = sooner.remote(Ends).remote()
    with pytest.raises(RuntimeError, match="exit_actor"):
        sooner.get(actor.end.remote(), timeout=WAIT)
    assert sooner.get(actor.use.remote(), timeout=WAIT) == 1
    with pytest.raises(RuntimeError, match="returning ends a task"):
        sooner.get(sooner.remote(max_retries=0)(lambda: sooner.shutdown()).remote(), timeout=WAIT)


def test_what_an_actor_started_ends_with_a_killed_driver() -> None:
    code = """
import subprocess, sooner, time
sooner.init(num_cpus=2)
class Starts:
    def start(self): return subprocess.Popen(["sleep", "1000"]).pid
actors = [sooner.remote(Starts).remote() for _ in range(2)]
print("pids", *sooner.get([actor.start.remote() for actor in actors]), flush=True)
time.sleep(60)
"""
    for _ in range(4):
        with running_driver(code) as driver:
            pids = [int(pid) for pid in driver.stdout.readline().split()[1:]]
            assert len(pids) == 2
            driver.kill()
            driver.wait()
            for pid in pids:
                poll("the children of actors end", functools.partial(_is_gone, pid))


def _is_gone(pid: int) -> bool:
    return not is_alive(pid)


def test_what_tasks_have_buffered_and_registered_is_done_when_their_workers_end(tmp_path) -> None:
    (tmp_path / "notes.py").write_text(
        """
import atexit, os
FILE = None
def note(place, n):
    global FILE
    if FILE is None:
        FILE = open(os.path.join(place, f"buffered-{os.getpid()}"), "w")
        atexit.register(lambda: open(os.path.join(place, f"atexit-{os.getpid()}"), "w").close())
    FILE.write(f"{n}\\n")
"""
    )
    code = """
import sys; sys.path.insert(0, sys.argv[1])
import sooner, notes
sooner.init(num_cpus=2)
sooner.get([sooner.remote(notes.note).remote(sys.argv[1], n) for n in range(50)])
sooner.shutdown()
"""
    run_driver(code, tmp_path)
    assert sum(len(file.read_text().split()) for file in tmp_path.glob("buffered-*")) == 50
    assert len(list(tmp_path.glob("atexit-*"))) == len(list(tmp_path.glob("buffered-*")))


_THREADS = """
import atexit, concurrent.futures, os, pathlib, threading, time
pool = concurrent.futures.ThreadPoolExecutor(1)
ends = threading.Event()

def work(place, name):
    # It begins when the end does, and takes longer than that would.
    ends.wait(60)
    time.sleep(0.2)
    pathlib.Path(place, name).touch()

def begin(place):
    pool.submit(work, place, "first")
    pool.submit(pathlib.Path(place, "queued").touch)
    threading.Thread(target=work, args=(place, "thread")).start()

def begin_at_once(place):
    ends.set()
    begin(place)

def hang(place):
    atexit.register(pathlib.Path(place, "atexit").touch)
    threading.Thread(target=threading.Event().wait).start()
    return os.getpid()

class Begins:
    def begin(self, place):
        begin(place)

    def __sooner_shutdown__(self):
        ends.set()
"""


@pytest.fixture
def threads(tmp_path, monkeypatch):
    """A module whose functions start threads that are no daemons."""
    (tmp_path / "of_threads.py").write_text(_THREADS)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("of_threads")
    del sys.modules["of_threads"]


def _are_done(place) -> bool:
    return all((place / name).exists() for name in ("first", "queued", "thread"))


def test_threads_and_queued_jobs_of_an_actor_that_ends_in_order_come_to_their_end(session, threads, tmp_path) -> None:
    actor = sooner.remote(threads.Begins).remote()
    sooner.get(actor.begin.remote(str(tmp_path)), timeout=WAIT)
    del actor
    poll("threads and jobs are done", lambda: _are_done(tmp_path))


def test_threads_and_queued_jobs_of_a_worker_that_ends_in_order_come_to_their_end(session, threads, tmp_path) -> None:
    task = sooner.remote(max_calls=1)(threads.begin_at_once)
    sooner.get(task.remote(str(tmp_path)), timeout=WAIT)
    poll("threads and jobs are done", lambda: _are_done(tmp_path))


def test_a_thread_that_never_ends_keeps_no_worker_and_none_of_the_rest(session, threads, tmp_path) -> None:
    pid = sooner.get(sooner.remote(max_calls=1)(threads.hang).remote(str(tmp_path)), timeout=WAIT)
    poll("the worker ends", functools.partial(_is_gone, pid))
    assert (tmp_path / "atexit").exists()


def test_del_of_an_actor_runs_when_its_last_handle_goes(session, tmp_path) -> None:
    class Holds:
        def __init__(self) -> None:
            self.me = self

        def ping(self) -> None:
            pass

        def __del__(self) -> None:
            (tmp_path / "released").touch()

    actor = sooner.remote(Holds).remote()
    sooner.get(actor.ping.remote())
    del actor
    poll("__del__ ran", (tmp_path / "released").exists)


def test_an_interrupt_never_leaves_a_module_half_loaded(tmp_path) -> None:
    (tmp_path / "slow_part.py").write_text("import time\nopen(__file__ + '.begun', 'w')\ntime.sleep(0.6)\nPART = 1\n")
    (tmp_path / "slow_whole.py").write_text("import slow_part\nWHOLE = slow_part.PART\n")
    code = """
import os, sys, time; sys.path.insert(0, sys.argv[1])
import sooner
sooner.init(num_cpus=1)
def imports():
    import slow_whole
    time.sleep(3600)
def looks():
    return sorted(name for name in sys.modules if name.startswith("slow_")), __import__("slow_whole").WHOLE
ref = sooner.remote(max_retries=0)(imports).remote()
while not os.path.exists(sys.argv[1] + "/slow_part.py.begun"):
    time.sleep(0.01)
sooner.cancel(ref)
try:
    sooner.get(ref, timeout=60)
except sooner.exceptions.TaskCancelledError:
    print("cancelled", sooner.get(sooner.remote(looks).remote(), timeout=60))
"""
    assert run_driver(code, tmp_path).stdout == "cancelled (['slow_part', 'slow_whole'], 1)\n"


# Some library that the program loads already: loading it first changes nothing.
_LIBRARY = "libm.so.6"
_HASHES = """
import ctypes, os, subprocess, sys, sooner
from sooner.cluster_utils import Cluster
from sooner.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
seed = os.environ.get("PYTHONHASHSEED")
os.environ["PYTHONHASHSEED"] = "11"
cluster.add_node(num_cpus=1)
if seed is None:
    del os.environ["PYTHONHASHSEED"]
else:
    os.environ["PYTHONHASHSEED"] = seed
cluster.wait_for_nodes()
cluster.connect()

def hashes():
    return hash("berlin"), hash(b"berlin"), hash("paris"), sys.flags.hash_randomization

def in_child():
    command = [sys.executable, "-c", "print(hash('berlin'))"]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

@sooner.remote(num_cpus=1)
def look():
    # First of all: that question is never answered with the secret.
    drawn = os.urandom(24)
    secret = bytes((ctypes.c_ubyte * 24).in_dll(ctypes.pythonapi, "_Py_HashSecret"))
    assert drawn != secret
    assert secret.hex().encode() not in open("/proc/self/environ", "rb").read() or not any(secret)
    ours = [name for name in os.environ if name.startswith(("SOONER_FORMER", "SOONER_HASH"))]
    return hashes(), {name: os.environ.get(name) for name in ("LD_PRELOAD", "PYTHONHASHSEED")}, ours, in_child(), drawn

on = [look.options(scheduling_strategy=On(node["NodeID"], soft=False)) for node in sooner.nodes()]
found = sooner.get([each.remote() for each in on])
assert len(found) == 2
for theirs, variables, ours, child, drawn in found:
    assert theirs == hashes(), (theirs, hashes())
    assert variables["LD_PRELOAD"] == os.environ.get("LD_PRELOAD"), variables
    assert not ours, ours
    # A program that a worker starts has what the worker's environment says, and else a secret of its own.
    told = variables["PYTHONHASHSEED"]
    if told in (None, "random"):
        assert child != hash("berlin")
    elif told == seed:
        assert child == in_child()
assert {variables["PYTHONHASHSEED"] for _, variables, *_ in found} == {seed, "11"}
assert found[0][4] != found[1][4]
sooner.shutdown()
cluster.shutdown()
print("alike")
"""


@pytest.mark.parametrize(
    ("environment", "options"),
    [
        ({}, []),
        ({"PYTHONHASHSEED": "random"}, []),
        ({"PYTHONHASHSEED": "7"}, []),
        ({"PYTHONHASHSEED": "0"}, []),
        ({"PYTHONHASHSEED": "7"}, ["-R"]),
        ({"PYTHONHASHSEED": "7"}, ["-I"]),
        ({"PYTHONHASHSEED": "7"}, ["-E"]),
        ({"LD_PRELOAD": _LIBRARY}, []),
    ],
    ids=lambda given: " ".join(given if isinstance(given, list) else map("=".join, given.items())) or "plain",
)
def test_strings_hash_in_all_workers_as_in_the_program(environment, options) -> None:
    others = {name: value for name, value in os.environ.items() if name not in ("PYTHONHASHSEED", "LD_PRELOAD")}
    done = subprocess.run(
        [sys.executable, *options, "-c", _HASHES],
        env=others | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("alike\n", 0), done.stderr
    assert "preload" not in done.stderr


def test_strings_hash_alike_where_the_programs_secret_cannot_be_handed_on(short_dir) -> None:
    """What `sys.executable` names is a script around an interpreter: nothing of ours is loaded into a
    shell.
    """
    script = short_dir / "python"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    script.chmod(0o700)
    code = f"""
        import os, sys
        sys.executable = {str(script)!r}
        import sooner

        sooner.init(num_cpus=2)

        @sooner.remote
        class Looks:
            def look(self):
                return os.getpid(), hash("berlin")

        actors = [Looks.remote(), Looks.remote()]
        (one, first), (two, second) = sooner.get([actor.look.remote() for actor in actors])
        assert one != two and first == second != hash("berlin")
        """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
    assert not run_driver(code, env=environment).stderr


def test_what_a_task_does_to_its_process_does_not_reach_the_next() -> None:
    with sooner.init(num_cpus=1):

        def spoils():
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.chdir("/")
            os.environ["SPOILT"] = "1"
            os.environ.pop("PATH")
            return os.getpid()

        def looks():
            ignored = [signal.getsignal(number) is signal.SIG_IGN for number in (signal.SIGINT, signal.SIGTERM)]
            return os.getpid(), ignored, os.getcwd(), os.environ.get("SPOILT"), "PATH" in os.environ

        pid = sooner.get(sooner.remote(spoils).remote())
        assert sooner.get(sooner.remote(looks).remote()) == (pid, [False, False], os.getcwd(), None, True)
        ref = sooner.remote(max_retries=0)(time.sleep).remote(3600)
        time.sleep(0.3)
        sooner.cancel(ref)
        with pytest.raises(sooner.exceptions.TaskCancelledError):
            sooner.get(ref, timeout=60)


def test_what_an_actor_does_to_its_process_stays(session) -> None:
    class Keeps:
        def __init__(self) -> None:
            os.chdir("/")
            os.environ["KEPT"] = "1"

        def look(self):
            return os.getcwd(), os.environ.get("KEPT")

    actor = sooner.remote(Keeps).remote()
    assert sooner.get([actor.look.remote(), actor.look.remote()]) == [("/", "1")] * 2


def _initialize(value: str) -> None:
    os.environ["OF_INITIALIZER"] = value


def test_what_the_initializer_of_an_executor_does_to_its_process_stays(session) -> None:
    with sooner.Executor(1, initializer=_initialize, initargs=("1",)) as executor:
        found = [executor.submit(os.getenv, "OF_INITIALIZER").result() for _ in range(4)]
    assert found == ["1"] * 4


@pytest.mark.parametrize(
    "spoil",
    [
        "os.close(1)",
        "os.closerange(1, 3)",
        "open(1, 'w').close()",
        "os.dup2(os.open(os.devnull, os.O_WRONLY), 1)",
        "sys.stdout.close()",
        "sys.stdout.buffer.close()",
        "sys.stdout = io.StringIO()",
        "sys.stdout = None",
        "del sys.stdout",
        "sys.stderr, sys.stdout = sys.stdout, open(os.devnull, 'w')",
    ],
)
@pytest.mark.parametrize("at_once", [False, True])
def test_what_a_task_does_to_its_streams_does_not_reach_the_next(spoil, at_once) -> None:
    code = f"""
import io, os, sys, sooner
sooner.init(num_cpus=1)
@sooner.remote
def spoils():
    {spoil}
    return os.getpid()
@sooner.remote
def prints():
    print("printed")
    os.system("echo by a child")
    print("to the other", file=sys.stderr)
    return os.getpid()
first = spoils.remote()
if not {at_once}:
    sooner.get(first)
assert sooner.get(prints.remote()) == sooner.get(first)
sooner.shutdown()
"""
    done = run_driver(code)
    assert "printed" in done.stdout
    assert "by a child" in done.stdout
    assert "to the other" in done.stderr


def _redirect() -> None:
    sys.stdout = io.StringIO()
    os.dup2(2, 1)


def test_an_initializer_may_redirect_its_streams(session) -> None:
    with sooner.Executor(1, initializer=_redirect) as executor:
        found = [executor.submit(lambda: (type(sys.stdout).__name__, os.readlink("/proc/self/fd/1"))) for _ in range(4)]
        names = {future.result()[0] for future in found}
        places = {future.result()[1] for future in found}
        errors = {executor.submit(os.readlink, "/proc/self/fd/2").result()}
    assert (names, places) == ({"StringIO"}, errors)


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["-O"],
        ["-OO", "-B"],
        ["-X", "dev"],
        ["-X", "utf8=0"],
        ["-X", "faulthandler", "-X", "tracemalloc=3"],
        ["-W", "error::UserWarning", "-Wignore::DeprecationWarning"],
        ["-b"],
        ["-E", "-s"],
        ["-P"],
        ["-I"],
    ],
    ids=" ".join,
)
def test_workers_have_the_flags_of_the_program(flags, tmp_path) -> None:
    (tmp_path / "program.py").write_text(
        f"""
import sys
sys.path[:0] = {[entry for entry in sys.path if entry]!r}
import sooner, warnings
def look():
    return tuple(sys.flags), sys.warnoptions, dict(sys._xoptions), __debug__, warnings.filters
def runs():
    assert False
sooner.init(num_cpus=1)
found = sooner.get(sooner.remote(look).remote())
assert found == look(), (found, look())
try:
    sooner.get(sooner.remote(runs).remote())
except AssertionError:
    assert __debug__
else:
    assert not __debug__
"""
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [sys.executable, *flags, tmp_path / "program.py"], env=environment, capture_output=True, text=True, timeout=WAIT
    )
    assert done.returncode == 0, done.stderr


def test_workers_have_what_site_adds(session) -> None:
    def look():
        return [callable(thing) for thing in (exit, quit, help)], "Python" in repr(copyright), repr(credits)[:6]

    assert sooner.get(sooner.remote(look).remote()) == ([True] * 3, True, "    Th")

    @sooner.remote(max_retries=0)
    def leaves():
        exit(3)

    with pytest.raises(sooner.exceptions.WorkerCrashedError):
        sooner.get(leaves.remote())


def _title(pid: int | str = "self") -> tuple[str, str]:
    with open(f"/proc/{pid}/cmdline") as line, open(f"/proc/{pid}/comm") as name:
        return line.read().removesuffix("\0"), name.read().strip()


def test_titles_of_processes_say_what_runs(session) -> None:
    class Counter:
        def title(self):
            return _title()

    class WithAVeryLongNameThatNobodyCouldReadInAWholeTable(Counter):
        pass

    pid, *_ = sooner.get([sooner.remote(os.getpid).remote()])
    poll("it waits", lambda: _title(pid) == ("sooner worker", "sooner worker"))
    assert sooner.get(sooner.remote(_title).remote()) == ("sooner::_title", "sooner worker")
    assert sooner.get(sooner.remote(_title).options(name="other").remote())[0] == "sooner::other"
    for cls in (Counter, WithAVeryLongNameThatNobodyCouldReadInAWholeTable):
        actor = sooner.remote(cls).remote()
        title = f"sooner::{cls.__name__}"
        assert sooner.get([actor.title.remote(), actor.title.remote()]) == [(title, title[:15])] * 2
    # It is no longer than there is room for, and what is shorter leaves nothing of it.
    long, short = sooner.remote(_title).options(name="x" * 1000), sooner.remote(_title)
    assert sooner.get([long.remote(), short.remote()], timeout=WAIT)[1][0] == "sooner::_title"


def test_a_session_has_no_children_of_the_program() -> None:
    """Whatever the program waits for, it meets its own children only, and none of them is ever missing."""
    code = """
import os, signal, subprocess, sooner
signal.alarm(60)
def none_left():
    try:
        found = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return True
    raise AssertionError(f"a child: {found}")
def runs(pid):
    try:
        # Whoever reaps orphans may not have done so yet.
        return open(f"/proc/{pid}/stat").read().rsplit(")")[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False
for round in range(2):
    context = sooner.init(num_cpus=2)
    assert none_left()
    pids = sooner.get([sooner.remote(os.getpid).remote() for _ in range(4)])
    assert none_left()
    assert subprocess.run(["sh", "-c", "exit 7"]).returncode == 7
    if (pid := os.fork()) == 0:
        os._exit(3)
    assert os.wait() == (pid, 3 << 8)
    assert none_left()
    sooner.shutdown()
    assert none_left()
    assert not os.path.exists(context["session_dir"])
    assert not any(map(runs, pids)), pids
print("none")
"""
    assert run_driver(code).stdout == "none\n"


def test_children_that_end_do_not_signal_the_program() -> None:
    code = """
import os, signal, sooner
seen = []
signal.signal(signal.SIGCHLD, lambda *_: seen.append(1))
sooner.init(num_cpus=1)
sooner.get(sooner.remote(os.getpid).remote())
sooner.shutdown()
assert not seen
"""
    run_driver(code)


def test_workers_follow_lists_of_the_program_that_are_changed_in_place_or_replaced() -> None:
    code = """
import sys, sooner
sys.path[0] = "/nothing/is/here"
sooner.init(num_cpus=1)
see = sooner.remote(lambda: (sys.argv, sys.path[0]))
def is_followed():
    return sooner.get(see.remote()) == (sys.argv, sys.path[0])
assert is_followed()
sys.argv.append("--fast")
assert is_followed()
sys.argv[1] = "--slow"
assert is_followed()
sys.argv = ["tool", "--fast"]
assert is_followed()
sys.path[0] = "/there/is/no/such"
assert is_followed()
sys.path = ["/nor/such", *sys.path]
assert is_followed()
for n in range(20):
    # The new text may lie where the old one did.
    sys.argv.pop()
    sys.argv.append(f"{n}")
    assert is_followed(), n
"""
    run_driver(code)
