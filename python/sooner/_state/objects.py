"""Objects of a snapshot: their owners, the processes that keep them, and the reasons."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from sooner import _sooner
from sooner._state.rows import actor_rows

if TYPE_CHECKING:
    from sooner._state.snapshot import Row, Snapshot

_BY_HAND = frozenset(("LOCAL_REFERENCE", "VIEW"))
# By the number that a process reports.
_STATUS = ("PENDING", "FINISHED", "FINISHED", "FAILED", "FINISHED", "FINISHED", "PENDING")
_LOCATIONS = (None, "message", "shared memory", None, "on disk", "dropped", "unsealed")


class Objects:
    """The objects that all processes have reported."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._tasks: dict[str, str] = {}
        for report in snapshot.reports.values():
            self._tasks |= {row["task"]: row["label"]["name"] for row in report["tasks"]}
        self._actors = {
            row["worker"]: row["name"] or row["class"] for row in actor_rows(snapshot).values() if row["worker"]
        }
        self.by_id: dict[str, list[Row]] = {}
        for worker, report in snapshot.reports.items():
            for told in report["objects"]:
                self.by_id.setdefault(told["object"], []).append(self._row(worker, report["pid"], told))
        for rows in self.by_id.values():
            rows.sort(key=lambda row: not row["is_owner"])
            rows[0]["hint"] = self._hint(rows)

    def rows(self) -> list[Row]:
        """One row per process and object, the largest objects first."""
        return sorted((row for rows in self.by_id.values() for row in rows), key=lambda row: -row["object_size"])

    def process(self, worker: str) -> str:
        """The kind of a process: driver, worker, or the actor that lives in it."""
        if worker in self._snapshot.drivers:
            return "driver"
        actor = self._actors.get(worker)
        # A named actor comes as (namespace, name).
        return "worker" if actor is None else f"actor {actor if isinstance(actor, str) else actor[1]}"

    def title(self, worker: str) -> str:
        """A process for people: its kind, and its process id."""
        return f"{self.process(worker)} {self._snapshot.pid(worker) or worker}{self._snapshot.place(worker)}"

    def writer(self, identity: str) -> str | None:
        """The process that writes an object which is not sealed, for people."""
        rows = [row for row in self.by_id.get(identity, ()) if row["location"] == "unsealed"]
        return self.title(rows[0]["worker_id"]) if rows else None

    def is_idle(self, worker: str) -> bool:
        """Whether a worker has no task and no actor."""
        report = self._snapshot.reports.get(worker)
        return bool(report and self.process(worker) == "worker" and not report["running"] and not report["queued"])

    def _row(self, worker: str, pid: int, told: Row) -> Row:
        detail = told["detail"]
        owner = told["object"][:16]
        return {
            "object_id": told["object"],
            "object_size": told["size"],
            "task_status": _STATUS[told["state"]],
            "location": _LOCATIONS[told["state"]],
            "reference_type": _reference_type(told),
            "type": "DRIVER" if worker in self._snapshot.drivers else "WORKER",
            "process": self.process(worker),
            "pid": pid,
            "worker_id": worker,
            "owner_id": owner,
            "owner_process": self.process(owner),
            "owner_pid": self._snapshot.pid(owner),
            "is_owner": told["owned"],
            "is_actor_handle": told["is_actor"],
            "created_by": detail["maker"],
            "call_site": detail["site"],
            "local_references": told["handles"],
            "views": detail["views"],
            "uses": told["uses"],
            "borrowers": told["borrowers"],
            "lineage": detail["lineage"],
            "holds": list(self._holds(told)),
            "contained_references": told["contained"],
            "contains": detail["inner"],
            "is_fetching": detail["fetching"],
            "waiting": detail["waiting"],
            "hint": None,
        }

    def _holds(self, told: Row) -> Iterable[Row]:
        detail = told["detail"]
        views = min(detail["views"], told["handles"])
        if told["handles"] > views:
            yield _hold("LOCAL_REFERENCE", told["handles"] - views)
        if views:
            yield _hold("VIEW", views)
        for hold in detail["holds"]:
            if _sooner.HOLDS[hold["kind"]] == "LENT":
                gone = hold["task"] and hold["task"][:16]
                yield _hold("LENT", hold["count"], gone, gone and self.title(gone))
                continue
            name = hold["name"] or self._tasks.get(hold["task"])
            yield _hold(_sooner.HOLDS[hold["kind"]], hold["count"], hold["task"] or hold["object"], name)
        for borrower in told["borrowers"]:
            yield _hold("BORROWER", 1, borrower, self.title(borrower))
        if detail["lineage"]:
            yield _hold("LINEAGE", detail["lineage"])

    def _hint(self, rows: list[Row]) -> str | None:
        """A hint on an object that may be a leak, if it is certain."""
        reasons = {hold["reason"] for row in rows for hold in row["holds"]}
        if "PINNED" in reasons:
            return "pickled outside of sooner, or inside an exception: it stays for the rest of the session"
        if "FUNCTION" in reasons:
            return "part of a function's code: it stays for the rest of the session"
        owner, *others = rows
        if not others or not owner["is_owner"] or {hold["reason"] for hold in owner["holds"]} != {"BORROWER"}:
            return None
        holders = {row["worker_id"]: row for row in others}
        forgotten = [
            one
            for one in owner["borrowers"]
            if one in holders
            and self.is_idle(one)
            and holders[one]["holds"]
            and {hold["reason"] for hold in holders[one]["holds"]} <= _BY_HAND
        ]
        if len(forgotten) < len(owner["borrowers"]):
            return None
        names = ", ".join(map(self.title, forgotten))
        return f"only {names} keeps it, outside of any task: a global variable, a cache, or a cycle"


def _hold(reason: str, count: int, identity: str | None = None, name: str | None = None) -> Row:
    return {"reason": reason, "count": count, "id": identity, "name": name}


def _reference_type(told: Row) -> str:
    """Why an object is kept, in four words."""
    reasons = {
        "ACTOR_HANDLE": told["is_actor"],
        "LOCAL_REFERENCE": told["handles"],
        "USED_BY_TASK_OR_OBJECT": told["dependents"] or told["uses"],
        "BORROWED_BY_OTHERS": told["borrowers"],
    }
    return "+".join(reason for reason, holds in reasons.items() if holds) or "UNKNOWN_STATUS"


def reasons_of(row: Row) -> str:
    """The reasons why a process keeps an object, each once."""
    return " + ".join(dict.fromkeys(hold["reason"] for hold in row["holds"])) or "NOTHING"


GROUPS: dict[str, Callable[[Row], str]] = {
    "reason": reasons_of,
    "owner": lambda row: f"{row['owner_process']} {row['owner_pid'] or row['owner_id']}",
    "site": lambda row: row["call_site"] or row["created_by"] or "(not recorded)",
}


def totals(rows: Iterable[Row], by: str) -> list[Row]:
    """Objects and bytes per reason, owner or call site, the most bytes first. Takes one row per object."""
    groups: dict[str, Row] = {}
    for row in rows:
        name = GROUPS[by](row)
        group = groups.setdefault(name, {by: name, "objects": 0, "bytes": 0})
        group["objects"] += 1
        group["bytes"] += row["object_size"]
    return sorted(groups.values(), key=lambda group: (-group["bytes"], -group["objects"]))
