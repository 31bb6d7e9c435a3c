"""How values, functions and errors are pickled, and what sooner changes about pickle and cloudpickle.

One pickler writes all that is more than plain data, in one pass, so that code of a class that pickling runs
is run once, as with pickle itself. Functions and classes that other processes can import are written by name,
the others by value, as by cloudpickle.

Tensors, Arrow data and arrays in files have reducers of their own (`tensors`, `arrow`, `memmaps`), which
no other pickler of the process sees. This never imports those libraries: a program with such values has
imported them.
"""

from __future__ import annotations

import copyreg
import functools
import io
import pickle
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

from cloudpickle import CloudPickler
from cloudpickle.cloudpickle import _PICKLE_BY_VALUE_MODULES

from sooner import _sooner
from sooner._values import unfindable
from sooner._values.classes import mentioned, of_function, once
from sooner._values.functools import REDUCERS

BufferCallback = Callable[[pickle.PickleBuffer], Any]

_reduce = CloudPickler.reducer_override


class _Passing(threading.local):
    """How a thread passes values on."""

    # Arrays that lie in files are passed as references to the files: see `sooner._values.memmaps`.
    by_file = False


passing = _Passing()


class _Tensors:
    """The reducers of tensors for one pickle, and the buffers that are cut when the pickle is complete."""

    def __init__(self, buffer_callback: BufferCallback | None) -> None:
        from sooner._values import tensors  # optional

        self._buffer_callback = buffer_callback
        self._buffers: list[pickle.PickleBuffer] = []
        self.callback = None if buffer_callback is None else self._buffers.append
        self._storages = tensors.Storages(is_out_of_band=buffer_callback is not None)
        self.reducers = self._storages.reducers()

    def finish(self) -> None:
        """Hand the buffers out."""
        if self._buffer_callback is None:
            return
        cut = self._storages.cut()
        for buffer in self._buffers:
            self._buffer_callback(cut.get(id(buffer), buffer))


@functools.cache
def _code_reducers() -> dict[type, Callable[[Any], Any]]:
    """Makes pickled code keep the name of its file in every version of cloudpickle.

    From 3.1.3 on cloudpickle leaves the name out, so that equal code gives equal bytes in any file. Then
    tracebacks of workers could not show lines of the program.
    """
    theirs = CloudPickler.dispatch_table[types.CodeType]
    own = dumps.__code__
    written = theirs(own)[1]
    if own.co_filename in written:
        return {}
    # The file is the only text beside the names. Its position differs between versions of Python.
    names = (own.co_name, getattr(own, "co_qualname", own.co_name))
    places = [at for at, part in enumerate(written) if isinstance(part, str) and part not in names]

    def reduce(code: types.CodeType) -> Any:
        make, parts = theirs(code)
        return make, tuple(code.co_filename if at == places[0] else part for at, part in enumerate(parts))

    return {types.CodeType: reduce}


def _add_mentioned(function: types.FunctionType, reduced: Any) -> None:
    """Adds globals that only a function's annotations mention to those that travel with the function."""
    if type(reduced) is not tuple or len(reduced) != 6:
        return
    taken = reduced[2][1]["__globals__"]
    for name, value in mentioned(function.__annotations__, function.__globals__).items():
        taken.setdefault(name, value)


# Modules whose functions and classes travel by name, and the modules that were registered with cloudpickle to
# travel by value when that was found out.
_by_name: set[str] = set()
_registered: set[str] = set()


def _is_found(what: Any) -> bool:
    """Whether a function or class is in a module that other processes can import, under its own name."""
    module = getattr(what, "__module__", None)
    if type(module) is not str or module not in _by_name:
        return False
    return getattr(sys.modules.get(module), what.__qualname__, None) is what


def _look_at_registered() -> None:
    """Forgets modules by name if users have changed which modules travel by value."""
    if _registered != _PICKLE_BY_VALUE_MODULES:
        _by_name.clear()
        _registered.clear()
        _registered.update(_PICKLE_BY_VALUE_MODULES)


def _reduce_method(method: types.MethodType) -> Any:
    """Reduces a method of a class that is found to its name, as pickle does, without the function's code."""
    owner, name = method.__self__, getattr(method.__func__, "__name__", "")
    cls = owner if isinstance(owner, type) else type(owner)
    named = getattr(cls, name, None) if _is_found(cls) else None
    if getattr(named, "__func__", named) is method.__func__:
        return getattr, (owner, name)
    return types.MethodType, (method.__func__, owner)


def _reduce_memmap(is_out_of_band: bool, array: Any) -> Any:
    from sooner._values import memmaps  # circle

    return memmaps.reduce(array, is_out_of_band)


def _reduce_array(array: Any) -> Any:
    reduced = array.__reduce_ex__(5)
    if array.flags.writeable or not (passing.by_file or _sooner.gives_away()):
        return reduced
    # With the drop-ins for the standard library's pools and executors, arrays arrive as the receiver's own,
    # even read-only ones.
    make, (memory, *rest) = reduced[:2]
    if type(memory) is not pickle.PickleBuffer:
        return reduced
    return make, (pickle.PickleBuffer(_sooner.Copied(memory.raw())), *rest)  # type: ignore[arg-type]


def _reduce_memoryview(view: memoryview) -> Any:
    try:
        # `cast` refuses formats that it does not know: here, before the receiver's `cast` would.
        memoryview(b"").cast(view.format)  # type: ignore[call-overload]
    except ValueError:
        return bytes, (view.tobytes(),)
    memory = pickle.PickleBuffer(view) if view.c_contiguous else view.tobytes()
    return _make_memoryview, (memory, view.format, view.shape)


def _make_memoryview(memory: Any, form: str, shape: tuple[int, ...]) -> memoryview:
    return memoryview(memory).cast("B").cast(form, shape)  # type: ignore[call-overload,no-any-return]


class _Table:
    """Reducers by class, without those that users register with `copyreg`: it must not keep them alive."""

    def __init__(self, is_out_of_band: bool) -> None:
        self._reduce_memmap = functools.partial(_reduce_memmap, is_out_of_band)
        self._theirs: dict[type, Any] = {}
        self._libraries: tuple[bool, bool] = (False, False)
        self._table: dict[type, Callable[[Any], Any]] = {}

    def now(self) -> dict[type, Callable[[Any], Any]]:
        """The table, not to be changed; made anew if cloudpickle's changed or a library was imported."""
        libraries = "numpy" in sys.modules, "pyarrow" in sys.modules
        theirs: dict[type, Any] = CloudPickler.dispatch_table.maps[0]
        if self._theirs != theirs or self._libraries != libraries:
            self._table = self._made(theirs, libraries)
            self._theirs, self._libraries = dict(theirs), libraries
        return self._table

    def _made(self, theirs: dict[type, Any], libraries: tuple[bool, bool]) -> dict[type, Any]:
        table: dict[type, Any] = {**REDUCERS}
        if libraries[0] and (memmap := getattr(sys.modules["numpy"], "memmap", None)):
            table[memmap] = self._reduce_memmap
            table[sys.modules["numpy"].ndarray] = _reduce_array
        if libraries[1]:
            from sooner._values import arrow  # optional

            table.update(arrow.reducers())
        table.update(theirs)
        table[types.MethodType] = _reduce_method
        table[memoryview] = _reduce_memoryview
        table.update(_code_reducers())
        return table


_within, _beside = _Table(is_out_of_band=False), _Table(is_out_of_band=True)


class ValuePickler(CloudPickler):  # type: ignore[misc]
    """cloudpickle's pickler, for pickles that other processes of the program read."""

    def __init__(
        self, file: io.BytesIO, protocol: int | None = 5, buffer_callback: BufferCallback | None = None
    ) -> None:
        _look_at_registered()
        table = (_within if buffer_callback is None else _beside).now()
        # A plain dictionary, since pickle looks into it for every object. Reducers that users have registered
        # go before all others.
        self._tensors = _Tensors(buffer_callback) if "torch" in sys.modules else None
        if self._tensors is None:
            self.dispatch_table = {**table, **copyreg.dispatch_table}
        else:
            self.dispatch_table = {**self._tensors.reducers, **table, **copyreg.dispatch_table}
            buffer_callback = self._tensors.callback
        super().__init__(file, protocol=protocol, buffer_callback=buffer_callback)

    def reducer_override(self, obj: Any) -> Any:
        """See `pickle.Pickler`."""
        kind = type(obj)
        if kind is not types.FunctionType and not issubclass(kind, type):
            return NotImplemented
        if _is_found(obj):
            return NotImplemented
        if unfindable.module_of(obj) is not None:
            _by_name.add(obj.__module__)
        reduced = _reduce(self, obj)
        if kind is types.FunctionType:
            _add_mentioned(obj, reduced)
            return of_function(obj, reduced) if type(reduced) is tuple else reduced
        return once(obj, reduced)

    def dump(self, obj: Any) -> None:
        """See `pickle.Pickler`. Buffers are handed out at the end."""
        super().dump(obj)
        if self._tensors is not None:
            self._tensors.finish()


def dumps(obj: Any, protocol: int | None = 5, buffer_callback: BufferCallback | None = None) -> bytes:
    """Pickle a value, also one that plain pickle cannot: lambdas, closures, classes of the main program.

    Args:
        obj: The value.
        protocol: Of pickle.
        buffer_callback: Takes large buffers out of band, as for `pickle.dumps`.
    """
    with io.BytesIO() as file:
        ValuePickler(file, protocol, buffer_callback).dump(obj)
        return file.getvalue()
