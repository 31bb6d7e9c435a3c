"""How members combine values, names of backends, and what members compare before they exchange anything."""

from __future__ import annotations

import enum
from typing import NamedTuple


class ReduceOp(enum.Enum):
    """How values of the members become one, element by element.

    With whole numbers, SUM and PRODUCT wrap around as in NumPy; AVERAGE is for floating point and complex
    numbers.
    """

    SUM = 0
    PRODUCT = 1
    MIN = 2
    MAX = 3
    AVERAGE = 4


class Backend(enum.StrEnum):
    """Names of backends. All of them mean the same: references of sooner, and NumPy in the members."""

    SOONER = "sooner"
    NCCL = "nccl"
    GLOO = "gloo"
    TORCH_GLOO = "torch_gloo"
    MPI = "mpi"
    HCCL = "hccl"


def gloo_available() -> bool:
    """True: what programs do with Gloo, they can do here."""
    return True


def nccl_available() -> bool:
    """False: tensors on GPUs are refused."""
    return False


class Patience(NamedTuple):
    """Seconds that a wait may take.

    Attributes:
        left: From now on.
        whole: Of the operation that it is a part of, for messages.
    """

    left: float
    whole: float


class Call(NamedTuple):
    """An operation as all members must have called it.

    Attributes:
        name: Of the function.
        dtype: Of the elements; empty if nothing is exchanged.
        shape: Of the tensor.
        detail: The root or the reduction; empty if there is none.
    """

    name: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    detail: str = ""

    def __str__(self) -> str:
        what = f"{self.dtype} of shape {self.shape}" if self.dtype else ""
        return f"{self.name}({', '.join(filter(None, (what, self.detail)))})"
