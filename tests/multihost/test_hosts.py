"""Nodes on hosts of their own, joined by a switch: what only a real network shows."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hosts import Host, hosts, obstacle, silence, unsilence
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
    """A node on each host, the head on the first; gives what `sooner start` said of each."""
    first, *others = made
    told = [first.json("start", "--head", "--num-cpus=1", f"--host={first.address}", *head_options)]
    token = first.sooner("token").stdout.strip()
    address = told[0]["address"]
    told += [
        host.json("start", f"--address={address}", "--num-cpus=1", f"--node-name=n{number}", SOONER_TOKEN=token)
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


def test_a_shaped_host_sends_no_faster_than_it_may(three):
    near, far = three[:2]
    for host in (near, far):
        host.shape(100)
    sender = f"""
    import socket
    with socket.create_server(("{near.address}", 7000)) as server:
        print("ready", flush=True)
        far, _ = server.accept()
        with far:
            far.sendall(bytes(5_000_000))
    """
    receiver = f"""
    import socket, time
    begin, got = time.monotonic(), 0
    with socket.create_connection(("{near.address}", 7000)) as sender:
        while part := sender.recv(1 << 20):
            got += len(part)
    print(got, time.monotonic() - begin, flush=True)
    """
    with near.running(sender) as sends:
        assert sends.stdout.readline() == "ready\n"
        with far.running(receiver) as receives:
            got, seconds = receives.communicate(timeout=WAIT)[0].split()
    assert int(got) == 5_000_000
    # 12.5 MB/s, but for what may be sent at once at both ends.
    assert float(seconds) > (5_000_000 - 2 * (512 << 10)) / 12_500_000


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
    token = three[0].sooner("token").stdout.strip()
    three[1].cut()
    refused = three[1].sooner("start", f"--address={said['address']}", check=None, SOONER_TOKEN=token)
    assert refused.returncode > 2
    assert said["address"] in refused.stderr


def test_work_goes_over_hosts_and_comes_back_when_one_is_cut_off(three):
    start_cluster(three, "--health-timeout=1")
    poll("all are known", lambda: states(three[0]) == ALL)
    code = """
    import os, sys, time, sooner
    sooner.init()
    here = sooner.get_runtime_context().get_node_id()
    others = [node["NodeID"] for node in sooner.nodes() if node["NodeID"] != here]
    assert len(others) == 2

    @sooner.remote(num_cpus=0, max_retries=3, scheduling_strategy="SPREAD")
    def where(seconds):
        time.sleep(seconds)
        return sooner.get_runtime_context().get_node_id(), bytes(2_000_000)

    def seen(refs):
        return {node for node, value in sooner.get(refs) if len(value) == 2_000_000}

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


def test_a_value_goes_from_host_to_host_whole(three):
    start_cluster(three)
    poll("all are known", lambda: states(three[0]) == ALL)
    for host in three:
        host.shape(500)
    code = f"""
    import hashlib, sooner
    sooner.init()

    @sooner.remote(num_cpus=0)
    def digest(value):
        return hashlib.sha256(value).hexdigest()

    value = bytes(range(256)) * 125_000
    ref = sooner.put(value)
    places = [{{"node:" + address: 0.001}} for address in {[host.address for host in three[1:]]}]
    got = sooner.get([digest.options(resources=place).remote(ref) for place in places])
    assert got == [hashlib.sha256(value).hexdigest()] * 2
    print("done", flush=True)
    """
    with three[0].running(code) as driver:
        out, errors = driver.communicate(timeout=WAIT)
        assert out == "done\n", errors

    def moved(host: Host, name: str) -> float:
        return sum(
            sum(row["values"]) for row in host.json("metrics") if row["name"] == f"sooner_node_values_{name}_bytes"
        )

    came = [moved(host, "received") for host in three]
    # A value is a little longer than what is in it.
    assert came[0] == 0
    assert came[1] == came[2]
    assert 32_000_000 <= came[1] < 32_001_024
    assert sum(moved(host, "sent") for host in three) == sum(came)
    # Each host has memory of its own.
    assert [moved(host, "copied") for host in three] == [0, 0, 0]


def test_a_program_on_a_host_without_a_node_joins_by_itself(three):
    told = start_cluster(three[:2])
    token = three[0].sooner("token").stdout.strip()
    code = """
    import sooner
    sooner.init()
    me = sooner.get_runtime_context().get_node_id()
    nodes = {node["NodeID"] for node in sooner.nodes()}
    assert len(nodes) == 3

    @sooner.remote(num_cpus=1)
    def inner(box):
        return sooner.get_runtime_context().get_node_id(), len(sooner.get(box[0]))

    @sooner.remote(num_cpus=0, scheduling_strategy="SPREAD")
    def outer(box):
        return sooner.get(inner.remote(box))

    for size in (10, 20_000_000):
        box = [sooner.put(bytes(size))]
        seen = sooner.get([outer.remote(box) for _ in range(4)])
        assert {length for _, length in seen} == {size}
        assert me not in {node for node, _ in seen}
    sooner.shutdown()
    print("done", flush=True)
    """
    with three[2].running(code, SOONER_ADDRESS=told[0]["address"], SOONER_TOKEN=token) as program:
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
    token = three[0].sooner("token").stdout.strip()
    code = """
    import sys, sooner
    sooner.init()

    @sooner.remote(num_cpus=0)
    def one():
        return 1

    assert sooner.get(one.remote()) == 1
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        sooner.get(one.remote(), timeout=30)
    except Exception as error:
        print(type(error).__name__, flush=True)
    """
    with three[2].running(code, SOONER_ADDRESS=told[0]["address"], SOONER_TOKEN=token) as program:
        assert program.stdout.readline() == "ready\n"
        three[2].cut()
        poll("it is gone", lambda: len(states(three[0])) == 2)
        three[2].heal()
        poll("it knows", lambda: "not part of its cluster any more" in program.stderr.readline())
        out, _ = program.communicate("\n", timeout=WAIT)
        assert out.strip(), "an error, not a hang"


# Tasks and values on all hosts, an actor that may begin again, and calls of it; every answer is checked. It
# goes on until it is told to end, and says then how often it was right; whatever is wrong ends it.
WORK = """
import hashlib, sys, threading, sooner
from sooner.scheduling import NodeAffinitySchedulingStrategy
sooner.init()
COUNT = int(sys.stdin.readline())
nodes = [node["NodeID"] for node in sooner.nodes() if node["Alive"]]
assert len(nodes) == COUNT, nodes
SIZE = 1_000_000

# Each node in turn: "SPREAD" would go on with the leases that there are.
def on(task, number):
    there = NodeAffinitySchedulingStrategy(nodes[number % COUNT], soft=True)
    return task.options(scheduling_strategy=there)

def payload(seed):
    return hashlib.sha256(str(seed).encode()).digest() * (SIZE // 32)

@sooner.remote(num_cpus=0, max_retries=-1)
def make(seed):
    return sooner.get_runtime_context().get_node_id(), payload(seed)

@sooner.remote(num_cpus=0, max_retries=-1)
def digest(made):
    return hashlib.sha256(made[1]).hexdigest()

@sooner.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)
class Counter:
    def __init__(self):
        self.count = 0

    def add(self):
        self.count += 1
        return sooner.get_runtime_context().get_actor_id(), id(self), self.count

def work(seed, seen):
    refs = [on(make, number).remote((seed, number)) for number in range(3)]
    digests = sooner.get([on(digest, number + 1).remote(ref) for number, ref in enumerate(refs)], timeout=100)
    assert digests == [hashlib.sha256(payload((seed, number))).hexdigest() for number in range(3)], seed
    seen.update(sooner.get(ref, timeout=100)[0] for ref in refs)

seen, seed = set(), 1
work(0, seen)
assert len(seen) == COUNT, seen
counter = Counter.remote()
assert sooner.get(counter.add.remote())[2] == 1
print("begun", flush=True)
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), ended.set()), daemon=True).start()
begin = seed
while not ended.is_set():
    work(seed, seen)
    seed += 1
    calls = sooner.get([counter.add.remote() for _ in range(20)], timeout=100)
    for life in {call[:2] for call in calls}:
        counts = [count for *call, count in calls if tuple(call) == life]
        assert counts == list(range(counts[0], counts[0] + len(counts))), calls
print(seed - begin, flush=True)
"""

# How long each kind of partition lasts; `make chaos` takes longer than the test suite.
PARTITION_SECONDS = float(os.environ.get("SOONER_CHAOS_SECONDS", "10")) / 5


@contextlib.contextmanager
def working(host: Host, count: int) -> Iterator[None]:
    """The workload on a host; it must have gone on, and never been wrong, when the block has ended."""
    with host.running(WORK) as driver:
        driver.stdin.write(f"{count}\n")
        driver.stdin.flush()
        begun = driver.stdout.readline()
        assert begun == "begun\n", driver.communicate(timeout=WAIT)[1]
        yield
        out, errors = driver.communicate("\n", timeout=2 * WAIT)
        assert out.strip(), errors
        assert int(out) >= 1


@pytest.mark.chaos
@pytest.mark.parametrize("way", ["to the head", "from the head"])
def test_a_host_that_is_heard_one_way_only_is_gone_at_most(three, way):
    """Whatever the head makes of it, no answer is wrong, and when it is over all agree who is there."""
    told = start_cluster(three, "--health-timeout=1")
    poll("all are known", lambda: states(three[0]) == ALL)
    pair = (three[2], three[0]) if way == "to the head" else (three[0], three[2])
    with working(three[0], 3):
        silence(*pair)
        poll("it is gone", lambda: "n2" not in states(three[0]))
        time.sleep(PARTITION_SECONDS)
        assert states(three[1]) == {"head": "ALIVE", "n1": "ALIVE"}
        unsilence(*pair)
        poll("it ends", lambda: not is_alive(told[2]["pid"]))
    assert states(three[0]) == {"head": "ALIVE", "n1": "ALIVE"}


@pytest.mark.chaos
@pytest.mark.timeout(max(240, 10 * PARTITION_SECONDS))
def test_hosts_that_only_the_head_reaches_both_are_not_gone(three):
    """What one needs of the other waits until there is a way again."""
    start_cluster(three, "--health-timeout=1")
    poll("all are known", lambda: states(three[0]) == ALL)
    with working(three[0], 3):
        for one, other in (three[1:], three[:0:-1]):
            silence(one, other)
        # Processes that cannot reach each other for 30 s give up what they have to do with each other.
        end = time.monotonic() + min(max(3, PARTITION_SECONDS), 20)
        while time.monotonic() < end:
            assert all(states(host) == ALL for host in three), "nobody is gone"
        for one, other in (three[1:], three[:0:-1]):
            unsilence(one, other)
    assert all(states(host) == ALL for host in three)


CUT = """
import os, sys, tempfile, time
import sooner
from sooner.exceptions import WorkerCrashedError
from sooner.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from sooner.util.state import list_nodes

sooner.init(address="auto", log_to_driver=False)
(there,) = [node.node_id for node in list_nodes() if node.node_name == "n2"]
there = {"scheduling_strategy": NodeAffinitySchedulingStrategy(there, soft=False), "num_cpus": 0}

begun = os.path.join(tempfile.mkdtemp(dir=os.environ["SOONER_TMPDIR"]), "begun")

@sooner.remote(max_retries=0)
def stay():
    open(begun, "w").close()
    time.sleep(3600)

@sooner.remote(max_restarts=-1, max_task_retries=-1)
class Counter:
    def __init__(self):
        self.count = 0

    def add(self, seconds=0):
        time.sleep(seconds)
        self.count += 1
        return self.count

counter = Counter.options(**there).remote()
assert sooner.get(counter.add.remote(), timeout=60) == 1
lost, kept = stay.options(**there).remote(), counter.add.remote(3)
while not os.path.exists(begun):
    time.sleep(0.01)
print("begun", flush=True)
if sys.stdin.readline() == "short\\n":
    assert sooner.get(kept, timeout=60) == 2, "the same process: nothing was lost"
else:
    try:
        sooner.get(lost, timeout=120)
    except WorkerCrashedError:
        print("noticed", flush=True)
    sys.stdin.readline()
    # The process to which this one had no way was ended, and the next one is there.
    assert sooner.get(counter.add.remote(), timeout=60) in (1, 2)
print("done", flush=True)
"""


@contextlib.contextmanager
def with_calls_over(host: Host) -> Iterator[Callable[..., None]]:
    """A program with a task and a call at another host; gives what tells it something and waits for a word
    of it.
    """
    with host.running(CUT) as driver:

        def exchange(word: str | None, answer: str) -> None:
            if word is not None:
                driver.stdin.write(f"{word}\n")
                driver.stdin.flush()
            heard = driver.stdout.readline()
            assert heard == f"{answer}\n", driver.communicate(timeout=WAIT)

        exchange(None, "begun")
        yield exchange


@pytest.mark.chaos
def test_a_short_silence_between_two_hosts_loses_nothing(three):
    """The call that was under way comes back over the next connection."""
    start_cluster(three)
    poll("all are known", lambda: states(three[0]) == ALL)
    with with_calls_over(three[1]) as exchange:
        for one, other in (three[1:], three[:0:-1]):
            silence(one, other)
        time.sleep(8)
        for one, other in (three[1:], three[:0:-1]):
            unsilence(one, other)
        exchange("short", "done")


@pytest.mark.chaos
@pytest.mark.parametrize("ways", [1, 2])
def test_who_waits_for_a_host_that_only_the_head_reaches_hears_of_it(three, ways):
    """Also where only one of the two does not hear the other."""
    start_cluster(three)
    poll("all are known", lambda: states(three[0]) == ALL)
    with with_calls_over(three[1]) as exchange:
        for one, other in [three[1:], three[:0:-1]][:ways]:
            silence(one, other)
        exchange("long", "noticed")
        assert states(three[0]) == ALL, "nobody is gone"
        for one, other in [three[1:], three[:0:-1]][:ways]:
            unsilence(one, other)
        exchange("healed", "done")


@pytest.mark.chaos
@pytest.mark.timeout(max(240, 10 * PARTITION_SECONDS))
def test_a_network_that_comes_and_goes(three):
    """Half a second without, half a second with it, well below the time after which a node is gone."""
    told = start_cluster(three, "--health-timeout=5")
    poll("all are known", lambda: states(three[0]) == ALL)
    with working(three[0], 3):
        end = time.monotonic() + max(3, 2 * PARTITION_SECONDS)
        while time.monotonic() < end:
            three[2].cut()
            time.sleep(0.5)
            three[2].heal()
            time.sleep(0.5)
    for host in three:
        poll("all are known", lambda host=host: states(host) == ALL)
    assert all(is_alive(said["pid"]) for said in told)
