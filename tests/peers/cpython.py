"""Finds CPython's own tests: in the `test` package of this interpreter, or of another one that is installed
beside it.

Some distributions leave it out, and some releases of 3.11 and 3.12 forgot to install the tests of executors.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from pathlib import Path

import pytest

# Kept until the process ends: workers import from it.
_directories: list[tempfile.TemporaryDirectory[str]] = []

# Stands before `test`; has what newer suites take from a newer `test.support`.
_PACKAGE = """\
__path__ = {paths!r}
from test import support
for name, value in (
    ("Py_GIL_DISABLED", False),
    ("requires_gil_enabled", lambda _reason: lambda test: test),
):
    if not hasattr(support, name):
        setattr(support, name, value)
support.skip_if_sanitizer = lambda *_reason, **_kinds: lambda test: test
"""


def find(part: str) -> None:
    """Makes `test.<part>` importable here and in workers, or skips the file that asks.

    Args:
        part: A module or package of CPython's tests.
    """
    pytest.importorskip("test.support", reason="CPython's test package is not installed")
    if importlib.util.find_spec(f"test.{part}") is None:
        _borrow(part)


def _borrow(part: str) -> None:
    """Adds the tests of another interpreter behind this one's: `test.support` stays the one that fits it."""
    for directory in _others():
        if any((directory / name).exists() for name in (f"{part}.py", f"{part}/__init__.py")):
            break
    else:
        pytest.skip(
            f"no Python here has test.{part}: set SOONER_PEER_TESTS to the `test` directory of one",
            allow_module_level=True,
        )
    import test

    made = tempfile.TemporaryDirectory(prefix="sooner-peers-")
    _directories.append(made)
    package = Path(made.name) / "test"
    package.mkdir()
    (package / "__init__.py").write_text(_PACKAGE.format(paths=[*test.__path__, str(directory)]))
    # Workers have the path of the program, and import the package anew, as this process does now.
    sys.path.insert(0, made.name)
    for name in [name for name in sys.modules if name == "test" or name.startswith("test.")]:
        del sys.modules[name]
    importlib.invalidate_caches()


def _others() -> list[Path]:
    """The `test` directories of other interpreters, the newest first."""
    given = os.environ.get("SOONER_PEER_TESTS")
    if given is not None:
        return [Path(given)]
    beside = Path(sys.base_prefix).parent.glob("*/lib/python3.*/test")
    return sorted((path for path in beside if _version(path) >= (3, 13)), key=_version, reverse=True)


def _version(directory: Path) -> tuple[int, ...]:
    digits = directory.parent.name.removeprefix("python").split(".")
    return tuple(int(part) for part in digits) if all(part.isdecimal() for part in digits) else ()
