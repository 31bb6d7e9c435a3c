"""The benchmark fits together: what a run plans is there, and what is counted is counted rightly."""

from __future__ import annotations

import ast
import os
from pathlib import Path

from support import run_driver

BENCH = Path(__file__).resolve().parent.parent / "bench"


def run(code):
    run_driver(code, env=os.environ | {"BENCH_API": "sooner"}, cwd=BENCH)


def test_rows_probes_plans_and_goals_fit_together():
    run("""
        from harness import probes
        from plans import catalog, cluster as plan_cluster, hosts as plan_hosts, memory as plan_memory
        from systems import hosts_systems, memory_systems
        from rows import cluster as rows_cluster, cluster_failure as rows_cluster_failure
        from rows import hosts as rows_hosts, recovery as rows_recovery

        known = {"idle", *probes.PROBES, *rows_recovery.PROBES}
        of_clusters = {**rows_cluster.PROBES, **rows_cluster_failure.PROBES}
        assert set(of_clusters) == set(catalog.CLUSTER_PROBES) == set(plan_cluster._SOONER)
        of_hosts = {name: tuple(probe.keys.values()) for name, probe in rows_hosts.PROBES.items()}
        assert {name: catalog.PROBE_KEYS[name] for name in catalog.HOSTS_PROBES} == of_hosts
        of_memory = set(plan_memory._SIZES)
        assert of_memory == set(catalog.MEMORY_PROBES)
        assert {*known, *of_clusters, *of_hosts, *of_memory} == set(catalog.PROBE_KEYS)
        weighed = [system for systems in plan_memory.SYSTEMS.values() for system in systems]
        assert set(weighed) == set(memory_systems.SYSTEMS) == set(plan_memory._PROBES) <= set(catalog.TITLES)
        for name in of_memory - set(plan_memory._ALONE):
            for system in weighed:
                # Whatever a system does not run has a reason.
                assert plan_memory._left_out(name, system, False, True) != "", (name, system)
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


def test_rows_on_memory_in_short(tmp_path):
    run_driver(
        """
        from bodies import memory as bodies_memory
        from rows import memory as rows_memory

        found = {}
        def tell(event, key="", samples=(), **_):
            if event == "row":
                found[key] = samples

        rows_memory.broadcast("sooner", 2, 4, tell)
        rows_memory.sort_memory("sooner", 2, 16, tell)
        # What two tasks read and write at a time must fit; Dask's partitions differ by a factor of four.
        rows_memory.SPILL_FACTOR = 1.2
        rows_memory.sort_spill("sooner", 2, 60, 30, tell)
        rows_memory.small_objects(2, 2_000_000, tell)
        assert {"broadcast_sum", "broadcast_items_cpu", "bare_sum_s", "sort_memory", "sort_30"} <= set(found), found
        assert 0 < found["sort_30_store"][0] <= 0.051, "the store is larger than its limit"
        assert found["sort_30_peak"][0] >= found["sort_30_heaps"][0] > 0
        assert found["objects_bytes"][0] > 0
        """,
        env=os.environ | {"BENCH_API": "sooner", "BENCH_RUN": tmp_path.name, "DASK_TEMPORARY_DIRECTORY": str(tmp_path)},
        cwd=BENCH,
    )


def test_values_are_written_and_read_in_turns_with_dd(tmp_path):
    run_driver(
        """
        from rows import memory as rows_memory

        rows_memory.SPILL_STORE, rows_memory.SPILL_VALUE = 32_000_000, 4_000_000
        found = {}
        rows_memory.spill(2, 64, lambda event, key="", samples=(), **_: found.update({key: samples}))
        assert all(len(found[key]) == rows_memory.SPILL_TURNS for key in ("dd_write", "dd_read"))
        assert all(rate > 0 for key in ("spill_write", "spill_read") for rate in found[key])
        """,
        env=os.environ | {"BENCH_API": "sooner", "DASK_TEMPORARY_DIRECTORY": str(tmp_path)},
        cwd=BENCH,
    )
    assert not list(tmp_path.iterdir())


def test_a_table_that_is_not_sorted_is_noticed():
    run("""
        from bodies import memory as bodies_memory
        import pandas as pd

        def judged(*parts):
            return pd.concat([bodies_memory.judged(pd.DataFrame(index=part)) for part in parts])

        def refused(*parts, rows=4):
            try:
                bodies_memory.verify(judged(*parts), rows)
            except AssertionError:
                return True
            return False

        assert not refused([1.0, 2.0], [], [2.0, 3.0])
        assert refused([1.0, 2.0], [1.5, 3.0])
        assert refused([2.0, 1.0], [2.0, 3.0])
        assert refused([1.0, 2.0], [2.0], rows=4)
    """)


def test_the_heaviest_moment_is_seen(tmp_path):
    run_driver(
        """
        import mmap, os, time
        from harness.heaviest import EVERY_S, Heaviest

        size = 50_000_000
        with Heaviest() as heaviest:
            block = bytearray(os.urandom(1)) * size
            shared = os.memfd_create("bench")
            os.ftruncate(shared, 10 * size)
            os.pwrite(shared, block, 0)
            time.sleep(4 * EVERY_S)
            del block
        # What is not written takes no memory.
        assert size <= heaviest.shared < 2 * size, heaviest.shared
        assert heaviest.private >= size
        assert heaviest.total >= heaviest.shared + size
        """,
        env=os.environ | {"BENCH_RUN": tmp_path.name},
        cwd=BENCH,
    )


def test_what_is_no_comparison_is_not_shown_as_one():
    run("""
        from report import pages as report
        from systems import shaped
        from report.results import Results

        link = shaped.Link(goodput=59.0, expected=59.6, seconds={})
        assert shaped.verdict(0.25, link, 0.1) == ""
        assert shaped.verdict(0.24, link, 0.1) == "CPU-bound"
        assert shaped.verdict(0.25, link, 0.2) == "disturbed"
        assert shaped.verdict(0.25, shaped.Link(58.0, 59.6, {}), 0.1) == "disturbed"

        results = Results({})
        seen = {"idle": 0.2, "goodput": 59.0, "expected": 59.6, "load": 0.1, "count": 2}
        results.under("sooner", "cast_4_64_mb", {**seen, "verdict": "CPU-bound"}, [1.5, 1.7])
        results.under("sooner", "cast_8_64_mb", {**seen, "verdict": ""}, [1.02, 1.04])
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
        from report import pages as report
        from report.results import Results

        machine = dict.fromkeys(("cores", "processor", "memory", "system", "kernel"), "some")
        results = Results(machine)
        results.add("sooner", "add_node", [0.05])
        document = results.as_json()
        page = report.with_part("# Results\\n\\nWhole.\\n", document, "the first command")
        page = report.with_part(page, document, "the second command")
        assert page.startswith("# Results\\n\\nWhole.\\n\\n## Rows of a run of their own\\n\\n`the second command`\\n")
        assert page.count("a node added and listed") == 1 and "first" not in page
        assert "\\n### Rows\\n" in page and "results.png" not in page
        memory = Results(machine)
        memory.add("sooner", "sort_memory", [5.0])
        for _ in range(2):
            page = report.with_part(page, memory.as_json(), "the third command")
        assert page.count("## Memory in a run of its own") == page.count("`the second command`") == 1
    """)


def test_a_slow_system_has_one_repetition_of_each_kind():
    run("""
        from bodies import hosts as bodies_hosts

        given = bodies_hosts.Plan("cast", 2, [4], warm=2, turns=3, limit_s=60)
        assert bodies_hosts.plan(given.text()).text() == given.text()
        assert list(given.repetitions(4)) == [(False, 1), (False, 2), (True, 3), (True, 4), (True, 5)]
        slow = bodies_hosts.Plan("cast", 2, [4], warm=2, turns=3, limit_s=0)
        assert list(slow.repetitions(4)) == [(False, 1), (True, 2)]
    """)


def test_traffic_is_what_was_sent():
    run("""
        import os, socket
        from harness import traffic

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


def options_twice(text):
    """The lines that ask what `.options` gave for `.options`: Ray's functions with options have none."""
    found = []

    def gives_options(node):
        return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "options"

    for function in ast.walk(ast.parse(text)):
        if not isinstance(function, ast.FunctionDef):
            continue
        made = [node for node in ast.walk(function) if isinstance(node, ast.Assign) and gives_options(node.value)]
        names = {target.id for node in made for target in node.targets if isinstance(target, ast.Name)}
        for node in filter(gives_options, ast.walk(function)):
            of = node.func.value
            if gives_options(of) or (isinstance(of, ast.Name) and of.id in names):
                found.append(node.lineno)
    return sorted(set(found))


def test_rows_ask_for_options_as_ray_has_them():
    planted = "def f(a):\n    t = a.remote(g).options(x=1)\n    def h():\n        return t.options(y=2)\n    return h"
    assert options_twice(planted) == [4]
    assert options_twice("def f(t):\n    return t.options(x=1).options(y=2)") == [2]
    texts = {str(path.relative_to(BENCH)): path.read_text() for path in BENCH.rglob("*.py")}
    assert len(texts) > 40
    assert {name: lines for name, text in texts.items() if (lines := options_twice(text))} == {}
