"""A worker's standard streams: whole lines to the node, with the name of the task they belong to.

The name is announced only when it changes and something is printed, so that a silent task costs nothing. Each thread
has an unfinished line of its own, so that calls at the same time do not tear each other's lines; the engine ends it
with the task (`end_line`).
"""

from __future__ import annotations

import codecs
import io
import os
import threading
from typing import Any

from weft import _weft

_MARK = b"\x1eweft:"
# A line that grows beyond this (characters) is shown in parts, as the node does.
_LINE_LENGTH_MAX = 1 << 20


class _Line:
    """An unfinished line: who began it and its parts."""

    def __init__(self, task: str | None, title: str) -> None:
        self.task = task
        self.title = title
        self.parts: list[str] = []
        self.length = 0

    def append(self, text: str) -> None:
        self.parts.append(text)
        self.length += len(text)


class TaskStream(io.TextIOBase):
    """A line-buffered text stream on a descriptor."""

    def __init__(self, descriptor: int, default_title: str) -> None:
        self._descriptor = descriptor
        self._lines: dict[int, _Line] = {}
        self._announced = ""
        self._lock = threading.RLock()
        self._bytes = _Bytes(self)
        self.default_title = default_title

    def writable(self) -> bool:
        """Always."""
        return True

    def fileno(self) -> int:
        """The descriptor."""
        return self._descriptor

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Always UTF-8."""
        return "utf-8"

    @property
    def errors(self) -> str:  # type: ignore[override]
        """What happens to text that UTF-8 cannot express."""
        return "backslashreplace"

    @property
    def buffer(self) -> Any:
        """A binary stream on the same descriptor."""
        return self._bytes

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
                self._lines.pop(me, None)
                line = None
                self._send(title, begun + whole + separator)
            if rest:
                if line is None:
                    line = self._lines[me] = _Line(_task(), self._title())
                    _weft.line_begun()
                line.append(rest)
                if line.length > _LINE_LENGTH_MAX:
                    self._end(me)
        return len(text)

    def end_line(self) -> None:
        """Ends this thread's unfinished line: the task that wrote it is over."""
        with self._lock:
            self._end(threading.get_ident())

    def end_lines(self) -> None:
        """Ends the unfinished lines of all threads: the process is over."""
        with self._lock:
            for thread in list(self._lines):
                self._end(thread)

    def _end(self, thread: int) -> None:
        line = self._lines.pop(thread, None)
        if line is not None:
            self._send(line.title, "".join(line.parts) + "\n")

    def _title(self) -> str:
        return self.default_title if self.default_title != "worker" else _weft.current_name() or "worker"

    def _send(self, title: str, text: str) -> None:
        data = text.encode("utf-8", "backslashreplace")
        if title != self._announced:
            self._announced = title
            data = _MARK + title.encode("utf-8", "backslashreplace") + b"\n" + data
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]


def _task() -> str | None:
    current = _weft.current_task()
    return None if current is None else current[0]


class _Bytes(io.RawIOBase):
    def __init__(self, stream: TaskStream) -> None:
        self._stream = stream
        # A character may come in two pieces.
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()

    def write(self, data: Any) -> int:
        data = bytes(data)
        self._stream.write(self._decoder.decode(data))
        return len(data)
