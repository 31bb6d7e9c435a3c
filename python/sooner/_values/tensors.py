"""Pickling of PyTorch's tensors: the memory of CPU tensors travels out of band, as that of NumPy's arrays.

torch itself copies a tensor's whole storage into the pickle. And it has no read-only tensors: an operation in
place on a tensor over read-only memory would end the process. So a tensor arrives over memory of its own:
pages of the stored value that are copied on write.

Tensors that share a storage share it afterwards, too. Of a storage only the part between the first and the
last byte that tensors of the value use is sent.
"""

from __future__ import annotations

import ctypes
import pickle
from collections.abc import Callable
from typing import Any

import torch

from sooner import _sooner

# The sent part of a storage begins at a multiple of this (bytes), so that every element stays aligned.
_ALIGNMENT = 64


class _Storage:
    """The memory of some tensors: one per storage and pickle, so that pickle writes it once."""

    def __init__(self, storage: Any) -> None:
        self.storage = storage
        self.low, self.high = storage.nbytes(), 0
        self.begin = bytearray(8)
        self.buffer = pickle.PickleBuffer(self.memory(0, storage.nbytes()))

    def memory(self, low: int, high: int) -> ctypes.Array[ctypes.c_char]:
        """A part of the memory, which keeps the storage alive."""
        if high <= low:
            return (ctypes.c_char * 0)()
        array = (ctypes.c_char * (high - low)).from_address(self.storage.data_ptr() + low)
        array.storage = self.storage  # type: ignore[attr-defined]
        return array

    def __reduce__(self) -> tuple[Any, ...]:
        return _storage, (self.buffer, pickle.PickleBuffer(self.begin))


class Storages:
    """The storages of one pickle.

    Args:
        is_out_of_band: Whether buffers travel beside the pickle, so that they can be cut when it is complete.
    """

    def __init__(self, is_out_of_band: bool) -> None:
        self._is_out_of_band = is_out_of_band
        self._known: dict[tuple[int, int], _Storage] = {}

    def reducers(self) -> dict[type, Callable[[Any], Any]]:
        """The reducers by class, for `pickle`."""
        return {torch.Tensor: self._reduce}

    def cut(self) -> dict[int, pickle.PickleBuffer]:
        """The parts to send in place of whole storages, by the identity of their buffers."""
        instead = {}
        for known in self._known.values():
            low = known.low // _ALIGNMENT * _ALIGNMENT
            known.begin[:] = low.to_bytes(8, "little")
            instead[id(known.buffer)] = pickle.PickleBuffer(known.memory(low, known.high))
        return instead

    def _reduce(self, tensor: torch.Tensor) -> Any:
        if not _is_plain(tensor):
            return tensor.__reduce_ex__(5)
        # Resolves conjugation and negation into the values: some versions of torch lose the marks for them.
        tensor = tensor.resolve_conj().resolve_neg()
        storage = _storage_of(tensor)
        key = storage.data_ptr(), storage.nbytes()
        low, high = _span(tensor)
        spanned = high - low if self._is_out_of_band else storage.nbytes()
        if key not in self._known and 2 * tensor.numel() * tensor.element_size() < spanned:
            # The tensor uses little of its storage, as a column of a table does: it is sent as a copy.
            tensor = tensor.detach().clone(memory_format=torch.contiguous_format).requires_grad_(tensor.requires_grad)
            storage = _storage_of(tensor)
            key = storage.data_ptr(), storage.nbytes()
            low, high = _span(tensor)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = _Storage(storage)
        known.low, known.high = min(known.low, low), max(known.high, high)
        place = tensor.storage_offset(), tuple(tensor.size()), tensor.stride()
        return _rebuild, (known, tensor.dtype, *place, tensor.requires_grad)


def _is_plain(tensor: torch.Tensor) -> bool:
    return (
        tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and not (tensor.is_quantized or tensor.has_names())
        and not tensor._backward_hooks
        and not tensor.__dict__
    )


def _storage_of(tensor: torch.Tensor) -> Any:
    if hasattr(tensor, "untyped_storage"):
        return tensor.untyped_storage()
    # Before torch 2.
    return tensor.storage().untyped()


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """The range of bytes of its storage that a tensor uses: the first, and the one after the last."""
    size = tensor.element_size()
    first = tensor.storage_offset() * size
    if tensor.numel() == 0:
        return first, first
    strides = zip(tensor.size(), tensor.stride(), strict=True)
    last = sum((count - 1) * stride for count, stride in strides)
    return first, first + (last + 1) * size


def _storage(buffer: Any, begin: Any) -> tuple[Any, int]:
    """Makes the storage that arrives. Returns it and its place in the original storage (bytes)."""
    memory = _sooner.writable(buffer)
    flat = torch.frombuffer(memory, dtype=torch.uint8) if len(memoryview(memory)) else torch.empty(0, dtype=torch.uint8)
    return _storage_of(flat), int.from_bytes(bytes(memoryview(begin)), "little")


def _rebuild(
    arrived: tuple[Any, int],
    dtype: torch.dtype,
    offset: int,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    requires_grad: bool,
) -> torch.Tensor:
    storage, begin = arrived
    tensor = torch.empty(0, dtype=dtype)
    # The offset of an empty tensor may be anywhere.
    offset = max(0, offset - begin // tensor.element_size())
    with torch.no_grad():
        tensor.set_(storage, offset, size, stride)
    return tensor.requires_grad_() if requires_grad else tensor
