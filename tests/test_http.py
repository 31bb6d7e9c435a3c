"""`sooner start --http-port`: what autoscalers and monitors read."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from support import WAIT, Node, poll, run_command, stopped


def port_of_this_process() -> int:
    """A port that nobody else takes: below those that the kernel gives away, and another one in each
    process.
    """
    return 20_000 + os.getpid() % 10_000


@pytest.fixture
def served(short_dir) -> Iterator[tuple[Node, int]]:
    port = port_of_this_process()
    node = Node(short_dir, f"--http-port={port}")
    try:
        yield node, port
    finally:
        node.run("stop", check=None)


def ask(port: int, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_a_node_says_that_it_is_well_and_what_it_has(served):
    node, port = served
    assert ask(port, "/healthz") == (200, "ok\n")
    status, text = ask(port, "/status")
    assert status == 200
    assert json.loads(text)["session_dir"] == str(node.directory)
    assert ask(port, "/metrics")[1].splitlines().count("# TYPE sooner_leases gauge") == 1
    assert ask(port, "/healthz", "HEAD") == (200, "")


def test_an_autoscaler_reads_what_cannot_be_placed(served):
    node, port = served
    told = json.loads(ask(port, "/demand")[1])
    assert told["demand"] == []
    assert told["placement_groups"] == []
    assert [row["resources_total"]["CPU"] for row in told["nodes"]] == [2.0]
    code = """
    import sys, sooner
    from sooner.util.placement_group import placement_group
    sooner.init()
    refs = [sooner.remote(num_cpus=3)(lambda: 1).remote() for _ in range(4)]
    group = placement_group([{"CPU": 1}, {"GPU": 1}])
    print("asked", flush=True)
    sys.stdin.read()
    """
    with node.running_driver(code) as driver:
        assert driver.stdout.readline() == "asked\n"
        poll("four are wanted", lambda: demand_of(port) == [({"CPU": 3.0}, False)])
        poll("a group is wanted", lambda: json.loads(ask(port, "/demand")[1])["placement_groups"])
        (group,) = json.loads(ask(port, "/demand")[1])["placement_groups"]
        assert group["bundles"] == [{"CPU": 1.0}, {"GPU": 1.0}]
        assert group["strategy"] == "PACK"
        driver.communicate("", timeout=WAIT)
    poll("nothing is wanted any more", lambda: demand_of(port) == [])


def demand_of(port: int) -> list[tuple[dict[str, float], bool]]:
    return [(row["resources"], row["feasible"]) for row in json.loads(ask(port, "/demand")[1])["demand"]]


def test_what_is_not_there_is_said(served):
    _, port = served
    status, text = ask(port, "/secrets")
    assert status == 404
    assert "/demand" in text
    # A web page whose name was bound to loopback.
    status, text = ask(port, "/status", Host="attacker.example:80")
    assert status == 403
    assert "127.0.0.1" in text
    for origin in ("https://attacker.example", "null"):
        assert ask(port, "/status", Origin=origin)[0] == 403
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        assert ask(port, "/healthz", method)[0] == 501
    # Nobody is kept waiting by one who says nothing.
    with socket.create_connection(("127.0.0.1", port)):
        assert ask(port, "/healthz") == (200, "ok\n")


def test_whatever_is_sent_it_answers_others(served):
    _, port = served
    chance = random.Random(3)
    pieces = [
        b"GET ",
        b"/status",
        b"/%00",
        b" HTTP/1.1\r\n",
        b"Host: 127.0.0.1\r\n",
        b"Content-Length: -1\r\n",
        b"\r\n",
        b"\0",
    ]
    for _ in range(300):
        said = b"".join(chance.choice([*pieces, chance.randbytes(chance.randrange(200))]) for _ in range(8))
        with socket.create_connection(("127.0.0.1", port), timeout=WAIT) as stranger, contextlib.suppress(OSError):
            stranger.sendall(said)
            stranger.shutdown(socket.SHUT_WR)
            while stranger.recv(1 << 16):
                pass
    # The last of them may still be served.
    poll("it answers", lambda: ask(port, "/healthz") == (200, "ok\n"))


@contextlib.contextmanager
def crowd(port: int, count: int, say: Callable[[socket.socket], None]) -> Iterator[None]:
    """So many connections at a time, each of which says this, over and over; another one comes when one
    ends.
    """
    is_over = threading.Event()

    def stay() -> None:
        while not is_over.is_set():
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 3) as stranger:
                while not is_over.wait(0.5):
                    say(stranger)

    threads = [threading.Thread(target=stay) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        time.sleep(1)
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def drip(stranger: socket.socket) -> None:
    stranger.sendall(b"a")


def ask_and_do_not_read(stranger: socket.socket) -> None:
    stranger.sendall(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")


@pytest.mark.parametrize("say", [drip, ask_and_do_not_read, lambda _: None], ids=["drip", "unread", "silent"])
def test_those_who_are_slow_keep_nobody_from_being_answered(served, say):
    _, port = served
    with crowd(port, 40, say):
        for _ in range(10):
            assert ask(port, "/healthz") == (200, "ok\n")


def test_a_request_has_two_seconds_to_arrive(served):
    _, port = served
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT) as stranger:
        began = time.monotonic()
        stranger.sendall(b"GET /healthz HTTP/1.1\r\nX: ")
        with pytest.raises(OSError, match=r"Broken pipe|reset"):
            for _ in range(100):
                stranger.sendall(b"a")
                time.sleep(0.1)
        assert time.monotonic() - began > 1.5


def test_a_port_that_is_taken_is_named(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = run_command("start", "--head", f"--http-port={port}", base=tmp_path, check=1)
        assert f"--http-port {port}" in refused.stderr
        assert "Address already in use" in refused.stderr
        refused = run_command("start", "--head", "--http-port=0", base=tmp_path, check=2)
        assert "between 1 and 65535" in refused.stderr


def test_many_can_wait_to_be_taken(served):
    node, port = served
    with stopped(node.pid), contextlib.ExitStack() as waiting:
        for _ in range(100):
            waiting.enter_context(socket.create_connection(("127.0.0.1", port), timeout=WAIT))
    poll("it answers", lambda: ask(port, "/healthz")[0] == 200)
