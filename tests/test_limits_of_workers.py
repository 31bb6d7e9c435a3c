"""Workers that cannot be started, because descriptors, processes or memory are used up.

What waits for one goes on when others give something back, and otherwise ends with the cause and whose
limit it is.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap

import pytest
from control_groups import process_group
from support import run_driver

pytestmark = pytest.mark.waits

FILES = r"This process may have \d+ files open \(ulimit -n\): raise that"
GROUP = r"Its control group may have 40 processes and threads \(/sys/fs/cgroup.*pids.max\): raise that"

# Gives each outcome as a word: "ok", or the name of the error and what it says.
_OUTCOMES = """
import sys, time
import sooner

def outcomes(refs, timeout=80):
    began = time.monotonic()
    done, rest = sooner.wait(refs, num_returns=len(refs), timeout=timeout)
    assert not rest, f"{len(rest)} of {len(refs)} have not ended after {timeout} s"
    found = []
    for ref in done:
        try:
            sooner.get(ref)
            found.append("ok")
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}".replace("\\n", " "))
    return found

@sooner.remote(num_cpus=0)
class Actor:
    def value(self):
        return 1

@sooner.remote
def one():
    return 1
"""


def _run(code: str, limit: str = "", timeout: float = 170, **options: object) -> list[str]:
    """What a program under a limit of the shell prints."""
    program = textwrap.dedent(_OUTCOMES) + textwrap.dedent(code)
    command = f'program=$1; set --; {limit or ":"}; exec "$@" "$0" -c "$program"'
    done = subprocess.run(
        ["bash", "-c", command, sys.executable, program],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        **options,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "panicked" not in done.stderr
    return [*done.stdout.splitlines(), *(f"stderr: {line}" for line in done.stderr.splitlines())]


def test_actors_for_which_there_are_no_descriptors_end_with_the_cause():
    lines = _run(
        """
        sooner.init(num_cpus=4)
        actors = [Actor.remote() for _ in range(60)]
        first = outcomes([actor.value.remote() for actor in actors])
        print(first.count("ok"))
        print(*{one for one in first if one != "ok"}, sep="\\n")
        # What holds the descriptors is still there.
        assert all(one != "ok" for one in outcomes([one.remote() for _ in range(5)], 30))
        del actors
        assert outcomes([one.remote() for _ in range(20)], 60) == ["ok"] * 20
        """,
        "ulimit -n 128",
    )
    assert 10 < int(lines[0]) < 60
    errors = [line for line in lines[1:] if not line.startswith("stderr")]
    assert errors
    assert all(re.match(rf"ActorDiedError: .*could not begin: .*{FILES}", line) for line in errors), errors
    # It is said, and not with each attempt.
    assert sum("a worker process could not be started" in line for line in lines) in (1, 2)


def test_tasks_wait_for_workers_that_others_give_back():
    _run(
        """
        sooner.init(num_cpus=60)

        @sooner.remote
        def slow():
            time.sleep(0.2)
            return 1

        assert outcomes([slow.remote() for _ in range(200)]) == ["ok"] * 200
        for _ in range(3):
            # As many actors as there can be, again and again.
            actors = [Actor.remote() for _ in range(8)]
            assert outcomes([actor.value.remote() for actor in actors]) == ["ok"] * 8
            del actors
        """,
        "ulimit -n 96",
    )


def test_a_task_that_waits_for_tasks_without_workers_gets_their_error():
    lines = _run(
        """
        sooner.init(num_cpus=4)
        actors = [Actor.remote() for _ in range(60)]

        @sooner.remote
        def outer():
            return sooner.get([one.remote()])

        outer_ref = outer.remote()
        print(*outcomes([outer_ref]), sep="\\n")
        """,
        "ulimit -n 128",
    )
    assert re.match(rf"ok|TaskUnschedulableError: .*{FILES}", lines[0]), lines


def test_an_actor_that_restarts_without_descriptors_ends_with_the_cause():
    lines = _run(
        """
        import os
        sooner.init(num_cpus=4)

        @sooner.remote(num_cpus=0, max_restarts=-1)
        class Restarting:
            def pid(self):
                return os.getpid()

        actor = Restarting.remote()
        pid = sooner.get(actor.pid.remote())
        held = []
        try:
            while True:
                held.append(open(os.devnull))
        except OSError:
            for _ in range(3):
                held.pop().close()
        os.kill(pid, 9)
        time.sleep(1)
        print(*outcomes([actor.pid.remote()], 60))
        held.clear()
        assert outcomes([one.remote()]) == ["ok"]
        """,
        "ulimit -n 128",
    )
    assert re.match(rf"Actor(Died|Unavailable)Error: .*{FILES}", lines[0]), lines


@pytest.mark.parametrize("kind", ["tasks", "actors"])
def test_forty_processes_of_a_control_group(kind):
    with process_group(40) as group:
        lines = _run(
            f"""
            sooner.init(num_cpus=60)

            @sooner.remote
            def slow():
                time.sleep(0.5)
                return 1

            if {kind!r} == "tasks":
                found = outcomes([slow.remote() for _ in range(60)])
            else:
                actors = [Actor.remote() for _ in range(60)]
                found = outcomes([actor.value.remote() for actor in actors])
            print(found.count("ok"))
            print(*{{one for one in found if one != "ok"}}, sep="\\n")
            """,
            preexec_fn=lambda: (group / "cgroup.procs").write_text(str(os.getpid())),
        )
    errors = [line for line in lines[1:] if line and not line.startswith("stderr")]
    if kind == "tasks":
        assert lines[0] == "60", lines
    else:
        assert 5 < int(lines[0]) < 60
        assert errors
        assert all(re.match(rf"ActorDiedError: .*could not begin: .*{GROUP}", line) for line in errors), errors
    assert not any("signal 9" in line or "Traceback" in line for line in lines), lines


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="only root can become another user")
def test_processes_of_a_user_that_are_used_up():
    # Who may read everything may start the interpreter wherever it is; limits hold all the same.
    may_read = "+dac_override,+dac_read_search"
    user = f"setpriv --reuid=54321 --regid=54321 --clear-groups --inh-caps={may_read} --ambient-caps={may_read}"
    place = tempfile.mkdtemp(prefix="sooner-")
    os.chown(place, 54_321, 54_321)
    lines = _run(
        """
        sooner.init(num_cpus=60)
        actors = [Actor.remote() for _ in range(60)]
        found = outcomes([actor.value.remote() for actor in actors])
        print(found.count("ok"))
        print(*{one for one in found if one != "ok"}, sep="\\n")
        """,
        f"ulimit -u 30; set -- {user}",
        env={**os.environ, "HOME": place, "SOONER_TMPDIR": place, "XDG_RUNTIME_DIR": ""},
    )
    shutil.rmtree(place)
    assert 3 < int(lines[0]) < 60
    errors = [line for line in lines[1:] if line and not line.startswith("stderr")]
    expected = r"ActorDiedError: .*may have 30 processes and threads, as others of this user \(ulimit -u\)"
    assert errors
    assert all(re.match(expected, line) for line in errors), errors


def test_threads_that_an_actor_cannot_start_end_it_with_the_cause():
    with process_group(40) as group:
        lines = _run(
            """
            sooner.init(num_cpus=4)

            @sooner.remote(max_concurrency=100)
            class Threaded:
                def value(self):
                    time.sleep(0.5)
                    return 1

            actor = Threaded.remote()
            found = outcomes([actor.value.remote() for _ in range(60)])
            print(*set(found), sep="\\n")
            """,
            preexec_fn=lambda: (group / "cgroup.procs").write_text(str(os.getpid())),
        )
    found = [line for line in lines if not line.startswith("stderr")]
    assert all(line == "ok" or "thread" in line for line in found), lines


def test_a_driver_without_descriptors_still_puts_and_gets():
    run_driver(
        """
        import os, resource
        import numpy as np
        import sooner

        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
        sooner.init(num_cpus=1)
        double = sooner.remote(lambda values: values * 2)
        assert sooner.get(double.remote(sooner.put(np.ones(50_000)))).sum() == 100_000
        held = []
        try:
            while True:
                held.append(open(os.devnull))
        except OSError:
            pass
        ref = sooner.put(np.ones(50_000))
        assert sooner.get(ref).sum() == 50_000
        assert sooner.get(double.remote(ref), timeout=60).sum() == 100_000
        """
    )


def test_a_program_finds_a_node_again_that_had_no_descriptors():
    place = tempfile.mkdtemp(prefix="sooner-limits-")
    try:
        environment = {**os.environ, "SOONER_TMPDIR": place}
        command = f'ulimit -n 64; exec "{sys.executable}" -m sooner start --head --num-cpus 2'
        subprocess.run(["bash", "-c", command], env=environment, check=True, timeout=60, capture_output=True)
        program = """
            import subprocess, sys, time
            import sooner
            started = time.monotonic()
            other = [
                subprocess.Popen([sys.executable, "-c", "import sooner; sooner.init(address='auto'); input()"],
                                 stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                for _ in range(40)
            ]
            time.sleep(4)
            for one in other:
                one.kill()
                one.wait()
            sooner.init(address="auto")
            assert sooner.get(sooner.remote(lambda: 1).remote(), timeout=60) == 1
            """
        run_driver(program, env=environment, timeout=170)
    finally:
        subprocess.run(
            [sys.executable, "-m", "sooner", "stop"],
            env={**os.environ, "SOONER_TMPDIR": place},
            check=False,
            capture_output=True,
            timeout=60,
        )
        shutil.rmtree(place, ignore_errors=True)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("ulimit -n 6", FILES),
        ("ulimit -n 8", FILES),
        ("ulimit -v 2000000", r"may use 2048000000 bytes of address space \(ulimit -v\): raise that"),
    ],
)
def test_a_program_that_cannot_connect_says_whose_limit_it_is(limit, expected):
    place = tempfile.mkdtemp(prefix="sooner-limits-")
    environment = {**os.environ, "SOONER_TMPDIR": place}
    command = [sys.executable, "-m", "sooner"]
    try:
        start = [*command, "start", "--head", "--num-cpus=1", "--object-store-memory=4G"]
        subprocess.run(start, env=environment, check=True, timeout=60, capture_output=True)
        program = "import sooner; sooner.init(address='auto')"
        done = subprocess.run(
            ["bash", "-c", f'{limit}; exec "$0" -c "$1"', sys.executable, program],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        last = done.stderr.strip().splitlines()[-1]
        assert re.match(rf"ConnectionError: cannot connect to the node in {re.escape(place)}.*{expected}", last), last
    finally:
        subprocess.run([*command, "stop"], env=environment, check=False, capture_output=True, timeout=60)
        shutil.rmtree(place, ignore_errors=True)


@pytest.mark.parametrize("most", [2, 3, 4, 5, 6])
def test_a_control_group_with_few_processes_starts_nothing_and_says_so(most):
    with process_group(most) as group:
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                textwrap.dedent(_OUTCOMES) + "sooner.init(num_cpus=1)\nprint(*outcomes([one.remote()]))",
            ],
            capture_output=True,
            text=True,
            timeout=170,
            check=False,
            preexec_fn=lambda: (group / "cgroup.procs").write_text(str(os.getpid())),
        )
    said = done.stdout + done.stderr
    expected = rf"control group may have {most} processes and threads \(/sys/fs/cgroup.*pids.max\): raise that"
    assert re.search(expected, said.strip().splitlines()[-1]), said
    assert "SOONER_TMPDIR" not in said
