"""A proxy between nodes that does to their streams what bad networks and attackers do.

A stream is delayed, cut, or its bytes are changed, doubled, left out or swapped: all of which TCP never
does, and what reads the stream must find out. Chance comes from a seed; what was done is counted, so that
a test can insist that something was.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import socket
import threading
import time
from collections import Counter

_CHUNK_BYTES = 4096
_LISTEN = 64


@dataclasses.dataclass(frozen=True)
class Faults:
    """How likely (0 to 1) each fault is for one piece of at most 4,096 bytes, and how long pieces are held
    up.

    Attributes:
        corrupt: One of its bits changes.
        lose: It does not arrive, and what follows does.
        double: It arrives twice.
        swap: It arrives after the piece that follows it.
        cut: The connection ends, both ways, whatever is on its way.
        delay: Longest time that a piece waits (seconds); each waits a random part of it.
        vanish: Whether ends are kept back, as those of a machine that was switched off and on: who speaks
            finds the connection ended, who only listens hears nothing.
    """

    corrupt: float = 0
    lose: float = 0
    double: float = 0
    swap: float = 0
    cut: float = 0
    delay: float = 0
    vanish: bool = False


class Proxy:
    """Passes connections on to an address; ends with its `with` block.

    Args:
        target: Where to: HOST:PORT.
        seed: Of all chance.

    Attributes:
        address: Where it listens: 127.0.0.1:PORT.
        faults: What happens to pieces from now on.
        done: How often each fault was done, by its name; "connections" and "pieces" count those.
    """

    def __init__(self, target: str, seed: int = 0) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self.faults = Faults()
        self.done: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=_LISTEN)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._start(self._accept)

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def cut_all(self) -> None:
        """Ends every connection, both ways."""
        with self._lock:
            for one in self._open:
                _end(one)

    def close(self) -> None:
        """Ends everything, and returns when nothing is left."""
        # `close` alone does not wake up a thread in `accept`.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        while self._threads:
            self.cut_all()
            self._threads.pop().join()

    def _start(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target, timeout=10)
            except OSError:
                _end(client)
                client.close()
                continue
            server.settimeout(None)
            self._count("connections")
            ended: list[bool] = []
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open |= {client, server}
            self._start(self._pass_on, client, server, ended)
            self._start(self._pass_on, server, client, ended)

    def _pass_on(self, source: socket.socket, sink: socket.socket, ended: list[bool]) -> None:
        held = b""
        try:
            while piece := source.recv(_CHUNK_BYTES):
                self._count("pieces")
                piece, held = self._change(piece, held)
                if piece is None:
                    break
                sink.sendall(piece)
            else:
                sink.sendall(held)
                if not self.faults.vanish:
                    sink.shutdown(socket.SHUT_WR)
        except OSError:
            piece = None
        if piece is None:
            _end(source)
            _end(sink)
        with self._lock:
            ended.append(True)
            if len(ended) == 2:
                self._open -= {source, sink}
                source.close()
                sink.close()

    def _change(self, piece: bytes, held: bytes) -> tuple[bytes | None, bytes]:
        """What is sent of a piece, and what is held back for after the next one; nothing for the end."""
        faults = self.faults
        if faults.delay:
            time.sleep(self._chance() * faults.delay)
        if self._happens("cut"):
            return None, b""
        if self._happens("corrupt"):
            at = int(self._chance() * len(piece))
            piece = piece[:at] + bytes([piece[at] ^ 1 << int(self._chance() * 8)]) + piece[at + 1 :]
        if self._happens("lose"):
            piece = b""
        if self._happens("double"):
            piece += piece
        if not held and self._happens("swap"):
            return b"", piece
        return piece + held, b""

    def _happens(self, name: str) -> bool:
        happens = self._chance() < getattr(self.faults, name)
        if happens:
            self._count(name)
        return happens

    def _chance(self) -> float:
        with self._lock:
            return self._random.random()

    def _count(self, name: str) -> None:
        with self._lock:
            self.done[name] += 1


def _end(one: socket.socket) -> None:
    """Ends a connection both ways; a thread that reads it wakes up."""
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
