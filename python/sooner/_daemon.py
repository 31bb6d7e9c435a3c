"""The process of a node that `sooner start` started. Once the node runs, no Python code does, but for `--http-port`."""

from __future__ import annotations

import os
import sys
from typing import Any

from sooner import _launch

# Where the one who starts the process hears whether the node is ready.
READY = 3


def command(config: dict[str, Any], in_foreground: bool) -> list[str]:
    """Program and arguments of a node's process. It needs this package and the standard library, and nothing else."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    config = config | {"interpreter": _launch.interpreter()}
    code = (
        f"import sys; sys.path.append({package!r}); from sooner._daemon import main; main({config!r}, {in_foreground})"
    )
    # `site` takes most of an interpreter's start.
    return [sys.executable, "-S", "-P", "-c", code]


def main(config: dict[str, Any], in_foreground: bool) -> None:
    """Runs the node to its end."""
    import signal

    from sooner import _sooner

    # Whatever the starting process had open is none of a node's business.
    os.closerange(3 if in_foreground else READY + 1, os.sysconf("SC_OPEN_MAX"))
    os.chdir("/")
    read, write = os.pipe()
    os.set_blocking(write, False)
    # The interpreter's own handler writes a byte per signal; the engine waits for it.
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    # Gone from the environment, so that no worker inherits it.
    token = os.environ.pop("SOONER_TOKEN", None)
    port, told = config.pop("http_port"), None if in_foreground else READY
    if port is not None and not _serve_http(port, config["base_directory"], told):
        os._exit(1)
    status = _sooner.node_main(**config, token=token, signals=read, ready=told)
    os._exit(status)


def _serve_http(port: int, base_directory: str, ready: int | None) -> bool:
    """Says why, if it cannot be done."""
    from sooner import _http

    try:
        _http.serve(port, base_directory)
    except OSError as error:
        reason = f"--http-port {port} on 127.0.0.1: {error.strerror}; free it or choose another port"
        if ready is None:
            print(f"sooner start: {reason}", file=sys.stderr)
        else:
            os.write(ready, f"error {reason}\n".encode())
        return False
    return True
