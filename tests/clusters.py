"""Clusters on this machine for the tests of a file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from sooner.cluster_utils import Cluster


@contextlib.contextmanager
def cluster_of(head_cpus: int, *nodes: dict[str, Any], connects: bool = False) -> Iterator[Cluster]:
    """A cluster whose nodes know each other.

    Args:
        head_cpus: Of the head's node.
        *nodes: Arguments of `Cluster.add_node` for each other one.
        connects: Whether this program uses it.
    """
    with Cluster(initialize_head=True, head_node_args={"num_cpus": head_cpus}) as made:
        for node in nodes:
            made.add_node(**node)
        made.wait_for_nodes()
        if connects:
            made.connect()
        yield made
