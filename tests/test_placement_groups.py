"""Placement groups: reserving, running in bundles, names, removal, and how they show."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Iterator

import pytest
from support import WAIT, poll

import sooner
from sooner.exceptions import ActorDiedError, ActorPlacementGroupRemoved, GetTimeoutError, TaskPlacementGroupRemoved
from sooner.util import (
    get_current_placement_group,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from sooner.util.placement_group import PlacementGroup
from sooner.util.scheduling_strategies import PlacementGroupSchedulingStrategy as InGroup


@pytest.fixture
def session_4(nothing_left: list[str]) -> Iterator[None]:
    """Four CPUs and a label."""
    nothing_left.append(sooner.init(num_cpus=4, labels={"zone": "a"})["session_dir"])
    yield
    sooner.shutdown()


@pytest.fixture
def group(session_4: None) -> Iterator[PlacementGroup]:
    """A group with a bundle of two CPUs and one of one."""
    made = placement_group([{"CPU": 2}, {"CPU": 1}])
    assert made.wait(WAIT)
    yield made
    remove_placement_group(made)


@sooner.remote
def where() -> tuple[str | None, dict[str, float]]:
    context = sooner.get_runtime_context()
    return context.get_placement_group_id(), context.get_assigned_resources()


@sooner.remote(num_cpus=0)
class Holder:
    def group(self) -> str | None:
        return sooner.get_runtime_context().get_placement_group_id()

    def wait(self, seconds: float) -> None:
        import time

        time.sleep(seconds)


@pytest.mark.api("placement_groups")
def test_a_group_reserves_its_bundles_until_it_is_removed(session_4) -> None:
    assert sooner.available_resources().get("CPU", 0) == 4
    made = placement_group([{"CPU": 2}, {"CPU": 1}], strategy="PACK")
    assert sooner.get(made.ready(), timeout=WAIT) == made
    assert (made.bundle_count, made.bundle_specs) == (2, [{"CPU": 2}, {"CPU": 1}])
    assert sooner.available_resources().get("CPU", 0) == 1
    remove_placement_group(made)
    poll("the CPUs are back", lambda: sooner.available_resources().get("CPU", 0) == 4)
    remove_placement_group(made)
    assert made.wait(WAIT) is False


@pytest.mark.api("placement_groups", "task.placement_group", "scheduling_strategies", "context.get")
def test_tasks_and_actors_run_in_their_bundle(group) -> None:
    in_first = where.options(num_cpus=2, scheduling_strategy=InGroup(group, 0))
    in_any = where.options(placement_group=group, placement_group_bundle_index=-1)
    assert sooner.get(in_first.remote(), timeout=WAIT) == (group.id.hex(), {"CPU": 2.0})
    assert sooner.get(in_any.remote(), timeout=WAIT) == (group.id.hex(), {"CPU": 1.0})
    assert sooner.get(where.remote(), timeout=WAIT)[0] is None
    actor = Holder.options(num_cpus=1, scheduling_strategy=InGroup(group, 1)).remote()
    assert sooner.get(actor.group.remote(), timeout=WAIT) == group.id.hex()
    # The bundle is in use, and what is free outside of the group is not for it.
    late = where.options(scheduling_strategy=InGroup(group, 1)).remote()
    with pytest.raises(GetTimeoutError):
        sooner.get(late, timeout=0.2)
    sooner.kill(actor)
    assert sooner.get(late, timeout=WAIT)[0] == group.id.hex()


@pytest.mark.api("placement_groups")
def test_what_does_not_fit_is_refused_at_once(group) -> None:
    with pytest.raises(ValueError, match=r"where\(\) needs 3 CPU.*any bundle.*2 CPU; 1 CPU"):
        where.options(num_cpus=3, scheduling_strategy=InGroup(group)).remote()
    with pytest.raises(ValueError, match="bundle 1"):
        where.options(num_cpus=2, scheduling_strategy=InGroup(group, 1)).remote()
    with pytest.raises(ValueError, match="bundles 0 to 1"):
        InGroup(group, 2)
    with pytest.raises(ValueError, match="not in both"):
        where.options(scheduling_strategy="SPREAD", placement_group=group)
    with pytest.raises(ValueError, match="placement_group must be"):
        InGroup("mine")
    with pytest.raises(ValueError, match="label_selector goes with"):
        where.options(scheduling_strategy=InGroup(group), label_selector={"zone": "a"})
    for bundles in ([], [{}], [{"CPU": 0}], ["CPU"], [{"CPU": -1}], [{"GPU": 1.5}], {"CPU": 1}):
        with pytest.raises(ValueError, match="bundles"):
            placement_group(bundles)
    with pytest.raises(ValueError, match="STRICT_SPREAD"):
        placement_group([{"CPU": 1}], strategy="NEAR")
    with pytest.raises(ValueError, match="detached"):
        placement_group([{"CPU": 1}], lifetime="for ever")
    with pytest.raises(ValueError, match="give a placement group"):
        remove_placement_group("mine")


@pytest.mark.api("placement_groups")
def test_children_run_in_the_group_if_it_captures_them(group) -> None:
    @sooner.remote(num_cpus=1)
    def parent(explicit: object) -> list[str | None]:
        context = sooner.get_runtime_context()
        own = get_current_placement_group()
        assert own is not None
        assert own.id.hex() == context.current_placement_group_id
        children = [where.options(num_cpus=0), where.options(num_cpus=0, placement_group=explicit)]
        found = [sooner.get(child.remote(), timeout=WAIT)[0] for child in children]
        actor = Holder.remote()
        return [
            *found,
            sooner.get(actor.group.remote(), timeout=WAIT),
            str(context.should_capture_child_tasks_in_placement_group),
        ]

    own = group.id.hex()
    for captures, expected in ((True, [own, None, own, "True"]), (None, [None, None, None, "False"])):
        strategy = InGroup(group, placement_group_capture_child_tasks=captures)
        task = parent.options(scheduling_strategy=strategy)
        assert sooner.get(task.remote(None), timeout=WAIT) == expected
    assert get_current_placement_group() is None


@pytest.mark.api("placement_groups", "errors.placement_group")
def test_removal_ends_what_runs_and_waits_in_the_group(group) -> None:
    @sooner.remote(num_cpus=1, max_retries=-1)
    def sleep() -> None:
        import time

        time.sleep(1000)

    in_group = sleep.options(scheduling_strategy=InGroup(group))
    tasks = [in_group.remote() for _ in range(6)]
    actor = Holder.options(max_restarts=-1, scheduling_strategy=InGroup(group)).remote()
    sooner.get(actor.group.remote(), timeout=WAIT)
    call = actor.wait.remote(1000)
    ready = group.ready()
    assert sooner.get(ready, timeout=WAIT) == group
    remove_placement_group(group)
    for task in [*tasks, in_group.remote()]:
        with pytest.raises(TaskPlacementGroupRemoved, match="was removed"):
            sooner.get(task, timeout=WAIT)
    with pytest.raises((ActorPlacementGroupRemoved, ActorDiedError)):
        sooner.get(call, timeout=WAIT)
    with pytest.raises(ActorPlacementGroupRemoved):
        sooner.get(actor.group.remote(), timeout=WAIT)
    late = Holder.options(scheduling_strategy=InGroup(group)).remote()
    with pytest.raises(ActorPlacementGroupRemoved):
        sooner.get(late.group.remote(), timeout=WAIT)
    with pytest.raises(TaskPlacementGroupRemoved):
        sooner.get(group.ready(), timeout=WAIT)
    poll("the CPUs are back", lambda: sooner.available_resources().get("CPU", 0) == 4)


@pytest.mark.api("placement_groups")
def test_a_group_waits_for_room_and_tasks_for_the_group(session_4) -> None:
    first = placement_group([{"CPU": 3}])
    second = placement_group([{"CPU": 3}])
    assert first.wait(WAIT)
    task = where.options(num_cpus=3, scheduling_strategy=InGroup(second)).remote()
    actor = Holder.options(scheduling_strategy=InGroup(second)).remote()
    assert second.wait(0.1) is False
    assert placement_group_table(second)["state"] == "PENDING"
    remove_placement_group(first)
    assert second.wait(WAIT)
    assert sooner.get(task, timeout=WAIT)[0] == second.id.hex()
    assert sooner.get(actor.group.remote(), timeout=WAIT) == second.id.hex()


@pytest.mark.api("placement_groups")
def test_what_needs_several_nodes_stays_pending_and_says_why(session_4, capfd) -> None:
    made = placement_group([{"CPU": 1}, {"CPU": 1}], strategy="STRICT_SPREAD", name="apart")
    assert made.wait(0.2) is False
    table = placement_group_table(made)
    assert (table["state"], table["strategy"], table["name"]) == ("PENDING", "STRICT_SPREAD", "apart")
    assert "a node of its own for each of 2 bundles" in table["stats"]["scheduling_detail"]
    assert sooner.available_resources().get("CPU", 0) == 4
    poll("the user is told", lambda: "apart" in capfd.readouterr().err)
    one = placement_group([{"CPU": 1}], strategy="STRICT_SPREAD")
    assert one.wait(WAIT)
    pack = placement_group([{"CPU": 1}, {"CPU": 2}], strategy="STRICT_PACK")
    assert pack.wait(WAIT)
    for group in (made, one, pack):
        remove_placement_group(group)


@pytest.mark.api("placement_groups")
def test_labels_of_bundles(session_4) -> None:
    here = placement_group([{"CPU": 1}], bundle_label_selector=[{"zone": "in(a, b)"}])
    elsewhere = placement_group([{"CPU": 1}], bundle_label_selector=[{"zone": "!a"}])
    assert here.wait(WAIT)
    assert elsewhere.wait(0.1) is False
    assert "zone not in (a)" in placement_group_table(elsewhere)["stats"]["scheduling_detail"]
    with pytest.raises(ValueError, match="label key"):
        placement_group([{"CPU": 1}], bundle_label_selector=[{"a b": "c"}])
    with pytest.raises(ValueError, match="a dict for each of 1 bundles"):
        placement_group([{"CPU": 1}], bundle_label_selector=[])


@pytest.mark.api("placement_groups")
def test_names_and_the_table(session_4) -> None:
    made = placement_group([{"CPU": 1}, {"CPU": 0.5}], name="mine")
    assert made.wait(WAIT)
    found = get_placement_group("mine")
    assert (found, found.bundle_specs) == (made, made.bundle_specs)
    with pytest.raises(ValueError, match="exists in namespace"):
        placement_group([{"CPU": 1}], name="mine")
    with pytest.raises(ValueError, match="there is no placement group named"):
        get_placement_group("yours")
    node = sooner.get_runtime_context().get_node_id()
    table = placement_group_table(made)
    assert table == placement_group_table()[made.id.hex()]
    assert table["bundles"] == {0: {"CPU": 1.0}, 1: {"CPU": 0.5}}
    assert table["bundles_to_node_id"] == {0: node, 1: node}
    assert (table["state"], table["stats"]["scheduling_state"]) == ("CREATED", "FINISHED")
    assert table["stats"]["scheduling_attempt"] == 1
    remove_placement_group(made)
    assert placement_group_table(made)["state"] == "REMOVED"
    again = placement_group([{"CPU": 1}], name="mine")
    assert get_placement_group("mine") == again != made


@pytest.mark.api("placement_groups")
def test_handles_travel_and_formatted_resources_show(group) -> None:
    @sooner.remote(num_cpus=0)
    def use(group: PlacementGroup) -> tuple[int, str | None]:
        assert group.wait(WAIT)
        assert sooner.get(group.ready(), timeout=WAIT) == group
        task = where.options(scheduling_strategy=InGroup(group, 1))
        return group.bundle_count, sooner.get(task.remote(), timeout=WAIT)[0]

    assert sooner.get(use.remote(group), timeout=WAIT) == (2, group.id.hex())
    assert pickle.loads(pickle.dumps(group)) == group
    assert len({group, pickle.loads(pickle.dumps(group))}) == 1
    fresh = placement_group([{"CPU": 1}])
    assert sooner.get(use.options(num_cpus=0).remote(group), timeout=WAIT)[0] == 2
    hex_id = group.id.hex()
    total, free = sooner.cluster_resources(), sooner.available_resources()
    assert (total[f"CPU_group_{hex_id}"], total[f"CPU_group_0_{hex_id}"]) == (3.0, 2.0)
    assert total["CPU"] == 4.0
    assert free[f"bundle_group_1_{hex_id}"] == 1000.0
    remove_placement_group(fresh)
    assert PlacementGroup.empty().is_empty
    assert sooner.get(where.options(placement_group=PlacementGroup.empty()).remote(), timeout=WAIT)[0] is None


@pytest.mark.api("placement_groups")
def test_the_name_is_a_function_and_a_module() -> None:
    code = """
    import importlib, sys
    order = sys.argv[1]
    import sooner
    if order == "module":
        from sooner.util.placement_group import placement_group
        import sooner.util.placement_group as module
    made = sooner.util.placement_group([{"CPU": 1}])
    if order == "function":
        from sooner.util.placement_group import placement_group
        import sooner.util.placement_group as module
    assert module.PlacementGroup is type(made)
    assert placement_group([{"CPU": 1}]).wait(60) or True
    """
    import textwrap

    for order in ("module", "function"):
        subprocess.run([sys.executable, "-c", textwrap.dedent(code), order], check=True, timeout=120)


@pytest.mark.api("placement_groups", "cli.list", "state.list", "state.get")
def test_groups_in_the_state_and_the_command(session_4) -> None:
    from sooner.util.state import get_placement_group as state_of
    from sooner.util.state import list_placement_groups

    made = placement_group([{"CPU": 1}], name="shown")
    apart = placement_group([{"CPU": 1}, {"CPU": 1}], strategy="STRICT_SPREAD")
    assert made.wait(WAIT)
    # Nobody waits for the second one, so the node may hear of it later than the question.
    poll("the node has heard of both", lambda: len(list_placement_groups()) == 2)
    rows = {row.placement_group_id: row for row in list_placement_groups()}
    assert (rows[made.id.hex()].state, rows[made.id.hex()].name) == ("CREATED", "shown")
    assert rows[made.id.hex()].bundles[0]["node_id"] == sooner.get_runtime_context().get_node_id()
    assert list_placement_groups(filters=[("state", "=", "PENDING")])[0].placement_group_id == apart.id.hex()
    assert state_of(apart.id.hex()).reason
    directory = sooner.get_runtime_context().get_temp_dir()

    def command(*arguments: str) -> str:
        run = [sys.executable, "-m", "sooner", *arguments, "--address", directory]
        return subprocess.run(run, check=True, capture_output=True, text=True, timeout=120).stdout

    listed = json.loads(command("list", "placement-groups", "--json"))
    assert {row["placement_group_id"] for row in listed} == set(rows)
    assert "STRICT_SPREAD" in command("list", "placement-groups")
    assert "is pending: STRICT_SPREAD needs" in command("status")
    assert "shown" in command("get", "placement-group", made.id.hex())


def test_local_mode_has_groups(nothing_left) -> None:
    nothing_left.append(sooner.init(num_cpus=2, local_mode=True)["session_dir"])
    made = placement_group([{"CPU": 1}])
    assert made.wait(WAIT)
    assert sooner.get(where.options(scheduling_strategy=InGroup(made)).remote())[0] == made.id.hex()
    assert get_current_placement_group() is None
    remove_placement_group(made)
    assert made.wait(WAIT) is False
    sooner.shutdown()


@pytest.mark.chaos
def test_a_worker_that_dies_in_a_group_gives_its_place_back(group) -> None:
    @sooner.remote(num_cpus=1, max_retries=3)
    def die_once(path: str) -> str:
        import os
        import signal

        if not os.path.exists(path):
            open(path, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return "lived"

    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        tasks = [
            die_once.options(scheduling_strategy=InGroup(group)).remote(f"{directory}/{number}") for number in range(6)
        ]
        assert sooner.get(tasks, timeout=WAIT) == ["lived"] * 6
    hex_id = group.id.hex()
    poll("all is free", lambda: sooner.available_resources().get(f"CPU_group_{hex_id}") == 3.0)


def test_no_group_is_the_way_out_of_a_group(group) -> None:
    def where():
        return sooner.get_runtime_context().get_placement_group_id()

    @sooner.remote
    def outside():
        child = sooner.remote(where).options(num_cpus=0)
        ways = [child, child.options(scheduling_strategy=InGroup(None)), child.options(placement_group=None)]
        return sooner.get([way.remote() for way in ways])

    strategy = InGroup(group, placement_group_capture_child_tasks=True)
    assert sooner.get(outside.options(scheduling_strategy=strategy).remote()) == [group.id.hex(), None, None]
    with pytest.raises(ValueError, match="placement_group must be"):
        InGroup("group")
