"""Clusters on one machine, for tests: every node is a real daemon with its own process, memory and port."""

from __future__ import annotations

import argparse
import atexit
import functools
import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import sooner
from sooner._cli import nodes as _cli_nodes
from sooner._cli import start
from sooner._session import address as _address
from sooner._session import sessions
from sooner._session.daemon import command
from sooner._session.membership import membership
from sooner._state import rows
from sooner._state import snapshot as _snapshot

__all__ = ["Cluster", "ClusterNode"]

# Shared memory for objects of one node, by default (bytes): many nodes share the machine.
_STORE_BYTES = 128 << 20
_POLL_SECONDS = 0.01
_END_SECONDS = 30.0

_ARGUMENTS = (
    "num_cpus",
    "num_gpus",
    "memory",
    "resources",
    "labels",
    "object_store_memory",
    "spill_directories",
    "max_spill_bytes",
    "eviction",
    "node_name",
    "host",
    "port",
    "health_timeout",
    "memory_usage_threshold",
    "worker_memory_limits",
)


class ClusterNode:
    """A node of a :class:`Cluster`.

    Attributes:
        pid: Its process.
        session_dir: Its directory, which `sooner.init(address=...)` and the `sooner` command take.
        address: Where it listens: "127.0.0.1:PORT".
        node_id: Its id, as `sooner list nodes` shows it.
        node_name: What it is called.
    """

    def __init__(self, pid: int, session_dir: str, node_name: str) -> None:
        self.pid = pid
        self.session_dir = session_dir
        self.node_name = node_name
        self.address = membership(session_dir)["address"]
        # node-<process>-<id>
        self.node_id = session_dir.rpartition("-")[2]

    def __repr__(self) -> str:
        return f"ClusterNode({self.node_name!r}, address={self.address!r}, pid={self.pid})"

    def is_alive(self) -> bool:
        """Whether its process runs."""
        return self.session_dir in _running(self.session_dir)


class Cluster:
    """A cluster of daemons on this machine, which ends with :meth:`shutdown`, or at the end of a `with`
    block.

    Tasks and actors of a program run on any node that has what they ask for, as in a cluster of several
    machines.

    Args:
        initialize_head: Whether to start a head at once; otherwise the first node that is added is the head.
        connect: Whether to call :meth:`connect` at once.
        head_node_args: Arguments of :meth:`add_node` for the head.
        shutdown_at_exit: Whether the nodes end with this program at the latest. Otherwise they stay until
            :meth:`shutdown`, also without it.
    """

    def __init__(
        self,
        initialize_head: bool = False,
        connect: bool = False,
        head_node_args: Mapping[str, Any] | None = None,
        shutdown_at_exit: bool = True,
    ) -> None:
        if head_node_args and not initialize_head:
            raise ValueError("head_node_args: there is no head to give them to without initialize_head=True")
        if connect and not initialize_head:
            raise ValueError("connect=True needs a head: say initialize_head=True")
        self.head_node: ClusterNode | None = None
        self.worker_nodes: list[ClusterNode] = []
        # Short, because the path of a socket must be short.
        self._base = tempfile.mkdtemp(prefix="sooner-c-", dir="/tmp")
        # Bound to this pid: a forked copy of this program must not end the nodes.
        self._at_exit = functools.partial(_end_at_exit, self, os.getpid())
        if shutdown_at_exit:
            atexit.register(self._at_exit)
        try:
            if initialize_head:
                self.add_node(**(head_node_args or {}))
            if connect:
                self.connect()
        except BaseException:
            self.shutdown()
            raise

    @property
    def address(self) -> str:
        """Where the head listens: "127.0.0.1:PORT".

        Raises:
            RuntimeError: There is no head.
        """
        return self._head().address

    @property
    def base_directory(self) -> str:
        """What SOONER_TMPDIR must be for the `sooner` command to find these nodes."""
        return self._base

    def add_node(self, wait: bool = True, **node_args: Any) -> ClusterNode:
        """Starts a node; the first one is the head.

        Args:
            wait: Whether to return only when the head lists the node.
            **node_args: num_cpus (1 by default), num_gpus, memory (logical, bytes), resources (name to
                amount), labels (key to value), object_store_memory (bytes; 128 MiB by default),
                spill_directories, max_spill_bytes and eviction (as for `sooner.init`), node_name, host, port,
                memory_usage_threshold, worker_memory_limits, and for the head health_timeout (seconds).

        Returns:
            The node.

        Raises:
            TypeError: There is no such argument.
            ValueError: An argument has a wrong value.
            RuntimeError: The node did not start; the text says why.
        """
        if not Path(self._base).is_dir():
            raise RuntimeError("this cluster was shut down: make another one")
        unknown = sorted(set(node_args) - set(_ARGUMENTS))
        if unknown:
            raise TypeError(f"add_node() has no argument {unknown[0]!r}; there are: {', '.join(_ARGUMENTS)}")
        config = start.configuration(self._options(node_args))
        started = start.begin(command(config, in_foreground=False), config["offer"])
        node = ClusterNode(started.pid, start.wait(started), config["name"])
        _address.own_directories.add(self._directory(node))
        if self.head_node is None:
            self.head_node = node
        else:
            self.worker_nodes.append(node)
            if wait:
                self._wait_until_listed(node)
        return node

    def _options(self, given: Mapping[str, Any]) -> argparse.Namespace:
        parser = argparse.ArgumentParser()
        start.add_arguments(parser)
        options = parser.parse_args([])
        options.head = self.head_node is None
        options.address = None if options.head else self.address
        options.cluster_dir = str(Path(self._base) / "cluster")
        if not options.head:
            options.token_file = str(Path(options.cluster_dir) / "token")
        options.num_cpus, options.object_store_memory = 1, _STORE_BYTES
        for name, value in given.items():
            setattr(options, name, value)
        options.object_store_memory = str(options.object_store_memory)
        options.memory = None if options.memory is None else str(int(options.memory))
        if options.resources is not None and not isinstance(options.resources, str):
            options.resources = json.dumps(dict(options.resources))
        if options.labels is not None and not isinstance(options.labels, str):
            options.labels = ",".join(f"{key}={value}" for key, value in options.labels.items())
        places = given.get("spill_directories")
        if places is not None:
            options.spill_directory = [os.fspath(place) for place in places]
        if options.max_spill_bytes is not None:
            options.max_spill_bytes = str(options.max_spill_bytes)
        options.base = self._base
        return options

    def remove_node(self, node: ClusterNode, allow_graceful: bool = True) -> None:
        """Ends a node, and returns when nothing of it is left on this machine.

        Args:
            node: One of this cluster.
            allow_graceful: Whether it may end its tasks and say that it leaves; otherwise it is killed with
                SIGKILL.

        Raises:
            ValueError: It is no node of this cluster.
        """
        if node is not self.head_node and node not in self.worker_nodes:
            raise ValueError(f"{node!r} is no node of this cluster, or was removed")
        _end([node], allow_graceful)
        if node is self.head_node:
            self.head_node = None
        else:
            self.worker_nodes.remove(node)

    def wait_for_nodes(self, timeout: float = 30) -> None:
        """Waits until the head lists exactly the nodes that were added and not removed.

        Args:
            timeout: Bound of the wait (seconds).

        Raises:
            TimeoutError: It does not list them in time.
        """
        expected = {node.node_id for node in self._nodes()}
        deadline = time.monotonic() + timeout
        while (listed := self._listed()) != expected:
            if time.monotonic() > deadline:
                missing, left = sorted(expected - listed), sorted(listed - expected)
                raise TimeoutError(f"after {timeout:g} s nodes are missing: {missing}; still there: {left}")
            time.sleep(_POLL_SECONDS)

    def list_all_nodes(self) -> list[ClusterNode]:
        """The nodes that were added and not removed, the head first."""
        return self._nodes()

    def connect(self, namespace: str | None = None) -> Any:
        """Connects this program to the head's node: `sooner.init(address=...)`.

        Args:
            namespace: As for `sooner.init`.

        Returns:
            What `sooner.init` returns.
        """
        return sooner.init(address=self._head().session_dir, namespace=namespace)

    def shutdown(self) -> None:
        """Ends every node. Returns when nothing is left; a second call does nothing."""
        if sooner.is_initialized() and self._is_connected():
            sooner.shutdown()
        nodes = self._nodes()
        _end(nodes, graceful=False)
        _address.own_directories.difference_update(map(self._directory, nodes))
        self.head_node, self.worker_nodes = None, []
        atexit.unregister(self._at_exit)
        shutil.rmtree(self._base, ignore_errors=True)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    @staticmethod
    def _directory(node: ClusterNode) -> str:
        return str(Path(node.session_dir).parent)

    def _head(self) -> ClusterNode:
        if self.head_node is None:
            raise RuntimeError("the cluster has no head: add_node() starts one")
        return self.head_node

    def _nodes(self) -> list[ClusterNode]:
        return ([self.head_node] if self.head_node else []) + self.worker_nodes

    def _listed(self) -> set[str]:
        snapshot = _snapshot.Snapshot(self._head().session_dir, 0, timeout=_END_SECONDS)
        return {row["node_id"] for row in rows.nodes(snapshot)}

    def _wait_until_listed(self, node: ClusterNode) -> None:
        deadline = time.monotonic() + _END_SECONDS
        while node.node_id not in self._listed():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{node!r} runs, and the head does not list it")
            time.sleep(_POLL_SECONDS)

    def _is_connected(self) -> bool:
        from sooner import context  # start-up: 21.6 ms

        directory = context._session.directory if context._session else ""
        return any(node.session_dir == directory for node in self._nodes())


def _end_at_exit(cluster: Cluster, pid: int) -> None:
    if os.getpid() == pid:
        cluster.shutdown()


def _running(directory: str) -> list[str]:
    """The directories of all running nodes in the directory that `directory` is in."""
    return sessions.running_nodes(str(Path(directory).parent))


def _end(nodes: list[ClusterNode], graceful: bool) -> None:
    """End nodes, all at the same time, and wait until they have ended."""
    processes = [_cli_nodes.NodeProcess(node.session_dir) for node in nodes]
    for process in processes:
        process.end(force=not graceful)
    deadline = time.monotonic() + _END_SECONDS
    for process in processes:
        if not process.wait(deadline):
            process.end(force=True)
            process.wait(deadline + _END_SECONDS)
        process.close()
    for node in nodes:
        # The nodes are children of this process.
        try:
            os.waitpid(node.pid, 0)
        except ChildProcessError:
            continue
