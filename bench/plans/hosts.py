"""Which probes on shaped hosts a run makes, on which systems, and what is left out and why.

The runner reads this; `rows/hosts.py` has the probes. Systems take turns in a random order.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from harness.runner import Runner
from plans.catalog import (
    ASYNC_RHOS,
    HOSTS_KEYS,
    LATE_GAPS,
    PROBE_KEYS,
    SMALL_KINDS,
    SYNC_RHOS,
)
from rows import hosts as rows_hosts
from systems import gloo, shaped

TURNS = 5
# A peer that takes a whole collective's time for each repetition has fewer within its time limit.
PEER_TURNS = 3
QUICK_TURNS = 2
QUICK_PROBES = ("hosts_2", "hosts_4")
LIMIT_S = 150.0
# What is measured of each peer; its systems are told apart in the table.
SYSTEMS = {
    "sooner": ("sooner",),
    "ray": ("ray",),
    "dask": ("dask",),
    "openmpi": ("openmpi", "openmpi_default"),
    "gloo": ("gloo",),
}
_CAST = ("hosts_4", "hosts_8", "hosts_16")
_SUMS = ("hosts_reduce_4", "hosts_reduce_8", "hosts_allreduce_4", "hosts_allreduce_8")
_SUMS_OF_16 = ("hosts_reduce_16", "hosts_allreduce_16")
_LATE_SUMS = tuple(
    f"hosts_{kind}_late_{gap}" for kind in ("reduce", "allreduce") for gap in LATE_GAPS
)
_MPI_LATE_SUMS = ("hosts_reduce_late_34", "hosts_allreduce_late_34")
_ASYNC = tuple(f"hosts_async_{name}" for name in ASYNC_RHOS)
_SYNC = tuple(f"hosts_sync_{name}" for name in SYNC_RHOS)
_TRAINING = (*_ASYNC, *_SYNC)
_GATHERS = ("hosts_gather_4", "hosts_gather_8")
_SMALL = ("hosts_small_back", *(f"hosts_small_{kind}" for kind in SMALL_KINDS))
_PROBES = {
    "sooner": tuple(rows_hosts.PROBES),
    "ray": (
        "hosts_2",
        "hosts_4",
        "hosts_8",
        *_SUMS,
        *_GATHERS,
        "hosts_ring_4",
        *_TRAINING,
        *_SMALL,
    ),
    "dask": ("hosts_2", *_CAST, *_SUMS, *_GATHERS, *_SMALL),
    "openmpi": ("hosts_2", *_CAST, *_SUMS, *_SUMS_OF_16, *_GATHERS, *_MPI_LATE_SUMS, *_SMALL),
    "openmpi_default": (*_CAST, *_SUMS),
    "gloo": _CAST,
}
_WHOLE = "a collective begins when the last one has come"
_ABORTS = "a collective ends with any of its processes"
_STAR = "sent to one host after the other, which the rows before show"
_ALL = "its sums are of all, and one process reads them one after the other"
_OF_ALL = "its sums are of all"
_IN_ACTORS = "the row is a program of actors; its sums on all are above"
_NOT = {
    "ray": {
        **dict.fromkeys((*_LATE_SUMS, "hosts_reduce_killed"), _ALL),
        "hosts_reduce_first": _ALL,
        **dict.fromkeys(
            ("hosts_16", *_SUMS_OF_16),
            "sixteen nodes of Ray keep the processors of this machine busy by themselves",
        ),
        "hosts_late": _STAR,
        "hosts_killed": _STAR,
    },
    "dask": {
        "hosts_late": _STAR,
        "hosts_killed": _STAR,
        **dict.fromkeys((*_LATE_SUMS, "hosts_reduce_killed", *_SUMS_OF_16), _ALL),
        "hosts_reduce_first": _ALL,
        **dict.fromkeys(("hosts_ring_4", *_TRAINING), _IN_ACTORS),
    },
    "openmpi": {
        "hosts_late": _WHOLE,
        **dict.fromkeys(("hosts_killed", "hosts_reduce_killed"), _ABORTS),
        "hosts_reduce_first": _OF_ALL,
        **dict.fromkeys(("hosts_ring_4", *_TRAINING), _IN_ACTORS),
        **dict.fromkeys(set(_LATE_SUMS) - set(_MPI_LATE_SUMS), _WHOLE),
    },
    "openmpi_default": {
        "hosts_2": "nothing is chosen between two",
        "hosts_late": _WHOLE,
        **dict.fromkeys(("hosts_killed", "hosts_reduce_killed"), _ABORTS),
        **dict.fromkeys((*_LATE_SUMS, *_SUMS_OF_16), "measured with the best known algorithms"),
        "hosts_reduce_first": _OF_ALL,
        **dict.fromkeys(("hosts_ring_4", *_TRAINING), _IN_ACTORS),
        **dict.fromkeys(_GATHERS, "one way to do it"),
        **dict.fromkeys(_SMALL, "small values need no pipeline"),
    },
    "gloo": {
        "hosts_2": "it has no driver here for that",
        "hosts_late": _WHOLE,
        "hosts_killed": _ABORTS,
        **dict.fromkeys(
            (
                *_SUMS,
                *_SUMS_OF_16,
                *_GATHERS,
                *_SMALL,
                *_LATE_SUMS,
                *_TRAINING,
                "hosts_reduce_killed",
                "hosts_reduce_first",
                "hosts_ring_4",
            ),
            "its driver here has broadcasts only",
        ),
    },
}
_SLOW = "a quarter to half a minute for each repetition; as a multiple it is that of 32 MB"


def measure_all(runner: Runner, peers: list[str], quick: bool) -> None:
    """Run the probes once on each system."""
    if not runner.wanted.intersection(HOSTS_KEYS):
        return
    systems = [system for peer in peers for system in SYSTEMS.get(peer, ())]
    obstacle = shaped.obstacle()
    if obstacle is None and "gloo" in systems and not quick:
        without = gloo.obstacle()
        if without is not None:
            _skip(runner, "gloo", HOSTS_KEYS, without)
            systems.remove("gloo")
    for name in rows_hosts.PROBES:
        for system in random.sample(systems, len(systems)):
            keys = PROBE_KEYS[name]
            if obstacle is not None:
                _skip(runner, system, keys, obstacle)
            elif quick and not (system == "sooner" and name in QUICK_PROBES):
                _skip(runner, system, keys, "left out with --quick")
            elif name not in _PROBES[system]:
                _skip(runner, system, keys, _NOT[system][name])
            else:
                slow = set(keys) - set(rows_hosts.keys(name, system).values())
                _skip(runner, system, slow, _SLOW)
                turns = TURNS if system == "sooner" else PEER_TURNS
                runner.probe(name, system, QUICK_TURNS if quick else turns, LIMIT_S)


def _skip(runner: Runner, system: str, keys: Iterable[str], reason: str) -> None:
    for key in sorted(runner.wanted.intersection(keys)):
        runner.results.skip(system, key, reason)
