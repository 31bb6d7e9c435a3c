"""The environment the peers live in, and the description of the machine for the report."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
import sysconfig
from pathlib import Path

BENCH = Path(__file__).resolve().parent.parent
REPOSITORY = BENCH.parent
VENV = REPOSITORY / ".venv-bench"
REQUIREMENTS = BENCH / "requirements.txt"
OUT = BENCH / "out"


def workers() -> int:
    """How many workers every peer gets."""
    return max(2, len(os.sched_getaffinity(0)))


def ensure_venv() -> Path:
    """Make .venv-bench with the interpreter that runs this, and install the pinned peers.

    The same interpreter as `.venv`: the extension of sooner fits no other version.
    """
    python = VENV / "bin" / "python"
    pins = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:16]
    stamp = VENV / f".installed-{sysconfig.get_config_var('SOABI')}-{pins}"
    if stamp.exists() and python.exists():
        return python
    print(f"==> installing the peers into {VENV.name} (Ray, Dask, joblib, matplotlib)", flush=True)
    base = getattr(sys, "_base_executable", sys.executable)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    try:
        subprocess.run([base, "-m", "venv", "--clear", str(VENV)], check=True, timeout=300)
        subprocess.run([*pip, "--no-deps", "-r", str(REQUIREMENTS)], check=True, timeout=900)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise SystemExit(
            f"the peers of bench/requirements.txt were not installed: {error}"
        ) from None
    stamp.touch()
    return python


def child_environment(peer: str, scratch: Path) -> dict[str, str]:
    """The environment of a measuring process; sooner and this directory are importable in it."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "RAY_"))
    }
    return {
        **kept,
        "BENCH_API": peer,
        "PYTHONPATH": os.pathsep.join([str(BENCH), str(REPOSITORY / "python")]),
        "PYTHONNOUSERSITE": "1",
        # The peers put their session files where the end of the run removes them, and tell nobody.
        "RAY_TMPDIR": str(scratch),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "DASK_TEMPORARY_DIRECTORY": str(scratch),
    }


def machine() -> dict[str, str]:
    """What the numbers were measured on."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return {
        "processor": model,
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory:.0f} GiB",
        "kernel": platform.release(),
        "system": platform.freedesktop_os_release().get("PRETTY_NAME", platform.system()),
        "tcp": Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip(),
        "load before": f"{os.getloadavg()[0]:.2f}",
    }
