"""`init`, `shutdown`, `is_initialized`: arguments, the context, starting on first use."""

from __future__ import annotations

import asyncio
import os
import pickle
import stat
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support import WAIT, run_driver

import sooner
from sooner.exceptions import GetTimeoutError, SoonerError
from sooner.util import accelerators


@pytest.fixture(autouse=True)
def no_session_remains(nothing_left):
    """Every test ends without a session, also a failed one; then nothing may be left."""
    yield
    sooner.shutdown()


@sooner.remote
def identity(value):
    return value


@pytest.mark.api("init", "is_initialized")
def test_init_and_shutdown():
    assert not sooner.is_initialized()
    context = sooner.init(num_cpus=1)
    assert sooner.is_initialized()
    assert Path(context["session_dir"]).is_dir()
    assert sooner.get(identity.remote(1), timeout=WAIT) == 1
    sooner.shutdown()
    assert not sooner.is_initialized()
    assert not Path(context["session_dir"]).exists()


@pytest.mark.api("shutdown")
def test_shutdown_may_be_called_at_any_time():
    sooner.shutdown()
    sooner.init(num_cpus=1)
    sooner.shutdown()
    sooner.shutdown(wait_for_processes=True)


def test_nothing_of_a_session_that_is_over_begins_another_one():
    sooner.init(num_cpus=1)

    @sooner.remote(num_cpus=64)
    def never():
        yield 1

    done, never_done = sooner.put([1]), identity.options(num_cpus=64).remote(1)
    generator, completed = never.remote(), never.remote().completed()
    sooner.shutdown()
    refs = [done, never_done]

    async def waits(what):
        return await what

    tries = {
        "get": lambda: sooner.get(never_done),
        "get of a list": lambda: sooner.get(refs),
        "get of what is there": lambda: sooner.get([done]),
        "take": lambda: sooner.take(done),
        "wait": lambda: sooner.wait(refs),
        "wait without waiting": lambda: sooner.wait([done], timeout=0),
        "wait for a generator": lambda: sooner.wait([generator]),
        "wait for both": lambda: sooner.wait([done, generator], num_returns=2),
        "next": lambda: next(generator),
        "anext": lambda: asyncio.run(waits(generator.__anext__())),
        "the end of a generator": generator.completed,
        "await": lambda: asyncio.run(waits(completed)),
        "a future": lambda: never_done.future().result(WAIT),
        "aio.get": lambda: asyncio.run(sooner.aio.get(refs)),
        "aio.wait": lambda: asyncio.run(sooner.aio.wait(refs)),
        "cancel": lambda: sooner.cancel(never_done),
        "pickling": lambda: pickle.dumps(done),
    }
    for what, attempt in tries.items():
        with pytest.raises(ValueError, match="belongs to a session that has ended"):
            attempt()
        assert not sooner.is_initialized(), what


@pytest.mark.parametrize("_", range(15))
def test_a_call_during_the_end_of_the_session_begins_no_other_one(_):
    """Calls come at every moment of the end. What they are given belongs to the session that ends. (Before
    they used that session, one of six ends began another one.)
    """
    sooner.init(num_cpus=1)
    never = sooner.remote(num_returns="streaming", num_cpus=64)(lambda: iter(())).remote
    refs, generator = [identity.options(num_cpus=64).remote(n) for n in range(2)], never()
    ways = {
        "get": lambda: sooner.get(refs, timeout=0),
        "get one": lambda: sooner.get(refs[0], timeout=0),
        "wait": lambda: sooner.wait(refs, timeout=0),
        "wait for both": lambda: sooner.wait([generator, *refs], timeout=0),
        "aio.get": lambda: asyncio.run(sooner.aio.get(refs, timeout=0)),
        "aio.wait": lambda: asyncio.run(sooner.aio.wait(refs, timeout=0)),
    }
    begun = threading.Barrier(len(ways) + 1)

    def again_and_again(how):
        begun.wait(WAIT)
        while True:
            try:
                how()
            except GetTimeoutError:
                pass
            except (ValueError, SoonerError) as error:
                return str(error)
            assert not (is_over.is_set() and sooner.is_initialized()), "another session has begun"

    is_over = threading.Event()
    with ThreadPoolExecutor(len(ways)) as pool:
        calls = {what: pool.submit(again_and_again, how) for what, how in ways.items()}
        begun.wait(WAIT)
        sooner.shutdown()
        is_over.set()
        for what, call in calls.items():
            assert "session" in call.result(WAIT), what
    assert not sooner.is_initialized()


def test_a_wait_that_the_end_of_the_session_ends_begins_no_other_one():
    sooner.init(num_cpus=1)
    refs = [identity.options(num_cpus=64).remote(n) for n in range(2)]
    begun = threading.Barrier(4)

    def wait(how):
        begun.wait(WAIT)
        try:
            how()
        except (ValueError, SoonerError) as error:
            return str(error)

    ways = (
        lambda: sooner.get(refs),
        lambda: sooner.wait(refs),
        lambda: asyncio.run(sooner.aio.get(refs)),
    )
    with ThreadPoolExecutor(len(ways)) as pool:
        waits = [pool.submit(wait, how) for how in ways]
        begun.wait(WAIT)
        sooner.shutdown()
        for waiting in waits:
            assert "session" in waiting.result(WAIT)
    assert not sooner.is_initialized()


@pytest.mark.api("shutdown")
def test_several_sessions_in_turn():
    directories = set()
    for n in range(5):
        directories.add(sooner.init(num_cpus=1)["session_dir"])
        assert sooner.get(identity.remote(n), timeout=WAIT) == n
        sooner.shutdown()
    assert len(directories) == 5


def test_a_session_that_is_not_used():
    sooner.init(num_cpus=2)
    sooner.shutdown()


@pytest.mark.api("init.context")
def test_the_context_is_a_mapping():
    context = sooner.init(num_cpus=1)
    assert dict(context) == context.address_info
    expected = {
        "address",
        "gcs_address",
        "node_id",
        "node_ip_address",
        "session_dir",
        "object_store_address",
        "raylet_socket_name",
        "webui_url",
        "redis_address",
        "metrics_export_port",
        "dashboard_agent_listen_port",
    }
    assert expected <= set(context)
    assert len(context) == len(list(context))
    assert context["node_id"] == sooner.nodes()[0]["NodeID"]
    assert context.python_version == ".".join(map(str, sys.version_info[:3]))
    assert context.ray_version == sooner.__version__
    assert isinstance(context.dashboard_url, str)


@pytest.mark.api("init.context")
def test_the_context_ends_the_session():
    with sooner.init(num_cpus=1) as context:
        assert sooner.get(identity.remote(context["node_id"]), timeout=WAIT) == context["node_id"]
    assert not sooner.is_initialized()


@pytest.mark.api("init.context")
def test_the_context_ends_the_session_after_an_error():
    with pytest.raises(KeyError), sooner.init(num_cpus=1):
        raise KeyError
    assert not sooner.is_initialized()


@pytest.mark.api("init.context")
def test_disconnect():
    sooner.init(num_cpus=1).disconnect()
    assert not sooner.is_initialized()


@pytest.mark.api("init.again")
def test_a_second_init_is_refused():
    sooner.init(num_cpus=1)
    with pytest.raises(RuntimeError, match="ignore_reinit_error"):
        sooner.init()
    assert sooner.get(identity.remote(1), timeout=WAIT) == 1


@pytest.mark.api("init.again")
def test_ignore_reinit_error():
    first = sooner.init(num_cpus=1)
    second = sooner.init(num_cpus=7, ignore_reinit_error=True)
    assert second["session_dir"] == first["session_dir"]
    assert sooner.cluster_resources()["CPU"] == 1


@pytest.mark.api("init")
def test_num_cpus_by_default_is_what_this_process_may_use():
    sooner.init()
    assert sooner.cluster_resources()["CPU"] == len(os.sched_getaffinity(0))


@pytest.mark.api("init")
def test_resources():
    sooner.init(num_cpus=3, num_gpus=2, resources={"tape": 1.5}, object_store_memory=64 << 20)
    total = sooner.cluster_resources()
    assert (total["CPU"], total["GPU"], total["tape"]) == (3, 2, 1.5)
    assert total["object_store_memory"] == 64 << 20
    assert sooner.available_resources() == total


def test_no_cpus_at_all():
    sooner.init(num_cpus=0)
    assert sooner.get(identity.options(num_cpus=0).remote(1), timeout=WAIT) == 1


@pytest.mark.api("init")
def test_address_local():
    assert sooner.init("local", num_cpus=1)["node_id"]


@pytest.mark.api("init")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"num_cpus": -1}, "num_cpus"),
        ({"num_cpus": "two"}, "num_cpus"),
        ({"num_cpus": float("nan")}, "num_cpus"),
        ({"num_gpus": -1}, "num_gpus"),
        ({"num_gpus": 0.5}, "num_gpus"),
        ({"object_store_memory": -5}, "object_store_memory"),
        ({"object_store_memory": "1G"}, "object_store_memory"),
        ({"object_store_memory": 10}, "object_store_memory"),
        ({"resources": {"CPU": 1}}, "num_cpus|argument"),
        ({"resources": {"tape": -1}}, "tape"),
        ({"resources": {"tape": "much"}}, "tape"),
        ({"resources": {"": 1}}, "resources"),
        ({"resources": {5: 1}}, "resources"),
        ({"resources": [("tape", 1)]}, "resources"),
        ({"num_cpu": 1}, "num_cpu"),
        ({"preload": "json"}, "preload"),
        ({"preload": [5]}, "preload"),
        ({"namespace": 5}, "namespace"),
        ({"address": "10.0.0.1:6379"}, "10.0.0.1"),
    ],
    ids=str,
)
def test_wrong_arguments_are_named(arguments, words):
    with pytest.raises((TypeError, ValueError, ConnectionError), match=words):
        sooner.init(**arguments)
    assert not sooner.is_initialized()
    sooner.init(num_cpus=1)
    assert sooner.get(identity.remote(1), timeout=WAIT) == 1


@pytest.mark.api("init")
@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("num_cpus", "2"),
        ("num_gpus", True),
        ("resources", [("tape", 1)]),
        ("object_store_memory", "1G"),
        ("labels", {"zone": 1}),
        ("address", 5),
        ("namespace", 5),
        ("lineage_bytes", 1.5),
        ("preload", "json"),
        ("cancel_on_interrupt", "no"),
    ],
)
def test_a_wrong_type_is_a_type_error_and_a_value_error(name, wrong):
    with pytest.raises(TypeError, match=name) as caught:
        sooner.init(**{name: wrong})
    assert isinstance(caught.value, ValueError)
    assert not sooner.is_initialized()


@pytest.mark.parametrize(
    ("name", "wrong"), [("namespace", ""), ("resources", {"tape": 0.0000001}), ("num_cpus", 0.00001)]
)
def test_a_wrong_value_is_a_value_error(name, wrong):
    with pytest.raises(ValueError, match=name) as caught:
        sooner.init(**{name: wrong})
    assert not isinstance(caught.value, TypeError)
    assert not sooner.is_initialized()


ARGUMENTS_OF_RAY = {
    "configure_logging": True,
    "logging_format": "%(message)s",
    "logging_config": None,
    "include_dashboard": True,
    "dashboard_host": "127.0.0.1",
    "dashboard_port": 8265,
    "job_config": None,
    "runtime_env": None,
    "enable_resource_isolation": False,
    "cgroup_path": None,
    "system_reserved_cpu": None,
    "system_reserved_memory": None,
    "proxy_server_url": None,
    "object_spilling_directory": "/nowhere",
    "_system_config": {"max_io_workers": 1},
    "_temp_dir": "/nowhere",
    "_node_ip_address": "127.0.0.1",
    "_node_name": "here",
    "_memory": 1 << 30,
    "_plasma_directory": "/nowhere",
    "_metrics_export_port": 0,
    "_enable_object_reconstruction": True,
    "_redis_username": "default",
    "_redis_password": "",
    "_driver_object_store_memory": None,
    "_tracing_startup_hook": None,
    "_skip_env_hook": True,
}


@pytest.mark.api("init.ray_arguments")
def test_arguments_of_ray_change_nothing():
    with sooner.init(num_cpus=1, **ARGUMENTS_OF_RAY) as context:
        assert not context["session_dir"].startswith("/nowhere")
        assert sooner.cluster_resources()["CPU"] == 1
        assert sooner.get(identity.remote(1), timeout=WAIT) == 1


@pytest.mark.api("task.accelerator_type", "util.accelerators")
def test_a_kind_of_accelerator():
    @sooner.remote(num_cpus=0)
    def held():
        return sooner.get_runtime_context().get_assigned_resources()

    kinds = {f"accelerator_type:{accelerators.NVIDIA_H100}": 1}
    with sooner.init(num_cpus=1, resources=kinds):
        here = held.options(accelerator_type=accelerators.NVIDIA_H100).remote()
        nowhere = held.options(accelerator_type=accelerators.AMD_INSTINCT_MI210).remote()
        assert list(sooner.get(here, timeout=WAIT)) == ["accelerator_type:H100"]
        with pytest.raises(GetTimeoutError):
            sooner.get(nowhere, timeout=0)


@pytest.mark.api("init.remote", "runtime_env")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"address": "ray://head:10001"}, "leave out the scheme"),
        ({"runtime_env": {"pip": ["x"]}}, "does not have runtime environments"),
    ],
    ids=str,
)
def test_sessions_of_later_versions(arguments, words):
    with pytest.raises(ValueError, match=words):
        sooner.init(num_cpus=1, **arguments)
    assert not sooner.is_initialized()


@pytest.mark.api("init")
def test_namespace():
    sooner.init(num_cpus=1, namespace="mine")
    assert sooner.get_runtime_context().namespace == "mine"


def test_namespaces_of_sessions_differ():
    found = set()
    for _ in range(2):
        sooner.init(num_cpus=1)
        found.add(sooner.get_runtime_context().namespace)
        sooner.shutdown()
    assert len(found) == 2


def test_the_session_lies_below_sooner_tmpdir(short_dir, monkeypatch):
    monkeypatch.setenv("SOONER_TMPDIR", str(short_dir))
    directory = Path(sooner.init(num_cpus=1)["session_dir"])
    assert short_dir in directory.parents
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    sooner.shutdown()
    assert not list(short_dir.rglob("session-*"))


def test_sooner_tmpdir_that_does_not_exist(short_dir, monkeypatch):
    monkeypatch.setenv("SOONER_TMPDIR", str(short_dir / "nowhere"))
    try:
        sooner.init(num_cpus=1)
    except OSError as error:
        assert "nowhere" in str(error)  # noqa: PT017  being made is as good


# Some of these lengths are too long for one socket of a session and not for the one before it.
@pytest.mark.parametrize("length", [*range(20, 100, 5), 100, 200])
def test_sooner_tmpdir_that_is_too_long_for_a_socket(length, short_dir, monkeypatch):
    long = short_dir / ("d" * length)
    long.mkdir()
    monkeypatch.setenv("SOONER_TMPDIR", str(long))
    try:
        sooner.init(num_cpus=1)
    except OSError as error:
        assert "SOONER_TMPDIR" in str(error) or "ddd" in str(error)  # noqa: PT017  working is as good


def test_a_directory_of_wrong_mode_is_not_trusted(short_dir, monkeypatch):
    """Somebody has made the place before us, open to all."""
    monkeypatch.setenv("SOONER_TMPDIR", str(short_dir))
    place = short_dir / f"sooner-{os.getuid()}"
    place.mkdir()
    place.chmod(0o777)
    with pytest.raises(OSError, match="0700"):
        sooner.init(num_cpus=1)


@pytest.mark.api("own.preload")
def test_preload():
    sooner.init(num_cpus=1, preload=["colorsys"])

    @sooner.remote
    def loaded(name):
        return name in sys.modules

    assert sooner.get(loaded.remote("colorsys"), timeout=WAIT)


@pytest.mark.api("own.preload")
def test_a_preload_that_cannot_be_imported_says_so_and_does_not_stop_the_session():
    done = run_driver(
        """
        import sooner
        @sooner.remote
        def f():
            return "works"
        sooner.init(num_cpus=1, preload=["no_such_module_here"])
        print(sooner.get(f.remote(), timeout=60))
        sooner.shutdown()
        """
    )
    assert done.stdout == "works\n"
    assert "no_such_module_here" in done.stderr


@pytest.mark.api("init.auto")
@pytest.mark.parametrize(
    "first_use",
    [
        "sooner.get(f.remote(), timeout=60)",
        "sooner.get(sooner.put(1), timeout=60)",
        "A.remote()",
        "sooner.get_runtime_context()",
        "sooner.wait([sooner.put(1)])",
        "sooner.cluster_resources()",
        "sooner.nodes()",
    ],
)
def test_the_first_use_starts_a_session(first_use):
    done = run_driver(
        f"""
        import sooner
        @sooner.remote
        def f():
            return 1
        @sooner.remote
        class A:
            pass
        assert not sooner.is_initialized()
        {first_use}
        assert sooner.is_initialized()
        print("started")
        """
    )
    assert done.stdout == "started\n"


@pytest.mark.api("init.auto")
def test_declaring_starts_nothing():
    done = run_driver(
        """
        import threading, sooner
        @sooner.remote(num_cpus=2)
        def f():
            return 1
        @sooner.remote
        class A:
            pass
        f.options(num_cpus=1), A.options(name="a")
        print(sooner.is_initialized(), threading.active_count())
        """
    )
    assert done.stdout == "False 1\n"


@pytest.mark.api("init.auto")
def test_starting_on_first_use_can_be_switched_off():
    done = run_driver(
        """
        import sooner
        @sooner.remote
        def f():
            return 1
        for use in (f.remote, lambda: sooner.put(1), lambda: sooner.get_actor("x"), sooner.get_runtime_context):
            try:
                use()
            except Exception as error:
                assert "init" in str(error), error
            else:
                raise AssertionError("it has started")
        assert not sooner.is_initialized()
        sooner.init(num_cpus=1)
        print(sooner.get(f.remote(), timeout=60))
        """,
        env=os.environ | {"SOONER_ENABLE_AUTO_CONNECT": "0"},
    )
    assert done.stdout == "1\n"


@pytest.mark.api("import_as_ray")
def test_import_as_ray():
    done = run_driver(
        """
        import sooner as ray
        ray.init(num_cpus=1)
        @ray.remote
        def f(x):
            return x
        assert ray.get(f.remote(1)) == 1
        assert issubclass(ray.exceptions.RayTaskError, ray.exceptions.RayError)
        assert ray.ObjectID is ray.ObjectRef
        ray.shutdown()
        print("fine")
        """
    )
    assert done.stdout == "fine\n"


def test_import_is_light():
    """What is not needed is not imported."""
    heavy = ["asyncio", "numpy", "multiprocessing", "socket", "concurrent.futures"]
    done = run_driver(f"import sys, sooner; sooner.init; print([name for name in {heavy} if name in sys.modules])")
    assert done.stdout == "[]\n"


@pytest.mark.api("constants")
def test_public_names():
    for name in sooner.__all__:
        assert getattr(sooner, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        sooner.nonsense  # noqa: B018
    assert isinstance(sooner.__version__, str)
    assert set(sooner.__all__) <= set(dir(sooner))


@pytest.mark.api("nodes")
def test_nodes():
    context = sooner.init(num_cpus=1)
    (node,) = sooner.nodes()
    expected = {
        "NodeID",
        "Alive",
        "alive",
        "NodeName",
        "NodeManagerAddress",
        "NodeManagerHostname",
        "NodeManagerPort",
        "ObjectManagerPort",
        "ObjectStoreSocketName",
        "RayletSocketName",
        "MetricsExportPort",
        "MetricsAgentPort",
        "DashboardAgentListenPort",
        "RuntimeEnvAgentPort",
        "Resources",
        "Labels",
        "DeathReason",
        "DeathReasonMessage",
    }
    assert expected <= set(node)
    assert node["NodeID"] == context["node_id"]
    assert node["Alive"] is node["alive"] is True
