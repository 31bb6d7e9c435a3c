"""joblib's own tests of `Parallel`, with sooner's backend among the backends that they go through."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

joblib_testing = pytest.importorskip("joblib.testing", reason="joblib is not installed")
pytest.importorskip("joblib.test.common", reason="joblib is installed without its tests")

import sooner.util.joblib  # noqa: E402

# Before joblib's tests are imported: they ask which backends there are.
sooner.util.joblib.register_sooner()
_parametrize = joblib_testing.parametrize


def _with_ours(names: Any, values: Any, **options: Any) -> Any:
    """Adds the backend to lists of backends of processes, which the tests write out."""
    values = list(values)
    if "loky" in values and "sooner" not in values:
        values.append("sooner")
    return _parametrize(names, values, **options)


joblib_testing.parametrize = _with_ours
try:
    from joblib.test import test_parallel as theirs
finally:
    joblib_testing.parametrize = _parametrize

globals().update({name: value for name, value in vars(theirs).items() if name.startswith("test_")})


@pytest.fixture(autouse=True)
def _programs_know_the_backend(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The suite's programs choose the backend without having registered it: a start-up module does so for
    them.
    """
    (tmp_path / "sitecustomize.py").write_text("import sooner.util.joblib\nsooner.util.joblib.register()\n")
    run = theirs.check_subprocess_call

    def run_registered(command: list[str], **options: Any) -> None:
        assert command[0] == sys.executable, command
        with monkeypatch.context() as environment:
            environment.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
            # A session begins and ends inside, too.
            run(command, **{**options, "timeout": 60})

    monkeypatch.setattr(theirs, "check_subprocess_call", run_registered)
