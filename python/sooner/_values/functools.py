"""Pickling of objects of `functools` and `typing` that a script makes at its top level.

pickle refers to them by module and name, but other processes cannot find a script's `__main__`; or pickle
fails on the locks and weak references in them. Here they travel as the parts they were made from. Caches
arrive empty. A type arrives as the same object each time in a process, as classes do.
"""

from __future__ import annotations

import functools
import typing
import weakref
from collections.abc import Callable
from typing import Any

from cloudpickle.cloudpickle import (
    _DYNAMIC_CLASS_TRACKER_BY_ID,
    _get_or_create_tracker_id,
    _lookup_class_or_track,
)

from sooner._values import unfindable
from sooner._values.classes import remember

_LruCache = type(functools.lru_cache(lambda: None))


def _is_found_by_name(value: Any) -> bool:
    found = unfindable.module_of(value)
    if found is None:
        return False
    for part in _name_of(value).split("."):
        found = getattr(found, part, None)
    return found is value


def _name_of(value: Any) -> str:
    # Type variables have no `__qualname__`.
    return str(getattr(value, "__qualname__", None) or getattr(value, "__name__", ""))


def _reduce_lru_cache(cached: Any) -> Any:
    if _is_found_by_name(cached):
        return cached.__qualname__
    settings = cached.cache_parameters()
    return _make_lru_cache, (cached.__wrapped__, settings["maxsize"], settings["typed"])


def _make_lru_cache(function: Any, maxsize: int | None, typed: bool) -> Any:
    made = functools.lru_cache(maxsize, typed)(function)
    remember(made)
    return made


def _reduce_cached_property(found: Any) -> Any:
    return _make_cached_property, (found.func, found.attrname)


def _make_cached_property(function: Any, name: str | None) -> Any:
    made: Any = functools.cached_property(function)
    # Classes that are made in steps do not call `__set_name__`.
    made.attrname = name
    return made


def _reduce_weak_keys(found: Any) -> Any:
    return weakref.WeakKeyDictionary, (dict(found.items()),)


def _reduce_type(value: Any) -> Any:
    """Reduces a `NewType`, or a type variable of a kind that cloudpickle does not know."""
    if _is_found_by_name(value):
        return _name_of(value)
    kind = type(value)
    settings: dict[str, Any] = {}
    args: tuple[Any, ...]
    if kind is typing.NewType:
        args = value.__qualname__, value.__supertype__
    else:
        args = (value.__name__,)
        if kind is typing.ParamSpec:
            settings = {
                name: getattr(value, f"__{name}__") for name in _SETTINGS if getattr(value, f"__{name}__", None)
            }
        # From Python 3.13 on.
        if getattr(value, "has_default", bool)():
            settings["default"] = value.__default__
    return _make_type, (kind, args, settings, value.__module__, _get_or_create_tracker_id(value))


# Arguments of a `ParamSpec`.
_SETTINGS = "bound", "covariant", "contravariant", "infer_variance"


def _make_type(kind: Callable[..., Any], args: Any, settings: dict[str, Any], module: str, name: str) -> Any:
    known: Any = _DYNAMIC_CLASS_TRACKER_BY_ID.get(name)
    if known is not None:
        return known
    made = kind(*args, **settings)
    made.__module__ = module
    return _lookup_class_or_track(name, made)


REDUCERS: dict[type, Callable[[Any], Any]] = {
    _LruCache: _reduce_lru_cache,
    functools.cached_property: _reduce_cached_property,
    # `functools.singledispatch` has a `WeakKeyDictionary`.
    weakref.WeakKeyDictionary: _reduce_weak_keys,
    typing.NewType: _reduce_type,
    typing.ParamSpec: _reduce_type,
    typing.TypeVarTuple: _reduce_type,
}
