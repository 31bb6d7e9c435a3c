"""Why an object is still there: the tree of its holders, across processes and objects."""

from __future__ import annotations

from collections.abc import Iterator

from sooner._state.objects import Objects
from sooner._state.snapshot import Row, Snapshot
from sooner._state.text import size

_DEPTH_MAX = 12
_NAMED_MAX = 16
_SHOWN_OF_AN_ARGUMENT = frozenset(("RUNNING_TASK", "QUEUED_TASK", "LOCAL_REFERENCE", "VIEW"))


class WhyObject:
    """Explains objects of one snapshot. An object that was explained above is not explained again."""

    def __init__(self, snapshot: Snapshot, tasks: dict[str, Row]) -> None:
        self._snapshot = snapshot
        self._tasks = tasks
        self.objects = Objects(snapshot)
        self._explained: set[str] = set()

    def explain(self, identity: str, depth: int = 0) -> Iterator[str]:
        """Lines about an object, each indented below the line that it belongs to."""
        indent = "  " * depth
        rows = self.objects.by_id.get(identity)
        if not rows:
            yield f"{indent}object {identity} is in no table: it was freed, or only its own process knows it"
            return
        self._explained.add(identity)
        first = rows[0]
        yield f"{indent}{self._title(first)} is kept because:"
        seen: set[str] = set()
        yield from self._kept(rows, first, depth + 1, seen)
        for row in rows:
            if row["worker_id"] not in seen:
                yield f"{indent}  {self.objects.title(row['worker_id'])} has it, because:"
                yield from self._kept(rows, row, depth + 2, seen)
        if first["hint"]:
            yield f"{indent}  ({first['hint']})"

    def _title(self, row: Row) -> str:
        if row["is_actor_handle"]:
            what = f"the handle of actor {row['object_id'][:32]}"
        else:
            places = {"message": " in messages", "shared memory": " in shared memory", "on disk": " on disk"}
            places["dropped"] = ", dropped until it is wanted"
            where = places.get(row["location"], "")
            state = {"PENDING": "no value", "FAILED": "an error"}.get(row["task_status"])
            if row["location"] == "unsealed":
                state = f"{size(row['object_size'])}, being written, not sealed"
            what = f"object {row['object_id']} ({state or size(row['object_size']) + where})"
        made = f", made by {row['created_by']}" if row["created_by"] and not row["is_actor_handle"] else ""
        site = f" at {row['call_site']}" if row["call_site"] else ""
        owner = f", owned by {self.objects.title(row['owner_id'])}"
        return f"{what}{made}{site}{owner},"

    def _kept(self, rows: list[Row], row: Row, depth: int, seen: set[str]) -> Iterator[str]:
        """The holds of one process."""
        seen.add(row["worker_id"])
        indent = "  " * depth
        for hold in row["holds"][:_NAMED_MAX]:
            yield from self._hold(rows, row, hold, depth, seen)
        if len(row["holds"]) > _NAMED_MAX:
            yield f"{indent}and {len(row['holds']) - _NAMED_MAX} more reasons"
        if row["is_fetching"]:
            yield f"{indent}its owner was asked for the value, which is not here yet"
        if row["waiting"]:
            yield f"{indent}these wait for its value: {', '.join(map(self.objects.title, row['waiting']))}"
        if not row["holds"]:
            pending = row["is_owner"] and row["task_status"] == "PENDING"
            yield f"{indent}{'its task has not ended' if pending else 'nothing: it is about to be let go'}"

    def _hold(self, rows: list[Row], row: Row, hold: Row, depth: int, seen: set[str]) -> Iterator[str]:
        indent, reason, count = "  " * depth, hold["reason"], hold["count"]
        process = self.objects.title(row["worker_id"])
        if reason == "BORROWER":
            yield from self._borrower(rows, hold, depth, seen)
        elif reason == "CONTAINED_IN" and hold["id"]:
            yield from self._container(hold["id"], depth)
        elif reason == "TASK" and hold["id"]:
            yield f"{indent}{self._use_by_task(row, hold)}"
            yield from self._at_worker(rows, hold["id"], depth + 1, seen)
        else:
            yield f"{indent}{_sentence(reason, count, hold['id'], hold['name'], process)}{self._since(hold)}"

    def _borrower(self, rows: list[Row], hold: Row, depth: int, seen: set[str]) -> Iterator[str]:
        indent = "  " * depth
        there = [row for row in rows if row["worker_id"] == hold["id"] and row["worker_id"] not in seen]
        if not there:
            yield f"{indent}{hold['name']} borrows it" + (", see above" if hold["id"] in seen else "")
            return
        yield f"{indent}{hold['name']} borrows it, which holds it because:"
        yield from self._kept(rows, there[0], depth + 1, seen)

    def _container(self, identity: str, depth: int) -> Iterator[str]:
        indent = "  " * depth
        if identity in self._explained:
            yield f"{indent}it is contained in object {identity}, see above"
        elif depth > _DEPTH_MAX:
            yield f"{indent}it is contained in object {identity}: sooner why {identity} goes on"
        else:
            yield f"{indent}it is contained in:"
            yield from self.explain(identity, depth + 1)

    def _use_by_task(self, row: Row, hold: Row) -> str:
        task = self._tasks.get(hold["id"])
        name = f"{hold['name'] or '?'}()"
        what = "call" if task and task["actor_id"] else "task"
        if row["is_actor_handle"] and task and task["actor_id"] == row["object_id"][:32]:
            use = f"its call {hold['id']} {name} has not ended"
        else:
            use = f"argument of {what} {hold['id']} {name}"
        state = task["state"] if task else None
        if task is None or state is None:
            return use
        if state == "RUNNING":
            return f"{use}, which has been running for {self._seconds(task):.1f} s in worker {self._worker(task)}"
        if state == "SUBMITTED_TO_WORKER":
            return f"{use}, which waits at worker {self._worker(task)}"
        words = {
            "PENDING_ARGS_AVAIL": "which waits for its arguments",
            "PENDING_NODE_ASSIGNMENT": "which waits for its turn with the actor"
            if task["actor_id"]
            else "which waits for a worker",
        }
        return f"{use}, {words[state]}" if state in words else use

    def _at_worker(self, rows: list[Row], task: str, depth: int, seen: set[str]) -> Iterator[str]:
        """Other holds on the object in the process where a task runs."""
        worker = self._tasks.get(task, {}).get("worker_id")
        there = [row for row in rows if row["worker_id"] == worker and worker not in seen and not row["is_owner"]]
        for row in there:
            if {hold["reason"] for hold in row["holds"]} <= _SHOWN_OF_AN_ARGUMENT:
                seen.add(row["worker_id"])
            else:
                yield "  " * depth + f"{self.objects.title(row['worker_id'])} holds it because:"
                yield from self._kept(rows, row, depth + 1, seen)

    def _since(self, hold: Row) -> str:
        task = self._tasks.get(hold["id"] or "")
        if hold["reason"] != "RUNNING_TASK" or task is None or task["state"] != "RUNNING":
            return ""
        return f", for {self._seconds(task):.1f} s now"

    def _worker(self, task: Row) -> str:
        return f"{task['worker_pid']}{self._snapshot.place(task['worker_id'])}"

    def _seconds(self, task: Row) -> float:
        now = self._snapshot.milliseconds(self._snapshot.now_ns) or 0
        return float(max(0, now - (task["start_time_ms"] or now)) / 1e3)


def _sentence(reason: str, count: int, identity: str | None, name: str | None, process: str) -> str:
    """One hold in words."""
    task = f"task {identity} {name or '?'}()"
    some = f"{count} {'task' if count == 1 else 'tasks'}"
    match reason:
        case "LOCAL_REFERENCE":
            return f"{process} has {count} {'reference' if count == 1 else 'references'} to it in Python"
        case "VIEW":
            return f"{process} has {count} {'view' if count == 1 else 'views'} of it in Python: arrays that lie in it"
        case "TASK":
            return f"argument of {some} more that {process} submitted"
        case "RUNNING_TASK":
            return f"argument of {task if identity else some}, which runs in {process}"
        case "QUEUED_TASK":
            return f"argument of {task if identity else some}, which waits in {process}"
        case "CONTAINED_IN":
            return f"it is contained in {count} more {'object' if count == 1 else 'objects'}"
        case "FUNCTION":
            return f"the code of {name or 'functions'} refers to it, for the rest of the session"
        case "ACTOR_CONSTRUCTOR":
            return f"argument of the constructor of actor {identity or '?'} {name or ''}".rstrip() + ", which lives"
        case "DETACHED_ACTOR":
            return "the actor is detached: it lives until it is killed"
        case "GENERATOR":
            return f"generator {identity or '?'} {name or ''}".rstrip() + " is not read to its end"
        case "KEPT_CALL":
            calls = f"call {identity} {name or '?'}()" if identity else f"{count} calls"
            return f"argument of {calls}, kept until the actor's next checkpoint"
        case "CHECKPOINT":
            return "the checkpoint of an actor contains it"
        case "LENT":
            whose = name or "a process"
            return f"work of {whose}, which is gone, was given it: until every process has said what it has of that"
        case "PINNED":
            return f"{process} pickled it outside of sooner {count}x: it stays for the rest of the session"
        case _:
            return f"{count} finished {'task' if count == 1 else 'tasks'} could only be executed again with it"
