"""The benchmark fits together: what a run plans is there, and what is counted is counted rightly."""

from __future__ import annotations

import os
from pathlib import Path

from support import run_driver

BENCH = Path(__file__).resolve().parent.parent / "bench"


def run(code):
    run_driver(code, env=os.environ | {"BENCH_API": "weft"}, cwd=BENCH)


def test_rows_probes_plans_and_goals_fit_together():
    run("""
        import catalog, plan_cluster, probes, rows_cluster, rows_cluster_failure, rows_recovery

        known = {"idle", *probes.PROBES, *rows_recovery.PROBES}
        of_clusters = {**rows_cluster.PROBES, **rows_cluster_failure.PROBES}
        assert set(of_clusters) == set(catalog.CLUSTER_PROBES) == set(plan_cluster._WEFT)
        assert {*known, *of_clusters} == set(catalog.PROBE_KEYS)
        assert set(plan_cluster._RAY) < set(of_clusters)
        keys = {key for keys in catalog.PROBE_KEYS.values() for key in keys}
        assert keys <= set(catalog.BY_KEY), keys - set(catalog.BY_KEY)
        assert set(plan_cluster._NOT_RAY) <= keys
        for goal in catalog.GOALS:
            assert goal.key in catalog.BY_KEY and (not goal.reference or goal.reference in catalog.BY_KEY), goal
        assert catalog.selected("node_killed, head_new") == {"node_killed", "head_new_actor"}
    """)


def test_traffic_is_what_was_sent():
    run("""
        import os, socket, traffic

        before = traffic.of(os.getpid())
        with socket.create_server(("127.0.0.1", 0)) as server:
            near = socket.create_connection(server.getsockname())
            far, _ = server.accept()
        with near, far:
            near.sendall(b"x" * 1000)
            assert len(far.recv(1000, socket.MSG_WAITALL)) == 1000
            far.sendall(b"y")
            assert near.recv(1) == b"y"
            after = traffic.of(os.getpid())
            one = after[os.readlink(f"/proc/self/fd/{near.fileno()}")]
            assert (one.bytes_sent, one.bytes_received) == (1000, 1)
            assert (one.segments_sent, one.segments_received) == (1, 1)
            # Both ends are of this process. The port that listens is no connection.
            assert traffic.between(before, after) == traffic.Traffic(1001, 1001, 2, 2)
            again = traffic.of(os.getpid())
            assert traffic.between(after, again) == traffic.Traffic()
    """)
