"""Faults on request: `sooner.testing` beside the other utilities."""

from __future__ import annotations

from sooner.testing import lose_objects

__all__ = ["lose_objects"]
