"""Callbacks of the scheduler: `SoonerDaskCallback`, with the events that Dask-on-Ray has, and Dask's own.

Four of its events happen in the program that computes; `pretask` and `posttask` happen in the workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar

from dask.callbacks import Callback

from sooner.util.dask.worker import Hooks

_EVENTS = (
    "sooner_presubmit",
    "sooner_postsubmit",
    "sooner_pretask",
    "sooner_posttask",
    "sooner_postsubmit_all",
    "sooner_finish",
)


_is_computing: ContextVar[bool] = ContextVar("is_computing", default=False)


def _ray_name(event: str) -> str:
    """The name of an event in programs for Ray."""
    return event.replace("sooner_", "ray_", 1)


class SoonerDaskCallback(Callback):  # type: ignore[misc]
    """Hears what happens to the tasks of graphs that are computed while it is active, as a context or by
    `register()`.

    Derive from it and define some of the methods, or give functions. The callbacks of Dask (`start`,
    `pretask`, ...) can be given, too: they are called in the program that computes.

    Args:
        sooner_presubmit: In place of the method `_sooner_presubmit`.
        sooner_postsubmit: In place of `_sooner_postsubmit`.
        sooner_pretask: In place of `_sooner_pretask`.
        sooner_posttask: In place of `_sooner_posttask`.
        sooner_postsubmit_all: In place of `_sooner_postsubmit_all`.
        sooner_finish: In place of `_sooner_finish`.
        **callbacks: Dask's: `start`, `start_state`, `pretask`, `posttask`, `finish`. Those above are taken
            under Ray's names, too (`ray_presubmit`, ..., and methods such as `_ray_presubmit`).

    Example:
        >>> with SoonerDaskCallback(sooner_finish=print):  # doctest: +SKIP
        ...     dask.delayed(sum)([1, 2]).compute(scheduler=sooner_dask_get)
        [3]
        3
    """

    # In the order of their activation.
    sooner_active: ClassVar[dict[SoonerDaskCallback, None]] = {}

    def __init__(
        self,
        *,
        sooner_presubmit: Callable[[Any, Any, Mapping[Any, Any]], Any] | None = None,
        sooner_postsubmit: Callable[[Any, Any, Mapping[Any, Any], Any], object] | None = None,
        sooner_pretask: Callable[[Any, tuple[Any, ...]], Any] | None = None,
        sooner_posttask: Callable[[Any, Any, Any], object] | None = None,
        sooner_postsubmit_all: Callable[[list[Any], Any], object] | None = None,
        sooner_finish: Callable[[Any], object] | None = None,
        **callbacks: Any,
    ) -> None:
        given = (
            sooner_presubmit,
            sooner_postsubmit,
            sooner_pretask,
            sooner_posttask,
            sooner_postsubmit_all,
            sooner_finish,
        )
        for event, function in zip(_EVENTS, given, strict=True):
            function = callbacks.pop(_ray_name(event), function)
            if function is not None:
                setattr(self, f"_{event}", function)
        super().__init__(**callbacks)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for event in _EVENTS:
            if method := vars(cls).get(f"_{_ray_name(event)}"):
                setattr(cls, f"_{event}", method)

    def register(self) -> None:
        """Makes it active until `unregister()`."""
        SoonerDaskCallback.sooner_active[self] = None
        super().register()

    def unregister(self) -> None:
        """Ends what `register()` began."""
        SoonerDaskCallback.sooner_active.pop(self, None)
        super().unregister()

    def __enter__(self) -> SoonerDaskCallback:
        SoonerDaskCallback.sooner_active[self] = None
        super().__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        SoonerDaskCallback.sooner_active.pop(self, None)

    def _sooner_presubmit(self, task: Any, key: Any, deps: Mapping[Any, Any]) -> Any:
        """Called before a task is submitted.

        Args:
            task: The task: Dask's `Task`, or the function and its arguments as the graph has them.
            key: Its key.
            deps: By key, what it depends on: references, or data of the graph.

        Returns:
            None; or a value that takes the place of the task's result, which is then not submitted.
        """

    def _sooner_postsubmit(self, task: Any, key: Any, deps: Mapping[Any, Any], object_ref: Any) -> None:
        """Called after a task was submitted.

        Args:
            task: The task.
            key: Its key.
            deps: What it depends on.
            object_ref: The reference of its result; a list of them if others take items of it.
        """

    def _sooner_pretask(self, key: Any, object_refs: tuple[Any, ...]) -> Any:
        """Called in the worker before a task is executed.

        Args:
            key: Its key.
            object_refs: The values of what it depends on.

        Returns:
            What `_sooner_posttask` gets as `pre_state`.
        """

    def _sooner_posttask(self, key: Any, result: Any, pre_state: Any) -> None:
        """Called in the worker after a task was executed.

        Args:
            key: Its key.
            result: What it returned.
            pre_state: What `_sooner_pretask` returned.
        """

    def _sooner_postsubmit_all(self, object_refs: list[Any], dsk: Any) -> None:
        """Called after the last task was submitted.

        Args:
            object_refs: References, or data of the graph, for the keys that are computed.
            dsk: The graph.
        """

    def _sooner_finish(self, result: Any) -> None:
        """Called at the end.

        Args:
            result: A list of values for the keys that are computed, before the collection puts them
                together; of references when it is persisted.
        """


class Callbacks:
    """Some callbacks by event.

    Args:
        callbacks: They.
    """

    def __init__(self, callbacks: Iterable[SoonerDaskCallback]) -> None:
        active = list(callbacks)
        for callback in active:
            if not isinstance(callback, SoonerDaskCallback):
                raise TypeError(f"sooner_callbacks takes SoonerDaskCallback objects, not {type(callback).__name__}")
        by_event = [[_defined(callback, event) for callback in active] for event in _EVENTS]
        before, after = by_event[2], by_event[3]
        self.presubmit, self.postsubmit, _, _, self.postsubmit_all, self.finish = (
            [function for function in functions if function is not None] for functions in by_event
        )
        pairs = [pair for pair in zip(before, after, strict=True) if pair != (None, None)]
        self.are_none = not active
        self.hooks = Hooks([one for one, _ in pairs], [other for _, other in pairs]) if pairs else None

    def replacement(self, task: Any, key: Any, deps: Mapping[Any, Any]) -> Any:
        """The first value that takes the place of a task's result; None if it has to be executed."""
        found = [function(task, key, deps) for function in self.presubmit]
        return next((value for value in found if value is not None), None)


def _defined(callback: SoonerDaskCallback, event: str) -> Callable[..., Any] | None:
    """The callback's method for an event; `None` if it is the empty method of the base class."""
    method: Callable[..., Any] = getattr(callback, f"_{event}")
    own = getattr(SoonerDaskCallback, f"_{event}")
    if getattr(method, "__func__", None) is own:
        return None
    if event in ("sooner_pretask", "sooner_posttask") and getattr(method, "__self__", None) is callback:
        return _InWorker(type(callback), dict(callback.__dict__), event)
    return method


class _InWorker:
    """A callback's method for workers, without Dask's open context: that stays where it was entered."""

    def __init__(self, cls: type[SoonerDaskCallback], state: dict[str, Any], event: str) -> None:
        self._callback = cls.__new__(cls)
        others = {"_cm", *(f"_{name}" for name in _EVENTS)}
        self._callback.__dict__.update({name: value for name, value in state.items() if name not in others})
        self._event = event

    def __call__(self, *args: Any) -> Any:
        return getattr(self._callback, f"_{self._event}")(*args)


@contextmanager
def active_callbacks(given: Sequence[SoonerDaskCallback] | None) -> Iterator[Callbacks]:
    """The callbacks of one computation. Computations inside it do not hear of those that are active around
    it.

    Args:
        given: Instead of those that are active.
    """
    # The table of active callbacks is not emptied, as Dask does: other threads compute, too.
    outermost: Sequence[SoonerDaskCallback] = [] if _is_computing.get() else list(SoonerDaskCallback.sooner_active)
    active = outermost if given is None else given
    token = _is_computing.set(True)
    try:
        yield Callbacks(active)
    finally:
        _is_computing.reset(token)


class Progress:
    """What Dask's own callbacks, such as `dask.diagnostics.ProgressBar`, see of a computation.

    Args:
        callbacks: Tuples of Dask's five callbacks.
        graph: The graph.
        tasks: The keys of its tasks.
    """

    def __init__(self, callbacks: Iterable[tuple[Any, ...]], graph: Any, tasks: Sequence[Any]) -> None:
        self._callbacks = list(callbacks)
        self._graph = graph
        self._started: list[tuple[Any, ...]] = []
        # Dask's diagnostics count the entries.
        self.state: dict[str, Any] = {
            "waiting": dict.fromkeys(tasks),
            "ready": [],
            "running": set(),
            "finished": set(),
            "released": set(),
            "cache": {},
            "dependencies": {},
            "dependents": {},
            "waiting_data": {},
        }

    def start(self) -> None:
        """The computation begins."""
        for callback in self._callbacks:
            if callback[0]:
                callback[0](self._graph)
            self._started.append(callback)
        for callback in self._callbacks:
            if callback[1]:
                callback[1](self._graph, self.state)

    def submitted(self, key: Any) -> None:
        """A task is about to be submitted."""
        if not self._callbacks:
            return
        self.state["waiting"].pop(key, None)
        self.state["running"].add(key)
        for callback in self._callbacks:
            if callback[2]:
                callback[2](key, self._graph, self.state)

    def ended(self, keys: Iterable[Any]) -> None:
        """Tasks have ended. Their values are elsewhere: callbacks get None for them."""
        if not self._callbacks:
            return
        for key in keys:
            self.state["running"].discard(key)
            self.state["finished"].add(key)
            for callback in self._callbacks:
                if callback[3]:
                    callback[3](key, None, self._graph, self.state, None)

    def finish(self, failed: bool) -> None:
        """The computation is over."""
        for callback in self._started:
            if callback[4]:
                callback[4](self._graph, self.state, failed)
