"""Trees of arrays: each node of a tree with its path, and a tree put together from its nodes.

`sooner.util.flat` says what a container and a leaf may be. This module refuses everything else with the path
to it. It never imports PyTorch, and never copies the values of a leaf.
"""

from __future__ import annotations

import dataclasses
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Key = str | int

# Booleans, integers with and without a sign, floats, and complex numbers.
NUMERIC_KINDS = "biufc"
# Other subclasses of arrays have masks or units, which would be lost.
ARRAYS = (np.ndarray, np.memmap)
# Containers around a leaf at most. Each takes two calls of the thousand that Python allows in each other.
DEPTH_MAX = 200
_NUMBERS = (bool, int, float, complex, np.generic)


class Leaf(NamedTuple):
    """A place for values.

    Attributes:
        path: How it is reached from the root, as in `layers[0].bias`; empty for the root.
        shape: Its shape; `()` for a number.
        is_tensor: Whether it is a tensor of PyTorch.
    """

    path: str
    shape: tuple[int, ...]
    is_tensor: bool

    def __str__(self) -> str:
        return f"{named(self.path)} with shape {self.shape}"


class Branch(NamedTuple):
    """A container.

    Attributes:
        path: How it is reached from the root; empty for the root.
        kind: What it is, the same in all processes.
        cls: Its class.
        keys: Its keys, the names of its fields, or the numbers of its items.
    """

    path: str
    kind: str
    cls: type[Any]
    keys: tuple[Key, ...]

    def __str__(self) -> str:
        return f"{named(self.path)} as {self.kind}"


def named(path: str) -> str:
    """A path as messages show it."""
    return path or "the root"


def imported_torch() -> Any:
    """PyTorch if this process has imported it to the end, else None: without it there are no tensors."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "Tensor") and hasattr(torch, "nn") else None


def walk(
    value: Any, path: str = "", above: dict[int, str] | None = None
) -> Iterator[tuple[Leaf | Branch, Array | None]]:
    """Each node of a tree before the nodes in it, and the array of each leaf.

    Args:
        value: The tree.
        path: Its path.
        above: The paths of the containers around it, by `id`.

    Raises:
        TypeError: Something is neither container nor leaf.
        ValueError: A container contains itself, or the tree is too deep.
    """
    above = {} if above is None else above
    torch = imported_torch()
    if torch is not None and isinstance(value, torch.nn.Module):
        value = dict(value.named_parameters())
    opened = _opened(value, path)
    if opened is None:
        is_tensor = torch is not None and isinstance(value, torch.Tensor)
        array = _of_tensor(value, path) if is_tensor else _of_leaf(value, path)
        yield Leaf(path, array.shape, is_tensor), array
        return
    if id(value) in above:
        raise ValueError(f"the tree has a cycle: {named(path)} is {named(above[id(value)])} again")
    if len(above) == DEPTH_MAX:
        raise ValueError(f"the tree is too deep: more than {DEPTH_MAX} containers are in each other")
    kind, keys, children = opened
    yield Branch(path, kind, type(value), tuple(keys)), None
    above[id(value)] = path
    for key, child in zip(keys, children, strict=True):
        yield from walk(child, _joined(path, key), above)
    del above[id(value)]


def _joined(path: str, key: Key) -> str:
    # What is no name is quoted: no two trees have the same paths.
    if not (isinstance(key, str) and key.isidentifier()):
        return f"{path}[{key!r}]"
    return f"{path}.{key}" if path else key


def _opened(value: Any, path: str) -> tuple[str, Sequence[Key], Iterable[Any]] | None:
    """The kind of a container, its keys, and what is in it; None for what is no container."""
    cls: Any = type(value)
    if cls in (dict, OrderedDict):
        for key in value:
            if type(key) not in (str, int):
                raise TypeError(f"cannot flatten {named(path)}: its key {key!r} is neither a str nor an int")
        return cls.__name__, list(value), value.values()
    if cls in (list, tuple):
        return cls.__name__, range(len(value)), value
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return f"named tuple {cls.__qualname__}", cls._fields, value
    if dataclasses.is_dataclass(value) and not isinstance(value, type | dict | list | tuple):
        names = [field.name for field in dataclasses.fields(value)]
        unset = [name for name in names if not hasattr(value, name)]
        if unset:
            raise TypeError(f"cannot flatten {named(_joined(path, unset[0]))}: the field is not set")
        return f"dataclass {type(value).__qualname__}", names, [getattr(value, name) for name in names]
    return None


def _of_leaf(value: Any, path: str) -> Array:
    found = f"an object of class {type(value).__qualname__}"
    if type(value) not in ARRAYS and not isinstance(value, _NUMBERS):
        raise _refused(path, found)
    array = np.asarray(value)
    if array.dtype.kind not in NUMERIC_KINDS:
        raise _refused(path, f"{found} with dtype {array.dtype}")
    return array


def _of_tensor(tensor: Any, path: str) -> Array:
    if tensor.device.type != "cpu":
        raise _refused(path, f"a tensor on {tensor.device}, of which tensor.cpu() is a copy")
    try:
        array: Array = tensor.numpy(force=True)
    except (TypeError, RuntimeError) as error:
        raise _refused(path, f"a tensor of {tensor.dtype}, {tensor.layout}, which is no array ({error})") from error
    return array


def _refused(path: str, found: str) -> TypeError:
    return TypeError(
        f"cannot flatten {named(path)}: found {found}; expected a numeric array, a number or a CPU tensor, or a dict, "
        "OrderedDict, list, tuple, named tuple or dataclass instance of these"
    )


def built(nodes: Iterator[Leaf | Branch], values: Iterator[Any]) -> Any:
    """The tree of the next node.

    Args:
        nodes: In the order of `walk`.
        values: What is at the leaves.
    """
    node = next(nodes)
    if isinstance(node, Leaf):
        return next(values)
    children = [built(nodes, values) for _ in node.keys]
    make: Callable[..., Any] = node.cls
    if issubclass(node.cls, dict):
        return make(zip(node.keys, children, strict=True))
    if node.cls in (list, tuple):
        return make(children)
    if issubclass(node.cls, tuple):
        return tuple.__new__(node.cls, children)
    made = object.__new__(node.cls)
    for key, child in zip(node.keys, children, strict=True):
        # Frozen dataclasses refuse their own `__setattr__`.
        object.__setattr__(made, str(key), child)
    return made
