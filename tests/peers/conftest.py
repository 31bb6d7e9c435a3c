"""What the suites of peers have in common: a session, and the tests that are known to differ, each with its
    reason.

`pytest tests/peers/suite_NAME.py` runs one of them, `make peers` all. A test that `differences.toml` names
must fail: one that passes is an error, and so is a name of no test, so that the list stays true.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sooner

_HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    """Marks that joblib's tests have."""
    for mark in ("thread_unsafe", "no_cover"):
        config.addinivalue_line("markers", f"{mark}: of joblib")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what must fail, and leaves out what does not run over sooner."""
    items[:] = [item for item in items if item.path.stem != "suite_joblib" or _is_over_sooner(item)]
    differences: dict[str, list[dict[str, Any]]] = tomllib.loads((_HERE / "differences.toml").read_text())
    for suite, sections in differences.items():
        tests = {item.nodeid.partition("::")[2]: item for item in items if item.path == _HERE / f"{suite}.py"}
        for section in sections if tests else ():
            for name in section["tests"]:
                if name not in tests:
                    raise pytest.UsageError(f"differences.toml: {suite} has no test {name}")
                tests[name].add_marker(pytest.mark.xfail(reason=section["reason"], strict=True))


def _is_over_sooner(item: pytest.Item) -> bool:
    """Whether a test of joblib has sooner's backend among its parameters."""
    from sooner.util.joblib import SoonerBackend

    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return any(value == "sooner" or isinstance(value, SoonerBackend) for value in values)


@pytest.fixture(scope="session", autouse=True)
def session() -> Iterator[None]:
    """One session for all: the suites make and end executors and pools of their own."""
    sooner.init(num_cpus=4)
    yield
    sooner.shutdown()
