"""Pickling of NumPy's arrays in files (`numpy.memmap`).

Pickle copies such an array, so that a function's writes to it are lost. Here a writable array arrives either
over the same file (with the drop-ins for the standard library's pools and with joblib, where programs have
workers write their part of a result), or read-only (with remote functions and actors, where values never
change).
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np

from sooner._values.pickling import passing

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def reduce(array: Any, is_out_of_band: bool) -> Any:
    """How pickle writes an array of this kind; `is_out_of_band`: buffers travel beside the pickle."""
    if passing.by_file:
        reduced = reduce_to_file(array)
        if reduced is not None:
            return reduced
    elif array.flags.writeable and _writable_map(array) is not None:
        plain = np.asarray(array)
        if is_out_of_band and (plain.flags.c_contiguous or plain.flags.f_contiguous):
            return plain.__reduce_ex__(5)
        return _read_only, (plain,)
    return array.__reduce_ex__(5)


def reduce_to_file(array: Any) -> tuple[Any, ...] | None:
    """How to make an array again from its file; None if it is in no file, or its changes do not go there.

    Raises:
        ValueError: The file was removed, or is another one by now.
    """
    root = _writable_map(array)
    if root is None or not array.flags.writeable or array.dtype.hasobject:
        return None
    if array.size == 0:
        return None
    bounds: Any = np.lib.array_utils if hasattr(np.lib, "array_utils") else np
    low, high = bounds.byte_bounds(array)
    begin = root.offset + low - root.__array_interface__["data"][0]
    path = str(Path(root.filename).absolute())
    first = array.__array_interface__["data"][0] - low
    try:
        place = _place(path)
    except OSError as error:
        raise ValueError(
            f"the array lies in the file {path}, which workers cannot open: {error.strerror}. Keep the file as long as "
            "calls use it, or pass a copy: np.array(...)"
        ) from error
    layout = array.dtype, array.shape, array.strides, first
    return _open, (path, place, begin, high - low, *layout)


def _writable_map(array: Any) -> Any:
    """The mapped array that `array` is a view of, if writes to it go to the file."""
    base = array
    while isinstance(base, np.ndarray):
        inner: Any = base.base
        if isinstance(base, np.memmap) and isinstance(inner, mmap.mmap):
            return base if base.mode in ("r+", "w+") and base.filename is not None else None
        base = inner
    return None


def _place(path: str) -> tuple[str, int, int]:
    """The file's identity: its machine (boot id), its device, and its number there."""
    found = Path(path).stat()
    return _BOOT_ID.read_text(encoding="ascii").strip(), found.st_dev, found.st_ino


def _open(
    path: str,
    place: tuple[str, int, int],
    begin: int,
    size: int,
    dtype: Any,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    first: int,
) -> Any:
    try:
        here = _place(path)
        # A file that two machines share has the same number on both.
        if here[2] != place[2] or (here[0] == place[0] and here[1] != place[1]):
            raise FileNotFoundError(f"there is another file {path}")
        flat = np.memmap(path, dtype=np.uint8, mode="r+", offset=begin, shape=(size,))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"an argument is an array in the file {path}, which cannot be written here ({error}): the call runs on "
            "another machine, or the file has changed. Pass a copy, np.array(...), and return what is to be written"
        ) from error
    return np.ndarray.__new__(np.memmap, shape, dtype, buffer=flat, offset=first, strides=strides)


def _read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array
