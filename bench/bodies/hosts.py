"""What the rows on shaped hosts send, the plan of a program, and the actors under sooner and Ray.

A program runs on the first host, is given a `Plan` as JSON, and prints an event per repetition.
Times are those of the monotonic clock, which all processes of one machine share, whatever their
network.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

# How long all have to hear when to begin (seconds).
AHEAD_S = 0.2
# Long enough for a value to be sent to one receiver after the other on the slowest links.
DONE_S = 120.0
# Steps of a training that count, and those before.
STEPS = 10
WARM_STEPS = 3
# Parts of a model that are sent as soon as their gradient is there.
LAYERS = 8


@dataclass(frozen=True)
class Plan:
    """What a program is to do.

    Attributes:
        kind: `cast` to the other hosts, there and `back` between two, `killed`: cast while one is
            killed, `reduce`: a value of each host summed on the first, `allreduce`: on all,
            `first`: those of the first half, `sum_killed`: summed on the first while one is killed,
            `gather`: a value of each other host read on the first, `ring`: summed on all others by
            a program of actors, `sgd_async` and `sgd_sync`: training with parameter servers.
        hosts: How many there are, the one with the value, or with the sum, included.
        sizes: Of the values (bytes).
        warm: Repetitions of each size before any counts.
        turns: Repetitions that count.
        limit_s: After this time with one size no further repetition begins, after half of it none
            that does not count; there is always one of each.
        gap_s: Receivers arrive, or sources of a sum are made, so far apart.
        address: What the engine's `init` takes.
        pids: The process of each host's node.
        kill_after_s: How long after the beginning it is killed.
        compute_s: How long a worker takes for its gradient.
    """

    kind: str
    hosts: int
    sizes: Sequence[int]
    warm: int
    turns: int
    limit_s: float
    gap_s: float = 0.0
    address: str = ""
    pids: Sequence[int] = field(default_factory=tuple)
    kill_after_s: float = 0.0
    compute_s: float = 0.0

    def text(self) -> str:
        """The plan as `plan` reads it."""
        return json.dumps(asdict(self))

    def repetitions(self, size: int) -> Iterator[tuple[bool, int]]:
        """Whether the next repetition counts, and a seed for its contents."""
        begin = time.monotonic()
        seeds = itertools.count(1)
        for counts, most, limit_s in (
            (False, self.warm, self.limit_s / 2),
            (True, self.turns, self.limit_s),
        ):
            for turn in range(most):
                if turn and time.monotonic() > begin + limit_s:
                    break
                yield counts, next(seeds)


def plan(text: str) -> Plan:
    """The plan that a program was given."""
    return Plan(**json.loads(text))


def tell(**event: object) -> None:
    """Print an event for the probe that started this program."""
    print(json.dumps(event), flush=True)


def content(size: int, seed: int) -> Any:
    """A float32 array of so many bytes that no other seed has."""
    import numpy as np

    numbers = np.arange(size // 4, dtype=np.uint32)
    numbers *= np.uint32(2654435761)
    numbers += np.uint32(seed)
    return numbers.view(np.float32)


def part(size: int, seed: int, host: int) -> Any:
    """What a host adds to a sum: as `content`, of whole numbers, whose sum has no order."""
    import numpy as np

    numbers = np.arange(size // 4, dtype=np.uint32)
    numbers *= np.uint32(2654435761)
    numbers += np.uint32(seed * 7919 + host * 104_729)
    numbers >>= np.uint32(20)
    return numbers.astype(np.float32)


def total(size: int, seed: int, hosts: int) -> Any:
    """The sum of the parts of all hosts."""
    found = part(size, seed, 0)
    for host in range(1, hosts):
        found += part(size, seed, host)
    return found


def checksum(value: Any) -> int:
    """What the bytes of an array come to."""
    return zlib.crc32(value.view("uint8"))


def summed(api: Any, refs: list[Any]) -> Any:
    """The sum of values: sooner makes it, with Ray this process does."""
    if hasattr(api, "reduce"):
        return api.get(api.reduce(refs), timeout=DONE_S)
    found = api.get(refs[0], timeout=DONE_S).copy()
    for ref in refs[1:]:
        found += api.get(ref, timeout=DONE_S)
    return found


def wait_until(moment: float) -> None:
    """Sleep until a moment of the monotonic clock."""
    time.sleep(max(0.0, moment - time.monotonic()))


def repeat(given: Plan, once: Callable[[int, int], tuple[float, float]]) -> None:
    """Do what the plan says.

    Args:
        given: The plan.
        once: Called with a size and a seed; gives when the last receiver was to begin, and when the
            last one had all. The contents are verified by then.
    """
    for size in given.sizes:
        for counts, seed in given.repetitions(size):
            begin, end = once(size, seed)
            if counts:
                tell(event="turn", size=size, begin=begin, end=end)


class Receiver:
    """An actor on one of the other hosts."""

    def __init__(self) -> None:
        self.api: Any = importlib.import_module(os.environ["BENCH_API"])
        self.value: Any = None

    def ready(self) -> bool:
        """Answer."""
        return True

    def part(self, size: int, seed: int, host: int) -> Any:
        """Return what this host adds."""
        return part(size, seed, host)

    def late_part(self, size: int, seed: int, host: int, moment: float) -> Any:
        """Return what this host adds at a moment."""
        made = part(size, seed, host)
        wait_until(moment)
        return made

    def hold(self, size: int, seed: int, place: int, members: int) -> bool:
        """Become a member of a ring, with a value of its own in as many parts as members."""
        import numpy as np

        self.value = np.array_split(part(size, seed, place), members)
        return True

    def give(self, place: int) -> Any:
        """Return one part."""
        return self.value[place]

    def add(self, place: int, came: Any) -> Any:
        """Add what came from the left to one part, and return that."""
        self.value[place] = self.value[place] + came
        return self.value[place]

    def keep(self, place: int, came: Any) -> Any:
        """Keep a part of the sum, and return it."""
        self.value[place] = came
        return came

    def has_all(self) -> float:
        """Return when all of the sum was there."""
        return time.monotonic()

    def check_ring(self) -> int:
        """Let go of the sum; what its bytes come to."""
        import numpy as np

        parts, self.value = self.value, None
        return checksum(np.concatenate(parts))

    def receive(self, box: list[Any], begin: float) -> float:
        """Fetch what a reference stands for from a moment on; when all of it was there."""
        wait_until(begin)
        self.value = self.api.get(box[0])
        return time.monotonic()

    def check(self) -> int:
        """Let go of the value; what its bytes come to."""
        value, self.value = self.value, None
        return checksum(value)

    def back(self, box: list[Any], begin: float) -> Any:
        """Fetch a value and return it."""
        wait_until(begin)
        return self.api.get(box[0])

    def node(self) -> str:
        """Return on which node this is."""
        found: str = self.api.get_runtime_context().get_node_id()
        return found

    def gradient(self, box: list[Any], compute_s: float, host: int) -> Any:
        """Fetch the parameters, take as long as a gradient takes, and return one."""
        import numpy as np

        parameters = self.api.get(box[0])
        time.sleep(compute_s)
        return np.full_like(parameters, host)

    def layers(self, boxes: list[Any], compute_s: float, host: int) -> Iterator[Any]:
        """Fetch the parameters of each layer when it is due, and yield its gradient."""
        import numpy as np

        # All begin to come.
        self.api.wait(boxes, num_returns=len(boxes), timeout=0)
        for ref in boxes:
            parameters = self.api.get(ref)
            time.sleep(compute_s / len(boxes))
            yield np.full_like(parameters, host)

    def keep_layers(self, numbers: list[int], size: int) -> list[Any]:
        """Become the parameter server of some layers, which are zero; their references."""
        import numpy as np

        self.value = {number: np.zeros(size // 4, dtype=np.float32) for number in numbers}
        return [self.api.put(layer) for layer in self.value.values()]

    def apply(self, number: int, refs: list[Any]) -> Any:
        """Add the gradients of one layer to it, and return it."""
        self.value[number] = self.value[number] + summed(self.api, refs)
        return self.value[number]
