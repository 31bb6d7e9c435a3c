"""Placement groups: resources that are reserved together, in bundles, for tasks and actors that belong
    together.

Also called `sooner.util.placement_group`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sooner import _sooner
from sooner._options.checks import amount, label_selector
from sooner.ids import PlacementGroupID

__all__ = [
    "PlacementGroup",
    "get_current_placement_group",
    "get_placement_group",
    "placement_group",
    "placement_group_table",
    "remove_placement_group",
]

STRATEGIES: Final = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")
_BUNDLES_MAX: Final = 10_000


class PlacementGroup:
    """A handle on a placement group, from `placement_group()`. It can be pickled and passed to tasks and
    actors.

    Dropping it ends nothing: the group lives until it is removed, or its driver ends.

    Args:
        id: The group's id.
        bundle_cache: Its bundles, if they are known here.
    """

    __slots__ = ("_bundles", "_id")

    def __init__(self, id: PlacementGroupID, bundle_cache: list[dict[str, float]] | None = None) -> None:  # noqa: A002
        self._id = id
        self._bundles = bundle_cache

    @staticmethod
    def empty() -> PlacementGroup:
        """A group that stands for none."""
        return PlacementGroup(PlacementGroupID.nil(), [])

    @property
    def id(self) -> PlacementGroupID:
        """The group's id."""
        return self._id

    @property
    def is_empty(self) -> bool:
        """Whether it stands for none."""
        return self._id.is_nil()

    @property
    def bundle_specs(self) -> list[dict[str, float]]:
        """The resources of each bundle: name to amount."""
        if self._bundles is None:
            rows = _sooner.find_groups(self._id.hex(), None)
            self._bundles = [bundle["resources"] for row in rows for bundle in row["bundles"]]
        return [dict(bundle) for bundle in self._bundles]

    @property
    def bundle_count(self) -> int:
        """How many bundles it has."""
        return len(self.bundle_specs)

    def ready(self) -> _sooner.ObjectRef[PlacementGroup]:
        """A reference that becomes this group when all its bundles are reserved.

        If the group is removed before, `sooner.get` of it raises `TaskPlacementGroupRemoved`.
        """
        return _sooner.group_ready(self._id.hex(), _Known(self))

    def wait(self, timeout_seconds: float = 30) -> bool:
        """Waits until all bundles are reserved.

        Args:
            timeout_seconds: How long (seconds).

        Returns:
            Whether they are; False also if the group is removed.
        """
        return _sooner.wait_for_group(self._id.hex(), timeout_seconds)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlacementGroup) and other._id == self._id

    def __hash__(self) -> int:
        return hash(self._id)

    def __reduce__(self) -> tuple[Any, ...]:
        if not self.is_empty and _sooner.is_running():
            # The process that unpickles the group may use it before our creation message reaches the control
            # service.
            _sooner.confirm_group(self._id.hex())
        return PlacementGroup, (self._id, self._bundles)

    def __repr__(self) -> str:
        return f"PlacementGroup({self._id.hex()})"


class _Known:
    """A group that is pickled without settling its creation: it exists when a process unpickles this."""

    def __init__(self, group: PlacementGroup) -> None:
        self._parts = (group._id, group._bundles)

    def __reduce__(self) -> tuple[Any, ...]:
        return PlacementGroup, self._parts


def placement_group(
    bundles: Sequence[Mapping[str, float]],
    strategy: str | None = "PACK",
    name: str = "",
    lifetime: str | None = None,
    _soft_target_node_id: str | None = None,
    bundle_label_selector: Sequence[Mapping[str, str]] | None = None,
    topology_strategy: object = None,
) -> PlacementGroup:
    """Reserves resources for tasks and actors that belong together.

    Returns at once. The bundles are reserved all or none, as soon as there is room for all of them; use
    `ready()` or `wait()` to learn when. Their resources are nobody else's until the group is removed.

    Args:
        bundles: For each bundle its resources, name ("CPU", "GPU", "memory", or a custom one) to amount. Each
            is on one node.
        strategy: "PACK" (few nodes), "SPREAD" (many), "STRICT_PACK" (one), "STRICT_SPREAD" (each on its own).
        name: Name to find it by; unique in the namespace.
        lifetime: "detached": it does not end with this driver. None: it does.
        bundle_label_selector: For each bundle, conditions on the labels of its node, as in the option
            `label_selector`.

    Returns:
        Its handle.

    Raises:
        ValueError: An argument has a wrong value, or there is a group of that name.

    Example:
        >>> import sooner
        >>> group = sooner.util.placement_group([{"CPU": 1}, {"CPU": 1}])  # doctest: +SKIP
        >>> sooner.get(group.ready(), timeout=10)  # doctest: +SKIP
    """
    from sooner.context import ensure_started  # start-up: 46.3 ms

    if _soft_target_node_id is not None or topology_strategy is not None:
        raise ValueError("this version of sooner does not have _soft_target_node_id and topology_strategy for groups")
    normal = _checked_bundles(bundles)
    strategy = "PACK" if strategy is None else strategy
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy={strategy!r}: it is one of {', '.join(STRATEGIES)}")
    if not isinstance(name, str):
        raise ValueError(f"name must be a string, not {name!r:.200}")
    if lifetime not in (None, "detached"):
        raise ValueError(f"lifetime={lifetime!r}: it is 'detached' or None")
    selectors = _checked_selectors(bundle_label_selector, len(normal))
    context = ensure_started()
    title = (context.namespace, name) if name else None
    rows = [(list(bundle.items()), selector) for bundle, selector in zip(normal, selectors, strict=True)]
    made = _sooner.create_group(title, strategy, rows, lifetime == "detached")
    return PlacementGroup(PlacementGroupID.from_hex(made), normal)


def _checked_bundles(bundles: Any) -> list[dict[str, float]]:
    if not isinstance(bundles, Sequence) or isinstance(bundles, str | bytes) or not bundles:
        raise ValueError(f"bundles must be a list of at least one dict of resources, not {bundles!r:.200}")
    if len(bundles) > _BUNDLES_MAX:
        raise ValueError(f"a placement group has at most {_BUNDLES_MAX} bundles, not {len(bundles)}")
    return [_checked_bundle(index, bundle) for index, bundle in enumerate(bundles)]


def _checked_bundle(index: int, bundle: Any) -> dict[str, float]:
    if not isinstance(bundle, Mapping):
        raise ValueError(f"bundles[{index}] must be a dict of resources, not {bundle!r:.200}")
    normal = {}
    for name, value in bundle.items():
        if not isinstance(name, str) or not name:
            raise ValueError(f"bundles[{index}]: a resource's name is a non-empty string, not {name!r:.200}")
        normal[name] = amount(f"bundles[{index}][{name!r}]", value) or 0.0
    normal = {name: value for name, value in normal.items() if value}
    if not normal:
        raise ValueError(f"bundles[{index}] is empty or has only zeros: give it a resource, for instance {{'CPU': 1}}")
    gpus = normal.get("GPU", 0.0)
    if gpus > 1 and gpus != int(gpus):
        raise ValueError(f"bundles[{index}]['GPU']={gpus}: more than one GPU must be a whole number")
    return normal


def _checked_selectors(given: Any, count: int) -> list[list[tuple[str, str]]]:
    if given is None:
        return [[]] * count
    if not isinstance(given, Sequence) or len(given) != count:
        raise ValueError(f"bundle_label_selector must be a list with a dict for each of {count} bundles")
    checked = (label_selector(f"bundle_label_selector[{index}]", one) for index, one in enumerate(given))
    return [list((selector or {}).items()) for selector in checked]


def check_bundle_index(group: PlacementGroup, index: Any) -> None:
    """Check the index of a bundle; -1 stands for any.

    Raises:
        ValueError: It is none of the group's.
    """
    if isinstance(index, bool) or not isinstance(index, int):
        raise ValueError(f"the index of a bundle is an int, not {index!r:.200}")
    if index == -1:
        return
    if group.is_empty:
        raise ValueError(f"bundle {index} of no placement group: give a group, too")
    if not 0 <= index < group.bundle_count:
        raise ValueError(f"the placement group has bundles 0 to {group.bundle_count - 1}, or -1 for any, not {index}")


def remove_placement_group(placement_group: PlacementGroup) -> None:
    """Ends a group with all that runs in it, and gives its resources back. May be called again.

    Tasks in it fail with `TaskPlacementGroupRemoved`, calls of its actors with `ActorDiedError` or
    `ActorPlacementGroupRemoved`.

    Args:
        placement_group: The group.

    Raises:
        ValueError: It is no placement group.
    """
    _sooner.remove_group(_checked_group(placement_group).id.hex())


def _checked_group(group: Any) -> PlacementGroup:
    if not isinstance(group, PlacementGroup) or group.is_empty:
        raise ValueError(f"give a placement group, as sooner.util.placement_group() makes it, not {group!r:.200}")
    return group


def get_placement_group(placement_group_name: str) -> PlacementGroup:
    """The group with this name, in this driver's namespace.

    Raises:
        ValueError: There is none.
    """
    from sooner.context import ensure_started  # start-up: 46.3 ms

    name: object = placement_group_name
    if not isinstance(name, str) or not name:
        raise ValueError(f"give the name of a placement group, not {name!r:.200}")
    (row,) = _sooner.find_groups(None, (ensure_started().namespace, placement_group_name))
    return PlacementGroup(PlacementGroupID.from_hex(row["group"]), [bundle["resources"] for bundle in row["bundles"]])


def get_current_placement_group() -> PlacementGroup | None:
    """The group that the running task or actor is in; None outside of one."""
    current = _sooner.current_group()
    return PlacementGroup(PlacementGroupID.from_hex(current[0])) if current else None


def placement_group_table(placement_group: PlacementGroup | None = None) -> dict[str, Any]:
    """What is known of a group, or of all.

    Args:
        placement_group: The group; None: all, also those that were removed lately.

    Returns:
        Of a group: `placement_group_id`, `name`, `bundles` and `bundles_to_node_id` (by index),
        `strategy`, `state` ("PENDING", "PREPARED", "CREATED", "RESCHEDULING" or "REMOVED"), `stats` (why
        it is pending). Of all: that, by id.
    """
    from sooner.context import ensure_started  # start-up: 46.3 ms

    ensure_started()
    if placement_group is not None:
        rows = _sooner.find_groups(_checked_group(placement_group).id.hex(), None)
        return _entry(rows[0])
    return {row["group"]: _entry(row) for row in _sooner.find_groups(None, None)}


_SCHEDULING_STATES: Final = {"CREATED": "FINISHED", "REMOVED": "REMOVED", "PREPARED": "SCHEDULING_STARTED"}


def _entry(row: dict[str, Any]) -> dict[str, Any]:
    bundles = dict(enumerate(row["bundles"]))
    state = row["phase"]
    return {
        "placement_group_id": row["group"],
        "name": row["title"][1] if row["title"] else "",
        "bundles": {index: bundle["resources"] for index, bundle in bundles.items()},
        "bundles_to_node_id": {index: bundle["node"] or "" for index, bundle in bundles.items()},
        "strategy": row["strategy"],
        "state": state,
        "stats": {
            "scheduling_state": _SCHEDULING_STATES.get(state, "QUEUED"),
            "scheduling_detail": row["reason"] or "",
            "scheduling_attempt": row["attempts"],
        },
    }
