"""Many values at once: small ones, each of which would travel inside a message, and which are large
together.
"""

from __future__ import annotations

import time

import numpy as np
import pytest
from support import poll

import sooner
from sooner.util.state import list_objects

pytestmark = pytest.mark.usefixtures("shared_session")

KIB = 1 << 10
# One value of that size travels inside a message.
SIZE = 60 * KIB


def locations(refs):
    """Where values are."""
    of = {row.object_id: row.location for row in list_objects(limit=1_000_000)}
    return [of[ref.hex()] for ref in refs]


@pytest.mark.parametrize("make", [bytes, np.zeros], ids=["bytes", "arrays"])
def test_returns_that_are_large_together_do_not_fill_the_heap_of_their_owner(make):
    count = 50

    @sooner.remote(num_returns=count)
    def values():
        return [make(4 * KIB) for _ in range(count)]

    refs = values.remote()
    assert sum(map(len, sooner.get(refs, timeout=60))) == count * 4 * KIB
    found = locations(refs)
    each = len(make(4 * KIB)) * (1 if make is bytes else 8)
    assert 0 < found.count("message") * each <= 100 * KIB
    assert found.count("message") + found.count("shared memory") == count


def test_small_returns_are_inside_of_messages_however_many_they_are():
    count = 2000

    @sooner.remote(num_returns=count)
    def values():
        return [bytes(200) for _ in range(count)]

    refs = values.remote()
    sooner.get(refs, timeout=60)
    assert set(locations(refs)) == {"message"}


@pytest.mark.parametrize("make", [bytes, lambda size: np.zeros(size // 8)], ids=["bytes", "arrays"])
def test_arguments_that_are_large_together(make, tmp_path):
    @sooner.remote
    def hold(path, *args, **kwargs):
        (path / "there").touch()
        deadline = time.monotonic() + 60
        while not (path / "go").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        return len(args), len(kwargs)

    args = [make(SIZE) for _ in range(30)]
    held = hold.remote(tmp_path, *args, **{f"name{n}": make(SIZE) for n in range(10)})
    poll("the task runs", (tmp_path / "there").exists)
    # A mebibyte of them is inside of the message.
    assert 40 - 18 <= arguments_in_memory() <= 40 - 16
    (tmp_path / "go").touch()
    assert sooner.get(held, timeout=60) == (30, 10)
    poll("they are freed", lambda: arguments_in_memory() == 0)


def arguments_in_memory():
    rows = [row for row in list_objects(limit=1_000_000) if row.location == "shared memory"]
    # One that is borrowed has a row for each process.
    return len({row.object_id for row in rows if SIZE <= row.object_size < SIZE + KIB})


def test_an_actor_takes_arguments_that_are_large_together():
    @sooner.remote
    class Holder:
        def __init__(self, *args):
            self.count = len(args)

        def total(self, *args):
            return self.count + sum(map(len, args))

    values = [bytes(SIZE) for _ in range(40)]
    holder = Holder.remote(*values)
    assert sooner.get(holder.total.remote(*values), timeout=60) == 40 + 40 * SIZE
