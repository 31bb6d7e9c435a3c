"""Checks the manners of the tree: arrows between rooms, sizes, headers, walls, pins, and names in prose.

    python tools/tidy.py [root]

Every check takes the root of a tree and returns findings, each one line that says where, what, and what to
do. An empty list is a tidy tree. `tests/test_tidy.py` runs the checks on this tree and on small trees with
one planted fault each.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import tidy_invariants
import tidy_python
import tidy_records
import tidy_rooms
import tidy_rust
import tidy_width

LINES_MAX = 1000

SOURCE_SUFFIXES = frozenset({".rs", ".py", ".pyi", ".md", ".toml", ".yml", ".sh", ".css"})
SKIPPED_DIRECTORIES = frozenset({"target", "site", "dist", "node_modules", "scratch", "__pycache__"})
# The brackets keep this line from being what it looks for.
UNFINISHED = re.compile(r"\b(?:t[o]do!|unimpl[e]mented!|F[I]XME\b|X[X]X\b|raise NotImpl[e]mentedError\b)")
MARKDOWN_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
NAMED_FILE = re.compile(r"`([\w./-]+(?:\.(?:rs|py|md|toml|sh|yml)|/))`")
MAKE_COMMAND = re.compile(r"(?:`|\$ )make ([a-z][a-z-]*)")


def sources(root: Path) -> Iterator[Path]:
    """Every file that people write and read, except what tools made and directories that begin with a dot."""
    for path in sorted(root.iterdir()):
        if path.is_dir():
            if path.name not in SKIPPED_DIRECTORIES and not path.name.startswith("."):
                yield from sources(path)
        elif path.suffix in SOURCE_SUFFIXES or path.name == "Makefile":
            yield path


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def check_sizes(root: Path) -> list[str]:
    """No file is too long to be read at one sitting."""
    findings = []
    for path in sources(root):
        count = len(_lines(path))
        if count > LINES_MAX:
            findings.append(f"{path.relative_to(root)}: {count} lines, at most {LINES_MAX}: split it by noun")
    return findings


def check_unfinished(root: Path) -> list[str]:
    """Nothing is left half done."""
    return [
        f"{path.relative_to(root)}:{number}: unfinished: {line.strip()[:80]}"
        for path in sources(root)
        if path.suffix in {".rs", ".py", ".pyi", ".sh"}
        for number, line in enumerate(_lines(path), start=1)
        if UNFINISHED.search(line)
    ]


def check_error_pages(root: Path) -> list[str]:
    """docs/errors.md and exceptions.py name the same classes, and each entry answers three questions."""
    module, page = root / "python/sooner/exceptions.py", root / "docs/errors.md"
    if not module.is_file() or not page.is_file():
        return [f"{path.relative_to(root)}: missing" for path in (module, page) if not path.is_file()]
    classes = tidy_python.public_classes(module)
    if not classes:
        return ["python/sooner/exceptions.py: no class can be read from it"]
    described = _error_entries(page.read_text(encoding="utf-8"))
    missing = [name for name in classes if name not in described]
    findings = [f"docs/errors.md: {name} of exceptions.py is not described" for name in missing]
    for name, entry in described.items():
        if name not in classes:
            findings.append(f"docs/errors.md: {name} is described, but exceptions.py has no such class")
        findings += [f'docs/errors.md: {name}: no answer to "{question}"' for question in entry]
    return findings


def _error_entries(page: str) -> dict[str, list[str]]:
    """Name of each described class -> the questions its entry leaves open. An entry is a heading or a
    table row.
    """
    questions = ("What happened", "May it have run?", "What to do")
    entries: dict[str, list[str]] = {}
    for name, body in re.findall(r"^### `(\w+)`\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL):
        answered = [re.search(rf"\*\*{re.escape(question)}\*\*:? \S", body) for question in questions]
        entries[name] = [question for question, answer in zip(questions, answered, strict=True) if not answer]
    for name, rest in re.findall(r"^\| `(\w+)` \|(.*)\|$", page, re.MULTILINE):
        cells = [cell.strip() for cell in rest.split("|")]
        cells += [""] * (len(questions) - len(cells))
        entries[name] = [question for question, cell in zip(questions, cells, strict=False) if not cell]
    return entries


def check_prose(root: Path) -> list[str]:
    """Links between files lead somewhere; a `make` command that a page names exists, and a file that the
    map names.
    """
    makefile = root / "Makefile"
    text = makefile.read_text(encoding="utf-8") if makefile.is_file() else ""
    commands = set(re.findall(r"^(?:COMMANDS :=|\.PHONY:) (.*)$", text, re.MULTILINE))
    known = {word for line in commands for word in line.split()}
    findings = []
    for path in sources(root):
        if path.suffix != ".md":
            continue
        for number, line in enumerate(_lines(path), start=1):
            where = f"{path.relative_to(root)}:{number}"
            for target in MARKDOWN_LINK.findall(line):
                file = target.split("#")[0]
                if file and "://" not in file and not file.startswith("mailto:") and not (path.parent / file).exists():
                    findings.append(f"{where}: the link to {file} leads nowhere")
            findings += [
                f"{where}: make {name}: the Makefile has no such command"
                for name in MAKE_COMMAND.findall(line)
                if name not in known
            ]
    return findings + _files_of_the_map(root)


def _files_of_the_map(root: Path) -> list[str]:
    """Files and folders in backticks in ARCHITECTURE.md are the ends of paths that exist."""
    page = root / "ARCHITECTURE.md"
    if not page.is_file():
        return []
    ends = {""}
    for path in sources(root):
        parts = path.relative_to(root).parts
        ends |= {"/".join(parts[first:]) for first in range(len(parts))}
        ends |= {
            "/".join(parts[first:last]) + "/" for first in range(len(parts)) for last in range(first + 1, len(parts))
        }
    return [
        f"ARCHITECTURE.md:{number}: {name}: there is no such file"
        for number, line in enumerate(_lines(page), start=1)
        for name in NAMED_FILE.findall(line)
        if name not in ends
    ]


def check_pins(root: Path) -> list[str]:
    """Every Python requirement names one exact version, the same in all files."""
    findings = []
    pinned: dict[str, tuple[str, str]] = {}
    for path in sorted((root / "requirements").glob("*.txt")):
        for number, line in enumerate(_lines(path), start=1):
            where = f"{path.relative_to(root)}:{number}"
            requirement = line.split("#")[0].strip()
            if not requirement:
                continue
            match = re.fullmatch(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.+!]+)", requirement)
            if match is None:
                findings.append(f"{where}: {requirement}: write name==version")
                continue
            name, version = re.sub(r"[-_.]+", "-", match[1]).lower(), match[2]
            other, file = pinned.setdefault(name, (version, path.name))
            if other != version:
                findings.append(f"{where}: {name} is {version} here and {other} in {file}")
    return findings


CHECKS: dict[str, Callable[[Path], list[str]]] = {
    "arrows between crates": tidy_rust.check_arrows,
    "headers of Rust modules": tidy_rust.check_headers,
    "walls of sooner-protocol": tidy_rust.check_walls,
    "long functions in Rust": tidy_rust.check_functions,
    "structs in many files": tidy_rust.check_spread,
    "the one poller": tidy_rust.check_poller,
    "rooms of sooner-protocol": tidy_rust.check_rooms,
    "docstrings of Python modules": tidy_python.check_docstrings,
    "imports of Python modules": tidy_python.check_imports,
    "long functions in Python": tidy_python.check_functions,
    "rooms of the Python package": tidy_rooms.check_rooms,
    "width of comments": tidy_width.check_width,
    "sizes of files": check_sizes,
    "nothing unfinished": check_unfinished,
    "pages of errors": check_error_pages,
    "invariants": tidy_invariants.check_invariants,
    "decision records": tidy_records.check_records,
    "names in prose": check_prose,
    "pins": check_pins,
}


def main() -> int:
    """Runs every check and prints what it found."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    count = 0
    for name, check in CHECKS.items():
        for finding in check(root):
            print(f"tidy: {name}: {finding}")
            count += 1
    print(f"tidy: {count} findings" if count else f"tidy: {len(CHECKS)} checks, no findings")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
