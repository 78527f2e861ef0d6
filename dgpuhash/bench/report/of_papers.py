"""Format the papers' figures as text tables, with the verdict on each claim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgpuhash.bench.papers.drawn.claims import sentences
from dgpuhash.bench.papers.drawn.table import DRAWN, as_asked
from dgpuhash.bench.report.grid import BRACKETS, Grid, figure_text, listing, pivot

Row = dict[str, Any]
# Settings of a workload.
_SETTINGS = (
    *("chain", "load", "width", "multiplicity", "distribution", "footprint", "bits_per_key"),
    "passed",
)
AXES = {
    "n": "rows", "space": "bytes of the table over those of the pairs", "load": "load",
    "failed": "share of the searches that fail", "buckets": "buckets a key",
    "multiplicity": "mean rows of a key", "chain": "mean chain β", "length": "expected length ε",
    "rows_a_batch": "rows of a batch", "node_nbytes": "bytes of a node",
    "combined": "combined buckets",
}  # fmt: skip
"""What the axes of the drawn figures are."""
_MILESTONES = ("p50", "p80", "p90", "p99", "p100")


def grids_of_papers(rows: Sequence[Row]) -> list[Grid]:
    """Return tables of the workloads, of the drawn figures, and of the claims."""
    rows = as_asked(rows)
    made = _beside_others([row for row in rows if row["figure"] not in DRAWN])
    for name, figure in DRAWN.items():
        own = [row for row in rows if row["figure"] == name]
        for verb in dict.fromkeys(row["verb"] for row in own):
            theirs = [row for row in own if row["verb"] == verb]
            counted = "amount" in theirs[0]
            unit = theirs[0]["unit"] if counted else f"billions of rows a second, {BRACKETS}"
            held = f", {figure.held}" if figure.held else ""
            size = "" if figure.axis == "n" else f", {theirs[0]['n']:,} rows"
            unit += seeds_text(theirs)
            what = f"{figure.number}, {figure.title}{held}{size}: {verb}, {unit}"
            title = f"{figure.paper}, {what}, by {AXES.get(figure.axis, figure.axis)}"
            made += pivot(title.replace("_", " "), theirs, ("line",), figure.axis, (), _beside_mark)
            if _MILESTONES[0] in theirs[0]:
                made.append(_milestones(f"{figure.number}: {verb}, probes", figure.axis, theirs))
    told: list[tuple[str, ...]] = list(sentences(rows))
    if told:
        made.append(Grid("what the papers say, and what holds here", ("figure", "claim"), told))
    return made


def seeds_text(rows: Sequence[Row]) -> str:
    """Return what a title says of builds with several seeds; nothing without such rows."""
    told = (
        ", builds of cuckoo the median of five seeds, attempts the fewest and most further tables"
    )
    return told if any("attempts" in row for row in rows) else ""


def _beside_mark(row: Row) -> str:
    mark = f", paper {row['peer']:.3g}" if "peer" in row else ""
    tries = f", attempts {min(row['attempts'])}-{max(row['attempts'])}" if "attempts" in row else ""
    return f"{figure_text(row)}{mark}{tries}"


def _milestones(title: str, axis: str, rows: Sequence[Row]) -> Grid:
    return listing(
        title, rows, "line", (axis, lambda row: f"{row[axis]:g}"), ("mean", figure_text),
        *((f"{each[1:]} %", lambda row, each=each: f"{row[each]:,}") for each in _MILESTONES),
    )  # fmt: skip


def _beside_others(rows: Sequence[Row]) -> list[Grid]:
    """Return a table for each workload: its settings, ours, and what others reached."""
    made = []
    for figure in dict.fromkeys(row["figure"] for row in rows):
        own = [row for row in rows if row["figure"] == figure]
        settings = [
            name for name in ("pairs", "n", *_SETTINGS, "verb") if any(name in row for row in own)
        ]
        made.append(listing(
            f"{figure}: billions of rows a second, {BRACKETS}", own, *settings,
            ("G/s", figure_text),
            ("theirs", lambda row: f"{row['peer']:.3g} ({row['source']})" if "peer" in row else ""),
            ("ratio", lambda row: f"{row['rate'] / row['peer']:.2f}" if "peer" in row else ""),
        ))  # fmt: skip
    return made
