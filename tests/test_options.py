"""Options: their declaration, their checks, and the resources they stand for. Nothing here needs the
engine.
"""

import doctest
import math
import typing
from fractions import Fraction

import pytest

from sooner import options
from sooner._options import checks
from sooner.options import OPTIONS, actor_resources, check_combination, defaults, docs_table, resources_of, validate
from sooner.placement import PlacementGroup
from sooner.scheduling import SchedulingStrategy

KINDS = ("task", "actor", "method")
TYPED = {"task": options.TaskOptions, "actor": options.ActorOptions, "method": options.MethodOptions}
NAMES = {kind: [option.name for option in OPTIONS if kind in option.kinds] for kind in KINDS}
PAIRS = [(kind, name) for kind in KINDS for name in NAMES[kind]]
NAN = float("nan")


class Unit(float):
    pass


class PlacementGroupSchedulingStrategy:
    pass


# The declaration


def test_examples_in_docstrings_hold():
    tried = doctest.testmod(options)
    assert tried.failed == 0
    assert tried.attempted > 0


@pytest.mark.parametrize("kind", KINDS)
def test_typed_dicts_and_rows_agree(kind):
    later = {"PlacementGroup": PlacementGroup, "SchedulingStrategy": SchedulingStrategy}
    namespace = dict(vars(typing), **vars(options), **later)
    hints = typing.get_type_hints(TYPED[kind], localns=later)
    assert set(hints) == set(NAMES[kind])
    for option in OPTIONS:
        if kind in option.kinds:
            assert eval(option.type, namespace) == hints[option.name], option.name


@pytest.mark.parametrize("kind", KINDS)
def test_defaults_pass_their_own_check_and_stay_what_they_are(kind):
    given = defaults(kind)
    assert list(given) == NAMES[kind]
    assert validate(kind, given) == given


def test_names_are_declared_once():
    names = [option.name for option in OPTIONS]
    assert len(names) == len(set(names))
    assert all(option.doc.endswith(".") for option in OPTIONS)


@pytest.mark.parametrize("kind", KINDS)
def test_docs_table_has_a_row_for_each_option(kind):
    lines = docs_table(kind).splitlines()
    assert [line.split("`")[1] for line in lines[2:]] == NAMES[kind]
    bars = {line.replace("\\|", "").count("|") for line in lines}
    assert bars == {6}
    assert any("*Not available yet.*" in line for line in lines)
    assert "*Not available yet.*" not in next(line for line in lines if "`num_returns`" in line or "`name`" in line)


# Values

ACCEPTED = [
    ("task", "num_cpus", 2, 2.0),
    ("task", "num_cpus", 0, 0.0),
    ("task", "num_cpus", 0.25, 0.25),
    ("task", "num_cpus", None, None),
    ("task", "num_cpus", Fraction(1, 2), 0.5),
    ("task", "num_cpus", Unit(0.5), 0.5),
    ("task", "num_cpus", checks.AMOUNT_STEP, checks.AMOUNT_STEP),
    ("actor", "num_gpus", 0.5, 0.5),
    ("actor", "num_gpus", 1, 1.0),
    ("actor", "num_gpus", 4.0, 4.0),
    ("task", "memory", 1.5, 2),
    ("task", "memory", 1 << 30, 1 << 30),
    ("task", "resources", {"tape": 1, "half": 0.5}, {"tape": 1.0, "half": 0.5}),
    ("task", "resources", {}, {}),
    ("task", "accelerator_type", "A100", "A100"),
    ("task", "num_returns", 0, 0),
    ("task", "num_returns", 3, 3),
    ("method", "num_returns", 2, 2),
    ("task", "num_returns", "streaming", "streaming"),
    ("method", "num_returns", "dynamic", "dynamic"),
    ("task", "max_calls", 3, 3),
    ("task", "_generator_backpressure_num_objects", 8, 8),
    ("task", "_generator_backpressure_num_objects", -1, None),
    ("actor", "lifetime", "detached", "detached"),
    ("actor", "max_restarts", -1, -1),
    ("actor", "max_task_retries", 2, 2),
    ("method", "max_task_retries", None, None),
    ("actor", "max_pending_calls", 10, 10),
    ("actor", "concurrency_groups", {"io": 2}, {"io": 2}),
    ("method", "concurrency_group", "io", "io"),
    ("actor", "allow_out_of_order_execution", True, True),
    ("actor", "checkpoint_every", 500, 500),
    ("method", "read_only", True, True),
    ("task", "max_retries", -1, -1),
    ("task", "max_retries", 0, 0),
    ("task", "retry_exceptions", True, True),
    ("task", "retry_exceptions", [ValueError, KeyError], (ValueError, KeyError)),
    ("method", "retry_exceptions", (OSError,), (OSError,)),
    ("task", "retry_exceptions", [], ()),
    ("task", "max_calls", 0, 0),
    ("task", "scheduling_strategy", "SPREAD", "SPREAD"),
    ("task", "scheduling_strategy", "DEFAULT", "DEFAULT"),
    ("task", "runtime_env", {}, {}),
    ("actor", "runtime_env", None, None),
    ("actor", "name", "counter", "counter"),
    ("actor", "namespace", "n", "n"),
    ("actor", "lifetime", "non_detached", "non_detached"),
    ("actor", "get_if_exists", True, True),
    ("actor", "max_restarts", 0, 0),
    ("actor", "max_concurrency", 1000, 1000),
    ("actor", "max_pending_calls", -1, -1),
    ("actor", "concurrency_groups", {}, {}),
    ("actor", "placement_group", "default", "default"),
    ("task", "placement_group_bundle_index", 3, 3),
    ("task", "label_selector", {"a": "!in(b, c)"}, {"a": "!in(b, c)"}),
    ("task", "priority", -7, -7),
    ("task", "enable_task_events", False, False),
]


@pytest.mark.parametrize(("kind", "name", "value", "normal"), ACCEPTED)
def test_values_that_fit(kind, name, value, normal):
    once = validate(kind, {name: value})
    assert once == {name: normal}
    assert type(once[name]) is type(normal)
    assert validate(kind, once) == once


WRONG = {
    ("num_cpus", "num_gpus", "memory"): [-1, -0.5, NAN, math.inf, -math.inf, True, False, "1", b"1", [1], 1j, 10**400],
    ("num_cpus", "num_gpus"): [checks.AMOUNT_STEP / 2, 2.0**54],
    ("num_gpus",): [1.5, 2.0001],
    ("resources",): [
        [("a", 1)],
        "tape",
        {"CPU": 1},
        {"GPU": 1},
        {"memory": 1},
        {"object_store_memory": 1},
        {"": 1},
        {1: 1},
        {"a": -1},
        {"a": NAN},
        {"a": True},
        {"a": "1"},
        {"a": None},
        {"a" * 2000: 1},
    ],
    ("accelerator_type", "name", "namespace"): ["", 3, b"x", True, "x" * 2000, ["x"]],
    ("num_returns",): [-1, 1.0, True, "2", "stream", "none", 2**31, [1]],
    ("max_retries",): [-2, 1.5, None, True, "3", 2**31],
    ("retry_exceptions",): [None, 1, ValueError, "ValueError", [int], [ValueError("x")], {ValueError}],
    ("max_concurrency", "checkpoint_every"): [0, -1, 1.5, True, "2", 2**31],
    ("enable_task_events", "get_if_exists", "read_only"): [None, 0, 1, "yes"],
    ("scheduling_strategy",): ["spread", "", 1, True, PlacementGroupSchedulingStrategy(), ["SPREAD"]],
    ("runtime_env",): [{"pip": ["x"]}, {"env_vars": {}}, "env", [], 0],
    ("lifetime",): ["forever", "", 1, True],
    ("max_restarts",): [-2, None, False, "0", 1.5],
    ("max_task_retries",): [-2, False, "0", 1.5],
    ("max_calls",): [-1, False, "0"],
    ("max_pending_calls",): [0, -2, None, "x", -1.0],
    ("concurrency_groups",): [[], 0, {"io": 0}, {"io": None}, {"io": "2"}, {1: 2}, {"": 2}],
    ("concurrency_group",): [1, ""],
    ("allow_out_of_order_execution",): ["yes", 0],
    ("_generator_backpressure_num_objects",): [0, -2, "x", 1.5, True],
    ("label_selector",): ["a", {"a b": "c"}, {"a": "in(b"}, {"a": 1}, {1: "a"}, {"a": "b c"}],
    ("_labels",): [{"a": "b"}, "a"],
    ("placement_group",): [PlacementGroupSchedulingStrategy(), "other", 1],
    ("placement_group_bundle_index",): [-2, None, True, "0", 1.5],
    ("placement_group_capture_child_tasks",): ["yes", 0],
    ("priority",): [None, True, 1.5, "1", 2**31, -(2**31)],
    ("fallback_strategy",): [[{"label_selector": {}}], {}],
    ("object_store_memory", "tensor_transport"): [1, 0, "x"],
    ("_num_objects_per_yield",): [2],
    ("enable_tensor_transport", "_actor_generator_backpressure_num_objects"): [True, 1],
}
REFUSED = [(name, value) for names, values in WRONG.items() for name in names for value in values]


def refusal(kind, given):
    with pytest.raises(ValueError, match=r".") as caught:
        validate(kind, given)
    return str(caught.value)


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_values_that_do_not_fit_are_named(name, value):
    kinds = [kind for kind in KINDS if name in NAMES[kind]]
    assert kinds
    for kind in kinds:
        text = refusal(kind, {name: value})
        assert text.startswith(name)
        assert "is not allowed: " in text
        assert type(value).__name__ in text or name == "resources"
        assert len(text) < 1000 or name == "resources"


def test_every_option_has_a_value_that_is_refused():
    assert {name for name, _ in REFUSED} == {name for _, name in PAIRS}


@pytest.mark.api("task.runtime_env", "task.fallback_strategy")
@pytest.mark.parametrize(
    ("name", "value", "feature"),
    [
        ("runtime_env", {"pip": ["x"]}, "runtime environments"),
        ("fallback_strategy", [{"label_selector": {}}], "fallback strategies"),
    ],
)
def test_features_of_later_versions_are_named(name, value, feature):
    kind = next(kind for kind in KINDS if name in NAMES[kind])
    text = refusal(kind, {name: value})
    assert f"this version of sooner does not have {feature} yet; give " in text


@pytest.mark.api("task.resources")
@pytest.mark.parametrize(
    ("key", "instead"),
    [
        ("CPU", "use num_cpus"),
        ("GPU", "use num_gpus"),
        ("memory", "use memory"),
        ("object_store_memory", "sooner.init"),
    ],
)
def test_builtin_resources_have_their_own_options(key, instead):
    assert instead in refusal("task", {"resources": {key: 1}})


def test_the_part_of_a_dict_that_is_wrong_is_named():
    assert refusal("task", {"resources": {"good": 1, "bad": -1}}).startswith("resources['bad']=-1 (int)")


@pytest.mark.api("task.invalid_option")
@pytest.mark.parametrize(
    ("kind", "name", "parts"),
    [
        ("task", "num_cpu", ["not an option of a task", "Did you mean 'num_cpus'?", "max_retries"]),
        ("task", "max_restarts", ["not an option of a task", "It is one of actors."]),
        ("actor", "max_retries", ["not an option of an actor", "It is one of tasks.", "max_restarts"]),
        ("method", "num_cpus", ["not an option of a method", "It is one of tasks and actors."]),
        ("method", "concurency_group", ["Did you mean 'concurrency_group'?"]),
        ("task", "zzzzzzzz", ["not an option of a task.", "Options: num_cpus, "]),
        ("task", 3, ["3 is not an option of a task."]),
    ],
)
def test_unknown_options(kind, name, parts):
    text = refusal(kind, {name: 1})
    for part in parts:
        assert part in text
    for known in NAMES[kind]:
        assert known in text
    assert ("Did you mean" in text) == any("Did you mean" in part for part in parts)


def test_numpy_numbers():
    numpy = pytest.importorskip("numpy")
    assert validate("task", {"num_cpus": numpy.float32(0.5), "num_returns": numpy.int64(2)}) == {
        "num_cpus": 0.5,
        "num_returns": 2,
    }
    for wrong in (numpy.bool_(True), numpy.array([1.0]), numpy.float64("nan")):
        assert refusal("task", {"num_cpus": wrong}).startswith("num_cpus=")


def test_nothing_is_changed_in_place():
    given = {"resources": {"tape": 1}, "retry_exceptions": [ValueError]}
    normal = validate("task", given)
    normal["resources"]["tape"] = 9
    assert given == {"resources": {"tape": 1}, "retry_exceptions": [ValueError]}


@pytest.mark.parametrize("given", [{"get_if_exists": True}, {"namespace": "n"}, {"name": None, "namespace": "n"}])
def test_combinations_that_need_a_name(given):
    with pytest.raises(ValueError, match=r"name='\.\.\.'"):
        check_combination("actor", given)
    check_combination("actor", {**given, "name": "a"})
    check_combination("task", given)


# Resources


@pytest.mark.parametrize(
    ("given", "task", "actor"),
    [
        ({}, {"CPU": 1.0}, {}),
        ({"num_cpus": None}, {"CPU": 1.0}, {}),
        ({"num_cpus": 0}, {}, {}),
        ({"num_cpus": 0.5}, {"CPU": 0.5}, {"CPU": 0.5}),
        ({"num_gpus": 2}, {"CPU": 1.0, "GPU": 2.0}, {"GPU": 2.0}),
        ({"num_cpus": 0, "num_gpus": 0}, {}, {}),
        ({"memory": 100}, {"CPU": 1.0, "memory": 100.0}, {"memory": 100.0}),
        ({"resources": {"tape": 2, "none": 0}}, {"CPU": 1.0, "tape": 2.0}, {"tape": 2.0}),
        ({"accelerator_type": "A100"}, {"CPU": 1.0, "accelerator_type:A100": 0.001}, {"accelerator_type:A100": 0.001}),
        ({"name": "x", "max_retries": 1}, {"CPU": 1.0}, {}),
    ],
)
def test_resources_of(given, task, actor):
    assert resources_of(given, "task") == task
    assert resources_of(given, "actor") == actor
    assert resources_of(given, "method") == {}
    assert all(type(value) is float for value in resources_of(given, "task").values())
    placement, lifetime = actor_resources(given)
    assert lifetime == actor
    assert placement == (actor if given.get("num_cpus") is not None else {"CPU": 1.0, **actor})
    assert placement is not lifetime


@pytest.mark.parametrize("wrong", [{"num_cpus": -1}, {"num_gpus": 1.5}, {"resources": {"CPU": 1}}, {"memory": "1"}])
def test_resources_of_wrong_amounts(wrong):
    with pytest.raises(ValueError, match="is not allowed"):
        resources_of(wrong, "task")
    with pytest.raises(ValueError, match="is not allowed"):
        actor_resources(wrong)
