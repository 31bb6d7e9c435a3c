"""What the engine calls in the driver: starting on first use, showing output of workers, warnings."""

from __future__ import annotations

import logging
import sys


def auto_init() -> None:
    """Starts a session on first use."""
    from weft.context import auto_init

    auto_init()


def show(is_stderr: bool, text: str) -> None:
    """Shows whole lines that workers printed."""
    stream = sys.stderr if is_stderr else sys.stdout
    if stream is None:
        return
    try:
        stream.write(text)
        stream.flush()
    except (OSError, ValueError):
        # A closed terminal must not end the program; the lines are in the files.
        return


def warn(text: str) -> None:
    """Shows a warning of the engine."""
    logging.getLogger("weft").warning(text)
