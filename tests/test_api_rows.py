"""Rows of the API table that no other file proves: small names, arguments of Ray, and what is refused by
name.
"""

from __future__ import annotations

import asyncio
import contextlib
import doctest
import importlib
import inspect
import os
import pickle
import warnings

import pytest
from support import WAIT, is_alive, poll, run_driver

import sooner
from sooner.exceptions import ActorDiedError, ActorUnavailableError, ObjectLostError, OwnerDiedError
from sooner.util import accelerators, annotations, debug

LATER = "this version of sooner does not have "


@sooner.remote
def identity(value):
    return value


@sooner.remote
class Counter:
    def __init__(self, start=0):
        self.value = start

    def add(self, n=1):
        self.value += n
        return self.value

    def fail_until(self, attempts):
        self.value += 1
        if self.value < attempts:
            raise ConnectionError(self.value)
        return self.value

    def numbers(self, n):
        for self.value in range(1, n + 1):
            yield self.value

    def die(self):
        import os

        os._exit(1)


# --- programs for
# Ray -------------------------------------------------------------------------------------------------


@pytest.mark.api("import_as_ray")
def test_a_program_for_ray():
    """Imports, verbs and helpers as such programs write them; nothing but the name of the package differs."""
    done = run_driver(
        """
        import sooner as ray
        from sooner.exceptions import RayActorError, RayError, RayTaskError
        from sooner.util import ActorPool, list_named_actors, log_once
        from sooner.util.annotations import DeveloperAPI, PublicAPI
        from sooner.util.queue import Empty, Queue

        context = ray.init(num_cpus=2, include_dashboard=False, _system_config={"max_io_workers": 1}, namespace="job")
        assert context.address_info["node_id"] == ray.nodes()[0]["NodeID"]

        @ray.remote(num_cpus=1, max_retries=2)
        def square(x):
            return x * x

        @ray.remote
        class Keeper:
            def __init__(self):
                self.kept = {}

            @ray.method(num_returns=2)
            def keep(self, key, value):
                self.kept[key] = value
                return key, value

        refs = [square.remote(i) for i in range(4)]
        ready, rest = ray.wait(refs, num_returns=4, timeout=60)
        assert ready == refs and not rest
        assert ray.get(refs) == [0, 1, 4, 9]
        keeper = Keeper.options(name="keeper").remote()
        assert ray.get(keeper.keep.remote("a", refs[3])) == ["a", 9]
        assert ray.get_actor("keeper") == keeper and list_named_actors() == ["keeper"]
        queue = Queue(maxsize=2)
        queue.put(1)
        assert queue.get() == 1 and queue.empty()

        @ray.remote
        def fails():
            raise KeyError("lost")

        try:
            ray.get(fails.remote())
        except RayTaskError as error:
            assert isinstance(error, KeyError) and isinstance(error.cause, KeyError)
        ray.kill(keeper)
        try:
            ray.get(keeper.keep.remote("b", 1))
        except RayActorError as error:
            assert isinstance(error, RayError)
        assert isinstance(refs[0], ray.ObjectRef) and ray.ObjectRef is ray.ObjectID
        assert ray.cluster_resources()["CPU"] == 2
        ray.shutdown()
        assert not ray.is_initialized()
        print("fine")
        """
    )
    assert done.stdout == "fine\n"


@pytest.mark.api("constants")
def test_modes_of_processes():
    modes = [sooner.SCRIPT_MODE, sooner.WORKER_MODE, sooner.RESTORE_WORKER_MODE, sooner.SPILL_WORKER_MODE]
    assert len(set(modes)) == 4
    assert isinstance(sooner.__commit__, str)


# --- options and
# verbs ------------------------------------------------------------------------------------------------


@pytest.mark.api("util.accelerators")
def test_names_of_accelerators():
    names = [name for name in vars(accelerators) if name.isupper() or name.startswith("AMD_")]
    assert len(names) > 50
    assert all(isinstance(getattr(accelerators, name), str) for name in names)
    assert accelerators.GOOGLE_TPU_V4 == "TPU-V4"


@pytest.mark.api("task.scheduling_strategy")
@pytest.mark.parametrize("strategy", ["DEFAULT", "SPREAD", None])
def test_scheduling_strategies(shared_session, strategy):
    assert sooner.get(identity.options(scheduling_strategy=strategy).remote(1), timeout=WAIT) == 1
    counter = Counter.options(scheduling_strategy=strategy).remote(1)
    assert sooner.get(counter.add.remote(), timeout=WAIT) == 2


@pytest.mark.api("task.enable_task_events", "method.enable_task_events")
@pytest.mark.parametrize("is_on", [True, False])
def test_task_events(shared_session, is_on):
    assert sooner.get(identity.options(enable_task_events=is_on).remote(1), timeout=WAIT) == 1
    counter = Counter.options(enable_task_events=is_on).remote()
    assert sooner.get(counter.add.options(enable_task_events=not is_on).remote(), timeout=WAIT) == 1


@pytest.mark.api("put.owner")
def test_another_actor_can_own_an_object(shared_session):
    owner = Counter.remote()
    read, unread = sooner.put([1], _owner=owner), sooner.put({"of": sooner.put(2)}, _owner=owner)
    assert sooner.get(read, timeout=WAIT) == [1]
    assert read.owner_address() != sooner.put(1).owner_address()
    pid = sooner.get(owner.__ray_call__.remote(lambda _: os.getpid()), timeout=WAIT)
    sooner.kill(owner)
    poll("the owner is gone", lambda: not is_alive(pid))
    with pytest.raises(sooner.exceptions.OwnerDiedError):
        sooner.get(unread, timeout=WAIT)
    with pytest.raises(TypeError, match="takes an actor handle, not int"):
        sooner.put(1, _owner=3)


@pytest.mark.api("get")
def test_a_negative_timeout_polls(shared_session):
    assert sooner.get(sooner.put(1), timeout=-1) == 1


@pytest.mark.api("actor.class", "actor.handle", "task._remote")
def test_underscore_remote_of_actors(shared_session):
    counter = Counter._remote([5], {}, num_cpus=0)
    assert sooner.get(counter.add._remote(kwargs={"n": 2}), timeout=WAIT) == 7
    first, second = counter.add._remote([1], num_returns=2), Counter._remote()
    assert len(first) == 2
    assert sooner.get(second.add._remote(), timeout=WAIT) == 1


@pytest.mark.api("task.function")
def test_the_plain_function(shared_session):
    assert identity._function(3) == 3


@pytest.mark.api("actor.types", "actor.handle")
def test_classes_of_actors(shared_session):
    counter = Counter.remote()
    assert isinstance(Counter, sooner.actor.ActorClass)
    assert isinstance(counter, sooner.actor.ActorHandle)
    assert isinstance(counter.add, sooner.actor.ActorMethod)
    assert repr(counter) == f"Actor(Counter, {counter._actor_id})"
    assert counter._ray_actor_id == counter._actor_id


@pytest.mark.api("actor.restarts_seen", "errors.actor")
def test_a_call_during_which_the_actor_restarts(shared_session):
    counter = Counter.options(max_restarts=1).remote(10)
    with pytest.raises(ActorUnavailableError):
        sooner.get(counter.die.remote(), timeout=WAIT)

    def added():
        try:
            return sooner.get(counter.add.remote(), timeout=WAIT)
        except ActorUnavailableError:
            return None

    assert poll("it is back", added) == 11
    with pytest.raises(ActorDiedError):
        sooner.get(counter.die.remote(), timeout=WAIT)


@pytest.mark.api("method.retry_exceptions")
def test_a_call_that_raises_is_retried(shared_session):
    counter = Counter.options(max_task_retries=5).remote()
    assert sooner.get(counter.fail_until.options(retry_exceptions=True).remote(3), timeout=WAIT) == 3
    with pytest.raises(ConnectionError):
        sooner.get(counter.fail_until.remote(5), timeout=WAIT)


@pytest.mark.api("method.retry_exceptions")
def test_a_call_that_raises_another_class_is_not_retried(shared_session):
    counter = Counter.options(max_task_retries=5).remote()
    failing = counter.fail_until.options(retry_exceptions=[KeyError]).remote(3)
    with contextlib.suppress(ConnectionError):
        sooner.get(failing, timeout=WAIT)
    assert sooner.get(counter.add.remote(0), timeout=WAIT) == 1


@pytest.mark.api("method.backpressure")
def test_a_generator_of_an_actor_waits_for_its_reader(shared_session):
    @sooner.remote(max_concurrency=2)
    class Producer:
        made = 0

        def items(self, n):
            for self.made in range(1, n + 1):
                yield self.made

        def count(self):
            return self.made

    producer = Producer.remote()
    items = producer.items.options(_generator_backpressure_num_objects=2).remote(50)
    assert sooner.get(next(items), timeout=WAIT) == 1
    assert sooner.get(producer.count.remote(), timeout=WAIT) <= 4
    assert [sooner.get(ref) for ref in items] == list(range(2, 51))
    assert sooner.get(producer.count.remote(), timeout=WAIT) == 50


@pytest.mark.api("ref.owner_address")
def test_the_owner_of_a_reference(shared_session):
    @sooner.remote
    def owned():
        return [sooner.put(1)]

    (inner,) = sooner.get(owned.remote(), timeout=WAIT)
    assert sooner.put(1).owner_address() == sooner.put(2).owner_address()
    assert inner.owner_address() != sooner.put(1).owner_address()


@pytest.mark.api("ref.equality", "ref.identity")
def test_references_as_keys(shared_session):
    ref = sooner.put(1)
    again = pickle.loads(pickle.dumps(ref))
    assert {ref: "value"}[again] == "value"
    assert ref.job_id() == sooner.get_runtime_context().get_job_id()


@pytest.mark.api("errors.lost")
def test_lost_objects_have_a_base():
    assert issubclass(OwnerDiedError, ObjectLostError)


@pytest.mark.api("ref.await")
def test_waiting_with_asyncio(shared_session):
    async def both():
        tasks = [asyncio.ensure_future(ref.as_future()) for ref in (identity.remote(1), identity.remote(2))]
        done, pending = await asyncio.wait(tasks, timeout=WAIT)
        return sorted(task.result() for task in done), pending

    assert asyncio.run(both()) == ([1, 2], set())


# ---
# helpers ----------------------------------------------------------------------------------------------------------


@pytest.mark.api("util.node")
def test_the_address_of_this_node(shared_session, monkeypatch):
    @sooner.remote
    def there():
        return sooner.util.get_node_ip_address()

    assert sooner.get(there.remote(), timeout=WAIT) == sooner.util.get_node_ip_address() == "127.0.0.1"
    assert sooner.util.get_node_ip_address() == sooner.nodes()[0]["NodeManagerAddress"]
    monkeypatch.delenv("SOONER_CLOUD_INSTANCE_ID", raising=False)
    monkeypatch.setenv("RAY_CLOUD_INSTANCE_ID", "i-17")
    assert sooner.util.get_node_instance_id() == "i-17"
    monkeypatch.setenv("SOONER_CLOUD_INSTANCE_ID", "i-18")
    assert sooner.util.get_node_instance_id() == "i-18"


@pytest.mark.api("util.node")
def test_the_address_without_a_session():
    done = run_driver(
        """
        import sooner, sooner.util
        print(sooner.util.get_node_ip_address(), sooner.is_initialized())
        """
    )
    assert done.stdout == "127.0.0.1 False\n"


@pytest.mark.api("util.log_once")
def test_log_once():
    """In a process of its own: the switches hold for all of it."""
    done = run_driver(
        """
        import time
        from sooner.util import disable_log_once_globally, enable_periodic_logging, log_once
        from sooner.util.debug import log_once as same
        now = 1000.0
        time.monotonic = lambda: now
        assert same is log_once
        assert [log_once("a"), log_once("a"), log_once(("b", 1)), log_once("a")] == [True, False, True, False]
        now += 3600
        assert not log_once("a")
        enable_periodic_logging()
        assert log_once("a") and not log_once("a")
        now += 59
        assert not log_once("a")
        now += 1
        assert log_once("a")
        for number in range(10_000):
            log_once(number)
        assert log_once("a")  # forgotten for newer keys
        disable_log_once_globally()
        assert not log_once("new")
        print("fine")
        """
    )
    assert done.stdout == "fine\n"


@pytest.mark.parametrize("module", [accelerators, annotations, debug])
def test_examples_in_docstrings_hold(module):
    tried = doctest.testmod(module)
    assert tried.failed == 0
    assert tried.attempted > 0


@pytest.mark.api("util.annotations")
class TestAnnotations:
    def test_a_public_class(self):
        @annotations.PublicAPI
        class Plain:
            """Says what it is."""

        assert Plain.__doc__ == "Says what it is."
        assert (Plain._annotated, Plain._annotated_type) == ("Plain", "PublicAPI")
        assert inspect.isclass(Plain)

    @pytest.mark.parametrize("stability", ["alpha", "beta"])
    def test_what_may_still_change_says_so(self, stability):
        @annotations.PublicAPI(stability=stability, api_group="Plans")
        def plan():
            """Makes a plan."""
            return 1

        assert plan() == 1
        assert plan.__doc__.startswith("Makes a plan.\n\n")
        assert stability in plan.__doc__
        assert plan._annotated_api_group == "Plans"

    def test_for_developers(self):
        @annotations.DeveloperAPI
        def bare():
            return 2

        @annotations.DeveloperAPI(api_group="Tools")
        def grouped():
            return 3

        assert (bare(), grouped()) == (2, 3)
        assert "Developer API" in bare.__doc__
        assert grouped._annotated_type == "DeveloperAPI"

    def test_deprecated_functions(self):
        @annotations.Deprecated
        def quiet():
            return 1

        @annotations.Deprecated(message="Use new().", warning=True)
        def loud(x):
            return x

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert quiet() == 1
        with pytest.warns(annotations.RayDeprecationWarning, match=r"loud is deprecated .* Use new\(\)\.") as caught:
            assert loud(2) == 2
        assert caught[0].filename == __file__
        assert "Use new()." in loud.__doc__

    def test_deprecated_classes(self):
        @annotations.Deprecated(warning=True)
        class Old:
            def __init__(self, x):
                self.x = x

        with pytest.warns(annotations.SoonerDeprecationWarning, match="Old is deprecated"):
            assert Old(5).x == 5

    def test_a_marked_function_can_be_remote(self, shared_session):
        @annotations.PublicAPI(stability="beta")
        def double(x):
            return 2 * x

        assert sooner.get(sooner.remote(double).remote(4), timeout=WAIT) == 8

    def test_what_is_refused(self):
        with pytest.raises(ValueError, match="stability='gamma'"):
            annotations.PublicAPI(stability="gamma")
        with pytest.raises(TypeError, match="DeveloperAPI is used as @DeveloperAPI or"):
            annotations.DeveloperAPI("beta")


# --- what is refused by
# name ------------------------------------------------------------------------------------------


@pytest.mark.api(
    "client",
    "cross_language",
    "dag",
    "jobs",
    "logging_config",
    "private_modules",
    "runtime_env",
    "subpackages",
)
@pytest.mark.parametrize(
    "name",
    [
        *("client", "ClientBuilder", "LoggingConfig"),
        *("java_function", "java_actor_class", "cross_language", "Language"),
        *("worker", "ray_constants", "serialization", "_config", "_private"),
        *("data", "train", "tune", "serve", "workflow", "rllib", "autoscaler"),
        *("runtime_env", "dag", "job_submission", "job_config"),
    ],
)
def test_names_that_sooner_does_not_have(name):
    with pytest.raises(AttributeError, match=f"^sooner.{name}: {LATER}"):
        getattr(sooner, name)
    assert not hasattr(sooner, name)


@pytest.mark.api("internal_kv")
@pytest.mark.parametrize("name", ["internal_kv", "channel", "shuffle", "compiled_dag_ref"])
def test_experimental_modules_that_sooner_does_not_have(name):
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"sooner.experimental.{name}")


@pytest.mark.api("actor.hooks")
@pytest.mark.parametrize("name", ["_actor_launch_hook", "_task_launch_hook"])
def test_hooks_of_ray_train(name):
    with pytest.raises(ValueError, match=f"'{name}' is not an option of an actor"):
        Counter.options(**{name: print})


@pytest.mark.api("util.actor_group", "util.integrations", "util.debugger")
@pytest.mark.parametrize(
    "name",
    [
        *("ActorGroup", "iter"),
        *("spark", "tpu", "xgboost", "lightgbm", "pdb", "rpdb", "tracing"),
    ],
)
def test_helpers_that_sooner_does_not_have(name):
    with pytest.raises(AttributeError, match=f"^sooner.util.{name}: {LATER}"):
        getattr(sooner.util, name)


@pytest.mark.api("errors.graphs")
@pytest.mark.parametrize(
    "name", ["RayChannelError", "RayChannelTimeoutError", "RayCgraphCapacityExceeded", "RayDirectTransportError"]
)
def test_errors_that_sooner_does_not_have(name):
    with pytest.raises(AttributeError, match=f"^sooner.exceptions.{name}: {LATER}"):
        getattr(sooner.exceptions, name)
    with pytest.raises(AttributeError, match="has no attribute 'Nonsense'"):
        sooner.exceptions.Nonsense  # noqa: B018


@pytest.mark.api("context.objects")
def test_ids_of_the_runtime_context_as_objects(shared_session):
    @sooner.remote
    class Actor:
        def ids(self):
            context = sooner.get_runtime_context()
            said = context.get_job_id(), context.get_node_id(), context.get_worker_id(), context.get_task_id()
            return (*said, context.get_actor_id()), [
                context.job_id,
                context.node_id,
                context.worker_id,
                context.task_id,
                context.actor_id,
            ]

    said, made = sooner.get(Actor.remote().ids.remote(), timeout=WAIT)
    assert [one.hex() for one in made] == list(said)
    kinds = [sooner.JobID, sooner.NodeID, sooner.WorkerID, sooner.TaskID, sooner.ActorID]
    assert [type(one) for one in made] == kinds
    context = sooner.get_runtime_context()
    assert (context.task_id, context.actor_id) == (None, None)
    with pytest.raises(AttributeError, match="no member 'nonsense'"):
        sooner.get_runtime_context().nonsense  # noqa: B018


@pytest.mark.api("task.bind", "actor.bind")
def test_graphs_of_tasks(shared_session):
    for target, owner in (
        (identity, "RemoteFunction"),
        (Counter, "ActorClass"),
        (Counter.remote().add, "ActorMethod"),
    ):
        with pytest.raises(AttributeError, match=f"^{owner}.bind: {LATER}graphs of tasks yet"):
            target.bind(1)


@pytest.mark.api("task.fallback_strategy", "task.labels", "task.num_objects_per_yield", "task.object_store_memory")
@pytest.mark.api("task.runtime_env")
@pytest.mark.api("actor.tensor_transport", "actor.backpressure")
@pytest.mark.api("method.num_objects_per_yield", "method.tensor_transport")
@pytest.mark.parametrize(
    ("kind", "name", "value", "feature"),
    [
        ("task", "fallback_strategy", [{"label_selector": {"a": "b"}}], "fallback strategies"),
        ("task", "_labels", {"a": "b"}, "labels"),
        ("task", "_num_objects_per_yield", 2, "grouped items"),
        ("task", "object_store_memory", 1, "object store reservations"),
        ("task", "runtime_env", {"env_vars": {"A": "b"}}, "runtime environments"),
        ("actor", "enable_tensor_transport", True, "tensor transport"),
        ("actor", "_actor_generator_backpressure_num_objects", 4, "limits over all generators"),
        ("method", "_num_objects_per_yield", 2, "grouped items"),
        ("method", "tensor_transport", "nccl", "tensor transport"),
    ],
    ids=str,
)
def test_options_of_later_versions(shared_session, kind, name, value, feature):
    targets = {"task": identity, "actor": Counter}
    target = targets[kind] if kind in targets else Counter.remote().add
    with pytest.raises(ValueError, match=rf"^{name}=.*{LATER}{feature}"):
        target.options(**{name: value})
