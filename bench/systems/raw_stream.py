"""A raw TCP stream from one shaped host to another: what every transfer is compared with.

raw_stream.py <address of the sender> <how many> <sizes, comma-separated> send|receive

The sender says that it is ready. The receiver prints a JSON object per stream: for each size, the
seconds from its request until so many bytes were there.
"""

from __future__ import annotations

import json
import socket
import sys
import time

PORT = 7000


def send(address: str, count: int, sizes: list[int]) -> None:
    """Send streams one after the other, each to a connection of its own."""
    # Memory that has been used before is not part of what is measured.
    content = b"x" * max(sizes)
    with socket.create_server((address, PORT)) as server:
        print("ready", flush=True)
        for _ in range(count):
            near, _ = server.accept()
            with near:
                near.recv(1)
                near.sendall(content)
                near.recv(1)


def receive(address: str, count: int, sizes: list[int]) -> None:
    """Receive them, and say when each size was there."""
    buffer = memoryview(bytearray(1 << 20))
    for _ in range(count):
        came, got = {}, 0
        with socket.create_connection((address, PORT)) as far:
            begin = time.monotonic()
            far.sendall(b"x")
            for size in sizes:
                while got < size:
                    count_now = far.recv_into(buffer)
                    assert count_now, "the sender has ended"
                    got += count_now
                came[size] = time.monotonic() - begin
        print(json.dumps(came), flush=True)


def main() -> None:
    """Play one side."""
    address, count, sizes, role = sys.argv[1:]
    play = send if role == "send" else receive
    play(address, int(count), sorted(int(size) for size in sizes.split(",")))


if __name__ == "__main__":
    main()
