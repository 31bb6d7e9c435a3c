"""HTTP for autoscalers, load balancers and Prometheus, which ask about a node: `sooner start --http-port`.

It is read-only, listens on loopback only, and tells no secrets; every user of the machine can read it. It
never takes part in the node's work: it asks the node over the socket that the `sooner` command uses.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from sooner._session import membership, sessions
from sooner._state import rows
from sooner._state import snapshot as _snapshot
from sooner._state.snapshot import Snapshot

_HOST = "127.0.0.1"
# Host names by which browsers and tools address this machine. A page of another site, whose name was bound to
# loopback, sends its own name and is refused.
_NAMES = ("127.0.0.1", "localhost")
# Limit on each wait of a request (seconds).
_TIMEOUT = 5.0
# How long a request may take to arrive as a whole, and its answer to leave (seconds).
_TRANSFER_SECONDS = 2.0
# Requests at a time. One more ends the oldest one that is still arriving or whose answer is leaving. If the
# node is being asked for all of them, the new one is refused.
_REQUESTS_MAX = 16
_FULL = f"{_REQUESTS_MAX} requests are being answered: try again\n"


def serve(port: int, base_directory: str) -> None:
    """Answers requests from now on, in threads of their own, about the node that this process is or will be.

    Args:
        port: The port to listen on.
        base_directory: The directory below which the node has its own.

    Raises:
        OSError: The port is taken.
    """
    server = _Server(port, membership.base_directory(base_directory))
    threading.Thread(target=server.serve_forever, name="sooner-http", daemon=True).start()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    # Connections that may wait to be accepted. Further ones would wait for a second or more, and the limit of
    # the library, 5, is reached within moments.
    request_queue_size = 128

    def __init__(self, port: int, nodes: str) -> None:
        super().__init__((_HOST, port), _Handler)
        # The directory with those of all nodes.
        self.nodes = nodes
        # By connection, since when its request arrives or its answer leaves (monotonic seconds). None while
        # the node is asked.
        self._since: dict[socket.socket, float | None] = {}
        self._lock = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Hands a connection to a thread, or refuses it if there are too many."""
        if not self._admit(request):
            head = f"HTTP/1.1 {HTTPStatus.SERVICE_UNAVAILABLE} Full\r\nContent-Type: text/plain; charset=utf-8\r\n"
            with contextlib.suppress(OSError):
                request.setblocking(False)
                request.send(f"{head}Content-Length: {len(_FULL)}\r\nConnection: close\r\n\r\n{_FULL}".encode())
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answers a request, in a thread of its own."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._since.pop(request, None)

    def service_actions(self) -> None:
        """Ends requests that take too long to arrive, and answers that take too long to leave.

        The library calls this several times per second.
        """
        with self._lock:
            until = time.monotonic() - _TRANSFER_SECONDS
            for request in [one for one, since in self._since.items() if since is not None and since < until]:
                self._end(request)

    @contextlib.contextmanager
    def asking(self, request: socket.socket) -> Iterator[None]:
        """Stops the client's clock while the node is asked: the client is not to blame for that time."""
        self._mark(request, None)
        try:
            yield
        finally:
            self._mark(request, time.monotonic())

    def _admit(self, request: socket.socket) -> bool:
        with self._lock:
            if len(self._since) >= _REQUESTS_MAX:
                slow = [(since, one) for one, since in self._since.items() if since is not None]
                if not slow:
                    return False
                self._end(min(slow, key=lambda pair: pair[0])[1])
            self._since[request] = time.monotonic()
        return True

    def _mark(self, request: socket.socket, since: float | None) -> None:
        with self._lock:
            if request in self._since:
                self._since[request] = since

    def _end(self, request: socket.socket) -> None:
        """Ends a connection, which its thread notices. Its place is free at once."""
        del self._since[request]
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def snapshot(self, about: int, everywhere: bool = False) -> Snapshot:
        """Asks the node.

        Raises:
            RuntimeError: The node is not ready.
        """
        # node-<process>-<id>
        mine = f"/node-{os.getpid()}-"
        own = [path for path in sessions.running_nodes(self.nodes) if mine in path]
        if not own:
            raise RuntimeError("the node is not ready")
        return Snapshot(own[0], about, timeout=_TIMEOUT, everywhere=everywhere)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a client that went away is not reported."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _TIMEOUT
    server_version = "sooner"
    sys_version = ""

    def do_GET(self) -> None:
        """Answers a request."""
        name = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
        if name not in _NAMES:
            return self._answer(HTTPStatus.FORBIDDEN, f"ask {_HOST}, not {name!r}\n")
        if self.headers.get("Origin") is not None:
            return self._answer(HTTPStatus.FORBIDDEN, "web pages are not answered\n")
        answer = _ANSWERS.get(self.path.partition("?")[0])
        if answer is None:
            return self._answer(HTTPStatus.NOT_FOUND, f"there are: {', '.join(_ANSWERS)}\n")
        try:
            with self.server.asking(self.connection):
                body = answer(self.server)
        except Exception as error:  # the client gets any error
            return self._answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n")
        if isinstance(body, str):
            return self._answer(HTTPStatus.OK, body)
        return self._answer(HTTPStatus.OK, json.dumps(body) + "\n", "application/json")

    def do_HEAD(self) -> None:
        """The same without a body."""
        self.do_GET()

    def _answer(self, status: HTTPStatus, text: str, kind: str = "text/plain; charset=utf-8") -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the library says so
        """Nothing: a node has no terminal."""


def _health(server: _Server) -> str:
    server.snapshot(0)
    return "ok\n"


def _demand(server: _Server) -> dict[str, Any]:
    snapshot = server.snapshot(0)
    keys = ("node_id", "node_name", "state", "is_head_node", "resources_total", "resources_available")
    cluster = snapshot.node["cluster"]
    return {
        "cluster": cluster["fingerprint"] if cluster else None,
        "nodes": [{key: row[key] for key in keys} for row in rows.nodes(snapshot)],
        "demand": [{key: row[key] for key in ("resources", "count", "feasible")} for row in snapshot.node["demands"]],
        "placement_groups": [
            {
                "placement_group_id": row["placement_group_id"],
                "strategy": row["strategy"],
                "bundles": [bundle["resources"] for bundle in row["bundles"] if bundle["node_id"] is None],
            }
            for row in rows.placement_groups(snapshot)
            if row["state"] in ("PENDING", "RESCHEDULING")
        ],
    }


def _status(server: _Server) -> dict[str, Any]:
    from sooner._state.status import status_of  # start-up: 6.4 ms

    return status_of(server.snapshot(_snapshot.TASKS | _snapshot.ACTORS, everywhere=True))


def _metrics(server: _Server) -> str:
    from sooner._state.prometheus import text_of  # start-up: 1.5 ms

    return text_of(server.snapshot(_snapshot.METRICS))


_ANSWERS: dict[str, Callable[[_Server], str | dict[str, Any]]] = {
    "/healthz": _health,
    "/demand": _demand,
    "/status": _status,
    "/metrics": _metrics,
}
