"""Shaped hosts: their network, what it really carries, and whether a figure may be compared.

The rule for a figure, all shown with it: at least a quarter of the processors was idle while it was
measured, so that it is the network that limits; a raw stream reaches what such a link carries; and
the machine had nothing else to do before. A figure that breaks the first is called CPU-bound, one
that breaks the others disturbed.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parent.parent
# The namespaces of the tests; the module needs nothing else of them.
sys.path.append(str(BENCH.parent / "tests" / "multihost"))

import hosts  # noqa: E402

MEGABYTE = 1_000_000
# Of a frame of 1,514 bytes on the wire, 1,448 are payload: the shaper counts all of it.
PAYLOAD = 1448 / 1514
IDLE_MIN = 0.25
GOODPUT_OFF_MAX = 0.02
LOAD_MAX = 0.2
_LOAD_WINDOW_S = 1.0
# How long the end of the system before may take.
_SETTLE_S = 10.0
_SAMPLE_S = 0.02
_STREAMS = 2
# A stream counts up to here as beginning: the shaper lets a burst pass, and TCP finds its pace.
_STREAM_BEGINS = 16 * MEGABYTE
_STREAM_SIZES = (32 * MEGABYTE, 64 * MEGABYTE)
_TICKS = os.sysconf("SC_CLK_TCK")
_CORES = os.cpu_count() or 1


def obstacle() -> str | None:
    """Why this machine can have no hosts of its own; None if it can."""
    return hosts.obstacle()


@dataclass(frozen=True)
class Link:
    """What a link carries, as raw streams have found it.

    Attributes:
        goodput: Bytes per second of a stream that has found its pace.
        expected: What the rate of the link allows.
        seconds: How long a raw stream takes, by its size in bytes: the best of several.
    """

    goodput: float
    expected: float
    seconds: dict[int, float]

    def optimum(self, size: int) -> float:
        """How long so many bytes take at best (seconds), also if no stream had that many."""
        if size in self.seconds:
            return self.seconds[size]
        measured = min(self.seconds)
        return self.seconds[measured] + (size - measured) / self.goodput


def verdict(idle: float, link: Link, before: float) -> str:
    """Why a figure is not to be compared; empty if it is.

    Args:
        idle: The idle share of the processors while it was measured.
        link: What the links carried.
        before: How many processors were busy before.
    """
    if idle < IDLE_MIN:
        return "CPU-bound"
    is_off = abs(link.goodput / link.expected - 1) > GOODPUT_OFF_MAX
    return "disturbed" if is_off or before >= LOAD_MAX else ""


class Processors:
    """Samples how busy the machine is, for looking it up afterwards. Use as a context manager."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, float]] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Processors:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(_SAMPLE_S):
            self._samples.append((time.monotonic(), idle_seconds()))

    def idle(self, begin: float, end: float) -> float:
        """The idle share of all processors between two moments of the monotonic clock."""
        within = [sample for sample in list(self._samples) if begin <= sample[0] <= end]
        if len(within) < 2:
            return 0.0
        (first, before), (last, after) = within[0], within[-1]
        return (after - before) / (last - first) / _CORES


def idle_seconds() -> float:
    """How long the processors have been idle since the machine started, in all (seconds)."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return (int(fields[4]) + int(fields[5])) / _TICKS


def load() -> float:
    """How many processors are busy, over a short while."""
    before, begin = idle_seconds(), time.monotonic()
    time.sleep(_LOAD_WINDOW_S)
    return max(0.0, _CORES - (idle_seconds() - before) / (time.monotonic() - begin))


def settled() -> float:
    """How many processors are busy, once what ran before has ended or a while has passed."""
    deadline = time.monotonic() + _SETTLE_S
    while (found := load()) >= LOAD_MAX and time.monotonic() < deadline:
        pass
    return found


class Bed:
    """Hosts with links of one rate, for one system. Use as a context manager.

    Attributes:
        hosts: The hosts; the first one has what the others want.
        megabits: What each sends and receives at most (1,000,000 bits per second); None: no limit.
        link: What their links carry, if they have a limit.
        load: How many processors were busy before.
    """

    def __init__(self, count: int, megabits: int | None) -> None:
        self.megabits = megabits
        self._count = count
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Bed:
        self.load = settled()
        enter = self._stack.enter_context
        try:
            # Paths of sockets are short.
            base = enter(tempfile.TemporaryDirectory(prefix="wb-", dir="/tmp"))
            self.hosts: Sequence[Any] = enter(hosts.hosts(self._count, Path(base)))
            if self.megabits is not None:
                for host in self.hosts:
                    host.shape(self.megabits)
                self.link = self._measure(self.megabits)
            self.processors = enter(Processors())
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self, number: int, *command: str, **environment: str) -> subprocess.Popen[str]:
        """Start a program on a host, with pipes to and from it.

        It is killed when the bed ends.
        """
        host = self.hosts[number]
        program = subprocess.Popen(
            host.space.command(*command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=host.environment | environment,
        )
        self._stack.callback(_end, program)
        return program

    def _measure(self, megabits: int) -> Link:
        script = str(BENCH / "systems" / "raw_stream.py")
        marks = ",".join(map(str, sorted({_STREAM_BEGINS, *_STREAM_SIZES})))
        given = [script, self.hosts[0].address, str(_STREAMS), marks]
        sender = self.start(0, sys.executable, *given, "send")
        assert _line(sender) == "ready\n", "the raw stream did not begin"
        receiver = self.start(1, sys.executable, *given, "receive")
        found = [
            {int(mark): seconds for mark, seconds in json.loads(_line(receiver)).items()}
            for _ in range(_STREAMS)
        ]
        whole = max(_STREAM_SIZES)
        goodput = max(
            (whole - _STREAM_BEGINS) / (came[whole] - came[_STREAM_BEGINS]) for came in found
        )
        best = {size: min(came[size] for came in found) for size in _STREAM_SIZES}
        return Link(goodput, megabits * 1e6 / 8 * PAYLOAD, best)

    def conditions(self, windows: Sequence[tuple[float, float]]) -> dict[str, Any]:
        """What is shown with a figure, from the windows in which it was measured.

        Returns:
            The idle share, the goodput and what was expected of it (MB/s), how many processors were
            busy before, how often it was measured, and the verdict: empty if it may be compared.
        """
        idle = statistics.median(self.processors.idle(*window) for window in windows)
        return {
            "idle": idle,
            "goodput": self.link.goodput / 1e6,
            "expected": self.link.expected / 1e6,
            "load": self.load,
            "count": len(windows),
            "verdict": verdict(idle, self.link, self.load),
        }


def _line(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    return program.stdout.readline()


def _end(program: subprocess.Popen[str]) -> None:
    program.kill()
    program.communicate()
