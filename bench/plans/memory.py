"""Which probes on memory a run makes, on which systems, how large, and what is left out and why.

The runner reads this; `rows/memory.py` has the probes. The large ones take a quarter of an hour,
and the sorts that do not fit into memory more than an hour, so that they only run when named:
`--only broadcast,sort_memory,spill_,objects_` and `--only sort_50,sort_100,sort_500,sort_spread`.
"""

from __future__ import annotations

from harness.runner import Runner
from plans.catalog import MEMORY_KEYS, PROBE_KEYS, SORT_PARTITIONS
from report.results import median_of

# What is measured of each peer; its systems are told apart in the table.
SYSTEMS = {
    "sooner": ("sooner",),
    "ray": ("ray",),
    "dask": ("dask_threads", "dask_processes", "dask", "dask_tasks"),
}
# For each probe: its argument, its argument with --quick, and how long it may take (seconds).
_SIZES = {
    "broadcast": (1000, 100, 240),
    "sort_memory": (1000, 100, 240),
    **{f"sort_spill_{number}": (10_000, 500, 1200) for number in SORT_PARTITIONS},
    "spill": (4000, 1500, 240),
    "small_objects": (10_000_000, 200_000, 240),
}
_SORTS = tuple(name for name in _SIZES if name.startswith("sort_"))
_PROBES = {
    "sooner": tuple(_SIZES),
    "ray": ("broadcast", "sort_memory", "sort_spill_100"),
    "dask_threads": ("broadcast", *_SORTS),
    "dask_processes": ("broadcast", "sort_memory"),
    "dask": ("broadcast", "sort_memory", "sort_spill_100"),
    "dask_tasks": ("sort_memory", "sort_spill_100"),
}
_TIME = "its time with 100 partitions says enough"
_SOONER_ALONE = "a figure of sooner, or of sooner and the machine"
_NOT = {
    "ray": {"sort_spill_50": _TIME, "sort_spill_500": _TIME},
    "dask": {"sort_spill_50": _TIME, "sort_spill_500": _TIME},
    "dask_processes": dict.fromkeys(_SORTS[1:], "values go through the driver, which has no limit"),
    "dask_tasks": {
        "broadcast": "there is no shuffle in it",
        "sort_spill_50": _TIME,
        "sort_spill_500": _TIME,
    },
}
_ALONE = ("spill", "small_objects")


def measure_all(runner: Runner, peers: list[str], quick: bool, is_named: bool) -> None:
    """Run the probes once on each system.

    Args:
        runner: What runs them.
        peers: Whose systems take part.
        quick: Short, and sooner alone.
        is_named: The rows were asked for by name.
    """
    if not runner.wanted.intersection(MEMORY_KEYS):
        return
    systems = [system for peer in peers for system in SYSTEMS.get(peer, ())]
    for name, (full, short, limit_s) in _SIZES.items():
        for system in systems:
            reason = _left_out(name, system, quick, is_named)
            if reason is None:
                runner.probe(name, system, short if quick else full, limit_s)
            elif reason:
                for key in sorted(runner.wanted.intersection(PROBE_KEYS[name])):
                    runner.results.skip(system, key, reason)
    _compare(runner)


def _left_out(name: str, system: str, quick: bool, is_named: bool) -> str | None:
    """Why a probe does not run there; empty if that goes without saying, None if it runs."""
    if name in _ALONE and system != "sooner":
        return ""
    if name not in _PROBES[system]:
        return _NOT[system][name]
    if quick and system != "sooner":
        return "left out with --quick"
    if not is_named and name not in _ALONE:
        return "measured only when it is named"
    return None


def _compare(runner: Runner) -> None:
    """Rows that several probes make together: the best of Dask, and how sooner's times spread."""
    results = runner.results
    for number in SORT_PARTITIONS:
        key = f"sort_{number}"
        times = [median_of(results, system, key) for system in SYSTEMS["dask"]]
        done = [seconds for seconds in times if seconds is not None]
        if done:
            results.add("dask_best", key, [min(done)])
    times = [median_of(results, "sooner", f"sort_{number}") for number in SORT_PARTITIONS]
    done = [seconds for seconds in times if seconds is not None]
    if len(done) == len(times):
        results.add("sooner", "sort_spread", [max(done) / min(done)])
    elif done or any(
        f"sort_{number}" in results.failures.get("sooner", {}) for number in SORT_PARTITIONS
    ):
        results.fail("sooner", "sort_spread", "not all of the three sorts came to an end")
