"""Values for which there is no room in memory: they go to disk, come back when wanted, and leave nothing
behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import threading

import numpy as np
import pytest
from support import WAIT, is_alive, poll, poll_store_has_room, stopped

import sooner
from sooner._state.snapshot import METRICS, Snapshot
from sooner.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    GetTimeoutError,
    ObjectStoreFullError,
    OutOfDiskError,
)
from sooner.util import as_completed

MIB = 1 << 20
STORE_MIB = 64
VALUE_MIB = 8
# Five times what there is room for.
COUNT = 5 * STORE_MIB // VALUE_MIB


def value(number):
    return np.full(VALUE_MIB * MIB // 8, number)


def metric(name):
    session = sooner.init(ignore_reinit_error=True)["session_dir"]
    series = {series["name"]: series["values"] for series in Snapshot(session, METRICS).node["metrics"]}
    return series[name][0]


@pytest.fixture
def session(nothing_left):
    context = sooner.init(num_cpus=2, object_store_memory=STORE_MIB * MIB)
    nothing_left.append(context["session_dir"])
    yield
    sooner.shutdown()


@sooner.remote
def make(number):
    return value(number)


@sooner.remote(max_retries=0)
def sleeps():
    threading.Event().wait()


@sooner.remote
def first(*arrays):
    return [int(array[0]) for array in arrays]


def test_more_is_put_than_there_is_room_for(session):
    refs = [sooner.put(value(number)) for number in range(COUNT)]
    for number, ref in enumerate(refs):
        assert (sooner.get(ref) == number).all()
    assert (sooner.get(refs[0]) == 0).all(), "again, from the beginning"


def test_several_tasks_with_many_returns_share_the_room(session):
    # Memory for the returns of a task is asked for together, which must not keep it from the other one.
    count, size = 200, 20_000

    @sooner.remote(num_returns=count)
    def values(task):
        return [np.full(size, task * count + number, dtype="f8") for number in range(count)]

    refs = [ref for task in range(8) for ref in values.remote(task)]
    assert len(refs) * size * 8 > 3 * STORE_MIB * MIB
    for number, ref in enumerate(refs):
        assert (sooner.get(ref, timeout=WAIT) == number).all()


def test_tasks_return_and_take_more_than_there_is_room_for(session):
    made = [make.remote(number) for number in range(COUNT)]
    pairs = [(number, number * 7 % COUNT) for number in range(COUNT)]
    sums = [first.remote(made[one], made[other]) for one, other in pairs]
    assert sooner.get(sums, timeout=WAIT) == [list(pair) for pair in pairs]


def test_arguments_of_two_tasks_at_a_time_fit_only_one_after_the_other(session):
    # Not quite a third of the store each. Some are in memory when their task is sent, and the others are on
    # disk.
    refs = [sooner.put(np.full(20 * MIB // 8, number)) for number in range(9)]
    draw = random.Random(7)
    takes = [[0, 1, 8], [2, 3, 7], *(draw.sample(range(len(refs)), 3) for _ in range(30))]
    sums = [first.remote(*(refs[number] for number in numbers)) for numbers in takes]
    assert sooner.get(sums, timeout=WAIT) == takes


def test_no_more_tasks_run_at_a_time_than_there_is_room_for_their_arguments(nothing_left):
    # Of eight workers one or two have room. Those that were sent too many give back what they have.
    with sooner.init(num_cpus=8, object_store_memory=STORE_MIB * MIB) as context:
        nothing_left.append(context["session_dir"])
        refs = [sooner.put(np.full(20 * MIB // 8, number)) for number in range(9)]
        draw = random.Random(8)
        takes = [draw.sample(range(len(refs)), 3) for _ in range(30)]
        sums = [first.remote(*(refs[number] for number in numbers)) for numbers in takes]
        small = [first.remote(sooner.put(value(number))) for number in range(8)]
        assert sooner.get(small, timeout=WAIT) == [[number] for number in range(8)]
        assert sooner.get(sums, timeout=WAIT) == takes


def test_a_task_waits_for_room_that_a_reader_leaves_without_a_word(session):
    refs = [sooner.put(value(number)) for number in range(COUNT)]
    held = [sooner.get(ref) for ref in refs[: STORE_MIB // VALUE_MIB - 2]]
    waiting = first.remote(*refs[-4:])
    # After a second without room its arguments would go to the file behind the memory.
    ready, _ = sooner.wait([waiting], timeout=0.3)
    assert not ready, "there is no room while the arrays are held"
    # Nothing is freed by this: the values stay where they are until somebody asks for them.
    del held
    assert sooner.get(waiting, timeout=WAIT / 2) == list(range(COUNT - 4, COUNT))


def test_wait_counts_what_is_on_disk(session):
    made = [make.remote(number) for number in range(COUNT)]
    ready, rest = sooner.wait(made, num_returns=COUNT, timeout=WAIT)
    assert ready == made
    assert not rest
    later, rest = sooner.wait(made[::-1], num_returns=COUNT, timeout=WAIT)
    assert (later, rest) == (made[::-1], [])
    assert [int(sooner.get(ref)[0]) for ref in ready] == list(range(COUNT))


def test_what_is_ready_on_disk_is_got_without_a_timeout(session):
    made = [make.remote(number) for number in range(COUNT)]
    assert sooner.wait(made, num_returns=COUNT, timeout=WAIT)[1] == []
    assert [int(sooner.get(ref, timeout=0)[0]) for ref in made] == list(range(COUNT))
    pair = sooner.get([made[0], made[1]], timeout=0)
    assert [int(array[0]) for array in pair] == [0, 1]
    assert int(asyncio.run(sooner.aio.get(made[5], timeout=0))[0]) == 5
    # One that is not ready is not waited for, whatever lies on disk.
    gone = sleeps.remote()
    with pytest.raises(GetTimeoutError, match="of 2 objects were not ready"):
        sooner.get([made[2], gone], timeout=0)
    sooner.cancel(gone, force=True)


def test_values_are_awaited_and_come_as_they_complete(session):
    made = [make.remote(number) for number in range(COUNT)]
    found = [int(array[0]) for array in as_completed(made)]
    assert sorted(found) == list(range(COUNT))

    async def one_after_the_other():
        return [int((await ref)[0]) for ref in made]

    assert asyncio.run(one_after_the_other()) == list(range(COUNT))


def test_views_keep_their_values_in_memory(session):
    refs = [sooner.put(value(number)) for number in range(COUNT)]
    held = [sooner.get(ref) for ref in refs[:4]]
    assert all((sooner.get(ref) == number).all() for number, ref in enumerate(refs))
    assert all((array == number).all() for number, array in enumerate(held))


def test_a_store_full_of_views_goes_on_in_a_file(session):
    arrays = [sooner.get(sooner.put(value(number))) for number in range(COUNT)]
    assert all((array == number).all() for number, array in enumerate(arrays))
    assert metric("sooner_node_fallback_bytes") >= (COUNT * VALUE_MIB - STORE_MIB) * MIB
    # They are arrays like any other: tasks read them in place, and what is changed is a copy.
    assert sooner.get(first.remote(sooner.put(arrays[-1])), timeout=WAIT) == [COUNT - 1]
    del arrays
    poll("the disk has its room back", lambda: metric("sooner_node_fallback_bytes") == 0)
    poll_store_has_room((STORE_MIB - VALUE_MIB) * MIB)


def test_a_value_may_be_larger_than_the_store(session):
    whole = np.arange(2 * STORE_MIB * MIB // 8)

    @sooner.remote
    def halves(array):
        middle = len(array) // 2
        return array[:middle], array[middle:]

    @sooner.remote(num_returns=2)
    def both(array):
        return array + 1, array.sum()

    ref = sooner.put(whole)
    assert (sooner.get(ref) == whole).all()
    left, right = sooner.get(halves.remote(ref), timeout=WAIT)
    assert (left == whole[: len(left)]).all()
    assert (right == whole[len(left) :]).all()
    del left, right
    more, total = both.remote(ref)
    assert sooner.get(total, timeout=WAIT) == whole.sum()
    assert (sooner.get(more, timeout=WAIT) == whole + 1).all()
    assert metric("sooner_node_fallback_bytes") >= 2 * whole.nbytes
    del ref, more, total
    poll("the disk has its room back", lambda: metric("sooner_node_fallback_bytes") == 0)


def test_arguments_together_may_be_larger_than_the_store(session):
    refs = [sooner.put(value(number)) for number in range(COUNT)]
    # The first task needs all of them at a time.
    assert sooner.get(first.remote(*refs), timeout=WAIT) == list(range(COUNT))
    assert [sooner.get(first.remote(*refs[at::2]), timeout=WAIT)[0] for at in range(2)] == [0, 1]
    del refs
    poll("the disk has its room back", lambda: metric("sooner_node_fallback_bytes") == 0)


def test_what_is_dropped_goes_from_disk_too(session):
    refs = [sooner.put(value(number)) for number in range(COUNT)]
    poll("values are on disk", lambda: metric("sooner_node_spilled_bytes") > 0)
    assert metric("sooner_node_spilled_written_bytes") >= (COUNT * VALUE_MIB - STORE_MIB) * MIB
    del refs
    poll("nothing is on disk", lambda: metric("sooner_node_spill_files_bytes") == 0)
    poll_store_has_room((STORE_MIB - VALUE_MIB) * MIB)


def test_actors_take_values_from_disk(session):
    @sooner.remote
    class Keeper:
        def __init__(self, array):
            self.sum = int(array[0])

        def add(self, array):
            self.sum += int(array[0])
            return self.sum

    refs = [sooner.put(value(number)) for number in range(COUNT)]
    keeper = Keeper.remote(refs[1])
    total = 1
    for number in (2, 5, 3):
        total += number
        assert sooner.get(keeper.add.remote(refs[number]), timeout=WAIT) == total


def test_references_inside_values_are_followed(session):
    @sooner.remote
    def look(box):
        return [int(sooner.get(ref)[0]) for ref in box]

    refs = [sooner.put(value(number)) for number in range(COUNT)]
    assert sooner.get(look.remote([refs[0], refs[3]]), timeout=WAIT) == [0, 3]


def test_generators_write_more_than_there_is_room_for(session):
    @sooner.remote(num_returns="streaming")
    def stream():
        for number in range(COUNT):
            yield value(number)

    items = list(stream.remote())
    assert [int(sooner.get(item)[0]) for item in items] == list(range(COUNT))


def test_a_detached_actor_restarts_with_an_argument_on_disk(session):
    @sooner.remote(max_restarts=-1)
    class Keeper:
        def __init__(self, array):
            self.first = int(array[0])

        def look(self):
            return os.getpid(), self.first

    @sooner.remote(max_calls=1)
    def create():
        ref = sooner.put(value(7))
        others = [sooner.put(value(number)) for number in range(COUNT)]
        keeper = Keeper.options(name="keeper", lifetime="detached").remote(ref)
        pid, seen = sooner.get(keeper.look.remote())
        del others
        return os.getpid(), pid, seen

    owner, pid, seen = sooner.get(create.remote(), timeout=WAIT)
    assert seen == 7
    poll("the owner of the argument ends", lambda: not is_alive(owner))
    os.kill(pid, signal.SIGKILL)
    poll("the process ends", lambda: not is_alive(pid))
    keeper = sooner.get_actor("keeper")

    def look():
        # A call may still be sent to the process that is gone.
        with contextlib.suppress(ActorUnavailableError):
            return sooner.get(keeper.look.remote(), timeout=WAIT)
        return None

    assert poll("the actor answers", look)[1] == 7
    sooner.kill(keeper)


def test_local_mode_does_not_spill(nothing_left):
    with sooner.init(local_mode=True, object_store_memory=STORE_MIB * MIB) as context:
        nothing_left.append(context["session_dir"])
        refs = [sooner.put(value(number)) for number in range(3)]
        assert sooner.get(first.remote(*refs), timeout=WAIT) == [0, 1, 2]
        with pytest.raises(ObjectStoreFullError):
            _ = [sooner.put(value(number)) for number in range(COUNT)]


def test_a_worker_dies_while_its_values_are_on_disk(session):
    @sooner.remote
    class Owner:
        def fill(self):
            self.refs = [sooner.put(value(number)) for number in range(COUNT)]
            return os.getpid()

    owner = Owner.remote()
    pid = sooner.get(owner.fill.remote(), timeout=WAIT)
    assert metric("sooner_node_spill_files_bytes") > 0
    os.kill(pid, signal.SIGKILL)
    poll("the process ends", lambda: not is_alive(pid))
    poll("nothing is on disk", lambda: metric("sooner_node_spill_files_bytes") == 0)
    poll_store_has_room((STORE_MIB - VALUE_MIB) * MIB)


@sooner.remote
class Maker:
    """Holds values of its own."""

    def __init__(self):
        self.held = []

    def pid(self):
        return os.getpid()

    def hold(self, megabytes):
        self.held.append(sooner.put(np.zeros(megabytes * MIB, dtype=np.uint8)))
        return len(self.held)


def test_who_waits_for_room_and_dies_keeps_none(session):
    holder, waiter = Maker.remote(), Maker.remote()
    pid, victim = sooner.get([holder.pid.remote(), waiter.pid.remote()])
    assert sooner.get(holder.hold.remote(40)) == 1
    # Room has to come from a process that does not answer.
    with stopped(pid):
        waiting = waiter.hold.remote(40)
        assert sooner.wait([waiting], timeout=0.5)[0] == []
        os.kill(victim, signal.SIGKILL)
        with pytest.raises(ActorDiedError):
            sooner.get(waiting, timeout=WAIT)
    assert sooner.get(holder.hold.remote(40), timeout=WAIT) == 2
    sooner.kill(holder)
    poll_store_has_room((STORE_MIB - VALUE_MIB) * MIB)


def test_several_wait_for_room_and_all_get_it(session):
    makers = [Maker.options(num_cpus=0).remote() for _ in range(6)]
    sooner.get([maker.pid.remote() for maker in makers])
    # Each of them fills most of the store again and again, and what the others hold has to go first.
    done = [maker.hold.remote(megabytes) for megabytes in (30, 8, 50, 8) for maker in makers]
    assert sooner.get(done, timeout=WAIT) == [turn for turn in (1, 2, 3, 4) for _ in makers]


def test_spilling_can_be_switched_off(nothing_left):
    with sooner.init(num_cpus=1, object_store_memory=STORE_MIB * MIB, spill_directories=[]) as context:
        nothing_left.append(context["session_dir"])
        with pytest.raises(ObjectStoreFullError):
            _ = [sooner.put(value(number)) for number in range(COUNT)]


def test_several_directories_take_turns_and_stay_empty(nothing_left, tmp_path):
    places = [tmp_path / "one", tmp_path / "two"]
    for place in places:
        place.mkdir()
    with sooner.init(num_cpus=1, object_store_memory=STORE_MIB * MIB, spill_directories=places) as context:
        nothing_left.append(context["session_dir"])
        refs = [sooner.put(value(number)) for number in range(COUNT)]
        assert [int(sooner.get(ref)[0]) for ref in refs] == list(range(COUNT))
        # The files have no name: nothing is left whatever ends the program.
        assert not [*places[0].iterdir(), *places[1].iterdir()]


@pytest.mark.api("errors.memory")
def test_a_cap_is_kept(nothing_left):
    cap = 100 * MIB
    with sooner.init(num_cpus=1, object_store_memory=STORE_MIB * MIB, max_spill_bytes=cap) as context:
        nothing_left.append(context["session_dir"])
        refs = []
        with pytest.raises(OutOfDiskError, match="max_spill_bytes"):
            for number in range(COUNT):
                refs.append(sooner.put(value(number)))  # noqa: PERF401  those before the error count
        assert metric("sooner_node_spill_files_bytes") <= cap
        # What is larger than the store goes to disk, too.
        with pytest.raises(OutOfDiskError, match="max_spill_bytes"):
            sooner.put(np.zeros(2 * STORE_MIB * MIB, "u1"))
        # What is on disk can be read as soon as there is room for it.
        del refs[-2:]
        assert [int(sooner.get(ref)[0]) for ref in refs[:2]] == [0, 1]
        del refs
        poll("nothing is on disk", lambda: metric("sooner_node_spill_files_bytes") == 0)
        assert int(sooner.get(sooner.put(value(7)))[0]) == 7


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 4 MiB."""
    if os.getuid() != 0:
        pytest.skip("mounting a small file system needs root")
    place = tmp_path / "small"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", place], capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {done.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_full_disk_is_said_and_loses_nothing(nothing_left, small_disk):
    with sooner.init(num_cpus=1, object_store_memory=STORE_MIB * MIB, spill_directories=[small_disk]) as context:
        nothing_left.append(context["session_dir"])
        refs = []
        with pytest.raises(OutOfDiskError, match="has no room"):
            for number in range(COUNT):
                refs.append(sooner.put(value(number)))  # noqa: PERF401  those before the error count
        assert [int(sooner.get(ref)[0]) for ref in refs] == list(range(len(refs)))


def test_a_disk_that_has_room_again_is_used_again(nothing_left, small_disk):
    with sooner.init(num_cpus=1, object_store_memory=STORE_MIB * MIB, spill_directories=[small_disk]) as context:
        nothing_left.append(context["session_dir"])
        refs = []
        with pytest.raises(ObjectStoreFullError, match="has no room"):
            for number in range(COUNT):
                refs.append(sooner.put(value(number)))  # noqa: PERF401  those before the error count
        subprocess.run(["mount", "-o", f"remount,size={4 * STORE_MIB}m", small_disk], check=True)

        def put():
            with contextlib.suppress(ObjectStoreFullError):
                return sooner.put(value(len(refs)))
            return None

        # What could not be written is tried again, after a while.
        while len(refs) < 2 * STORE_MIB // VALUE_MIB:
            refs.append(poll("there is room on disk", put))
        assert [int(sooner.get(ref)[0]) for ref in refs] == list(range(len(refs)))


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"spill_directories": "/tmp"}, "a list of directories"),
        ({"spill_directories": [3]}, "no path"),
        ({"spill_directories": ["/nowhere/at/all"]}, "no directory"),
        ({"max_spill_bytes": 0}, "must be positive"),
        ({"max_spill_bytes": "much"}, "max_spill_bytes"),
    ],
)
def test_wrong_settings_are_refused(argument, message):
    with pytest.raises(ValueError, match=message):
        sooner.init(num_cpus=1, **argument)


def test_a_directory_that_cannot_be_written_is_refused():
    with pytest.raises(OSError, match="spill directory"):
        sooner.init(num_cpus=1, spill_directories=["/proc"])
