"""One progress bar: its state, as text, and as the message that a worker sends to its driver."""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from typing import Any

_BLOCKS = " ▏▎▍▌▋▊▉█"
_BAR_WIDTH_MAX = 40
_BAR_WIDTH_MIN = 5
# A message must fit into one write to a pipe.
_TEXT_CHARS_MAX = 200
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[@-~]|[\x00-\x1f\x7f]+")


@dataclasses.dataclass(slots=True)
class Bar:
    """The state of one bar.

    Attributes:
        key: Identifies the bar among all bars of the session.
        title: What is done.
        done: How many units are done.
        total: How many units there are; None if unknown.
        unit: What is counted.
        note: More text, shown behind the bar.
        initial: How many units were done before the bar began; not counted for the rate.
        elapsed: Seconds since the bar began.
        is_kept: Whether the bar's last state stays.
        pid: The worker's process; 0 for a bar of the driver.
        frame: The line of a program that draws its own bar with carriage returns; then the rest is empty.
    """

    key: str
    title: str = ""
    done: float = 0
    total: float | None = None
    unit: str = "it"
    note: str = ""
    initial: float = 0
    elapsed: float = 0.0
    is_kept: bool = True
    pid: int = 0
    frame: str | None = None

    @property
    def percent(self) -> float:
        """How many percent are done; 0 when the total is not known."""
        return 100 * self.done / self.total if self.total else 0.0

    def message(self, *, closed: bool = False) -> dict[str, Any]:
        """The message that a worker sends to the driver."""
        message = dataclasses.asdict(self)
        for name in ("title", "unit", "note", "frame"):
            if message[name]:
                message[name] = message[name][:_TEXT_CHARS_MAX]
        message["closed"] = closed
        return message

    @classmethod
    def from_message(cls, prefix: str, message: dict[str, Any]) -> Bar | None:
        """The bar of a worker; None when a program printed something that only looks like one.

        Args:
            prefix: "(name pid=...) ", as the worker's lines have.
            message: What the worker sent.
        """
        try:
            if not isinstance(message["key"], str):
                return None
            bar = cls(**{name: value for name, value in message.items() if name != "closed"})
            if bar.frame is not None:
                bar.frame = prefix + bar.frame
            bar.title = prefix + bar.title
            text_of(bar, None)
        except (TypeError, ValueError, AttributeError, KeyError):
            return None
        return bar


def text_of(bar: Bar, width: int | None) -> str:
    """A bar as one line.

    Args:
        bar: The bar.
        width: Columns it may take; None for a plain line, which has no blocks.

    Example:
        >>> text_of(Bar("1", "train", done=3, total=10, elapsed=6.0, unit="epoch"), None)
        'train: 30% 3/10 [00:06<00:14, 2.00s/epoch]'
        >>> text_of(Bar("1", "train", done=3, total=10, elapsed=6.0), 60)
        'train:  30%|█████▍            | 3/10 [00:06<00:14, 2.00s/it]'
    """
    if bar.frame is not None:
        return _clip(bar.frame, width)
    title = f"{_plain(bar.title.rstrip())}: " if bar.title.strip() else ""
    note = f", {_plain(bar.note)}" if bar.note else ""
    done, rate = bar.done - bar.initial, _rate(bar)
    spent = _clock(bar.elapsed)
    if not bar.total:
        return _clip(f"{title}{_number(bar.done)}{_plain(bar.unit)} [{spent}, {rate}{note}]", width)
    left = _clock((bar.total - bar.done) * bar.elapsed / done) if done > 0 else "?"
    counts = f"{_number(bar.done)}/{_number(bar.total)} [{spent}<{left}, {rate}{note}]"
    percent = f"{int(bar.percent)}%"
    if width is None:
        return f"{title}{percent} {counts}"
    head = f"{title}{percent:>4}|"
    room = width - _columns(head) - _columns(counts) - 2
    if room < _BAR_WIDTH_MIN:
        return _clip(f"{title}{percent} {counts}", width)
    return f"{head}{_blocks(bar.percent / 100, min(room, _BAR_WIDTH_MAX))}| {counts}"


def _blocks(share: float, width: int) -> str:
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    full, part = divmod(eighths, 8)
    return ("█" * full + (_BLOCKS[part] if part else "")).ljust(width)


def _rate(bar: Bar) -> str:
    done, unit = bar.done - bar.initial, _plain(bar.unit)
    if done <= 0 or bar.elapsed <= 0:
        return f"?{unit}/s"
    rate = done / bar.elapsed
    return f"{_short(rate)}{unit}/s" if rate >= 1 else f"{_short(1 / rate)}s/{unit}"


def _short(number: float) -> str:
    suffix = ""
    for larger in "kMGT":
        if number < 1000:
            break
        number, suffix = number / 1000, larger
    return f"{number:.2f}{suffix}" if number < 100 else f"{number:.0f}{suffix}"


def _number(number: float) -> str:
    return str(int(number)) if number == int(number) else f"{number:.1f}"


def _clock(seconds: float) -> str:
    if seconds != seconds or seconds > 3.6e8:
        return "?"
    minutes, rest = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"


def _plain(text: str) -> str:
    """Text without line ends and sequences that move the cursor."""
    return _CONTROL.sub(" ", text)


def _columns(text: str) -> int:
    return len(text) if text.isascii() else sum(_column(character) for character in text)


def _column(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _clip(text: str, width: int | None) -> str:
    text = _plain(text)
    if width is None or _columns(text) <= width:
        return text
    taken = used = 0
    for character in text:
        used += _column(character)
        if used > width:
            break
        taken += 1
    return text[:taken]
