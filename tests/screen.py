"""A program on a pseudo terminal, and what its user sees: a screen that knows the few sequences sooner
uses.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import textwrap
import time
from collections.abc import Callable, Iterator

from support import WAIT

_SEQUENCE = re.compile(r"\x1b\[(?P<number>\d*)(?P<what>[A-Za-z])")


class Screen:
    """The lines of a terminal, those that have scrolled away included."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.lines = [""]
        self._row = self._column = 0

    def feed(self, text: str) -> None:
        at = 0
        while at < len(text):
            sequence = _SEQUENCE.match(text, at)
            if sequence:
                self._obey(sequence["what"], int(sequence["number"] or 1))
                at = sequence.end()
                continue
            self._put(text[at])
            at += 1

    def _obey(self, what: str, number: int) -> None:
        if what == "A":
            self._row = max(0, self._row - number)
        elif what == "J":
            self.lines[self._row] = self.lines[self._row][: self._column]
            del self.lines[self._row + 1 :]
        else:
            raise AssertionError(f"a sequence that moves the cursor in a way nobody expects: {what}")

    def _put(self, character: str) -> None:
        if character == "\r":
            self._column = 0
        elif character == "\n":
            self._row += 1
            self._column = 0
            if self._row == len(self.lines):
                self.lines.append("")
        else:
            assert self._column < self.columns, f"a line is too long: {self.lines[self._row]!r}"
            line = self.lines[self._row].ljust(self._column)
            self.lines[self._row] = line[: self._column] + character + line[self._column + 1 :]
            self._column += 1

    def visible(self) -> list[str]:
        """The lines, without the empty end."""
        return [line.rstrip() for line in "\n".join(self.lines).rstrip().split("\n")]


class TerminalProgram:
    """A running program with its screen."""

    def __init__(self, process: subprocess.Popen, descriptor: int, columns: int) -> None:
        self.process = process
        self.screen = Screen(columns)
        self._descriptor = descriptor
        self._is_over = False
        self._partial = b""

    def type(self, text: str) -> None:
        """What its user types."""
        os.write(self._descriptor, text.encode())

    def wait_for(self, what: str, condition: Callable[[list[str]], object]) -> list[str]:
        """Reads until the screen fulfils a condition, and gives it."""
        deadline = time.monotonic() + WAIT
        while not condition(self.screen.visible()):
            assert not self._is_over, f"the program ended before: {what}\n" + "\n".join(self.screen.visible())
            assert time.monotonic() < deadline, f"not in time: {what}\n" + "\n".join(self.screen.visible())
            self._read(0.1)
        return self.screen.visible()

    def finish(self) -> list[str]:
        """Reads to the end of the program and gives the last screen."""
        deadline = time.monotonic() + WAIT
        while not self._is_over:
            assert time.monotonic() < deadline
            self._read(0.1)
        assert self.process.wait(WAIT) == 0, "\n".join(self.screen.visible())
        return self.screen.visible()

    def _read(self, seconds: float) -> None:
        if not select.select([self._descriptor], [], [], seconds)[0]:
            return
        try:
            data = os.read(self._descriptor, 65536)
        except OSError:
            # The other end is closed.
            data = b""
        self._is_over = not data
        # A character or a sequence may come in two pieces: what is behind the last line end or letter waits.
        data = self._partial + data
        cut = len(data)
        escape = data.rfind(b"\x1b")
        if escape >= 0 and not re.match(rb"\x1b\[[0-9;?]*[A-Za-z]", data[escape:]):
            cut = escape
        try:
            text = data[:cut].decode()
        except UnicodeDecodeError as error:
            cut = error.start
            text = data[:cut].decode()
        self._partial = data[cut:]
        self.screen.feed(text)


@contextlib.contextmanager
def on_terminal(code: str, *arguments: object, columns: int = 100, lines: int = 30) -> Iterator[TerminalProgram]:
    """A program whose standard streams are a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        close_fds=True,
    )
    os.close(theirs)
    try:
        yield TerminalProgram(process, ours, columns)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
