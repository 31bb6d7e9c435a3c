"""Which node `sooner.init(address=...)` means."""

from __future__ import annotations

import os
from typing import NamedTuple

from sooner._options.checks import WrongTypeError

# Where the nodes of clusters lie that this program has started itself (`sooner.cluster_utils`).
own_directories: set[str] = set()


class Elsewhere(NamedTuple):
    """A cluster that no node of this machine belongs to.

    Attributes:
        head: HOST:PORT where its head listens.
    """

    head: str


def resolve(address: str | None, has_token: bool = False) -> str | Elsewhere | None:
    """The directory of the node to connect to; None for a node of one's own.

    Args:
        address: As for `sooner.init`. None asks the environment variable SOONER_ADDRESS.
        has_token: Whether the program names a token itself: then nodes that it has started are to it as anybody's.

    Returns:
        For HOST:PORT the cluster there, if no node of this machine belongs to it.

    Raises:
        ValueError: It is no address.
        ConnectionError: No node is there.
    """
    if address is not None and not isinstance(address, str):
        raise WrongTypeError(f"address must be a string, not {address!r}")
    asked = address or os.environ.get("SOONER_ADDRESS") or "local"
    if asked == "auto":
        # Somebody who says where the cluster is, is asked before this machine.
        named = os.environ.get("SOONER_ADDRESS", "auto")
        asked = "auto" if named in ("", "local") else named
    if asked == "local":
        return None
    if asked == "auto":
        return _only_node()
    if "://" in asked:
        raise ValueError(f"address={asked!r}: a driver of a cluster is an ordinary driver; leave out the scheme")
    if "/" not in asked and ":" in asked:
        return _node_of_cluster(asked, set() if has_token else own_directories)
    from sooner._session import sessions

    try:
        return sessions.choose_session(asked)
    except sessions.NoSessionError as error:
        raise ConnectionError(f"address={asked!r}: {error}") from None


def _only_node() -> str:
    from sooner._session import sessions
    from sooner._session.membership import base_directory, representative

    nodes = sessions.running_nodes()
    if not nodes:
        raise ConnectionError(
            f"address='auto': no node of yours runs on this machine (looked in {base_directory()}). "
            "Start one with `sooner start --head`"
        )
    chosen = representative(nodes)
    if chosen is None:
        raise ConnectionError("address='auto': several nodes run; give the directory of one: " + " ".join(nodes))
    return chosen


def _node_of_cluster(address: str, own: set[str]) -> str | Elsewhere:
    """The node of this machine that listens at an address, or else one that belongs to the cluster whose head does."""
    from sooner._session import sessions
    from sooner._session.membership import membership

    _check(address)
    places = [None, *sorted(own)]
    nodes = [directory for place in places for directory in sessions.running_nodes(place)]
    belongs = {directory: membership(directory) for directory in nodes}
    for key in ("address", "head"):
        for directory, told in belongs.items():
            if told.get(key) == address:
                return directory
    return Elsewhere(address)


def token(token_file: str | None) -> tuple[str | None, str]:
    """The token of a cluster, if the environment has it, and else the file where it is.

    Args:
        token_file: What the program says; it goes before SOONER_TOKEN, SOONER_TOKEN_FILE and the cluster directory of
            this machine, in this order.
    """
    if token_file is not None:
        return None, token_file
    given = os.environ.get("SOONER_TOKEN")
    if given:
        return given, ""
    from sooner._session.membership import cluster_directory

    return None, os.environ.get("SOONER_TOKEN_FILE") or f"{cluster_directory(None)}/token"


def _check(address: str) -> None:
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        raise ValueError(f"address={address!r}: expected HOST:PORT with a port from 1 to 65535")
