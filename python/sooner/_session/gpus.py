"""Which GPUs a node has: those that its environment names, or those of the machine."""

from __future__ import annotations

import os

_VARIABLE = "CUDA_VISIBLE_DEVICES"
# Entries that name no GPU. As CUDA reads the list, such an entry hides itself and those behind it.
_NONE = ("", "-1", "NoDevFiles")
# Where NVIDIA's driver lists its devices.
_DRIVER = "/proc/driver/nvidia/gpus"


def visible() -> list[str] | None:
    """The GPUs that the environment of this process names, by number or UUID; None if it does not say."""
    said = os.environ.get(_VARIABLE)
    if said is None:
        return None
    names = []
    for entry in said.split(","):
        name = entry.strip()
        if name in _NONE:
            break
        names.append(name)
    return names


def count(directory: str = _DRIVER) -> int:
    """How many GPUs a process here may use."""
    named = visible()
    try:
        present = len(os.listdir(directory))
    except OSError:
        return 0
    return present if named is None else min(present, len(named))
