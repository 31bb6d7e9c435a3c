"""Classes and functions that travel with values: those of the main program and of functions, which no other
process can import.

cloudpickle writes such a class into every value that has an instance of it, with the attributes that the
class has at that moment, and sets all of them again in each process where the value arrives. So each value
would set back a counter or setting in the class, a replaced method, and the globals of its methods. Here a
class gets its state once per process, when it is made; a class that the process knows already stays as it is.

Code that runs when a class is defined (its metaclass, `__init_subclass__`, `__set_name__`, the `__init__` of
members of an enumeration) ran where the class was defined, with keywords that the class does not keep, and
its results are part of the state. So here a class is made as `type` makes it, and none of that code runs.
Code of libraries is the exception: what it registers, it must register in each process.

pickle, `multiprocessing` and others look by name in `__main__` for objects that say they are from there. In
workers that module answers with the objects that have arrived.
"""

from __future__ import annotations

import abc
import contextlib
import copyreg
import enum
import functools
import itertools
import os
import re
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle.cloudpickle
from cloudpickle.cloudpickle import _DYNAMIC_CLASS_TRACKER_BY_ID as _KNOWN

from sooner._values import unfindable
from sooner._values.unfindable import SCRIPT

# cloudpickle pickles objects of `__main__` by value. It would pickle those of the script's other name by
# reference.
cloudpickle.cloudpickle._PICKLE_BY_VALUE_MODULES.add("__mp_main__")
# The name of cloudpickle's function that sets the attributes of a class.
_CLASS_STATE = "_class_setstate"
# Modules whose metaclasses and hooks have effects that are part of the state, or that are repeated here.
_WITHOUT_EFFECT = frozenset({"builtins", "abc", "enum", "typing", "typing_extensions"})
# Attributes that every member of an enumeration has, and one that a flag caches.
_OF_MEMBERS = frozenset(("_name_", "_value_", "__objclass__", "_sort_order_", "_inverted_"))

# Classes that were made in this process but lack attributes yet: another thread may find one of them.
_unfinished: weakref.WeakSet[type] = weakref.WeakSet()

# Held while hooks are silenced.
_silencing = threading.RLock()
os.register_at_fork(after_in_child=_silencing._at_fork_reinit)  # type: ignore[attr-defined]

# In a worker: objects of the top level of the program's script that are no classes, by name, and by number in
# the order in which they arrived.
_named: dict[str, weakref.WeakValueDictionary[int, Any]] = {}
_arrivals = itertools.count()
# In a worker: the file of the program's script if it is on this machine, and whether it was run as a script.
_script: tuple[str, bool] | None = None


def once(cls: Any, reduced: Any) -> Any:
    """cloudpickle's reduction of an object; that of a class is changed so that its state is set once."""
    if type(reduced) is not tuple or len(reduced) != 6 or getattr(reduced[5], "__name__", None) != _CLASS_STATE:
        return reduced
    make, args, state, items, pairs, setter = reduced
    make, args, state, setter = _plan(cls, make, args, state, setter)
    return _find_or_make, (make, args), (setter, state, cls.__qualname__, _mentioned(state)), items, pairs, _finish


def _plan(cls: Any, make: Any, args: Any, state: Any, setter: Any) -> tuple[Any, Any, Any, Any]:
    """How a class is made: maker, arguments (the last is cloudpickle's name of the class), state, setter."""
    attributes = state[0]
    if "__slots__" in vars(cls):
        attributes = {name: value for name, value in attributes.items() if not _is_slot(cls, name, value)}
    own = type(cls), cls.__name__, cls.__bases__, _namespace(cls)
    if isinstance(cls, enum.EnumMeta):
        enumeration = _enumeration(cls, attributes)
        if enumeration is None:
            return _make_with_hooks, (make, args[:-2], None, args[-2]), state, setter
        parts, state = enumeration
        return _make_enumeration, (*own, *parts, args[-2]), state, _set_state
    if _has_hooks_of_libraries(cls):
        return _make_with_hooks, (make, args[:-2], own, args[-2]), (attributes, state[1]), setter
    return _make, (*own, args[-2]), (attributes, {}), _set_state


def _is_slot(cls: type, name: str, value: Any) -> bool:
    """Whether an attribute comes from `__slots__`: cloudpickle misses those with private names."""
    is_member = type(value) is types.MemberDescriptorType
    return is_member and value.__objclass__ is cls and value.__name__ == name


def _namespace(cls: type) -> dict[str, Any]:
    """The namespace with which a class is made: its module, names, bases, and the parts of its instances."""
    own = vars(cls)
    # `Generic` reads the bases as they were written.
    found = {name: own[name] for name in ("__module__", "__orig_bases__") if name in own}
    if cls.__qualname__ != cls.__name__:
        found["__qualname__"] = cls.__qualname__
    if "__slots__" in own:
        # As they are in the class, with the class's name in private ones.
        found["__slots__"] = tuple(
            [value.__name__ for name, value in own.items() if _is_slot(cls, name, value)]
            + [name for name in ("__dict__", "__weakref__") if type(own.get(name)) is types.GetSetDescriptorType]
        )
    if isinstance(own.get("__dict__"), property):
        found["__dict__"] = own["__dict__"]
    return found


def _has_hooks_of_libraries(cls: Any) -> bool:
    """Whether defining a class runs code that the receiver imports, and that may have an effect there."""
    meta = type(cls)
    if meta is type and all(type(base.__init_subclass__) is types.BuiltinMethodType for base in cls.__bases__):
        # Most classes have no hooks.
        return False
    return any(
        # `type` cannot make classes of extensions.
        kind is not type and type(vars(kind).get("__new__")) is types.BuiltinFunctionType
        for kind in meta.__mro__[:-1]
    ) or any(kind.__module__ not in _WITHOUT_EFFECT and _travels_by_name(kind) for kind in _with_hooks(cls))


def _with_hooks(cls: type) -> Iterator[type]:
    """The classes whose functions are called when a class is defined."""
    meta: Any = type(cls)
    for name, kinds in (
        ("__new__", meta.__mro__),
        ("__init__", meta.__mro__),
        ("__init_subclass__", cls.__mro__[1:]),
    ):
        yield next(kind for kind in kinds if name in vars(kind))


def _travels_by_name(cls: type) -> bool:
    unfindable.note(cls)
    by_reference: bool = cloudpickle.cloudpickle._should_pickle_by_reference(cls)
    return by_reference


def _enumeration(cls: Any, attributes: dict[str, Any]) -> Any:
    """The members of an enumeration and its tables of them, as arguments, and the rest as its state.

    cloudpickle makes members anew from their values: attributes that the class gives them in `__new__` and
    `__init__` are lost then, or the members cannot be made. Here members travel as they are: the arguments
    they were made from, which are needed to find them, and their attributes.

    Returns:
        None for members that hold other values, as lists do.
    """
    own = vars(cls)
    # The first with a `__new__` in C: `Enum.__new__` and the like, which look members up, are in Python.
    base = next(kind for kind in cls.__mro__ if type(vars(kind).get("__new__")) is types.BuiltinFunctionType)
    has_slots = any(vars(kind).get("__slots__") for kind in cls.__mro__)
    members: list[tuple[str, Any, tuple[Any, ...] | None]] = []
    of_members = {}
    for name, member in cls._member_map_.items():
        # A member with the name of a property, such as `name`, is behind another property.
        if own[name] is member:
            attributes.pop(name, None)
        else:
            attributes[name] = own[name]
        if member._name_ != name:
            members.append((name, member._name_, None))
            continue
        args = () if base is object else _arguments(base, member)
        if args is None:
            return None
        members.append((name, member._value_, args))
        given = {name: value for name, value in vars(member).items() if name not in _OF_MEMBERS}
        slots = _slots_of(member) if has_slots else None
        if given or slots:
            of_members[name] = given, slots
    others = {
        value: member._name_
        for value, member in cls._value2member_map_.items()
        if value is not member._value_ and value != member._value_ and cls._member_map_.get(member._name_) is member
    }
    early = {name: value for name, value in own.items() if name[0] == "_" and _is_of_enumerations(name, value)}
    for name in early:
        attributes.pop(name, None)
    generate = "_generate_next_value_"
    if generate in own and getattr(cls, generate) is not getattr(cls.__bases__[-1], generate):
        attributes[generate] = own[generate]
    if attributes.get("__new__") is enum.Enum.__new__:
        del attributes["__new__"]
    return (base, members, others, cls._member_names_, early), (attributes, of_members)


def _is_of_enumerations(name: str, value: Any) -> bool:
    """Whether an attribute is one of `enum`, like `_flag_mask_`, with a plain value other than `Enum`'s."""
    return (
        name[:1] == name[-1:] == "_"
        and name[:2] != "__"
        and (value is None or isinstance(value, (int, type, enum.FlagBoundary)))
        and getattr(enum.Enum, name, ()) is not value
    )


def _arguments(base: Any, member: Any) -> tuple[Any, ...] | None:
    """The arguments with which its base type (number, text, date) makes a member; None for other types."""
    if hasattr(base, "__getnewargs__"):
        return tuple(base.__getnewargs__(member))
    make, args, *_ = base.__reduce_ex__(member, 2)
    return None if make is vars(copyreg)["__newobj__"] else args


def _slots_of(member: Any) -> dict[str, Any] | None:
    found = object.__getstate__(member)
    return found[1] if isinstance(found, tuple) else None


def _mentioned(state: Any) -> dict[str, Any]:
    """Objects of the program's script that annotations of a class of the script mention, by name."""
    attributes = state[0] if isinstance(state, tuple) and state else {}
    if attributes.get("__module__") not in SCRIPT:
        return {}
    annotations = attributes.get("__annotations__")
    return mentioned(annotations, vars(sys.modules["__main__"])) if isinstance(annotations, dict) else {}


def mentioned(annotations: dict[str, Any], names: dict[str, Any]) -> dict[str, Any]:
    """The classes and modules that annotations given as text mention: `get_type_hints` needs them."""
    found = {}
    for annotation in annotations.values():
        # Named tuples and typed dicts turn the texts into forward references.
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
        # `get_type_hints` cannot read a text that is no expression either.
        return ()


def _is_for_annotations(value: Any) -> bool:
    kind = type(value)
    is_type = isinstance(value, type | types.ModuleType | types.GenericAlias | types.UnionType)
    return is_type or kind.__module__ in ("typing", "typing_extensions")


def _find_or_make(make: Callable[..., type], args: tuple[Any, ...]) -> type:
    # cloudpickle's name of the class, the same in all processes.
    *rest, name = args
    known: type | None = _KNOWN.get(name)
    if known is not None:
        return known
    made = make(*rest)
    _unfinished.add(made)
    cls: type = cloudpickle.cloudpickle._lookup_class_or_track(name, made)
    return cls


def _make(meta: Any, name: str, bases: tuple[Any, ...], namespace: dict[str, Any]) -> Any:
    """Makes a class as `type` does, without running code of its metaclass and its bases."""
    if any(_hooks_of(bases)):
        with _silencing, _silenced(bases):
            cls = type.__new__(meta, name, bases, namespace)
    else:
        cls = type.__new__(meta, name, bases, namespace)
    if issubclass(meta, abc.ABCMeta):
        abc._abc_init(cls)  # type: ignore[attr-defined]
    return cls


def _hooks_of(bases: tuple[Any, ...]) -> Iterator[type]:
    """The classes whose `__init_subclass__` must not run for a class with these bases; `typing`'s may run."""
    for base in bases:
        for kind in base.__mro__[:-1]:
            hook = vars(kind).get("__init_subclass__")
            is_known = kind.__module__ in ("typing", "typing_extensions")
            if hook is not None and not is_known and type(hook) is not types.ClassMethodDescriptorType:
                yield kind


@contextlib.contextmanager
def _silenced(bases: tuple[Any, ...]) -> Iterator[None]:
    """Makes `__init_subclass__` do nothing in this thread: `type` calls it for every class that is made."""
    hooks = {kind: vars(kind)["__init_subclass__"] for kind in _hooks_of(bases)}
    for kind, hook in hooks.items():
        type.__setattr__(kind, "__init_subclass__", _for_others(hook, threading.get_ident()))
    try:
        yield
    finally:
        for kind, hook in hooks.items():
            type.__setattr__(kind, "__init_subclass__", hook)


def _for_others(hook: Any, thread: int) -> Any:
    def call(cls: type, /, **keywords: Any) -> None:
        if threading.get_ident() != thread:
            hook.__get__(None, cls)(**keywords)

    return classmethod(call)


def _make_with_hooks(make: Callable[..., Any], args: tuple[Any, ...], own: tuple[Any, ...] | None) -> Any:
    """Makes a class as cloudpickle does, so that hooks of libraries run."""
    try:
        return make(*args, None, None)
    except Exception:
        # A hook wants keywords that the class has not kept, or attributes that it does not have yet.
        if own is None:
            raise
        return _make(*own)


def _make_enumeration(
    meta: Any,
    name: str,
    bases: tuple[Any, ...],
    namespace: dict[str, Any],
    base: Any,
    members: list[tuple[str, Any, tuple[Any, ...] | None]],
    others: dict[Any, str],
    names: list[str],
    early: dict[str, Any],
) -> Any:
    """Makes an enumeration whose members can be found by value, since its state may refer to them."""
    cls = _make(meta, name, bases, namespace)
    named: dict[str, Any] = {}
    by_value: dict[Any, Any] = {}
    order = 0
    for member_name, value, args in members:
        if args is None:
            named[member_name] = named[value]
            continue
        member = named[member_name] = base.__new__(cls, *args)
        vars(member).update(_name_=member_name, _value_=value, __objclass__=cls, _sort_order_=order)
        order += member_name in names
        try:
            by_value.setdefault(value, member)
        except TypeError:
            # For a value without a hash `Enum` searches all members.
            continue
    for value, member_name in others.items():
        by_value.setdefault(value, named[member_name])
    found = {"__new__": enum.Enum.__new__, "_member_names_": names, "_member_map_": named, **named, **early}
    found["_value2member_map_"] = by_value
    for attribute, value in found.items():
        type.__setattr__(cls, attribute, value)
    return cls


def _set_state(cls: Any, state: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """Sets the attributes of a class, and of members of an enumeration, without the class's `__setattr__`."""
    attributes, members = state
    registered = attributes.pop("_abc_impl", ())
    for name, value in attributes.items():
        type.__setattr__(cls, name, value)
    if "__firstlineno__" in attributes:
        # Setting `__module__` removes `__firstlineno__`.
        type.__setattr__(cls, "__firstlineno__", attributes["__firstlineno__"])
    for other in registered:
        abc.ABCMeta.register(cls, other)
    for name, (given, slots) in members.items():
        member = cls._member_map_[name]
        vars(member).update(given)
        for slot, value in (slots or {}).items():
            object.__setattr__(member, slot, value)


def _finish(cls: type, parts: tuple[Callable[[type, Any], Any], Any, str, dict[str, Any]]) -> None:
    if cls not in _unfinished:
        return
    setter, state, name, names = parts
    setter(cls, state)
    if cls.__qualname__ != name:
        cls.__qualname__ = name
    _unfinished.discard(cls)
    if _is_of_worker():
        # A worker's `__main__` has nothing else. A later class of the same name, as in notebooks, takes the
        # place of the earlier one.
        if cls.__module__ in SCRIPT and "." not in cls.__qualname__:
            names = {**names, cls.__name__: cls}
        vars(sys.modules["__main__"]).update(names)


def of_function(function: types.FunctionType, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """Extends cloudpickle's reduction of a function, so that workers find a script's function by its name."""
    if function.__module__ not in SCRIPT or not function.__qualname__.isidentifier():
        return reduced
    return *reduced[:5], _finish_function


def _finish_function(function: types.FunctionType, state: Any) -> None:
    cloudpickle.cloudpickle._function_setstate(function, state)
    remember(function)


def remember(value: Any) -> None:
    """In a worker: records an object of the script's top level that is no class, while it is alive."""
    if _is_of_worker() and value.__module__ in SCRIPT and value.__qualname__.isidentifier():
        _named.setdefault(value.__qualname__, weakref.WeakValueDictionary())[next(_arrivals)] = value


def _is_of_worker() -> bool:
    return vars(sys.modules["__main__"]).get("__getattr__") is of_script


def begin_worker(file: str | None, is_script: bool) -> None:
    """In the template: empties `__main__`, which becomes the program's.

    Args:
        file: The file of the program's script, if it is on this machine.
        is_script: Whether the file was run as a script, and not as a module.
    """
    global _script
    _script = None if file is None else (file, is_script)
    names = vars(sys.modules["__main__"])
    for name in [name for name in names if not name.startswith("__")]:
        del names[name]


def of_script(name: str) -> Any:
    """In a worker: returns the object of the program's script with this name, for lookups in `__main__`.

    Such objects arrive with values and code, and name `__main__` as their module, where pickle looks.

    Raises:
        AttributeError: No object of the name has arrived.
    """
    found = None
    if name == "__file__":
        found = _file_for(sys._getframe(1).f_globals.get("__name__", ""))
    elif not name.startswith("__"):
        found = _latest(name) or _class_of_script(name)
    if found is None:
        raise AttributeError(f"module '__main__' has no attribute {name!r}")
    return found


def _latest(name: str) -> Any:
    """The function that running code uses under a name, else the last: each pickle brings its own."""
    found = list(_named.get(name, {}).values())
    if len(found) < 2:
        return found[0] if found else None
    frames = sys._current_frames()
    here = sys._getframe(2)
    for frame in (here, *frames.values()):
        at: types.FrameType | None = frame
        while at is not None:
            value = at.f_globals.get(name)
            if any(value is one for one in found):
                return value
            at = at.f_back
    return found[-1]


def _class_of_script(name: str) -> Any:
    found = None
    for known in list(_KNOWN.values()):
        # Type variables and the like have no `__qualname__`.
        if known.__module__ in SCRIPT and getattr(known, "__qualname__", known.__name__) == name:
            # The last one wins, if a notebook has defined the class more than once.
            found = known
    return found


def _file_for(module: str) -> str | None:
    """The script's file, but not for modules that would run the script again without need.

    `multiprocessing.spawn`, and similar modules of libraries, run the file again in the processes that they
    start. A script without a check of `__name__` would begin all over there, with a session of its own.
    """
    if _script is None:
        return None
    file, is_script = _script
    if module.rpartition(".")[2] == "spawn" and not (is_script and _expects_to_be_imported(file)):
        return None
    return file


def _expects_to_be_imported(file: str) -> bool:
    from pathlib import Path  # start-up: 6.4 ms

    try:
        text = Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return re.search(r"""\b__name__\s*[!=]=\s*["']__main__|__main__["']\s*[!=]=\s*__name__\b""", text) is not None
