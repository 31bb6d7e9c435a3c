"""`sooner start` and what ends a node again: ready or one line why not, exit codes, privacy, and nothing
left.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import WAIT, Node, is_alive, network_sockets_of, poll, run_command, stop, stopped

import sooner

TASK = """
import sooner
sooner.init()
print(sooner.get(sooner.remote(lambda: 1).remote()))
"""


def is_draining(node):
    log = node.directory / "logs" / "node.log"
    return log.exists() and "draining" in log.read_text()


def test_a_node_starts_shows_itself_and_ends(short_dir):
    done = run_command("start", "--head", "--num-cpus", "3", "--labels", "zone=a,example.com/disk=ssd", base=short_dir)
    directory = Path(re.search(r"^directory\s+(\S+)$", done.stdout, re.M)[1])
    pid = int(re.search(r"^node head runs \(process (\d+)\)$", done.stdout, re.M)[1])
    assert f"SOONER_ADDRESS={directory}" in done.stdout
    status = json.loads(run_command("status", "--json", base=short_dir).stdout)
    assert status["node_name"] == "head"
    assert status["node_pid"] == pid
    assert status["resources_total"]["CPU"] == status["resources_available"]["CPU"] == 3
    assert (status["jobs"], status["workers"], status["demand"]) == ([], {}, [])
    (node,) = json.loads(run_command("list", "nodes", "--json", base=short_dir).stdout)
    assert node["labels"] == {"ray.io/node-id": node["node_id"], "zone": "a", "example.com/disk": "ssd"}
    assert node["node_name"] == "head"
    assert f"node       head (process {pid}" in run_command("status", base=short_dir).stdout
    done = run_command("stop", base=short_dir)
    assert done.stdout == f"node in {directory} (process {pid}) ended\n"
    assert not is_alive(pid)
    # What a cluster keeps for its next head, and the table of what nodes offer.
    assert sorted(os.listdir(directory.parent)) == ["cluster", "offers"]


def test_what_is_on_disk_is_private(node):
    node.driver(TASK)
    paths = [node.directory.parent, node.directory, *node.directory.rglob("*")]
    for path in paths:
        assert path.stat().st_uid == os.getuid()
        if path.is_dir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o700, path
    assert stat.S_IMODE((node.directory / "node.sock").stat().st_mode) == 0o600
    assert stat.S_IMODE((node.directory.parent / "head.lock").stat().st_mode) == 0o600


def test_what_is_on_disk_is_private_whatever_the_umask_is(short_dir):
    former = os.umask(0)
    try:
        node = Node(short_dir)
    finally:
        os.umask(former)
    try:
        node.driver(TASK.replace("lambda: 1", "lambda: print(1)"))
        paths = [path for path in node.directory.parent.rglob("*") if not path.is_symlink()]
        assert any(path.name.startswith("worker-") for path in paths)
        assert (node.directory / "logs" / "node.log") in paths
        open_to_others = [path for path in paths if path.stat().st_mode & 0o077]
        assert open_to_others == []
    finally:
        node.run("stop", "--force")


def test_a_node_listens_on_loopback_only_and_its_workers_nowhere(node):
    node.driver(TASK)
    found = []
    for pid in node.processes():
        found += [(pid, row[1]) for row in network_sockets_of(pid)]
    port = int(node.json("status")["cluster"]["address"].rpartition(":")[2])
    assert found == [(node.pid, f"0100007F:{port:04X}")]


def test_there_is_one_head_below_a_directory(node):
    done = run_command("start", "--head", base=node.base, check=1)
    assert done.stderr.count("\n") == 1
    assert f"a head runs already below {node.directory.parent}: process {node.pid} in {node.directory}" in done.stderr
    assert "sooner stop" in done.stderr
    told = json.loads(run_command("start", "--head", "--json", base=node.base, check=1).stdout)
    assert "a head runs already" in told["error"]
    assert node.json("health-check")["healthy"]


def test_heads_below_other_directories_do_not_matter(node, tmp_path_factory):
    other = Path(f"{node.base}-b")
    other.mkdir()
    try:
        second = Node(other, "--node-name", "other")
        run_command("stop", base=other)
        assert second.is_gone()
    finally:
        run_command("stop", "--force", base=other, check=None)
        shutil.rmtree(other)
    assert node.json("health-check")["healthy"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "give --head"),
        (["--address", "10.0.0.1"], "write HOST:PORT"),
        (["--address", "10.0.0.1:http"], "write HOST:PORT"),
        (["--address", "10.0.0.1:6380", "--health-timeout", "2"], "the head says it"),
        (["--head", "--health-timeout", "0.5"], "--health-timeout must be between 1 and 60"),
        (["--head", "--address", "10.0.0.1:6380"], "give one of the two"),
        (["--head", "--port", "65536"], "--port must be between 0 and 65535"),
        (["--head", "--port", "http"], "invalid int value"),
        (["--head", "--num-cpus", "-1"], "num_cpus must be a number that is not negative"),
        (["--head", "--num-cpus", "many"], "invalid float value"),
        (["--head", "--num-gpus", "0.5"], "num_gpus must be a whole number"),
        (["--head", "--resources", "{gpu: 1}"], "is no JSON"),
        (["--head", "--resources", "[1]"], "must be a JSON object"),
        (["--head", "--resources", '{"CPU": 1}'], "use the option for 'CPU'"),
        (["--head", "--resources", '{"disk": "big"}'], "must be a number"),
        (["--head", "--labels", "zone"], "write KEY=VALUE"),
        (["--head", "--labels", "zone=a,zone=b"], "is there twice"),
        (["--head", "--labels", "zone/=a"], "is no key"),
        (["--head", "--labels", "zone=a b"], "is no value"),
        (["--head", "--labels", "sooner.io/node-id=1"], "set by sooner"),
        (["--head", "--object-store-memory", "lots"], "write a number of bytes"),
        (["--head", "--object-store-memory", "1k"], "at least 1048576 bytes"),
        (["--head", "--node-name", "../x"], "a name has 1 to 63 letters"),
        (["--head", "--block", "--json"], "leave one of the two out"),
    ],
)
def test_wrong_options(options, says, short_dir):
    done = run_command("start", *options, base=short_dir, check=2)
    assert says in done.stderr
    assert not list(short_dir.iterdir())


def test_sizes(short_dir):
    from sooner._cli.start import _bytes

    assert [_bytes("x", text) for text in ("5", "2k", "3M", "1.5GiB", "4gb", "7B")] == [
        5,
        2048,
        3 << 20,
        3 << 29,
        4 << 30,
        7,
    ]


def test_a_node_that_cannot_start_says_why(short_dir):
    done = run_command("start", "--head", base=short_dir / "missing", check=1)
    assert done.stderr.startswith("sooner start: ")
    assert done.stderr.count("\n") == 1
    file = short_dir / f"sooner-{os.getuid()}"
    file.write_text("")
    done = run_command("start", "--head", base=short_dir, check=1)
    assert "it is no directory, and belongs to" in done.stderr


def test_health(node, short_dir):
    assert node.run("health-check").startswith("healthy: answered in ")
    with stopped(node.pid):
        done = run_command("health-check", "--timeout", "0.2", base=node.base, check=1)
        assert "does not answer" in done.stderr
    poll("it answers again", lambda: run_command("health-check", base=node.base, check=None).returncode == 0)
    node.run("stop")
    done = run_command("health-check", base=node.base, check=3)
    assert "no program of yours runs sooner" in done.stderr


def test_stop_without_a_node(short_dir):
    assert run_command("stop", base=short_dir).stdout == "no node of yours runs\n"
    assert "no session runs in" in run_command("stop", "--address", "/x", base=short_dir, check=3).stderr


def test_stop_leaves_programs_with_nodes_of_their_own_alone(node):
    with node.running_driver(
        "import sooner; print(sooner.init('local', num_cpus=1)['session_dir'], flush=True); input()"
    ) as driver:
        directory = driver.stdout.readline().strip()
        done = run_command("stop", "--address", directory, base=node.base, check=2)
        assert "end the program" in done.stderr
        node.run("stop")
        assert Path(directory).exists()
        driver.communicate("\n")
        assert driver.returncode == 0


@pytest.mark.parametrize("how", ["term", "stop"])
def test_a_node_lets_running_tasks_end(node, how, tmp_path):
    code = """
    import sys, time, sooner
    sooner.init()
    @sooner.remote
    def waits(gate):
        import os
        print("begun", flush=True)
        while not os.path.exists(gate):
            time.sleep(0.01)
        return "done"
    ref = waits.remote(sys.argv[1])
    print(sooner.get(ref), flush=True)
    """
    with node.running_driver(code, tmp_path / "gate") as driver:
        assert "begun" in driver.stdout.readline()
        stopping = None
        if how == "term":
            os.kill(node.pid, signal.SIGTERM)
        else:
            stopping = subprocess.Popen([sys.executable, "-m", "sooner", "stop"], env=node.environment)
        poll("it drains", lambda: is_draining(node))
        refused = node.driver("import sooner; sooner.init()", check=False)
        assert "the node is about to end" in refused.stderr
        (tmp_path / "gate").touch()
        assert driver.stdout.readline() == "done\n"
        poll("nothing is left", node.is_gone)
        if stopping is not None:
            assert stopping.wait(WAIT) == 0


def test_a_second_signal_ends_it_at_once(node):
    with node.running_driver(
        """
        import time, sooner
        sooner.init()
        @sooner.remote
        def sleeps():
            print("begun", flush=True)
            time.sleep(1000)
        try:
            sooner.get(sleeps.remote())
        except sooner.exceptions.SoonerError as error:
            print("raised", type(error).__name__, flush=True)
        """
    ) as driver:
        assert "begun" in driver.stdout.readline()
        start = time.monotonic()
        os.kill(node.pid, signal.SIGTERM)
        poll("it drains", lambda: is_draining(node))
        os.kill(node.pid, signal.SIGTERM)
        poll("nothing is left", node.is_gone)
        assert driver.stdout.readline().startswith("raised ")
        assert time.monotonic() - start < WAIT


@pytest.mark.parametrize("doing", ["nothing", "tasks"])
def test_nothing_is_left_of_a_node_that_is_killed(node, doing):
    if doing == "nothing":
        os.kill(node.pid, signal.SIGKILL)
        poll("no process is left", lambda: not node.processes())
        # Nobody was there to remove it: the next start does.
        assert node.directory.exists()
        second = Node(node.base)
        assert not node.directory.exists()
        second.run("stop")
        return
    with node.running_driver(
        """
        import time, sooner
        sooner.init()
        @sooner.remote
        def sleeps():
            time.sleep(1000)
        @sooner.remote
        def spins():
            while True:
                pass
        big = sooner.put(bytes(8 << 20))
        print("ready" if sooner.get(sooner.remote(len).remote(big)) else "", flush=True)
        refs = [sleeps.remote(), spins.remote()]
        try:
            sooner.get(refs)
        except sooner.exceptions.SoonerError as error:
            print("raised", flush=True)
        """
    ) as driver:
        assert driver.stdout.readline() == "ready\n"
        poll("both run", lambda: node.json("status")["workers"].get("LEASED") == 2)
        os.kill(node.pid, signal.SIGKILL)
        poll("nothing is left", node.is_gone)
        assert driver.stdout.readline() == "raised\n"


def test_force(node):
    node.driver(TASK)
    node.run("stop", "--force")
    assert node.is_gone()


def test_a_stopped_node_can_be_ended(node):
    stop(node.pid)
    node.run("stop", "--force")
    assert node.is_gone()


def test_in_the_foreground(short_dir):
    environment = os.environ | {"SOONER_TMPDIR": str(short_dir)}
    program = [sys.executable, "-m", "sooner", "start", "--head", "--block"]
    with subprocess.Popen(program, env=environment, stdout=subprocess.PIPE, text=True) as node:
        try:
            word, directory = node.stdout.readline().split()
            assert word == "ready"
            # A supervisor sees the node itself.
            assert f"/node-{node.pid}-" in directory
            second = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=WAIT, check=False)
            assert second.returncode == 1
            assert second.stderr.startswith("sooner start: a head runs already")
            node.send_signal(signal.SIGINT)
            assert node.wait(WAIT) == 0
            assert not Path(directory).exists()
        finally:
            node.kill()


@pytest.mark.api("init.address", "init.remote")
@pytest.mark.parametrize(
    ("address", "error", "says"),
    [
        ("auto", ConnectionError, "no node of yours runs on this machine"),
        ("10.0.0.1:6380", ConnectionError, "this program cannot join the cluster: no token"),
        ("10.0.0.1:", ValueError, "expected HOST:PORT"),
        ("ray://10.0.0.1:10001", ValueError, "leave out the scheme"),
        ("/tmp/nothing/here", ConnectionError, "no session runs in"),
        (7, ValueError, "must be a string"),
    ],
)
def test_wrong_addresses(address, error, says, short_dir, monkeypatch, nothing_left):
    monkeypatch.setenv("SOONER_TMPDIR", str(short_dir))
    for name in ("SOONER_ADDRESS", "SOONER_TOKEN", "SOONER_TOKEN_FILE", "SOONER_CLUSTER_DIR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(error, match=re.escape(says)):
        sooner.init(address)
    assert not sooner.is_initialized()


def test_a_node_has_its_own_resources(node, monkeypatch, nothing_left):
    monkeypatch.setenv("SOONER_TMPDIR", str(node.base))
    for arguments in ({"num_cpus": 1}, {"resources": {"x": 1}}, {"object_store_memory": 1 << 30}, {"local_mode": True}):
        with pytest.raises(ValueError, match=f"{next(iter(arguments))}: the node at the address"):
            sooner.init("auto", **arguments)
    assert not sooner.is_initialized()


def _cbor(value):
    """Numbers, text and arrays, as the wire has them."""
    if isinstance(value, int):
        return bytes([0x1B]) + value.to_bytes(8, "big")
    if isinstance(value, str):
        return bytes([0x78, len(value)]) + value.encode()
    return bytes([0x80 + len(value)]) + b"".join(map(_cbor, value))


def test_another_python_is_refused(node):
    import socket

    job = [["python"], "/", "space", 1, 1, 1]
    hello = _cbor([1, 0, 0, 0, os.getpid(), "2.7", 0, job])
    with socket.socket(socket.AF_UNIX) as driver:
        driver.settimeout(WAIT)
        driver.connect(str(node.directory / "node.sock"))
        driver.sendall(len(hello).to_bytes(4, "little") + (1).to_bytes(2, "little") + bytes(2) + hello)
        answer = b""
        while part := driver.recv(1 << 16):
            answer += part
    version = ".".join(map(str, sys.version_info[:2]))
    assert f"this node runs Python {version}, you run Python 2.7".encode() in answer
    assert node.json("list", "jobs") == []


def test_completion(short_dir):
    script = run_command("completion", "bash", base=short_dir).stdout
    complete = "COMP_WORDS=(sooner {words}); COMP_CWORD={at}; _sooner; echo ${{COMPREPLY[*]}}"
    for words, expected in (("sta", "start status stack"), ("list jo", "jobs"), ("start --node", "--node-name")):
        asked = complete.format(words=words, at=words.count(" ") + 1)
        done = subprocess.run(["bash", "-c", script + asked], capture_output=True, text=True, check=True)
        assert set(done.stdout.split()) == set(expected.split())
    assert "complete -c sooner" in run_command("completion", "fish", base=short_dir).stdout
    assert "bashcompinit" in run_command("completion", "zsh", base=short_dir).stdout


@pytest.mark.api("errors.node")
def test_a_program_whose_node_is_gone_does_not_go_on_in_another_session_unasked(node, nothing_left):
    """Every call says that the session has ended, until the program begins a new one; nothing is left of
    the first.
    """
    sooner.init(address=str(node.directory), log_to_driver=False)
    one = sooner.remote(lambda: 1)
    ref = one.remote()
    try:
        assert sooner.get(ref, timeout=WAIT) == 1
        os.kill(node.pid, signal.SIGKILL)
        poll("the program has noticed", lambda: not sooner.is_initialized())
        calls = [
            lambda: sooner.get(ref),
            lambda: sooner.wait([ref]),
            lambda: sooner.put(1),
            one.remote,
            sooner.nodes,
            lambda: sooner.get_actor("nobody"),
        ]
        for call in calls:
            with pytest.raises(sooner.exceptions.LocalNodeDiedError, match=r"the node is gone.*sooner.init\(\)"):
                call()
        sooner.init(num_cpus=1)
        assert sooner.get(one.remote(), timeout=WAIT) == 1
        with pytest.raises(ValueError, match="belongs to a session that has ended"):
            sooner.get(ref)
    finally:
        sooner.shutdown()
