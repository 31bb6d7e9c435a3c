"""Faults on request: `weft.testing` beside the other utilities."""

from __future__ import annotations

from weft.testing import lose_objects

__all__ = ["lose_objects"]
