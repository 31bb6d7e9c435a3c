"""weft: tasks, actors and shared objects on a pool of processes.

The public names are resolved on first use, so that `import weft` stays in milliseconds.

Example:
    >>> import weft
    >>> @weft.remote
    ... def square(x: int) -> int:
    ...     return x * x
    >>> weft.get([square.remote(i) for i in range(4)])  # doctest: +SKIP
    [0, 1, 4, 9]
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft import aio as aio
    from weft import cloudpickle as cloudpickle
    from weft import cluster_utils as cluster_utils
    from weft import exceptions as exceptions
    from weft import experimental as experimental
    from weft import ids as ids
    from weft import internal as internal
    from weft import metrics as metrics
    from weft import options as options
    from weft import state as state
    from weft import util as util
    from weft._inspect import inspect_serializability as inspect_serializability
    from weft._progress import progress as progress
    from weft._progress import tqdm as tqdm
    from weft._serializers import deregister_serializer as deregister_serializer
    from weft._serializers import register_serializer as register_serializer
    from weft._weft import ObjectRef as ObjectRef
    from weft._weft import ObjectRefGenerator as ObjectRefGenerator
    from weft._weft import get as get
    from weft._weft import put as put
    from weft._weft import take as take
    from weft._weft import wait as wait
    from weft.actor import ActorClass as ActorClass
    from weft.actor import ActorHandle as ActorHandle
    from weft.actor import ActorProxy as ActorProxy
    from weft.actor import TypedActor as TypedActor
    from weft.actor import get_actor as get_actor
    from weft.actor import kill as kill
    from weft.actor import list_named_actors as list_named_actors
    from weft.actor import method as method
    from weft.context import WeftContext as WeftContext
    from weft.context import available_resources as available_resources
    from weft.context import cluster_resources as cluster_resources
    from weft.context import init as init
    from weft.context import is_initialized as is_initialized
    from weft.context import nodes as nodes
    from weft.context import shutdown as shutdown
    from weft.context import timeline as timeline
    from weft.generator import DynamicObjectRefGenerator as DynamicObjectRefGenerator
    from weft.ids import ActorClassID as ActorClassID
    from weft.ids import ActorID as ActorID
    from weft.ids import ClusterID as ClusterID
    from weft.ids import FunctionID as FunctionID
    from weft.ids import JobID as JobID
    from weft.ids import NodeID as NodeID
    from weft.ids import PlacementGroupID as PlacementGroupID
    from weft.ids import TaskID as TaskID
    from weft.ids import UniqueID as UniqueID
    from weft.ids import WorkerID as WorkerID
    from weft.remote_function import RemoteFunction as RemoteFunction
    from weft.remote_function import cancel as cancel
    from weft.remote_function import remote as remote
    from weft.runtime_context import RuntimeContext as RuntimeContext
    from weft.runtime_context import get_gpu_ids as get_gpu_ids
    from weft.runtime_context import get_runtime_context as get_runtime_context
    from weft.util.executor import Executor as Executor

    ObjectID = ObjectRef

__version__ = "0.1.0"
__commit__ = ""

_HOMES = {
    "ActorClass": "weft.actor",
    "ActorClassID": "weft.ids",
    "ActorHandle": "weft.actor",
    "ActorID": "weft.ids",
    "ActorProxy": "weft.actor",
    "ClusterID": "weft.ids",
    "DynamicObjectRefGenerator": "weft.generator",
    "Executor": "weft.util.executor",
    "FunctionID": "weft.ids",
    "JobID": "weft.ids",
    "NodeID": "weft.ids",
    "ObjectID": "weft._weft:ObjectRef",
    "ObjectRef": "weft._weft",
    "ObjectRefGenerator": "weft._weft",
    "PlacementGroupID": "weft.ids",
    "RemoteFunction": "weft.remote_function",
    "RuntimeContext": "weft.runtime_context",
    "TaskID": "weft.ids",
    "TypedActor": "weft.actor",
    "UniqueID": "weft.ids",
    "WeftContext": "weft.context",
    "WorkerID": "weft.ids",
    "available_resources": "weft.context",
    "cancel": "weft.remote_function",
    "cluster_resources": "weft.context",
    "deregister_serializer": "weft._serializers",
    "get": "weft._weft",
    "get_actor": "weft.actor",
    "get_gpu_ids": "weft.runtime_context",
    "get_runtime_context": "weft.runtime_context",
    "init": "weft.context",
    "inspect_serializability": "weft._inspect",
    "is_initialized": "weft.context",
    "kill": "weft.actor",
    "list_named_actors": "weft.actor",
    "method": "weft.actor",
    "nodes": "weft.context",
    "progress": "weft._progress",
    "put": "weft._weft",
    "register_serializer": "weft._serializers",
    "remote": "weft.remote_function",
    "shutdown": "weft.context",
    "timeline": "weft.context",
    "take": "weft._weft",
    "tqdm": "weft._progress",
    "wait": "weft._weft",
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

# What kind of process this is, as programs for Ray compare it.
SCRIPT_MODE = 0
WORKER_MODE = 1
LOCAL_MODE = 2
SPILL_WORKER_MODE = 3
RESTORE_WORKER_MODE = 4

# Names of Ray that weft does not have, and what they belong to.
_LATER = {
    "ClientBuilder": "a second client: drivers of a cluster are ordinary drivers",
    "LoggingConfig": "structured logging of workers",
    "Language": "tasks in other languages",
    "_config": "Ray's table of engine settings",
    "_private": "Ray's private modules: what is public is a name of weft or weft.util",
    "autoscaler": "a cluster launcher",
    "client": "a second client: drivers of a cluster are ordinary drivers",
    "cross_language": "tasks in other languages",
    "dag": "graphs of tasks (bind)",
    "data": "Ray Data",
    "java_actor_class": "tasks in other languages",
    "java_function": "tasks in other languages",
    "job_config": "defaults for a job",
    "job_submission": "jobs that are submitted",
    "ray_constants": "Ray's private modules: what is public is a name of weft or weft.util",
    "rllib": "Ray RLlib",
    "runtime_env": "runtime environments",
    "serialization": "Ray's private modules: use weft.register_serializer and weft.cloudpickle",
    "serve": "Ray Serve",
    "train": "Ray Train",
    "tune": "Ray Tune",
    "worker": "Ray's private modules: use weft.get_runtime_context()",
    "workflow": "Ray Workflow",
}

__all__ = [*(name for name in _HOMES if name != "ObjectID"), "exceptions"]


if not TYPE_CHECKING:
    # Type checkers see the names above, and report others.
    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return importlib.import_module(f"weft.{name}")
        home = _HOMES.get(name)
        if name in _LATER:
            raise AttributeError(f"weft.{name}: this version of weft does not have {_LATER[name]}")
        if home is None:
            raise AttributeError(f"module 'weft' has no attribute {name!r}")
        module, _, attribute = home.partition(":")
        value = getattr(importlib.import_module(module), attribute or name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_MODULES})
