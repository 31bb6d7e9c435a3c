"""What the TCP connections of a process have carried, read from the kernel.

A socket of another process is looked at through a copy of its descriptor (pidfd_getfd, Linux 5.6),
which is closed at once. Unix sockets have no such counters, so traffic inside a node is not seen
here.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_PIDFD_GETFD = 438
_INFO_BYTES = 232
# Offsets in `struct tcp_info` (linux/tcp.h).
_BYTES_RECEIVED = 128
_DATA_SEGMENTS_IN, _DATA_SEGMENTS_OUT = 152, 156
_BYTES_SENT, _BYTES_SENT_AGAIN = 200, 208
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Traffic:
    """Bytes, and segments that carried any: one message each, or several written together."""

    bytes_sent: int = 0
    bytes_received: int = 0
    segments_sent: int = 0
    segments_received: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(*(a + b for a, b in zip(self._all(), other._all(), strict=True)))

    def __sub__(self, other: Traffic) -> Traffic:
        return Traffic(*(a - b for a, b in zip(self._all(), other._all(), strict=True)))

    def _all(self) -> tuple[int, int, int, int]:
        return self.bytes_sent, self.bytes_received, self.segments_sent, self.segments_received

    @property
    def both_bytes(self) -> int:
        """Both ways together."""
        return self.bytes_sent + self.bytes_received

    @property
    def both_segments(self) -> int:
        """Both ways together."""
        return self.segments_sent + self.segments_received


def of(pid: int) -> dict[str, Traffic]:
    """What each connected TCP socket of a process has carried since it was opened, by inode."""
    found = {}
    for link, one in _sockets(pid):
        with one:
            if one.family in (socket.AF_INET, socket.AF_INET6) and one.type == socket.SOCK_STREAM:
                with contextlib.suppress(OSError):
                    one.getpeername()
                    found[link] = _counted(one)
    return found


def between(before: dict[str, Traffic], after: dict[str, Traffic]) -> Traffic:
    """What was carried between two looks by sockets that are there in the second one."""
    return total(carried - before.get(link, Traffic()) for link, carried in after.items())


def total(parts: Iterable[Traffic]) -> Traffic:
    """All of these together."""
    return sum(parts, Traffic())


def _sockets(pid: int) -> Iterator[tuple[str, socket.socket]]:
    handle = os.pidfd_open(pid)
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                link = str(Path(f"/proc/{pid}/fd/{name}").readlink())
            except FileNotFoundError:
                continue
            if not link.startswith("socket:"):
                continue
            descriptor = _LIBC.syscall(_PIDFD_GETFD, handle, int(name), 0)
            if descriptor < 0:
                if ctypes.get_errno() == 1:
                    raise PermissionError(
                        f"the kernel does not show the sockets of process {pid}: "
                        "it must be a child of this one, or this one root"
                    )
                # Closed meanwhile.
                continue
            yield link, socket.socket(fileno=descriptor)
    finally:
        os.close(handle)


def _counted(one: socket.socket) -> Traffic:
    info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    if len(info) < _BYTES_SENT_AGAIN + 8:
        raise RuntimeError(
            "this kernel does not count what TCP connections carry: Linux 4.19 or later is needed"
        )
    received, again, sent = (
        struct.unpack_from("=Q", info, at)[0]
        for at in (_BYTES_RECEIVED, _BYTES_SENT_AGAIN, _BYTES_SENT)
    )
    segments_in, segments_out = struct.unpack_from("=II", info, _DATA_SEGMENTS_IN)
    return Traffic(sent - again, received, segments_out, segments_in)
