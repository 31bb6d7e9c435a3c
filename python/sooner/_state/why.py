"""Explains from a snapshot why a task has not run, and why an object is still there."""

from __future__ import annotations

from collections.abc import Iterator

from sooner import _sooner
from sooner._state import rows, task_rows
from sooner._state.snapshot import ACTORS, EVENTS, EVENTS_MAX, OBJECTS, TASKS, Row, Snapshot
from sooner._state.why_object import WhyObject

_DEPTH_MAX = 8
_NAMED_MAX = 5


class Why:
    """Explains what one snapshot knows."""

    def __init__(self, directory: str, timeout: float = 30) -> None:
        about = TASKS | OBJECTS | ACTORS | EVENTS
        self.snapshot = Snapshot(directory, about, events=EVENTS_MAX, timeout=timeout, everywhere=True)
        self._actors = {row["actor_id"]: row for row in rows.actors(self.snapshot)}
        self._tasks: dict[str, Row] = {}
        for row in task_rows.tasks(self.snapshot):
            # An execution that has not ended comes first, then the latest one.
            self._tasks.setdefault(row["task_id"], row)
        self._kept = WhyObject(self.snapshot, self._tasks)

    def find(self, reference: str) -> list[str]:
        """The ids of objects, tasks and actors that match: by the whole id, its beginning or its end."""
        wanted = reference.lower().removeprefix("objectref(").rstrip(")")
        known = [*self._tasks, *self._kept.objects.by_id]
        if wanted in known:
            return [wanted]
        if len(wanted) == 40 and wanted[:32] in self._tasks:
            # The object was freed, or is too small for the table, but its task is known.
            return [wanted[:32]]
        return [one for one in known if one.startswith(wanted) or one.endswith(wanted)]

    def objects(self, identity: str) -> list[Row]:
        """The rows of all processes that know an object."""
        return self._kept.objects.by_id.get(identity, [])

    def explain(self, identity: str) -> list[str]:
        """Sentences on a task or object, one per line; indented ones belong to the line before."""
        lines: list[str] = []
        task = self._tasks.get(identity[:32])
        if task is not None:
            lines += self._task(task, 0)
        handle = f"{identity}00000000"
        if identity in self._actors and self.objects(handle):
            identity = handle
        if len(identity) == 40:
            lines += self._kept.explain(identity)
        return lines

    def _task(self, task: Row, depth: int) -> Iterator[str]:
        indent = "  " * depth
        title = f"{indent}task {task['task_id']} ({task['name']})"
        state = task["state"]
        if task["type"] == "ACTOR_CREATION_TASK" and task["task_id"] in self._actors:
            yield from self._actor(self._actors[task["task_id"]], depth)
        elif state == "PENDING_ARGS_AVAIL":
            yield f"{title} waits for arguments:"
            for missing in task["waits_for"]:
                yield from self._missing(missing, depth + 1)
        elif state == "PENDING_NODE_ASSIGNMENT" and task["actor_id"]:
            yield f"{title} waits for its turn with the actor:"
            yield from self._actor(self._actors.get(task["actor_id"]), depth + 1)
        elif state == "PENDING_NODE_ASSIGNMENT":
            yield f"{title} waits for a worker"
            yield from self._resources(task["required_resources"] or {}, depth + 1)
        elif state == "SUBMITTED_TO_WORKER":
            yield f"{title} is at worker {task['worker_pid']}{self.snapshot.place(task['worker_id'])} and waits there"
            yield from self._busy(task["worker_id"], depth + 1)
        elif state == "RUNNING":
            now = self.snapshot.milliseconds(self.snapshot.now_ns) or 0
            seconds = (now - (task["start_time_ms"] or now)) / 1e3
            worker = f"{task['worker_pid']}{self.snapshot.place(task['worker_id'])}"
            yield f"{title} has been running for {seconds:.1f} s in worker {worker}"
        elif state == "FAILED":
            yield f"{title} failed: {task['error_type']}"
        else:
            yield f"{title} has finished"

    def _missing(self, identity: str, depth: int) -> Iterator[str]:
        task = self._tasks.get(identity[:32])
        writer = self._kept.objects.writer(identity)
        if writer is not None:
            yield "  " * depth + f"object {identity} is being written by {writer}, and not sealed"
        elif task is None:
            yield "  " * depth + f"object {identity}: its task is not known; its owner has not sent it yet"
        elif depth > _DEPTH_MAX:
            yield "  " * depth + "..."
        else:
            yield from self._task(task, depth)

    def _busy(self, worker: str | None, depth: int) -> Iterator[str]:
        for task, (where, _) in self.snapshot.running().items():
            if where == worker and task in self._tasks:
                yield from self._task(self._tasks[task], depth)

    def _resources(self, wanted: dict[str, float], depth: int) -> Iterator[str]:
        indent = "  " * depth
        nodes = list(rows.nodes(self.snapshot))
        could = [node for node in nodes if _covers(node["resources_total"], wanted)]
        if not could:
            yield f"{indent}{_never(nodes, wanted)}"
            return
        # Of several nodes with enough resources, one where they are free now; else the first, which may be
        # the node that was asked.
        chosen = next((node for node in could if _covers(node["resources_available"] or {}, wanted)), could[0])
        total, free = chosen["resources_total"], chosen["resources_available"] or {}
        place = self.snapshot.place(chosen["node_id"])
        short = {name: amount for name, amount in wanted.items() if amount > free.get(name, 0)}
        if not short:
            told = self.snapshot.told.get(chosen["node_id"])
            starting = (
                sum(_sooner.WORKER_STATES[worker["state"]] == "starting" for worker in told["workers"]) if told else 0
            )
            yield f"{indent}what it asks for is free{place}; {starting} workers are being started"
            return
        there = [row for row in rows.workers(self.snapshot) if row["node_id"] == chosen["node_id"]]
        for name, amount in short.items():
            available = f"{free.get(name, 0):g} of {total[name]:g} are free{place}"
            yield f"{indent}it asks for {amount:g} {name}; {available}. Held by:"
            holders = [row for row in there if row["resources"].get(name)]
            for row in holders[:_NAMED_MAX]:
                yield f"{indent}  {row['resources'][name]:g} by worker {row['pid']}{self._doing(row)}"
            if len(holders) > _NAMED_MAX:
                yield f"{indent}  and {len(holders) - _NAMED_MAX} more"

    def _doing(self, worker: Row) -> str:
        if worker["actor_id"]:
            actor = self._actors.get(worker["actor_id"])
            return f", actor {actor['name'] or actor['class_name']}" if actor else ""
        names = [self._tasks[task]["name"] for task in worker["running_tasks"] if task in self._tasks]
        return f", which runs {', '.join(names)}" if names else ""

    def _actor(self, actor: Row | None, depth: int) -> Iterator[str]:
        indent = "  " * depth
        if actor is None:
            yield f"{indent}the actor is not known any more"
            return
        title = f"{indent}actor {actor['name'] or actor['class_name']}"
        if actor["state"] == "DEAD":
            yield f"{title} is dead: {actor['death_cause'] or 'its constructor failed'}"
        elif actor["state"] == "ALIVE":
            place = self.snapshot.place(actor["worker_id"])
            yield f"{title} is alive in process {actor['pid']}{place}; {actor['pending_calls']} calls have not ended"
            yield from self._busy(actor["worker_id"], depth + 1)
        elif actor["state"] == "DEPENDENCIES_UNREADY":
            yield f"{title} waits for arguments of its constructor:"
            task = self._tasks.get(actor["actor_id"])
            for missing in task["waits_for"] if task else ():
                yield from self._missing(missing, depth + 1)
        elif actor["pid"]:
            yield f"{title}: its constructor runs in process {actor['pid']}{self.snapshot.place(actor['worker_id'])}"
        else:
            yield f"{title} waits for its place"
            yield from self._resources(actor["required_resources"], depth + 1)


def _covers(total: Row, wanted: dict[str, float]) -> bool:
    return all(amount <= total.get(name, 0) for name, amount in wanted.items())


def _never(nodes: list[Row], wanted: dict[str, float]) -> str:
    """Why none of these nodes can ever give the wanted resources."""
    most = {name: max(node["resources_total"].get(name, 0) for node in nodes) for name in wanted}
    short = {name: amount for name, amount in wanted.items() if amount > most[name]}
    if len(nodes) == 1:
        asked = ", ".join(f"{amount:g} {name} (there are {most[name]:g})" for name, amount in short.items())
        return f"it can never run here: it asks for {asked}"
    asked = ", ".join(f"{amount:g} {name} (no node has more than {most[name]:g})" for name, amount in short.items())
    together = ", ".join(f"{amount:g} {name}" for name, amount in wanted.items())
    return f"it can never run in this cluster: it asks for {asked or f'{together}, which no node has together'}"
