"""`log_once`: whether to log a message that should not be repeated again and again."""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable

__all__ = ["disable_log_once_globally", "enable_periodic_logging", "log_once"]

# With periodic logging, a message is due again after this time (seconds).
_PERIOD_SECONDS = 60.0
# Keys to remember. Beyond that the oldest key is forgotten, and its message becomes due again.
_KEYS_MAX = 10_000

_lock = threading.Lock()
_seen: dict[Hashable, float] = {}
_is_disabled = False
_is_periodic = False


def log_once(key: Hashable) -> bool:
    """Whether this is the first time that this process asks for `key`.

    Args:
        key: Names the message.

    Returns:
        True the first time, and with `enable_periodic_logging` every 60 s; False otherwise, and always after
        `disable_log_once_globally`.

    Example:
        >>> [log_once("slow disk") for _ in range(3)]
        [True, False, False]
    """
    with _lock:
        if _is_disabled:
            return False
        now = time.monotonic()
        last = _seen.get(key)
        if last is not None and not (_is_periodic and now - last >= _PERIOD_SECONDS):
            return False
        if last is None and len(_seen) >= _KEYS_MAX:
            del _seen[next(iter(_seen))]
        _seen[key] = now
        return True


def disable_log_once_globally() -> None:
    """Makes `log_once` say False for every key in this process."""
    global _is_disabled
    _is_disabled = True


def enable_periodic_logging() -> None:
    """Makes `log_once` say True for a key every 60 s in this process."""
    global _is_periodic
    _is_periodic = True
