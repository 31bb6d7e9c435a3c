"""Where objects are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sooner import _sooner


def get_object_locations(refs: Sequence[_sooner.ObjectRef[Any]], timeout_ms: int = -1) -> dict[Any, dict[str, Any]]:
    """Says where objects are.

    Args:
        refs: References.
        timeout_ms: How long to wait for objects that are not there yet (milliseconds); -1 as long as it takes.

    Returns:
        For each reference `node_ids` (the nodes that have the value), `object_size` (bytes, or None) and `did_spill`
        (the value is on the disk of its node, whether or not there is a copy in memory, too). An object that travels in
        messages, is not there, or has failed lies on no node.

    Raises:
        TypeError: `refs` holds something else.
    """
    import sooner

    given = list(refs)
    for ref in given:
        if not isinstance(ref, _sooner.ObjectRef):
            raise TypeError(f"get_object_locations() takes ObjectRefs, not {type(ref).__name__}")
    distinct = list(dict.fromkeys(given))
    if distinct:
        sooner.wait(distinct, num_returns=len(distinct), timeout=None if timeout_ms < 0 else timeout_ms / 1000)
    return get_local_object_locations(distinct)


def get_local_object_locations(refs: Sequence[_sooner.ObjectRef[Any]]) -> dict[Any, dict[str, Any]]:
    """Says what this process knows of where objects are, without waiting. See `get_object_locations`."""
    node = _sooner.identity()[1]
    found = {}
    for ref in refs:
        size, is_stored, did_spill = _sooner.object_size(ref) or (None, False, False)
        found[ref] = {"node_ids": [node] if is_stored else [], "object_size": size, "did_spill": did_spill}
    return found
