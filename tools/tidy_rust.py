"""The tidy checks of the Rust side: arrows between crates and rooms, headers, walls, long functions,
spread structs, the way to wait.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tidy_python import not_shrunk

# Crate -> the crates it may name. Whatever is not listed here is not an arrow of this house.
ARROWS: dict[str, frozenset[str]] = {
    "sooner-wire": frozenset(),
    "sooner-protocol": frozenset({"sooner-wire"}),
    "sooner-store": frozenset({"sooner-wire"}),
    "sooner-object-store": frozenset({"sooner-store", "sooner-wire"}),
    "sooner-runtime": frozenset({"sooner-object-store", "sooner-protocol", "sooner-store", "sooner-wire"}),
    "sooner-python": frozenset({"sooner-runtime"}),
    "sooner-sim": frozenset({"sooner-protocol", "sooner-store", "sooner-wire"}),
}
# Libraries that one crate alone may name: the interpreter at the doorway, the encoding in the schema crate,
# the database in the shell, and clients of object stores with their executor in a crate of their own.
ONLY_IN = {
    "pyo3": "sooner-python",
    "minicbor": "sooner-wire",
    "redb": "sooner-runtime",
    "object_store": "sooner-object-store",
    "reqwest": "sooner-object-store",
    "tokio": "sooner-object-store",
}

# What clippy.toml of sooner-protocol must forbid. Of each topic at least the named items.
WALLS: dict[str, frozenset[str]] = {
    "clocks": frozenset({"std::time::Instant::now", "std::time::SystemTime::now"}),
    "the environment": frozenset({"std::env::var", "std::env::vars"}),
    # The standard library's own source of randomness is the hasher of its maps.
    "randomness": frozenset({"std::collections::HashMap", "std::collections::HashSet"}),
    "threads": frozenset({"std::thread::spawn", "std::thread::sleep"}),
}
# Room of sooner-protocol (a folder or file right under src) -> the rooms it may name. What an arrow leads to
# is on a floor below: the rooms are listed from the ground up, and none names one that comes after it.
GROUND = frozenset({"probes", "table", "time"})
ROOMS: dict[str, frozenset[str]] = {
    "table": frozenset(),
    "probes": frozenset({"table"}),
    "time": frozenset(),
    "failures": frozenset(),
    "pace": GROUND,
    "session": GROUND,
    "scheduling": GROUND,
    "uplink": GROUND,
    "worker": GROUND | {"failures", "pace", "scheduling"},
    "node": GROUND | {"failures", "pace", "scheduling", "uplink"},
    "control": GROUND | {"failures", "pace", "scheduling", "uplink"},
    "engine": GROUND | {"control", "node", "uplink"},
}

FUNCTION_LINES_MAX = 70

# The file that knows how this system tells which descriptors are ready. The loops name what it offers.
POLLER = "crates/sooner-runtime/src/poller.rs"

IMPL_FILES_MAX = 3
# Structs whose `impl` blocks are in more files than that, with the number of files. A number may shrink here
# and in the code together; no row is ever added. What belongs together gets a struct of its own.
SPREAD: dict[str, int] = {
    "crates/sooner-protocol::Directory": 15,
    "crates/sooner-protocol::NodeCore": 26,
    "crates/sooner-protocol::Ownership": 10,
    "crates/sooner-protocol::Pulls": 5,
    "crates/sooner-protocol::WorkerCore": 22,
    "crates/sooner-runtime::Client": 7,
    "crates/sooner-runtime::Service": 16,
    "crates/sooner-sim::World": 52,
}

RANDOM_LIBRARIES = frozenset({"rand", "fastrand", "getrandom", "uuid", "oorandom"})


def _manifests(root: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in sorted((root / "crates").glob("*/Cargo.toml")):
        yield path, tomllib.loads(path.read_text(encoding="utf-8"))


def _dependencies(manifest: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(section, real name of the package) for every dependency, also those of single targets."""
    tables = [manifest, *manifest.get("target", {}).values()]
    for table in tables:
        for section in ("dependencies", "dev-dependencies", "build-dependencies"):
            for name, spec in table.get(section, {}).items():
                yield section, spec.get("package", name) if isinstance(spec, dict) else name


def check_arrows(root: Path) -> list[str]:
    """Crates depend on one another only along the arrows of the design, also in their tests."""
    findings = []
    found = set()
    for path, manifest in _manifests(root):
        crate = manifest["package"]["name"]
        where = path.relative_to(root)
        found.add(crate)
        if crate not in ARROWS:
            findings.append(f"{where}: {crate} is not a room of the design; draw it in tools/tidy_rust.py first")
            continue
        for section, name in _dependencies(manifest):
            if name.startswith("sooner") and name not in ARROWS[crate]:
                allowed = ", ".join(sorted(ARROWS[crate])) or "none of the others"
                findings.append(f"{where}: [{section}] {crate} -> {name}: it may name {allowed}")
            if ONLY_IN.get(name, crate) != crate:
                findings.append(f"{where}: [{section}] {name}: only {ONLY_IN[name]} may name it")
    findings += [f"crates/: {crate} is missing" for crate in sorted(ARROWS.keys() - found)]
    return findings


def check_headers(root: Path) -> list[str]:
    """Every Rust file says in its first line what it is."""
    findings = []
    for path in sorted((root / "crates").rglob("*.rs")):
        if "target" in path.relative_to(root).parts:
            continue
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        if not lines or not lines[0].startswith("//! "):
            findings.append(
                f"{path.relative_to(root)}:1: no `//!` header: say what the module is and what it never does"
            )
    return findings


def check_walls(root: Path) -> list[str]:
    """clippy.toml of sooner-protocol forbids what would make a state machine depend on anything but its
    events.
    """
    path = root / "crates/sooner-protocol/clippy.toml"
    if not path.is_file():
        return [f"{path.relative_to(root)}: missing: nothing keeps clocks and randomness out of the state machines"]
    config = tomllib.loads(path.read_text(encoding="utf-8"))
    entries = config.get("disallowed-methods", []) + config.get("disallowed-types", [])
    forbidden = {entry["path"] if isinstance(entry, dict) else entry for entry in entries}
    findings = [
        f"{path.relative_to(root)}: {item} is not forbidden: {topic} must stay out"
        for topic, items in WALLS.items()
        for item in sorted(items - forbidden)
    ]
    for manifest_path, manifest in _manifests(root):
        if manifest["package"]["name"] == "sooner-protocol":
            findings += [
                f"{manifest_path.relative_to(root)}: {name}: seeds come in as arguments"
                for section, name in _dependencies(manifest)
                if section == "dependencies" and name in RANDOM_LIBRARIES
            ]
    return findings


def _production(root: Path, crates: tuple[str, ...] = ("*",)) -> Iterator[tuple[Path, list[str]]]:
    """Every Rust file that is no test, up to its tests."""
    for crate in crates:
        for path in sorted((root / "crates").glob(f"{crate}/src/**/*.rs")):
            if path.stem == "tests" or "tests" in path.relative_to(root).parts:
                continue
            lines = path.read_text(encoding="utf-8").splitlines()
            ends = [at for at, line in enumerate(lines) if re.match(r"(?:pub(?:\([^)]*\))? )?mod tests \{", line)]
            yield path, lines[: ends[0]] if ends else lines


def functions(lines: list[str]) -> Iterator[tuple[str, int, int]]:
    """(name, first line, number of lines) of every function, as rustfmt lays them out."""
    begins = re.compile(r"(\s*)(?:pub(?:\([^)]*\))? )?(?:(?:const|async|unsafe|extern \"C\") )*fn (\w+)")
    for at, line in enumerate(lines):
        if (match := begins.match(line)) is None or line.rstrip().endswith((";", "}")):
            continue
        indent = match[1]
        for end in range(at + 1, len(lines)):
            if lines[end] == indent + "}":
                yield match[2], at + 1, end - at + 1
                break
            if lines[end].startswith(indent + ")") and lines[end].endswith(";"):
                break


def check_functions(root: Path) -> list[str]:
    """No function is too long to be seen at once."""
    return [
        f"{path.relative_to(root)}:{first}: {name} has {count} lines, at most {FUNCTION_LINES_MAX}: "
        "split it by what it does"
        for path, lines in _production(root)
        for name, first, count in functions(lines)
        if count > FUNCTION_LINES_MAX
    ]


def check_spread(root: Path) -> list[str]:
    """What a struct does is in at most three files, but for those of a table that only shrinks."""
    findings = []
    for crate in ("sooner-protocol", "sooner-runtime", "sooner-sim"):
        structs: dict[str, list[str]] = {}
        files: dict[str, set[str]] = {}
        for path, lines in _production(root, (crate,)):
            text = "\n".join(lines)
            where = path.relative_to(root).as_posix()
            for name in re.findall(r"^(?:pub(?:\([^)]*\))? )?struct (\w+)", text, re.MULTILINE):
                structs.setdefault(name, []).append(where)
            for name in re.findall(r"^impl(?:<[^>{]*>)? (\w+)(?:<[^{]*>)? (?:where[^{]*)?\{", text, re.MULTILINE):
                files.setdefault(name, set()).add(where)
        # Of several structs of one name nobody can say which an `impl` is for: those in the file of one are
        # its own.
        found = {}
        for name, homes in structs.items():
            count = len(files.get(name, set()) - set(homes)) + 1
            if count > IMPL_FILES_MAX:
                found[f"crates/{crate}::{name}"] = count
        for name, count in found.items():
            allowed = SPREAD.get(name, IMPL_FILES_MAX)
            if count > allowed:
                findings.append(
                    f"{name}: `impl` in {count} files, at most {allowed}: give what belongs together a struct"
                )
        rows = {name: number for name, number in SPREAD.items() if name.startswith(f"crates/{crate}::")}
        findings += not_shrunk(rows, found, root)
    return findings


def check_poller(root: Path) -> list[str]:
    """Only one file of sooner-runtime names epoll, also in tests: another system's way to wait goes there."""
    return [
        f"{path.relative_to(root)}:{number}: epoll: only {POLLER} may name it; use its Poller"
        for path in sorted((root / "crates/sooner-runtime").rglob("*.rs"))
        if path.relative_to(root).as_posix() != POLLER
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if re.search(r"\bepoll\b", line.split("//")[0])
    ]


def check_rooms(root: Path) -> list[str]:
    """Rooms of sooner-protocol name one another along the drawn arrows only, and none of these leads up."""
    source = root / "crates/sooner-protocol/src"
    findings = []
    floors = list(ROOMS)
    for room, below in ROOMS.items():
        findings += [
            f"tools/tidy_rust.py: {room} -> {other}: an arrow upwards"
            for other in sorted(below)
            if other not in floors[: floors.index(room)]
        ]
    for path in sorted(source.rglob("*.rs")):
        room = path.relative_to(source).parts[0].removesuffix(".rs")
        where = path.relative_to(root).as_posix()
        if room == "lib":
            continue
        if room not in ROOMS:
            findings.append(f"{where}: {room} is not a room of the design; draw it in tools/tidy_rust.py first")
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            code = line.split("//")[0]
            if "crate::{" in code:
                findings.append(f"{where}:{number}: crate::{{...}}: name the rooms one by one")
            for other in re.findall(r"\bcrate::([a-z_]+)", code.replace("in crate::", "")):
                if other != room and other not in ROOMS[room]:
                    findings.append(
                        f"{where}:{number}: {room} -> {other}: it may name {', '.join(sorted(ROOMS[room]))}"
                    )
    return findings
