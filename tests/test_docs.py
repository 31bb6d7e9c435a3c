"""Runs every Python block of README.md and docs/: what the pages show is what happens.

The blocks of one page share a namespace and run in one process. The script that runs has the blocks at the line
numbers they have on the page, so that a traceback points there.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SECONDS_MAX = 120

FENCE = re.compile(r"^(?P<indent> *)(?P<fence>```+) *(?P<language>\S*)")


def script_of(page: str) -> str:
    """The Python blocks of a page, each line at its own line number, everything else blank."""
    lines: list[str] = []
    closing: re.Pattern[str] | None = None
    indent, python = 0, False
    for line in page.splitlines():
        if closing is None:
            lines.append("")
            if opened := FENCE.match(line):
                closing = re.compile(rf" *{opened['fence']}`* *$")
                indent, python = len(opened["indent"]), opened["language"] == "python"
        elif closing.match(line):
            lines.append("")
            closing = None
        else:
            lines.append(line[indent:] if python else "")
    assert closing is None, "a code block is never closed"
    return "\n".join(lines) + "\n"


def pages_with_code() -> list[str]:
    return [str(page.relative_to(ROOT)) for page in PAGES if script_of(page.read_text()).strip()]


@pytest.mark.parametrize("page", pages_with_code())
@pytest.mark.timeout(SECONDS_MAX + 30)
def test_blocks_of_page_run(page: str, tmp_path: Path) -> None:
    script = tmp_path / page.replace("/", "_").replace(".md", ".py")
    script.write_text(script_of((ROOT / page).read_text()))
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-W", "error::SyntaxWarning", str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, f"{page} (line numbers are those of the page):\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", ["README.md", "docs/getting-started.md", "docs/tasks.md", "docs/errors.md"])
def test_pages_a_newcomer_reads_have_code(page: str) -> None:
    assert page in pages_with_code()


def test_blocks_keep_their_line_numbers() -> None:
    page = "text\n\n```python\nx = 1\n```\n```text\nnot code\n```\n- item\n\n  ```python\n  y = x\n  ```\n"
    assert script_of(page).splitlines() == ["", "", "", "x = 1", *[""] * 7, "y = x", ""]


def test_an_open_block_is_noticed() -> None:
    with pytest.raises(AssertionError, match="never closed"):
        script_of("```python\nx = 1\n")
