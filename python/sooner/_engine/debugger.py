"""`breakpoint()` in a task: the driver's terminal talks to a debugger in the worker.

The worker listens on a Unix socket in its node's directory, which other users cannot enter, and announces it
with a marked line on its standard error. The driver connects at once, and passes lines on for one worker
after the other. A driver without a terminal connects and leaves, and the task goes on. The task also goes on
if no driver connects, for instance because it is on another machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import pdb  # noqa: T100  this is the debugger
import queue
import re
import secrets
import select
import socket
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, TextIO

from sooner._engine.output import DEBUG_MARK
from sooner._session import trust

_LINE = re.compile(r"^(?P<prefix>.*?)\x1edebug:(?P<message>\{.*\})$")

# How long the task waits for the driver (seconds). A driver that shows no output of workers never connects.
_ATTACH_SECONDS = 10
_READ_BYTES = 65536


# --- in the
# worker ----------------------------------------------------------------------------------------------------


def stop_here(frame: FrameType, announce: Callable[[str], None]) -> None:
    """Opens a debugger at a frame, if the driver has a terminal.

    Args:
        frame: Where the task stands.
        announce: Sends a line to the driver.
    """
    where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    try:
        connection = _driver(lambda address: announce(DEBUG_MARK + json.dumps({"address": address, "where": where})))
    except TimeoutError:
        return _pass_over(where, "the driver does not show output of workers, or is on another machine")
    except OSError as error:
        return _pass_over(where, f"the driver cannot come here: {error}")
    try:
        said = connection.recv(1)
    except OSError:
        said = b""
    if said == b"1":
        return _Debugger(connection).set_trace(frame)
    connection.close()
    # A driver that has answered reports by itself that the breakpoint is passed over.
    return None if said else _pass_over(where, "the driver has gone")


def _pass_over(where: str, why: str) -> None:
    sys.stderr.write(f"breakpoint() at {where} is passed over: {why}\n")


def _driver(announce: Callable[[str], None]) -> socket.socket:
    """Announces a socket to the driver and returns the driver's connection.

    Raises:
        TimeoutError: The driver did not connect.
        OSError: The worker cannot listen.
    """
    from sooner._engine import worker  # start-up: 26.3 ms

    directory, name = worker.session_directory, f"debug-{secrets.token_hex(16)}"
    opened = trust.open_directory(directory)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            # The name of the directory may be too long for an address.
            listener.bind(f"/proc/self/fd/{opened}/{name}")
            try:
                os.chmod(name, 0o600, dir_fd=opened)
                listener.listen()
                announce(f"{directory}/{name}")
                return _accept(listener)
            finally:
                os.unlink(name, dir_fd=opened)
    finally:
        os.close(opened)


def _accept(listener: socket.socket) -> socket.socket:
    """Returns the first connection of this user. Connections of other users do not end the wait."""
    deadline = time.monotonic() + _ATTACH_SECONDS
    while (left := deadline - time.monotonic()) > 0:
        listener.settimeout(left)
        connection, _ = listener.accept()
        if trust.peer_of(connection)[1] == os.getuid():
            # No timeout, whatever default the task has set: the driver may serve other workers first.
            connection.settimeout(None)
            return connection
        connection.close()
    raise TimeoutError


class _Debugger(pdb.Pdb):
    """Reads commands from a socket, and closes it when the task continues without breakpoints, or returns."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._file = connection.makefile("rw", encoding="utf-8", errors="replace")
        super().__init__(stdin=self._file, stdout=self._file, nosigint=True)
        self.prompt = "(Pdb) "

    def set_continue(self) -> None:
        super().set_continue()
        if not self.breaks:
            self._let_go()

    def set_quit(self) -> None:
        super().set_quit()
        self._let_go()

    def user_return(self, frame: FrameType, return_value: Any) -> None:
        caller = frame.f_back
        if caller is None or str(caller.f_globals.get("__name__", "")).startswith("sooner."):
            # The engine called this function: there is nowhere to step to.
            self.clear_all_breaks()
            self.set_continue()
            return
        super().user_return(frame, return_value)

    def _let_go(self) -> None:
        # The driver may have left first.
        with contextlib.suppress(OSError, ValueError):
            self._file.close()
        self._connection.close()


# --- in the
# driver ----------------------------------------------------------------------------------------------------


def take(text: str) -> str:
    """Takes the announcements out of the output of workers, and returns the rest of the output."""
    rest = []
    # Not splitlines(): that would cut at the mark, too.
    for line in text.split("\n"):
        found = _LINE.match(line)
        if found is None:
            rest.append(line)
            continue
        message = json.loads(found["message"])
        _console.put(found["prefix"].strip(), message["address"], message["where"])
    return "\n".join(rest)


class _Console:
    """Serves one worker after the other, on a thread that runs while workers wait."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[tuple[socket.socket, str, str]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._is_running = False

    def put(self, title: str, address: str, where: str) -> None:
        directory, _, name = address.rpartition("/")
        try:
            # Connects at once, although the worker's turn may come later: the worker's wait is limited.
            connection = trust.connect(directory, name)
        except OSError:
            return
        connection.settimeout(None)
        self._waiting.put((connection, title, where))
        with self._lock:
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="sooner-debugger", daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if self._waiting.empty():
                    self._is_running = False
                    return
            self._serve(*self._waiting.get())

    def _serve(self, connection: socket.socket, title: str, where: str) -> None:
        with connection, contextlib.suppress(OSError):
            terminal = _terminal()
            if terminal is None:
                connection.sendall(b"0")
                sys.stderr.write(f"{title} breakpoint() at {where} is passed over: the driver has no terminal\n")
                return
            connection.sendall(b"1")
            _say(f"{title} stopped at {where}; this terminal is its debugger until it continues\n")
            _pass_on(connection, terminal)
            _say(f"{title} goes on\n")


def _terminal() -> TextIO | None:
    stdin = sys.stdin
    try:
        return stdin if stdin is not None and stdin.isatty() else None
    except ValueError:
        return None


def _say(text: str) -> None:
    if sys.stdout is not None:
        sys.stdout.write(text)
        sys.stdout.flush()


def _pass_on(connection: socket.socket, terminal: TextIO) -> None:
    """Passes lines on until the worker closes. Reads none ahead: later lines are the program's own input."""
    descriptor = terminal.fileno()
    while True:
        ready, _, _ = select.select([connection.fileno(), descriptor], [], [])
        if connection.fileno() in ready:
            data = connection.recv(_READ_BYTES)
            if not data:
                return
            _say(data.decode("utf-8", "replace"))
        if descriptor in ready:
            line = os.read(descriptor, _READ_BYTES)
            # End of input ends the debugger, as it does in one process.
            connection.sendall(line or b"q\n")


_console = _Console()
