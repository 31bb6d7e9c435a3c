"""Why objects are kept: `list_objects`, `sooner memory` and `sooner why`, asked from the program and from
beside it.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support import poll, running_driver
from test_cli import command

import sooner
from sooner.util import state

# Every kind of hold on objects of a driver that waits. Names of objects go to standard output.
PROGRAM = """
import builtins, os, pickle, sys, time
import numpy, sooner

session = sooner.init(num_cpus=4, record_call_sites=True)["session_dir"]
gate = sys.argv[1]

def wait():
    while not os.path.exists(gate):
        time.sleep(0.01)

@sooner.remote
def inner(held):
    wait()

@sooner.remote
def outer(held):
    sooner.get(inner.remote(held))

@sooner.remote
def forgets(held):
    builtins.kept = held

@sooner.remote
class Keeper:
    def __init__(self, held):
        self.held = held

    def works(self):
        wait()

def put(size=1 << 20):
    return sooner.put(numpy.zeros(size, "u1"))

ids = {}
named = put()
ids["named"] = named.hex()

viewed = put()
view = sooner.get(viewed)
ids["viewed"] = viewed.hex()
del viewed

nested = put()
box = sooner.put([nested])
ids["nested"], ids["box"] = nested.hex(), box.hex()
del nested

lent = put(3 << 20)
chain = outer.remote([lent])
ids["lent"] = lent.hex()

given = put()
keeper = Keeper.options(name="keeper").remote([given])
sooner.get(keeper.__ray_ready__.remote())
call = keeper.works.remote()
ids["given"], ids["keeper"] = given.hex(), keeper.__ray_ready__.remote().hex()
del given

captured = put()
@sooner.remote
def closure():
    return captured
sooner.get(closure.remote())
ids["captured"] = captured.hex()

pinned = put()
pickle.dumps(pinned)
ids["pinned"] = pinned.hex()

forgotten = put()
sooner.get(forgets.remote([forgotten]))
ids["forgotten"] = forgotten.hex()
del forgotten

print(session, flush=True)
print(*(f"{name}={identity}" for name, identity in ids.items()), flush=True)
sys.stdin.readline()
"""


class Running:
    """A program, the ids of its objects, and how to ask about them."""

    def __init__(self, driver, base):
        self.driver, self.base = driver, base
        self.directory = driver.stdout.readline().strip()
        self.ids = dict(word.split("=") for word in driver.stdout.readline().split())

    def rows(self, name):
        return state.get_objects(self.ids[name], address=self.directory)

    def owner(self, name):
        return self.rows(name)[0]

    def holds(self, name):
        return {hold.reason: hold for hold in self.owner(name).holds}

    def why(self, name):
        return command("why", self.ids[name], base=self.base).stdout


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    base = tmp_path_factory.mktemp("w")
    # Short enough for a socket below it.
    short = f"/tmp/wt-memory-{os.getpid()}"
    os.symlink(base, short)
    environment = os.environ | {"SOONER_TMPDIR": short}
    try:
        with running_driver(PROGRAM, base / "gate", env=environment, stderr=subprocess.DEVNULL) as driver:
            started = Running(driver, short)
            poll("the tasks run", lambda: len(running(started.directory)) == 3)
            yield started
            (base / "gate").touch()
            driver.stdin.write("\n")
            driver.stdin.flush()
            driver.wait(60)
    finally:
        os.unlink(short)


def running(directory):
    return state.list_tasks(address=directory, filters=[("state", "=", "RUNNING")])


# --- every kind of
# hold -----------------------------------------------------------------------------------------------


@pytest.mark.api("state.list")
def test_an_object_says_what_it_is(program):
    row = program.owner("named")
    assert (row.owner_process, row.owner_pid, row.process) == ("driver", program.driver.pid, "driver")
    assert (row.location, row.is_owner, row.is_fetching, row.waiting) == ("shared memory", True, False, [])
    assert row.object_size >= 1 << 20
    assert " in put" in row.call_site
    assert [hold.asdict() for hold in row.holds] == [
        {"reason": "LOCAL_REFERENCE", "count": 1, "id": None, "name": None}
    ]
    assert row.hint is None


def test_views_are_told_from_references(program):
    row = program.owner("viewed")
    assert (row.local_references, row.views) == (1, 1)
    assert [hold.reason for hold in row.holds] == ["VIEW"]
    assert "1 view of it in Python" in program.why("viewed")


def test_an_object_in_another_one(program):
    assert program.holds("nested")["CONTAINED_IN"].id == program.ids["box"]
    assert program.owner("box").contains == [program.ids["nested"]]
    lines = program.why("nested").splitlines()
    assert lines[1] == "  it is contained in:"
    assert program.ids["box"] in lines[2]


def test_tasks_and_the_tasks_of_their_tasks(program):
    use = program.holds("lent")["TASK"]
    assert use.name == "outer"
    rows = {hold.name for row in program.rows("lent") for hold in row.holds if hold.reason == "RUNNING_TASK"}
    assert rows == {"outer", "inner"}
    text = program.why("lent")
    assert f"argument of task {use.id} outer(), which has been running for" in text
    # Below the task that submitted it.
    (line,) = [line for line in text.splitlines() if " inner(), which has been running for" in line]
    assert line.startswith("      argument of task")


def test_the_state_and_the_constructor_of_an_actor(program):
    owner, borrower = program.rows("given")
    assert program.holds("given").keys() == {"ACTOR_CONSTRUCTOR"}
    assert (borrower.process, borrower.local_references) == ("actor keeper", 1)
    assert {hold.reason for hold in borrower.holds} == {"LOCAL_REFERENCE", "ACTOR_CONSTRUCTOR"}
    assert f"actor keeper {borrower.pid} has it, because:" in program.why("given")
    assert owner.hint is None


def test_the_handle_of_an_actor(program):
    (actor,) = state.list_actors(address=program.directory)
    (row,) = state.get_objects(f"{actor.actor_id}00000000", address=program.directory)
    assert row.is_actor_handle
    calls = [hold for hold in row.holds if hold.reason == "TASK"]
    assert calls[0].name == "works"
    text = command("why", actor.actor_id, base=program.base).stdout
    assert "actor keeper is alive in process" in text
    assert "the handle of actor" in text
    assert "works() has not ended" in text


def test_what_stays_for_the_rest_of_the_session(program):
    assert program.holds("captured")["FUNCTION"].name == "closure"
    assert program.holds("pinned")["PINNED"].count == 1
    for name in ("captured", "pinned"):
        assert "stays for the rest of the session" in program.owner(name).hint


def test_an_object_that_an_idle_worker_forgot(program):
    owner, borrower = program.rows("forgotten")
    assert [(hold.reason, hold.id) for hold in owner.holds] == [("BORROWER", borrower.worker_id)]
    assert f"worker {borrower.pid} borrows it, which holds it because:" in program.why("forgotten")
    assert owner.hint.startswith(f"only worker {borrower.pid} keeps it, outside of any task")
    assert "outside of any task" in program.why("forgotten")


# --- the
# commands -----------------------------------------------------------------------------------------------------


@pytest.mark.api("cli.memory")
def test_memory_has_totals(program):
    text = command("memory", base=program.base, columns="400").stdout
    assert text.splitlines()[5].startswith(program.ids["lent"])
    assert "CALL_SITE" in text
    assert "outside of any task" in text
    told = program_json(program, "memory")
    objects = {row["object_id"]: row for row in told["objects"] if row["is_owner"]}
    for group in ("by_owner", "by_site", "by_reason"):
        assert sum(row["objects"] for row in told[group]) == len(objects)
        assert sum(row["bytes"] for row in told[group]) == sum(row["object_size"] for row in objects.values())
    assert "VIEW" in {row["reason"] for row in told["by_reason"]}


@pytest.mark.parametrize("group", ["owner", "site", "reason"])
def test_memory_by_group(program, group):
    text = command("memory", "--group-by", group, base=program.base).stdout
    assert text.splitlines()[4].split() == [group.upper(), "OBJECTS", "BYTES"]


def test_the_largest_objects(program):
    told = program_json(program, "memory", "--top", "1")
    assert {row["object_id"] for row in told["objects"]} == {program.ids["lent"]}
    assert "the largest 1 of" in command("memory", "--top", "1", base=program.base).stderr
    assert command("memory", "--top", "0", base=program.base, check=2).stderr.startswith("sooner: ")


@pytest.mark.api("cli.why")
def test_why_of_the_end_of_an_id(program):
    short = program.ids["viewed"].lstrip("0")
    text = command("why", short[-12:], base=program.base).stdout
    assert program.ids["viewed"] in text
    told = program_json(program, "why", program.ids["forgotten"])
    assert [row["is_owner"] for row in told["objects"]] == [True, False]


def program_json(program, *arguments):
    import json

    return json.loads(command(*arguments, "--json", base=program.base).stdout)


# --- from the program
# itself ------------------------------------------------------------------------------------------


@sooner.remote
def waits_for(path):
    while not Path(path).exists():
        pass
    return 1


@sooner.remote
def gets(refs):
    return sooner.get(refs[0])


@sooner.remote
def counts(number):
    yield from range(number)


def test_who_waits_for_a_value(shared_session, tmp_path):
    gate = tmp_path / "gate"
    ref = waits_for.remote(str(gate))
    reader = gets.remote([ref])
    try:
        poll("it is asked for", lambda: any(row.waiting for row in state.get_objects(ref.hex())))
        owner, borrower = state.get_objects(ref.hex())
        assert owner.created_by == "waits_for"
        assert owner.waiting == [borrower.worker_id]
        assert borrower.is_fetching
        assert owner.task_status == "PENDING"
    finally:
        gate.touch()
    assert sooner.get(reader) == 1
    assert not any(row.is_fetching or row.waiting for row in state.get_objects(ref.hex()))


def test_many_tasks_are_counted_not_named(shared_session, tmp_path):
    gate = tmp_path / "gate"
    blocked = waits_for.remote(str(gate))
    ref = sooner.put(bytes(1 << 20))

    @sooner.remote
    def after(first, held):
        return 1

    used = [after.remote(blocked, [ref]) for _ in range(100)]
    try:
        holds = [hold for hold in state.get_objects(ref.hex())[0].holds if hold.reason == "TASK"]
        assert sum(hold.count for hold in holds) >= 100
        assert len(holds) < 30
        assert holds[-1].id is None
    finally:
        gate.touch()
    sooner.get(used)


def test_items_of_a_generator(shared_session):
    items = counts.remote(3)
    first = next(items)
    poll("it ran", lambda: state.get_objects(items.completed().hex())[0].task_status == "FINISHED")
    rows = [row for row in state.list_objects() if row.object_id.startswith(first.task_id())]
    held = [row for row in rows if any(hold.reason == "GENERATOR" for hold in row.holds)]
    assert len(held) >= 3
    assert all(hold.reason != "PINNED" for row in rows for hold in row.holds)


def test_references_by_hand(shared_session):
    ref = sooner.put(bytes(1 << 20))
    again = [sooner.ObjectRef.from_hex(ref.hex()) for _ in range(2)]
    (row,) = state.get_objects(ref.hex())
    assert row.local_references == 3
    assert ref.call_site() == ""
    assert row.call_site is None
    del again


def test_what_only_lineage_keeps(shared_session):
    @sooner.remote
    def longer(value):
        return value + value[:1]

    large = passes_on.remote(bytes(1 << 20))
    ref = longer.remote(large)
    sooner.get(ref)
    identity = large.hex()
    del large
    poll("its value is let go", lambda: state.get_objects(identity)[0].location is None)
    (row,) = state.get_objects(identity)
    assert (row.lineage, [hold.reason for hold in row.holds]) == (1, ["LINEAGE"])
    assert row.created_by == "passes_on"
    del ref
    poll("its task is forgotten", lambda: state.get_objects(identity) == [])


@sooner.remote
def passes_on(value):
    return value


@sooner.remote(checkpoint_every=3)
class Collects:
    def __init__(self):
        self.held = []

    def add(self, refs):
        self.held.append(refs)

    def __sooner_checkpoint__(self):
        return self.held

    def __sooner_restore__(self, state):
        self.held = state


def test_calls_and_checkpoints_of_an_actor(shared_session):
    def reasons(row):
        return [hold.reason for hold in row.holds]

    actor = Collects.remote()
    ref = sooner.put(bytes(1 << 20))
    sooner.get(actor.add.remote([ref]))
    (owner, *_) = state.get_objects(ref.hex())
    assert "KEPT_CALL" in reasons(owner)
    assert owner.hint is None
    sooner.get([actor.add.remote([]) for _ in range(3)])
    poll("a checkpoint covers it", lambda: "KEPT_CALL" not in reasons(state.get_objects(ref.hex())[0]))
    rows = state.get_objects(ref.hex())
    assert any("CHECKPOINT" in reasons(row) for row in rows)
    assert not any("PINNED" in reasons(row) for row in rows)
