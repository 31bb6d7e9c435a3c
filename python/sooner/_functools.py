"""Objects of `functools` that a script makes with decorators at its top level, in pickles.

pickle names them by module and name, which in a script is `__main__` and leads nowhere elsewhere, or it fails over the
locks and weak references in them. Here they travel as what they were made of. Caches arrive empty.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from typing import Any

from sooner._unfindable import SCRIPT

_LruCache = type(functools.lru_cache(lambda: None))


def _is_found_by_name(value: Any) -> bool:
    module = getattr(value, "__module__", None)
    found: Any = None if module is None or module in SCRIPT else sys.modules.get(module)
    for part in getattr(value, "__qualname__", "").split("."):
        found = getattr(found, part, None)
    return found is value


def _reduce_lru_cache(cached: Any) -> Any:
    if _is_found_by_name(cached):
        return cached.__qualname__
    settings = cached.cache_parameters()
    return _make_lru_cache, (cached.__wrapped__, settings["maxsize"], settings["typed"])


def _make_lru_cache(function: Any, maxsize: int | None, typed: bool) -> Any:
    return functools.lru_cache(maxsize, typed)(function)


def _reduce_cached_property(found: Any) -> Any:
    return _make_cached_property, (found.func, found.attrname)


def _make_cached_property(function: Any, name: str | None) -> Any:
    made: Any = functools.cached_property(function)
    # Classes that are made in steps do not say it.
    made.attrname = name
    return made


def _reduce_weak_keys(found: Any) -> Any:
    return weakref.WeakKeyDictionary, (dict(found.items()),)


REDUCERS: dict[type, Callable[[Any], Any]] = {
    _LruCache: _reduce_lru_cache,
    functools.cached_property: _reduce_cached_property,
    # `functools.singledispatch` has one.
    weakref.WeakKeyDictionary: _reduce_weak_keys,
}
