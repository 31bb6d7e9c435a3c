"""Placement groups: `sooner.placement` under the name that Ray has for it.

`sooner.util.placement_group` is this module, which can be called like the function in it:
`sooner.util.placement_group(...)` and `from sooner.util.placement_group import placement_group` both work, in
any order.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from sooner.placement import (
    PlacementGroup,
    get_current_placement_group,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

__all__ = [
    "PlacementGroup",
    "get_current_placement_group",
    "get_placement_group",
    "placement_group",
    "placement_group_table",
    "remove_placement_group",
]


class _CallableModule(types.ModuleType):
    """A module that can be called, because the import system puts it where programs expect the function."""

    def __call__(self, *args: Any, **kwargs: Any) -> PlacementGroup:
        return placement_group(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
