"""What a program may ask about the machine it runs on."""

from __future__ import annotations

import os

import sooner

__all__ = ["get_node_instance_id", "get_node_ip_address"]


def get_node_ip_address() -> str:
    """The address under which other processes of the session reach this process's node.

    Returns:
        An IP address; "127.0.0.1" as long as a session has one machine, or when there is none.
    """
    if not sooner.is_initialized():
        return "127.0.0.1"
    here = sooner.get_runtime_context().get_node_id()
    addresses: list[str] = [node["NodeManagerAddress"] for node in sooner.nodes() if node["NodeID"] == here]
    return addresses[0]


def get_node_instance_id() -> str:
    """What the provider calls this machine: environment variable SOONER_CLOUD_INSTANCE_ID, or
        RAY_CLOUD_INSTANCE_ID.

    Returns:
        The name; empty where neither is set.
    """
    return os.environ.get("SOONER_CLOUD_INSTANCE_ID") or os.environ.get("RAY_CLOUD_INSTANCE_ID", "")
