"""Bad input and failures: each ends in a value or a typed error, and nothing is lost or left hanging."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator

import pytest

import sooner
from sooner.exceptions import (
    ActorDiedError,
    GetTimeoutError,
    TaskCancelledError,
    TaskError,
    WorkerCrashedError,
)

WAIT = 60


@pytest.fixture(scope="module", autouse=True)
def session() -> Iterator[None]:
    """One session for the tests that do not end it."""
    sooner.init(num_cpus=2)
    yield
    sooner.shutdown()


def run_driver(code: str, timeout: float = 120, **kwargs: object) -> subprocess.CompletedProcess[str]:
    """Runs a program of its own."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        **kwargs,  # type: ignore[call-overload]
    )


@sooner.remote
def identity(value: object) -> object:
    return value


@sooner.remote
def pid() -> int:
    return os.getpid()


class Holder:
    def __init__(self) -> None:
        self.inner = {"lock": threading.Lock()}


@pytest.mark.api("own.culprits")
def test_argument_that_cannot_be_pickled_names_the_path() -> None:
    with pytest.raises(TypeError, match=r"(?s)argument 0.*inner.*lock"):
        identity.remote(Holder())


@pytest.mark.api("own.culprits")
def test_closure_that_cannot_be_pickled_names_the_variable() -> None:
    guard = threading.Lock()

    @sooner.remote
    def uses() -> bool:
        return guard.locked()

    with pytest.raises(TypeError, match=r"(?s)guard"):
        uses.remote()


def test_result_that_cannot_be_pickled_is_a_task_error() -> None:
    @sooner.remote
    def bad() -> object:
        return {"key": threading.Lock()}

    with pytest.raises(TypeError, match="key"):
        sooner.get(bad.remote(), timeout=WAIT)


@pytest.mark.api("errors.task")
def test_exception_is_both_classes_and_shows_the_remote_line() -> None:
    @sooner.remote
    def fails() -> None:
        raise KeyError("missing thing")

    with pytest.raises(KeyError) as caught:
        sooner.get(fails.remote(), timeout=WAIT)
    assert isinstance(caught.value, TaskError)
    assert "missing thing" in str(caught.value)
    assert "raise KeyError" in str(caught.value)


def test_exception_that_cannot_be_pickled() -> None:
    @sooner.remote
    def fails() -> None:
        error = ValueError("locked")
        error.lock = threading.Lock()  # type: ignore[attr-defined]
        raise error

    with pytest.raises(TaskError, match="locked"):
        sooner.get(fails.remote(), timeout=WAIT)


def test_exception_whose_class_is_missing_on_this_side() -> None:
    @sooner.remote
    def fails() -> None:
        import types

        module = types.ModuleType("only_there")
        sys.modules["only_there"] = module
        exec("class Odd(Exception): pass", module.__dict__)
        module.Odd.__module__ = "only_there"
        raise module.Odd("strange")

    with pytest.raises(TaskError, match="strange"):
        sooner.get(fails.remote(), timeout=WAIT)


@pytest.mark.chaos
def test_worker_killed_in_the_middle_of_a_task_without_retry() -> None:
    @sooner.remote(max_retries=0)
    def dies() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(WorkerCrashedError, match="signal 9"):
        sooner.get(dies.remote(), timeout=WAIT)


@pytest.mark.chaos
def test_worker_killed_in_the_middle_of_a_task_is_retried(tmp_path: object) -> None:
    flag = f"{tmp_path}/once"

    @sooner.remote(max_retries=1)
    def dies_once() -> str:
        if not os.path.exists(flag):
            open(flag, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return "second"

    assert sooner.get(dies_once.remote(), timeout=WAIT) == "second"


@pytest.mark.chaos
def test_tasks_behind_a_crash_that_had_not_begun_do_not_spend_a_retry() -> None:
    @sooner.remote(max_retries=0)
    def maybe(n: int) -> int:
        if n == 150:
            os.kill(os.getpid(), signal.SIGKILL)
        return n

    sooner.get([maybe.remote(n) for n in range(100)], timeout=WAIT)
    refs = [maybe.remote(n) for n in range(100, 300)]
    lost = 0
    for n, ref in enumerate(refs, start=100):
        try:
            assert sooner.get(ref, timeout=WAIT) == n
        except WorkerCrashedError:
            lost += 1
    # The one that crashed, and those whose replies had not left: never the whole queue behind it.
    assert 1 <= lost < 100


@sooner.remote
class Fragile:
    def __init__(self, fails: bool = False) -> None:
        if fails:
            raise RuntimeError("no construction today")

    def fine(self) -> str:
        return "fine"

    def pid(self) -> int:
        return os.getpid()

    def exit(self) -> None:
        os._exit(3)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def test_actor_that_dies_in_its_constructor() -> None:
    actor = Fragile.remote(fails=True)
    for _ in range(2):
        with pytest.raises(ActorDiedError, match="no construction today"):
            sooner.get(actor.fine.remote(), timeout=WAIT)


@pytest.mark.chaos
def test_actor_that_dies_in_a_method_with_calls_queued() -> None:
    actor = Fragile.remote()
    assert sooner.get(actor.fine.remote(), timeout=WAIT) == "fine"
    refs = [actor.exit.remote(), *(actor.fine.remote() for _ in range(5))]
    for ref in refs:
        with pytest.raises(ActorDiedError, match="status 3"):
            sooner.get(ref, timeout=WAIT)


@pytest.mark.chaos
def test_actor_that_dies_between_calls() -> None:
    actor = Fragile.remote()
    os.kill(sooner.get(actor.pid.remote(), timeout=WAIT), signal.SIGKILL)

    def call_for_a_while() -> None:
        for _ in range(1000):
            sooner.get(actor.fine.remote(), timeout=WAIT)
            time.sleep(0.01)

    with pytest.raises(ActorDiedError):
        call_for_a_while()


@pytest.mark.api("failure.kill")
def test_kill_ends_calls_in_flight_and_later_ones() -> None:
    actor = Fragile.remote()
    sooner.get(actor.fine.remote(), timeout=WAIT)
    running = actor.sleep.remote(600)
    sooner.kill(actor)
    with pytest.raises(ActorDiedError, match="kill"):
        sooner.get(running, timeout=WAIT)
    with pytest.raises(ActorDiedError):
        sooner.get(actor.fine.remote(), timeout=WAIT)


def test_resource_that_can_never_be_had(caplog: pytest.LogCaptureFixture) -> None:
    ref = identity.options(resources={"unobtainium": 1}).remote(1)
    with pytest.raises(GetTimeoutError):
        sooner.get(ref, timeout=0.5)
    assert "unobtainium" in caplog.text
    assert "CPU" in caplog.text
    sooner.cancel(ref)
    with pytest.raises(TaskCancelledError):
        sooner.get(ref, timeout=WAIT)


@pytest.mark.parametrize("options", [{"num_cpu": 1}, {"num_cpus": "two"}, {"max_retries": 1.5}, {"num_returns": -1}])
def test_bad_options_name_the_option(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        sooner.remote(**options)(lambda: None)


def test_wrong_number_of_returns() -> None:
    @sooner.remote(num_returns=3)
    def two() -> tuple[int, int]:
        return 1, 2

    for ref in two.remote():
        with pytest.raises(ValueError, match="num_returns=3"):
            sooner.get(ref, timeout=WAIT)


def test_wrong_number_of_arguments() -> None:
    with pytest.raises(TypeError, match="identity"):
        identity.remote()
    with pytest.raises(TypeError, match="identity"):
        identity.remote(1, 2)
    with pytest.raises(TypeError, match="Fragile"):
        Fragile.remote(1, 2, 3)


def test_fork_in_the_driver() -> None:
    done = run_driver("""
        import os, sooner
        @sooner.remote
        def f(): return 7
        sooner.init(num_cpus=1)
        ref = f.remote()
        pid = os.fork()
        if pid == 0:
            try:
                f.remote()
            except RuntimeError as error:
                os._exit(5 if "fork" in str(error) else 6)
            os._exit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), sooner.get(f.remote(), timeout=30), sooner.get(ref))
    """)
    assert done.stdout.split() == ["5", "7", "7"], done.stderr


def test_shutdown_with_work_in_flight_and_init_again() -> None:
    done = run_driver("""
        import time, sooner
        @sooner.remote
        def slow(): time.sleep(600)
        @sooner.remote
        def quick(x): return x
        for round in range(3):
            sooner.init(num_cpus=2)
            old = quick.remote(round)
            assert sooner.get(old, timeout=30) == round
            refs = [slow.remote() for _ in range(10)]
            sooner.shutdown()
            for ref in (old, refs[0]):
                try:
                    sooner.get(ref)
                except ValueError as error:
                    assert "session" in str(error), error
                else:
                    raise AssertionError("a ref of an earlier init was accepted")
        print("done")
    """)
    assert done.stdout.split() == ["done"], done.stderr


def test_cancel_queued_running_and_forced() -> None:
    @sooner.remote(num_cpus=2)
    def sleeps() -> None:
        time.sleep(600)

    @sooner.remote(num_cpus=2)
    def spins() -> None:
        while True:
            pass

    for make, force in ((sleeps, False), (spins, False), (sleeps, True)):
        running, queued = make.remote(), sleeps.remote()
        time.sleep(0.3)
        sooner.cancel(queued)
        with pytest.raises(TaskCancelledError):
            sooner.get(queued, timeout=WAIT)
        sooner.cancel(running, force=force)
        with pytest.raises(TaskCancelledError):
            sooner.get(running, timeout=WAIT)
    assert sooner.get(identity.remote(3), timeout=WAIT) == 3


def test_cancel_async_actor_call() -> None:
    @sooner.remote
    class Waits:
        async def long(self) -> None:
            await asyncio.sleep(600)

        async def quick(self) -> int:
            return 1

    actor = Waits.remote()
    ref = actor.long.remote()
    assert sooner.get(actor.quick.remote(), timeout=WAIT) == 1
    sooner.cancel(ref)
    with pytest.raises(TaskCancelledError):
        sooner.get(ref, timeout=WAIT)
    with pytest.raises(ValueError, match="kill"):
        sooner.cancel(actor.long.remote(), force=True)


@pytest.mark.chaos
def test_nothing_is_left_after_the_driver_is_killed(tmp_path: object) -> None:
    code = """
        import os, sys, time, sooner
        @sooner.remote
        class A:
            def pid(self): return os.getpid()
        @sooner.remote
        def slow(): time.sleep(600)
        context = sooner.init(num_cpus=2)
        actors = [A.remote() for _ in range(3)]
        refs = [slow.remote() for _ in range(2)]
        print(context["session_dir"], *sooner.get([a.pid.remote() for a in actors]), flush=True)
        time.sleep(600)
    """
    driver = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    directory, *pids = driver.stdout.readline().split()
    driver.kill()
    driver.wait()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        alive = [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
        if not alive and not os.path.exists(directory):
            break
        time.sleep(0.05)
    assert not alive
    assert not os.path.exists(directory)


def test_no_tcp_listener_and_private_modes() -> None:
    done = run_driver("""
        import os, stat, sooner
        context = sooner.init(num_cpus=1)
        @sooner.remote
        def f(): return os.getpid()
        pids = [os.getpid(), sooner.get(f.remote(), timeout=30)]
        for pid in pids:
            inodes = set()
            for fd in os.listdir(f"/proc/{pid}/fd"):
                try: target = os.readlink(f"/proc/{pid}/fd/{fd}")
                except OSError: continue
                if target.startswith("socket:["): inodes.add(target[8:-1])
            for table in ("tcp", "tcp6", "udp", "udp6"):
                for line in open(f"/proc/{pid}/net/{table}").readlines()[1:]:
                    assert line.split()[9] not in inodes, line
        directory = context["session_dir"]
        assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700
        assert stat.S_IMODE(os.stat(directory + "/logs").st_mode) == 0o700
        assert stat.S_IMODE(os.stat(directory + "/node.sock").st_mode) == 0o600
        import socket
        for garbage in (b"GET / HTTP/1.1\\r\\n\\r\\n", b"\\xff" * 64, b"\\x00" * 8):
            with socket.socket(socket.AF_UNIX) as stranger:
                stranger.connect(directory + "/node.sock")
                stranger.sendall(garbage)
                stranger.settimeout(10)
                try:
                    while stranger.recv(4096): pass
                except (TimeoutError, ConnectionError): pass
        assert sooner.get(f.remote(), timeout=30) == pids[1]
        sooner.shutdown()
        assert not os.path.exists(directory)
        print("private")
    """)
    assert done.stdout.split() == ["private"], done.stderr


def test_output_is_prefixed_and_whole() -> None:
    done = run_driver("""
        import os, sys, sooner
        sooner.init(num_cpus=2)
        @sooner.remote
        def speak(n):
            print(f"line {n} " + "y" * 50)
            print(f"error {n}", file=sys.stderr)
            if n == 0:
                os.write(1, b"from C\\n")
                print("no end", end="")
            return os.getpid()
        pids = set(sooner.get([speak.remote(n) for n in range(500)], timeout=60))
        sooner.shutdown()
        print("pids", *pids)
    """)
    lines = done.stdout.splitlines()
    pids = lines[-1].split()[1:]
    spoken = [line for line in lines if "line" in line]
    numbers = sorted(int(line.split("line ")[1].split()[0]) for line in spoken)
    assert numbers == list(range(500)), done.stderr
    allowed = {f"(speak pid={pid})" for pid in pids}
    clean = [line for line in spoken if "no end" not in line]
    assert len(clean) >= 499
    assert all(line.split(" line")[0] in allowed and line.endswith("y" * 50) for line in clean)
    assert sum("error" in line for line in done.stderr.splitlines()) == 500
    assert sum("from C" in line for line in lines) == 1
    assert sum("no end" in line for line in lines) == 1
