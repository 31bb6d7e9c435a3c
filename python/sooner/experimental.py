"""The locations of objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sooner
from sooner import _sooner

# How long owners may take to report objects of which this process has no record (seconds).
_ASK_SECONDS = 0.1


def get_object_locations(refs: Sequence[_sooner.ObjectRef[Any]], timeout_ms: int = -1) -> dict[Any, dict[str, Any]]:
    """Says where objects are now. It does not wait for those that are not there, and brings none of them
    here.

    Args:
        refs: References.
        timeout_ms: How long the owners of borrowed references may take to say whether the objects are there
            (milliseconds): 100 at most, which is meant by -1, too.

    Returns:
        For each reference `node_ids` (the nodes that have the value), `object_size` (bytes, or None) and
        `did_spill` (the value is on the disk of its node, whether or not there is a copy in memory, too). An
        object that travels in messages, is not there, or has failed lies on no node.

    Raises:
        TypeError: `refs` holds something else.
    """
    given = list(refs)
    for ref in given:
        if not isinstance(ref, _sooner.ObjectRef):
            raise TypeError(f"get_object_locations() takes ObjectRefs, not {type(ref).__name__}")
    distinct = list(dict.fromkeys(given))
    unheard = [ref for ref in distinct if _sooner.is_unheard_of(ref)]
    if unheard:
        seconds = _ASK_SECONDS if timeout_ms < 0 else min(_ASK_SECONDS, timeout_ms / 1000)
        sooner.wait(unheard, num_returns=len(unheard), timeout=seconds, fetch_local=False)
    return get_local_object_locations(distinct)


def get_local_object_locations(refs: Sequence[_sooner.ObjectRef[Any]]) -> dict[Any, dict[str, Any]]:
    """Says what this process knows of where objects are, without asking anybody. See
    `get_object_locations`.
    """
    found = {}
    for ref in refs:
        size, nodes, did_spill = _sooner.object_places(ref) or (None, [], False)
        found[ref] = {"node_ids": nodes, "object_size": size, "did_spill": did_spill}
    return found
