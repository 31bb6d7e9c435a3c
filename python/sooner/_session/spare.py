"""Spare descriptors, for importing modules of sooner when the process has no descriptor left.

Much of sooner is imported on first use, above all errors and the code that explains them. A program that has
used up its descriptors would get an `OSError` about a file of sooner instead of the real error.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Iterable
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
    SourcelessFileLoader,
)
from types import ModuleType
from typing import TypeVar

T = TypeVar("T")

# More than one: a connection that waits for a descriptor may take one that is free for a moment.
_SPARES = 3

# Without a lock, as each is taken and put back in one step: any thread may import, and holds import locks.
_spare: list[int] = []
_is_kept = False


def begin() -> None:
    """Keeps spare descriptors from now on, for the modules of this package."""
    global _is_kept
    _is_kept = True
    _keep()
    package = __name__.partition(".")[0]
    if not isinstance(sys.path_importer_cache.get(sys.modules[package].__path__[0]), FileFinder):
        return
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == package:
            _watch(vars(module).get("__path__", ()))


def _watch(places: Iterable[str]) -> None:
    """Lets imports from these directories use the spare descriptors."""
    for place in places:
        if not isinstance(sys.path_importer_cache.get(place), _Finder):
            sys.path_importer_cache[place] = _Finder(
                place,
                (ExtensionFileLoader, EXTENSION_SUFFIXES),
                (_Loader, SOURCE_SUFFIXES),
                (SourcelessFileLoader, BYTECODE_SUFFIXES),
            )


def end() -> None:
    """Closes the spare descriptors: a program keeps nothing open for a session that has ended."""
    global _is_kept
    _is_kept = False
    with contextlib.suppress(IndexError):
        while True:
            os.close(_spare.pop())


def _keep() -> None:
    # Without spares only the better error is lost.
    with contextlib.suppress(OSError):
        while _is_kept and len(_spare) < _SPARES:
            _spare.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


def _with_spare(act: Callable[[], T]) -> T:
    """Calls `act`, which opens files; gives up spare descriptors if it finds no others."""
    try:
        while True:
            try:
                return act()
            except OSError as error:
                if error.errno != errno.EMFILE:
                    raise
                _give_up_one(error)
    finally:
        _keep()


def _give_up_one(error: OSError) -> None:
    try:
        os.close(_spare.pop())
    except IndexError:
        raise explained(error) from None


def explained(error: OSError) -> OSError:
    """The same error; if no descriptor is left, it names the limit of this process."""
    if error.errno != errno.EMFILE:
        return error
    most = os.sysconf("SC_OPEN_MAX")
    why = f"{os.strerror(errno.EMFILE)}. This process may have {most} files open (ulimit -n): raise that"
    return OSError(errno.EMFILE, why, error.filename)


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        # The module's own imports may lack a descriptor, too.
        _with_spare(lambda: super(_Loader, self).exec_module(module))


class _Finder(FileFinder):
    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = _with_spare(lambda: super(_Finder, self).find_spec(fullname, target))
        if spec is not None and spec.submodule_search_locations is not None:
            _watch(spec.submodule_search_locations)
        return spec
