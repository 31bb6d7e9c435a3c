"""Programs on machines without a node: they join a cluster by themselves.

A program whose runtime directory is another one than that of the nodes finds none of them, as on another machine.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest
from support import Node, is_alive, poll, run_command, run_driver, running_driver

import weft

NO_TOKEN = "weft-token-1-" + "0" * 64


@pytest.fixture(scope="module")
def head():
    base = Path(tempfile.mkdtemp(prefix="wt-r-"))
    try:
        yield Node(base, "--host=127.0.0.1", "--health-timeout=2")
    finally:
        run_command("stop", "--force", base=base, check=None)
        shutil.rmtree(base, ignore_errors=True)


@pytest.fixture
def away(head, short_dir):
    """The environment of a program that has the address and the token, and no node."""
    told = head.json("status")["cluster"]
    token = run_command("token", base=head.base).stdout.strip()
    rest = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_TOKEN")}
    return rest | {"WEFT_TMPDIR": str(short_dir), "WEFT_ADDRESS": told["head"], "WEFT_TOKEN": token}


def names(head):
    return [row["node_name"] for row in head.json("list", "nodes")]


def programs(head):
    return [name for name in names(head) if name.startswith("driver-")]


@pytest.fixture(autouse=True)
def nothing_is_left(head):
    yield
    poll("the programs have left", lambda: not programs(head))


@pytest.mark.api("init.remote")
def test_it_is_an_ordinary_program(head, away):
    code = """
    import os, weft
    with weft.init() as context:
        assert context["gcs_address"] == context["address"] == os.environ["WEFT_ADDRESS"]
        me = weft.get_runtime_context().get_node_id()
        assert weft.cluster_resources()["CPU"] == 2

        @weft.remote
        def where(value):
            return weft.get_runtime_context().get_node_id(), len(value)

        @weft.remote(num_cpus=0)
        def free():
            return weft.get_runtime_context().get_node_id()

        @weft.remote(num_cpus=0)
        class Counter:
            def __init__(self):
                self.count = 0

            def add(self, more):
                self.count += more
                return self.count

            def node(self):
                return weft.get_runtime_context().get_node_id()

        for size in (1, 200_000, 30_000_000):
            node, length = weft.get(where.remote(bytes(size)))
            assert (node != me, length) == (True, size)
            ref = weft.put(bytes(size))
            assert weft.get([where.remote(ref) for _ in range(3)])[2][1] == size
        assert weft.get(free.remote()) != me, "nothing runs in the program, also not what needs nothing"
        counter = Counter.remote()
        assert weft.get([counter.add.remote(1) for _ in range(100)]) == list(range(1, 101))
        assert weft.get(counter.node.remote()) != me
        assert len(weft.nodes()) == 2
    print("done")
    """
    assert run_driver(code, env=away).stdout == "done\n"


def test_results_of_any_size_and_generators(away):
    code = """
    import weft
    weft.init()

    @weft.remote
    def make(size):
        return bytes(range(256)) * (size // 256)

    @weft.remote(num_returns="streaming")
    def stream(count):
        for number in range(count):
            yield bytes(300_000), number

    for size in (256, 1 << 20, 64 << 20):
        assert weft.get(make.remote(size)) == bytes(range(256)) * (size // 256)
    assert [weft.get(item)[1] for item in stream.remote(5)] == [0, 1, 2, 3, 4]
    """
    run_driver(code, env=away)


def test_who_was_handed_a_ref_of_the_program_asks_it_to_dial(away):
    # The inner task is at a worker that the program has no connection to.
    code = """
    import weft
    weft.init()

    @weft.remote(num_cpus=1)
    def inner(box):
        return len(weft.get(box[0]))

    @weft.remote(num_cpus=1)
    def outer(box):
        return weft.get(inner.remote(box))

    for size in (10, 5_000_000):
        assert weft.get(outer.remote([weft.put(bytes(size))])) == size
    """
    run_driver(code, env=away)


def test_names_are_those_of_the_cluster(head, away):
    code = """
    import sys, weft
    weft.init(namespace="shared")

    @weft.remote(num_cpus=0)
    class Keeper:
        def __init__(self):
            self.value = None

        def put(self, value):
            self.value = value

        def get(self):
            return self.value

    if sys.argv[1] == "make":
        keeper = Keeper.options(name="keeper", lifetime="detached").remote()
        weft.get(keeper.put.remote(bytes(2_000_000)))
    else:
        keeper = weft.get_actor("keeper")
        print(len(weft.get(keeper.get.remote())))
        weft.kill(keeper)
    """
    run_driver(code, "make", env=away)
    poll("the program has left", lambda: not programs(head))
    assert head.driver(code, "read").stdout == "2000000\n"


def test_lines_of_workers_reach_the_program(away):
    code = """
    import sys, weft
    weft.init()

    @weft.remote
    def say():
        print("hello from over there")

    weft.get(say.remote())
    sys.stdin.readline()
    """
    with running_driver(code, env=away) as driver:
        assert driver.stdout.readline().endswith("hello from over there\n")
        driver.communicate("\n", timeout=60)
        assert driver.returncode == 0


@pytest.mark.api("errors.unreachable")
def test_what_one_program_owns_another_cannot_read(away):
    code = """
    import sys, weft
    weft.init(namespace="pair")

    @weft.remote(num_cpus=0)
    class Shelf:
        def put(self, box):
            self.box = box

        def get(self):
            return self.box

    if sys.argv[1] == "owner":
        shelf = Shelf.options(name="shelf").remote()
        sizes = (10, 3_000_000)
        weft.get(shelf.put.remote([weft.put(bytes(size)) for size in sizes]))
        print("ready", flush=True)
        sys.stdin.readline()
    else:
        shelf = weft.get_actor("shelf")
        # The second time the program knows, and must not wait for an answer either.
        for ref in weft.get(shelf.get.remote()) + weft.get(shelf.get.remote()):
            try:
                weft.get(ref, timeout=20)
                raise SystemExit("it cannot have read that")
            except weft.exceptions.PeerUnreachableError as error:
                assert "neither" in str(error), error

        @weft.remote
        def length(box):
            return len(weft.get(box[0]))

        assert weft.get(length.remote([weft.put(bytes(100))])) == 100, "all else goes on"
        print("done")
    """
    with running_driver(code, "owner", env=away) as owner:
        assert owner.stdout.readline() == "ready\n"
        assert run_driver(code, "reader", env=away).stdout == "done\n"
        assert owner.poll() is None, "nobody was killed for it"
        owner.communicate("\n", timeout=60)
        assert owner.returncode == 0


@pytest.mark.chaos
def test_a_program_that_is_killed_leaves_nothing_in_the_cluster(head, away):
    code = """
    import os, sys, time, weft
    weft.init(namespace="killed")

    @weft.remote
    def sleep():
        print(os.getpid(), file=sys.stderr)
        time.sleep(1000)

    @weft.remote(num_cpus=0)
    class Holder:
        def pid(self):
            return os.getpid()

    holder = Holder.options(name="holder").remote()
    refs = [sleep.remote() for _ in range(2)]
    print(weft.get(holder.pid.remote()), flush=True)
    time.sleep(1000)
    """
    before = head.processes()
    with running_driver(code, env=away) as driver:
        pid = int(driver.stdout.readline())
        assert programs(head)
        driver.send_signal(signal.SIGKILL)
        driver.wait(60)
        poll("the head knows", lambda: not programs(head))
        poll("its actor is gone", lambda: not is_alive(pid))
        poll("its workers and template are gone", lambda: not head.processes() - before)
    after = head.driver("import weft; weft.init(); print(weft.available_resources()['CPU'])")
    assert after.stdout == "2.0\n"
    # What it left on its own machine goes with the next start there.
    run_driver("import weft; weft.init()", env=away)
    assert not [name for name in os.listdir(_runtime(away)) if name.startswith("session-")]


def _runtime(away):
    return Path(away["WEFT_TMPDIR"]) / f"weft-{os.getuid()}"


def test_nothing_is_left_of_a_program_that_ends(head, away):
    run_driver("import weft; weft.init(); weft.shutdown(); weft.init()", env=away)
    assert os.listdir(_runtime(away)) == []


def refusal(away, code="import weft; weft.init()", **environment):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=away | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stderr.strip().splitlines()[-1]


@pytest.mark.api("init.remote")
def test_why_it_cannot_join(head, away):
    without = {name: value for name, value in away.items() if name != "WEFT_TOKEN"}
    assert refusal(away, WEFT_TOKEN=NO_TOKEN).startswith("ConnectionError: address=")
    missing = refusal(without, WEFT_TOKEN_FILE="/nowhere/token")
    assert missing.startswith("ConnectionError: ")
    assert "/nowhere/token is not there" in missing
    assert "WEFT_TOKEN" in missing
    assert "does not contain a token" in refusal(away, WEFT_TOKEN="x")
    closed = refusal(away, WEFT_ADDRESS="127.0.0.1:1")
    assert closed.startswith("ConnectionError: ")
    assert "127.0.0.1:1" in closed
    assert refusal(away, WEFT_ADDRESS="127.0.0.1:0").startswith("ValueError: ")
    assert refusal(away, WEFT_ADDRESS="nowhere:port").startswith("ValueError: ")
    refused = refusal(away, "import weft; weft.init(num_cpus=1)")
    assert refused.startswith("ValueError: num_cpus")
    assert "weft start" in refused
    assert refusal(away, "import weft; weft.init('local', token_file='/x')").startswith("ValueError: token_file")
    # It runs as if nothing had been tried.
    again = """
    import weft
    try:
        weft.init(token_file="/nowhere")
    except ConnectionError:
        weft.init()
    print(1)
    """
    assert run_driver(again, env=away).stdout == "1\n"


def test_where_the_token_is(head, away, tmp_path):
    path = tmp_path / "token"
    path.write_text(away["WEFT_TOKEN"])
    path.chmod(0o600)
    # The argument goes before the environment.
    run_driver("import sys, weft; weft.init(token_file=sys.argv[1])", path, env=away | {"WEFT_TOKEN": NO_TOKEN})
    without = {name: value for name, value in away.items() if name != "WEFT_TOKEN"}
    run_driver("import weft; weft.init()", env=without | {"WEFT_TOKEN_FILE": str(path)})
    path.chmod(0o644)
    assert "ConnectionError" in refusal(without, WEFT_TOKEN_FILE=str(path))


def test_a_node_of_this_machine_is_used_where_there_is_one(head):
    told = head.json("status")["cluster"]
    code = "import sys, weft; print(weft.init(address=sys.argv[1])['session_dir'])"
    here = os.environ | {"WEFT_TMPDIR": str(head.base)}
    assert run_driver(code, told["head"], env=here).stdout == f"{head.directory}\n"


# What it waits for never comes; each wait ends.
WAITS = """
import sys, time, weft
weft.init()

@weft.remote
def sleep():
    time.sleep(1000)

@weft.remote(num_cpus=0)
class Sleeper:
    def begin(self):
        pass

    def sleep(self):
        time.sleep(1000)

sleeper = Sleeper.remote()
weft.get(sleeper.begin.remote())
refs = [sleep.remote(), sleeper.sleep.remote()]
print("ready", flush=True)
try:
    weft.wait(refs, num_returns=2)
except weft.exceptions.WeftError as error:
    print(type(error).__name__, flush=True)
"""


@pytest.mark.chaos
def test_a_program_that_stood_still_for_too_long_is_told(head, away):
    with running_driver(WAITS, env=away, stderr=subprocess.PIPE) as driver:
        assert driver.stdout.readline() == "ready\n"
        driver.send_signal(signal.SIGSTOP)
        poll("it is gone", lambda: not programs(head))
        driver.send_signal(signal.SIGCONT)
        out, errors = driver.communicate(timeout=60)
        assert out == "LocalNodeDiedError\n"
        assert "not part of its cluster any more" in errors


@pytest.mark.chaos
def test_a_program_waits_for_its_head_and_not_without_end(away, short_dir):
    base = short_dir / "head"
    base.mkdir()
    lost = Node(base, "--health-timeout=1")
    address = lost.json("status")["cluster"]["head"]
    token = {"WEFT_TOKEN_FILE": str(lost.directory.parent / "cluster" / "token")}
    environment = {name: value for name, value in away.items() if name != "WEFT_TOKEN"}
    with running_driver(WAITS, env=environment | token | {"WEFT_ADDRESS": address}, stderr=subprocess.PIPE) as driver:
        assert driver.stdout.readline() == "ready\n"
        os.kill(lost.pid, signal.SIGKILL)
        out, errors = driver.communicate(timeout=100)
        assert out == "LocalNodeDiedError\n"
        assert "there was no connection to the head for 12 s" in errors


@pytest.mark.chaos
def test_without_the_head_work_on_other_nodes_goes_on(away, short_dir):
    base = short_dir / "head"
    base.mkdir()
    (short_dir / "node").mkdir()
    head = Node(base, "--num-cpus=0")
    told = head.json("status")["cluster"]["head"], run_command("token", base=base).stdout.strip()
    node = Node(short_dir / "node", join=told)
    code = """
    import sys, weft
    weft.init()

    @weft.remote(num_cpus=1)
    class Counter:
        def __init__(self):
            self.count = 0

        def add(self):
            self.count += 1
            return self.count

    @weft.remote(num_cpus=1)
    def length(value):
        return len(value)

    counter = Counter.remote()
    assert weft.get(counter.add.remote()) == 1
    print("ready", flush=True)
    sys.stdin.readline()
    assert weft.get([counter.add.remote(), length.remote(bytes(1_000))]) == [2, 1_000], "no head is needed"
    """
    environment = away | {"WEFT_ADDRESS": told[0], "WEFT_TOKEN": told[1]}
    try:
        with running_driver(code, env=environment) as driver:
            assert driver.stdout.readline() == "ready\n"
            os.kill(head.pid, signal.SIGKILL)
            driver.communicate("\n", timeout=60)
            assert driver.returncode == 0
    finally:
        for one in (node, head):
            run_command("stop", "--force", base=one.base, check=None)


@pytest.mark.api("errors.unreachable")
def test_the_error_says_what_it_is():
    assert issubclass(weft.exceptions.PeerUnreachableError, weft.exceptions.ObjectLostError)
    assert "no connection can be made" in str(weft.exceptions.PeerUnreachableError("0a1b"))
