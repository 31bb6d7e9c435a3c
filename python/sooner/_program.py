"""State of the program that its workers follow: environment, working directory, the mask for new files, `sys.path`,
`sys.argv`, the key of `multiprocessing` (`docs/adr/0075`).

In the program: what differs from what workers begin with, as bytes that travel in front of code. In a worker: taking
them over. That something has changed is noted where it is set; nothing is looked at with each call.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

from sooner import _launch, _sooner
from sooner._settings import umask
from sooner._tidying import noted


class _Base:
    """What workers begin with, or, elsewhere than in the program's own session, what they would."""

    def __init__(self) -> None:
        self.environment = dict(os.environ)
        self.directory = _directory()
        self.umask = _umask()
        self.path = list(sys.path)
        self.arguments = _launch.arguments()


_base: _Base | None = None
# Whether workers begin on a node of the program's, so that only changes must be told.
_is_host = False
_is_hooked = False
# In a worker: names of the environment that the program has changed, and whether its node is on another machine.
_followed: set[str] = set()
is_guest = False


def begin(is_host: bool) -> None:
    """In the program: a session starts, and with it workers that begin with the state as it is now."""
    global _base, _is_host
    _base = _Base()
    _is_host = is_host
    _hook()
    _sooner.program_changed()


def begin_worker(guest: bool) -> None:
    """In the template: its workers begin with the state as it is now."""
    global _base, is_guest
    _base = _Base()
    is_guest = guest


def _hook() -> None:
    """What sets something of it says so. `os.environ` calls the first two."""
    global _is_hooked
    if not _is_hooked:
        _is_hooked = True
        for name in ("putenv", "unsetenv", "chdir", "fchdir", "umask"):
            setattr(os, name, noted(getattr(os, name), after=_sooner.program_changed))


def state() -> bytes:
    """In the program: what differs from what workers begin with; empty if nothing does."""
    if _base is None:
        return b""
    found: dict[str, Any] = {}
    now = dict(os.environ)
    if now != _base.environment:
        changed = {name: now.get(name) for name in sorted({*now, *_base.environment})}
        found["environment"] = {
            name: value
            for name, value in changed.items()
            # It is for this program alone.
            if value != _base.environment.get(name) and name != "SOONER_TOKEN"
        }
    directory = _directory()
    if directory and directory != _base.directory:
        found["directory"] = directory
    mask = _umask()
    if mask is not None and (mask != _base.umask or not _is_host):
        found["umask"] = mask
    # An empty entry is the working directory, wherever that is by now.
    if sys.path != _base.path or ("directory" in found and "" in sys.path):
        path = [_directory() if entry == "" else entry for entry in sys.path]
        found["path"] = path, [entry for entry in path if entry not in _base.path]
    if not _is_host or sys.argv != _base.arguments:
        found["arguments"] = [str(argument) for argument in sys.argv]
    process = sys.modules.get("multiprocessing.process")
    if process is not None:
        found["key"] = bytes(process.current_process().authkey)
    if not found:
        return b""
    import pickle

    return pickle.dumps(found, 5)


def follow(data: bytes) -> None:
    """In a worker: takes over the state, also what it has had to take over before and the program has taken back."""
    from sooner import _tidying

    with _tidying.paused():
        _follow(data)


def _follow(data: bytes) -> None:
    assert _base is not None
    import pickle

    new: dict[str, Any] = pickle.loads(data) if data else {}
    environment = new.get("environment", {})
    for name in _followed - set(environment):
        _set(name, _base.environment.get(name))
    for name, value in environment.items():
        _set(name, value)
    _followed.clear()
    _followed.update(environment)
    if (place := new.get("directory", _base.directory)) and place != _directory():
        # On another machine it need not exist; the worker stays where it is.
        with contextlib.suppress(OSError):
            os.chdir(place)
    mask = new.get("umask", _base.umask)
    if mask is not None:
        os.umask(mask)
    _follow_path(*new.get("path", (_base.path, [])))
    sys.argv[:] = new.get("arguments", _base.arguments)
    if "key" in new:
        from multiprocessing import process

        process.current_process().authkey = new["key"]


def _set(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
    if name == "TZ":
        import time

        time.tzset()


def _follow_path(path: list[str], added: list[str]) -> None:
    """The order is the program's. Of its places only those that it has added are new to this interpreter."""
    assert _base is not None
    wanted = [entry for entry in path if entry in _base.path or (entry in added and _is_safe(entry))]
    # Elsewhere the interpreter has places that the program's has not.
    own = [entry for entry in _base.path if entry not in wanted and is_guest]
    if sys.path != wanted + own:
        sys.path[:] = wanted + own


def _is_safe(entry: str) -> bool:
    """Whether modules may be looked for there. On another machine the name may belong to somebody else."""
    if not is_guest:
        return True
    try:
        return _sooner.strangers_at(entry) is None
    except OSError:
        return False


def _umask() -> int | None:
    try:
        return umask()
    except OSError:
        return None


def _directory() -> str:
    try:
        return os.getcwd()
    except OSError:
        # It was removed.
        return ""
