"""The module `ray` and those in it: each stands for a module of sooner, whose names it has.

They are modules of their own, not those of sooner under a second name: the import system writes into the
modules that it makes. What they give are sooner's very functions and classes. Names are looked up on first
use, so that `import ray` loads no more than `import sooner`.
"""

from __future__ import annotations

import importlib
import importlib.abc
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from sooner.compat.ray.surface import MODULES, NOT_OFFERED, OWN_NAMES

_TABLE = "docs/api-support.md lists what there is"


class Facade(ModuleType):
    """A module of Ray.

    Args:
        name: Its name.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, f"{name}, as sooner has it: {MODULES[name].stands_for}.")
        self.__dict__.update(OWN_NAMES.get(name, {}))

    def __getattr__(self, name: str) -> Any:
        full = f"{self.__name__}.{name}"
        if full in MODULES:
            return importlib.import_module(full)
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        surface = MODULES[self.__name__]
        if surface.names and name not in surface.names:
            raise AttributeError(_missing(full))
        try:
            found = getattr(importlib.import_module(surface.stands_for), surface.aliases.get(name, name))
        except AttributeError as error:
            text = _missing(full) if full in NOT_OFFERED else _reworded(error, full)
            raise AttributeError(text) from None
        self.__dict__[name] = found
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        # Functions that use a module travel to where it is imported.
        return importlib.import_module, (self.__name__,)

    def __dir__(self) -> list[str]:
        surface = MODULES[self.__name__]
        own = [name.removeprefix(f"{self.__name__}.") for name in MODULES if name.startswith(f"{self.__name__}.")]
        there = surface.names or dir(importlib.import_module(surface.stands_for))
        return sorted({*self.__dict__, *there, *surface.aliases, *(name for name in own if "." not in name)})


class CallableFacade(Facade):
    """A module of Ray that shares its name with a function, and can be called like it."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        return getattr(self, self.__name__.rpartition(".")[2])(*args, **kwargs)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules in `ray`, and makes them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module, if it is one of Ray's.

        Raises:
            ModuleNotFoundError: Ray has it, or may have it, and sooner has not.
        """
        if not fullname.startswith("ray."):
            return None
        if fullname not in MODULES:
            # Without the name of the module: `from ray import tune` would drop the text.
            raise ModuleNotFoundError(_missing(fullname))
        # As if others could be in it: then `from it import name` asks here, and the error names what is
        # missing.
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """An empty module: names come when they are asked for."""
        return _made(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is left to do."""


def become(package: ModuleType) -> None:
    """Put the facade in the place of the package `ray`, which is being imported.

    Args:
        package: The package.
    """
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())
    made = _made("ray")
    made.__spec__, made.__loader__, made.__file__ = package.__spec__, package.__loader__, package.__file__
    # What lies beside this file is no module of Ray.
    made.__package__, made.__path__ = "ray", []
    sys.modules["ray"] = made


def _made(name: str) -> Facade:
    return (CallableFacade if MODULES[name].is_callable else Facade)(name)


def _missing(full: str) -> str:
    """What to say of a name that sooner does not have."""
    parts = full.split(".")
    outer = (".".join(parts[:length]) for length in range(len(parts), 1, -1))
    why = next((NOT_OFFERED[name] for name in outer if name in NOT_OFFERED), "")
    return f"sooner has no {full}{f': {why}' if why else ''}; {_TABLE}"


def _reworded(error: AttributeError, full: str) -> str:
    """What sooner says of a name that it does not have, or that there is none."""
    _, _, why = str(error).partition("does not have ")
    return f"sooner has no {full}: {why}; {_TABLE}" if why else f"sooner has no {full}; {_TABLE}"
