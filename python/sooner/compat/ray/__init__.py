"""Programs for Ray run on sooner, unchanged: `import ray` gives a module that is sooner under Ray's names.

    python -m sooner.compat.ray script.py ARGS
    python -m sooner.compat.ray -m module ARGS

or, in a program, `sooner.compat.ray.install()` before the first `import ray`; or the environment variable
SOONER_AS_RAY=1, which has `import sooner` do that. All of them hold for the process, its workers, and every
Python process that they start. They put a package `ray` first on the search path of modules, which makes the
module (`facade`) by a table (`surface`). Where none of them is used, nothing of this is loaded.

What Ray has and sooner has not is an error that names it. An installed Ray is hidden, and never loaded.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from sooner.compat.ray.surface import RAY_VERSION

__all__ = ["RAY_VERSION", "install"]

# Holds the package `ray` and its metadata.
_PACKAGE = str(Path(__file__).parent / "package")


def install() -> None:
    """Have `import ray` give sooner, in this process, its workers, and the Python processes that they start.

    It may be called again. `RAY_ADDRESS` is taken for `SOONER_ADDRESS`, if that is not set.

    Raises:
        RuntimeError: Ray itself has been imported in this process.
    """
    loaded = sys.modules.get("ray")
    place = str(getattr(loaded, "__file__", None))
    if loaded is not None and not place.startswith(_PACKAGE):
        raise RuntimeError(
            f"Ray itself is loaded already, from {place}: call sooner.compat.ray.install() before the first "
            "`import ray`"
        )
    if _PACKAGE not in sys.path:
        # Behind the directory of the script, as an installed package is.
        sys.path.insert(0 if sys.flags.safe_path else 1, _PACKAGE)
    os.environ |= environment(os.environ)


def environment(given: os._Environ[str] | dict[str, str]) -> dict[str, str]:
    """What has the Python processes that start with an environment be Ray, too.

    Args:
        given: The environment.
    """
    entries = [entry for entry in given.get("PYTHONPATH", "").split(os.pathsep) if entry and entry != _PACKAGE]
    found = {"PYTHONPATH": os.pathsep.join([_PACKAGE, *entries]), "SOONER_AS_RAY": "1"}
    address = given.get("RAY_ADDRESS", "")
    # The address of a dashboard is for submitted jobs.
    if address and "SOONER_ADDRESS" not in given and not address.startswith("http"):
        found["SOONER_ADDRESS"] = address
    return found
