"""The state of a session: tasks, actors, objects, workers, nodes, jobs, and the timeline."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from pathlib import Path

import pytest
from support import poll, why

import sooner
from sooner._state import task_rows
from sooner.util import state

KIB_200 = 200 << 10


@sooner.remote
def passes(value=None):
    return value


@sooner.remote(max_retries=0)
def raises():
    raise KeyError("no")


@sooner.remote
def waits_for_file(path):
    while not os.path.exists(path):
        time.sleep(0.01)
    return os.getpid()


@sooner.remote
class Keeper:
    def __init__(self, value=None):
        self.value = value

    def keep(self, value):
        self.value = value

    def waits_for_file(self, path):
        while not os.path.exists(path):
            time.sleep(0.01)


def by_task(ref):
    return state.get_task(ref.task_id())


def states_of(*refs):
    return [by_task(ref).state for ref in refs]


@pytest.fixture
def gate(tmp_path):
    """A file that tasks wait for; it appears at the end of the test at the latest."""
    path = tmp_path / "gate"
    yield path
    path.touch()


@pytest.mark.api("state.list")
def test_a_finished_task_has_its_times(shared_session):
    before = time.time() * 1000
    ref = passes.options(name="shown").remote(1)
    sooner.get(ref)
    task = by_task(ref)
    assert (task.name, task.func_or_class_name, task.state) == ("shown", "passes", "FINISHED")
    assert (task.type, task.attempt_number, task.error_type) == ("NORMAL_TASK", 0, None)
    assert before - 1 <= task.creation_time_ms <= task.start_time_ms <= task.end_time_ms <= time.time() * 1000 + 1
    assert list(task.phases_ms) == ["queued", "lease", "transfer", "deserialise", "run", "store"]
    worker = state.get_worker(task.worker_id)
    assert worker.worker_type == "WORKER"
    assert worker.pid == task.worker_pid
    context = sooner.get_runtime_context()
    assert (task.job_id, task.node_id, task.owner_id) == (
        context.get_job_id(),
        context.get_node_id(),
        context.get_worker_id(),
    )


@pytest.mark.parametrize("keeps", [True, False], ids=["kept", "dropped"])
def test_a_task_that_has_yielded_is_shown(shared_session, keeps):
    @sooner.remote(num_returns="streaming", name="yields")
    def yields(count):
        yield from range(count)

    items = yields.remote(3)
    refs = list(items)
    task_id = refs[0].task_id()
    if not keeps:
        del items, refs
    poll("it has ended", lambda: state.get_task(task_id).state == "FINISHED")
    task = state.get_task(task_id)
    assert (task.name, task.type) == ("yields", "NORMAL_TASK")
    assert task.start_time_ms <= task.end_time_ms
    hidden = yields.options(enable_task_events=False).remote(1)
    hidden_id = next(hidden).task_id()
    assert list(hidden) == []
    poll("it is not recorded", lambda: state.get_task(hidden_id) is None)


def test_a_failed_task_says_how(shared_session):
    ref = raises.remote()
    with pytest.raises(KeyError):
        sooner.get(ref)
    task = by_task(ref)
    assert (task.state, task.error_type) == ("FAILED", "TASK_EXECUTION_EXCEPTION")


def test_states_of_tasks_on_their_way(shared_session, gate):
    running = [waits_for_file.remote(str(gate)) for _ in range(2)]
    queued = passes.remote(1)
    blocked = passes.remote(running[0])
    poll("both run", lambda: states_of(*running) == ["RUNNING", "RUNNING"])
    assert states_of(queued, blocked) == ["PENDING_NODE_ASSIGNMENT", "PENDING_ARGS_AVAIL"]
    task = by_task(blocked)
    assert task.waits_for == [running[0].hex()]
    assert by_task(queued).required_resources == {"CPU": 1.0}
    (worker,) = state.list_workers(filters=[("worker_id", "=", by_task(running[0]).worker_id)])
    assert worker.running_tasks == [running[0].task_id()]
    gate.touch()
    sooner.get([*running, queued, blocked])
    assert states_of(*running, queued, blocked) == ["FINISHED"] * 4


def test_a_cancelled_task_has_failed(shared_session, gate):
    running = [waits_for_file.remote(str(gate)) for _ in range(2)]
    queued = passes.remote(1)
    sooner.cancel(queued)
    with pytest.raises(sooner.exceptions.TaskCancelledError):
        sooner.get(queued)
    assert (by_task(queued).state, by_task(queued).error_type) == ("FAILED", "TASK_CANCELLED")
    gate.touch()
    sooner.get(running)


@pytest.mark.chaos
def test_every_execution_is_listed(shared_session, tmp_path):
    mark = tmp_path / "mark"

    @sooner.remote(max_retries=1)
    def dies_once():
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    ref = dies_once.remote()
    sooner.get(ref)
    first, second = sorted(state.get_task(ref.task_id()), key=lambda one: one.attempt_number)
    assert (first.state, first.error_type, first.attempt_number) == ("FAILED", "WORKER_DIED", 0)
    assert (second.state, second.attempt_number) == ("FINISHED", 1)
    (dead,) = state.list_workers(filters=[("worker_id", "=", first.worker_id)])
    assert (dead.state, dead.is_alive) == ("DEAD", False)
    assert "signal 9" in dead.exit_detail


def test_tasks_of_tasks_name_their_parent(shared_session):
    @sooner.remote
    def outer():
        return sooner.get_runtime_context().get_task_id(), passes.remote(2)

    identity, ref = sooner.get(outer.remote())
    sooner.get(ref)
    task = by_task(ref)
    assert task.parent_task_id == identity
    assert task.owner_id != sooner.get_runtime_context().get_worker_id()


@pytest.mark.api("task.enable_task_events")
def test_a_task_that_does_not_want_it_is_not_recorded(shared_session):
    silent = passes.options(enable_task_events=False)
    ref = silent.remote(1)
    sooner.get(ref)
    assert by_task(ref) is None


@pytest.mark.api("method.enable_task_events")
def test_an_actor_whose_calls_are_not_recorded(shared_session):
    keeper = Keeper.options(enable_task_events=False).remote()
    silent = keeper.keep.remote(1)
    shown = keeper.keep.options(enable_task_events=True).remote(1)
    sooner.get([silent, shown])
    assert by_task(silent) is None
    assert by_task(shown).state == "FINISHED"


@pytest.mark.api("state.list", "state.get")
def test_life_of_an_actor(shared_session, gate):
    slow = waits_for_file.remote(str(gate))
    unready = Keeper.remote(slow)
    named = Keeper.options(name="named-keeper", namespace="here").remote()
    sooner.get(named.__ray_ready__.remote())
    call = named.waits_for_file.remote(str(gate))
    (actor,) = state.list_actors(filters=[("name", "=", "named-keeper")])
    assert (actor.class_name, actor.state, actor.namespace, actor.ray_namespace) == ("Keeper", "ALIVE", "here", "here")
    assert actor.pid == state.get_worker(actor.worker_id).pid
    assert state.get_worker(actor.worker_id).actor_id == actor.actor_id
    assert actor.pending_calls == 1
    assert len(state.list_actors(filters=[("state", "=", "DEPENDENCIES_UNREADY")])) == 1
    gate.touch()
    sooner.get([slow, call, unready.__ray_ready__.remote()])
    sooner.kill(named)
    poll("it is dead", lambda: state.get_actor(actor.actor_id).state == "DEAD")
    assert "sooner.kill()" in state.get_actor(actor.actor_id).death_cause


@pytest.mark.chaos
def test_an_actor_that_restarts(shared_session, tmp_path):
    gate, mark = tmp_path / "again", tmp_path / "mark"

    @sooner.remote(max_restarts=1)
    class Phoenix:
        def __init__(self):
            while mark.exists() and not gate.exists():
                time.sleep(0.01)
            mark.touch()

        def pid(self):
            return os.getpid()

    actor = Phoenix.options(name="phoenix").remote()
    os.kill(sooner.get(actor.pid.remote()), signal.SIGKILL)

    def state_now():
        return state.list_actors(filters=[("name", "=", "phoenix")])[0].state

    poll("it restarts", lambda: state_now() == "RESTARTING")
    gate.touch()
    poll("it is back", lambda: state_now() == "ALIVE")


def test_an_actor_that_waits_for_resources(shared_session):
    waiting = Keeper.options(num_gpus=1).remote()
    (actor,) = state.list_actors(filters=[("state", "=", "PENDING_CREATION")])
    assert actor.required_resources["GPU"] == 1.0
    assert actor.pid is None
    del waiting


@pytest.mark.api("state.list")
def test_objects_and_why_they_are_kept(shared_session):
    ref = sooner.put(bytes(KIB_200))
    keeper = Keeper.remote()
    sooner.get(keeper.keep.remote([ref]))
    identity = ref.hex()
    poll("it is borrowed", lambda: len(state.get_objects(identity)) == 2)
    owner, borrower = state.get_objects(identity)
    assert (owner.is_owner, owner.type, owner.location) == (True, "DRIVER", "shared memory")
    assert owner.object_size >= KIB_200
    assert owner.reference_type == "LOCAL_REFERENCE+BORROWED_BY_OTHERS"
    assert owner.borrowers == [borrower.worker_id]
    assert (borrower.is_owner, borrower.type) == (False, "WORKER")
    summary = state.summarize_objects()
    assert summary["total_size_bytes"] >= KIB_200
    del ref
    sooner.get(keeper.keep.remote(None))
    poll("it is freed", lambda: state.get_objects(identity) == [])


@pytest.mark.api("cli.why")
def test_why_an_object_is_kept_by_tasks_that_have_no_worker(shared_session, tmp_path):
    @sooner.remote
    def takes(value, other):
        return other

    gate = tmp_path / "gate"
    ahead = [waits_for_file.remote(str(gate)) for _ in range(4)]
    big = sooner.put(bytes(KIB_200))
    waiting, queued = takes.remote(big, ahead[0]), takes.remote(big, 1)
    identity = queued.task_id().hex()
    poll("it is queued", lambda: state.get_task(identity).state == "PENDING_NODE_ASSIGNMENT")
    text = why(big.hex())
    assert f"argument of task {waiting.task_id().hex()} takes(), which waits for its arguments" in text
    assert f"argument of task {identity} takes(), which waits for a worker" in text
    gate.touch()
    sooner.get([waiting, queued])


@pytest.mark.api("state.list", "state.get")
def test_one_node_and_one_job(shared_session):
    (node,) = state.list_nodes()
    assert (node.state, node.is_head_node, node.resources_total["CPU"]) == ("ALIVE", True, 2.0)
    assert state.get_node(node.node_id) == node or state.get_node(node.node_id).node_id == node.node_id
    (job,) = state.list_jobs()
    assert (job.job_id, job.driver_pid) == (sooner.get_runtime_context().get_job_id(), os.getpid())
    assert state.get_job(job.job_id).session_dir == shared_session_dir()
    assert state.get_job("nobody") is None


def shared_session_dir():
    return sooner.init(ignore_reinit_error=True)["session_dir"]


def test_a_worker_can_ask_too(shared_session):
    @sooner.remote
    def asks():
        mine = sooner.get_runtime_context().get_task_id()
        return state.get_task(mine).state

    assert sooner.get(asks.remote()) == "RUNNING"


@pytest.mark.api("state.summarize")
def test_summaries(shared_session):
    counted = passes.options(name="another name")
    sooner.get([counted.remote(1) for _ in range(3)])
    summary = state.summarize_tasks()
    entry = summary["summary"]["passes"]
    assert entry["type"] == "NORMAL_TASK"
    assert entry["state_counts"]["FINISHED"] >= 3
    assert summary["total_tasks"] >= 3
    keeper = Keeper.remote()
    sooner.get(keeper.__ray_ready__.remote())
    actors = state.summarize_actors()
    assert actors["summary"]["Keeper"]["state_counts"]["ALIVE"] >= 1


@pytest.mark.api("state.list")
def test_filters_and_limits(shared_session):
    name = "filtered"
    sooner.get([passes.options(name=name).remote(1) for _ in range(5)])
    assert len(state.list_tasks(filters=[("name", "=", name)])) == 5
    assert len(state.list_tasks(filters=[("name", "=", name), ("state", "!=", "finished")])) == 0
    assert len(state.list_tasks(filters=[("name", "=", name)], limit=2)) == 2
    assert len(state.list_tasks(limit=1)) == 1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"filters": [("colour", "=", "red")]}, "'colour' is not a field"),
        ({"filters": [("name", "<", "f")]}, "'=' or '!='"),
        ({"filters": ["name=f"]}, "a filter is"),
        ({"filters": "name=f"}, "filters must be a list"),
        ({"limit": 0}, "limit must be"),
        ({"limit": "many"}, "limit must be"),
        ({"timeout": -1}, "timeout must be"),
    ],
)
def test_wrong_questions(shared_session, options, text):
    with pytest.raises(ValueError, match=text):
        state.list_tasks(**options)


def test_records_are_like_mappings(shared_session):
    (node,) = state.list_nodes()
    assert node["state"] == node.get("state") == node.state
    assert "state" in node
    assert "colour" not in node
    assert dict(node.items()) == node.asdict()
    with pytest.raises(KeyError):
        node["colour"]
    with pytest.raises(AttributeError):
        node.state = "DEAD"


def slices(trace, name):
    return [event for event in trace if event["ph"] == "X" and event["name"] == name]


@pytest.mark.api("timeline")
def test_the_timeline_has_every_task_and_its_phases(shared_session, gate, tmp_path):
    refs = [passes.options(name="traced").remote(bytes(KIB_200)) for _ in range(5)]
    sooner.get(refs)
    running = waits_for_file.remote(str(gate))
    poll("it runs", lambda: by_task(running).state == "RUNNING")
    trace = sooner.timeline()
    traced = slices(trace, "traced")
    assert {event["args"]["task_id"] for event in traced} == {ref.task_id() for ref in refs}
    assert {event["args"]["state"] for event in slices(trace, "waits_for_file")} >= {"RUNNING"}
    one = traced[0]
    inside = [
        event
        for event in trace
        if event["ph"] == "X"
        and event["tid"] == one["tid"]
        and one["ts"] <= event["ts"]
        and event["ts"] + event["dur"] <= one["ts"] + one["dur"] + 1
    ]
    assert {"deserialise", "run", "store"} <= {event["name"] for event in inside}
    begun = sorted(str(event.get("id")) for event in trace if event["ph"] == "b")
    assert begun == sorted(str(event.get("id")) for event in trace if event["ph"] == "e")
    titles = {event["args"]["name"] for event in trace if event["name"] == "thread_name"}
    assert f"driver {os.getpid()}" in titles
    gate.touch()
    sooner.get(running)
    path = tmp_path / "trace.json"
    assert sooner.timeline(path) is None
    assert len(slices(json.loads(path.read_text()), "traced")) == 5


def test_calls_at_the_same_time_lie_on_different_tracks(shared_session, tmp_path):
    @sooner.remote(max_concurrency=2)
    class Pair:
        def meet(self, mine, other):
            Path(mine).touch()
            while not os.path.exists(other):
                time.sleep(0.005)

    pair = Pair.remote()
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    sooner.get([pair.meet.remote(a, b), pair.meet.remote(b, a)])
    first, second = slices(sooner.timeline(), "meet")
    assert first["tid"] != second["tid"]


def test_async_calls_have_their_time(shared_session):
    @sooner.remote
    class Async:
        async def answer(self):
            return 42

    actor = Async.remote()
    ref = actor.answer.remote()
    assert sooner.get(ref) == 42
    task = by_task(ref)
    assert (task.type, task.state) == ("ACTOR_TASK", "FINISHED")
    assert task.start_time_ms is not None


def test_many_ask_at_the_same_time(shared_session):
    sooner.get([passes.remote(number) for number in range(100)])
    found = []

    def ask():
        found.extend(len(state.list_tasks(limit=10)) for _ in range(5))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    sooner.get([passes.remote(number) for number in range(500)])
    for thread in threads:
        thread.join()
    assert found == [10] * 40


def test_every_failure_code_has_its_word():
    """The words are listed in the order of the engine's codes: one that is missing names another failure."""
    text = (Path(__file__).parent.parent / "crates/sooner-wire/src/message/task.rs").read_text()
    body = re.search(r"pub enum FailureCode \{\n(.*?)\n\}", text, re.DOTALL)[1]
    codes = re.findall(r"#\[n\((\d+)\)\]\s+(\w+),", body)
    assert [int(code) for code, _ in codes] == list(range(len(codes)))
    words = [task_rows.error_type(int(code) + 1) for code, _ in codes]
    assert len(set(words)) == len(codes)
    assert dict(zip((name for _, name in codes), words, strict=True))["OutOfDisk"] == "OUT_OF_DISK"
    assert task_rows.error_type(len(codes) + 1) == "SYSTEM_ERROR"
