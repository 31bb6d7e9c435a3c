"""How workers of a driver are started: on its own machine, and by nodes on others.

On its own machine a job's template is a program with the driver's interpreter and paths in it. A node elsewhere has
neither: it is told where the driver looks for modules and what it wants imported, and starts its own interpreter
(`docs/adr/0030`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

# Where modules are looked for, what is imported, whether lines of submission are recorded, whether `site` is needed.
Setup = tuple[list[str], list[str], bool, bool]
# Program, code, the standard library, other places, whether `site` is needed.
Interpreter = tuple[str, str, list[str], list[str], bool]

# The template of a driver elsewhere. Its arguments are those of `Interpreter::command` in `sooner-runtime`.
_GUEST = (
    "import sys; a = sys.argv; sys.argv = ['-c', a[-1]]; n = 3 + int(a[2]); sys.path[:] = a[n:-1]; "
    "sys.prefix, sys.exec_prefix = {prefix!r}; from sooner._template import main; main(a[3:n], a[1] == '1', a[-1])"
)


def template_command(preload: Sequence[str], record_call_sites: bool) -> list[str]:
    """Program and arguments of a template on the driver's machine; the node's directory is to be appended."""
    setup = {
        "path": _path(),
        "prefix": (sys.prefix, sys.exec_prefix),
        "preload": list(preload),
        "sites": record_call_sites,
    }
    code = (
        "import sys; s = " + repr(setup) + "; sys.path[:] = s['path']; sys.prefix, sys.exec_prefix = s['prefix']; "
        "from sooner._template import main; main(s['preload'], s['sites'], sys.argv[1])"
    )
    # `site` takes most of an interpreter's start.
    flags = ["-P"] if _needs_site() else ["-S", "-P"]
    return [sys.executable, *flags, "-c", code]


def template_setup(preload: Sequence[str], record_call_sites: bool) -> Setup:
    """What a template on another machine is like. An empty place stands for the standard library, whosever it is."""
    places: list[str] = []
    for entry in _path():
        place = "" if _is_standard(entry) else entry
        if place not in places:
            places.append(place)
    return places, list(preload), record_call_sites, _needs_site()


def interpreter() -> Interpreter:
    """How a node that this process starts runs templates of drivers elsewhere."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    # Where the program lies is put first unless it is safe: of no use to others.
    entries = [os.path.abspath(entry) for entry in sys.path[0 if sys.flags.safe_path else 1 :] if entry]
    standard = [entry for entry in entries if _is_standard(entry)]
    others = [entry for entry in (*entries, package) if not _is_standard(entry)]
    code = _GUEST.format(prefix=(sys.prefix, sys.exec_prefix))
    return sys.executable, code, standard, list(dict.fromkeys(others)), _needs_site()


def _path() -> list[str]:
    return [os.getcwd() if entry == "" else entry for entry in sys.path]


def _is_standard(entry: str) -> bool:
    library = os.path.dirname(os.__file__)
    archive = f"python{sys.version_info.major}{sys.version_info.minor}.zip"
    return entry in (library, os.path.join(library, "lib-dynload")) or os.path.basename(entry) == archive


def _needs_site() -> bool:
    """Whether import hooks of editable installs are needed to find modules."""
    return any("editable" in f"{type(finder).__module__}{finder!r}" for finder in sys.meta_path)
