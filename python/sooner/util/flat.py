"""One contiguous array for a tree of arrays, and the tree again as views into such an array.

The parameters or gradients of a model are many small arrays. One array costs less to serialise and to send,
is added to others of its kind in one operation, and is cut into slices for several owners. `Flat.of(tree)`
makes this array, and `flat.tree(array)` gives the tree back. A `Layout` says which leaf lies where; its hash
tells two workers whether their arrays mean the same.

A tree consists of containers and leaves. Containers are dicts with keys of `str` or `int`, OrderedDicts,
lists, tuples, named tuples and instances of dataclasses. An `nn.Module` of PyTorch stands for the dict of its
named parameters. Leaves are numeric NumPy arrays, numbers of Python or NumPy, and CPU tensors of PyTorch.

This module never imports PyTorch: it knows tensors in processes that have imported it. A buffer never shares
memory with the tree that it was made of. No dtype is converted unless `cast=` says so, and no buffer is read
with a layout that does not fit it.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from sooner.util.array_tree import ARRAYS, NUMERIC_KINDS, Array, Branch, Leaf, built, imported_torch, named, walk

__all__ = ["Flat", "Layout", "LayoutError"]

_HASH_BYTES = 16


class LayoutError(ValueError):
    """A tree or a Flat has another layout than the one that it is used with."""


class Layout:
    """Where each leaf of a tree lies in the buffer. `Layout.of` and `Flat.of` make layouts.

    Layouts are equal if they have the same dtype and the same paths, shapes and kinds of containers, in the
    same order. Whether a leaf is an array, a number or a tensor makes no difference, nor does its dtype
    before a cast. Classes of named tuples and dataclasses are compared by their qualified names.

    Attributes:
        dtype: The dtype of the buffer, in native byte order.
        size: The length of the buffer (elements).
        hash: 32 hexadecimal digits. Equal layouts have the same in all processes.
    """

    __slots__ = ("_is_cast", "_nodes", "dtype", "hash", "size")

    def __init__(self, nodes: Iterable[Leaf | Branch], dtype: np.dtype[Any], is_cast: bool) -> None:
        self._nodes = tuple(nodes)
        self._is_cast = is_cast
        self.dtype = dtype
        self.size = sum(math.prod(leaf.shape) for leaf in self._leaves())
        lines = [dtype.name, *map(str, self._nodes)]
        self.hash = hashlib.blake2b("\n".join(lines).encode(), digest_size=_HASH_BYTES).hexdigest()

    @classmethod
    def of(cls, tree: Any, *, cast: npt.DTypeLike | None = None) -> Layout:
        """The layout of a tree, whose values are not copied.

        Args:
            tree: As for `Flat.of`.
            cast: As for `Flat.of`. The method `buffer` casts, too.

        Returns:
            The layout that `Flat.of(tree, cast=cast)` has.

        Raises:
            TypeError: As for `Flat.of`.
            ValueError: As for `Flat.of`.
        """
        return _layout(tree, cast)[0]

    def buffer(self, tree: Any) -> Array:
        """A new buffer with the values of a tree that has this layout.

        Args:
            tree: As for `Flat.of`.

        Returns:
            A writable, contiguous array of shape `(size,)` and of this layout's dtype.

        Raises:
            LayoutError: The tree has another layout. The message names the first path that differs.
            TypeError: As for `Flat.of`.
            ValueError: As for `Flat.of`.
        """
        layout, arrays = _layout(tree, self.dtype if self._is_cast else None)
        self.check(layout)
        return self._filled(arrays)

    def tree(self, buffer: Array) -> Any:
        """The tree whose values are in a buffer.

        Args:
            buffer: A contiguous array of shape `(size,)` and of this layout's dtype.

        Returns:
            A tree with the containers, keys and shapes of the original. Its leaves are views into the buffer,
            have the buffer's dtype, and are read-only if the buffer is. Numbers come back as arrays of shape
            `()`, and tensors as tensors. PyTorch has no read-only tensors: those of a read-only buffer are
            views into a copy of it. Instances of dataclasses are made without `__init__` and `__post_init__`.

        Raises:
            TypeError: The buffer is no NumPy array, or has another dtype.
            ValueError: The buffer has another shape, or is not contiguous.
            RuntimeError: The original has tensors, and this process has not imported PyTorch.
        """
        memory = self._checked(buffer)
        return built(iter(self._nodes), self._values(memory))

    def check(self, other: Layout | Flat | str) -> None:
        """Raise unless another layout equals this one.

        Args:
            other: A Layout, a Flat, or the hash of a layout. From a hash alone no path can be named.

        Raises:
            LayoutError: It is another layout. The message names the first path that differs.
            TypeError: `other` is something else.
        """
        theirs = other.layout if isinstance(other, Flat) else other
        if isinstance(theirs, str):
            if theirs != self.hash:
                raise LayoutError(
                    f"the layouts differ: expected the hash {self.hash}, found {theirs}; "
                    "pass the Layout instead of its hash to learn where"
                )
        elif not isinstance(theirs, Layout):
            raise TypeError(f"check() takes a Layout, a Flat or a hash, not {type(theirs).__name__}")
        elif theirs.hash != self.hash:
            raise LayoutError(self._difference(theirs))

    def _difference(self, other: Layout) -> str:
        for mine, theirs in itertools.zip_longest(self._nodes, other._nodes, fillvalue="nothing more"):
            if str(mine) != str(theirs):
                return f"the layouts differ: expected {mine}, found {theirs}"
        return f"the layouts differ: expected dtype {self.dtype}, found {other.dtype}"

    def _checked(self, buffer: Any) -> Array:
        if type(buffer) not in ARRAYS:
            raise TypeError(f"the buffer must be a NumPy array of dtype {self.dtype}, not {type(buffer).__name__}")
        if buffer.dtype != self.dtype:
            raise TypeError(f"the buffer must have dtype {self.dtype}, not {buffer.dtype}")
        if buffer.shape != (self.size,):
            raise ValueError(f"the buffer must have shape {(self.size,)}, not {buffer.shape}")
        if not buffer.flags.c_contiguous:
            raise ValueError("the buffer must be contiguous: numpy.ascontiguousarray(buffer) is")
        return np.asarray(buffer)

    def _leaves(self) -> Iterator[Leaf]:
        return (node for node in self._nodes if isinstance(node, Leaf))

    def _views(self, memory: Array) -> Iterator[Array]:
        begin = 0
        for leaf in self._leaves():
            end = begin + math.prod(leaf.shape)
            yield memory[begin:end].reshape(leaf.shape)
            begin = end

    def _filled(self, arrays: Iterable[Array]) -> Array:
        memory = np.empty(self.size, self.dtype)
        for view, array in zip(self._views(memory), arrays, strict=True):
            np.copyto(view, array, casting="same_kind")
        return memory

    def _values(self, memory: Array) -> Iterator[Any]:
        tensors = [leaf.path for leaf in self._leaves() if leaf.is_tensor]
        torch = imported_torch()
        if tensors and torch is None:
            raise RuntimeError(f"{named(tensors[0])} was a tensor: import torch before you make the tree")
        # A write to a tensor over the store's memory would end the process.
        own = memory.copy() if tensors and not memory.flags.writeable else memory
        for leaf, view, part in zip(self._leaves(), self._views(memory), self._views(own), strict=True):
            yield torch.from_numpy(part) if leaf.is_tensor else view

    def __eq__(self, other: object) -> bool:
        return self.hash == other.hash if isinstance(other, Layout) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.hash)

    def __repr__(self) -> str:
        return f"<Layout {self.hash}: {self.size} x {self.dtype}, {sum(1 for _ in self._leaves())} leaves>"


class Flat:
    """A tree of arrays as one contiguous buffer. `Flat.of` makes it.

    Attributes:
        buffer: The values: an array of shape `(layout.size,)` and dtype `layout.dtype`, writable and owned by
            this Flat. After `sooner.get(ref)` it is read-only, and after `sooner.get(ref, copy=True)`
            writable.
        layout: Where each leaf lies in the buffer.

    Example:
        >>> flat = Flat.of({"weight": np.ones((2, 3)), "bias": np.zeros(3)})
        >>> flat.buffer
        array([1., 1., 1., 1., 1., 1., 0., 0., 0.])
        >>> flat.tree(2 * flat.buffer)["weight"]
        array([[2., 2., 2.],
               [2., 2., 2.]])
    """

    __slots__ = ("buffer", "layout")

    def __init__(self, buffer: Array, layout: Layout) -> None:
        if not isinstance(layout, Layout):
            raise TypeError(
                f"a Flat has a Layout, not {type(layout).__name__}: use Flat.of(tree) to make one of a tree"
            )
        self.buffer = layout._checked(buffer)
        self.layout = layout

    @classmethod
    def of(cls, tree: Any, *, cast: npt.DTypeLike | None = None) -> Flat:
        """Copy the values of a tree into one new buffer.

        The leaves follow each other in the order of the tree, each in C order. Arrays may have any byte
        order, any strides, and size 0. An array that is in the tree twice is in the buffer twice.

        Args:
            tree: Containers and leaves, as this module describes them. A number counts as an array of shape
                `()`, with the dtype that `numpy.asarray` gives it: a Python `float` is a float64.
            cast: The dtype of the buffer. Everything can be cast to a dtype that has all its values; integers
                can be cast to floats and floats to smaller ones, which rounds values, and makes what is too
                large for the dtype infinite, with NumPy's warning. Without `cast`, all leaves must have one
                dtype.

        Returns:
            The buffer and its layout.

        Raises:
            TypeError: Something in the tree is neither container nor leaf, two leaves have different dtypes,
                or a leaf cannot be cast. The message names the path, as in `layers[0].bias`.
            ValueError: The tree has no leaf, a container contains itself, or more than 200 are in each other.
        """
        layout, arrays = _layout(tree, cast)
        return cls(layout._filled(arrays), layout)

    def tree(self, buffer: Array | Flat | None = None) -> Any:
        """The tree again, as views into this or another buffer.

        Args:
            buffer: An array as for `Layout.tree`, or a Flat of the same layout; by default this Flat's own
                buffer.

        Returns:
            A tree as from `Layout.tree`.

        Raises:
            LayoutError: `buffer` is a Flat of another layout. The message names the first path that differs.
            TypeError: As for `Layout.tree`.
            ValueError: As for `Layout.tree`.
            RuntimeError: As for `Layout.tree`.
        """
        if isinstance(buffer, Flat):
            self.check(buffer)
            buffer = buffer.buffer
        return self.layout.tree(self.buffer if buffer is None else buffer)

    def check(self, other: Layout | Flat | str) -> None:
        """Raise `LayoutError` unless another layout equals this one's, as `Layout.check` does."""
        self.layout.check(other)

    def __repr__(self) -> str:
        return f"<Flat of {self.layout!r}>"


def _layout(tree: Any, cast: npt.DTypeLike | None) -> tuple[Layout, list[Array]]:
    """The layout of a tree, and the array of each leaf."""
    found = list(walk(tree))
    leaves = [(named(node.path), array) for node, array in found if array is not None]
    if not leaves:
        raise ValueError("the tree has no leaf: expected at least one array, number or tensor")
    first, array = leaves[0]
    dtype = array.dtype.newbyteorder("=") if cast is None else np.dtype(cast).newbyteorder("=")
    if dtype.kind not in NUMERIC_KINDS:
        raise TypeError(f"cast= must be a numeric dtype, not {dtype}")
    # No integer wraps around, and no float loses its fraction.
    casting: Any = "same_kind" if dtype.kind in "fc" else "safe"
    for path, array in leaves:
        if cast is None and array.dtype.newbyteorder("=") != dtype:
            raise TypeError(
                f"a buffer has one dtype: {first} has {dtype}, {path} has {array.dtype}; "
                "say with cast= which dtype all are to have"
            )
        if not np.can_cast(array.dtype, dtype, casting=casting):
            raise TypeError(f"{path} has dtype {array.dtype}, which cannot be cast to {dtype} without damage")
    return Layout((node for node, _ in found), dtype, cast is not None), [array for _, array in leaves]
