"""Runs every Python block of README.md and docs/: what the pages show is what happens.

The blocks of one page share a namespace and run in one process. The script that runs has the blocks at the
line numbers they have on the page, so that a traceback points there.
"""

import builtins
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sooner

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


# --- names, options and arguments on the
# pages ------------------------------------------------------------------------

# The table lists what is not there, too; decisions and journals tell of what was.
TEXTS = {
    page.name: page.read_text() for page in PAGES if page.parent != ROOT / "docs/adr" and page.name != "api-support.md"
}


def is_there(name: str) -> bool:
    """Whether something can be reached from the package: an attribute, or a module that is imported by its
    name.
    """
    found: object = sooner
    for part in name.split("."):
        if not hasattr(found, part):
            try:
                importlib.import_module(f"{getattr(found, '__name__', '')}.{part}")
            except ImportError:
                return False
        found = getattr(found, part)
    return True


@pytest.mark.parametrize("page", TEXTS)
def test_names_on_a_page_are_there(page: str) -> None:
    names = {name.rstrip(".") for name in re.findall(r"\bsooner\.([a-zA-Z_][\w.]*)", TEXTS[page])}
    assert sorted(name for name in names if not is_there(name)) == []
    errors = set(re.findall(r"`(\w+Error)`", TEXTS[page])) - set(dir(builtins))
    known = {*sooner.exceptions.__all__, *sooner.util.collective.__all__, "CancelledError", "MaybeEncodingError"}
    assert sorted(errors - known) == []


@pytest.mark.parametrize("page", TEXTS)
def test_arguments_of_init_on_a_page_are_there(page: str) -> None:
    text = re.sub(r"^## What is not there.*?(?=^## |\Z)", "", TEXTS[page], flags=re.DOTALL | re.MULTILINE)
    calls = re.findall(r"(?<![\w.])(?:sooner\.)?init\(([^()]*)\)", text)
    given = {name for call in calls for name in re.findall(r"(\w+)=", call)}
    assert sorted(given - set(inspect.signature(sooner.init).parameters)) == []


def test_options_of_the_command_are_on_the_pages() -> None:
    """Each of them, and no others."""
    everything = "".join(TEXTS.values())
    commands = sorted(set(re.findall(r"^    ([a-z-]+)", help_of(), re.MULTILINE)))
    assert {"start", "stop", "status", "logs"} <= set(commands)
    options = {command: set(re.findall(r"--[a-z][a-z-]+", help_of(command))) - {"--help"} for command in commands}
    rows = set(re.findall(r"^\| `(--[a-z-]+)", TEXTS["cluster.md"], re.MULTILINE))
    assert sorted(rows - options["start"]) == []
    short = {"--output", "--follow"}
    missing = {option for given in options.values() for option in given - short if option not in everything}
    assert sorted(missing) == []
    shown = {
        (command, option)
        for command, rest in re.findall(r"\bsooner ([a-z-]+)((?: [^`|\n]*)?)", everything)
        for option in re.findall(r"(?<!\w)--[a-z][a-z-]+", rest)
        if command in options
    }
    assert len(shown) > 10
    assert sorted((command, option) for command, option in shown if option not in options[command]) == []


def help_of(*command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "sooner", *command, "--help"], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


def test_what_is_not_there_is_noticed() -> None:
    assert is_there("util.queue.Queue")
    assert not is_there("util.queues.Queue")
    assert not is_there("putt")
