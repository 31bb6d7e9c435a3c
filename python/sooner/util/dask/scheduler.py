"""The scheduler as Dask calls it, and the settings that make it the default.

Everything public of `sooner.util.dask` except callbacks is here. The modules beside this one prepare, submit
and observe graphs.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import dask
import dask.base
from dask.callbacks import local_callbacks
from dask.core import flatten
from dask.local import nested_get
from dask.tokenize import normalize_token

import sooner
from sooner.util.checks import check_at_least
from sooner.util.dask.annotations import default_options, of_fused, options_by_key
from sooner.util.dask.callbacks import Progress, SoonerDaskCallback, active_callbacks
from sooner.util.dask.computation import Calls, Computation
from sooner.util.dask.graph import Graph, fused, graph_of

_SPLITS = "sooner.split-tasks"

# Dask names collections after their graphs. Without this, Dask would pickle references for the names, which
# keeps the objects for ever.
normalize_token.register(sooner.ObjectRef, lambda ref: ("sooner.ObjectRef", ref.hex()))


def sooner_dask_get(
    dsk: Any,
    keys: Any,
    *,
    sooner_callbacks: Sequence[SoonerDaskCallback] | None = None,
    sooner_persist: bool | None = None,
    sooner_remote_args: Mapping[str, Any] | None = None,
    num_workers: int | None = None,
    callbacks: Any = None,
    **others: Any,
) -> Any:
    """Computes keys of a graph with sooner's tasks. A session is started if there is none.

    Usually given to Dask, which then calls it: `x.compute(scheduler=sooner_dask_get)`. What follows `keys`
    below can be given to `compute` and `persist`, too; Ray's names (`ray_persist`, ...) are taken as well.

    Args:
        dsk: The graph.
        keys: A key, or a list of keys and lists.
        sooner_callbacks: Callbacks of this computation, instead of those that are active.
        sooner_persist: Whether the results stay in the object store: references are returned instead of
            values, when the last task was submitted, and errors show when they are used. By default so if
            `persist` calls.
        sooner_remote_args: Options of all tasks, as for `.options()` of a remote function, such as
            `num_cpus`. Those of annotations go before.
        num_workers: Tasks under way at most. By default some more than can run.
        callbacks: Dask's callbacks of this computation, instead of those that are active.
        **others: Keywords of Dask's other schedulers, which mean nothing here.

    Returns:
        The value for a key; a tuple for a list.

    Raises:
        KeyError: A key is not in the graph.
        ValueError: A task depends on a key that is not in the graph, or an option is wrong.
        TypeError: An argument that begins with `sooner_` does not exist or has a wrong type.
        Exception: What a task raised.

    Example:
        >>> dask.delayed(sum)([1, 2]).compute(scheduler=sooner_dask_get)  # doctest: +SKIP
        3
    """
    if unknown := [name for name in others if name.startswith("sooner_")]:
        raise TypeError(
            f"sooner_dask_get() has no argument {unknown[0]!r}: "
            "there are sooner_callbacks, sooner_persist and sooner_remote_args"
        )
    if num_workers is not None:
        check_at_least("num_workers", num_workers, 1)
    if sooner_persist is None:
        # Dask does not tell its schedulers whether it wants data or references to data.
        sooner_persist = sys._getframe(1).f_code is dask.base.persist.__code__
    ray_names = [name for name in others if name.startswith("ray_")]
    if renamed := {f"sooner_{name.removeprefix('ray_')}": others.pop(name) for name in ray_names}:
        given = {
            "sooner_callbacks": sooner_callbacks,
            "sooner_persist": sooner_persist,
            "sooner_remote_args": sooner_remote_args,
        }
        more = {"num_workers": num_workers, "callbacks": callbacks}
        return sooner_dask_get(dsk, keys, **{**given, **renamed, **more}, **others)
    wanted: list[Hashable] = list(dict.fromkeys(flatten(keys))) if isinstance(keys, list) else [keys]
    with active_callbacks(sooner_callbacks) as ours, local_callbacks(callbacks) as theirs:
        by_key = options_by_key(dsk)
        splits = dask.config.get(_SPLITS, True)
        options = default_options(sooner_remote_args)
        # Callbacks get the tasks that were given, and options belong to those tasks: neither allows fusion.
        is_fusible = ours.are_none and not by_key
        converted = fused(dsk, wanted, splits) if is_fusible else graph_of(dsk, splits)
        own = of_fused(converted, by_key)
        graph = Graph(converted, wanted, own, splits=splits)
        calls = Calls(options, own)
        progress = Progress([tuple(one) for one in theirs if any(one)], converted, graph.tasks())
        flight = calls.flight(num_workers)
        computation = Computation(graph, calls, ours, progress, flight)
        succeeded = False
        try:
            progress.start()
            computation.submit()
            places = computation.places(wanted)
            for function in ours.postsubmit_all:
                function(places, dsk)
            if sooner_persist:
                values = places
            else:
                computation.wait()
                values = _values(places)
            succeeded = True
        except BaseException:
            flight.cancel()
            # The traceback keeps this frame alive, which would keep the results, too.
            computation.clear()
            raise
        finally:
            progress.finish(not succeeded)
        for function in ours.finish:
            function(values)
    return nested_get(keys, dict(zip(wanted, values, strict=True)))


def sooner_dask_get_sync(dsk: Any, keys: Any, **options: Any) -> Any:
    """Computes keys of a graph with one task after the other, each in a worker: to find out what goes wrong
        where.

    Args:
        dsk: The graph.
        keys: A key, or a list of keys and lists.
        **options: Those of `sooner_dask_get`, except for `num_workers`.

    Returns:
        The value for a key; a tuple for a list.

    Raises:
        Exception: As `sooner_dask_get`.
    """
    if options.get("sooner_persist") is None:
        options["sooner_persist"] = sys._getframe(1).f_code is dask.base.persist.__code__
    return sooner_dask_get(dsk, keys, **{**options, "num_workers": 1})


def enable_dask_on_sooner(shuffle: str | None = "tasks", use_shuffle_optimization: bool = True) -> Any:
    """Makes sooner the scheduler of Dask's collections: from now on, or inside a `with` statement.

    Args:
        shuffle: How Dask shuffles: "tasks", which works with any number of nodes, or "disk" (needs a file
            system that all nodes have).
        use_shuffle_optimization: Whether a task whose result is only taken apart by others returns the parts,
            so that each consumer gets its own and no more.

    Returns:
        A context manager whose end restores the settings before. It need not be used.

    Raises:
        ValueError: `shuffle` is something else.

    Example:
        >>> enable_dask_on_sooner()  # doctest: +SKIP
        >>> dask.delayed(sum)([1, 2]).compute()  # doctest: +SKIP
        3
    """
    if shuffle not in ("tasks", "disk", None):
        raise ValueError(f"shuffle={shuffle!r}: use 'tasks', 'disk' or None, which leaves Dask's setting as it is")
    settings: dict[str, Any] = {"scheduler": sooner_dask_get, _SPLITS: use_shuffle_optimization}
    if shuffle is not None:
        settings["dataframe.shuffle.method"] = shuffle
    return dask.config.set(settings)


def disable_dask_on_sooner() -> Any:
    """Gives Dask its own schedulers and its own way to shuffle back, after `enable_dask_on_sooner()`.

    Returns:
        A context manager whose end restores the settings before. It need not be used.
    """
    return dask.config.set({"scheduler": None, "dataframe.shuffle.method": None, _SPLITS: True})


def _values(places: list[Any]) -> list[Any]:
    """Replace references by their values; data of the graph stays as it is."""
    refs = list(dict.fromkeys(place for place in places if isinstance(place, sooner.ObjectRef)))
    # Programs may change the arrays, as with Dask's own schedulers; a page is copied when it is written.
    values: dict[sooner.ObjectRef[Any], Any] = dict(zip(refs, sooner.get(refs, copy=True), strict=True))
    return [values[place] if isinstance(place, sooner.ObjectRef) else place for place in places]
