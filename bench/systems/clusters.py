"""A cluster of daemons on this machine: the same text for sooner and for Ray.

The driver is at the head, which has no CPU unless a row says otherwise, so every task runs on
another node. Node number i has 1,000 of the resource `n<i>`, which pins work to it.
"""

from __future__ import annotations

import importlib
import logging
import time
from types import TracebackType
from typing import Any

MIB = 1 << 20
PINS = 1000
READY_S = 60.0


class Nodes:
    """The nodes of one cluster. Use as a context manager: at its end nothing is left.

    Attributes:
        api: The engine.
        cluster: Its `cluster_utils.Cluster`.
        added: What `add_node` returned for each node beside the head, in order;
            None once it was killed.
    """

    def __init__(self, api: Any, **head: Any) -> None:
        self.api = api
        utils = importlib.import_module(f"{api.__name__}.cluster_utils")
        if api.__name__ == "ray":
            head = {"include_dashboard": False, **head}
        self.head = {"num_cpus": 0, **head}
        self.cluster = utils.Cluster(initialize_head=True, head_node_args=self.head)
        self.added: list[Any] = []

    def add(self, wait: bool = True, **node: Any) -> int:
        """Start a node with one CPU, unless it is said otherwise; its number."""
        number = len(self.added)
        resources = {pin(number): PINS}
        self.added.append(self.cluster.add_node(wait=wait, resources=resources, **node))
        return number

    def kill(self, number: int) -> None:
        """Kill a node, as the end of a machine does."""
        self.cluster.remove_node(self.added[number], allow_graceful=False)
        self.added[number] = None

    def again(self, number: int, **node: Any) -> None:
        """Start a node in place of one that was killed."""
        assert self.added[number] is None, "it was not killed"
        self.added[number] = self.cluster.add_node(resources={pin(number): PINS}, **node)

    def connect(self, number: int | None = None) -> None:
        """Connect this process to the head, or to a node, once all are listed."""
        self.cluster.wait_for_nodes()
        if self.api.__name__ == "ray":
            assert number is None, "a Ray driver is connected to the head here"
            self.api.init(
                address=self.cluster.address, log_to_driver=False, logging_level=logging.ERROR
            )
            return
        node = self.cluster.head_node if number is None else self.added[number]
        self.api.init(address=node.session_dir, log_to_driver=False)

    def warm(self, task: Any, **options: Any) -> None:
        """Have one task answered by every node, so that all have a worker that has loaded it."""
        for number, node in enumerate(self.added):
            if node is not None:
                self.api.get(task.options(**at(number), **options).remote(), timeout=READY_S)

    def __enter__(self) -> Nodes:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.api.shutdown()
        self.cluster.shutdown()


def pin(number: int) -> str:
    """The resource that only this node has."""
    return f"n{number}"


def at(number: int) -> dict[str, Any]:
    """Options of a task or an actor that must be on this node and needs none of its CPUs."""
    return {"num_cpus": 0, "resources": {pin(number): 1}}


def until(what: str, condition: Any, seconds: float = READY_S) -> Any:
    """Wait until something is the case; what the condition returned."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.0005)
    return found
