"""Failures, from the list "bad input and failure": each ends in a value or a clear typed error, and nothing
is lost.

One section for each item, in its words; `test_bad_input.py` has the input.
"""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest
from support import WAIT, is_alive, poll, run_driver

import sooner
from sooner.exceptions import ActorDiedError, GetTimeoutError, OwnerDiedError, WorkerCrashedError

pytestmark = pytest.mark.usefixtures("shared_session")


@sooner.remote
def identity(value):
    return value


@sooner.remote
def pid():
    return os.getpid()


@sooner.remote
class Plain:
    def __init__(self, first=None):
        if isinstance(first, BaseException):
            raise first
        self.first = first

    def echo(self, value):
        return value

    def pid(self):
        return os.getpid()

    def die(self, how):
        how()

    def block(self, path):
        path.touch()
        time.sleep(10 * WAIT)


@pytest.fixture(autouse=True)
def the_session_still_works():
    """Whatever a test did, afterwards tasks run."""
    yield
    assert sooner.get([identity.remote(n) for n in range(4)], timeout=WAIT) == [0, 1, 2, 3]


# --- a worker killed with -9 in the middle of a task (retry if allowed, else
# `WorkerCrashedError`) -------------------


def suicide():
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.api("task.max_retries", "failure.worker")
@pytest.mark.chaos
@pytest.mark.parametrize(
    "end",
    [suicide, lambda: os._exit(0), lambda: os._exit(7), os.abort],
    ids=["killed", "exit 0", "exit 7", "abort"],
)
def test_a_worker_killed_in_the_middle_of_a_task(end):
    """A worker killed with -9 in the middle of a task: `WorkerCrashedError`."""

    @sooner.remote(max_retries=0)
    def dies():
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        end()

    with pytest.raises(WorkerCrashedError):
        sooner.get(dies.remote(), timeout=WAIT)


@pytest.mark.api("task.max_retries", "errors.process", "failure.worker")
@pytest.mark.chaos
@pytest.mark.parametrize(("retries", "attempts"), [(0, 1), (2, 3), (None, 4)], ids=["none", "two", "default"])
def test_a_worker_that_is_killed_each_time(tmp_path, retries, attempts):
    """Retry if allowed, else `WorkerCrashedError`: as often as allowed, and not once more."""
    marks = tmp_path / "marks"

    def dies():
        with marks.open("a") as file:
            file.write("x")
        suicide()

    function = sooner.remote(dies) if retries is None else sooner.remote(max_retries=retries)(dies)
    with pytest.raises(WorkerCrashedError):
        sooner.get(function.remote(), timeout=WAIT)
    assert marks.read_text() == "x" * attempts


@pytest.mark.api("task.max_retries")
@pytest.mark.chaos
@pytest.mark.parametrize("retries", [3, -1])
def test_a_worker_killed_thrice(tmp_path, retries):
    """Retry if allowed."""
    marks = tmp_path / "marks"

    @sooner.remote(max_retries=retries)
    def dies_thrice(*values):
        with marks.open("a") as file:
            file.write("x")
        if len(marks.read_text()) < 4:
            suicide()
        return sum(len(value) for value in values)

    large, small = sooner.put(b"x" * (1 << 20)), sooner.put(b"y")
    assert sooner.get(dies_thrice.remote(large, small), timeout=WAIT) == (1 << 20) + 1
    assert marks.read_text() == "xxxx"


@pytest.mark.api("failure.worker")
@pytest.mark.chaos
def test_a_crash_does_not_touch_the_tasks_around_it():
    """Nothing is lost: tasks before, beside and behind a crash give their values."""

    @sooner.remote(max_retries=0)
    def maybe(n):
        if n == 100:
            suicide()
        return n

    @sooner.remote
    def others(n):
        return n

    crash = maybe.remote(100)
    rest = [others.remote(n) for n in range(500)]
    assert sooner.get(rest, timeout=WAIT) == list(range(500))
    with pytest.raises(WorkerCrashedError):
        sooner.get(crash, timeout=WAIT)


@pytest.mark.api("ref.ownership")
@pytest.mark.chaos
def test_results_of_a_worker_outlive_it():
    """Nothing is lost: what a worker has returned is there when it is dead."""

    @sooner.remote
    def make():
        return os.getpid(), np.ones(1 << 18), b"small"

    ref = make.remote()
    sooner.wait([ref], timeout=WAIT)
    worker = sooner.get(ref, timeout=WAIT)[0]
    os.kill(worker, signal.SIGKILL)
    poll("the worker is gone", lambda: not is_alive(worker))
    _, array, small = sooner.get(ref, timeout=WAIT)
    assert array.sum() == 1 << 18
    assert small == b"small"


@pytest.mark.api("ref.ownership", "errors.lost", "failure.owner")
@pytest.mark.chaos
@pytest.mark.parametrize("size", [10, 1 << 20], ids=["inline", "stored"])
def test_what_a_dead_worker_owned_is_an_owner_died_error(size):
    """Every wait ends: a ref whose owner was killed raises `OwnerDiedError`."""

    @sooner.remote
    class Owner:
        def make(self, size):
            self.refs = [sooner.put(b"x" * size), pid.options(resources={"nowhere": 1}).remote()]
            return self.refs

    owner = Owner.remote()
    put, pending = sooner.get(owner.make.remote(size), timeout=WAIT)
    sooner.kill(owner)
    with pytest.raises(OwnerDiedError):
        sooner.get(pending, timeout=WAIT)
    with pytest.raises(OwnerDiedError):
        sooner.get(put, timeout=WAIT)


@pytest.mark.chaos
def test_a_worker_killed_while_its_task_waits_for_another():
    """A worker killed in the middle of `get`: its CPU comes back."""

    @sooner.remote(max_retries=0)
    def waits(path):
        path_ref = Plain.remote()
        ref = path_ref.block.remote(path)
        os.kill(os.getpid(), signal.SIGKILL)
        return sooner.get(ref)

    import pathlib
    import tempfile

    for _ in range(4):
        with tempfile.TemporaryDirectory() as directory, pytest.raises(WorkerCrashedError):
            sooner.get(waits.remote(pathlib.Path(directory) / "mark"), timeout=WAIT)
    poll("all CPUs are free", lambda: sooner.available_resources().get("CPU", 0) == 2)


# --- an actor that dies in its constructor, in a method, between calls, with calls
# queued ---------------------------


@pytest.mark.api("errors.actor")
def test_an_actor_that_dies_in_its_constructor_by_an_exception():
    """An actor that dies in its constructor: `ActorDiedError` with the constructor's error."""
    actor = Plain.remote(ValueError("no construction today"))
    for _ in range(2):
        with pytest.raises(ActorDiedError, match="no construction today") as caught:
            sooner.get(actor.pid.remote(), timeout=WAIT)
        assert caught.value.actor_init_failed


@pytest.mark.chaos
def test_an_actor_that_is_killed_in_its_constructor():
    """An actor that dies in its constructor, by a signal."""

    @sooner.remote
    class Stillborn:
        def __init__(self):
            suicide()

        def echo(self, value):
            return value

    actor = Stillborn.remote()
    refs = [actor.echo.remote(n) for n in range(3)]
    for ref in refs:
        with pytest.raises(ActorDiedError):
            sooner.get(ref, timeout=WAIT)


def test_an_actor_whose_constructor_argument_failed():
    """An actor that dies in its constructor, because an argument of it is an error."""

    @sooner.remote
    def fails():
        raise KeyError("argument")

    actor = Plain.remote(fails.remote())
    with pytest.raises((ActorDiedError, KeyError), match="argument"):
        sooner.get(actor.pid.remote(), timeout=WAIT)


@pytest.mark.chaos
@pytest.mark.parametrize("end", [suicide, lambda: os._exit(3)], ids=["killed", "exit"])
def test_an_actor_that_dies_in_a_method_with_calls_queued(end):
    """An actor that dies in a method, with calls queued: all of them raise `ActorDiedError`."""
    actor = Plain.remote()
    # Waited for: a reply that was not sent within the last millisecond dies with the process.
    done = actor.echo.remote("done")
    sooner.wait([done], timeout=WAIT)
    refs = [actor.die.remote(end), *(actor.echo.remote(n) for n in range(20))]
    for ref in refs:
        with pytest.raises(ActorDiedError):
            sooner.get(ref, timeout=WAIT)
    assert sooner.get(done, timeout=WAIT) == "done"
    with pytest.raises(ActorDiedError):
        sooner.get(actor.echo.remote(1), timeout=WAIT)


@pytest.mark.chaos
def test_an_actor_that_dies_between_calls():
    """An actor that dies between calls."""
    actor = Plain.remote()
    actor_pid = sooner.get(actor.pid.remote(), timeout=WAIT)
    os.kill(actor_pid, signal.SIGKILL)
    poll("the process is gone", lambda: not is_alive(actor_pid))
    with pytest.raises(ActorDiedError):
        sooner.get(actor.pid.remote(), timeout=WAIT)


@pytest.mark.api("failure.kill")
@pytest.mark.chaos
def test_an_actor_that_is_killed_with_calls_running_and_queued(tmp_path):
    """An actor that dies with calls queued, by `sooner.kill`; also for other callers than the one who
    kills.
    """
    actor = Plain.remote()
    mark = tmp_path / "mark"
    running = actor.block.remote(mark)
    queued = [actor.echo.remote(n) for n in range(10)]

    @sooner.remote(num_cpus=0.5)
    def other(box):
        try:
            sooner.get(box[0].echo.remote(1))
        except ActorDiedError as error:
            return str(error)

    elsewhere = other.remote([actor])
    poll("the call runs", mark.exists)
    sooner.kill(actor)
    for ref in (running, *queued):
        with pytest.raises(ActorDiedError, match="kill"):
            sooner.get(ref, timeout=WAIT)
    assert "kill" in sooner.get(elsewhere, timeout=WAIT)


@pytest.mark.chaos
def test_a_thousand_calls_in_flight_when_the_actor_dies():
    """An actor that dies with calls queued: each has a value or `ActorDiedError`, and values come first."""
    actor = Plain.remote()
    refs = [actor.echo.remote(n) for n in range(500)]
    refs.append(actor.die.remote(suicide))
    refs += [actor.echo.remote(n) for n in range(500)]
    values = 0
    for n, ref in enumerate(refs):
        try:
            assert sooner.get(ref, timeout=WAIT) == n == values
            values += 1
        except ActorDiedError:
            pass
    assert values <= 500


# --- `get` with a
# timeout --------------------------------------------------------------------------------------------


def test_get_with_a_timeout(tmp_path):
    """`get` with a timeout: a typed error that is also a `TimeoutError`; the task goes on."""
    gate = tmp_path / "gate"

    @sooner.remote
    def waits():
        while not gate.exists():
            time.sleep(0.005)
        return "late"

    ref = waits.remote()
    for timeout in (0, 0.01, 0.2, -1):
        with pytest.raises(GetTimeoutError) as caught:
            sooner.get(ref, timeout=timeout)
        assert isinstance(caught.value, TimeoutError)
    gate.touch()
    assert sooner.get(ref, timeout=WAIT) == "late"


# --- `fork` in the
# driver --------------------------------------------------------------------------------------------


def test_fork_in_the_driver():
    """`fork` in the driver: the child is told, the parent goes on, and the child may have a session of its
    own.
    """
    done = run_driver(
        """
        import os, sys, sooner
        @sooner.remote
        def f(x):
            return x
        sooner.init(num_cpus=1)
        ref = f.remote(1)
        sooner.get(ref)
        def child():
            refused = 0
            for use in (lambda: sooner.get(ref, timeout=30), lambda: f.remote(2), lambda: sooner.put(3),
                        lambda: sooner.wait([ref]), sooner.get_runtime_context, sooner.cluster_resources):
                try:
                    use()
                except Exception as error:
                    refused += "fork" in str(error) or "session" in str(error)
            assert not sooner.is_initialized()
            sooner.init(num_cpus=1)
            assert sooner.get(f.remote(4), timeout=30) == 4
            sooner.shutdown()
            return refused
        pid = os.fork()
        if pid == 0:
            status = 100
            try:
                status = child()
            finally:
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(status, sooner.get(f.remote(5), timeout=30), sooner.get(ref))
        """
    )
    assert done.stdout == "6 5 1\n", done.stderr


# --- several threads calling the
# API ---------------------------------------------------------------------------------


def test_several_threads_calling_the_api():
    """Several threads calling the API: all verbs at once, each thread gets its own values."""
    errors = []
    actor = Plain.remote()

    def work(seed):
        try:
            for n in range(20):
                token = f"{seed}-{n}"
                refs = [identity.remote((token, i)) for i in range(10)]
                large = sooner.put(token.encode() * 50_000)
                assert sooner.get(actor.echo.remote(token), timeout=WAIT) == token
                ready, rest = sooner.wait(refs, num_returns=10, timeout=WAIT)
                assert (ready, rest) == (refs, [])
                assert sooner.get(refs, timeout=WAIT) == [(token, i) for i in range(10)]
                assert sooner.get(large) == token.encode() * 50_000
                own = Plain.remote(token) if n % 10 == 0 else actor
                assert sooner.get(own.echo.remote(large), timeout=WAIT) == token.encode() * 50_000
                cancelled = identity.remote(token)
                sooner.cancel(cancelled)
                assert identity.remote(token).future().result(WAIT) == token
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * WAIT)
    assert not any(thread.is_alive() for thread in threads)
    assert not errors


def test_threads_of_a_task_calling_the_api():
    """Several threads calling the API, inside a task."""

    @sooner.remote
    def fans_out():
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(lambda n: sooner.get(identity.remote(n)), range(40)))

    assert sooner.get(fans_out.remote(), timeout=WAIT) == list(range(40))


# --- Ctrl-C in
# `get` -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "verb", ["sooner.get(ref)", "sooner.get([ref])", "sooner.wait([ref])", "sooner.get(ref, timeout=500)"]
)
def test_ctrl_c_in_get(verb):
    """Ctrl-C in `get`, to the whole process group as a terminal sends it: the call ends, the session goes
    on.
    """
    done = run_driver(
        f"""
        import os, signal, threading, time, sooner
        signal.signal(signal.SIGINT, signal.default_int_handler)
        @sooner.remote
        def slow():
            while not os.path.exists(path):
                time.sleep(0.01)
            return "unharmed"
        @sooner.remote
        class A:
            def f(self):
                return "alive"
        import tempfile
        path = tempfile.mkdtemp() + "/gate"
        sooner.init(num_cpus=2)
        actor = A.remote()
        assert sooner.get(actor.f.remote()) == "alive"
        ref = slow.remote()
        for _ in range(2):
            threading.Timer(0.3, lambda: os.killpg(0, signal.SIGINT)).start()
            try:
                {verb}
            except KeyboardInterrupt:
                print("interrupted")
        open(path, "w").close()
        print(sooner.get(ref, timeout=60), sooner.get(actor.f.remote(), timeout=60))
        sooner.shutdown()
        """,
        start_new_session=True,
    )
    assert done.stdout == "interrupted\ninterrupted\nunharmed alive\n"
    assert done.stderr == ""


def test_ctrl_c_ends_a_driver():
    """Ctrl-C in `get` that nobody catches: the driver ends like any Python program, and quietly."""
    done = run_driver(
        """
        import os, signal, threading, time, sooner
        signal.signal(signal.SIGINT, signal.default_int_handler)
        @sooner.remote
        def slow():
            time.sleep(1000)
        sooner.init(num_cpus=2)
        refs = [slow.remote() for _ in range(4)]
        threading.Timer(0.3, lambda: os.killpg(0, signal.SIGINT)).start()
        sooner.get(refs)
        """,
        start_new_session=True,
        check=False,
    )
    assert done.returncode in (1, -signal.SIGINT)
    assert done.stderr.count("Traceback") == 1
    assert done.stderr.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.parametrize("uses_sooner", [False, True], ids=["raises", "uses sooner"])
def test_a_signal_handler(uses_sooner):
    """Another signal than Ctrl-C in `get`: its handler runs at once, and may use sooner itself."""
    done = run_driver(
        """
        import signal, sys, time, sooner
        @sooner.remote
        def slow():
            time.sleep(1000)
        @sooner.remote(num_cpus=0)
        def quick():
            return "quick"
        sooner.init(num_cpus=1)
        ref = slow.remote()
        class Alarm(Exception):
            pass
        def handler(number, frame):
            if len(sys.argv) > 1:
                assert sooner.get(quick.remote(), timeout=20) == "quick"
            raise Alarm
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        try:
            sooner.get(ref)
        except Alarm:
            print("alarm")
        sooner.shutdown()
        """,
        *["sooner"] * uses_sooner,
    )
    assert done.stdout == "alarm\n"


# --- `shutdown` with work in flight, and `init` again after
# it -------------------------------------------------------


def test_shutdown_with_work_in_flight_and_init_again():
    """`shutdown` with work in flight, and `init` again after it."""
    done = run_driver(
        """
        import time, sooner
        @sooner.remote
        def slow(x=None):
            time.sleep(1000)
        @sooner.remote
        def quick(x):
            return x
        @sooner.remote
        class A:
            def slow(self):
                time.sleep(1000)
        for n in range(5):
            sooner.init(num_cpus=2)
            actor = A.remote()
            refs = [actor.slow.remote(), *(slow.remote() for _ in range(10)), *(quick.remote(i) for i in range(5000))]
            refs += [slow.remote(refs[0]), quick.remote(b"x" * (1 << 20))]
            if n % 2:
                time.sleep(0.1)
            sooner.shutdown()
            assert not sooner.is_initialized()
        sooner.init(num_cpus=2)
        print(sooner.get([quick.remote(i) for i in range(3)], timeout=60))
        """
    )
    assert done.stdout == "[0, 1, 2]\n"
    assert done.stderr == ""


# --- nesting 200 tasks
# deep ------------------------------------------------------------------------------------------


def test_nesting_200_tasks_deep():
    """Nesting 200 tasks deep: each waits for the next."""

    @sooner.remote
    def nested(depth):
        return 1 + sooner.get(nested.remote(depth - 1)) if depth else 0

    assert sooner.get(nested.remote(200), timeout=2 * WAIT) == 200


def test_an_error_through_50_tasks():
    """Nesting deep, and the innermost raises: the error stays readable."""

    @sooner.remote
    def nested(depth):
        if not depth:
            raise KeyError("at the bottom")
        return sooner.get(nested.remote(depth - 1))

    with pytest.raises(KeyError) as caught:
        sooner.get(nested.remote(50), timeout=2 * WAIT)
    assert "at the bottom" in str(caught.value)
    assert len(str(caught.value)) < 1 << 20


# --- a task that prints a
# gigabyte -----------------------------------------------------------------------------------


def test_a_task_that_prints_a_gigabyte():
    """A task that prints a gigabyte: every line arrives, driver and disk stay small."""
    done = run_driver(
        """
        import pathlib, sys, sooner
        @sooner.remote
        def chatty():
            block = "\\n".join(["x" * 1023] * 1024)
            for _ in range(1024):
                print(block)
            return "printed"
        class Count:
            lines = longest = 0
            def write(self, text):
                self.lines += text.count("x" * 1023 + "\\n")
            def flush(self):
                pass
        real, sys.stdout = sys.stdout, Count()
        context = sooner.init(num_cpus=1)
        result = sooner.get(chatty.remote(), timeout=200)
        disk = sum(path.stat().st_size for path in pathlib.Path(context["session_dir"], "logs").rglob("*"))
        sooner.shutdown()
        # Not `ru_maxrss`, which begins with what the process had that started this one.
        (peak,) = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
        memory = int(peak.split()[1]) << 10
        print(result, sys.stdout.lines, disk < 200 << 20, memory < 400 << 20, file=real)
        """,
        timeout=220,
    )
    assert done.stdout == f"printed {1 << 20} True True\n"
