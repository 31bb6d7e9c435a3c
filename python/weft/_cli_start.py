"""`weft start`: checks what was asked for, and starts a node as a process of its own."""

from __future__ import annotations

import argparse
import os
import re
import sys
from typing import Any

from weft import _resources
from weft._daemon import READY, command

# One sentence and exit status 1: the node did not start. (2 is wrong usage, as everywhere.)
FAILED = 1

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(?:([kmgt])i?)?b?", re.IGNORECASE)
_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `weft start`."""
    parser.add_argument("--head", action="store_true", help="the first node of a cluster, or the only one")
    parser.add_argument("--address", metavar="HOST:PORT", help="the head to join (not available in this version)")
    parser.add_argument("--host", help="the address to listen on (not available in this version)")
    parser.add_argument("--port", type=int, help="the port to listen on (not available in this version)")
    parser.add_argument("--num-cpus", type=float, metavar="N", help="logical CPUs; those that may be used by default")
    parser.add_argument("--num-gpus", type=float, metavar="N", help="logical GPUs; none by default")
    parser.add_argument("--resources", metavar="JSON", help="custom resources: '{\"name\": amount}'")
    parser.add_argument("--labels", metavar="KEY=VALUE,...", help="labels of the node")
    parser.add_argument("--object-store-memory", metavar="BYTES", help="shared memory for objects, as 2g or 500M")
    parser.add_argument("--node-name", metavar="NAME", help="how the node is called; 'head' for the head")
    parser.add_argument("--block", action="store_true", help="stay in the foreground until the node ends")
    parser.add_argument("--json", action="store_true", help="print JSON")


def start(options: argparse.Namespace) -> int:
    """Runs the command: returns when the node is ready, or with `--block` becomes the node."""
    config = configuration(options)
    program = command(config, options.block)
    if options.block:
        # Whoever supervises this process sees the node itself.
        os.execv(program[0], program)  # noqa: S606  the interpreter that runs this
    pid, reader = _spawn(program)
    line = _wait_for(reader)
    if line.startswith("ready "):
        _tell(pid, line.removeprefix("ready "), config, options.json)
        return 0
    return _fail(line.removeprefix("error ") or f"the node (process {pid}) ended before it was ready", options.json)


def configuration(options: argparse.Namespace) -> dict[str, Any]:
    """What the node is started with.

    Raises:
        ValueError: An option has a wrong value.
    """
    if options.head and options.address is not None:
        raise ValueError("--head starts a cluster, --address joins one: give one of the two")
    if options.address is not None:
        raise ValueError("--address: this version of weft does not join other machines yet; use --head on this one")
    if options.block and options.json:
        raise ValueError("--json: with --block the node itself prints `ready DIRECTORY`; leave one of the two out")
    if not options.head:
        raise ValueError("give --head to start a node on this machine (a later version joins one with --address)")
    for name, value in (("--host", options.host), ("--port", options.port)):
        if value is not None:
            raise ValueError(f"{name}: this version of weft does not listen on the network yet; leave it out")
    store = _resources.store_bytes(_bytes("--object-store-memory", options.object_store_memory))
    totals = _resources.totals(options.num_cpus, options.num_gpus, _custom(options.resources))
    totals["object_store_memory"] = float(store)
    return {
        "resources": list(totals.items()),
        "pool_size": max(1, int(totals["CPU"])),
        "store_bytes": store,
        "base_directory": os.path.abspath(os.environ.get("WEFT_TMPDIR", "/tmp")),  # noqa: S108  made private below it
        "name": _name(options.node_name),
        "labels": labels(options.labels),
        "is_head": options.head,
        # Not from `secrets`, whose imports take longer than all the rest.
        "random": int.from_bytes(os.urandom(8), "little") >> 1 | 1 << 40,
    }


def _name(given: str | None) -> str:
    name = "head" if given is None else given
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
    for part in (text or "").split(",") if text else ():
        key, separator, value = part.strip().partition("=")
        if not separator:
            raise ValueError(f"--labels {part!r}: write KEY=VALUE, with a comma between labels")
        _check_label(key, value)
        if key in found:
            raise ValueError(f"--labels: {key!r} is there twice")
        found[key] = value
    return list(found.items())


def _check_label(key: str, value: str) -> None:
    prefix, slash, name = key.rpartition("/")
    if not _NAME.fullmatch(name) or (slash and not _PREFIX.fullmatch(prefix)):
        raise ValueError(
            f"--labels: {key!r} is no key: 1 to 63 letters, digits, '.', '_' and '-', perhaps after a domain and '/'"
        )
    if prefix in ("weft.io", "ray.io"):
        raise ValueError(f"--labels: keys below {prefix}/ are set by weft")
    if value and not _NAME.fullmatch(value):
        raise ValueError(f"--labels: {value!r} is no value: up to 63 letters, digits, '.', '_' and '-'")


def _custom(text: str | None) -> dict[str, float] | None:
    if text is None:
        return None
    import json

    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(f"--resources {text!r} is no JSON ({error}); write '{{\"name\": amount}}'") from None
    if not isinstance(found, dict):
        raise ValueError(f"--resources must be a JSON object of names and amounts, not {text}")
    for name in found:
        if name in _resources.RESERVED:
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


def _spawn(program: list[str]) -> tuple[int, int]:
    """Starts a process of its own session; gives its id and where it says that it is ready."""
    reader, writer = os.pipe()
    null = os.open(os.devnull, os.O_RDWR)
    actions = [(os.POSIX_SPAWN_DUP2, null, number) for number in (0, 1, 2)]
    actions.append((os.POSIX_SPAWN_DUP2, writer, READY))
    try:
        pid = os.posix_spawn(program[0], program, os.environ, file_actions=actions, setsid=True)
    finally:
        os.close(writer)
        os.close(null)
    return pid, reader


def _wait_for(reader: int) -> str:
    """The node's word; empty if it ended without one."""
    with open(reader) as pipe:
        return pipe.readline().strip()


def _tell(pid: int, directory: str, config: dict[str, Any], as_json: bool) -> None:
    if as_json:
        import json

        print(json.dumps({"node_name": config["name"], "pid": pid, "session_dir": directory}), flush=True)
        return
    print(f"node {config['name']} runs (process {pid})")
    print(f"directory   {directory}")
    print(f"to use it   weft.init(address='auto'), or WEFT_ADDRESS={directory}")
    print("to end it   weft stop", flush=True)


def _fail(reason: str, as_json: bool) -> int:
    if as_json:
        import json

        print(json.dumps({"error": reason}), flush=True)
    print(f"weft start: {reason}", file=sys.stderr)
    return FAILED
