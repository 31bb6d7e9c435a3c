"""Rows on recovery and references: chains with a crash, lost objects, borrowers, pins, iterations.

Each is a probe of `harness/probes.py`: it needs a session of its own or ends processes. The figures
are those of two papers: Ownership (Wang 2021) and Oakes 2020.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bodies import recovery as bodies_recovery
from bodies.recovery import MIB

Tell = Callable[..., None]

CHAIN_BYTES = 10_000_000
CHAIN_STEPS_S = {"10ms": 0.01, "100ms": 0.1, "1s": 1.0}
LOST = 1000
LOST_BYTES = 1_000_000
CHECKPOINT_EVERY = 500
BORROWERS = (1, 2, 4)
PIN_SIZES = {"empty": 0, "1_mib": MIB}
PIN_CALLS = 1000
# One more pin costs too little to be seen among the others, ten are.
PINS_MORE = 10
ITERATIONS = 50
UPDATES_FEW, UPDATES_MANY = 100, 200
UPDATES_IN_FLIGHT = 32
ITERATION_STORE = 100 * MIB


def chains(api: Any, total_ms: int, tell: Tell) -> None:
    """Ownership, figure 14: a chain of dependent tasks, beside one that loses a worker half-way.

    Both run at the same time, each on a worker of its own, so that they meet the same machine.
    """
    for values, size in (("small", 0), ("10_mb", CHAIN_BYTES)):
        for name, sleep_s in CHAIN_STEPS_S.items():
            count = max(2, round(total_ms / 1000 / sleep_s))
            sample = _crashed_chain(api, count, sleep_s, size // 8)
            tell(event="row", key=f"chain_{values}_{name}", samples=[sample])


def _crashed_chain(api: Any, count: int, sleep_s: float, elements: int) -> float:
    """The time of a chain that loses a worker, as a multiple of that of one that does not."""
    task = api.remote(bodies_recovery.link)

    def chain(crash: tuple[int, str]) -> Any:
        last: Any = None
        for index in range(count):
            last = task.remote(last, index, sleep_s, elements, crash)
        return last

    # Both workers have loaded what they need.
    api.get([task.remote(None, 0, 0.2, elements, (-1, "")) for _ in range(2)])
    with tempfile.TemporaryDirectory() as scratch:
        told = Path(scratch) / "crashed"
        begin = time.perf_counter()
        ends: dict[Any, float] = {}
        crashed, undisturbed = chain((count // 2, str(told))), chain((-1, ""))
        open_ = [crashed, undisturbed]
        while open_:
            done, open_ = api.wait(open_, num_returns=1)
            ends |= dict.fromkeys(done, time.perf_counter() - begin)
        assert told.exists(), "no worker was killed"
        api.get([crashed, undisturbed])
    return ends[crashed] / ends[undisturbed]


def lost_objects(api: Any, repeats: int, tell: Tell) -> None:
    """A thousand objects whose only copies are lost come back through their tasks."""
    from sooner.util import testing

    task = api.remote(bodies_recovery.make)
    samples = []
    for _ in range(repeats):
        refs = [task.remote(number, LOST_BYTES) for number in range(LOST)]
        api.wait(refs, num_returns=LOST)
        testing.lose_objects(refs)
        begin = time.perf_counter()
        arrays = api.get(refs)
        samples.append(time.perf_counter() - begin)
        for number, array in enumerate(arrays):
            assert len(array) == LOST_BYTES, "an object came back with another size"
            assert array[-1] == number % 251, "an object came back with another value"
        del refs, arrays
    tell(event="row", key="lost_objects", samples=samples)


def checkpoints(api: Any, calls: int, tell: Tell) -> None:
    """Ray, figure 11b: an actor's process is killed one call before its next checkpoint."""
    from recovery_checkpoint import recover

    assert api.is_initialized()
    found = [recover(calls - 1, {"checkpoint_every": CHECKPOINT_EVERY}) for _ in range(3)]
    assert not any(one.lost for one in found), "a call was lost"
    tell(event="row", key="checkpoint_again", samples=[one.executed_again for one in found])
    tell(event="row", key="checkpoint_s", samples=[one.seconds for one in found])


def borrowers(api: Any, count: int, tell: Tell) -> None:
    """Ownership, figure 12e: tasks on one object of the driver's, submitted by its borrowers."""
    ref = api.put(bodies_recovery.make(0, 1_000_000))
    task = api.remote(bodies_recovery.delegate).options(num_cpus=0)
    api.get(task.remote([ref], 100))
    for clients in BORROWERS:
        samples = []
        for _ in range(2):
            begin = time.perf_counter()
            answers = api.get([task.remote([ref], count // clients) for _ in range(clients)])
            samples.append(count / (time.perf_counter() - begin))
            assert answers == [b"ok"] * clients
        tell(event="row", key=f"borrowers_{clients}", samples=samples)


def pins(api: Any, batches: int, tell: Tell) -> None:
    """Oakes, figure 6.1 (b): what it costs to keep each returned object for its owner.

    No call leaves out the message that pins its object, but one actor sends it ten times more. What
    these ten cost, divided by ten, is what one costs, as a part of the whole.
    """
    api.shutdown()
    # Nothing travels in messages, not even what is empty.
    api.init(num_cpus=4, inline_bytes=0)
    source, reader = api.remote(bodies_recovery.Source), api.remote(bodies_recovery.Reader)
    readers = [reader.remote(source.remote(pins)) for pins in (1, 1 + PINS_MORE)]
    api.get([one.ok.remote() for one in readers])
    for name, size in PIN_SIZES.items():
        samples = []
        for index in range(batches + 1):
            once, often = (api.get(one.fetch.remote(PIN_CALLS, size)) for one in readers)
            if index:
                samples.append(100 * (often - once) / PINS_MORE / once)
        # One batch is disturbed by this and that; the middle one is not.
        tell(event="row", key=f"pin_{name}", samples=[max(0.0, statistics.median(samples))])


def iterations(api: Any, count: int, tell: Tell) -> None:
    """Oakes, figure 6.3: one cumulative object, updated again and again in a small store."""
    api.shutdown()
    api.init(num_cpus=2, object_store_memory=ITERATION_STORE)
    process, fold = api.remote(bodies_recovery.make), api.remote(bodies_recovery.fold)

    def start() -> Any:
        return process.remote(0, MIB)

    def iterate(cumulative: Any, updates: int) -> Any:
        folded: deque[Any] = deque()
        for number in range(updates):
            cumulative = fold.remote(cumulative, process.remote(number, MIB))
            folded.append(cumulative)
            if len(folded) > UPDATES_IN_FLIGHT:
                api.wait([folded.popleft()])
        api.wait([cumulative])
        return cumulative

    def run(updates: int, is_chained: bool) -> float:
        """Updates per second."""
        begin = time.perf_counter()
        cumulative = start()
        for _ in range(count):
            cumulative = iterate(cumulative if is_chained else start(), updates)
        seconds = time.perf_counter() - begin
        rounds = count if is_chained else 1
        expected = rounds * sum(number % 251 for number in range(updates)) % 256
        assert api.get(cumulative)[0] == expected, "the cumulative object is wrong"
        return count * updates / seconds

    run(UPDATES_FEW, is_chained=True)
    growth = []
    for name, is_chained in (("independent", False), ("chained", True)):
        # In turn, so that both meet the same machine.
        rates = [(run(UPDATES_FEW, is_chained), run(UPDATES_MANY, is_chained)) for _ in range(2)]
        few, many = (list(found) for found in zip(*rates, strict=True))
        growth.append(max(few) / max(many))
        tell(event="row", key=f"iterate_{name}", samples=many)
    tell(event="row", key="iterate_growth", samples=[max(growth)])


PROBES: dict[str, Callable[[Any, int, Tell], None]] = {
    "chains": chains,
    "lost_objects": lost_objects,
    "checkpoints": checkpoints,
    "borrowers": borrowers,
    "pins": pins,
    "iterations": iterations,
}
