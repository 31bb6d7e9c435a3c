"""One value to many nodes: each passes it on, so that the node that has it sends it about once."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys

import pytest
from clusters import cluster_of
from support import poll

import sooner

NODES = 4
BYTES = 64 << 20


@pytest.fixture(scope="module")
def cluster():
    nodes = [{"num_cpus": 1, "resources": {f"n{number}": 100}} for number in range(NODES)]
    with cluster_of(1, *nodes, connects=True) as made:
        yield made


def at(number):
    return {"num_cpus": 0, "resources": {f"n{number}": 1}}


@sooner.remote
def digest(value):
    return hashlib.sha256(value).hexdigest()


@sooner.remote
def digest_inside(box):
    return hashlib.sha256(sooner.get(box[0])).hexdigest()


def metrics(node):
    command = [sys.executable, "-m", "sooner", "metrics", "--json", "--address", node.session_dir]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    return {series["name"]: series["values"][0] for series in json.loads(said) if series["values"]}


def moved(node):
    """Bytes of values that a node has sent to others, and got from them."""
    values = metrics(node)
    return values["sooner_node_values_sent_bytes"], values["sooner_node_values_received_bytes"]


def content(seed):
    return bytes([seed]) * (BYTES // 2) + bytes(range(256)) * (BYTES // 512)


def test_the_owners_node_sends_a_value_about_once(cluster):
    value = content(1)
    expected = hashlib.sha256(value).hexdigest()
    # Processes start before anything is counted.
    sooner.get([digest.options(**at(number)).remote(b"") for number in range(NODES)])
    before = [moved(node) for node in [cluster.head_node, *cluster.worker_nodes]]
    ref = sooner.put(value)
    got = sooner.get([digest.options(**at(number)).remote(ref) for number in range(NODES)], timeout=120)
    assert got == [expected] * NODES
    after = [moved(node) for node in [cluster.head_node, *cluster.worker_nodes]]
    sent = [now[0] - then[0] for now, then in zip(after, before, strict=True)]
    came = [now[1] - then[1] for now, then in zip(after, before, strict=True)]
    # A value is a little longer than what is in it.
    size = came[-1]
    assert BYTES <= size < BYTES + 1024
    assert came == [0] + [size] * NODES
    assert sum(sent) == sum(came)
    # Whoever comes when others are through is free to choose the first node again.
    assert sent[0] <= 2 * size, sent


def test_a_value_of_another_node_comes_by_way_of_others(cluster):
    value = content(2)
    made = digest_source.options(**at(0)).remote(2)
    got = sooner.get([digest_inside.options(**at(number)).remote([made]) for number in range(NODES)], timeout=120)
    assert got == [hashlib.sha256(value).hexdigest()] * NODES


@sooner.remote
def digest_source(seed):
    return content(seed)


def test_copies_are_free_when_the_value_is_not_needed_any_more(cluster):
    # Each round needs most of a node's memory.
    for seed in range(3, 6):
        ref = sooner.put(content(seed))
        sooner.get([digest.options(**at(number)).remote(ref) for number in range(NODES)], timeout=120)
        del ref


def test_a_copy_stays_for_the_next_task_and_goes_with_its_value(cluster):
    sooner.get(digest.options(**at(0)).remote(b""))
    node = cluster.worker_nodes[0]
    before = metrics(node)
    value = content(3)
    ref = sooner.put(value)
    expected = hashlib.sha256(value).hexdigest()
    for _ in range(4):
        assert sooner.get(digest.options(**at(0)).remote(ref), timeout=120) == expected
    after = metrics(node)
    name = "sooner_node_values_received_bytes"
    assert BYTES <= after[name] - before[name] < BYTES + 1024, "it was brought once"
    assert after["sooner_node_cached_bytes"] >= before["sooner_node_cached_bytes"] + BYTES
    del ref
    poll("the copy is gone", lambda: metrics(node)["sooner_node_cached_bytes"] < BYTES)
