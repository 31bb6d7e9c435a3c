"""What code can ask about where it runs."""

from __future__ import annotations

import os
import threading
import time

import pytest
from support import WAIT, poll, run_driver

import sooner

pytestmark = pytest.mark.usefixtures("shared_session")


def facts():
    """All ids and names of the place this runs in."""
    context = sooner.get_runtime_context()
    return {
        "job": context.get_job_id(),
        "node": context.get_node_id(),
        "worker": context.get_worker_id(),
        "task": context.get_task_id(),
        "name": context.get_task_name(),
        "function": context.get_task_function_name(),
        "actor": context.get_actor_id(),
        "actor_name": context.get_actor_name(),
        "group": context.get_placement_group_id(),
        "namespace": context.namespace,
        "pid": os.getpid(),
    }


in_task = sooner.remote(facts)


@sooner.remote
class Asked:
    def facts(self):
        return facts()

    def itself(self):
        return sooner.get_runtime_context().current_actor

    def through_itself(self):
        return self.itself()


@sooner.remote
class AsyncAsked:
    async def facts(self):
        return facts()


def is_hex(text):
    return isinstance(text, str) and len(bytes.fromhex(text)) > 0


@pytest.mark.api("get_runtime_context", "context.ids")
def test_in_the_driver():
    here = facts()
    assert is_hex(here["job"])
    assert is_hex(here["node"])
    assert is_hex(here["worker"])
    assert here["node"] == sooner.nodes()[0]["NodeID"]
    assert here["task"] is here["name"] is here["function"] is here["actor"] is here["actor_name"] is None
    assert here["group"] is None
    assert facts() == here


@pytest.mark.api("get_runtime_context", "context.ids", "context.get")
def test_in_a_task():
    here, there = facts(), sooner.get(in_task.remote(), timeout=WAIT)
    for same in ("job", "node", "namespace"):
        assert there[same] == here[same]
    assert is_hex(there["task"])
    assert is_hex(there["worker"])
    assert there["worker"] != here["worker"]
    assert there["actor"] is None
    assert there["actor_name"] is None
    assert there["group"] is None


@pytest.mark.api("context.ids")
def test_task_ids_are_those_of_the_refs():
    refs = [in_task.remote() for _ in range(20)]
    inside = [found["task"] for found in sooner.get(refs, timeout=WAIT)]
    assert inside == [ref.task_id() if isinstance(ref.task_id(), str) else ref.task_id().hex() for ref in refs]
    assert len(set(inside)) == 20


@pytest.mark.api("context.ids")
def test_worker_ids_belong_to_processes():
    seen = {
        (found["worker"], found["pid"]) for found in sooner.get([in_task.remote() for _ in range(50)], timeout=WAIT)
    }
    assert len({worker for worker, _ in seen}) == len({pid for _, pid in seen}) == len(seen)


@pytest.mark.api("task.name", "context.names")
def test_names_of_tasks():
    plain = sooner.get(in_task.remote(), timeout=WAIT)
    named = sooner.get(in_task.options(name="another name").remote(), timeout=WAIT)
    assert plain["name"].endswith("facts")
    assert named["name"] == "another name"
    assert plain["function"].endswith("facts")
    assert named["function"] == plain["function"], "the function's name does not change with the option"


def test_nested_tasks_have_ids_of_their_own():
    @sooner.remote
    def outer():
        before = sooner.get_runtime_context().get_task_id()
        inner = sooner.get(in_task.remote())["task"]
        return before, inner, sooner.get_runtime_context().get_task_id()

    before, inner, after = sooner.get(outer.remote(), timeout=WAIT)
    assert before == after != inner


def test_a_thread_of_a_task_can_ask():
    @sooner.remote
    def with_thread():
        found = []
        thread = threading.Thread(target=lambda: found.append(facts()))
        thread.start()
        thread.join()
        return found[0], facts()

    in_thread, in_main = sooner.get(with_thread.remote(), timeout=WAIT)
    for same in ("job", "node", "worker", "namespace"):
        assert in_thread[same] == in_main[same]


@pytest.mark.api("context.ids")
@pytest.mark.parametrize("cls", [Asked, AsyncAsked], ids=["sync", "async"])
def test_in_an_actor(cls):
    actor = cls.remote()
    first, second = sooner.get([actor.facts.remote(), actor.facts.remote()], timeout=WAIT)
    assert first["actor"] == second["actor"] == actor._actor_id
    assert first["task"] != second["task"]
    assert first["worker"] == second["worker"]
    assert first["job"] == sooner.get_runtime_context().get_job_id()
    assert first["name"].endswith("facts")
    assert not first["actor_name"]


def test_the_task_id_in_an_actor_is_that_of_the_ref():
    actor = Asked.remote()
    ref = actor.facts.remote()
    assert sooner.get(ref, timeout=WAIT)["task"] == ref.task_id()


@pytest.mark.api("context.names")
def test_the_name_of_an_actor():
    actor = Asked.options(name="a name to ask for").remote()
    assert sooner.get(actor.facts.remote(), timeout=WAIT)["actor_name"] == "a name to ask for"


@pytest.mark.api("method.name")
def test_the_name_of_a_call():
    actor = Asked.remote()
    assert sooner.get(actor.facts.options(name="this call").remote(), timeout=WAIT)["name"] == "this call"


def test_the_constructor_has_the_actors_id():
    @sooner.remote
    class Early:
        def __init__(self):
            self.seen = sooner.get_runtime_context().get_actor_id()

        def read(self):
            return self.seen

    actor = Early.remote()
    assert sooner.get(actor.read.remote(), timeout=WAIT) == actor._actor_id


@pytest.mark.api("context.actor")
def test_an_actor_gets_a_handle_on_itself():
    actor = Asked.remote()
    itself = sooner.get(actor.itself.remote(), timeout=WAIT)
    assert itself == actor
    assert sooner.get(itself.facts.remote(), timeout=WAIT)["actor"] == actor._actor_id


def test_a_task_of_an_actor_is_not_in_the_actor():
    @sooner.remote
    class Asks:
        def ask(self):
            return sooner.get(in_task.remote())

    assert sooner.get(Asks.remote().ask.remote(), timeout=WAIT)["actor"] is None


@pytest.mark.api("context.get")
def test_all_of_it_as_a_dict():
    @sooner.remote
    def everything():
        return sooner.get_runtime_context().get()

    here = sooner.get_runtime_context().get()
    ref = everything.remote()
    there = sooner.get(ref, timeout=WAIT)
    assert "task_id" not in here
    assert "actor_id" not in here
    assert here["job_id"] == there["job_id"]
    assert here["node_id"] == there["node_id"]
    assert there["task_id"] == ref.task_id()


@pytest.mark.api("context.reconstructed")
def test_an_actor_is_not_reconstructed():
    @sooner.remote
    class Fresh:
        def read(self):
            return sooner.get_runtime_context().was_current_actor_reconstructed

    read = sooner.get(Fresh.remote().read.remote(), timeout=WAIT)
    assert read is False, "a property, as in Ray"


@pytest.mark.api("context.resources")
def test_assigned_resources():
    @sooner.remote(num_cpus=0.5, memory=1000)
    def held():
        return sooner.get_runtime_context().get_assigned_resources()

    assert sooner.get(held.remote(), timeout=WAIT) == {"CPU": 0.5, "memory": 1000}


@pytest.mark.api("get_gpu_ids", "context.resources")
def test_accelerators_without_any():
    @sooner.remote
    def seen():
        return sooner.get_gpu_ids(), sooner.get_runtime_context().get_accelerator_ids()

    gpus, accelerators = sooner.get(seen.remote(), timeout=WAIT)
    assert gpus == []
    assert accelerators["GPU"] == []


@pytest.mark.api("context.canceled")
def test_a_cancelled_call_of_an_actor_can_be_seen(tmp_path):
    @sooner.remote
    class Patient:
        def wait(self, begun, seen):
            begun.touch()
            deadline = time.monotonic() + WAIT
            while not sooner.get_runtime_context().is_canceled() and time.monotonic() < deadline:
                time.sleep(0.005)
            if sooner.get_runtime_context().is_canceled():
                seen.touch()

        def is_canceled(self):
            return sooner.get_runtime_context().is_canceled()

    patient = Patient.remote()
    begun, seen = tmp_path / "begun", tmp_path / "seen"
    ref = patient.wait.remote(begun, seen)
    poll("the call has begun", begun.exists)
    sooner.cancel(ref)
    poll("the call sees that it is cancelled", seen.exists)
    assert sooner.get(patient.is_canceled.remote(), timeout=WAIT) is False


@pytest.mark.api("context.names")
def test_the_namespace_of_init_and_the_start_on_first_use():
    done = run_driver("""
        import sooner
        with sooner.init(num_cpus=1, namespace="rooms"):
            @sooner.remote
            def inside():
                return sooner.get_runtime_context().namespace
            print(sooner.get_runtime_context().namespace, sooner.get(inside.remote(), timeout=60))
            first = sooner.get_runtime_context().get_job_id()
        assert not sooner.is_initialized()
        second = sooner.get_runtime_context().get_job_id()
        print(sooner.is_initialized(), first != second)
    """)
    assert done.stdout.split() == ["rooms", "rooms", "True", "True"]


@pytest.mark.api("context.resources", "context.node", "context.session")
def test_the_lesser_members():
    @sooner.remote(num_cpus=0.5)
    def facts():
        context = sooner.get_runtime_context()
        return context.get_resource_ids(), context.get_node_labels(), context.get_node_id()

    ids, labels, node = sooner.get(facts.remote())
    assert ids == {"CPU": [(0, 0.5)]}
    assert labels == {"ray.io/node-id": node}
    context = sooner.get_runtime_context()
    assert context.runtime_env == {}
    assert context.get_runtime_env_string() == "{}"
    assert context.gcs_address == ""
    assert context.get_temp_dir().endswith(context.get_session_name())


@pytest.mark.api("logging_config")
@pytest.mark.parametrize("name", ["client", "LoggingConfig", "Language", "java_function", "tune"])
def test_names_of_ray_that_do_not_exist_yet_say_so(name):
    with pytest.raises(AttributeError, match=f"sooner.{name}: this version of sooner does not have "):
        getattr(sooner, name)
