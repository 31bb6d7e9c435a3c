"""The width of comments: none is wider than 110 columns, in Rust and in Python.

    python tools/tidy_width.py [--fix] [root or file ...]

Whole lines of comments are looked at: `//`, `///` and `//!` in Rust, `#` in Python, and the lines of
docstrings. Rows of tables, blocks of code, headings, and lines that a long word such as an address makes wide
are excepted.

`--fix` wraps each paragraph anew that has a wide line, and leaves all others as they are. Items of lists
keep their indentation, and code between backticks stays on one line. Docstrings are only reported: what is
in them may be shown.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COLUMNS_MAX = 110
# Where code is narrower, comments are.
NARROWER = {"bench": 100}
FOLDERS = ("crates", "fuzz", "python", "tests", "bench", "examples", "tools")
SKIPPED = frozenset({"target", "__pycache__", "corpus", "artifacts", "scratch", "out", "node_modules"})

RUST_COMMENT = re.compile(r"(\s*)(//!|///(?!/)|//(?![/!]))( ?)(.*)")
PYTHON_COMMENT = re.compile(r"(\s*)(#)( ?)(.*)")
ITEM = re.compile(r"(\s*)([-*+]|\d+[.)])( +)(?=\S)")
# A word that would mean something else in markdown, or to a tool, at the beginning of a line.
NOT_FIRST = re.compile(r"[-*+>|#]+$|\d+[.)]$|[|>#=]|```|~~~|//")
# For tools, not for people.
DIRECTIVE = re.compile(
    r"!|:|-\*-|type:|noqa|ruff:|fmt:|pragma|mypy:|pyright:|pylint:|isort:|<editor-fold|region\b|endregion\b"
)


@dataclass
class Comment:
    """A line that is nothing but a comment."""

    number: int
    indent: str
    mark: str
    text: str

    @property
    def prefix(self) -> str:
        """What stands before the text of this line, and of those that it is wrapped into."""
        return f"{self.indent}{self.mark} "


def _rust_line_starts(text: str) -> Iterator[int]:
    """Numbers of the lines whose first token is a line comment: what only looks like one in a string is
    none.
    """
    at, number, is_fresh = 0, 1, True
    end = len(text)
    while at < end:
        char = text[at]
        if char == "\n":
            number, is_fresh, at = number + 1, True, at + 1
        elif char.isspace():
            at += 1
        elif text.startswith("//", at):
            if is_fresh:
                yield number
            at = _or_end(text.find("\n", at), end)
        elif text.startswith("/*", at):
            stop = _end_of_block(text, at)
            number, is_fresh, at = number + text.count("\n", at, stop), False, stop
        else:
            stop = _end_of_token(text, at)
            number, is_fresh, at = number + text.count("\n", at, stop), False, stop


def _or_end(found: int, end: int) -> int:
    return end if found < 0 else found


def _end_of_block(text: str, at: int) -> int:
    """Behind a block comment; they nest."""
    depth = 0
    for match in re.compile(r"/\*|\*/").finditer(text, at):
        depth += 1 if match[0] == "/*" else -1
        if depth == 0:
            return match.end()
    return len(text)


RAW_STRING = re.compile(r'(?:br|cr|r)(#*)"')
STRING = re.compile(r'[bc]?"(?:[^"\\]|\\.)*"', re.DOTALL)
CHARACTER = re.compile(r"b?'(?:\\(?:x..|u\{[^}]*\}|.)|[^\\'\n])'")
WORD = re.compile(r"\w+")


def _end_of_token(text: str, at: int) -> int:
    raw = RAW_STRING.match(text, at)
    if raw:
        closing = '"' + raw[1]
        return _or_end(text.find(closing, raw.end()), len(text) - len(closing)) + len(closing)
    match = STRING.match(text, at) or CHARACTER.match(text, at) or WORD.match(text, at)
    return match.end() if match else at + 1


def _rust_comments(text: str) -> list[Comment]:
    lines = text.split("\n")
    found = []
    for number in _rust_line_starts(text):
        match = RUST_COMMENT.fullmatch(lines[number - 1])
        if match and (match[3] or not match[4]):
            found.append(Comment(number, match[1], match[2], match[4]))
    return found


def _python_comments(text: str) -> list[Comment]:
    found = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        match = PYTHON_COMMENT.fullmatch(token.line.rstrip("\n")) if token.type == tokenize.COMMENT else None
        if match and (match[3] or not match[4]) and not DIRECTIVE.match(match[4]):
            found.append(Comment(token.start[0], match[1], match[2], match[4]))
    return found


def _runs(comments: list[Comment]) -> Iterator[list[Comment]]:
    """Comments of one kind on lines that follow one another."""
    run: list[Comment] = []
    for one in comments:
        if run and (one.number != run[-1].number + 1 or one.prefix != run[-1].prefix):
            yield run
            run = []
        run.append(one)
    if run:
        yield run


def _paragraphs(run: list[Comment]) -> Iterator[list[Comment]]:
    """The parts of a comment that may be wrapped: paragraphs and items of lists, each with its lines."""
    part: list[Comment] = []
    is_code = False
    inside = 0  # Spaces before the text of the part.
    for one in run:
        text = one.text
        spaces = len(text) - len(text.lstrip())
        is_fence = text.lstrip().startswith(("```", "~~~"))
        item = ITEM.match(text)
        is_verbatim = is_code or is_fence or not text.strip() or text.lstrip().startswith(("|", "#", "[`", ">"))
        # The start of a link is text; the definition of one is not.
        if not is_code and not is_fence and re.match(r"\s*\[`[^\]]*\](?!:)", text):
            is_verbatim = False
        # Four spaces more than the text before are code, and several spaces inside a line are a drawing.
        is_drawn = re.search(r"\S {3,}\S", text) is not None or (not item and spaces >= inside + 4)
        if is_fence:
            is_code = not is_code
        continues = part and not item and spaces == inside
        if is_verbatim or is_drawn:
            if part:
                yield part
            part, inside = [], inside if is_code else 0
            continue
        if part and not continues:
            yield part
            part = []
        if not part:
            inside = item.end() if item else spaces
        part.append(one)
    if part:
        yield part


def _words(text: str) -> list[str]:
    """Words; code between backticks, and what hangs on it, is one."""
    words: list[str] = []
    open_ticks = False
    for piece in text.split():
        if open_ticks or (words and NOT_FIRST.match(piece)):
            words[-1] += f" {piece}"
        else:
            words.append(piece)
        if piece.count("`") % 2:
            open_ticks = not open_ticks
    return words


def _wrap(part: list[Comment], columns: int) -> list[str]:
    """The lines of a paragraph, as wide as may be."""
    first = part[0].text
    item = ITEM.match(first)
    lead = item[0] if item else first[: len(first) - len(first.lstrip())]
    prefix = part[0].prefix
    text = " ".join([first[len(lead) :], *(one.text.strip() for one in part[1:])])
    lines = []
    now = prefix + lead
    is_empty = True
    for word in _words(text):
        if not is_empty and len(now) + 1 + len(word) > columns:
            lines.append(now)
            now, is_empty = prefix + " " * len(lead), True
        now += word if is_empty else f" {word}"
        is_empty = False
    return [*lines, now]


def _columns(root: Path, path: Path) -> int:
    parts = path.relative_to(root).parts if path.is_relative_to(root) else ()
    return NARROWER.get(parts[0] if parts else "", COLUMNS_MAX)


def wrapped(text: str, suffix: str, columns: int = COLUMNS_MAX) -> str:
    """A file's text, with every paragraph of a comment wrapped anew that has a line that is too wide."""
    comments = _rust_comments(text) if suffix == ".rs" else _python_comments(text)
    lines = text.split("\n")
    for run in reversed(list(_runs(comments))):
        for part in reversed(list(_paragraphs(run))):
            if any(len(lines[one.number - 1]) > columns for one in part):
                lines[part[0].number - 1 : part[-1].number] = _wrap(part, columns)
    return "\n".join(lines)


def _wide_docstrings(text: str, columns: int) -> Iterator[int]:
    """Numbers of the lines of docstrings that are too wide, but for code, tables and drawings."""
    lines = text.split("\n")
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if not node.body or ast.get_docstring(node, clean=False) is None:
            continue
        string = node.body[0]
        for number in range(string.lineno, (string.end_lineno or string.lineno) + 1):
            line = lines[number - 1]
            if len(line) > columns and not line.lstrip().startswith("|") and "://" not in line:
                yield number


def wide_lines(text: str, suffix: str, columns: int = COLUMNS_MAX) -> list[int]:
    """Numbers of the lines of comments that are too wide and that could be narrower."""
    comments = _rust_comments(text) if suffix == ".rs" else _python_comments(text)
    lines = text.split("\n")
    found = []
    for run in _runs(comments):
        for part in _paragraphs(run):
            narrow = _wrap(part, columns)
            if any(len(line) > columns for line in narrow):
                continue  # A word is too long.
            found += [one.number for one in part if len(lines[one.number - 1]) > columns]
    if suffix == ".py":
        found += _wide_docstrings(text, columns)
    return sorted(found)


def files(root: Path) -> Iterator[Path]:
    """Every file that the check looks at."""
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            parts = path.relative_to(root).parts
            if path.suffix in {".rs", ".py"} and not any(part in SKIPPED or part.startswith(".") for part in parts):
                yield path


def check_width(root: Path) -> list[str]:
    """No line of a comment is wider than 110 columns."""
    findings = []
    for path in files(root):
        columns = _columns(root, path)
        where = path.relative_to(root)
        try:
            numbers = wide_lines(path.read_text(encoding="utf-8"), path.suffix, columns)
        except SyntaxError:
            continue  # check_docstrings says so
        findings += [f"{where}:{number}: a comment of more than {columns} columns" for number in numbers]
    return findings


def main() -> int:
    """Prints what is too wide, or makes it narrower."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--fix", action="store_true", help="wrap the paragraphs that have a wide line")
    parser.add_argument("paths", nargs="*", type=Path, help="the root of a tree, or files of this one")
    asked = parser.parse_args()
    given = [path.resolve() for path in asked.paths]
    own = Path(__file__).parent.parent.resolve()
    root = given[0] if len(given) == 1 and given[0].is_dir() else own
    wanted = [path for path in given if path.is_file()] or list(files(root))
    count = 0
    for path in wanted:
        text = path.read_text(encoding="utf-8")
        columns = _columns(root, path)
        if asked.fix:
            narrower = wrapped(text, path.suffix, columns)
            if narrower != text:
                path.write_text(narrower, encoding="utf-8")
                text = narrower
                print(f"wrapped: {path.relative_to(root)}")
        for number in wide_lines(text, path.suffix, columns):
            print(f"{path.relative_to(root)}:{number}: a comment of more than {columns} columns")
            count += 1
    print(f"width: {count} lines are too wide" if count else "width: no line is too wide")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
