"""Hosts with a network of their own: namespaces joined by a bridge, which the kernel removes with the last
    process.

Every namespace is held by a process that waits for the end of its input, so that nothing is left when the
tests are killed. The bridge is in a namespace of its own, too: the network of the machine is never
touched. The benchmark has its hosts from here as well, so this module needs nothing of the tests.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

# A bound for one command (seconds). It ends a hang; no healthy machine comes near it.
WAIT = 60

# What a shaped host may send at once, and what may wait there to be sent (bytes). A smaller burst costs
# goodput when the machine is busy, because the shaper wakes up late; the queue takes what a sender has under
# way.
_BURST_BYTES = 512 << 10
_QUEUE_BYTES = 2 << 20


class Space:
    """A network namespace and the process that holds it."""

    def __init__(self) -> None:
        # `unshare` becomes the holder, whose namespace is there when it has answered.
        self._holder = subprocess.Popen(
            ["unshare", "--net", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.pid = self._holder.pid
        self._identity = -1
        try:
            self._holder.stdin.write(b"\n")
            self._holder.stdin.flush()
            if not self._holder.stdout.read(1):
                raise OSError(
                    "no network namespace can be made: `unshare --net` needs the right to administer networks"
                )
            self._identity = os.stat(f"/proc/{self.pid}/ns/net").st_ino
            self.run("ip", "link", "set", "lo", "up")
        except BaseException:
            self.close()
            raise

    def command(self, *arguments: str) -> list[str]:
        """A command line that runs another one here."""
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net", "--", *arguments]

    def run(self, *arguments: str) -> str:
        """The output of a command that runs here."""
        done = subprocess.run(self.command(*arguments), capture_output=True, text=True, timeout=WAIT, check=False)
        if done.returncode:
            raise OSError(f"{' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def close(self) -> None:
        """Kills what is left in it and lets go of it: a namespace is there for as long as processes are."""
        # As long as the holder is there, no other namespace has this identity.
        for left in self._left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(left, signal.SIGKILL)
        with contextlib.suppress(BrokenPipeError):
            self._holder.stdin.close()
        self._holder.wait(WAIT)
        self._holder.stdout.close()

    def _left(self) -> list[int]:
        """Processes that are in it beside the holder. Other systems leave some that nobody waits for."""
        left = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and (entry / "ns" / "net").stat().st_ino == self._identity:
                    left.append(int(entry.name))
        return [process for process in left if process != self.pid]


class Host:
    """A host: its namespace, its address, and a directory where its nodes lie."""

    def __init__(self, number: int, switch: Space, base: Path) -> None:
        self.address = f"10.77.0.{number + 1}"
        self.base = base
        self._port = f"port{number}"
        self._switch = switch
        self.space = Space()
        base.mkdir()
        switch.run(
            "ip", "link", "add", self._port, "type", "veth", "peer", "name", "eth0", "netns", str(self.space.pid)
        )
        switch.run("ip", "link", "set", self._port, "master", "bridge", "up")
        self.space.run("ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        self.space.run("ip", "link", "set", "eth0", "up")

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables for programs of this host."""
        return os.environ | {"SOONER_TMPDIR": str(self.base), "SOONER_ADDRESS": "auto"}

    def sooner(self, *arguments: str, check: int | None = 0, **environment: str) -> subprocess.CompletedProcess:
        """Runs the `sooner` command on this host."""
        done = subprocess.run(
            self.space.command(sys.executable, "-m", "sooner", *arguments),
            capture_output=True,
            text=True,
            timeout=WAIT,
            check=False,
            env=self.environment | environment,
        )
        assert check is None or done.returncode == check, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def json(self, *arguments: str, **environment: str) -> Any:
        """What a `sooner` command says."""
        return json.loads(self.sooner(*arguments, "--json", **environment).stdout)

    @contextlib.contextmanager
    def running(self, code: str, **environment: str) -> Iterator[subprocess.Popen]:
        """A program that runs on this host beside the test."""
        program = subprocess.Popen(
            self.space.command(sys.executable, "-c", textwrap.dedent(code)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment | environment,
        )
        try:
            yield program
        finally:
            program.kill()
            program.communicate()

    def shape(self, megabits: float) -> None:
        """Limits what this host sends and receives (1,000,000 bits per second each), frames included."""
        rate = ["root", "tbf", "rate", f"{megabits}mbit", "burst", str(_BURST_BYTES), "limit", str(_QUEUE_BYTES)]
        self.space.run("tc", "qdisc", "replace", "dev", "eth0", *rate)
        self._switch.run("tc", "qdisc", "replace", "dev", self._port, *rate)

    def cut(self) -> None:
        """Pulls the plug: what is sent is lost, and nobody is told."""
        self._switch.run("ip", "link", "set", self._port, "nomaster")

    def heal(self) -> None:
        """Plugs it in again."""
        self._switch.run("ip", "link", "set", self._port, "master", "bridge")

    def close(self) -> None:
        """Ends the nodes of this host."""
        if any(self.base.iterdir()):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.sooner("stop", "--force", check=None)
        self.space.close()


@functools.cache
def obstacle() -> str | None:
    """Why this machine cannot have hosts of its own; None if it can."""
    missing = [name for name in ("ip", "tc", "unshare", "nsenter") if shutil.which(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (apt-get install iproute2 util-linux)"
    try:
        space = Space()
    except OSError as error:
        return str(error)
    try:
        space.run("ip", "link", "add", "bridge", "type", "bridge")
    except OSError as error:
        return f"no bridge can be made: {error}"
    finally:
        space.close()
    return None


@contextlib.contextmanager
def hosts(count: int, base: Path) -> Iterator[Sequence[Host]]:
    """Hosts 10.77.0.1, 10.77.0.2 and so on, on one switch.

    Args:
        count: How many.
        base: Where each has its directory; short, because the paths of sockets are.
    """
    with contextlib.ExitStack() as stack:
        switch = Space()
        stack.callback(switch.close)
        switch.run("ip", "link", "add", "bridge", "type", "bridge")
        switch.run("ip", "link", "set", "bridge", "up")
        made = []
        for number in range(count):
            made.append(Host(number, switch, base / f"h{number}"))
            stack.callback(made[-1].close)
        yield made


def silence(host: Host, other: Host) -> None:
    """Loses whatever a host sends to another one, as a switch does that has forgotten a way; nobody is
    told.
    """
    nowhere = ["lladdr", "02:00:00:00:00:01", "nud", "permanent"]
    host.space.run("ip", "neigh", "replace", other.address, *nowhere, "dev", "eth0")


def unsilence(host: Host, other: Host) -> None:
    """Undoes :func:`silence`."""
    host.space.run("ip", "neigh", "del", other.address, "dev", "eth0")
