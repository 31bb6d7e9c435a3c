"""Gloo for the rows on shaped hosts: Debian's library beside the peers, and a driver built with it.

The packages are downloaded by apt and unpacked into `.venv-bench`; nothing is installed. Where that
cannot be done, Gloo is left out, and the reason is in the table.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
from pathlib import Path

from harness import environment

VERSION = "0.0~git20220518.5b14351-3"
# Gloo itself, and what its library is linked with: that comes in the version of the distribution.
_PACKAGES = (
    f"libgloo-dev={VERSION}",
    f"libgloo0={VERSION}",
    "libhiredis0.14",
    "libibverbs1",
    "libnl-3-200",
    "libnl-route-3-200",
)
_TOOLS = ("apt-get", "dpkg-deb", "g++")
_SOURCE = Path(__file__).with_name("hosts_gloo.cpp")


@functools.cache
def driver() -> tuple[Path, str]:
    """The driver, and where it finds its libraries (`LD_LIBRARY_PATH`).

    Raises:
        OSError: It cannot be had here.
    """
    base = environment.VENV / "gloo"
    root, program = base / "root", base / "driver"
    libraries = [root / "usr/lib", *root.glob("usr/lib/*-linux-gnu"), *root.glob("lib/*-linux-gnu")]
    path = ":".join(map(str, libraries))
    if program.exists() and program.stat().st_mtime > _SOURCE.stat().st_mtime:
        return program, path
    missing = [name for name in _TOOLS if shutil.which(name) is None]
    if missing:
        raise OSError(f"not installed: {', '.join(missing)}")
    if not root.exists():
        _unpack(base, root)
        return driver.__wrapped__()
    _run(
        base,
        "g++",
        "-O2",
        "-std=c++17",
        f"-I{root / 'usr/include'}",
        str(_SOURCE),
        "-o",
        str(program),
        *(f"-L{directory}" for directory in libraries),
        "-lgloo",
        "-pthread",
        "-Wl,--allow-shlib-undefined",
    )
    return program, path


def obstacle() -> str | None:
    """Why there is no Gloo here; None if there is."""
    try:
        driver()
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"Gloo cannot be had here: {error}"
    return None


def _unpack(base: Path, root: Path) -> None:
    """Have the packages brought and unpacked."""
    print("==> bringing Gloo into .venv-bench (apt-get download)", flush=True)
    packages, partial = base / "packages", base / "partial"
    packages.mkdir(parents=True, exist_ok=True)
    _run(packages, "apt-get", "download", "-qq", *_PACKAGES)
    for package in sorted(packages.glob("*.deb")):
        _run(base, "dpkg-deb", "-x", str(package), str(partial))
    partial.rename(root)


def _run(directory: Path, *command: str) -> None:
    done = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=180, check=False
    )
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise OSError(f"{command[0]} failed: {' '.join(last)}")
