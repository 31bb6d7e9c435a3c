"""A snapshot of a running session: the answers of its node, its processes and other nodes at one moment.

`rows.py` and `task_rows.py` make rows of the answers, `query.py` filters rows. Times are monotonic
nanoseconds of the node that is asked, which is on this machine.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from sooner import _sooner

TASKS, OBJECTS, ACTORS, EVENTS, METRICS, STACKS, FILES = (
    _sooner.ABOUT[name] for name in ("TASKS", "OBJECTS", "ACTORS", "EVENTS", "METRICS", "STACKS", "FILES")
)

# Rows per process and table that a question without a limit asks for (the engine's own bound).
ROWS_MAX = 100_000
# More than any ring holds.
EVENTS_MAX = 1 << 31

Row = dict[str, Any]

# The engine's record of one execution of a task.
_RECORD = struct.Struct("<" + "".join(letter for _, letter in _sooner.RECORD))


class Execution(NamedTuple):
    """One execution of a task that has ended. Times in monotonic nanoseconds, durations in nanoseconds."""

    number: int
    submitted: int
    started: int
    worker: int
    ready: float
    pushed: float
    deserialise: float
    run: float
    store: float
    ended: float
    label: int
    outcome: int
    again: int
    attempt: int


class Snapshot:
    """Answers of one moment. Processes are not stopped: rows of two processes may be a little apart.

    Args:
        directory: The directory of the session whose node is asked.
        about: What is asked for, as a sum of `TASKS` and the like.
        rows: Rows per process and table at most.
        events: Events per process at most: the latest.
        timeout: How long the node may take (seconds).
        everywhere: Whether the other nodes of its cluster are asked, too. All times are by the clock of the
            node that is asked.
        parts: Which parts of files are wanted: node, file and offset (bytes). Without any, `FILES` lists the
            logs.

    Raises:
        OSError: No node answers there.
    """

    def __init__(
        self,
        directory: str,
        about: int,
        rows: int = ROWS_MAX,
        events: int = 0,
        timeout: float = 30,
        everywhere: bool = False,
        parts: Iterable[tuple[str, str, int]] = (),
    ) -> None:
        socket = os.path.join(directory, "node.sock")
        most = (min(rows, ROWS_MAX), events)
        wanted = [(int(node, 16), file, offset) for node, file, offset in parts]
        answer = _sooner.inspect(socket, about, most, everywhere, wanted, int(timeout * 1e9))
        self.directory = directory
        self.node, reports, self.silent, others, self.silent_nodes = answer
        self.reports: dict[str, Row] = dict(reports)
        # Reports of nodes by node id. The first is that of the node that was asked.
        self.told: dict[str, Row] = {self.node["node"]: self.node}
        members = self.node["cluster"]["nodes"] if self.node["cluster"] else ()
        self._names: dict[str, str] = {row["node"]: row["about"]["name"] for row in members}
        # How far the clocks of the other nodes are ahead (nanoseconds).
        self._ahead: dict[str, int] = {}
        for ahead, told in others:
            self.told[told["node"]] = told
            self._ahead[told["node"]] = ahead
        self._turn_clocks()
        self.now_ns = time.monotonic_ns()
        self._epoch_ns = time.time_ns() - self.now_ns
        self._pids: dict[str, int] = {}
        self._jobs: dict[str, str] = {}
        # Jobs by id. A node that is a thread of a program has only one.
        self.drivers: dict[str, Row] = {}
        for node, told in self.told.items():
            self._pids |= {row["worker"]: row["pid"] for row in (*told["ended"], *told["workers"])}
            self._jobs |= {row["worker"]: row["job"] for row in told["workers"]}
            # A node that works for a program of another node lists that job, too.
            own = len(self.told) == 1
            self.drivers |= {row["job"]: row for row in told["jobs"] if own or self.node_of(row["job"]) == node}
        self._pids |= {job: row["pid"] for job, row in self.drivers.items()}
        # The most memory that a worker was seen to hold (bytes), by the function that it ran.
        self._peaks: dict[int, int] = {}
        for told in self.told.values():
            for row in told["peaks"] or ():
                self._peaks[row["function"]] = max(row["bytes"], self._peaks.get(row["function"], 0))
        # The name that `sooner start` gave the node; None for a thread of a program.
        self.name: str | None = self.node["name"]

    def _turn_clocks(self) -> None:
        """Converts times of other nodes to the clock of the node that was asked."""
        for node, ahead in self._ahead.items():
            told = self.told[node]
            for row, name in [(told, "started"), *((row, "started") for row in told["jobs"])]:
                row[name] = _earlier(row[name], ahead)
            for row in told["ended"]:
                row["at"] = _earlier(row["at"], ahead)
        for process, report in self.reports.items():
            ahead = self._ahead.get(self.node_of(process), 0)
            if ahead:
                for row in report["tasks"]:
                    row["submitted"] = _earlier(row["submitted"], ahead)
                    row["pushed"] = _earlier(row["pushed"], ahead)
                for row in report["running"]:
                    row["since"] = _earlier(row["since"], ahead)

    def node_of(self, process: str) -> str:
        """The node of a process: the first five bytes of its id."""
        node = process[:10] + "000000"
        return node if node in self.told or node in self._names else str(self.node["node"])

    def name_of(self, node: str) -> str:
        """The name of a node; its id if the name is not known."""
        return self._names.get(node, node)

    def is_here(self, process: str) -> bool:
        """Whether a process belongs to the node that was asked."""
        return bool(self.node_of(process) == self.node["node"])

    def place(self, process: str) -> str:
        """The node of a process, as text to put behind its id; empty for the node that was asked."""
        return "" if self.is_here(process) else f" on {self.name_of(self.node_of(process))}"

    def job(self, worker: str) -> str:
        """The job of a process: the id of its driver. For a process that has ended it may be a wrong one."""
        if worker in self.drivers:
            return worker
        return self._jobs.get(worker) or next(iter(self.drivers), worker)

    def pid(self, worker: str | None) -> int | None:
        """The process id of a worker that lives or ended lately."""
        return self._pids.get(worker) if worker else None

    def milliseconds(self, nanos: float) -> float | None:
        """Milliseconds since 1970 of a monotonic time; None for zero."""
        return round((nanos + self._epoch_ns) / 1e6, 3) if nanos else None

    def running(self) -> dict[str, tuple[str, int]]:
        """Task id -> worker that runs it and since when (monotonic nanoseconds)."""
        return {
            row["task"]: (worker, row["since"]) for worker, report in self.reports.items() for row in report["running"]
        }

    def peak(self, label: Row) -> int | None:
        """The most memory that a worker was seen to hold in such a task (bytes); None if not measured."""
        return self._peaks.get(label["code"]) if label["code"] is not None else None

    def executions(self) -> Iterator[tuple[str, Row, Execution]]:
        """Owner, label and record of every execution that has ended, latest first."""
        for owner, report in self.reports.items():
            events = report["events"]
            if events is None:
                continue
            labels = events["labels"]
            ahead = self._ahead.get(self.node_of(owner), 0)
            for fields in reversed(list(_RECORD.iter_unpack(events["records"]))):
                execution = Execution._make(fields)
                if self._ahead:
                    # The start of an execution is by the clock of its worker's node.
                    there = self._ahead.get(self.node_of(f"{execution.worker:016x}"), 0)
                    began, submitted = execution.started, execution.submitted
                    execution = execution._replace(started=_earlier(began, there), submitted=_earlier(submitted, ahead))
                yield owner, labels[fields[10]], execution

    def events_lost(self) -> int:
        """Executions whose records made room for later ones."""
        return sum(report["events"]["lost"] for report in self.reports.values() if report["events"])

    def missing(self) -> list[str]:
        """The processes and nodes that did not answer, for people. Empty if the answer is complete."""
        missing = []
        if self.silent:
            missing.append("processes " + ", ".join(str(self.pid(worker) or worker) for worker in self.silent))
        if self.silent_nodes:
            missing.append("nodes " + ", ".join(map(self.name_of, self.silent_nodes)))
        return missing


def _earlier(nanos: int, ahead: int) -> int:
    """Converts a time of a clock that is `ahead`. Zero, which means no time, stays zero."""
    return max(1, nanos - ahead) if nanos else 0
