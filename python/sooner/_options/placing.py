"""Where a task or actor runs: turns its options into what the engine takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sooner import _sooner

if TYPE_CHECKING:
    from sooner._options.traits import Placed
    from sooner.placement import PlacementGroup

_NAMES = ("scheduling_strategy", "placement_group", "label_selector", "priority")
_ANYWHERE: Placed = {"placing": None, "inherits": True, "priority": None}


def placed(options: Mapping[str, Any], title: str, held: Mapping[str, float], needed: Mapping[str, float]) -> Placed:
    """Returns where a task or actor with these options runs.

    Args:
        options: Normalised options.
        title: What it is called, for errors.
        held: The resources that it holds.
        needed: The resources that must be free when it is placed.

    Raises:
        ValueError: Options contradict each other, or a placement group has no room for it in any bundle.
    """
    if not any(name in options for name in _NAMES):
        return _ANYWHERE
    priority = options.get("priority") or None
    strategy = options.get("scheduling_strategy")
    group = options.get("placement_group", "default")
    selector = options.get("label_selector") or {}
    if strategy is not None and group not in ("default", None):
        raise ValueError("give a placement group in scheduling_strategy or in placement_group, not in both")
    if strategy in (None, "DEFAULT") and group in ("default", None):
        if selector:
            return _placed(_labels([], selector, [], False), priority)
        return {"placing": None, "inherits": strategy is None and group == "default", "priority": priority}
    if strategy == "SPREAD":
        where = _labels([], selector, [], True) if selector else _sooner.Placing.spread()
        return _placed(where, priority)
    return _placed(_by_strategy(options, strategy, group, selector, (title, held, needed)), priority)


def _placed(where: _sooner.Placing | None, priority: int | None) -> Placed:
    return {"placing": where, "inherits": False, "priority": priority}


def _labels(hard: Any, selector: Mapping[str, str], soft: Any, spread: bool) -> _sooner.Placing:
    return _sooner.Placing.labels(hard, list(selector.items()), soft, spread)


def _by_strategy(
    options: Mapping[str, Any],
    strategy: Any,
    group: Any,
    selector: Mapping[str, str],
    asked: tuple[str, Mapping[str, float], Mapping[str, float]],
) -> _sooner.Placing | None:
    from sooner import scheduling as kinds  # circle

    if isinstance(strategy, kinds.NodeLabelSchedulingStrategy):
        return _labels(kinds.rows_of(strategy.hard), selector, kinds.rows_of(strategy.soft), False)
    if selector:
        raise ValueError("label_selector goes with 'DEFAULT', 'SPREAD' and NodeLabelSchedulingStrategy only")
    if isinstance(strategy, kinds.NodeAffinitySchedulingStrategy):
        return _sooner.Placing.node(strategy.node_id, strategy.soft)
    if strategy is None:
        index = options.get("placement_group_bundle_index", -1)
        captures = options.get("placement_group_capture_child_tasks")
        strategy = kinds.PlacementGroupSchedulingStrategy(group, index, captures)
    group, index = strategy.placement_group, strategy.placement_group_bundle_index
    if group is None or group.is_empty:
        return None
    _check_room(group, index, *asked)
    return _sooner.Placing.group(group.id.hex(), index, bool(strategy.placement_group_capture_child_tasks))


def _check_room(
    group: PlacementGroup, index: int, title: str, held: Mapping[str, float], needed: Mapping[str, float]
) -> None:
    bundles = group.bundle_specs
    meant = bundles if index == -1 else [bundles[index]]
    for asked in (held, needed):
        if not any(all(bundle.get(name, 0.0) >= value for name, value in asked.items()) for bundle in meant):
            where = "any bundle" if index == -1 else f"bundle {index}"
            raise ValueError(
                f"{title} needs {_text(asked)}, which does not fit into {where} of the placement group "
                f"({'; '.join(map(_text, meant))}). Ask for less (num_cpus=0, for instance), or for a larger bundle"
            )


def _text(amounts: Mapping[str, float]) -> str:
    return ", ".join(f"{value:g} {name}" for name, value in amounts.items()) or "nothing"
