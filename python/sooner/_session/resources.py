"""A node's logical resources and shared memory, from the user's arguments and what the machine has."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from sooner import _sooner
from sooner._options.checks import AMOUNT_STEP, WrongTypeError, fault
from sooner._session import gpus as _gpus

# Whose memory may be limited.
MEMORY_LIMITS = ("auto", "all", "off")
# Resources with an argument of their own.
RESERVED = ("CPU", "GPU", "memory", "object_store_memory")

_STORE_SHARE = 0.3
_MEMORY_THRESHOLD = 0.95
# As STORE_BYTES_MIN in the engine.
_STORE_BYTES_MIN = 1 << 20
# The least default on a machine whose memory other nodes offer.
_STORE_BYTES_LATE = 256 << 20
# The largest mapping.
_STORE_BYTES_MAX = 1 << 46
_PAGE_BYTES = 4096
# No machine has as much memory: only a control group without a limit could be read, or nothing.
_MEMORY_UNKNOWN = 1 << 62

_log = logging.getLogger("sooner")


def amount(name: str, value: Any) -> float:
    """A number that is not negative.

    Raises:
        ValueError: The value is no such number. For a value of another type it is a TypeError as well.
    """
    kind = fault(value, int, float)
    if kind is WrongTypeError or not 0 <= value < float("inf"):
        raise kind(f"{name} must be a number that is not negative, not {value!r}")
    return float(value)


def _share(name: str, value: Any) -> float:
    """An amount of a resource, which is counted in small steps."""
    found = amount(name, value)
    if 0 < found < AMOUNT_STEP:
        raise ValueError(f"{name} must be 0 or at least {AMOUNT_STEP:g}, not {value!r}: less counts for nothing")
    return found


def totals(
    num_cpus: float | None,
    num_gpus: float | None,
    resources: Mapping[str, float] | None,
    memory: float | None = None,
) -> dict[str, float]:
    """All logical resources of a node: name to amount. `memory` is in bytes, by default what the machine has.

    Raises:
        ValueError: An amount or a name is not allowed.
        OSError: `memory` was not given, and the machine's memory is unknown; or there is no /proc.
    """
    if not os.path.isdir("/proc/self"):
        # The engine needs it for its own sockets and for information on processes.
        raise OSError("sooner cannot start: /proc cannot be read, and nothing starts without it: mount it")
    found = {"CPU": float(len(os.sched_getaffinity(0))) if num_cpus is None else _share("num_cpus", num_cpus)}
    if num_gpus is not None:
        gpus = amount("num_gpus", num_gpus)
        if gpus != int(gpus):
            raise ValueError(f"num_gpus must be a whole number, not {num_gpus!r}")
        named = _gpus.visible()
        if named is not None and gpus > len(named):
            raise ValueError(
                f"num_gpus is {gpus:g}, and CUDA_VISIBLE_DEVICES names {len(named)} ({','.join(named) or 'none'}): "
                "ask for as many or fewer, or show this process more"
            )
        found["GPU"] = gpus
    elif gpus := _gpus.count():
        found["GPU"] = float(gpus)
    if memory is None:
        memory = default_memory()
    found["memory"] = amount("memory", memory)
    if resources is not None and not isinstance(resources, Mapping):
        raise WrongTypeError(f"resources must be a dict of names and amounts, not {resources!r}")
    for name, value in (resources or {}).items():
        if name in RESERVED:
            raise ValueError(f"resources[{name!r}]: use the argument of sooner.init() for it")
        if not name or not isinstance(name, str):
            raise fault(name, str)(f"resources: a name is a non-empty string, not {name!r}")
        found[name] = _share(f"resources[{name!r}]", value)
    found["node:127.0.0.1"] = 1.0
    found["node:__internal_head__"] = 1.0
    return found


def default_memory(offered: int = 0) -> float:
    """The default logical memory of a node, where other nodes offer `offered` (bytes)."""
    return stated_memory() or _left(offered) * (1 - _STORE_SHARE)


def _left(offered: int) -> int:
    return max(0, memory_bytes() - offered)


def memory_bytes() -> int:
    """Memory of this machine or of this process's smallest control group (version 1 or 2), in bytes.

    Raises:
        OSError: The memory is unknown: /proc cannot be read.
    """
    found = _sooner.memory_bytes()
    if found >= _MEMORY_UNKNOWN:
        raise OSError(
            "sooner cannot start: how much memory this machine has is unknown, since /proc/meminfo cannot be read. "
            "Make it readable, or say how much sooner may use, with object_store_memory= for objects and _memory= for "
            "tasks (sooner start: --object-store-memory, --memory)"
        )
    return found


def memory_threshold(asked: float | None) -> float:
    """The share of the memory from which on workers are stopped; 0 or 1 for never.

    Raises:
        ValueError: The argument, or the value in the environment, is no such share.
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
    """Whose memory the node limits by control groups, where it can: no task's, that of retried tasks, or all.

    Raises:
        ValueError: The argument, or the value in the environment, is none of these.
    """
    name, value = "worker_memory_limits", asked
    if asked is None:
        name = "SOONER_WORKER_MEMORY_LIMITS"
        value = os.environ.get(name) or "auto"
    if value not in MEMORY_LIMITS:
        raise ValueError(f'{name} must be "auto", "all" or "off", not {value!r}')
    return value


def memory(threshold: float | None, limits: str | None) -> tuple[float, int | None, str]:
    """A node's limits on the memory of its workers: threshold, stated total, whose memory is limited.

    Raises:
        ValueError: A value is not allowed.
    """
    return memory_threshold(threshold), stated_memory(), memory_limits(limits)


def stated_memory() -> int | None:
    """For tests: the memory that all workers of a node may hold together (bytes), whatever the machine has.

    The variable counts only in a test that pytest runs, and in programs that such a test starts.
    """
    stated = os.environ.get("SOONER_TEST_WORKER_MEMORY")
    return int(stated) if stated and "PYTEST_CURRENT_TEST" in os.environ else None


def store_bytes(asked: Any, offered: int = 0) -> int:
    """The limit on a node's shared memory for objects (bytes): whole pages, and no more than was asked for.

    Other nodes of this machine offer `offered` of its memory (bytes): the default is a share of the rest, and
    small where nothing is left. A limit beyond the machine's memory draws a warning: objects beyond that
    memory get errors.

    Raises:
        ValueError: `asked` is too small, or no number.
        OSError: `asked` is None, and the machine's memory is unknown.
    """
    if asked is None:
        return _usual_store(offered)
    kind = fault(asked, int, float)
    if kind is WrongTypeError or not 0 <= asked < _STORE_BYTES_MAX:
        raise kind(f"object_store_memory must be a number of bytes, not {asked!r}; {_usual_words(offered)}")
    if asked < _STORE_BYTES_MIN:
        raise ValueError(
            f"object_store_memory must be at least {_STORE_BYTES_MIN} bytes (1 MiB), not {asked!r}; "
            f"{_usual_words(offered)}"
        )
    machine = _sooner.memory_bytes()
    if asked > machine:
        usual = _usual_store(offered)
        _log.warning(
            "object_store_memory is %d bytes (%.2f GiB), and this machine, or the control group of this process, has "
            "%d (%.2f GiB). Objects beyond that will be refused. The default is %d (%.2f GiB)",
            *(part for size in (asked, machine, usual) for part in (size, size / (1 << 30))),
        )
    return int(asked) // _PAGE_BYTES * _PAGE_BYTES


def _usual_store(offered: int) -> int:
    machine = memory_bytes()
    # A node needs a store even if other nodes offer all memory.
    least = min(_STORE_BYTES_LATE, int(machine * _STORE_SHARE)) if offered else _STORE_BYTES_MIN
    return max(_STORE_BYTES_MIN, least, int(_left(offered) * _STORE_SHARE)) // _PAGE_BYTES * _PAGE_BYTES


def _usual_words(offered: int) -> str:
    try:
        return f"the default is {_usual_store(offered)}, 30 % of the memory"
    except OSError:
        return "the default is 30 % of the memory"
