"""User-defined serializers, and a report of the parts of a value that cannot be pickled."""

from __future__ import annotations

from sooner import deregister_serializer, inspect_serializability, register_serializer

__all__ = ["deregister_serializer", "inspect_serializability", "register_serializer"]
