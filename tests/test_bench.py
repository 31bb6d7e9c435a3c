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
        import catalog, hosts_systems, plan_cluster, plan_hosts, probes
        import rows_cluster, rows_cluster_failure, rows_hosts, rows_recovery

        known = {"idle", *probes.PROBES, *rows_recovery.PROBES}
        of_clusters = {**rows_cluster.PROBES, **rows_cluster_failure.PROBES}
        assert set(of_clusters) == set(catalog.CLUSTER_PROBES) == set(plan_cluster._WEFT)
        of_hosts = {name: tuple(probe.keys.values()) for name, probe in rows_hosts.PROBES.items()}
        assert {name: catalog.PROBE_KEYS[name] for name in catalog.HOSTS_PROBES} == of_hosts
        assert {*known, *of_clusters, *of_hosts} == set(catalog.PROBE_KEYS)
        systems = {system for systems in plan_hosts.SYSTEMS.values() for system in systems}
        assert systems == set(hosts_systems.SYSTEMS) <= set(catalog.TITLES)
        # Whatever a system does not run has a reason.
        for system in systems:
            assert {*plan_hosts._PROBES[system], *plan_hosts._NOT.get(system, {})} == set(of_hosts), system
        assert set(plan_cluster._RAY) < set(of_clusters)
        keys = {key for keys in catalog.PROBE_KEYS.values() for key in keys}
        assert keys <= set(catalog.BY_KEY), keys - set(catalog.BY_KEY)
        assert set(plan_cluster._NOT_RAY) <= keys
        for goal in catalog.GOALS:
            assert goal.key in catalog.BY_KEY and (not goal.reference or goal.reference in catalog.BY_KEY), goal
        assert catalog.selected("node_killed, head_new") == {"node_killed", "head_new_actor"}
    """)


def test_what_is_no_comparison_is_not_shown_as_one():
    run("""
        import report, shaped
        from results import Results

        link = shaped.Link(goodput=59.0, expected=59.6, seconds={})
        assert shaped.verdict(0.25, link, 0.1) == ""
        assert shaped.verdict(0.24, link, 0.1) == "CPU-bound"
        assert shaped.verdict(0.25, link, 0.2) == "disturbed"
        assert shaped.verdict(0.25, shaped.Link(58.0, 59.6, {}), 0.1) == "disturbed"

        results = Results({})
        seen = {"idle": 0.2, "goodput": 59.0, "expected": 59.6, "load": 0.1, "count": 2}
        results.under("weft", "cast_4_64_mb", {**seen, "verdict": "CPU-bound"}, [1.5, 1.7])
        results.under("weft", "cast_8_64_mb", {**seen, "verdict": ""}, [1.02, 1.04])
        document = results.as_json()
        text = report.render_terminal(document)
        assert "CPU-bound (20 %)" in text and "<= 1.08 x: CPU-bound" in text
        assert "1.03 (20 %)" in text and "<= 1.06 x: met 1.03 x" in text
        met = {goal["key"]: goal["met"] for goal in document["goals"]}
        assert met["cast_4_64_mb"] is None and met["cast_8_64_mb"] is True
        assert "## Shaped hosts" not in report.render_terminal(Results({}).as_json())
    """)


def test_rows_of_a_run_of_their_own_stand_behind_those_of_a_whole_run():
    run("""
        import report
        from results import Results

        machine = dict.fromkeys(("cores", "processor", "memory", "system", "kernel"), "some")
        results = Results(machine)
        results.add("weft", "add_node", [0.05])
        document = results.as_json()
        page = report.with_part("# Results\\n\\nWhole.\\n", document, "the first command")
        page = report.with_part(page, document, "the second command")
        assert page.startswith("# Results\\n\\nWhole.\\n\\n## Rows of a run of their own\\n\\n`the second command`\\n")
        assert page.count("a node added and listed") == 1 and "first" not in page
        assert "\\n### Rows\\n" in page and "results.png" not in page
    """)


def test_a_slow_system_has_one_repetition_of_each_kind():
    run("""
        import bodies_hosts

        given = bodies_hosts.Plan("cast", 2, [4], warm=2, turns=3, limit_s=60)
        assert bodies_hosts.plan(given.text()).text() == given.text()
        assert list(given.repetitions(4)) == [(False, 1), (False, 2), (True, 3), (True, 4), (True, 5)]
        slow = bodies_hosts.Plan("cast", 2, [4], warm=2, turns=3, limit_s=0)
        assert list(slow.repetitions(4)) == [(False, 1), (True, 2)]
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
