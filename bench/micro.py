"""Measures sooner's microbenchmark beside Ray, process pools, Dask, loky and the machine's limits.

    make bench                                       everything, at most 45 minutes
    make bench ARGS=--quick                          everything shortened, about 4 minutes
    python bench/micro.py --only task --peers sooner,pool --repeat 5
    python bench/micro.py --only "node,delegation,head,transfer" --peers sooner,ray
    python bench/micro.py --only "broadcast,sort_,spill_,objects_" --peers sooner,ray,dask

Each round gives every peer a fresh process and the machine to itself, one peer after the other; a
number is the median over the windows of all rounds. Synchronous rows depend on where the kernel
puts the two processes: `--only sync --repeat 10` shows how much.

Prints a table with ratios and goals, and writes JSON and pictures to bench/out. The exit code is 1
when a row of sooner failed; a missed goal is no failure.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import environment, measure
from harness.runner import Runner
from plans import cluster as plan_cluster
from plans import hosts as plan_hosts
from plans import memory as plan_memory
from plans import recovery as plan_recovery
from plans.catalog import METRICS, RAY_FULL_ONLY, selected
from report import pages as report
from report.results import Results
from systems.peers import HOSTS_NAMES, NAMES

BUDGET_FULL_S = 44 * 60.0
BUDGET_QUICK_S = 190.0
# What draws a picture of a run, and its name.
PICTURES = {"report.chart": "results.png", "report.hosts_chart": "hosts.png"}
ROUNDS_FULL = 3
STARTS_FULL = 8
STARTS_QUICK = 4
# A Ray actor takes a quarter to half a second and 40 MiB; Ray runs 1,400 to 2,500 tasks a second.
TOO_SLOW = {
    "actors_1000_s": "a thousand actors would take minutes and 40 GiB",
    "actors_1000_mib": "a thousand actors would take minutes and 40 GiB",
    "million_rate": "a million tasks would take about ten minutes",
    "million_bytes": "a million tasks would take about ten minutes",
}


def _arguments(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench/micro.py", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--quick", action="store_true", help="one short round, about 4 minutes")
    parser.add_argument(
        "--only",
        default="",
        metavar="SUBSTRING,...",
        help="rows whose name contains one of these",
    )
    parser.add_argument(
        "--peers",
        default=",".join((*NAMES, *HOSTS_NAMES)),
        help="comma-separated, from: %(default)s; the limits always run",
    )
    parser.add_argument("--repeat", type=int, metavar="N", help="rounds (3; 1 with --quick)")
    parser.add_argument(
        "--publish",
        action="store_true",
        help="write bench/RESULTS.md and its pictures; with --only a part of the page",
    )
    options = parser.parse_args(given)
    options.peers = [name.strip() for name in options.peers.split(",") if name.strip()]
    names = (*NAMES, *HOSTS_NAMES)
    unknown = [name for name in options.peers if name not in names]
    if unknown or not options.peers:
        parser.error(f"--peers: {', '.join(unknown) or 'none'}; there are {', '.join(names)}")
    if options.repeat is not None and options.repeat < 1:
        parser.error(f"--repeat: {options.repeat}; at least 1")
    if options.only and not selected(options.only):
        known = ", ".join(metric.key for metric in METRICS)
        parser.error(f"--only: no row contains {options.only!r}; there are {known}")
    return options


def _probes(runner: Runner, peers: list[str], quick: bool, is_named: bool) -> None:
    """Measure once what needs a process of its own."""
    starts = STARTS_QUICK if quick else STARTS_FULL
    for _ in range(starts):
        for peer in ("sooner", "pool", "executor"):
            if peer in peers:
                runner.start_only(peer)
    if "sooner" in peers:
        runner.probe("twenty_actors", "sooner", 2 if quick else 5, 60)
        runner.probe("thousand_actors", "sooner", 1000, 60)
        runner.probe("million_rate", "sooner", 1_000_000, 120)
        runner.probe("million_memory", "sooner", 1_000_000, 120)
        runner.probe("idle", "sooner", 0, 30)
    plan_recovery.measure_all(runner, peers, quick)
    plan_cluster.measure_all(runner, peers, quick)
    plan_hosts.measure_all(runner, peers, quick)
    plan_memory.measure_all(runner, peers, quick, is_named)
    if "ray" in peers:
        reasons = dict(TOO_SLOW)
        if quick:
            reasons.update(dict.fromkeys(RAY_FULL_ONLY, "left out with --quick"))
            reasons["actors_20"] = "half a minute; left out with --quick"
            reasons["idle_mib"] = "left out with --quick"
        else:
            runner.probe("twenty_actors", "ray", 1, 120)
            runner.probe("idle", "ray", 0, 60)
        for key, reason in reasons.items():
            if key in runner.wanted and key not in runner.results.samples.get("ray", {}):
                runner.results.skip("ray", key, reason)


def _rounds(
    runner: Runner, peers: list[str], rounds: int, quick: bool, is_named: bool, begin: float
) -> None:
    """Visit the peers in turn.

    A visit that would pass the time budget is left out, and the table says so.
    """
    budget_s = BUDGET_QUICK_S if quick else BUDGET_FULL_S
    lasted: dict[str, float] = {}
    left_out: dict[str, int] = {}
    for index in range(rounds):
        print(f"==> round {index + 1} of {rounds}", flush=True)
        for peer in ("limits", *(peer for peer in peers if peer not in HOSTS_NAMES)):
            if time.monotonic() - begin + lasted.get(peer, 0.0) > budget_s:
                left_out[peer] = left_out.get(peer, 0) + 1
                continue
            start = time.monotonic()
            runner.rows(peer)
            lasted[peer] = time.monotonic() - start
        if index == 0:
            print(
                "==> fresh processes: starts, actors, a million tasks, idle, clusters", flush=True
            )
            _probes(runner, peers, quick, is_named)
    for peer, count in left_out.items():
        runner.results.notes.append(
            f"{peer}: {count} of {rounds} rounds left out to keep the time limit"
        )


def _publish(document: dict[str, object], pictures: list[Path], only: str, peers: str) -> None:
    page = environment.BENCH / "RESULTS.md"
    for picture in pictures:
        shutil.copyfile(picture, environment.BENCH / picture.name)
    if only:
        command = f"make bench ARGS='--only {only} --peers {peers} --publish'"
        page.write_text(report.with_part(page.read_text(), document, command))
        print("published: a part of bench/RESULTS.md", flush=True)
        return
    misses = environment.BENCH / "MISSES.md"
    page.write_text(
        report.render_results_md(document, misses=misses.read_text() if misses.exists() else "")
    )
    print("published: bench/RESULTS.md and its pictures", flush=True)


def _write(document: dict[str, object], python: Path) -> list[Path]:
    """Write the JSON and the pictures; those that could be drawn."""
    data = environment.OUT / "results.json"
    data.write_text(json.dumps(document, indent=1) + "\n")
    pictures = []
    for module, name in PICTURES.items():
        picture = environment.OUT / name
        drawn = subprocess.run(
            [str(python), "-m", module, str(data), str(picture)],
            cwd=environment.BENCH,
            timeout=120,
            check=False,
        )
        if drawn.returncode == 0 and picture.exists():
            pictures.append(picture)
    shown = [path.relative_to(environment.REPOSITORY) for path in (data, *pictures)]
    print("written: " + ", ".join(str(path) for path in shown), flush=True)
    return pictures


def main(given: list[str] | None = None) -> int:
    """Run what the arguments ask for; the exit code."""
    options = _arguments(sys.argv[1:] if given is None else given)
    python = environment.ensure_venv()
    environment.OUT.mkdir(exist_ok=True)
    logs = environment.OUT / "logs"
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir()
    for name in PICTURES.values():
        (environment.OUT / name).unlink(missing_ok=True)
    wanted = selected(options.only) if options.only else {metric.key for metric in METRICS}
    results = Results(environment.machine())
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as scratch:
        pace = measure.QUICK if options.quick else measure.FULL
        unwanted: dict[str, tuple[str, ...]] = {}
        if options.quick and not options.only:
            unwanted["ray"] = RAY_FULL_ONLY
        runner = Runner(python, Path(scratch), logs, pace, wanted, results, unwanted)
        rounds = options.repeat or (1 if options.quick else ROUNDS_FULL)
        try:
            _rounds(runner, options.peers, rounds, options.quick, bool(options.only), begin)
        except KeyboardInterrupt:
            results.notes.append("interrupted: what was measured so far")
    results.seconds = time.monotonic() - begin
    document = results.as_json()
    print("\n" + report.render_terminal(document) + "\n", flush=True)
    pictures = _write(document, python)
    if options.publish:
        _publish(document, pictures, options.only, ",".join(options.peers))
    return 1 if document["failures"].get("sooner") else 0


if __name__ == "__main__":
    sys.exit(main())
