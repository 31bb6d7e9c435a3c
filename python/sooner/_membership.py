"""Where nodes of this machine say to which cluster they belong."""

from __future__ import annotations

import os


def base_directory() -> str:
    """Where the nodes and sessions of this user lie."""
    return os.path.join(os.environ.get("SOONER_TMPDIR", "/tmp"), f"sooner-{os.getuid()}")  # noqa: S108


def membership(directory: str) -> dict[str, str]:
    """What the node with this directory has written when it joined; nothing if it is no part of a cluster.

    Returns:
        "address" and "head" (HOST:PORT: where the node and the head of its cluster listen), "fingerprint" (of the
        cluster) and "token_file". The node of a program has neither address nor file. What nodes do not write counts as
        nothing.
    """
    try:
        with open(os.path.join(directory, "cluster"), errors="replace") as file:
            pairs = (line.rstrip("\n").partition(" ") for line in file)
            told = {key: value for key, _, value in pairs}
    except OSError:
        return {}
    return told if "head" in told and "fingerprint" in told else {}


def representative(directories: list[str]) -> str | None:
    """The node that stands for all of these when nobody says which: the only one, or the head of the only cluster.

    Args:
        directories: Those of the nodes of this machine, newest first.

    Returns:
        Its directory, that of the newest if the head is on another machine; None if there is none, or they are not of
        one cluster.
    """
    if len(directories) == 1:
        return directories[0]
    belongs = [membership(directory) for directory in directories]
    if not all(belongs) or len({told["fingerprint"] for told in belongs}) != 1:
        return None
    heads = [path for path, told in zip(directories, belongs, strict=True) if told.get("address") == told["head"]]
    return (heads or directories)[0]


def cluster_directory(given: str | None) -> str:
    """Where the head of a cluster on this machine keeps its token and what it must know when it starts again."""
    return os.path.abspath(given or os.environ.get("SOONER_CLUSTER_DIR") or f"{base_directory()}/cluster")
