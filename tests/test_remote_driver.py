"""Programs on machines without a node: they join a cluster by themselves.

A program whose runtime directory is another one than that of the nodes finds none of them, as on another
machine.
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
from support import Node, is_alive, poll, run_command, run_driver, running_driver, stop

import sooner

NO_TOKEN = "sooner-token-1-" + "0" * 64


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
    rest = {name: value for name, value in os.environ.items() if not name.startswith("SOONER_TOKEN")}
    return rest | {"SOONER_TMPDIR": str(short_dir), "SOONER_ADDRESS": told["head"], "SOONER_TOKEN": token}


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
    import os, sooner
    with sooner.init() as context:
        assert context["gcs_address"] == context["address"] == os.environ["SOONER_ADDRESS"]
        me = sooner.get_runtime_context().get_node_id()
        assert sooner.cluster_resources()["CPU"] == 2

        @sooner.remote
        def where(value):
            return sooner.get_runtime_context().get_node_id(), len(value)

        @sooner.remote(num_cpus=0)
        def free():
            return sooner.get_runtime_context().get_node_id()

        @sooner.remote(num_cpus=0)
        class Counter:
            def __init__(self):
                self.count = 0

            def add(self, more):
                self.count += more
                return self.count

            def node(self):
                return sooner.get_runtime_context().get_node_id()

        for size in (1, 200_000, 30_000_000):
            node, length = sooner.get(where.remote(bytes(size)))
            assert (node != me, length) == (True, size)
            ref = sooner.put(bytes(size))
            assert sooner.get([where.remote(ref) for _ in range(3)])[2][1] == size
        assert sooner.get(free.remote()) != me, "nothing runs in the program, also not what needs nothing"
        counter = Counter.remote()
        assert sooner.get([counter.add.remote(1) for _ in range(100)]) == list(range(1, 101))
        assert sooner.get(counter.node.remote()) != me
        assert len(sooner.nodes()) == 2
    print("done")
    """
    assert run_driver(code, env=away).stdout == "done\n"


def test_results_of_any_size_and_generators(away):
    code = """
    import sooner
    sooner.init()

    @sooner.remote
    def make(size):
        return bytes(range(256)) * (size // 256)

    @sooner.remote(num_returns="streaming")
    def stream(count):
        for number in range(count):
            yield bytes(300_000), number

    for size in (256, 1 << 20, 64 << 20):
        assert sooner.get(make.remote(size)) == bytes(range(256)) * (size // 256)
    assert [sooner.get(item)[1] for item in stream.remote(5)] == [0, 1, 2, 3, 4]
    """
    run_driver(code, env=away)


def test_who_was_handed_a_ref_of_the_program_asks_it_to_dial(away):
    # The inner task is at a worker that the program has no connection to.
    code = """
    import sooner
    sooner.init()

    @sooner.remote(num_cpus=1)
    def inner(box):
        return len(sooner.get(box[0]))

    @sooner.remote(num_cpus=1)
    def outer(box):
        return sooner.get(inner.remote(box))

    for size in (10, 5_000_000):
        assert sooner.get(outer.remote([sooner.put(bytes(size))])) == size
    """
    run_driver(code, env=away)


def test_names_are_those_of_the_cluster(head, away):
    code = """
    import sys, sooner
    sooner.init(namespace="shared")

    @sooner.remote(num_cpus=0)
    class Keeper:
        def __init__(self):
            self.value = None

        def put(self, value):
            self.value = value

        def get(self):
            return self.value

    if sys.argv[1] == "make":
        keeper = Keeper.options(name="keeper", lifetime="detached").remote()
        sooner.get(keeper.put.remote(bytes(2_000_000)))
    else:
        keeper = sooner.get_actor("keeper")
        print(len(sooner.get(keeper.get.remote())))
        sooner.kill(keeper)
    """
    run_driver(code, "make", env=away)
    poll("the program has left", lambda: not programs(head))
    assert head.driver(code, "read").stdout == "2000000\n"


def test_lines_of_workers_reach_the_program(away):
    code = """
    import sys, sooner
    sooner.init()

    @sooner.remote
    def say():
        print("hello from over there")

    sooner.get(say.remote())
    sys.stdin.readline()
    """
    with running_driver(code, env=away) as driver:
        assert driver.stdout.readline().endswith("hello from over there\n")
        driver.communicate("\n", timeout=60)
        assert driver.returncode == 0


@pytest.mark.api("errors.unreachable")
def test_what_one_program_owns_another_cannot_read(away):
    code = """
    import sys, sooner
    sooner.init(namespace="pair")

    @sooner.remote(num_cpus=0)
    class Shelf:
        def put(self, box):
            self.box = box

        def get(self):
            return self.box

    if sys.argv[1] == "owner":
        shelf = Shelf.options(name="shelf").remote()
        sizes = (10, 3_000_000)
        sooner.get(shelf.put.remote([sooner.put(bytes(size)) for size in sizes]))
        print("ready", flush=True)
        sys.stdin.readline()
    else:
        shelf = sooner.get_actor("shelf")
        # The second time the program knows, and must not wait for an answer either.
        for ref in sooner.get(shelf.get.remote()) + sooner.get(shelf.get.remote()):
            try:
                sooner.get(ref, timeout=60)
                raise SystemExit("it cannot have read that")
            except sooner.exceptions.PeerUnreachableError as error:
                assert "neither" in str(error), error

        @sooner.remote
        def length(box):
            return len(sooner.get(box[0]))

        assert sooner.get(length.remote([sooner.put(bytes(100))])) == 100, "all else goes on"
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
    import os, sys, time, sooner
    sooner.init(namespace="killed")

    @sooner.remote
    def sleep():
        print(os.getpid(), file=sys.stderr)
        time.sleep(1000)

    @sooner.remote(num_cpus=0)
    class Holder:
        def pid(self):
            return os.getpid()

    holder = Holder.options(name="holder").remote()
    refs = [sleep.remote() for _ in range(2)]
    print(sooner.get(holder.pid.remote()), flush=True)
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
    after = head.driver("import sooner; sooner.init(); print(sooner.available_resources()['CPU'])")
    assert after.stdout == "2.0\n"
    # What it left on its own machine goes with the next start there.
    run_driver("import sooner; sooner.init()", env=away)
    assert not [name for name in os.listdir(_runtime(away)) if name.startswith("session-")]


def _runtime(away):
    return Path(away["SOONER_TMPDIR"]) / f"sooner-{os.getuid()}"


def test_nothing_is_left_of_a_program_that_ends(head, away):
    run_driver("import sooner; sooner.init(); sooner.shutdown(); sooner.init()", env=away)
    assert os.listdir(_runtime(away)) == []


def refusal(away, code="import sooner; sooner.init()", **environment):
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
    without = {name: value for name, value in away.items() if name != "SOONER_TOKEN"}
    assert refusal(away, SOONER_TOKEN=NO_TOKEN).startswith("ConnectionError: address=")
    missing = refusal(without, SOONER_TOKEN_FILE="/nowhere/token")
    assert missing.startswith("ConnectionError: ")
    assert "/nowhere/token is not there" in missing
    assert "SOONER_TOKEN" in missing
    assert "does not contain a token" in refusal(away, SOONER_TOKEN="x")
    closed = refusal(away, SOONER_ADDRESS="127.0.0.1:1")
    assert closed.startswith("ConnectionError: ")
    assert "127.0.0.1:1" in closed
    assert refusal(away, SOONER_ADDRESS="127.0.0.1:0").startswith("ValueError: ")
    assert refusal(away, SOONER_ADDRESS="nowhere:port").startswith("ValueError: ")
    refused = refusal(away, "import sooner; sooner.init(num_cpus=1)")
    assert refused.startswith("ValueError: num_cpus")
    assert "sooner start" in refused
    assert refusal(away, "import sooner; sooner.init('local', token_file='/x')").startswith("ValueError: token_file")
    # It runs as if nothing had been tried.
    again = """
    import sooner
    try:
        sooner.init(token_file="/nowhere")
    except ConnectionError:
        sooner.init()
    print(1)
    """
    assert run_driver(again, env=away).stdout == "1\n"


def test_where_the_token_is(head, away, tmp_path):
    path = tmp_path / "token"
    path.write_text(away["SOONER_TOKEN"])
    path.chmod(0o600)
    # The argument goes before the environment.
    run_driver("import sys, sooner; sooner.init(token_file=sys.argv[1])", path, env=away | {"SOONER_TOKEN": NO_TOKEN})
    without = {name: value for name, value in away.items() if name != "SOONER_TOKEN"}
    run_driver("import sooner; sooner.init()", env=without | {"SOONER_TOKEN_FILE": str(path)})
    path.chmod(0o644)
    assert "ConnectionError" in refusal(without, SOONER_TOKEN_FILE=str(path))


def test_a_node_of_this_machine_is_used_where_there_is_one(head):
    told = head.json("status")["cluster"]
    code = "import sys, sooner; print(sooner.init(address=sys.argv[1])['session_dir'])"
    here = os.environ | {"SOONER_TMPDIR": str(head.base)}
    assert run_driver(code, told["head"], env=here).stdout == f"{head.directory}\n"


# What it waits for never comes; each wait ends.
WAITS = """
import sys, time, sooner
sooner.init()

@sooner.remote
def sleep():
    time.sleep(1000)

@sooner.remote(num_cpus=0)
class Sleeper:
    def begin(self):
        pass

    def sleep(self):
        time.sleep(1000)

sleeper = Sleeper.remote()
sooner.get(sleeper.begin.remote())
refs = [sleep.remote(), sleeper.sleep.remote()]
print("ready", flush=True)
try:
    sooner.wait(refs, num_returns=2)
except sooner.exceptions.SoonerError as error:
    print(type(error).__name__, flush=True)
"""


@pytest.mark.chaos
def test_a_program_that_stood_still_for_too_long_is_told(head, away):
    with running_driver(WAITS, env=away, stderr=subprocess.PIPE) as driver:
        assert driver.stdout.readline() == "ready\n"
        stop(driver.pid)
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
    token = {"SOONER_TOKEN_FILE": str(lost.directory.parent / "cluster" / "token")}
    environment = {name: value for name, value in away.items() if name != "SOONER_TOKEN"}
    with running_driver(WAITS, env=environment | token | {"SOONER_ADDRESS": address}, stderr=subprocess.PIPE) as driver:
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
    import sys, sooner
    sooner.init()

    @sooner.remote(num_cpus=1)
    class Counter:
        def __init__(self):
            self.count = 0

        def add(self):
            self.count += 1
            return self.count

    @sooner.remote(num_cpus=1)
    def length(value):
        return len(value)

    counter = Counter.remote()
    assert sooner.get(counter.add.remote()) == 1
    print("ready", flush=True)
    sys.stdin.readline()
    assert sooner.get([counter.add.remote(), length.remote(bytes(1_000))]) == [2, 1_000], "no head is needed"
    """
    environment = away | {"SOONER_ADDRESS": told[0], "SOONER_TOKEN": told[1]}
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
    assert issubclass(sooner.exceptions.PeerUnreachableError, sooner.exceptions.ObjectLostError)
    assert "no connection can be made" in str(sooner.exceptions.PeerUnreachableError("0a1b"))
