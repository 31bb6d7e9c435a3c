"""What a node, a connection, a process, a heartbeat and a lease cost: bytes, segments, descriptors.

    python bench/cluster_cost.py [--seconds 4] [--leases 4] [--tasks 1000] [--actors 8]

Counted by the kernel on the connections of real daemons (harness/traffic.py), so nothing in the
engine counts for it. A segment carries one message, or several that were written together. Figures
of docs/scale.md are from here.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

# Workers import this directory, as those of the benchmark do.
os.environ.setdefault("BENCH_API", "sooner")

import sooner
from bodies import plain as bodies
from harness import footprint, traffic
from harness.traffic import Traffic
from systems.clusters import Nodes, at

MIB = 1 << 20
# A lease that is not used is given back after 50 ms; then the nodes report, at most every 50 ms.
LEASE_PAUSE_S = 0.4
SETTLE_S = 0.5


@dataclass(frozen=True)
class Daemon:
    """What a daemon has at one moment."""

    descriptors: int
    connections: int
    threads: int
    mib: float

    @classmethod
    def now(cls, pid: int) -> Daemon:
        """Look at it."""
        found = footprint.snapshot([pid])
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))
        return cls(descriptors, len(traffic.of(pid)), found.threads, found.pss / MIB)

    def line(self) -> str:
        """All of it in words."""
        return (
            f"{self.descriptors} descriptors, {self.connections} TCP connections, "
            f"{self.threads} threads, {self.mib:.1f} MiB"
        )


def say(what: str, text: str) -> None:
    """Print one row."""
    print(f"{what:46} {text}", flush=True)


def carried(one: Traffic, parts: float = 1) -> str:
    """Traffic in words, divided among so many."""
    return (
        f"{one.bytes_sent / parts:,.0f} B sent in {one.segments_sent / parts:.1f} segments, "
        f"{one.bytes_received / parts:,.0f} B received in {one.segments_received / parts:.1f}"
    )


def nodes_and_heartbeats(nodes: Nodes, seconds: float) -> None:
    """What daemons hold, what joining takes, and what standing still takes."""
    head = nodes.cluster.head_node.pid
    say("head alone", Daemon.now(head).line())
    for count in range(1, 4):
        nodes.add()
        time.sleep(SETTLE_S)
        say(f"head with {count} more", Daemon.now(head).line())
        pid = nodes.added[-1].pid
        say(f"node {count}", Daemon.now(pid).line())
        say("  its joining", carried(traffic.total(traffic.of(pid).values())))
    pids = [head, *(node.pid for node in nodes.added)]
    before = [traffic.of(pid) for pid in pids]
    cpu = footprint.snapshot(pids).cpu_s
    time.sleep(seconds)
    spent = 1000 * (footprint.snapshot(pids).cpu_s - cpu) / seconds / len(pids)
    moved = [traffic.between(b, traffic.of(pid)) for b, pid in zip(before, pids, strict=True)]
    say("idle, head, a second", carried(moved[0], seconds))
    say("idle, each other node, a second", carried(traffic.total(moved[1:]), 3 * seconds))
    say("idle, processor of each daemon", f"{spent:.2f} ms in a second")


def processes_and_leases(nodes: Nodes, leases: int, tasks: int) -> None:
    """What a connection between processes, a task and a lease take."""
    head, node = nodes.cluster.head_node.pid, nodes.added[0].pid
    own = os.getpid()
    task = sooner.remote(bodies.ok).options(**at(0))
    descriptors = [len(os.listdir(f"/proc/{pid}/fd")) for pid in (own, head, node)]
    sooner.get(task.remote())
    line = traffic.total(traffic.of(own).values())
    say("connection to a process elsewhere, and one task", carried(line))
    after = [len(os.listdir(f"/proc/{pid}/fd")) for pid in (own, head, node)]
    more = ", ".join(
        f"{name} {b - a:+d}"
        for name, a, b in zip(
            ("driver", "its node", "the worker's node"), descriptors, after, strict=True
        )
    )
    say("  descriptors", more)
    before = traffic.of(own)
    for _ in range(tasks):
        sooner.get(task.remote())
    say("task on a cached lease, synchronous", carried(_since(before, own), tasks))
    before = traffic.of(own)
    sooner.get([task.remote() for _ in range(tasks)])
    say("task on a cached lease, in a batch", carried(_since(before, own), tasks))
    time.sleep(LEASE_PAUSE_S)
    quiet = traffic.of(node)
    time.sleep(LEASE_PAUSE_S)
    still = _since(quiet, node)
    before = traffic.of(node)
    for _ in range(leases):
        sooner.get(task.remote())
        time.sleep(LEASE_PAUSE_S)
    moved = _since(before, node)
    at_rest = Traffic(
        *(leases * part for part in (still.bytes_sent, still.bytes_received)),
        *(leases * part for part in (still.segments_sent, still.segments_received)),
    )
    say("lease got and given back, the worker's node", carried(moved - at_rest, leases))


def actors(nodes: Nodes, count: int) -> None:
    """What a further process takes: actors on one node, made by a driver on another."""
    head, node, own = nodes.cluster.head_node.pid, nodes.added[0].pid, os.getpid()
    actor = sooner.remote(bodies.Server).options(**at(0))

    def held() -> list[int]:
        return [len(os.listdir(f"/proc/{pid}/fd")) for pid in (own, head, node)]

    before, seen = held(), [traffic.of(pid) for pid in (own, head, node)]
    made = [actor.remote() for _ in range(count)]
    pids = sooner.get([one.pid.remote() for one in made])
    time.sleep(SETTLE_S)
    moved = [_since(old, pid) for old, pid in zip(seen, (own, head, node), strict=True)]
    names = ("driver", "its node, the head", "the actor's node")
    for name, old, new, one in zip(names, before, held(), moved, strict=True):
        say(
            f"actor elsewhere, {name}",
            f"{(new - old) / count:+.1f} descriptors, {carried(one, count)}",
        )
    own_descriptors = len(os.listdir(f"/proc/{pids[0]}/fd"))
    private = footprint.private_bytes(pids[0]) / MIB
    say(
        "actor elsewhere, its process",
        f"{own_descriptors} descriptors, {private:.1f} MiB of its own",
    )


def _since(before: dict[str, Traffic], pid: int) -> Traffic:
    return traffic.between(before, traffic.of(pid))


def main() -> None:
    """Print one line per cost."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=4.0, help="how long nothing happens")
    parser.add_argument("--leases", type=int, default=4)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--actors", type=int, default=8)
    asked = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    with Nodes(sooner) as nodes:
        nodes_and_heartbeats(nodes, asked.seconds)
        nodes.connect()
        processes_and_leases(nodes, asked.leases, asked.tasks)
        actors(nodes, asked.actors)


if __name__ == "__main__":
    main()
