"""Bounds of queues that a user meets: how much one program may have submitted before it waits."""

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sooner
from sooner.exceptions import PendingCallsLimitExceeded


@pytest.fixture
def limit() -> Iterator[int]:
    sooner.init(num_cpus=2, max_pending_tasks=20)
    yield 20
    sooner.shutdown()


@sooner.remote
def wait_for(path: Path) -> str:
    while not path.exists():
        time.sleep(0.01)
    return path.name


@sooner.remote
def short() -> int:
    return 1


def pending() -> int:
    from sooner.util import state

    return len([task for task in state.list_tasks() if task.state not in ("FINISHED", "FAILED")])


@pytest.mark.parametrize("asked", [0, -1, 1.5, "many", True, 1 << 40])
def test_what_is_no_limit_is_refused(asked: Any) -> None:
    with pytest.raises(ValueError, match="max_pending_tasks must be a whole number, 1 or more"):
        sooner.init(max_pending_tasks=asked)
    assert not sooner.is_initialized()


def test_a_submission_beyond_the_limit_waits_until_there_is_room(
    limit: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gate = tmp_path / "gate"
    refs: list[sooner.ObjectRef[str]] = []

    def submit() -> None:
        while len(refs) < 3 * limit:
            refs.append(wait_for.remote(gate))

    thread = threading.Thread(target=submit)
    with caplog.at_level(logging.WARNING, logger="sooner"):
        thread.start()
        while len(refs) < limit:
            time.sleep(0.01)
        thread.join(1)
        assert thread.is_alive(), "it waits"
        assert len(refs) == limit
        assert pending() == limit
        gate.touch()
        thread.join()
    assert sooner.get(refs) == ["gate"] * 3 * limit
    told = [record.getMessage() for record in caplog.records if "max_pending_tasks=20" in record.getMessage()]
    assert len(told) == 1, "once"
    assert told[0].startswith("11 tasks and calls"), "at the half"


def test_calls_of_actors_count_too(limit: int, tmp_path: Path) -> None:
    @sooner.remote(num_cpus=0)
    class Slow:
        def wait(self, path: Path) -> None:
            while not path.exists():
                time.sleep(0.01)

        def nothing(self) -> int:
            return 1

    gate = tmp_path / "gate"
    actor = Slow.remote()
    sooner.get(actor.nothing.remote())
    first = actor.wait.remote(gate)
    opener = threading.Timer(1, gate.touch)
    begin = time.monotonic()
    refs = []
    opener.start()
    # That the actor is there may be heard later than what it answers.
    refs += [actor.nothing.remote() for _ in range(limit - 2)]
    assert not gate.exists()
    refs += [actor.nothing.remote() for _ in range(2)]
    assert gate.exists(), "the last one had to wait"
    assert time.monotonic() - begin >= 1
    assert sooner.get(refs) == [1] * limit
    assert sooner.get(first) is None


def test_on_an_event_loop_it_is_an_error(limit: int, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    async def main() -> int:
        refs = [wait_for.remote(gate) for _ in range(limit)]
        with pytest.raises(PendingCallsLimitExceeded, match=r"20 tasks and calls .* max_pending_tasks is 20"):
            wait_for.remote(gate)
        gate.touch()
        await asyncio.gather(*refs)
        return await short.remote()

    assert asyncio.run(main()) == 1


def test_more_tasks_than_the_limit_run_through(limit: int) -> None:
    refs = [short.remote() for _ in range(50 * limit)]
    assert sum(sooner.get(refs)) == 50 * limit


def test_what_waits_for_its_own_submitter_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing that is pending can end before all is submitted: a limit that held for ever would be a
    deadlock.
    """
    sooner.init(num_cpus=1, max_pending_tasks=4)
    gate = tmp_path / "gate"
    try:
        with caplog.at_level(logging.WARNING, logger="sooner"):
            refs = [wait_for.remote(gate) for _ in range(6)]
            gate.touch()
            assert sooner.get(refs) == ["gate"] * 6
        assert any("none of them has ended for 10 s" in record.getMessage() for record in caplog.records)
        # The limit is what it was.
        assert sum(sooner.get([short.remote() for _ in range(100)])) == 100
    finally:
        sooner.shutdown()


def test_a_wait_for_room_ends_with_the_session(limit: int, tmp_path: Path) -> None:
    failures: list[BaseException] = []

    def submit() -> None:
        try:
            for _ in range(2 * limit):
                wait_for.remote(tmp_path / "never")
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=submit)
    thread.start()
    while pending() < limit:
        time.sleep(0.01)
    sooner.shutdown()
    thread.join(30)
    assert not thread.is_alive()
    assert len(failures) == 1
    assert "session" in str(failures[0])


def test_the_default_allows_a_hundred_thousand() -> None:
    sooner.init(num_cpus=1)
    try:
        held = short.remote()
        sooner.get(held)
        refs = [short.remote() for _ in range(100_000)]
        assert sooner.get(refs[-1]) == 1
    finally:
        sooner.shutdown()


def test_ever_new_functions_draw_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    sooner.init(num_cpus=1)

    def call(number: int) -> sooner.ObjectRef[int]:
        return sooner.remote(lambda: number).remote()

    try:
        with caplog.at_level(logging.WARNING, logger="sooner"):
            for number in range(10_003):
                ref = call(number)
            assert sooner.get(ref) == 10_002
        told = [text for text in map(logging.LogRecord.getMessage, caplog.records) if "remote functions and" in text]
        assert len(told) == 1
        assert told[0].startswith("this process has defined 10001 ")
    finally:
        sooner.shutdown()
