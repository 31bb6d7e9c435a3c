"""Classes that travel with values: those of the main program and of functions, which no other process can import.

cloudpickle writes such a class into every value that has an instance of it, with the attributes that the class has at
that moment, and sets all of them again wherever the value arrives. A counter in a class, a setting, a method that was
replaced and the globals of its methods would go back with each value. Here a class gets its state once per process,
when it is made; one that the process knows already stays as it is.
"""

from __future__ import annotations

import functools
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import cloudpickle.cloudpickle

from sooner._unfindable import SCRIPT

# cloudpickle writes what is of `__main__` into pickles, and would refer to what is of the script by its other name.
cloudpickle.cloudpickle._PICKLE_BY_VALUE_MODULES.add("__mp_main__")
# What cloudpickle calls the function that sets the attributes of a class.
_CLASS_STATE = "_class_setstate"

# Classes that were made here and have not been given all of their attributes: another thread may find one of them.
_unfinished: weakref.WeakSet[type] = weakref.WeakSet()


def once(cls: Any, reduced: Any) -> Any:
    """What cloudpickle says of an object, with a state that is set once if it is a class."""
    if type(reduced) is not tuple or len(reduced) != 6 or getattr(reduced[5], "__name__", None) != _CLASS_STATE:
        return reduced
    make, args, state, items, pairs, setter = reduced
    return _find_or_make, (make, args), (setter, state, cls.__qualname__, _mentioned(state)), items, pairs, _finish


def _mentioned(state: Any) -> dict[str, Any]:
    """What the annotations of a class of the program's script mention there."""
    attributes = state[0] if isinstance(state, tuple) and state else {}
    if attributes.get("__module__") not in SCRIPT:
        return {}
    annotations = attributes.get("__annotations__")
    return mentioned(annotations, vars(sys.modules["__main__"])) if isinstance(annotations, dict) else {}


def mentioned(annotations: dict[str, Any], names: dict[str, Any]) -> dict[str, Any]:
    """The classes and modules that annotations mention which are texts: `get_type_hints` needs them."""
    found = {}
    for annotation in annotations.values():
        # Named tuples and typed dicts make references of the texts.
        annotation = getattr(annotation, "__forward_arg__", annotation)
        if isinstance(annotation, str):
            for name in _names_in(annotation):
                if name in names and _is_for_annotations(names[name]):
                    found[name] = names[name]
    return found


@functools.lru_cache(maxsize=1024)
def _names_in(annotation: str) -> tuple[str, ...]:
    try:
        return compile(annotation, "<annotation>", "eval").co_names
    except (SyntaxError, ValueError):
        # What is no expression means nothing to `get_type_hints` either.
        return ()


def _is_for_annotations(value: Any) -> bool:
    kind = type(value)
    is_type = isinstance(value, type | types.ModuleType | types.GenericAlias | types.UnionType)
    return is_type or kind.__module__ in ("typing", "typing_extensions")


def _find_or_make(make: Callable[..., type], args: tuple[Any, ...]) -> type:
    # cloudpickle's name of the class, the same in all processes, is the last argument but one.
    known = cloudpickle.cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.get(args[-2])
    cls = make(*args)
    if cls is not known:
        _unfinished.add(cls)
    return cls


def _finish(cls: type, parts: tuple[Callable[[type, Any], Any], Any, str, dict[str, Any]]) -> None:
    if cls not in _unfinished:
        return
    setter, state, name, names = parts
    setter(cls, state)
    cls.__qualname__ = name
    _unfinished.discard(cls)
    main = sys.modules["__main__"]
    if vars(main).get("__getattr__") is of_script:
        # A worker's, which has nothing else. A later class of the same name, as notebooks have, takes its place.
        if cls.__module__ in SCRIPT and "." not in cls.__qualname__:
            names = {**names, cls.__name__: cls}
        vars(main).update(names)


def of_script(name: str) -> Any:
    """In a worker: what `__main__` has under a name that is a class of the program's script, once that has come here.

    Such a class comes with values and code, and says that it is of `__main__`. pickle looks for it there.

    Raises:
        AttributeError: No such class has come.
    """
    found = None
    for cls in list(cloudpickle.cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.values()):
        if cls.__module__ in SCRIPT and cls.__qualname__ == name:
            # The latest, if a notebook has defined it more than once.
            found = cls
    if found is None:
        raise AttributeError(f"module '__main__' has no attribute {name!r}")
    return found
