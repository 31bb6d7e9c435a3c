"""The driver's progress bars: its own and those of its workers, in a terminal, a notebook or a plain stream.

The bars of workers come with their standard error as marked lines (`sooner._engine.output`): that channel
exists, keeps the order of bars and lines, and is bounded. This module decides how the bars look, so that a
worker need not know where the driver runs.

Invariant: all text that is printed while bars are shown goes through `Board.write`, which takes the bars away
    first.
"""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any, Protocol, TextIO

from sooner._engine import notebook
from sooner._engine.output import split_marks
from sooner._progress.bar import Bar, text_of

# The least time between two drawings of bars (seconds): a terminal shows no more, and each costs a notebook a
# message.
_TERMINAL_SECONDS = 0.05
_NOTEBOOK_SECONDS = 0.2
# A plain stream gets a bar's next line after this many seconds and this many percent at least.
_PLAIN_SECONDS = 1.0
_PLAIN_PERCENT = 10
# The least time between two searches for bars of dead workers (seconds).
_DEAD_SECONDS = 1.0

_CLEAR_BELOW = "\x1b[J"


class _View(Protocol):
    def show(self, bars: list[Bar], *, is_urgent: bool) -> None:
        """Shows the present state of the bars."""

    def finish(self, bar: Bar) -> None:
        """Shows the last state of a bar that is kept."""

    def end(self) -> None:
        """Ends the view: there are no more bars."""


class Board:
    """All bars of this process, in the order in which they began."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._bars: dict[str, Bar] = {}
        self._view: _View | None = None
        self._looked_for_dead = 0.0

    def update(self, bar: Bar, *, is_urgent: bool = False) -> None:
        """Shows a bar that has changed, or is new."""
        with self._lock:
            is_new = bar.key not in self._bars
            self._bars[bar.key] = bar
            if self._view is None:
                self._view = _make_view()
            is_urgent |= self._forget_dead()
            self._show(is_urgent=is_new or is_urgent)

    def close(self, bar: Bar) -> None:
        """Ends a bar. A bar that is kept stays where it is, above the others."""
        with self._lock:
            if self._bars.pop(bar.key, None) is None or self._view is None:
                return
            if bar.is_kept:
                self._view.finish(bar)
            self._show(is_urgent=True)

    def take(self, text: str) -> str:
        """Takes the bars of workers out of their output, and returns the rest."""
        rest, marks = split_marks(text)
        for prefix, message in marks:
            bar = Bar.from_message(prefix, message)
            if bar is None:
                continue
            if message.get("closed"):
                self.close(bar)
            else:
                self.update(bar)
        return rest

    def end_session(self) -> None:
        """Forgets the bars of workers, which have ended with the session."""
        with self._lock:
            if self._forget(lambda bar: bar.pid != 0):
                self._show(is_urgent=True)

    def write(self, stream: TextIO, text: str) -> int:
        """Prints above the bars."""
        with self._lock:
            view = self._view
            if not isinstance(view, _Terminal):
                return stream.write(text)
            return view.write_above(stream, text, list(self._bars.values()))

    def _show(self, *, is_urgent: bool) -> None:
        if self._view is None:
            return
        self._view.show(list(self._bars.values()), is_urgent=is_urgent)
        if not self._bars:
            self._view.end()
            self._view = None

    def _forget_dead(self) -> bool:
        """Forgets the bars of workers that died without closing them. Only the display depends on this."""
        now = time.monotonic()
        if now - self._looked_for_dead < _DEAD_SECONDS:
            return False
        self._looked_for_dead = now
        return self._forget(lambda bar: bar.pid != 0 and not Path(f"/proc/{bar.pid}").exists())

    def _forget(self, is_over: Callable[[Bar], bool]) -> bool:
        over = [key for key, bar in self._bars.items() if is_over(bar)]
        for key in over:
            del self._bars[key]
        return bool(over)


def _make_view() -> _View:
    if notebook.is_kernel():
        return _Notebook()
    if sys.stderr is not None and sys.stderr.isatty():
        return _Terminal(sys.stderr)
    return _Plain()


class _Terminal:
    """Bars below each other under the last line of a terminal; the cursor stands behind the last one."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._drawn = 0
        self._last = 0.0
        # Whether the last printed line has no end yet: the bars come back when it is complete.
        self._is_line_open = False
        self._open_text = ""
        self._open_by = 0
        self._stand_ins: list[tuple[str, _Above]] = []
        for name in ("stdout", "stderr"):
            original = getattr(sys, name)
            if original is not None and original.isatty():
                stand_in = _Above(original)
                setattr(sys, name, stand_in)
                self._stand_ins.append((name, stand_in))

    def show(self, bars: list[Bar], *, is_urgent: bool) -> None:
        now = time.monotonic()
        if self._is_line_open or not (is_urgent or now - self._last >= _TERMINAL_SECONDS):
            return
        self._last = now
        self._print(self._erased() + self._drawing(bars))

    def finish(self, bar: Bar) -> None:
        end = "\n" if self._is_line_open else ""
        self._is_line_open = False
        self._print(f"{self._erased()}{end}{text_of(bar, self._size().columns - 1)}\n")

    def end(self) -> None:
        for name, stand_in in self._stand_ins:
            if getattr(sys, name) is stand_in:
                setattr(sys, name, stand_in.original)

    def write_above(self, stream: TextIO, text: str, bars: list[Bar]) -> int:
        if not text:
            return 0
        is_whole = text.endswith("\n")
        if self._is_line_open and is_whole and threading.get_ident() != self._open_by:
            # A line of another thread, such as a worker's line: it goes above the line that is not complete.
            self._print(f"\r{_CLEAR_BELOW}")
            count = stream.write(text)
            stream.flush()
            self._print(self._open_text)
            return count
        self._print(self._erased())
        count = stream.write(text)
        stream.flush()
        before = self._open_text if self._is_line_open else ""
        self._is_line_open = not is_whole
        self._open_text, self._open_by = (before + text).rpartition("\n")[2], threading.get_ident()
        if not self._is_line_open:
            self._print(self._drawing(bars))
        return count

    def _erased(self) -> str:
        """The sequence that erases the bars and puts the cursor where they began."""
        if not self._drawn:
            return ""
        up = f"\x1b[{self._drawn - 1}A" if self._drawn > 1 else ""
        self._drawn = 0
        return f"\r{up}{_CLEAR_BELOW}"

    def _drawing(self, bars: list[Bar]) -> str:
        size = self._size()
        # A line that wraps, or scrolls away, could not be erased.
        lines = [text_of(bar, size.columns - 1) for bar in bars[: max(1, size.lines - 2)]]
        if len(lines) < len(bars):
            lines.append(f"... and {len(bars) - len(lines)} more"[: size.columns - 1])
        self._drawn = len(lines)
        return "\n".join(lines)

    def _size(self) -> os.terminal_size:
        try:
            size = os.get_terminal_size(self._stream.fileno())
        except (OSError, ValueError):
            size = os.terminal_size((80, 24))
        # A terminal that does not know its size says 0.
        return os.terminal_size((size.columns or 80, size.lines or 24))

    def _print(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            # A closed terminal must not end the program.
            return


class _Above(io.TextIOBase):
    """Stands in for a stream of the terminal while bars are shown on it."""

    def __init__(self, original: TextIO) -> None:
        self.original = original

    def write(self, text: str) -> int:
        return board.write(self.original, text)

    def flush(self) -> None:
        self.original.flush()

    def fileno(self) -> int:
        return self.original.fileno()

    def isatty(self) -> bool:
        return self.original.isatty()

    def writable(self) -> bool:
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.original.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        return self.original.errors

    @property
    def buffer(self) -> Any:
        return self.original.buffer


class _Plain:
    """Lines now and then, for a file or a pipe."""

    def __init__(self) -> None:
        # Per bar: when a line of it was printed, and at how many percent.
        self._printed: dict[str, tuple[float, float]] = {}

    def show(self, bars: list[Bar], *, is_urgent: bool) -> None:
        now = time.monotonic()
        for bar in bars:
            if bar.frame is not None:
                # The last state of such a bar comes as a line of its own.
                continue
            last, percent = self._printed.setdefault(bar.key, (now, 0.0))
            step = _PLAIN_PERCENT if bar.total else 0
            if now - last >= _PLAIN_SECONDS and bar.percent - percent >= step and bar.percent < 100:
                self._printed[bar.key] = (now, bar.percent)
                self._print(bar)
                # A bar without a known end: each line doubles the time until the next.
                if not bar.total:
                    self._printed[bar.key] = (now + bar.elapsed, bar.percent)

    def finish(self, bar: Bar) -> None:
        self._printed.pop(bar.key, None)
        if bar.frame is None:
            self._print(bar)

    def end(self) -> None:
        return

    def _print(self, bar: Bar) -> None:
        stream = sys.stderr
        if stream is None:
            return
        try:
            stream.write(text_of(bar, None) + "\n")
            stream.flush()
        except (OSError, ValueError):
            return


class _Notebook:
    """One output of a cell that is updated; the cell is the one in which the first bar began."""

    def __init__(self) -> None:
        self._kept: list[Bar] = []
        self._last = 0.0
        self._update: Callable[[Any], None] | None = None

    def show(self, bars: list[Bar], *, is_urgent: bool) -> None:
        now = time.monotonic()
        if not (is_urgent or now - self._last >= _NOTEBOOK_SECONDS):
            return
        self._last = now
        shown = _Rows([*self._kept, *bars])
        if self._update is None:
            self._update = notebook.display(shown)
        else:
            self._update(shown)

    def finish(self, bar: Bar) -> None:
        self._kept.append(bar)

    def end(self) -> None:
        return


class _Rows:
    """Progress bars as a cell shows them."""

    def __init__(self, bars: list[Bar]) -> None:
        self._lines = [(text_of(bar, None), bar.percent if bar.total else None) for bar in bars]

    def __repr__(self) -> str:
        return "\n".join(text for text, _ in self._lines)

    def _repr_html_(self) -> str:
        rows = []
        for text, percent in self._lines:
            value = "" if percent is None else f' value="{min(percent, 100.0):.1f}"'
            rows.append(f'<div><progress max="100"{value}></progress> {escape(text)}</div>')
        return "".join(rows)


board = Board()


def _after_fork() -> None:
    # Another thread may have held the lock at the fork, and the terminal is the parent's.
    global board
    board = Board()


os.register_at_fork(after_in_child=_after_fork)
