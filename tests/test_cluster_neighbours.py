"""Nodes of one machine copy values from memory to memory, unless they are told not to."""

from __future__ import annotations

import hashlib
import os
import signal

import pytest
from support import WAIT, poll
from test_cluster_broadcast import metrics

import sooner
from sooner.cluster_utils import Cluster

BYTES = 96 << 20


@sooner.remote(num_cpus=0, resources={"there": 1})
def make(seed):
    return os.urandom(32) * (BYTES // 64) + bytes([seed]) * (BYTES // 2)


@sooner.remote(num_cpus=0, resources={"there": 1})
def digest(value):
    return hashlib.sha256(value).hexdigest()


@pytest.mark.parametrize("shares", [True, False])
def test_how_values_come_to_another_node(shares, monkeypatch):
    monkeypatch.setenv("SOONER_SHARE_MEMORY", str(int(shares)))
    with Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 512 << 20}) as cluster:
        node = cluster.add_node(num_cpus=1, resources={"there": 2}, object_store_memory=512 << 20)
        cluster.connect()
        there = make.remote(1)
        value = sooner.get(there, timeout=WAIT)
        assert sooner.get(digest.remote(there), timeout=WAIT) == hashlib.sha256(value).hexdigest()
        here = sooner.put(value)
        assert sooner.get(digest.remote(here), timeout=WAIT) == hashlib.sha256(value).hexdigest()
        for each in (cluster.head_node, node):
            values = metrics(each)
            came, copied = (values[f"sooner_node_values_{what}_bytes"] for what in ("received", "copied"))
            assert came >= BYTES
            # What was asked for before the memory was open is sent.
            assert copied >= came / 2 if shares else copied == 0


def test_a_neighbour_that_is_killed_leaves_nothing_open():
    """What is left of its memory goes with the last connection."""
    with Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 512 << 20}) as cluster:
        node = cluster.add_node(num_cpus=1, resources={"there": 2}, object_store_memory=512 << 20)
        cluster.connect()
        maps = f"/proc/{cluster.head_node.pid}/maps"

        def foreign():
            """Inodes of memory for objects that the head's node has open, but for its own."""
            with open(maps) as lines:
                found = {line.split()[4] for line in lines if "memfd:sooner-objects" in line}
            return len(found) - 1

        assert foreign() == 0
        assert len(sooner.get(make.remote(1), timeout=WAIT)) == BYTES
        assert foreign() == 1
        os.kill(node.pid, signal.SIGKILL)
        poll("its memory is let go", lambda: foreign() == 0)
