"""Comments that are too wide are found, and wrapped so that nothing but their lines changes."""

from pathlib import Path

import pytest
import tidy_width

WIDE = "word " * 30 + "end"
LONG = "https://example.org/" + "x" * 120


def rust(text: str) -> str:
    return tidy_width.wrapped(text, ".rs")


def wide(text: str, suffix: str = ".rs") -> list[int]:
    return tidy_width.wide_lines(text, suffix)


@pytest.mark.parametrize("mark", ["//", "///", "//!", "    ///"])
def test_a_wide_paragraph_is_wrapped(mark: str) -> None:
    text = f"{mark} {WIDE}\n{mark} and more.\n{mark}\n{mark} Another one\n{mark} stays.\n"
    assert wide(text) == [1]
    lines = rust(text).splitlines()
    assert all(len(line) <= 110 and line.startswith(mark) for line in lines)
    words = [word for line in lines[:-3] for word in line.removeprefix(mark).split()]
    assert words == [*WIDE.split(), "and", "more."]
    assert lines[-3:] == [mark, f"{mark} Another one", f"{mark} stays."]
    assert wide(rust(text)) == []
    assert rust(rust(text)) == rust(text)


def test_items_keep_their_indentation() -> None:
    lines = rust(f"/// - a: {WIDE}\n///   more.\n/// - b\n/// 1. {WIDE}\n").splitlines()
    assert lines[0].startswith("/// - a: word")
    assert lines[1].startswith("///   word")
    assert lines[-3] == "/// - b"
    assert lines[-2].startswith("/// 1. word")
    assert lines[-1].startswith("///    word")


@pytest.mark.parametrize(
    "text",
    [
        f"/// | a | {WIDE} |\n",
        f"/// ```\n/// {WIDE}\n/// ```\n",
        f"///\n///     {WIDE}\n",
        f"/// # {WIDE}\n",
        f"/// {LONG}\n",
        f'fn f() {{\n    let text = "\n// {WIDE}\n";\n}}\n',
        f'fn f() {{\n    let text = r#"a " b\n// {WIDE}\n"#;\n}}\n',
        f"/* a\n// {WIDE}\n*/\n",
        f"/////////// {WIDE}\n",
    ],
)
def test_what_is_no_prose_stays(text: str) -> None:
    assert wide(text) == []
    assert rust(text) == text


def test_strings_and_lifetimes_end_where_they_end() -> None:
    code = "fn f<'a>(c: char) -> bool { c == '\"' || c == '\\'' || b\"\\\"\"[0] == b'\"' }\n"
    assert wide(f"{code}// {WIDE}\n") == [2]


def test_code_between_backticks_stays_on_a_line() -> None:
    lines = rust(f"// {'word ' * 20}`let x = some.call(with, arguments)` and so on\n").splitlines()
    assert lines[1] == "// `let x = some.call(with, arguments)` and so on"


def test_no_line_begins_with_what_means_something_else() -> None:
    for sign in ("-", "+", "1.", "#", ">", "|"):
        for words in range(18, 24):
            lines = rust(f"/// {'word ' * words}{sign} {'word ' * 9}\n").splitlines()
            assert all(line.startswith("/// word") for line in lines), lines


def test_comments_of_python_are_wrapped_and_docstrings_reported() -> None:
    text = f'"""Head.\n\n{WIDE}\n"""\n\nx = """\n# {WIDE}\n"""\n    # {WIDE}\n# noqa: {WIDE}\n#!{WIDE}\n'.replace(
        "    # ", "# "
    )
    assert wide(text, ".py") == [3, 9]
    narrower = tidy_width.wrapped(text, ".py")
    assert wide(narrower, ".py") == [3]
    assert narrower.splitlines()[:8] == text.splitlines()[:8]


def test_a_tree_is_looked_through(tmp_path: Path) -> None:
    for name in ("crates/a/src/lib.rs", "bench/rows/b.py", "target/c.rs", "crates/a/target/d.rs"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(("// " if path.suffix == ".rs" else "# ") + "w" * 50 + " " + "w" * 50 + "\n")
    # Code of the benchmark is narrower.
    assert tidy_width.check_width(tmp_path) == ["bench/rows/b.py:1: a comment of more than 100 columns"]
    (tmp_path / "crates/a/src/lib.rs").write_text(f"// {WIDE}\n")
    assert tidy_width.check_width(tmp_path)[0] == "crates/a/src/lib.rs:1: a comment of more than 110 columns"
