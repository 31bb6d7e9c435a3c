"""The rows by name and the goals set for them. Nothing here measures anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Metric:
    """A number the benchmark reports.

    Attributes:
        key: How the code calls it.
        title: How the table calls it.
        unit: What the number counts.
        number: The row of Ray's microbenchmark it corresponds to.
        lower: A smaller number is the better one.
    """

    key: str
    title: str
    unit: str
    number: int | None = None
    lower: bool = False


# How far apart the sources of late sums come, and in training how many times as long as a gradient
# takes its way takes; by their names in keys.
LATE_GAPS = {"11": 0.11, "23": 0.23, "34": 0.34}
ASYNC_RHOS = {"01": 0.1, "03": 0.3, "1": 1.0, "3": 3.0, "10": 10.0}
SYNC_RHOS = {"02": 0.2, "1": 1.0}
# How many partitions the table has that is sorted in a tenth of the memory.
SORT_PARTITIONS = (50, 100, 500)
METRICS = (
    Metric("get_small", "get of a small value", "/s", 1),
    Metric("put_small", "put of a small value", "/s", 2),
    Metric("put_small_ten_tasks", "put of small values by ten tasks", "/s", 3),
    Metric("put_800_mib", "put of 800 MiB, one client", "GB/s", 4),
    Metric("tasks_batch", "batches of 1000 tasks and one get", "/s", 5),
    Metric("put_80_mib_ten_tasks", "put of 80 MiB by ten tasks", "GB/s", 6),
    Metric("get_10k_refs", "get of an object holding 10,000 refs", "/s", 7),
    Metric("wait_1k_refs", "wait on 1000 refs, one at a time", "/s", 8),
    Metric("task_sync", "task, synchronous", "/s", 9),
    Metric("tasks_async", "tasks, asynchronous", "/s", 10),
    Metric("tasks_four_clients", "tasks, asynchronous, 4 clients", "/s", 11),
    Metric("actor_sync", "actor call, synchronous", "/s", 12),
    Metric("actor_async", "actor calls 1:1, asynchronous", "/s", 13),
    Metric("actor_concurrent", "actor calls 1:1, max_concurrency=16", "/s", 14),
    Metric("actor_1_n", "actor calls 1:n", "/s", 15),
    Metric("actor_n_n", "actor calls n:n", "/s", 16),
    Metric("actor_n_n_arg", "actor calls n:n with a ref", "/s", 17),
    Metric("async_actor_sync", "asyncio actor call, synchronous", "/s", 18),
    Metric("async_actor_async", "asyncio actor calls 1:1", "/s", 19),
    Metric("async_actor_arg", "asyncio actor calls with an int", "/s", 20),
    Metric("async_actor_1_n", "asyncio actor calls 1:n", "/s", 21),
    Metric("async_actor_n_n", "asyncio actor calls n:n", "/s", 22),
    Metric("generator", "items of a streaming generator", "/s"),
    Metric("sum_8_64_mib", "8 arrays of 64 MiB from 8 actors, summed", "GB/s"),
    Metric("placement_groups", "placement group, create and remove", "/s"),
    Metric("get_8_mib", "get of an 8 MiB array", "us", lower=True),
    Metric("get_80_mib", "get of an 80 MiB array", "us", lower=True),
    Metric("get_800_mib", "get of an 800 MiB array", "us", lower=True),
    Metric("executor_sync", "Executor, submit and result", "/s"),
    Metric("executor_map", "Executor, map of tiny calls", "/s"),
    Metric("pool_apply", "Pool, apply", "/s"),
    Metric("pool_map_one", "Pool, map, chunksize=1", "/s"),
    Metric("pool_map", "Pool, map, default chunksize", "/s"),
    Metric("joblib_tiny", "joblib, 10,000 tiny calls", "/s"),
    Metric("joblib_array", "joblib, 100 MB array in 100 calls", "/s"),
    Metric("as_completed", "as_completed over 100,000 refs", "/s"),
    Metric("startup", "import, init, first task", "s", lower=True),
    Metric("actors_20", "20 new actors, first call answered", "s", lower=True),
    Metric("actors_1000_s", "1000 actors alive", "s", lower=True),
    Metric("actors_1000_mib", "1000 actors, private memory each", "MiB", lower=True),
    Metric("million_rate", "1,000,000 tasks queued at once", "/s"),
    Metric("million_bytes", "driver memory per pending task", "B", lower=True),
    Metric("idle_mib", "idle, memory in all", "MiB", lower=True),
    Metric("idle_others_mib", "idle, memory of the other processes", "MiB", lower=True),
    Metric("idle_driver_mib", "idle, growth of the driver", "MiB", lower=True),
    Metric("idle_threads", "idle, threads added", "", lower=True),
    Metric("idle_cpu", "idle, processor", "%", lower=True),
    Metric("chain_small_10ms", "chain of 10 ms tasks, one crash, small values", "x", lower=True),
    Metric("chain_small_100ms", "chain of 100 ms tasks, one crash, small values", "x", lower=True),
    Metric("chain_small_1s", "chain of 1 s tasks, one crash, small values", "x", lower=True),
    Metric("chain_10_mb_10ms", "chain of 10 ms tasks, one crash, 10 MB values", "x", lower=True),
    Metric("chain_10_mb_100ms", "chain of 100 ms tasks, one crash, 10 MB values", "x", lower=True),
    Metric("chain_10_mb_1s", "chain of 1 s tasks, one crash, 10 MB values", "x", lower=True),
    Metric("lost_objects", "recovery of 1000 lost objects of 1 MB", "s", lower=True),
    Metric("checkpoint_again", "calls of 10,000 repeated, checkpoint every 500", "", lower=True),
    Metric("checkpoint_s", "recovery of an actor with checkpoints", "s", lower=True),
    Metric("borrowers_1", "tasks on a shared 1 MB object, 1 borrower", "/s"),
    Metric("borrowers_2", "tasks on a shared 1 MB object, 2 borrowers", "/s"),
    Metric("borrowers_4", "tasks on a shared 1 MB object, 4 borrowers", "/s"),
    Metric("pin_empty", "pinning of returned objects, empty", "%", lower=True),
    Metric("pin_1_mib", "pinning of returned objects, 1 MiB", "%", lower=True),
    Metric("iterate_independent", "200 updates of one object per iteration, independent", "/s"),
    Metric("iterate_chained", "200 updates of one object per iteration, chained", "/s"),
    Metric("iterate_growth", "time per update, 200 to 100 of them", "x", lower=True),
    Metric("remote_task_sync", "task on another node, synchronous", "/s"),
    Metric("remote_task_p99", "task on another node, synchronous, p99", "us", lower=True),
    Metric("remote_tasks_async", "tasks on another node, asynchronous", "/s"),
    Metric("remote_1_mb_us", "task elsewhere, 1 MB argument, pipelined", "us", lower=True),
    Metric("remote_1_mb_p99", "task elsewhere, 1 MB argument, pipelined, p99", "us", lower=True),
    Metric("tasks_one_node", "tasks, asynchronous, one other node of 4 CPUs", "/s"),
    Metric("tasks_four_nodes", "tasks, asynchronous, 1 driver over 4 nodes", "/s"),
    Metric("nested_one_node", "tasks of 4 nested drivers, one node of 4 CPUs", "/s"),
    Metric("nested_four_nodes", "tasks of 4 nested drivers, 4 nodes", "/s"),
    Metric("per_cpu_1_drivers", "tasks per CPU-second, 1 nested driver", ""),
    Metric("per_cpu_2_drivers", "tasks per CPU-second, 2 nested drivers", ""),
    Metric("per_cpu_4_drivers", "tasks per CPU-second, 4 nested drivers", ""),
    Metric("delegation_rate", "tasks on the driver's 1 MB object, by borrowers elsewhere", "/s"),
    Metric("delegation_kib_1", "the owner's traffic for these, 1 borrower", "KiB", lower=True),
    Metric("delegation_kib_2", "the owner's traffic for these, 2 borrowers", "KiB", lower=True),
    Metric("delegation_kib_4", "the owner's traffic for these, 4 borrowers", "KiB", lower=True),
    Metric("delegation_growth", "the owner's traffic, ten times the tasks", "x", lower=True),
    Metric("add_node", "a node added and listed", "s", lower=True),
    Metric("cluster_16", "a cluster of 16 nodes", "s", lower=True),
    Metric("groups_two_nodes", "placement group over two nodes, create and remove", "/s"),
    Metric("transfer", "a large value from another node", "GB/s"),
    Metric("locality_100_kb", "argument of 100 KB on one of two nodes", "ms", lower=True),
    Metric("locality_1_mb", "argument of 1 MB on one of two nodes", "ms", lower=True),
    Metric("locality_10_mb", "argument of 10 MB on one of two nodes", "ms", lower=True),
    Metric("locality_100_mb", "argument of 100 MB on one of two nodes", "ms", lower=True),
    Metric("locality_growth", "argument on one of two nodes, 100 MB to 100 KB", "x", lower=True),
    Metric("node_killed", "daemon killed, its task begins elsewhere", "s", lower=True),
    Metric(
        "node_chain_small",
        "chain, node killed and restarted, small values",
        "x",
        lower=True,
    ),
    Metric(
        "node_chain_10_mb",
        "chain, node killed and restarted, 10 MB values",
        "x",
        lower=True,
    ),
    Metric("head_calm", "longest pause of an actor without any fault", "ms", lower=True),
    Metric("head_pause", "longest pause while the head is killed and started", "ms", lower=True),
    Metric("head_new_actor", "new actor, head killed and started again", "s", lower=True),
    Metric("hosts_back", "64 MB there and back, 2 hosts, 500 Mbit/s", "x", lower=True),
    Metric("cast_4_32_mb", "32 MB to 4 hosts, 500 Mbit/s", "x", lower=True),
    Metric("cast_4_64_mb", "64 MB to 4 hosts, 500 Mbit/s", "x", lower=True),
    Metric("cast_8_32_mb", "32 MB to 8 hosts, 250 Mbit/s", "x", lower=True),
    Metric("cast_8_64_mb", "64 MB to 8 hosts, 250 Mbit/s", "x", lower=True),
    Metric("cast_16_32_mb", "32 MB to 16 hosts, 250 Mbit/s", "x", lower=True),
    Metric("cast_16_64_mb", "64 MB to 16 hosts, 250 Mbit/s", "x", lower=True),
    Metric("cast_late", "64 MB to 8 hosts one by one, from the last on", "x", lower=True),
    Metric("cast_killed", "64 MB to 8 hosts, lost when a sender is killed", "x", lower=True),
    Metric("reduce_4_32_mb", "32 MB of 4 hosts summed on one, 500 Mbit/s", "x", lower=True),
    Metric("reduce_4_64_mb", "64 MB of 4 hosts summed on one, 500 Mbit/s", "x", lower=True),
    Metric("reduce_8_32_mb", "32 MB of 8 hosts summed on one, 250 Mbit/s", "x", lower=True),
    Metric("allreduce_4_32_mb", "32 MB of 4 hosts summed on all, 500 Mbit/s", "x", lower=True),
    Metric("allreduce_8_32_mb", "32 MB of 8 hosts summed on all, 250 Mbit/s", "x", lower=True),
    Metric("gather_4_16_mb", "16 MB of each of 4 hosts read on one, 500 Mbit/s", "x", lower=True),
    Metric("gather_8_16_mb", "16 MB of each of 8 hosts read on one, 250 Mbit/s", "x", lower=True),
    Metric("reduce_16_32_mb", "32 MB of 16 hosts summed on one, 250 Mbit/s", "x", lower=True),
    Metric("allreduce_16_32_mb", "32 MB of 16 hosts summed on all, 250 Mbit/s", "x", lower=True),
    *(
        Metric(
            f"{kind}_late_{gap}",
            f"32 MB of 8 hosts, made 0.{gap} S/B apart, summed on {where} after the last",
            "x",
            lower=True,
        )
        for kind, where in (("reduce", "one"), ("allreduce", "all"))
        for gap in LATE_GAPS
    ),
    Metric("reduce_killed", "64 MB of 4 hosts summed, lost when a host is killed", "x", lower=True),
    *(
        Metric(
            f"sgd_async_8_{name}",
            f"asynchronous training, 12 MB, 7 workers, rho = {rho:g}",
            "x",
            lower=True,
        )
        for name, rho in ASYNC_RHOS.items()
    ),
    *(
        Metric(
            f"sgd_sync_4_{name}",
            f"synchronous training in shards, 3.4 MB, 4 workers, rho = {rho:g}",
            "x",
            lower=True,
        )
        for name, rho in SYNC_RHOS.items()
    ),
    Metric("reduce_first", "32 MB of the first 4 of 8 hosts summed, 2 are late", "x", lower=True),
    Metric("ring_4_32_mb", "32 MB in a ring of 4 actors, 500 Mbit/s", "x", lower=True),
    Metric("back_1_kb", "1 KB there and back, 2 hosts without a limit", "us", lower=True),
    Metric("back_64_kb", "64 KB there and back, 2 hosts without a limit", "us", lower=True),
    Metric("back_1_mb", "1 MB there and back, 2 hosts without a limit", "us", lower=True),
    *(
        Metric(f"{kind}_4_{kb}_kb", f"{kb} KB {what}, no limit", "us", lower=True)
        for kind, what in {
            "cast": "to 4 hosts",
            "gather": "of each of 4 hosts read on one",
            "reduce": "of 4 hosts summed on one",
            "allreduce": "of 4 hosts summed on all",
        }.items()
        for kb in (1, 32, 64)
    ),
    Metric("broadcast_sum", "1 GB to 100 tasks that sum it", "x", lower=True),
    Metric("broadcast_sum_s", "1 GB to 100 tasks that sum it", "s", lower=True),
    Metric("broadcast_sum_cpu", "processor time of that", "x", lower=True),
    Metric("broadcast_items", "1 GB to 100 tasks that take 10,000 items", "x", lower=True),
    Metric("broadcast_items_s", "1 GB to 100 tasks that take 10,000 items", "s", lower=True),
    Metric("broadcast_items_cpu", "processor time of that", "x", lower=True),
    Metric("sort_memory", "sort of 1 GB, store of 4 GB", "s", lower=True),
    *(
        metric
        for number in SORT_PARTITIONS
        for metric in (
            Metric(f"sort_{number}", f"sort of 10 GB, {number} partitions", "s", lower=True),
            Metric(f"sort_{number}_peak", f"its memory, {number} partitions", "GB", lower=True),
            Metric(f"sort_{number}_heaps", f"its heaps, {number} partitions", "GB", lower=True),
            Metric(
                f"sort_{number}_store", f"its shared memory, {number} partitions", "GB", lower=True
            ),
        )
    ),
    Metric("sort_spread", "sort of 10 GB, slowest to fastest", "x", lower=True),
    Metric("spill_write", "values put that go to disk", "GB/s"),
    Metric("spill_read", "values that come from disk", "GB/s"),
    Metric("objects_rate", "small objects created and dropped", "/s"),
    Metric("objects_growth", "memory after 10,000,000 of them", "MB", lower=True),
    Metric("objects_bytes", "1,000,000 held, memory beside the value", "B", lower=True),
    Metric("ping_pong", "Pipe ping-pong, placed freely", "/s"),
    Metric("ping_pong_one_core", "Pipe ping-pong, both on one core", "/s"),
    Metric("ping_pong_two_cores", "Pipe ping-pong, on two cores", "/s"),
    Metric("tcp_ping_pong", "TCP loopback ping-pong, in turns with tasks on another node", "/s"),
    Metric("memcpy_one_thread", "memcpy of 800 MiB, one thread", "GB/s"),
    Metric("memcpy_two_threads", "memcpy of 800 MiB, two threads", "GB/s"),
    Metric("memcpy_two_threads_80_mib", "memcpy of 2 x 80 MiB, two threads", "GB/s"),
    Metric("memcpy_transfer", "memcpy in turns with values from another node, one thread", "GB/s"),
    Metric("goodput_500", "raw TCP stream between shaped hosts, 500 Mbit/s", "MB/s"),
    Metric("goodput_250", "raw TCP stream between shaped hosts, 250 Mbit/s", "MB/s"),
    Metric("bare_sum_s", "100 sums of 1 GB, two bare processes", "s", lower=True),
    Metric("bare_items_s", "100 times 10,000 items of 1 GB, two bare processes", "s", lower=True),
    Metric("dd_write", "dd, direct, written in turns with values", "GB/s"),
    Metric("dd_read", "dd, direct, read in turns with values", "GB/s"),
)
BY_KEY = {metric.key: metric for metric in METRICS}
LIMIT_KEYS = tuple(
    m.key
    for m in METRICS
    if m.key.startswith(("ping_pong", "tcp_ping_pong", "memcpy", "goodput", "bare_", "dd_"))
)
CORE_KEYS = tuple(
    m.key
    for m in METRICS
    if m.number is not None or m.key.startswith(("get_", "generator", "placement", "sum_"))
)
# Rows of the drop-ins: sooner's helpers beside what they stand in for.
EXECUTOR_KEYS = ("executor_sync", "executor_map", "as_completed")
POOL_KEYS = ("pool_apply", "pool_map_one", "pool_map")
JOBLIB_KEYS = ("joblib_tiny", "joblib_array")
# Rows that only the full run measures on Ray: no goal refers to Ray there, and they take half of
# its time.
RAY_FULL_ONLY = (
    "put_small_ten_tasks",
    "put_800_mib",
    "put_80_mib_ten_tasks",
    "tasks_batch",
    "tasks_four_clients",
    "actor_concurrent",
    "actor_n_n_arg",
    "get_8_mib",
    "get_80_mib",
    "get_800_mib",
)
# Probes that make clusters of their own, and what they report.
_CLUSTER_KEYS = {
    "remote_tasks": (
        "remote_task_sync",
        "remote_task_p99",
        "remote_tasks_async",
        "remote_1_mb_us",
        "remote_1_mb_p99",
    ),
    "drivers": (
        "tasks_one_node",
        "tasks_four_nodes",
        "nested_one_node",
        "nested_four_nodes",
        "per_cpu_1_drivers",
        "per_cpu_2_drivers",
        "per_cpu_4_drivers",
    ),
    "delegation": tuple(m.key for m in METRICS if m.key.startswith("delegation_")),
    "add_node": ("add_node",),
    "cluster_16": ("cluster_16",),
    "groups": ("groups_two_nodes",),
    "transfer": ("transfer",),
    "locality": tuple(m.key for m in METRICS if m.key.startswith("locality_")),
    "node_killed": ("node_killed",),
    "node_chains": ("node_chain_small", "node_chain_10_mb"),
    "head_restart": ("head_calm", "head_pause", "head_new_actor"),
}
CLUSTER_PROBES = tuple(_CLUSTER_KEYS)
# What is done with small values on four hosts.
SMALL_KINDS = ("cast", "gather", "reduce", "allreduce")


def _of_small(kind: str) -> tuple[str, ...]:
    return tuple(f"{kind}_4_{kb}_kb" for kb in (1, 32, 64))


# Probes on shaped hosts, and what they report: multiples of the time of a raw stream, and times of
# small values.
_HOSTS_KEYS = {
    "hosts_2": ("hosts_back",),
    "hosts_4": ("cast_4_32_mb", "cast_4_64_mb"),
    "hosts_8": ("cast_8_32_mb", "cast_8_64_mb"),
    "hosts_16": ("cast_16_32_mb", "cast_16_64_mb"),
    "hosts_late": ("cast_late",),
    "hosts_killed": ("cast_killed",),
    "hosts_reduce_4": ("reduce_4_32_mb", "reduce_4_64_mb"),
    "hosts_reduce_8": ("reduce_8_32_mb",),
    "hosts_allreduce_4": ("allreduce_4_32_mb",),
    "hosts_allreduce_8": ("allreduce_8_32_mb",),
    "hosts_gather_4": ("gather_4_16_mb",),
    "hosts_gather_8": ("gather_8_16_mb",),
    **{
        f"hosts_{kind}_late_{gap}": (f"{kind}_late_{gap}",)
        for kind in ("reduce", "allreduce")
        for gap in LATE_GAPS
    },
    "hosts_reduce_killed": ("reduce_killed",),
    "hosts_reduce_16": ("reduce_16_32_mb",),
    "hosts_allreduce_16": ("allreduce_16_32_mb",),
    **{f"hosts_async_{name}": (f"sgd_async_8_{name}",) for name in ASYNC_RHOS},
    **{f"hosts_sync_{name}": (f"sgd_sync_4_{name}",) for name in SYNC_RHOS},
    "hosts_reduce_first": ("reduce_first",),
    "hosts_ring_4": ("ring_4_32_mb",),
    "hosts_small_back": ("back_1_kb", "back_64_kb", "back_1_mb"),
    **{f"hosts_small_{kind}": _of_small(kind) for kind in SMALL_KINDS},
}
HOSTS_PROBES = tuple(_HOSTS_KEYS)
# Probes on memory, and what they report. `sort_spread` is of three of them.
_MEMORY_KEYS = {
    "broadcast": tuple(m.key for m in METRICS if m.key.startswith("broadcast_")),
    "sort_memory": ("sort_memory",),
    **{
        f"sort_spill_{number}": (
            f"sort_{number}",
            f"sort_{number}_peak",
            f"sort_{number}_heaps",
            f"sort_{number}_store",
        )
        for number in SORT_PARTITIONS
    },
    "spill": ("spill_write", "spill_read"),
    "small_objects": ("objects_rate", "objects_growth", "objects_bytes"),
}
MEMORY_PROBES = tuple(_MEMORY_KEYS)
MEMORY_KEYS = (*(key for keys in _MEMORY_KEYS.values() for key in keys), "sort_spread")
HOSTS_KEYS = tuple(key for keys in _HOSTS_KEYS.values() for key in keys)
IDLE_KEYS = ("idle_mib", "idle_others_mib", "idle_driver_mib", "idle_threads", "idle_cpu")
# What each probe of harness/probes.py reports.
PROBE_KEYS = {
    "twenty_actors": ("actors_20",),
    "thousand_actors": ("actors_1000_s", "actors_1000_mib"),
    "million_rate": ("million_rate",),
    "million_memory": ("million_bytes",),
    "idle": IDLE_KEYS,
    "chains": tuple(m.key for m in METRICS if m.key.startswith("chain_")),
    "lost_objects": ("lost_objects",),
    "checkpoints": ("checkpoint_again", "checkpoint_s"),
    "borrowers": ("borrowers_1", "borrowers_2", "borrowers_4"),
    "pins": ("pin_empty", "pin_1_mib"),
    "iterations": ("iterate_independent", "iterate_chained", "iterate_growth"),
    **_CLUSTER_KEYS,
    **_HOSTS_KEYS,
    **_MEMORY_KEYS,
}
TITLES = {
    "sooner": "sooner",
    "ray": "Ray",
    "pool": "Pool",
    "executor": "Executor",
    "dask": "Dask",
    "dask_threads": "Dask, threads",
    "dask_processes": "Dask, processes",
    "dask_tasks": "Dask, shuffle of tasks",
    "dask_best": "best of Dask",
    "loky": "loky",
    "openmpi": "OpenMPI, tuned",
    "openmpi_default": "OpenMPI, default",
    "gloo": "Gloo",
    "limits": "limit",
}


# How a goal names what it is compared with, where that is another row.
REFERENCES = {
    ("limits", "ping_pong"): "ping-pong",
    ("limits", "memcpy_one_thread"): "memcpy, 1 thread",
    ("limits", "memcpy_two_threads"): "memcpy, 2 threads",
    ("limits", "memcpy_two_threads_80_mib"): "memcpy, 2 threads",
    ("sooner", "tasks_async"): "row 10",
    ("limits", "tcp_ping_pong"): "TCP ping-pong",
    ("limits", "memcpy_transfer"): "memcpy, 1 thread",
    ("limits", "dd_write"): "dd",
    ("limits", "dd_read"): "dd",
    ("sooner", "tasks_one_node"): "one node",
    ("sooner", "nested_one_node"): "one node",
    ("sooner", "per_cpu_1_drivers"): "1 driver",
}


@dataclass(frozen=True)
class Goal:
    """What one number of sooner shall reach.

    A ratio says how many times better sooner is than the reference, whichever direction is better;
    a bound is compared with the number itself.
    """

    key: str
    kind: Literal["ratio", "bound"]
    value: float
    peer: str = ""
    reference: str = ""

    def text(self) -> str:
        """The goal in words."""
        metric = BY_KEY[self.key]
        if self.kind == "bound":
            sign = "<=" if metric.lower else ">="
            return f"{sign} {self.value:g} {metric.unit}".rstrip()
        name = REFERENCES.get((self.peer, self.reference), TITLES[self.peer])
        return f">= {self.value:g}x {name}"


def _versus(peer: str, factor: float, *keys: str) -> list[Goal]:
    return [Goal(key, "ratio", factor, peer, key) for key in keys]


def _share(key: str, share: float, reference: str, peer: str = "limits") -> Goal:
    return Goal(key, "ratio", share, peer, reference)


def _bound(key: str, value: float) -> Goal:
    return Goal(key, "bound", value)


GOALS = (
    _share("actor_sync", 0.5, "ping_pong"),
    *_versus("ray", 35, "actor_sync"),
    _share("task_sync", 0.45, "ping_pong"),
    *_versus("ray", 70, "task_sync"),
    *_versus("pool", 2, "task_sync"),
    *_versus("pool", 6, "tasks_async"),
    *_versus("ray", 180, "tasks_async"),
    *_versus("ray", 60, "actor_async", "actor_1_n", "actor_n_n"),
    *_versus(
        "ray",
        20,
        "async_actor_sync",
        "async_actor_async",
        "async_actor_arg",
        "async_actor_1_n",
        "async_actor_n_n",
    ),
    *_versus("ray", 150, "put_small"),
    *_versus("ray", 50, "get_small"),
    _share("put_800_mib", 0.85, "memcpy_one_thread"),
    _share("put_800_mib", 0.85, "memcpy_two_threads"),
    _share("put_80_mib_ten_tasks", 0.85, "memcpy_two_threads_80_mib"),
    _bound("get_8_mib", 50),
    _bound("get_80_mib", 50),
    _bound("get_800_mib", 50),
    *_versus("ray", 50, "wait_1k_refs"),
    *_versus("ray", 20, "get_10k_refs"),
    *_versus("ray", 20, "generator"),
    *_versus("ray", 10, "placement_groups"),
    *_versus("executor", 1, *EXECUTOR_KEYS),
    *_versus("pool", 1, *POOL_KEYS),
    *_versus("loky", 1, *JOBLIB_KEYS),
    _bound("startup", 0.150),
    *_versus("ray", 100, "actors_20"),
    _bound("actors_1000_s", 10),
    _bound("actors_1000_mib", 8),
    _bound("million_bytes", 1024),
    _share("million_rate", 0.8, "tasks_async", peer="sooner"),
    _bound("idle_mib", 50),
    _bound("idle_threads", 12),
    _bound("idle_cpu", 0.5),
    *(_bound(key, 1.15) for key in PROBE_KEYS["chains"]),
    _bound("checkpoint_again", 500),
    *(_bound(key, 5) for key in PROBE_KEYS["pins"]),
    _bound("iterate_growth", 1.2),
    _share("remote_task_sync", 0.5, "tcp_ping_pong"),
    _bound("remote_1_mb_us", 100),
    _share("tasks_four_nodes", 0.8, "tasks_one_node", peer="sooner"),
    _share("nested_four_nodes", 0.8, "nested_one_node", peer="sooner"),
    # Not to fall: what is measured twice is not the same to a twentieth.
    _share("per_cpu_2_drivers", 0.95, "per_cpu_1_drivers", peer="sooner"),
    _share("per_cpu_4_drivers", 0.95, "per_cpu_1_drivers", peer="sooner"),
    # Not to grow with the tasks, of which there are ten times as many.
    _bound("delegation_growth", 1.5),
    _bound("add_node", 0.3),
    _bound("cluster_16", 3),
    *_versus("ray", 10, "groups_two_nodes"),
    _share("transfer", 0.5, "memcpy_transfer"),
    # Flat with the size, which grows by a factor of 1,000.
    _bound("locality_growth", 1.5),
    # Its connections close: 1 s is for a node that they do not tell of.
    _bound("node_killed", 0.1),
    _bound("node_chain_small", 1.15),
    _bound("node_chain_10_mb", 1.6),
    _bound("head_new_actor", 1),
    _bound("hosts_back", 1.05),
    *(_bound(f"cast_4_{size}_mb", 1.08) for size in (32, 64)),
    *(_bound(f"cast_8_{size}_mb", 1.06) for size in (32, 64)),
    *(_bound(f"cast_16_{size}_mb", 1.10) for size in (32, 64)),
    _bound("cast_late", 1.15),
    _bound("cast_killed", 0.15),
    *(_bound(f"reduce_4_{size}_mb", 1.08) for size in (32, 64)),
    _bound("reduce_8_32_mb", 1.12),
    # 1.25 times 2 (n - 1) / n, which a ring of n hosts takes.
    _bound("allreduce_4_32_mb", 1.88),
    _bound("allreduce_8_32_mb", 2.19),
    *(_bound(f"gather_{hosts}_16_mb", 1.05) for hosts in (4, 8)),
    _bound("reduce_first", 1.15),
    *(_bound(f"reduce_late_{gap}", 1.15) for gap in LATE_GAPS),
    *(_bound(f"allreduce_late_{gap}", 1.3) for gap in LATE_GAPS),
    *_versus("openmpi", 1.5, "reduce_late_34", "allreduce_late_34"),
    _bound("reduce_killed", 1),
    _bound("reduce_16_32_mb", 1.20),
    _bound("allreduce_16_32_mb", 2.34),
    *(_bound(f"sgd_async_8_{name}", 1.2) for name in ASYNC_RHOS),
    *_versus("ray", 5, "sgd_async_8_10"),
    *_versus("ray", 1, "sgd_async_8_01"),
    *(_bound(f"sgd_sync_4_{name}", round(1 / 0.95, 2)) for name in SYNC_RHOS),
    *_versus("ray", 1.3, "sgd_sync_4_1"),
    _bound("ring_4_32_mb", 1.25),
    *_versus("openmpi", 1 / 3, "back_1_kb"),
    *_versus("openmpi", 1 / 1.5, "back_1_mb"),
    *_versus("openmpi", 1 / 4, *(key for kind in SMALL_KINDS for key in _of_small(kind))),
    *_versus("ray", 10, "back_1_kb", "back_64_kb"),
    *_versus("ray", 10, *(key for kind in SMALL_KINDS for key in _of_small(kind))),
    # Of nine arrays, eight are read and one is written; a copy reads one and writes one.
    _share("sum_8_64_mib", 1.24, "memcpy_two_threads"),
    *_versus("ray", 5, "sum_8_64_mib"),
    _bound("broadcast_sum", 1.15),
    _bound("broadcast_items", 1.15),
    *(
        goal
        for peer in ("dask_threads", "dask_processes", "dask", "ray")
        for goal in _versus(peer, 1, "sort_memory")
    ),
    *_versus("dask_best", 2, *(f"sort_{number}" for number in SORT_PARTITIONS)),
    _bound("sort_spread", 1.3),
    # The limit holds to the byte; a hundredth is for shared memory that is not the store.
    *(_bound(f"sort_{number}_store", 1.01) for number in SORT_PARTITIONS),
    # The limit, and for each of two workers an interpreter with pandas and five of the largest
    # partitions (200 MB), of which sorting takes several at the same time.
    *(_bound(f"sort_{number}_peak", 3.5) for number in SORT_PARTITIONS),
    _share("spill_write", 0.8, "dd_write"),
    _share("spill_read", 0.8, "dd_read"),
    _bound("objects_growth", 2),
    _bound("objects_bytes", 300),
)


def selected(substrings: str) -> set[str]:
    """Keys of the rows that match one of these, separated by commas, and of what goals refer to."""
    wanted = [part.strip() for part in substrings.lower().split(",") if part.strip()]
    keys = {
        m.key for m in METRICS if any(part in m.key or part in m.title.lower() for part in wanted)
    }
    return keys | {goal.reference for goal in GOALS if goal.key in keys and goal.reference}
