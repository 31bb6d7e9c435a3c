"""Progress bars in tasks, in actors and in the driver."""

from __future__ import annotations

from sooner import progress, tqdm

__all__ = ["progress", "tqdm"]
