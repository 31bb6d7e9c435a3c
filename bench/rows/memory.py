"""Rows on memory: an array for many tasks, tables sorted, spill files beside `dd`, small objects.

Each is a probe of `harness/probes.py`, in a process of its own. The first two are those of
"Analyzing memory management and performance in Dask-on-Ray" (Wang 2021), scaled down, and run
on every system of `systems/memory_systems.py`; the others are of sooner alone.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections import deque
from collections.abc import Callable
from multiprocessing import Pipe, Process
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bodies import memory as bodies_memory
from bodies.memory import MB
from harness import footprint
from systems import memory_systems

Tell = Callable[..., None]

CAST_TASKS = 100
# Where each task carries the array through a pipe, all of them at the same time.
CAST_TASKS_FEW = 2
CAST_TURNS = 3
# How often larger than the store the table is that is sorted on disk, and the other way round.
SPILL_FACTOR = 10.0
ROOM_FACTOR = 4
PARTITIONS_IN_MEMORY = 20
# A system that is slow sorts only as often as there is time for (seconds).
SORT_TURNS = 3
SORT_TURNS_S = 60.0
SPILL_STORE = 512 * MB
SPILL_VALUE = 32 * MB
SPILL_TURNS = 3
SMALL_BYTES = 100
SMALL_BATCH = 10_000


class Bare:
    """As many forked processes as workers, which have the array and run the body in a loop."""

    def __init__(self, array: Any, workers: int) -> None:
        self._ends: list[Connection] = []
        for _ in range(workers):
            near, far = Pipe()
            Process(target=self._serve, args=(array, far), daemon=True).start()
            far.close()
            self._ends.append(near)

    @staticmethod
    def _serve(array: Any, end: Connection) -> None:
        while (asked := end.recv()) is not None:
            name, count = asked
            end.send([bodies_memory.BODIES[name](array) for _ in range(count)])

    def run(self, name: str, count: int) -> list[float]:
        """The results of so many runs in all."""
        for end in self._ends:
            end.send((name, count // len(self._ends)))
        return [value for end in self._ends for value in end.recv()]

    def close(self) -> None:
        """Let the processes end."""
        for end in self._ends:
            end.send(None)


def broadcast(peer: str, workers: int, megabytes: int, tell: Tell) -> None:
    """One array to many tasks that sum it, or take items of it: a multiple of the bare loops' time.

    The array is with the system before the clock starts, where a system can have it.
    """
    array = bodies_memory.array_of(megabytes * MB)
    expected = bodies_memory.total(array)
    bare = Bare(array, workers)
    store = 2 * megabytes * MB
    count = CAST_TASKS_FEW if peer == "dask_processes" else CAST_TASKS
    with memory_systems.SYSTEMS[peer](workers, store) as system:
        tell(event="started", version=system.version)
        cast = system.share(array)
        for name, body in bodies_memory.BODIES.items():
            # They take turns, so that both meet the same machine; the first turn warms up.
            pairs = [_turn(bare, cast, name, body, count, expected) for _ in range(1 + CAST_TURNS)]
            seconds, alone, cpu, cpu_alone = (list(one) for one in zip(*pairs[1:], strict=True))
            ratios = [one / other for one, other in zip(seconds, alone, strict=True)]
            tell(event="row", key=f"broadcast_{name}", samples=[statistics.median(ratios)])
            tell(event="row", key=f"broadcast_{name}_s", samples=seconds)
            ratios = [one / other for one, other in zip(cpu, cpu_alone, strict=True)]
            tell(event="row", key=f"broadcast_{name}_cpu", samples=[statistics.median(ratios)])
            if peer == "sooner":
                tell(event="row", peer="limits", key=f"bare_{name}_s", samples=alone)
    bare.close()


def _turn(
    bare: Bare,
    cast: memory_systems.Cast,
    name: str,
    body: Callable[[Any], float],
    count: int,
    expected: float,
) -> tuple[float, float, float, float]:
    """Seconds of the system and of the bare loops, and processor time of both.

    Other work on the machine lengthens the first two, and not in the same way.
    """
    marker = os.environ["BENCH_RUN"]
    before = footprint.cpu_seconds(footprint.marked(marker))
    begin = time.perf_counter()
    found = cast(body, count)
    seconds = time.perf_counter() - begin
    between = footprint.cpu_seconds(footprint.marked(marker))
    begin = time.perf_counter()
    bare.run(name, count)
    alone = time.perf_counter() - begin
    after = footprint.cpu_seconds(footprint.marked(marker))
    assert len(found) == count, "results are missing"
    assert name != "sum" or set(found) == {expected}, "a sum is wrong"
    return seconds, alone, between - before, after - between


def _sort(settings: dict[str, Any], size: int, partitions: int) -> float:
    """Seconds to sort a table that tasks make and tasks look at. The result is verified.

    What the driver gets of a partition is one row.
    """
    import dask
    import dask.dataframe as dd

    rows = size // 8 // partitions
    with dask.config.set(settings):
        begin = time.perf_counter()
        table = dd.from_map(bodies_memory.frame, range(partitions), rows=rows)
        judged = table.set_index("key").map_partitions(
            bodies_memory.judged, meta=bodies_memory.judged(bodies_memory.frame(0, 1))
        )
        found = judged.compute()
        seconds = time.perf_counter() - begin
    bodies_memory.verify(found, rows * partitions)
    return seconds


def sort_memory(peer: str, workers: int, megabytes: int, tell: Tell) -> None:
    """`set_index` with room for everything."""
    size = megabytes * MB
    with memory_systems.SYSTEMS[peer](workers, ROOM_FACTOR * size) as system:
        tell(event="started", version=system.version)
        # Loads what workers need.
        _sort(system.settings, size // 100, PARTITIONS_IN_MEMORY)
        samples: list[float] = []
        while len(samples) < SORT_TURNS and sum(samples) < SORT_TURNS_S:
            samples.append(_sort(system.settings, size, PARTITIONS_IN_MEMORY))
    tell(event="row", key="sort_memory", samples=samples)


def sort_spill(peer: str, workers: int, megabytes: int, partitions: int, tell: Tell) -> None:
    """`set_index` of ten times what there is room for, with peaks of memory."""
    from harness.heaviest import Heaviest

    size = megabytes * MB
    with memory_systems.SYSTEMS[peer](workers, int(size / SPILL_FACTOR)) as system:
        tell(event="started", version=system.version)
        _sort(system.settings, size // 1000, 10)
        with Heaviest() as heaviest:
            seconds = _sort(system.settings, size, partitions)
    tell(event="row", key=f"sort_{partitions}", samples=[seconds])
    tell(event="row", key=f"sort_{partitions}_peak", samples=[heaviest.total / 1e9])
    tell(event="row", key=f"sort_{partitions}_heaps", samples=[heaviest.private / 1e9])
    tell(event="row", key=f"sort_{partitions}_store", samples=[heaviest.shared / 1e9])


def _dd(path: Path, size: int) -> tuple[float, float]:
    """What `dd` writes and reads there by direct I/O, in GB/s."""
    blocks = f"count={size // (4 << 20)}"
    options = ["dd", "bs=4M", blocks, "status=none"]
    write = [*options, "if=/dev/zero", f"of={path}", "oflag=direct"]
    read = [*options, f"if={path}", "of=/dev/null", "iflag=direct"]
    rates = []
    try:
        for command in (write, read):
            begin = time.perf_counter()
            subprocess.run(command, check=True, timeout=300)
            rates.append(size / (time.perf_counter() - begin) / 1e9)
    finally:
        path.unlink(missing_ok=True)
    return rates[0], rates[1]


def _spill(api: Any, size: int) -> tuple[float, float]:
    """Put so much, get it again in the same order and drop it: GB/s of what was on disk."""
    import numpy as np

    count = size // SPILL_VALUE
    on_disk = size - SPILL_STORE
    value = np.arange(SPILL_VALUE // 8, dtype=np.float64)
    begin = time.perf_counter()
    refs = deque(api.put(value) for _ in range(count))
    middle = time.perf_counter()
    while refs:
        found = api.get(refs.popleft())
        assert found[-1] == value[-1], "a value came back with other bytes"
        # Its room is free before the next value comes.
        del found
    end = time.perf_counter()
    return on_disk / (middle - begin) / 1e9, on_disk / (end - middle) / 1e9


def spill(workers: int, megabytes: int, tell: Tell) -> None:
    """Values written to disk and read again, one after the other, in turns with `dd`."""
    import sooner

    directory = Path(os.environ["DASK_TEMPORARY_DIRECTORY"])
    size = megabytes * MB
    with sooner.init(
        num_cpus=workers, object_store_memory=SPILL_STORE, spill_directories=[str(directory)]
    ):
        tell(event="started", version=sooner.__version__)
        _spill(sooner, SPILL_STORE + 4 * SPILL_VALUE)
        rates = [(*_dd(directory / "dd", size), *_spill(sooner, size)) for _ in range(SPILL_TURNS)]
    dd_write, dd_read, write, read = (list(found) for found in zip(*rates, strict=True))
    tell(event="row", peer="limits", key="dd_write", samples=dd_write)
    tell(event="row", peer="limits", key="dd_read", samples=dd_read)
    tell(event="row", key="spill_write", samples=write)
    tell(event="row", key="spill_read", samples=read)


def small_objects(workers: int, count: int, tell: Tell) -> None:
    """Many small objects, dropped at once and in batches; then a tenth of them held.

    Memory is that of the driver and of everything beside it.
    """
    import sooner
    from harness import heaviest

    def weight() -> int:
        # What the node is still told settles.
        time.sleep(1)
        return heaviest.weigh(footprint.marked(os.environ["BENCH_RUN"]))[0]

    value = bytes(SMALL_BYTES)

    def drop(number: int) -> None:
        for _ in range(number // 2):
            sooner.put(value)
        for _ in range(number // 2 // SMALL_BATCH):
            refs = [sooner.put(value) for _ in range(SMALL_BATCH)]
            del refs

    with sooner.init(num_cpus=workers):
        tell(event="started", version=sooner.__version__)
        drop(max(2 * SMALL_BATCH, count // 10))
        before = weight()
        begin = time.perf_counter()
        drop(count)
        seconds = time.perf_counter() - begin
        dropped = weight()
        held = [sooner.put(value) for _ in range(count // 10)]
        each = (weight() - dropped) / len(held) - SMALL_BYTES
        assert sooner.get(held[-1]) == value, "a small value came back with other bytes"
    tell(event="row", key="objects_rate", samples=[count / seconds])
    tell(event="row", key="objects_growth", samples=[(dropped - before) / MB])
    tell(event="row", key="objects_bytes", samples=[each])


def run(name: str, peer: str, workers: int, argument: int, tell: Tell) -> None:
    """Run one probe.

    Args:
        name: Of the probe; those that sort more than there is room for end with their partitions.
        peer: The system.
        workers: Processes, or threads, that it gets.
        argument: Megabytes of data, or how many objects.
        tell: Takes the events.
    """
    head, _, partitions = name.rpartition("_")
    if head == "sort_spill":
        sort_spill(peer, workers, argument, int(partitions), tell)
    elif name == "broadcast":
        broadcast(peer, workers, argument, tell)
    elif name == "sort_memory":
        sort_memory(peer, workers, argument, tell)
    elif name == "spill":
        spill(workers, argument, tell)
    else:
        assert name == "small_objects", name
        small_objects(workers, argument, tell)
