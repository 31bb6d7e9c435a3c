"""`python -m sooner.compat.ray script.py ARGS`: runs a program for Ray on sooner.

The process becomes one that runs the program as `python script.py ARGS` does, with the same options of the
interpreter, so that nothing of this is in its way.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import NoReturn

from sooner.compat.ray import environment

_USAGE = "usage: python -m sooner.compat.ray (SCRIPT | -m MODULE | -c CODE | -) [ARGUMENT ...]"


def main(given: list[str]) -> NoReturn:
    """Run the program that the arguments name."""
    if not given or given[0] in ("-h", "--help") or given in (["-m"], ["-c"]):
        print(_USAGE, file=sys.stdout if given[:1] in (["-h"], ["--help"]) else sys.stderr)
        sys.exit(0 if given[:1] in (["-h"], ["--help"]) else 2)
    if sys.flags.ignore_environment:
        # Isolated, too: nobody would see the search path.
        print("python -m sooner.compat.ray: does not work with Python's options -E and -I", file=sys.stderr)
        sys.exit(2)
    sys.stdout.flush()
    options = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    os.execve(  # noqa: S606  a program without a shell is what is wanted
        sys.executable, [sys.executable, *options, *given], {**os.environ, **environment(os.environ)}
    )


if __name__ == "__main__":
    main(sys.argv[1:])
