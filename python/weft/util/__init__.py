"""Helpers on top of weft's public names.

Nothing here knows more of the engine than a user's program does.
"""

from __future__ import annotations

from weft import deregister_serializer, inspect_serializability, list_named_actors, register_serializer
from weft.util.actor_pool import ActorPool
from weft.util.executor import Executor
from weft.util.iteration import as_completed, map_unordered

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
