"""`sooner start`: checks the options, and starts a node as a process of its own.

Exit status 1 with one sentence: the node did not start. 2: wrong usage, as everywhere. 3 to 8: the node could
not join its cluster; the engine sets the status (`docs/cluster.md`).
"""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from sooner._session import offers, resources, spilling
from sooner._session.daemon import OFFER, READY, TOKEN, TOKEN_BYTES_MAX, command
from sooner._session.membership import cluster_directory, disk_directory, membership, parent_directory

FAILED = 1

# Silence after which a node is dead (seconds): the default, and the limits of the option.
HEALTH_TIMEOUT = 5.0
_HEALTH_TIMEOUTS = (1.0, 60.0)
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(?:([kmgt])i?)?b?", re.IGNORECASE)
_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `sooner start`."""
    parser.add_argument("--head", action="store_true", help="the first node of a cluster, or the only one")
    parser.add_argument("--address", metavar="HOST:PORT", help="the head of the cluster to join")
    parser.add_argument("--host", help="address to listen on; loopback, or the one by which the head is reached")
    parser.add_argument("--port", type=int, help="port to listen on; any that is free by default")
    parser.add_argument("--token-file", metavar="FILE", help="the cluster's token; SOONER_TOKEN may have it instead")
    parser.add_argument("--cluster-dir", metavar="DIR", help="where a head keeps what outlives it; private")
    parser.add_argument("--health-timeout", type=float, metavar="S", help="silence after which a node is gone; 5")
    parser.add_argument("--num-cpus", type=float, metavar="N", help="logical CPUs; those that may be used by default")
    parser.add_argument("--num-gpus", type=float, metavar="N", help="logical GPUs; those that are found by default")
    parser.add_argument("--memory", metavar="BYTES", help="logical memory of tasks and actors; what the machine has")
    parser.add_argument("--resources", metavar="JSON", help="custom resources: '{\"name\": amount}'")
    parser.add_argument("--labels", metavar="KEY=VALUE,...", help="labels of the node; a JSON object, too")
    parser.add_argument("--object-store-memory", metavar="BYTES", help="shared memory for objects, as 2g or 500M")
    parser.add_argument(
        "--spill-directory",
        metavar="DIR",
        action="append",
        help="where values go for which there is no room, in turns if it is given several times; '' for nowhere; "
        "s3://BUCKET/PREFIX for an object store",
    )
    parser.add_argument("--max-spill-bytes", metavar="BYTES", help="what may be on disk of them, as 20g; no limit")
    parser.add_argument(
        "--eviction",
        choices=spilling.EVICTIONS,
        help="what becomes of values that nobody reads when there is no room: they go to disk, or, if a task can make "
        "them again, are dropped until they are wanted (recompute); and whether copies at other nodes stay until there "
        "is no room when their value is out of reference (unpin); spill",
    )
    parser.add_argument(
        "--memory-usage-threshold",
        type=float,
        metavar="SHARE",
        help="share of the memory from which on workers are stopped; 0.95, and 0 for never",
    )
    parser.add_argument(
        "--worker-memory-limits",
        choices=resources.MEMORY_LIMITS,
        help="whose memory a control group limits to what was reserved: that of tasks that are retried, of all, or of "
        "none; auto",
    )
    parser.add_argument("--node-name", metavar="NAME", help="how the node is called; 'head' for the head, else node-*")
    parser.add_argument(
        "--http-port", type=int, metavar="PORT", help="tell autoscalers and monitors of this machine how it is"
    )
    parser.add_argument("--block", action="store_true", help="stay in the foreground until the node ends")
    parser.add_argument("--json", action="store_true", help="print JSON")
    # Set by programs that start nodes: the directory below which the node has its own.
    parser.set_defaults(base=None)


def start(options: argparse.Namespace) -> int:
    """Runs the command: returns when the node is ready, or with `--block` becomes the node."""
    config = configuration(options)
    program = command(config, options.block)
    if options.block:
        environment, token = _token_aside()
        if token is not None:
            os.dup2(token, TOKEN)
        if config["offer"] is not None:
            os.dup2(config["offer"], OFFER)
        # Replaces this process, so that its supervisor sees the node itself.
        os.execve(program[0], program, environment)  # noqa: S606  the interpreter that runs this
    started = begin(program, config["offer"])
    try:
        directory = wait(started)
    except StartError as error:
        return _fail(error, options.json)
    _tell(started.pid, directory, config, options.json)
    return 0


class StartError(RuntimeError):
    """A node did not start.

    Attributes:
        status: The exit status of its process.
    """

    def __init__(self, reason: str, status: int) -> None:
        super().__init__(reason)
        self.status = status


class Started(NamedTuple):
    """The process of a node that is starting."""

    pid: int
    # The pipe on which it reports that it is ready.
    reader: int


def wait(started: Started) -> str:
    """Waits until a node is ready. Returns its directory.

    Raises:
        StartError: The node did not start.
    """
    line = _wait_for(started.reader)
    if line.startswith("ready "):
        return line.removeprefix("ready ")
    status = os.waitstatus_to_exitcode(os.waitpid(started.pid, 0)[1])
    reason = line.removeprefix("error ") or f"the node (process {started.pid}) ended before it was ready"
    raise StartError(reason, status if status > 0 else FAILED)


def configuration(options: argparse.Namespace) -> dict[str, Any]:
    """The node's configuration.

    Returns:
        Arguments of the engine, and "offer": the descriptor by which the node's process keeps its entry in
        the table of offered memory (`offers.py`), which `begin` takes over.

    Raises:
        ValueError: An option has a wrong value.
    """
    if options.head and options.address is not None:
        raise ValueError("--head starts a cluster, --address joins one: give one of the two")
    if options.block and options.json:
        raise ValueError("--json: with --block the node itself prints `ready DIRECTORY`; leave one of the two out")
    if not options.head and options.address is None:
        raise ValueError("give --head to start a cluster on this machine, or --address=HOST:PORT to join one")
    if options.address is not None:
        _check_address(options.address)
        if options.health_timeout is not None:
            raise ValueError("--health-timeout: the head says it for all nodes of its cluster")
    if options.port is not None and not 0 <= options.port < 1 << 16:
        raise ValueError(f"--port must be between 0 and 65535, not {options.port}")
    if options.http_port is not None and not 1 <= options.http_port < 1 << 16:
        raise ValueError(f"--http-port must be between 1 and 65535, not {options.http_port}")
    timeout = HEALTH_TIMEOUT if options.health_timeout is None else options.health_timeout
    if not _HEALTH_TIMEOUTS[0] <= timeout <= _HEALTH_TIMEOUTS[1]:
        raise ValueError(f"--health-timeout must be between 1 and 60 seconds, not {timeout:g}")
    base = os.path.abspath(options.base or parent_directory())
    config = {
        "base_directory": base,
        "name": _name(options.node_name, options.head),
        "labels": labels(options.labels),
        "is_head": options.head,
        # Not from `secrets`, whose imports take longer than all the rest.
        "random": int.from_bytes(os.urandom(8), "little") >> 1 | 1 << 40,
        "cluster_directory": cluster_directory(options.cluster_dir),
        "head": options.address,
        "host": options.host,
        "port": options.port,
        "token_file": None if options.token_file is None else os.path.abspath(options.token_file),
        "health_timeout": timeout,
        "memory": resources.memory(options.memory_usage_threshold, options.worker_memory_limits),
        "spill": _spill(options.spill_directory, options.max_spill_bytes, options.base or disk_directory()),
        "eviction": spilling.eviction(options.eviction),
        "http_port": options.http_port,
    }
    asked = _bytes("--object-store-memory", options.object_store_memory)
    memory, custom = _bytes("--memory", options.memory), _custom(options.resources)
    totals = resources.totals(options.num_cpus, options.num_gpus, custom, memory)
    store = resources.store_bytes(asked)
    # Other nodes that start now see what this node offers, before it runs.
    with offers.table(base) as table:
        if memory is None:
            totals["memory"] = resources.default_memory(table.offered)
        if asked is None:
            store = resources.store_bytes(None, table.offered)
        offer = table.enter(int(totals["memory"]), store)
    if not options.head:
        totals.pop("node:__internal_head__", None)
    totals["object_store_memory"] = float(store)
    return config | {
        "resources": list(totals.items()),
        "pool_size": max(1, int(totals["CPU"])),
        "store_bytes": store,
        "offer": offer,
    }


def _spill(asked: list[str] | None, most: str | None, base: str) -> tuple[list[str], int | None]:
    places = asked if asked is None else [place for place in asked if place]
    try:
        found = spilling.directories(places, base)
    except ValueError as error:
        raise ValueError(str(error).replace("spill_directories", "--spill-directory")) from None
    size = _bytes("--max-spill-bytes", most)
    if size == 0:
        raise ValueError("--max-spill-bytes must be positive; --spill-directory='' switches spilling off")
    return found, size


def _check_address(address: str) -> None:
    host, separator, port = address.rpartition(":")
    if not (separator and host and port.isdigit() and 0 < int(port) < 1 << 16):
        raise ValueError(f"--address {address!r}: write HOST:PORT, as `sooner start --head` printed it")


def _name(given: str | None, is_head: bool) -> str:
    name = given or ("head" if is_head else f"node-{os.urandom(4).hex()}")
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"--node-name {name!r}: a name has 1 to 63 letters, digits, '.', '_' and '-', and begins and ends with a "
            "letter or digit"
        )
    return name


def labels(text: str | None) -> list[tuple[str, str]]:
    """Labels from KEY=VALUE,...

    Raises:
        ValueError: A key or value is not allowed.
    """
    found: dict[str, str] = {}
    for key, value in _label_pairs(text or ""):
        _check_label(key, value)
        if key in found:
            raise ValueError(f"--labels: {key!r} is there twice")
        found[key] = value
    return list(found.items())


def _label_pairs(text: str) -> Iterator[tuple[str, str]]:
    """KEY=VALUE,... or a JSON object."""
    if text.lstrip().startswith("{"):
        import json  # start-up: 1.7 ms

        try:
            pairs = json.loads(text, object_pairs_hook=list)
        except ValueError as error:
            raise ValueError(f'--labels {text!r} is no JSON ({error}); write \'{{"key": "value"}}\'') from None
        if not all(isinstance(value, str) for _, value in pairs):
            raise ValueError(f"--labels must be a JSON object of strings, not {text}")
        yield from pairs
        return
    for part in text.split(",") if text else ():
        key, separator, value = part.strip().partition("=")
        if not separator:
            raise ValueError(f"--labels {part!r}: write KEY=VALUE, with a comma between labels")
        yield key, value


def _check_label(key: str, value: str) -> None:
    prefix, slash, name = key.rpartition("/")
    if not _NAME.fullmatch(name) or (slash and not _PREFIX.fullmatch(prefix)):
        raise ValueError(
            f"--labels: {key!r} is no key: 1 to 63 letters, digits, '.', '_' and '-', perhaps after a domain and '/'"
        )
    if prefix == "sooner.io" or key == "ray.io/node-id":
        raise ValueError(f"--labels: {key!r} is set by sooner")
    if value and not _NAME.fullmatch(value):
        raise ValueError(f"--labels: {value!r} is no value: up to 63 letters, digits, '.', '_' and '-'")


def _custom(text: str | None) -> dict[str, float] | None:
    if text is None:
        return None
    import json  # start-up: 1.7 ms

    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(f"--resources {text!r} is no JSON ({error}); write '{{\"name\": amount}}'") from None
    if not isinstance(found, dict):
        raise ValueError(f"--resources must be a JSON object of names and amounts, not {text}")
    for name in found:
        if name in resources.RESERVED:
            raise ValueError(f"--resources: use the option for {name!r}")
    return found


def _bytes(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{option} {text!r}: write a number of bytes, or 500M, 2GiB and the like")
    number, unit = match.groups()
    return int(float(number) * 1024 ** _UNITS[unit.lower() if unit else ""])


def begin(program: list[str], offer: int | None) -> Started:
    """Starts the node's process in a session of its own. The process takes over the descriptor `offer`."""
    reader, writer = os.pipe()
    environment, token = _token_aside()
    null = os.open(os.devnull, os.O_RDWR)
    offer = None if offer is None else _above(offer)
    opened = [_above(writer), _above(null), *(one for one in (token, offer) if one is not None)]
    actions = [(os.POSIX_SPAWN_DUP2, opened[1], number) for number in (0, 1, 2)]
    actions.append((os.POSIX_SPAWN_DUP2, opened[0], READY))
    if token is not None:
        actions.append((os.POSIX_SPAWN_DUP2, token, TOKEN))
    if offer is not None:
        actions.append((os.POSIX_SPAWN_DUP2, offer, OFFER))
    try:
        pid = os.posix_spawn(program[0], program, environment, file_actions=actions, setsid=True)
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return Started(pid, reader)


def _above(descriptor: int) -> int:
    """Moves a descriptor to a number above those that have a meaning for the node's process."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, OFFER + 1)
    os.close(descriptor)
    return moved


def _token_aside() -> tuple[dict[str, str], int | None]:
    """The environment without SOONER_TOKEN, and a descriptor to read the token from, if it was there.

    A process can remove it from its environment, but not from `/proc/<pid>/environ`.
    """
    environment = dict(os.environ)
    token = environment.pop("SOONER_TOKEN", None)
    if token is None:
        return environment, None
    reader, writer = os.pipe()
    # A pipe takes that many bytes at once. A longer text is no token, and the node refuses it.
    os.write(writer, os.fsencode(token)[:TOKEN_BYTES_MAX])
    os.close(writer)
    return environment, _above(reader)


def _wait_for(reader: int) -> str:
    """The node's message; empty if the node ended without one."""
    with open(reader) as pipe:
        return pipe.readline().strip()


def _tell(pid: int, directory: str, config: dict[str, Any], as_json: bool) -> None:
    told = membership(directory)
    if as_json:
        import json  # start-up: 1.7 ms

        names = {"node_name": config["name"], "pid": pid, "session_dir": directory}
        print(json.dumps(names | told), flush=True)
        return
    print(f"node {config['name']} runs (process {pid})")
    print(f"directory   {directory}")
    print(f"cluster     {told['fingerprint']}, head at {told['head']}")
    if config["is_head"]:
        print(f"to join it  sooner start --address={told['head']}  (with the token of {told['token_file']})")
    print(f"to use it   sooner.init(address='auto'), or SOONER_ADDRESS={directory}")
    print("to end it   sooner stop", flush=True)


def _fail(error: StartError, as_json: bool) -> int:
    if as_json:
        import json  # start-up: 1.7 ms

        print(json.dumps({"error": str(error), "status": error.status}), flush=True)
    print(f"sooner start: {error}", file=sys.stderr)
    return error.status
