"""Nodes behind a bad network: a proxy of our own delays, cuts and garbles what goes between them and the
    head.

`SOONER_CHAOS_SECONDS` says how long each kind of fault lasts; `make chaos` takes longer than the test suite.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

import pytest
from proxy import Faults, Proxy
from support import WAIT, Node, is_alive, poll

# A storm has many kinds of faults, this file one at a time.
SECONDS = float(os.environ.get("SOONER_CHAOS_SECONDS", "10")) / 5

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(max(240, 10 * SECONDS))]

KINDS = ("corrupt", "lose", "double", "swap", "cut")
FAULTS = {
    "corrupt": Faults(corrupt=0.05),
    "lose": Faults(lose=0.05),
    "double": Faults(double=0.05),
    "swap": Faults(swap=0.05),
    "cut": Faults(cut=0.05),
    "late": Faults(delay=0.2),
    "all": Faults(corrupt=0.02, lose=0.02, double=0.02, swap=0.02, cut=0.02, delay=0.05),
}


@pytest.fixture
def bases(tmp_path_factory):
    # Short, because the paths of sockets are.
    made = [Path(f"/tmp/wt-net-{os.getpid()}-{name}") for name in "hn"]
    for base in made:
        base.mkdir(mode=0o700)
    yield made
    for base in made:
        shutil.rmtree(base)


@pytest.mark.parametrize("kind", FAULTS)
def test_a_node_behind_a_bad_network_stays_in_the_cluster(kind, bases):
    head = Node(bases[0], "--node-name=head")
    try:
        told = head.json("list", "nodes")[0]
        with Proxy(told["address"], seed=len(kind)) as proxy:
            node = Node(bases[1], "--node-name=far", join=(proxy.address, head.run("token").strip()))
            try:
                proxy.faults = FAULTS[kind]
                start = time.monotonic()
                while not (has_happened(proxy, kind) and time.monotonic() > start + SECONDS):
                    assert time.monotonic() < start + SECONDS + WAIT, "nothing was passed on"
                    # Programs of the node notice nothing.
                    done = node.driver("import sooner; sooner.init(); print(sooner.get(sooner.remote(abs).remote(-3)))")
                    assert done.stdout == "3\n"
                proxy.faults = Faults()
                for one in (head, node):
                    poll("both are there", lambda one=one: names(one) == ["far", "head"], WAIT)
                poll("it is connected", lambda: node.json("status")["cluster"]["lost"] is None)
                assert is_alive(node.pid)
                assert "is gone" not in log_of(head)
            finally:
                node.run("stop", "--force", check=None)
    finally:
        head.run("stop", "--force", check=None)


def test_a_node_finds_the_head_of_a_machine_that_was_switched_off_and_on(bases):
    """It has nothing to say to the head but heartbeats, and nobody tells it that its other connection
    leads nowhere.
    """
    heads = [Node(bases[0], "--node-name=head")]
    try:
        with Proxy(heads[0].json("list", "nodes")[0]["address"]) as proxy:
            node = Node(bases[1], "--node-name=far", join=(proxy.address, heads[0].run("token").strip()))
            try:
                proxy.faults = Faults(vanish=True)
                os.kill(heads[0].pid, signal.SIGKILL)
                poll("the first head is gone", lambda: not is_alive(heads[0].pid))
                heads.append(Node(bases[0], "--node-name=head"))
                poll("the node is there again", lambda: names(heads[1]) == ["far", "head"])
                poll("it is connected", lambda: node.json("status")["cluster"]["lost"] is None)
                assert is_alive(node.pid)
                assert f"node {node.directory.name.rpartition('-')[2]} is gone" not in log_of(heads[1])
            finally:
                node.run("stop", "--force", check=None)
    finally:
        for head in heads:
            head.run("stop", "--force", check=None)


def has_happened(proxy: Proxy, kind: str) -> bool:
    """Whether the proxy has done something bad, or passed on anything late."""
    done = proxy.done
    return bool(done["pieces"] if kind == "late" else any(done[name] for name in KINDS))


def names(node: Node) -> list[str]:
    """Those of the nodes that a node lists."""
    return sorted(row["node_name"] for row in node.json("list", "nodes"))


def log_of(node: Node) -> str:
    """What a node noted."""
    return (node.directory / "logs" / "node.log").read_text()
