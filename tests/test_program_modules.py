"""What workers cannot import travels: of scripts, of programs that multiprocessing starts, of modules on
no path.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
from support import run_driver

_SCRIPT = """
import dataclasses, enum, functools, multiprocessing, pickle, sys, typing
import sooner


@dataclasses.dataclass
class Point:
    x: int
    near: "Point | None" = None


class Color(enum.Enum):
    RED = 1


class Wrong(Exception):
    pass


def plus_one(x):
    return x + 1


@functools.lru_cache
def twice(x):
    return 2 * x


@sooner.remote
def task(x):
    return plus_one(x)


@sooner.remote
def fails():
    raise Wrong("so it is")


@sooner.remote
class Actor:
    async def make(self):
        return Point(1)

    def read(self, point):
        return isinstance(point, Point), point.x


def program(start, ends):
    assert __name__ == ("__main__" if start == "fork" else "__mp_main__")
    with sooner.init(num_cpus=2):
        get = functools.partial(sooner.get, timeout=60)
        run = lambda function, *given: get(sooner.remote(function).remote(*given))
        assert get(task.remote(1)) == 2
        assert run(plus_one, 1) == 2
        assert run(lambda: twice(4)) == 8
        assert run(lambda color: color, Color.RED) is Color.RED
        assert run(lambda point: point, Point(1)) == Point(1)
        assert get(sooner.put(Point)) is Point
        assert get(sooner.put([Point(2)])) == [Point(2)]
        assert run(lambda: pickle.loads(pickle.dumps(Point(3)))) == Point(3)
        assert "Point" in run(lambda: str(typing.get_type_hints(Point)))
        actor = Actor.remote()
        assert get(actor.make.remote()) == Point(1)
        assert get(actor.read.remote(Point(3))) == (True, 3)
        try:
            get(fails.remote())
        except Wrong as error:
            assert "so it is" in str(error)
        else:
            raise AssertionError("no error")
    # To the program that started this one it is the script's, too.
    ends.put(Point(5))


if __name__ == "__main__":
    start = sys.argv[1]
    context = multiprocessing.get_context(start)
    ends = context.Queue()
    process = context.Process(target=program, args=(start, ends))
    process.start()
    process.join(100)
    assert process.exitcode == 0, process.exitcode
    assert ends.get(timeout=10) == Point(5)
    print("well")
"""


@pytest.mark.parametrize("start", ["spawn", "forkserver", "fork"])
def test_what_the_script_defines_travels_from_programs_that_it_starts(tmp_path, start) -> None:
    script = tmp_path / "script.py"
    script.write_text(_SCRIPT)
    done = subprocess.run([sys.executable, script, start], capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.returncode) == ("well\n", 0), done.stderr


_TESTS = """
import dataclasses, pytest, sooner

@dataclasses.dataclass
class Point:
    x: int

class Wrong(Exception):
    pass

def plus_one(point):
    return Point(point.x + 1)

@sooner.remote
def task(point):
    return plus_one(point)

@sooner.remote
class Actor:
    def make(self):
        return Point(9)

    def fail(self):
        raise Wrong("so it is")

@pytest.fixture(scope="module", autouse=True)
def session():
    with sooner.init(num_cpus=2):
        yield

def test_an_argument_that_comes_before_anything_else():
    assert sooner.get(task.remote(Point(1))) == Point(2)

def test_values_are_of_the_class():
    assert type(sooner.get(sooner.remote(lambda point: point).remote(Point(1)))) is Point

def test_actors():
    actor = Actor.remote()
    assert sooner.get(actor.make.remote()) == Point(9)
    with pytest.raises(Wrong):
        sooner.get(actor.fail.remote())

def test_stored_values():
    ref = sooner.put([Point(4)])
    assert sooner.get(ref) == [Point(4)]
    assert sooner.get(sooner.remote(lambda points: points[0].x).remote(ref)) == 4

def test_executor():
    with sooner.Executor(2) as executor:
        assert list(executor.map(plus_one, [Point(1), Point(2)])) == [Point(2), Point(3)]
"""


@pytest.mark.parametrize("mode", ["prepend", "append", "importlib"])
@pytest.mark.parametrize("is_package", [False, True])
def test_what_tests_define_travels_however_pytest_imports_them(tmp_path, mode, is_package) -> None:
    place = tmp_path / "tests"
    place.mkdir()
    (place / "test_of_somebody.py").write_text(_TESTS)
    if is_package:
        (place / "__init__.py").touch()
    # Not `python -m pytest`, which has the working directory searched.
    code = "import sys, pytest; sys.path.remove(''); sys.exit(pytest.main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, "-q", "-p", "no:cacheprovider", f"--import-mode={mode}", str(place)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "5 passed" in done.stdout


def test_what_a_module_of_no_search_path_defines_travels(tmp_path) -> None:
    (tmp_path / "plugin.py").write_text(_TESTS)
    code = f"""
        import importlib.util, sys, sooner

        spec = importlib.util.spec_from_file_location("a.plugin", {str(tmp_path / "plugin.py")!r})
        module = sys.modules["a.plugin"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        with sooner.init(num_cpus=2):
            module.test_an_argument_that_comes_before_anything_else()
            module.test_values_are_of_the_class()
            module.test_actors()
            module.test_stored_values()
            module.test_executor()
        """
    run_driver(code)
