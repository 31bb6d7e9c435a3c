"""Modules that no worker could import although this process has them.

They were loaded from a file that the loader named, as by pytest with `--import-mode=importlib` and by loaders
of plugins. Their functions and classes travel by value, like those of a script. Nothing changes for a module
that a worker can find.
"""

from __future__ import annotations

import os
import sys
from typing import Any

# Names of the module of the program's script. The second is the one in processes that multiprocessing starts
# afresh.
SCRIPT = ("__main__", "__mp_main__")
_known: dict[str, bool] = {}


def note(what: Any) -> None:
    """Makes the module of a function or class travel by value if workers cannot import it."""
    name = getattr(what, "__module__", None)
    if type(name) is not str or name in _known or name in SCRIPT:
        return
    module = sys.modules.get(name)
    if module is None:
        # The module may be being imported.
        return
    _known[name] = _is_unfindable(name, module)
    if _known[name]:
        import cloudpickle.cloudpickle

        cloudpickle.cloudpickle._PICKLE_BY_VALUE_MODULES.add(name)


def module_of(what: Any) -> Any:
    """The module of a function, class or the like, if other processes can import it; None: by value."""
    from cloudpickle.cloudpickle import _is_registered_pickle_by_value

    note(what)
    name = getattr(what, "__module__", None)
    module = sys.modules.get(name) if type(name) is str and name not in SCRIPT else None
    return None if module is None or _is_registered_pickle_by_value(module) else module


def _is_unfindable(name: str, module: Any) -> bool:
    spec = getattr(module, "__spec__", None)
    # Of a module without a file nothing is known.
    return spec is not None and spec.has_location and spec.name == name and not _leads_to(name, spec.origin)


def _leads_to(name: str, origin: str | None) -> bool:
    """Whether another process that imports a module gets the one in the file `origin`, if that is given."""
    above = name.rpartition(".")[0]
    if not above:
        return _finds(name, None, origin)
    package = sys.modules.get(above)
    spec = getattr(package, "__spec__", None)
    if not _leads_to(above, spec.origin if spec is not None and spec.has_location else None):
        return False
    places = getattr(package, "__path__", None)
    return places is None or _finds(name, places, origin)


def _finds(name: str, places: Any, origin: str | None) -> bool:
    """Whether the import system finds a module, and in the file `origin`, if that is given."""
    for finder in list(sys.meta_path):
        find = getattr(finder, "find_spec", None)
        try:
            spec = None if find is None else find(name, places)
            if spec is not None:
                return origin is None or (spec.has_location and os.path.samefile(spec.origin, origin))  # noqa: PTH121
        except Exception:
            # What the finder would find in another process is unknown.
            return True
    return False
