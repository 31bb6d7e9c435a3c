"""`sooner stop` and `sooner health-check`: nodes of this user on this machine, as processes."""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import sys
import time

from sooner._session import sessions, trust
from sooner._state import snapshot
from sooner.exceptions import UntrustedPathError

# Exit status of `sooner health-check` for a node that does not answer.
UNHEALTHY = 1
_LOOK_SECONDS = 0.005
# How long processes of a node that has ended may live before they are killed (seconds).
_FORCE_SECONDS = 1.0
# The index of a process's start time in the result of `_stat`.
_BEGAN = 19


def add_stop_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `sooner stop`."""
    parser.add_argument("--address", metavar="DIR", help="the directory of the node to end; all nodes by default")
    parser.add_argument("--force", action="store_true", help="kill at once, whatever runs")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--timeout", type=float, default=30, metavar="S", help="wait so long for the end (seconds)")


def stop(options: argparse.Namespace) -> int:
    """Ends nodes, and returns when nothing is left of them."""
    if options.timeout <= 0:
        raise ValueError("--timeout must be a positive number of seconds")
    nodes = sessions.running_nodes()
    if options.address is not None:
        chosen = sessions.choose_session(options.address)
        if chosen not in nodes:
            raise ValueError(f"--address {options.address}: that node is a thread of a program; end the program")
        nodes = [chosen]
    deadline = time.monotonic() + options.timeout
    # All nodes are ended at the same time, since each may wait for its tasks.
    processes = [NodeProcess(directory) for directory in nodes]
    for process in processes:
        process.end(options.force)
    left = [process for process in processes if not process.wait(deadline)]
    if options.json:
        import json  # start-up: 2.7 ms

        rows = [{"session_dir": one.directory, "pid": one.pid, "ended": one not in left} for one in processes]
        print(json.dumps(rows))
    else:
        for one in processes:
            if one.fault is not None:
                continue
            state = "still runs" if one in left else "ended"
            print(f"node in {one.directory} (process {one.pid}) {state}")
        if not processes:
            print("no node of yours runs")
    for one in processes:
        if one.fault is not None:
            print(
                f"sooner stop: process {one.pid} is not proven to be the node in {one.directory}: {one.fault}. It was "
                "left alone; end it yourself if it is yours, and remove the directory",
                file=sys.stderr,
            )
    if any(one.fault is None for one in left):
        print("sooner stop: not everything has ended; --force kills it", file=sys.stderr)
    return 1 if left else 0


class NodeProcess:
    """The process of a node, and the processes that it has started.

    The process id in a directory's name is no proof. A process gets a signal only if it wrote the lock of a
    directory of this user and, if that can be checked, listens there.

    Attributes:
        fault: Why the process that the directory names is not taken for the node; None if it is.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        # node-<process>-<id>
        self.pid = int(directory.rpartition("/")[2].split("-")[1])
        self.fault: str | None = None
        self._handle: int | None = None
        # When the process began (ticks of the kernel). After its end another process may get its id.
        self._began: int | None = None
        with contextlib.suppress(ProcessLookupError):
            self._handle = os.pidfd_open(self.pid)
            self.fault = self._doubt()
        if self.fault is not None or directory not in sessions.running_nodes(os.path.dirname(directory)):
            # The process is not the node, or the node has ended meanwhile.
            self.close()

    def _doubt(self) -> str | None:
        """The reason why the process of `_handle` is not the node; None if it is."""
        about = _stat(self.pid)
        try:
            opened = trust.open_directory(self.directory)
            try:
                with open(trust.open_file("lock", opened)) as file:
                    written = file.read(100).split()
            finally:
                os.close(opened)
        except FileNotFoundError:
            # The directory is being removed.
            raise ProcessLookupError from None
        if not about or written != [str(self.pid), about[_BEGAN]]:
            return "it did not make this directory"
        if os.stat(f"/proc/{self.pid}").st_uid != os.getuid():
            return "it is another user's"
        self._began = int(about[_BEGAN])
        try:
            with trust.connect(self.directory) as connection:
                listener = trust.peer_of(connection)[0]
        except UntrustedPathError:
            raise
        except OSError:
            # The node is starting, ending, or stopped while many connections wait.
            return None
        return None if listener == self.pid else f"process {listener} listens there"

    def signal(self, number: int) -> None:
        """Sends a signal, if the process is there."""
        if self._handle is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)

    def end(self, force: bool) -> None:
        if self._handle is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL if force else signal.SIGTERM)
                # A stopped process would not act on SIGTERM.
                signal.pidfd_send_signal(self._handle, signal.SIGCONT)

    def wait(self, deadline: float) -> bool:
        """Waits until the node and its workers have ended and its directory is removed."""
        force_at = None
        if self.fault is not None:
            return False
        while time.monotonic() < deadline:
            if self._has_ended():
                members = [] if self._began is None else _members(self.pid, self._began)
                if not members and _remove(self.directory):
                    return True
                # Its templates and workers notice its end by themselves. Those that cannot are killed.
                force_at = force_at or time.monotonic() + _FORCE_SECONDS
                if time.monotonic() > force_at:
                    _kill(members)
            time.sleep(_LOOK_SECONDS)
        return False

    def close(self) -> None:
        """Closes the handle of the process, for programs that go on."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _has_ended(self) -> bool:
        if self._handle is None:
            return True
        # Not by the first thread, which may end before other threads that have files open.
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        return bool(poll.poll(0))


def _remove(directory: str) -> bool:
    """Removes the directory of a node that was killed before it had a template. Returns whether it worked."""
    if os.path.exists(directory) and directory not in sessions.running_nodes(os.path.dirname(directory)):
        from sooner import _sooner

        _sooner.remove_session(directory)
    return not os.path.exists(directory)


def _kill(members: list[tuple[int, int]]) -> None:
    for pid, began in members:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            handle = os.pidfd_open(pid)
            try:
                # `handle` is that of the process that was found only if the start times agree.
                about = _stat(pid)
                if about and int(about[_BEGAN]) == began:
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
            finally:
                os.close(handle)


def _members(session: int, since: int) -> list[tuple[int, int]]:
    """Living processes of the session that a node leads: its templates, workers, and their children.

    Args:
        session: The node's process id.
        since: When the node began (ticks of the kernel).

    Returns:
        Process ids, and when each began.
    """
    leader = _stat(session)
    if leader and int(leader[_BEGAN]) != since:
        # Another process has the id, which is impossible while a process of the session lives.
        return []
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = _stat(int(name))
            if fields and fields[0] not in "ZX" and int(fields[3]) == session and int(name) != session:
                found.append((int(name), int(fields[_BEGAN])))
    return found


def _stat(pid: int) -> list[str]:
    """State, parent, group, session and so on of a process; empty if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def add_health_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `sooner health-check`."""
    parser.add_argument("--address", metavar="DIR", help="the directory of the node; the only one by default")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--timeout", type=float, default=5, metavar="S", help="wait so long for the node (seconds)")


def health_check(options: argparse.Namespace) -> int:
    """Whether a node answers: 0 if so, 1 if not, 3 if there is none."""
    if options.timeout <= 0:
        raise ValueError("--timeout must be a positive number of seconds")
    directory = sessions.choose_session(options.address)
    start = time.monotonic()
    error = lost = count = None
    try:
        cluster = snapshot.Snapshot(directory, 0, timeout=options.timeout).node["cluster"]
        lost, count = (cluster["lost"], len(cluster["nodes"])) if cluster else (None, None)
    except OSError as failure:
        error = str(failure)
    seconds = time.monotonic() - start
    if options.json:
        import json  # start-up: 2.7 ms

        told = {"session_dir": directory, "healthy": error is None, "seconds": seconds, "error": error}
        print(json.dumps(told | {"nodes": count, "no_connection_to_head": lost}))
    elif error is None:
        known = f"; its cluster has {count} nodes" if count else ""
        print(f"healthy: answered in {1000 * seconds:.1f} ms{known}")
    if lost is not None:
        # The node works on, and a restart would not help: it counts as healthy.
        print(f"sooner health-check: no connection to the head: {lost}", file=sys.stderr)
    if error is not None:
        print(f"sooner health-check: the node in {directory} does not answer: {error}", file=sys.stderr)
    return 0 if error is None else UNHEALTHY
