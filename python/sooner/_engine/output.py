"""A worker's standard streams: whole lines to the node, with the name of the task they belong to.

The name is announced only when it changes and something is printed, so that a silent task costs nothing. Each
thread has an unfinished line of its own, so that calls at the same time do not tear each other's lines; the
engine ends it with the task (`end_line`).

A program that draws on one line with carriage returns, as tqdm does, prints only the line's last state. Its
earlier states are sent as a progress bar.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import re
import sys
import threading
import time
from typing import Any

from sooner import _sooner

_MARK = b"\x1esooner:"
# Begins a message for the driver's progress bars: a JSON object without line ends, in ASCII.
BAR_MARK = "\x1ebar:"
# Begins the announcement of a debugger that waits for the driver.
DEBUG_MARK = "\x1edebug:"
# The least time between two states of a rewritten line (seconds). Libraries draw ten times a second.
_FRAME_SECONDS = 0.05
_FRAME_LENGTH_MAX = 300
# Sequences that move the cursor or erase. Colours may stay.
_CURSOR = re.compile(r"\x1b(?:\[[0-9;?]*[@-ln-~]|[78DEHM])")
_PREFIX = re.compile(r"\(.*? pid=\d+\) ")
# A line that grows beyond this (characters) is shown in parts, as the node does.
_LINE_LENGTH_MAX = 1 << 20


class _Line:
    """An unfinished line: its parts, and the task that began it."""

    def __init__(self, task: str | None, title: str) -> None:
        self.task = task
        self.title = title
        self.parts: list[str] = []
        self.length = 0
        # When it was last shown as a bar; None unless it is rewritten.
        self.frame_at: float | None = None

    def append(self, text: str) -> None:
        self.parts.append(text)
        self.length += len(text)

    def rewrite(self) -> str:
        """Drops the text that carriage returns have overwritten; returns the rest."""
        text = "".join(self.parts)
        left = last_frame(text)
        self.parts = [left, "\r"] if text.endswith("\r") else [left]
        self.length = len(left)
        return left


def last_frame(text: str) -> str:
    """Returns what a terminal shows of a line with carriage returns: the text that was written last.

    Example:
        >>> last_frame("10%\\r20%\\r"), last_frame("no bar")
        ('20%', 'no bar')
    """
    if "\r" not in text:
        return text
    return next((frame for frame in reversed(text.split("\r")) if frame), "")


def split_marks(text: str) -> tuple[str, list[tuple[str, dict[str, Any]]]]:
    """Separates lines of workers from messages for the progress bars.

    Args:
        text: Whole lines, each with the prefix "(name pid=...) ".

    Returns:
        The lines that remain, and the messages, each with its prefix.
    """
    rest, marks = [], []
    # Not `splitlines`: it knows more line ends, the mark among them.
    for line in text.removesuffix("\n").split("\n"):
        head, mark, message = line.partition(BAR_MARK)
        parsed = _parsed(message) if mark else None
        if parsed is None:
            rest.append(line + "\n")
            continue
        prefix = _PREFIX.match(head)
        name = prefix.group() if prefix else ""
        marks.append((name, parsed))
        if len(head) > len(name):
            # C code had begun a line.
            rest.append(head + "\n")
    return "".join(rest), marks


def _parsed(message: str) -> dict[str, Any] | None:
    try:
        import json  # start-up: 1.8 ms; a millisecond of every worker's start, for programs with progress bars

        parsed = json.loads(message)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


def harmless(text: str) -> str:
    """Removes from lines of workers what would move the cursor of the driver's terminal."""
    if "\x1b" in text:
        text = _CURSOR.sub("", text)
    if "\r" not in text:
        return text
    return "\n".join(map(_without_returns, text.split("\n")))


def _without_returns(line: str) -> str:
    prefix = _PREFIX.match(line)
    at = prefix.end() if prefix else 0
    return line[:at] + last_frame(line[at:])


class TaskStream(io.TextIOBase):
    """A line-buffered text stream on a descriptor."""

    def __init__(self, descriptor: int, default_title: str) -> None:
        self._descriptor = descriptor
        self._lines: dict[int, _Line] = {}
        self._announced = ""
        self._lock = threading.RLock()
        self._bytes = _Bytes(self)
        # Whether a task may have wrapped the binary stream in another text stream.
        self._is_shared = False
        self.default_title = default_title

    def writable(self) -> bool:
        """Always."""
        return True

    def fileno(self) -> int:
        """The descriptor."""
        return self._descriptor

    def close(self) -> None:
        """Only flushes: the stream belongs to the process, and the next task prints on it, too."""
        self.flush()

    @property
    def name(self) -> str:
        """As the interpreter names its standard streams."""
        return "<stdout>" if self._descriptor == 1 else "<stderr>"

    @property
    def mode(self) -> str:
        """Always for writing."""
        return "w"

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Always UTF-8."""
        return "utf-8"

    @property
    def errors(self) -> str:  # type: ignore[override]
        """What happens to text that UTF-8 cannot express."""
        return "backslashreplace"

    @property
    def newlines(self) -> None:  # type: ignore[override]
        """Nothing is translated."""
        return None

    @property
    def line_buffering(self) -> bool:
        """Always: lines are sent whole, and at once."""
        return True

    @property
    def write_through(self) -> bool:
        """Never: the stream sends lines."""
        return False

    def reconfigure(
        self,
        *,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        line_buffering: bool | None = None,
        write_through: bool | None = None,
    ) -> None:
        """Checks the arguments as the interpreter's own streams do, and changes nothing.

        Lines go to the driver as UTF-8 and whole, whatever a program asks for.

        Raises:
            LookupError: There is no such encoding, or no such way to treat errors.
        """
        if encoding is not None:
            codecs.lookup(encoding)
        if errors is not None:
            codecs.lookup_error(errors)
        if newline not in (None, "", "\n", "\r", "\r\n"):
            raise ValueError(f"illegal newline value: {newline!r}")
        self.flush()

    @property
    def buffer(self) -> Any:
        """A binary stream on the same descriptor."""
        if not self._is_shared:
            self._is_shared = True
            # Makes the engine call `end_line` after the task.
            _sooner.line_begun()
        return self._bytes

    def detach(self) -> Any:
        """The binary stream, as `buffer`. This one can still be used: it is the process's."""
        return self.buffer

    def write(self, text: str) -> int:
        """Writes whole lines at once and keeps the rest."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        whole, separator, rest = text.rpartition("\n")
        with self._lock:
            me = threading.get_ident()
            line = self._lines.get(me)
            if line is not None and line.task != _task():
                self._end(me)
                line = None
            if separator:
                begun = "" if line is None else "".join(line.parts)
                title = self._title() if line is None else line.title
                if line is not None and line.frame_at is not None:
                    self._close_frame(line, me)
                self._lines.pop(me, None)
                line = None
                whole = begun + whole
                if "\r" in whole:
                    whole = "\n".join(map(last_frame, whole.split("\n")))
                self._send(title, whole + separator)
            if rest:
                if line is None:
                    line = self._lines[me] = _Line(_task(), self._title())
                    _sooner.line_begun()
                line.append(rest)
                if "\r" in rest or line.frame_at is not None:
                    self._show_frame(line, me)
                if line.length > _LINE_LENGTH_MAX:
                    self._end(me)
        return len(text)

    def end_line(self) -> None:
        """Ends this thread's unfinished line: the task that wrote it is over."""
        if self._is_shared:
            self._is_shared = False
            self._flush_other()
        with self._lock:
            self._end(threading.get_ident())

    def _flush_other(self) -> None:
        """Flushes a stream that the task has put in place of this one: its output is this task's, too."""
        other = sys.stdout if self._descriptor == 1 else sys.stderr
        if other is not self:
            with contextlib.suppress(Exception):
                other.flush()

    def forget_lines(self) -> None:
        """In a process that a task forked: drops unfinished lines and the lock, which the parent may hold."""
        self._lock = threading.RLock()
        self._lines.clear()

    def end_lines(self) -> None:
        """Ends the unfinished lines of all threads at the end of the process."""
        with self._lock:
            for thread in list(self._lines):
                self._end(thread)

    def _end(self, thread: int) -> None:
        line = self._lines.pop(thread, None)
        if line is None:
            return
        text = last_frame("".join(line.parts))
        if line.frame_at is not None:
            self._close_frame(line, thread)
            if not text.strip():
                # The program has erased the line.
                return
        self._send(line.title, text + "\n")

    def tell_driver(self, message: dict[str, Any]) -> None:
        """Sends a message for the driver's progress bars, under the name of the task that runs."""
        with self._lock:
            self._send(self._title(), _as_line(message))

    def announce(self, text: str) -> None:
        """Sends a marked line under the name of the task that runs."""
        with self._lock:
            self._send(self._title(), text + "\n")

    def _show_frame(self, line: _Line, thread: int) -> None:
        """Shows a line that is being rewritten as a bar in the driver, until the line ends."""
        frame = line.rewrite()
        now = time.monotonic()
        if line.frame_at is None or now - line.frame_at >= _FRAME_SECONDS:
            line.frame_at = now
            self._send(line.title, _as_line({**self._frame(thread), "frame": frame.rstrip()[:_FRAME_LENGTH_MAX]}))

    def _close_frame(self, line: _Line, thread: int) -> None:
        self._send(line.title, _as_line({**self._frame(thread), "closed": True}))

    def _frame(self, thread: int) -> dict[str, Any]:
        pid = os.getpid()
        return {"key": f"{pid}.{self._descriptor}.{thread}", "pid": pid, "is_kept": False, "frame": ""}

    def _title(self) -> str:
        return self.default_title if self.default_title != "worker" else _sooner.current_name() or "worker"

    def _send(self, title: str, text: str) -> None:
        data = text.encode("utf-8", "backslashreplace")
        if title != self._announced:
            self._announced = title
            data = _MARK + title.encode("utf-8", "backslashreplace") + b"\n" + data
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]


def _as_line(message: dict[str, Any]) -> str:
    import json  # start-up: 1.8 ms

    return f"{BAR_MARK}{json.dumps(message)}\n"


def _task() -> str | None:
    current = _sooner.current_task()
    return None if current is None else current[0]


class TaskInput(io.TextIOWrapper):
    """Standard input of a worker: it is always at its end."""

    def __init__(self) -> None:
        raw = io.FileIO(0, "rb", closefd=False)
        # As the interpreter names its standard streams.
        raw.name = "<stdin>"
        super().__init__(_InputBytes(raw), encoding="utf-8")

    @property
    def mode(self) -> str:
        """Always for reading."""
        return "r"

    def close(self) -> None:
        """Nothing: the stream belongs to the process, and the next task reads from it, too."""

    def detach(self) -> Any:
        """The binary stream, as `buffer`. This one can still be used."""
        return self.buffer


class _InputBytes(io.BufferedReader):
    def close(self) -> None:
        # As in `_Bytes`.
        pass

    def detach(self) -> Any:
        return self.raw


class _Bytes(io.RawIOBase):
    def __init__(self, stream: TaskStream) -> None:
        self._stream = stream
        # The bytes of a character may come in two writes.
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()

    @property
    def name(self) -> str:
        return self._stream.name

    @property
    def mode(self) -> str:
        return "wb"

    @property
    def raw(self) -> Any:
        return self

    def detach(self) -> Any:
        return self

    def close(self) -> None:
        # A text stream in which a program has wrapped this one closes it when it is collected.
        pass

    def write(self, data: Any) -> int:
        data = bytes(data)
        self._stream.write(self._decoder.decode(data))
        return len(data)
