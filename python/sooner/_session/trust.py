"""What belongs to this user: directories and sockets that another user of this machine may have made in our
    stead.

A directory is opened without following a link, and its owner and mode are those of what was opened; all
further steps begin at that descriptor, since another directory may have its name by then. The process
behind a socket is who the kernel says it is. (`sooner-runtime/src/private.rs` is the same for the engine.)
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A pipe would keep whoever opens it waiting.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_directory(path: str, within: int | None = None) -> int:
    """Opens a directory that is this user's alone. Gives its descriptor.

    Args:
        path: Where it is.
        within: Descriptor of the directory that it is in, if that is open.

    Raises:
        UntrustedPathError: It is not.
        OSError: It cannot be opened, or is not there.
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
    """Opens a file for reading, that is in a directory of this user's. Gives its descriptor."""
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
        timeout: How long it may take, when many wait to be taken (seconds).

    Raises:
        UntrustedPathError: The directory, or the process, is another's.
        OSError: Nobody listens there.
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
    """The process id of whoever is at the other end of a Unix socket, if it is a process of this user.

    Raises:
        UntrustedPathError: It is not.
    """
    pid, uid = peer_of(connection)
    if uid != os.getuid():
        raise _untrusted(place, f"a process of {_user(uid)} listens there")
    return pid


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Process and user id at the other end of a Unix socket: of whoever connected, or began to listen."""
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
    """Not even what stands there can be seen."""
    above = path
    while not os.path.lexists(above):
        above = above.rpartition("/")[0] or "/"
    owner = _user(os.lstat(above).st_uid)
    return _untrusted(path, f"it is below {above}, which belongs to {owner} and is closed to you")


def foreign(place: str, path: str, uid: int) -> Exception:
    """The error of a place that SOONER_TMPDIR names.

    Args:
        place: What it names.
        path: What belongs to somebody else on the way there.
        uid: Whose that is.
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
