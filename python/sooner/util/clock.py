"""The clock for deadlines, which libraries that stop a program's clocks in tests do not replace.

Such libraries replace `time.monotonic` in every module that has it. A timeout measured with the replacement
never ends.
"""

from __future__ import annotations

import time


def monotonic() -> float:
    """Seconds since some moment; it never goes back."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)
