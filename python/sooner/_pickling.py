"""How values, functions and errors are pickled, and what sooner changes about pickle and cloudpickle.

Tensors, Arrow data and arrays in files have reducers of their own (`sooner._tensors`, `_arrow`, `_memmaps`), which no
other pickler of the process sees. The libraries are not imported for that: whoever has such values has imported them.
"""

from __future__ import annotations

import copyreg
import functools
import io
import pickle
import sys
import threading
import types
from collections import ChainMap
from collections.abc import Callable
from typing import Any

from cloudpickle import CloudPickler

from sooner import _unfindable
from sooner._classes import mentioned, once
from sooner._functools import REDUCERS

BufferCallback = Callable[[pickle.PickleBuffer], Any]

_reduce = CloudPickler.reducer_override


class _Passing(threading.local):
    """How a thread passes values on."""

    # Arrays that lie in files are passed as references to the files: see `sooner._memmaps`.
    by_file = False


passing = _Passing()


class _Reducers:
    """The reducers for one pickle, and the buffers that they may still cut when it is complete."""

    def __init__(self, buffer_callback: BufferCallback | None) -> None:
        self.table: dict[type, Callable[[Any], Any]] = {}
        self._buffer_callback = buffer_callback
        self._buffers: list[pickle.PickleBuffer] = []
        self.callback = None if buffer_callback is None else self._buffers.append
        self._storages = None
        if "numpy" in sys.modules:
            from sooner import _memmaps

            self.table.update(_memmaps.reducers(is_out_of_band=buffer_callback is not None))
        if "pyarrow" in sys.modules:
            from sooner import _arrow

            self.table.update(_arrow.reducers())
        if "torch" in sys.modules:
            from sooner import _tensors

            self._storages = _tensors.Storages(is_out_of_band=buffer_callback is not None)
            self.table.update(self._storages.reducers())

    def finish(self) -> None:
        """Hand the buffers out."""
        if self._buffer_callback is None:
            return
        cut = {} if self._storages is None else self._storages.cut()
        for buffer in self._buffers:
            self._buffer_callback(cut.get(id(buffer), buffer))


@functools.cache
def _code_reducers() -> dict[type, Callable[[Any], Any]]:
    """Has code keep the name of its file in every version of cloudpickle.

    From 3.1.3 on cloudpickle leaves it out, so that equal code gives equal bytes wherever it lies. Tracebacks of
    workers could not show a line of the program then.
    """
    theirs = CloudPickler.dispatch_table[types.CodeType]
    own = dumps.__code__
    written = theirs(own)[1]
    if own.co_filename in written:
        return {}
    # The only text beside the names: versions of Python differ in what stands before it.
    names = (own.co_name, getattr(own, "co_qualname", own.co_name))
    places = [at for at, part in enumerate(written) if isinstance(part, str) and part not in names]

    def reduce(code: types.CodeType) -> Any:
        make, parts = theirs(code)
        return make, tuple(code.co_filename if at == places[0] else part for at, part in enumerate(parts))

    return {types.CodeType: reduce}


def _add_mentioned(function: types.FunctionType, reduced: Any) -> None:
    """A function that travels with its globals takes along those that only its annotations mention."""
    if type(reduced) is not tuple or len(reduced) != 6:
        return
    taken = reduced[2][1]["__globals__"]
    for name, value in mentioned(function.__annotations__, function.__globals__).items():
        taken.setdefault(name, value)


class ValuePickler(CloudPickler):  # type: ignore[misc]
    """cloudpickle's pickler, for what other processes of the program unpickle."""

    def __init__(
        self, file: io.BytesIO, protocol: int | None = 5, buffer_callback: BufferCallback | None = None
    ) -> None:
        self._reducers = _Reducers(buffer_callback)
        # What users have registered comes before what libraries' values need.
        maps = *CloudPickler.dispatch_table.maps, self._reducers.table, REDUCERS
        self.dispatch_table = ChainMap(_code_reducers(), *maps)
        super().__init__(file, protocol=protocol, buffer_callback=self._reducers.callback)

    def reducer_override(self, obj: Any) -> Any:
        """See `pickle.Pickler`."""
        if isinstance(obj, types.FunctionType | type):
            _unfindable.note(obj)
        reduced = _reduce(self, obj)
        if type(obj) is types.FunctionType:
            _add_mentioned(obj, reduced)
        return once(obj, reduced)

    def dump(self, obj: Any) -> None:
        """See `pickle.Pickler`. Buffers are handed out at the end."""
        super().dump(obj)
        self._reducers.finish()


def dumps(obj: Any, protocol: int | None = 5, buffer_callback: BufferCallback | None = None) -> bytes:
    """Pickle what plain pickle cannot: lambdas, closures, classes of the main program.

    Args:
        obj: The value.
        protocol: Of pickle.
        buffer_callback: Takes large buffers out of band, as for `pickle.dumps`.
    """
    with io.BytesIO() as file:
        ValuePickler(file, protocol, buffer_callback).dump(obj)
        return file.getvalue()


def dumps_plainly(obj: Any, protocol: int | None = 5, buffer_callback: BufferCallback | None = None) -> bytes:
    """`pickle.dumps` with the reducers of this module."""
    reducers = _Reducers(buffer_callback)
    with io.BytesIO() as file:
        pickler = pickle.Pickler(file, protocol, buffer_callback=reducers.callback)
        pickler.dispatch_table = {**reducers.table, **copyreg.dispatch_table}
        pickler.dump(obj)
        reducers.finish()
        return file.getvalue()
