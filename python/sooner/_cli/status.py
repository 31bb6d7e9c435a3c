"""`sooner status`: the resources and the work of a program or a cluster, on one page."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from sooner._session import trust
from sooner._session.membership import membership
from sooner._session.sessions import running_nodes
from sooner._state import snapshot as _snapshot
from sooner._state import text
from sooner._state.snapshot import Row, Snapshot

# How long a node may take that is asked instead of a stopped one (seconds). It waits 0.75 s for the stopped
# node itself.
_STANDS_IN_S = 2.0


class Stopped(NamedTuple):
    """A node whose process exists and executes nothing (SIGSTOP, a debugger): nothing can be asked of it."""

    directory: str
    pid: int
    told: dict[str, str]

    @property
    def is_head(self) -> bool:
        """Whether it is the head of its cluster."""
        return "address" in self.told and self.told["address"] == self.told["head"]

    @property
    def problem(self) -> str:
        """The problem in words, with its solution."""
        name = "the head of the cluster" if self.is_head else "the node"
        return (
            f"{name} does not answer: its process {self.pid} is stopped (SIGSTOP, or a debugger). Continue it with: "
            f"kill -CONT {self.pid}"
        )


def ask(directory: str, timeout: float) -> tuple[Snapshot | None, Stopped | None]:
    """Asks a session's node; if that is stopped, another node of its cluster on this machine.

    Args:
        directory: The session's directory.
        timeout: How long its node may take (seconds). A stopped node is not waited for.

    Returns:
        The answers, None if there are none; and the session's node if it is stopped.

    Raises:
        OSError: No node is there, or it runs and does not answer in time.
        UntrustedPathError: Another user listens there.
    """
    about = _snapshot.TASKS | _snapshot.ACTORS
    stopped = _stopped(directory)
    if stopped is None:
        try:
            return Snapshot(directory, about, timeout=timeout, everywhere=True), None
        except TimeoutError:
            stopped = _stopped(directory)
            if stopped is None:
                raise
    cluster = stopped.told.get("fingerprint")
    for other in running_nodes() if cluster else ():
        if other != directory and membership(other).get("fingerprint") == cluster and _stopped(other) is None:
            with contextlib.suppress(OSError):
                return Snapshot(other, about, timeout=min(timeout, _STANDS_IN_S), everywhere=True), stopped
    return None, stopped


def _stopped(directory: str) -> Stopped | None:
    # The node's socket exists and tells its process id as long as the process exists.
    with trust.connect(directory, "node.sock", timeout=_STANDS_IN_S) as socket:
        pid, _ = trust.peer_of(socket)
    return Stopped(directory, pid, membership(directory)) if _is_stopped(pid) else None


def _is_stopped(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            # The process's name in brackets may contain any text.
            return file.read().rpartition(") ")[2][:1] in ("T", "t")
    except OSError:
        return False


def known_of(stopped: Stopped) -> Row:
    """What is known of a stopped node when no other node answers."""
    known: Row = {"session": stopped.directory, "node": f"process {stopped.pid}, stopped"}
    if stopped.told:
        known["cluster"] = f"{stopped.told['fingerprint']}, head at {stopped.told['head']}"
    return known | {"problem": stopped.problem}


def lines(status: Row) -> Iterator[str]:
    """The lines of a row of `status_of`, for people."""
    yield f"session    {status['session_dir']}"
    up = f"up {status['uptime_s']:.0f} s"
    others = status["other_nodes"]
    if status["node_name"] is not None:
        own = f": {text.in_use(status)} in use" if others else ""
        yield f"node       {status['node_name']} (process {status['node_pid']}, {up}){own}"
        yield from (f"node       {_other_node(node)}" for node in others)
        if status["cluster"]:
            yield f"cluster    {_cluster(status['cluster'])}"
        for job in status["jobs"]:
            entrypoint = text.cell(job["entrypoint"] or "ended, but not its detached actors")
            yield f"program    {entrypoint} (process {job['driver_pid']})"
    else:
        yield f"program    {status['entrypoint']} (process {status['driver_pid']}, {up})"
    # The lines from here on are about all nodes.
    yield from _amounts([status, *others])
    for name in ("workers", "actors", "tasks"):
        yield f"{name.ljust(10)} {text.cell(status[name]) if status[name] else 'none'}"
    if status["placement_groups"]:
        yield f"groups     {text.cell(status['placement_groups'])}"
    for demand in status["demand"]:
        yield f"demand     {demand['count']} x {text.cell(demand['resources'])}"
    for line in status["problems"]:
        yield f"problem    {line}"


def _cluster(cluster: Row) -> str:
    count = cluster["nodes"]
    line = f"{cluster['fingerprint']}, {count} node{'s' if count != 1 else ''}, head at {cluster['head']}"
    return f"{line}; no connection to it: {cluster['lost']}" if cluster["lost"] else line


def _other_node(node: Row) -> str:
    state = "" if node["state"] == "ALIVE" else f" {node['state']}"
    line = f"{node['node_name']} at {node['address']}{state}"
    return f"{line}: {text.in_use(node)} in use"


def _amounts(nodes: list[Row]) -> Iterator[str]:
    """What is in use of the resources and the memory of these nodes together, as far as that is known."""
    used: dict[str, float] = {}
    totals: dict[str, float] = {}
    for node in nodes:
        if node["resources_available"] is not None:
            for name, total in text.shown_resources(node["resources_total"]).items():
                totals[name] = totals.get(name, 0) + total
                used[name] = used.get(name, 0) + total - node["resources_available"][name]
    # CPUs and GPUs come first, even if the first node, a head for instance, has none.
    for name, total in sorted(totals.items(), key=lambda one: one[0] not in ("CPU", "GPU")):
        yield f"{name.ljust(10)} {text.amounts(name, used[name], total)} in use"
    stores = [node for node in nodes if node["object_store_used_bytes"] is not None]
    store = [sum(node[f"object_store_{key}_bytes"] for node in stores) for key in ("used", "capacity")]
    yield f"store      {text.size(store[0])} of {text.size(store[1])} in use"
