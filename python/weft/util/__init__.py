"""Helpers on top of weft's public names.

Nothing here knows more of the engine than a user's program does. The names are resolved on first use: workers import
this package for one of its modules and need not load the others.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft import deregister_serializer as deregister_serializer
    from weft import inspect_serializability as inspect_serializability
    from weft import list_named_actors as list_named_actors
    from weft import register_serializer as register_serializer
    from weft.util.actor_pool import ActorPool as ActorPool
    from weft.util.executor import Executor as Executor
    from weft.util.iteration import as_completed as as_completed
    from weft.util.iteration import map_unordered as map_unordered

_HOMES = {
    "ActorPool": "weft.util.actor_pool",
    "Executor": "weft.util.executor",
    "as_completed": "weft.util.iteration",
    "deregister_serializer": "weft",
    "inspect_serializability": "weft",
    "list_named_actors": "weft",
    "map_unordered": "weft.util.iteration",
    "register_serializer": "weft",
}
_MODULES = ("joblib", "multiprocessing", "progress", "queue", "serialization")

__all__ = [
    "ActorPool",
    "Executor",
    "as_completed",
    "deregister_serializer",
    "inspect_serializability",
    "list_named_actors",
    "map_unordered",
    "register_serializer",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"weft.util.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'weft.util' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_MODULES})
