"""Values on disk as people see them: `sooner memory`, metrics, rows of objects, and where objects are."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from support import poll
from test_cli import command

import sooner
from sooner._state.snapshot import METRICS, Snapshot
from sooner.experimental import get_object_locations
from sooner.util import state

MIB = 1 << 20
STORE_MIB = 64
VALUE_MIB = 8
COUNT = 3 * STORE_MIB // VALUE_MIB


@pytest.fixture(scope="module")
def session():
    with sooner.init(num_cpus=2, object_store_memory=STORE_MIB * MIB) as context:
        yield context["session_dir"]


@pytest.fixture
def refs(session):
    """Three times what there is room for; the first ones are on disk, and nothing is on its way there."""
    made = [sooner.put(np.full(VALUE_MIB * MIB // 8, number)) for number in range(COUNT)]
    poll("what is written is on disk", lambda: node_of(session)["outgoing"] == 0)
    yield made
    # The framework has the list, too.
    made.clear()
    poll("nothing is on disk", lambda: node_of(session)["spilled_values"] == 0)


def command_in(session, *arguments):
    return command(*arguments, "--address", session, base=os.path.dirname(session), columns="200").stdout


def told(session):
    return json.loads(command_in(session, "memory", "--top", "100", "--json"))


def node_of(session):
    (node,) = told(session)["nodes"]
    return node


def locations(refs):
    rows = {row.object_id: row.location for row in state.list_objects()}
    return [rows[ref.hex()] for ref in refs]


@pytest.mark.api("cli.memory")
def test_a_node_says_what_its_memory_is_used_for(session, refs):
    found = told(session)
    (node,) = found["nodes"]
    on_disk = [row for row in found["objects"] if row["location"] == "on disk"]
    assert len(on_disk) == node["spilled_values"] >= COUNT - STORE_MIB // VALUE_MIB
    sizes = sum(row["object_size"] for row in on_disk)
    assert sizes <= node["spilled"] <= node["spill_files"] <= sizes * 1.1
    in_memory = sum(row["object_size"] for row in found["objects"] if row["location"] == "shared memory")
    assert in_memory <= node["pinned"] <= node["used"] <= node["capacity"] <= STORE_MIB * MIB
    assert (node["cached"], node["incoming"], node["outgoing"]) == (0, 0, 0)
    # Numbers of values on disk are no blocks.
    assert found["blocks"] <= STORE_MIB // VALUE_MIB


def test_a_value_that_is_read_again_is_a_copy(session, refs):
    array = sooner.get(refs[0])
    node = node_of(session)
    assert node["cached"] >= array.nbytes
    assert node["used"] >= node["pinned"] + node["cached"]
    assert node["spilled_values"] >= COUNT - STORE_MIB // VALUE_MIB


def test_the_table_shows_the_disk(session, refs):
    lines = command_in(session, "memory").splitlines()
    columns = ["NODE", "USED", "PINNED", "CACHED", "IN_FLIGHT", "ON_DISK", "VALUES_ON_DISK", "FILES", "FALLBACK"]
    assert lines[1].split() == columns
    spilled = node_of(session)["spilled_values"]
    assert lines[2].split()[-5:-4] == [str(spilled)]
    rows = [line for line in lines if " on disk " in line]
    assert rows
    assert all("driver" in line for line in rows)
    on_disk = next(ref for ref, where in zip(refs, locations(refs), strict=True) if where == "on disk")
    assert "MiB on disk)" in command_in(session, "why", on_disk.hex())


def test_metrics_say_the_same(session, refs):
    series = {row["name"]: row["values"][0] for row in Snapshot(session, METRICS).node["metrics"]}
    node = node_of(session)
    names = {"pinned": "pinned", "cached": "cached", "incoming": "incoming", "outgoing": "outgoing"}
    for key in (*names, "spilled"):
        assert series[f"sooner_node_{key}_bytes"] == node[key], key
    assert series["sooner_node_spilled_values"] == node["spilled_values"]
    assert "sooner_node_pinned_bytes" in command_in(session, "metrics")


@pytest.mark.api("values.locations")
def test_locations_say_what_has_spilled(session, refs):
    node = sooner.get_runtime_context().get_node_id()
    where = locations(refs)
    assert where.count("on disk") == node_of(session)["spilled_values"]
    assert set(where) == {"on disk", "shared memory"}
    found = get_object_locations(refs)
    assert [found[ref]["did_spill"] for ref in refs] == [one == "on disk" for one in where]
    assert all(found[ref]["node_ids"] == [node] for ref in refs)
    # Brought back, it is on disk nevertheless.
    ref = refs[where.index("on disk")]
    assert sooner.get(ref).nbytes == VALUE_MIB * MIB
    assert get_object_locations([ref])[ref]["did_spill"]
    assert locations([ref]) == ["shared memory"]
