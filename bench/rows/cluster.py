"""Rows on several nodes: tasks elsewhere, drivers, delegation, values, placement and locality.

Each is a probe of `harness/probes.py` that makes clusters of its own. The figures are those of two
papers: Ownership (Wang 2021) and Ray (Moritz 2018).
"""

from __future__ import annotations

import importlib
import itertools
import os
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

from bodies import cluster as bodies_cluster
from bodies import plain as bodies
from bodies import recovery as bodies_recovery
from harness import footprint, traffic
from systems.clusters import MIB, Nodes, at

Tell = Callable[..., None]

ROUNDS = 5
BATCH = 1000
MEGABYTE = 1_000_000
DRIVERS = (1, 2, 4)
BORROWERS = (1, 2, 4)
# How much of the given number of tasks is submitted to see what grows with it.
FEWER = 10
CLUSTER_NODES = 16
GROUPS = 50
LOCALITY_BYTES = {"100_kb": 100_000, "1_mb": 1_000_000, "10_mb": 10_000_000, "100_mb": 100_000_000}
# From this size on there are a tenth of the tasks: each has an argument that must be made first.
LOCALITY_LARGE_BYTES = 10_000_000
# Slots for arguments and copies of both nodes; the pages of a value that is gone are used again.
LOCALITY_STORE_BYTES = 1 << 30


def remote_tasks(api: Any, window_ms: int, tell: Tell) -> None:
    """Tasks on another node, one worker: synchronous, asynchronous, and Ownership's figure 13.

    The synchronous ones take turns with a ping-pong over TCP, so that both meet the same machine.
    Their leases are cached: the first tasks have fetched them. In figure 13 a driver submits tasks
    that all take the same 1 MB object of its own; the time of a task is the distance between two
    beginnings on the worker.
    """
    from rows import limits

    seconds = window_ms / 1000
    with Nodes(api) as nodes:
        nodes.add()
        nodes.connect()
        task, beginning = api.remote(bodies.ok), api.remote(bodies_cluster.began)
        _each(lambda: api.get(task.remote()), seconds / 2)
        ping_pong, sync, late, batches = [], [], [], []
        for _ in range(ROUNDS):
            ping_pong.append(_rate(_each(limits.tcp_ping_pong(), seconds)))
            took = _each(lambda: api.get(task.remote()), seconds)
            sync.append(_rate(took))
            late.append(1e6 * _percentile(took, 99))
            took = _each(lambda: api.get([task.remote() for _ in range(BATCH)]), seconds)
            batches.append(BATCH * _rate(took))
        tell(event="row", key="tcp_ping_pong", peer="limits", samples=ping_pong)
        tell(event="row", key="remote_task_sync", samples=sync)
        tell(event="row", key="remote_task_p99", samples=late)
        tell(event="row", key="remote_tasks_async", samples=batches)
        count = max(100, int(3000 * min(1.0, seconds)))
        means, lates = [], []
        ref = api.put(bodies_recovery.make(0, MEGABYTE))
        for _ in range(ROUNDS):
            begins = sorted(api.get([beginning.remote(ref) for _ in range(count)]))
            steps = [b - a for a, b in itertools.pairwise(begins)]
            means.append(1e6 * statistics.fmean(steps))
            lates.append(1e6 * _percentile(steps, 99))
        tell(event="row", key="remote_1_mb_us", samples=means)
        tell(event="row", key="remote_1_mb_p99", samples=lates)


def drivers(api: Any, count: int, tell: Tell) -> None:
    """One driver over four nodes beside one with as many CPUs; then 1, 2 and 4 nested drivers.

    All in one cluster and in turns. Processor time is that of every process of the cluster, this
    one included: what cannot grow on a machine with few CPUs is the rate, so the tasks of a
    CPU-second say whether drivers add work.
    """
    with Nodes(api) as nodes:
        one = nodes.add(num_cpus=4)
        four = [nodes.add() for _ in range(4)]
        nodes.connect()
        task = api.remote(bodies.ok)
        # A thousandth of what a node has, so that its CPUs are what limits.
        here = {"resources": {f"n{one}": 0.001}}
        driver = api.remote(bodies_cluster.drive)
        found: dict[str, list[float]] = {}

        def anywhere(number: int) -> dict[str, Any]:
            return {"resources": {f"n{four[number]}": 0.001}}

        def submit(options: list[dict[str, Any]]) -> float:
            share = count // len(options)
            tasks = [task.options(**option) for option in options]
            begin = time.perf_counter()
            for _ in range(share // (BATCH // len(options))):
                api.get([one.remote() for _ in range(BATCH // len(options)) for one in tasks])
            return count / (time.perf_counter() - begin)

        def nest(places: list[tuple[int, dict[str, Any]]]) -> tuple[float, float]:
            share = count // len(places)
            pids = footprint.marked(os.environ["BENCH_RUN"])
            before, begin = footprint.snapshot(pids).cpu_s, time.perf_counter()
            api.get(
                [driver.options(**at(node)).remote(share, BATCH, option) for node, option in places]
            )
            seconds = time.perf_counter() - begin
            return count / seconds, count / (footprint.snapshot(pids).cpu_s - before)

        def note(key: str, value: float) -> None:
            found.setdefault(key, []).append(value)

        for turn in range(1 + 3):
            rates = {
                "tasks_one_node": submit([here]),
                "tasks_four_nodes": submit([anywhere(number) for number in range(4)]),
                "nested_one_node": nest([(one, here)] * 4)[0],
            }
            for drivers_ in DRIVERS:
                places = [(four[number], anywhere(number)) for number in range(drivers_)]
                rate, rates[f"per_cpu_{drivers_}_drivers"] = nest(places)
                if drivers_ == 4:
                    rates["nested_four_nodes"] = rate
            if turn:
                for key, value in rates.items():
                    note(key, value)
        for key, samples in found.items():
            tell(event="row", key=key, samples=samples)


def delegation(api: Any, count: int, tell: Tell) -> None:
    """Tasks on one 1 MB object of the driver's, submitted by 1, 2 and 4 borrowers on another node.

    Counted is what the driver's own connections to other processes have carried: the owner's part,
    and nothing of the value itself, which the nodes bring. Then as many borrowers submit a tenth of
    the tasks: what is the same does not grow with them.
    """
    with Nodes(api) as nodes:
        nodes.add(num_cpus=2)
        nodes.connect()
        borrower = api.remote(bodies_recovery.delegate).options(**at(0))
        growth, rates = [], []
        for number in BORROWERS:
            kib: dict[int, list[float]] = {}
            for turn in range(1 + 2):
                for tasks in (count, count // FEWER):
                    rate, carried = _delegate(api, borrower, number, tasks)
                    if not turn:
                        continue
                    kib.setdefault(tasks, []).append(carried / 1024)
                    if tasks == count:
                        rates.append(rate)
            tell(event="row", key=f"delegation_kib_{number}", samples=kib[count])
            growth.append(min(kib[count]) / min(kib[count // FEWER]))
        tell(event="row", key="delegation_rate", samples=rates)
        tell(event="row", key="delegation_growth", samples=[max(growth)])


def _delegate(api: Any, borrower: Any, number: int, tasks: int) -> tuple[float, float]:
    """Tasks per second, and bytes at the owner."""
    ref = api.put(bodies_recovery.make(0, MEGABYTE))
    # Each borrower has a process of its own, and its connection.
    api.get([borrower.remote([ref], 10) for _ in range(number)])
    before, begin = traffic.of(os.getpid()), time.perf_counter()
    api.get([borrower.remote([ref], tasks // number) for _ in range(number)])
    seconds = time.perf_counter() - begin
    return tasks / seconds, traffic.between(before, traffic.of(os.getpid())).both_bytes


def add_node(api: Any, repeats: int, tell: Tell) -> None:
    """The time until a further node is listed by the head, from nothing."""
    samples = []
    with Nodes(api) as nodes:
        for _ in range(repeats):
            begin = time.perf_counter()
            nodes.add()
            samples.append(time.perf_counter() - begin)
    tell(event="row", key="add_node", samples=samples)


def cluster_16(api: Any, repeats: int, tell: Tell) -> None:
    """The time until a cluster of sixteen nodes is there and the head lists all of them."""
    samples = []
    for _ in range(repeats):
        begin = time.perf_counter()
        with Nodes(api) as nodes:
            for _ in range(CLUSTER_NODES - 1):
                nodes.add(wait=False)
            nodes.cluster.wait_for_nodes()
            samples.append(time.perf_counter() - begin)
    tell(event="row", key="cluster_16", samples=samples)


def groups(api: Any, repeats: int, tell: Tell) -> None:
    """Placement groups whose two bundles must be on two nodes: reserved on both, and given back."""
    util = importlib.import_module(f"{api.__name__}.util")
    samples = []
    with Nodes(api) as nodes:
        for _ in range(2):
            nodes.add()
        nodes.connect()
        for turn in range(1 + repeats):
            begin = time.perf_counter()
            bundles = [{"CPU": 0.001}] * 2
            made = [
                util.placement_group(bundles=bundles, strategy="STRICT_SPREAD")
                for _ in range(GROUPS)
            ]
            assert all(group.wait(timeout_seconds=30) for group in made)
            for group in made:
                util.remove_placement_group(group)
            if turn:
                samples.append(GROUPS / (time.perf_counter() - begin))
    tell(event="row", key="groups_two_nodes", samples=samples)


def transfer(api: Any, megabytes: int, tell: Tell) -> None:
    """A large value from another node into this one's memory, beside a copy of as many bytes."""
    from rows import limits

    size = megabytes * MEGABYTE
    store = {"object_store_memory": 2 * size + 256 * MIB}
    found, copied = [], []
    copy = limits.copy(1, size)
    with Nodes(api, **store) as nodes:
        nodes.add(**store)
        nodes.connect()
        task = api.remote(bodies_cluster.make).options(**at(0))
        for turn in range(1 + ROUNDS):
            copied.append(size / 1e9 * _rate(_each(copy, 0.3)))
            ref = task.remote(size // 8)
            api.wait([ref], fetch_local=False)
            begin = time.perf_counter()
            value = api.get(ref)
            seconds = time.perf_counter() - begin
            assert value.nbytes == size, "the value came with another size"
            # The first one meets memory that nobody has touched.
            if turn:
                found.append(size / 1e9 / seconds)
            del value, ref
    tell(event="row", key="memcpy_transfer", peer="limits", samples=copied)
    tell(event="row", key="transfer", samples=found)


def locality(api: Any, count: int, tell: Tell) -> None:
    """Ray, figure 8a: tasks that may run on either of two nodes; the argument lies on one of them.

    Each argument is new, because a copy that was brought once serves the next task. Two tasks are
    under way at a time. The figure's point is that the time of a task does not depend on the size
    of its argument.
    """
    choice = random.Random(8)
    store = {"object_store_memory": LOCALITY_STORE_BYTES}
    middle = {}
    with Nodes(api) as nodes:
        for _ in range(2):
            nodes.add(**store)
        nodes.connect()
        maker, reader = api.remote(bodies_cluster.make), api.remote(bodies_cluster.reads)
        for place in range(2):
            api.get(reader.options(**at(place)).remote(maker.options(**at(place)).remote(1)))
        for name, size in LOCALITY_BYTES.items():
            tasks = count // 10 if size >= LOCALITY_LARGE_BYTES else count
            took: list[float] = []
            while len(took) < max(4, tasks):
                refs = [
                    maker.options(**at(choice.randrange(2))).remote(size // 8) for _ in range(2)
                ]
                api.wait(refs, num_returns=2, fetch_local=False)
                begin = time.perf_counter()
                open_ = [reader.remote(ref) for ref in refs]
                while open_:
                    _, open_ = api.wait(open_, num_returns=1)
                    took.append(1e3 * (time.perf_counter() - begin))
            # The first ones meet memory that nobody has touched.
            took = took[len(took) // 4 :]
            middle[name] = statistics.fmean(took)
            tell(event="row", key=f"locality_{name}", samples=[middle[name]])
    tell(event="row", key="locality_growth", samples=[middle["100_mb"] / middle["100_kb"]])


def _each(body: Callable[[], object], seconds: float) -> list[float]:
    """Call a body for so long; what each call took (seconds)."""
    took = []
    end = time.perf_counter() + seconds
    while not took or time.perf_counter() < end:
        begin = time.perf_counter()
        body()
        took.append(time.perf_counter() - begin)
    return took


def _rate(took: list[float]) -> float:
    """Calls per second."""
    return len(took) / sum(took)


def _percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


PROBES: dict[str, Callable[[Any, int, Tell], None]] = {
    "remote_tasks": remote_tasks,
    "drivers": drivers,
    "delegation": delegation,
    "add_node": add_node,
    "cluster_16": cluster_16,
    "groups": groups,
    "transfer": transfer,
    "locality": locality,
}
