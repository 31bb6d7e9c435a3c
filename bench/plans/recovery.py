"""Which probes on recovery and references a run makes, and how large they are.

The runner reads this; the probes themselves, which need an engine, are in `rows/recovery.py`.
"""

from __future__ import annotations

from harness.runner import Runner
from plans.catalog import PROBE_KEYS

CHAIN_MS = 10_000


def measure_all(runner: Runner, peers: list[str], quick: bool) -> None:
    """Run the probes once, on Ray as far as it can do the same.

    Ray has no call that loses an object and no checkpoints, and its pins cannot be repeated.
    """
    calls, rounds = (10_000, 5) if quick else (100_000, 50)
    if quick:
        for key in runner.wanted.intersection(PROBE_KEYS["chains"]):
            runner.results.skip("sooner", key, "a minute; left out with --quick")
    elif "sooner" in peers:
        runner.probe("chains", "sooner", CHAIN_MS, 180)
    if "sooner" in peers:
        runner.probe("lost_objects", "sooner", 1 if quick else 3, 90)
        runner.probe("checkpoints", "sooner", 10_000, 90)
        runner.probe("borrowers", "sooner", calls, 90)
        runner.probe("pins", "sooner", 4 if quick else 8, 120)
        runner.probe("iterations", "sooner", rounds, 120)
    if "ray" in peers and not quick:
        runner.probe("chains", "ray", CHAIN_MS, 300)
        # Fewer tasks and iterations: Ray runs 1,400 to 2,500 tasks a second.
        runner.probe("borrowers", "ray", calls // 10, 180)
        runner.probe("iterations", "ray", rounds // 5, 300)
