"""Checks the typing cases: mypy and pyright accept tests/typing/good.py and report every marked line of
    bad.py.

    python tools/typing_cases.py

A marked line ends with `# mypy: CODE; pyright: CODE`. Under each of these codes the checker must report
the line; of a line without a mark nothing may be reported. Both checkers run at the same time, without the
network. A checker that is not installed, or cannot start on this machine, is skipped with a line that says
why.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
GOOD, BAD = ROOT / "tests/typing/good.py", ROOT / "tests/typing/bad.py"
MARK = re.compile(r"# mypy: (?P<mypy>[\w, -]+); pyright: (?P<pyright>[\w, -]+)$")
SECONDS_MAX = 300


class Found(NamedTuple):
    """What a checker says of a line."""

    code: str
    message: str


Lines = dict[tuple[Path, int], list[Found]]


class Skipped(Exception):
    """A checker cannot run here."""


def marks(path: Path, checker: str) -> dict[int, set[str]]:
    """Line number -> the codes under which the checker must report it."""
    wanted = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if mark := MARK.search(line):
            wanted[number] = {code.strip() for code in mark[checker].split(",")} - {"-"}
        elif "# mypy:" in line or "pyright:" in line.partition("#")[2].replace("# pyright: ignore", ""):
            raise ValueError(f"{path.name}:{number}: write `# mypy: CODE; pyright: CODE` at the end of the line")
    return wanted


def compare(path: Path, checker: str, wanted: dict[int, set[str]], found: dict[int, list[Found]]) -> Iterator[str]:
    """What is reported and should not be, and the other way round."""
    for number in sorted({*wanted, *found}):
        where = f"{path.name}:{number}"
        codes = {each.code for each in found.get(number, [])}
        if number not in wanted:
            yield from (f"{where}: {checker} reports {each.code}: {each.message}" for each in found[number])
        elif missing := wanted[number] - codes:
            others = f", but {', '.join(sorted(codes))}" if codes else ""
            yield f"{where}: {checker} does not report {', '.join(sorted(missing))}{others}"


def start(*arguments: str) -> subprocess.Popen[str]:
    """A checker, as a module of this interpreter."""
    command = [sys.executable, "-m", *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def read_mypy(output: str) -> Iterator[tuple[Path, int, Found]]:
    """The errors in mypy's JSON, one object a line."""
    for line in output.splitlines():
        error = json.loads(line)
        if error["severity"] == "error":
            yield ROOT / error["file"], error["line"], Found(error["code"] or "syntax", error["message"])


def read_pyright(output: str) -> Iterator[tuple[Path, int, Found]]:
    """The errors in pyright's JSON."""
    for error in json.loads(output)["generalDiagnostics"]:
        if error["severity"] == "error":
            message = error["message"].splitlines()[0]
            yield Path(error["file"]), error["range"]["start"]["line"] + 1, Found(error.get("rule", "syntax"), message)


def result(
    checker: str, process: subprocess.Popen[str], read: Callable[[str], Iterator[tuple[Path, int, Found]]]
) -> Lines:
    """What a checker found.

    Raises:
        Skipped: It is not installed or did not start.
    """
    output, errors = process.communicate(timeout=SECONDS_MAX)
    if f"No module named {checker}" in errors:
        raise Skipped("not installed (requirements/lint.txt)")
    lines: Lines = defaultdict(list)
    try:
        for path, number, found in read(output):
            lines[path, number].append(found)
    except (ValueError, KeyError):
        said = (errors.strip() or output.strip() or f"exit code {process.returncode}").splitlines()[-1]
        raise Skipped(f"it does not run here: {said}") from None
    return lines


def main() -> int:
    """Runs both checkers and prints what is wrong; one line says how it went."""
    cases = [str(path.relative_to(ROOT)) for path in (GOOD, BAD)]
    checkers = {
        "mypy": (start("mypy", "--output", "json", *cases), read_mypy),
        "pyright": (start("pyright", "--outputjson", "--pythonpath", sys.executable, *cases), read_pyright),
    }
    findings: list[str] = []
    ran = []
    for checker, (process, read) in checkers.items():
        try:
            lines = result(checker, process, read)
        except Skipped as reason:
            print(f"==> typing cases with {checker}: SKIPPED, {reason}")
            continue
        ran.append(checker)
        for path in sorted({GOOD, BAD, *(path for path, _ in lines)}):
            found = {number: reports for (where, number), reports in lines.items() if where == path}
            findings += compare(path, checker, marks(path, checker) if path == BAD else {}, found)
    print(*findings, sep="\n", end="\n" if findings else "")
    count = len(marks(BAD, "mypy"))
    print(
        f"typing cases: {len(findings)} findings"
        if findings
        else f"typing cases: good.py accepted and {count} bad lines reported by {' and '.join(ran) or 'nobody'}"
    )
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
