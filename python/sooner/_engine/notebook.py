"""What is different in an IPython kernel. Never imports IPython, which a kernel has imported already.

A kernel shows output in the cell from whose context it is written. Threads of the engine have no such
context: their output would end up in the cell that ran last, or nowhere (display updates in some kernels).
So this module keeps the context of the cell that runs, or ran last, and those threads write from it.
"""

from __future__ import annotations

import contextvars
import importlib
import sys
from collections.abc import Callable
from typing import Any

_cell: contextvars.Context | None = None
_is_watching = False


def is_kernel() -> bool:
    """Whether this process is the kernel of a notebook."""
    shell = _shell()
    return shell is not None and hasattr(shell, "kernel")


def _shell() -> Any:
    ipython = sys.modules.get("IPython")
    get = getattr(ipython, "get_ipython", None)
    return None if get is None else get()


def watch_cells() -> None:
    """Keeps the context of each cell from now on, the running one included."""
    global _is_watching
    if not is_kernel():
        return
    _note_cell()
    if not _is_watching:
        _is_watching = True
        _shell().events.register("pre_run_cell", _note_cell)


def _note_cell(*_: Any) -> None:
    global _cell
    _cell = contextvars.copy_context()


def in_cell(work: Callable[..., Any], *args: Any) -> Any:
    """Calls `work` in the context of the cell that runs, or ran last."""
    if _cell is None:
        return work(*args)
    # A context can be entered once at a time, a copy of it always.
    return _cell.copy().run(work, *args)


def display(shown: Any) -> Callable[[Any], None]:
    """Shows `shown` in the cell; returns a function that replaces it, to be called from any thread."""
    show = importlib.import_module("IPython.display").display
    cell = _cell or contextvars.copy_context()
    handle = cell.copy().run(show, shown, display_id=True)

    def update(shown: Any) -> None:
        cell.copy().run(handle.update, shown)

    return update
