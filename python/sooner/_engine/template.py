"""The template process: imports what workers need, then forks them.

It has one thread and starts none; nothing that breaks under fork is initialised here.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# The highest score (proc(5)): the kernel kills such processes first.
_FIRST_TO_GO = b"1000"


def main(
    preload: list[str],
    record_call_sites: bool,
    directory: str,
    left_out: Sequence[str] = (),
    guest: bool = False,
    flags: tuple[int, ...] = (),
    named: str = "",
    script: tuple[str | None, bool] = (None, False),
) -> None:
    """Forks workers until the node dismisses the template, or is dead.

    Args:
        preload: Modules that are imported first.
        record_call_sites: Whether workers record from which line a task was submitted.
        directory: Of the node.
        left_out: Places where the driver looks for modules and workers here do not, with the reasons.
        guest: Whether the driver is on another machine.
        flags: The values of the driver's `sys.flags`, if the driver is on this machine.
        named: The same with names, NAME=VALUE,..., if the driver is on another machine.
        script: The file of the driver's `__main__`, if that is on this machine, and whether it was run as
            a script.
    """
    descriptor = _begin()
    # What every worker uses, so that none of them has to import it.
    from sooner import _sooner
    from sooner._engine import program, threads, tidying  # order: descriptors, signals and hashes come first
    from sooner._engine import worker as _worker  # order: descriptors, signals and hashes come first
    from sooner._errors import packing, traceback  # noqa: F401  # order: descriptors, signals and hashes come first
    from sooner._session import gpus, launch, spare  # order: descriptors, signals and hashes come first
    from sooner._values import classes, code, pickling  # noqa: F401  # order: descriptors, signals and hashes come first

    # Before any other import: modules may keep references to the functions that are hooked.
    tidying.hook()
    classes.begin_worker(*script)
    spare.begin()
    threads.begin()
    _be_like_a_program(flags or _flags_of(named))
    traceback.guard_sources(guest)
    with contextlib.suppress(OSError):
        _sooner.title_begins()
        _sooner.set_title(f"sooner template {directory}", False)

    if left_out:
        _warn_of(left_out)
    path = launch.entries(sys.path)
    _import(preload)
    _worker.session_directory = directory
    _worker.node_gpus = gpus.visible() or []
    program.begin_worker(guest, path)
    _sooner.record_call_sites(record_call_sites)
    template = _sooner.Template(descriptor)
    gc.collect()
    gc.freeze()
    while (request := template.next()) is not None:
        worker, node, stdout, stderr = request
        try:
            pid = os.fork()
        except OSError as error:
            template.failed(worker, error.errno or 0)
            pid = -1
        if pid == 0:
            os.close(descriptor)
            _worker.main(worker, node, stdout, stderr)
        for passed in (node, stdout, stderr):
            os.close(passed)
        if pid > 0:
            template.forked(worker, pid)
    if not template.is_dismissed():
        # The node's process may have been killed. Then its directory is removed here.
        _sooner.remove_session(directory)
    os._exit(0)


def _begin() -> int:
    """Prepares this process, from which others are forked. Returns its connection to the node."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A program that waits for signals blocks them. Inherited, the mask would keep tasks from being cancelled.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    _set_hashes_back()
    # Workers must not have the descriptors that the driver has left open and inheritable.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    descriptor = os.dup(0)
    os.set_inheritable(descriptor, False)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    # If memory runs out before the node notices, the kernel kills the largest worker, and neither the driver
    # nor the node: workers inherit this score.
    with contextlib.suppress(OSError):
        score = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(score, _FIRST_TO_GO)
        os.close(score)
    return descriptor


def _warn_of(left_out: Sequence[str]) -> None:
    """Reports on standard error in which places modules are not looked for."""
    print(
        f"sooner: on {os.uname().nodename} modules are not looked for in {', '.join(left_out)}, where the program "
        "looks on its own machine: others could put theirs there. Put them where only you can write, or name "
        "the place in PYTHONPATH of `sooner start`",
        file=sys.stderr,
    )


def _import(preload: list[str]) -> None:
    """Imports modules for all workers. One that cannot be imported is reported on standard error."""
    for name in preload:
        try:
            importlib.import_module(name)
        except Exception as error:
            print(f"sooner: preload={name!r} cannot be imported: {error!r}", file=sys.stderr)


def _flags_of(named: str) -> tuple[int, ...]:
    """The values of the driver's `sys.flags` for this Python, which may be a little newer or older."""
    from sooner._session.launch import flag_names  # start-up: 2.5 ms

    theirs = {name: int(value) for name, _, value in (part.partition("=") for part in named.split(",") if part)}
    own = {name: getattr(sys.flags, name) for name in flag_names()}
    if missing := [name for name, value in theirs.items() if value and name not in own]:
        version = ".".join(map(str, sys.version_info[:3]))
        print(
            f"sooner: on {os.uname().nodename} Python {version} does not know what the program's interpreter was "
            f"started with ({', '.join(missing)}): workers go without",
            file=sys.stderr,
        )
    return tuple(type(value)(theirs.get(name, value)) for name, value in own.items())


def _set_hashes_back() -> None:
    """Sets back what `node/hashes.rs` of the engine has set for the start of this interpreter alone.

    Programs that workers start are not given its secret or seed.
    """
    if not os.environ.pop("SOONER_HASHES_SET", None):
        return
    os.environ.pop("SOONER_HASH_SECRET", None)
    for name in ("LD_PRELOAD", "PYTHONHASHSEED"):
        former = os.environ.pop(f"SOONER_FORMER_{name}", None)
        if former is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = former


def _be_like_a_program(flags: Sequence[int]) -> None:
    """Sets up what `site` gives an interpreter, without the search for places that `site` begins with."""
    import site  # order: that it was not run first is what is meant

    from sooner import _sooner

    site.setquit()
    site.setcopyright()
    site.sethelper()
    if flags:
        _sooner.set_flags(tuple(flags))
