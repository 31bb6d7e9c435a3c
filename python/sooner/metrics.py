"""User-defined metrics: counters, gauges and histograms that tasks, actors and the driver share by name.

Each process accumulates locally and reports the increments over its connection: at most once a second, when
it is asked and when it ends; the node holds the sums. There is no agent and no port: `prometheus_text()` and
`sooner metrics` show these metrics, with those of the engine, in the format that Prometheus reads. Also
called `sooner.util.metrics`.

Example:
    >>> from sooner.util.metrics import Counter
    >>> served = Counter("served", description="Requests served", tag_keys=("route",))
    >>> served.inc(1, tags={"route": "/"})  # doctest: +SKIP
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from sooner import _sooner
from sooner._state.prometheus import text_of

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_KEY = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_COUNTER, _GAUGE, _HISTOGRAM = 0, 1, 2

# Name -> kind, tag keys and boundaries. Metrics that have these in common are one metric.
_known: dict[str, tuple[int, tuple[str, ...], tuple[float, ...]]] = {}
_series: dict[tuple[str, tuple[str, ...]], int | None] = {}


def _check_names(name: Any, description: Any, tag_keys: Any) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"a metric's name has letters, digits, _ and :, and no digit first; not {name!r}")
    if name.startswith("sooner_"):
        raise ValueError(f"names that begin with sooner_ are the engine's: {name!r}")
    if not isinstance(description, str):
        raise TypeError(f"description must be a string, not {description!r}")
    if isinstance(tag_keys, str) or not all(isinstance(key, str) for key in tag_keys or ()):
        raise TypeError(f"tag_keys must be a tuple of strings, not {tag_keys!r}")
    for key in tag_keys or ():
        if not _KEY.fullmatch(key):
            raise ValueError(f"a tag key has letters, digits and _, and no digit first; not {key!r}")


def _check_number(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError(f"the value for {name} must be a finite number, not {value!r}")


class Metric:
    """What counters, gauges and histograms have in common."""

    _kind = _COUNTER

    def __init__(
        self, name: str, description: str = "", tag_keys: Sequence[str] | None = None, boundaries: Sequence[float] = ()
    ) -> None:
        _check_names(name, description, tag_keys)
        self._name = name
        self._description = description
        self._tag_keys = tuple(tag_keys or ())
        self._boundaries = tuple(float(end) for end in boundaries)
        self._default_tags: dict[str, str] = {}
        this = (self._kind, self._tag_keys, self._boundaries)
        if _known.setdefault(name, this) != this:
            raise ValueError(f"a metric named {name!r} exists with another type, tag keys or boundaries")

    def set_default_tags(self, default_tags: Mapping[str, str]) -> Metric:
        """Sets tags that hold where a call gives no others.

        Args:
            default_tags: Key to value.

        Returns:
            The metric itself.

        Raises:
            ValueError: A key is not among the metric's `tag_keys`.
            TypeError: A value is not a string.
        """
        self._check(default_tags)
        self._default_tags = dict(default_tags)
        return self

    @property
    def info(self) -> dict[str, Any]:
        """Name, description, tag keys and default tags (of a histogram also the boundaries)."""
        info: dict[str, Any] = {
            "name": self._name,
            "description": self._description,
            "tag_keys": self._tag_keys,
            "default_tags": dict(self._default_tags),
        }
        if self._kind == _HISTOGRAM:
            info["boundaries"] = list(self._boundaries)
        return info

    def _check(self, tags: Mapping[str, str]) -> None:
        if not isinstance(tags, Mapping):
            raise TypeError(f"tags must be a dict of strings, not {tags!r}")
        for key, value in tags.items():
            if key not in self._tag_keys:
                raise ValueError(f"{key!r} is not a tag of {self._name}: its tag_keys are {self._tag_keys!r}")
            if not isinstance(value, str):
                raise TypeError(f"the value of tag {key!r} must be a string, not {value!r}")

    def _record(self, value: float, tags: Mapping[str, str] | None) -> None:
        _check_number(self._name, value)
        if tags:
            self._check(tags)
            merged: Mapping[str, str] = {**self._default_tags, **tags}
        else:
            merged = self._default_tags
        values = tuple(merged.get(key, "") for key in self._tag_keys)
        try:
            number = _series[self._name, values]
        except KeyError:
            pairs = list(zip(self._tag_keys, values, strict=True))
            number = _sooner.metric_define(self._kind, self._name, self._description, pairs, self._boundaries)
            _series[self._name, values] = number
        if number is not None:
            _sooner.metric_record(number, value)

    def __reduce__(self) -> Any:
        state = (self._name, self._description, self._tag_keys, self._boundaries, self._default_tags)
        return _rebuild, (type(self), *state)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r})"


def _rebuild(
    cls: type[Metric],
    name: str,
    description: str,
    tag_keys: tuple[str, ...],
    boundaries: tuple[float, ...],
    default_tags: dict[str, str],
) -> Metric:
    metric = cls.__new__(cls)
    Metric.__init__(metric, name, description, tag_keys, boundaries)
    return metric.set_default_tags(default_tags)


class Counter(Metric):
    """A sum that only grows; over all processes.

    Args:
        name: Letters, digits, `_` and `:`. The same name is the same metric in every process.
        description: For people.
        tag_keys: Keys of the tags that values may have.

    Raises:
        ValueError: The name is not allowed, or taken by another kind of metric.
    """

    _kind = _COUNTER

    def __init__(self, name: str, description: str = "", tag_keys: Sequence[str] | None = None) -> None:
        super().__init__(name, description, tag_keys)

    def inc(self, value: float = 1.0, tags: Mapping[str, str] | None = None) -> None:
        """Adds.

        Args:
            value: Not negative.
            tags: Key to value; others have their defaults.

        Raises:
            ValueError: The value is negative, or a tag is none of the metric's.
            TypeError: The value is not a number.
        """
        _check_number(self._name, value)
        if value < 0:
            raise ValueError(f"a counter only grows: {self._name}.inc({value!r})")
        self._record(value, tags)


class Gauge(Metric):
    """A value that goes up and down; each process has its own, told apart by the tag `WorkerId`.

    Args:
        name: As for `Counter`.
        description: For people.
        tag_keys: As for `Counter`.

    Raises:
        ValueError: The name is not allowed, or taken by another kind of metric.
    """

    _kind = _GAUGE

    def __init__(self, name: str, description: str = "", tag_keys: Sequence[str] | None = None) -> None:
        super().__init__(name, description, tag_keys)

    def set(self, value: float, tags: Mapping[str, str] | None = None) -> None:
        """Sets the value of this process.

        Args:
            value: A finite number.
            tags: As for `Counter.inc`.

        Raises:
            ValueError: A tag is none of the metric's.
            TypeError: The value is not a number.
        """
        self._record(value, tags)


class Histogram(Metric):
    """How often values fall into which range; over all processes.

    Args:
        name: As for `Counter`.
        description: For people.
        boundaries: Upper ends of the ranges, growing. Values above the last one are counted, too.
        tag_keys: As for `Counter`.

    Raises:
        ValueError: The boundaries are empty or do not grow, or the name is not allowed.
    """

    _kind = _HISTOGRAM

    def __init__(
        self,
        name: str,
        description: str = "",
        boundaries: Sequence[float] | None = None,
        tag_keys: Sequence[str] | None = None,
    ) -> None:
        ends: list[Any] = list(boundaries or ())
        is_number = all(isinstance(end, int | float) and math.isfinite(end) for end in ends)
        if not ends or not is_number or any(a >= b for a, b in itertools.pairwise(ends)):
            raise ValueError(f"boundaries must be growing numbers, for instance [0.01, 0.1, 1], not {boundaries!r}")
        super().__init__(name, description, tag_keys, ends)

    def observe(self, value: float, tags: Mapping[str, str] | None = None) -> None:
        """Counts a value.

        Args:
            value: A finite number.
            tags: As for `Counter.inc`.

        Raises:
            ValueError: A tag is none of the metric's.
            TypeError: The value is not a number.
        """
        self._record(value, tags)


def prometheus_text(address: str | None = None, timeout: float = 30) -> str:
    """All metrics of a session, the engine's included, in the text format of Prometheus.

    Args:
        address: Directory of the session to ask, or None: this process's own, or the only one of this user.
        timeout: How long to wait for the node (seconds).

    Returns:
        Lines of text.

    Raises:
        ConnectionError: There is no session to ask, or several to choose from.
        OSError: The session does not answer.
    """
    from sooner import context  # start-up: 52.9 ms
    from sooner._session import sessions  # start-up: 4.2 ms
    from sooner._state import snapshot  # start-up: 3.5 ms

    directory = (context.session_directory() if address is None else "") or sessions.choose_session(address)
    return text_of(snapshot.Snapshot(directory, snapshot.METRICS, timeout=timeout))
