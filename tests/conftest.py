"""Sessions for the tests, and what is checked around each of them: nothing is left, and nothing hangs for
ever.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import Footprint, Node, poll, run_command

import sooner

# Above the `timeout` of pyproject.toml: that one fails a test, this one ends a process that does not react to
# signals.
_WATCHDOG_SECONDS = 300
_stderr = -1


def pytest_configure() -> None:
    # Output is captured during a test; the watchdog's must be seen.
    global _stderr
    _stderr = os.dup(2)


def pytest_collection_finish() -> None:
    # All modules are imported now. Left out, they make each of the thousands of collections below take 0.1 s.
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    marker = item.get_closest_marker("timeout")
    # Tests that run for as long as they are told say so.
    own = marker.args[0] + 60 if marker is not None and marker.args else 0
    faulthandler.dump_traceback_later(max(_WATCHDOG_SECONDS, own), exit=True, file=_stderr)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@contextlib.contextmanager
def _nothing_left(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    gc.collect()
    failed_before = request.session.testsfailed
    before = Footprint.now()
    directories: list[str] = []
    yield directories
    if request.session.testsfailed != failed_before:
        # The traceback of a failed test holds its references and views.
        return
    # Sooner ends what it started before shutdown returns; only exit codes of processes may still be on their
    # way.
    gc.collect()
    left = "not looked"

    def is_clean() -> bool:
        nonlocal left
        left = before.left_over(Footprint.now())
        if left:
            # What another thread has ended meanwhile may be a cycle, with the traceback of its error.
            gc.collect()
        return not left

    try:
        poll("nothing is left of the session", is_clean)
    except AssertionError:
        pytest.fail(f"left of the session: {left}")
    for directory in directories:
        assert not Path(directory).exists(), f"{directory} is left of the session"


@pytest.fixture
def nothing_left(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Checks that no process, descriptor, thread or shared memory is left, nor a directory put into the
    list.
    """
    with _nothing_left(request) as directories:
        yield directories


@contextlib.contextmanager
def _session(request: pytest.FixtureRequest) -> Iterator[sooner.SoonerContext]:
    with _nothing_left(request) as directories:
        context = sooner.init(num_cpus=2)
        directories.append(context["session_dir"])
        try:
            yield context
        finally:
            sooner.shutdown()


@pytest.fixture
def sooner_session(request: pytest.FixtureRequest) -> Iterator[sooner.SoonerContext]:
    """A session with 2 CPUs for one test, after which nothing is left."""
    with _session(request) as context:
        yield context


@pytest.fixture(scope="module")
def shared_session(request: pytest.FixtureRequest) -> Iterator[sooner.SoonerContext]:
    """One session with 2 CPUs for the tests of a file that do not end it."""
    with _session(request) as context:
        yield context


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A private directory whose path is short enough for a socket below it."""
    path = Path(tempfile.mkdtemp(prefix="wt-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def node(short_dir: Path) -> Iterator[Node]:
    """A node of its own with 2 CPUs, of which nothing is left afterwards."""
    try:
        started = Node(short_dir)
        yield started
    finally:
        run_command("stop", "--force", base=short_dir, check=None)
    poll("nothing is left of the node", started.is_gone)
