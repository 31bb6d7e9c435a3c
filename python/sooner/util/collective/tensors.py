"""NumPy's view of what users pass as tensors, and how values of the members become one."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import numpy as np

from sooner.util.collective.types import ReduceOp

Array = np.ndarray[Any, np.dtype[Any]]

_KINDS = "biufc"
_UFUNCS = {
    ReduceOp.SUM: np.add,
    ReduceOp.PRODUCT: np.multiply,
    ReduceOp.MIN: np.minimum,
    ReduceOp.MAX: np.maximum,
    ReduceOp.AVERAGE: np.add,
}


def array_of(tensor: Any, what: str, *, is_written: bool) -> Array:
    """The array that shares the memory of a tensor.

    Args:
        tensor: A NumPy array or a CPU tensor of PyTorch.
        what: What users call it.
        is_written: The operation writes into it.

    Raises:
        TypeError: It is something else, or its elements are no numbers.
        ValueError: It cannot be written.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tensor, torch.Tensor):
        tensor = _array_of_torch(tensor, what)
    if not isinstance(tensor, np.ndarray):
        raise TypeError(f"{what} must be a NumPy array or a CPU tensor of PyTorch, not {type(tensor).__name__}")
    if tensor.dtype.kind not in _KINDS:
        raise TypeError(f"{what} must hold numbers, not elements of dtype {tensor.dtype}")
    if is_written and not tensor.flags.writeable:
        raise ValueError(
            f"{what} is read-only, and this operation writes into it: pass a copy (tensor.copy()), "
            "or fetch it with sooner.get(ref, copy=True)"
        )
    return np.asarray(tensor)


def _array_of_torch(tensor: Any, what: str) -> Any:
    if tensor.device.type != "cpu":
        raise TypeError(
            f"{what} is on {tensor.device}: sooner's collective operations take CPU tensors only. Use tensor.cpu(), or "
            "torch.distributed for groups of GPUs"
        )
    try:
        return tensor.detach().numpy()
    except (TypeError, RuntimeError) as error:
        raise TypeError(f"{what} cannot be seen as a NumPy array ({error}): convert it first") from error


def dtype_name(array: Array) -> str:
    """The name of its dtype, whatever its byte order."""
    return array.dtype.newbyteorder("=").name


def flat(array: Array) -> Array:
    """Its elements in C order and this machine's byte order: a view if it has them so, otherwise a copy."""
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("=")).reshape(-1)


def write(array: Array, elements: Array) -> None:
    """Write elements in C order into an array."""
    np.copyto(array, elements.reshape(array.shape))


def cut(elements: Array, count: int) -> list[Array]:
    """Parts that follow each other and differ in size by one element at most."""
    bounds = [place * elements.size // count for place in range(count + 1)]
    return [elements[begin:end] for begin, end in itertools.pairwise(bounds)]


def check_op(op: ReduceOp, array: Array) -> None:
    """Raise TypeError unless `op` is a reduction for elements such as these."""
    if not isinstance(op, ReduceOp):
        raise TypeError(f"op must be a ReduceOp, not {op!r}")
    if op is ReduceOp.AVERAGE and array.dtype.kind not in "fc":
        raise TypeError(f"ReduceOp.AVERAGE is for floating point and complex numbers, not for {array.dtype}")


def combined(parts: list[Array], op: ReduceOp) -> Array:
    """What one array for each member becomes: combined in the order of ranks, so the same in every run."""
    result = parts[0].copy()
    for part in parts[1:]:
        _UFUNCS[op](result, part, out=result)
    if op is ReduceOp.AVERAGE:
        np.true_divide(result, len(parts), out=result)
    return result
