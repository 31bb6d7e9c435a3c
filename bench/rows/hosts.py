"""Rows on shaped hosts: values there and back, broadcasts, late receivers, a killed sender, sums,
gathers, a ring, training.

Each is a probe of `harness/probes.py` that makes a network of its own, has raw streams measured in
it, and then starts one system there: `systems/hosts_systems.py` says how. A figure is a multiple of
the optimum, the time that a raw stream takes for as many bytes. Of values so small that no link is
the limit it is the time itself, on hosts without one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bodies.hosts import STEPS, Plan
from plans.catalog import ASYNC_RHOS, LATE_GAPS, SYNC_RHOS
from systems import hosts_systems
from systems.shaped import MEGABYTE, Bed

Tell = Callable[..., None]

# How far apart receivers arrive, in multiples of the optimum (Hoplite, figure 9).
GAP = 0.23
# So that a chain is in the order of the hosts when one of them is killed.
ORDER_GAP_S = 0.02
HALF = 0.5
WARM = 2
# Of small values, which take less than a millisecond.
SMALL_WARM = 5
SMALL_TURNS = 30
# A slow system has fewer repetitions.
SIZE_LIMIT_S = 15.0
# These repetitions last several times as long.
LONG_LIMIT_S = 45.0


@dataclass(frozen=True)
class Probe:
    """What a probe measures.

    Attributes:
        kind: Of the plan.
        hosts: How many, the one with the value included.
        megabits: The rate of their links; None: they have no limit, and times are reported.
        keys: What it reports, by the size of the value (bytes).
        gap: How far apart receivers arrive, or sources are made (multiples of the optimum).
        limit_s: After this time with one size of values no further repetition begins.
        rho: Of a training: how many times as long as a gradient takes its way takes.
    """

    kind: str
    hosts: int
    megabits: int | None
    keys: dict[int, str]
    gap: float = 0.0
    limit_s: float = SIZE_LIMIT_S
    rho: float = 0.0


PROBES = {
    "hosts_2": Probe("back", 2, 500, {64 * MEGABYTE: "hosts_back"}),
    "hosts_4": Probe(
        "cast", 4, 500, {32 * MEGABYTE: "cast_4_32_mb", 64 * MEGABYTE: "cast_4_64_mb"}
    ),
    "hosts_8": Probe(
        "cast", 8, 250, {32 * MEGABYTE: "cast_8_32_mb", 64 * MEGABYTE: "cast_8_64_mb"}
    ),
    "hosts_16": Probe(
        "cast", 16, 250, {32 * MEGABYTE: "cast_16_32_mb", 64 * MEGABYTE: "cast_16_64_mb"}
    ),
    "hosts_late": Probe("cast", 8, 250, {64 * MEGABYTE: "cast_late"}, GAP, LONG_LIMIT_S),
    "hosts_killed": Probe("killed", 8, 250, {64 * MEGABYTE: "cast_killed"}, limit_s=LONG_LIMIT_S),
    "hosts_reduce_4": Probe(
        "reduce", 4, 500, {32 * MEGABYTE: "reduce_4_32_mb", 64 * MEGABYTE: "reduce_4_64_mb"}
    ),
    "hosts_reduce_8": Probe("reduce", 8, 250, {32 * MEGABYTE: "reduce_8_32_mb"}),
    "hosts_allreduce_4": Probe("allreduce", 4, 500, {32 * MEGABYTE: "allreduce_4_32_mb"}),
    "hosts_allreduce_8": Probe("allreduce", 8, 250, {32 * MEGABYTE: "allreduce_8_32_mb"}),
    "hosts_gather_4": Probe("gather", 4, 500, {16 * MEGABYTE: "gather_4_16_mb"}),
    "hosts_gather_8": Probe("gather", 8, 250, {16 * MEGABYTE: "gather_8_16_mb"}),
    **{
        f"hosts_{kind}_late_{name}": Probe(
            kind, 8, 250, {32 * MEGABYTE: f"{kind}_late_{name}"}, gap, LONG_LIMIT_S
        )
        for kind in ("reduce", "allreduce")
        for name, gap in LATE_GAPS.items()
    },
    "hosts_reduce_first": Probe("first", 8, 250, {32 * MEGABYTE: "reduce_first"}),
    "hosts_reduce_killed": Probe(
        "sum_killed", 4, 500, {64 * MEGABYTE: "reduce_killed"}, limit_s=LONG_LIMIT_S
    ),
    "hosts_reduce_16": Probe("reduce", 16, 250, {32 * MEGABYTE: "reduce_16_32_mb"}),
    "hosts_allreduce_16": Probe("allreduce", 16, 250, {32 * MEGABYTE: "allreduce_16_32_mb"}),
    # Training: a gradient takes as long as a multiple of its way says.
    **{
        f"hosts_async_{name}": Probe(
            "sgd_async", 8, 500, {12 * MEGABYTE: f"sgd_async_8_{name}"}, rho=rho
        )
        for name, rho in ASYNC_RHOS.items()
    },
    # The first host has the driver only.
    **{
        f"hosts_sync_{name}": Probe("sgd_sync", 5, 500, {3_400_000: f"sgd_sync_4_{name}"}, rho=rho)
        for name, rho in SYNC_RHOS.items()
    },
    # The first host has the driver only.
    "hosts_ring_4": Probe("ring", 5, 500, {32 * MEGABYTE: "ring_4_32_mb"}),
    # What small values take is not the link's: these hosts have no limit, and rows are times.
    "hosts_small_back": Probe(
        "back", 2, None, {1_000: "back_1_kb", 64_000: "back_64_kb", MEGABYTE: "back_1_mb"}
    ),
    **{
        f"hosts_small_{kind}": Probe(
            kind, 4, None, {kb * 1_000: f"{kind}_4_{kb}_kb" for kb in (1, 32, 64)}
        )
        for kind in ("cast", "gather", "reduce", "allreduce")
    },
}
# These send a value from the first host several times, so that a repetition of the large one takes
# a quarter to half a minute with that many hosts; as a multiple it is that of the small one.
SLOW_SYSTEMS = ("openmpi_default", "gloo", "dask", "ray")
MANY_HOSTS = 8


def keys(name: str, system: str) -> dict[int, str]:
    """What a probe reports of a system, by the size of the value (bytes)."""
    probe = PROBES[name]
    sizes = sorted(probe.keys)
    if probe.hosts >= MANY_HOSTS and system in SLOW_SYSTEMS:
        sizes = sizes[:1]
    return {size: probe.keys[size] for size in sizes}


def run(name: str, system: str, turns: int, tell: Tell) -> None:
    """Run one probe on one system."""
    probe, wanted = PROBES[name], keys(name, system)
    is_small = probe.megabits is None
    with Bed(probe.hosts, probe.megabits) as bed:
        best = 0.0 if is_small else bed.link.optimum(max(wanted))
        plan = Plan(
            kind=probe.kind,
            hosts=probe.hosts,
            sizes=list(wanted),
            warm=SMALL_WARM if is_small else min(WARM, turns - 1),
            turns=SMALL_TURNS if is_small else turns,
            limit_s=probe.limit_s,
            gap_s=ORDER_GAP_S if probe.kind == "killed" else probe.gap * best,
            kill_after_s=HALF * best,
            compute_s=best / probe.rho if probe.rho else 0.0,
        )
        windows: dict[int, list[tuple[float, float]]] = {size: [] for size in wanted}
        took: dict[int, list[float]] = {size: [] for size in wanted}
        for event in hosts_systems.run(system, bed, plan):
            if event["event"] == "started":
                tell(event="started", version=event["version"])
            elif event["event"] == "turn":
                size = event["size"]
                windows[size].append((event["begin"], event["end"]))
                unit = 1e-6 if is_small else _optimum(bed, probe, size, plan.compute_s)
                took[size].append(_seconds(event, probe) / unit)
        if is_small:
            for size, key in wanted.items():
                tell(event="row", key=key, samples=took[size])
            return
        for size, key in wanted.items():
            conditions = bed.conditions(windows[size])
            tell(event="row", key=key, samples=took[size], conditions=conditions)
        rate = bed.link.goodput / 1e6
        tell(event="row", key=f"goodput_{probe.megabits}", peer="limits", samples=[rate])


def _seconds(event: dict[str, Any], probe: Probe) -> float:
    """The time that counts of a repetition."""
    seconds: float = event["end"] - event["begin"]
    if probe.kind in ("killed", "sum_killed"):
        # What is lost, beside a repetition in which no sender ended.
        return seconds - float(event["calm"])
    return seconds


def _optimum(bed: Bed, probe: Probe, size: int, compute_s: float) -> float:
    """How long a repetition takes at best (seconds)."""
    if probe.kind == "back":
        return 2 * bed.link.optimum(size)
    if probe.kind == "gather":
        # The link of one host carries the values of all others.
        return bed.link.optimum(size * (probe.hosts - 1))
    if probe.kind in ("ring", "sgd_sync"):
        members = probe.hosts - 1
        ring = 2 * (members - 1) / members * bed.link.optimum(size)
        return ring if probe.kind == "ring" else STEPS * max(ring, compute_s)
    if probe.kind == "sgd_async":
        return STEPS * max(bed.link.optimum(size), compute_s)
    return bed.link.optimum(size)
