"""The text format of Prometheus: metrics of user code and of the engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sooner import _sooner

if TYPE_CHECKING:
    from sooner._state.snapshot import Snapshot


def text_of(snapshot: Snapshot) -> str:
    """All metrics of a snapshot that was taken with `METRICS`."""
    lines: list[str] = []
    described: set[str] = set()
    for series in [*_engine(snapshot), *snapshot.node["metrics"]]:
        name = series["name"]
        if name not in described:
            described.add(name)
            if series["description"]:
                lines.append(f"# HELP {name} {_escape(series['description'], quotes=False)}")
            lines.append(f"# TYPE {name} {series['kind']}")
        lines += _lines(series)
    return "\n".join(lines) + "\n"


def _lines(series: dict[str, Any]) -> Iterator[str]:
    name, tags, values = series["name"], list(series["tags"]), series["values"]
    if series["kind"] != "histogram":
        yield f"{name}{_tags(tags)} {_number(values[0])}"
        return
    *counts, total = values
    below = 0.0
    for end, count in zip([*series["boundaries"], float("inf")], counts, strict=True):
        below += count
        yield f"{name}_bucket{_tags([*tags, ('le', _number(end))])} {_number(below)}"
    yield f"{name}_sum{_tags(tags)} {_number(total)}"
    yield f"{name}_count{_tags(tags)} {_number(below)}"


def _tags(tags: Sequence[tuple[str, str]]) -> str:
    shown = ",".join(f'{key}="{_escape(value)}"' for key, value in tags if value)
    return f"{{{shown}}}" if shown else ""


def _escape(text: str, quotes: bool = True) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text


def _number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1 << 53 else repr(value)


def _engine(snapshot: Snapshot) -> Iterator[dict[str, Any]]:
    node = snapshot.node
    yield _gauge("sooner_store_used_bytes", "Shared memory in use", node["store_used"])
    yield _gauge("sooner_store_capacity_bytes", "Shared memory for objects", node["store_capacity"])
    yield _gauge("sooner_store_blocks", "Blocks of shared memory that are held", node["blocks"])
    yield _gauge("sooner_leases", "Leases of workers", node["leases"])
    # Only demands of the node's own processes: other nodes report those of theirs.
    own = (one for one in node["demands"] if node["cluster"] is None or one["client"][:10] == node["node"][:10])
    waiting = sum(demand["count"] for demand in own)
    yield _gauge("sooner_leases_wanted", "Leases that are waited for", waiting)
    for number, state in enumerate(_sooner.WORKER_STATES):
        count = sum(worker["state"] == number for worker in node["workers"])
        yield _gauge("sooner_workers", "Worker processes by state", count, state=state)
    for number, state in enumerate(_sooner.ACTOR_PHASES):
        count = sum(actor["phase"] == number for actor in node["actors"])
        yield _gauge("sooner_actors", "Actors by state", count, state=state)
    for name, total in node["total"].items():
        yield _gauge("sooner_resource_total", "Logical resources", total, resource=name)
    for name in node["total"]:
        yield _gauge(
            "sooner_resource_free", "Logical resources that are free", node["free"].get(name, 0), resource=name
        )


def _gauge(name: str, description: str, value: float, **tags: str) -> dict[str, Any]:
    return {
        "name": name,
        "kind": "gauge",
        "description": description,
        "tags": list(tags.items()),
        "boundaries": [],
        "values": [float(value)],
    }
