"""Measurements that need a fresh process: many actors, a million tasks, an idle engine, clusters.

    python -m harness.probes <probe> <workers> <argument> <descriptor>

Started by the runner with BENCH_API set; reports JSON lines on the descriptor, as the agent does.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bodies import plain as bodies
from plans.catalog import CLUSTER_PROBES, HOSTS_PROBES, MEMORY_PROBES
from systems import peers

MIB = 1 << 20
Tell = Callable[..., None]


def _actors(api: Any, count: int) -> tuple[float, list[Any]]:
    """Start actors and wait until each has answered one call; seconds, and the handles."""
    actor = api.remote(bodies.Server).options(num_cpus=0)
    begin = time.perf_counter()
    handles = [actor.remote() for _ in range(count)]
    answers = api.get([handle.ok.remote() for handle in handles])
    seconds = time.perf_counter() - begin
    assert answers == [b"ok"] * count
    return seconds, handles


def _first_task(api: Any) -> None:
    assert api.get(api.remote(bodies.ok).remote()) == b"ok"


def twenty_actors(api: Any, repeats: int, tell: Tell) -> None:
    """Twenty actors from nothing to the first answer of the last one."""
    _first_task(api)
    samples = []
    for _ in range(repeats):
        seconds, handles = _actors(api, 20)
        samples.append(seconds)
        del handles
        # The old ones end before the next ones are timed.
        time.sleep(0.5)
    tell(event="row", key="actors_20", samples=samples)


def thousand_actors(api: Any, count: int, tell: Tell) -> None:
    """A thousand actors alive at once: how long it takes, and what each weighs."""
    from harness import footprint

    _first_task(api)
    seconds, handles = _actors(api, count)
    tell(event="row", key="actors_1000_s", samples=[seconds])
    pids = api.get([handle.pid.remote() for handle in handles])
    assert len(set(pids)) == count, "actors share processes"
    weights = [footprint.private_bytes(pid) / MIB for pid in pids]
    tell(event="row", key="actors_1000_mib", samples=[sum(weights) / count])


def million_rate(api: Any, count: int, tell: Tell) -> None:
    """Queue all tasks at once and get them all; the rate, with every answer checked."""
    task = api.remote(bodies.ok)
    for _ in range(3):
        api.get([task.remote() for _ in range(1000)])
    begin = time.perf_counter()
    refs = [task.remote() for _ in range(count)]
    answers = api.get(refs)
    seconds = time.perf_counter() - begin
    assert answers.count(b"ok") == count, "not every task answered"
    tell(event="row", key="million_rate", samples=[count / seconds])


def million_memory(api: Any, count: int, tell: Tell) -> None:
    """What a pending task costs the driver: every CPU is held while all are queued.

    Counted is everything the driver grew by, the list and the ref objects included.
    """
    import tempfile

    from bodies import core as bodies_core
    from harness import footprint

    workers = int(api.cluster_resources()["CPU"])
    task = api.remote(bodies.ok)
    hold = api.remote(bodies_core.hold)
    api.get([task.remote() for _ in range(1000)])
    with tempfile.TemporaryDirectory() as scratch:
        gate = Path(scratch) / "gate"
        started = [Path(scratch) / f"started-{index}" for index in range(workers)]
        holders = [hold.remote(str(path), str(gate)) for path in started]
        while not all(path.exists() for path in started):
            time.sleep(0.01)
        before = footprint.anonymous_bytes("self")
        refs = [task.remote() for _ in range(count)]
        # What is still being handed over settles; no task can have run.
        time.sleep(0.5)
        grown = footprint.anonymous_bytes("self") - before
        done, _ = api.wait(refs[:1], num_returns=1, timeout=0)
        assert not done, "a task ran although every CPU was held"
        gate.touch()
        answers = api.get(refs)
        api.get(holders)
    assert answers.count(b"ok") == count, "not every task answered"
    tell(event="row", key="million_bytes", samples=[grown / count])


PROBES: dict[str, Callable[[Any, int, Tell], None]] = {
    "twenty_actors": twenty_actors,
    "thousand_actors": thousand_actors,
    "million_rate": million_rate,
    "million_memory": million_memory,
}


def _probe(name: str) -> Callable[[Any, int, Tell], None]:
    if name in PROBES:
        return PROBES[name]
    if name in CLUSTER_PROBES:
        from rows import cluster as rows_cluster
        from rows import cluster_failure as rows_cluster_failure

        return (rows_cluster.PROBES | rows_cluster_failure.PROBES)[name]
    # Imported late: the module needs the engine, which an idle probe must not have loaded.
    from rows import recovery as rows_recovery

    return rows_recovery.PROBES[name]


def idle(name: str, workers: int, tell: Tell) -> None:
    """Only start the engine and stand still; the runner weighs the processes from outside."""
    tell(event="before")
    sys.stdin.readline()
    _, _, stop = peers.start_core(name, workers)
    tell(event="after")
    sys.stdin.readline()
    stop()


def main() -> None:
    """Run one probe."""
    probe, workers, argument = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    descriptor = int(sys.argv[4])
    os.set_inheritable(descriptor, False)

    def tell(**event: object) -> None:
        os.write(descriptor, json.dumps(event).encode() + b"\n")

    name = os.environ["BENCH_API"]
    if probe == "idle":
        idle(name, workers, tell)
    elif probe in HOSTS_PROBES:
        from rows import hosts as rows_hosts

        rows_hosts.run(probe, name, argument, tell)
    elif probe in MEMORY_PROBES:
        from rows import memory as rows_memory

        rows_memory.run(probe, name, workers, argument, tell)
    elif probe in CLUSTER_PROBES:
        api = importlib.import_module(name)
        tell(event="started", version=api.__version__)
        _probe(probe)(api, argument, tell)
    else:
        api, version, stop = peers.start_core(name, workers)
        tell(event="started", version=version)
        _probe(probe)(api, argument, tell)
        stop()
    tell(event="done")


if __name__ == "__main__":
    main()
