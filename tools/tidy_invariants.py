"""The tidy check of invariants: each name stands for one sentence, the page lists all, and what checks each
    exists.

    python tools/tidy_invariants.py [root]      writes docs/invariants.md anew

Names and sentences are read from the headers of Rust modules: from `//! - AB1: sentence`, from a row `//!
| AB1 | sentence |`, and from `Invariant AB1: sentence`. The column "checked by" is written by hand on the
page and is kept; it names functions, as `Type::function` (the file with it must name the invariant) or by
a name of their own (a test).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PAGE = "docs/invariants.md"
NAME = r"[A-Z]{1,2}\d{1,2}"
BULLET = re.compile(rf"- ({NAME}): (.*)")
ROW = re.compile(rf"\| ({NAME}) \| ([^|]*) \|")
SENTENCE = re.compile(rf"\bInvariant ({NAME}): (.*?\.)(?= [A-Z]|$)")
# What a violation is called by.
USED = re.compile(rf'(?:fail\(\s*"({NAME})"|"({NAME}): )')
PAGE_ROW = re.compile(rf"\| ({NAME}) \| (.*) \| `([^`]*)` \| (.*) \|")
INTRODUCTION = """\
# Invariants

What must hold, by name. `python tools/tidy_invariants.py` writes this page from the headers of the modules; only the
column "checked by" is written here, and `tools/tidy.py` checks that every name is unique and listed, and that its
check or test exists. `Type::function` is a check that runs in production, in the simulator after steps, or in tests
that try orders of events at random; other names are tests, or functions of the simulator. Names of one letter (I, K,
O, W, E, N, L, A, B, F, H, M, Q) came first and are used across modules; two letters say the module.
"""


@dataclass(frozen=True)
class Invariant:
    """One sentence that must hold, and where it stands."""

    name: str
    sentence: str
    path: str


def _files(root: Path) -> Iterator[Path]:
    for path in sorted((root / "crates").rglob("*.rs")):
        if "target" not in path.relative_to(root).parts:
            yield path


def _paragraphs(lines: list[str]) -> Iterator[str]:
    """The paragraphs and list items of a module's header, each in one line."""
    now = ""
    for line in lines:
        if not line.startswith("//!"):
            break
        text = line[3:].removeprefix(" ")
        begins = not text.strip() or text.startswith(("- ", "|"))
        if begins and now:
            yield now
            now = ""
        now = f"{now} {text.strip()}".strip()
    if now:
        yield now


def _plain(sentence: str) -> str:
    """A sentence of Rust documentation, as the pages write it: without links to items."""
    return re.sub(r"\[(`[^`]*`)\](?:\([^)]*\))?", r"\1", sentence).replace("|", "\\|").strip()


def stated(root: Path) -> list[Invariant]:
    """Every invariant that a header states, in the order of the files."""
    found = []
    for path in _files(root):
        where = path.relative_to(root).as_posix()
        for paragraph in _paragraphs(path.read_text(encoding="utf-8").splitlines()):
            match = BULLET.match(paragraph) or ROW.match(paragraph) or SENTENCE.search(paragraph)
            if match:
                found.append(Invariant(match[1], _plain(match[2]), where))
    return found


def _order(name: str) -> tuple[str, int]:
    letters = name.rstrip("0123456789")
    return letters, int(name[len(letters) :])


def _rows(page: Path) -> dict[str, list[str]]:
    """Name -> [sentence, file, what checks it] of each row of the page."""
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    return {
        match[1]: [match[2], match[3], match[4].strip()]
        for match in map(PAGE_ROW.fullmatch, text.splitlines())
        if match
    }


def render(root: Path) -> str:
    """The page as it should be, with what it says of checks now."""
    rows = _rows(root / PAGE)
    crates: dict[str, list[Invariant]] = {}
    for one in stated(root):
        crates.setdefault(one.path.split("/")[1], []).append(one)
    text = INTRODUCTION
    for crate, all_of_it in crates.items():
        text += f"\n## {crate}\n\n| name | what holds | stated in | checked by |\n|---|---|---|---|\n"
        for one in sorted(all_of_it, key=lambda one: _order(one.name)):
            checks = rows.get(one.name, ["", "", "?"])[2]
            place = one.path.removeprefix(f"crates/{crate}/")
            text += f"| {one.name} | {one.sentence} | `{place}` | {checks} |\n"
    return text


def check_invariants(root: Path) -> list[str]:
    """Names of invariants are unique and listed, and each is in a check or a test that exists."""
    findings = []
    first: dict[str, Invariant] = {}
    for one in stated(root):
        if one.name in first:
            findings.append(
                f"{one.path}: {one.name} stands in {first[one.name].path} already: give it a name of its own"
            )
        first.setdefault(one.name, one)
    rows = _rows(root / PAGE)
    texts = {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in _files(root)}
    for path, text in texts.items():
        for match in USED.finditer(text):
            name = match[1] or match[2]
            if name not in first:
                findings.append(f"{path}: {name} is checked here and stated nowhere")
    python = "\n".join(path.read_text(encoding="utf-8") for path in sorted((root / "tests").rglob("*.py")))
    functions = set(re.findall(r"\bfn (\w+)", "\n".join(texts.values()))) | set(re.findall(r"\bdef (\w+)", python))
    for name, (_, _, checks) in rows.items():
        named = re.findall(r"`([^`]+)`", checks)
        if not named:
            findings.append(f"{PAGE}: {name} is in no check and no test")
        for check in named:
            if "::" in check:
                if not any(_has_check(text, check, name) for text in texts.values()):
                    findings.append(f"{PAGE}: {name}: no file has {check} and names {name} there")
            elif check not in functions:
                findings.append(f"{PAGE}: {name}: there is no function {check}")
    page = root / PAGE
    if (
        not findings
        and (first or page.is_file())
        and (not page.is_file() or page.read_text(encoding="utf-8") != render(root))
    ):
        findings.append(f"{PAGE}: not what the headers say: run python tools/tidy_invariants.py")
    return findings


def _has_check(text: str, check: str, name: str) -> bool:
    owner, _, function = check.partition("::")
    code = "\n".join(line for line in text.splitlines() if not line.startswith("//!"))
    return (
        re.search(rf"\bimpl\b[^{{;]*\b{owner}\b", code) is not None
        and re.search(rf"\bfn {function}\b", code) is not None
        and re.search(rf"\b{name}\b", code) is not None
    )


if __name__ == "__main__":
    ROOT = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    (ROOT / PAGE).write_text(render(ROOT), encoding="utf-8")
