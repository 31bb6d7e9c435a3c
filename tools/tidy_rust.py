"""The tidy checks of the Rust side: arrows between crates, module headers, and the walls of sooner-protocol."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
# Libraries that one crate alone may name: the interpreter at the doorway, the encoding in the schema crate, the
# database in the shell, and clients of object stores with their executor in a crate of their own.
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
    """clippy.toml of sooner-protocol forbids what would make a state machine depend on anything but its events."""
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
