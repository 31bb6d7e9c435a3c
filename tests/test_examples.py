"""The examples run, and the big one learns."""

from __future__ import annotations

import importlib.util
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


def run_quick(name: str, picture: Path, *arguments: str) -> str:
    """The quick form of a training example, which draws a picture if it can."""
    output = run(f"training/{name}.py", "--quick", "--output", str(picture), *arguments)
    if importlib.util.find_spec("matplotlib") is None:
        assert "no picture: pip install matplotlib" in output
    else:
        assert picture.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    return output


@pytest.mark.parametrize("arguments", [[], ["--sync"], ["--async", "--workers", "4"]], ids=["default", "sync", "async"])
def test_parameter_server(tmp_path: Path, arguments: list[str]) -> None:
    pytest.importorskip("sklearn")
    output = run_quick("parameter_server", tmp_path / "picture.png", *arguments)
    assert float(re.search(r"accuracy (\S+);", output)[1]) > 0.8, output  # type: ignore[index]
    assert "steps of each shard [60, 60]" in output
    assert ("used [" in output) == ("--async" in arguments)


def test_allreduce(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    output = run_quick("allreduce", tmp_path / "picture.png")
    assert float(re.search(r"accuracy (\S+);", output)[1]) > 0.8, output  # type: ignore[index]
    assert "replicas differ by 0\n" in output


def test_allreduce_torch(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("torch", reason="PyTorch is not installed")
    output = run_quick("allreduce_torch", tmp_path / "picture.png")
    assert float(re.search(r"accuracy (\S+);", output)[1]) > 0.8, output  # type: ignore[index]
    assert "replicas differ by 0\n" in output


@pytest.mark.parametrize("members", [2, 5])
def test_ring(tmp_path: Path, members: int) -> None:
    output = run_quick("ring", tmp_path / "picture.png", "--members", str(members), "--size", "100000")
    assert output.count(f"for {members} arrays of 0.8 MB") == 3


def test_ring_of_one() -> None:
    ring = EXAMPLES / "training" / "ring.py"
    done = subprocess.run([sys.executable, str(ring), "--members", "1"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.endswith("error: a ring has at least 2 members, not 1\n")


def test_evolution_strategies_learns_and_draws(tmp_path: Path) -> None:
    for package in ("gymnasium", "matplotlib", "rich"):
        pytest.importorskip(package)
    picture = tmp_path / "curve.png"
    output = run("evolution_strategies.py", "--iterations", "25", "--seconds", "120", "--output", str(picture))
    first, last = map(float, re.search(r"reward +(\S+) -> (\S+)", output).groups())  # type: ignore[union-attr]
    assert last > 2 * first, output
    assert picture.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert picture.stat().st_size > 10_000
