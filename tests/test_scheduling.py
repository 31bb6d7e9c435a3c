"""Strategies, labels and priorities: where tasks and actors run, and in which order."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from support import WAIT

import sooner
from sooner.exceptions import ActorUnschedulableError, GetTimeoutError, TaskUnschedulableError
from sooner.util.scheduling_strategies import (
    DoesNotExist,
    Exists,
    In,
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
    NotIn,
)

ELSEWHERE = "00000000000abc00"


@sooner.remote
def node() -> str:
    return sooner.get_runtime_context().get_node_id()


@sooner.remote
class Place:
    def node(self) -> str:
        return sooner.get_runtime_context().get_node_id()


@pytest.fixture
def here(nothing_left: list[str]) -> Iterator[str]:
    """A session with labels; the id of its node."""
    labels = {"zone": "a", "example.com/disk": "ssd"}
    nothing_left.append(sooner.init(num_cpus=2, labels=labels)["session_dir"])
    yield sooner.get_runtime_context().get_node_id()
    sooner.shutdown()


@pytest.fixture
def one_cpu(nothing_left: list[str]) -> Iterator[None]:
    """A session with one CPU."""
    nothing_left.append(sooner.init(num_cpus=1)["session_dir"])
    yield
    sooner.shutdown()


@pytest.mark.api("task.scheduling_strategy", "scheduling_strategies")
def test_spread_and_affinity_on_one_node(here) -> None:
    for strategy in ("SPREAD", "DEFAULT", NodeAffinitySchedulingStrategy(here, soft=False)):
        assert sooner.get(node.options(scheduling_strategy=strategy).remote(), timeout=WAIT) == here
        actor = Place.options(scheduling_strategy=strategy).remote()
        assert sooner.get(actor.node.remote(), timeout=WAIT) == here
    soft = NodeAffinitySchedulingStrategy(ELSEWHERE, soft=True)
    assert sooner.get(node.options(scheduling_strategy=soft).remote(), timeout=WAIT) == here
    assert sooner.get(Place.options(scheduling_strategy=soft).remote().node.remote(), timeout=WAIT) == here


@pytest.mark.api("scheduling_strategies", "errors.unschedulable")
def test_a_node_that_does_not_exist_is_an_error(here) -> None:
    hard = NodeAffinitySchedulingStrategy(ELSEWHERE, soft=False)
    tasks = [node.options(scheduling_strategy=hard).remote() for _ in range(3)]
    for task in tasks:
        with pytest.raises(TaskUnschedulableError, match=f"no node {ELSEWHERE}.*soft=True"):
            sooner.get(task, timeout=WAIT)
    with pytest.raises(ActorUnschedulableError, match="no node"):
        sooner.get(Place.options(scheduling_strategy=hard).remote().node.remote(), timeout=WAIT)
    large = node.options(num_cpus=9, scheduling_strategy=NodeAffinitySchedulingStrategy(here, soft=False))
    with pytest.raises(TaskUnschedulableError, match="can never give 9 CPU"):
        sooner.get(large.remote(), timeout=WAIT)
    # Others of the same process go on.
    assert sooner.get(node.remote(), timeout=WAIT) == here


@pytest.mark.api("labels", "task.label_selector", "scheduling_strategies", "context.node")
def test_labels_decide_where_work_runs(here) -> None:
    assert sooner.nodes()[0]["Labels"] == {"ray.io/node-id": here, "zone": "a", "example.com/disk": "ssd"}
    assert sooner.get_runtime_context().get_node_labels()["zone"] == "a"
    met = [
        node.options(label_selector={"zone": "in(a, b)", "rack": "!7"}),
        node.options(label_selector={"zone": "a"}, scheduling_strategy="SPREAD"),
        node.options(label_selector={"ray.io/node-id": here}),
        node.options(scheduling_strategy=NodeLabelSchedulingStrategy({"zone": In("a"), "rack": DoesNotExist()})),
        node.options(scheduling_strategy=NodeLabelSchedulingStrategy({"zone": Exists()}, soft={"rack": Exists()})),
        node.options(scheduling_strategy=NodeLabelSchedulingStrategy(None, soft={"zone": In("z")})),
    ]
    assert sooner.get([task.remote() for task in met], timeout=WAIT) == [here] * len(met)
    unmet = [
        node.options(label_selector={"zone": "!a"}),
        node.options(scheduling_strategy=NodeLabelSchedulingStrategy({"zone": NotIn("a")})),
    ]
    for task in unmet:
        with pytest.raises(GetTimeoutError):
            sooner.get(task.remote(), timeout=0.1)
    actor = Place.options(label_selector={"zone": "!a"}).remote()
    with pytest.raises(GetTimeoutError):
        sooner.get(actor.node.remote(), timeout=0.1)
    actor = Place.options(label_selector={"example.com/disk": "ssd"}).remote()
    assert sooner.get(actor.node.remote(), timeout=WAIT) == here


@pytest.mark.api("labels", "task.label_selector", "scheduling_strategies")
def test_bad_labels_and_strategies_are_refused() -> None:
    for selector in ({"a b": "c"}, {"a": "b c"}, {"a": "in(b"}, {"a": 1}, "a", {"x" * 64: "a"}):
        with pytest.raises(ValueError, match="label_selector"):
            node.options(label_selector=selector)
    for labels in ({"a b": "c"}, {"a": "-"}, {"a": 1}, {"ray.io/node-id": "x"}, ["a"]):
        with pytest.raises(ValueError, match="label"):
            sooner.init(labels=labels)
    assert not sooner.is_initialized()
    bad = [
        ("node_id", lambda: NodeAffinitySchedulingStrategy(7, soft=False)),
        ("soft", lambda: NodeAffinitySchedulingStrategy("ab", soft="yes")),
        ("at least one", lambda: NodeLabelSchedulingStrategy({})),
        ("must be In", lambda: NodeLabelSchedulingStrategy({"a": "b"})),
        ("label key", lambda: NodeLabelSchedulingStrategy({"a b": Exists()})),
        ("as strings", In),
        ("as strings", lambda: In(1)),
        ("16 hex", lambda: node.options(scheduling_strategy=NodeAffinitySchedulingStrategy("nowhere", soft=True))),
    ]
    for words, make in bad:
        with pytest.raises(ValueError, match=words):
            make()


@pytest.mark.api("own.priority")
def test_what_is_more_urgent_runs_first(one_cpu) -> None:
    @sooner.remote
    def note(name: str) -> tuple[str, float]:
        # Long enough that none is handed over before its turn.
        time.sleep(0.02)
        return name, time.monotonic()

    @sooner.remote
    def block() -> None:
        time.sleep(0.3)

    sooner.get(note.remote("warm"), timeout=WAIT)
    blocker = block.remote()
    asked = [("low", -1), ("plain", 0), ("high", 10), ("plain", 0), ("high", 10), ("higher", 11)]
    tasks = [note.options(priority=priority).remote(name) for name, priority in asked]
    sooner.get(blocker, timeout=WAIT)
    ran = sorted(sooner.get(tasks, timeout=WAIT), key=lambda pair: pair[1])
    assert [name for name, _ in ran] == ["higher", "high", "high", "plain", "plain", "low"]


@pytest.mark.api("own.priority")
def test_urgent_work_of_another_kind_gets_the_next_lease(one_cpu) -> None:
    @sooner.remote
    def fill() -> float:
        time.sleep(0.02)
        return time.monotonic()

    @sooner.remote(num_cpus=0.5, priority=5)
    def urgent() -> float:
        return time.monotonic()

    many = [fill.remote() for _ in range(60)]
    sooner.get(many[0], timeout=WAIT)
    ran = sooner.get(urgent.remote(), timeout=WAIT)
    later = [end for end in sooner.get(many, timeout=WAIT) if end > ran]
    assert later, "it did not wait for all the others"
    actors = [Place.options(num_cpus=1, priority=priority).remote() for priority in (0, 3)]
    assert sooner.get(actors[1].node.remote(), timeout=WAIT)


def test_bad_priorities_are_refused() -> None:
    for value in (1.5, "high", True, 2**31, None):
        with pytest.raises(ValueError, match="priority"):
            node.options(priority=value)
