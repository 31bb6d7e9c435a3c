"""Nodes that join a cluster over TCP: listed everywhere, refused with a reason, gone when they end."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from support import WAIT, is_alive, network_sockets_of, poll, run_command, run_driver, stop

import sooner
from sooner.cluster_utils import Cluster

NO_ANSWER, NOBODY_LISTENS, SOMETHING_ELSE, OTHER_VERSION, TOKEN, NOT_WANTED = 3, 4, 5, 6, 7, 8


@pytest.fixture
def cluster():
    with Cluster(initialize_head=True, head_node_args={"num_cpus": 2}) as made:
        yield made


@pytest.fixture
def joiner(cluster):
    """Runs `sooner start --address=...` below a directory of its own, with the cluster's token unless one
    is given.
    """
    base = Path(f"{cluster.base_directory}-j")
    base.mkdir()

    def join(address, *options, status, token="", **environment):
        token_file = token or Path(cluster.base_directory) / "cluster" / "token"
        done = subprocess.run(
            [sys.executable, "-m", "sooner", "start", f"--address={address}", f"--token-file={token_file}", *options],
            capture_output=True,
            text=True,
            timeout=WAIT,
            check=False,
            env=os.environ | {"SOONER_TMPDIR": str(base)} | environment,
        )
        assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
        assert done.stderr.count("\n") == (1 if status else 0), done.stderr
        return done.stderr

    yield join
    run_command("stop", "--force", base=base)
    shutil.rmtree(base)


def command(cluster, *arguments, node=None):
    address = (node or cluster.head_node).session_dir
    done = run_command(*arguments, "--json", "--address", address, base=Path(cluster.base_directory))
    return json.loads(done.stdout)


def listed(cluster, node=None):
    """Names of the nodes that a node lists."""
    return sorted(row["node_name"] for row in command(cluster, "list", "nodes", node=node))


def log_of(node):
    return (Path(node.session_dir) / "logs" / "node.log").read_text()


@pytest.mark.api("cluster_utils", "cli.list")
@pytest.mark.parametrize("count", [2, 4])
def test_nodes_join_and_are_listed_by_each(cluster, count):
    names = ["head"] + [
        cluster.add_node(node_name=f"n{number}", num_cpus=number, resources={"disk": 2}, labels={"zone": "a"}).node_name
        for number in range(1, count)
    ]
    cluster.wait_for_nodes()
    for node in cluster.list_all_nodes():
        poll("all are listed", lambda node=node: listed(cluster, node) == names)
        rows = {row["node_name"]: row for row in command(cluster, "list", "nodes", node=node)}
        assert [name for name, row in rows.items() if row["is_head_node"]] == ["head"]
        assert rows["n1"]["address"] == cluster.worker_nodes[0].address
        assert rows["n1"]["resources_total"]["disk"] == 2
        assert rows["n1"]["labels"] == {"ray.io/node-id": rows["n1"]["node_id"], "zone": "a"}
        free = lambda: {row["node_name"]: row for row in command(cluster, "list", "nodes", node=node)}["n1"]  # noqa: B023, E731
        poll("what is free is known", lambda free=free: (free()["resources_available"] or {}).get("CPU") == 1)
        status = command(cluster, "status", node=node)["cluster"]
        assert (status["nodes"], status["head"], status["lost"]) == (count, cluster.address, None)
        assert command(cluster, "health-check", node=node)["nodes"] == count
    text = run_command("status", "--address", cluster.head_node.session_dir, base=Path(cluster.base_directory)).stdout
    assert re.search(rf"^cluster +[0-9a-f-]+, {count} nodes, head at {cluster.address}$", text, re.M)


def test_the_head_stands_for_the_nodes_of_one_cluster(cluster, monkeypatch):
    base = Path(cluster.base_directory)
    cluster.add_node()
    cluster.wait_for_nodes()
    rows = json.loads(run_command("list", "nodes", "--json", base=base).stdout)
    assert len(rows) == 2
    monkeypatch.setenv("SOONER_TMPDIR", str(base))
    with sooner.init(address="auto"):
        assert sooner.get_runtime_context().get_node_id() == cluster.head_node.node_id


@pytest.mark.parametrize("garbage", [b"", b"\xff\0\n \n", b"address\nhead"])
def test_a_membership_that_is_garbled_counts_as_none(cluster, garbage):
    """The files are the user's; whoever spoils one gets an answer and no traceback."""
    node = cluster.add_node(node_name="b")
    (Path(node.session_dir) / "cluster").write_bytes(garbage)
    done = run_command("list", "nodes", base=Path(cluster.base_directory), check=3)
    assert "several sooner programs run; choose one of" in done.stderr
    assert listed(cluster, node) == ["b", "head"]


def test_a_program_uses_the_node_of_its_machine(cluster):
    cluster.add_node()
    with cluster.connect(namespace="x"):
        assert sooner.get(sooner.remote(lambda: 7).remote()) == 7
        here, other = sooner.nodes()
        assert here["NodeID"] == cluster.head_node.node_id
        assert f"{other['NodeManagerAddress']}:{other['NodeManagerPort']}" == cluster.worker_nodes[0].address
        assert sorted(node["NodeID"] for node in sooner.get(sooner.remote(sooner.nodes).remote())) == sorted(
            node.node_id for node in cluster.list_all_nodes()
        )
    poll("what is in use is told", lambda: command(cluster, "status")["resources_available"]["CPU"] == 2)


def test_an_address_names_the_node_of_this_machine(cluster, monkeypatch):
    monkeypatch.setenv("SOONER_TMPDIR", cluster.base_directory)
    cluster.add_node()
    with sooner.init(address=cluster.address):
        assert sooner.get_runtime_context().get_node_id() == cluster.head_node.node_id
    with pytest.raises(ConnectionError, match=r"this program cannot join the cluster: "):
        sooner.init(address="127.0.0.1:1")


def test_what_a_node_uses_is_known_to_the_others(cluster, tmp_path):
    node = cluster.add_node()
    go = tmp_path / "go"

    @sooner.remote(num_cpus=2)
    def hold():
        while not go.exists():
            time.sleep(0.01)

    def free():
        rows = command(cluster, "list", "nodes", node=node)
        return {row["node_name"]: row["resources_available"] for row in rows}["head"]["CPU"]

    with cluster.connect():
        ref = hold.remote()
        poll("it is in use", lambda: free() == 0)
        go.touch()
        sooner.get(ref)
        poll("it is free", lambda: free() == 2)


@pytest.mark.api("cli.token")
def test_the_token_is_private_and_never_shown(cluster, short_dir):
    directory = Path(cluster.base_directory) / "cluster"
    token = (directory / "token").read_text().strip()
    assert stat.S_IMODE((directory / "token").stat().st_mode) == 0o600
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    base = Path(cluster.base_directory)
    assert run_command("token", "--cluster-dir", str(directory), base=base).stdout == token + "\n"
    node = cluster.add_node()
    for one in (cluster.head_node, node):
        assert token not in Path(f"/proc/{one.pid}/cmdline").read_text()
        for path in Path(one.session_dir).rglob("*"):
            assert not path.is_file() or token.encode() not in path.read_bytes(), path
    done = run_command("token", base=short_dir, check=1)
    assert done.stderr.startswith("sooner token: there is no token file")


def test_nodes_listen_on_loopback_only(cluster):
    node = cluster.add_node()
    for one in (cluster.head_node, node):
        host, port = one.address.rsplit(":", 1)
        assert host == "127.0.0.1"
        listening = [row for row in network_sockets_of(one.pid) if row[3] == "0A"]
        assert [row[1] for row in listening] == [f"0100007F:{int(port):04X}"]


def test_a_wrong_token_is_refused_on_both_sides(cluster, joiner, short_dir):
    other = short_dir / "token"
    other.write_text("sooner-token-1-" + "0" * 64 + "\n")
    other.chmod(0o600)
    said = joiner(cluster.address, status=TOKEN, token=other)
    assert f"sooner start: the token is not that of the cluster at {cluster.address}" in said
    assert "sooner token" in said
    assert "0" * 64 not in said
    poll("the head has noted it", lambda: "refused a connection from 127.0.0.1" in log_of(cluster.head_node))
    assert listed(cluster) == ["head"]


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (None, "no token:"),
        (("sooner-token-1-" + "1" * 64, 0o644), "can be read or changed by others (mode 0644)"),
        (("hello", 0o600), "does not contain a token"),
    ],
)
def test_a_token_that_cannot_be_used_is_refused_here(cluster, joiner, short_dir, write, expected):
    path = short_dir / "token"
    if write is not None:
        path.write_text(write[0])
        path.chmod(write[1])
    assert expected in joiner(cluster.address, status=TOKEN, token=path)


def test_the_environment_may_have_the_token(cluster, short_dir):
    token = (Path(cluster.base_directory) / "cluster" / "token").read_text()
    arguments = [sys.executable, "-m", "sooner", "start", f"--address={cluster.address}", "--node-name=b", "--json"]
    environment = os.environ | {"SOONER_TMPDIR": str(short_dir), "SOONER_TOKEN": token}
    told = json.loads(subprocess.run(arguments, env=environment, check=True, capture_output=True).stdout)
    try:
        assert listed(cluster) == ["b", "head"]
        with sooner.init(address=told["session_dir"]):
            # Workers do not inherit it.
            assert sooner.get(sooner.remote(lambda: os.environ.get("SOONER_TOKEN")).remote()) is None
    finally:
        run_command("stop", base=short_dir)
    assert (
        "SOONER_TOKEN does not contain a token"
        in subprocess.run(
            arguments, env=environment | {"SOONER_TOKEN": "x"}, check=False, capture_output=True, text=True
        ).stderr
    )


def test_an_address_where_nobody_listens(joiner):
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        assert f"nobody listens at {address}" in joiner(address, status=NOBODY_LISTENS)


def test_a_name_that_leads_nowhere(joiner):
    assert "leads nowhere" in joiner("no.such.host.invalid:6380", status=NO_ANSWER)


def test_something_else_answers(joiner):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        arguments = [
            sys.executable,
            "-c",
            f"import socket; s = socket.socket(fileno={server.fileno()}); "
            "c = s.accept()[0]; c.recv(999); c.sendall(b'HTTP/1.0 400 no\\r\\n\\r\\n'); c.recv(999)",
        ]
        with subprocess.Popen(arguments, pass_fds=[server.fileno()]) as web:
            try:
                said = joiner(address, status=SOMETHING_ELSE)
            finally:
                web.kill()
        assert f"what answers at {address} is not the head of a cluster" in said


@contextlib.contextmanager
def answering(act):
    """An address at which every connection is served so, by threads of this test."""
    held = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    held.append(server.accept()[0])
                    act(held[-1])

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            # `close` alone does not wake up a thread in `accept`.
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for one in held:
                one.close()


def test_a_head_that_says_nothing(joiner):
    with answering(lambda connection: None) as address:
        said = joiner(address, status=NO_ANSWER)
        assert said.startswith(f"sooner start: the head at {address} does not answer: ")
        assert "firewall" in said


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (lambda connection: connection.sendall(b"SSH-2.0-x\r\n"), "the peer speaks SSH"),
        (lambda connection: connection.sendall(bytes(range(256)) * 20), "not TLS"),
        # A first message of TLS that never comes whole.
        (lambda connection: connection.sendall(b"\x16\x03\x03\xff\xff" + bytes(1 << 16)), "is not the head"),
        (lambda connection: connection.close(), "is not the head of a cluster: the connection"),
    ],
    ids=["ssh", "garbage", "oversized", "closes"],
)
def test_what_answers_is_no_head(joiner, act, says):
    with answering(act) as address:
        said = joiner(address, status=SOMETHING_ELSE)
        assert said.startswith(f"sooner start: what answers at {address} is not the head of a cluster: ")
        assert says in said


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--labels=" + ",".join(f"k{number}=v" for number in range(80))], "80 labels are too many"),
        (['--resources={"x": 1e30}'], 'the amount of the resource "x" is not valid'),
        (['--resources={"a\\nb": 1}'], "without control characters"),
        (['--resources={"' + 5000 * "x" + '": 1}'], "without control characters"),
    ],
    ids=["labels", "amount", "control character", "long name"],
)
def test_what_the_head_refuses_of_a_node(cluster, joiner, options, says):
    """What the command itself does not look at."""
    said = joiner(cluster.address, *options, status=NOT_WANTED)
    assert says in said
    assert len(said) < 400
    assert listed(cluster) == ["head"]


def test_a_cluster_directory_that_cannot_be_made_or_read(short_dir):
    done = run_command("start", "--head", "--cluster-dir=/proc/nowhere", base=short_dir, check=1)
    assert done.stderr.startswith("sooner start: the cluster directory /proc/nowhere cannot be made: ")
    directory = short_dir / "c"
    directory.mkdir(mode=0o700)
    (directory / "control.redb").write_bytes(b"no store" * 1000)
    done = run_command("start", "--head", f"--cluster-dir={directory}", base=short_dir, check=1)
    assert f"{directory}/control.redb is damaged or no control store" in done.stderr
    directory.chmod(0o755)
    done = run_command("start", "--head", f"--cluster-dir={directory}", base=short_dir, check=1)
    assert f"say chmod 700 {directory}" in done.stderr


def test_a_node_that_is_not_the_head(cluster, joiner):
    node = cluster.add_node()
    assert "is a node, but not the head of its cluster" in joiner(node.address, status=SOMETHING_ELSE)


def test_the_name_of_a_living_node_is_refused(cluster, joiner):
    cluster.add_node(node_name="b")
    said = joiner(cluster.address, "--node-name=b", status=NOT_WANTED)
    assert "is that of a living node" in said
    assert "--node-name" in said
    assert listed(cluster) == ["b", "head"]


def test_a_port_that_is_taken(cluster, joiner, short_dir):
    port = cluster.address.rsplit(":", 1)[1]
    done = run_command("start", "--head", f"--port={port}", base=short_dir, check=1)
    assert done.stderr.startswith(f"sooner start: cannot listen at 127.0.0.1:{port}: ")
    assert "choose another port" in joiner(cluster.address, f"--port={port}", status=1)


def test_two_heads_in_one_cluster_directory(cluster, short_dir):
    directory = Path(cluster.base_directory) / "cluster"
    done = run_command("start", "--head", f"--cluster-dir={directory}", base=short_dir, check=1)
    assert done.stderr.count("\n") == 1
    assert str(directory) in done.stderr


def test_strangers_are_noted_in_a_line_each_and_not_without_end(cluster):
    host, port = cluster.address.rsplit(":", 1)
    for text in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"x" * 5000, b"\x00" * 64):
        with socket.create_connection((host, int(port))) as stranger:
            stranger.sendall(text)
            stranger.settimeout(WAIT)
            with contextlib.suppress(OSError):
                _read_to_the_end(stranger)
    for _ in range(200):
        with socket.create_connection((host, int(port))) as stranger, contextlib.suppress(OSError):
            stranger.sendall(b"hello\n")
            _read_to_the_end(stranger)
    log = log_of(cluster.head_node)
    assert "web" in log or "HTTP" in log
    assert log.count("refused a connection") < 150
    cluster.add_node()
    cluster.wait_for_nodes()


def _read_to_the_end(stranger):
    while stranger.recv(4096):
        pass


@pytest.mark.chaos
def test_a_killed_node_is_gone_at_once(cluster):
    node = cluster.add_node(node_name="b")
    other = cluster.add_node(node_name="c")
    cluster.remove_node(node, allow_graceful=False)
    for one in (cluster.head_node, other):
        poll("it is gone", lambda one=one: listed(cluster, one) == ["c", "head"])
    assert re.search(rf"node {node.node_id} is gone: its port is closed", log_of(cluster.head_node))
    again = cluster.add_node(node_name="b")
    assert listed(cluster) == ["b", "c", "head"]
    assert again.node_id != node.node_id


def test_a_node_that_is_stopped_says_that_it_leaves(cluster):
    node = cluster.add_node(node_name="b")
    cluster.remove_node(node)
    poll("it has left", lambda: listed(cluster) == ["head"])
    assert f"node {node.node_id} is gone: it left" in log_of(cluster.head_node)


@pytest.mark.chaos
def test_a_node_that_stands_still_is_gone_and_ends_when_it_wakes():
    with Cluster(initialize_head=True, head_node_args={"health_timeout": 1}) as cluster:
        node = cluster.add_node(node_name="b")
        stop(node.pid)
        poll("it is gone", lambda: listed(cluster) == ["head"])
        assert re.search(rf"node {node.node_id} is gone: no heartbeat for 1\.\d s", log_of(cluster.head_node))
        os.kill(node.pid, signal.SIGCONT)
        _, status = os.waitpid(node.pid, 0)
        assert os.waitstatus_to_exitcode(status) == 1


@pytest.mark.chaos
def test_a_head_that_is_killed_and_started_again_finds_its_nodes():
    with Cluster(initialize_head=True) as cluster:
        nodes = [cluster.add_node(node_name=name) for name in "bc"]
        former, address = cluster.head_node, cluster.address
        cluster.remove_node(former, allow_graceful=False)
        for node in nodes:
            poll("they notice", lambda node=node: command(cluster, "status", node=node)["cluster"]["lost"])
            assert is_alive(node.pid)
            # Nothing else changes: what they know is what they knew.
            assert listed(cluster, node) == ["b", "c", "head"]
        cluster.add_node()
        assert cluster.address == address
        poll("they are back", lambda: listed(cluster) == ["b", "c", "head"])
        for node in nodes:
            poll("they know", lambda node=node: command(cluster, "status", node=node)["cluster"]["lost"] is None)
            ids = {row["node_id"] for row in command(cluster, "list", "nodes", node=node)}
            assert ids == {one.node_id for one in [cluster.head_node, *nodes]}


@pytest.mark.chaos
def test_a_head_that_was_stopped_declares_nobody_gone():
    with Cluster(initialize_head=True, head_node_args={"health_timeout": 1}) as cluster:
        cluster.add_node(node_name="b")
        stop(cluster.head_node.pid)
        time.sleep(2)
        os.kill(cluster.head_node.pid, signal.SIGCONT)
        poll("it has noticed", lambda: "the head stood still" in log_of(cluster.head_node))
        time.sleep(1.5)
        assert listed(cluster) == ["b", "head"]


@pytest.mark.chaos
def test_nothing_is_left_when_all_are_killed():
    descriptors = len(os.listdir("/proc/self/fd"))
    cluster = Cluster(initialize_head=True)
    nodes = [cluster.head_node, cluster.add_node(), cluster.add_node()]
    for node in nodes:
        os.kill(node.pid, signal.SIGKILL)
    cluster.shutdown()
    assert not any(is_alive(node.pid) for node in nodes)
    assert not os.path.exists(cluster.base_directory)
    assert len(os.listdir("/proc/self/fd")) == descriptors


@pytest.mark.api("cluster_utils")
def test_what_cluster_refuses():
    with pytest.raises(ValueError, match="head_node_args"):
        Cluster(head_node_args={"num_cpus": 1})
    with pytest.raises(ValueError, match="initialize_head"):
        Cluster(connect=True)
    with Cluster() as cluster:
        with pytest.raises(RuntimeError, match="no head"):
            _ = cluster.address
        with pytest.raises(TypeError, match="no argument 'cpus'"):
            cluster.add_node(cpus=1)
        with pytest.raises(ValueError, match="--node-name"):
            cluster.add_node(node_name="a b")
    with pytest.raises(RuntimeError, match="shut down"):
        cluster.add_node()
    cluster.shutdown()


def test_a_node_that_does_not_start_says_why(cluster):
    cluster.add_node(node_name="b")
    with pytest.raises(RuntimeError, match="is that of a living node"):
        cluster.add_node(node_name="b")
    cluster.wait_for_nodes()


def test_waiting_for_nodes_ends(cluster):
    node = cluster.add_node(node_name="b")
    cluster.worker_nodes.remove(node)
    with pytest.raises(TimeoutError, match=rf"still there: \['{node.node_id}'\]"):
        cluster.wait_for_nodes(timeout=0.2)
    cluster.worker_nodes.append(node)


def test_how_long_it_takes(capsys):
    begin = time.monotonic()
    with Cluster(initialize_head=True) as cluster:
        for _ in range(15):
            cluster.add_node(wait=False)
        cluster.wait_for_nodes()
        all_of_them = time.monotonic() - begin
        begin = time.monotonic()
        cluster.add_node()
        one = time.monotonic() - begin
    with capsys.disabled():
        print(f"\n16 nodes: {all_of_them:.2f} s; one more: {one:.2f} s")


@pytest.mark.api("init.address")
def test_a_program_joins_its_own_cluster_by_address(nothing_left) -> None:
    with Cluster() as cluster:
        first, second = cluster.add_node(num_cpus=1), cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        for address in (cluster.address, second.address):
            sooner.init(address=address)
            poll("it sees both nodes", lambda: len([n for n in sooner.nodes() if n["Alive"]]) == 2)
            node = first if address == cluster.address else second
            assert sooner.get_runtime_context().get_node_id() == node.node_id
            assert sooner.get(sooner.remote(lambda: 1).remote()) == 1
            sooner.shutdown()
        ended = cluster.address
    with pytest.raises(ConnectionError):
        sooner.init(address=ended)


def test_the_nodes_of_a_cluster_end_with_its_program() -> None:
    code = """
        import sys
        from sooner.cluster_utils import Cluster
        cluster = Cluster(initialize_head=True, shutdown_at_exit=sys.argv[1] == "True")
        print(cluster.head_node.pid, cluster.base_directory)
    """
    pid, base = run_driver(code, True).stdout.split()
    poll("its node ends", lambda: not is_alive(int(pid)))
    assert not Path(base).exists()
    pid, base = run_driver(code, False).stdout.split()
    try:
        assert is_alive(int(pid))
    finally:
        os.kill(int(pid), signal.SIGKILL)
        shutil.rmtree(base, ignore_errors=True)
