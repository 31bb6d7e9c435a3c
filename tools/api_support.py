"""Writes docs/api-support.md: every row of the API, and the tests that prove it.

    python tools/api_support.py [--check]

The rows are in `tools/api_rows.toml`. A test names the rows it proves with `@pytest.mark.api("row", ...)`,
on a function or a class; the marks are read from the sources, no test runs. With `--check` nothing is
written: it fails, with one line each, when the page is not what would be written, or when a mark names a
row that does not exist.
"""

from __future__ import annotations

import ast
import contextlib
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
ROWS, TESTS, PAGE = Path("tools/api_rows.toml"), Path("tests"), Path("docs/api-support.md")
PRIORITIES = ("must", "should", "later", "own")
KEYS = frozenset({"id", "name", "means", "priority", "gap", "later"})

HEAD = """\
# API support

What sooner has of Ray's API, and what it adds (priority *own*). `tools/api_support.py` writes this page from the marks
of the tests, and a test fails when it is out of date.

- **tested**: the tests named in the row prove it.
- **in part**: they do, but for what the row says is missing.
- **missing**: there is no test, so it does not count.
- **later**: for a version to come. Tests that are named show that using it raises an error that says so.

*Must*: a program for Ray breaks without it. *Should*: many programs and libraries use it. *Later*: seldom used, or tied
to Ray's own services.
"""
TABLE = "| name | meaning | priority | status | tests |\n|---|---|---|---|---|"


class Row(NamedTuple):
    """One row of the table.

    Attributes:
        id: What marks name.
        name: How it is written in a program.
        means: What it does, in a sentence.
        priority: One of PRIORITIES.
        gap: What is missing, or empty.
        is_later: It belongs to a later version: its tests prove that it is refused by name.
    """

    id: str
    name: str
    means: str
    priority: str
    gap: str
    is_later: bool


class Section(NamedTuple):
    """Rows that belong together."""

    title: str
    rows: list[Row]


class Mark(NamedTuple):
    """A row that a test names, and where it does so."""

    row: str
    test: str
    line: int


class Wrong(Exception):
    """The rows or the marks cannot be used; the text says where and why."""


def read_rows(root: Path) -> list[Section]:
    """The sections of the table.

    Raises:
        Wrong: A row lacks something, or two have the same id.
    """
    sections = []
    seen: set[str] = set()
    for number, section in enumerate(tomllib.loads((root / ROWS).read_text(encoding="utf-8"))["section"], start=1):
        rows = [_row(fields, f"{ROWS}: section {number}") for fields in section["rows"]]
        for row in rows:
            if row.id in seen:
                raise Wrong(f"{ROWS}: two rows have the id {row.id!r}")
            seen.add(row.id)
        sections.append(Section(section["title"], rows))
    return sections


def _row(fields: dict[str, str], where: str) -> Row:
    where = f"{where}, row {fields.get('id')!r}"
    if unknown := sorted(set(fields) - KEYS):
        raise Wrong(f"{where}: {unknown[0]!r} is none of {', '.join(sorted(KEYS))}")
    for key in ("id", "name", "means", "priority"):
        if not fields.get(key):
            raise Wrong(f"{where}: {key!r} is missing")
    if fields["priority"] not in PRIORITIES:
        raise Wrong(f"{where}: priority is one of {', '.join(PRIORITIES)}")
    gap, later = fields.get("gap", ""), fields.get("later", "")
    if gap and later:
        raise Wrong(f"{where}: it has a gap, or belongs to a later version; not both")
    return Row(fields["id"], fields["name"], fields["means"], fields["priority"], gap or later, bool(later))


def read_marks(root: Path) -> list[Mark]:
    """Every mark in the test files, in their order.

    Raises:
        Wrong: A mark's arguments are not names of rows.
    """
    marks: list[Mark] = []
    for path in sorted((root / TESTS).glob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        marks += _marks(tree, path.name, path.name)
    return marks


def _marks(parent: ast.Module | ast.ClassDef, prefix: str, file: str) -> Iterator[Mark]:
    for node in parent.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        test = f"{prefix}::{node.name}"
        decorators = [(each, ast.unparse(getattr(each, "func", each))) for each in node.decorator_list]
        proves_nothing = [name for _, name in decorators if name in ("pytest.mark.skip", "pytest.mark.xfail")]
        for decorator, name in decorators:
            if name != "pytest.mark.api" or not isinstance(decorator, ast.Call):
                continue
            if proves_nothing:
                raise Wrong(f"{TESTS}/{file}:{decorator.lineno}: a test with {proves_nothing[0]} proves no row")
            for argument in decorator.args:
                if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                    raise Wrong(f"{TESTS}/{file}:{decorator.lineno}: write the ids of rows as strings")
                yield Mark(argument.value, test, decorator.lineno)
        if isinstance(node, ast.ClassDef):
            yield from _marks(node, test, file)


def unknown_rows(sections: list[Section], marks: list[Mark]) -> list[str]:
    """A line for each mark of a row that does not exist."""
    known = {row.id for section in sections for row in section.rows}
    return [
        f"{TESTS}/{mark.test.split('::')[0]}:{mark.line}: {ROWS} has no row {mark.row!r}"
        for mark in marks
        if mark.row not in known
    ]


def _tests_by_row(marks: list[Mark]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for mark in marks:
        tests = found.setdefault(mark.row, [])
        if mark.test not in tests:
            tests.append(mark.test)
    return found


def _kind(row: Row, tests: list[str]) -> str:
    if row.is_later:
        return "later"
    if not tests:
        return "missing"
    return "in part" if row.gap else "tested"


def page(sections: list[Section], marks: list[Mark]) -> str:
    """The page as text."""
    tests = _tests_by_row(marks)
    counts = Counter((row.priority, _kind(row, tests.get(row.id, []))) for section in sections for row in section.rows)
    kinds = ("tested", "in part", "missing", "later")
    lines = [HEAD, f"| priority | {' | '.join(kinds)} |", f"|---|{'---|' * len(kinds)}"]
    lines += [
        f"| {priority} | {' | '.join(str(counts[priority, kind]) for kind in kinds)} |" for priority in PRIORITIES
    ]
    for section in sections:
        lines += ["", f"## {section.title}", "", TABLE]
        lines += [_line(row, tests.get(row.id, [])) for row in section.rows]
    return "\n".join(lines) + "\n"


def _line(row: Row, tests: list[str]) -> str:
    kind = _kind(row, tests)
    status = f"{kind}: {row.gap}" if row.gap else kind
    cells = (row.name, row.means, row.priority, status, "<br>".join(f"`{test}`" for test in tests))
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def findings(root: Path) -> list[str]:
    """What is wrong with the rows, the marks or the page, a line each."""
    try:
        sections, marks = read_rows(root), read_marks(root)
    except Wrong as error:
        return [str(error)]
    found = unknown_rows(sections, marks)
    path = root / PAGE
    if not found and (not path.is_file() or path.read_text(encoding="utf-8") != page(sections, marks)):
        found.append(f"{PAGE} is not up to date: run python tools/api_support.py")
    return found


def _write(root: Path) -> None:
    sections, marks = read_rows(root), read_marks(root)
    if not unknown_rows(sections, marks):
        (root / PAGE).write_text(page(sections, marks), encoding="utf-8")


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Writes the page, or checks it."""
    if arguments not in ([], ["--check"]):
        print(f"api_support: --check is the only argument, not {' '.join(arguments)}", file=sys.stderr)
        return 2
    if not arguments:
        # What cannot be written is among the findings.
        with contextlib.suppress(Wrong):
            _write(root)
    found = findings(root)
    for finding in found:
        print(f"api_support: {finding}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
