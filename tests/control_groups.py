"""Control groups with little memory, for programs of tests. Where none can be made, a test is skipped and
says why.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import poll

MOUNT = Path("/sys/fs/cgroup")
# By version: the file that limits memory, and the one that keeps what is over it from going to swap space.
LIMITS = {1: "memory.limit_in_bytes", 2: "memory.max"}
SWAPS = {1: ("memory.swappiness", "0"), 2: ("memory.swap.max", "0")}


def _parent(controller: str = "memory") -> tuple[int, Path]:
    """The version of a controller, and the group of this process."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return 1, MOUNT / controller / path.lstrip("/")
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        if line.startswith("0::"):
            return 2, MOUNT / line[3:].lstrip("/")
    return 2, MOUNT


@contextlib.contextmanager
def control_group(memory: int) -> Iterator[Path]:
    """A group whose processes have so many bytes together. A process joins by writing its id to
    `cgroup.procs`.
    """
    version, parent = _parent()
    group = parent / f"sooner-test-{uuid.uuid4().hex[:12]}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        try:
            (group / LIMITS[version]).write_text(str(memory))
        except OSError as error:
            pytest.skip(f"no control group can limit memory here: {error}")
        name, value = SWAPS[version]
        with contextlib.suppress(OSError):
            (group / name).write_text(value)
        yield group
    finally:
        # The template and the workers of a program may end a moment after it.
        poll("the group is empty", lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


@contextlib.contextmanager
def process_group(most: int) -> Iterator[Path]:
    """A group that may have so many processes and threads. A process joins by writing its id to
    `cgroup.procs`.
    """
    version, parent = _parent("pids")
    group = parent / f"sooner-test-{uuid.uuid4().hex[:12]}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        try:
            (group / "pids.max").write_text(str(most))
        except OSError as error:
            pytest.skip(f"no control group of version {version} can limit processes here: {error}")
        yield group
    finally:
        poll("the group is empty", lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


def groups_of_nodes() -> set[str]:
    """Names of the groups that nodes have made for their workers, in the group of this process or beside
    it.
    """
    _, own = _parent()
    found = [*own.glob("sooner-*"), *own.parent.glob("sooner-*")]
    return {path.name for path in found if len(path.name) == len("sooner-") + 16}


def kernel_kills(group: Path) -> int:
    """How many processes of this group the kernel ended for want of memory."""
    name = "memory.events" if (group / "memory.events").exists() else "memory.oom_control"
    words = dict(line.split() for line in (group / name).read_text().splitlines())
    return int(words["oom_kill"])
