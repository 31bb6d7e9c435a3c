"""What the engine calls in the driver: starting on first use, showing output of workers, warnings."""

from __future__ import annotations

import logging
import sys
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
    stream.write(text)
    stream.flush()


def runs_event_loop() -> bool:
    """Whether this thread runs an event loop that a wait would hold up: not so in a cell of a notebook."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None and not is_kernel()


def warn(text: str) -> None:
    """Shows a warning of the engine."""
    logging.getLogger("sooner").warning(text)
