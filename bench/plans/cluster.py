"""Which probes on several nodes a run makes, how large they are, and what a peer leaves out.

The runner reads this; the probes themselves are in `rows/cluster.py` and `rows/cluster_failure.py`.
"""

from __future__ import annotations

from harness.runner import Runner
from plans.catalog import CLUSTER_PROBES, PROBE_KEYS

# For each probe: its argument in a full run and with --quick, and how long it may take (seconds).
_SOONER = {
    "remote_tasks": (1000, 100, 120),
    "drivers": (20_000, 4_000, 180),
    "delegation": (10_000, 2_000, 120),
    "add_node": (9, 2, 60),
    "cluster_16": (3, 1, 90),
    "groups": (5, 2, 60),
    "transfer": (1000, 100, 120),
    "locality": (1000, 20, 180),
    "node_killed": (10, 2, 120),
    "node_chains": (10_000, 1_000, 150),
    "head_restart": (3, 1, 120),
}
# Smaller where Ray takes a millisecond per task, and a second or more per node.
_RAY = {
    "remote_tasks": (1000, 300),
    "drivers": (4_000, 300),
    "delegation": (2_000, 180),
    "add_node": (2, 120),
    "groups": (1, 120),
    "transfer": (1000, 180),
    "locality": (100, 300),
    "node_killed": (2, 300),
    "node_chains": (10_000, 300),
}
_NOT_RAY = {
    "cluster_16": "sixteen nodes of Ray on this machine would take a minute and several GiB",
    "head_calm": "a Ray head that starts again needs an external Redis",
    "head_pause": "a Ray head that starts again needs an external Redis",
    "head_new_actor": "a Ray head that starts again needs an external Redis",
}


def measure_all(runner: Runner, peers: list[str], quick: bool) -> None:
    """Run the probes once; on Ray what it can do, and only in a full run."""
    if "sooner" in peers:
        for name, (full, short, limit_s) in _SOONER.items():
            runner.probe(name, "sooner", short if quick else full, limit_s)
    if "ray" not in peers:
        return
    skipped = dict(_NOT_RAY)
    if quick:
        keys = (key for name in CLUSTER_PROBES for key in PROBE_KEYS[name])
        skipped = dict.fromkeys(keys, "left out with --quick") | skipped
    else:
        for name, (argument, limit_s) in _RAY.items():
            runner.probe(name, "ray", argument, limit_s)
    for key in sorted(runner.wanted.intersection(skipped)):
        if key not in runner.results.samples.get("ray", {}):
            runner.results.skip("ray", key, skipped[key])
