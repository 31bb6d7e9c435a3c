"""Rows on the end of nodes: a killed daemon, a chain that loses its node, a head that restarts.

Each is a probe of `harness/probes.py` that makes clusters of its own.
"""

from __future__ import annotations

import itertools
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bodies import cluster as bodies_cluster
from systems.clusters import MIB, Nodes, at, until

Tell = Callable[..., None]

CHAIN_BYTES = 10_000_000
# What a chain leaves behind until its owner hears that it was used, with room to spare.
CHAIN_STORE_BYTES = 512 * MIB
CHAIN_TASKS = 100
# A chain that takes so many times as long as its tasks, and some seconds more, never ends.
CHAIN_LIMIT = 3
CHAIN_LIMIT_MORE_S = 5.0
# How long actors are called before the head is killed, and after it is back.
HEAD_CALM_S = 1.0
HEAD_LOAD = 100


def node_killed(api: Any, repeats: int, tell: Tell) -> None:
    """The time from the kill -9 of a daemon until its task begins on another node.

    Its connections close, which tells of its end at once.

    Both nodes have a worker that has run this task before, so that no process has to start.
    """
    task = api.remote(max_retries=3)(bodies_cluster.outlives)
    samples = []
    with Nodes(api) as nodes:
        for _ in range(2):
            nodes.add()
        nodes.connect()
        for _ in range(repeats):
            with tempfile.TemporaryDirectory() as scratch:
                warm, marks = Path(scratch) / "warm", Path(scratch) / "marks"
                for directory in (warm, marks):
                    directory.mkdir()
                (warm / "0").touch()
                for number in range(2):
                    api.get(task.options(**at(number)).remote(str(warm)), timeout=60)
                ref = task.remote(str(marks))
                _, where = _mark(marks, 0)
                number = next(i for i, node in enumerate(nodes.added) if node.node_id == where)
                begin = time.monotonic()
                nodes.kill(number)
                again, elsewhere = _mark(marks, 1)
                assert elsewhere != where, "it began again on the node that was killed"
                samples.append(again - begin)
                assert api.get(ref, timeout=60) == b"ok"
                nodes.again(number)
                nodes.cluster.wait_for_nodes()
    tell(event="row", key="node_killed", samples=samples)


def _mark(directory: Path, attempt: int) -> tuple[float, str]:
    """When and on which node a task began for the first or second time."""
    path = directory / str(attempt)
    until(f"attempt {attempt} of the task begins", path.exists)
    seconds, node = path.read_text().split()
    return float(seconds), node


def node_chains(api: Any, total_ms: int, tell: Tell) -> None:
    """Ownership, figure 14: a chain of tasks whose node is killed half-way and started again.

    Beside it runs one on a node of its own that nothing happens to; both meet the same machine.
    Small values are in the owner's memory, so only the running task is executed again. Large ones
    are on the node, each made from the one before, so all of the first half is: 1.5 is the least
    for them.
    """
    for values, size in (("small", 0), ("10_mb", CHAIN_BYTES)):
        with Nodes(api) as nodes:
            for _ in range(2):
                nodes.add(object_store_memory=CHAIN_STORE_BYTES)
            nodes.connect()
            sample = _killed_chain(nodes, total_ms / 1000, size // 8)
        tell(event="row", key=f"node_chain_{values}", samples=[sample])


def _killed_chain(nodes: Nodes, total_s: float, elements: int) -> float:
    """The time of a chain that loses its node, as a multiple of that of one that does not."""
    api = nodes.api
    task = api.remote(max_retries=-1)(bodies_cluster.link)
    sleep_s = total_s / CHAIN_TASKS

    def chain(number: int) -> Any:
        last: Any = None
        for _ in range(CHAIN_TASKS):
            last = task.options(**at(number)).remote(last, sleep_s, elements)
        return last

    # Both nodes have a worker that has loaded what it needs.
    api.get([task.options(**at(number)).remote(None, 0.2, elements) for number in range(2)])
    begin = time.perf_counter()
    killed, undisturbed = chain(0), chain(1)
    time.sleep(max(0.0, begin + total_s / 2 - time.perf_counter()))
    nodes.kill(0)
    nodes.again(0, object_store_memory=CHAIN_STORE_BYTES)
    limit_s = CHAIN_LIMIT * total_s + CHAIN_LIMIT_MORE_S
    ends: dict[Any, float] = {}
    open_ = [killed, undisturbed]
    while open_:
        left_s = max(0.0, begin + limit_s - time.perf_counter())
        done, open_ = api.wait(open_, num_returns=1, timeout=left_s, fetch_local=False)
        if not done:
            raise TimeoutError(f"a chain of {total_s:g} s did not end within {limit_s:g} s")
        ends |= dict.fromkeys(done, time.perf_counter() - begin)
    api.get([killed, undisturbed])
    return ends[killed] / ends[undisturbed]


class _Caller(threading.Thread):
    """Calls an actor without pause, and notes when each answer came."""

    def __init__(self, api: Any, actor: Any) -> None:
        super().__init__(daemon=True)
        self.api, self.actor = api, actor
        self.answers: list[float] = []
        self.error: BaseException | None = None
        self.is_over = threading.Event()

    def run(self) -> None:
        """Call until it is over."""
        try:
            while not self.is_over.is_set():
                count = self.api.get(self.actor.add.remote(), timeout=30)
                self.answers.append(time.monotonic())
                if count != len(self.answers):
                    raise AssertionError(f"answer {len(self.answers)} counts {count} calls")
        except BaseException as error:
            self.error = error

    def longest_ms(self, begin: float, end: float) -> float:
        """The longest time without an answer between two moments (milliseconds)."""
        moments = [begin, *(t for t in self.answers if begin < t < end), end]
        return 1e3 * max(b - a for a, b in itertools.pairwise(moments))


def head_restart(api: Any, repeats: int, tell: Tell) -> None:
    """The head is killed with -9 and started again, while a driver elsewhere goes on.

    The driver is at one node, its actor and its tasks are at another one. Not a call may be lost,
    made twice or fail. The longest pause between two answers of the actor is given beside that of a
    time without any fault. A new actor is asked for as soon as the head is dead; its time counts
    from the moment at which the next head is started.
    """
    from bodies.plain import Server, ok_of

    pauses, calm, waits = [], [], []
    for _ in range(repeats):
        with Nodes(api) as nodes:
            for _ in range(2):
                nodes.add()
            nodes.connect(0)
            task = api.remote(ok_of).options(max_retries=0, **at(1))
            made = api.remote(Server).options(**at(1))
            caller = _Caller(api, api.remote(bodies_cluster.Counter).options(**at(1)).remote())
            api.get([task.remote(number) for number in range(HEAD_LOAD)])
            api.get(made.remote().ok.remote())
            caller.start()
            until("the actor answers", lambda c=caller: c.answers or c.error)
            begin = time.monotonic()
            _load(api, task, HEAD_CALM_S)
            killed = time.monotonic()
            nodes.cluster.remove_node(nodes.cluster.head_node, allow_graceful=False)
            found: list[float] = []
            waiter = threading.Thread(
                target=_first_answer, args=(api, made.remote(), found), daemon=True
            )
            waiter.start()
            started = time.monotonic()
            nodes.cluster.add_node(**nodes.head)
            _load(api, task, HEAD_CALM_S)
            waiter.join(60)
            if not found:
                raise TimeoutError("a new actor did not answer within 60 s")
            back = time.monotonic()
            caller.is_over.set()
            caller.join(60)
            if caller.error is not None:
                raise caller.error
            nodes.cluster.wait_for_nodes()
            calm.append(caller.longest_ms(begin, killed))
            pauses.append(caller.longest_ms(killed, back))
            waits.append(found[0] - started)
    tell(event="row", key="head_calm", samples=calm)
    tell(event="row", key="head_pause", samples=pauses)
    tell(event="row", key="head_new_actor", samples=waits)


def _load(api: Any, task: Any, seconds: float) -> None:
    """Submit batches of tasks for so long; each must answer, and none is tried again."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        answers = api.get([task.remote(number) for number in range(HEAD_LOAD)], timeout=30)
        assert answers == [b"ok"] * HEAD_LOAD, "not every task answered"


def _first_answer(api: Any, actor: Any, found: list[float]) -> None:
    api.get(actor.ok.remote())
    found.append(time.monotonic())


PROBES: dict[str, Callable[[Any, int, Tell], None]] = {
    "node_killed": node_killed,
    "node_chains": node_chains,
    "head_restart": head_restart,
}
