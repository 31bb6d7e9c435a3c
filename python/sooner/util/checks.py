"""Checks of arguments that the helpers share."""

from __future__ import annotations

from typing import Any


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number; `True` and `False` are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def check_at_least(name: str, value: Any, least: int) -> None:
    """Raise ValueError unless `value`, which users know as `name`, is a whole number of at least `least`."""
    if not is_whole(value) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}")
