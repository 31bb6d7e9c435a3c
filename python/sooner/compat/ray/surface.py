"""Which modules of Ray there are, what they stand for, and what is not offered."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

# The version of Ray whose API sooner follows, for programs that compare.
RAY_VERSION: Final = "2.60.0"


class Surface(NamedTuple):
    """What a module of Ray is.

    Attributes:
        stands_for: The module of sooner.
        names: Which names of that it has; empty for all.
        is_callable: It is called like the function of its name, which it shadows.
        aliases: Names that sooner has under others.
    """

    stands_for: str
    names: tuple[str, ...] = ()
    is_callable: bool = False
    aliases: Mapping[str, str] = MappingProxyType({})


_IDS = (
    "ActorClassID",
    "ActorID",
    "ClusterID",
    "FunctionID",
    "JobID",
    "NodeID",
    "PlacementGroupID",
    "TaskID",
    "UniqueID",
    "WorkerID",
)
_IN_UTIL = (
    "accelerators",
    "actor_pool",
    "annotations",
    "collective",
    "debug",
    "joblib",
    "metrics",
    "multiprocessing",
    "queue",
    "scheduling_strategies",
    "serialization",
    "state",
)

MODULES: Final[dict[str, Surface]] = {
    "ray": Surface("sooner"),
    "ray._raylet": Surface("sooner", (*_IDS, "ObjectID", "ObjectRef", "ObjectRefGenerator")),
    "ray.actor": Surface("sooner.actor"),
    "ray.cloudpickle": Surface("sooner.cloudpickle"),
    "ray.cluster_utils": Surface("sooner.cluster_utils"),
    "ray.exceptions": Surface("sooner.exceptions"),
    "ray.experimental": Surface("sooner.experimental"),
    "ray.internal": Surface("sooner.internal"),
    "ray.remote_function": Surface("sooner.remote_function"),
    "ray.runtime_context": Surface("sooner.runtime_context"),
    "ray.types": Surface("sooner", ("ObjectRef",)),
    "ray.util": Surface("sooner.util"),
    **{f"ray.util.{name}": Surface(f"sooner.util.{name}") for name in _IN_UTIL},
    "ray.util.dask": Surface(
        "sooner.util.dask",
        aliases={
            "RayDaskCallback": "SoonerDaskCallback",
            "disable_dask_on_ray": "disable_dask_on_sooner",
            "enable_dask_on_ray": "enable_dask_on_sooner",
            "ray_dask_get": "sooner_dask_get",
            "ray_dask_get_sync": "sooner_dask_get_sync",
        },
    ),
    # Programs import the module, or the function that has its name.
    "ray.util.placement_group": Surface("sooner.util.placement_group", is_callable=True),
}

# What a module has that the one it stands for has not, or has otherwise.
OWN_NAMES: Final[dict[str, dict[str, Any]]] = {"ray": {"__version__": RAY_VERSION, "__commit__": ""}}

# What Ray has and sooner has not, and what to use instead.
NOT_OFFERED: Final[dict[str, str]] = {
    "ray._private": "these are Ray's private modules; what is public is in ray and ray.util",
    "ray.autoscaler": "it has no cluster launcher; `sooner start` on each machine makes a cluster",
    "ray.air": "Ray's libraries for training do not run on sooner",
    "ray.client": "a driver on another machine is an ordinary one: ray.init(address='host:port')",
    "ray.cross_language": "tasks are functions in Python",
    "ray.dag": "graphs of tasks (bind) are for a version to come; pass references to tasks instead",
    "ray.data": "Ray Data does not run on sooner; generators and ray.util.map_unordered stream through tasks",
    "ray.job_config": "jobs that are submitted are for a version to come",
    "ray.job_submission": "jobs that are submitted are for a version to come",
    "ray.llm": "Ray's libraries do not run on sooner",
    "ray.rllib": "Ray RLlib does not run on sooner",
    "ray.runtime_env": "runtime environments are for a version to come",
    "ray.serve": "Ray Serve does not run on sooner",
    "ray.train": "Ray Train does not run on sooner; docs/training.md trains with tasks, actors and ray.util.collective",
    "ray.tune": "Ray Tune does not run on sooner; ray.wait and generators stop trials early",
    "ray.util.client": "a driver on another machine is an ordinary one: ray.init(address='host:port')",
    "ray.util.iter": "Ray has deprecated it: use generators",
    "ray.util.rpdb": "breakpoint() works in tasks and actors",
    "ray.workflow": "Ray has no workflows any more, either",
}
