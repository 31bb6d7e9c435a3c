"""Other users of the machine: what they put where ours is looked for is neither asked nor ended nor
imported.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import WAIT, Node, is_alive, poll, run_command, run_driver, stop

import sooner
from sooner._cli import nodes as _cli_nodes
from sooner._session import address as _address
from sooner._session import membership, resources, sessions, trust
from sooner.exceptions import SoonerError, UntrustedPathError
from sooner.util import state

STRANGER = 65534
is_root = pytest.mark.skipif(os.getuid() != 0, reason="acting as another user needs root")

# Every way to ask for a node of this machine.
ASKS = [
    ("status",),
    ("list", "nodes"),
    ("list", "tasks"),
    ("get", "node", "00"),
    ("summary", "tasks"),
    ("memory",),
    ("timeline",),
    ("logs",),
    ("stack",),
    ("why", "00"),
    ("metrics",),
    ("stop",),
    ("stop", "--force"),
    ("health-check",),
    ("drain-node", "00"),
    ("token",),
    ("token", "rotate"),
]


@pytest.fixture
def public(short_dir: Path) -> Path:
    """A directory like /tmp: everybody may make something in it."""
    place = short_dir / "t"
    place.mkdir()
    short_dir.chmod(0o755)
    place.chmod(0o1777)
    return place


# A "node" of a process: takes every connection, and says what it has read. Prints "ready".
_TRAP = """
import fcntl, os, socket, sys, threading
base, pid, user, mode = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4], 8)
if user != os.getuid():
    os.setgroups([]); os.setgid(user); os.setuid(user)
os.umask(0)
directory = f"{base}/node-{pid}-0b00000000000000"
os.makedirs(base, mode, exist_ok=True)
os.mkdir(directory, mode)
lock = os.open(directory + "/lock", os.O_CREAT | os.O_RDWR, 0o666)
fcntl.flock(lock, fcntl.LOCK_EX)
with open(directory + "/cluster", "w") as file:
    file.write("address 127.0.0.1:7001\\nhead 127.0.0.1:7001\\nfingerprint 0000\\ntoken_file /x\\n")
listener = socket.socket(socket.AF_UNIX)
listener.bind(directory + "/node.sock")
listener.listen(8)
print("ready", directory, flush=True)
while True:
    connection, _ = listener.accept()
    print("came", len(connection.recv(1 << 16)), flush=True)
"""


@contextlib.contextmanager
def trap(base: Path, pid: int, user: int, mode: int = 0o755) -> Iterator[subprocess.Popen]:
    """What looks like a node of ours: in a directory of this user, with this mode, and the name of this
    process.
    """
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", _TRAP, str(base), str(pid), str(user), oct(mode)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline().startswith("ready")
        yield process
    finally:
        process.kill()
        process.wait()


def received(process: subprocess.Popen) -> str:
    """All that came into a trap; ends it."""
    process.kill()
    return process.communicate()[0]


@is_root
@pytest.mark.parametrize("ask", ASKS, ids=" ".join)
def test_no_command_speaks_with_a_node_in_another_users_directory(public, ask):
    with trap(public / f"sooner-{os.getuid()}", os.getpid(), STRANGER) as process:
        done = run_command(*ask, base=public, check=None)
        assert done.returncode not in (0, None), done
        assert "it belongs to user nobody (65534)" in done.stderr
        assert "SOONER_TMPDIR" in done.stderr
        assert "Traceback" not in done.stderr
        assert received(process) == ""


@is_root
@pytest.mark.parametrize("address", ["auto", "127.0.0.1:7001", "{directory}"])
def test_no_program_speaks_with_a_node_in_another_users_directory(public, monkeypatch, address):
    """Neither does it go on without that node, as if there were none."""
    base = public / f"sooner-{os.getuid()}"
    monkeypatch.setenv("SOONER_TMPDIR", str(public))
    monkeypatch.setenv("SOONER_TOKEN", "x")
    with trap(base, os.getpid(), STRANGER) as process:
        directory = next(base.glob("node-*"))
        with pytest.raises(UntrustedPathError, match="it belongs to user nobody") as caught:
            sooner.init(address=address.format(directory=directory))
        assert isinstance(caught.value, PermissionError)
        assert isinstance(caught.value, SoonerError)
        for look in (state.list_nodes, lambda: state.list_nodes(address=str(directory))):
            with pytest.raises(UntrustedPathError):
                look()
        assert received(process) == ""


@is_root
def test_no_node_starts_in_another_users_directory_and_there_is_a_way_on(public):
    base = public / f"sooner-{os.getuid()}"
    base.mkdir()
    os.chown(base, STRANGER, STRANGER)
    done = run_command("start", "--head", base=public, check=1)
    assert f"{base}: it belongs to user nobody (65534)" in done.stderr
    done = run_driver(
        """
        import sooner
        try:
            sooner.init(num_cpus=1)
        except sooner.exceptions.UntrustedPathError as error:
            print(error)
        """,
        env=os.environ | {"SOONER_TMPDIR": str(public)},
    )
    assert f"{base}: it belongs to user nobody (65534)" in done.stdout
    mine = public / "mine"
    mine.mkdir(0o700)
    run_driver(
        "import sooner; sooner.init(num_cpus=1); print(sooner.get(sooner.remote(lambda: 1).remote()))",
        env=os.environ | {"SOONER_TMPDIR": str(mine)},
    )


@is_root
@pytest.mark.parametrize("mode", [0o700, 0o755, 0o1777])
@pytest.mark.parametrize("what", ["itself", "above", "link"])
def test_nothing_of_ours_is_looked_for_where_another_user_decides(public, monkeypatch, mode, what):
    """In a directory that is hers, or is below one of hers, she may put anything in the place of ours."""
    hers = public / "hers"
    (hers / "mine").mkdir(parents=True)
    hers.chmod(mode)
    place = {"itself": hers, "above": hers / "mine", "link": public / "link"}[what]
    shown = hers
    if what == "link":
        shown = place
        place.symlink_to(public)
    os.chown(shown, STRANGER, STRANGER, follow_symlinks=False)
    said = f"SOONER_TMPDIR={place}: {shown} belongs to user nobody (65534)"
    for command in (("start", "--head"), ("status",), ("token",), ("stop",)):
        done = run_command(*command, base=place, check=1)
        assert said in done.stderr
        assert "Set it to a directory of yours" in done.stderr
    monkeypatch.setenv("SOONER_TMPDIR", str(place))
    with pytest.raises(UntrustedPathError, match="belongs to user nobody"):
        sooner.init(num_cpus=1)
    assert not sooner.is_initialized()
    assert sorted(os.listdir(public)) == sorted({"hers", place.relative_to(public).parts[0]})


@is_root
def test_what_is_closed_to_the_user_is_named_by_whose_it_is(public):
    """Not even the owner of what stands there can be seen."""
    (public / "closed").mkdir(0o700)
    done = run_driver(
        """
        import os, pwd, sys
        import sooner.exceptions
        from sooner._session import membership, trust
        os.setgroups([]); os.setgid(65534); os.setuid(65534)
        os.environ["SOONER_TMPDIR"] = sys.argv[1]
        for look in (lambda: trust.open_directory(sys.argv[1]), membership.parent_directory):
            try:
                look()
            except PermissionError as error:
                print(type(error).__name__, error)
        """,
        public / "closed" / "x" / "y",
        cwd="/",
    )
    assert done.stdout.count("UntrustedPathError ") == 2
    assert f"it is below {public}/closed, which belongs to user root (0) and is closed to you" in done.stdout
    assert f"{public}/closed belongs to user root (0), and is closed to you" in done.stdout


@is_root
def test_a_socket_of_another_user_is_not_read_although_the_directory_is_ours(public):
    """The kernel says who listens. Somebody may have had the directory open before its mode was changed."""
    base = public / f"sooner-{os.getuid()}"
    with trap(base, os.getpid(), STRANGER, 0o777) as process:
        directory = next(base.glob("node-*"))
        for path in (base, directory, directory / "node.sock", directory / "lock"):
            os.chown(path, os.getuid(), os.getgid())
            path.chmod(0o700)
        done = run_command("status", base=public, check=None)
        assert done.returncode != 0
        assert "a process of user nobody (65534) listens there" in done.stderr
        with pytest.raises(UntrustedPathError, match="listens there"):
            trust.connect(str(directory))
        # Somebody came, and said nothing before it left.
        poll("the trap has heard of it", lambda: process.stdout.readline() == "came 0\n")


@pytest.mark.parametrize("mode", [0o777, 0o750, 0o701])
def test_a_directory_that_is_open_to_others_is_not_used(short_dir, mode):
    base = short_dir / f"sooner-{os.getuid()}"
    base.mkdir()
    base.chmod(mode)
    done = run_command("status", base=short_dir, check=None)
    assert done.returncode != 0
    assert f"its mode is {mode:04o}, so others may enter it" in done.stderr


def test_links_are_not_followed(short_dir):
    """To a directory of ours, even: whoever made the link chose which one."""
    (short_dir / "real").mkdir()
    node = Node(short_dir / "real")
    try:
        other = short_dir / "other"
        other.mkdir()
        (other / f"sooner-{os.getuid()}").symlink_to(node.directory.parent)
        done = run_command("status", base=other, check=None)
        assert done.returncode != 0
        assert "it is a link" in done.stderr
        link = short_dir / "link"
        link.symlink_to(node.directory)
        for address in (str(link), f"{link}/"):
            with pytest.raises(UntrustedPathError, match="it is a link"):
                _address.resolve(address)
        within = node.directory.parent / "node-1-0b00000000000000"
        within.symlink_to(node.directory)
        with pytest.raises(UntrustedPathError, match="it is a link"):
            sessions.running_nodes(str(node.directory.parent))
        within.unlink()
    finally:
        node.run("stop", "--force", check=None)


def test_a_lock_that_is_none_holds_up_no_start(short_dir):
    base = short_dir / f"sooner-{os.getuid()}"
    for name, make in (("session-99-01", os.mkfifo), ("node-99-01", os.mkdir)):
        stale = base / name
        stale.mkdir(0o700, parents=True)
        base.chmod(0o700)
        make(stale / "lock")
        # Whatever it is, nobody has had it for a while.
        os.utime(stale, (1, 1))
    run_driver("import sooner; sooner.init(num_cpus=1)", env=os.environ | {"SOONER_TMPDIR": str(short_dir)})
    assert list(base.iterdir()) == []


def test_a_relative_place_stays_where_it_is_when_the_program_goes_elsewhere(short_dir):
    done = run_driver(
        """
        import os, sooner
        from sooner.util import state
        directory = sooner.init(num_cpus=1)["session_dir"]
        os.chdir("/")
        assert sooner.get(sooner.remote(lambda: 1).remote()) == 1
        assert len(state.list_nodes()) == 1
        sooner.shutdown()
        print(directory)
        """,
        env=os.environ | {"SOONER_TMPDIR": "here"},
        cwd=(short_dir / "here").mkdir() or short_dir,
    )
    assert done.stdout.startswith(f"{short_dir}/here/sooner-{os.getuid()}/session-")
    assert list((short_dir / "here" / f"sooner-{os.getuid()}").iterdir()) == []


def test_what_stands_there_instead_of_a_directory_is_named(short_dir):
    path = short_dir / f"sooner-{os.getuid()}"
    path.write_text("")
    with pytest.raises(UntrustedPathError, match="it is no directory"):
        sessions.running_sessions(str(path))
    done = run_command("start", "--head", base=short_dir, check=1)
    assert "it is no directory" in done.stderr


@contextlib.contextmanager
def innocent() -> Iterator[int]:
    """A process that has nothing to do with sooner."""
    process = subprocess.Popen(["sleep", "60"])
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


@is_root
@pytest.mark.parametrize("force", [(), ("--force",)])
def test_stop_ends_nothing_that_another_users_directory_names(public, force):
    with innocent() as pid, trap(public / f"sooner-{os.getuid()}", pid, STRANGER):
        run_command("stop", "--timeout", "2", *force, base=public, check=1)
        assert is_alive(pid)


@pytest.mark.parametrize("address", [False, True])
def test_stop_ends_nothing_that_is_not_proven_to_be_the_node(short_dir, address):
    """Not even in a directory of our own: names of directories survive the processes that they name."""
    base = short_dir / f"sooner-{os.getuid()}"
    base.mkdir(0o700)
    with innocent() as pid, trap(base, pid, os.getuid(), 0o700):
        directory = next(base.glob("node-*"))
        chosen = ("--address", str(directory)) if address else ()
        done = run_command("stop", "--force", "--timeout", "2", *chosen, base=short_dir, check=1)
        assert f"process {pid} is not proven to be the node in {directory}" in done.stderr
        assert "it did not make this directory" in done.stderr
        assert is_alive(pid)
        rows = json.loads(run_command("stop", "--json", "--timeout", "2", base=short_dir, check=1).stdout)
        assert rows == [{"session_dir": str(directory), "pid": pid, "ended": False}]
        # The process that has that id today is not the one that wrote this.
        (directory / "lock").write_text(f"{pid} 1\n")
        run_command("stop", "--force", "--timeout", "2", base=short_dir, check=1)
        assert is_alive(pid)
        # It is the one; but another one listens.
        (directory / "lock").write_text(f"{pid} {_cli_nodes._stat(pid)[19]}\n")
        done = run_command("stop", "--force", "--timeout", "2", base=short_dir, check=1)
        assert "listens there" in done.stderr
        assert is_alive(pid)


def test_members_of_a_session_are_known_by_when_it_began():
    with innocent() as pid:
        began = int(_cli_nodes._stat(pid)[19])
        own = os.getsid(0)
        if own != os.getpid() and os.path.exists(f"/proc/{own}"):
            since = int(_cli_nodes._stat(own)[19])
            assert (pid, began) in _cli_nodes._members(own, since)
            assert _cli_nodes._members(own, since - 1) == []
        # Another process has the id by now, as it were.
        _cli_nodes._kill([(pid, began - 1)])
        assert is_alive(pid)
        _cli_nodes._kill([(pid, began)])
        poll("it is gone", lambda: not is_alive(pid))


def test_a_frozen_node_can_be_ended_when_nobody_more_can_connect(short_dir):
    node = Node(short_dir)
    waiting = []
    try:
        stop(node.pid)
        with contextlib.suppress(BlockingIOError):
            for _ in range(5000):
                one = socket.socket(socket.AF_UNIX)
                one.setblocking(False)
                waiting.append(one)
                one.connect(str(node.directory / "node.sock"))
        assert "ended" in node.run("stop", "--force")
        poll("it is gone", node.is_gone)
    finally:
        for one in waiting:
            one.close()
        if is_alive(node.pid):
            os.kill(node.pid, signal.SIGKILL)


@pytest.fixture
def runtime(short_dir, monkeypatch):
    """A runtime directory as a login session has it."""
    place = short_dir / "run"
    place.mkdir(0o700)
    monkeypatch.delenv("SOONER_TMPDIR", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place))
    return place


def test_a_runtime_directory_of_the_user_is_preferred(runtime, monkeypatch, short_dir):
    assert membership.base_directory() == f"{runtime}/sooner-{os.getuid()}"
    done = run_driver("import sooner; print(sooner.init(num_cpus=1)['session_dir'])")
    assert done.stdout.startswith(f"{runtime}/sooner-{os.getuid()}/session-")
    environment = {name: value for name, value in os.environ.items() if name != "SOONER_TMPDIR"}
    command = [sys.executable, "-m", "sooner"]
    started = subprocess.run(
        [*command, "start", "--head", "--num-cpus=1", "--json"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    try:
        assert json.loads(started.stdout)["session_dir"].startswith(f"{runtime}/sooner-{os.getuid()}/node-")
        run_driver("import sooner; print(sooner.init(address='auto'))")
        monkeypatch.setenv("SOONER_TMPDIR", str(short_dir))
        assert membership.base_directory() == f"{short_dir}/sooner-{os.getuid()}"
    finally:
        subprocess.run([*command, "stop", "--force"], env=environment, capture_output=True, check=True)


def test_values_do_not_go_to_disk_in_a_runtime_directory(runtime):
    assert membership.disk_directory() == "/tmp"


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o1777])
def test_a_runtime_directory_that_is_open_to_others_is_not_used(runtime, mode):
    runtime.chmod(mode)
    assert membership.base_directory() == f"/tmp/sooner-{os.getuid()}"


def test_a_runtime_directory_that_is_no_use_is_not_used(runtime, monkeypatch, short_dir):
    elsewhere = f"/tmp/sooner-{os.getuid()}"
    link = short_dir / "link"
    link.symlink_to(runtime)
    long = runtime / ("x" * 60)
    long.mkdir(0o700)
    for wrong in (str(link), str(long), "relative", str(short_dir / "not-there"), "/"):
        monkeypatch.setenv("XDG_RUNTIME_DIR", wrong)
        assert membership.base_directory() == elsewhere, wrong


@is_root
def test_a_runtime_directory_of_another_user_is_not_used(runtime):
    os.chown(runtime, STRANGER, STRANGER)
    assert membership.base_directory() == f"/tmp/sooner-{os.getuid()}"


def test_a_runtime_directory_that_goes_at_logout_is_not_used(runtime, monkeypatch, short_dir):
    """Nodes outlive the login session that they were started in."""
    monkeypatch.setattr(membership, "_MADE_BY_LOGIN", f"{short_dir}/")
    monkeypatch.setattr(membership, "_LINGER", str(short_dir))
    assert membership.base_directory() == f"/tmp/sooner-{os.getuid()}"
    import pwd

    (short_dir / pwd.getpwuid(os.getuid()).pw_name).touch()
    assert membership.base_directory() == f"{runtime}/sooner-{os.getuid()}"


def test_an_empty_variable_is_none(runtime, monkeypatch):
    monkeypatch.setenv("SOONER_TMPDIR", "")
    assert membership.base_directory() == f"{runtime}/sooner-{os.getuid()}"


def client_hello(name: str) -> bytes:
    """The first message of a handshake, after which a stranger says no more."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


@contextlib.contextmanager
def stalled_handshakes(address: str, count: int, said: bytes, come_from: str) -> Iterator[None]:
    """So many connections at a time that say this and nothing more; a second after one has ended another
    one comes.
    """
    host, _, port = address.rpartition(":")
    is_over = threading.Event()

    def stay() -> None:
        while not is_over.is_set():
            with socket.socket() as stranger, contextlib.suppress(OSError):
                stranger.settimeout(12)
                stranger.bind((come_from, 0))
                stranger.connect((host, int(port)))
                stranger.sendall(said)
                while stranger.recv(1 << 16) and not is_over.is_set():
                    pass
            is_over.wait(1)

    for _ in range(count):
        threading.Thread(target=stay, daemon=True).start()
    time.sleep(1)
    try:
        yield
    finally:
        is_over.set()


# What a stranger says, and from where it comes: nodes come from 127.0.0.1.
STALLS = {
    "hello": (client_hello("control.sooner"), "127.0.0.66"),
    "hello from here": (client_hello("control.sooner"), "127.0.0.1"),
    "half a hello": (client_hello("control.sooner")[:100], "127.0.0.66"),
    "nothing": (b"", "127.0.0.1"),
    "garbage": (b"garbage" * 10, "127.0.0.1"),
}


@pytest.mark.timeout(180)
@pytest.mark.parametrize("what", STALLS)
def test_who_stops_half_way_through_a_handshake_keeps_no_node_out(short_dir, what):
    (short_dir / "n").mkdir()
    head = Node(short_dir, "--port", "0")
    told = membership.membership(str(head.directory))
    token = Path(told["token_file"]).read_text().strip()
    node = Node(short_dir / "n", join=(told["head"], token))
    try:
        with stalled_handshakes(told["head"], 100, *STALLS[what]):
            for number in range(3):
                base = short_dir / str(number)
                base.mkdir()
                Node(base, join=(told["head"], token)).run("stop", "--force")
            os.kill(head.pid, signal.SIGKILL)
            poll("it is gone", lambda: not is_alive(head.pid))
            head = Node(short_dir)

            def is_back() -> bool:
                states = {row["node_id"]: row["state"] for row in head.json("list", "nodes")}
                return list(states.values()).count("ALIVE") == 2

            poll("the head has its node back", is_back)
    finally:
        node.run("stop", "--force", check=None)
        head.run("stop", "--force", check=None)


def test_a_handshake_that_makes_room_is_noted(short_dir):
    head = Node(short_dir)
    try:
        address = membership.membership(str(head.directory))["head"]
        with stalled_handshakes(address, 40, client_hello("control.sooner"), "127.0.0.66"):
            log = head.directory / "logs" / "node.log"
            poll("it is noted", lambda: "made room for a later one from this address" in log.read_text())
    finally:
        head.run("stop", "--force")


FOREIGN_MODULE = "raise ImportError('a stranger put this here')"


@pytest.fixture
def two_nodes(short_dir):
    """A head and a node with the resource "b"."""
    (short_dir / "b").mkdir()
    head = Node(short_dir)
    told = membership.membership(str(head.directory))
    token = Path(told["token_file"]).read_text().strip()
    other = Node(short_dir / "b", "--resources", '{"b": 1}', join=(told["head"], token))
    yield head
    other.run("stop", "--force")
    head.run("stop", "--force")


def import_elsewhere(head: Node, place: Path | str, **options: object) -> subprocess.CompletedProcess:
    """Imports `wave` on the node of another machine, as it were, for a program that looks for modules in a
    place.
    """
    return head.driver(
        """
        import sys, time
        sys.path.insert(0, sys.argv[1])
        import sooner
        sooner.init()

        @sooner.remote(resources={"b": 1})
        def imported():
            import wave
            return wave.__file__

        try:
            print(sooner.get(imported.remote(), timeout=30))
        except sooner.exceptions.TaskError as error:
            print("raised", error)
        # What the template printed comes as all output does.
        time.sleep(1)
        """,
        place,
        **options,
    )


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_modules_are_not_looked_for_where_everybody_may_put_some(two_nodes, tmp_path, mode):
    place = tmp_path / "job"
    place.mkdir()
    (place / "wave.py").write_text(FOREIGN_MODULE)
    place.chmod(mode)
    done = import_elsewhere(two_nodes, place)
    assert done.stdout.strip().endswith("/wave.py")
    assert str(place) not in done.stdout
    assert done.stderr.count(f"modules are not looked for in {place} (everybody may write to {place})") == 1


@is_root
@pytest.mark.parametrize("what", ["directory", "above", "link"])
def test_modules_are_not_looked_for_in_what_is_another_users(two_nodes, short_dir, what):
    above = short_dir / "above"
    place = above / "job"
    place.mkdir(parents=True)
    (place / "wave.py").write_text(FOREIGN_MODULE)
    if what == "link":
        link = short_dir / "link"
        link.symlink_to(place)
        os.chown(link, STRANGER, STRANGER, follow_symlinks=False)
        shown = place = link
    else:
        shown = place if what == "directory" else above
        os.chown(shown, STRANGER, STRANGER)
    done = import_elsewhere(two_nodes, place)
    assert done.stdout.strip().endswith("/wave.py")
    assert str(place) not in done.stdout
    assert f"{place} ({shown} belongs to user nobody (65534))" in done.stderr


def test_modules_are_looked_for_where_only_the_user_can_put_some(two_nodes, short_dir):
    place = short_dir / "job"
    place.mkdir()
    (place / "wave.py").write_text("")
    done = import_elsewhere(two_nodes, place)
    assert done.stdout.strip() == f"{place}/wave.py"
    assert "modules are not looked for" not in done.stderr


@pytest.fixture
def open_place(tmp_path: Path) -> Path:
    """A directory with a module, and one more below it, in which everybody may put something."""
    place = tmp_path / "job"
    (place / "lib").mkdir(parents=True)
    for one in (place, place / "lib"):
        (one / "wave.py").write_text(FOREIGN_MODULE)
        one.chmod(0o777)
    return place


@pytest.mark.parametrize("entry", ["", ".", "..", "lib", "lib/.."])
def test_modules_are_not_looked_for_in_places_that_are_relative_to_one_of_others(two_nodes, open_place, entry):
    cwd = open_place / "lib" if entry == ".." else open_place
    done = import_elsewhere(two_nodes, entry, cwd=cwd)
    assert done.stdout.strip().endswith("/wave.py")
    assert str(open_place) not in done.stdout
    told = [line for line in done.stderr.splitlines() if "modules are not looked for" in line]
    assert len(told) == 1, done.stderr
    assert f"the working directory {cwd} (everybody may write to {open_place}" in told[0]
    if entry in ("..", "lib"):
        assert f"{cwd}/{entry} (everybody may write to" in told[0]


def test_places_that_are_relative_are_those_of_the_programs_directory(two_nodes, short_dir):
    place = short_dir / "job"
    (place / "lib").mkdir(parents=True)
    (place / "lib" / "wave.py").write_text("")
    done = import_elsewhere(two_nodes, "lib", cwd=place)
    assert done.stdout.strip() == f"{place}/lib/wave.py"
    assert "modules are not looked for" not in done.stderr


# Where workers of the node "b" are and look for modules, after each change of the program's directory and
# `sys.path`.
FOLLOW = """
import os, sys, sooner
ours, theirs = sys.argv[1:]
sooner.init()

def look():
    import importlib.util
    there = os.getcwd()
    found = importlib.util.find_spec("wave").origin
    # A task may go where others put files, and what is relative must not be found there.
    os.chdir(theirs)
    importlib.invalidate_caches()
    return there, found, importlib.util.find_spec("wave").origin

def tell():
    print(*sooner.get(sooner.remote(resources={"b": 1})(look).remote()), flush=True)

for entry in ("", ".", "lib"):
    for place in (theirs, ours):
        os.chdir(place)
        sys.path.insert(0, entry)
        tell()
        sys.path.pop(0)
"""


def test_changes_of_the_directory_and_of_relative_places_do_not_lead_to_others(two_nodes, open_place, short_dir):
    ours = short_dir / "job"
    (ours / "lib").mkdir(parents=True)
    for place in (ours, ours / "lib"):
        (place / "wave.py").write_text("")
    done = two_nodes.driver(FOLLOW, ours, open_place)
    lines = [line.split() for line in done.stdout.splitlines()]
    nodes = f"{short_dir}/b/sooner-{os.getuid()}/node-"
    for at, where in enumerate(("", ".", "lib")):
        there, found, later = lines[2 * at]
        assert there.startswith(nodes), lines
        assert str(open_place) not in found + later
        assert str(ours) not in found + later
        assert lines[2 * at + 1][0] == str(ours)
        expected = str(ours / where / "wave.py")
        assert [os.path.normpath(origin) for origin in lines[2 * at + 1][1:]] == [expected] * 2
    why = f"{open_place} (everybody may write to {open_place}; workers go to the node's instead)"
    assert f"modules are not looked for in the working directory {why}" in done.stderr
    assert f"modules are not looked for in {open_place}/lib (everybody may write to {open_place})" in done.stderr


# What a task on the node "b" has for a directory, and what programs that it starts import.
BEGIN = """
import os, subprocess, sys, time, sooner
sooner.init()

@sooner.remote(resources={"b": 1})
def begin():
    child = subprocess.run([sys.executable, "-c", "import wave; print(wave.__file__)"], capture_output=True, text=True)
    return os.getcwd(), child.stdout + child.stderr

for one in sooner.get(begin.remote(), timeout=60):
    print(one)
# What the template printed comes as all output does.
time.sleep(1)
"""


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_workers_do_not_begin_where_everybody_may_put_modules(two_nodes, open_place, short_dir, mode):
    """As `/tmp` is. Programs that a task starts with `-c` or `-m`, as `multiprocessing` does, look there
    first.
    """
    open_place.chmod(mode)
    done = two_nodes.driver(BEGIN, cwd=open_place)
    assert done.stdout.startswith(f"{short_dir}/b/sooner-{os.getuid()}/node-")
    assert "a stranger" not in done.stdout
    why = f"{open_place} (everybody may write to {open_place}; workers begin in the node's instead)"
    assert done.stderr.count(f"modules are not looked for in the working directory {why}") == 1


@is_root
def test_workers_do_not_begin_where_another_user_may_put_modules(two_nodes, short_dir):
    place = short_dir / "job"
    place.mkdir()
    (place / "wave.py").write_text(FOREIGN_MODULE)
    os.chown(place, STRANGER, STRANGER)
    done = two_nodes.driver(BEGIN, cwd=place)
    assert done.stdout.startswith(f"{short_dir}/b/sooner-{os.getuid()}/node-")
    assert "a stranger" not in done.stdout
    assert f"the working directory {place} ({place} belongs to user nobody (65534); workers begin" in done.stderr


def test_workers_begin_in_the_programs_directory_if_it_is_the_users(two_nodes, short_dir):
    place = short_dir / "job"
    place.mkdir()
    (place / "wave.py").write_text("")
    done = two_nodes.driver(BEGIN, cwd=place)
    assert done.stdout.splitlines()[:2] == [str(place), f"{place}/wave.py"]
    assert "not looked for" not in done.stderr


@pytest.fixture
def relative_places(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["/opt/lib", "", *os.environ.get("PYTHONPATH", "").split(":")]))


def test_relative_places_of_the_environment_do_not_reach_workers_elsewhere(relative_places, two_nodes):
    done = two_nodes.driver(
        """
        import os, sooner
        sooner.init()
        print(sooner.get(sooner.remote(resources={"b": 1})(lambda: os.environ["PYTHONPATH"]).remote()))
        """
    )
    places = done.stdout.strip().split(os.pathsep)
    assert places[0] == "/opt/lib"
    assert all(map(os.path.isabs, places))


# Shows lines of the source of functions whose file is argument 1, in tasks that need the resource of
# argument 2.
SHOW = r"""
import sys, sooner

source = '''
def fail():
    return 1 / 0  # shown

def warn():
    import warnings
    warnings.warn("here")  # shown

def fail_in_thread():
    import threading
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()

def fail_at_end():
    class Thing:
        def __del__(self):
            fail()
    Thing()

def look():
    import inspect
    try:
        return inspect.getsource(fail)
    except OSError as error:
        return repr(error)

def debug():
    import io, pdb, sys
    typed, shown = io.StringIO("list 1, 99\\nc\\n"), io.StringIO()
    pdb.Pdb(stdin=typed, stdout=shown, nosigint=True).set_trace(sys._getframe())
    return shown.getvalue()
'''
exec(compile(source, sys.argv[1], "exec"))
sooner.init()

@sooner.remote(resources={sys.argv[2]: 0.01}, max_retries=0)
def shown_by(function):
    import contextlib, io
    with contextlib.redirect_stderr(io.StringIO()) as text:
        result = function()
    return f"{text.getvalue()} {result or ''}"

for name in sys.argv[3:]:
    try:
        print(name, sooner.get(shown_by.remote(globals()[name]), timeout=60), flush=True)
    except sooner.exceptions.TaskError as error:
        print(name, error, flush=True)
"""
HERE, ELSEWHERE = "node:__internal_head__", "b"
# What is written in C reads as in every program where the program runs.
WAYS = {HERE: ["warn", "look", "debug", "fail"]}
WAYS[ELSEWHERE] = [*WAYS[HERE], "fail_in_thread", "fail_at_end"]
# What such a file says of these functions.
LINES = "\ndef fail():\n    return 1 / 0  # shown\n\n\n\n    warn  # shown\n"


@pytest.mark.parametrize("where", WAYS)
def test_a_pipe_with_the_name_of_a_source_file_keeps_no_task(two_nodes, short_dir, where):
    path = short_dir / "s.py"
    os.mkfifo(path)
    done = two_nodes.driver(SHOW, path, where, *WAYS[where])
    for name in WAYS[where]:
        assert f"\n{name} " in f"\n{done.stdout}"
    assert f'File "{path}", line 3, in fail' in done.stdout
    assert "look  OSError" in done.stdout
    assert "# shown" not in done.stdout


@is_root
def test_lines_of_source_are_not_read_from_a_file_of_another_user(two_nodes, short_dir):
    path = short_dir / "s.py"
    path.write_text(LINES)
    os.chown(path, STRANGER, STRANGER)
    done = two_nodes.driver(SHOW, path, ELSEWHERE, *WAYS[ELSEWHERE])
    assert f'File "{path}", line 3, in fail' in done.stdout
    assert "# shown" not in done.stdout
    assert "# shown" in two_nodes.driver(SHOW, path, HERE, "fail").stdout


def test_lines_of_source_are_read_from_a_file_of_the_user(two_nodes, short_dir):
    path = short_dir / "s.py"
    path.write_text(LINES)
    done = two_nodes.driver(SHOW, path, ELSEWHERE, *WAYS[ELSEWHERE])
    parts = re.split(f"^({'|'.join(WAYS[ELSEWHERE])}) ", done.stdout, flags=re.MULTILINE)[1:]
    assert parts[::2] == WAYS[ELSEWHERE]
    assert all("# shown" in part for part in parts[1::2]), done.stdout


TOKEN = f"sooner-token-1-{'5a' * 32}"


def environments_of(pids: set[int]) -> bytes:
    found = []
    for pid in pids:
        # One may have ended since it was seen.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found.append(Path(f"/proc/{pid}/environ").read_bytes())
    assert found
    return b"".join(found)


def test_the_token_is_in_no_environment_of_a_node(short_dir, monkeypatch):
    monkeypatch.setenv("SOONER_TOKEN", TOKEN)
    node = Node(short_dir)
    try:
        assert (short_dir / f"sooner-{os.getuid()}" / "cluster" / "token").read_text().strip() == TOKEN
        code = """
            import os, sys, sooner
            sooner.init()
            print(sooner.get(sooner.remote(lambda: os.environ.get("SOONER_TOKEN", "none")).remote()), flush=True)
            sys.stdin.read()
            """
        with node.running_driver(code) as driver:
            assert driver.stdout.readline() == "none\n"
            pids = node.processes()
            assert len(pids) >= 3, "the node, a template, a worker"
            assert b"SOONER_TOKEN" not in environments_of(pids)
    finally:
        node.run("stop", "--force")


def test_the_token_is_in_no_environment_of_a_node_in_the_foreground(short_dir):
    program = [sys.executable, "-m", "sooner", "start", "--head", "--block", "--num-cpus=1"]
    environment = os.environ | {"SOONER_TMPDIR": str(short_dir), "SOONER_TOKEN": TOKEN}
    process = subprocess.Popen(program, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline().startswith("ready ")
        assert (short_dir / f"sooner-{os.getuid()}" / "cluster" / "token").read_text().strip() == TOKEN
        assert b"SOONER_TOKEN" not in environments_of({process.pid})
    finally:
        process.terminate()
        process.communicate(timeout=WAIT)


def test_workers_of_a_program_do_not_have_its_token():
    done = run_driver(
        """
        import os, sooner
        sooner.init(num_cpus=1)
        print(sooner.get(sooner.remote(lambda: os.environ.get("SOONER_TOKEN", "none")).remote()))
        """,
        env=os.environ | {"SOONER_TOKEN": TOKEN},
    )
    assert done.stdout == "none\n"


def test_a_token_that_is_none_is_refused(short_dir):
    for wrong in ("x", "y" * 100_000, "\udcff"):
        done = run_command("start", "--head", base=short_dir, check=7, SOONER_TOKEN=wrong)
        assert "SOONER_TOKEN does not contain a token" in done.stderr


@pytest.mark.parametrize("contents", [b"", b"\0" * 4096, b"something else " * 300])
def test_a_head_does_not_take_a_damaged_store_for_a_new_one(short_dir, contents):
    node = Node(short_dir)
    node.run("stop")
    store = short_dir / f"sooner-{os.getuid()}" / "cluster" / "control.redb"
    assert store.stat().st_size > 0
    store.write_bytes(contents)
    done = run_command("start", "--head", base=short_dir, check=1)
    assert str(store) in done.stderr
    assert "damaged" in done.stderr
    # A head that was killed while it made its store left nothing that is in the way.
    store.unlink()
    (store.parent / "control.redb.new").write_bytes(b"")
    Node(short_dir).run("stop")


def test_variables_for_tests_mean_nothing_elsewhere(monkeypatch):
    monkeypatch.setenv("SOONER_TEST_WORKER_MEMORY", "1000")
    assert resources.stated_memory() == 1000
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    assert resources.stated_memory() is None


def test_the_command_says_its_version():
    done = subprocess.run([sys.executable, "-m", "sooner", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"sooner {sooner.__version__}\n"
