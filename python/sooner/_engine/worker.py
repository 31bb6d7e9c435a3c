"""A worker process: from the fork to its end, and what the engine calls in it."""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import inspect
import io
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from sooner import _sooner
from sooner._engine import tidying
from sooner._engine.output import TaskInput, TaskStream
from sooner._state import stacks
from sooner._values import classes
from sooner._values.unfindable import SCRIPT

# Set by the template before it forks.
session_directory = ""
actor_id: str | None = None
actor_class: type | None = None
# Options of the actor that its handles know.
actor_options: dict[str, Any] = {}
# Names of the GPUs that the node's environment lists, by index. Empty: all GPUs of the machine, by number.
node_gpus: list[str] = []
# Names of the GPUs of the actor, or of the last task.
actor_gpus: list[str] = []
# How many processes the actor had before this one.
actor_restarts = 0
_actor: Any = None
_streams: list[TaskStream] = []
_main_thread = 0
# Whether this process is a worker, and not one that a task has forked.
is_serving = False

_TITLE_LENGTH_MAX = 200
# How long the end of the process waits for threads of the user (seconds): before exit functions run, and in
# all. A worker whose node or program ends lives for half a second more (`LEAVE_NANOS` of the engine).
_THREADS_FIRST_SECONDS = 0.2
_THREADS_SECONDS = 3.0
# Types of files that buffer writes.
_FILES = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)
# How long an interrupt waits for the end of an import, and how long between two checks (seconds).
_IMPORT_SECONDS = 10.0
_IMPORT_LOOK_SECONDS = 0.005
# When an interrupt was first put off.
_put_off_at: float | None = None


class ActorExit(BaseException):
    """Ends the actor whose method raises it."""


def main(worker: int, node: int, stdout: int, stderr: int) -> None:
    """Runs tasks until the node ends this worker."""
    status = 1
    try:
        _prepare(stdout, stderr)
        _sooner.worker_connect(node, worker)
        stacks.prepare(session_directory)
        _serve()
        status = 0
    except ConnectionAbortedError:
        # The session ended while this worker started.
        status = 0
    except BaseException as error:
        traceback.print_exc()
        _sooner.worker_fails(f"{type(error).__name__}: {error}", "start new thread" in str(error))
    finally:
        _leave(status)


def _prepare(stdout: int, stderr: int) -> None:
    global _main_thread, is_serving
    is_serving = True
    os.setpgid(0, 0)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.close(stdout)
    os.close(stderr)
    _sooner.set_title("sooner worker", False)
    sys.stdin = sys.__stdin__ = TaskInput()  # type: ignore[misc]
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        stream = TaskStream(descriptor, "worker")
        _streams.append(stream)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    _sooner.keep_streams()
    _main_thread = threading.get_ident()
    os.register_at_fork(after_in_child=_after_fork)
    if "COVERAGE_PROCESS_START" in os.environ or "COVERAGE_PROCESS_CONFIG" in os.environ:
        _measure()
    signal.signal(signal.SIGINT, _on_interrupt)
    tidying.begin()
    sys.breakpointhook = _on_breakpoint
    # The script under both of its names.
    for name in SCRIPT:
        sys.modules[name] = sys.modules["__main__"]
    vars(sys.modules["__main__"])["__getattr__"] = classes.of_script
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        # Forked copies of one generator would all draw the same numbers.
        numpy.random.seed()


def _measure() -> None:
    """Starts coverage, as a file of `site` does where the environment asks for it: workers have no `site`."""
    try:
        coverage = importlib.import_module("coverage")
    except ImportError:
        return
    # A measurement that the template has begun is not this process's.
    if hasattr(coverage.process_startup, "coverage"):
        del coverage.process_startup.coverage
    coverage.process_startup()


def _serve() -> None:
    mode = _sooner.worker_run()
    if mode is None:
        return
    kind, count = mode
    groups: list[int | None]
    if kind == "loop":
        from sooner._engine import async_actor  # circle

        async_actor.run(count)
        return
    # The group that each thread serves, so that calls find what earlier calls of their group have left in the
    # thread. The main thread serves the default group.
    places = _sooner.group_places()
    groups = [group for group, threads in enumerate(places) for _ in range(threads)] if places else [None] * count
    for number, group in enumerate(groups[1:]):
        name = f"sooner-call-{number}"
        threading.Thread(target=_sooner.worker_thread, args=(group,), name=name, daemon=True).start()
    _sooner.worker_thread(groups[0])


def _leave(status: int) -> None:
    try:
        _end_in_order()
        for stream in _streams:
            stream.end_lines()
        _sooner.metrics_flush()
    finally:
        os._exit(status)


def _end_in_order() -> None:
    """Runs the user's code that an interpreter runs at its end, as far as it can be told from code in use."""
    global _actor
    if actor_id is not None:
        clean_up(_actor)
        _actor = None
        _sooner.forget_actor()
        # An actor that refers to itself may have a `__del__`, too.
        gc.collect()
    waiting = _wait_for_threads()
    if waiting is not None:
        waiting.join(_THREADS_FIRST_SECONDS)
    atexit._run_exitfuncs()
    _flush_files()
    if waiting is not None and waiting.is_alive():
        waiting.join(_THREADS_SECONDS - _THREADS_FIRST_SECONDS)
        _flush_files()


def _wait_for_threads() -> threading.Thread | None:
    """Starts a thread that waits for threads that are no daemons, as the end of an interpreter does.

    Before that, the thread calls the functions that end threads of executors when their queues are empty.
    Both may take any time, hence the thread.
    """
    registered = list(reversed(vars(threading).get("_threading_atexits", [])))
    if not _threads_left():
        # Without such threads the functions return soon.
        _run(registered)
        return None

    def wait() -> None:
        _run(registered)
        while threads := _threads_left():
            for thread in threads:
                thread.join()

    waiting = threading.Thread(target=wait, name="sooner-end", daemon=True)
    try:
        waiting.start()
    except RuntimeError:
        # The process may not start more threads.
        return None
    return waiting


def _threads_left() -> list[threading.Thread]:
    here = (threading.main_thread(), threading.current_thread())
    return [thread for thread in threading.enumerate() if thread not in here and not thread.daemon]


def _run(functions: list[Callable[[], object]]) -> None:
    for function in functions:
        try:
            function()
        except Exception:
            traceback.print_exc()


def _flush_files() -> None:
    for thing in gc.get_objects():
        # `isinstance` would ask the object for its class: proxies and deprecated names run code then.
        if issubclass(type(thing), _FILES):
            with contextlib.suppress(Exception):
                thing.flush()


def _after_fork() -> None:
    """A process that a task forks takes no part in the session, and drops its parent's unfinished lines."""
    global is_serving
    is_serving = False
    tidying.end()
    _sooner.forget_after_fork()
    for stream in _streams:
        stream.forget_lines()


def end_child(error: BaseException | None) -> NoReturn:
    """Ends a process that a task has forked as a program ends, where its code would return to the worker."""
    status = 0
    try:
        if isinstance(error, SystemExit):
            status = _status_of(error)
        elif error is not None:
            status = 1
            traceback.print_exception(error)
        for stream in _streams:
            stream.end_lines()
    finally:
        os._exit(status)


def _status_of(error: SystemExit) -> int:
    """The status with which a process ends. A code that is no number is printed, as by the interpreter."""
    code = error.code
    if code is None or isinstance(code, int):
        return (code or 0) & 0xFF
    print(code, file=sys.stderr)
    return 1


def clean_up(actor: Any) -> None:
    """Runs the hook of an actor that ends in order: out of scope, by its own wish, or with the session."""
    for name in ("__sooner_shutdown__", "__ray_shutdown__"):
        hook = getattr(actor, name, None)
        if hook is None:
            continue
        try:
            hook()
        except Exception:
            traceback.print_exc()
        return


def _on_breakpoint(*args: Any, **kwargs: Any) -> Any:
    """`breakpoint()` talks to the driver's terminal, unless PYTHONBREAKPOINT names another debugger or
    none.
    """
    if os.environ.get("PYTHONBREAKPOINT"):
        return sys.__breakpointhook__(*args, **kwargs)  # noqa: T100  as the user asked
    from sooner._engine.debugger import stop_here  # start-up: 19.8 ms

    stop_here(sys._getframe(1), _streams[1].announce)
    return None


def _on_interrupt(signum: int, frame: Any) -> None:
    global _put_off_at
    is_cancelled = _sooner.should_interrupt()
    if not is_cancelled:
        _put_off_at = None
        if is_cancelled is None:
            # As in every process: programs use `_thread.interrupt_main` and `raise_signal` to limit a time.
            raise KeyboardInterrupt
        return
    if tidying.is_importing(frame):
        now = time.clock_gettime(time.CLOCK_MONOTONIC)
        _put_off_at = now if _put_off_at is None else _put_off_at
        if now - _put_off_at < _IMPORT_SECONDS:
            # A module that is half loaded would fail its next user.
            threading.Thread(target=_interrupt_later, name="sooner-interrupt", daemon=True).start()
            return
        # The import may never end. This process takes no other task.
        _sooner.retire_worker()
    _put_off_at = None
    raise KeyboardInterrupt("the task was cancelled")


def _interrupt_later() -> None:
    time.sleep(_IMPORT_LOOK_SECONDS)
    _sooner.send_interrupt(_main_thread)


def interrupt(token: int, in_actor: bool) -> None:
    """Stops a running task; called from the engine's thread."""
    loop = sys.modules.get("sooner._engine.async_actor")
    if loop is not None:
        loop.cancel(token)
    elif not in_actor:
        _sooner.send_interrupt(_main_thread)


def actor_begins(cls: type, options: dict[str, Any], identity: str, restarts: int) -> None:
    """This process becomes an actor; its constructor runs next."""
    tidying.end()
    global actor_id, actor_class, actor_options, actor_restarts
    actor_id = identity
    actor_class = cls
    actor_options = options
    actor_restarts = restarts
    for stream in _streams:
        stream.default_title = cls.__name__
    _sooner.set_title(f"sooner::{cls.__name__}", True)


def actor_stands(actor: Any) -> bool:
    """Records the actor that its constructor has made. Returns whether its calls run in an event loop."""
    from sooner.actor import is_async  # circle

    global _actor
    _actor = actor
    cls: Any = type(actor)
    if cls.__repr__ is not object.__repr__:
        title = _title(actor)
        for stream in _streams:
            stream.default_title = title
    return is_async(cls)


def _title(actor: Any) -> str:
    """The title of the output of an actor whose class has a `repr` of its own."""
    try:
        words = repr(actor).split()
    except Exception:
        return type(actor).__name__
    return " ".join(words)[:_TITLE_LENGTH_MAX] or type(actor).__name__


def gpu_names(indices: list[int]) -> list[str]:
    """The names of the node's GPUs with these indices: as the node's environment lists them, or numbers."""
    return [node_gpus[index] if index < len(node_gpus) else str(index) for index in indices]


def show_gpus(indices: list[int]) -> None:
    """Makes its GPUs visible to a task or an actor."""
    global actor_gpus
    actor_gpus = gpu_names(indices)
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(actor_gpus)


def maker(cls: type) -> Any:
    """Returns what makes an actor: its class, or, with `async def __init__`, a function that awaits it."""
    if not inspect.iscoroutinefunction(cls.__init__):  # type: ignore[misc]
        return cls
    from sooner._engine import async_actor  # circle

    return async_actor.maker(cls)


def method_code(actor: Any, name: str) -> Any:
    """The function that an actor's class has under a name, to compare it with that of the attribute."""
    raw = inspect.getattr_static(type(actor), name, None)
    return getattr(raw, "__func__", raw)


def class_method(actor: Any, name: str) -> Any:
    """The method of the class, even if the instance has an attribute of the same name."""
    raw = inspect.getattr_static(type(actor), name, None)
    if raw is None:
        return getattr(actor, name)
    bind = getattr(type(raw), "__get__", None)
    return raw if bind is None else bind(raw, actor, type(actor))


def exit_process(error: SystemExit) -> str | None:
    """Ends this process as `sys.exit()` asks in a task or an actor: calls that run are lost with it.

    Returns:
        The reason, for an actor that left with status 0 and ends in order. Otherwise this does not return.
    """
    if not is_serving:
        end_child(error)
    status = _status_of(error)
    if _actor is not None and status == 0:
        return f"it called sys.exit({'' if error.code is None else repr(error.code)})"
    _sooner.worker_flush()
    _leave(status)
    return None


def builtin_method(actor: Any, name: str) -> Any:
    """Methods that every actor has."""
    if name == "__ray_ready__":
        return lambda: True
    if name == "__ray_call__":
        return lambda function, /, *args, **kwargs: function(actor, *args, **kwargs)
    if name == "__ray_terminate__":
        return _terminate
    raise AttributeError(f"{type(actor).__name__} has no method {name!r}")


def _terminate() -> None:
    raise ActorExit("it was asked to terminate")


def tell_driver(message: dict[str, Any]) -> None:
    """Sends a message for the driver's progress bars with standard error."""
    for stream in _streams:
        if stream.fileno() == 2:
            stream.tell_driver(message)


def end_line() -> None:
    """Ends the unfinished line of the task that ran on this thread, and sets back the task's changes."""
    for stream in _streams:
        stream.end_line()
    if actor_id is None:
        tidying.after_task()
