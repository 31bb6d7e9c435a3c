"""Which sessions of this user run on this machine, and which of them is meant."""

from __future__ import annotations

import os

from sooner._membership import base_directory, representative


class NoSessionError(ConnectionError):
    """There is no session to ask, or several to choose from."""


def running_sessions(base: str | None = None) -> list[str]:
    """The directories of running sessions, newest first: programs with nodes of their own, and nodes.

    Args:
        base: Where to look; where this user's are by default.
    """
    import fcntl

    found = []
    base = base or base_directory()
    try:
        names = os.listdir(base)
    except OSError:
        return []
    for name in names:
        path = os.path.join(base, name)
        try:
            lock = os.open(os.path.join(path, "lock"), os.O_RDONLY)
        except OSError:
            continue
        try:
            # The driver holds it for as long as it lives.
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            found.append((os.fstat(lock).st_mtime, path))
        finally:
            os.close(lock)
    return [path for _, path in sorted(found, reverse=True) if _is_kind(path, "session-", "node-")]


def running_nodes(base: str | None = None) -> list[str]:
    """The directories of this user's nodes that `sooner start` started, newest first."""
    return [path for path in running_sessions(base) if _is_kind(path, "node-")]


def _is_kind(path: str, *prefixes: str) -> bool:
    return path.rpartition("/")[2].startswith(prefixes)


def choose_session(address: str | None) -> str:
    """The directory of the session that is meant.

    Raises:
        NoSessionError: None runs, several run, or the one that is named does not.
    """
    running = running_sessions()
    if address is not None:
        path = address.rstrip("/")
        matching = [one for one in running if path in (one, one.rpartition("/")[2])]
        if matching or os.path.exists(os.path.join(path, "node.sock")):
            return matching[0] if matching else path
        raise NoSessionError(f"no session runs in {address}. Running: {', '.join(running) or 'none'}")
    if not running:
        raise NoSessionError(
            f"no sooner program of yours runs (looked in {base_directory()}; SOONER_TMPDIR sets where)"
        )
    # Programs beside nodes have nodes of their own, and are named to be looked at.
    if chosen := representative(running_nodes()):
        return chosen
    if len(running) > 1:
        raise NoSessionError("several sooner programs run; choose one of: " + " ".join(running))
    return running[0]
