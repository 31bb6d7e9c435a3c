"""Where a piece of code runs: the ids of its job, node, worker, task and actor, and its granted resources."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from sooner import _sooner
from sooner.ids import ActorID, JobID, NodeID, TaskID, WorkerID

if TYPE_CHECKING:
    from sooner.actor import ActorHandle


_OTHER_ACCELERATORS = ("HPU", "NPU", "TPU", "neuron_cores")


def _worker() -> Any:
    from sooner._engine import worker as _worker  # start-up: 46.1 ms

    return _worker


def current_actor() -> tuple[str, Any, dict[str, Any]] | None:
    """Id, class and options of the actor this code runs in."""
    worker = _worker()
    if worker.actor_id is not None:
        return worker.actor_id, worker.actor_class, worker.actor_options
    return _sooner.local_actor()


def _loop_call() -> tuple[str | None, str, str] | None:
    """The call of an asyncio actor that runs in this context: id, display name, and name of the method."""
    loop = sys.modules.get("sooner._engine.async_actor")
    call: tuple[str | None, str, str] | None = loop.current_call.get() if loop is not None else None
    return call


def _called() -> tuple[str, str] | None:
    """The module and the qualified name of the function that the running task or call executes."""
    call = _loop_call()
    if call is not None:
        target, name = None, call[2]
    elif (current := _sooner.current_function()) is not None:
        target, name = current
    else:
        return None
    if target is None and (actor := current_actor()) is not None:
        cls = actor[1]
        return cls.__module__, f"{cls.__qualname__}.{name}"
    own = getattr(target, "__qualname__", name)
    return getattr(target, "__module__", None) or "", f"{own}.__init__" if isinstance(target, type) else own


class RuntimeContext:
    """Facts about the running code. Ids are hex strings; None where there is no such thing."""

    def get_job_id(self) -> str:
        """Id of the driver's job."""
        return _sooner.identity()[2]

    def get_node_id(self) -> str:
        """Id of the node."""
        return _sooner.identity()[1]

    def get_worker_id(self) -> str:
        """Id of this process."""
        return _sooner.identity()[0]

    def get_task_id(self) -> str | None:
        """Id of the running task or actor call."""
        call = _loop_call()
        if call is not None:
            return call[0]
        current = _sooner.current_task()
        return current[0] if current else None

    def get_task_name(self) -> str | None:
        """Display name of the running task or call."""
        call = _loop_call()
        return call[1] if call is not None else _sooner.current_name()

    def get_task_function_name(self) -> str | None:
        """What the running task or call executes, with its module, whatever it is called:
        "module.function".
        """
        called = _called()
        return None if called is None else ".".join(filter(None, called))

    def get_assigned_resources(self) -> dict[str, float]:
        """Resources of the running task or of this actor: name to amount."""
        return _sooner.own()[0]

    @property
    def current_actor(self) -> ActorHandle[Any]:
        """A handle on the actor this code runs in. The actor may keep it: it does not keep the actor alive.

        Raises:
            RuntimeError: This is not an actor.
        """
        from sooner.actor import ActorHandle, describe_class  # start-up: 39.6 ms

        actor = current_actor()
        if actor is None:
            raise RuntimeError("current_actor: this code does not run in an actor")
        identity, cls, options = actor
        return ActorHandle(_sooner.actor_ref(identity), describe_class(cls, options))

    def get_actor_id(self) -> str | None:
        """Id of the actor this code runs in."""
        actor = current_actor()
        return actor[0] if actor is not None else None

    def get_actor_name(self) -> str | None:
        """Name of the actor; None when it has none."""
        return _sooner.own()[1] if self.get_actor_id() is not None else None

    def get_placement_group_id(self) -> str | None:
        """Id of the placement group that this task or actor runs in."""
        current = _sooner.current_group()
        return current[0] if current else None

    @property
    def current_placement_group_id(self) -> str | None:
        """As `get_placement_group_id()`."""
        return self.get_placement_group_id()

    @property
    def should_capture_child_tasks_in_placement_group(self) -> bool:
        """Whether what this task or actor submits runs in its placement group, too."""
        current = _sooner.current_group()
        return current is not None and current[1]

    @property
    def namespace(self) -> str:
        """Namespace of actor names."""
        return _sooner.identity()[3]

    def get_accelerator_ids(self) -> dict[str, list[str]]:
        """GPUs of this task or actor: numbers or UUIDs, as `CUDA_VISIBLE_DEVICES` has them.

        The other kinds that Ray knows are there, and have no ids: they are custom resources.
        """
        return {"GPU": [str(name) for name in get_gpu_ids()]} | {kind: [] for kind in _OTHER_ACCELERATORS}

    @property
    def was_current_actor_reconstructed(self) -> bool:
        """Whether the actor this code runs in had an earlier process that failed."""
        return bool(_worker().actor_restarts)

    def get_resource_ids(self) -> dict[str, list[tuple[int | str, float]]]:
        """Resources of the running task or actor: name to pairs of index and amount; only GPUs have
        indices.
        """
        ids: dict[str, list[tuple[int | str, float]]] = {}
        for name, amount in self.get_assigned_resources().items():
            gpus = get_gpu_ids() if name == "GPU" else []
            ids[name] = [(gpu, amount / len(gpus)) for gpu in gpus] if gpus else [(0, amount)]
        return ids

    def get_node_labels(self) -> dict[str, str]:
        """Labels of the node this code runs on."""
        from sooner.context import node_labels  # start-up: 48.8 ms

        return node_labels()

    @property
    def runtime_env(self) -> dict[str, Any]:
        """The runtime environment; empty, because there are none yet."""
        return {}

    def get_runtime_env_string(self) -> str:
        """The runtime environment as JSON."""
        return "{}"

    @property
    def gcs_address(self) -> str:
        """Where the head of the cluster listens ("HOST:PORT"); empty if the session is no part of one."""
        from sooner.context import cluster_membership  # start-up: 48.8 ms

        return cluster_membership().get("head", "")

    def get_session_name(self) -> str:
        """Name of the session's directory."""
        return self.get_temp_dir().rpartition("/")[2]

    def get_temp_dir(self) -> str:
        """The session's directory; empty in a worker."""
        from sooner.context import ensure_started  # start-up: 48.8 ms

        return ensure_started().directory

    def is_canceled(self) -> bool:
        """Whether the running call was cancelled; for actor calls, which are not interrupted."""
        return _sooner.is_cancelled()

    def get(self) -> dict[str, Any]:
        """All of it as a dict. Ids are objects of `sooner.ids`, which are equal to their text."""
        facts: dict[str, Any] = {"job_id": self.job_id, "node_id": self.node_id, "namespace": self.namespace}
        if (task := self.task_id) is not None:
            facts["task_id"] = task
        if (actor := self.actor_id) is not None:
            facts["actor_id"] = actor
        return facts

    @property
    def job_id(self) -> JobID:
        """As `get_job_id()`, as an object."""
        return JobID.from_hex(self.get_job_id())

    @property
    def node_id(self) -> NodeID:
        """As `get_node_id()`, as an object."""
        return NodeID.from_hex(self.get_node_id())

    @property
    def worker_id(self) -> WorkerID:
        """As `get_worker_id()`, as an object."""
        return WorkerID.from_hex(self.get_worker_id())

    @property
    def task_id(self) -> TaskID | None:
        """As `get_task_id()`, as an object."""
        task = self.get_task_id()
        return None if task is None else TaskID.from_hex(task)

    @property
    def actor_id(self) -> ActorID | None:
        """As `get_actor_id()`, as an object."""
        actor = self.get_actor_id()
        return None if actor is None else ActorID.from_hex(actor)

    if not TYPE_CHECKING:
        # Type checkers report other names by themselves.
        def __getattr__(self, name: str) -> Any:
            raise AttributeError(f"RuntimeContext has no member {name!r}")


_CONTEXT = RuntimeContext()


def get_runtime_context() -> RuntimeContext:
    """The runtime context; starts a session if none runs."""
    from sooner.context import ensure_started  # start-up: 48.8 ms

    ensure_started()
    return _CONTEXT


def get_gpu_ids() -> list[int | str]:
    """The GPUs of the running task or actor: their numbers, or their UUIDs where the node was shown those."""
    worker = _worker()
    current = _sooner.current_task()
    if current and current[1]:
        return [_number(name) for name in worker.gpu_names(current[1])]
    if worker.actor_id is not None:
        return [_number(name) for name in worker.actor_gpus]
    return []


def _number(name: str) -> int | str:
    return int(name) if name.isdigit() else name
