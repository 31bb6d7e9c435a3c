"""A measuring process seen from the runner: events over a pipe, a time limit, and no remains."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
import uuid
from pathlib import Path
from typing import Any

from harness import footprint

SLICE_S = 0.2
GRACE_S = 10.0


class Child:
    """Starts a module of the benchmark; use as a context manager, so that it always ends.

    Everything that it starts inherits a marker in its environment. What still carries it after
    the end is killed, so that one peer's remains do not disturb the next one.
    """

    def __init__(
        self, python: Path, module: str, arguments: list[str], env: dict[str, str], log: Path
    ):
        self.marker = uuid.uuid4().hex
        self.log = log
        self._buffer = b""
        self._read, write = os.pipe()
        command = [str(python), "-m", module, *arguments, str(write)]
        with log.open("ab") as output:
            self._log_start = output.tell()
            self.process = subprocess.Popen(
                command,
                pass_fds=(write,),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**env, "BENCH_RUN": self.marker},
                start_new_session=True,
            )
        os.close(write)

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def event(self, limit_s: float) -> dict[str, Any] | None:
        """The next event, or None when the process has ended. TimeoutError after `limit_s`."""
        deadline = time.monotonic() + limit_s
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            # Short slices: a forked grandchild may hold the pipe open after the process has died.
            if select.select([self._read], [], [], min(left, SLICE_S))[0]:
                chunk = os.read(self._read, 1 << 16)
                if not chunk:
                    return None
                self._buffer += chunk
            elif self.process.poll() is not None:
                return None
        line, self._buffer = self._buffer.split(b"\n", 1)
        return dict(json.loads(line))

    def proceed(self) -> None:
        """Let a process that waits on its standard input go on."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def pids(self) -> list[int]:
        """The process and all that it started."""
        return footprint.marked(self.marker)

    def last_words(self, lines: int = 6) -> str:
        """The end of what the process printed."""
        text = self.log.read_bytes()[self._log_start :].decode(errors="replace")
        return "\n".join(text.strip().splitlines()[-lines:])

    def end(self, grace_s: float = GRACE_S) -> None:
        """Wait for the process, then kill what is left of it and of what it started."""
        try:
            self.process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
        os.close(self._read)
        deadline = time.monotonic() + 2
        while (left := self.pids()) and time.monotonic() < deadline:
            time.sleep(0.05)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
