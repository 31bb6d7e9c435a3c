"""The head is killed and started again: what was promised is there, and what runs sees nothing of it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
import time

import pytest
from support import WAIT, poll

import sooner
from sooner.cluster_utils import Cluster
from sooner.util import get_placement_group, placement_group, placement_group_table, remove_placement_group
from sooner.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

pytestmark = pytest.mark.chaos


@pytest.fixture
def cluster():
    """A head without CPUs, and two nodes that have what is asked for."""
    with Cluster(initialize_head=True, head_node_args={"num_cpus": 0}) as made:
        for name in "bc":
            made.add_node(num_cpus=4, node_name=name, resources={name: 1})
        made.wait_for_nodes()
        yield made


@sooner.remote
class Counter:
    def __init__(self, count=0):
        self.count = count

    def add(self):
        self.count += 1
        return self.count

    def pid(self):
        return os.getpid()


@sooner.remote
def slowly(seconds):
    time.sleep(seconds)
    return os.getpid()


@sooner.remote
def make(size):
    return bytes(size)


@contextlib.contextmanager
def program(node):
    """A program that uses this node."""
    with sooner.init(address=node.session_dir, namespace="x", log_to_driver=False):
        yield


def kill_head(cluster):
    cluster.remove_node(cluster.head_node, allow_graceful=False)


def start_head(cluster):
    cluster.add_node(num_cpus=0)


def restart_head(cluster):
    kill_head(cluster)
    start_head(cluster)


def keep(name, *arguments, **options):
    """A detached actor that has begun."""
    counter = Counter.options(name=name, lifetime="detached", **options).remote(*arguments)
    sooner.get(counter.pid.remote(), timeout=WAIT)
    return counter


@pytest.mark.api("failure.control")
def test_what_runs_sees_nothing_of_it(cluster):
    with program(cluster.worker_nodes[0]):
        counter = Counter.options(resources={"c": 0.1}).remote()
        assert sooner.get(counter.add.remote()) == 1
        tasks = [slowly.remote(2) for _ in range(4)]
        kill_head(cluster)
        assert sooner.get([counter.add.remote() for _ in range(500)]) == list(range(2, 502))
        assert len(sooner.get(tasks, timeout=WAIT)) == 4
        start_head(cluster)
        assert sooner.get([counter.add.remote() for _ in range(500)]) == list(range(502, 1002))


@sooner.remote(num_cpus=0)
class Caller:
    def call(self, counter):
        return sooner.get(counter.add.remote(), timeout=WAIT)


def test_no_caller_hears_that_an_actor_elsewhere_is_dead(cluster):
    """Only its own node can tell a new head that it lives: that node may be the last one to come back."""
    names = ("b", "c")
    with program(cluster.worker_nodes[0]):
        counters = {name: Counter.options(resources={name: 0.1}).remote() for name in names}
        callers = {name: Caller.options(resources={name: 0.1}).remote() for name in names}
        pairs = [(caller, counter) for caller in names for counter in names]
        sooner.get([callers[caller].call.remote(counters[counter]) for caller, counter in pairs], timeout=WAIT)
        for restarts in range(1, 6):
            restart_head(cluster)
            # An answer of the head: it has heard of all that there is.
            assert sooner.list_named_actors() == []
            # Those who had known them, and others who ask the new head.
            new = {name: Caller.options(resources={name: 0.1}).remote() for name in names}
            for these in (callers, new):
                calls = [these[caller].call.remote(counters[counter]) for caller, counter in pairs]
                sooner.get(calls, timeout=WAIT)
            callers = new
            ends = [counter.add.remote() for counter in counters.values()]
            assert sooner.get(ends, timeout=WAIT) == [2 + 5 * restarts] * 2, "each call was done once"


@pytest.mark.api("errors.rpc")
def test_what_only_the_head_knows_cannot_be_asked_while_it_is_away(cluster):
    """The wait for it ends, after half a minute."""
    with program(cluster.worker_nodes[0]):
        kill_head(cluster)
        with pytest.raises(sooner.exceptions.RpcError, match="the head of the cluster has not answered"):
            sooner.get_actor("nobody")


def test_new_actors_begin_under_the_next_head(cluster):
    with program(cluster.worker_nodes[0]):
        warm = Counter.remote()
        sooner.get(warm.add.remote())
        for options in ({}, {"name": "one"}, {"name": "two", "lifetime": "detached"}):
            restart_head(cluster)
            counter = Counter.options(**options).remote()
            assert sooner.get(counter.add.remote(), timeout=WAIT) == 1


def test_names_are_kept_for_who_had_them(cluster):
    first, second = cluster.worker_nodes
    with program(first):
        keep("kept")
        keep("ended")
        sooner.kill(sooner.get_actor("ended"))
        poll("its name is free", lambda: sooner.list_named_actors() == ["kept"])
    restart_head(cluster)
    with program(second):
        # That one ended may not have been on the disk: then the node of who ended it says so.
        poll("the other is still free", lambda: sooner.list_named_actors() == ["kept"])
        with pytest.raises(ValueError, match='an actor named "kept" exists'):
            Counter.options(name="kept").remote()
        assert sooner.get(sooner.get_actor("kept").add.remote()) == 1


@pytest.mark.api("failure.control")
def test_an_actor_whose_node_ended_meanwhile_begins_elsewhere(cluster):
    first, second = cluster.worker_nodes
    there = {"num_cpus": 1, "scheduling_strategy": NodeAffinitySchedulingStrategy(first.node_id, soft=True)}
    with program(first):
        keep("moves", 10, max_restarts=-1, **there)
        keep("stays", 20, max_restarts=0, **there)
        at = {name: sooner.get(sooner.get_actor(name).add.remote()) for name in ("moves", "stays")}
        assert at == {"moves": 11, "stays": 21}
    kill_head(cluster)
    cluster.remove_node(first, allow_graceful=False)
    start_head(cluster)
    with program(second):
        counter = sooner.get_actor("moves")
        assert sooner.get(counter.add.remote(), timeout=WAIT) == 11, "from the beginning, with what it was given"
        poll("the other one is dead", lambda: sooner.list_named_actors() == ["moves"])


def test_what_was_on_the_node_of_the_head_goes_on_elsewhere():
    """Nodes that were away when it was declared gone hear of it, too."""
    with Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "resources": {"h": 4}}) as cluster:
        cluster.add_node(num_cpus=1, resources={"b": 1})
        cluster.wait_for_nodes()
        with program(cluster.worker_nodes[0]):
            there = NodeAffinitySchedulingStrategy(cluster.head_node.node_id, soft=True)
            value = make.options(scheduling_strategy=there).remote(3_000_000)
            sooner.wait([value], fetch_local=False, timeout=WAIT)
            counter = keep("moves", 10, max_restarts=-1, num_cpus=0, scheduling_strategy=there)
            pid = sooner.get(counter.pid.remote(), timeout=WAIT)
            started = [slowly.options(scheduling_strategy=there).remote(1) for _ in range(3)]
            sooner.wait(started, num_returns=1, timeout=0.3)
            kill_head(cluster)
            cluster.add_node(num_cpus=4)
            assert len(sooner.get(started, timeout=WAIT)) == 3
            assert len(sooner.get(value, timeout=WAIT)) == 3_000_000
            poll("it begins again", lambda: _pid_or_none(counter) not in (None, pid))


def test_the_job_of_a_detached_actor_outlives_its_drivers_node(cluster):
    first, second = cluster.worker_nodes
    with program(first):
        keep("far", 5, max_restarts=-1, resources={"c": 0.1})
    kill_head(cluster)
    cluster.remove_node(first, allow_graceful=False)
    start_head(cluster)
    with program(second):
        counter = sooner.get_actor("far")
        pid = sooner.get(counter.pid.remote(), timeout=WAIT)
        os.kill(pid, 9)
        poll("it begins again", lambda: _pid_or_none(counter) not in (None, pid))


def _pid_or_none(counter):
    try:
        return sooner.get(counter.pid.remote(), timeout=WAIT)
    except sooner.exceptions.SoonerError:
        return None


@pytest.mark.api("failure.control")
def test_a_placement_group_stays_where_it_is(cluster):
    first, second = cluster.worker_nodes
    with program(first):
        group = placement_group([{"CPU": 1}, {"CPU": 1}], "STRICT_SPREAD", name="g", lifetime="detached")
        sooner.get(group.ready(), timeout=WAIT)
        before = placement_group_table(group)["bundles_to_node_id"]
        restart_head(cluster)
        found = poll("it is known", lambda: get_placement_group("g"))
        poll("it is created", lambda: placement_group_table(found)["state"] == "CREATED")
        assert placement_group_table(found)["bundles_to_node_id"] == before
        strategy = PlacementGroupSchedulingStrategy(found, 1)
        assert sooner.get(slowly.options(scheduling_strategy=strategy, num_cpus=1).remote(0), timeout=WAIT)
        remove_placement_group(found)
        poll("it is gone", lambda: placement_group_table(found)["state"] == "REMOVED")
    restart_head(cluster)
    with program(second), pytest.raises(ValueError, match="there is no placement group"):
        get_placement_group("g")


def test_twenty_times_under_load(cluster):
    first, _ = cluster.worker_nodes
    with program(first):
        kept = keep("kept")
        expected = 0
        for number in range(20):
            tasks = [slowly.remote(0.01) for _ in range(50)]
            calls = [kept.add.remote() for _ in range(50)]
            named = Counter.options(name=f"n{number}", lifetime="detached", num_cpus=0).remote(number)
            restart_head(cluster)
            assert sooner.get(calls, timeout=WAIT) == list(range(expected + 1, expected + 51))
            expected += 50
            assert len(sooner.get(tasks, timeout=WAIT)) == 50
            assert sooner.get(named.add.remote(), timeout=WAIT) == number + 1
        names = {"kept", *(f"n{number}" for number in range(20))}
        assert set(sooner.list_named_actors()) == names


FULL = textwrap.dedent(
    """
    import os, subprocess, sys
    from pathlib import Path
    sys.path.insert(0, sys.argv[1])
    from support import WAIT, poll
    import sooner
    from sooner.cluster_utils import Cluster

    @sooner.remote(num_cpus=0)
    class Keeper:
        def __init__(self, data=b""):
            self.data = data

        def size(self):
            return len(self.data)

    @sooner.remote
    def one():
        return 1

    with Cluster() as cluster:
        directory = Path(cluster.base_directory) / "cluster"
        directory.mkdir(mode=0o700)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m,mode=0700", "tmpfs", str(directory)])
        if mounted.returncode:
            print("no mounts")
            sys.exit(0)
        cluster.add_node(num_cpus=0)
        node = cluster.add_node(num_cpus=2)
        with sooner.init(address=node.session_dir, namespace="x", log_to_driver=False):
            first = Keeper.options(name="first", lifetime="detached").remote()
            assert sooner.get(first.size.remote(), timeout=WAIT) == 0
            ballast = directory / "ballast"
            with open(ballast, "wb", buffering=0) as file:
                try:
                    while True:
                        file.write(bytes(4096))
                except OSError:
                    pass
            failures = []
            for number in range(200):
                try:
                    made = Keeper.options(name=f"more{number}", lifetime="detached").remote(bytes(60_000))
                    sooner.get(made.size.remote(), timeout=WAIT)
                except (sooner.exceptions.RpcError, sooner.exceptions.ActorDiedError) as error:
                    failures.append(str(error))
                    break
            assert failures, "a full disk takes nothing"
            assert "the head cannot write this down" in failures[0], failures
            assert "control.redb" in failures[0] and "No space left" in failures[0], failures
            # Nothing else is held up.
            assert sooner.get(one.remote(), timeout=WAIT) == 1
            assert sooner.get(first.size.remote(), timeout=WAIT) == 0
            assert sooner.get(Keeper.remote().size.remote(), timeout=WAIT) == 0, "an ordinary actor needs no disk"
            assert "first" in sooner.list_named_actors()
            ballast.unlink()

            def again():
                try:
                    later = Keeper.options(name="later", lifetime="detached").remote()
                    return sooner.get(later.size.remote(), timeout=WAIT) == 0
                except (sooner.exceptions.RpcError, sooner.exceptions.ActorDiedError):
                    return False

            poll("there is room again", again)
            cluster.remove_node(cluster.head_node, allow_graceful=False)
            cluster.add_node(num_cpus=0)
            names = set(sooner.list_named_actors())
            assert {"first", "later"} <= names, names
            assert f"more{number}" not in names, "what was refused is not there"
    print("all there")
    """
)


def test_a_full_disk_refuses_what_is_new_and_says_where(tmp_path):
    script = tmp_path / "full.py"
    script.write_text(FULL)
    # A mount of its own in a namespace of its own: it goes with the process, however that ends.
    command = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        sys.executable,
        str(script),
        os.path.dirname(__file__),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=4 * WAIT, check=False)
    except FileNotFoundError:
        pytest.skip("this machine has no `unshare`")
    if "no mounts" in done.stdout or "unshare:" in done.stderr:
        pytest.skip(f"this machine allows no mounts in namespaces: {done.stderr}")
    assert "all there" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0, done.stderr
