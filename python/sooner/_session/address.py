"""Which node `sooner.init(address=...)` means, and which other arguments go with it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from sooner._options.checks import WrongTypeError
from sooner._session.membership import base_directory, cluster_directory, membership, representative

# Directories of the nodes of clusters that this program has started itself (`sooner.cluster_utils`).
own_directories: set[str] = set()

# Arguments of `sooner.init` that describe a node, and those that a program may give which joins a cluster.
_OF_NODES = (
    "num_cpus",
    "num_gpus",
    "_memory",
    "resources",
    "object_store_memory",
    "spill_directories",
    "max_spill_bytes",
    "eviction",
    "labels",
    "memory_usage_threshold",
    "worker_memory_limits",
    "local_mode",
)
_MAY_JOIN_WITH = frozenset({"object_store_memory", "spill_directories", "max_spill_bytes", "eviction"})


class Elsewhere(NamedTuple):
    """A cluster without a node on this machine.

    Attributes:
        head: HOST:PORT where its head listens.
    """

    head: str


def choose(asked: Mapping[str, Any]) -> str | Elsewhere | None:
    """Which node the arguments of `sooner.init` mean: as `resolve` gives it.

    Raises:
        ValueError: The address is none, or an argument does not go with it.
        ConnectionError: No node is there.
    """
    address, token_file = asked["address"], asked["token_file"]
    if token_file is not None and not isinstance(token_file, str | os.PathLike):
        raise WrongTypeError(f"token_file must be the path of a file, not {token_file!r}")
    target = resolve("local" if asked["local_mode"] and address is None else address, token_file is not None)
    if isinstance(target, Elsewhere):
        _check_for_joining(asked)
    elif target is not None:
        _check_for_connection(asked)
    elif token_file is not None:
        raise ValueError(
            "token_file: it is the token of a cluster, and this program would get a node of its own; say which cluster "
            "with address='HOST:PORT' or SOONER_ADDRESS"
        )
    return target


def resolve(address: str | None, has_token: bool = False) -> str | Elsewhere | None:
    """The directory of the node to connect to; None for a node of the program's own.

    Args:
        address: As for `sooner.init`. None asks the environment variable SOONER_ADDRESS.
        has_token: Whether the program names a token itself. Then nodes that it has started are not looked
            for.

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
        # SOONER_ADDRESS goes before the nodes of this machine.
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
    from sooner._session import sessions  # start-up: 3.9 ms

    try:
        return sessions.choose_session(asked)
    except sessions.NoSessionError as error:
        raise ConnectionError(f"address={asked!r}: {error}") from None


def _check_for_connection(asked: Mapping[str, Any]) -> None:
    given = _of_nodes(asked)
    if given:
        raise ValueError(
            f"{given[0]}: the node at the address was started with its own; leave this argument out, "
            "or use address='local' for a node of your own"
        )


def _check_for_joining(asked: Mapping[str, Any]) -> None:
    given = [name for name in _of_nodes(asked) if name not in _MAY_JOIN_WITH]
    if given:
        raise ValueError(
            f"{given[0]}: no node of this machine belongs to the cluster at the address, and nothing runs in a program "
            "that joins it; leave this argument out, or start a node here with `sooner start`"
        )


def _of_nodes(asked: Mapping[str, Any]) -> list[str]:
    """Which arguments that describe a node are given."""
    return [name for name in _OF_NODES if asked[name] is not None]


def _only_node() -> str:
    from sooner._session import sessions  # start-up: 3.9 ms

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
    """The node of this machine that listens at an address, else one of the cluster whose head does."""
    from sooner._session import sessions  # start-up: 3.9 ms

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
    """The token of a cluster, if the environment has it, and else the file with the token.

    Args:
        token_file: The file that the program names. It goes before SOONER_TOKEN, SOONER_TOKEN_FILE and the
            cluster directory of this machine, in this order.
    """
    if token_file is not None:
        return None, token_file
    given = os.environ.get("SOONER_TOKEN")
    if given:
        return given, ""
    return None, os.environ.get("SOONER_TOKEN_FILE") or f"{cluster_directory(None)}/token"


def _check(address: str) -> None:
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        raise ValueError(f"address={address!r}: expected HOST:PORT with a port from 1 to 65535")
