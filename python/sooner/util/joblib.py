"""A joblib backend: `joblib.Parallel`, and scikit-learn's `n_jobs`, on sooner's workers.

Batches of calls are tasks. Large arrays among their arguments are put into shared memory once, whatever
the number of calls that use them, and are read there in place.
"""

from __future__ import annotations

import contextlib
import contextvars
import importlib.util
import io
import multiprocessing
import os
import sys
import threading
import traceback
import warnings
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

import cloudpickle

import sooner
from sooner import cloudpickle as pickling
from sooner.exceptions import TaskError
from sooner.util.checks import check_at_least
from sooner.util.executor import Executor
from sooner.util.remote_errors import original, with_traceback
from sooner.util.script_globals import call_inner

try:
    from joblib import register_parallel_backend
    from joblib.parallel import AutoBatchingMixin, FallbackToBackend, ParallelBackendBase, SequentialBackend
except ImportError as missing:
    raise ImportError("sooner.util.joblib needs joblib 1.5 or later: pip install 'joblib>=1.5'") from missing

__all__ = ["SoonerBackend", "register", "register_ray", "register_sooner"]

_NAMES = ("sooner", "ray")
# Arrays of at least this size (bytes) are shared, unless `Parallel(max_nbytes=...)` sets another: joblib's
# own default.
_SHARED_BYTES = 1 << 20

# In a worker while it unpickles a batch: the batch's shared arrays.
_arrays: contextvars.ContextVar[tuple[Any, ...]] = contextvars.ContextVar("arrays")


def register() -> None:
    """Make the backend known to joblib as "sooner", and as "ray" for programs that use that name.

    Example:
        >>> import joblib
        >>> sooner.util.joblib.register()
        >>> with joblib.parallel_config(backend="sooner"):  # doctest: +SKIP
        ...     joblib.Parallel()(joblib.delayed(abs)(n) for n in range(-3, 0))
        [3, 2, 1]
    """
    for name in _NAMES:
        register_parallel_backend(name, SoonerBackend)


register_ray = register
register_sooner = register


class SoonerBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """What joblib calls. Made by joblib: use `register`, then `joblib.parallel_config(backend="sooner")`.

    Args:
        nesting_level: How deep in other parallel calls it is used.
        inner_max_num_threads: Threads that libraries such as BLAS may use in each worker; by default the CPUs
            divided by the workers.
        ray_remote_args: Options of the tasks, as for `.options()` of a remote function, such as `num_gpus`.
        initializer: Called in every worker process before its first call for a `Parallel`, unless that has
            its own.
        initargs: Its arguments.
        backend_kwargs: What joblib's own backends take besides; without effect.
    """

    supports_retrieve_callback = True
    supports_inner_max_num_threads = True
    # Without `n_jobs`, all CPUs of the session.
    default_n_jobs = -1
    # joblib makes batches longer until one takes about this long (seconds). A batch of sooner costs a tenth
    # of a batch of joblib's own backends.
    MIN_IDEAL_BATCH_DURATION = 0.02
    MAX_IDEAL_BATCH_DURATION = 0.2

    def __init__(
        self,
        nesting_level: int | None = None,
        inner_max_num_threads: int | None = None,
        ray_remote_args: dict[str, Any] | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        **backend_kwargs: Any,
    ) -> None:
        super().__init__(nesting_level=nesting_level, inner_max_num_threads=inner_max_num_threads, **backend_kwargs)
        self._options = ray_remote_args
        self._initializer = initializer, initargs
        self._executor: Executor | None = None
        self._shared = _SharedArrays(None)
        self._threads: int | None = None
        self._makes_copies = False

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """The number of calls at the same time.

        Args:
            n_jobs: As given to `Parallel`; negative numbers count from the CPUs of the session: -1 is all of
                them.

        Raises:
            ValueError: It is 0.
        """
        if n_jobs is None:
            return 1
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs != 1 and multiprocessing.current_process().daemon:
            # As joblib's own backends of processes do: a forked copy of the program has no session, and ends
            # without notice.
            message = "sooner-backed parallel loops cannot be called in a multiprocessing, setting n_jobs=1"
            warnings.warn(message, stacklevel=3)
            return 1
        return n_jobs if n_jobs > 0 else max(1, _cpus() + 1 + n_jobs)

    def configure(
        self,
        n_jobs: int = 1,
        parallel: Any = None,
        prefer: str | None = None,
        require: str | None = None,
        max_nbytes: int | None = _SHARED_BYTES,
        mmap_mode: str | None = "r",
        ray_remote_args: dict[str, Any] | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        **_ignored: Any,
    ) -> int:
        """Prepare for a call of `Parallel`; says how many calls will run at the same time.

        Args:
            n_jobs: As given to `Parallel`.
            parallel: The `Parallel`.
            prefer: Decided by joblib before.
            require: Decided by joblib before.
            max_nbytes: Arrays from this size on (bytes) are shared; `None` for none of them.
            mmap_mode: "r": shared arrays are read-only. "c": each call has its own copy. `None`: nothing is
                shared.
            ray_remote_args: Options of the tasks.
            initializer: Called in every worker process before its first call for this `Parallel`.
            initargs: Its arguments.
        """
        jobs = self.effective_n_jobs(n_jobs)
        if jobs == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        if mmap_mode not in ("r", "c", None):
            raise ValueError(
                f"mmap_mode={mmap_mode!r}: arrays in sooner's shared memory cannot be written. "
                "Use 'r' (read-only), 'c' (a copy for each call) or None (nothing is shared)"
            )
        if max_nbytes is not None:
            check_at_least("max_nbytes", max_nbytes, 0)
        options = dict(ray_remote_args or self._options or {})
        context = sooner.get_runtime_context()
        if context.get_task_id() is not None or context.get_actor_id() is not None:
            # The task that waits for these calls holds its CPU meanwhile: the calls must not need another
            # CPU.
            options.setdefault("num_cpus", 0)
        if initializer is None:
            initializer, initargs = self._initializer
        self._executor = Executor(
            jobs, initializer=initializer, initargs=initargs, options=options, _takes_copies=False
        )
        self._shared = _SharedArrays(None if mmap_mode is None else max_nbytes)
        self._makes_copies = mmap_mode == "c"
        self._threads = self._thread_limit(jobs)
        self.parallel = parallel
        return jobs

    @property
    def _workers(self) -> Executor | None:
        """The executor. joblib's backends have this attribute, and programs check that it is there."""
        return self._executor

    def submit(self, func: Callable[[], Any], callback: Callable[[Any], None] | None = None) -> Future[Any]:
        """Schedule a batch."""
        assert self._executor is not None, "joblib configures a backend before it submits"
        pickled, arrays = self._shared.dumps(func)
        future = self._executor.submit(_run, pickled, self._threads, self._makes_copies, *arrays)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        """The results of a batch, or its exception."""
        error = out.exception()
        if error is not None:
            raise _open_to_change(original(error))
        result = out.result()
        if isinstance(result, _Left):
            raise _open_to_change(with_traceback(result.error, result.traceback))
        return result

    def retrieval_context(self) -> contextlib.AbstractContextManager[Any]:
        """Around joblib's loop, which sleeps between its looks at the results."""
        # Not a `@contextmanager`: that would set the traceback of an error, whose class may be frozen.
        ending = contextlib.ExitStack()
        executor = self._executor
        if executor is not None:
            until = threading.Event()
            ending.callback(until.set)
            threading.Thread(target=_attend, args=(executor, until), name="sooner-joblib", daemon=True).start()
        return ending

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel the batches that wait and interrupt those that run."""
        if self._executor is not None:
            self._executor.terminate_workers()
            self._executor = None
        if ensure_ready:
            self.configure(n_jobs=self.parallel.n_jobs, parallel=self.parallel, **self.parallel._backend_kwargs)

    def terminate(self) -> None:
        """A call of `Parallel` has ended. The workers stay for the next one."""
        if self._executor is not None:
            self._executor.shutdown(wait=False)
            self._executor = None
        self._shared = _SharedArrays(None)
        self.reset_batch_stats()

    def _thread_limit(self, jobs: int) -> int | None:
        if self.inner_max_num_threads is not None:
            return int(self.inner_max_num_threads)
        if any(name in os.environ for name in self.MAX_NUM_THREADS_VARS):
            return None
        return max(1, (os.cpu_count() or 1) // jobs)


def _open_to_change(error: BaseException) -> BaseException:
    """An error whose traceback can be set: joblib sets it, and waits for ever if a frozen class refuses."""
    try:
        error.__traceback__ = None
    except Exception:
        # Still an instance of the same class.
        return TaskError("batch", str(error.__cause__), error).as_instanceof_cause()
    return error


def _attend(executor: Executor, until: threading.Event) -> None:
    # The session may end before the loop does.
    with contextlib.suppress(Exception):
        executor._attend(until)


def _cpus() -> int:
    return max(1, int(sooner.cluster_resources().get("CPU", 1)))


class _SharedArrays:
    """The large arrays among the arguments of one `Parallel` call; each is put once while it is alive."""

    def __init__(self, bytes_min: int | None) -> None:
        self.bytes_min = bytes_min
        # By `id(array)`: the reference, and the weak reference that removes the entry when the array is
        # freed.
        self._refs: dict[int, tuple[sooner.ObjectRef[Any], weakref.ref[Any]]] = {}

    def dumps(self, func: Any) -> tuple[bytes, list[sooner.ObjectRef[Any]]]:
        """Pickle a batch; its large arrays are left out and returned as references."""
        file = io.BytesIO()
        pickler = _Pickler(file, self)
        pickler.dump(func)
        return file.getvalue(), pickler.found

    def share(self, array: Any) -> sooner.ObjectRef[Any]:
        """The reference of an array, which is put on first use."""
        key = id(array)
        known = self._refs.get(key)
        if known is not None:
            return known[0]
        ref = sooner.put(array)
        refs = self._refs
        self._refs[key] = ref, weakref.ref(array, lambda _: refs.pop(key, None))
        return ref


class _Pickler(pickling.ValuePickler):
    def __init__(self, file: io.BytesIO, shared: _SharedArrays) -> None:
        super().__init__(file, protocol=5)
        self._shared = shared
        self._numpy = sys.modules.get("numpy")
        self.found: list[sooner.ObjectRef[Any]] = []

    def reducer_override(self, obj: Any) -> Any:
        if self._numpy is not None and isinstance(obj, self._numpy.ndarray):
            reduced = pickling.reduce_to_file(obj)
            if reduced is not None:
                return reduced
            bytes_min = self._shared.bytes_min
            if bytes_min is not None and obj.nbytes >= bytes_min and not obj.dtype.hasobject:
                self.found.append(self._shared.share(obj))
                return _array, (len(self.found) - 1,)
            return NotImplemented
        return super().reducer_override(obj)


def _array(index: int) -> Any:
    """In a worker: a shared array of the batch that is being unpickled."""
    return _arrays.get()[index]


def _run(pickled: bytes, threads: int | None, makes_copies: bool, *arrays: Any) -> Any:
    """In a worker: run one batch."""
    register()
    if makes_copies:
        arrays = tuple(array.copy() for array in arrays)
    token = _arrays.set(arrays)
    try:
        func = cloudpickle.loads(pickled)
    finally:
        _arrays.reset(token)
    with _limited(threads):
        try:
            return call_inner(func)
        except (KeyboardInterrupt, SystemExit) as error:
            if sooner.get_runtime_context().is_canceled():
                raise
            return _Left(error, traceback.format_exc())


class _Left(NamedTuple):
    """An error of a batch that, raised by a task, would mean a cancelled task or a worker that ends."""

    error: BaseException
    traceback: str


def _limited(threads: int | None) -> contextlib.AbstractContextManager[Any]:
    """Limit the threads of libraries such as BLAS, until the context manager exits."""
    if threads is None or importlib.util.find_spec("threadpoolctl") is None:
        return contextlib.nullcontext()
    limits: contextlib.AbstractContextManager[Any] = _controller(len(sys.modules)).limit(limits=threads)
    return limits


_controllers: dict[int, Any] = {}


def _controller(modules: int) -> Any:
    """The controller; searching for libraries costs milliseconds, so it is redone only after new imports."""
    controller = _controllers.get(modules)
    if controller is None:
        from threadpoolctl import ThreadpoolController

        _controllers.clear()
        controller = _controllers[len(sys.modules)] = ThreadpoolController()
    return controller
