"""The `sooner` command: starts and ends nodes of this user on this machine, and looks at them and at running
programs.

Exit status: 0, 1 (not found, or failed), 2 (wrong usage), 3 (nothing runs, or several to choose from).
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

import sooner
from sooner._session.sessions import NoSessionError, choose_session
from sooner._state import query, task_rows, text
from sooner._state import snapshot as _snapshot
from sooner._state.query import KINDS
from sooner._state.snapshot import Row, Snapshot

NOT_FOUND, USAGE, NOT_RUNNING = 1, 2, 3

_ID_FIELDS = {
    "task": "task_id",
    "actor": "actor_id",
    "object": "object_id",
    "worker": "worker_id",
    "node": "node_id",
    "job": "job_id",
    "placement-group": "placement_group_id",
}
_COMPLETION = "a script that completes this command: source <(sooner completion bash)"


def main(arguments: list[str] | None = None) -> int:
    """Runs the command. Returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except NoSessionError as error:
        print(f"sooner: {error}", file=sys.stderr)
        return NOT_RUNNING
    except BrokenPipeError:
        # The reader has closed the pipe: the rest of the output is dropped.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except ValueError as error:
        print(f"sooner: {error}", file=sys.stderr)
        return USAGE
    except OSError as error:
        print(f"sooner: {error}", file=sys.stderr)
        return NOT_FOUND
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--address", metavar="DIR", help="the session's directory, if several programs run")
    common.add_argument("--json", action="store_true", help="print JSON")
    common.add_argument("--timeout", type=float, default=30, metavar="S", help="wait so long for the node (seconds)")
    parser = argparse.ArgumentParser(
        prog="sooner", description="Start sooner nodes, and look at nodes and running programs."
    )
    parser.add_argument("--version", action="version", version=f"sooner {sooner.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_node_commands(commands)

    def command(name: str, run: Any, help_: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, parents=[common], help=help_, description=help_)
        made.set_defaults(run=run)
        return made

    command("status", _status, "what the program has and does, on one page")
    made = command("list", _list, "rows of one kind")
    made.add_argument("kind", choices=list(KINDS))
    made.add_argument(
        "--filter", action="append", default=[], metavar="KEY=VALUE", help="only rows with this (or KEY!=VALUE)"
    )
    made.add_argument("--limit", type=int, default=100, help="rows at most (100)")
    made = command("get", _get, "everything about one of a kind")
    made.add_argument("kind", choices=[*_ID_FIELDS, *KINDS])
    made.add_argument("id", help="the id, or its end")
    made = command("summary", _summary, "counts by name and state")
    made.add_argument("kind", choices=("tasks", "actors", "objects"))
    made = command("memory", _memory, "objects, their sizes, and why they are kept")
    made.add_argument("--top", "--limit", type=int, default=100, metavar="N", help="so many of the largest (100)")
    made.add_argument("--group-by", choices=("owner", "site", "reason"), help="only totals")
    made = command("timeline", _timeline, "a trace of every task, for https://ui.perfetto.dev")
    made.add_argument("-o", "--output", metavar="FILE", help="where to write it (standard output)")
    made = command("logs", _logs, "what workers printed")
    made.add_argument("name", nargs="?", help="process id, or part of a file's name; without it the files are listed")
    made.add_argument("-f", "--follow", action="store_true", help="go on as more is printed")
    command("stack", _stack, "Python stacks of the driver and all workers, as they are now")
    made = command("why", _why, "why a task has not run, or an object is still there")
    made.add_argument("ref", help="id of an object, task or actor, or its end")
    command("metrics", _metrics, "all metrics, in the format of Prometheus")
    return parser


def _add_node_commands(commands: Any) -> None:
    from sooner._cli import drain, start, token  # start-up: 40.9 ms
    from sooner._cli import nodes as _cli_nodes  # start-up: 8.0 ms

    texts = {
        "start": ("start a node on this machine, as a head or to join one", start.add_arguments, start.start),
        "stop": ("end nodes, after the tasks that run", _cli_nodes.add_stop_arguments, _cli_nodes.stop),
        "drain-node": (
            "have a node leave the cluster: its tasks end, its actors and values move",
            drain.add_arguments,
            drain.drain_node,
        ),
        "token": (
            "the token of the cluster on this machine, a secret, and how to change it",
            token.add_arguments,
            token.token,
        ),
        "health-check": (
            "whether a node answers: exit status 0, 1 or 3 (none runs)",
            _cli_nodes.add_health_arguments,
            _cli_nodes.health_check,
        ),
    }
    for name, (text_, add_arguments, run) in texts.items():
        made = commands.add_parser(name, help=text_, description=text_)
        add_arguments(made)
        made.set_defaults(run=run)
    made = commands.add_parser("completion", help=_COMPLETION, description=_COMPLETION)
    made.add_argument("shell", choices=("bash", "zsh", "fish"))
    made.set_defaults(run=_completion)


def _completion(options: argparse.Namespace) -> int:
    from sooner._cli.completion import script  # start-up: 0.8 ms

    sys.stdout.write(script(options.shell, _parser()))
    return 0


def _session(options: argparse.Namespace) -> str:
    if options.timeout <= 0:
        raise ValueError("--timeout must be a positive number of seconds")
    return choose_session(options.address)


def _print_json(value: Any) -> None:
    import json  # start-up: 2.1 ms

    print(json.dumps(value, indent=2, default=str))


def _filters(texts: list[str]) -> list[query.Filter]:
    found = []
    for one in texts:
        operator = "!=" if "!=" in one else "="
        key, separator, value = one.partition(operator)
        if not separator or not key:
            raise ValueError(f"--filter {one}: write KEY=VALUE or KEY!=VALUE")
        found.append((key, operator, value))
    return found


def _warn_silent(snapshot: Snapshot) -> None:
    if missing := snapshot.missing():
        print(f"sooner: these did not answer: {'; '.join(missing)}", file=sys.stderr)


def _list(options: argparse.Namespace) -> int:
    if options.limit < 1:
        raise ValueError("--limit must be at least 1")
    filters = _filters(options.filter)
    rows, snapshot = query.rows_of(_session(options), options.kind, filters, options.limit, options.timeout)
    _warn_silent(snapshot)
    if options.json:
        _print_json(rows)
    elif rows:
        shown = [text.with_duration(row) for row in rows] if options.kind == "tasks" else rows
        columns = list(text.COLUMNS[options.kind])
        if options.kind == "nodes":
            shown = [text.node_row(row) for row in rows]
        elif len(snapshot.told) > 1:
            columns.insert(text.NODE_AT[options.kind], "node")
            shown = [row | {"node": _node_name(snapshot, row)} for row in shown]
        print(text.table(shown, columns, text.width()))
        if len(rows) == options.limit:
            print(f"sooner: the first {options.limit}; --limit shows more", file=sys.stderr)
    else:
        print(f"no {options.kind.replace('-', ' ')}")
    return 0


def _node_name(snapshot: Snapshot, row: Row) -> str | None:
    """The name of the node that a row is about, or of the node of the process that reported the row."""
    node = row["node_id"] if "node_id" in row else snapshot.node_of(row.get("worker_id") or row["job_id"])
    return snapshot.name_of(node) if node else None


def _get(options: argparse.Namespace) -> int:
    singular = options.kind if options.kind in _ID_FIELDS else options.kind.removesuffix("s")
    field = _ID_FIELDS[singular]
    # Asks for all rows: `get` accepts the end of an id, which a filter does not.
    rows, snapshot = query.rows_of(
        _session(options), f"{singular}s", [(field, "!=", "")], _snapshot.EVENTS_MAX, options.timeout
    )
    _warn_silent(snapshot)
    found = [row for row in rows if str(row[field]).endswith(options.id.lower())]
    if not found:
        print(f"sooner: there is no {singular} with the id {options.id} (any more)", file=sys.stderr)
        return NOT_FOUND
    if len({row[field] for row in found}) > 1:
        raise ValueError(f"{len(found)} ids end in {options.id}; give more of it")
    if options.json:
        _print_json(found if len(found) > 1 else found[0])
    else:
        print("\n\n".join(text.fields(row) for row in found))
    return 0


def _summary(options: argparse.Namespace) -> int:
    directory = _session(options)
    if options.kind == "tasks":
        summary = task_rows.summary_of_tasks(directory, options.timeout)
    else:
        # Only here: importing typed records takes longer than all the rest.
        from sooner import state  # start-up: 98.8 ms

        summarize = state.summarize_actors if options.kind == "actors" else state.summarize_objects
        summary = summarize(directory, options.timeout)
    if options.json:
        _print_json(summary)
        return 0
    if options.kind == "objects":
        rows = [{"reference_type": name, **entry} for name, entry in summary["summary"].items()]
        columns = ["reference_type", "total_objects", "total_size_bytes"]
    else:
        entries = summary["summary"].values()
        states = sorted({one for entry in entries for one in entry["state_counts"]})
        rows = [{"name": name, **entry["state_counts"]} for name, entry in summary["summary"].items()]
        columns = ["name", *states]
        if options.kind == "tasks":
            for row in rows:
                peak = summary["summary"][row["name"]]["peak_memory_bytes"]
                row["peak_memory"] = "-" if peak is None else text.size(peak)
            columns.append("peak_memory")
    print(text.table(rows, columns, text.width()) if rows else f"no {options.kind}")
    return 0


def _memory(options: argparse.Namespace) -> int:
    if options.top < 1:
        raise ValueError("--top must be at least 1")
    from sooner._state import objects as _objects  # start-up: 2.6 ms

    about = _snapshot.OBJECTS | _snapshot.TASKS
    snapshot = Snapshot(_session(options), about, timeout=options.timeout, everywhere=True)
    _warn_silent(snapshot)
    known = _objects.Objects(snapshot)
    # An object counts once: by its owner's report, or another process's if the owner did not answer.
    objects = sorted((rows[0] for rows in known.by_id.values()), key=lambda row: -row["object_size"])
    groups = {by: _objects.totals(objects, by) for by in _objects.GROUPS}
    keys = ("store_used", "store_capacity", "blocks")
    node = {key: sum(told[key] for told in snapshot.told.values()) for key in keys}
    if options.json:
        node["nodes"] = [_store(told) for told in snapshot.told.values()]
        totals = {f"by_{by}": found for by, found in groups.items()}
        told = [told for row in objects[: options.top] for told in known.by_id[row["object_id"]]]
        _print_json({"objects": told} | node | totals)
        return 0
    stores = [text.store_row(_store(told)) for told in snapshot.told.values()]
    used, capacity = text.size(node["store_used"]), text.size(node["store_capacity"])
    nodes = f" of {len(snapshot.told)} nodes" if len(snapshot.told) > 1 else ""
    print(f"shared memory{nodes}: {used} of {capacity} in {node['blocks']} blocks")
    print(text.table(stores, list(stores[0]), text.width()), end="\n\n")
    if not objects:
        print("no objects")
        return 0
    if options.group_by:
        print(_groups(groups[options.group_by], options.top))
        return 0
    shown = [text.memory_row(known.by_id[row["object_id"]], snapshot.place) for row in objects[: options.top]]
    columns = [column for column in text.MEMORY_COLUMNS if column != "call_site" or any(map(_has_site, shown))]
    print(text.table(shown, columns, text.width()))
    for by in ("reason", "owner"):
        print(f"\n{_groups(groups[by], options.top)}")
    hints = [f"{row['object_id']}: {row['hint']}" for row in objects[: options.top] if row["hint"]]
    if hints:
        print("", *hints, sep="\n")
    if len(objects) > options.top:
        print(f"sooner: the largest {options.top} of {len(objects)} objects; --top shows more", file=sys.stderr)
    return 0


def _store(told: Row) -> Row:
    """The use of a node's object store (bytes), and how many of its values are on disk."""
    # Nodes of the previous version do not report it.
    row: Row = told["memory"] or {}
    keys = ("pinned", "cached", "incoming", "outgoing", "spilled", "spill_files", "spilled_values", "fallback")
    first: Row = {"node": told["name"] or told["node"], "capacity": told["store_capacity"], "used": told["store_used"]}
    return first | {key: row.get(key) for key in keys}


def _has_site(row: Row) -> bool:
    return bool(row["call_site"])


def _groups(found: list[Row], most: int) -> str:
    rows = [row | {"bytes": text.size(row["bytes"])} for row in found[:most]]
    return text.table(rows, list(rows[0]), text.width())


def _status(options: argparse.Namespace) -> int:
    from sooner._cli import status as _cli_status  # start-up: 3.0 ms
    from sooner._state.status import status_of  # start-up: 1.0 ms

    snapshot, stopped = _cli_status.ask(_session(options), options.timeout)
    if stopped is not None:
        print(f"sooner: {stopped.problem}", file=sys.stderr)
    if snapshot is None:
        assert stopped is not None
        known = _cli_status.known_of(stopped)
        if options.json:
            _print_json(known)
        else:
            print("\n".join(f"{name.ljust(10)} {value}" for name, value in known.items()))
        return 1
    _warn_silent(snapshot)
    status = status_of(snapshot)
    if stopped is not None:
        status["problems"].insert(0, stopped.problem)
    if options.json:
        _print_json(status)
    else:
        print("\n".join(_cli_status.lines(status)))
    return 0


def _timeline(options: argparse.Namespace) -> int:
    from sooner._state import timeline  # start-up: 4.2 ms

    directory = _session(options)
    if options.output is None:
        timeline.write(directory, sys.stdout, options.timeout)
        return 0
    with open(options.output, "w") as file:
        count = timeline.write(directory, file, options.timeout)
    if options.json:
        _print_json({"file": options.output, "events": count})
    else:
        print(f"{count} events written to {options.output}: open it at https://ui.perfetto.dev")
    return 0


def _logs(options: argparse.Namespace) -> int:
    from sooner._cli.logs import logs  # start-up: 2.2 ms

    return logs(_session(options), options)


def _stack(options: argparse.Namespace) -> int:
    from sooner._state import stacks as _stacks  # start-up: 2.3 ms

    about = _snapshot.STACKS | _snapshot.TASKS
    snapshot = Snapshot(_session(options), about, timeout=options.timeout, everywhere=True)
    _warn_silent(snapshot)
    names = {row["task_id"]: row["name"] for row in task_rows.tasks(snapshot)}
    runs = {worker: names.get(task, task) for task, (worker, _) in snapshot.running().items()}
    stacks = _stacks.read(snapshot)
    stacks.sort(key=lambda one: one[0] not in snapshot.drivers)
    if options.json:
        rows = [{"worker_id": one, "pid": pid, "task": runs.get(one), "stack": shown} for one, pid, shown in stacks]
        _print_json([row | {"node_id": snapshot.node_of(str(row["worker_id"]))} for row in rows])
        return 0
    for worker, pid, shown in stacks:
        kind = "driver" if worker in snapshot.drivers else "worker"
        doing = f", runs {runs[worker]}" if worker in runs else ""
        print(f"== {kind} {pid}{snapshot.place(worker)}{doing}\n{shown}")
    return 0


def _why(options: argparse.Namespace) -> int:
    from sooner._state.why import Why  # start-up: 10.1 ms

    why = Why(_session(options), options.timeout)
    _warn_silent(why.snapshot)
    found = why.find(options.ref)
    if not found:
        print(f"sooner: nothing with the id {options.ref} is known (any more)", file=sys.stderr)
        return NOT_FOUND
    # The ids of an object and of its task count as one.
    if len({one[:32] for one in found}) > 1:
        raise ValueError(f"{len(found)} ids match {options.ref}; give more of it")
    identity = max(found, key=len)
    lines = why.explain(identity)
    if options.json:
        _print_json({"id": identity, "explanation": lines, "objects": why.objects(identity)})
    else:
        print("\n".join(lines))
    return 0


def _metrics(options: argparse.Namespace) -> int:
    from sooner._state.prometheus import text_of  # start-up: 1.5 ms

    snapshot = Snapshot(_session(options), _snapshot.METRICS, timeout=options.timeout)
    if options.json:
        _print_json(snapshot.node["metrics"])
    else:
        sys.stdout.write(text_of(snapshot))
    return 0
