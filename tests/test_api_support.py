"""docs/api-support.md says what the tests prove, and the check says what is wrong with it."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import api_support
import pytest

import sooner

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


# --- what the page of this tree says is not there, against the code and the other
# pages -------------------------------


def rows_for_later(root: Path = ROOT) -> Iterator[tuple[api_support.Row, list[str]]]:
    """The rows that belong to later versions, with their names, but for arguments of what is there."""
    rows = [row for section in api_support.read_rows(root) for row in section.rows]
    there = {word for row in rows if not row.is_later for word in re.findall(r"\w+(?==)", row.name)}
    for row in rows:
        if row.is_later:
            yield row, [name for name in names_in(row.name) if name not in there]


def names_in(text: str) -> list[str]:
    """What stands in backticks, without `sooner.`: `f.bind(...)` is `.bind`, an attribute; `init(a=)` is
    `a`.
    """
    found = []
    for span in re.findall(r"`([^`]+)`", text):
        plain = re.sub(r"\(.*", "", span).rstrip("=").removeprefix("sooner.")
        found += re.findall(r"\w+(?==)", span) or [re.sub(r"^(f|A|handle\.method)\.", ".", plain)]
    return found


def documented(name: str, text: str) -> bool:
    """Whether a page uses a name in its code, outside of a section or an item on what is not there."""
    text = re.sub(
        r"^## What is not there.*?(?=^## |\Z)|^- [^\n]*\bare not there\b[^\n]*$",
        "",
        text,
        flags=re.DOTALL | re.MULTILINE,
    )
    code = re.findall(r"^```.*?^```|`[^`\n]+`", text, flags=re.DOTALL | re.MULTILINE)
    if name.startswith("."):
        word = re.escape(name) + r"\("
    elif "." in name or name.startswith("_") or not name.islower():
        word = rf"(?<!\w){re.escape(name)}(?!\w)"
    else:
        # Words such as `data` mean something else in most code.
        word = rf"(?<!\w)(sooner|ray)(\.util)?\.{name}(?!\w)|(?<![\w.\"'/-]){name}=(?!=)"
    return any(re.search(word, span) for span in code)


def test_what_documented_means() -> None:
    assert documented("runtime_env", "Give `f.options(runtime_env={})`.")
    assert documented("runtime_env", "```python\nsooner.init(runtime_env=1)\n```")
    assert documented(".bind", "`f.bind(1)` is a graph.")
    assert documented("dag", "`sooner.dag` has graphs.")
    assert not documented("runtime_env", "## What is not there yet\n\n`runtime_env=` is not.\n")
    assert documented("runtime_env", "## What is not there yet\n\n## Next\n\n`runtime_env=`\n")
    assert not documented("data", "`data` is a name like any other")
    assert names_in("`f.bind(...)`, `sooner.dag`, `_labels`") == [".bind", "dag", "_labels"]


def test_what_is_left_for_later_is_refused_by_name() -> None:
    """Without a test nothing shows that it is not there: so stood clusters on the page, long after they
    came.
    """
    proved = {mark.row for mark in api_support.read_marks(ROOT)}
    assert [row.id for row, _ in rows_for_later() if row.id not in proved or not names_in(row.name)] == []


def test_what_is_left_for_later_is_no_module() -> None:
    assert list(sooner.__path__)
    for row, names in rows_for_later():
        for name in names:
            if re.fullmatch(r"[a-z][\w.]*", name):
                try:
                    found = importlib.util.find_spec(f"sooner.{name}")
                except ModuleNotFoundError:
                    continue
                assert found is None, f"row {row.id!r}: there is a module sooner.{name}"


def test_no_page_documents_what_is_left_for_later() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    texts = {page.name: page.read_text() for page in pages if page.name != api_support.PAGE.name}
    wrong = [
        f"{page} has {name!r}, of which row {row.id!r} says: later"
        for row, names in rows_for_later()
        for name in names
        for page, text in texts.items()
        if documented(name, text)
    ]
    assert wrong == []


def test_what_nothing_raises_is_raised_nowhere() -> None:
    """The rows say of some classes of errors that nothing raises them."""
    sources = [*(ROOT / "python/sooner").rglob("*.py"), *(ROOT / "crates").glob("*/src/**/*.rs")]
    text = "".join(path.read_text() for path in sources)
    rows = {row.id: row for section in api_support.read_rows(ROOT) for row in section.rows}
    names = {*names_in(rows["errors.unused"].name), *names_in(rows["errors.lost_reasons"].gap)}
    names |= set(names_in(rows["errors.node"].gap))
    assert len(names) > 8
    sections = dict(
        re.findall(r"^### `(\w+)`\n(.*?)(?=^#|\Z)", (ROOT / "docs/errors.md").read_text(), re.DOTALL | re.MULTILINE)
    )
    said = {name for name, section in sections.items() if "Nothing raises it yet" in section}
    assert said == names & set(sections), "docs/errors.md says so, too"
    assert [name for name in sorted(names) if re.search(rf'(raise |return |exception\(py, "){name}\b', text)] == []
