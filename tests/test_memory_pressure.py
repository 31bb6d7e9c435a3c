"""Values that are held only by cycles of Python objects make room for others before the store is reported
full.
"""

from __future__ import annotations

import gc
import threading
import time

import pytest
from support import WAIT, poll, poll_store_has_room

import sooner
from sooner.exceptions import ObjectStoreFullError

MIB = 1 << 20
STORE_MIB = 100
# Together more than the store.
HELD_MIB = 60
NEEDED_MIB = 80


class Cycle:
    """Holds itself, and something else."""

    def __init__(self, held):
        self.held = held
        self.me = self


@pytest.fixture
def session(nothing_left):
    # Nothing but the collector makes room.
    context = sooner.init(num_cpus=3, object_store_memory=STORE_MIB * MIB, spill_directories=[])
    nothing_left.append(context["session_dir"])
    # The collector must not run by itself: few objects hold much memory.
    thresholds = gc.get_threshold()
    gc.set_threshold(10**9)
    yield
    gc.set_threshold(*thresholds)
    sooner.shutdown()


def fill(mib, count=6):
    """References to so much in all, inside a cycle that nothing else refers to."""
    Cycle([sooner.put(b"x" * (mib * MIB // count)) for _ in range(count)])


@sooner.remote
class Holder:
    """A process with garbage of its own."""

    def __init__(self):
        gc.set_threshold(10**9)

    def fill(self, mib):
        fill(mib)

    def hold(self, box):
        Cycle(box)

    def fits(self, mib):
        return len(sooner.get(sooner.put(b"y" * (mib * MIB)))) == mib * MIB


def test_cycles_of_the_driver_make_room_for_its_own_value(session):
    fill(HELD_MIB)
    assert len(sooner.get(sooner.put(b"y" * (NEEDED_MIB * MIB)))) == NEEDED_MIB * MIB


def test_cycles_of_an_idle_worker_make_room_for_the_driver(session):
    holder = Holder.remote()
    sooner.get(holder.fill.remote(HELD_MIB), timeout=WAIT)
    assert len(sooner.get(sooner.put(b"y" * (NEEDED_MIB * MIB)))) == NEEDED_MIB * MIB


def test_cycles_of_an_idle_asyncio_actor_make_room_for_the_driver(session):
    @sooner.remote
    class Async:
        async def fill(self, mib):
            gc.set_threshold(10**9)
            fill(mib)

    holder = Async.remote()
    sooner.get(holder.fill.remote(HELD_MIB), timeout=WAIT)
    assert len(sooner.get(sooner.put(b"y" * (NEEDED_MIB * MIB)))) == NEEDED_MIB * MIB


def test_cycles_of_the_driver_make_room_for_a_worker(session):
    holder = Holder.remote()
    fill(HELD_MIB)
    # The driver waits meanwhile.
    assert sooner.get(holder.fits.remote(NEEDED_MIB), timeout=WAIT)


def test_cycles_of_borrowers_make_room(session):
    holders = [Holder.remote() for _ in range(2)]
    box = [sooner.put(b"x" * (HELD_MIB * MIB))]
    sooner.get([holder.hold.remote(box) for holder in holders], timeout=WAIT)
    Cycle(box)
    del box
    assert sooner.get(holders[0].fits.remote(NEEDED_MIB), timeout=WAIT)


def test_a_worker_collects_beside_a_task_that_runs(session, tmp_path):
    gate = tmp_path / "gate"

    @sooner.remote
    def fills_and_waits():
        gc.set_threshold(10**9)
        fill(HELD_MIB)
        (tmp_path / "filled").touch()
        while not gate.exists():
            time.sleep(0.005)

    ref = fills_and_waits.remote()
    poll("it has filled the store", (tmp_path / "filled").exists)
    assert len(sooner.get(sooner.put(b"y" * (NEEDED_MIB * MIB)))) == NEEDED_MIB * MIB
    gate.touch()
    sooner.get(ref, timeout=WAIT)


def test_a_finalizer_may_use_sooner(session):
    """The collector runs on a thread that holds nothing of the engine."""
    seen = []

    class Final(Cycle):
        def __del__(self):
            seen.append(sooner.get(echo.remote("final")))
            seen.append(threading.current_thread() is threading.main_thread())

    @sooner.remote
    def echo(value):
        return value

    Final([sooner.put(b"x" * (HELD_MIB * MIB))])
    assert len(sooner.get(sooner.put(b"y" * (NEEDED_MIB * MIB)))) == NEEDED_MIB * MIB
    assert seen == ["final", False]


def test_what_is_referred_to_stays(nothing_left):
    context = sooner.init(num_cpus=1, object_store_memory=STORE_MIB * MIB, spill_directories=[])
    nothing_left.append(context["session_dir"])
    held = [sooner.put(b"x" * (HELD_MIB * MIB))]
    cycle = Cycle(held)
    with pytest.raises(ObjectStoreFullError):
        sooner.put(b"y" * (NEEDED_MIB * MIB))
    assert len(sooner.get(cycle.held[0])) == HELD_MIB * MIB
    del held, cycle
    poll_store_has_room((STORE_MIB - 2) * MIB)
    sooner.shutdown()
