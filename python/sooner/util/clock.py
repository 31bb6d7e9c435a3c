"""The time that deadlines are measured with: one that tests which stop the clocks of a program leave alone.

Such libraries put their own functions in the place of `time.monotonic` in every module that has it. A
timeout that is measured with those never ends.
"""

from __future__ import annotations

import time


def monotonic() -> float:
    """Seconds since some moment; it never goes back."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)
