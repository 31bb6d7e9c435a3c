"""What one task sets for its process, the next one does not find; what the program sets holds in its
workers.
"""

from __future__ import annotations

import contextlib
import cProfile
import faulthandler
import gc
import io
import locale
import os
import profile
import resource
import signal
import subprocess
import sys
import threading
import time
import trace
import tracemalloc

import pytest
from support import run_driver

import sooner


def _mask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _locale() -> str:
    return locale.setlocale(locale.LC_NUMERIC)


def _arm(seconds: int) -> None:
    faulthandler.dump_traceback_later(seconds, exit=True)


def _zone() -> tuple:
    return os.environ.get("TZ"), time.tzname, time.localtime(0).tm_hour


def _told(name: str) -> str:
    """What a program that the worker starts is told."""
    return subprocess.run(["printenv", name], capture_output=True, text=True, check=False).stdout


def _caught() -> str:
    with open("/proc/self/status") as status:
        return next(line for line in status if line.startswith("SigCgt:"))


def _wake() -> None:
    end = os.pipe()[1]
    os.set_blocking(end, False)
    signal.set_wakeup_fd(end)


def _limit(seconds: int) -> tuple[int, int]:
    return seconds, resource.getrlimit(resource.RLIMIT_CPU)[1]


# What a task sets, and how another one sees it. Each setting has another value than the one before.
_SETTINGS = {
    "umask": (lambda: os.umask(0o077), _mask),
    "alarm": (lambda: signal.alarm(2), lambda: signal.getitimer(signal.ITIMER_REAL)),
    "timer": (
        lambda: signal.setitimer(signal.ITIMER_VIRTUAL, 900),
        lambda: signal.getitimer(signal.ITIMER_VIRTUAL),
    ),
    "faulthandler": (lambda: _arm(2), lambda: time.sleep(0.1)),
    "blocked signals": (
        lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGUSR2]),
        lambda: signal.pthread_sigmask(signal.SIG_BLOCK, []),
    ),
    "a signal that waits": (
        lambda: (
            signal.signal(signal.SIGUSR2, print),
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2]),
            os.kill(os.getpid(), signal.SIGUSR2),
        ),
        lambda: (signal.getsignal(signal.SIGUSR2), signal.sigpending()),
    ),
    "affinity": (
        lambda: os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]),
        lambda: os.sched_getaffinity(0),
    ),
    "resource": (
        lambda: resource.setrlimit(resource.RLIMIT_CPU, (10_000, resource.getrlimit(resource.RLIMIT_CPU)[1])),
        lambda: resource.getrlimit(resource.RLIMIT_CPU),
    ),
    "resource in two ways": (
        lambda: (
            resource.setrlimit(resource.RLIMIT_CPU, _limit(20_000)),
            resource.prlimit(0, resource.RLIMIT_CPU, _limit(19_000)),
        ),
        lambda: resource.getrlimit(resource.RLIMIT_CPU),
    ),
    "scheduler": (
        lambda: os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0)),
        lambda: os.sched_getscheduler(0),
    ),
    "time zone": (lambda: (os.environ.update(TZ="FAR-9"), time.tzset()), _zone),
    "time zone for C": (lambda: (os.putenv("TZ", "AWAY-8"), time.tzset()), _zone),
    "putenv": (lambda: os.putenv("LEFT_BY_A_TASK", "1"), lambda: _told("LEFT_BY_A_TASK")),
    "unsetenv": (lambda: os.unsetenv("PATH"), lambda: _told("PATH")),
    "crash handlers": (faulthandler.enable, faulthandler.is_enabled),
    "handler in C": (lambda: faulthandler.register(signal.SIGUSR1, file=2), _caught),
    "wake-up": (_wake, lambda: signal.set_wakeup_fd(-1)),
    "stacks of threads": (lambda: threading.stack_size(1 << 20), threading.stack_size),
    "digits": (lambda: sys.set_int_max_str_digits(777), sys.get_int_max_str_digits),
    "loading": (lambda: sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL), sys.getdlopenflags),
    "origins": (lambda: sys.set_coroutine_origin_tracking_depth(3), sys.get_coroutine_origin_tracking_depth),
    "collector's words": (lambda: gc.set_debug(gc.DEBUG_SAVEALL), gc.get_debug),
    "locale": (lambda: locale.setlocale(locale.LC_NUMERIC, "C.UTF-8"), _locale),
    "collector": (lambda: (gc.disable(), gc.set_threshold(7)), lambda: (gc.isenabled(), gc.get_threshold())),
    "recursion": (lambda: sys.setrecursionlimit(4321), sys.getrecursionlimit),
    "switches": (lambda: sys.setswitchinterval(0.123), sys.getswitchinterval),
    "tracemalloc": (tracemalloc.start, tracemalloc.is_tracing),
    "directory by name": (lambda: os.chdir(path="/"), os.getcwd),
    "stdin": (lambda: sys.stdin.close(), lambda: sys.stdin.read()),
    "another stdin": (lambda: setattr(sys, "stdin", None), lambda: sys.stdin.read()),
    "descriptor 0": (lambda: os.close(0), lambda: os.stat(0).st_rdev),
}


@pytest.mark.parametrize("name", _SETTINGS)
def test_what_a_task_sets_for_its_process_is_set_back(shared_session, name) -> None:
    spoil, look = _SETTINGS[name]

    @sooner.remote(max_retries=0)
    def looks():
        return os.getpid(), look()

    @sooner.remote(max_retries=0)
    def spoils():
        spoil()
        return os.getpid()

    # Ten at a time: some of them run in the worker that was spoilt, whichever that is.
    before = sooner.get(looks.remote())[1]
    pid = sooner.get(spoils.remote())
    found = sooner.get([looks.remote() for _ in range(10)], timeout=60)
    if name in ("alarm", "faulthandler"):
        time.sleep(3)
        found += sooner.get([looks.remote() for _ in range(10)], timeout=60)
    assert pid in {there for there, _ in found}
    if name != "alarm":
        assert [value for _, value in found] == [before] * len(found)


def test_modules_that_were_imported_for_all_workers_have_no_way_around() -> None:
    code = """
import locale, os, sooner, tracemalloc
sooner.init(num_cpus=1, preload=["locale", "tracemalloc"])
def look():
    return locale.setlocale(locale.LC_NUMERIC), tracemalloc.is_tracing(), os.getpid()
def spoil():
    locale.setlocale(locale.LC_NUMERIC, "C.UTF-8")
    tracemalloc.start()
    return look()
looks = sooner.remote(look)
before = sooner.get(looks.remote())
assert sooner.get(sooner.remote(spoil).remote()) == ("C.UTF-8", True, before[2])
assert sooner.get(looks.remote()) == before
"""
    run_driver(code)


def test_what_a_task_does_to_a_process_of_its_own_is_none_of_its_workers(shared_session) -> None:
    @sooner.remote(max_retries=0)
    def limits():
        child = subprocess.Popen(["sleep", "1000"])
        resource.prlimit(child.pid, resource.RLIMIT_CPU, _limit(10_000))
        os.sched_setaffinity(child.pid, [min(os.sched_getaffinity(0))])
        os.setpriority(os.PRIO_PROCESS, child.pid, 5)
        child.kill()
        child.wait()
        return os.getpid()

    @sooner.remote(max_retries=0)
    def pid():
        return os.getpid()

    # What has ended cannot be set back.
    there = sooner.get(limits.remote())
    assert there in sooner.get([pid.remote() for _ in range(10)], timeout=60)


def test_profilers_and_tracers_work_in_tasks(shared_session) -> None:
    def profiled():
        with contextlib.redirect_stdout(io.StringIO()) as out:
            profile.runctx("sum(range(10))", {}, {})
            cProfile.runctx("sum(range(10))", {}, {})
        return out.getvalue().count("function calls")

    def traced():
        tracer = trace.Trace(count=1, trace=0)
        tracer.runfunc(lambda: list(range(3)))
        return len(tracer.results().counts) > 0

    assert sooner.get(sooner.remote(profiled).remote()) == 2
    assert sooner.get(sooner.remote(traced).remote())


def test_a_worker_whose_process_cannot_be_set_back_runs_no_further_task(shared_session) -> None:
    @sooner.remote(max_retries=0)
    def leaves():
        os.setpgrp()
        return os.getpid()

    @sooner.remote(max_retries=0)
    def pid():
        return os.getpid()

    gone = sooner.get([leaves.remote() for _ in range(3)], timeout=60)
    assert len(set(gone)) == 3
    assert not {*gone} & {*sooner.get([pid.remote() for _ in range(10)], timeout=60)}


def test_what_the_program_sets_for_new_files_holds_in_workers(tmp_path) -> None:
    code = """
import os, sys, sooner

@sooner.remote
def touch(name):
    os.close(os.open(f"{sys.argv[1]}/{name}", os.O_CREAT | os.O_WRONLY, 0o666))
    return oct(os.stat(f"{sys.argv[1]}/{name}").st_mode & 0o777)

os.umask(0o027)
sooner.init(num_cpus=1)
assert sooner.get(touch.remote("a")) == "0o640"
os.umask(0o077)
assert sooner.get(touch.remote("b")) == "0o600"
os.umask(0o027)
assert sooner.get(touch.remote("c")) == "0o640"
"""
    run_driver(code, tmp_path)
