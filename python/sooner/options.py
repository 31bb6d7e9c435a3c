"""The options of tasks, actors and methods: the single declaration of each.

A new option is one row of `OPTIONS` and one line in a TypedDict. Checks, error texts, defaults and the tables
in the documentation are derived from the rows. The checks of single values are in `_options/checks.py`.

Example:
    >>> from sooner.options import resources_of, validate
    >>> validate("task", {"num_cpus": 2, "max_retries": -1})
    {'num_cpus': 2.0, 'max_retries': -1}
    >>> resources_of({"num_gpus": 0.5}, "task")
    {'CPU': 1.0, 'GPU': 0.5}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypedDict

from sooner._options import checks as check

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sooner.placement import PlacementGroup
    from sooner.scheduling import SchedulingStrategy

__all__ = [
    "OPTIONS",
    "ActorOptions",
    "Kind",
    "MethodOptions",
    "Option",
    "TaskOptions",
    "actor_resources",
    "check_combination",
    "defaults",
    "docs_table",
    "resources_of",
    "returns_of",
    "validate",
]

Kind = Literal["task", "actor", "method"]
Priority = Literal["must", "should", "later"]

# A reservation this small never keeps a task or actor from a node that has the accelerator.
_ACCELERATOR_TYPE_SHARE: Final = 0.001


class Option(NamedTuple):
    """One option.

    Attributes:
        name: The keyword.
        kinds: What it applies to.
        type: Its type, as a reader writes it.
        default: What holds when it is not given.
        check: Takes the name and the value; returns the normalised value, or raises ValueError.
        doc: What it does, in one sentence.
        priority: How much a program depends on it.
    """

    name: str
    kinds: tuple[Kind, ...]
    type: str
    default: Any
    check: Callable[[str, Any], Any]
    doc: str
    priority: Priority


_TASK: Final[tuple[Kind, ...]] = ("task",)
_ACTOR: Final[tuple[Kind, ...]] = ("actor",)
_METHOD: Final[tuple[Kind, ...]] = ("method",)
_PLACED: Final[tuple[Kind, ...]] = ("task", "actor")
_CALLED: Final[tuple[Kind, ...]] = ("task", "method")
_ALL: Final[tuple[Kind, ...]] = ("task", "actor", "method")


def _rows() -> tuple[Option, ...]:
    later = check.later
    amount, count, budget, flag, text = check.amount, check.count, check.budget, check.flag, check.text
    streaming = later("limits over all generators of an actor")
    tensors = later("tensor transport")
    return (
        Option("num_cpus", _PLACED, "float | None", None, amount, "Logical CPUs.", "must"),
        Option("num_gpus", _PLACED, "float | None", None, check.gpus, "Logical GPUs; whole above 1.", "must"),
        Option("resources", _PLACED, "dict[str, float] | None", None, check.resources, "Custom resources.", "must"),
        Option("memory", _PLACED, "float | None", None, check.memory, "Logical memory in bytes.", "must"),
        Option("accelerator_type", _PLACED, "str | None", None, text, "Kind of accelerator the node has.", "should"),
        Option("name", _ALL, "str | None", None, text, "Name for display; of an actor, its unique name.", "must"),
        Option(
            "num_returns",
            _CALLED,
            'int | Literal["streaming", "dynamic"] | None',
            None,
            check.num_returns,
            "Number of refs a call gives; unset: 1, or a stream of them for a generator.",
            "must",
        ),
        Option("max_retries", _TASK, "int", 3, budget, "Retries after a system failure; -1: no limit.", "must"),
        Option(
            "retry_exceptions",
            _CALLED,
            "bool | Sequence[type[BaseException]]",
            False,
            check.retry_exceptions,
            "Whether, or for which classes, user exceptions are retried too.",
            "must",
        ),
        Option(
            "max_calls",
            _TASK,
            "int | None",
            None,
            count(0, "calls"),
            "Executions of the function after which a worker process ends; 0: no limit.",
            "should",
        ),
        Option(
            "scheduling_strategy",
            _PLACED,
            'Literal["DEFAULT", "SPREAD"] | SchedulingStrategy | None',
            None,
            check.scheduling_strategy,
            "Where to run; see `sooner.util.scheduling_strategies`.",
            "must",
        ),
        Option(
            "priority", _PLACED, "int", 0, check.priority, "The higher, the sooner it runs among what waits.", "must"
        ),
        Option("runtime_env", _PLACED, "dict[str, Any] | None", None, check.runtime_env, "Environment.", "must"),
        Option("namespace", _ACTOR, "str | None", None, text, "Namespace of the actor's name.", "must"),
        Option(
            "lifetime",
            _ACTOR,
            'Literal["detached", "non_detached"] | None',
            None,
            check.lifetime,
            "Whether the actor lives on without handles and without its owner, until it is killed.",
            "must",
        ),
        Option("get_if_exists", _ACTOR, "bool", False, flag, "Give the actor of that name if there is one.", "must"),
        Option("max_restarts", _ACTOR, "int", 0, budget, "Restarts after a failure; -1: no limit.", "must"),
        Option(
            "max_task_retries",
            ("actor", "method"),
            "int | None",
            0,
            check.optional_budget,
            "Retries of a call when the actor's process fails; -1: no limit.",
            "must",
        ),
        Option(
            "max_concurrency",
            _ACTOR,
            "int | None",
            None,
            count(1, "calls at a time"),
            "Calls the actor executes at a time; unset: 1, or 1000 for an asyncio actor.",
            "must",
        ),
        Option(
            "concurrency_groups",
            _ACTOR,
            "dict[str, int] | None",
            None,
            check.concurrency_groups,
            "Groups of methods with a limit each on calls at a time.",
            "should",
        ),
        Option(
            "concurrency_group",
            _METHOD,
            "str | None",
            None,
            text,
            "Group the method belongs to.",
            "must",
        ),
        Option(
            "max_pending_calls",
            _ACTOR,
            "int",
            -1,
            check.pending_calls,
            "Calls of one process to the actor that may be pending; -1: no limit.",
            "should",
        ),
        Option(
            "allow_out_of_order_execution",
            _ACTOR,
            "bool | None",
            None,
            check.optional_flag,
            "Calls do not wait for earlier ones whose arguments are missing.",
            "should",
        ),
        Option(
            "checkpoint_every",
            _ACTOR,
            "int | None",
            None,
            count(1, "calls"),
            "Calls after which the actor's state is kept; after a failure the calls since then are made again.",
            "must",
        ),
        Option("read_only", _METHOD, "bool", False, flag, "The method does not change the actor's state.", "must"),
        Option("enable_task_events", _ALL, "bool", True, flag, "Record what happens to the task.", "should"),
        Option(
            "label_selector",
            _PLACED,
            "dict[str, str] | None",
            None,
            check.label_selector,
            "Labels of the node: key to `value`, `!value`, `in(a, b)` or `!in(a, b)`.",
            "should",
        ),
        Option(
            "fallback_strategy",
            _PLACED,
            "list[dict[str, Any]] | None",
            None,
            later("fallback strategies", None, []),
            "What to try when the label selector fails.",
            "later",
        ),
        Option(
            "placement_group",
            _PLACED,
            'PlacementGroup | Literal["default"] | None',
            "default",
            check.placement_group,
            "Placement group; better given with `scheduling_strategy`.",
            "should",
        ),
        Option(
            "placement_group_bundle_index",
            _PLACED,
            "int",
            -1,
            check.bundle_index,
            "Bundle of the placement group; -1: any.",
            "should",
        ),
        Option(
            "placement_group_capture_child_tasks",
            _PLACED,
            "bool | None",
            None,
            check.optional_flag,
            "Whether what it submits runs in the same group.",
            "should",
        ),
        Option("_labels", _PLACED, "dict[str, str] | None", None, later("labels", None, {}), "Labels of it.", "later"),
        Option(
            "_generator_backpressure_num_objects",
            _CALLED,
            "int | None",
            None,
            check.backpressure,
            "Items that may be unread before a generator waits; unset or -1: no limit.",
            "should",
        ),
        Option(
            "_num_objects_per_yield",
            _CALLED,
            "int | None",
            None,
            later("grouped items", None, 1),
            "Objects of one yield.",
            "later",
        ),
        Option(
            "_actor_generator_backpressure_num_objects",
            _ACTOR,
            "int | None",
            None,
            streaming,
            "Unread items of all generators of the actor.",
            "later",
        ),
        Option("enable_tensor_transport", _ACTOR, "bool | None", None, tensors, "Tensor transport.", "later"),
        Option("tensor_transport", _METHOD, "str | None", None, tensors, "Tensor transport.", "later"),
        Option(
            "object_store_memory",
            _PLACED,
            "float | None",
            None,
            later("object store reservations of tasks and actors"),
            "Object store bytes.",
            "later",
        ),
    )


OPTIONS: Final[tuple[Option, ...]] = _rows()

_BY_KIND: Final[dict[str, dict[str, Option]]] = {
    kind: {option.name: option for option in OPTIONS if kind in option.kinds} for kind in ("task", "actor", "method")
}


class _PlacedOptions(TypedDict, total=False):
    num_cpus: float | None
    num_gpus: float | None
    resources: dict[str, float] | None
    memory: float | None
    accelerator_type: str | None
    name: str | None
    scheduling_strategy: Literal["DEFAULT", "SPREAD"] | SchedulingStrategy | None
    priority: int
    runtime_env: dict[str, Any] | None
    enable_task_events: bool
    label_selector: dict[str, str] | None
    fallback_strategy: list[dict[str, Any]] | None
    placement_group: PlacementGroup | Literal["default"] | None
    placement_group_bundle_index: int
    placement_group_capture_child_tasks: bool | None
    _labels: dict[str, str] | None
    object_store_memory: float | None


# Without `num_returns`: the type of a call's result depends on it, so overloads name it separately.
class _TaskOptions(_PlacedOptions, total=False):
    max_retries: int
    retry_exceptions: bool | Sequence[type[BaseException]]
    max_calls: int | None
    _generator_backpressure_num_objects: int | None
    _num_objects_per_yield: int | None


class TaskOptions(_TaskOptions, total=False):
    """Options of `@sooner.remote` on a function and of its `.options(...)`."""

    num_returns: int | Literal["streaming", "dynamic"] | None


class ActorOptions(_PlacedOptions, total=False):
    """Options of `@sooner.remote` on a class and of its `.options(...)`."""

    namespace: str | None
    lifetime: Literal["detached", "non_detached"] | None
    get_if_exists: bool
    max_restarts: int
    max_task_retries: int | None
    max_concurrency: int | None
    concurrency_groups: dict[str, int] | None
    max_pending_calls: int
    allow_out_of_order_execution: bool | None
    checkpoint_every: int | None
    _actor_generator_backpressure_num_objects: int | None
    enable_tensor_transport: bool | None


class _MethodOptions(TypedDict, total=False):
    name: str | None
    retry_exceptions: bool | Sequence[type[BaseException]]
    max_task_retries: int | None
    concurrency_group: str | None
    read_only: bool
    enable_task_events: bool
    tensor_transport: str | None
    _generator_backpressure_num_objects: int | None
    _num_objects_per_yield: int | None


class MethodOptions(_MethodOptions, total=False):
    """Options of `@sooner.method` and of a method's `.options(...)`."""

    num_returns: int | Literal["streaming", "dynamic"] | None


def validate(kind: Kind, options: Mapping[str, Any]) -> dict[str, Any]:
    """Check options and return them in their normal form. Options that are not given stay absent.

    Args:
        kind: What the options are for.
        options: As the user gave them. Normalised options may be given again, merged with others.

    Raises:
        ValueError: An option does not exist, does not fit, or belongs to a later version.

    Example:
        >>> try:
        ...     validate("task", {"num_cpu": 1})
        ... except ValueError as error:
        ...     print(str(error)[:62])
        'num_cpu' is not an option of a task. Did you mean 'num_cpus'?
    """
    known = _BY_KIND[kind]
    normal = {}
    for name, value in options.items():
        option = known.get(name)
        if option is None:
            raise ValueError(_unknown(kind, name))
        normal[name] = option.check(name, value)
    return normal


def _unknown(kind: Kind, name: object) -> str:
    known = _BY_KIND[kind]
    article = "an actor" if kind == "actor" else f"a {kind}"
    text = f"{name!r} is not an option of {article}."
    others = [other for other in _BY_KIND if name in _BY_KIND[other]]
    if others:
        text += f" It is one of {' and '.join(f'{other}s' for other in others)}."
    elif isinstance(name, str):
        from difflib import get_close_matches  # start-up: 1.4 ms

        close = get_close_matches(name, known, n=1)
        if close:
            text += f" Did you mean {close[0]!r}?"
    return f"{text} Options: {', '.join(known)}."


def check_combination(kind: Kind, options: Mapping[str, Any]) -> None:
    """Check what options say together. Call it with all options of a call, when it is made.

    Raises:
        ValueError: `get_if_exists` or `namespace` is given for an actor without a name.

    Example:
        >>> check_combination("actor", {"name": "counter", "get_if_exists": True})
    """
    if kind != "actor" or options.get("name"):
        return
    if options.get("get_if_exists"):
        raise ValueError("get_if_exists=True needs the name of the actor: give name='...', too.")
    if options.get("namespace") is not None:
        raise ValueError("namespace is given without a name; only named actors have one. Give name='...', too.")


def returns_of(options: Mapping[str, Any], is_generator: bool) -> tuple[int, tuple[int, bool] | None]:
    """Return how many references a call gives, and, for a streaming one, how it streams.

    Args:
        options: Normalised options of a task or method.
        is_generator: Whether the function yields; it streams unless `num_returns` says otherwise.

    Returns:
        The number of references, and `(items that may be unread or 0, whether all are read at the end)` or
        None.

    Example:
        >>> returns_of({}, False), returns_of({"_generator_backpressure_num_objects": 8}, True)
        ((1, None), (1, (8, False)))
    """
    asked = options.get("num_returns")
    if asked is None:
        asked = "streaming" if is_generator else 1
    if isinstance(asked, int):
        return asked, None
    return 1, (options.get("_generator_backpressure_num_objects") or 0, asked == "dynamic")


def defaults(kind: Kind) -> dict[str, Any]:
    """Return every option of a kind with its default.

    Example:
        >>> defaults("task")["max_retries"]
        3
    """
    return {name: option.default for name, option in _BY_KIND[kind].items()}


def resources_of(options: Mapping[str, Any], kind: Kind) -> dict[str, float]:
    """Return the resources that a task, or an actor while it lives, holds. Zero amounts are left out.

    Args:
        options: Options, normalised or not.
        kind: A task without `num_cpus` holds one CPU; an actor holds none. Methods run on their actor's.

    Raises:
        ValueError: An amount is wrong.

    Example:
        >>> resources_of({"num_cpus": 0.5, "memory": 1000, "resources": {"tape": 1}}, "task")
        {'CPU': 0.5, 'memory': 1000.0, 'tape': 1.0}
    """
    if kind == "method":
        return {}
    names = ("num_cpus", "num_gpus", "memory", "accelerator_type", "resources")
    given = validate(kind, {name: options[name] for name in names if name in options})
    cpus = given.get("num_cpus")
    if cpus is None:
        cpus = 1.0 if kind == "task" else 0.0
    held = {"CPU": cpus, "GPU": given.get("num_gpus") or 0.0, "memory": float(given.get("memory") or 0)}
    if given.get("accelerator_type"):
        held[f"accelerator_type:{given['accelerator_type']}"] = _ACCELERATOR_TYPE_SHARE
    held |= given.get("resources") or {}
    return {name: value for name, value in held.items() if value}


def actor_resources(options: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, float]]:
    """Return what must be free for an actor to be placed, and what it holds while it lives.

    An actor without `num_cpus` needs a free CPU to be placed and then holds none, so that actors that mostly
    wait do not use up a machine.

    Example:
        >>> actor_resources({"num_gpus": 1}), actor_resources({"num_cpus": 2})
        (({'CPU': 1.0, 'GPU': 1.0}, {'GPU': 1.0}), ({'CPU': 2.0}, {'CPU': 2.0}))
    """
    lifetime = resources_of(options, "actor")
    if options.get("num_cpus") is None:
        return {"CPU": 1.0, **lifetime}, lifetime
    return dict(lifetime), lifetime


def docs_table(kind: Kind) -> str:
    """Return the options of a kind as a Markdown table, for the documentation.

    Example:
        >>> print(docs_table("method").splitlines()[0])
        | Option | Type | Default | What it does | Priority |
    """
    lines = ["| Option | Type | Default | What it does | Priority |", "|---|---|---|---|---|"]
    for option in _BY_KIND[kind].values():
        type_text = option.type.replace("|", "\\|")
        feature = check.feature_of(option.check)
        doc = f"{option.doc} *Not available yet.*" if feature else option.doc
        lines.append(f"| `{option.name}` | `{type_text}` | `{option.default!r}` | {doc} | {option.priority} |")
    return "\n".join(lines)
