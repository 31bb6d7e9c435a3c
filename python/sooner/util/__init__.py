"""Helpers on top of sooner's public names.

No module here knows more of the engine than a user's program does. Names are resolved on first use: workers
import this package for one of its modules and need not load the others.
"""

# Without `from __future__ import annotations`, which would hide the module `sooner.util.annotations`.
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sooner import deregister_serializer as deregister_serializer
    from sooner import inspect_serializability as inspect_serializability
    from sooner import list_named_actors as list_named_actors
    from sooner import register_serializer as register_serializer
    from sooner.actor import ended as ended
    from sooner.actor import incarnation as incarnation
    from sooner.util.actor_pool import ActorPool as ActorPool
    from sooner.util.debug import disable_log_once_globally as disable_log_once_globally
    from sooner.util.debug import enable_periodic_logging as enable_periodic_logging
    from sooner.util.debug import log_once as log_once
    from sooner.util.executor import Executor as Executor
    from sooner.util.iteration import as_completed as as_completed
    from sooner.util.iteration import map_unordered as map_unordered
    from sooner.util.node import get_node_instance_id as get_node_instance_id
    from sooner.util.node import get_node_ip_address as get_node_ip_address
    from sooner.util.placement_group import PlacementGroup as PlacementGroup
    from sooner.util.placement_group import get_current_placement_group as get_current_placement_group
    from sooner.util.placement_group import get_placement_group as get_placement_group
    from sooner.util.placement_group import placement_group as placement_group
    from sooner.util.placement_group import placement_group_table as placement_group_table
    from sooner.util.placement_group import remove_placement_group as remove_placement_group
    from sooner.util.reducing import tree_reduce as tree_reduce

_HOMES = {
    "ActorPool": "sooner.util.actor_pool",
    "Executor": "sooner.util.executor",
    "PlacementGroup": "sooner.util.placement_group",
    "as_completed": "sooner.util.iteration",
    "deregister_serializer": "sooner",
    "disable_log_once_globally": "sooner.util.debug",
    "enable_periodic_logging": "sooner.util.debug",
    "ended": "sooner.actor",
    "get_current_placement_group": "sooner.util.placement_group",
    "get_node_instance_id": "sooner.util.node",
    "get_node_ip_address": "sooner.util.node",
    "get_placement_group": "sooner.util.placement_group",
    "incarnation": "sooner.actor",
    "inspect_serializability": "sooner",
    "list_named_actors": "sooner",
    "log_once": "sooner.util.debug",
    "map_unordered": "sooner.util.iteration",
    "placement_group_table": "sooner.util.placement_group",
    "register_serializer": "sooner",
    "remove_placement_group": "sooner.util.placement_group",
    "tree_reduce": "sooner.util.reducing",
}
_MODULES = (
    "accelerators",
    "annotations",
    "collective",
    "dask",
    "debug",
    "flat",
    "joblib",
    "metrics",
    "multiprocessing",
    # The module can be called like the function in it.
    "placement_group",
    "progress",
    "queue",
    "scheduling_strategies",
    "serialization",
    "state",
)

# Names of Ray that sooner does not have, and what they belong to.
_LATER = {
    "ActorGroup": "groups of actors, which Ray has deprecated: keep handles in a list",
    "iter": "parallel iterators, which Ray has deprecated: use generators",
    "lightgbm": "LightGBM on sooner",
    "pdb": "a remote debugger",
    "rpdb": "a remote debugger",
    "spark": "Spark on sooner",
    "tpu": "slices of TPUs",
    "tracing": "tracing hooks",
    "xgboost": "XGBoost on sooner",
}

__all__ = [
    "ActorPool",
    "Executor",
    "PlacementGroup",
    "as_completed",
    "deregister_serializer",
    "disable_log_once_globally",
    "enable_periodic_logging",
    "ended",
    "get_current_placement_group",
    "get_node_instance_id",
    "get_node_ip_address",
    "get_placement_group",
    "incarnation",
    "inspect_serializability",
    "list_named_actors",
    "log_once",
    "map_unordered",
    "placement_group",
    "placement_group_table",
    "register_serializer",
    "remove_placement_group",
    "tree_reduce",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"sooner.util.{name}")
    if name in _LATER:
        raise AttributeError(f"sooner.util.{name}: this version of sooner does not have {_LATER[name]}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'sooner.util' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_MODULES})
