"""A worker's standard streams: whole lines to the node, with the name of the task they belong to.

The name is announced only when it changes and something is printed, so that a silent task costs nothing.
"""

from __future__ import annotations

import io
import os
import threading
from typing import Any

from weft import _weft

_MARK = b"\x1eweft:"


class TaskStream(io.TextIOBase):
    """A line-buffered text stream on a descriptor."""

    def __init__(self, descriptor: int, default_title: str) -> None:
        self._descriptor = descriptor
        self._pending = ""
        self._announced = ""
        self._lock = threading.RLock()
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
    def buffer(self) -> Any:
        """A binary stream on the same descriptor."""
        return _Bytes(self)

    def write(self, text: str) -> int:
        """Writes whole lines at once and keeps the rest."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        with self._lock:
            lines, separator, rest = (self._pending + text).rpartition("\n")
            self._pending = rest
            if separator:
                self._send((lines + separator).encode("utf-8", "backslashreplace"))
        return len(text)

    def _send(self, data: bytes) -> None:
        title = self.default_title if self.default_title != "worker" else _weft.current_name() or "worker"
        if title != self._announced:
            self._announced = title
            data = _MARK + title.encode("utf-8", "backslashreplace") + b"\n" + data
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]

    def end_line(self) -> None:
        """Ends an unfinished line: the task that wrote it is over."""
        with self._lock:
            if self._pending:
                pending, self._pending = self._pending, ""
                self._send((pending + "\n").encode("utf-8", "backslashreplace"))


class _Bytes(io.RawIOBase):
    def __init__(self, stream: TaskStream) -> None:
        self._stream = stream

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        text = bytes(data).decode("utf-8", "backslashreplace")
        self._stream.write(text)
        return len(data)
