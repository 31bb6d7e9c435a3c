"""sooner: tasks, actors and shared objects on a pool of processes.

The public names are resolved on first use, so that `import sooner` stays in milliseconds.

Example:
    >>> import sooner
    >>> @sooner.remote
    ... def square(x: int) -> int:
    ...     return x * x
    >>> sooner.get([square.remote(i) for i in range(4)])  # doctest: +SKIP
    [0, 1, 4, 9]
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sooner import aio as aio
    from sooner import cloudpickle as cloudpickle
    from sooner import cluster_utils as cluster_utils
    from sooner import exceptions as exceptions
    from sooner import experimental as experimental
    from sooner import ids as ids
    from sooner import internal as internal
    from sooner import metrics as metrics
    from sooner import options as options
    from sooner import state as state
    from sooner import util as util
    from sooner._errors.inspect import inspect_serializability as inspect_serializability
    from sooner._progress.progress import progress as progress
    from sooner._progress.progress import tqdm as tqdm
    from sooner._sooner import ObjectRef as ObjectRef
    from sooner._sooner import ObjectRefGenerator as ObjectRefGenerator
    from sooner._sooner import get as get
    from sooner._sooner import put as put
    from sooner._sooner import take as take
    from sooner._sooner import wait as wait
    from sooner._values.serializers import deregister_serializer as deregister_serializer
    from sooner._values.serializers import register_serializer as register_serializer
    from sooner.actor import ActorClass as ActorClass
    from sooner.actor import ActorHandle as ActorHandle
    from sooner.actor import ActorProxy as ActorProxy
    from sooner.actor import TypedActor as TypedActor
    from sooner.actor import get_actor as get_actor
    from sooner.actor import kill as kill
    from sooner.actor import list_named_actors as list_named_actors
    from sooner.actor import method as method
    from sooner.buffers import empty as empty
    from sooner.context import SoonerContext as SoonerContext
    from sooner.context import available_resources as available_resources
    from sooner.context import cluster_resources as cluster_resources
    from sooner.context import init as init
    from sooner.context import is_initialized as is_initialized
    from sooner.context import nodes as nodes
    from sooner.context import shutdown as shutdown
    from sooner.context import timeline as timeline
    from sooner.generator import DynamicObjectRefGenerator as DynamicObjectRefGenerator
    from sooner.ids import ActorClassID as ActorClassID
    from sooner.ids import ActorID as ActorID
    from sooner.ids import ClusterID as ClusterID
    from sooner.ids import FunctionID as FunctionID
    from sooner.ids import JobID as JobID
    from sooner.ids import NodeID as NodeID
    from sooner.ids import PlacementGroupID as PlacementGroupID
    from sooner.ids import TaskID as TaskID
    from sooner.ids import UniqueID as UniqueID
    from sooner.ids import WorkerID as WorkerID
    from sooner.reduction import reduce as reduce
    from sooner.reduction import reduce_first as reduce_first
    from sooner.remote_function import RemoteFunction as RemoteFunction
    from sooner.remote_function import cancel as cancel
    from sooner.remote_function import remote as remote
    from sooner.runtime_context import RuntimeContext as RuntimeContext
    from sooner.runtime_context import get_gpu_ids as get_gpu_ids
    from sooner.runtime_context import get_runtime_context as get_runtime_context
    from sooner.util.executor import Executor as Executor

    ObjectID = ObjectRef

__version__ = "0.1.0"
__commit__ = ""

_HOMES = {
    "ActorClass": "sooner.actor",
    "ActorClassID": "sooner.ids",
    "ActorHandle": "sooner.actor",
    "ActorID": "sooner.ids",
    "ActorProxy": "sooner.actor",
    "ClusterID": "sooner.ids",
    "DynamicObjectRefGenerator": "sooner.generator",
    "Executor": "sooner.util.executor",
    "FunctionID": "sooner.ids",
    "JobID": "sooner.ids",
    "NodeID": "sooner.ids",
    "ObjectID": "sooner._sooner:ObjectRef",
    "ObjectRef": "sooner._sooner",
    "ObjectRefGenerator": "sooner._sooner",
    "PlacementGroupID": "sooner.ids",
    "RemoteFunction": "sooner.remote_function",
    "RuntimeContext": "sooner.runtime_context",
    "TaskID": "sooner.ids",
    "TypedActor": "sooner.actor",
    "UniqueID": "sooner.ids",
    "SoonerContext": "sooner.context",
    "WorkerID": "sooner.ids",
    "available_resources": "sooner.context",
    "cancel": "sooner.remote_function",
    "cluster_resources": "sooner.context",
    "deregister_serializer": "sooner._values.serializers",
    "empty": "sooner.buffers",
    "get": "sooner._sooner",
    "get_actor": "sooner.actor",
    "get_gpu_ids": "sooner.runtime_context",
    "get_runtime_context": "sooner.runtime_context",
    "init": "sooner.context",
    "inspect_serializability": "sooner._errors.inspect",
    "is_initialized": "sooner.context",
    "kill": "sooner.actor",
    "list_named_actors": "sooner.actor",
    "method": "sooner.actor",
    "nodes": "sooner.context",
    "progress": "sooner._progress.progress",
    "put": "sooner._sooner",
    "reduce": "sooner.reduction",
    "reduce_first": "sooner.reduction",
    "register_serializer": "sooner._values.serializers",
    "remote": "sooner.remote_function",
    "shutdown": "sooner.context",
    "timeline": "sooner.context",
    "take": "sooner._sooner",
    "tqdm": "sooner._progress.progress",
    "wait": "sooner._sooner",
}

_MODULES = (
    "aio",
    "cloudpickle",
    "cluster_utils",
    "exceptions",
    "experimental",
    "ids",
    "internal",
    "metrics",
    "options",
    "state",
    "util",
)

# Kinds of processes, as constants that programs for Ray compare with.
SCRIPT_MODE = 0
WORKER_MODE = 1
LOCAL_MODE = 2
SPILL_WORKER_MODE = 3
RESTORE_WORKER_MODE = 4

# Names of Ray that sooner does not have, and what they belong to.
_LATER = {
    "ClientBuilder": "a second client: drivers of a cluster are ordinary drivers",
    "LoggingConfig": "structured logging of workers",
    "Language": "tasks in other languages",
    "_config": "Ray's table of engine settings",
    "_private": "Ray's private modules: what is public is a name of sooner or sooner.util",
    "autoscaler": "a cluster launcher",
    "client": "a second client: drivers of a cluster are ordinary drivers",
    "cross_language": "tasks in other languages",
    "dag": "graphs of tasks (bind)",
    "data": "Ray Data",
    "java_actor_class": "tasks in other languages",
    "java_function": "tasks in other languages",
    "job_config": "defaults for a job",
    "job_submission": "jobs that are submitted",
    "ray_constants": "Ray's private modules: what is public is a name of sooner or sooner.util",
    "rllib": "Ray RLlib",
    "runtime_env": "runtime environments",
    "serialization": "Ray's private modules: use sooner.register_serializer and sooner.cloudpickle",
    "serve": "Ray Serve",
    "train": "Ray Train",
    "tune": "Ray Tune",
    "worker": "Ray's private modules: use sooner.get_runtime_context()",
    "workflow": "Ray Workflow",
}

__all__ = [*(name for name in _HOMES if name != "ObjectID"), "exceptions"]


if not TYPE_CHECKING:
    # Type checkers see the names above, and report others.
    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return importlib.import_module(f"sooner.{name}")
        home = _HOMES.get(name)
        if name in _LATER:
            raise AttributeError(f"sooner.{name}: this version of sooner does not have {_LATER[name]}")
        if home is None:
            raise AttributeError(f"module 'sooner' has no attribute {name!r}")
        module, _, attribute = home.partition(":")
        value = getattr(importlib.import_module(module), attribute or name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_MODULES})


if os.environ.get("SOONER_AS_RAY") == "1":
    importlib.import_module("sooner.compat.ray").install()
