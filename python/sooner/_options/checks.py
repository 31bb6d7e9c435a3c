"""Checks for the values of options. Each takes an option's name and value and returns the normalised value.

A refusal is a ValueError that names the option, the given value and the allowed values; for a value of a
wrong type it is a TypeError as well. `bool` is no number here: `num_cpus=True` is a mistake.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

    Check = Callable[[str, Any], Any]

# Amounts are kept in steps of this size; a smaller one would silently be nothing.
AMOUNT_STEP = 0.0001

# Above this, floats skip whole numbers.
AMOUNT_MAX = 2.0**53

# Limits by the widths of message fields.
COUNT_MAX = 2**31 - 1
TEXT_CHARS_MAX = 1024

# Resources with options of their own: an amount that is given in two ways could contradict itself.
_OWN_OPTION = {
    "CPU": "num_cpus",
    "GPU": "num_gpus",
    "memory": "memory",
    "object_store_memory": "sooner.init(object_store_memory=...)",
}


class WrongTypeError(TypeError, ValueError):
    """An option's value has a wrong type: a TypeError, as in Ray, and a ValueError, as for all refusals."""


def fault(value: object, *types: type) -> type[ValueError]:
    """Return the class of the error for a value that should be of one of these types and does not fit.

    Example:
        >>> [kind.__name__ for kind in (fault(-1, int), fault("1", int), fault(True, int))]
        ['ValueError', 'WrongTypeError', 'WrongTypeError']
    """
    is_right = isinstance(value, types) and (bool in types or not isinstance(value, bool))
    return ValueError if is_right else WrongTypeError


def refuse(name: str, value: object, allowed: str, kind: type[ValueError] = ValueError) -> NoReturn:
    """Raise the ValueError for a value that does not fit.

    Raises:
        ValueError: Always.
    """
    shown = repr(value)
    if len(shown) > 200:
        shown = f"{shown[:200]}..."
    raise kind(f"{name}={shown} ({type(value).__name__}) is not allowed: {allowed}.")


def refuse_type(name: str, value: object, allowed: str) -> NoReturn:
    """Raise the TypeError for a value of a wrong type.

    Raises:
        WrongTypeError: Always. It is a ValueError, too.
    """
    refuse(name, value, allowed, WrongTypeError)


def _number(name: str, value: Any, allowed: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        from numbers import Real  # start-up: 0.6 ms

        # NumPy's numbers are registered as Real; its bool is not.
        if isinstance(value, bool) or not isinstance(value, Real):
            refuse_type(name, value, allowed)
    try:
        number = float(value)
    except OverflowError:
        refuse(name, value, allowed)
    if not 0 <= number <= AMOUNT_MAX:
        # NaN ends up here, too.
        refuse(name, value, allowed)
    return number


def _whole(name: str, value: Any, allowed: str) -> int:
    if isinstance(value, bool):
        refuse_type(name, value, allowed)
    try:
        return operator.index(value)
    except TypeError:
        refuse_type(name, value, allowed)


def _quantity(name: str, value: Any) -> float:
    allowed = f"give a number, 0 or from {AMOUNT_STEP} to 2**53"
    number = _number(name, value, allowed)
    if 0 < number < AMOUNT_STEP:
        refuse(name, value, allowed)
    return number


def amount(name: str, value: Any) -> float | None:
    """Accept None or an amount of a resource; fractions are fine."""
    return None if value is None else _quantity(name, value)


def gpus(name: str, value: Any) -> float | None:
    """Accept None, a fraction of one GPU, or a whole number of GPUs."""
    number = amount(name, value)
    if number is not None and number > 1 and number != math.floor(number):
        refuse(name, value, "a share of a GPU is at most 1, more than one GPU must be a whole number")
    return number


def memory(name: str, value: Any) -> int | None:
    """Accept None or a number of bytes; fractions of a byte are rounded up."""
    if value is None:
        return None
    return math.ceil(_number(name, value, "give bytes, a number from 0 to 2**53"))


def resources(name: str, value: Any) -> dict[str, float] | None:
    """Accept None or a dict of custom resources."""
    if value is None:
        return None
    if not isinstance(value, dict):
        refuse_type(name, value, "give a dict from resource names to amounts, for instance {'tape': 1}")
    normal = {}
    for key, part in value.items():
        if not isinstance(key, str) or not key or len(key) > TEXT_CHARS_MAX:
            refuse(name, value, f"the resource name {key!r} must be a string of 1 to {TEXT_CHARS_MAX} characters")
        if key in _OWN_OPTION:
            refuse(name, value, f"{key!r} is not a custom resource, use {_OWN_OPTION[key]}")
        normal[key] = _quantity(f"{name}[{key!r}]", part)
    return normal


def count(lowest: int, what: str) -> Check:
    """Return a check for None or an int of at least `lowest`."""

    def check(name: str, value: Any) -> int | None:
        if value is None:
            return None
        allowed = f"give an int from {lowest} to {COUNT_MAX} ({what}), or None"
        number = _whole(name, value, allowed)
        if not lowest <= number <= COUNT_MAX:
            refuse(name, value, allowed)
        return number

    return check


def budget(name: str, value: Any) -> int:
    """Accept a number of attempts, -1 for no limit."""
    allowed = f"give an int from 0 to {COUNT_MAX}, or -1 for no limit"
    number = _whole(name, value, allowed)
    if not -1 <= number <= COUNT_MAX:
        refuse(name, value, allowed)
    return number


def num_returns(name: str, value: Any) -> int | str | None:
    """Accept None, a number of return values, "streaming" or "dynamic"."""
    if isinstance(value, str):
        if value not in ("streaming", "dynamic"):
            refuse(name, value, f'give an int from 0 to {COUNT_MAX}, "streaming" or "dynamic"')
        return value
    return count(0, "return values")(name, value)  # type: ignore[no-any-return]


def backpressure(name: str, value: Any) -> int | None:
    """Accept None, -1 (no limit), or a number of items."""
    if value == -1 and not isinstance(value, bool):
        return None
    return count(1, "unread items")(name, value)  # type: ignore[no-any-return]


def flag(name: str, value: Any) -> bool:
    """Accept True or False."""
    if not isinstance(value, bool):
        refuse_type(name, value, "give True or False")
    return value


def text(name: str, value: Any) -> str | None:
    """Accept None or a string that is not empty."""
    if value is None:
        return None
    allowed = f"give a string of 1 to {TEXT_CHARS_MAX} characters, or None"
    if not isinstance(value, str):
        refuse_type(name, value, allowed)
    if not value or len(value) > TEXT_CHARS_MAX:
        refuse(name, value, allowed)
    return value


def retry_exceptions(name: str, value: Any) -> bool | tuple[type[BaseException], ...]:
    """Accept True, False, or a list or tuple of exception classes."""
    allowed = "give True, False, or a list or tuple of exception classes"
    if isinstance(value, bool):
        return value
    if not isinstance(value, list | tuple):
        refuse_type(name, value, allowed)
    for part in value:
        if not (isinstance(part, type) and issubclass(part, BaseException)):
            refuse(name, value, f"{allowed}; {part!r} is none")
    return tuple(value)


def scheduling_strategy(name: str, value: Any) -> Any:
    """Accept None, "DEFAULT", "SPREAD" or one of `sooner.util.scheduling_strategies`."""
    if value is None or (isinstance(value, str) and value in ("DEFAULT", "SPREAD")):
        return value
    if not isinstance(value, str):
        from sooner import scheduling as kinds  # circle

        known = (
            kinds.PlacementGroupSchedulingStrategy,
            kinds.NodeAffinitySchedulingStrategy,
            kinds.NodeLabelSchedulingStrategy,
        )
        if isinstance(value, known):
            return value
    kind = ValueError if isinstance(value, str) else WrongTypeError
    refuse(name, value, "give None, 'DEFAULT', 'SPREAD' or a strategy of sooner.util.scheduling_strategies", kind)


def placement_group(name: str, value: Any) -> Any:
    """Accept "default", None or a placement group."""
    if value is None or (isinstance(value, str) and value == "default"):
        return value
    if not isinstance(value, str):
        from sooner.placement import PlacementGroup  # circle

        if isinstance(value, PlacementGroup):
            return value
    kind = ValueError if isinstance(value, str) else WrongTypeError
    refuse(name, value, "give a placement group, 'default' (that of the caller, if it wants that) or None (none)", kind)


def bundle_index(name: str, value: Any) -> int:
    """Accept the index of a bundle, or -1 for any."""
    allowed = f"give an int from 0 to {COUNT_MAX}, or -1 for any"
    number = _whole(name, value, allowed)
    if not -1 <= number <= COUNT_MAX:
        refuse(name, value, allowed)
    return number


def label_selector(name: str, value: Any) -> dict[str, str] | None:
    """Accept None or a dict from keys of labels to expressions."""
    if value is None:
        return None
    if not isinstance(value, dict) or not all(isinstance(part, str) for pair in value.items() for part in pair):
        refuse_type(name, value, "give a dict from keys of labels to 'value', '!value', 'in(a, b)' or '!in(a, b)'")
    from sooner import _sooner

    try:
        _sooner.Placing.labels([], list(value.items()), [], False)
    except ValueError as error:
        refuse(name, value, str(error))
    return dict(value)


def priority(name: str, value: Any) -> int:
    """Accept an int that fits into 32 bits."""
    allowed = f"give an int from {-COUNT_MAX} to {COUNT_MAX}; the higher, the sooner"
    number = _whole(name, value, allowed)
    if not -COUNT_MAX <= number <= COUNT_MAX:
        refuse(name, value, allowed)
    return number


def runtime_env(name: str, value: Any) -> dict[str, Any] | None:
    """Accept None or an empty dict."""
    if value is None or (isinstance(value, dict) and not value):
        return value
    if isinstance(value, dict):
        refuse(name, value, "this version of sooner does not have runtime environments yet; give None or {}")
    refuse_type(name, value, "give a dict or None")


def optional_budget(name: str, value: Any) -> int | None:
    """Accept None, or a number of attempts, -1 for no limit."""
    return None if value is None else budget(name, value)


def optional_flag(name: str, value: Any) -> bool | None:
    """Accept None, True or False."""
    return None if value is None else flag(name, value)


def pending_calls(name: str, value: Any) -> int:
    """Accept a number of calls of at least 1, or -1 for no limit."""
    number = budget(name, value)
    if number == 0:
        refuse(name, value, f"give an int from 1 to {COUNT_MAX}, or -1 for no limit")
    return number


def concurrency_groups(name: str, value: Any) -> dict[str, int] | None:
    """Accept None or a dict from names of groups to calls at a time."""
    if value is None:
        return None
    if not isinstance(value, dict):
        refuse_type(name, value, "give a dict from group names to calls at a time, for instance {'io': 2}")
    for key, limit in value.items():
        if not isinstance(key, str) or not key or len(key) > TEXT_CHARS_MAX:
            refuse(name, value, f"the group name {key!r} must be a string of 1 to {TEXT_CHARS_MAX} characters")
        if type(limit) is not int or not 1 <= limit <= COUNT_MAX:
            refuse(name, value, f"the limit of {key!r} must be an int from 1 to {COUNT_MAX} (calls at a time)")
    return dict(value)


def lifetime(name: str, value: Any) -> str | None:
    """Accept None, "detached" or "non_detached"."""
    if value is None or (isinstance(value, str) and value in ("detached", "non_detached")):
        return value
    kind = ValueError if isinstance(value, str) else WrongTypeError
    refuse(name, value, "give 'detached', 'non_detached' or None", kind)


def later(feature: str, *neutral: object) -> Check:
    """Return a check for an option of a feature that does not exist yet: it accepts values for "off" only.

    Args:
        feature: Its name, for the error text.
        neutral: Values that leave it off; without any, None.
    """
    accepted = neutral or (None,)

    def check(name: str, value: Any) -> Any:
        for off in accepted:
            # 0 == False, but an int option is not given as a bool.
            if type(value) is type(off) and value == off:
                return value
        allowed = " or ".join(repr(off) for off in accepted)
        refuse(name, value, f"this version of sooner does not have {feature} yet; give {allowed}")

    check.feature = feature  # type: ignore[attr-defined]
    return check


def feature_of(check: Check) -> str | None:
    """Return the feature that a check made by `later` waits for, None for other checks."""
    return getattr(check, "feature", None)


class LaterAttribute:
    """An attribute of a feature that does not exist yet: reading it says so, and `hasattr` is False.

    Args:
        feature: Its name, for the error text.
    """

    def __init__(self, feature: str) -> None:
        self._feature = feature
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise AttributeError(f"{owner.__name__}.{self._name}: this version of sooner does not have {self._feature} yet")
