"""A condition whose lock is never left held by an exception of a signal handler.

`threading.Condition` enters and leaves its lock in functions written in Python. Ctrl-C in the middle of one
of them leaves the lock held for good, and each thread that delivers results to a future with that condition
waits for ever. A lock that is written in C is entered, or is not, before the interpreter looks for signals.
"""

from __future__ import annotations

import threading
from typing import Any


class SafeCondition(threading.Condition):
    """For `with`: both methods are those of the lock itself."""

    _lock: Any

    @property
    def __enter__(self) -> Any:
        return self._lock.__enter__

    @property
    def __exit__(self) -> Any:
        return self._lock.__exit__
