"""What crosses to the engine as one structure: fields by name, as structures of `sooner-python` have them.

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
        inherits: In the placement group of what submits it, if that wants it.
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
        arity: Positional arguments, least and most; whether that is all there is to check.
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
        title: What its calls are called, if not as the method.
        retry_on: Exception classes that are retried; None for all.
        group: Concurrency group, by its place among the actor's; None for the default one.
        is_unordered: Whether a call does not wait for earlier ones.
        pending_max: Calls of this process to the actor that may be pending; negative for no limit.
        is_kept: Of an actor with checkpoints: whether the effects of a call are part of its state.
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
        placement: What must be free when it is placed.
        lifetime: What it holds while it lives.
        concurrency: Calls at a time.
        groups: Places per concurrency group.
        is_detached: Whether it outlives its owner.
        checkpoint_every: Calls between two checkpoints.
        name: Namespace, name, and what others make its handle of.
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
    """What the job of this program is like.

    Attributes:
        template: The command of its templates; empty if there are none here.
        setup: What its templates on other nodes are like; None if there are no other nodes.
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
    """What a node is like that is started.

    Attributes:
        spill: Directories for values, and how much may be in them (bytes).
        name: What it is called; None for a thread of a program.
        memory: What is done about the memory of workers: threshold, memory that was stated, whose is limited.
        random: Of which the node's id is made.
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
    """What the process of a node is like.

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
