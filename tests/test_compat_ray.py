"""sooner.compat.ray: programs for Ray, unchanged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support import WAIT

PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.py"))


def run(*arguments, code=None, check=True, **environment):
    """Run Python with what is given, and return how it ended."""
    given = {name: value for name, value in os.environ.items() if name not in ("SOONER_AS_RAY", "PYTHONPATH")}
    done = subprocess.run(
        [sys.executable, *arguments],
        input=None if code is None else textwrap.dedent(code),
        capture_output=True,
        text=True,
        timeout=WAIT,
        env={**given, **environment},
        check=False,
    )
    assert not check or done.returncode == 0, done.stderr
    return done


AS_RAY = ("-m", "sooner.compat.ray")
# What a script, a module and standard input print in all three ways.
SHOWS = """
import sys
import ray

@ray.remote
def inside():
    import ray as again
    return again.__version__, again.get_runtime_context().get_task_id() is not None

if __name__ == "__main__":
    print(sys.argv[1:], ray.get(inside.remote()), __file__ if "__file__" in globals() else None)
"""


class TestWays:
    @pytest.mark.api("compat.ray")
    def test_a_script(self, tmp_path):
        script = tmp_path / "program.py"
        script.write_text(SHOWS)
        done = run(*AS_RAY, str(script), "--one", "-m", "two")
        assert done.stdout == f"['--one', '-m', 'two'] ('2.60.0', True) {script}\n"

    def test_a_module_with_options_of_the_interpreter(self, tmp_path):
        (tmp_path / "package").mkdir()
        (tmp_path / "package" / "__main__.py").write_text(SHOWS + "    print(sys.flags.optimize)")
        done = run("-O", *AS_RAY, "-m", "package", "x", PYTHONPATH=str(tmp_path))
        place = tmp_path / "package" / "__main__.py"
        assert done.stdout == f"['x'] ('2.60.0', True) {place}\n1\n"

    def test_code_and_standard_input(self):
        assert run(*AS_RAY, "-c", "import ray; print(ray.put(1).size())").stdout == "20\n"
        assert run(*AS_RAY, "-", "arg", code=SHOWS).stdout == "['arg'] ('2.60.0', True) <stdin>\n"

    def test_its_exit_status_is_that_of_the_program(self):
        assert run(*AS_RAY, "-c", "raise SystemExit(7)", check=False).returncode == 7

    @pytest.mark.parametrize("wrong", [(), ("-m",), ("-c",)])
    def test_nothing_to_run(self, wrong):
        done = run(*AS_RAY, *wrong, check=False)
        assert done.returncode == 2
        assert done.stderr.startswith("usage: python -m sooner.compat.ray (SCRIPT")

    def test_an_isolated_interpreter_is_refused(self):
        done = run("-E", *AS_RAY, "x.py", check=False)
        assert (done.returncode, done.stderr) == (
            2,
            "python -m sooner.compat.ray: does not work with Python's options -E and -I\n",
        )

    def test_installed_by_the_program(self, tmp_path):
        script = tmp_path / "program.py"
        script.write_text(f"import sooner.compat.ray as compat\ncompat.install()\ncompat.install()\n{SHOWS}")
        assert run(str(script)).stdout == f"[] ('2.60.0', True) {script}\n"

    def test_asked_for_in_the_environment(self):
        code = "import sooner, ray; assert ray.get is sooner.get; print(ray.get(ray.put(3)))"
        assert run("-c", code, SOONER_AS_RAY="1").stdout == "3\n"
        for value in ("0", ""):
            done = run("-c", code, SOONER_AS_RAY=value, check=False)
            assert "No module named 'ray'" in done.stderr

    def test_it_is_not_active_by_itself(self):
        assert run("-c", "import sooner, sys; print([m for m in sys.modules if 'compat' in m])").stdout == "[]\n"
        assert "No module named 'ray'" in run("-c", "import sooner, ray", check=False).stderr

    def test_processes_that_it_starts_are_ray_too(self):
        code = """
        import json, subprocess, sys, ray

        def version():
            code = "import ray, importlib.metadata as m; print(ray.__version__, m.version('ray'))"
            return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout

        print(json.dumps([version(), ray.get(ray.remote(version).remote())]))
        """
        done = run(*AS_RAY, "-c", textwrap.dedent(code))
        assert json.loads(done.stdout) == ["2.60.0 2.60.0\n"] * 2

    def test_ray_itself_is_loaded_already(self, tmp_path):
        (tmp_path / "ray.py").write_text("")
        code = "import ray, sooner.compat.ray as compat; compat.install()"
        done = run("-c", code, PYTHONPATH=str(tmp_path), check=False)
        assert f"RuntimeError: Ray itself is loaded already, from {tmp_path}/ray.py: call" in done.stderr

    def test_an_installed_ray_is_hidden(self, tmp_path):
        (tmp_path / "ray").mkdir()
        (tmp_path / "ray" / "__init__.py").write_text("raise AssertionError('it was loaded')")
        (tmp_path / "ray" / "data.py").write_text("raise AssertionError('it was loaded')")
        done = run(
            *AS_RAY, "-c", "import ray; print(ray.__version__); import ray.data", PYTHONPATH=str(tmp_path), check=False
        )
        assert done.stdout == "2.60.0\n"
        assert "ModuleNotFoundError: sooner has no ray.data" in done.stderr

    @pytest.mark.parametrize(
        ("given", "expected"),
        [({"RAY_ADDRESS": "auto"}, "auto"), ({"RAY_ADDRESS": "http://127.0.0.1:8265"}, None), ({}, None)],
    )
    def test_the_address_of_ray_is_honoured(self, given, expected):
        done = run(*AS_RAY, "-c", "import os; print(os.environ.get('SOONER_ADDRESS'))", **given)
        assert done.stdout == f"{expected}\n"
        given = {**given, "SOONER_ADDRESS": "local"}
        assert run(*AS_RAY, "-c", "import os; print(os.environ['SOONER_ADDRESS'])", **given).stdout == "local\n"


class TestSurface:
    @staticmethod
    def printed(code):
        return run(*AS_RAY, "-c", textwrap.dedent(code)).stdout

    @pytest.mark.api("compat.ray")
    def test_modules_are_imported_in_every_form(self):
        code = """
        import ray, sooner
        import ray.util.queue
        import ray.util.placement_group as module
        from ray import ObjectRef, exceptions
        from ray._raylet import ActorID, ObjectRef as again
        from ray.actor import ActorHandle
        from ray.exceptions import GetTimeoutError, RayTaskError
        from ray.types import ObjectRef as third
        from ray.util import ActorPool, placement_group, queue
        from ray.util.actor_pool import ActorPool as pool
        from ray.util.multiprocessing import Pool
        from ray.util.placement_group import PlacementGroup, placement_group as function
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        assert ObjectRef is again is third is sooner.ObjectRef
        assert exceptions.RayTaskError is RayTaskError is sooner.exceptions.RayTaskError
        assert ActorPool is pool is sooner.util.ActorPool and queue is ray.util.queue
        assert callable(module) and callable(placement_group)
        assert function is sooner.util.placement_group.placement_group
        group = placement_group([{"CPU": 1}])
        assert ray.get(group.ready(), timeout=60) is not None and isinstance(group, PlacementGroup)
        assert "queue" in dir(ray.util) and "get" in dir(ray) and "util" in dir(ray)
        print("all")
        """
        assert self.printed(code) == "all\n"

    def test_every_module_of_the_table_has_what_it_stands_for(self):
        code = """
        import importlib, types
        from sooner.compat.ray.surface import MODULES, NOT_OFFERED
        assert not set(MODULES) & set(NOT_OFFERED)
        for name, surface in MODULES.items():
            made, meant = importlib.import_module(name), importlib.import_module(surface.stands_for)
            for attribute in surface.names or getattr(meant, "__all__", ()):
                found, expected = getattr(made, attribute), getattr(meant, attribute)
                both = isinstance(found, types.ModuleType) and isinstance(expected, types.ModuleType)
                assert found is expected or both, (name, attribute)
            assert repr(made).startswith(f"<module {name!r}")
        print("all")
        """
        assert self.printed(code) == "all\n"

    @pytest.mark.api("compat.ray.missing")
    @pytest.mark.parametrize(
        ("code", "text"),
        [
            ("import ray.data", "ModuleNotFoundError: sooner has no ray.data: Ray Data does not run on sooner"),
            ("from ray import tune", "ModuleNotFoundError: sooner has no ray.tune: Ray Tune"),
            ("import ray._private.worker", "ModuleNotFoundError: sooner has no ray._private: these are Ray's private"),
            ("from ray.util import iter", "ModuleNotFoundError: sooner has no ray.util.iter: Ray has deprecated it"),
            ("import ray; ray.dag", "AttributeError: sooner has no ray.dag: graphs of tasks"),
            ("import ray; ray.LoggingConfig", "AttributeError: sooner has no ray.LoggingConfig: structured logging"),
            ("import ray; ray.util.spark", "AttributeError: sooner has no ray.util.spark: Spark on sooner"),
            ("import ray; ray.remotes", "AttributeError: sooner has no ray.remotes; docs/api-support.md lists"),
            ("from ray.types import Other", "ModuleNotFoundError: sooner has no ray.types.Other"),
            ("from ray import nothing", "ModuleNotFoundError: sooner has no ray.nothing; docs/api-support.md lists"),
        ],
    )
    def test_what_is_not_offered_is_named(self, code, text):
        done = run(*AS_RAY, "-c", code, check=False)
        assert done.stderr.splitlines()[-1].startswith(text), done.stderr

    def test_functions_that_use_the_module_travel(self):
        code = """
        import pickle, ray
        from ray import cloudpickle

        def version():
            return ray.__version__, ray.util.queue.Queue.__name__

        assert cloudpickle.loads(cloudpickle.dumps(version))() == version()
        assert pickle.loads(pickle.dumps(ray.util)) is ray.util
        print(ray.get(ray.remote(version).remote()))
        """
        assert self.printed(code) == "('2.60.0', 'Queue')\n"

    def test_names_can_be_replaced_as_tests_do(self):
        code = """
        from unittest import mock
        import ray, sooner
        with mock.patch("ray.get", return_value=5), mock.patch("ray.util.queue.Queue", new=3):
            assert ray.get(None) == 5 and ray.util.queue.Queue == 3 and sooner.get is not ray.get
        assert ray.get is sooner.get
        print("all")
        """
        assert self.printed(code) == "all\n"


@pytest.mark.api("compat.ray")
def test_dask_under_the_names_of_ray():
    pytest.importorskip("dask")
    code = """
    import dask, ray
    from ray.util.dask import RayDaskCallback, enable_dask_on_ray, ray_dask_get

    heard = []

    class Hears(RayDaskCallback):
        def _ray_presubmit(self, task, key, deps):
            heard.append("presubmit")

        def _ray_finish(self, result):
            heard.append("finish")

    total = dask.delayed(sum)([1, 2])
    with Hears(), RayDaskCallback(ray_postsubmit=lambda *_: heard.append("postsubmit")):
        assert total.compute(scheduler=ray_dask_get, ray_remote_args={"num_cpus": 1}) == 3
    assert sorted(heard) == ["finish", "postsubmit", "presubmit"], heard

    (ref,) = ray_dask_get({"x": (sum, [1, 2])}, ["x"], ray_persist=True)
    assert isinstance(ref, ray.ObjectRef) and ray.get(ref) == 3
    for wrong in ({"ray_remote_args": {"nonsense": 1}}, {"ray_presist": True}):
        try:
            total.compute(scheduler=ray_dask_get, **wrong)
        except (TypeError, ValueError) as error:
            print(error)
    try:
        with dask.annotate(ray_remote_args={"nonsense": 1}):
            dask.delayed(sum)([1, 2]).compute(scheduler=ray_dask_get)
    except ValueError as error:
        print(error)
    """
    lines = TestSurface.printed(code).splitlines()
    for line, text in zip(lines, ("nonsense", "no argument 'sooner_presist'", "nonsense"), strict=True):
        assert text in line


class TestPrograms:
    """Classics of the field. Each one checks its own answer."""

    @pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
    def test_it_runs_unchanged(self, program):
        assert "sooner" not in program.read_text(encoding="utf-8")
        last = run(*AS_RAY, str(program)).stdout.splitlines()[-1]
        if last.startswith("skipped: "):
            pytest.skip(last.removeprefix("skipped: "))
        assert last.startswith("answer: ")
