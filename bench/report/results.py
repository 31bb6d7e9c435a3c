"""What a run has found: samples, failures and skips by peer and row, and what they come to."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import Any

from harness import measure
from plans.catalog import BY_KEY, GOALS, Goal

FORMAT = 1


@dataclass
class Results:
    """Everything a run knows; `as_json` is what is written and what the report reads."""

    machine: dict[str, str]
    versions: dict[str, str] = field(default_factory=dict)
    samples: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    failures: dict[str, dict[str, str]] = field(default_factory=dict)
    skips: dict[str, dict[str, str]] = field(default_factory=dict)
    # Of rows on shaped hosts: what shaped.Bed.conditions says.
    conditions: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    started: str = field(
        default_factory=lambda: dt.datetime.now().astimezone().isoformat("T", "minutes")
    )
    seconds: float = 0.0

    def add(self, peer: str, key: str, samples: list[float]) -> None:
        """Samples of one more visit of a row."""
        self.samples.setdefault(peer, {}).setdefault(key, []).extend(samples)

    def under(self, peer: str, key: str, conditions: dict[str, Any], samples: list[float]) -> None:
        """Samples of a row on shaped hosts. They only count under the right conditions."""
        self.conditions.setdefault(peer, {})[key] = {**conditions, "samples": samples}
        if not conditions["verdict"]:
            self.add(peer, key, samples)

    def fail(self, peer: str, key: str, reason: str) -> None:
        """A row that ended in an error or passed its time limit."""
        self.failures.setdefault(peer, {})[key] = reason.strip()

    def skip(self, peer: str, key: str, reason: str) -> None:
        """A row that is left out on purpose."""
        self.skips.setdefault(peer, {})[key] = reason

    def as_json(self) -> dict[str, Any]:
        """Medians and spreads beside the samples."""
        rows = {
            peer: {
                key: {
                    "median": measure.median(samples),
                    "spread": measure.spread(samples),
                    "unit": BY_KEY[key].unit,
                    "samples": samples,
                }
                for key, samples in found.items()
            }
            for peer, found in self.samples.items()
        }
        document = {
            "format": FORMAT,
            "started": self.started,
            "seconds": round(self.seconds),
            "machine": self.machine,
            "versions": self.versions,
            "rows": rows,
            "failures": self.failures,
            "skips": self.skips,
            "conditions": self.conditions,
            "notes": self.notes,
        }
        document["goals"] = [_judged(document, goal) for goal in GOALS]
        return document


def median_of(results: Results, peer: str, key: str) -> float | None:
    """The median of a row so far, if it was measured."""
    samples = results.samples.get(peer, {}).get(key)
    return measure.median(samples) if samples else None


def value(document: dict[str, Any], peer: str, key: str) -> float | None:
    """The median of a row, if it was measured."""
    row = document["rows"].get(peer, {}).get(key)
    return None if row is None else float(row["median"])


def ratio(
    document: dict[str, Any], key: str, peer: str, reference: str | None = None
) -> float | None:
    """How many times better sooner is at a row than the reference."""
    ours, theirs = value(document, "sooner", key), value(document, peer, reference or key)
    if ours is None or theirs is None or not ours or not theirs:
        return None
    return theirs / ours if BY_KEY[key].lower else ours / theirs


def _judged(document: dict[str, Any], goal: Goal) -> dict[str, Any]:
    if goal.kind == "ratio":
        reached = ratio(document, goal.key, goal.peer, goal.reference)
        met = None if reached is None else reached >= goal.value
    else:
        reached = value(document, "sooner", goal.key)
        lower = BY_KEY[goal.key].lower
        met = (
            None if reached is None else (reached <= goal.value if lower else reached >= goal.value)
        )
    if reached is None and goal.key in document["failures"].get("sooner", {}):
        met = False
    conditions = document["conditions"].get("sooner", {}).get(goal.key, {})
    return {
        "key": goal.key,
        "kind": goal.kind,
        "goal": goal.text(),
        "reached": reached,
        "met": met,
        "why not": conditions.get("verdict", ""),
    }
