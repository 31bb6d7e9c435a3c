"""The table for the terminal and for bench/RESULTS.md, from the JSON of a run."""

from __future__ import annotations

import re
from typing import Any

from plans.catalog import BY_KEY, HOSTS_KEYS, LIMIT_KEYS, MEMORY_KEYS, METRICS, TITLES, Metric
from report.results import ratio, value

Document = dict[str, Any]
COLUMNS = ("sooner", "ray", "pool", "executor", "dask", "loky")
HOSTS_COLUMNS = ("sooner", "openmpi", "openmpi_default", "gloo", "dask", "ray")
PLACEMENT = (
    "Processes are placed by the kernel (nothing is pinned) unless a row says otherwise. "
    "GB are 10^9 bytes. Rates count items: tasks, calls, puts; batches where the row says so."
)
MEMORY_COLUMNS = ("sooner", "dask_threads", "dask_processes", "dask", "dask_tasks", "ray")
MEMORY = (
    "Broadcasts are multiples of the time that as many bare processes take in loops, in turns "
    "with them; the array is with the system before. Sorts are `set_index` of a data frame with "
    "one column of random numbers, which tasks make (twice: Dask looks for divisions first) and "
    "tasks look at; all rows were found in order. Everything is as it comes, but for the size of "
    "sooner's and Ray's store, and for the memory of a worker of Dask distributed: its share of "
    "that store, half of the store for its heap, and 200 MB. Dask's threads, and each of its "
    "processes, may take 10 GB; its processes have two tasks instead of 100. Memory is "
    "the peak of what all processes of the system hold together."
)
_PART = "## Rows of a run of their own"
_MEMORY_PART = "## Memory in a run of its own"
HOSTS = (
    "Hosts are network namespaces, joined by a switch; each sends and receives at the rate of the "
    "row (tbf, burst 512 KB, queue 2 MB). Figures are multiples of the time that a raw TCP stream "
    "takes for as many bytes between two of them just before. One host has the value, and it "
    "counts as one of the hosts. In brackets: what was idle of the processors. CPU-bound is what "
    "left less than a quarter idle, disturbed what ran while the machine had other work or while "
    "the links did not carry what they should: neither is compared. OpenMPI's ranks look for "
    "messages without pause (they yield), so they leave little idle; all figures are listed below. "
    "sooner, Ray and Dask give views of a store, OpenMPI and Gloo arrays of the process. Contents "
    "were verified each time."
)


def number(found: float | None, unit: str = "") -> str:
    """Three significant digits, thousands separated."""
    if found is None:
        return ""
    if unit == "s" and abs(found) < 1:
        return f"{found * 1000:.3g} ms"
    if abs(found) >= 100:
        return f"{found:,.0f}"
    return f"{found:.3g}"


def times(found: float | None) -> str:
    """A ratio as the tables show it."""
    return "" if found is None else f"{number(found)}x"


def _cell(document: Document, peer: str, metric: Metric) -> str:
    found = value(document, peer, metric.key)
    if found is not None:
        return number(found, metric.unit)
    if metric.key in document["failures"].get(peer, {}):
        return "failed"
    if metric.key in document["skips"].get(peer, {}):
        return "skipped"
    return ""


def _reached(goal: dict[str, Any]) -> str:
    if goal["kind"] == "ratio":
        return times(goal["reached"])
    unit = BY_KEY[goal["key"]].unit
    text = number(goal["reached"], unit)
    return text if text.endswith("ms") or not text else f"{text} {unit}".rstrip()


def _judged(goal: dict[str, Any]) -> str:
    unknown = goal.get("why not") or "-"
    verdict = {True: "met", False: "MISSED", None: unknown}[goal["met"]]
    return f"{goal['goal']}: {verdict} {_reached(goal)}".rstrip()


def _hosts_cell(document: Document, peer: str, key: str) -> str:
    found = document.get("conditions", {}).get(peer, {}).get(key)
    if found is None:
        return _cell(document, peer, BY_KEY[key])
    shown = found["verdict"] or number(value(document, peer, key))
    return f"{shown} ({100 * found['idle']:.0f} %)"


def _hosts_rows(document: Document) -> list[list[str]]:
    rows = []
    for key in HOSTS_KEYS:
        cells = [_hosts_cell(document, peer, key) for peer in HOSTS_COLUMNS]
        if any(cells):
            found = document["rows"].get("sooner", {}).get(key, {})
            samples = found.get("samples", ())
            steady = f"{min(samples):.2f} to {max(samples):.2f}" if samples else ""
            verdicts = "; ".join(_judged(goal) for goal in _goals(document, key))
            rows.append([BY_KEY[key].title, *cells, steady, verdicts])
    return rows


def _memory_rows(document: Document) -> list[list[str]]:
    rows = []
    for key in MEMORY_KEYS:
        metric = BY_KEY[key]
        cells = [_cell(document, peer, metric) for peer in MEMORY_COLUMNS]
        if any(cell not in ("", "skipped") for cell in cells):
            verdicts = "; ".join(_judged(goal) for goal in _goals(document, key))
            rows.append([f"{metric.title}, {metric.unit}", *cells, verdicts])
    return rows


def _hosts_lines(document: Document) -> list[str]:
    """What each row on shaped hosts was measured under."""
    lines = []
    for peer in HOSTS_COLUMNS:
        for key, found in document.get("conditions", {}).get(peer, {}).items():
            samples = ", ".join(f"{sample:.2f}" for sample in found["samples"])
            idle = f"idle {100 * found['idle']:.0f} %"
            lines.append(
                f"{TITLES[peer]}, {BY_KEY[key].title}: {samples}; {idle}, "
                f"raw stream {found['goodput']:.1f} of {found['expected']:.1f} MB/s, "
                f"{found['load']:.2f} processors busy before"
            )
    return lines


def _goals(document: Document, key: str) -> list[dict[str, Any]]:
    return [goal for goal in document["goals"] if goal["key"] == key]


def _table_rows(document: Document) -> list[list[str]]:
    rows = []
    for metric in METRICS:
        if metric.key in (*LIMIT_KEYS, *HOSTS_KEYS, *MEMORY_KEYS):
            continue
        cells = [_cell(document, peer, metric) for peer in COLUMNS]
        if not any(cells):
            continue
        spread = document["rows"].get("sooner", {}).get(metric.key, {}).get("spread")
        verdicts = "; ".join(_judged(goal) for goal in _goals(document, metric.key))
        row_number = "" if metric.number is None else str(metric.number)
        name = (
            f"{metric.title}, {metric.unit.lstrip('/') if metric.unit != '/s' else 'per s'}".rstrip(
                ", "
            )
        )
        steady = "" if spread is None else f"{100 * spread:.0f} %"
        against = [times(ratio(document, metric.key, peer)) for peer in ("ray", "pool")]
        rows.append([row_number, name, *cells, steady, *against, verdicts])
    return rows


HEADER = ["#", "row", *(TITLES[peer] for peer in COLUMNS), "+-", "x Ray", "x Pool", "goal"]
MEMORY_HEADER = ["row", *(TITLES[peer] for peer in MEMORY_COLUMNS), "goal"]
HOSTS_HEADER = ["row", *(TITLES[peer] for peer in HOSTS_COLUMNS), "sooner from to", "goal"]
# Text stands left, numbers stand right.
LEFT = {"row", "goal"}


def _limit_lines(document: Document) -> list[str]:
    lines = []
    for key in LIMIT_KEYS:
        row = document["rows"].get("limits", {}).get(key)
        if row is not None:
            lowest, highest = number(min(row["samples"])), number(max(row["samples"]))
            title, unit = BY_KEY[key].title, BY_KEY[key].unit
            lines.append(f"{title}: {number(row['median'])} {unit} ({lowest} to {highest})")
    return lines


def _summary(document: Document) -> str:
    judged = [goal for goal in document["goals"] if goal["met"] is not None]
    met = sum(goal["met"] for goal in judged)
    open_ = len(document["goals"]) - len(judged)
    tail = f"; {open_} not measured in this run" if open_ else ""
    return f"{met} of {len(judged)} goals met{tail}"


def render_terminal(document: Document) -> str:
    """The table with aligned columns, then the limits, the failures and one line of summary."""
    lines = _aligned(HEADER, _table_rows(document))
    on_hosts = _hosts_rows(document)
    if on_hosts:
        lines += ["", *_aligned(HOSTS_HEADER, on_hosts), *_hosts_lines(document)]
    on_memory = _memory_rows(document)
    if on_memory:
        lines += ["", *_aligned(MEMORY_HEADER, on_memory)]
    lines += ["", *_limit_lines(document)]
    for peer, failures in document["failures"].items():
        for key, reason in failures.items():
            lines.append(f"failed: {peer} {key}: {_last_line(reason)}")
    for peer, skips in document["skips"].items():
        for key, reason in skips.items():
            lines.append(f"skipped: {peer} {key}: {reason}")
    lines += document["notes"]
    lines += ["", _summary(document)]
    return "\n".join(lines)


def _aligned(header: list[str], found: list[list[str]]) -> list[str]:
    rows = [header, *found]
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if title in LEFT else cell.rjust(width)
            for cell, width, title in zip(row, widths, header, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "-" * max(len(line) for line in lines))
    return lines


def _markdown(header: list[str], rows: list[list[str]]) -> list[str]:
    return [
        "| " + " | ".join(header) + " |",
        "|" + "|".join("---" if title in LEFT else "---:" for title in header) + "|",
        *("| " + " | ".join(_escape(cell) for cell in row) + " |" for row in rows),
    ]


def _last_line(text: str) -> str:
    return text.splitlines()[-1] if text else ""


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _hosts_section(document: Document) -> list[str]:
    rows = _hosts_rows(document)
    if not rows:
        return []
    return [
        "",
        "## Shaped hosts",
        "",
        HOSTS,
        "",
        *_markdown(HOSTS_HEADER, rows),
        "",
        "![sooner on shaped hosts](hosts.png)",
        "",
        *(f"- {line}" for line in _hosts_lines(document)),
    ]


def _memory_section(document: Document) -> list[str]:
    rows = _memory_rows(document)
    if not rows:
        return []
    return ["", "## Memory", "", MEMORY, "", *_markdown(MEMORY_HEADER, rows)]


def with_part(page: str, document: Document, command: str) -> str:
    """bench/RESULTS.md with the rows of a run of their own behind those of the last whole run.

    Args:
        page: The page as it is; an earlier part of it is replaced.
        document: What a run of some rows wrote as JSON.
        command: How that run was started.
    """
    measured = {key for rows in document["rows"].values() for key in rows}
    heading = _MEMORY_PART if measured <= {*MEMORY_KEYS, *LIMIT_KEYS} else _PART
    sections = re.split(r"\n(?=## )", page.rstrip())
    kept = [section.rstrip() for section in sections if not section.startswith(heading)]
    own = render_results_md(document, picture="")
    body = own.partition("\n")[2].replace("\n## ", "\n### ")
    return "\n\n".join([*kept, f"{heading}\n\n`{command}`\n{body}"])


def render_results_md(document: Document, picture: str = "results.png", misses: str = "") -> str:
    """The page bench/RESULTS.md.

    Args:
        document: What a run wrote as JSON.
        picture: Path of the chart beside the page; empty for none.
        misses: The explanation of missed goals, kept from run to run in bench/MISSES.md.
    """
    machine, versions = document["machine"], document["versions"]
    day = document["started"].split("T")[0]
    shown = (*COLUMNS, "openmpi", "gloo")
    named = ", ".join(f"{TITLES[peer]} {versions[peer]}" for peer in shown if peer in versions)
    lines = [
        "# Results of the microbenchmark",
        "",
        f"Measured {day} in {document['seconds'] / 60:.0f} minutes: {machine['cores']} cores "
        f"({machine['processor']}), {machine['memory']}, {machine['system']}, "
        f"kernel {machine['kernel']}, TCP with {machine.get('tcp', 'an unknown pace')}.",
        f"Versions: {named} (Pool and ProcessPoolExecutor carry Python's version).",
        "",
        "Every number is the median of several windows from interleaved rounds of one run of "
        "`make bench`; `+-` is half the distance between sooner's largest and smallest window. "
        "A ratio above 1 means that sooner is better, also in rows where less is better.",
        PLACEMENT,
        "",
        f"**{_summary(document)}.**",
        "",
        *([f"![sooner beside its peers]({picture})", ""] if picture else []),
        "## Rows",
        "",
        *_markdown(HEADER, _table_rows(document)),
        *_hosts_section(document),
        *_memory_section(document),
        "",
        "## Raw limits in the same run",
        "",
        *(f"- {line}" for line in _limit_lines(document)),
    ]
    left_out = [
        f"- {TITLES[peer]}, {BY_KEY[key].title}: {verb}{_escape(_last_line(reason))}"
        for verb, table in (("failed: ", document["failures"]), ("", document["skips"]))
        for peer, reasons in table.items()
        for key, reason in reasons.items()
    ]
    if left_out or document["notes"]:
        lines += ["", "## Left out", "", *left_out, *(f"- {note}" for note in document["notes"])]
    missed = [goal for goal in document["goals"] if goal["met"] is False]
    if missed:
        lines += ["", "## Missed", ""]
        lines += [
            f"- {BY_KEY[goal['key']].title}: goal {_escape(goal['goal'])}, reached {_reached(goal)}"
            for goal in missed
        ]
    if misses.strip():
        lines += ["", "## Why", "", misses.strip()]
    return "\n".join(lines) + "\n"
