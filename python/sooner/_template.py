"""The template process: imports what workers need, then forks them.

It has one thread and starts none; nothing that breaks under fork is initialised here.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import sys

# The most there is (proc(5)).
_FIRST_TO_GO = b"1000"


def main(preload: list[str], record_call_sites: bool, directory: str) -> None:
    """Forks workers until the node is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Whatever the driver has open and inheritable is none of the workers' business.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    descriptor = os.dup(0)
    os.set_inheritable(descriptor, False)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    # Should memory run out faster than the node looks, the kernel ends the largest of the workers,
    # which inherit this, and neither the driver nor the node.
    with contextlib.suppress(OSError):
        score = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(score, _FIRST_TO_GO)
        os.close(score)
    # What every worker uses, so that none of them has to import it.
    import cloudpickle  # noqa: F401

    from sooner import _code, _errors, _sooner, _worker  # noqa: F401

    for name in preload:
        try:
            importlib.import_module(name)
        except Exception as error:
            print(f"sooner: preload={name!r} cannot be imported: {error!r}", file=sys.stderr)
    _worker.session_directory = directory
    _sooner.record_call_sites(record_call_sites)
    template = _sooner.Template(descriptor)
    gc.collect()
    gc.freeze()
    while (request := template.next()) is not None:
        worker, node, stdout, stderr = request
        try:
            pid = os.fork()
        except OSError as error:
            template.failed(worker, str(error))
            pid = -1
        if pid == 0:
            os.close(descriptor)
            _worker.main(worker, node, stdout, stderr)
        for passed in (node, stdout, stderr):
            os.close(passed)
        if pid > 0:
            template.forked(worker, pid)
    if not template.is_dismissed():
        # The node's process may have been killed: the last one out clears up.
        _sooner.remove_session(directory)
    os._exit(0)
