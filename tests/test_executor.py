"""sooner.util.Executor against what the standard library documents for its executors."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import functools
import gc
import itertools
import multiprocessing
import os
import pickle
import signal
import threading
import time
import weakref
from concurrent.futures import CancelledError, Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest
from support import WAIT, poll, run_driver, running_driver

import sooner
from sooner.exceptions import TaskCancelledError, WorkerCrashedError
from sooner.util import Executor

pytestmark = pytest.mark.usefixtures("shared_session")


def square(number):
    return number * number


def wait_for_file(path):
    deadline = time.monotonic() + WAIT
    while not Path(path).exists():
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return os.getpid()


@pytest.fixture
def executor():
    with Executor() as executor:
        yield executor


@pytest.mark.api("own.executor")
def test_submit(executor):
    future = executor.submit(pow, 323, 1235)
    assert isinstance(future, Future)
    assert future.result(WAIT) == 323**1235
    assert future.done()
    assert not future.cancel()
    assert executor.submit(square, number=4).result(WAIT) == 16
    assert executor.submit(lambda *, a: a, a=1).result(WAIT) == 1


@pytest.mark.api("own.executor")
def test_the_standard_functions_for_futures(executor):
    futures = [executor.submit(square, number) for number in range(20)]
    done, not_done = concurrent.futures.wait(futures, timeout=WAIT)
    assert len(done) == 20
    assert not not_done
    assert {future.result() for future in concurrent.futures.as_completed(futures)} == {n * n for n in range(20)}


def test_an_exception_is_that_of_the_call(executor):
    """Not one of a class of ours: programs compare types and arguments, and print the cause."""

    def bad():
        raise KeyError("missing")  # here

    future = executor.submit(bad)
    error = future.exception(WAIT)
    assert type(error) is KeyError
    assert error.args == ("missing",)
    assert 'raise KeyError("missing")  # here' in str(error.__cause__)
    with pytest.raises(KeyError, match="missing"):
        future.result()
    with pytest.raises(KeyError, match="missing"):
        list(executor.map(lambda _: bad(), range(3), chunksize=2))


class Unpicklable:
    def __init__(self, error):
        self.error = error

    def __reduce__(self):
        raise self.error


@pytest.mark.parametrize("error", [RuntimeError("not this one"), OSError(5, "gone"), pickle.PicklingError("nor this")])
def test_what_an_argument_raises_when_it_is_pickled_comes_as_it_is(executor, error):
    future = executor.submit(square, Unpicklable(error))
    assert future.exception(WAIT) is error
    assert "argument" in "".join(error.__notes__)


def test_it_costs_no_multiprocessing():
    """Workers import it for each program, and it would take as long as all else."""
    done = run_driver(
        """
        import sys, sooner
        sooner.Executor
        print("sooner.util.executor" in sys.modules, "multiprocessing" in sys.modules)
        """
    )
    assert done.stdout == "True False\n"


def test_arguments_are_not_kept_by_the_future(executor):
    class Argument:
        pass

    argument = Argument()
    seen = weakref.ref(argument)
    future = executor.submit(type, argument)
    del argument
    poll("the argument is free", lambda: gc.collect() is not None and seen() is None)
    assert future.result(WAIT).__name__ == "Argument"


@pytest.mark.parametrize("ends", ["raise ValueError('no set-up')", "raise SystemExit('no set-up')"])
def test_an_initializer_that_fails_breaks_the_executor(ends, caplog):
    def set_up():
        exec(ends)

    with Executor(2, None, set_up) as executor:
        futures = []
        # It may be broken before all were submitted.
        with contextlib.suppress(BrokenProcessPool):
            futures += map(executor.submit, itertools.repeat(square), range(300))
        for future in futures:
            assert isinstance(future.exception(WAIT), BrokenProcessPool)
        with pytest.raises(BrokenProcessPool, match="no set-up"):
            executor.submit(square, 1)
    assert caplog.text.count("Exception in initializer") == 1


def test_the_arguments_of_the_standard_executor():
    def set_up(_value):
        pass

    context = multiprocessing.get_context("spawn")
    with Executor(1, context, set_up, (5,), max_tasks_per_child=3) as executor:
        pids = [executor.submit(os.getpid).result(WAIT) for _ in range(7)]
    assert [len(set(pids[n : n + 3])) for n in (0, 3)] == [1, 1]
    assert len(set(pids)) == 3
    with pytest.raises(TypeError, match="mp_context"):
        Executor(mp_context="spawn")
    with pytest.raises(ValueError, match="max_tasks_per_child"):
        Executor(max_tasks_per_child=0)
    with pytest.raises(TypeError, match="max_tasks_per_child"):
        Executor(max_tasks_per_child="3")


def test_what_cannot_be_pickled_fails_its_future_alone(executor):
    bad = executor.submit(square, threading.Lock())
    with pytest.raises(TypeError, match="pickled"):
        bad.result(WAIT)
    assert executor.submit(square, 3).result(WAIT) == 9


def test_a_closure_is_read_at_every_call(executor):
    state = [1]

    def read():
        return state[0]

    assert executor.submit(read).result(WAIT) == 1
    state[0] = 2
    assert executor.submit(read).result(WAIT) == 2


@pytest.mark.api("own.executor")
def test_map(executor):
    assert list(executor.map(square, range(1000))) == [n * n for n in range(1000)]
    assert list(executor.map(pow, [2, 3], [5, 2])) == [32, 9]
    assert list(executor.map(square, [])) == []
    assert list(executor.map(square, range(25), chunksize=10)) == [n * n for n in range(25)]


def test_map_raises_at_its_place(executor):
    results = executor.map(lambda n: 1 // n, [1, 0, 1])
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_map_with_a_timeout(executor, tmp_path):
    with pytest.raises(TimeoutError):
        list(executor.map(wait_for_file, [str(tmp_path / "go")], timeout=0.05))
    (tmp_path / "go").touch()


@pytest.mark.api("own.executor")
def test_map_streams_an_endless_input(executor):
    results = executor.map(square, itertools.count(), buffersize=8)
    assert list(itertools.islice(results, 100)) == [n * n for n in range(100)]
    chunks = executor.map(square, itertools.count(), buffersize=2, chunksize=3)
    assert list(itertools.islice(chunks, 10)) == [n * n for n in range(10)]


def test_map_takes_no_more_than_it_may(executor):
    taken = []
    results = executor.map(square, (taken.append(n) or n for n in range(100)), buffersize=4)
    assert next(results) == 0
    assert len(taken) <= 5


@pytest.mark.parametrize("size", [0, -3])
def test_sizes_that_are_none(executor, size):
    with pytest.raises(ValueError, match="chunksize"):
        executor.map(square, [1], chunksize=size)
    with pytest.raises(ValueError, match="buffersize"):
        executor.map(square, [1], buffersize=size)


@pytest.mark.api("own.executor")
def test_cancel_what_waits(tmp_path):
    with Executor(max_workers=1) as executor:
        running = executor.submit(wait_for_file, str(tmp_path / "go"))
        waiting = executor.submit(square, 2)
        last = executor.submit(square, 3)
        assert running.running()
        assert not running.cancel()
        assert waiting.cancel()
        assert waiting.cancelled()
        with pytest.raises(CancelledError):
            waiting.result()
        (tmp_path / "go").touch()
        assert last.result(WAIT) == 9


def test_max_workers(tmp_path):
    """One at a time with one worker; all at once with as many workers as calls, although there are fewer
    CPUs.
    """
    with Executor(max_workers=1) as executor:
        first = executor.submit(wait_for_file, str(tmp_path / "one"))
        second = executor.submit(square, 2)
        time.sleep(0.1)
        assert not second.running()
        (tmp_path / "one").touch()
        assert second.result(WAIT) == 4
        assert first.result(WAIT)

    def meet(name):
        (tmp_path / name).touch()
        poll("all have come", lambda: all((tmp_path / other).exists() for other in "abcd"))
        return os.getpid()

    with Executor(max_workers=4) as executor:
        assert len(set(executor.map(meet, "abcd"))) == 4


@pytest.mark.parametrize("workers", [3, 7])
def test_max_workers_that_do_not_divide_the_cpus(tmp_path, workers):
    names = [str(tmp_path / str(number)) for number in range(workers)]

    def meet(mine):
        Path(mine).touch()
        poll("all have come", lambda: all(map(os.path.exists, names)))
        return os.getpid()

    with Executor(max_workers=workers) as executor:
        assert len(set(executor.map(meet, names))) == workers


@pytest.mark.api("own.executor")
def test_shutdown(tmp_path):
    executor = Executor(max_workers=1)
    running = executor.submit(wait_for_file, str(tmp_path / "go"))
    waiting = executor.submit(square, 2)
    executor.shutdown(wait=False)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(square, 1)
    assert not waiting.done()
    (tmp_path / "go").touch()
    executor.shutdown()
    assert running.done()
    assert waiting.result() == 4
    executor.shutdown()


def test_shutdown_that_cancels(tmp_path):
    executor = Executor(max_workers=1)
    running = executor.submit(wait_for_file, str(tmp_path / "go"))
    waiting = [executor.submit(square, n) for n in range(5)]
    executor.shutdown(wait=False, cancel_futures=True)
    assert all(future.cancelled() for future in waiting)
    (tmp_path / "go").touch()
    assert running.result(WAIT)


def test_an_initializer_runs_once_in_each_worker(tmp_path):
    def set_up(directory, word):
        (Path(directory) / f"{os.getpid()}-{time.monotonic_ns()}").touch()
        os.environ["SOONER_TEST_WORD"] = word

    with Executor(initializer=set_up, initargs=(str(tmp_path), "hello")) as executor:
        assert set(executor.map(lambda _: os.environ["SOONER_TEST_WORD"], range(50))) == {"hello"}
    pids = [path.name.split("-")[0] for path in tmp_path.iterdir()]
    assert len(pids) == len(set(pids))


def test_a_callback_may_submit(executor):
    done = threading.Event()
    results = []

    def again(future):
        results.append(future.result())
        executor.submit(square, 5).add_done_callback(lambda other: (results.append(other.result()), done.set()))

    executor.submit(square, 2).add_done_callback(again)
    assert done.wait(WAIT)
    assert results == [4, 25]


def test_options():
    with Executor(options={"num_cpus": 2, "max_retries": 0}) as executor:
        assert executor.submit(lambda: sooner.get_runtime_context().get_assigned_resources()).result(WAIT)["CPU"] == 2
    with pytest.raises(ValueError, match="max_retry"):
        Executor(options={"max_retry": 3})


@pytest.mark.chaos
def test_a_worker_that_dies():
    """Unlike the standard library's, the executor goes on."""
    with Executor(options={"max_retries": 0}) as executor:
        future = executor.submit(os._exit, 1)
        with pytest.raises(WorkerCrashedError, match="exit") as caught:
            future.result(WAIT)
        # For programs that look for what the standard executor raises.
        assert isinstance(caught.value, BrokenProcessPool)
        copy = pickle.loads(pickle.dumps(caught.value))
        assert isinstance(copy, BrokenProcessPool)
        assert str(copy) == str(caught.value)
        assert executor.submit(square, 3).result(WAIT) == 9


@pytest.mark.parametrize("workers", [0, -1, 1.5, "2"], ids=repr)
def test_what_it_refuses(workers):
    with pytest.raises(ValueError, match="max_workers"):
        Executor(max_workers=workers)
    with pytest.raises(TypeError, match="initializer"):
        Executor(initializer=5)
    with Executor() as executor, pytest.raises(TypeError, match="callable"):
        executor.submit(5)


def test_a_program_that_ends_waits_for_its_calls(tmp_path):
    done = run_driver(
        """
        import sys, time, pathlib
        from sooner.util import Executor
        executor = Executor()
        def late(path):
            time.sleep(0.2)
            pathlib.Path(path).touch()
        for number in range(4):
            executor.submit(late, f"{sys.argv[1]}/{number}")
        print("end")
        """,
        tmp_path,
    )
    assert done.stdout == "end\n"
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.api("own.executor")
def test_a_session_that_ends_before_the_calls(tmp_path):
    """Nothing hangs, and no new session is started for what waits."""
    done = run_driver(
        """
        import time, sooner
        from sooner.util import Executor
        sooner.init(num_cpus=1)
        executor = Executor()
        futures = [executor.submit(time.sleep, 100) for _ in range(20)]
        sooner.shutdown()
        print(sum(future.exception(30) is not None for future in futures), sooner.is_initialized())
        executor.shutdown()
        """
    )
    assert done.stdout == "20 False\n", done.stderr


def test_terminate_workers(executor, tmp_path):
    """Running calls are interrupted, waiting ones cancelled; as in Python 3.14."""
    running = [executor.submit(wait_for_file, str(tmp_path / "never")) for _ in range(2)]
    waiting = [executor.submit(square, n) for n in range(50)]
    executor.terminate_workers()
    for future in running:
        with pytest.raises(TaskCancelledError):
            future.result(WAIT)
    for future in waiting:
        assert isinstance(future.exception(WAIT) if not future.cancelled() else CancelledError(), BaseException)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(square, 1)
    executor.terminate_workers()


@pytest.mark.api("own.executor")
def test_what_waits_behind_a_terminated_call_never_runs(executor, tmp_path, monkeypatch):
    """The window of an executor is wider than its workers: some of its calls wait in the engine."""
    cancel = sooner.cancel

    def cancel_and_rest(ref, **how):
        cancel(ref, **how)
        time.sleep(0.1)

    running = [executor.submit(wait_for_file, str(tmp_path / "never")) for _ in range(2)]
    behind = [executor.submit(Path.touch, tmp_path / f"ran-{n}") for n in range(2)]
    monkeypatch.setattr(sooner, "cancel", cancel_and_rest)
    executor.terminate_workers()
    for future in running + behind:
        with pytest.raises(TaskCancelledError):
            future.result(WAIT)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.api("own.executor")
def test_terminate_workers_ends_a_call_that_another_thread_is_handing_over(executor, tmp_path):
    class Slow:
        def __reduce__(self):
            is_pickled.set()
            assert is_ended.wait(WAIT)
            return str, (str(tmp_path / "never"),)

    is_pickled, is_ended = threading.Event(), threading.Event()
    futures = []
    handing = threading.Thread(target=lambda: futures.append(executor.submit(wait_for_file, Slow())))
    handing.start()
    assert is_pickled.wait(WAIT)
    executor.terminate_workers()
    is_ended.set()
    handing.join(WAIT)
    with pytest.raises(TaskCancelledError):
        futures[0].result(WAIT)


@pytest.mark.api("own.executor")
@pytest.mark.chaos
def test_kill_workers(executor, tmp_path):
    def stubborn():
        while not (tmp_path / "never").exists():
            try:
                (tmp_path / "runs").touch()
                time.sleep(1)
            except KeyboardInterrupt:
                continue

    future = executor.submit(stubborn)
    poll("it runs", (tmp_path / "runs").exists)
    executor.kill_workers()
    with pytest.raises(TaskCancelledError):
        future.result(WAIT)


@pytest.mark.parametrize(
    "wait",
    [
        "with sooner.Executor() as ex: list(ex.map(time.sleep, [600]))",
        "with sooner.Executor() as ex: ex.submit(time.sleep, 600)",
        "ex = sooner.Executor(); ex.submit(time.sleep, 600).result()",
        "ex = sooner.Executor(); ex.submit(time.sleep, 600).exception()",
        "ex = sooner.Executor(); ex.submit(time.sleep, 600); ex.shutdown()",
        "ex = sooner.Executor(); ex.submit(time.sleep, 600)",
        "ex = sooner.Executor(); concurrent.futures.wait([ex.submit(time.sleep, 600) for _ in range(9)])",
    ],
)
@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_ends_a_program_that_waits_for_an_executor(wait, presses):
    code = f"""
        import concurrent.futures, time
        import sooner
        sooner.init(num_cpus=2)
        sooner.get(sooner.remote(lambda: 1).remote())
        print("ready", flush=True)
        {wait}
    """
    with running_driver(code) as program:
        assert program.stdout.readline() == "ready\n"
        time.sleep(1)
        for _ in range(presses):
            program.send_signal(signal.SIGINT)
            time.sleep(0.1)
        program.wait(timeout=WAIT)
        assert program.returncode != 0 or wait.endswith("submit(time.sleep, 600)")


def test_ctrl_c_at_any_moment_loses_no_outcome():
    code = """
        import os, random, signal, threading
        import sooner

        armed = False

        def on_interrupt(*_):
            global armed
            if armed:
                armed = False
                raise KeyboardInterrupt

        signal.signal(signal.SIGINT, on_interrupt)
        sooner.init(num_cpus=2)
        executor = sooner.Executor(2)
        list(executor.map(abs, range(3)))
        chance = random.Random(1)
        for _ in range(40):
            timer = threading.Timer(chance.uniform(0.001, 0.03), os.kill, (os.getpid(), signal.SIGINT))
            try:
                # Before the timer runs: an interrupt that comes unarmed would be missed, and the loop go on for ever.
                armed = True
                timer.start()
                while True:
                    assert list(executor.map(abs, range(30))) == list(range(30))
            except KeyboardInterrupt:
                pass
            timer.join()
        assert list(executor.map(abs, range(30))) == list(range(30))
        executor.shutdown()
        print("done")
    """
    assert run_driver(code).stdout == "done\n"


@pytest.mark.parametrize("made", ["executor.submit(abs, -1)", "sooner.put(1).future()"], ids=["executor", "reference"])
def test_a_handler_that_raises_leaves_no_future_locked(made):
    """The thread that delivers results would wait for its lock for ever, and all other futures with it."""
    code = f"""
        import concurrent.futures, random, signal, threading
        import sooner

        class Interrupt(Exception):
            pass

        def on_alarm(*_):
            raise Interrupt

        signal.signal(signal.SIGALRM, on_alarm)
        sooner.init(num_cpus=1)
        executor = sooner.Executor(1)
        future = {made}
        assert future.result() == 1
        chance = random.Random(1)
        for _ in range(100):
            try:
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-4, 1e-3))
                while True:
                    future.done()
            except Interrupt:
                pass
            other = threading.Thread(target=future.done, daemon=True)
            other.start()
            other.join(10)
            assert not other.is_alive(), "it waits for the lock"
        executor.shutdown()
        print("done")
    """
    assert run_driver(code).stdout == "done\n"


def _raises(kind: type[BaseException]) -> None:
    raise kind("by the call")


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, ValueError])
def test_whatever_a_call_raises_is_its_exception(kind):
    with sooner.Executor(1) as executor:
        error = executor.submit(_raises, kind).exception(timeout=WAIT)
        assert type(error) is kind
        assert error.args == ("by the call",)
        assert executor.submit(pow, 2, 3).result(timeout=WAIT) == 8


@dataclasses.dataclass(frozen=True)
class FrozenError(Exception):
    """No attribute of an instance can be set, its `__cause__` included."""

    key: str


def raise_frozen(key):
    raise FrozenError(key)


def test_an_exception_whose_attributes_cannot_be_set(executor):
    error = executor.submit(raise_frozen, "b").exception(WAIT)
    assert error == FrozenError("b")
    assert "FrozenError: b" in str(error.__cause__)
    assert executor.submit(square, Unpicklable(FrozenError("c"))).exception(WAIT) == FrozenError("c")
    assert executor.submit(square, 3).result(WAIT) == 9


def test_calls_of_generator_functions(executor):
    """As with the standard executors, which pickle what the function returns."""

    def numbers(count):
        yield from range(count)

    calls = [executor.submit(numbers, 3), executor.submit(functools.partial(numbers, 3))]
    for future in calls:
        with pytest.raises(TypeError, match="cannot pickle 'generator' object"):
            future.result(WAIT)
    with pytest.raises(TypeError, match="cannot pickle 'generator' object"):
        list(executor.map(numbers, [1]))
    assert executor.submit(square, 3).result(WAIT) == 9


@pytest.mark.parametrize("returns", [0, 2, "streaming", "dynamic"])
def test_several_results_of_a_call_are_refused(returns):
    with pytest.raises(ValueError, match="one future"):
        Executor(options={"num_returns": returns})
    with Executor(options={"num_returns": 1}) as executor:
        assert executor.submit(divmod, 7, 2).result(WAIT) == (3, 1)


@pytest.mark.parametrize("chunksize", [1, 2])
def test_a_map_can_be_closed(executor, chunksize):
    results = executor.map(square, range(6), chunksize=chunksize)
    assert next(results) == 0
    results.close()
    assert list(results) == []


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_while_arguments_are_pickled_comes_out_of_submit(kind):
    with Executor() as executor:
        with pytest.raises(kind):
            executor.submit(square, Unpicklable(kind()))
        # Nothing of it is left: neither this nor the end of the executor waits for it.
        assert executor.submit(square, 3).result(WAIT) == 9


def test_an_interrupt_in_a_call_that_had_to_wait(tmp_path):
    """Whoever submits it has its future already."""
    with Executor(max_workers=1) as executor:
        running = executor.submit(wait_for_file, str(tmp_path / "go"))
        waiting = executor.submit(square, Unpicklable(KeyboardInterrupt()))
        (tmp_path / "go").touch()
        assert running.result(WAIT)
        assert isinstance(waiting.exception(WAIT), KeyboardInterrupt)
        assert executor.submit(square, 3).result(WAIT) == 9
