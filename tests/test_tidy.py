"""The checks of the tree's manners find their faults where these are planted. `make lint` runs them here."""

from collections.abc import Callable
from pathlib import Path

import pytest
import tidy
import tidy_invariants
import tidy_python
import tidy_records
import tidy_rust

CLIPPY = "disallowed-methods = [{items}]\ndisallowed-types = []\n"


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def manifest(name: str, dependencies: str = "") -> str:
    return f'[package]\nname = "{name}"\n[dependencies]\n{dependencies}\n'


def long_rust(head: str, lines: int, indent: str = "") -> str:
    return f"{head} long() {{\n" + "let x = 1;\n" * (lines - 2) + f"{indent}}}\n"


def spread(crate: str, struct: str, files: int) -> dict[str, str]:
    """A struct with an `impl` in its own file and in others."""
    own = {f"crates/{crate}/src/lib.rs": f"pub struct {struct} {{}}\n\nimpl {struct} {{\n}}\n"}
    return own | {f"crates/{crate}/src/a{n}.rs": f"impl {struct} {{\n}}\n" for n in range(files - 1)}


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
    (
        tidy_rust.check_functions,
        {"crates/a/src/lib.rs": long_rust("    pub(super) fn", 71, "    ")},
        "a/src/lib.rs:1: long has 71 lines",
    ),
    (tidy_rust.check_spread, spread("sooner-sim", "Wide", 4), "sooner-sim::Wide: `impl` in 4 files, at most 3"),
    (tidy_rust.check_spread, spread("sooner-protocol", "Pulls", 6), "Pulls: `impl` in 6 files, at most 5"),
    (tidy_rust.check_spread, spread("sooner-protocol", "Pulls", 4), "Pulls is said to be 5, and is 4"),
    (
        tidy_rust.check_poller,
        {"crates/sooner-runtime/src/node/service.rs": "//! A loop.\nuse rustix::event::{epoll, eventfd};\n"},
        "node/service.rs:2: epoll: only crates/sooner-runtime/src/poller.rs may name it",
    ),
    (
        tidy_rust.check_rooms,
        {"crates/sooner-protocol/src/control/core.rs": "use crate::node::NodeCore;\n"},
        "control/core.rs:1: control -> node",
    ),
    (
        tidy_rust.check_rooms,
        {"crates/sooner-protocol/src/table.rs": "fn f() {\n    crate::worker::f();\n}\n"},
        "table.rs:2: table -> worker",
    ),
    (
        tidy_rust.check_rooms,
        {"crates/sooner-protocol/src/node/core.rs": "use crate::{control, table};\n"},
        "core.rs:1: crate::{...}",
    ),
    (tidy_rust.check_rooms, {"crates/sooner-protocol/src/attic.rs": ""}, "attic is not a room"),
    (
        tidy_python.check_functions,
        {"python/sooner/a.py": "def long() -> None:\n" + "    pass\n" * 70},
        "a.py:1: python/sooner/a.py::long has 71 lines",
    ),
    (
        tidy_python.check_functions,
        {"python/sooner/a.py": 'def long() -> None:\n    """Two\n    lines."""\n' + "    pass\n" * 70},
        "a.py:1: python/sooner/a.py::long has 71 lines",
    ),
    (
        tidy_python.check_functions,
        {"python/sooner/options.py": "def _rows() -> None:\n" + "    pass\n" * 99},
        f"options.py::_rows is said to be {tidy_python.LONG['python/sooner/options.py::_rows']}, and is 100",
    ),
    (tidy_python.check_functions, {"python/sooner/options.py": ""}, "options.py::_rows is said to be"),
    (tidy_python.check_docstrings, {"python/sooner/a.py": "x = 1\n"}, "sooner/a.py:1: no docstring"),
    (tidy_python.check_docstrings, {"tools/a.py": "x = = 1\n"}, "tools/a.py:1: not valid Python"),
    (
        tidy_python.check_imports,
        {"python/sooner/util/a.py": "from sooner import _sooner\n"},
        "sooner._sooner: only public",
    ),
    (tidy_python.check_imports, {"python/sooner/util/a.py": "import sooner.options\n"}, "sooner.options: only public"),
    (
        tidy_python.check_imports,
        {"python/sooner/util/a.py": "from ..options import x\n"},
        "sooner.options.x: only public",
    ),
    (
        tidy_python.check_imports,
        {"python/sooner/util/ray.py": "import sooner\nsooner._x()\n"},
        "sooner._x: only public",
    ),
    (tidy_python.check_imports, {"python/sooner/a.py": "def f():\n    import tests.b\n"}, "a.py:2: tests.b"),
    (tidy.check_sizes, {"docs/a.md": "x\n" * 1001}, "docs/a.md: 1001 lines"),
    (tidy.check_unfinished, {"crates/a/src/lib.rs": f"fn f() {{ to{'do'}!() }}\n"}, "lib.rs:1: unfinished"),
    (tidy.check_unfinished, {"python/a.py": f"x = 1  # FIX{'ME'}: more\n"}, "a.py:1: unfinished"),
    (tidy.check_prose, {"README.md": "\n[a](docs/none.md)\n"}, "README.md:2: the link to docs/none.md"),
    (tidy.check_prose, {"README.md": "run `make tets`", "Makefile": "COMMANDS := test\n"}, "make tets"),
    (
        tidy.check_prose,
        {"ARCHITECTURE.md": "\n`a.rs` and `src/b.rs`\n", "x/src/a.rs": "", "x/b.rs": ""},
        "ARCHITECTURE.md:2: src/b.rs: there is no such file",
    ),
    (
        tidy.check_prose,
        {"ARCHITECTURE.md": "`src/`, `src/a/`\n", "x/src/a.rs": ""},
        "ARCHITECTURE.md:1: src/a/: there is no such file",
    ),
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


# Invariants.

MODULE = "//! A machine.\n//!\n//! Invariants:\n//! - AB1: it holds,\n//!   always.\n//! - AB2: so does this.\n"
CHECK = 'impl Machine {\n    fn check(&self) {\n        assert!(self.holds, "AB1: it does not");\n    }\n}\n'
TEST = "#[test]\nfn this_holds() {}\n"


def page(first: str, second: str, place: str = "src/lib.rs") -> str:
    return (
        tidy_invariants.INTRODUCTION
        + "\n## a\n\n| name | what holds | stated in | checked by |\n|---|---|---|---|\n"
        + f"| AB1 | it holds, always. | `{place}` | {first} |\n| AB2 | so does this. | `src/lib.rs` | {second} |\n"
    )


@pytest.mark.parametrize(
    ("files", "finding"),
    [
        ({}, None),
        (
            {"crates/a/src/b.rs": "//! Another.\n//!\n//! Invariant AB2: something else.\n"},
            "AB2 stands in crates/a/src/b.rs",
        ),
        (
            {"crates/a/src/b.rs": '//! Another.\nfn f() { fail("AB3", "it does not") }\n'},
            "AB3 is checked here and stated",
        ),
        ({"crates/a/src/b.rs": "//! Another.\n//!\n//! - AC1: new.\n"}, "not what the headers say"),
        ({"docs/invariants.md": page("?", "`this_holds`")}, "AB1 is in no check and no test"),
        ({"docs/invariants.md": page("`Machine::check`", "`that_holds`")}, "AB2: there is no function that_holds"),
        (
            {"docs/invariants.md": page("`Machine::check`", "`Machine::check`")},
            "no file has Machine::check and names AB2",
        ),
        ({"docs/invariants.md": page("`Machine::check`", "`this_holds`", "src/old.rs")}, "not what the headers say"),
    ],
)
def test_invariants_have_names_and_checks(files: dict[str, str], finding: str | None, tmp_path: Path) -> None:
    write(
        tmp_path,
        {"crates/a/src/lib.rs": MODULE + CHECK + TEST, "docs/invariants.md": page("`Machine::check`", "`this_holds`")},
    )
    write(tmp_path, files)
    found = tidy_invariants.check_invariants(tmp_path)
    assert any(finding in line for line in found) if finding else found == []


# Decision records.

SECTIONS = "\n\n## Context\n\nx\n\n## Decision\n\ny\n"


@pytest.mark.parametrize(
    ("files", "finding"),
    [
        ({}, None),
        (
            {"docs/adr/0003-c.md": "# 0003: C\n\nStatus: Amended by [0001](0001-a.md), 0002" + SECTIONS},
            "index.md: not what",
        ),
        ({"docs/adr/0001-a.md": "# 0001: A\n\nStatus: Replaced by 0002" + SECTIONS}, "index.md: not what"),
        ({"docs/adr/0001-a.md": "# 0001: A\n\nStatus: Replaced by 0003" + SECTIONS}, "0003: there is no other record"),
        ({"docs/adr/0001-a.md": "# 0001: A\n\nStatus: Replaced by 0001" + SECTIONS}, "0001: there is no other record"),
        (
            {"docs/adr/0001-a.md": "# 0001: A\n\nStatus: Amended by [0002](0001-a.md)" + SECTIONS},
            "there is no other record",
        ),
        ({"docs/adr/0001-a.md": "# 0001: A\n\nStatus: Amended by a later one" + SECTIONS}, "is no number of a record"),
        ({"docs/adr/0001-a.md": "# 0001: A\n\nStatus: Rejected" + SECTIONS}, "0001-a.md:3: no `Status: Accepted`"),
        ({"docs/adr/0001-a.md": "# 0001: A" + SECTIONS}, "0001-a.md:3: no `Status: Accepted`"),
        ({"docs/adr/0001-a.md": "# 1. A\n\nStatus: Accepted" + SECTIONS}, "0001-a.md:1: the title is not"),
        ({"docs/adr/0002-c.md": "# 0002: C\n\nStatus: Accepted" + SECTIONS}, "0002-b.md has this number, too"),
        ({"docs/adr/0001-a.md": "# 0001: A\n\nStatus: Accepted\n\n## Choice\n"}, "the section Choice is none of"),
        ({"docs/adr/0001-a.md": "# 0001: A\n\nStatus: Accepted\n\n## Context\n"}, "no section Decision"),
    ],
)
def test_decision_records_have_a_status(files: dict[str, str], finding: str | None, tmp_path: Path) -> None:
    rows = "| [0001](0001-a.md) | A | Accepted |\n| [0002](0002-b.md) | B | Amended by [0001](0001-a.md) |\n"
    index = tidy_records.INTRODUCTION + rows
    first = "# 0001: A\n\nStatus: Accepted" + SECTIONS
    second = "# 0002: B\n\nStatus: Amended by [0001](0001-a.md)" + SECTIONS
    write(tmp_path, {"docs/adr/0001-a.md": first, "docs/adr/0002-b.md": second, "docs/adr/index.md": index})
    write(tmp_path, files)
    found = tidy_records.check_records(tmp_path)
    assert any(finding in line for line in found) if finding else found == []


def test_an_arrow_upwards_cannot_be_drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(tidy_rust.ROOMS, "node", tidy_rust.ROOMS["node"] | {"engine"})
    assert tidy_rust.check_rooms(tmp_path) == ["tools/tidy_rust.py: node -> engine: an arrow upwards"]


def test_what_is_within_bounds_passes(tmp_path: Path) -> None:
    declared = "trait T {\n    fn f(\n        a: u8,\n    );\n}\n\nfn g() {}\n" + "// x\n" * 80
    write(tmp_path, {"crates/a/src/lib.rs": long_rust("fn", 70) + declared} | spread("sooner-sim", "Narrow", 3))
    write(tmp_path, {"crates/sooner-protocol/src/node/core.rs": "use crate::uplink::ToNode; // crate::engine\n"})
    write(tmp_path, {tidy_rust.POLLER: "use rustix::event::epoll;\n"})
    write(tmp_path, {"crates/sooner-runtime/src/transport/mod.rs": "mod epoll_session; // in a loop with epoll\n"})
    assert tidy_rust.check_functions(tmp_path) == []
    assert tidy_rust.check_poller(tmp_path) == []
    assert tidy_rust.check_rooms(tmp_path) == []
    assert [line for line in tidy_rust.check_spread(tmp_path) if "Narrow" in line] == []
