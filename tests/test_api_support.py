"""docs/api-support.md says what the tests prove, and the check says what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import api_support
import pytest

ROOT = Path(__file__).resolve().parent.parent

ROWS = """
[[section]]
title = "Verbs"
rows = [
  { id = "get", name = "`get`", means = "Waits.", priority = "must" },
  { id = "put", name = "`put`", means = "Stores | keeps.", priority = "must", gap = "no owner" },
  { id = "free", name = "`free`", means = "Frees.", priority = "should" },
  { id = "dag", name = "`dag`", means = "Graphs.", priority = "later", later = "graphs" },
]
"""
TESTS = """
import pytest

@pytest.mark.parametrize("x", [1])
@pytest.mark.api("get", "put")
def test_one(x): ...

@pytest.mark.api("get")
class TestMany:
    @pytest.mark.api("dag")
    async def test_inside(self): ...

def test_unmarked(): ...
"""


def tree(root: Path, rows: str = ROWS, tests: str = TESTS) -> Path:
    for name, text in {"tools/api_rows.toml": rows, "tests/test_verbs.py": tests, "docs/index.md": ""}.items():
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return root


def test_the_page_of_this_tree_is_up_to_date() -> None:
    assert api_support.findings(ROOT) == []


def test_the_page(tmp_path: Path) -> None:
    assert api_support.main([], tree(tmp_path)) == 0
    text = (tmp_path / "docs/api-support.md").read_text()
    assert "## Verbs" in text
    for line in (
        "| must | 1 | 1 | 0 | 0 |",
        "| should | 0 | 0 | 1 | 0 |",
        "| `get` | Waits. | must | tested | `test_verbs.py::test_one`<br>`test_verbs.py::TestMany` |",
        r"| `put` | Stores \| keeps. | must | in part: no owner | `test_verbs.py::test_one` |",
        "| `free` | Frees. | should | missing |  |",
        "| `dag` | Graphs. | later | later: graphs | `test_verbs.py::TestMany::test_inside` |",
    ):
        assert line in text.splitlines()
    assert api_support.main(["--check"], tmp_path) == 0


def test_a_page_that_is_not_up_to_date(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree(tmp_path)
    line = "api_support: docs/api-support.md is not up to date: run python tools/api_support.py\n"
    assert api_support.main(["--check"], tmp_path) == 1
    assert capsys.readouterr().out == line
    api_support.main([], tmp_path)
    tree(tmp_path, tests=TESTS.replace('"get", "put"', '"get"'))
    assert api_support.main(["--check"], tmp_path) == 1
    assert capsys.readouterr().out == line


@pytest.mark.parametrize("arguments", [[], ["--check"]])
def test_a_row_that_does_not_exist(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    tree(tmp_path, tests=TESTS.replace('"put"', '"gets"'))
    assert api_support.main(arguments, tmp_path) == 1
    assert capsys.readouterr().out == "api_support: tests/test_verbs.py:5: tools/api_rows.toml has no row 'gets'\n"


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (ROWS.replace('id = "put"', 'id = "get"'), "two rows have the id 'get'"),
        (ROWS.replace('means = "Waits.", ', ""), "row 'get': 'means' is missing"),
        (ROWS.replace('"should"', '"soon"'), "row 'free': priority is one of must, should, later, own"),
        (ROWS.replace("later =", "latest ="), "row 'dag': 'latest' is none of"),
        (ROWS.replace('later = "graphs"', 'later = "graphs", gap = "all"'), "row 'dag': it has a gap, or belongs to"),
    ],
)
def test_rows_that_cannot_be_used(tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: str, words: str) -> None:
    assert api_support.main(["--check"], tree(tmp_path, rows=rows)) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert words in line


@pytest.mark.parametrize(
    ("tests", "words"),
    [
        (TESTS.replace('"dag"', "NAME"), "10: write the ids of rows as strings"),
        (TESTS.replace('parametrize("x", [1])', "skip"), "5: a test with pytest.mark.skip proves no row"),
        (
            TESTS.replace('parametrize("x", [1])', "xfail(strict=True)"),
            "5: a test with pytest.mark.xfail proves no row",
        ),
    ],
    ids=["names", "skip", "xfail"],
)
def test_marks_that_cannot_be_used(tmp_path: Path, capsys: pytest.CaptureFixture[str], tests: str, words: str) -> None:
    assert api_support.main([], tree(tmp_path, tests=tests)) == 1
    assert capsys.readouterr().out == f"api_support: tests/test_verbs.py:{words}\n"


def test_another_argument(capsys: pytest.CaptureFixture[str]) -> None:
    assert api_support.main(["--chek"]) == 2
    assert "--chek" in capsys.readouterr().err
