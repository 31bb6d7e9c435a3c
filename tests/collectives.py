"""What the tests of sooner.util.collective share: members, all operations with their results, and a look into
a group's coordinator.
"""

from __future__ import annotations

import functools
import itertools
import os
import signal

import numpy as np
import pytest
from support import WAIT, poll

import sooner
from sooner.util import collective as col
from sooner.util.collective import CollectiveError, ReduceOp

SIZES = [1, 2, 3, 4]
DTYPES = ["float64", "float32", "float16", "int64", "uint8", "complex128", "bool", ">f4", ">i8"]
UFUNCS = {
    ReduceOp.SUM: np.add,
    ReduceOp.PRODUCT: np.multiply,
    ReduceOp.MIN: np.minimum,
    ReduceOp.MAX: np.maximum,
}
# Above the size up to which members read whole arrays, and divisible by no size of a group.
LARGE = 300_007

_names = map("group-{}".format, itertools.count())

IN_ALL = {
    "allreduce": lambda name: col.allreduce(np.zeros(3), name),
    "allreduce_large": lambda name: col.allreduce(np.zeros(LARGE), name),
    "reduce": lambda name: col.reduce(np.zeros(3), 0, name),
    "reduce_large": lambda name: col.reduce(np.zeros(LARGE), 2, name),
    "broadcast": lambda name: col.broadcast(np.zeros(3), 1, name),
    "broadcast_of_the_dead": lambda name: col.broadcast(np.zeros(3), 2, name),
    "allgather": lambda name: col.allgather([np.zeros(3) for _ in range(3)], np.zeros(3), name),
    "reducescatter": lambda name: col.reducescatter(np.zeros(3), [np.zeros(3)] * 3, name),
    "barrier": lambda name: col.barrier(name),
    "recv": lambda name: col.recv(np.zeros(3), 2, name),
    "send": lambda name: [col.send(np.zeros(1), 2, name) for _ in range(65)],
}


@sooner.remote(num_cpus=0, max_concurrency=4)
class Member:
    def pid(self):
        return os.getpid()

    def do(self, function, *args, **options):
        return function(*args, **options)


def new_name():
    """A name that no other group has."""
    return next(_names)


def group_of(members, name, **options):
    col.create_collective_group(members, len(members), range(len(members)), group_name=name, **options)
    return members


def start(members, function, *args, **options):
    """Have each member run a function with its rank."""
    return [member.do.remote(function, rank, *args, **options) for rank, member in enumerate(members)]


def run(members, function, *args, **options):
    return sooner.get(start(members, function, *args, **options), timeout=WAIT)


def destroy(members, name):
    run(members, lambda _: col.destroy_collective_group(name))


def error_of(ref, kind=CollectiveError):
    with pytest.raises(kind) as caught:
        sooner.get(ref, timeout=WAIT)
    return caught.value.cause


def kill(member):
    pid = sooner.get(member.pid.remote(), timeout=WAIT)
    os.kill(pid, signal.SIGKILL)
    return pid


def look(name, function):
    """Run a function in the coordinator of a group."""
    return sooner.get(sooner.get_actor(f"collective:{name}").__ray_call__.remote(function), timeout=WAIT)


def waiting(name):
    """How many calls of members wait in the coordinator."""

    def count(coordinator):
        generation = coordinator._current
        pairs = generation._pairs.values()
        receivers = sum(not message.content for pair in pairs for message in pair.messages.values())
        senders = sum(len(pair.senders) for pair in pairs)
        return sum(len(meeting.calls) for meeting in generation._meetings.values()) + receivers + senders

    return look(name, count)


def poll_waiting(name, count):
    poll(f"{count} members wait", lambda: waiting(name) == count)


def joined(name):
    return look(name, lambda coordinator: len(coordinator._members))


def has_coordinator(name):
    return f"collective:{name}" in sooner.list_named_actors()


def values_of(size, dtype, shape, seed=0):
    """One array for each rank."""
    random = np.random.default_rng([seed, size])
    return [np.asarray(random.normal(size=shape) * 3).astype(dtype) for _ in range(size)]


def combined(values, op):
    native = [value.astype(value.dtype.newbyteorder("=")) for value in values]
    if op is ReduceOp.AVERAGE:
        return functools.reduce(np.add, native) / native[0].dtype.type(len(native))
    return functools.reduce(UFUNCS[op], native)


def assert_same_bits(found, expected):
    expected = np.asarray(expected)
    assert found.shape == expected.shape
    assert found.astype(expected.dtype).tobytes() == expected.tobytes()


def all_operations(rank, values, lists, op, root, name):
    """Each operation once; the results by name."""
    size = len(values)
    found = {}
    found["allreduce"] = values[rank].copy()
    col.allreduce(found["allreduce"], name, op)
    found["reduce"] = values[rank].copy()
    col.reduce(found["reduce"], root, name, op)
    found["broadcast"] = values[rank].copy()
    col.broadcast(found["broadcast"], root, name)
    found["allgather"] = [np.empty_like(values[0]) for _ in range(size)]
    col.allgather(found["allgather"], values[rank], name)
    found["reducescatter"] = np.empty_like(values[0])
    col.reducescatter(found["reducescatter"], lists[rank], name, op)
    col.barrier(name)
    return found


def check_all(members, name, values, op, root):
    size = len(members)
    lists = [[np.asarray(value + value.dtype.type(place)) for place in range(size)] for value in values]
    results = run(members, all_operations, values, lists, op, root, name)
    total = combined(values, op)
    for rank, found in enumerate(results):
        assert_same_bits(found["allreduce"], total)
        assert_same_bits(found["reduce"], total if rank == root else values[rank])
        assert_same_bits(found["broadcast"], values[root])
        for gathered, value in zip(found["allgather"], values, strict=True):
            assert_same_bits(gathered, value)
        assert_same_bits(found["reducescatter"], combined([row[rank] for row in lists], op))
