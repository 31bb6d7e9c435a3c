"""Logical resources: what is counted, who waits, what a blocked task gives back, GPUs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest
from support import WAIT, poll, run_driver

import sooner
from sooner.exceptions import GetTimeoutError

CPUS = 4


@pytest.fixture(scope="module", autouse=True)
def session() -> Iterator[None]:
    """CPUs, GPUs and two custom resources."""
    sooner.init(num_cpus=CPUS, num_gpus=4, resources={"tape": 2, "tiny": 0.5})
    yield
    sooner.shutdown()


@pytest.fixture(autouse=True)
def everything_is_given_back():
    """After each test all resources are free again."""
    yield
    total = sooner.cluster_resources()
    poll("all resources are free", lambda: sooner.available_resources() == total)


@sooner.remote
def holds(ready, gate):
    """Tells that it runs, and runs until the gate opens."""
    ready.touch()
    while not gate.exists():
        time.sleep(0.005)
    return sooner.available_resources()


@sooner.remote
def identity(value):
    return value


def available(name):
    return sooner.available_resources().get(name, 0)


class Runs:
    """Tasks that hold resources until the end of the test."""

    def __init__(self, path):
        self.path = path
        self.gate = path / "gate"
        self.refs = []

    def start(self, **options):
        ready = self.path / str(len(self.refs))
        self.refs.append(holds.options(**options).remote(ready, self.gate))
        return ready

    def end(self):
        self.gate.touch()
        sooner.get(self.refs, timeout=WAIT)


@pytest.fixture
def runs(tmp_path):
    """Starts tasks that hold resources; all are ended after the test."""
    runs = Runs(tmp_path)
    yield runs
    runs.end()


@pytest.mark.api("cluster_resources")
def test_totals():
    total = sooner.cluster_resources()
    assert total["CPU"] == CPUS
    assert total["GPU"] == 4
    assert total["tape"] == 2
    assert total["tiny"] == 0.5
    assert total["memory"] > 0
    assert total["object_store_memory"] > 0
    assert total["node:__internal_head__"] == 1
    assert len([name for name in total if name.startswith("node:")]) == 2


@pytest.mark.api("nodes")
def test_nodes_agree():
    (node,) = sooner.nodes()
    assert node["Alive"]
    assert node["Resources"] == sooner.cluster_resources()
    assert node["NodeID"] == sooner.get_runtime_context().get_node_id()


@pytest.mark.api("cluster_resources", "task.resources")
@pytest.mark.parametrize(
    ("options", "name", "used"),
    [
        ({}, "CPU", 1),
        ({"num_cpus": 0}, "CPU", 0),
        ({"num_cpus": 0.25}, "CPU", 0.25),
        ({"num_cpus": 3}, "CPU", 3),
        ({"num_gpus": 2}, "GPU", 2),
        ({"num_gpus": 0.5}, "GPU", 0.5),
        ({"resources": {"tape": 2}}, "tape", 2),
        ({"resources": {"tape": 0.1}}, "tape", 0.1),
        ({"memory": 1 << 20}, "memory", 1 << 20),
    ],
    ids=str,
)
def test_what_a_task_holds(runs, options, name, used):
    before = available(name)
    ready = runs.start(**options)
    poll("the task runs", ready.exists)
    poll("it is counted", lambda: abs(before - available(name) - used) < 1e-6)


def test_no_more_run_than_there_are_cpus(runs):
    marks = [runs.start(num_cpus=2) for _ in range(3)]
    poll("two run", lambda: sum(mark.exists() for mark in marks) == 2)
    poll("no CPU is free", lambda: available("CPU") == 0)
    time.sleep(0.1)
    assert sum(mark.exists() for mark in marks) == 2
    runs.end()
    assert all(mark.exists() for mark in marks)


@pytest.mark.api("task.resources")
def test_fractions_share_a_cpu(runs):
    marks = [runs.start(num_cpus=0.5) for _ in range(2 * CPUS)]
    poll("all run", lambda: all(mark.exists() for mark in marks))
    poll("no CPU is free", lambda: available("CPU") == 0)


def test_small_fractions_add_up_exactly(runs):
    marks = [runs.start(num_cpus=0, resources={"tape": 0.1}) for _ in range(8)]
    poll("all run", lambda: all(mark.exists() for mark in marks))
    poll("they are counted", lambda: available("tape") == pytest.approx(1.2))


@pytest.mark.api("task.resources")
def test_custom_resources_bound_what_runs(runs):
    marks = [runs.start(num_cpus=0, resources={"tape": 1}) for _ in range(3)]
    poll("two run", lambda: sum(mark.exists() for mark in marks) == 2)
    time.sleep(0.1)
    assert sum(mark.exists() for mark in marks) == 2


def test_a_task_that_needs_much_is_not_starved_by_a_task_that_needs_little(runs):
    runs.start(num_cpus=1)
    big = identity.options(num_cpus=CPUS).remote("big")
    small = [identity.options(num_cpus=1).remote(n) for n in range(20)]
    assert sooner.get(small, timeout=WAIT) == list(range(20))
    runs.end()
    assert sooner.get(big, timeout=WAIT) == "big"


def test_a_task_sees_what_it_was_given():
    @sooner.remote
    def assigned():
        return sooner.get_runtime_context().get_assigned_resources()

    assert sooner.get(assigned.remote(), timeout=WAIT)["CPU"] == 1
    found = sooner.get(assigned.options(num_cpus=0.5, resources={"tape": 1}).remote(), timeout=WAIT)
    assert found["CPU"] == 0.5
    assert found["tape"] == 1


@pytest.mark.api("task.resources")
def test_a_blocked_task_gives_its_cpu_back():
    """Each of these tasks needs a CPU while its parents wait: many more than there are CPUs."""

    @sooner.remote
    def nest(depth):
        return 1 + sooner.get(nest.remote(depth - 1)) if depth else 0

    assert sooner.get(nest.remote(5 * CPUS), timeout=WAIT) == 5 * CPUS


def test_a_task_blocked_in_wait_gives_its_cpu_back():
    @sooner.remote
    def nest(depth):
        if not depth:
            return 0
        (ready,), _ = sooner.wait([nest.remote(depth - 1)])
        return 1 + sooner.get(ready)

    assert sooner.get(nest.remote(5 * CPUS), timeout=WAIT) == 5 * CPUS


def test_all_workers_blocked_at_once():
    @sooner.remote
    def fan(width):
        return sum(sooner.get([identity.remote(1) for _ in range(width)]))

    assert sooner.get([fan.remote(10) for _ in range(3 * CPUS)], timeout=WAIT) == [10] * (3 * CPUS)


def test_a_blocked_task_keeps_its_custom_resources(runs):
    @sooner.remote(num_cpus=1, resources={"tape": 2})
    def waits(box, mark):
        mark.touch()
        return sooner.get(box[0])

    mark = runs.path / "mark"
    ready = runs.start(num_cpus=0)
    ref = waits.remote([runs.refs[0]], mark)
    poll("both run", lambda: ready.exists() and mark.exists())
    poll("the CPU is given back", lambda: available("CPU") == CPUS)
    assert available("tape") == 0
    runs.end()
    sooner.get(ref, timeout=WAIT)


@pytest.mark.api("actor.resources")
def test_an_actor_without_num_cpus_holds_none():
    @sooner.remote
    class Idle:
        def ready(self):
            return True

    idle = Idle.remote()
    sooner.get(idle.ready.remote(), timeout=WAIT)
    poll("its CPU is free again", lambda: available("CPU") == CPUS)


@pytest.mark.api("actor.resources")
def test_an_actor_with_resources_holds_them_for_life():
    @sooner.remote(num_cpus=2, resources={"tape": 1})
    class Holder:
        def ready(self):
            return True

    holder = Holder.remote()
    sooner.get(holder.ready.remote(), timeout=WAIT)
    assert available("CPU") == CPUS - 2
    assert available("tape") == 1
    del holder
    poll("all is free again", lambda: available("CPU") == CPUS and available("tape") == 2)


@pytest.mark.api("actor.resources")
def test_resources_of_a_killed_actor_are_free_again():
    @sooner.remote(num_cpus=CPUS)
    class Greedy:
        def ready(self):
            return True

    for _ in range(3):
        greedy = Greedy.remote()
        sooner.get(greedy.ready.remote(), timeout=WAIT)
        sooner.kill(greedy)


def test_an_actor_waits_for_its_resources():
    @sooner.remote(resources={"tape": 2})
    class Both:
        def ready(self):
            return True

    first = Both.remote()
    sooner.get(first.ready.remote(), timeout=WAIT)
    second = Both.remote()
    ref = second.ready.remote()
    with pytest.raises(GetTimeoutError):
        sooner.get(ref, timeout=0.2)
    del first
    assert sooner.get(ref, timeout=WAIT)


@sooner.remote
def devices(ready=None, gate=None):
    if ready is not None:
        ready.touch()
        while not gate.exists():
            time.sleep(0.005)
    return sooner.get_gpu_ids(), os.environ.get("CUDA_VISIBLE_DEVICES")


@pytest.mark.api("get_gpu_ids")
def test_a_gpu_task_sees_its_device():
    ids, visible = sooner.get(devices.options(num_gpus=1).remote(), timeout=WAIT)
    assert len(ids) == 1
    assert visible == str(ids[0])
    context = sooner.remote(num_gpus=1)(lambda: sooner.get_runtime_context().get_accelerator_ids())
    assert len(sooner.get(context.remote(), timeout=WAIT)["GPU"]) == 1


@pytest.mark.api("get_gpu_ids")
def test_a_task_with_several_gpus():
    ids, visible = sooner.get(devices.options(num_gpus=3).remote(), timeout=WAIT)
    assert len(set(ids)) == 3
    assert visible == ",".join(map(str, ids))


@pytest.mark.api("get_gpu_ids")
def test_a_task_without_gpus_sees_none():
    """Also on a worker that has run a task with GPUs before."""
    sooner.get([devices.options(num_gpus=1).remote() for _ in range(8)], timeout=WAIT)
    for ids, visible in sooner.get([devices.remote() for _ in range(8)], timeout=WAIT):
        assert ids == []
        assert not visible


@pytest.mark.api("task.resources")
def test_gpus_of_tasks_at_the_same_time_are_distinct(tmp_path):
    gate = tmp_path / "gate"
    marks = [tmp_path / str(n) for n in range(4)]
    refs = [devices.options(num_gpus=1, num_cpus=0).remote(mark, gate) for mark in marks]
    poll("all run", lambda: all(mark.exists() for mark in marks))
    gate.touch()
    assert sorted(ids[0] for ids, _ in sooner.get(refs, timeout=WAIT)) == [0, 1, 2, 3]


def test_fractions_share_a_gpu(tmp_path):
    gate = tmp_path / "gate"
    marks = [tmp_path / str(n) for n in range(8)]
    refs = [devices.options(num_gpus=0.5, num_cpus=0).remote(mark, gate) for mark in marks]
    poll("all run", lambda: all(mark.exists() for mark in marks))
    gate.touch()
    used = [ids[0] for ids, _ in sooner.get(refs, timeout=WAIT)]
    assert sorted(used) == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.api("actor.resources")
def test_a_gpu_actor_keeps_its_device():
    @sooner.remote(num_gpus=1)
    class OnGpu:
        def __init__(self):
            self.at_start = os.environ["CUDA_VISIBLE_DEVICES"]

        def now(self):
            return self.at_start, os.environ["CUDA_VISIBLE_DEVICES"], sooner.get_gpu_ids()

    actors = [OnGpu.remote() for _ in range(4)]
    found = sooner.get([actor.now.remote() for actor in actors], timeout=WAIT)
    assert sorted(start for start, _, _ in found) == ["0", "1", "2", "3"]
    assert all(start == now == str(ids[0]) for start, now, ids in found)


def test_accelerators_of_the_driver():
    assert sooner.get_gpu_ids() == []


def test_the_memory_of_a_node_can_be_said() -> None:
    run_driver(
        """
        import sooner
        sooner.init(num_cpus=1, _memory=1 << 30, labels={"ray.io/market-type": "spot"})
        assert sooner.cluster_resources()["memory"] == 1 << 30
        f = sooner.remote(memory=1 << 29)(lambda: 1)
        assert sooner.get(f.remote()) == 1
        _, waiting = sooner.wait([f.options(memory=1 << 31).remote()], timeout=0.2)
        assert waiting
        sooner.shutdown()
        from sooner.cluster_utils import Cluster
        with Cluster(initialize_head=True, connect=True, head_node_args={"memory": 1 << 28}):
            assert sooner.cluster_resources()["memory"] == 1 << 28
            try:
                sooner.shutdown()
                sooner.init(_memory="1 GB")
            except TypeError as error:
                assert "memory" in str(error)
            else:
                raise AssertionError
        """
    )
