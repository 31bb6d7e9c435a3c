"""Which node `weft.init(address=...)` means."""

from __future__ import annotations

import os


def resolve(address: str | None) -> str | None:
    """The directory of the node to connect to; None for a node of one's own.

    Args:
        address: As for `weft.init`. None asks the environment variable WEFT_ADDRESS.

    Raises:
        ValueError: It is no address.
        ConnectionError: No node is there.
    """
    if address is not None and not isinstance(address, str):
        raise ValueError(f"address must be a string, not {address!r}")
    asked = address or os.environ.get("WEFT_ADDRESS") or "local"
    if asked == "auto":
        # Somebody who says where the cluster is, is asked before this machine.
        named = os.environ.get("WEFT_ADDRESS", "auto")
        asked = "auto" if named in ("", "local") else named
    if asked == "local":
        return None
    if asked == "auto":
        return _only_node()
    if "://" in asked:
        raise ValueError(f"address={asked!r}: a driver of a cluster is an ordinary driver; leave out the scheme")
    if "/" not in asked and ":" in asked:
        return _node_of_cluster(asked)
    from weft import _sessions

    try:
        return _sessions.choose_session(asked)
    except _sessions.NoSessionError as error:
        raise ConnectionError(f"address={asked!r}: {error}") from None


def _only_node() -> str:
    from weft import _sessions
    from weft._membership import base_directory, representative

    nodes = _sessions.running_nodes()
    if not nodes:
        raise ConnectionError(
            f"address='auto': no node of yours runs on this machine (looked in {base_directory()}). "
            "Start one with `weft start --head`"
        )
    chosen = representative(nodes)
    if chosen is None:
        raise ConnectionError("address='auto': several nodes run; give the directory of one: " + " ".join(nodes))
    return chosen


def _node_of_cluster(address: str) -> str:
    """The node of this machine that listens at an address, or else one that belongs to the cluster whose head does."""
    from weft import _sessions
    from weft._membership import membership

    belongs = {directory: membership(directory) for directory in _sessions.running_nodes()}
    for key in ("address", "head"):
        for directory, told in belongs.items():
            if told.get(key) == address:
                return directory
    raise ConnectionError(
        f"address={address!r}: no node of yours on this machine belongs to that cluster. Start one here with "
        f"`weft start --address={address}`: this version of weft needs a node on the program's machine"
    )
