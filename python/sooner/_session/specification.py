"""What a session is started with: the arguments of `sooner.init`, checked, with defaults in place.

This module starts nothing and changes nothing in this process.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sooner._options.checks import WrongTypeError, fault
from sooner._session import launch, resources, spilling
from sooner._session.address import Elsewhere
from sooner._session.membership import disk_directory, parent_directory

if TYPE_CHECKING:
    from sooner._options.traits import JobTraits, NodeTraits

_INLINE_BYTES = 100 << 10
_EVENTS_BYTES = 16 << 20
_EVENTS_BYTES_MAX = 256 << 20
_LINEAGE_BYTES = 1 << 30
_FALSE = ("0", "false", "False")


class Specification:
    """What a session is started with.

    Args:
        asked: The arguments of `sooner.init`, by name.
        target: Where the session is: as `sooner._session.address.resolve` gives it.

    Attributes:
        namespace: Of actor names.
        records_call_sites: Whether errors say where a task was submitted.
        pending_max: Tasks that may be pending; None for the engine's own bound.
        is_local: Whether tasks run on the thread that calls them.
        job: The job, as the engine takes it.
        node: The node that is started in this process; None if the program connects to another one.

    Raises:
        ValueError: An argument has a wrong value.
    """

    def __init__(self, asked: Mapping[str, Any], target: str | Elsewhere | None) -> None:
        self.is_local = bool(asked["local_mode"])
        self.records_call_sites = _record_call_sites(asked["record_call_sites"])
        self.namespace: str = asked["namespace"] if asked["namespace"] is not None else os.urandom(8).hex()
        self.pending_max = _pending_max(asked["max_pending_tasks"])
        self.job = self._job(asked, target)
        self.node: NodeTraits | None = None
        if target is None:
            self.node = _own_node(asked)
        elif isinstance(target, Elsewhere):
            self.node = _guest_node(asked)
        else:
            spilling.eviction(asked["eviction"])

    def _job(self, asked: Mapping[str, Any], target: str | Elsewhere | None) -> JobTraits:
        inline, preload = asked["inline_bytes"], asked["preload"]
        _check_preload(preload)
        has_templates = not self.is_local and not isinstance(target, Elsewhere)
        is_own = target is None
        shows = asked["log_to_driver"]
        return {
            "template": launch.template_command(preload, self.records_call_sites) if has_templates else [],
            "setup": None if is_own else launch.template_setup(preload, self.records_call_sites),
            "working_directory": "" if is_own else launch.directory() or "/",
            "namespace": self.namespace,
            "inline_bytes": _INLINE_BYTES if inline is None else int(resources.amount("inline_bytes", inline)),
            "events_bytes": _events_bytes(asked["task_events_bytes"]),
            "lineage_bytes": _lineage_bytes(asked["lineage_bytes"]),
            "log_to_driver": os.environ.get("SOONER_LOG_TO_DRIVER", "1") not in _FALSE
            if shows is None
            else bool(shows),
        }


def _guest_node(asked: Mapping[str, Any]) -> NodeTraits:
    """The node of a program that joins a cluster: nothing runs there."""
    return {
        "resources": [],
        "pool_size": 0,
        "store_bytes": resources.store_bytes(asked["object_store_memory"]),
        "spill": _spill(asked),
        "eviction": spilling.eviction(asked["eviction"]),
        "base_directory": parent_directory(),
        "name": f"driver-{os.urandom(4).hex()}",
        "labels": [],
        "memory": None,
        "random": _random(),
    }


def _own_node(asked: Mapping[str, Any]) -> NodeTraits:
    labels = _labels(asked["labels"])
    places, most = _spill(asked)
    totals = resources.totals(asked["num_cpus"], asked["num_gpus"], asked["resources"], asked["_memory"])
    store = resources.store_bytes(asked["object_store_memory"])
    totals["object_store_memory"] = float(store)
    return {
        "resources": list(totals.items()),
        "pool_size": max(1, int(totals.get("CPU", 1))),
        "store_bytes": store,
        # In local mode no thread looks for tasks whose argument has just come back from disk.
        "spill": ([] if asked["local_mode"] else places, most),
        "eviction": spilling.eviction(asked["eviction"]),
        "base_directory": parent_directory(),
        "name": None,
        "labels": labels,
        "memory": resources.memory(asked["memory_usage_threshold"], asked["worker_memory_limits"]),
        "random": _random(),
    }


def _random() -> int:
    # Not from `secrets`, which imports many modules that nothing else needs.
    return int.from_bytes(os.urandom(8), "little") >> 1 | 1 << 40


def _spill(asked: Mapping[str, Any]) -> tuple[list[str], int | None]:
    places = spilling.directories(asked["spill_directories"], disk_directory())
    return places, spilling.max_bytes(asked["max_spill_bytes"])


def _record_call_sites(asked: Any) -> bool:
    if asked is None:
        return os.environ.get("SOONER_RECORD_CALL_SITES", "0") not in ("", *_FALSE)
    if not isinstance(asked, bool):
        raise WrongTypeError(f"record_call_sites must be True, False or None, not {asked!r}")
    return asked


def _labels(given: Any) -> list[tuple[str, str]]:
    if given is None:
        return []
    if not isinstance(given, Mapping) or not all(isinstance(part, str) for pair in given.items() for part in pair):
        raise WrongTypeError(f"labels must be a dict of strings, for instance {{'zone': 'a'}}, not {given!r:.200}")
    return list(given.items())


def _events_bytes(asked: Any) -> int:
    if asked is None:
        return _EVENTS_BYTES
    if isinstance(asked, bool) or not isinstance(asked, int) or not 0 <= asked <= _EVENTS_BYTES_MAX:
        raise fault(asked, int)(
            f"task_events_bytes must be a whole number from 0 to {_EVENTS_BYTES_MAX}, not {asked!r}"
        )
    return asked


def _lineage_bytes(asked: Any) -> int:
    if asked is None:
        return _LINEAGE_BYTES
    if isinstance(asked, bool) or not isinstance(asked, int) or not 0 <= asked < 1 << 63:
        raise fault(asked, int)(f"lineage_bytes must be a whole number of bytes, 0 or more, not {asked!r}")
    return asked


def _pending_max(asked: Any) -> int | None:
    if asked is None:
        return None
    if isinstance(asked, bool) or not isinstance(asked, int) or not 1 <= asked < 1 << 32:
        raise fault(asked, int)(f"max_pending_tasks must be a whole number, 1 or more, not {asked!r}")
    return asked


def _check_preload(preload: Any) -> None:
    if isinstance(preload, str) or not all(isinstance(name, str) for name in preload):
        raise WrongTypeError(f"preload must be a list of module names, not {preload!r}")
