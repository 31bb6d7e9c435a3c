"""The state of a running session: its tasks, actors, objects, workers, nodes and jobs.

Nothing is collected for these queries: each process answers from the tables that it works with, and from its
record of task events (`sooner.init(task_events_bytes=...)`). Also called `sooner.util.state`.

Example:
    >>> from sooner.util.state import list_tasks
    >>> for task in list_tasks(filters=[("state", "=", "FAILED")]):  # doctest: +SKIP
    ...     print(task.name, task.error_type)
"""

from __future__ import annotations

import dataclasses
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sooner import context
from sooner._session import sessions
from sooner._state import query, task_rows
from sooner._state import snapshot as _snapshot

R = TypeVar("R", bound="StateRecord")
Filter = tuple[str, str, Any]


@dataclass(frozen=True)
class StateRecord:
    """A row: attributes, which can also be read like the items of a mapping."""

    def __getitem__(self, field: str) -> Any:
        if field not in self.keys():
            raise KeyError(field)
        return getattr(self, field)

    def __contains__(self, field: object) -> bool:
        return field in self.keys()

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.keys())

    def keys(self) -> list[str]:
        """The names of the fields."""
        return [field.name for field in dataclasses.fields(self)]

    def get(self, field: str, default: Any = None) -> Any:
        """A field, or the default if there is no such field."""
        return getattr(self, field) if field in self.keys() else default

    def items(self) -> list[tuple[str, Any]]:
        """Names and values."""
        return [(field, getattr(self, field)) for field in self.keys()]

    def asdict(self) -> dict[str, Any]:
        """A plain dictionary."""
        return dict(self.items())


@dataclass(frozen=True)
class TaskState(StateRecord):
    """One execution of a task, an actor's constructor, or a call of an actor.

    Attributes:
        state: PENDING_ARGS_AVAIL, PENDING_NODE_ASSIGNMENT (waits for a worker, or for its turn with the
            actor), SUBMITTED_TO_WORKER (waits there), RUNNING, FINISHED or FAILED.
        waits_for: Ids of arguments that are not there yet.
        phases_ms: How long it was queued, waited for a lease, was on its way, loaded, ran and stored
            (milliseconds).
    """

    task_id: str
    name: str
    state: str
    type: str
    func_or_class_name: str
    attempt_number: int
    job_id: str
    node_id: str | None
    worker_id: str | None
    worker_pid: int | None
    actor_id: str | None
    parent_task_id: str | None
    owner_id: str
    required_resources: dict[str, float] | None
    error_type: str | None
    creation_time_ms: float | None
    start_time_ms: float | None
    end_time_ms: float | None
    waits_for: list[str]
    phases_ms: dict[str, float]


@dataclass(frozen=True)
class ActorState(StateRecord):
    """An actor.

    Attributes:
        state: DEPENDENCIES_UNREADY, PENDING_CREATION, ALIVE, RESTARTING or DEAD.
        pending_calls: Calls that were made and have not ended.
        restarts: Processes that took over so far.
        checkpoints: Checkpoints taken so far; None for an actor without `checkpoint_every`.
        calls_since_checkpoint: Calls that living callers keep because no checkpoint covers them; those in
            flight are among them.
    """

    actor_id: str
    class_name: str
    state: str
    name: str | None
    namespace: str | None
    job_id: str
    node_id: str | None
    worker_id: str | None
    pid: int | None
    owner_id: str
    pending_calls: int
    required_resources: dict[str, float]
    death_cause: str | None
    is_detached: bool
    restarts: int = 0
    checkpoints: int | None = None
    calls_since_checkpoint: int | None = None

    @property
    def ray_namespace(self) -> str | None:
        """The namespace, under Ray's name."""
        return self.namespace


@dataclass(frozen=True)
class ObjectHold(StateRecord):
    """One reason why a process keeps an object.

    Attributes:
        reason: LOCAL_REFERENCE (in Python), VIEW (an array that lies in it), TASK (a task that the process
            submitted), RUNNING_TASK or QUEUED_TASK (one that runs or waits in the process), CONTAINED_IN
            (another object), FUNCTION (its code), ACTOR_CONSTRUCTOR (an argument of it), DETACHED_ACTOR,
            GENERATOR (not read to its end), PINNED (pickled outside of sooner), KEPT_CALL (one that is made
            again if the actor fails before its next checkpoint), CHECKPOINT (of an actor), BORROWER (another
            process), LENT (work of a process that is gone, until all others have said what they have of it),
            LINEAGE (finished tasks that may have to run again).
        count: How many times.
        id: The task, object, actor or process that holds it; None where there is none, or where there are too
            many to name each.
        name: What the task, function or process is called.
    """

    reason: str
    count: int
    id: str | None
    name: str | None


@dataclass(frozen=True)
class ObjectState(StateRecord):
    """An object, as one process knows it: its owner, or one that borrows it. Bytes of the value are
        `object_size`.

    Attributes:
        location: "message" (small, travels in messages), "shared memory", "on disk" (there was no room in
            memory, and nobody has had it brought back), "dropped" (with eviction="recompute": it is made
            again when it is wanted), "unsealed" (made by `sooner.empty`, being written), or None while there
            is no value.
        reference_type: Why it is kept there, in short: ACTOR_HANDLE, LOCAL_REFERENCE, USED_BY_TASK_OR_OBJECT
            and BORROWED_BY_OTHERS, joined by "+".
        process: What the process is: driver, worker, or the actor that lives in it.
        created_by: Function of its task, as far as records go back. None for a value that was put.
        call_site: Where its task was submitted or it was put, with `sooner.init(record_call_sites=True)`.
        local_references: References and views in Python.
        views: The views among them: arrays that lie in the object.
        uses: Tasks that use it, objects that contain it, functions that captured it.
        borrowers: Ids of the processes that borrow it.
        lineage: Finished tasks that take it as an argument, and whose results may have to be computed again.
            An object that nothing else keeps has no value meanwhile.
        holds: Each reason why the process keeps it.
        contains: Ids of references inside its value (the first few of `contained_references`).
        is_fetching: It is borrowed, and its value is on its way.
        waiting: Ids of borrowers that wait for its value.
        hint: Set by the owner where something certainly keeps the object for long without need.
    """

    object_id: str
    object_size: int
    task_status: str
    location: str | None
    reference_type: str
    type: str
    process: str
    pid: int
    worker_id: str
    owner_id: str
    owner_process: str
    owner_pid: int | None
    is_owner: bool
    is_actor_handle: bool
    created_by: str | None
    call_site: str | None
    local_references: int
    views: int
    uses: int
    borrowers: list[str]
    lineage: int
    holds: list[ObjectHold]
    contained_references: int
    contains: list[str]
    is_fetching: bool
    waiting: list[str]
    hint: str | None


@dataclass(frozen=True)
class WorkerState(StateRecord):
    """A process of the session. `state` is STARTING, IDLE, LEASED, ACTOR, DEAD, or RUNNING for the driver."""

    worker_id: str
    worker_type: str
    state: str
    is_alive: bool
    pid: int | None
    node_id: str
    actor_id: str | None
    client_id: str | None
    running_tasks: list[str]
    is_blocked: bool
    resources: dict[str, float]
    exit_detail: str | None
    end_time_ms: float | None
    exit_type: str | None


@dataclass(frozen=True)
class NodeState(StateRecord):
    """A node. What another node of the cluster has free is None if that is not told (in large clusters)."""

    node_id: str
    node_ip: str | None
    node_name: str
    state: str
    is_head_node: bool
    resources_total: dict[str, float]
    resources_available: dict[str, float] | None
    object_store_used_bytes: int | None
    object_store_capacity_bytes: int
    start_time_ms: float | None
    labels: dict[str, str]
    address: str | None
    host: str


@dataclass(frozen=True)
class JobState(StateRecord):
    """A program."""

    job_id: str
    type: str
    status: str
    entrypoint: str
    driver_pid: int
    namespace: str
    start_time_ms: float | None
    session_dir: str


@dataclass(frozen=True)
class PlacementGroupState(StateRecord):
    """A placement group.

    Attributes:
        state: PENDING, PREPARED, CREATED, RESCHEDULING or REMOVED.
        bundles: For each bundle `bundle_index`, `node_id` (None: nowhere) and `resources`.
        reason: Why it is pending.
    """

    placement_group_id: str
    name: str | None
    namespace: str | None
    state: str
    strategy: str
    bundles: list[dict[str, Any]]
    is_detached: bool
    reason: str | None


def _object_state(**row: Any) -> ObjectState:
    return ObjectState(**row | {"holds": [ObjectHold(**hold) for hold in row["holds"]]})


def _directory(address: str | None) -> str:
    own = context.session_directory() if address in (None, "auto", "local") else ""
    return own or sessions.choose_session(None if address in ("auto", "local") else address)


def _rows(
    kind: str,
    address: str | None,
    filters: Sequence[Filter] | None,
    limit: int,
    timeout: float,
    raise_on_missing_output: bool,
) -> list[dict[str, Any]]:
    _check(limit, timeout, filters)
    # Before any process is asked: a wrong filter is an error even if there are no rows.
    query.matcher(filters or (), [field.name for field in dataclasses.fields(_RECORDS[kind])])
    rows, snapshot = query.rows_of(_directory(address), kind, filters or (), limit, timeout)
    if raise_on_missing_output and snapshot.missing():
        _warn_of(snapshot)
    return rows


def _check(limit: Any, timeout: Any, filters: Any) -> None:
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise ValueError(f"limit must be a whole number of at least 1, not {limit!r}")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < float("inf"):
        raise ValueError(f"timeout must be a positive number of seconds, not {timeout!r}")
    if filters is not None and not isinstance(filters, list | tuple):
        raise ValueError(f"filters must be a list of (field, '=' or '!=', value), not {filters!r}")


def _warn_of(snapshot: _snapshot.Snapshot) -> None:
    missing = "; ".join(snapshot.missing())
    warnings.warn(f"what these know is missing, they did not answer: {missing}", stacklevel=4)


_RECORDS: dict[str, type[StateRecord]] = {
    "tasks": TaskState,
    "actors": ActorState,
    "objects": ObjectState,
    "workers": WorkerState,
    "nodes": NodeState,
    "jobs": JobState,
    "placement-groups": PlacementGroupState,
}

_LIST_DOC = """{title}

    Args:
        address: Directory of the session to ask, or None: this process's own, or the only one of this user.
        filters: Conditions that all must hold: (field, "=" or "!=", value). Case does not matter.
        limit: Rows at most.
        timeout: How long to wait for the node (seconds). A process that does not answer it within one is left out.
        detail: Accepted; every field is always there.
        raise_on_missing_output: Warn when a process did not answer.

    Returns:
        A list of `{record}`.

    Raises:
        ValueError: A filter names no field, or an argument has a wrong value.
        ConnectionError: There is no session to ask, or several to choose from.
        OSError: The session does not answer.
    """


def _lister(kind: str, record: Callable[..., R], title: str) -> Callable[..., list[R]]:
    def list_rows(
        address: str | None = None,
        filters: Sequence[Filter] | None = None,
        limit: int = 100,
        timeout: float = 30,
        detail: bool = False,
        raise_on_missing_output: bool = True,
    ) -> list[R]:
        rows = _rows(kind, address, filters, limit, timeout, raise_on_missing_output)
        return [record(**row) for row in rows]

    list_rows.__name__ = list_rows.__qualname__ = f"list_{kind.replace('-', '_')}"
    list_rows.__doc__ = _LIST_DOC.format(title=title, record=_RECORDS[kind].__name__)
    return list_rows


list_tasks = _lister("tasks", TaskState, "Tasks that have not ended, and those that have as far as records go back.")
list_actors = _lister("actors", ActorState, "Actors: waiting, alive, and dead ones that are still referred to.")
list_objects = _lister("objects", _object_state, "Objects that processes own or borrow, the largest first.")
list_workers = _lister("workers", WorkerState, "The driver, its workers, and those that ended lately.")
list_nodes = _lister("nodes", NodeState, "The nodes.")
list_jobs = _lister("jobs", JobState, "The programs: the driver of the session.")
list_placement_groups = _lister(
    "placement-groups", PlacementGroupState, "The placement groups, and those that were removed lately."
)


def _find(kind: str, field: str, identity: Any, address: str | None, timeout: float) -> list[dict[str, Any]]:
    if not isinstance(identity, str) or not identity:
        raise ValueError(f"an id is a string of hexadecimal digits, not {identity!r}")
    return _rows(kind, address, [(field, "=", identity)], _snapshot.ROWS_MAX, timeout, True)


def get_task(id: str, address: str | None = None, timeout: float = 30) -> TaskState | list[TaskState] | None:  # noqa: A002
    """A task by its id.

    Args:
        id: The task's id, as `ObjectRef.task_id()` gives it.
        address: As for `list_tasks`.
        timeout: As for `list_tasks`.

    Returns:
        The task; a list if it was executed several times; None if it is not known (any more).
    """
    found = [TaskState(**row) for row in _find("tasks", "task_id", id, address, timeout)]
    return found[0] if len(found) == 1 else found or None


def get_actor(id: str, address: str | None = None, timeout: float = 30) -> ActorState | None:  # noqa: A002
    """An actor by its id, or None."""
    found = _find("actors", "actor_id", id, address, timeout)
    return ActorState(**found[0]) if found else None


def get_node(id: str, address: str | None = None, timeout: float = 30) -> NodeState | None:  # noqa: A002
    """A node by its id, or None."""
    found = _find("nodes", "node_id", id, address, timeout)
    return NodeState(**found[0]) if found else None


def get_worker(id: str, address: str | None = None, timeout: float = 30) -> WorkerState | None:  # noqa: A002
    """A process of the session by its id, or None."""
    found = _find("workers", "worker_id", id, address, timeout)
    return WorkerState(**found[0]) if found else None


def get_job(id: str, address: str | None = None, timeout: float = 30) -> JobState | None:  # noqa: A002
    """A program by its id, or None."""
    found = _find("jobs", "job_id", id, address, timeout)
    return JobState(**found[0]) if found else None


def get_placement_group(
    id: str,  # noqa: A002
    address: str | None = None,
    timeout: float = 30,
) -> PlacementGroupState | None:
    """A placement group by its id, or None."""
    found = _find("placement-groups", "placement_group_id", id, address, timeout)
    return PlacementGroupState(**found[0]) if found else None


def get_objects(id: str, address: str | None = None, timeout: float = 30) -> list[ObjectState]:  # noqa: A002
    """What every process that owns or borrows an object says about it; its owner first."""
    found = [_object_state(**row) for row in _find("objects", "object_id", id, address, timeout)]
    return sorted(found, key=lambda one: not one.is_owner)


def summarize_tasks(address: str | None = None, timeout: float = 30) -> dict[str, Any]:
    """How many tasks of which function are in which state.

    Args:
        address: As for `list_tasks`.
        timeout: As for `list_tasks`.

    Returns:
        A dictionary with `summary` (function -> type, `state_counts` and `peak_memory_bytes`: the most
        memory that a worker was seen to hold while it ran one, None if none was seen), `total_tasks`,
        `total_actor_tasks`, `total_actor_scheduled`, and `events_lost` (executions that the records no
        longer have).
    """
    return task_rows.summary_of_tasks(_directory(address), timeout)


def summarize_actors(address: str | None = None, timeout: float = 30) -> dict[str, Any]:
    """How many actors of which class are in which state: `summary` (class -> `state_counts`) and
    `total_actors`.
    """
    rows = _rows("actors", address, None, _snapshot.ROWS_MAX, timeout, True)
    summary: dict[str, dict[str, Any]] = {}
    for row in rows:
        entry = summary.setdefault(row["class_name"], {"class_name": row["class_name"], "state_counts": Counter()})
        entry["state_counts"][row["state"]] += 1
    for entry in summary.values():
        entry["state_counts"] = dict(entry["state_counts"])
    return {"summary": summary, "total_actors": len(rows)}


def summarize_objects(address: str | None = None, timeout: float = 30) -> dict[str, Any]:
    """Objects and their bytes by the reason why they are kept.

    Args:
        address: As for `list_objects`.
        timeout: As for `list_objects`.

    Returns:
        A dictionary with `summary` (`reference_type` -> `total_objects` and `total_size_bytes`),
        `total_objects` and `total_size_bytes`; each object counts once, where it is owned.
    """
    rows = _rows("objects", address, None, _snapshot.ROWS_MAX, timeout, True)
    summary: dict[str, dict[str, int]] = {}
    owned = [row for row in rows if row["is_owner"]]
    for row in owned:
        entry = summary.setdefault(row["reference_type"], {"total_objects": 0, "total_size_bytes": 0})
        entry["total_objects"] += 1
        entry["total_size_bytes"] += row["object_size"]
    total = sum(row["object_size"] for row in owned)
    return {"summary": summary, "total_objects": len(owned), "total_size_bytes": total}
