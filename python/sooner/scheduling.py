"""Where tasks and actors run: values of the option `scheduling_strategy`, beside "DEFAULT" and "SPREAD".

Also called `sooner.util.scheduling_strategies`.

Example:
    >>> from sooner.scheduling import NodeLabelSchedulingStrategy, In
    >>> NodeLabelSchedulingStrategy({"zone": In("a", "b")})
    NodeLabelSchedulingStrategy(hard={'zone': In('a', 'b')}, soft={})
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from sooner import _sooner

if TYPE_CHECKING:
    from sooner.placement import PlacementGroup

__all__ = [
    "DoesNotExist",
    "Exists",
    "In",
    "NodeAffinitySchedulingStrategy",
    "NodeLabelSchedulingStrategy",
    "NotIn",
    "PlacementGroupSchedulingStrategy",
]


class PlacementGroupSchedulingStrategy:
    """Run in a placement group.

    Args:
        placement_group: The group; None for none, also not for that of what submits it.
        placement_group_bundle_index: Which of its bundles, from 0; -1: any that has room.
        placement_group_capture_child_tasks: Whether what the task or actor submits runs in the group, too,
            unless it says where; None means no.

    Raises:
        ValueError: The index is none of the group's, or an argument has a wrong type.
    """

    def __init__(
        self,
        placement_group: PlacementGroup | None,
        placement_group_bundle_index: int = -1,
        placement_group_capture_child_tasks: bool | None = None,
    ) -> None:
        from sooner.placement import PlacementGroup, check_bundle_index  # start-up: 15.1 ms

        if placement_group is not None and not isinstance(placement_group, PlacementGroup):
            raise ValueError(
                f"placement_group must be what sooner.util.placement_group() gives, not {placement_group!r:.200}"
            )
        if placement_group_capture_child_tasks not in (None, True, False):
            raise ValueError(
                "placement_group_capture_child_tasks must be True, False or None, "
                f"not {placement_group_capture_child_tasks!r}"
            )
        if placement_group is not None:
            check_bundle_index(placement_group, placement_group_bundle_index)
        self.placement_group = placement_group
        self.placement_group_bundle_index = placement_group_bundle_index
        self.placement_group_capture_child_tasks = placement_group_capture_child_tasks

    def __repr__(self) -> str:
        return f"PlacementGroupSchedulingStrategy({self.placement_group!r}, {self.placement_group_bundle_index})"


class NodeAffinitySchedulingStrategy:
    """Run on one node.

    Args:
        node_id: The node's id (hexadecimal), as `sooner.nodes()` and the runtime context show it.
        soft: Whether another node may be taken if this one is gone or could never run it. If not, it fails
            then with `TaskUnschedulableError` or `ActorUnschedulableError`.

    Raises:
        ValueError: An argument has a wrong type.
    """

    def __init__(
        self,
        node_id: str,
        soft: bool,
        _spill_on_unavailable: bool = False,
        _fail_on_unavailable: bool = False,
    ) -> None:
        text: object = node_id.hex() if hasattr(node_id, "hex") else node_id
        if not isinstance(text, str):
            raise ValueError(f"node_id must be an id as sooner.nodes() shows it, not {node_id!r:.200}")
        if not isinstance(soft, bool):
            raise ValueError(f"soft must be True or False, not {soft!r:.200}")
        if _spill_on_unavailable or _fail_on_unavailable:
            raise ValueError("this version of sooner does not have _spill_on_unavailable and _fail_on_unavailable")
        self.node_id = text
        self.soft = soft
        self._spill_on_unavailable = _spill_on_unavailable
        self._fail_on_unavailable = _fail_on_unavailable

    def __repr__(self) -> str:
        return f"NodeAffinitySchedulingStrategy({self.node_id!r}, soft={self.soft})"


class In:
    """The label has one of these values."""

    def __init__(self, *values: str) -> None:
        self.values = _checked(values)

    def __repr__(self) -> str:
        return f"In({', '.join(map(repr, self.values))})"


class NotIn:
    """The label has none of these values, or the node has no such label."""

    def __init__(self, *values: str) -> None:
        self.values = _checked(values)

    def __repr__(self) -> str:
        return f"NotIn({', '.join(map(repr, self.values))})"


class Exists:
    """The node has such a label."""

    def __repr__(self) -> str:
        return "Exists()"


class DoesNotExist:
    """The node has no such label."""

    def __repr__(self) -> str:
        return "DoesNotExist()"


_Test: TypeAlias = "In | NotIn | Exists | DoesNotExist"
_KINDS: Final = {In: "in", NotIn: "not in", Exists: "exists", DoesNotExist: "does not exist"}


def _checked(values: tuple[Any, ...]) -> list[str]:
    if not values or not all(isinstance(value, str) for value in values):
        raise ValueError(f"give the values of the label as strings, for instance In('a', 'b'), not {values!r:.200}")
    return list(values)


class NodeLabelSchedulingStrategy:
    """Run on nodes with certain labels.

    Args:
        hard: Key of a label to what its value must be: `In`, `NotIn`, `Exists` or `DoesNotExist`. Without a
            node that meets all of them, it waits.
        soft: The same, for nodes that are taken first where there are any.

    Raises:
        ValueError: A key, a value or a test is not allowed.
    """

    def __init__(self, hard: Mapping[str, _Test] | None, *, soft: Mapping[str, _Test] | None = None) -> None:
        self.hard = _terms("hard", hard)
        self.soft = _terms("soft", soft)
        if not self.hard and not self.soft:
            raise ValueError("NodeLabelSchedulingStrategy needs at least one condition, in hard or in soft")
        # Checks names and values.
        _sooner.Placing.labels(rows_of(self.hard), [], rows_of(self.soft), False)

    def __repr__(self) -> str:
        return f"NodeLabelSchedulingStrategy(hard={self.hard!r}, soft={self.soft!r})"


def _terms(name: str, given: Any) -> dict[str, _Test]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ValueError(f"{name} must be a dict from keys of labels to tests, not {given!r:.200}")
    for key, test in given.items():
        if not isinstance(key, str) or type(test) not in _KINDS:
            known = "In(...), NotIn(...), Exists() or DoesNotExist()"
            raise ValueError(f"{name}[{key!r}] must be {known}, not {test!r:.200}")
    return dict(given)


def rows_of(terms: Mapping[str, _Test]) -> list[tuple[str, str, list[str]]]:
    """Conditions as the engine takes them: key, kind of test, values."""
    return [(key, _KINDS[type(test)], getattr(test, "values", [])) for key, test in terms.items()]


SchedulingStrategy: TypeAlias = (
    PlacementGroupSchedulingStrategy | NodeAffinitySchedulingStrategy | NodeLabelSchedulingStrategy
)
