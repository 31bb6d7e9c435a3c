"""Values that are combined element by element: arrays of NumPy and Arrow, floats, CPU tensors of PyTorch.

Each becomes its bytes in the byte order of this machine, beside a form from which a value of the same kind is
made again. This module never imports PyTorch or Arrow: a process that has such values has imported them.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

# What `_sooner.fold` can combine.
FLOATS = ("float16", "bfloat16", "float32", "float64")
WHOLE = ("int32", "int64")
_OF_NUMPY = (np.ndarray, np.generic)
# NumPy takes longer to name a dtype than to add small arrays up.
_NATIVE = {np.dtype(name): name for name in (*FLOATS, *WHOLE) if name != "bfloat16"}
# Of Arrow; the others are called as in NumPy.
_ARROW = {"halffloat": "float16", "float": "float32", "double": "float64", "int32": "int32", "int64": "int64"}


class Form(NamedTuple):
    """What a value is, without its elements.

    Attributes:
        kind: "array", "number" (a scalar of NumPy), "float" (of Python), "tensor" or "Arrow array".
        element: The name of its dtype.
        shape: Its shape.
        dtype: NumPy's dtype of the elements; of a bfloat16 tensor that of its bits.
    """

    kind: str
    element: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __str__(self) -> str:
        article = "an" if self.kind[0] in "aA" else "a"
        return f"{article} {self.kind} of {self.element} with shape {self.shape}"


def opened(value: Any) -> tuple[Form, Bytes]:
    """The form of a value and its bytes, which are not copied if they are contiguous and of this machine.

    Raises:
        TypeError: It is something else, or has other elements.
    """
    torch, arrow = sys.modules.get("torch"), sys.modules.get("pyarrow")
    if isinstance(value, _OF_NUMPY):
        return _of_array(value)
    if type(value) is float:
        form, plain = _of_array(np.float64(value))
        return form._replace(kind="float"), plain
    if torch is not None and isinstance(value, torch.Tensor):
        return _of_tensor(value, torch)
    if arrow is not None and isinstance(value, arrow.Array):
        return _of_arrow(value)
    raise TypeError(
        f"it is of type {type(value).__name__}, and only arrays of NumPy, floats, CPU tensors of PyTorch and Arrow "
        "arrays are combined by sooner itself: sooner.util.tree_reduce combines values of any kind with a function"
    )


def closed(form: Form, elements: Bytes) -> Any:
    """A value of a form. It has the memory of `elements`."""
    array = elements.view(form.dtype).reshape(form.shape)
    if form.kind in ("number", "float"):
        return array[()] if form.kind == "number" else float(array[()])
    if form.kind == "tensor":
        torch = sys.modules["torch"]
        tensor = torch.from_numpy(array)
        return tensor.view(torch.bfloat16) if form.element == "bfloat16" else tensor
    return sys.modules["pyarrow"].array(array) if form.kind == "Arrow array" else array


def _of_array(value: Any) -> tuple[Form, Bytes]:
    # Subclasses have masks or units, which would be lost.
    if isinstance(value, np.ndarray) and type(value) not in (np.ndarray, np.memmap):
        raise TypeError(f"it is a {type(value).__name__}: pass its data as a plain array (numpy.asarray)")
    dtype = value.dtype
    element = _NATIVE.get(dtype)
    if element is None:
        dtype = dtype.newbyteorder("=")
        element = dtype.name
        _check(element)
    kind = "array" if isinstance(value, np.ndarray) else "number"
    plain = np.ascontiguousarray(value, dtype=dtype).reshape(-1)
    return Form(kind, element, value.shape, dtype), plain.view(np.uint8)


def _of_tensor(value: Any, torch: Any) -> tuple[Form, Bytes]:
    if value.device.type != "cpu" or value.layout is not torch.strided:
        raise TypeError(f"it is a tensor on {value.device} with layout {value.layout}: use a dense one on the CPU")
    element = str(value.dtype).removeprefix("torch.")
    _check(element)
    plain = value.detach().contiguous()
    array = (plain.view(torch.int16) if element == "bfloat16" else plain).numpy().reshape(-1)
    return Form("tensor", element, tuple(value.shape), array.dtype), array.view(np.uint8)


def _of_arrow(value: Any) -> tuple[Form, Bytes]:
    element = _ARROW.get(str(value.type), str(value.type))
    _check(element)
    if value.null_count:
        raise TypeError(f"it is an Arrow array with {value.null_count} nulls: fill them first (fill_null)")
    array = value.to_numpy(zero_copy_only=True)
    return Form("Arrow array", element, array.shape, array.dtype), array.view(np.uint8)


def _check(element: str) -> None:
    if element not in (*FLOATS, *WHOLE):
        raise TypeError(
            f"its elements are {element}, and only those of {', '.join((*FLOATS, *WHOLE))} are combined by sooner "
            "itself: convert them (astype), or combine the values with a function by sooner.util.tree_reduce"
        )
