"""What several test files share: waiting with a deadline, drivers in processes of their own, a look at
/proc.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

import sooner
from sooner._state.snapshot import METRICS, Snapshot

T = TypeVar("T")

# A bound for one wait (seconds). It ends a hang; no healthy machine comes near it.
WAIT = 60

_POLL_SECONDS = 0.01


def poll(what: str, condition: Callable[[], T], seconds: float = WAIT) -> T:
    """Waits until a condition is true and returns its value."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(_POLL_SECONDS)
    return value


def why(identity: str) -> str:
    """What `sooner why` says of a task or an object of this program's session."""
    session = sooner.init(ignore_reinit_error=True)["session_dir"]
    command = [sys.executable, "-m", "sooner", "why", identity, "--address", session]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


# Before each large value in a spill file (bytes).
_SPILL_HEADER = 4096


def _metrics_of_node() -> dict[str, float]:
    session = sooner.init(ignore_reinit_error=True)["session_dir"]
    return {series["name"]: series["values"][0] for series in Snapshot(session, METRICS).node["metrics"]}


def bytes_on_disk() -> float:
    """What the node of this program has on disk, in spill files and in the file behind its memory (bytes)."""
    found = _metrics_of_node()
    return found.get("sooner_node_spilled_bytes", 0) + found.get("sooner_node_fallback_bytes", 0)


def spilled_is_written() -> bool:
    """Whether all values that are on disk have been written, if none was freed: one counts from the moment on
    at which its process gives it up, and is read in its block until it is written.
    """
    found = _metrics_of_node()
    headers = _SPILL_HEADER * found.get("sooner_node_spilled_values", 0)
    spilled = found.get("sooner_node_spilled_bytes", 0) - headers
    return 0 < spilled <= found.get("sooner_node_spilled_written_bytes", 0)


def poll_store_has_room(size: int, seconds: float = 20) -> None:
    """Waits until one value of so many bytes fits into the object store, so that little else can be left
    in it.
    """

    def has_room() -> bool:
        gc.collect()
        try:
            value = sooner.put(b"x" * size)
        except sooner.exceptions.ObjectStoreFullError:
            return False
        # What had to make room for it, or did not find any itself, is on disk.
        is_in_memory = bytes_on_disk() == 0
        del value
        return is_in_memory

    poll("the store has room", has_room, seconds)


def run_driver(code: str, *arguments: object, timeout: float = 120, **options: object) -> subprocess.CompletedProcess:
    """Runs a program to its end. `check=False` looks at the exit status yourself."""
    check = options.pop("check", True)
    options.setdefault("capture_output", True)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        text=True,
        timeout=timeout,
        check=False,
        **options,
    )
    assert not check or done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


@contextlib.contextmanager
def running_driver(code: str, *arguments: object, **options: object) -> Iterator[subprocess.Popen]:
    """A program that runs beside the test, with pipes; killed at the end."""
    driver = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )
    try:
        yield driver
    finally:
        driver.kill()
        driver.communicate()


def is_alive(pid: int) -> bool:
    """Whether a process runs. A zombie does not."""
    return _state(pid) not in (None, "Z", "X")


def _state(pid: int, thread: int | None = None) -> str | None:
    try:
        text = Path(f"/proc/{pid}/task/{thread or pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()[0]


def stop(pid: int) -> None:
    """Stops a process (SIGSTOP) and waits until it executes nothing: on a busy machine its threads go on for
    some milliseconds after the signal was sent, and may answer a question.
    """
    os.kill(pid, signal.SIGSTOP)
    threads = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    poll("none of its threads runs", lambda: all(_state(pid, one) in (None, "T", "Z", "X") for one in threads))


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stops a process for as long as this is entered."""
    stop(pid)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def templates_of(pid: int) -> set[int]:
    """The templates of a program's sessions, which are none of its children: they name the session's
    directory.
    """
    found = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            command = Path(f"/proc/{name}/cmdline").read_bytes()
            last = command.rstrip(b"\0").rpartition(b"\0")[2].rpartition(b" ")[2]
            if f"/session-{pid}-".encode() in last and is_alive(int(name)) and os.getpgid(int(name)) == int(name):
                found.add(int(name))
    return found


def children_of(pid: int) -> set[int]:
    """All living descendants of a process, and what its sessions have started."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            text = Path(f"/proc/{name}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        state, parent = text.rpartition(")")[2].split()[:2]
        if state not in "ZX":
            parents.setdefault(int(parent), []).append(int(name))
    found = templates_of(pid)
    new = [pid, *found]
    while new:
        new = [child for parent in new for child in parents.get(parent, [])]
        found.update(new)
    return found


# The process has ended since somebody saw it, or has closed the descriptor.
_has_gone = contextlib.suppress(FileNotFoundError, ProcessLookupError)


def descriptors_of(pid: int) -> list[str]:
    """What the descriptors of a process point to: none if it has ended."""
    links = []
    with _has_gone:
        for name in os.listdir(f"/proc/{pid}/fd"):
            # The listing itself had a descriptor.
            with _has_gone:
                links.append(os.readlink(f"/proc/{pid}/fd/{name}"))
    return sorted(links)


def sockets_of(pid: int) -> set[str]:
    """The inodes of the sockets that a process has."""
    return {link[8:-1] for link in descriptors_of(pid) if link.startswith("socket:[")}


def network_sockets_of(pid: int) -> list[list[str]]:
    """The rows of the kernel's tables of a process's sockets that are for a network: the local address is
    field 1.
    """
    inodes = sockets_of(pid)
    rows = []
    for table in ("tcp", "tcp6", "udp", "udp6"):
        with _has_gone:
            rows += [line.split() for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]]
    return [row for row in rows if row[9] in inodes]


@contextlib.contextmanager
def no_descriptors(pid: int) -> Iterator[None]:
    """A process that gets no further descriptor."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    # The limit is for the number of the next one: the lowest that is free.
    taken = set(map(int, os.listdir(f"/proc/{pid}/fd")))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (min(set(range(len(taken) + 1)) - taken), before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def memfds_of(pid: int) -> list[str]:
    """The shared memory of sooner that a process has mapped."""
    return [line for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if "memfd:sooner" in line]


def threads_of(pid: int) -> list[str]:
    """The names of a process's threads."""
    names = []
    for name in os.listdir(f"/proc/{pid}/task"):
        with _has_gone:
            names.append(Path(f"/proc/{pid}/task/{name}/comm").read_text().strip())
    return sorted(names)


class Footprint(NamedTuple):
    """What a process holds that a session could leave behind."""

    children: set[int]
    descriptors: list[str]
    memfds: list[str]
    threads: list[str]

    @classmethod
    def now(cls, pid: int | None = None) -> Footprint:
        """The footprint of a process, of this one by default."""
        pid = os.getpid() if pid is None else pid
        return cls(children_of(pid), descriptors_of(pid), memfds_of(pid), threads_of(pid))

    def left_over(self, later: Footprint) -> str:
        """What `later` has beyond this one, in words; empty when there is nothing."""
        found = []
        if later.children - self.children:
            found.append(f"processes {sorted(later.children - self.children)}")
        if len(later.descriptors) > len(self.descriptors):
            found.append(f"descriptors {_more(self.descriptors, later.descriptors)}")
        if len(later.memfds) > len(self.memfds):
            found.append(f"shared memory {later.memfds}")
        ours = [name for name in later.threads if name.startswith("sooner")]
        if len(ours) > len([name for name in self.threads if name.startswith("sooner")]):
            found.append(f"threads {ours}")
        return ", ".join(found)


def _more(before: list[str], after: list[str]) -> list[str]:
    rest = list(after)
    for link in before:
        if link in rest:
            rest.remove(link)
    return rest


def run_command(
    *arguments: str, base: Path, check: int | None = 0, timeout: float = 60, **environment: str
) -> subprocess.CompletedProcess:
    """Runs the `sooner` command for the nodes and programs below a directory."""
    done = subprocess.run(
        [sys.executable, "-m", "sooner", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env=os.environ | {"SOONER_TMPDIR": str(base)} | environment,
    )
    assert check is None or done.returncode == check, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


class Node:
    """A node that `sooner start` started, below a directory of its own.

    Args:
        base: That directory.
        *options: Of `sooner start`.
        join: Address of the head and token of the cluster that it joins; otherwise it is the head of a new
            one.
    """

    def __init__(self, base: Path, *options: str, join: tuple[str, str] | None = None) -> None:
        self.base = base
        role, token = ("--head", {}) if join is None else (f"--address={join[0]}", {"SOONER_TOKEN": join[1]})
        started = run_command("start", role, "--num-cpus", "2", "--json", *options, base=base, **token)
        told = json.loads(started.stdout)
        self.pid: int = told["pid"]
        self.directory = Path(told["session_dir"])

    def run(self, *arguments: str, check: int | None = 0) -> str:
        """The output of a `sooner` command."""
        return run_command(*arguments, base=self.base, check=check).stdout

    def json(self, *arguments: str) -> typing.Any:
        """What a `sooner` command says."""
        return json.loads(self.run(*arguments, "--json"))

    def processes(self) -> set[int]:
        """The node, its templates, its workers and what those started."""
        return processes_of(self.pid)

    def driver(self, code: str, *arguments: object, **options: object) -> subprocess.CompletedProcess:
        """Runs a program to its end that uses this node if it says `sooner.init()`."""
        return run_driver(code, *arguments, env=self.environment, **options)

    def running_driver(
        self, code: str, *arguments: object, **options: object
    ) -> contextlib.AbstractContextManager[subprocess.Popen]:
        """A program that runs beside the test and uses this node."""
        return running_driver(code, *arguments, env=self.environment, **options)

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables for programs that use this node."""
        return os.environ | {"SOONER_TMPDIR": str(self.base), "SOONER_ADDRESS": "auto"}

    def is_gone(self) -> bool:
        """Whether nothing is left of it."""
        return not self.processes() and not self.directory.exists()


def processes_of(node_pid: int) -> set[int]:
    """What runs of a node with its own process: that, its templates, its workers and what those started."""
    return {pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _session_of(pid) == node_pid}


def parent_of(pid: int) -> int | None:
    """The process that started another one, or took it over; None if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(text.rpartition(")")[2].split()[1])


def cpu_seconds_of(pid: int) -> float:
    """The CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _session_of(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return int(fields[3]) if fields[0] not in "ZX" else None
