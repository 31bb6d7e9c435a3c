"""The tidy checks of the Python side: docstrings, imports, long functions, and the classes of
exceptions.py.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

# The modules of sooner that are public by themselves. Everything else public is a name of `sooner`.
PUBLIC_MODULES = (
    "sooner",
    "sooner.actor",
    "sooner.compat",
    "sooner.exceptions",
    "sooner.metrics",
    "sooner.placement",
    "sooner.scheduling",
    "sooner.state",
    "sooner.testing",
    "sooner.util",
)
# The rooms that stand on the public API alone.
ON_PUBLIC_NAMES = ("util", "compat")

FUNCTION_LINES_MAX = 70
# Functions that are longer, with their lines: each of them is a table. A number may shrink here and in the
# code together; no row is ever added.
LONG: dict[str, int] = {
    "python/sooner/_engine/settings.py::table": 86,
    "python/sooner/options.py::_rows": 215,
}


def _modules(root: Path) -> Iterator[Path]:
    for top in ("python", "tests", "bench", "examples", "tools"):
        for path in sorted((root / top).rglob("*.py")):
            # Former revisions, beside which this one is measured, are below bench/scratch.
            skipped = {part for part in path.relative_to(root).parts if part.startswith(".")}
            if not skipped and not {"__pycache__", "scratch"} & set(path.parts):
                yield path


def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def check_docstrings(root: Path) -> list[str]:
    """Every Python module says what it is."""
    findings = []
    for path in _modules(root):
        where = path.relative_to(root)
        try:
            tree = _parse(path)
        except SyntaxError as error:
            findings.append(f"{where}:{error.lineno}: not valid Python: {error.msg}")
            continue
        if not (ast.get_docstring(tree) or "").strip():
            findings.append(f"{where}:1: no docstring: say what the module is")
    return findings


def check_imports(root: Path) -> list[str]:
    """util/ imports public names only; the package imports nothing that only tests and tools have."""
    package = root / "python/sooner"
    findings = []
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).parts
        name = ".".join(["sooner", *parts]).removesuffix(".py").removesuffix(".__init__")
        package_name = name if path.name == "__init__.py" else name.rpartition(".")[0]
        try:
            tree = _parse(path)
        except SyntaxError:
            continue  # check_docstrings says so
        for line, module, imported in _imports(tree, package_name):
            where = f"{path.relative_to(root)}:{line}"
            if module.split(".")[0] in {"tests", "bench", "examples", "tools"}:
                findings.append(f"{where}: {module}: the package does not import the porch")
            if parts[0] in ON_PUBLIC_NAMES and module.split(".")[0] == "sooner":
                findings += _private(where, module, imported)
        if parts[0] in ON_PUBLIC_NAMES:
            findings += [
                f"{path.relative_to(root)}:{line}: sooner.{attribute}: only public names here"
                for line, attribute in _attributes(tree)
                if _is_private(attribute)
            ]
    return findings


def _imports(tree: ast.Module, package: str) -> Iterator[tuple[int, str, str | None]]:
    """(line, absolute module, imported name) of every import, also those inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, None
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                base = package.split(".")
                base = base[: len(base) - node.level + 1]
                module = ".".join([*base, module] if module else base)
            for alias in node.names:
                yield node.lineno, module, alias.name


def _private(where: str, module: str, imported: str | None) -> Iterator[str]:
    public = any(module == name or module.startswith(f"{name}.") for name in PUBLIC_MODULES[1:]) or module == "sooner"
    full = f"{module}.{imported}" if imported else module
    if not public or any(_is_private(part) for part in full.split(".")):
        yield f"{where}: {full}: only public names here: {', '.join(PUBLIC_MODULES)}"


def _attributes(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "sooner":
            yield node.lineno, node.attr


def _is_private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


def public_classes(module: Path) -> list[str]:
    """The classes that a module defines, without those whose names begin with an underscore.

    A module that is not valid Python has none: check_docstrings says so.
    """
    try:
        tree = _parse(module)
    except SyntaxError:
        return []
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef) and node.name[0] != "_"]


def check_functions(root: Path) -> list[str]:
    """No function is too long to be seen at once, its docstring aside, but for those of a table that only
    shrinks.
    """
    findings = []
    long: dict[str, tuple[int, int]] = {}
    for path in _modules(root):
        where = path.relative_to(root).as_posix()
        if where.startswith("tests/"):
            continue
        try:
            tree = _parse(path)
        except SyntaxError:
            continue  # Another check says so.
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                count = _lines(node)
                if count > FUNCTION_LINES_MAX:
                    long[f"{where}::{node.name}"] = (count, node.lineno)
    for name, (count, line) in long.items():
        allowed = LONG.get(name, FUNCTION_LINES_MAX)
        if count > allowed:
            where = f"{name.split('::')[0]}:{line}"
            findings.append(f"{where}: {name} has {count} lines, at most {allowed}: split it by what it does")
    return findings + not_shrunk(LONG, {name: count for name, (count, _) in long.items()}, root)


def _lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines of a function without its docstring."""
    count = (node.end_lineno or node.lineno) - node.lineno + 1
    if ast.get_docstring(node, clean=False) is not None:
        text = node.body[0]
        count -= (text.end_lineno or text.lineno) - text.lineno + 1
    return count


def not_shrunk(table: dict[str, int], found: dict[str, int], root: Path) -> list[str]:
    """Rows of a table that say more than is there: they are to shrink with the code. Names begin with a
    path.
    """
    return [
        f"tools: {name} is said to be {number}, and is {found.get(name, 'none')}: shrink the row, or take it out"
        for name, number in table.items()
        if found.get(name, 0) < number and (root / name.split("::")[0]).exists()
    ]
