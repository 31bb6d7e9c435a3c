"""Arrays in the object store that are written in place: `sooner.empty`.

A value that is put, or returned by a task, is copied into the store. An array that is made there needs no
copy. It is Plasma's create and seal: the Ray paper (OSDI'18, section 5.2.1) has gradients written straight
into the store so. This module makes the NumPy array; when the object may be read is decided in the engine.
"""

from __future__ import annotations

import math
import pickle
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex

from sooner import _sooner

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# Those that are not sealed.
_arrays: weakref.WeakValueDictionary[bytes, np.ndarray[Any, Any]] = weakref.WeakValueDictionary()


def empty(
    shape: SupportsIndex | Sequence[SupportsIndex], dtype: npt.DTypeLike = float
) -> tuple[npt.NDArray[Any], _sooner.ObjectRef[npt.NDArray[Any]]]:
    """Make an array in shared memory, to be written in place, and its reference.

    The reference may be passed on at once. Whoever reads it waits until the array is sealed: by `ref.seal()`,
    or because the task that made it returns the array or the reference. From then on nobody can write to the
    array. A task that returns the array, and keeps no other reference to it, returns its memory without a
    copy.

    Args:
        shape: The shape of the array: one length, or a sequence or an array of lengths (elements).
        dtype: What it holds, as NumPy takes it. Its elements must have a fixed size and may not be objects.
            The lengths of a dtype that is an array itself, such as "3f4", come behind those of `shape`.

    Returns:
        The array, whose elements may have any values, and the reference of the object. If neither is left in
        this process before the object is sealed, those who wait for it get `ObjectLostError`.

    Raises:
        TypeError: The shape or the dtype is none, or the elements are objects or dates, which others cannot
            read in place.
        ValueError: A length is negative, there are more lengths than NumPy has, or the array has more bytes
            than there are addresses.
        ObjectStoreFullError: There is no room, neither in the store nor in a file behind it. The array takes
            its room at once, and cannot be spilled before it is sealed.

    Example:
        >>> gradient, ref = sooner.empty(1_000_000, "float32")  # doctest: +SKIP
        >>> gradient[:] = 0  # doctest: +SKIP
        >>> ref.seal()  # doctest: +SKIP
    """
    import numpy as np  # start-up: 90 ms

    model = np.empty(1, dtype)
    plain = _lengths(shape) + model.shape[1:]
    # NumPy multiplies the lengths of an array without elements, too.
    size = math.prod(length or 1 for length in plain) * model.dtype.itemsize
    if size >= 1 << 63:
        raise ValueError(
            f"an array of shape {plain} and {model.dtype} has {size} bytes, and there are no such addresses"
        )
    try:
        np.empty((0,) * len(plain))
    except ValueError as error:
        raise ValueError(f"NumPy has no array of {len(plain)} dimensions") from error
    size = math.prod(plain) * model.dtype.itemsize
    packed = model.__reduce_ex__(5)
    if not (isinstance(packed, tuple) and packed[1] and isinstance(packed[1][0], pickle.PickleBuffer)):
        raise TypeError(
            f"sooner.empty() cannot make an array of {model.dtype}: its elements cannot be shared in memory. Use "
            "numbers, or structures of numbers, such as int64 for dates"
        )
    rebuild, (_, kind, _, order) = packed[:2]
    template = pickle.dumps(
        _Template(rebuild, (pickle.PickleBuffer(bytearray()), kind, plain, order)), 5, buffer_callback=_out_of_band
    )
    memory, ref = _sooner.create(template, size)
    array: npt.NDArray[Any] = np.ndarray(plain, model.dtype, buffer=memoryview(memory))  # type: ignore[arg-type]
    _arrays[ref.binary()] = array
    return array, ref


def sealed(ref: _sooner.ObjectRef[Any]) -> None:
    """Make an array read-only: others read its memory now."""
    array = _arrays.pop(ref.binary(), None)
    if array is not None:
        array.flags.writeable = False


def _lengths(shape: Any) -> tuple[int, ...]:
    lengths = shape.tolist() if hasattr(shape, "tolist") else shape
    if isinstance(lengths, SupportsIndex):
        lengths = (lengths,)
    is_sequence = isinstance(lengths, Sequence) and not isinstance(lengths, str | bytes)
    if not is_sequence or not all(isinstance(one, SupportsIndex) and type(one) is not bool for one in lengths):
        raise TypeError(f"shape must be a whole number or a sequence of them, not {shape!r}")
    found = tuple(length.__index__() for length in lengths)
    if any(length < 0 for length in found):
        raise ValueError(f"the lengths of an array are 0 or more, not {shape!r}")
    return found


def _out_of_band(_buffer: object) -> None:
    """The elements are not part of the pickle."""


class _Template:
    """What is pickled as an array whose elements are elsewhere.

    Args:
        function: What makes the array from its buffer.
        args: Its arguments.
    """

    def __init__(self, function: Any, args: tuple[Any, ...]) -> None:
        self._parts = (function, args)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self._parts
