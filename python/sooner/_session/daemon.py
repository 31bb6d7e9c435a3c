"""The process of a node that `sooner start` started. It runs Python code until the node runs, and then only
for `--http-port`.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, cast

from sooner._session import launch

if TYPE_CHECKING:
    from sooner._options.traits import ProcessTraits

# Descriptor on which the process reports to its starter whether the node is ready.
READY = 3
# Descriptor from which the process reads the cluster's token, if its starter had it in the environment.
TOKEN = 4
TOKEN_BYTES_MAX = 4096
# Descriptor that keeps the node's entry in the table of offered memory (`offers.py`) while the process lives.
OFFER = 5


def command(config: dict[str, Any], in_foreground: bool) -> list[str]:
    """Program and arguments of a node's process, which needs only this package and the standard library."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    config = config | {"interpreter": launch.interpreter()}
    has_token = "SOONER_TOKEN" in os.environ
    code = (
        f"import sys; sys.path.append({package!r}); from sooner._session.daemon import main; "
        f"main({config!r}, {in_foreground}, {has_token})"
    )
    # `site` takes most of an interpreter's start.
    return [sys.executable, "-S", "-P", "-c", code]


def main(config: dict[str, Any], in_foreground: bool, has_token: bool) -> None:
    """Runs the node to its end.

    Args:
        config: The node's configuration.
        in_foreground: Whether the process reports on its standard output that the node is ready.
        has_token: Whether the process is to read the cluster's token.
    """
    import signal  # start-up: 0.9 ms

    from sooner import _sooner

    token = os.read(TOKEN, TOKEN_BYTES_MAX).decode(errors="replace") if has_token else None
    # A node must not keep other descriptors that its starter had open.
    has_offer = config.pop("offer") is not None
    os.closerange(3 if in_foreground else READY + 1, OFFER)
    os.closerange(OFFER + has_offer, os.sysconf("SC_OPEN_MAX"))
    if has_offer:
        # Templates and workers must not inherit it.
        os.set_inheritable(OFFER, False)
    os.chdir("/")
    read, write = os.pipe()
    os.set_blocking(write, False)
    # The interpreter's own handler writes a byte per signal; the engine waits for it.
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    # SIGUSR1 has the node read its token file again.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, lambda *_: None)
    port, told = config.pop("http_port"), None if in_foreground else READY
    if port is not None and not _serve_http(port, config["base_directory"], told):
        os._exit(1)
    status = _sooner.node_main(cast("ProcessTraits", config), token, read, told)
    os._exit(status)


def _serve_http(port: int, base_directory: str, ready: int | None) -> bool:
    """Serves HTTP. Reports the reason and returns False if that fails."""
    from sooner._session import http  # start-up: 63.5 ms

    try:
        http.serve(port, base_directory)
    except OSError as error:
        reason = f"--http-port {port} on 127.0.0.1: {error.strerror}; free it or choose another port"
        if ready is None:
            print(f"sooner start: {reason}", file=sys.stderr)
        else:
            os.write(ready, f"error {reason}\n".encode())
        return False
    return True
