"""`sooner drain-node`: a node of the cluster leaves in order."""

from __future__ import annotations

import argparse
import os
import sys
import time

from sooner import _sooner
from sooner._session.sessions import choose_session
from sooner._state import rows
from sooner._state.snapshot import Row, Snapshot

NOT_FOUND = 1
_DEADLINE_SECONDS = 60.0
# The longest deadline that the head accepts (seconds).
_DEADLINE_SECONDS_MAX = 3600.0
# The head ends a node that does not leave in time. How long its message may take after that (seconds).
_GRACE_SECONDS = 10.0
_LOOK_SECONDS = 0.05


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `sooner drain-node`."""
    parser.add_argument(
        "node", metavar="NODE", help="name or id of the node, or the end of its id: see sooner list nodes"
    )
    parser.add_argument(
        "--deadline",
        type=float,
        default=_DEADLINE_SECONDS,
        metavar="S",
        help=f"end it after this time whatever runs (seconds; {_DEADLINE_SECONDS:g})",
    )
    parser.add_argument(
        "--no-wait", action="store_true", help="return when the head knows; sooner list nodes shows the rest"
    )
    parser.add_argument("--address", metavar="DIR", help="the directory of the node to ask; the only one by default")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--timeout", type=float, default=30, metavar="S", help="wait so long for an answer (seconds)")


def drain_node(options: argparse.Namespace) -> int:
    """Makes a node leave, and returns when it has left."""
    if options.timeout <= 0:
        raise ValueError("--timeout must be a positive number of seconds")
    if not 0 < options.deadline <= _DEADLINE_SECONDS_MAX:
        raise ValueError(
            f"--deadline must be between 0 and {_DEADLINE_SECONDS_MAX:g} seconds, not {options.deadline:g}"
        )
    directory = choose_session(options.address)
    node = _find(list(rows.nodes(Snapshot(directory, 0, timeout=options.timeout))), options.node)
    if node is None:
        print(
            f"sooner drain-node: there is no node {options.node} in the cluster: see sooner list nodes", file=sys.stderr
        )
        return NOT_FOUND
    start = time.monotonic()
    socket = os.path.join(directory, "node.sock")
    _sooner.drain_node(socket, int(node["node_id"], 16), int(options.deadline * 1e9), int(options.timeout * 1e9))
    if not options.json:
        print(f"node {node['node_name']} is to leave within {options.deadline:g} s", flush=True)
    has_left = not options.no_wait and _wait(directory, node["node_id"], start + options.deadline + _GRACE_SECONDS)
    seconds = time.monotonic() - start
    if options.json:
        import json  # start-up: 2.2 ms

        print(
            json.dumps(
                {"node_id": node["node_id"], "node_name": node["node_name"], "left": has_left, "seconds": seconds}
            )
        )
    elif has_left:
        print(f"node {node['node_name']} has left after {seconds:.1f} s")
    elif not options.no_wait:
        text = "has not left in time: see sooner list nodes; sooner stop --force on its machine kills it"
        print(f"sooner drain-node: node {node['node_name']} {text}", file=sys.stderr)
    return 0 if has_left or options.no_wait else NOT_FOUND


def _find(nodes: list[Row], wanted: str) -> Row | None:
    by_name = [node for node in nodes if node["node_name"] == wanted]
    found = by_name or [node for node in nodes if node["node_id"].endswith(wanted.lower())]
    if len(found) > 1:
        raise ValueError(f"{len(found)} ids of nodes end in {wanted}; give more of it")
    return found[0] if found else None


def _wait(directory: str, node: str, deadline: float) -> bool:
    while time.monotonic() < deadline:
        try:
            listed = {row["node_id"] for row in rows.nodes(Snapshot(directory, 0))}
        except OSError:
            # The node that is asked may be the one that leaves.
            if not os.path.exists(os.path.join(directory, "node.sock")):
                return True
            listed = {node}
        if node not in listed:
            return True
        time.sleep(_LOOK_SECONDS)
    return False
