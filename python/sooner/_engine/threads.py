"""How many threads numeric libraries use in a worker: as many as its task or actor has CPUs.

BLAS, OpenMP and similar libraries start a thread per core of the machine, so k workers would start k threads
per core. So a worker begins with one thread, and has more for a task or actor that asked for more CPUs. A
user who sets one of the variables decides the number for all workers.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

from sooner._engine import tidying

# Variables that the libraries read when they are loaded. Each reads the first if its own is not set.
_GENERAL = "OMP_NUM_THREADS"
_VARIABLES = (_GENERAL, "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")

# By the beginning of a library's file name, functions that set its number of threads. The first that the
# library has is called.
_FUNCTIONS = {
    "libopenblas": (
        "openblas_set_num_threads",
        "openblas_set_num_threads64_",
        "openblas_set_num_threads_64_",
        "scipy_openblas_set_num_threads",
        "scipy_openblas_set_num_threads64_",
    ),
    "libmkl_rt": ("MKL_Set_Num_Threads",),
    "libblis": ("bli_thread_set_num_threads",),
    "libgomp": ("omp_set_num_threads",),
    "libomp": ("omp_set_num_threads",),
    "libiomp": ("omp_set_num_threads",),
}
_FUNCTIONS["libscipy_openblas"] = _FUNCTIONS["libopenblas"]

# Python modules that have a function for it.
_MODULES = {"torch": "set_num_threads", "cv2": "setNumThreads", "numexpr": "set_num_threads"}

# What this module has written into the environment.
_written: dict[str, str] = {}


def begin() -> None:
    """In the template, before user imports: sets one thread, unless the user has set a number."""
    if _GENERAL in os.environ:
        return
    for name in _VARIABLES:
        if name not in os.environ:
            os.environ[name] = _written[name] = "1"


def use(count: int) -> None:
    """Sets the number of threads in a worker whose next task has another number of CPUs than the last one.

    Args:
        count: Threads, at least 1.
    """
    if _GENERAL not in _written:
        return
    # This is no change by the task, which would be set back after it.
    with tidying.paused():
        for name, value in list(_written.items()):
            # Code of the user may have set it since.
            if os.environ.get(name) == value:
                os.environ[name] = _written[name] = str(count)
    for path, functions in _loaded():
        if _is_ours(path):
            _tell(path, functions, count)
    for name, function in _MODULES.items():
        module = sys.modules.get(name)
        if module is not None and (name != "numexpr" or "NUMEXPR_NUM_THREADS" in _written):
            with contextlib.suppress(Exception):
                # numexpr has a limit of its own.
                getattr(module, function)(count)


def _is_ours(path: str) -> bool:
    """Whether the user has left the number to us."""
    file = os.path.basename(path)
    if "openblas" in file:
        return "OPENBLAS_NUM_THREADS" in _written
    return "mkl" not in file or "MKL_NUM_THREADS" in _written


def _loaded() -> Iterator[tuple[str, tuple[str, ...]]]:
    """The libraries of this process that have threads of their own."""
    seen = set()
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            start = line.find("/")
            if start < 0:
                continue
            path = line[start:].rstrip("\n")
            if path in seen:
                continue
            seen.add(path)
            file = os.path.basename(path)
            for begin_of_name, functions in _FUNCTIONS.items():
                if file.startswith(begin_of_name):
                    yield path, functions


def _tell(path: str, functions: tuple[str, ...], count: int) -> None:
    import ctypes  # start-up: 2.7 ms

    try:
        # Only a library that is there already; this loads none.
        library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return
    for name in functions:
        function = getattr(library, name, None)
        if function is not None:
            function.argtypes, function.restype = [ctypes.c_int], None
            function(count)
            return
