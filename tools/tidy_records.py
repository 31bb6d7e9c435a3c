"""The tidy check of decision records: each has a status and the usual sections, and the index lists all.

    python tools/tidy_records.py [root]      writes docs/adr/index.md anew

A record is `docs/adr/NNNN-words.md`. Its first line is `# NNNN: title`, the third its status.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

FOLDER = "docs/adr"
INDEX = "index.md"
TITLE = re.compile(r"# (\d{4}): (\S.*)")
STATUS = re.compile(r"Status: (Accepted|(?:Replaced|Amended) by (.+))")
OTHER = re.compile(r"\[(\d{4})\]\((\d{4})-[\w-]+\.md\)|(\d{4})")
SECTIONS = (
    "Context",
    "Decision",
    "Consequences",
    "What else was considered",
    "How it was measured",
    "How it is tested",
)
REQUIRED = ("Context", "Decision")
INTRODUCTION = """\
# Decisions

One record for each decision that is not obvious from the code: why it is so, what follows from it, what else was
considered. `python tools/tidy_records.py` writes this list from the records, and `tools/tidy.py` checks that it is up
to date. A record that another one amends still holds in all else; one that is replaced is kept for its reasons.

| number | decision | status |
|---|---|---|
"""


def _records(root: Path) -> list[Path]:
    return sorted(path for path in (root / FOLDER).glob("*.md") if path.name != INDEX)


def render(root: Path) -> str:
    """The index as it should be."""
    text = INTRODUCTION
    for path in _records(root):
        lines = path.read_text(encoding="utf-8").splitlines()
        title = TITLE.fullmatch(lines[0]) if lines else None
        status = STATUS.fullmatch(lines[2]) if len(lines) > 2 else None
        if title and status:
            text += f"| [{title[1]}]({path.name}) | {title[2]} | {status[1]} |\n"
    return text


def check_records(root: Path) -> list[str]:
    """Each decision record has a number, a status and the usual sections; the index lists all."""
    findings = []
    records = _records(root)
    numbers: dict[str, Path] = {}
    for path in records:
        if path.name[:4] in numbers:
            findings.append(f"{path.relative_to(root)}: {numbers[path.name[:4]].name} has this number, too")
        numbers.setdefault(path.name[:4], path)
    for path in records:
        where = path.relative_to(root)
        lines = path.read_text(encoding="utf-8").splitlines()
        title = TITLE.fullmatch(lines[0]) if lines else None
        if title is None or title[1] != path.name[:4]:
            findings.append(f"{where}:1: the title is not `# {path.name[:4]}: ...`")
        status = STATUS.fullmatch(lines[2]) if len(lines) > 2 else None
        if status is None:
            findings.append(
                f"{where}:3: no `Status: Accepted`, `Status: Replaced by NNNN` or `Status: Amended by NNNN`"
            )
        elif status[2]:
            findings += [f"{where}:3: {wrong}" for wrong in _wrong_others(status[2], path.name[:4], numbers)]
        sections = [line.removeprefix("## ") for line in lines if line.startswith("## ")]
        findings += [f"{where}: no section {name}" for name in REQUIRED if name not in sections]
        findings += [
            f"{where}: the section {name} is none of {', '.join(SECTIONS)}" for name in sections if name not in SECTIONS
        ]
    index = root / FOLDER / INDEX
    if not findings and records and (not index.is_file() or index.read_text(encoding="utf-8") != render(root)):
        findings.append(f"{FOLDER}/{INDEX}: not what the records say: run python tools/tidy_records.py")
    return findings


def _wrong_others(text: str, own: str, numbers: dict[str, Path]) -> list[str]:
    """What is wrong with the records that a status names."""
    wrong = []
    for part in text.split(", "):
        match = OTHER.fullmatch(part)
        if match is None:
            wrong.append(f"{part} is no number of a record")
            continue
        number = match[1] or match[3]
        if number not in numbers or number == own or (match[2] or number) != number:
            wrong.append(f"{part}: there is no other record of this number")
    return wrong


if __name__ == "__main__":
    ROOT = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    (ROOT / FOLDER / INDEX).write_text(render(ROOT), encoding="utf-8")
