"""A worker process: from the fork to its end, and what the engine calls in it."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import traceback
from typing import Any

from sooner import _sooner, _stacks
from sooner._output import TaskStream

# Set by the template before it forks.
session_directory = ""
actor_id: str | None = None
actor_class: type | None = None
# Options of the actor that its handles know.
actor_options: dict[str, Any] = {}
# How many processes the actor had before this one.
actor_restarts = 0
_actor: Any = None
_streams: list[TaskStream] = []
_main_thread = 0

_TITLE_LENGTH_MAX = 200


class ActorExit(BaseException):
    """Ends the actor whose method raises it."""


def main(worker: int, node: int, stdout: int, stderr: int) -> None:
    """Runs tasks until the node ends this worker."""
    status = 1
    try:
        _prepare(stdout, stderr)
        _sooner.worker_connect(node, worker)
        _stacks.prepare(session_directory)
        _serve()
        status = 0
    except ConnectionAbortedError:
        # The session ended while this worker was born.
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        _leave(status)


def _prepare(stdout: int, stderr: int) -> None:
    global _main_thread
    os.setpgid(0, 0)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.close(stdout)
    os.close(stderr)
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        stream = TaskStream(descriptor, "worker")
        _streams.append(stream)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    _main_thread = threading.get_ident()
    signal.signal(signal.SIGINT, _on_interrupt)
    sys.breakpointhook = _on_breakpoint
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        # Forked copies of one generator would all draw the same numbers.
        numpy.random.seed()


def _serve() -> None:
    mode = _sooner.worker_run()
    if mode is None:
        return
    kind, count = mode
    if kind == "loop":
        from sooner import _async_actor

        _async_actor.run(count)
        return
    threads = [
        threading.Thread(target=_sooner.worker_thread, name=f"sooner-call-{number}", daemon=True)
        for number in range(count - 1)
    ]
    for thread in threads:
        thread.start()
    _sooner.worker_thread()


def _leave(status: int) -> None:
    try:
        if actor_id is not None:
            clean_up(_actor)
            atexit._run_exitfuncs()
        for stream in _streams:
            stream.end_lines()
        _sooner.metrics_flush()
    finally:
        os._exit(status)


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
    """`breakpoint()` talks to the driver's terminal, unless PYTHONBREAKPOINT names another debugger or none."""
    if os.environ.get("PYTHONBREAKPOINT"):
        return sys.__breakpointhook__(*args, **kwargs)  # noqa: T100  as the user asked
    from sooner._debugger import stop_here

    stop_here(sys._getframe(1), _streams[1].announce)
    return None


def _on_interrupt(signum: int, frame: Any) -> None:
    if _sooner.should_interrupt():
        raise KeyboardInterrupt("the task was cancelled")


def interrupt(token: int, in_actor: bool) -> None:
    """Stops a running task; called from the engine's thread."""
    loop = sys.modules.get("sooner._async_actor")
    if loop is not None:
        loop.cancel(token)
    elif not in_actor and threading.get_ident() != _main_thread:
        signal.pthread_kill(_main_thread, signal.SIGINT)
    elif not in_actor:
        signal.raise_signal(signal.SIGINT)


def actor_begins(cls: type, options: dict[str, Any], identity: str, restarts: int) -> None:
    """This process becomes an actor; its constructor runs next."""
    global actor_id, actor_class, actor_options, actor_restarts
    actor_id = identity
    actor_class = cls
    actor_options = options
    actor_restarts = restarts
    for stream in _streams:
        stream.default_title = cls.__name__


def actor_stands(actor: Any) -> bool:
    """The constructor has returned. Says whether the actor's calls run in an event loop."""
    from sooner.actor import is_async

    global _actor
    _actor = actor
    cls: Any = type(actor)
    if cls.__repr__ is not object.__repr__:
        title = _title(actor)
        for stream in _streams:
            stream.default_title = title
    return is_async(cls)


def _title(actor: Any) -> str:
    """An actor with a `repr` of its own prints under it."""
    try:
        words = repr(actor).split()
    except Exception:
        return type(actor).__name__
    return " ".join(words)[:_TITLE_LENGTH_MAX] or type(actor).__name__


def builtin_method(actor: Any, name: str) -> Any:
    """Methods that every actor has."""
    if name == "__ray_ready__":
        return lambda: True
    if name == "__ray_call__":
        return lambda function, *args, **kwargs: function(actor, *args, **kwargs)
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
    """The task on this thread is over, and so is the line it left unfinished."""
    for stream in _streams:
        stream.end_line()
