"""Which sessions of this user run on this machine, and which of them an address means."""

from __future__ import annotations

import os

from sooner._session import trust
from sooner._session.membership import base_directory, representative


class NoSessionError(ConnectionError):
    """There is no session to ask, or several to choose from."""


def running_sessions(base: str | None = None) -> list[str]:
    """The directories of running sessions, newest first: programs with nodes of their own, and nodes.

    Args:
        base: The directory to look in; that of this user's sessions by default.

    Raises:
        UntrustedPathError: That directory, or one in it, is not this user's alone.
        OSError: The directory cannot be read.
    """
    base = base or base_directory()
    try:
        opened = trust.open_directory(base)
    except FileNotFoundError:
        return []
    try:
        names = [name for name in os.listdir(opened) if name.startswith(("session-", "node-"))]
        locked = [(_locked_since(os.path.join(base, name), opened), os.path.join(base, name)) for name in names]
    finally:
        os.close(opened)
    return [path for _, path in sorted((one for one in locked if one[0] is not None), reverse=True)]


def _locked_since(path: str, within: int) -> float | None:
    """When the lock of a running session was made; None if the session does not run.

    Args:
        path: The session's directory.
        within: Descriptor of the directory of all sessions.
    """
    import fcntl  # start-up: 0.4 ms

    try:
        directory = trust.open_directory(path, within)
    except FileNotFoundError:
        return None
    try:
        lock = trust.open_file("lock", directory)
    except OSError:
        return None
    finally:
        os.close(directory)
    try:
        # The node holds the lock for as long as it lives.
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return os.fstat(lock).st_mtime
    else:
        return None
    finally:
        os.close(lock)


def running_nodes(base: str | None = None) -> list[str]:
    """The directories of this user's nodes that `sooner start` started, newest first."""
    return [path for path in running_sessions(base) if _is_kind(path, "node-")]


def _is_kind(path: str, *prefixes: str) -> bool:
    return path.rpartition("/")[2].startswith(prefixes)


def choose_session(address: str | None) -> str:
    """The directory of the session that is meant.

    Raises:
        NoSessionError: No session runs, several run, or the one that is named does not.
        UntrustedPathError: The session's directory is another user's.
    """
    running = running_sessions()
    if address is not None:
        path = address.rstrip("/")
        matching = [one for one in running if path in (one, one.rpartition("/")[2])]
        if matching:
            return matching[0]
        if os.path.lexists(os.path.join(path, "node.sock")):
            os.close(trust.open_directory(path))
            return path
        raise NoSessionError(f"no session runs in {address}. Running: {', '.join(running) or 'none'}")
    if not running:
        raise NoSessionError(
            f"no program of yours runs sooner (looked in {base_directory()}; SOONER_TMPDIR sets where)"
        )
    # Nodes go before programs with nodes of their own, which must be named to be looked at.
    if chosen := representative(running_nodes()):
        return chosen
    if len(running) > 1:
        raise NoSessionError("several sooner programs run; choose one of: " + " ".join(running))
    return running[0]
