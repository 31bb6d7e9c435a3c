"""`sooner token rotate`, `switch`, `finish`: another token for a cluster that works."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from support import WAIT, Node, poll, run_command, running_driver

from sooner import _sooner
from sooner._session import membership

# A program that talks between the nodes, with workers of before and with new ones, each time it reads a line.
PROGRAM = """
import sys, sooner

sooner.init()

@sooner.remote(num_cpus=0, max_concurrency=20)
class Peer:
    def ask(self, other):
        return sooner.get(other.name.remote())
    def name(self):
        return sooner.get_runtime_context().get_node_id()

there = dict(resources={"b": 0.01})
here = dict(resources={"a": 0.01})
old = [Peer.options(**here).remote(), Peer.options(**there).remote()]
sooner.get([one.name.remote() for one in old])
print("ready", flush=True)
for line in sys.stdin:
    new = [Peer.options(**here).remote(), Peer.options(**there).remote()]
    pairs = [(one, other) for one in old + new for other in old + new]
    names = sooner.get([one.ask.remote(other) for one, other in pairs], timeout=30)
    print(len(names), len(set(names)), flush=True)
"""


class Machines(NamedTuple):
    """A head and a node, with token files of their own."""

    head: Node
    node: Node
    address: str
    files: tuple[Path, Path]

    def step(self, which: str, at: int, token: str | None = None, check: int = 0) -> str:
        """Does a step at one of the two; gives what it prints, or the error."""
        base = (self.head, self.node)[at].base
        given = {} if token is None else {"SOONER_TOKEN": token}
        file = ("--token-file", str(self.files[at]))
        done = run_command("token", which, *file, base=base, check=check, **given)
        return done.stderr if check else done.stdout.strip()

    def joins(self, base: Path, token: str) -> int:
        """The exit status of a node that joins with a token; it ends at once."""
        base.mkdir()
        done = run_command("start", f"--address={self.address}", base=base, check=None, SOONER_TOKEN=token)
        if done.returncode == 0:
            run_command("stop", "--force", base=base)
        return done.returncode


@pytest.fixture
def machines(short_dir) -> Iterator[Machines]:
    bases = short_dir / "a", short_dir / "b"
    for base in bases:
        base.mkdir()
    head = Node(bases[0], "--resources", '{"a": 1}')
    told = membership.membership(str(head.directory))
    files = Path(told["token_file"]), bases[1] / "token"
    files[1].write_text(files[0].read_text())
    files[1].chmod(0o600)
    node = Node(bases[1], "--token-file", str(files[1]), "--resources", '{"b": 1}', join=(told["head"], ""))
    yield Machines(head, node, told["head"], files)
    for one in (node, head):
        one.run("stop", "--force", check=None)


@pytest.mark.api("cli.token")
@pytest.mark.timeout(240)
def test_a_cluster_gets_another_token_while_it_works(machines, short_dir):
    old = machines.files[0].read_text().strip()
    with machines.head.running_driver(PROGRAM) as program:
        assert program.stdout.readline() == "ready\n"

        def talks() -> None:
            program.stdin.write("go\n")
            program.stdin.flush()
            assert program.stdout.readline() == "16 2\n"

        talks()
        new = machines.step("rotate", 0)
        assert new != old
        talks()
        assert machines.step("rotate", 1, new) == new
        talks()
        assert machines.joins(short_dir / "c", old) == 0
        for at in (1, 0):
            assert machines.step("switch", at) == new
            talks()
        assert machines.joins(short_dir / "d", new) == 0
        for at in (0, 1):
            assert machines.step("finish", at) == new
            talks()
        refused = machines.joins(short_dir / "e", old)
        assert refused == 7, "the token is not that of the cluster"
        assert machines.joins(short_dir / "f", new) == 0
        fingerprints = {membership.membership(str(one.directory))["fingerprint"] for one in machines[:2]}
        assert len(fingerprints) == 1
        assert machines.head.json("status")["cluster"]["fingerprint"] in fingerprints
    # And after a new start of the head, over connections that are all new.
    os.kill(machines.head.pid, signal.SIGKILL)
    port = machines.address.rpartition(":")[2]
    head = Node(machines.head.base, "--port", port)

    def is_back() -> bool:
        return [row["state"] for row in head.json("list", "nodes")].count("ALIVE") == 2

    try:
        poll("the node is back", is_back, WAIT)
    finally:
        head.run("stop", "--force")


def test_steps_are_done_in_their_order(machines):
    texts = [file.read_text() for file in machines.files]
    for wrong in ("switch", "finish"):
        assert "begin with `sooner token rotate`" in machines.step(wrong, 0, check=1)
    assert "the head of this cluster is on another machine" in machines.step("rotate", 1, check=1)
    assert "does not contain a token" in machines.step("rotate", 1, "x", check=1)
    assert "is used already" in machines.step("rotate", 0, texts[0].strip(), check=1)
    assert [file.read_text() for file in machines.files] == texts
    new = machines.step("rotate", 0)
    assert machines.files[0].read_text() == f"{texts[0].strip()}\n{new}\n"
    assert machines.files[0].stat().st_mode & 0o777 == 0o600
    assert "is being changed already" in machines.step("rotate", 0, check=1)
    # `sooner token` prints the one that is shown.
    assert machines.step("print", 0) == texts[0].strip()


def test_one_command_changes_the_token_at_a_time(machines):
    file = machines.files[0]
    before = file.read_text()
    with open(file) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        for step in ("rotate", "switch", "finish", "renew"):
            assert "is being changed already, by a command that runs" in machines.step(step, 0, check=1)
        assert machines.step("print", 0) == before.strip()
    assert file.read_text() == before
    # What is changed is held until nodes have read it: a second `switch` would change it back.
    _, _, held = _sooner.change_token(str(file), "rotate", None)
    assert "by a command that runs" in machines.step("switch", 0, check=1)
    for descriptor in held:
        os.close(descriptor)
    machines.step("switch", 0)


def test_a_token_that_a_command_prints_is_that_of_the_file(machines):
    command = [sys.executable, "-m", "sooner", "token", "rotate"]
    environment = os.environ | {"SOONER_TMPDIR": str(machines.head.base)}
    with contextlib.ExitStack() as started:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        several = [started.enter_context(subprocess.Popen(command, env=environment, **pipes)) for _ in range(4)]
        said = [process.communicate(timeout=WAIT) for process in several]
    assert sorted(process.returncode for process in several) == [0, 1, 1, 1]
    printed = [out.strip() for out, _ in said if out]
    assert machines.files[0].read_text().split()[1:] == printed
    assert sum("is being changed already" in error for _, error in said) == 3


# A program that has joined by itself. For each line that it reads it calls a process that it has no
# connection with.
JOINED = """
import sys, sooner

sooner.init(address=sys.argv[1])

@sooner.remote(num_cpus=0)
class Peer:
    def ask(self):
        return "heard"

peers = []
print("ready", flush=True)
for line in sys.stdin:
    peers.append(Peer.remote())
    print(sooner.get(peers[-1].ask.remote()), flush=True)
"""


@contextlib.contextmanager
def joined(machines: Machines, base: Path, **token: str) -> Iterator[tuple[subprocess.Popen, Path]]:
    """A program that is on a machine without a node, and what it writes to its standard error."""
    base.mkdir()
    told = base / "told"
    environment = os.environ | {"SOONER_TMPDIR": str(base)} | token
    with (
        told.open("w") as stderr,
        running_driver(JOINED, machines.address, env=environment, stderr=stderr) as program,
    ):
        assert program.stdout.readline() == "ready\n"
        yield program, told


def go(program: subprocess.Popen) -> None:
    program.stdin.write("go\n")
    program.stdin.flush()


@pytest.mark.parametrize(
    ("before", "looks"),
    [
        ((), [("rotate",), ("switch",), ("finish",)]),
        ((), [("rotate", "switch", "finish")]),
        (("rotate",), [("switch", "finish")]),
    ],
    ids=["each", "last", "both"],
)
def test_a_program_that_has_joined_follows_its_file(machines, short_dir, before, looks):
    """Also if it has never seen both in there, or saw both and is refused because it shows the old one."""

    def change(*steps: str) -> None:
        for step in steps:
            new = machines.step(step, 0)
            assert machines.step(step, 1, new if step == "rotate" else None) == new

    change(*before)
    with joined(machines, short_dir / "p", SOONER_TOKEN_FILE=str(machines.files[0])) as (program, told):
        for steps in looks:
            change(*steps)
            go(program)
            assert program.stdout.readline() == "heard\n"
        assert told.read_text() == ""


def test_a_program_that_has_joined_without_a_file_says_that_its_token_was_changed(machines, short_dir):
    token = machines.files[0].read_text().strip()
    with joined(machines, short_dir / "p", SOONER_TOKEN=token) as (program, told):
        new = machines.step("rotate", 0)
        machines.step("rotate", 1, new)
        go(program)
        assert program.stdout.readline() == "heard\n"
        for at in (0, 1):
            machines.step("switch", at)
        go(program)
        poll("it says so", lambda: "start it again with the new token" in told.read_text())
        said = told.read_text()
        assert "SOONER_TOKEN had its token" in said
        assert token not in said
        assert new not in said


def test_a_node_takes_no_token_that_would_cut_it_off(machines):
    before = membership.membership(str(machines.node.directory))
    text = machines.files[1].read_text()
    machines.files[1].write_text(f"sooner-token-1-{'7b' * 32}\n")
    refused = machines.step("renew", 1, check=1)
    assert "it would be cut off from its cluster" in refused
    assert membership.membership(str(machines.node.directory))["fingerprint"] == before["fingerprint"]
    machines.files[1].write_text(text)
    machines.step("renew", 1)
    assert "refused" not in membership.membership(str(machines.node.directory))


def test_a_node_that_starts_in_the_middle_believes_both(machines, short_dir):
    machines.step("rotate", 0)
    base = short_dir / "g"
    base.mkdir()
    file = base / "token"
    # Turned round already: it shows the new one, which the head believes, and believes the old one, which
    # that shows.
    file.write_text("\n".join(reversed(machines.files[0].read_text().split())))
    file.chmod(0o600)
    done = run_command("start", f"--address={machines.address}", "--token-file", str(file), base=base)
    assert "to end it" in done.stdout
    run_command("stop", base=base)
