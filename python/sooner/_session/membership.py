"""Where nodes of this machine have their directories, and the files that name the clusters they belong to."""

from __future__ import annotations

import os
import stat

# The longest path of a socket (bytes): `sockaddr_un` less the zero at its end.
_SOCKET_PATH_BYTES = 107
# The longest path that nodes use below the directory of all nodes.
_LONGEST_NAME = "session-4194304-0123456789abcdef/node.sock"
# Directories below this are removed when the user logs out, unless the user's programs may linger.
_MADE_BY_LOGIN = "/run/user/"
_LINGER = "/var/lib/systemd/linger"
# How many links are followed on the way to a place: as many as the kernel follows.
_LINKS_MAX = 40


def parent_directory() -> str:
    """The directory with `sooner-<uid>`: SOONER_TMPDIR, else XDG_RUNTIME_DIR if that is safe, else /tmp.

    Raises:
        UntrustedPathError: SOONER_TMPDIR is, or is below, a directory of another user, who decides what is
            there.
    """
    if given := os.environ.get("SOONER_TMPDIR"):
        # A program may have another working directory later.
        given = os.path.abspath(given)
        if stranger := _stranger_on_the_way(given):
            from sooner._session import trust  # start-up: 1.3 ms

            raise trust.foreign(given, *stranger)
        return given
    # A program without a login session (a timer, su) must find the nodes of a program with one.
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"{_MADE_BY_LOGIN}{os.getuid()}"
    return runtime if _is_safe(runtime) else disk_directory()


def disk_directory() -> str:
    """The directory for large files: SOONER_TMPDIR, else /tmp; a runtime directory is small and in memory."""
    return os.environ.get("SOONER_TMPDIR") or "/tmp"  # noqa: S108  what is below is made private and checked


def base_directory(parent: str | None = None) -> str:
    """The directory of this user's nodes and sessions.

    Args:
        parent: The directory that it is in; `parent_directory()` by default.
    """
    return os.path.join(parent or parent_directory(), f"sooner-{os.getuid()}")


def _stranger_on_the_way(place: str) -> tuple[str, int] | None:
    """The first directory or link on the way to a place that is another user's or closed, and its owner."""
    # In a user namespace, root's files may have the number of no user of the namespace.
    trusted = {0, os.getuid(), os.lstat("/").st_uid}
    left, here, links = place.split("/")[::-1], "/", 0
    while left and links <= _LINKS_MAX:
        name = left.pop()
        if name == "..":
            here = os.path.dirname(here)
        if name in ("", ".", ".."):
            continue
        path = os.path.join(here, name)
        try:
            about = os.lstat(path)
            target = os.readlink(path) if stat.S_ISLNK(about.st_mode) else None
        except PermissionError:
            return here, os.lstat(here).st_uid
        except (OSError, ValueError):
            # The error is raised when the place is used.
            return None
        if about.st_uid not in trusted:
            return path, about.st_uid
        if target is None:
            here = path
            continue
        links += 1
        here = "/" if target.startswith("/") else here
        left += target.split("/")[::-1]
    return None


def _is_safe(runtime: str) -> bool:
    """Whether a directory is the user's alone, stays after logout, and is short enough for socket paths."""
    try:
        about = os.lstat(runtime)
    except (OSError, ValueError):
        return False
    longest = os.fsencode(os.path.join(base_directory(runtime), _LONGEST_NAME))
    is_private = stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and not about.st_mode & 0o077
    if not is_private or not os.path.isabs(runtime) or len(longest) > _SOCKET_PATH_BYTES:
        return False
    return not runtime.startswith(_MADE_BY_LOGIN) or _stays_after_logout()


def _stays_after_logout() -> bool:
    import pwd  # start-up: 0.1 ms

    try:
        return os.path.exists(os.path.join(_LINGER, pwd.getpwuid(os.getuid()).pw_name))
    except KeyError:
        return False


def membership(directory: str) -> dict[str, str]:
    """What the node with this directory wrote when it joined its cluster; empty if it is in no cluster.

    Returns:
        "address" and "head" (HOST:PORT: where the node and the head of its cluster listen), "fingerprint" (of
        the cluster) and "token_file". The node of a program has neither address nor file. A file that no node
        would write counts as empty.

    Raises:
        UntrustedPathError: The directory is not this user's alone.
    """
    from sooner._session import trust  # start-up: 1.3 ms

    try:
        opened = trust.open_directory(directory)
    except FileNotFoundError:
        return {}
    try:
        with open(trust.open_file("cluster", opened), errors="replace") as file:
            pairs = (line.rstrip("\n").partition(" ") for line in file)
            told = {key: value for key, _, value in pairs}
    except OSError:
        return {}
    finally:
        os.close(opened)
    return told if "head" in told and "fingerprint" in told else {}


def representative(directories: list[str]) -> str | None:
    """The node to use if none is named: the only node, or the head of the only cluster.

    Args:
        directories: Directories of the nodes of this machine, newest first.

    Returns:
        The node's directory: the newest node's if the head is on another machine. None if there is no node,
        or the nodes are not of one cluster.
    """
    if len(directories) == 1:
        return directories[0]
    belongs = [membership(directory) for directory in directories]
    if not all(belongs) or len({told["fingerprint"] for told in belongs}) != 1:
        return None
    heads = [path for path, told in zip(directories, belongs, strict=True) if told.get("address") == told["head"]]
    return (heads or directories)[0]


def cluster_directory(given: str | None) -> str:
    """Where the head of a cluster on this machine keeps its token and the state that outlives it."""
    return os.path.abspath(given or os.environ.get("SOONER_CLUSTER_DIR") or f"{base_directory()}/cluster")
