"""State of the program that its workers follow: environment, working directory, the mask for new files,
`sys.path`, `sys.argv`, the key of `multiprocessing` (`docs/adr/0075`).

The program sends the difference to the state that workers begin with, as bytes in front of code. A worker
takes it over. A change is recorded where it is made; nothing is compared with each call.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import Any

from sooner import _sooner
from sooner._engine import tidying
from sooner._engine.settings import umask
from sooner._engine.tidying import noted
from sooner._session import launch


class _Base:
    """The state that workers begin with, or would begin with if the session were the program's own."""

    def __init__(self) -> None:
        self.environment = dict(os.environ)
        self.directory = launch.directory()
        self.umask = _umask()
        self.path = launch.entries(sys.path)
        self.arguments = launch.arguments()


_base: _Base | None = None
# Whether workers begin on a node of the program's own, so that only changes must be sent.
_is_host = False
_is_hooked = False
# In a worker: the state that it has taken over. What modules have set since, while they were imported, stays
# until the program itself sets another value.
_followed: dict[str, str | None] = {}
_directory = ""
_mask: int | None = None
_path: list[str] = []
# Whether the node is on another machine.
is_guest = False
# Places that were not used since they are not safe, and were reported.
_named: set[str] = set()


def begin(is_host: bool) -> None:
    """In the program, when a session starts: its workers begin with the present state."""
    global _base, _is_host
    _base = _Base()
    _is_host = is_host
    _hook()
    _sooner.program_changed()


def begin_worker(guest: bool, path: list[str]) -> None:
    """In the template: its workers begin with the present state.

    Args:
        guest: Whether the program is on another machine.
        path: `sys.path` before modules were imported, which may have added entries of their own.
    """
    global _base, _directory, _mask, _path, is_guest
    _base = _Base()
    _base.path = path
    _directory, _mask, _path = _base.directory, _base.umask, path
    is_guest = guest


def _hook() -> None:
    """Makes the functions that change the state record it. `os.environ` calls the first two."""
    global _is_hooked
    if not _is_hooked:
        _is_hooked = True
        for name in ("putenv", "unsetenv", "chdir", "fchdir", "umask"):
            setattr(os, name, noted(getattr(os, name), after=_sooner.program_changed))


def state() -> bytes:
    """In the program: the difference to the state that workers begin with; empty if there is none."""
    if _base is None:
        return b""
    found: dict[str, Any] = {}
    now = dict(os.environ)
    if now != _base.environment:
        changed = {name: now.get(name) for name in sorted({*now, *_base.environment})}
        found["environment"] = {
            name: value
            for name, value in changed.items()
            # The token is for this program alone.
            if value != _base.environment.get(name) and name != "SOONER_TOKEN"
        }
    directory = launch.directory()
    if directory and directory != _base.directory:
        found["directory"] = directory
    mask = _umask()
    if mask is not None and (mask != _base.umask or not _is_host):
        found["umask"] = mask
    # An empty entry is the working directory, wherever that is by now.
    entries = launch.entries(sys.path)
    if entries != _base.path or ("directory" in found and "" in entries):
        path = launch.places()
        found["path"] = path, [entry for entry in path if entry not in _base.path]
    if not _is_host or sys.argv != _base.arguments:
        found["arguments"] = [str(argument) for argument in sys.argv]
    process = sys.modules.get("multiprocessing.process")
    if process is not None:
        found["key"] = bytes(process.current_process().authkey)
    if not found:
        return b""
    import pickle  # start-up: 3.0 ms

    return pickle.dumps(found, 5)


def follow(data: bytes) -> None:
    """In a worker: takes over the state, and undoes earlier changes that the program has taken back."""
    with tidying.paused():
        _follow(data)


def _follow(data: bytes) -> None:
    global _directory, _mask
    assert _base is not None
    import pickle  # start-up: 3.0 ms

    from sooner._engine import worker  # start-up: 41.4 ms

    new: dict[str, Any] = pickle.loads(data) if data else {}
    environment = new.get("environment", {})
    for name in set(_followed) - set(environment):
        _set(name, _base.environment.get(name))
    for name, value in environment.items():
        if name not in _followed or _followed[name] != value:
            _set(name, value)
    _followed.clear()
    _followed.update(environment)
    place = new.get("directory", _base.directory)
    if place and place != _directory:
        may_enter = place == _base.directory or _is_safe(place, is_directory=True)
        with contextlib.suppress(OSError):
            os.chdir(place if may_enter else worker.session_directory)
            _directory = place
    if is_guest and "path" in new:
        # Relative entries are made absolute, so that they stay the same when a task changes the directory.
        new["path"] = [[os.path.join(place, entry) for entry in entries] for entries in new["path"]]
    mask = new.get("umask", _base.umask)
    if mask is not None and mask != _mask:
        os.umask(mask)
        _mask = mask
    _follow_path(*new.get("path", (_base.path, [])))
    sys.argv[:] = new.get("arguments", _base.arguments)
    if "key" in new:
        from multiprocessing import process  # start-up: 10.6 ms

        process.current_process().authkey = new["key"]


def _set(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
    if name == "TZ":
        time.tzset()


def _follow_path(path: list[str], added: list[str]) -> None:
    """Sets `sys.path` in the program's order. Only entries in `added` can be new to this interpreter."""
    global _path
    assert _base is not None
    wanted = [entry for entry in path if entry in _base.path or (entry in added and _is_safe(entry))]
    # On another machine the interpreter has places that the program's has not.
    wanted += [entry for entry in _base.path if entry not in wanted and is_guest]
    found, at = list(wanted), 0
    for entry in sys.path:
        if entry in wanted:
            at = found.index(entry) + 1
        elif entry not in _path:
            # A module has added the entry for itself: it stays behind the entry before it.
            found.insert(at, entry)
            at += 1
    _path = wanted
    if sys.path != found:
        sys.path[:] = found


def _is_safe(entry: str, is_directory: bool = False) -> bool:
    """Whether modules may be looked for in a place: on another machine it may be another user's, or missing.

    This concerns the working directory, too: programs that a task starts may look for modules there.
    """
    if not is_guest:
        return True
    try:
        why = _sooner.strangers_at(entry)
    except OSError:
        return False
    if why is not None and entry not in _named:
        _named.add(entry)
        place = f"{entry} ({why})"
        if is_directory:
            place = f"the working directory {entry} ({why}; workers go to the node's instead)"
        print(
            f"sooner: on {os.uname().nodename} modules are not looked for in {place}, where the program looks on its "
            "own machine: others could put theirs there",
            file=sys.stderr,
        )
    return why is None


def _umask() -> int | None:
    try:
        return umask()
    except OSError:
        return None
