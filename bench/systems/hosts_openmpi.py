"""The rows on shaped hosts under OpenMPI: the program of every rank, started by `mpirun`.

python -m systems.hosts_openmpi <plan>

All ranks wait for the same moment, as the receivers of the other systems do. A rank has an array of
its own that is written to: its pages are there before anything is timed.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from bodies import hosts as bodies_hosts
from bodies.hosts import AHEAD_S, Plan

WORLD = MPI.COMM_WORLD
RANK = WORLD.Get_rank()


def tell(**event: object) -> None:
    """Print an event, once for all ranks."""
    if RANK == 0:
        bodies_hosts.tell(**event)


def meet() -> float:
    """The moment at which all ranks begin."""
    WORLD.Barrier()
    return float(WORLD.bcast(time.monotonic() + AHEAD_S))


def verify(array: Any, expected: int) -> None:
    """Check what this rank has, when all are through."""
    WORLD.Barrier()
    if bodies_hosts.checksum(array) != WORLD.bcast(expected):
        raise AssertionError(f"rank {RANK} has other bytes")
    WORLD.Barrier()


def cast(array: Any, seed: int) -> tuple[float, float]:
    """Broadcast an array: when it was begun, and when the last rank had all of it."""
    expected = prepare(array, seed)
    begin = meet()
    bodies_hosts.wait_until(begin)
    WORLD.Bcast(array, root=0)
    end = WORLD.allreduce(time.monotonic(), op=MPI.MAX)
    verify(array, expected)
    return begin, end


def back(array: Any, seed: int) -> tuple[float, float]:
    """Send an array to the second rank and back."""
    expected = prepare(array, seed)
    begin = meet()
    bodies_hosts.wait_until(begin)
    if RANK == 0:
        WORLD.Send(array, dest=1)
        # What comes back is not what was there before.
        array[:] = 0
        WORLD.Recv(array, source=1)
    else:
        WORLD.Recv(array, source=0)
        WORLD.Send(array, dest=0)
    end = WORLD.bcast(time.monotonic())
    verify(array, expected)
    return begin, end


def gather(array: Any, seed: int) -> tuple[float, float]:
    """Bring the arrays of all ranks to the first."""
    array[:] = bodies_hosts.part(array.nbytes, seed, RANK)
    hosts = WORLD.Get_size()
    found = np.ones((hosts, array.size), dtype=array.dtype) if RANK == 0 else None
    begin = meet()
    bodies_hosts.wait_until(begin)
    WORLD.Gather(array, found, root=0)
    end = WORLD.bcast(time.monotonic())
    for number in range(hosts):
        if found is not None:
            expected = bodies_hosts.part(array.nbytes, seed, number)
            if bodies_hosts.checksum(found[number]) != bodies_hosts.checksum(expected):
                raise AssertionError(f"other bytes of rank {number}")
    WORLD.Barrier()
    return begin, end


def reduce(array: Any, seed: int, gap_s: float) -> tuple[float, float]:
    """Sum the arrays of all ranks on the first; from the last one on, if they come one by one."""
    array[:] = bodies_hosts.part(array.nbytes, seed, RANK)
    found = np.ones_like(array) if RANK == 0 else None
    begin = come(meet(), gap_s)
    WORLD.Reduce(array, found, op=MPI.SUM, root=0)
    end = WORLD.bcast(time.monotonic())
    if RANK == 0:
        array[:] = found
    verify_sum(array, seed, RANK == 0)
    return begin, end


def come(begin: float, gap_s: float) -> float:
    """Wait until this rank comes, one after the other from the second on; when the last does."""
    bodies_hosts.wait_until(begin + gap_s * max(0, RANK - 1))
    return begin + gap_s * (WORLD.Get_size() - 2)


def allreduce(array: Any, seed: int, gap_s: float) -> tuple[float, float]:
    """Sum the arrays of all ranks on all; from the last one on, if they come one by one."""
    array[:] = bodies_hosts.part(array.nbytes, seed, RANK)
    found = np.ones_like(array)
    begin = come(meet(), gap_s)
    WORLD.Allreduce(array, found, op=MPI.SUM)
    end = WORLD.allreduce(time.monotonic(), op=MPI.MAX)
    verify_sum(found, seed, True)
    return begin, end


def verify_sum(array: Any, seed: int, has_it: bool) -> None:
    """Check the sum, where it is to be."""
    WORLD.Barrier()
    expected = bodies_hosts.total(array.nbytes, seed, WORLD.Get_size())
    if has_it and bodies_hosts.checksum(array) != bodies_hosts.checksum(expected):
        raise AssertionError(f"rank {RANK} has another sum")
    WORLD.Barrier()


def prepare(array: Any, seed: int) -> int:
    """Fill the array: what its bytes come to at the first rank, where the value is."""
    if RANK:
        array[:] = 0
        return 0
    array[:] = bodies_hosts.content(array.nbytes, seed)
    return bodies_hosts.checksum(array)


def repeat(given: Plan) -> None:
    """Do what the plan says; the first rank says whether there is time for another repetition."""
    once: Callable[[Any, int], tuple[float, float]] = {
        "cast": cast,
        "back": back,
        "reduce": functools.partial(reduce, gap_s=given.gap_s),
        "gather": gather,
        "allreduce": functools.partial(allreduce, gap_s=given.gap_s),
    }[given.kind]
    for size in given.sizes:
        array = np.ones(size // 4, dtype=np.float32)
        repetitions = given.repetitions(size)
        while True:
            step = WORLD.bcast(next(repetitions, None) if RANK == 0 else None)
            if step is None:
                break
            counts, seed = step
            begin, end = once(array, seed)
            if counts:
                tell(event="turn", size=size, begin=begin, end=end)


def main() -> None:
    """Run the plan."""
    tell(event="started", version=MPI.Get_library_version().split(",")[0].split()[-1].lstrip("v"))
    repeat(bodies_hosts.plan(sys.argv[1]))
    tell(event="done")


if __name__ == "__main__":
    main()
