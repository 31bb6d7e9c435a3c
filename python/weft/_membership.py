"""Where nodes of this machine say to which cluster they belong."""

from __future__ import annotations

import os


def base_directory() -> str:
    """Where the nodes and sessions of this user lie."""
    return os.path.join(os.environ.get("WEFT_TMPDIR", "/tmp"), f"weft-{os.getuid()}")  # noqa: S108


def membership(directory: str) -> dict[str, str]:
    """What the node with this directory has written when it joined; nothing if it is no part of a cluster.

    Returns:
        "address" and "head" (HOST:PORT: where the node and the head of its cluster listen), "fingerprint" (of the
        cluster) and "token_file".
    """
    try:
        with open(os.path.join(directory, "cluster")) as file:
            pairs = (line.rstrip("\n").partition(" ") for line in file)
            return {key: value for key, _, value in pairs}
    except FileNotFoundError:
        return {}
