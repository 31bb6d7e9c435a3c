"""A server that speaks S3 for the tests, and a relay before it that can be away. Both are on loopback."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from support import WAIT, poll, stopped

SECRET = "a-secret-of-the-tests"
_PIECE_BYTES = 256 << 10


class Server:
    """moto's server in a process of its own. What it holds is in its memory.

    Args:
        log: A file for what it prints: a line for each request.
        environment: Further variables.

    Attributes:
        url: Its endpoint.
    """

    def __init__(self, log: Path, environment: dict[str, str] | None = None) -> None:
        self._log = log
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
        with log.open("wb") as file:
            surroundings = os.environ | (environment or {})
            self.process = subprocess.Popen(command, stdout=file, stderr=file, env=surroundings)
        try:
            self.url = poll("the server listens", self._listens, seconds=WAIT)
        except BaseException:
            self.close()
            raise

    def _listens(self) -> str | None:
        assert self.process.poll() is None, self._log.read_text()
        found = re.search(r"Running on (http://127\.0\.0\.1:\d+)", self._log.read_text())
        return found and found[1]

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends it."""
        self.process.kill()
        self.process.wait()

    @contextlib.contextmanager
    def hanging(self) -> Iterator[None]:
        """It takes connections meanwhile, and answers nobody."""
        with stopped(self.process.pid):
            yield

    def make_bucket(self, name: str) -> None:
        """Makes a bucket."""
        request = urllib.request.Request(f"{self.url}/{name}", method="PUT")
        urllib.request.urlopen(request, timeout=WAIT).close()

    def keys(self, bucket: str) -> list[str]:
        """What is in a bucket: at most 1,000 names."""
        with urllib.request.urlopen(f"{self.url}/{bucket}?list-type=2", timeout=WAIT) as answer:
            return re.findall(r"<Key>([^<]*)</Key>", answer.read().decode())

    def delete(self, bucket: str, key: str) -> None:
        """Deletes what is there under a name."""
        # It looks whether there is a signature, and not at it.
        headers = {"Authorization": "AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/s3/aws4_request"}
        request = urllib.request.Request(f"{self.url}/{bucket}/{key}", method="DELETE", headers=headers)
        urllib.request.urlopen(request, timeout=WAIT).close()

    def count(self, method: str, bucket: str) -> int:
        """How many requests of a kind for what is in a bucket it has answered."""
        return len(re.findall(rf'"{method} /{bucket}/\S+ HTTP', self._log.read_text(errors="replace")))


class Relay:
    """Passes connections on to an endpoint, unless it is away.

    Attributes:
        url: Where it listens.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.removeprefix("http://").rpartition(":")
        self._target = (host, int(port))
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._address = ("127.0.0.1", 0)
        self.come()
        self.url = "http://{}:{}".format(*self._address)

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *error: object) -> None:
        self.go()
        for thread in self._threads:
            thread.join(WAIT)
            assert not thread.is_alive()

    def come(self) -> None:
        """Takes connections from now on."""
        self._listener = socket.create_server(self._address, reuse_port=True)
        self._address = self._listener.getsockname()
        self._start(self._accept, self._listener)

    def go(self) -> None:
        """Ends all connections and takes no more."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for end in self._open:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def _start(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._target, timeout=WAIT)
            except OSError:
                near.close()
                continue
            with self._lock:
                self._open |= {near, far}
            self._start(self._pass_on, near, far)
            self._start(self._pass_on, far, near)

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(_PIECE_BYTES):
                target.sendall(piece)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)
        with self._lock:
            self._open.discard(source)
        # The other direction still writes to it, or finds it closed.
        with contextlib.suppress(OSError):
            source.shutdown(socket.SHUT_RD)
