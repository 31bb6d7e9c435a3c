"""`sooner token`: the secret of the cluster on this machine, and how it is changed while the cluster runs.

`docs/adr/0062-changing-the-token.md` says why there are three steps. Each step is done on every machine
before the next step.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time

from sooner._cli.nodes import NodeProcess
from sooner._session import sessions, trust
from sooner._session.membership import base_directory, cluster_directory, membership

FAILED = 1
# How long a node may take to read its token again (seconds).
_RENEW_SECONDS = 10.0
_LOOK_SECONDS = 0.01
_NEXT = {
    "rotate": "Nodes here believe both tokens now. On the other machines, with this one in SOONER_TOKEN, say "
    "`sooner token rotate`; when all have it, say `sooner token switch` everywhere",
    "switch": "Nodes here show the new token now, and believe both. When all machines have got so far, say "
    "`sooner token finish` everywhere",
    "finish": "Nodes here believe the new token alone",
    "renew": "Nodes here have read it again",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `sooner token`."""
    parser.add_argument(
        "step",
        nargs="?",
        choices=("print", *_NEXT),
        default="print",
        help="print it (the default); rotate: believe a new one, too; switch: show the new one; finish: drop the old "
        "one; renew: have nodes read the file again",
    )
    parser.add_argument("--token-file", metavar="FILE", help="the file; that of the cluster on this machine by default")
    parser.add_argument("--cluster-dir", metavar="DIR", help="the directory of the cluster on this machine")
    parser.add_argument("--json", action="store_true", help="print JSON")


def token(options: argparse.Namespace) -> int:
    """Prints the token of the cluster on this machine, a secret, or does a step of changing it."""
    try:
        path = _path(options)
        return _print(path, options.json) if options.step == "print" else _change(path, options)
    except (OSError, TimeoutError) as error:
        print(f"sooner token: {error}", file=sys.stderr)
        return FAILED


def _path(options: argparse.Namespace) -> str:
    """The path of the token's file.

    Raises:
        UntrustedPathError: The file would be in a directory that is not this user's alone.
    """
    if options.token_file is not None:
        return os.path.abspath(str(options.token_file))
    directory = cluster_directory(options.cluster_dir)
    base = base_directory()
    if directory.startswith(f"{base}/"):
        # If there is no cluster, reading the token reports that.
        with contextlib.suppress(FileNotFoundError):
            os.close(trust.open_directory(base))
    return os.path.join(directory, "token")


def _print(path: str, as_json: bool) -> int:
    from sooner import _sooner

    text = _sooner.read_token(path)
    if as_json:
        import json  # start-up: 2.0 ms

        print(json.dumps({"token": text, "token_file": path}))
    else:
        print(text)
    return 0


def _change(path: str, options: argparse.Namespace) -> int:
    from sooner import _sooner

    nodes = [node for node in sessions.running_nodes() if membership(node).get("token_file") == path]
    given = os.environ.get("SOONER_TOKEN") or None
    has_head = any(told["address"] == told["head"] for told in map(membership, nodes) if "address" in told)
    if options.step == "rotate" and nodes and not has_head and given is None:
        raise OSError(
            "the head of this cluster is on another machine: say `sooner token rotate` there first, and here put the "
            "token that it prints into SOONER_TOKEN"
        )
    new, believed, held = _sooner.change_token(path, options.step, given)
    try:
        _renew(nodes, " ".join(believed))
    finally:
        # The open descriptors keep other processes from doing a step until here.
        for descriptor in held:
            os.close(descriptor)
    if options.json:
        import json  # start-up: 2.0 ms

        print(json.dumps({"token": new, "token_file": path, "nodes": nodes}))
    else:
        print(new)
        print(f"{_NEXT[options.step]}.", file=sys.stderr)
    return 0


def _renew(nodes: list[str], expected: str) -> None:
    """Makes nodes read their token again, and waits until they have.

    Args:
        nodes: Their directories.
        expected: The fingerprints of the tokens that they are to believe.

    Raises:
        OSError: A node refuses, or does not answer.
    """
    before = {node: _written(node) for node in nodes}
    for node in nodes:
        process = NodeProcess(node)
        if process.fault is not None:
            raise OSError(f"process {process.pid} is not proven to be the node in {node}: {process.fault}")
        process.signal(signal.SIGUSR1)
        process.close()
    deadline = time.monotonic() + _RENEW_SECONDS
    for node in nodes:
        while _written(node) == before[node]:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"the file is changed, but the node in {node} has not read it within {_RENEW_SECONDS:.0f} s: say "
                    "`sooner token renew` when it goes on"
                )
            time.sleep(_LOOK_SECONDS)
        told = membership(node)
        if told and told.get("believed") != expected:
            raise OSError(
                f"the node in {node} does not take what is in the file: {told.get('refused', 'it says nothing')}. Mend "
                "that, and say `sooner token renew`"
            )


def _written(node: str) -> int:
    """The inode of a node's file about its cluster, a new one each time the node writes it. 0: no file."""
    try:
        return os.stat(os.path.join(node, "cluster")).st_ino
    except FileNotFoundError:
        return 0
