"""The bar chart of a run: sooner beside its peers, one group of bars a row, on a logarithmic axis.

    python -m report.chart <results.json> <picture.png>

Runs inside .venv-bench, where matplotlib is.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

from plans.catalog import METRICS, TITLES, Metric
from report.results import ratio, value

COLORS = {
    "sooner": "#0b6e4f",
    "ray": "#c84c09",
    "pool": "#5b7db1",
    "executor": "#9db4d6",
    "dask": "#c9a227",
}


def draw(document: dict[str, Any], picture: Path) -> None:
    """Draw the rates on the left and the ratios to Ray on the right."""
    rates = [
        metric for metric in METRICS if metric.number is not None and _measured(document, metric)
    ]
    if not rates:
        print("no row of the chart was measured: no picture", flush=True)
        return
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(13, 1.5 + 0.5 * len(rates)), width_ratios=(2, 1), layout="constrained"
    )
    _draw_rates(left, document, rates)
    _draw_ratios(right, document, rates)
    day = document["started"].split("T")[0]
    figure.suptitle(f"sooner beside its peers, {document['machine']['cores']} cores, {day}")
    figure.savefig(picture, dpi=110)


def _measured(document: dict[str, Any], metric: Metric) -> bool:
    return any(value(document, peer, metric.key) is not None for peer in COLORS)


def _draw_rates(axes: Any, document: dict[str, Any], rates: list[Metric]) -> None:
    height = 0.8 / len(COLORS)
    for slot, (peer, color) in enumerate(COLORS.items()):
        found = [(index, value(document, peer, metric.key)) for index, metric in enumerate(rates)]
        known = [(index, got) for index, got in found if got is not None]
        if known:
            places = [index + (slot - (len(COLORS) - 1) / 2) * height for index, _ in known]
            axes.barh(places, [got for _, got in known], height, color=color, label=TITLES[peer])
    axes.set_yticks(range(len(rates)), [f"{m.number}  {m.title} ({m.unit})" for m in rates])
    axes.set_xscale("log")
    axes.set_ylim(len(rates) - 0.5, -0.5)
    axes.set_xlabel("per second (puts of large arrays: GB/s); more is better")
    axes.grid(axis="x", alpha=0.3)
    axes.legend(loc="lower right")


def _draw_ratios(axes: Any, document: dict[str, Any], rates: list[Metric]) -> None:
    for index, metric in enumerate(rates):
        found = ratio(document, metric.key, "ray")
        if found is not None:
            axes.barh(index, found, 0.6, color=COLORS["sooner"])
            axes.text(
                found,
                index,
                f" {found:,.0f}x" if found >= 100 else f" {found:.3g}x",
                va="center",
                fontsize=8,
            )
    axes.set_yticks(range(len(rates)), [str(metric.number) for metric in rates])
    axes.set_xscale("log")
    axes.set_ylim(len(rates) - 0.5, -0.5)
    # Room for the numbers.
    axes.set_xlim(0.4, 60_000)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xlabel("times Ray")
    axes.grid(axis="x", alpha=0.3)


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
