"""A node that ends takes its processes and copies with it: what can be is made again, the rest is said."""

from __future__ import annotations

import hashlib
import os
import signal
import time

import pytest
from support import WAIT, poll

import sooner
from sooner.cluster_utils import Cluster
from sooner.exceptions import ActorDiedError, ObjectLostError, WorkerCrashedError

pytestmark = pytest.mark.chaos

LARGE = 3_000_000


@pytest.fixture
def cluster():
    """A head without CPUs, where this program is, and a node that has what is asked for."""
    with Cluster(initialize_head=True, head_node_args={"num_cpus": 0}) as made:
        made.add_node(num_cpus=2)
        made.wait_for_nodes()
        with made.connect():
            yield made


def kill(cluster):
    """Kills the node where the tasks are."""
    (node,) = cluster.worker_nodes
    cluster.remove_node(node, allow_graceful=False)


@sooner.remote(max_retries=2)
def slowly(directory, number):
    (directory / f"{number}-{os.getpid()}").touch()
    # The first time it takes too long for anybody to wait.
    if len(list(directory.glob(f"{number}-*"))) == 1:
        time.sleep(600)
    return number


@pytest.mark.api("failure.node")
def test_tasks_of_a_node_that_is_killed_begin_elsewhere(cluster, tmp_path):
    refs = [slowly.remote(tmp_path, number) for number in range(2)]
    poll("both run", lambda: len(list(tmp_path.iterdir())) == 2)
    kill(cluster)
    cluster.add_node(num_cpus=2)
    assert sooner.get(refs, timeout=WAIT) == [0, 1]


def test_a_task_without_retries_says_what_happened(cluster, tmp_path):
    ref = slowly.options(max_retries=0).remote(tmp_path, 0)
    poll("it runs", lambda: list(tmp_path.iterdir()))
    kill(cluster)
    with pytest.raises(WorkerCrashedError):
        sooner.get(ref, timeout=WAIT)


@sooner.remote(max_retries=2)
def large(number):
    return bytes([number]) * LARGE


@pytest.mark.api("failure.node")
def test_values_of_a_node_that_is_killed_are_made_again(cluster):
    refs = [large.remote(number) for number in range(4)]
    sooner.wait(refs, num_returns=4, fetch_local=False)
    kill(cluster)
    cluster.add_node(num_cpus=2)
    assert [value[:1] for value in sooner.get(refs, timeout=WAIT)] == [bytes([number]) for number in range(4)]


@pytest.mark.parametrize("cpus", [1, 4])
def test_one_retry_is_enough_for_one_death(cluster, tmp_path, cpus):
    """None is spent on workers of the dead node, whose ends are heard one after the other."""
    for _ in range(2):
        kill(cluster)
        cluster.add_node(num_cpus=cpus)
        refs = [large.options(max_retries=1).remote(number) for number in range(8)]
        sooner.wait(refs, num_returns=8, fetch_local=False, timeout=WAIT)
        directory = tmp_path / str(time.monotonic())
        directory.mkdir()
        running = [slowly.options(max_retries=1).remote(directory, number) for number in range(cpus)]
        poll("they run", lambda where=directory: len(list(where.iterdir())) == cpus)
        kill(cluster)
        cluster.add_node(num_cpus=cpus)
        assert [value[0] for value in sooner.get(refs, timeout=WAIT)] == list(range(8))
        assert sooner.get(running, timeout=WAIT) == list(range(cpus))


STEPS = 8
STEP_BYTES = 10_000_000


@sooner.remote(max_retries=2)
def begin():
    return bytes(STEP_BYTES)


@sooner.remote(max_retries=2)
def go_on(before, directory, number):
    """One more step of a chain; the last but one waits until the node was killed."""
    if number == STEPS - 1:
        (directory / "reached").touch()
        while not (directory / "killed").exists():
            time.sleep(0.01)
    return before + bytes([number])


@pytest.mark.parametrize("cpus", [1, 2])
def test_a_chain_of_large_values_goes_on_when_its_node_is_killed(cluster, tmp_path, cpus):
    """No handle of a step before the last is left: each is made again from the one before it."""
    ref = begin.remote()
    for number in range(1, STEPS + 1):
        ref = go_on.remote(ref, tmp_path, number)
    poll("most steps are done", (tmp_path / "reached").exists)
    kill(cluster)
    (tmp_path / "killed").touch()
    cluster.add_node(num_cpus=cpus)
    assert sooner.get(ref, timeout=WAIT)[STEP_BYTES:] == bytes(range(1, STEPS + 1))


@sooner.remote(num_returns="streaming")
def parts():
    for i in range(3):
        yield bytes([i]) * LARGE


@sooner.remote
def first(value):
    return value[0]


@pytest.mark.api("failure.lost_items")
@pytest.mark.parametrize("takes", [False, True], ids=["items", "made of them"])
def test_items_of_a_generator_go_with_their_node_and_are_made_again(cluster, takes):
    take = sooner.remote(lambda value: value[:]).remote if takes else lambda ref: ref
    refs = [take(ref) for ref in parts.remote()]
    sooner.wait(refs, num_returns=3, fetch_local=False, timeout=WAIT)
    for _ in range(2):
        kill(cluster)
        cluster.add_node(num_cpus=2)
        assert sooner.get([first.remote(ref) for ref in refs], timeout=WAIT) == [0, 1, 2]


def test_a_generator_that_goes_with_its_node_goes_on_and_keeps_what_was_read(cluster):
    generator = parts.options(_generator_backpressure_num_objects=1).remote()
    refs = [next(generator)]
    sooner.wait([generator], timeout=WAIT)
    kill(cluster)
    cluster.add_node(num_cpus=2)
    refs += generator
    assert sooner.get([first.remote(ref) for ref in refs], timeout=WAIT) == [0, 1, 2]


def test_a_value_that_nobody_can_make_again_is_lost_with_a_reason(cluster):
    ref = large.options(max_retries=0).remote(1)
    sooner.wait([ref], fetch_local=False)
    kill(cluster)
    with pytest.raises(ObjectLostError):
        sooner.get(ref, timeout=WAIT)


def test_a_copy_here_outlives_the_node_that_made_it(cluster):
    ref = large.options(max_retries=0).remote(1)
    assert len(sooner.get(ref)) == LARGE
    kill(cluster)
    assert len(sooner.get(ref)) == LARGE


@sooner.remote
class Counter:
    def __init__(self):
        self.count = 0

    def add(self):
        self.count += 1
        return self.count

    def pid(self):
        return os.getpid()


@pytest.mark.api("failure.node")
def test_an_actor_of_a_node_that_is_killed_starts_elsewhere(cluster):
    counter = Counter.options(max_restarts=1, max_task_retries=1, num_cpus=1).remote()
    assert sooner.get([counter.add.remote() for _ in range(3)]) == [1, 2, 3]
    kill(cluster)
    cluster.add_node(num_cpus=1)
    assert sooner.get(counter.add.remote(), timeout=WAIT) == 1


def test_an_actor_without_restarts_is_dead(cluster):
    counter = Counter.options(num_cpus=1).remote()
    assert sooner.get(counter.add.remote()) == 1
    kill(cluster)
    with pytest.raises(ActorDiedError):
        sooner.get(counter.add.remote(), timeout=WAIT)


def test_a_worker_elsewhere_is_as_dead_as_one_here(cluster):
    counter = Counter.options(max_restarts=1, max_task_retries=1, num_cpus=1).remote()
    os.kill(sooner.get(counter.pid.remote()), signal.SIGKILL)
    assert sooner.get(counter.add.remote(), timeout=WAIT) == 1


@pytest.fixture
def two_nodes():
    """A head without CPUs, where this program is, and two nodes, of which one makes values and the other
    reads them.
    """
    with Cluster(initialize_head=True, head_node_args={"num_cpus": 0}) as made:
        maker = made.add_node(num_cpus=1, resources={"maker": 1})
        made.add_node(num_cpus=1, resources={"reader": 1})
        made.wait_for_nodes()
        with made.connect():
            yield made, maker


@sooner.remote
class Maker:
    def make(self, directory):
        return make_once(directory)


def make_once(directory):
    (directory / f"{os.getpid()}-{time.monotonic_ns()}").touch()
    return os.urandom(LARGE)


@sooner.remote
def digest(value):
    return hashlib.sha256(value).digest()


@pytest.mark.parametrize("by", ["call", "task"])
def test_a_copy_at_a_third_node_becomes_the_value_when_the_node_that_made_it_is_killed(two_nodes, tmp_path, by):
    """Nobody may make it again, and this program has never looked at it."""
    cluster, node = two_nodes
    there, elsewhere = {"resources": {"maker": 1}, "num_cpus": 0}, {"resources": {"reader": 1}, "num_cpus": 0}
    if by == "call":
        maker = Maker.options(**there).remote()
        ref = maker.make.remote(tmp_path)
    else:
        ref = sooner.remote(make_once).options(max_retries=0, **there).remote(tmp_path)
    expected = sooner.get(digest.options(**elsewhere).remote(ref), timeout=WAIT)
    cluster.remove_node(node, allow_graceful=False)
    poll("the other node is told to be gone", lambda: sum(row["Alive"] for row in sooner.nodes()) == 2)
    # First where the copy is, then here.
    assert sooner.get(digest.options(**elsewhere).remote(ref), timeout=WAIT) == expected
    assert hashlib.sha256(sooner.get(ref, timeout=WAIT)).digest() == expected
    assert len(list(tmp_path.iterdir())) == 1, "it was made once"


@sooner.remote(max_restarts=-1, max_task_retries=-1)
class Holder:
    def __init__(self, *values):
        self.firsts = [value[0] for value in values]

    def read(self):
        return self.firsts


@pytest.mark.parametrize("needs", [{"num_cpus": 1}, {"resources": {"slot": 1}}, {"num_gpus": 1}])
def test_an_actor_that_restarts_leaves_its_resources_to_what_makes_its_arguments(needs):
    """The only place there is: the actor gets it when its lost arguments are there again."""
    offers = {"num_cpus": 1, "num_gpus": 1, "resources": {"slot": 1}}
    with Cluster(initialize_head=True, head_node_args={"num_cpus": 0}) as made:
        made.add_node(**offers)
        made.wait_for_nodes()
        with made.connect():
            refs = [large.options(**needs).remote(number) for number in range(2)]
            sooner.wait(refs, num_returns=2, fetch_local=False, timeout=WAIT)
            holder = Holder.options(**needs).remote(*refs)
            assert sooner.get(holder.read.remote(), timeout=WAIT) == [0, 1]
            kill(made)
            made.add_node(**offers)
            assert sooner.get(holder.read.remote(), timeout=WAIT) == [0, 1]
