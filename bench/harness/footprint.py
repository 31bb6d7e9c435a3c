"""What processes weigh, read from /proc: memory, threads and processor time."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
MIB = 1 << 20


def rollup_bytes(pid: int | str, *fields: str) -> int:
    """Sum of fields of smaps_rollup, for instance `Pss`, or `Private_Clean` and `Private_Dirty`."""
    total = 0
    for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines()[1:]:
        name, value, *_ = line.split()
        if name.rstrip(":") in fields:
            total += int(value) * 1024
    return total


def private_bytes(pid: int | str) -> int:
    """Memory that no other process maps: what goes away when this one ends."""
    return rollup_bytes(pid, "Private_Clean", "Private_Dirty")


def anonymous_bytes(pid: int | str) -> int:
    """Resident heap and shared memory, without mapped files."""
    total = 0
    for line in (PROC / str(pid) / "status").read_text().splitlines():
        if line.startswith(("RssAnon:", "RssShmem:")):
            total += int(line.split()[1]) * 1024
    return total


def _threads(pid: int) -> int:
    return len(os.listdir(PROC / str(pid) / "task"))


def _cpu_seconds(pid: int) -> float:
    """Processor time of all threads; schedstat counts nanoseconds where stat counts 10 ms ticks."""
    nanoseconds = 0
    for task in (PROC / str(pid) / "task").iterdir():
        nanoseconds += int((task / "schedstat").read_text().split()[0])
    return nanoseconds / 1e9


def cpu_seconds(pids: list[int]) -> float:
    """Processor time of the processes that are still there."""
    total = 0.0
    for pid in pids:
        try:
            total += _cpu_seconds(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total


@dataclass(frozen=True)
class Snapshot:
    """Some processes at one moment."""

    pss: int
    threads: int
    processes: int
    cpu_s: float


def snapshot(pids: list[int]) -> Snapshot:
    """Weigh the processes that are still there."""
    pss = threads = processes = 0
    cpu_s = 0.0
    for pid in pids:
        try:
            weight, count, seconds = rollup_bytes(pid, "Pss"), _threads(pid), _cpu_seconds(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue
        pss, threads, processes, cpu_s = (
            pss + weight,
            threads + count,
            processes + 1,
            cpu_s + seconds,
        )
    return Snapshot(pss, threads, processes, cpu_s)


def marked(marker: str) -> list[int]:
    """Processes whose environment carries the marker: the agent's own and all that it started."""
    needle = f"BENCH_RUN={marker}".encode()
    found = []
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except (PermissionError, FileNotFoundError, ProcessLookupError):
            continue
        if needle in environment.split(b"\0"):
            found.append(int(entry.name))
    return found
