"""Checks of arguments that the helpers share."""

from __future__ import annotations

import math
import numbers
from typing import Any, SupportsIndex


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number, of Python or NumPy; `True` and `False` are none."""
    is_array = getattr(value, "shape", ()) != ()
    return isinstance(value, SupportsIndex) and not isinstance(value, bool) and not is_array


def is_number(value: Any) -> bool:
    """Whether a value is a number of Python or NumPy that can be a time; NaN, `True` and `False` are none."""
    given: Any = value
    return type(given) is not bool and isinstance(given, numbers.Real) and not math.isnan(given)


def check_at_least(name: str, value: Any, least: int) -> None:
    """Raise ValueError unless `value`, which users know as `name`, is a whole number of at least `least`."""
    if not is_whole(value) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}")
