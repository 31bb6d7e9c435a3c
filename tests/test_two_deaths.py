"""Deaths that nobody can tell of: the head and a node end together, or a daemon, or the head, stands
still.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import signal
import threading
import time

import pytest
from support import WAIT, is_alive, poll, stop, stopped

import sooner
from sooner.cluster_utils import Cluster
from sooner.exceptions import ActorDiedError, ActorUnavailableError, RpcError, WorkerCrashedError
from sooner.util.placement_group import placement_group_table
from sooner.util.scheduling_strategies import NodeAffinitySchedulingStrategy

pytestmark = pytest.mark.waits

# What `docs/bounds.md` promises (30 s), and what a busy machine may add.
AWAY = 30 + WAIT


@pytest.fixture
def cluster():
    """A head without CPUs, the node of the program, and two that have what is asked for."""
    with Cluster(initialize_head=True, head_node_args={"num_cpus": 0}) as made:
        made.add_node(num_cpus=1, node_name="home")
        for name in ("first", "second"):
            made.add_node(num_cpus=2, node_name=name, resources={"far": 4})
        made.wait_for_nodes()
        yield made


@sooner.remote(num_cpus=0, resources={"far": 0.1})
class Counter:
    def where(self):
        return sooner.get_runtime_context().get_node_id()

    def pid(self):
        return os.getpid()

    def stay(self):
        time.sleep(3600)


@sooner.remote(num_cpus=0, resources={"far": 0.1})
def stay_once(mark):
    with open(mark, "a") as file:
        file.write("x")
    with open(mark) as file:
        time.sleep(3600 if len(file.read()) == 1 else 0)
    return "again"


@sooner.remote(num_cpus=0, resources={"far": 0.1})
def make():
    return bytes(3_000_000)


@contextlib.contextmanager
def losing_both(cluster, tmp_path, **counter_options):
    """A program with actors, tasks and a value at the first of the far nodes, which is killed with the
    head.
    """
    home, first, _ = cluster.worker_nodes
    there = {"scheduling_strategy": NodeAffinitySchedulingStrategy(first.node_id, soft=True)}
    mark, other_mark = tmp_path / "retried", tmp_path / "once"
    with sooner.init(address=home.session_dir, log_to_driver=False):
        actor = Counter.options(**there, **counter_options).remote()
        mortal = Counter.options(**there).remote()
        assert sooner.get([actor.where.remote(), mortal.where.remote()], timeout=WAIT) == [first.node_id] * 2
        refs = {
            "call": mortal.stay.remote(),
            "once": stay_once.options(max_retries=0, **there).remote(str(other_mark)),
            "retried": stay_once.options(max_retries=3, **there).remote(str(mark)),
            "value": make.options(**there).remote(),
        }
        sooner.wait([refs["value"]], fetch_local=False, timeout=WAIT)
        # Their marks are written, not only made: else a retry would stay, too.
        poll("the tasks run", lambda: all(path.exists() and path.stat().st_size for path in (mark, other_mark)))
        kill_both(cluster, sooner.get(actor.pid.remote(), timeout=WAIT))
        yield actor, refs


def kill_both(cluster, worker):
    """The head and the first of the far nodes, at once; with that one its worker ends."""
    pids = [cluster.head_node.pid, cluster.worker_nodes[1].pid]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    poll("they are gone", lambda: not any(is_alive(pid) for pid in [*pids, worker]))


def outcomes(refs):
    """What becomes of each, asked for at once: the value, or the class of the error."""
    found = {}

    def wait(name, ref):
        try:
            found[name] = sooner.get(ref, timeout=AWAY)
        except Exception as error:
            found[name] = type(error)

    waiters = [threading.Thread(target=wait, args=item) for item in refs.items()]
    for waiter in waiters:
        waiter.start()
    for waiter in waiters:
        waiter.join()
    return found


@pytest.mark.chaos
@pytest.mark.timeout(4 * AWAY)
def test_every_wait_ends_when_a_node_and_the_head_end_together_and_no_head_returns(cluster, tmp_path):
    with losing_both(cluster, tmp_path, max_restarts=-1, max_task_retries=-1) as (actor, refs):
        found = outcomes(refs | {"actor": actor.where.remote()})
        value = found.pop("value")
        assert found == {
            "call": ActorUnavailableError,
            "once": WorkerCrashedError,
            "retried": "again",
            "actor": ActorUnavailableError,
        }
        assert value == bytes(3_000_000)
        with pytest.raises(ActorUnavailableError, match="head of the cluster"):
            sooner.get(actor.where.remote(), timeout=WAIT)
        # What needs neither goes on.
        assert len(sooner.get([make.remote() for _ in range(4)], timeout=WAIT)) == 4
        cluster.remove_node(cluster.head_node, allow_graceful=False)
        cluster.add_node(num_cpus=0)

        def answer():
            try:
                return sooner.get(actor.where.remote(), timeout=WAIT)
            except ActorUnavailableError:
                return None

        poll("the actor starts again under the next head", lambda: answer() == cluster.worker_nodes[2].node_id)


@pytest.mark.chaos
def test_an_actor_starts_again_whose_node_ended_together_with_the_head(cluster, tmp_path):
    with losing_both(cluster, tmp_path, max_restarts=-1, max_task_retries=-1) as (actor, refs):
        asked = actor.where.remote()
        cluster.remove_node(cluster.head_node, allow_graceful=False)
        cluster.add_node(num_cpus=0)
        assert sooner.get(asked, timeout=WAIT) == cluster.worker_nodes[2].node_id
        found = outcomes(refs)
        assert found.pop("value") == bytes(3_000_000)
        assert found == {"call": ActorDiedError, "once": WorkerCrashedError, "retried": "again"}


@sooner.remote(num_cpus=0, resources={"far": 0.1}, max_restarts=-1, max_task_retries=-1)
class Ticker:
    def begin(self, path):
        def tick():
            while True:
                note(path)

        threading.Thread(target=tick, daemon=True).start()

    def pid(self):
        return os.getpid()


def note(path):
    with open(path, "a") as file:
        file.write(f"{os.getpid()} {time.monotonic()}\n")
    time.sleep(0.02)


@sooner.remote(num_cpus=0, resources={"far": 0.1}, max_retries=3)
def tick(path, end):
    while not os.path.exists(end):
        note(path)


def effects(path):
    """When each process had its first and its last effect."""
    times = {}
    for line in path.read_text().splitlines():
        pid, at = line.split()
        times.setdefault(int(pid), []).append(float(at))
    return {pid: (min(at), max(at)) for pid, at in times.items()}


@pytest.mark.chaos
def test_workers_of_a_daemon_that_stands_still_have_no_effects_beside_their_successors(cluster, tmp_path):
    home, first, _ = cluster.worker_nodes
    there = {"scheduling_strategy": NodeAffinitySchedulingStrategy(first.node_id, soft=True)}
    of_actor, of_task, end = (tmp_path / name for name in ("actor", "task", "end"))
    with sooner.init(address=home.session_dir, log_to_driver=False):
        ticker = Ticker.options(**there).remote()
        old = sooner.get(ticker.pid.remote(), timeout=WAIT)
        sooner.get(ticker.begin.remote(str(of_actor)), timeout=WAIT)
        ticking = tick.options(**there).remote(str(of_task), str(end))
        poll("both have effects", lambda: of_actor.exists() and of_task.exists())
        with stopped(first.pid):
            poll("the task runs elsewhere", lambda: len(effects(of_task)) == 2)
            poll("the actor does, too", lambda: sooner.get(ticker.pid.remote(), timeout=WAIT) != old)
            sooner.get(ticker.begin.remote(str(of_actor)), timeout=WAIT)
            time.sleep(3)
            before = [min(effects(path).values())[1] for path in (of_actor, of_task)]
            time.sleep(1)
            assert [min(effects(path).values())[1] for path in (of_actor, of_task)] == before, "they are stopped"
        poll("the node hears that it is gone", lambda: not is_alive(first.pid) and not is_alive(old))
        assert [min(effects(path).values())[1] for path in (of_actor, of_task)] == before, "nor then"
        end.touch()
        sooner.get(ticking, timeout=WAIT)


@pytest.mark.chaos
def test_workers_of_a_daemon_that_stands_still_for_a_moment_go_on(cluster, tmp_path):
    home, first, _ = cluster.worker_nodes
    there = {"scheduling_strategy": NodeAffinitySchedulingStrategy(first.node_id, soft=True)}
    with sooner.init(address=home.session_dir, log_to_driver=False):
        ticker = Ticker.options(**there).remote()
        old = sooner.get(ticker.pid.remote(), timeout=WAIT)
        sooner.get(ticker.begin.remote(str(tmp_path / "actor")), timeout=WAIT)
        stop(first.pid)
        time.sleep(2)
        os.kill(first.pid, signal.SIGCONT)
        assert sooner.get(ticker.pid.remote(), timeout=WAIT) == old
        last = effects(tmp_path / "actor")[old][1]
        poll("it goes on", lambda: effects(tmp_path / "actor")[old][1] > last)


@contextlib.contextmanager
def standing_still(node):
    with stopped(node.pid):
        yield


def outcome_of(question):
    """What it gives, or the class of its error and what that says."""
    try:
        return question()
    except (RpcError, ValueError) as error:
        return type(error), str(error)


@pytest.mark.chaos
@pytest.mark.timeout(4 * AWAY)
def test_questions_to_a_head_that_stands_still_end(cluster):
    home = cluster.worker_nodes[0]
    questions = {
        "nodes": sooner.nodes,
        "resources": sooner.cluster_resources,
        "actor": lambda: sooner.get_actor("nobody"),
        "names": sooner.util.list_named_actors,
        "groups": placement_group_table,
    }
    with sooner.init(address=home.session_dir, log_to_driver=False):
        with standing_still(cluster.head_node), concurrent.futures.ThreadPoolExecutor(len(questions)) as pool:
            asked = {name: pool.submit(outcome_of, question) for name, question in questions.items()}
            found = {name: future.result() for name, future in asked.items()}
        for name, (kind, text) in found.items():
            assert "the head of the cluster has not answered" in text, name
            assert kind is RpcError or name == "groups", name
        # Who asks again is answered when it goes on.
        assert len(sooner.nodes()) == 4
        assert sooner.util.list_named_actors() == []


@pytest.mark.chaos
def test_tasks_begin_at_nodes_that_never_ran_any_of_the_program_while_the_head_stands_still(cluster):
    home = cluster.worker_nodes[0]
    with sooner.init(address=home.session_dir, log_to_driver=False), standing_still(cluster.head_node):
        assert sooner.get(make.remote()) == bytes(3_000_000)
