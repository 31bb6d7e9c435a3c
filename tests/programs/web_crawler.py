"""A crawler: tasks fetch pages, and the driver sends the links that are new as soon as any page has come.

The pages come from a server in the driver, which makes them from a random graph.
"""

from __future__ import annotations

import random
import re
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import ray

PAGES = 60
LINKS = 3
AT_A_TIME = 8


def links_of(page: int) -> list[int]:
    # Nothing links to pages with a number that 7 divides, except the first.
    rng = random.Random(page)
    return [target for target in rng.sample(range(PAGES), LINKS) if target % 7]


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        page = int(self.path.removeprefix("/"))
        anchors = "".join(f'<a href="/{target}">{target}</a>' for target in links_of(page))
        body = f"<html><title>Page {page}</title>{anchors}</html>".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep the terminal quiet."""


@ray.remote
def fetch(address: str, page: int) -> tuple[str, list[int]]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{address}/{page}", timeout=30) as response:
        text = response.read().decode()
    title = re.search("<title>(.*?)</title>", text)
    return title[1] if title else "", [int(target) for target in re.findall('href="/([0-9]+)"', text)]


def crawl(address: str) -> dict[int, str]:
    titles: dict[int, str] = {}
    seen, waiting = {0}, [0]
    running: dict[ray.ObjectRef, int] = {}
    while waiting or running:
        while waiting and len(running) < AT_A_TIME:
            page = waiting.pop()
            running[fetch.remote(address, page)] = page
        ready, _ = ray.wait(list(running))
        for ref in ready:
            titles[running.pop(ref)], links = ray.get(ref)
            waiting += {*links} - seen
            seen |= {*links}
    return titles


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    ray.init(num_cpus=2)
    titles = crawl(f"http://127.0.0.1:{server.server_port}")
    server.shutdown()

    reachable, stack = {0}, [0]
    while stack:
        fresh = set(links_of(stack.pop())) - reachable
        reachable |= fresh
        stack += fresh
    expected = {page: f"Page {page}" for page in reachable}
    assert titles == expected, f"{len(titles)} pages instead of {len(expected)}"
    print(f"answer: {len(titles)} of {PAGES} pages, sum of numbers {sum(titles)}")


if __name__ == "__main__":
    main()
