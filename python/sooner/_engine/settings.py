"""Settings of a process that a call can change, beside signal handlers, environment and working directory.

A table of how each setting is read and set back, used by `tidying.py`. A setting that cannot be set back
raises `OSError` then, and the process takes no more tasks.
"""

from __future__ import annotations

import _thread
import faulthandler
import functools
import gc
import os
import signal
import sys
from collections.abc import Callable, Hashable
from types import ModuleType
from typing import Any, NamedTuple


class Setting(NamedTuple):
    """One setting that functions of a module change.

    Attributes:
        module: The module of the functions.
        names: The functions.
        key: From the arguments of a call, which of several values it sets: of which resource, of which timer.
        read: Returns the present value; takes the key.
        write: Sets the value; takes the key and the value that was read.
        is_timer: Whether it is a timer. Timers are set back before all else: a signal of theirs must meet the
            handler that the task has set for it, or none.
    """

    module: ModuleType
    names: tuple[str, ...]
    key: Callable[..., Hashable]
    read: Callable[[Any], Any]
    write: Callable[[Any, Any], object]
    is_timer: bool = False


def _one(*_: Any, **__: Any) -> None:
    """The key of a setting that exists only once."""


def _first(what: Any, *_: Any, **__: Any) -> Hashable:
    return int(what)


def _own(pid: Any, *_: Any, **__: Any) -> None:
    """Refuses other processes: what a task does to them is not set back, and they may have ended since."""
    if int(pid) not in (0, os.getpid()):
        raise ValueError("another process")


def _whose_priority(which: Any, who: Any, priority: Any) -> Hashable:
    if int(which) != os.PRIO_USER:
        _own(who)
    return int(which), int(who)


def _own_limit(pid: Any, which: Any, limits: Any = None) -> Hashable:
    _own(pid)
    if limits is None:
        raise ValueError("it only looks")
    return int(which)


def _signal(number: Any, *_: Any, **__: Any) -> Hashable:
    # Raises where there is no such signal.
    signal.getsignal(number)
    return int(number)


def _signal_for_stacks(number: Any, *_: Any, **__: Any) -> Hashable:
    from sooner._state.stacks import SIGNAL  # start-up: 3.1 ms

    if number == SIGNAL:
        raise ValueError("it is ours")
    return _signal(number)


def umask(_: Any = None) -> int:
    """The mask for the modes of new files. `os.umask` would set it, too, which other threads could notice."""
    with open("/proc/self/status", "rb") as status:  # noqa: PTH123  nothing is imported for it
        for line in status:
            if line.startswith(b"Umask:"):
                return int(line.split()[1], 8)
    raise OSError("the kernel does not tell the umask")


def _set_timer(which: int, was: tuple[float, float]) -> None:
    signal.setitimer(which, was[0], was[1])


def _write_mask(_: Any, blocked: set[int]) -> None:
    # Signals that are pending and will no longer be blocked were for the task: they are dropped.
    for number in signal.sigpending() - blocked:
        handler = signal.getsignal(number)
        signal.signal(number, signal.SIG_IGN)
        if handler is not None:
            signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _set_collector(_: Any, is_enabled: bool) -> None:
    (gc.enable if is_enabled else gc.disable)()


def _set_faulthandler(_: Any, is_enabled: bool) -> None:
    if is_enabled:
        faulthandler.enable(file=2)
    else:
        faulthandler.disable()


def _read_wakeup(_: Any) -> int:
    # There is no way to read it without setting it.
    was = signal.set_wakeup_fd(-1)
    if was != -1:
        signal.set_wakeup_fd(was)
    return was


# Functions of `sys` that set something, and those that read it.
_INTERPRETER = {
    "setrecursionlimit": "getrecursionlimit",
    "setswitchinterval": "getswitchinterval",
    "setdlopenflags": "getdlopenflags",
    "set_int_max_str_digits": "get_int_max_str_digits",
    "set_coroutine_origin_tracking_depth": "get_coroutine_origin_tracking_depth",
}


def _of_interpreter(setter: str, getter: str) -> Setting:
    return Setting(
        sys,
        (setter,),
        _one,
        lambda _: getattr(sys, getter)(),
        lambda _, was: getattr(sys, setter)(was),
    )


def _cannot(_: Any, __: Any) -> None:
    raise OSError("no process can set this back")


@functools.cache
def table() -> tuple[Setting, ...]:
    """All settings. Imports small C modules: in the template, so that no worker has to."""
    import _locale  # start-up: 0.1 ms
    import _tracemalloc  # start-up: 0.1 ms
    import resource  # start-up: 0.4 ms

    # Neither `sys.settrace` nor `sys.setprofile`: profilers count on the frames around them. Event loops set
    # hooks of asynchronous generators back by themselves.
    return (
        Setting(signal, ("setitimer",), _first, signal.getitimer, _set_timer, True),
        Setting(signal, ("alarm",), lambda *_: signal.ITIMER_REAL, signal.getitimer, _set_timer, True),
        Setting(
            faulthandler,
            ("dump_traceback_later",),
            _one,
            _one,
            lambda _, __: faulthandler.cancel_dump_traceback_later(),
            True,
        ),
        Setting(
            signal,
            ("pthread_sigmask",),
            _one,
            lambda _: set(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))),
            _write_mask,
        ),
        Setting(faulthandler, ("register",), _signal_for_stacks, _one, lambda key, _: faulthandler.unregister(key)),
        Setting(faulthandler, ("enable", "disable"), _one, lambda _: faulthandler.is_enabled(), _set_faulthandler),
        Setting(signal, ("set_wakeup_fd",), _one, _read_wakeup, lambda _, was: signal.set_wakeup_fd(was)),
        # True is what the interpreter sets for its own handlers.
        Setting(signal, ("siginterrupt",), _signal, _one, lambda key, _: signal.siginterrupt(key, True)),
        Setting(os, ("umask",), _one, umask, lambda _, mask: os.umask(mask)),
        Setting(
            os,
            ("sched_setaffinity",),
            _own,
            lambda _: os.sched_getaffinity(0),
            lambda _, was: os.sched_setaffinity(0, was),
        ),
        Setting(
            os,
            ("sched_setscheduler", "sched_setparam"),
            _own,
            lambda _: (os.sched_getscheduler(0), os.sched_getparam(0)),
            lambda _, was: os.sched_setscheduler(0, *was),
        ),
        Setting(
            os,
            ("setpriority",),
            _whose_priority,
            lambda key: os.getpriority(*key),
            lambda key, was: os.setpriority(key[0], key[1], was),
        ),
        Setting(
            os,
            ("nice",),
            _one,
            lambda _: os.getpriority(os.PRIO_PROCESS, 0),
            lambda _, was: os.setpriority(os.PRIO_PROCESS, 0, was),
        ),
        Setting(resource, ("setrlimit",), _first, resource.getrlimit, resource.setrlimit),
        Setting(resource, ("prlimit",), _own_limit, resource.getrlimit, resource.setrlimit),
        Setting(_locale, ("setlocale",), _first, _locale.setlocale, _locale.setlocale),
        Setting(gc, ("enable", "disable"), _one, lambda _: gc.isenabled(), _set_collector),
        Setting(gc, ("set_threshold",), _one, lambda _: gc.get_threshold(), lambda _, was: gc.set_threshold(*was)),
        Setting(gc, ("set_debug",), _one, lambda _: gc.get_debug(), lambda _, was: gc.set_debug(was)),
        Setting(_thread, ("stack_size",), _one, lambda _: _thread.stack_size(), lambda _, was: _thread.stack_size(was)),
        *(_of_interpreter(setter, getter) for setter, getter in _INTERPRETER.items()),
        Setting(
            _tracemalloc,
            ("start", "stop"),
            _one,
            lambda _: _tracemalloc.is_tracing(),
            lambda _, was: _tracemalloc.start() if was else _tracemalloc.stop(),
        ),
        # The user, groups and session of the process, and its view of the machine.
        Setting(
            os,
            (
                *("setuid", "setgid", "seteuid", "setegid", "setreuid", "setregid", "setresuid", "setresgid"),
                *("setgroups", "initgroups", "setsid", "setpgid", "setpgrp", "chroot", "unshare", "setns"),
            ),
            _one,
            _one,
            _cannot,
        ),
    )
