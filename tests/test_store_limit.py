"""The limit on a node's shared memory: what may be asked for, how exactly it is kept, and what a refusal
says.
"""

import gc
import logging
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sooner
from sooner import _sooner
from sooner._session import resources
from sooner.cluster_utils import Cluster
from sooner.exceptions import ObjectStoreFullError
from sooner.util import state

MIB = 1 << 20
STORE = 32 * MIB


@pytest.fixture
def store() -> Iterator[None]:
    sooner.init(num_cpus=1, object_store_memory=STORE, spill_directories=[])
    yield
    sooner.shutdown()


def used() -> int:
    total, free = sooner.cluster_resources(), state.list_nodes()[0]
    assert total["object_store_memory"] == free.object_store_capacity_bytes
    return int(free.object_store_used_bytes)


def memory_file() -> Path:
    """The node's shared memory, which is a file of this process without a name."""
    for link in Path("/proc/self/fd").iterdir():
        try:
            if "memfd:sooner-objects" in os.readlink(link):
                return link
        except FileNotFoundError:
            continue
    raise AssertionError("there is no shared memory")


@pytest.mark.parametrize("asked", ["1G", b"1", [], True, float("nan"), float("inf"), -1, 0, MIB - 1, 1 << 50])
def test_what_is_no_limit_is_refused_with_the_default(asked: Any) -> None:
    default = resources.store_bytes(None)
    with pytest.raises(ValueError, match=f"object_store_memory must be .*default is {default}"):
        sooner.init(object_store_memory=asked)
    assert not sooner.is_initialized()


def test_the_smallest_store_works() -> None:
    with pytest.raises(ValueError, match=r"at least 1048576 bytes \(1 MiB\), not 1048575"):
        sooner.init(object_store_memory=MIB - 1)
    sooner.init(num_cpus=1, object_store_memory=MIB)
    try:
        assert sooner.get(sooner.put(bytes(900_000))) == bytes(900_000)
        # What is larger goes to the file behind it.
        assert sooner.get(sooner.put(np.ones(MIB, dtype=np.uint8))).all()
    finally:
        sooner.shutdown()


def test_the_limit_is_whole_pages_and_never_more_than_asked() -> None:
    sooner.init(num_cpus=1, object_store_memory=5 * MIB + 4095)
    try:
        assert sooner.cluster_resources()["object_store_memory"] == 5 * MIB
    finally:
        sooner.shutdown()


def test_the_default_is_a_share_of_what_there_is() -> None:
    machine = resources.memory_bytes()
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < machine <= total
    assert resources.store_bytes(None) == int(machine * 0.3) // 4096 * 4096


def test_a_machine_whose_memory_is_unknown_must_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    # As where /proc/meminfo cannot be read: a limit of control groups that is none, or nothing at all.
    for unknown in ((1 << 63) - 4096, (1 << 64) - 1):
        monkeypatch.setattr(_sooner, "memory_bytes", lambda unknown=unknown: unknown)
        for given in ({}, {"object_store_memory": 64 * MIB}, {"_memory": 1 << 30}):
            with pytest.raises(OSError, match=r"/proc/meminfo cannot be read.*object_store_memory= .* _memory="):
                sooner.init(num_cpus=1, **given)
            assert not sooner.is_initialized()
        with pytest.raises(ValueError, match="the default is 30 % of the memory"):
            sooner.init(num_cpus=1, object_store_memory=1, _memory=1 << 30)
    sooner.init(num_cpus=1, object_store_memory=64 * MIB, _memory=1 << 30)
    try:
        assert sooner.cluster_resources()["memory"] == 1 << 30
        assert sooner.get(sooner.put(bytes(MIB))) == bytes(MIB)
    finally:
        sooner.shutdown()


def test_more_than_the_machine_has_draws_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    machine, default = resources.memory_bytes(), resources.store_bytes(None)
    with caplog.at_level(logging.WARNING, logger="sooner"):
        sooner.init(num_cpus=1, object_store_memory=machine + 4096)
    try:
        text = next(record.getMessage() for record in caplog.records if "object_store_memory" in record.getMessage())
        assert str(machine + 4096) in text
        assert str(machine) in text
        assert str(default) in text
        assert sooner.get(sooner.put(bytes(MIB))) == bytes(MIB)
    finally:
        sooner.shutdown()


def test_a_value_that_the_machine_has_no_memory_for_is_an_error() -> None:
    machine = resources.memory_bytes()
    sooner.init(num_cpus=1, object_store_memory=2 * machine, spill_directories=[])
    try:
        # Pages that are never touched: the store asks for them, and the array itself takes none.
        large = np.zeros(machine, dtype=np.uint8)
        with pytest.raises(ObjectStoreFullError, match="there is no memory for a value of") as refused:
            sooner.put(large)
        assert "or end other programs" in str(refused.value)
        assert sooner.get(sooner.put(bytes(MIB))) == bytes(MIB), "the session goes on"
        assert used() < 128 * MIB, "nothing is left of the attempt"
    finally:
        sooner.shutdown()


def test_every_byte_is_counted_and_the_limit_holds(store: None) -> None:
    assert used() == 0
    held = [sooner.put(np.zeros(MIB - 4096, dtype=np.uint8))]
    assert MIB - 4096 <= used() <= MIB
    one = used()
    while used() + one <= STORE:
        held.append(sooner.put(np.zeros(MIB - 4096, dtype=np.uint8)))
    assert used() == len(held) * one <= STORE
    assert len(held) >= 31
    with pytest.raises(ObjectStoreFullError):
        sooner.put(np.zeros(MIB - 4096, dtype=np.uint8))
    assert used() == len(held) * one
    held.pop(7)
    held.append(sooner.put(np.zeros(MIB - 4096, dtype=np.uint8)))
    assert used() == len(held) * one, "the room of the one serves the other"
    del held
    gc.collect()
    sooner.put(1)
    assert sooner.get(sooner.put(np.ones(STORE // 2, dtype=np.uint8))).sum() == STORE // 2


def test_pages_are_reserved_before_they_are_written(store: None) -> None:
    file = memory_file()

    def there() -> int:
        return file.stat().st_blocks * 512

    before = there()
    ref = sooner.put(np.zeros(10 * MIB, dtype=np.uint8))
    assert there() - before >= 10 * MIB
    assert there() <= STORE + MIB, "the cells at the beginning come on top"
    del ref
    gc.collect()
    warm = there()
    for _ in range(5):
        sooner.put(np.zeros(10 * MIB, dtype=np.uint8))
    assert there() >= warm, "the pages of freed values stay for the next ones"


def test_a_large_value_is_reserved_in_rounds_and_its_pages_are_given_back() -> None:
    """A loop must not stand still for it: 256 MiB at a time. What is beyond 256 MiB goes back when it was
    idle.
    """
    sooner.init(num_cpus=1, object_store_memory=768 * MIB)
    try:
        file = memory_file()
        data = np.zeros(600 * MIB, dtype=np.uint8)
        data[-1] = 7
        ref = sooner.put(data)
        del data
        assert file.stat().st_blocks * 512 >= 600 * MIB
        read = sooner.get(ref)
        assert (int(read[0]), int(read[-1])) == (0, 7)
        del ref, read
        gc.collect()
        deadline = time.monotonic() + 60
        while file.stat().st_blocks * 512 > 260 * MIB and time.monotonic() < deadline:
            time.sleep(0.1)
        assert 256 * MIB <= file.stat().st_blocks * 512 <= 260 * MIB
        assert used() == 0
    finally:
        sooner.shutdown()


def test_the_memory_has_no_name(store: None) -> None:
    sooner.put(np.zeros(MIB, dtype=np.uint8))
    assert "(deleted)" in os.readlink(memory_file())
    assert not [path for path in Path("/dev/shm").glob("*") if "sooner" in path.name]


def test_a_refusal_names_the_largest_holders(store: None) -> None:
    @sooner.remote(num_cpus=0)
    class Keeper:
        def __init__(self, megabytes: int) -> None:
            self.refs = [sooner.put(np.zeros(MIB, dtype=np.uint8)) for _ in range(megabytes)]

        def pid(self) -> int:
            return os.getpid()

    keepers = [Keeper.remote(megabytes) for megabytes in (1, 2, 3, 1, 1, 2)]
    pids = sooner.get([keeper.pid.remote() for keeper in keepers])
    mine = sooner.put(np.zeros(9 * MIB, dtype=np.uint8))
    with pytest.raises(ObjectStoreFullError) as refused:
        sooner.put(np.zeros(20 * MIB, dtype=np.uint8))
    text = str(refused.value)
    assert "a value of 20.00 MiB" in text
    assert "of 32.00 MiB" in text
    assert "object_store_memory=" in text
    named = re.findall(r"(program `[^`]*`|worker) \(process (\d+)\): (\d+\.\d+) MiB in (\d+) objects?", text)
    assert len(named) == 5, text
    title, pid, size, objects = named[0]
    assert title.startswith("program `")
    # By how it was started: as pytest, or with a program of its own by that.
    assert "pytest" in title or "-c import" in title
    assert int(pid) == os.getpid()
    assert 9 <= float(size) < 10
    assert objects == "1"
    assert (named[1][0], int(named[1][1]), named[1][3]) == ("worker", pids[2], "3"), "the largest first"
    assert [int(one[3]) for one in named[2:4]] == [2, 2]
    del mine


def test_a_value_of_another_node_names_the_holders_here() -> None:
    with Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": 64 * MIB}) as cluster:
        cluster.add_node(num_cpus=1, object_store_memory=4 * MIB, spill_directories=[])
        cluster.connect()

        @sooner.remote(num_cpus=1)
        def take(data: Any) -> int:
            return len(data)

        small, large = (sooner.put(np.zeros(size * MIB, dtype=np.uint8)) for size in (1, 8))
        assert sooner.get(take.remote(small)) == MIB
        with pytest.raises(ObjectStoreFullError, match=r"8\.00 MiB .*from another node does not fit .*4\.00 MiB"):
            sooner.get(take.remote(large))
