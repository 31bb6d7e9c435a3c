"""Sessions: `init`, `shutdown`, and the resources and nodes of a cluster."""

from __future__ import annotations

import atexit
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from sooner import _sooner
from sooner._engine import program
from sooner._engine.notebook import is_kernel, watch_cells
from sooner._options.checks import WrongTypeError, fault
from sooner._session import address as _address
from sooner._session import spare
from sooner._session.membership import membership
from sooner._session.specification import Specification
from sooner._state import stacks

_log = logging.getLogger("sooner")


# Options of Ray that have no meaning here, or none yet: accepted, so that programs start.
_ACCEPTED = frozenset(
    [
        "include_dashboard",
        "dashboard_host",
        "dashboard_port",
        "job_config",
        "configure_logging",
        "logging_format",
        "logging_config",
        "runtime_env",
        "enable_resource_isolation",
        "cgroup_path",
        "system_reserved_cpu",
        "system_reserved_memory",
        "proxy_server_url",
        "_system_config",
        "_temp_dir",
        "_node_ip_address",
        "_node_name",
        "_plasma_directory",
        "_metrics_export_port",
        "_enable_object_reconstruction",
        "object_spilling_directory",
        "_redis_username",
        "_redis_password",
        "_driver_object_store_memory",
        "_tracing_startup_hook",
        "_skip_env_hook",
    ]
)


class _Session(NamedTuple):
    directory: str
    namespace: str
    context: SoonerContext


_session: _Session | None = None
_forked = False


class SoonerContext(Mapping[str, Any]):
    """What `init` returns: facts about the session, and a context manager that ends it.

    Example:
        >>> import sooner
        >>> with sooner.init(num_cpus=2) as context:  # doctest: +SKIP
        ...     print(context.address_info["session_dir"])
    """

    def __init__(self, address_info: dict[str, Any]) -> None:
        self.address_info = address_info
        self.dashboard_url = ""
        self.python_version = ".".join(str(part) for part in sys.version_info[:3])
        self.sooner_version = self.ray_version = sys.modules["sooner"].__version__
        self.sooner_commit = self.ray_commit = ""

    def __getitem__(self, key: str) -> Any:
        return self.address_info[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.address_info)

    def __len__(self) -> int:
        return len(self.address_info)

    def __enter__(self) -> SoonerContext:
        return self

    def __exit__(self, *exception: object) -> None:
        shutdown()

    def disconnect(self) -> None:
        """Ends the session."""
        shutdown()

    def __repr__(self) -> str:
        return f"SoonerContext({self.address_info!r})"

    def _repr_html_(self) -> str:
        from sooner._progress.html import context_html  # start-up: 9.1 ms

        return context_html(self)


def init(
    address: str | None = None,
    *,
    num_cpus: float | None = None,
    num_gpus: float | None = None,
    resources: Mapping[str, float] | None = None,
    object_store_memory: int | None = None,
    spill_directories: Sequence[str | os.PathLike[str]] | None = None,
    max_spill_bytes: int | None = None,
    eviction: Literal["spill", "recompute", "unpin"] | None = None,
    local_mode: bool = False,
    ignore_reinit_error: bool = False,
    log_to_driver: bool | None = None,
    logging_level: int | str | None = None,
    namespace: str | None = None,
    preload: Sequence[str] = (),
    inline_bytes: int | None = None,
    cancel_on_interrupt: bool | None = None,
    task_events_bytes: int | None = None,
    lineage_bytes: int | None = None,
    max_pending_tasks: int | None = None,
    labels: Mapping[str, str] | None = None,
    memory_usage_threshold: float | None = None,
    worker_memory_limits: Literal["auto", "all", "off"] | None = None,
    record_call_sites: bool | None = None,
    token_file: str | os.PathLike[str] | None = None,
    **ignored: Any,
) -> SoonerContext:
    """Starts a session: a node in this process, its worker pool and its object store. Or connects to a node.

    Args:
        address: Which node to use. "local": one of its own, in this process. "auto": what SOONER_ADDRESS
            says, else the one that `sooner start` started on this machine. A path: the node with this
            directory. HOST:PORT: the cluster whose head listens there, through a node of this machine that
            belongs to it, or, if there is none, directly; then nothing runs in this process, and
            `object_store_memory`, `spill_directories`, `max_spill_bytes` and `eviction` say what it may hold
            of values. None: what SOONER_ADDRESS says, else one of its own. Arguments that describe a node
            (`num_cpus` to `object_store_memory`, `local_mode`) are only allowed for one of its own.
        num_cpus: Logical CPUs; by default those this process may use.
        num_gpus: Logical GPUs; by default those that CUDA_VISIBLE_DEVICES and NVIDIA's driver show.
        resources: Custom resources, name to amount.
        object_store_memory: Limit on the shared memory for objects (bytes), at least 1 MiB; by default 30 %
            of what the machine has or its control group allows. A limit beyond the machine's memory draws a
            warning.
        spill_directories: Directories, on disks if possible, for values for which there is no room in the
            object store; they take turns. By default SOONER_TMPDIR or /tmp, or /var/tmp if that one is in
            memory. Or one URL in a list: an object store (`["s3://bucket/prefix"]`, gs:// and az:// as well),
            with the credentials of the environment. An empty list: values are not spilled, and a full store
            is an error. In local mode nothing is spilled.
        max_spill_bytes: What may be on disk of spilled values (bytes); by default as much as there is room.
        eviction: What becomes of values that nobody reads when there is no room. "spill", by default: they go
            to disk. "recompute": those that a task can make again, out of small arguments or of such values,
            are dropped, the oldest first, and made again when they are wanted, which is not one of their
            `max_retries`. The others go to disk. "unpin": as "spill", but other nodes are not told when a
            value is out of reference of which they have copies: these stay until there is no room. (Oakes
            2020, table 5.1: "pinning + explicit free", "explicit free only", and "pinning + unpinning".)
        local_mode: Run tasks and actors in this process, on the thread that calls them, so that debuggers,
            coverage and `pdb` work. Arguments and results are pickled as otherwise.
        ignore_reinit_error: Return the running session instead of raising.
        log_to_driver: Show what workers print; True by default (environment variable SOONER_LOG_TO_DRIVER).
        logging_level: Level of the logger "sooner".
        namespace: Namespace of actor names; one of its own by default.
        preload: Modules that the template process imports, so that no worker has to. They must not start
            threads.
        inline_bytes: Values up to this size (bytes) travel in messages; 100 KiB by default.
        cancel_on_interrupt: Whether `sooner.get` and `sooner.wait` cancel the tasks they wait for when they
            are interrupted (Ctrl-C, or a notebook's stop button); by default in notebooks only.
        record_call_sites: Whether errors say where the task was submitted, which costs about 1 us per call;
            False by default (environment variable SOONER_RECORD_CALL_SITES).
        task_events_bytes: Memory for what happened to tasks, per process (bytes); 16 MiB by default, 0
            records nothing.
        lineage_bytes: Memory for descriptions of finished tasks whose results may have to be computed again,
            per process (bytes); 1 GiB by default. When it is used up, those of the oldest tasks go, and with
            them the possibility to compute their results again.
        max_pending_tasks: Tasks and calls that this program may have submitted before they end; 2,000,000 by
            default, which take about 1.3 GB. Half of it draws a warning. Beyond, a submission waits until
            some have ended, or, on the thread of an event loop, raises `PendingCallsLimitExceeded`. It does
            not wait for ever: when nothing has ended for ten seconds, it goes through with a warning.
        labels: Labels of this node, key to value, for the option `label_selector`. A key is a name of up to
            63 letters, digits, "-", "_" and ".", after a DNS name and "/" if you like; a value is such a
            name.
        memory_usage_threshold: From which share of the memory of this machine (or of its control group) on
            the node stops workers, one by one, before the kernel ends a process of its choice; 0.95 by
            default (environment variable SOONER_MEMORY_USAGE_THRESHOLD), 0 and 1 for never. `docs/memory.md`
            says which ones, and what becomes of their tasks.
        worker_memory_limits: Whether the kernel ends a worker that takes far more memory than its task
            reserved with `memory=`, by a control group of its own. "auto", by default (environment variable
            SOONER_WORKER_MEMORY_LIMITS): where the node can make such groups, and only of tasks that are
            tried again with a larger reservation, which costs them time and nothing else. "all": also of
            actors and of all other tasks. "off": of none. `docs/memory.md` says how large a limit is.
        token_file: Where the token of a cluster is that no node of this machine belongs to: a file of mode
            0600. By default the environment variable SOONER_TOKEN has the token, or SOONER_TOKEN_FILE says
            where it is, or it is in the cluster directory of this machine.
        **ignored: Options of Ray that have no meaning here; but `_memory` is the logical memory of the node
          (bytes).

    Returns:
        A mapping with the session's facts, usable as a context manager.

    Raises:
        RuntimeError: A session runs already.
        ValueError: An argument has a wrong value, or does not exist.
        ConnectionError: No node is at the address, or it refuses this program, or the cluster does; with the
            reason that `sooner start` would give.
        UntrustedPathError: Where nodes of this user should be is a directory of another user, or one that is
            open to others, or another user's process listens there (a `PermissionError`).
        OSError: The node cannot start. Of an object store in `spill_directories` it is a `PermissionError`
            if that refuses the credentials, a `FileNotFoundError` if it has no such bucket, and a
            `ConnectionError` if it does not answer.
    """
    asked = dict(locals()) | {"_memory": ignored.get("_memory"), "local_mode": local_mode or None}
    _check_arguments(ignored)
    _check_names(namespace, cancel_on_interrupt)
    if logging_level is not None:
        _log.setLevel(logging_level)
    if is_initialized():
        return _running(ignore_reinit_error)
    if _session is not None:
        # The session was lost. Its descriptors would stay open as long as references remain.
        shutdown()
    target = _address.choose(asked)
    context = _start(target, Specification(asked, target), token_file)
    watch_cells()
    if cancel_on_interrupt is not None or is_kernel() or "sooner._engine.interrupt" in sys.modules:
        from sooner._engine.interrupt import install  # start-up: 11.1 ms

        install(cancel_on_interrupt)
    stacks.prepare(context["session_dir"])
    return context


def _running(ignore_reinit_error: bool) -> SoonerContext:
    """The result of `init` while a session runs."""
    if ignore_reinit_error:
        return _session.context if _session is not None else _context_of_worker()
    if _session is None:
        raise RuntimeError(
            "sooner.init() was called in a task or an actor, which takes part in the session of its program: leave "
            "the call out, or pass ignore_reinit_error=True"
        )
    raise RuntimeError(
        "sooner.init() was called before: call sooner.shutdown() first, or pass ignore_reinit_error=True"
    )


def _start(
    target: str | _address.Elsewhere | None, wanted: Specification, token_file: str | os.PathLike[str] | None
) -> SoonerContext:
    """Starts the node of a session, or connects to one."""
    global _session, _forked
    _sooner.stop()
    _sooner.record_call_sites(wanted.records_call_sites)
    _sooner.limit_pending(wanted.pending_max)
    if not wanted.is_local:
        program.begin(target is None)
    head = ""
    if wanted.node is None:
        assert isinstance(target, str)
        directory = target
        _sooner.connect(directory, wanted.job)
    elif isinstance(target, _address.Elsewhere):
        token, path = _address.token(None if token_file is None else os.fspath(token_file))
        directory, head, fingerprint = _sooner.join(target.head, token, path, wanted.job, wanted.node)
        with open(os.path.join(directory, "cluster"), "x") as file:
            file.write(f"head {head}\nfingerprint {fingerprint}\n")
    else:
        directory = _sooner.start(wanted.job, wanted.node, wanted.is_local)
    _forked = False
    context = SoonerContext(_facts(directory, head, target is None))
    _session = _Session(directory, wanted.namespace, context)
    spare.begin()
    return context


def _facts(directory: str, head: str, is_own: bool) -> dict[str, Any]:
    """The fields of a session's context. `head` is set if this program itself joined a cluster."""
    socket = os.path.join(directory, "node.sock")
    told = {} if is_own else cluster_membership(directory)
    return {
        "address": "local" if is_own else head or directory,
        "gcs_address": head or told.get("head", ""),
        "node_id": _sooner.identity()[1],
        "node_ip_address": told.get("address", "127.0.0.1:0").rpartition(":")[0],
        "session_dir": directory,
        "object_store_address": socket,
        "raylet_socket_name": socket,
        "webui_url": "",
        "redis_address": None,
        "metrics_export_port": None,
        "dashboard_agent_listen_port": None,
    }


def _context_of_worker() -> SoonerContext:
    """What `init` returns in a task or an actor: facts about the session of its program."""
    directory = session_directory()
    told = cluster_membership(directory)
    return SoonerContext(
        {
            "address": told.get("head", "local"),
            "gcs_address": told.get("head", ""),
            "node_id": _sooner.identity()[1],
            "node_ip_address": told.get("address", "127.0.0.1:0").rpartition(":")[0],
            "session_dir": directory,
        }
    )


def _check_names(namespace: Any, cancel_on_interrupt: Any) -> None:
    if namespace is not None and not (isinstance(namespace, str) and namespace):
        raise fault(namespace, str)(f"namespace must be a string that is not empty, or None, not {namespace!r}")
    if cancel_on_interrupt is not None and not isinstance(cancel_on_interrupt, bool):
        raise WrongTypeError(f"cancel_on_interrupt must be True, False or None, not {cancel_on_interrupt!r}")


def _check_arguments(ignored: Mapping[str, Any]) -> None:
    unknown = sorted(set(ignored) - _ACCEPTED - {"_memory"})
    if unknown:
        raise ValueError(f"sooner.init() has no argument {unknown[0]!r}")
    if ignored.get("runtime_env"):
        raise ValueError("runtime_env: this version of sooner does not have runtime environments yet")


def shutdown(*, wait_for_processes: bool = True) -> None:
    """Ends the session: every process, file and byte of shared memory of it. May be called again.

    Args:
        wait_for_processes: Accepted; the call always returns when nothing is left.

    Raises:
        RuntimeError: This is a task or an actor: the session is that of its program, which alone can end it.
    """
    global _session
    if is_worker() and is_initialized():
        raise RuntimeError(
            "sooner.shutdown() was called in a task or an actor: the session is that of its program, which alone can "
            "end it. Leave the call out; sooner.actor.exit_actor() ends an actor, and returning ends a task"
        )
    _sooner.stop()
    stacks.end()
    spare.end()
    _session = None
    bars = sys.modules.get("sooner._progress.bars")
    if bars is not None:
        bars.board.end_session()


def is_worker() -> bool:
    """Whether this process runs tasks or an actor of a program."""
    worker = sys.modules.get("sooner._engine.worker")
    return worker is not None and worker.is_serving


def session_directory() -> str:
    """The directory of the session that this process takes part in; empty without one."""
    if not is_initialized():
        return ""
    worker = sys.modules.get("sooner._engine.worker")
    return _session.directory if _session is not None else worker.session_directory if worker is not None else ""


def timeline(filename: str | os.PathLike[str] | None = None) -> list[dict[str, Any]] | None:
    """A trace of every task, for https://ui.perfetto.dev or chrome://tracing.

    There is one track per worker, with what ran there and its parts (loading arguments, the call, storing
    what it returned), and one per process that submitted tasks, with what they waited for. Nothing has to be
    switched on before; the trace goes back as far as `sooner.init(task_events_bytes=...)` allows.

    Args:
        filename: Where to write the trace as JSON. A file that is there is replaced.

    Returns:
        The events, if no file name is given. Times are microseconds of the machine's monotonic clock.

    Raises:
        RuntimeError: No session runs here.
        OSError: The file cannot be written.

    Example:
        >>> import sooner
        >>> sooner.timeline("trace.json")  # doctest: +SKIP
    """
    from sooner._state import timeline as _timeline  # start-up: 13.7 ms

    directory = session_directory()
    if not directory:
        raise RuntimeError("sooner is not started: a timeline is taken while its session runs")
    if filename is None:
        return list(_timeline.events(directory))
    with open(filename, "w") as file:
        _timeline.write(directory, file)
    return None


def is_initialized() -> bool:
    """Whether a session runs."""
    return _sooner.is_running()


def ensure_started() -> _Session:
    """The session; starts one first, as the verbs do."""
    if not is_initialized():
        auto_init()
    if _session is not None:
        return _session
    namespace = _sooner.identity()[3]
    return _Session("", namespace, SoonerContext({}))


def auto_init() -> None:
    """Starts a session on first use, unless SOONER_ENABLE_AUTO_CONNECT=0 or this is a forked copy of a
    driver.
    """
    if _forked:
        raise RuntimeError(
            "this process was forked from one that uses sooner: a session does not survive a fork. "
            "Call sooner.init() here for a session of its own, or use sooner tasks instead of fork"
        )
    _sooner.check_not_lost()
    if os.environ.get("SOONER_ENABLE_AUTO_CONNECT", "1") == "0":
        raise RuntimeError("sooner is not started: call sooner.init() first (SOONER_ENABLE_AUTO_CONNECT=0)")
    init()


def nodes() -> list[dict[str, Any]]:
    """The nodes of the cluster, and the latest 100 that are gone since this program's node joined.

    Returns:
        One dict per node, with the keys that Ray has. A node that is gone has `Alive` False, no resources,
        and the reason in `DeathReasonMessage`.
    """
    ensure_started()
    node = _sooner.identity()[1]
    socket = os.path.join(_session.directory, "node.sock") if _session else ""
    own = _node_row(node, os.uname().nodename, "127.0.0.1:0", cluster_resources(), node_labels())
    own |= {"ObjectStoreSocketName": socket, "RayletSocketName": socket}
    return [own, *_other_nodes(own)]


def cluster_membership(directory: str | None = None) -> dict[str, str]:
    """What a node has written of its cluster (see `membership`): the one in this directory, or that of the
    session.
    """
    path = session_directory() if directory is None else directory
    return membership(path) if path else {}


def _other_nodes(own: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of the cluster's other nodes. Completes `own`, the row of the local node."""
    if not cluster_membership():
        return []
    from sooner._state.rows import gone_nodes, nodes  # start-up: 5.8 ms
    from sooner._state.snapshot import Snapshot  # start-up: 3.1 ms

    snapshot = Snapshot(session_directory(), 0)
    here, *others = (
        _node_row(row["node_id"], row["host"], row["address"] or ":0", row["resources_total"], row["labels"])
        for row in nodes(snapshot)
    )
    own |= {key: here[key] for key in ("NodeManagerAddress", "NodeManagerPort", "Resources")}
    for row in gone_nodes(snapshot):
        dead = _node_row(row["node_id"], row["host"], row["address"] or ":0", {}, row["labels"])
        others.append(dead | {"Alive": False, "alive": False, "DeathReasonMessage": row["reason"]})
    return others


def _node_row(
    node: str, host: str, address: str, resources: dict[str, float], labels: dict[str, str]
) -> dict[str, Any]:
    ip, _, port = address.rpartition(":")
    return {
        "NodeID": node,
        "Alive": True,
        "alive": True,
        "NodeName": host,
        "NodeManagerAddress": ip,
        "NodeManagerHostname": host,
        "NodeManagerPort": int(port),
        "ObjectManagerPort": 0,
        "ObjectStoreSocketName": "",
        "RayletSocketName": "",
        "MetricsExportPort": 0,
        "MetricsAgentPort": 0,
        "DashboardAgentListenPort": 0,
        "RuntimeEnvAgentPort": 0,
        "Resources": resources,
        "Labels": labels,
        "DeathReason": 0,
        "DeathReasonMessage": "",
    }


def node_labels() -> dict[str, str]:
    """The labels of the node of this process."""
    return dict(_sooner.node_labels())


def cluster_resources() -> dict[str, float]:
    """All logical resources: name to amount (CPUs, GPUs, bytes of memory, custom units)."""
    return _sooner.resources(False)


def available_resources() -> dict[str, float]:
    """The logical resources that are free now: name to amount. What is all in use is left out, as in Ray."""
    return {name: amount for name, amount in _sooner.resources(True).items() if amount > 0}


def _after_fork() -> None:
    global _session, _forked
    if _session is not None:
        _forked = True
        _session = None
        _sooner.forget_after_fork()


os.register_at_fork(after_in_child=_after_fork)


def _at_exit() -> None:
    # Only daemon threads are left from here on; a thread that waits must not return to the interpreter.
    _sooner.interpreter_ends()
    if not is_worker():
        shutdown()


atexit.register(_at_exit)
