"""Values that nobody has looked at go to disk although references to them are in values, with others, in
generators.
"""

from __future__ import annotations

import numpy as np
import pytest
from support import WAIT, poll

import sooner
from sooner._state.snapshot import METRICS, Snapshot

MIB = 1 << 20
STORE_MIB = 64
VALUE_MIB = 8
# Three times what there is room for.
COUNT = 3 * STORE_MIB // VALUE_MIB


def value(number):
    return np.full(VALUE_MIB * MIB // 8, number)


@pytest.fixture
def metric(nothing_left):
    with sooner.init(num_cpus=2, object_store_memory=STORE_MIB * MIB) as context:
        nothing_left.append(context["session_dir"])

        def read(name):
            series = Snapshot(context["session_dir"], METRICS).node["metrics"]
            return {one["name"]: one["values"][0] for one in series}[name]

        yield read


@sooner.remote
class Keeper:
    def __init__(self):
        self.refs = []

    def keep(self, refs):
        self.refs += refs
        return len(self.refs)

    def look(self):
        return [int(sooner.get(ref)[0]) for ref in self.refs]

    def drop(self):
        self.refs.clear()


@sooner.remote
def box(begin):
    return [sooner.put(value(begin + number)) for number in range(COUNT // 2)]


@sooner.remote(num_returns="streaming")
def stream():
    for number in range(COUNT):
        yield value(number)


def assert_all_went_to_disk(metric):
    assert metric("sooner_node_fallback_bytes") == 0, "nothing had to go to the file behind the memory"
    assert metric("sooner_node_spilled_bytes") >= (COUNT * VALUE_MIB - STORE_MIB) * MIB


def test_values_inside_values_go_to_disk(metric):
    outer = sooner.put([sooner.put(value(number)) for number in range(COUNT)])
    assert_all_went_to_disk(metric)
    assert [int(sooner.get(ref)[0]) for ref in sooner.get(outer)] == list(range(COUNT))
    del outer
    poll("nothing is on disk", lambda: metric("sooner_node_spilled_bytes") == 0)


def test_values_inside_results_go_to_disk(metric):
    boxes = [box.remote(0), box.remote(COUNT // 2)]
    sooner.wait(boxes, num_returns=2, timeout=WAIT)
    assert_all_went_to_disk(metric)
    found = [int(sooner.get(ref)[0]) for inner in sooner.get(boxes) for ref in inner]
    assert found == list(range(COUNT))


def test_values_that_an_actor_refers_to_and_has_not_read_go_to_disk(metric):
    keeper = Keeper.remote()
    for number in range(COUNT):
        assert sooner.get(keeper.keep.remote([sooner.put(value(number))]), timeout=WAIT) == number + 1
    assert_all_went_to_disk(metric)
    for _ in range(2):
        # What it has read it may read again.
        assert sooner.get(keeper.look.remote(), timeout=WAIT) == list(range(COUNT))
    sooner.get(keeper.drop.remote(), timeout=WAIT)
    poll("nothing is on disk", lambda: metric("sooner_node_spilled_bytes") == 0)


def test_what_a_borrower_has_read_stays_right_while_others_come_and_go(metric):
    keeper = Keeper.remote()
    kept = [sooner.put(value(number)) for number in range(4)]
    sooner.get(keeper.keep.remote(kept), timeout=WAIT)
    for begin in range(0, 3 * COUNT, COUNT):
        assert sooner.get(keeper.look.remote(), timeout=WAIT) == [0, 1, 2, 3]
        refs = [sooner.put(value(begin + number)) for number in range(COUNT)]
        looks = keeper.look.remote()
        assert [int(sooner.get(ref)[0]) for ref in refs] == list(range(begin, begin + COUNT))
        assert sooner.get(looks, timeout=WAIT) == [0, 1, 2, 3]


def test_arguments_of_calls_that_wait_go_to_disk(metric, tmp_path):
    @sooner.remote
    class Summer:
        def __init__(self):
            self.seen = []

        def block(self, path):
            poll("it may go on", path.exists)

        def add(self, array):
            self.seen.append(int(array[0]))
            return list(self.seen)

    summer = Summer.remote()
    blocked = summer.block.remote(tmp_path / "go")
    sums = [summer.add.remote(sooner.put(value(number))) for number in range(COUNT)]
    assert_all_went_to_disk(metric)
    (tmp_path / "go").touch()
    sooner.get(blocked, timeout=WAIT)
    assert sooner.get(sums, timeout=WAIT)[-1] == list(range(COUNT)), "calls keep their order"


def test_items_that_nobody_has_read_go_to_disk(metric):
    items = stream.remote()
    sooner.get(items.completed(), timeout=WAIT)
    assert_all_went_to_disk(metric)
    assert [int(sooner.get(item)[0]) for item in items] == list(range(COUNT))
