"""Python stacks of running processes, without their cooperation.

Each process gives faulthandler a file in the session's directory and a signal that nothing else uses. When
a tool asks, the process's own engine thread raises the signal; the kernel hands it to the main thread,
whose handler (in C, without the GIL) appends the stacks of all threads. System calls that it interrupts
are restarted.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import time
from typing import IO, TYPE_CHECKING

from sooner import _sooner

if TYPE_CHECKING:
    from sooner._state.snapshot import Snapshot

# Real-time signals are rarely used by programs, and the first ones by libraries.
SIGNAL = signal.SIGRTMIN + 10
_HANDLER_SECONDS = 1.0

_SILENT = "(the process did not come to show its stacks)\n"
# The pause between two looks at files of other nodes (seconds).
_LOOK_SECONDS = 0.01

_file: IO[bytes] | None = None


def prepare(directory: str) -> None:
    """Makes this process ready to be asked for its stacks."""
    global _file
    if signal.getsignal(SIGNAL) is not signal.SIG_DFL:
        # The program uses this very signal itself and keeps it.
        return
    place = os.path.join(directory, "stacks")
    try:
        # Does not make the session's directory: if that was removed, it must not come back, open to others.
        with contextlib.suppress(FileExistsError):
            os.mkdir(place, 0o700)
        path = os.path.join(place, str(os.getpid()))
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        # The file stays open for as long as the handler may write.
        _file = open(descriptor, "ab", buffering=0)  # noqa: SIM115
        faulthandler.register(SIGNAL, file=_file, all_threads=True, chain=False)
        _sooner.set_stack_file(path, SIGNAL)
    except OSError:
        # Out of descriptors or disk: a session without stacks is better than none.
        return


def end() -> None:
    """Stops showing stacks, since the session is over."""
    global _file
    if _file is not None:
        faulthandler.unregister(SIGNAL)
        _file.close()
        _file = None


def read(snapshot: Snapshot) -> list[tuple[str, int, str]]:
    """Worker id, process id and stacks of every process that answered a snapshot with `STACKS`.

    A process that cannot be stopped (in the kernel) has a text that says so.
    """
    found = []
    deadline = time.monotonic() + _HANDLER_SECONDS
    away = _read_away(snapshot, deadline)
    for worker, report in snapshot.reports.items():
        pid, stack = report["pid"], report["stack"]
        if worker in away:
            found.append((worker, pid, away[worker] or _SILENT))
            continue
        if stack is None:
            found.append((worker, pid, "(this process cannot show its stacks)\n"))
            continue
        while _is_dumping(pid) and time.monotonic() < deadline:
            time.sleep(0.001)
        try:
            with open(stack["path"], "rb") as file:
                file.seek(stack["offset"])
                text = file.read().decode(errors="replace")
        except OSError:
            text = ""
        found.append((worker, pid, text or _SILENT))
    return found


def _read_away(snapshot: Snapshot, deadline: float) -> dict[str, str]:
    """Stacks of processes of other nodes, by worker: their nodes read the files. A missing one is empty."""
    from sooner._state.snapshot import FILES, Snapshot  # start-up: 4.0 ms

    parts: dict[tuple[str, str], tuple[str, int]] = {}
    for worker, report in snapshot.reports.items():
        if report["stack"] and not snapshot.is_here(worker):
            file = f"stacks/{os.path.basename(report['stack']['path'])}"
            parts[snapshot.node_of(worker), file] = worker, report["stack"]["offset"]
    texts = {worker: "" for worker, _ in parts.values()}
    is_whole = not parts
    while not is_whole and time.monotonic() < deadline:
        wanted = [(node, file, offset) for (node, file), (_, offset) in parts.items()]
        looked = Snapshot(snapshot.directory, FILES, everywhere=True, parts=wanted)
        before = dict(texts)
        for node, told in looked.told.items():
            for row in told["files"] or ():
                if (node, row["file"]) in parts:
                    texts[parts[node, row["file"]][0]] = row["text"].decode(errors="replace")
        # A stack is written line by line: it is whole when nothing more comes.
        is_whole = all(texts.values()) and texts == before
        time.sleep(0 if is_whole else _LOOK_SECONDS)
    return texts


def _is_dumping(pid: int) -> bool:
    """Whether the signal waits for the process, or its handler runs: a signal is blocked meanwhile."""
    bit = 1 << (SIGNAL - 1)
    try:
        with open(f"/proc/{pid}/status") as file:
            lines = [line.split() for line in file if line.startswith(("SigPnd", "ShdPnd", "SigBlk"))]
    except OSError:
        return False
    return any(int(mask, 16) & bit for _, mask in lines)
