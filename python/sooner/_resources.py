"""What a node has: logical resources and shared memory, from what the user said and what the machine has."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from sooner import _sooner

# Whose memory may be limited.
MEMORY_LIMITS = ("auto", "all", "off")
# Resources with an argument of their own.
RESERVED = ("CPU", "GPU", "memory", "object_store_memory")

_STORE_SHARE = 0.3
_MEMORY_THRESHOLD = 0.95
# As STORE_BYTES_MIN in the engine; and what a mapping can be.
_STORE_BYTES_MIN = 1 << 20
_STORE_BYTES_MAX = 1 << 46
_PAGE_BYTES = 4096

_log = logging.getLogger("sooner")


def amount(name: str, value: Any) -> float:
    """A number that is not negative.

    Raises:
        ValueError: It is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise ValueError(f"{name} must be a number that is not negative, not {value!r}")
    return float(value)


def totals(num_cpus: float | None, num_gpus: float | None, resources: Mapping[str, float] | None) -> dict[str, float]:
    """All logical resources of a node: name to amount.

    Raises:
        ValueError: An amount or a name is not allowed.
    """
    found = {"CPU": float(len(os.sched_getaffinity(0))) if num_cpus is None else amount("num_cpus", num_cpus)}
    if num_gpus is not None:
        gpus = amount("num_gpus", num_gpus)
        if gpus != int(gpus):
            raise ValueError(f"num_gpus must be a whole number, not {num_gpus!r}")
        found["GPU"] = gpus
    found["memory"] = float(stated_memory() or memory_bytes() * (1 - _STORE_SHARE))
    if resources is not None and not isinstance(resources, Mapping):
        raise ValueError(f"resources must be a dict of names and amounts, not {resources!r}")
    for name, value in (resources or {}).items():
        if name in RESERVED:
            raise ValueError(f"resources[{name!r}]: use the argument of sooner.init() for it")
        if not name:
            raise ValueError("resources: a name is a non-empty string")
        found[name] = amount(f"resources[{name!r}]", value)
    found["node:127.0.0.1"] = 1.0
    found["node:__internal_head__"] = 1.0
    return found


def memory_bytes() -> int:
    """Memory of this machine, or of the smallest control group, of version 1 or 2, that this process is in (bytes)."""
    return _sooner.memory_bytes()


def memory_threshold(asked: float | None) -> float:
    """From which share of the memory on workers are stopped; 0 or 1 for never.

    Raises:
        ValueError: What was said, here or in the environment, is no such share.
    """
    name = "memory_usage_threshold"
    value: Any = asked
    if asked is None:
        name = "SOONER_MEMORY_USAGE_THRESHOLD"
        value = os.environ.get(name) or _MEMORY_THRESHOLD
    try:
        share = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else -1.0
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ValueError(f"{name} must be a number from 0 to 1, not {value!r}; 0 and 1 switch it off")
    return share


def memory_limits(asked: str | None) -> str:
    """Whose memory the node limits by control groups, where it can: nobody's, that of tasks that are retried, or all.

    Raises:
        ValueError: What was said, here or in the environment, is none of these.
    """
    name, value = "worker_memory_limits", asked
    if asked is None:
        name = "SOONER_WORKER_MEMORY_LIMITS"
        value = os.environ.get(name) or "auto"
    if value not in MEMORY_LIMITS:
        raise ValueError(f'{name} must be "auto", "all" or "off", not {value!r}')
    return value


def memory(threshold: float | None, limits: str | None) -> tuple[float, int | None, str]:
    """What a node does about the memory of its workers.

    Raises:
        ValueError: A value is not allowed.
    """
    return memory_threshold(threshold), stated_memory(), memory_limits(limits)


def stated_memory() -> int | None:
    """For tests of the monitor: what all workers of a node may hold together (bytes), whatever the machine has."""
    stated = os.environ.get("SOONER_TEST_WORKER_MEMORY")
    return int(stated) if stated else None


def store_bytes(asked: Any) -> int:
    """The limit on a node's shared memory for objects (bytes): whole pages, and no more than was asked for.

    A limit beyond what there is draws a warning: objects beyond the machine's memory get errors then.

    Raises:
        ValueError: It is too small, or no number.
    """
    machine = memory_bytes()
    usual = max(_STORE_BYTES_MIN, int(machine * _STORE_SHARE) // _PAGE_BYTES * _PAGE_BYTES)
    if asked is None:
        return usual
    if isinstance(asked, bool) or not isinstance(asked, int | float) or not 0 <= asked < _STORE_BYTES_MAX:
        raise ValueError(
            f"object_store_memory must be a number of bytes, not {asked!r}; the default is {usual}, 30 % of the memory"
        )
    if asked < _STORE_BYTES_MIN:
        raise ValueError(
            f"object_store_memory must be at least {_STORE_BYTES_MIN} bytes (1 MiB), not {asked!r}; "
            f"the default is {usual}, 30 % of the memory"
        )
    if asked > machine:
        _log.warning(
            "object_store_memory is %d bytes (%.2f GiB), and this machine, or the control group of this process, has "
            "%d (%.2f GiB). Objects beyond that will be refused. The default is %d (%.2f GiB)",
            *(part for size in (asked, machine, usual) for part in (size, size / (1 << 30))),
        )
    return int(asked) // _PAGE_BYTES * _PAGE_BYTES
