"""The systems of the rows on memory: how each starts, is given an array, and computes for Dask.

Each is a context manager whose end leaves no process. Imported late by the probes: what a system
needs is loaded only where it is measured.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

# What Dask's own schedulers may take: they know no limit of memory, and others need some, too.
PROCESS_BYTES_MAX = 10_000_000_000
# Runs the body on the array so often, and gives all results.
Cast = Callable[[Callable[[Any], float], int], list[float]]


@dataclass
class System:
    """A system that has started.

    Attributes:
        version: Its own.
        share: Brings an array to it; what tasks are then run with.
        settings: Of Dask, for collections that it shall compute.
    """

    version: str
    share: Callable[[Any], Cast]
    settings: dict[str, Any]


@contextlib.contextmanager
def sooner(workers: int, store: int) -> Iterator[System]:
    """sooner, with everything by default but the size of its store."""
    import sooner as api
    from sooner.util.dask import sooner_dask_get

    def share(array: Any) -> Cast:
        ref = api.put(array)

        def cast(body: Callable[[Any], float], count: int) -> list[float]:
            task = api.remote(body)
            return list(api.get([task.remote(ref) for _ in range(count)]))

        return cast

    settings = {"scheduler": sooner_dask_get, "dataframe.shuffle.method": "tasks"}
    with api.init(num_cpus=workers, object_store_memory=store, spill_directories=[_scratch()]):
        yield System(api.__version__, share, settings)


@contextlib.contextmanager
def ray(workers: int, store: int) -> Iterator[System]:
    """Ray, and Dask on Ray."""
    import ray as api
    from ray.util.dask import ray_dask_get

    def share(array: Any) -> Cast:
        ref = api.put(array)

        def cast(body: Callable[[Any], float], count: int) -> list[float]:
            task = api.remote(body)
            return list(api.get([task.remote(ref) for _ in range(count)]))

        return cast

    api.init(
        num_cpus=workers,
        # The least that it takes.
        object_store_memory=max(store, 80_000_000),
        include_dashboard=False,
        log_to_driver=False,
    )
    try:
        settings = {"scheduler": ray_dask_get, "dataframe.shuffle.method": "tasks"}
        yield System(api.__version__, share, settings)
    finally:
        api.shutdown()


def _dask_local(scheduler: str, workers: int) -> System:
    import dask

    def share(array: Any) -> Cast:
        # With a name, or Dask would hash the array for one.
        value = dask.delayed(array, name="array", traverse=False)

        def cast(body: Callable[[Any], float], count: int) -> list[float]:
            task = dask.delayed(body, pure=False)
            calls = [task(value) for _ in range(count)]
            return list(dask.compute(*calls, scheduler=scheduler, num_workers=workers))

        return cast

    return System(dask.__version__, share, {"scheduler": scheduler, "num_workers": workers})


@contextlib.contextmanager
def dask_threads(workers: int, _store: int) -> Iterator[System]:
    """Dask's threads in the driver; shuffles go through files."""
    _bound_process()
    yield _dask_local("threads", workers)


@contextlib.contextmanager
def dask_processes(workers: int, _store: int) -> Iterator[System]:
    """Dask's pool of processes, to which every task carries its arguments."""
    _bound_process()
    yield _dask_local("processes", workers)


@contextlib.contextmanager
def _distributed(workers: int, store: int, settings: dict[str, Any]) -> Iterator[System]:
    import distributed

    # What sooner may have: the store, and for each worker a heap of half of it and an interpreter.
    each = store // workers + store // 2 + 200_000_000
    with (
        distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            memory_limit=each,
            dashboard_address=None,
            local_directory=_scratch(),
        ) as cluster,
        distributed.Client(cluster) as client,
    ):

        def share(array: Any) -> Cast:
            future = client.scatter(array, broadcast=True, hash=False)

            def cast(body: Callable[[Any], float], count: int) -> list[float]:
                calls = [client.submit(body, future, pure=False) for _ in range(count)]
                return list(client.gather(calls))

            return cast

        yield System(distributed.__version__, share, settings)


def dask(workers: int, store: int) -> contextlib.AbstractContextManager[System]:
    """Dask distributed as it comes: its shuffle goes from worker to worker and through files."""
    return _distributed(workers, store, {})


def dask_tasks(workers: int, store: int) -> contextlib.AbstractContextManager[System]:
    """Dask distributed with the shuffle that is made of tasks, as on sooner and Ray."""
    return _distributed(workers, store, {"dataframe.shuffle.method": "tasks"})


def _bound_process() -> None:
    """No more memory for this process, and no more for each that it starts."""
    resource.setrlimit(resource.RLIMIT_DATA, (PROCESS_BYTES_MAX, PROCESS_BYTES_MAX))


def _scratch() -> str:
    """Where the run may write; all of it is removed at its end."""
    return os.environ["DASK_TEMPORARY_DIRECTORY"]


SYSTEMS: dict[str, Callable[[int, int], contextlib.AbstractContextManager[System]]] = {
    "sooner": sooner,
    "ray": ray,
    "dask": dask,
    "dask_tasks": dask_tasks,
    "dask_threads": dask_threads,
    "dask_processes": dask_processes,
}
