"""The pictures of the rows on shaped hosts: multiples of the optimum, and what waits for whom.

    python -m report.hosts_chart <results.json> <picture.png>

Runs inside .venv-bench, where matplotlib is. A hatched bar was CPU-bound or disturbed: it is not
compared with the others.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

from plans.catalog import ASYNC_RHOS, LATE_GAPS, TITLES

COLORS = {
    "sooner": "#0b6e4f",
    "openmpi": "#5b7db1",
    "openmpi_default": "#9db4d6",
    "gloo": "#7a5195",
    "dask": "#c9a227",
    "ray": "#c84c09",
}
# By what is done, and then by the number of hosts.
BARS = {
    f"{name}, {hosts} hosts": f"{key}_{hosts}_{size}_mb"
    for name, key, size in (
        ("broadcast", "cast", 32),
        ("gather", "gather", 16),
        ("reduce", "reduce", 32),
        ("all-reduce", "allreduce", 32),
    )
    for hosts in (4, 8, 16)
}


def draw(document: dict[str, Any], picture: Path) -> None:
    """Draw the bars, the late sums and the asynchronous training, as far as they were measured."""
    panels = [panel for panel in (_bars, _late, _training) if any(panel(None, document))]
    if not panels:
        return
    figure, axes = plt.subplots(
        1, len(panels), figsize=(6.5 * len(panels), 4.6), layout="constrained", squeeze=False
    )
    for panel, place in zip(panels, axes[0], strict=True):
        list(panel(place, document))
        place.grid(axis="y", alpha=0.3)
        place.legend(fontsize=8)
    day = document["started"].split("T")[0]
    figure.suptitle(f"sooner on shaped hosts, {document['machine']['cores']} cores, {day}")
    figure.savefig(picture, dpi=110)


def _found(document: dict[str, Any], peer: str, key: str) -> tuple[float, bool] | None:
    """What was measured, also if it does not count, and whether it does."""
    conditions = document.get("conditions", {}).get(peer, {}).get(key)
    if not conditions or not conditions["samples"]:
        return None
    return median(conditions["samples"]), not conditions["verdict"]


def _bars(axes: Any, document: dict[str, Any]) -> Iterator[str]:
    """Multiples of the optimum, by what is done and the number of hosts."""
    rows = [
        (title, found)
        for title, key in BARS.items()
        if (found := {peer: got for peer in COLORS if (got := _found(document, peer, key))})
    ]
    yield from (title for title, _ in rows)
    if axes is None:
        return
    width = 0.85 / len(COLORS)
    for slot, (peer, color) in enumerate(COLORS.items()):
        for index, (_, found) in enumerate(rows):
            if peer not in found:
                continue
            value, counts = found[peer]
            place = index + (slot - (len(COLORS) - 1) / 2) * width
            hatch = None if counts else "///"
            axes.bar(place, value, width, color=color, hatch=hatch, edgecolor="white")
        if any(peer in found for _, found in rows):
            axes.bar(0, 0, color=color, label=TITLES[peer])
    axes.set_xticks(range(len(rows)), [title for title, _ in rows], rotation=35, ha="right")
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_yscale("log")
    axes.set_ylabel("times S/B, that of one array (gather: all); less is better")


def _late(axes: Any, document: dict[str, Any]) -> Iterator[str]:
    """Time after the last source, over the gap between two."""
    for kind, style in (("reduce", "o-"), ("allreduce", "s--")):
        for peer, color in COLORS.items():
            points = [
                (gap, got[0])
                for name, gap in LATE_GAPS.items()
                if (got := _found(document, peer, f"{kind}_late_{name}"))
            ]
            if not points:
                continue
            yield f"{kind}, {peer}"
            if axes is not None:
                label = f"{'all-reduce' if kind == 'allreduce' else kind}, {TITLES[peer]}"
                axes.plot(*zip(*points, strict=True), style, color=color, label=label)
    if axes is not None:
        axes.axhline(1, color="black", linewidth=0.8)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("gap between two sources, times S/B")
        axes.set_ylabel("from the last source on, times S/B; 8 hosts")


def _training(axes: Any, document: dict[str, Any]) -> Iterator[str]:
    """Steps of the asynchronous training in the time of one transfer, with both bounds."""
    for peer, color in COLORS.items():
        points = [
            (rho, 1 / (got[0] * max(1, 1 / rho)))
            for name, rho in ASYNC_RHOS.items()
            if (got := _found(document, peer, f"sgd_async_8_{name}"))
        ]
        if not points:
            continue
        yield peer
        if axes is not None:
            axes.plot(*zip(*points, strict=True), "o-", color=color, label=TITLES[peer])
    if axes is not None:
        rhos = sorted(ASYNC_RHOS.values())
        axes.plot(rhos, rhos, ":", color="black", label="bound: a gradient takes as long")
        axes.axhline(1, color="black", linestyle="--", label="bound: a transfer takes as long")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("rho: time of a transfer by that of a gradient")
        axes.set_ylabel("steps in the time of a transfer, 3 of 7 workers each")


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
