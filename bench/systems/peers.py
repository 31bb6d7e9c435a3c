"""How each peer is started, asked for a first task, and stopped.

Nothing is imported at the top: the agent times a start from before the peer's import until the
first answer, and a module loaded earlier would flatter it.
"""

from __future__ import annotations

NAMES = ("sooner", "ray", "pool", "executor", "dask", "loky")
# These are measured on hosts of their own only.
HOSTS_NAMES = ("openmpi", "gloo")

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    # The handle of the rows, the version, and what stops the peer.
    Session = tuple[Any, str, Callable[[], object]]


def start_core(name: str, workers: int) -> Session:
    """Start sooner or Ray; the handle is the module itself."""
    import importlib

    api = importlib.import_module(name)
    if name == "ray":
        api.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
    else:
        api.init(num_cpus=workers)
    return api, api.__version__, api.shutdown


def _core(name: str, workers: int) -> Session:
    api, version, stop = start_core(name, workers)
    from bodies import plain as bodies

    assert api.get(api.remote(bodies.ok).remote()) == b"ok"
    return api, version, stop


def _pool(workers: int) -> Session:
    import multiprocessing
    import platform

    pool = multiprocessing.Pool(workers)
    from bodies import plain as bodies

    assert pool.apply(bodies.ok) == b"ok"

    def stop() -> None:
        pool.terminate()
        pool.join()

    return pool, platform.python_version(), stop


def _executor(workers: int) -> Session:
    import platform
    from concurrent.futures import ProcessPoolExecutor

    executor = ProcessPoolExecutor(workers)
    from bodies import plain as bodies

    assert executor.submit(bodies.ok).result() == b"ok"
    return executor, platform.python_version(), executor.shutdown


def _dask(workers: int) -> Session:
    import distributed

    cluster = distributed.LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None
    )
    client = distributed.Client(cluster)
    from bodies import plain as bodies

    assert client.submit(bodies.ok, pure=False).result() == b"ok"

    def stop() -> None:
        client.close()
        cluster.close()

    return client, distributed.__version__, stop


def _loky(workers: int) -> Session:
    import joblib

    with joblib.parallel_config(backend="loky", n_jobs=workers):
        from bodies import plain as bodies

        answers = joblib.Parallel()(joblib.delayed(bodies.ok)() for _ in range(workers))
    assert answers == [b"ok"] * workers

    def stop() -> None:
        joblib.externals.loky.get_reusable_executor().shutdown(wait=True)

    return workers, joblib.__version__, stop


def start(name: str, workers: int) -> Session:
    """Start a peer and have one task answered."""
    if name in ("sooner", "ray"):
        return _core(name, workers)
    if name == "pool":
        return _pool(workers)
    if name == "executor":
        return _executor(workers)
    if name == "dask":
        return _dask(workers)
    if name == "loky":
        return _loky(workers)
    assert name == "limits", name
    return None, "", lambda: None
