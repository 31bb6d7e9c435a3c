"""The manners of the tree are tests.

Each check finds nothing here, and finds its fault in a tree where one is planted.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import tidy
import tidy_python
import tidy_rust

ROOT = Path(__file__).resolve().parent.parent

CLIPPY = "disallowed-methods = [{items}]\ndisallowed-types = []\n"


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def manifest(name: str, dependencies: str = "") -> str:
    return f'[package]\nname = "{name}"\n[dependencies]\n{dependencies}\n'


@pytest.mark.parametrize("name", tidy.CHECKS)
def test_this_tree_is_tidy(name: str) -> None:
    findings = tidy.CHECKS[name](ROOT)
    assert not findings, "\n" + "\n".join(findings)


# check, the files of a tree, a part of the finding that must be made
PLANTED: list[tuple[Callable[[Path], list[str]], dict[str, str], str]] = [
    (
        tidy_rust.check_arrows,
        {"crates/sooner-protocol/Cargo.toml": manifest("sooner-protocol", "sooner-store.workspace = true")},
        "sooner-protocol -> sooner-store",
    ),
    (
        tidy_rust.check_arrows,
        {"crates/sooner-wire/Cargo.toml": "[package]\nname = 'sooner-wire'\n[dev-dependencies]\nsooner-sim = '1'\n"},
        "[dev-dependencies] sooner-wire -> sooner-sim",
    ),
    (
        tidy_rust.check_arrows,
        {"crates/sooner-sim/Cargo.toml": manifest("sooner-sim", 'r = { package = "sooner-runtime", path = "x" }')},
        "sooner-sim -> sooner-runtime",
    ),
    (tidy_rust.check_arrows, {"crates/sooner-x/Cargo.toml": manifest("sooner-x")}, "sooner-x is not a room"),
    (
        tidy_rust.check_arrows,
        {"crates/sooner-runtime/Cargo.toml": manifest("sooner-runtime", 'pyo3 = "0.30"')},
        "only sooner-python may name it",
    ),
    (tidy_rust.check_headers, {"crates/a/src/lib.rs": "use std::io;\n//! Too late.\n"}, "a/src/lib.rs:1: no `//!`"),
    (tidy_rust.check_headers, {"crates/a/src/lib.rs": ""}, "a/src/lib.rs:1: no `//!`"),
    (tidy_rust.check_walls, {"README.md": ""}, "clippy.toml: missing"),
    (
        tidy_rust.check_walls,
        {"crates/sooner-protocol/clippy.toml": CLIPPY.format(items='"std::time::Instant::now"')},
        "std::env::var is not forbidden: the environment must stay out",
    ),
    (
        tidy_rust.check_walls,
        {
            "crates/sooner-protocol/clippy.toml": CLIPPY.format(items=""),
            "crates/sooner-protocol/Cargo.toml": manifest("sooner-protocol", 'rand = "0.9"'),
        },
        "rand: seeds come in as arguments",
    ),
    (tidy_python.check_docstrings, {"python/sooner/a.py": "x = 1\n"}, "sooner/a.py:1: no docstring"),
    (tidy_python.check_docstrings, {"tools/a.py": "x = = 1\n"}, "tools/a.py:1: not valid Python"),
    (
        tidy_python.check_imports,
        {"python/sooner/util/a.py": "from sooner import _sooner\n"},
        "sooner._sooner: only public",
    ),
    (tidy_python.check_imports, {"python/sooner/util/a.py": "import sooner.options\n"}, "sooner.options: only public"),
    (tidy_python.check_imports, {"python/sooner/util/a.py": "from ..actor import x\n"}, "sooner.actor.x: only public"),
    (
        tidy_python.check_imports,
        {"python/sooner/util/ray.py": "import sooner\nsooner._x()\n"},
        "sooner._x: only public",
    ),
    (tidy_python.check_imports, {"python/sooner/a.py": "def f():\n    import tests.b\n"}, "a.py:2: tests.b"),
    (tidy.check_sizes, {"docs/a.md": "x\n" * 1001}, "docs/a.md: 1001 lines"),
    (tidy.check_sizes, {f"crates/a/src/{n}.rs": "x\n" * 300 for n in range(10)}, "half of the code files"),
    (tidy.check_sizes, {f"crates/a/src/{n}.rs": "x\n" * (n // 8 * 600) for n in range(10)}, "a tenth of the code"),
    (tidy.check_unfinished, {"crates/a/src/lib.rs": f"fn f() {{ to{'do'}!() }}\n"}, "lib.rs:1: unfinished"),
    (tidy.check_unfinished, {"python/a.py": f"x = 1  # FIX{'ME'}: more\n"}, "a.py:1: unfinished"),
    (tidy.check_prose, {"README.md": "\n[a](docs/none.md)\n"}, "README.md:2: the link to docs/none.md"),
    (tidy.check_prose, {"README.md": "run `make tets`", "Makefile": "COMMANDS := test\n"}, "make tets"),
    (tidy.check_pins, {"requirements/a.txt": "numpy>=2\n"}, "a.txt:1: numpy>=2: write name==version"),
    (
        tidy.check_pins,
        {"requirements/a.txt": "My_Lib==1\n", "requirements/b.txt": "my-lib==2\n"},
        "my-lib is 2 here and 1 in a.txt",
    ),
    (tidy.check_error_pages, {"docs/errors.md": ""}, "python/sooner/exceptions.py: missing"),
]


@pytest.mark.parametrize(("check", "files", "finding"), PLANTED)
def test_a_planted_fault_is_found(
    check: Callable[[Path], list[str]], files: dict[str, str], finding: str, tmp_path: Path
) -> None:
    write(tmp_path, files)
    found = check(tmp_path)
    assert any(finding in line for line in found), found


@pytest.mark.parametrize(
    ("page", "finding"),
    [
        ("", "ClearError of exceptions.py is not described"),
        (
            "### `ClearError`\n\n- **What happened**: x\n- **What to do**: y\n",
            'ClearError: no answer to "May it have run?"',
        ),
        ("| `ClearError` | x | no | |\n", 'ClearError: no answer to "What to do"'),
        ("| `ClearError` | x | no | y |\n| `Ghost` | x | no | y |\n", "Ghost is described"),
        ("### `ClearError`\n\n- **What happened**: x\n- **May it have run?** No.\n- **What to do**: y\n", None),
        ("| `ClearError` | x | no | y |\n", None),
    ],
)
def test_errors_are_described(page: str, finding: str | None, tmp_path: Path) -> None:
    write(tmp_path, {"docs/errors.md": page, "python/sooner/exceptions.py": "class ClearError(Exception): ...\n"})
    found = tidy.check_error_pages(tmp_path)
    assert any(finding in line for line in found) if finding else found == []


def test_public_imports_pass(tmp_path: Path) -> None:
    text = "import sooner\nfrom sooner import get\nfrom sooner.exceptions import SoonerError\nfrom . import queue\n"
    write(tmp_path, {"python/sooner/util/a.py": text, "python/sooner/actor.py": "from sooner import _sooner\n"})
    assert tidy_python.check_imports(tmp_path) == []


def test_output_of_tools_is_not_read(tmp_path: Path) -> None:
    write(tmp_path, {"target/a.md": "x", ".venv/a.md": "x", "docs/a.md": "x", "docs/a.png": "x"})
    assert [path.relative_to(tmp_path).as_posix() for path in tidy.sources(tmp_path)] == ["docs/a.md"]
