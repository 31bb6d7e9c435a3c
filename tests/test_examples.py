"""The examples run, and the big one learns."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_quickstart() -> None:
    assert "sum of squares: 285" in run("quickstart.py")


def test_parallel_primes() -> None:
    assert "primes below 10000: 1229" in run("parallel_primes.py", "--below", "10000")


@pytest.mark.parametrize("arguments", [[], ["--async", "--workers", "4"]], ids=["synchronous", "asynchronous"])
def test_parameter_server(arguments: list[str]) -> None:
    pytest.importorskip("sklearn")
    output = run("training/parameter_server.py", "--steps", "60", *arguments)
    assert float(re.search(r"accuracy (\S+);", output)[1]) > 0.8, output  # type: ignore[index]
    assert "steps of each shard [60, 60]" in output


def test_allreduce() -> None:
    pytest.importorskip("sklearn")
    output = run("training/allreduce.py", "--steps", "60")
    assert float(re.search(r"accuracy (\S+);", output)[1]) > 0.8, output  # type: ignore[index]
    assert "replicas differ by 0\n" in output


def test_evolution_strategies_learns_and_draws(tmp_path: Path) -> None:
    for package in ("gymnasium", "matplotlib", "rich"):
        pytest.importorskip(package)
    picture = tmp_path / "curve.png"
    output = run("evolution_strategies.py", "--iterations", "25", "--seconds", "120", "--output", str(picture))
    first, last = map(float, re.search(r"reward +(\S+) -> (\S+)", output).groups())  # type: ignore[union-attr]
    assert last > 2 * first, output
    assert picture.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert picture.stat().st_size > 10_000
