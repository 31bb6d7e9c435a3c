"""Closed by default: no network, private files, and a node that strangers cannot harm."""

from __future__ import annotations

import os
import pickle
import socket
import stat
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from support import WAIT, children_of, network_sockets_of, poll, run_driver, sockets_of

import sooner

pytestmark = pytest.mark.usefixtures("shared_session")


@sooner.remote
def identity(value):
    return value


@sooner.remote
class Actor:
    def pid(self):
        return os.getpid()


@pytest.fixture
def directory(shared_session):
    """The session's directory."""
    return Path(shared_session["session_dir"])


@pytest.fixture
def node(directory):
    """Connects to the node like a program of the same user that is no part of the session."""
    opened = []

    def connect():
        stranger = socket.socket(socket.AF_UNIX)
        opened.append(stranger)
        stranger.settimeout(WAIT)
        stranger.connect(str(directory / "node.sock"))
        return stranger

    yield connect
    for stranger in opened:
        stranger.close()


def still_works():
    assert sooner.get([identity.remote(n) for n in range(10)], timeout=WAIT) == list(range(10))
    assert sooner.get(Actor.remote().pid.remote(), timeout=WAIT) != os.getpid()


def processes():
    return {os.getpid(), *children_of(os.getpid())}


@pytest.mark.api("own.closed")
def test_no_process_has_an_internet_socket():
    actor = Actor.remote()
    sooner.get([actor.pid.remote(), identity.remote(1)], timeout=WAIT)
    # Descriptors the tests themselves have are none of sooner's business; there are none with a network.
    for pid in processes():
        assert not network_sockets_of(pid), pid


@pytest.mark.api("own.closed")
def test_listening_sockets_lie_in_the_private_directory(directory):
    """No abstract name either: those have no mode."""
    ours = set().union(*(sockets_of(pid) for pid in processes()))
    listening = []
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split(maxsplit=7)
        is_listening = int(fields[3], 16) & 0x10000
        if fields[6] in ours and is_listening:
            listening.append(fields[7] if len(fields) > 7 else "")
    assert str(directory / "node.sock") in listening
    assert all(path.startswith(f"{directory}/") for path in listening)


@pytest.mark.api("own.closed")
def test_modes(directory):
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((directory / "logs").stat().st_mode) == 0o700
    assert stat.S_IMODE((directory / "node.sock").stat().st_mode) == 0o600
    assert stat.S_IMODE(directory.parent.stat().st_mode) == 0o700
    for path in (directory, *directory.rglob("*")):
        assert path.stat().st_uid == os.getuid()


def test_modes_do_not_depend_on_the_umask():
    done = run_driver(
        """
        import os, sooner
        directory = sooner.init(num_cpus=1)["session_dir"]
        print(*[oct(os.stat(directory + name).st_mode & 0o777) for name in ("", "/logs", "/node.sock")])
        sooner.shutdown()
        """,
        preexec_fn=lambda: os.umask(0),
    )
    assert done.stdout == "0o700 0o700 0o600\n"


def test_a_symbolic_link_is_not_followed(short_dir):
    """Whoever plants a link where the directory should be does not choose where it goes."""
    elsewhere = short_dir / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (short_dir / f"sooner-{os.getuid()}").symlink_to(elsewhere)
    done = run_driver(
        "import sooner; sooner.init(num_cpus=1)", check=False, env=os.environ | {"SOONER_TMPDIR": str(short_dir)}
    )
    assert done.returncode == 1
    assert "SOONER_TMPDIR" in done.stderr
    assert not list(elsewhere.iterdir())


GARBAGE = {
    "nothing": b"",
    "one byte": b"\0",
    "text": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "zeros": b"\0" * 4096,
    "ones": b"\xff" * 4096,
    "huge length": struct.pack("<I", 0xFFFF_FFFF) + b"x",
    "huge length, wide": struct.pack("<Q", 0xFFFF_FFFF_FFFF_FFFF) + b"x",
    "negative length": struct.pack("<i", -1),
    "big endian length": struct.pack(">I", 16) + b"y" * 16,
    "half a frame": struct.pack("<I", 100) + b"z" * 10,
    "a megabyte": bytes(range(256)) * 4096,
}


@pytest.mark.parametrize("what", GARBAGE)
def test_garbage_ends_only_its_own_connection(node, what):
    stranger = node()
    try:
        stranger.sendall(GARBAGE[what])
        stranger.shutdown(socket.SHUT_WR)
        while stranger.recv(65536):
            pass
    except (BrokenPipeError, ConnectionResetError):
        # Being thrown out is as good as an orderly end.
        pass
    still_works()


def test_frames_of_every_kind_are_refused_before_a_greeting(node):
    for kind in range(256):
        stranger = node()
        for body in (bytes([kind]) + b"\0" * 31, bytes(7) + bytes([kind]) + b"\xff" * 24):
            try:
                stranger.sendall(struct.pack("<I", len(body)) + body)
            except (BrokenPipeError, ConnectionResetError):
                break
        stranger.close()
    still_works()


def test_a_pickle_is_not_loaded(node, tmp_path):
    mark = tmp_path / "mark"

    class Bomb:
        def __reduce__(self):
            return Path.touch, (mark,)

    payload = pickle.dumps(Bomb())
    for prefix in (b"", struct.pack("<I", len(payload)), struct.pack("<Q", len(payload))):
        stranger = node()
        try:
            stranger.sendall(prefix + payload)
            stranger.shutdown(socket.SHUT_WR)
            while stranger.recv(65536):
                pass
        except (BrokenPipeError, ConnectionResetError):
            pass
    still_works()
    assert not mark.exists()


def test_strangers_that_say_nothing_hold_nobody_up(node):
    strangers = [node() for _ in range(100)]
    still_works()
    del strangers


def test_a_stranger_that_says_it_byte_by_byte(node):
    stranger = node()
    for byte in b"\x10\0\0\0slowly":
        try:
            stranger.send(bytes([byte]))
        except (BrokenPipeError, ConnectionResetError):
            break
        assert sooner.get(identity.remote(1), timeout=WAIT) == 1


def test_the_descriptors_of_strangers_are_closed(node):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        node().close()
    still_works()
    poll("their descriptors are closed", lambda: len(os.listdir("/proc/self/fd")) <= before + 2)


@pytest.mark.skipif(os.getuid() != 0, reason="becoming another user needs root")
def test_another_user_is_refused(directory):
    """By the directory's mode, and where somebody opened that, by the credentials of the connection."""
    code = f"""
import os, socket
os.setgroups([]); os.setgid(65534); os.setuid(65534)
stranger = socket.socket(socket.AF_UNIX)
stranger.settimeout({WAIT})
try:
    stranger.connect({str(directory / "node.sock")!r})
    stranger.sendall(b"hello")
    print("closed" if stranger.recv(100) == b"" else "served")
except PermissionError:
    print("refused")
except (BrokenPipeError, ConnectionResetError):
    print("closed")
"""

    def attempt():
        done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert attempt() == "refused"
    paths = [directory.parent, directory, directory / "node.sock"]
    modes = [stat.S_IMODE(path.stat().st_mode) for path in paths]
    try:
        for path in paths:
            path.chmod(0o777)
        assert attempt() == "closed"
    finally:
        for path, mode in zip(paths, modes, strict=True):
            path.chmod(mode)
    still_works()


def test_workers_do_not_inherit_descriptors_of_the_driver():
    done = run_driver(
        """
        import os, tempfile, sooner
        secret = tempfile.NamedTemporaryFile(prefix="secret-")
        os.set_inheritable(secret.fileno(), True)
        sooner.init(num_cpus=1)
        @sooner.remote
        def links():
            found = []
            for name in os.listdir("/proc/self/fd"):
                try:
                    found.append(os.readlink(f"/proc/self/fd/{name}"))
                except FileNotFoundError:
                    pass
            return found
        assert not [link for link in sooner.get(links.remote(), timeout=60) if "secret-" in link]
        sooner.shutdown()
        print("closed")
        """
    )
    assert done.stdout == "closed\n"


def test_children_of_the_driver_do_not_inherit_descriptors_of_sooner():
    done = subprocess.run(["ls", "-l", "/proc/self/fd"], close_fds=False, capture_output=True, text=True, check=True)
    assert "sooner" not in done.stdout


def test_shared_memory_has_no_name_and_cannot_be_shrunk():
    @sooner.remote
    def attack():
        tried = 0
        for name in os.listdir("/proc/self/fd"):
            try:
                link = os.readlink(f"/proc/self/fd/{name}")
            except FileNotFoundError:
                continue
            if "memfd:sooner" in link:
                tried += 1
                with pytest.raises(OSError, match=r"not permitted|bad file|Invalid"):
                    os.ftruncate(int(name), 0)
        return tried, Path("/proc/self/maps").read_text()

    ref = sooner.put(b"x" * (1 << 20))
    tried, maps = sooner.get(attack.remote(), timeout=WAIT)
    assert "memfd:sooner" in maps
    assert "/dev/shm" not in maps
    assert sooner.get(ref) == b"x" * (1 << 20)
    assert tried >= 0


def test_writing_through_a_pointer_cannot_change_an_object():
    """A reader's mapping is read-only: a task that writes dies, and the value stays."""

    @sooner.remote(max_retries=0)
    def force(value):
        import ctypes

        ctypes.memset(value.ctypes.data, 7, 8)

    np = pytest.importorskip("numpy")
    ref = sooner.put(np.zeros(1 << 20, dtype=np.uint8))
    with pytest.raises(sooner.exceptions.WorkerCrashedError):
        sooner.get(force.remote(ref), timeout=WAIT)
    assert not sooner.get(ref).any()
