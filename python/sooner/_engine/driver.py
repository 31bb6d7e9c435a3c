"""What the engine calls in the driver: starting on first use, showing output of workers, warnings."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator
from typing import TextIO

from sooner._engine.notebook import in_cell, is_kernel
from sooner._engine.output import BAR_MARK, DEBUG_MARK, harmless


def auto_init() -> None:
    """Starts a session on first use."""
    from sooner.context import auto_init  # circle

    auto_init()


def show(is_stderr: bool, text: str) -> None:
    """Shows whole lines that workers printed, and their progress bars."""
    if DEBUG_MARK in text:
        from sooner._engine.debugger import take  # start-up: 31.7 ms

        text = take(text)
    if BAR_MARK in text:
        from sooner._progress.bars import board  # circle

        text = in_cell(board.take, text)
    stream = sys.stderr if is_stderr else sys.stdout
    if stream is None or not text:
        return
    try:
        in_cell(_write, stream, harmless(text))
    except (OSError, ValueError):
        # A closed terminal must not end the program; the lines are in the files.
        return


def _write(stream: TextIO, text: str) -> None:
    for piece in pieces(text) if is_unbuffered(stream) else (text,):
        stream.write(piece)
    stream.flush()


def is_unbuffered(stream: TextIO) -> bool:
    """Whether each write to a stream is one to its descriptor, as with `python -u` and PYTHONUNBUFFERED."""
    return isinstance(getattr(stream, "buffer", None), io.RawIOBase)


def pieces(text: str) -> Iterator[str]:
    """Cuts whole lines into pieces of whole lines that a pipe takes at once.

    A pipe that is full takes a longer piece in parts, and what the program prints meanwhile would come
    between the parts. A line that is longer than a piece is a piece of its own.
    """
    from select import PIPE_BUF  # start-up: 0.4 ms

    lines: list[str] = []
    size = 0
    for line in text.split("\n"):
        # In UTF-8 no character has more bytes; the end of the line has one.
        length = 1 + (len(line) if line.isascii() else 4 * len(line))
        if lines and size + length > PIPE_BUF:
            yield "\n".join((*lines, ""))
            lines, size = [], 0
        lines.append(line)
        size += length
    if rest := "\n".join(lines):
        yield rest


def runs_event_loop() -> bool:
    """Whether this thread runs an event loop that a wait would hold up: not so in a cell of a notebook."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None and not is_kernel()


def warn(text: str) -> None:
    """Shows a warning of the engine."""
    logging.getLogger("sooner").warning(text)
