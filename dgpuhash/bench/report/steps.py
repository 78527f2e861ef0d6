"""Plot of a change's steps by workers, as in WarpCore's Fig. 6."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dgpuhash.bench.report.colours import colour_of
from dgpuhash.bench.report.plots import label_origin, matplotlib_classes, one_legend
from dgpuhash.bench.report.reading import Row


def draw_steps(rows: Sequence[Row], folder: Path, ending: str = ".png") -> list[tuple[str, Path]]:
    """Draw stacked bars of the steps' times, with the efficiency above.

    Return the title and the file; nothing if no verb has steps of two or more rows.

    Raises
    ------
    UnsupportedError
        When matplotlib is not installed.
    """
    panels: dict[tuple[str, str, int], list[Row]] = {}
    for row in rows:
        if "steps" in row:
            chunk = row["n"] if row["mode"] == "weak" else row["rows"]
            panels.setdefault((row["mode"], row["verb"], chunk), []).append(row)
    panels = {key: theirs for key, theirs in panels.items() if len(theirs) > 1}
    if not panels:
        return []
    figure_of, _, _ = matplotlib_classes()
    columns = min(2, len(panels))
    down = math.ceil(len(panels) / columns)
    figure = figure_of(figsize=(0.5 + 6 * columns, 0.5 + 3.8 * down), layout="constrained", dpi=120)
    # A step has one colour in all panels, and one place in the legend.
    numbers: dict[str, int] = {}
    shown: list[Any] = []
    for place, ((mode, verb, _), theirs) in enumerate(panels.items(), 1):
        axes = figure.add_subplot(down, columns, place)
        theirs = sorted(theirs, key=lambda row: row["workers"])
        names = [str(row["workers"]) for row in theirs]
        below = [0.0] * len(theirs)
        for step in dict.fromkeys(step for row in theirs for step in row["steps"]):
            heights = [row["steps"].get(step, 0.0) for row in theirs]
            number = numbers.setdefault(step, len(numbers))
            axes.bar(names, heights, bottom=below, label=step, width=0.6,
                     color=colour_of(step, number))  # fmt: skip
            below = [low + height for low, height in zip(below, heights, strict=True)]
        if all("worker_seconds" in row for row in theirs):
            whole = [1e3 * row["worker_seconds"] for row in theirs]
            axes.scatter(names, whole, marker="_", s=400, color="black", label="the verb itself")
        axes.set_ylabel("milliseconds of a step")
        axes.set_xlabel("workers")
        first = theirs[0]
        axes.set_title(f"{verb}, {mode} scaling, from {first['rows']:,} rows on", fontsize=10)
        shown.append(axes)
        if all("efficiency" in row for row in theirs):
            right = axes.twinx()
            right.plot(
                names, [row["efficiency"] for row in theirs], color="black", marker="o",
                label="efficiency",
            )  # fmt: skip
            right.set_ylim(0, max(1.05, *(row["efficiency"] * 1.05 for row in theirs)))
            right.set_ylabel("efficiency of the whole")
            shown.append(right)
    one_legend(figure, shown, 8)
    label_origin(figure, rows)
    path = folder / f"scaling-steps{ending}"
    figure.savefig(path)
    return [("milliseconds of the steps of a change over workers", path)]
