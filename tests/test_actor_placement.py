"""Actors go where there is room on the nodes of their cluster, as tasks do."""

from __future__ import annotations

import numpy as np
import pytest
from clusters import cluster_of
from support import WAIT, poll

import sooner
from sooner.util.placement_group import placement_group
from sooner.util.scheduling_strategies import (
    In,
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)


@sooner.remote
class Where:
    def __init__(self, *values):
        self.size = len(values)

    def node(self):
        return sooner.get_runtime_context().get_node_id()


@pytest.fixture
def cluster():
    with cluster_of(2, {"num_cpus": 2}, connects=True) as made:
        yield made


def nodes_of(actors):
    return sooner.get([actor.node.remote() for actor in actors], timeout=WAIT)


def test_actors_that_do_not_fit_at_home_go_where_there_is_room(cluster):
    nodes = nodes_of([Where.options(num_cpus=1).remote() for _ in range(4)])
    assert sorted(nodes.count(node) for node in set(nodes)) == [2, 2]


def test_actors_made_one_after_the_other_find_the_room_that_is_left(cluster):
    kept = []
    for _ in range(4):
        kept.append(Where.options(num_cpus=1).remote())
        nodes_of(kept[-1:])
    nodes = nodes_of(kept)
    assert sorted(nodes.count(node) for node in set(nodes)) == [2, 2]


@pytest.mark.parametrize("options", [{"num_cpus": 1}, {"num_cpus": 0.1}, {"num_cpus": 0}])
def test_actors_that_are_spread_and_made_together_go_to_all_nodes_in_turn(options):
    with cluster_of(4, {"num_cpus": 4}, {"num_cpus": 4}, connects=True):
        for _ in range(2):
            nodes = nodes_of([Where.options(scheduling_strategy="SPREAD", **options).remote() for _ in range(6)])
            assert sorted(nodes.count(node) for node in set(nodes)) == [2, 2, 2], nodes
            poll("they are gone", lambda: sooner.available_resources().get("CPU") == 12)


@pytest.mark.parametrize("options", [{}, {"num_cpus": 0}])
def test_actors_that_hold_no_cpu_are_spread_evenly(cluster, options):
    nodes = nodes_of([Where.options(**options).remote() for _ in range(10)])
    assert sorted(nodes.count(node) for node in set(nodes)) == [5, 5]


def test_an_actor_that_waits_goes_to_the_first_node_with_room_wherever_that_is(cluster):
    first = [Where.options(num_cpus=1).remote() for _ in range(4)]
    nodes = nodes_of(first)
    home = sooner.get_runtime_context().get_node_id()
    for gone in (home, next(node for node in nodes if node != home)):
        waiting = Where.options(num_cpus=1).remote()
        answer = waiting.node.remote()
        assert sooner.wait([answer], timeout=0.3) == ([], [answer])
        at = nodes.index(gone)
        sooner.kill(first[at])
        assert sooner.get(answer, timeout=WAIT) == gone
        first[at] = waiting


def test_an_actor_that_waits_goes_to_a_node_that_joins(cluster):
    kept = [Where.options(num_cpus=2).remote() for _ in range(2)]
    nodes_of(kept)
    waiting = Where.options(num_cpus=2).remote()
    answer = waiting.node.remote()
    assert sooner.wait([answer], timeout=0.3) == ([], [answer])
    cluster.add_node(num_cpus=2)
    assert sooner.get(answer, timeout=WAIT) not in nodes_of(kept)


def test_more_actors_than_there_is_room_for_all_run_in_the_end(cluster):
    answers = []
    actors = [Where.options(num_cpus=1).remote() for _ in range(12)]
    for actor in actors:
        answers.append(actor.node.remote())
    del actors, actor
    left = set(answers)
    # Each ends when its last call has been answered.
    poll("all have run", lambda: left.difference_update(sooner.wait(list(left), timeout=0)[0]) or not left)


def test_gpus_of_other_nodes_are_used():
    with cluster_of(2, {"num_cpus": 2, "num_gpus": 1}, {"num_cpus": 2, "num_gpus": 1}, connects=True):
        actors = [Where.options(num_gpus=1).remote() for _ in range(2)]
        assert len(set(nodes_of(actors))) == 2


def test_work_without_gpus_keeps_off_their_nodes_while_others_have_room():
    with cluster_of(0, {"num_cpus": 4, "num_gpus": 1}, {"num_cpus": 4}, connects=True) as made:
        with_gpu, without = (node.node_id for node in made.worker_nodes)
        assert set(nodes_of([Where.options(num_cpus=1).remote() for _ in range(4)])) == {without}
        assert nodes_of([Where.options(num_cpus=1).remote()]) == [with_gpu]


def test_soft_affinity_falls_elsewhere_when_its_node_is_full_or_dead(cluster):
    (other,) = cluster.worker_nodes
    soft = NodeAffinitySchedulingStrategy(other.node_id, soft=True)
    actors = [Where.options(num_cpus=1, scheduling_strategy=soft).remote() for _ in range(3)]
    nodes = nodes_of(actors)
    assert nodes.count(other.node_id) == 2
    hard = NodeAffinitySchedulingStrategy(other.node_id, soft=False)
    waits = Where.options(num_cpus=1, scheduling_strategy=hard).remote()
    answer = waits.node.remote()
    assert sooner.wait([answer], timeout=0.5) == ([], [answer])
    sooner.kill(actors[nodes.index(other.node_id)])
    assert sooner.get(answer, timeout=WAIT) == other.node_id
    cluster.remove_node(other, allow_graceful=False)
    left = sooner.get_runtime_context().get_node_id()
    poll("the node is gone", lambda: nodes_of([Where.options(scheduling_strategy=soft).remote()]) == [left])


def test_tasks_with_soft_affinity_fall_elsewhere_when_their_node_is_full(cluster):
    (other,) = cluster.worker_nodes
    kept = Where.options(
        num_cpus=2, scheduling_strategy=NodeAffinitySchedulingStrategy(other.node_id, soft=False)
    ).remote()
    assert nodes_of([kept]) == [other.node_id]
    soft = NodeAffinitySchedulingStrategy(other.node_id, soft=True)
    where = sooner.remote(lambda: sooner.get_runtime_context().get_node_id())
    task = where.options(scheduling_strategy=soft).remote()
    assert sooner.get(task, timeout=WAIT) == sooner.get_runtime_context().get_node_id()


def test_soft_labels_fall_elsewhere_when_their_nodes_are_full():
    with cluster_of(1, {"num_cpus": 1, "labels": {"zone": "a"}}, connects=True) as made:
        (other,) = made.worker_nodes
        soft = NodeLabelSchedulingStrategy({}, soft={"zone": In("a")})
        actors = [Where.options(num_cpus=1, scheduling_strategy=soft).remote() for _ in range(2)]
        nodes = nodes_of(actors)
        assert len(set(nodes)) == 2
        assert other.node_id in nodes


def test_actors_in_a_group_use_any_bundle_with_room(cluster):
    group = placement_group([{"CPU": 1}, {"CPU": 1}], strategy="STRICT_SPREAD")
    assert group.wait(10)
    anywhere = PlacementGroupSchedulingStrategy(group)
    actors = [Where.options(num_cpus=1, scheduling_strategy=anywhere).remote() for _ in range(2)]
    nodes = nodes_of(actors)
    assert len(set(nodes)) == 2
    # A third one waits for either of them.
    third = Where.options(num_cpus=1, scheduling_strategy=anywhere).remote().node.remote()
    assert sooner.wait([third], timeout=0.3) == ([], [third])
    away = next(at for at, node in enumerate(nodes) if node != sooner.get_runtime_context().get_node_id())
    sooner.kill(actors[away])
    assert sooner.get(third, timeout=WAIT) == nodes[away]


def test_an_actor_goes_to_the_bundle_that_tasks_leave_free(cluster):
    group = placement_group([{"CPU": 1}, {"CPU": 1}], strategy="STRICT_SPREAD")
    assert group.wait(10)
    hold = sooner.remote(num_cpus=1)(lambda: __import__("time").sleep(60))
    for bundle in (0, 1):
        held = hold.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, bundle)).remote()
        poll("it runs", lambda: any(row.state == "RUNNING" for row in sooner.util.state.list_tasks()))
        actor = Where.options(num_cpus=1, scheduling_strategy=PlacementGroupSchedulingStrategy(group)).remote()
        assert len(nodes_of([actor])) == 1
        sooner.kill(actor)
        sooner.cancel(held, force=True)


def test_an_actor_goes_to_the_arguments_of_its_constructor():
    with cluster_of(4, {"num_cpus": 4, "resources": {"there": 1}}, connects=True) as made:
        (other,) = made.worker_nodes
        make = sooner.remote(num_cpus=0, resources={"there": 1})(lambda: np.zeros(2_000_000, np.uint8))
        value = make.remote()
        sooner.wait([value], fetch_local=False)
        assert nodes_of([Where.options(num_cpus=1).remote(value)]) == [other.node_id]
