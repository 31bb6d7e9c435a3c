"""The tidy check of the rooms of the Python package: who may import whom, no circle, no import without
    reason.

A room is a folder of `python/sooner`, or one of the groups of modules at its top. What a module imports
inside a function does not count as an arrow; such an import says why it is there:

    import json  # start-up: 1.8 ms                what a start would take longer (CPU time of a fresh
    process) from sooner.context import auto_init  # circle    that one imports this one, or stands in a
    room above import site  # order: why                      what has to be done before it from
    sooner._values import arrow  # optional   it needs a library that need not be installed
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Container, Iterator
from pathlib import Path
from typing import NamedTuple

# Modules at the top of the package that others stand on.
_BASE = ("sooner", "sooner.exceptions", "sooner.ids")
# The modules at the top that stand on everything else.
_ROOF = ("sooner.__main__", "sooner.cluster_utils")

# Which rooms the modules of a room may import when they are imported themselves. A room stands above them.
ROOMS: dict[str, tuple[str, ...]] = {
    "base": (),
    "_values": ("base",),
    "_state": ("base",),
    "_options": ("base",),
    "_errors": ("base", "_values"),
    "_session": ("base", "_options", "_state"),
    "_engine": ("base", "_values", "_errors", "_session", "_state"),
    "_progress": ("base", "_engine"),
    "nouns": ("base", "_values", "_errors", "_session", "_state", "_options", "_engine", "_progress"),
    "_cli": ("base", "_session", "_state", "nouns"),
    "roof": ("base", "_session", "_state", "_cli", "nouns"),
    # They stand on public names alone, which `check_imports` looks after.
    "util": ("base", "nouns"),
    "compat": ("base", "nouns", "util"),
}
# How many imports inside functions there are because of a circle. It may only become less.
CIRCLES_MAX = 15

_REASON = re.compile(r"#\s*(?:start-up: \d+(?:\.\d+)? ms|(?P<circle>circle)|order: \w+|optional)\b")
_OUTSIDE = frozenset({"sooner._sooner", "sooner._typing"})


class _Import(NamedTuple):
    line: int
    # What it says behind it.
    comment: str
    modules: tuple[str, ...]
    is_at_top: bool


class _Module(NamedTuple):
    path: str
    imports: tuple[_Import, ...]


def check_rooms(root: Path) -> list[str]:
    """Modules import what lies below their room, without circles, and imports inside functions have a
    reason.
    """
    modules = _read(root)
    arrows = {
        name: {target for one in module.imports if one.is_at_top for target in one.modules if target in modules}
        for name, module in modules.items()
    }
    return [*_check_table(), *_check_arrows(modules), *_check_circles(arrows), *_check_reasons(modules, arrows)]


def _check_table() -> Iterator[str]:
    above: set[str] = set()
    for room, below in ROOMS.items():
        for other in set(below) - above:
            yield f"tools/tidy_rooms.py: {room} -> {other}: a room stands behind all that it may import"
        above.add(room)


def _check_arrows(modules: dict[str, _Module]) -> Iterator[str]:
    for name, module in modules.items():
        room = _room(name)
        if room not in ROOMS:
            yield f"{module.path}:1: {room} is no room of the package; draw it in tools/tidy_rooms.py first"
            continue
        for one in module.imports:
            for target in one.modules:
                other = _room(target)
                if one.is_at_top and other != room and other not in ROOMS[room] and target in modules:
                    may = ", ".join(ROOMS[room]) or "nothing"
                    yield f"{module.path}:{one.line}: {room} -> {other} ({target}): {room} may import {may}"


def _check_circles(arrows: dict[str, set[str]]) -> Iterator[str]:
    reach = {name: set().union(*(_reach(arrows, target) for target in arrows[name])) for name in arrows}
    told: set[str] = set()
    for name in sorted(arrows):
        circle = {other for other in reach[name] if name in reach[other]}
        if circle and name not in told:
            told |= circle
            yield f"python/sooner: a circle of imports: {', '.join(sorted(circle))}"


def _check_reasons(modules: dict[str, _Module], arrows: dict[str, set[str]]) -> Iterator[str]:
    circles = 0
    for name, module in modules.items():
        for one in module.imports:
            if one.is_at_top or not any(_counts(target) for target in one.modules):
                continue
            where = f"{module.path}:{one.line}: an import inside a function"
            reason = _REASON.search(one.comment)
            if reason is None:
                yield f"{where}: say why (`# start-up: N ms` and the like), or put it at the top"
            elif reason["circle"]:
                circles += 1
                if not any(name in _reach(arrows, target) for target in one.modules) and not _is_upward(name, one):
                    yield f"{where}: there is no circle any more; put it at the top"
    if circles > CIRCLES_MAX:
        yield f"python/sooner: {circles} imports inside functions because of circles, at most {CIRCLES_MAX}"
    elif circles < CIRCLES_MAX and "sooner.context" in modules:
        yield f"tools/tidy_rooms.py: {circles} circles are left: write that as CIRCLES_MAX, which may only become less"


def _is_upward(name: str, one: _Import) -> bool:
    room = _room(name)
    return any(_room(target) not in (room, *ROOMS.get(room, ())) for target in one.modules if _is_ours(target))


def _counts(target: str) -> bool:
    """Whether an import inside a function is to give a reason. What need not be installed has one."""
    return _is_ours(target) or target.partition(".")[0] in sys.stdlib_module_names


def _is_ours(target: str) -> bool:
    return target.partition(".")[0] == "sooner"


def _reach(arrows: dict[str, set[str]], begin: str) -> set[str]:
    """What a module imports, directly or by way of others, and the module itself."""
    seen = {begin}
    left = [begin]
    while left:
        for target in arrows.get(left.pop(), set()) - seen:
            seen.add(target)
            left.append(target)
    return seen


def _room(name: str) -> str:
    if name in _BASE:
        return "base"
    if name in _ROOF:
        return "roof"
    parts = name.split(".")
    part = parts[1] if len(parts) > 1 else ""
    is_folder = part.startswith("_") and part != "__main__"
    return part if is_folder or part in ("util", "compat") else "nouns"


def _read(root: Path) -> dict[str, _Module]:
    package = root / "python/sooner"
    paths = {_name(package, path): path for path in sorted(package.rglob("*.py"))}
    found = {}
    for name, path in paths.items():
        text = path.read_text(encoding="utf-8")
        try:
            tree = ast.parse(text)
        except SyntaxError:
            continue  # check_docstrings says so
        home = name if path.name == "__init__.py" else name.rpartition(".")[0]
        imports = tuple(_imports(tree, home, text.splitlines(), paths.keys()))
        found[name] = _Module(str(path.relative_to(root)), imports)
    return found


def _name(package: Path, path: Path) -> str:
    name = ".".join(("sooner", *path.relative_to(package).with_suffix("").parts))
    return name.removesuffix(".__init__")


def _imports(tree: ast.Module, home: str, lines: list[str], known: Container[str]) -> Iterator[_Import]:
    for node, is_at_top in _statements(tree, True):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        else:
            module = node.module or ""
            if node.level:
                base = home.split(".")
                base = base[: len(base) - node.level + 1]
                module = ".".join([*base, module] if module else base)
            # A name may be a module of the package.
            full = [f"{module}.{alias.name}" for alias in node.names]
            targets = [one if one in known or one in _OUTSIDE else module for one in full]
        last = node.end_lineno or node.lineno
        comment = " ".join(line.partition("#")[1] + line.partition("#")[2] for line in lines[node.lineno - 1 : last])
        modules = tuple(target for target in dict.fromkeys(targets) if target not in _OUTSIDE)
        if modules:
            yield _Import(node.lineno, comment, modules, is_at_top)


def _statements(node: ast.AST, is_at_top: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """The imports below a node, without those that only type checkers see."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, is_at_top
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for other in child.orelse:
                yield from _statements(other, is_at_top)
        else:
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from _statements(child, is_at_top and not inside)
