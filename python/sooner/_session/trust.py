"""Checks that directories and sockets are this user's: another user of this machine may have made them.

A directory is opened without following a link, and its owner and mode are read from the descriptor. All
further steps begin at that descriptor, since another directory may have the name by then. The kernel tells
which process is behind a socket. (`sooner-runtime/src/private.rs` is the same for the engine.)
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a pipe would block.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_directory(path: str, within: int | None = None) -> int:
    """Opens a directory that is this user's alone. Returns its descriptor.

    Args:
        path: The directory's path.
        within: Descriptor of the directory that it is in, if that is open.

    Raises:
        UntrustedPathError: The directory is not this user's alone.
        OSError: The directory cannot be opened, or is not there.
    """
    name = path if within is None else path.rpartition("/")[2]
    try:
        opened = os.open(name, _DIRECTORY, dir_fd=within)
    except NotADirectoryError:
        raise _refusal(path, os.stat(name, dir_fd=within, follow_symlinks=False)) from None
    except PermissionError:
        try:
            about = os.stat(name, dir_fd=within, follow_symlinks=False)
        except PermissionError:
            raise _closed(path) from None
        if about.st_uid == os.getuid():
            raise
        raise _refusal(path, about) from None
    except OSError as error:
        raise _explained(error) from None
    about = os.fstat(opened)
    if about.st_uid == os.getuid() and not about.st_mode & 0o077:
        return opened
    os.close(opened)
    raise _refusal(path, about)


def open_file(name: str, within: int) -> int:
    """Opens a file in a directory of this user for reading. Returns its descriptor."""
    try:
        return os.open(name, _FILE, dir_fd=within)
    except OSError as error:
        raise _explained(error) from None


def _explained(error: OSError) -> OSError:
    from sooner._session import spare  # start-up: 1.3 ms

    return spare.explained(error)


def connect(directory: str, name: str = "node.sock", timeout: float = 5) -> socket.socket:
    """Connects to a socket in a directory that is this user's alone, if a process of this user listens there.

    Args:
        directory: The directory.
        name: Of the socket.
        timeout: How long it may take, when many connections wait to be accepted (seconds).

    Raises:
        UntrustedPathError: The directory, or the process, is another user's.
        OSError: No process listens there.
    """
    import socket  # start-up: 4.2 ms

    opened = open_directory(directory)
    try:
        try:
            connection = socket.socket(socket.AF_UNIX)
        except OSError as error:
            raise _explained(error) from None
        try:
            connection.settimeout(timeout)
            connection.connect(f"/proc/self/fd/{opened}/{name}")
            check_peer(connection, f"{directory}/{name}")
        except BaseException:
            connection.close()
            raise
    finally:
        os.close(opened)
    return connection


def check_peer(connection: socket.socket, place: str) -> int:
    """The id of the process at the other end of a Unix socket, if it is a process of this user.

    Raises:
        UntrustedPathError: It is another user's process.
    """
    pid, uid = peer_of(connection)
    if uid != os.getuid():
        raise _untrusted(place, f"a process of {_user(uid)} listens there")
    return pid


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Process and user id at the other end of a Unix socket: of the process that connected or listened."""
    import socket  # start-up: 4.2 ms
    import struct  # start-up: 0.7 ms

    size = struct.calcsize("3i")
    pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return pid, uid


def _refusal(path: str, about: os.stat_result) -> Exception:
    owner = _user(about.st_uid)
    if stat.S_ISLNK(about.st_mode):
        return _untrusted(path, f"it is a link, made by {owner}")
    if not stat.S_ISDIR(about.st_mode):
        return _untrusted(path, f"it is no directory, and belongs to {owner}")
    if about.st_uid != os.getuid():
        return _untrusted(path, f"it belongs to {owner}")
    return _untrusted(path, f"its mode is {stat.S_IMODE(about.st_mode):04o}, so others may enter it")


def _closed(path: str) -> Exception:
    """The error for a place of which not even its kind can be seen."""
    above = path
    while not os.path.lexists(above):
        above = above.rpartition("/")[0] or "/"
    owner = _user(os.lstat(above).st_uid)
    return _untrusted(path, f"it is below {above}, which belongs to {owner} and is closed to you")


def foreign(place: str, path: str, uid: int) -> Exception:
    """The error of a place that SOONER_TMPDIR names.

    Args:
        place: The place that it names.
        path: The directory or link of another user on the way there.
        uid: That user's id.
    """
    from sooner.exceptions import UntrustedPathError  # start-up: 5.5 ms

    fault = "who decides what is there" if os.access(path, os.X_OK) else "and is closed to you"
    return UntrustedPathError(
        f"SOONER_TMPDIR={place}: {path} belongs to {_user(uid)}, {fault}. Set it to a directory of yours"
    )


def _untrusted(path: str, fault: str) -> Exception:
    from sooner.exceptions import UntrustedPathError  # start-up: 5.5 ms

    return UntrustedPathError(
        f"{path}: {fault}. sooner uses only what is yours and closed to others (mode 0700, no link): remove it, or set "
        "SOONER_TMPDIR to a directory of yours"
    )


def _user(uid: int) -> str:
    import pwd  # start-up: 0.1 ms

    try:
        return f"user {pwd.getpwuid(uid).pw_name} ({uid})"
    except KeyError:
        return f"user {uid}"
