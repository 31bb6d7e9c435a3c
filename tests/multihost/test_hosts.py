"""Nodes on hosts of their own, joined by a switch: what only a real network shows."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hosts import Host, hosts, obstacle
from support import WAIT, is_alive, poll

pytestmark = pytest.mark.skipif(obstacle() is not None, reason=f"no hosts of our own: {obstacle()}")


@pytest.fixture
def three() -> Iterator[Sequence[Host]]:
    base = Path(tempfile.mkdtemp(prefix="wt-h-", dir="/tmp"))
    try:
        with hosts(3, base) as made:
            yield made
    finally:
        shutil.rmtree(base, ignore_errors=True)


def start_cluster(made: Sequence[Host], *head_options: str) -> list[dict[str, str]]:
    """A node on each host, the head on the first; gives what `weft start` said of each."""
    first, *others = made
    told = [first.json("start", "--head", "--num-cpus=1", f"--host={first.address}", *head_options)]
    token = first.weft("token").stdout.strip()
    address = told[0]["address"]
    told += [
        host.json("start", f"--address={address}", "--num-cpus=1", f"--node-name=n{number}", WEFT_TOKEN=token)
        for number, host in enumerate(others, 1)
    ]
    return told


def states(host: Host) -> dict[str, str]:
    """Names of the nodes that a host's node knows, and how they are."""
    return {row["node_name"]: row["state"] for row in host.json("list", "nodes")}


ALL = {"head": "ALIVE", "n1": "ALIVE", "n2": "ALIVE"}


def test_hosts_form_a_cluster_and_listen_where_the_others_are(three):
    told = start_cluster(three)
    for host, said in zip(three, told, strict=True):
        assert said["address"].rpartition(":")[0] == host.address
        poll("all are known", lambda host=host: states(host) == ALL)
    listening = three[1].space.run("ss", "-Hltn").split()
    assert [word for word in listening if word.endswith(told[1]["address"].rpartition(":")[2])] == [told[1]["address"]]


def test_a_host_that_is_cut_off_is_gone_and_its_node_ends_when_it_is_back(three):
    told = start_cluster(three, "--health-timeout=1")
    poll("all are known", lambda: states(three[0]) == ALL)
    three[2].cut()
    left = {"head": "ALIVE", "n1": "ALIVE"}
    poll("the others know", lambda: states(three[0]) == states(three[1]) == left)
    # It cannot know whether it was declared gone, and serves its own programs.
    assert is_alive(told[2]["pid"])
    three[2].heal()
    poll("it ends", lambda: not is_alive(told[2]["pid"]))
    assert states(three[0]) == left


def test_a_cut_that_is_short_changes_nothing(three):
    told = start_cluster(three, "--health-timeout=20")
    poll("all are known", lambda: states(three[0]) == ALL)
    three[1].cut()
    three[1].heal()
    for host in three:
        assert states(host) == ALL
    assert all(is_alive(said["pid"]) for said in told)


def test_a_host_without_a_route_to_the_head_is_told_so(three):
    said = three[0].json("start", "--head", f"--host={three[0].address}")
    token = three[0].weft("token").stdout.strip()
    three[1].cut()
    refused = three[1].weft("start", f"--address={said['address']}", check=None, WEFT_TOKEN=token)
    assert refused.returncode > 2
    assert said["address"] in refused.stderr


def test_work_goes_over_hosts_and_comes_back_when_one_is_cut_off(three):
    start_cluster(three, "--health-timeout=1")
    poll("all are known", lambda: states(three[0]) == ALL)
    code = """
    import os, sys, time, weft
    weft.init()
    here = weft.get_runtime_context().get_node_id()
    others = [node["NodeID"] for node in weft.nodes() if node["NodeID"] != here]
    assert len(others) == 2

    @weft.remote(num_cpus=0, max_retries=3, scheduling_strategy="SPREAD")
    def where(seconds):
        time.sleep(seconds)
        return weft.get_runtime_context().get_node_id(), bytes(2_000_000)

    def seen(refs):
        return {node for node, value in weft.get(refs) if len(value) == 2_000_000}

    while seen([where.remote(0.2) for _ in range(12)]) != {here, *others}:
        # On a busy machine the first worker of a node may come too late for all of them.
        pass
    refs = [where.remote(3) for _ in range(12)]
    time.sleep(1)
    print("begun", flush=True)
    sys.stdin.readline()
    print(len(seen(refs)), flush=True)
    """
    with three[0].running(code) as driver:
        assert driver.stdout.readline() == "begun\n"
        three[2].cut()
        out, errors = driver.communicate("\n", timeout=WAIT)
        assert out in ("1\n", "2\n"), errors


def test_a_program_on_a_host_without_a_node_joins_by_itself(three):
    told = start_cluster(three[:2])
    token = three[0].weft("token").stdout.strip()
    code = """
    import weft
    weft.init()
    me = weft.get_runtime_context().get_node_id()
    nodes = {node["NodeID"] for node in weft.nodes()}
    assert len(nodes) == 3

    @weft.remote(num_cpus=1)
    def inner(box):
        return weft.get_runtime_context().get_node_id(), len(weft.get(box[0]))

    @weft.remote(num_cpus=0, scheduling_strategy="SPREAD")
    def outer(box):
        return weft.get(inner.remote(box))

    for size in (10, 20_000_000):
        box = [weft.put(bytes(size))]
        seen = weft.get([outer.remote(box) for _ in range(4)])
        assert {length for _, length in seen} == {size}
        assert me not in {node for node, _ in seen}
    weft.shutdown()
    print("done", flush=True)
    """
    with three[2].running(code, WEFT_ADDRESS=told[0]["address"], WEFT_TOKEN=token) as program:
        listening = []
        poll("it has joined", lambda: program.poll() is not None or len(states(three[0])) == 3)
        if program.poll() is None:
            listening = three[2].space.run("ss", "-Hltn").split()
        out, errors = program.communicate(timeout=WAIT)
        assert out == "done\n", errors
        assert not listening, "it listens nowhere"
    poll("it has left", lambda: states(three[0]) == {"head": "ALIVE", "n1": "ALIVE"})


def test_a_program_that_is_cut_off_is_gone_and_says_so(three):
    told = start_cluster(three[:2], "--health-timeout=1")
    token = three[0].weft("token").stdout.strip()
    code = """
    import sys, weft
    weft.init()

    @weft.remote(num_cpus=0)
    def one():
        return 1

    assert weft.get(one.remote()) == 1
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        weft.get(one.remote(), timeout=30)
    except Exception as error:
        print(type(error).__name__, flush=True)
    """
    with three[2].running(code, WEFT_ADDRESS=told[0]["address"], WEFT_TOKEN=token) as program:
        assert program.stdout.readline() == "ready\n"
        three[2].cut()
        poll("it is gone", lambda: len(states(three[0])) == 2)
        three[2].heal()
        poll("it knows", lambda: "not part of its cluster any more" in program.stderr.readline())
        out, _ = program.communicate("\n", timeout=WAIT)
        assert out.strip(), "an error, not a hang"
