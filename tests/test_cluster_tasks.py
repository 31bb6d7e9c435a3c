"""Tasks that run on nodes that their program is not connected to."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from clusters import cluster_of
from support import poll, run_driver

import sooner
from sooner.util.placement_group import placement_group, placement_group_table, remove_placement_group
from sooner.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy


@pytest.fixture
def cluster():
    with cluster_of(1, {"num_cpus": 2, "resources": {"there": 100}}, connects=True) as made:
        yield made


@sooner.remote(num_cpus=0, resources={"there": 1})
def there(value=None):
    return sooner.get_runtime_context().get_node_id(), value


@sooner.remote(num_cpus=0, resources={"there": 1})
def fail():
    raise KeyError("from there")


@sooner.remote(num_cpus=0, resources={"there": 1})
def nested(count):
    return sum(sooner.get([leaf.remote(number) for number in range(count)]))


@sooner.remote(num_cpus=0)
def leaf(number):
    return number


@sooner.remote(num_cpus=0, resources={"there": 1}, num_returns="streaming")
def items(count):
    yield from range(count)


def test_a_task_runs_where_its_resources_are(cluster):
    (other,) = cluster.worker_nodes
    assert sooner.get(there.remote(7)) == (other.node_id, 7)


def test_many_tasks(cluster):
    (other,) = cluster.worker_nodes
    results = sooner.get([there.remote(number) for number in range(2_000)])
    assert results == [(other.node_id, number) for number in range(2_000)]


def test_a_task_elsewhere_raises_here(cluster):
    with pytest.raises(KeyError, match="from there"):
        sooner.get(fail.remote())


def test_tasks_elsewhere_submit_tasks(cluster):
    assert sooner.get(nested.remote(20)) == sum(range(20))


def test_results_of_tasks_are_arguments_of_others_wherever_those_run(cluster):
    here = leaf.remote(5)
    node, value = sooner.get(there.remote(here))
    assert value == 5
    both = there.remote(there.remote(1))
    assert sooner.get(both)[1] == (node, 1)


def test_a_reference_inside_a_value_reaches_its_task(cluster):
    @sooner.remote(num_cpus=0, resources={"there": 1})
    def inside(box):
        return sooner.get(box[0]) + 1

    assert sooner.get(inside.remote([leaf.remote(5)])) == 6


def test_a_generator_elsewhere(cluster):
    assert [sooner.get(item) for item in items.remote(10)] == list(range(10))


def test_a_task_elsewhere_is_cancelled(cluster):
    @sooner.remote(num_cpus=0, resources={"there": 1})
    def sleep():
        time.sleep(600)

    ref = sleep.remote()
    # Whether it runs by then or still waits for its worker.
    time.sleep(0.3)
    sooner.cancel(ref, force=True)
    with pytest.raises((sooner.exceptions.TaskCancelledError, sooner.exceptions.WorkerCrashedError)):
        sooner.get(ref)


def test_a_worker_elsewhere_that_is_killed_is_replaced(cluster, tmp_path):
    mark = tmp_path / "began"

    @sooner.remote(num_cpus=0, resources={"there": 1}, max_retries=2)
    def once(path):
        if not os.path.exists(path):
            open(path, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return os.getpid()

    assert sooner.get(once.remote(str(mark))) > 0


@pytest.mark.parametrize("size", [1, 1_000, 200_000, 16 << 20])
def test_values_of_any_size_go_both_ways(cluster, size):
    node, value = sooner.get(there.remote(b"x" * size))
    assert node != sooner.get_runtime_context().get_node_id()
    assert value == b"x" * size


def test_what_does_not_fit_here_goes_elsewhere(cluster):
    @sooner.remote(num_cpus=1)
    def where():
        time.sleep(0.2)
        return sooner.get_runtime_context().get_node_id()

    # The first worker of a program takes longest.
    sooner.get(there.remote())
    used = set(sooner.get([where.remote() for _ in range(12)]))
    assert used == {node["NodeID"] for node in sooner.nodes()}


@pytest.mark.api("placement_groups")
def test_tasks_and_actors_run_in_bundles_of_other_nodes(cluster):
    @sooner.remote
    class Where:
        def node(self):
            return sooner.get_runtime_context().get_node_id()

    where = sooner.remote(lambda: sooner.get_runtime_context().get_node_id())
    group = placement_group([{"CPU": 1}, {"CPU": 1}], strategy="STRICT_SPREAD")
    sooner.get(group.ready())
    places = placement_group_table(group)["bundles_to_node_id"]
    assert len(set(places.values())) == 2
    for index, node in places.items():
        there = PlacementGroupSchedulingStrategy(group, index)
        assert sooner.get(where.options(scheduling_strategy=there).remote()) == node
        actor = Where.options(scheduling_strategy=there).remote()
        assert sooner.get(actor.node.remote()) == node
        sooner.kill(actor)
    remove_placement_group(group)
    poll("all is free", lambda: sooner.available_resources().get("CPU") == 3)


def test_a_strategy_names_another_node(cluster):
    (other,) = cluster.worker_nodes
    where = sooner.remote(num_cpus=0)(lambda: (time.sleep(0.2), sooner.get_runtime_context().get_node_id())[1])
    there = NodeAffinitySchedulingStrategy(other.node_id, soft=False)
    assert sooner.get(where.options(scheduling_strategy=there).remote()) == other.node_id
    spread = [where.options(scheduling_strategy="SPREAD").remote() for _ in range(20)]
    assert len(set(sooner.get(spread))) == 2


def test_an_actor_is_called_from_the_node_of_another(cluster):
    @sooner.remote(num_cpus=0)
    class Counter:
        def __init__(self):
            self.count = 0

        def add(self):
            self.count += 1
            return self.count

    @sooner.remote(num_cpus=0, resources={"there": 1})
    def add(counter):
        return sooner.get([counter.add.remote() for _ in range(100)])[-1]

    counter = Counter.remote()
    assert sorted(sooner.get([add.remote(counter) for _ in range(3)]))[-1] == 300
    assert sooner.get(counter.add.remote()) == 301


def test_an_actor_elsewhere_is_restarted_after_its_process_was_killed(cluster):
    @sooner.remote(num_cpus=0, resources={"there": 1}, max_restarts=1, max_task_retries=2)
    class Pid:
        def get(self):
            return os.getpid()

    actor = Pid.remote()
    first = sooner.get(actor.get.remote())
    os.kill(first, signal.SIGKILL)
    assert sooner.get(actor.get.remote()) != first


def test_resources_are_those_of_all_nodes(cluster):
    assert sooner.cluster_resources()["CPU"] == 3
    assert sooner.cluster_resources()["there"] == 100
    poll("all is free", lambda: sooner.available_resources().get("CPU") == 3)
    assert sorted(node["Resources"]["CPU"] for node in sooner.nodes()) == [1, 2]


@pytest.mark.parametrize("strategy", ["SPREAD", "DEFAULT"])
def test_what_is_spread_reaches_a_node_that_started_late(strategy):
    """Two tasks at a time, pair after pair: the leases that are there have room for all and are never idle
    for long.
    """

    @sooner.remote(scheduling_strategy=strategy)
    def where():
        time.sleep(0.1)
        return sooner.get_runtime_context().get_node_id()

    def pair():
        return sooner.get([where.remote() for _ in range(2)])

    with cluster_of(2, connects=True) as made:
        assert len(set(pair())) == 1
        with ThreadPoolExecutor(1) as pool:
            joining = pool.submit(made.add_node, num_cpus=2)
            while not joining.done():
                pair()
        late = joining.result().node_id
        if strategy == "SPREAD":
            poll("it takes part", lambda: late in pair())
        reached = sum(late in pair() for _ in range(10))
        # Others stay where they are while there is room.
        assert reached >= 8 if strategy == "SPREAD" else reached == 0, reached


def test_a_programs_end_leaves_nothing(cluster):
    cluster_directory = cluster.head_node.session_dir
    sooner.shutdown()
    code = """
        import sys, sooner
        sooner.init(address=sys.argv[1])

        @sooner.remote(num_cpus=0, resources={"there": 1})
        def pid():
            import os
            return os.getpid()

        print(sooner.get(pid.remote()))
    """
    pid = int(run_driver(code, cluster_directory).stdout)
    poll("the worker is gone", lambda: not os.path.exists(f"/proc/{pid}"))
