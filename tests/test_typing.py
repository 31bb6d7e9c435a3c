"""What type checkers are promised: the marks do nothing at run time, and the check of the cases finds what is
    wrong.

The cases in tests/typing are checked by `make lint`; here they are only imported.
"""

import ast
import importlib.util
import json
from collections import defaultdict
from pathlib import Path

import pytest
import typing_cases

import sooner

PACKAGE = Path(sooner.__file__).parent
MARKED = """x = 1
f("a")  # mypy: arg-type; pyright: reportArgumentType, reportCallIssue
g()  # mypy: -; pyright: reportCallIssue
"""


class Counter(sooner.TypedActor):
    def __init__(self, start: int = 0) -> None:
        self.value = start

    @sooner.method
    def add(self, n: int, *, times: int = 1) -> int:
        self.value += n * times
        return self.value

    @sooner.method(num_returns=2)
    def both(self) -> tuple[int, int]:
        return self.value, -self.value

    def unmarked(self) -> int:
        return self.value

    @sooner.method
    @staticmethod
    def twice(n: int) -> int:
        return 2 * n


@pytest.mark.api("own.typed_actors")
def test_typed_actor_is_an_actor_like_any_other(sooner_session):
    counter = sooner.remote(Counter).remote(start=1)
    assert isinstance(counter, sooner.ActorHandle)
    assert sooner.get(counter.add.remote(sooner.put(2), times=2)) == 5
    assert sooner.get(counter.both.remote()) == [5, -5]
    assert sooner.get(counter.unmarked.remote()) == 5
    assert sooner.get(counter.twice.remote(4)) == 8
    with pytest.raises(TypeError, match="positional"):
        counter.add.remote(1, 2)
    with pytest.raises(AttributeError, match="no method 'ad'"):
        counter.ad.remote(1)


@pytest.mark.api("method")
def test_a_marked_method_stays_a_method():
    counter = Counter(1)
    assert counter.add(2, times=2) == 5
    assert Counter.add(counter, 1) == 6
    assert Counter.add.__qualname__ == "Counter.add"


@pytest.mark.api("own.typed_actors")
def test_a_mark_refuses_what_is_no_method():
    with pytest.raises(TypeError, match="not options"):
        sooner.method(3)
    with pytest.raises(TypeError, match="not options"):
        sooner.method(print, num_returns=2)
    with pytest.raises(ValueError, match="at least one option"):
        sooner.method()


@pytest.mark.api("actor.types", "own.typed_actors")
def test_actor_proxy_is_a_handle_at_run_time():
    assert sooner.ActorProxy is sooner.ActorHandle
    assert sooner.ActorProxy[Counter] == sooner.ActorHandle[Counter]


def test_the_cases_hold_at_run_time_as_far_as_they_declare():
    specification = importlib.util.spec_from_file_location("sooner_typing_cases_good", typing_cases.GOOD)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    assert isinstance(module.scale, sooner.RemoteFunction)
    assert isinstance(module.RemoteCounter, sooner.ActorClass)


@pytest.mark.api("own.typing")
def test_checkers_see_every_public_name():
    """Both lists of the package's `__init__` have the same names."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.asname for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    seen |= {node.targets[0].id for node in block.body if isinstance(node, ast.Assign)}
    assert seen == {*sooner._HOMES, *sooner._MODULES}


@pytest.mark.api("own.typing")
def test_the_package_says_that_it_is_typed():
    assert (PACKAGE / "py.typed").is_file()
    assert (PACKAGE / "_typing.pyi").is_file()


# --- the check ------------------------------------------------------------------------------------------


def compare(tmp_path: Path, checker: str, found: dict[int, list[str]]) -> list[str]:
    cases = tmp_path / "cases.py"
    cases.write_text(MARKED)
    reports = {number: [typing_cases.Found(code, "said") for code in codes] for number, codes in found.items()}
    return list(typing_cases.compare(cases, checker, typing_cases.marks(cases, checker), reports))


def test_every_marked_line_reported_is_no_finding(tmp_path):
    assert not compare(tmp_path, "mypy", {2: ["arg-type"]})
    assert not compare(
        tmp_path, "pyright", {2: ["reportArgumentType", "reportCallIssue", "more"], 3: ["reportCallIssue"]}
    )


def test_a_marked_line_that_passes_is_a_finding(tmp_path):
    assert compare(tmp_path, "mypy", {}) == ["cases.py:2: mypy does not report arg-type"]
    assert compare(tmp_path, "mypy", {2: ["misc"]}) == ["cases.py:2: mypy does not report arg-type, but misc"]
    assert compare(tmp_path, "pyright", {2: ["reportArgumentType", "reportCallIssue"]}) == [
        "cases.py:3: pyright does not report reportCallIssue"
    ]


def test_a_report_of_another_line_is_a_finding(tmp_path):
    assert compare(tmp_path, "mypy", {1: ["misc"], 2: ["arg-type"]}) == ["cases.py:1: mypy reports misc: said"]


def test_a_mark_that_cannot_be_read_is_an_error(tmp_path):
    cases = tmp_path / "cases.py"
    cases.write_text("f()  # mypy: arg-type\n")
    with pytest.raises(ValueError, match=r"cases\.py:1"):
        typing_cases.marks(cases, "mypy")


class Ended:
    """A checker that has ended."""

    returncode = 1

    def __init__(self, output: str, errors: str = "") -> None:
        self._said = output, errors

    def communicate(self, timeout: float) -> tuple[str, str]:
        return self._said


def test_reports_are_read():
    mypy = "\n".join(
        json.dumps({"file": "tests/typing/bad.py", "line": line, "code": code, "message": "m", "severity": severity})
        for line, code, severity in [(1, "misc", "error"), (2, None, "error"), (3, "misc", "note")]
    )
    lines = typing_cases.result("mypy", Ended(mypy), typing_cases.read_mypy)
    assert lines == {
        (typing_cases.BAD, 1): [typing_cases.Found("misc", "m")],
        (typing_cases.BAD, 2): [typing_cases.Found("syntax", "m")],
    }
    error = {"file": str(typing_cases.BAD), "rule": "r", "message": "m\nmore", "range": {"start": {"line": 6}}}
    pyright = json.dumps({"generalDiagnostics": [{**error, "severity": "error"}, {**error, "severity": "warning"}]})
    lines = typing_cases.result("pyright", Ended(pyright), typing_cases.read_pyright)
    assert lines == defaultdict(list, {(typing_cases.BAD, 7): [typing_cases.Found("r", "m")]})


@pytest.mark.parametrize(
    ("ended", "reason"),
    [
        (Ended("", "python: No module named pyright"), "not installed"),
        (Ended("", "node: GLIBC_2.28 not found"), "does not run here: node: GLIBC_2.28 not found"),
        (Ended("", ""), "exit code 1"),
    ],
)
def test_a_checker_that_does_not_run_is_skipped(ended, reason):
    with pytest.raises(typing_cases.Skipped, match=reason):
        typing_cases.result("pyright", ended, typing_cases.read_pyright)
