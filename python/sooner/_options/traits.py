"""Structures that the engine takes: their fields have the names of those in `sooner-python`.

These are plain dictionaries. Only type checkers read this module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from sooner import _sooner
    from sooner._session.launch import Interpreter, Setup


class Placed(TypedDict):
    """Where and how soon something runs.

    Attributes:
        placing: Where; None for anywhere.
        inherits: Whether it runs in its submitter's placement group, if the submitter wants that.
        priority: How soon; None for zero.
    """

    placing: _sooner.Placing | None
    inherits: bool
    priority: int | None


class TaskTraits(TypedDict):
    """What is the same for all tasks of a remote function with fixed options.

    Attributes:
        stream: Of a streaming task: items that may be unread, and whether all are read at the end.
        max_calls: Executions of the function after which a worker ends; zero for no limit.
        arity: Least and most positional arguments, and whether these numbers alone decide.
        check: Raises `TypeError` for arguments that do not fit the signature.
        is_recorded: Whether what happens to its tasks is recorded.
    """

    name: str
    resources: Sequence[tuple[str, float]]
    returns: int
    stream: tuple[int, bool] | None
    retries: int
    retry_exceptions: bool
    max_calls: int
    arity: tuple[int, int, bool]
    check: Callable[..., None]
    is_recorded: bool
    placed: Placed


class CallTraits(TypedDict):
    """What is the same for all calls of a method with fixed options.

    Attributes:
        title: The name of its calls, if it is not the method's.
        retry_on: Exception classes that are retried; None for all.
        group: Index of the concurrency group among the actor's; None for the default group.
        is_unordered: Whether a call does not wait for earlier ones.
        pending_max: Calls of this process to the actor that may be pending; negative for no limit.
        is_kept: For an actor with checkpoints: whether the effects of a call are part of its state.
    """

    name: str
    title: str | None
    returns: int
    stream: tuple[int, bool] | None
    retries: int
    retry_exceptions: bool
    retry_on: _sooner.Exported | None
    group: int | None
    is_unordered: bool
    pending_max: int
    is_kept: bool | None
    arity: tuple[int, int, bool]
    check: Callable[..., None]
    is_recorded: bool


class ActorTraits(TypedDict):
    """What an actor is beside its class and arguments.

    Attributes:
        placement: Resources that must be free when it is placed.
        lifetime: Resources that it holds while it lives.
        concurrency: Calls at a time.
        groups: Calls at a time, per concurrency group.
        is_detached: Whether it outlives its owner.
        checkpoint_every: Calls between two checkpoints.
        name: Namespace, name, and the bytes from which others make its handle.
    """

    title: str
    placement: Sequence[tuple[str, float]]
    lifetime: Sequence[tuple[str, float]]
    concurrency: int
    groups: Sequence[int] | None
    restarts: int
    is_detached: bool
    checkpoint_every: int | None
    name: tuple[str, str, bytes] | None
    placed: Placed


class JobTraits(TypedDict):
    """Properties of the job of this program.

    Attributes:
        template: The command of its templates; empty if none run on this machine.
        setup: The setup of its templates on other nodes; None if there are no other nodes.
    """

    template: Sequence[str]
    setup: Setup | None
    working_directory: str
    namespace: str
    inline_bytes: int
    events_bytes: int
    lineage_bytes: int
    log_to_driver: bool


class NodeTraits(TypedDict):
    """Properties of a node that is started.

    Attributes:
        spill: Directories for spilled values, and how much may be in them (bytes).
        name: Its name; None for the node of a program that joins no cluster.
        memory: Limits on the memory of workers: threshold, stated total (bytes), whose memory is limited.
        random: The random number from which the node's id is made.
    """

    resources: Sequence[tuple[str, float]]
    pool_size: int
    store_bytes: int
    spill: tuple[Sequence[str], int | None]
    eviction: str
    base_directory: str
    name: str | None
    labels: Sequence[tuple[str, str]]
    memory: tuple[float, int | None, str] | None
    random: int


class ProcessTraits(NodeTraits):
    """Properties of the process of a node.

    Attributes:
        interpreter: How it runs templates of drivers elsewhere.
        health_timeout: Seconds.
    """

    interpreter: Interpreter
    is_head: bool
    cluster_directory: str
    head: str | None
    host: str | None
    port: int | None
    token_file: str | None
    health_timeout: float
