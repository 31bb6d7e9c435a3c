"""What the machine and the interpreter allow: a pickled ping-pong, and warm copies.

The ping-pong swings with where the scheduler puts the two processes (a wake-up of an idle core
costs several times a switch on the same one). So each window has a fresh pair, and the pinned
placements are measured as well; the ratios use the free placement, which everybody else gets.
"""

from __future__ import annotations

import atexit
import ctypes
import multiprocessing
import os
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

import numpy as np

from harness.measure import Body, Row

MIB = 1 << 20
# Pairs of processes a visit, for the placement to vary.
FREE_PAIRS = 4


def _echo(connection: Connection, cpu: int | None) -> None:
    if cpu is not None:
        os.sched_setaffinity(0, {cpu})
    while connection.recv() is not None:
        connection.send(b"ok")


class PingPong:
    """A process that answers a pickled call with a pickled reply."""

    def __init__(self, cpus: Sequence[int | None], over_tcp: bool = False) -> None:
        self.near, far = _tcp_pipe() if over_tcp else multiprocessing.Pipe()
        self.process: BaseProcess = multiprocessing.Process(
            target=_echo, args=(far, cpus[1]), daemon=True
        )
        self.process.start()
        far.close()
        self.everywhere = os.sched_getaffinity(0)
        if cpus[0] is not None:
            os.sched_setaffinity(0, {cpus[0]})

    def call(self) -> None:
        """One round trip."""
        self.near.send(("ok", (), {}))
        self.near.recv()

    def __del__(self) -> None:
        """End the other side when the row lets go of the body."""
        os.sched_setaffinity(0, self.everywhere)
        self.near.send(None)
        self.process.join()


def _tcp_pipe() -> tuple[Connection, Connection]:
    """Make a Pipe whose ends are joined by TCP on loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    for end in (near, far):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Connection(near.detach()), Connection(far.detach())


def _ping_pong(cpus: Sequence[int | None]) -> Body:
    return PingPong(cpus).call


def tcp_ping_pong() -> Body:
    """A ping-pong over TCP on loopback with a fresh process, for probes that take turns with it."""
    return PingPong((None, None), over_tcp=True).call


def copy(threads: int, size: int) -> Body:
    """Copy `size` bytes a thread between warm buffers; ctypes gives up the GIL meanwhile."""
    buffers = [(np.ones(size, np.uint8), np.ones(size, np.uint8)) for _ in range(threads)]
    pairs = [(target.ctypes.data, source.ctypes.data) for target, source in buffers]
    if threads == 1:
        target, source = pairs[0]
        return lambda: (buffers, ctypes.memmove(target, source, size))
    executor = ThreadPoolExecutor(threads)
    atexit.register(executor.shutdown)

    def copy_all() -> object:
        futures = [executor.submit(ctypes.memmove, *pair, size) for pair in pairs]
        return buffers, [future.result() for future in futures]

    return copy_all


def rows() -> dict[str, Row]:
    """The raw limits by key. Each copy has the shape of the row it is compared with."""
    cpus = sorted(os.sched_getaffinity(0))
    found = {
        "ping_pong": Row(lambda: _ping_pong((None, None)), fresh=FREE_PAIRS),
        "ping_pong_one_core": Row(lambda: _ping_pong((cpus[0], cpus[0]))),
        "memcpy_one_thread": Row(lambda: copy(1, 800 * MIB), 800 * MIB / 1e9),
        "memcpy_two_threads": Row(lambda: copy(2, 400 * MIB), 800 * MIB / 1e9),
        "memcpy_two_threads_80_mib": Row(lambda: copy(2, 80 * MIB), 160 * MIB / 1e9),
    }
    if len(cpus) > 1:
        found["ping_pong_two_cores"] = Row(lambda: _ping_pong((cpus[0], cpus[1])))
    return found
