"""Serializers of your own, and what stands in the way of a value."""

from __future__ import annotations

from sooner import deregister_serializer, inspect_serializability, register_serializer

__all__ = ["deregister_serializer", "inspect_serializability", "register_serializer"]
