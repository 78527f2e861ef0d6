"""Plot figures over load, batch size, workers and others, in one set of colours."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgpuhash.bench.figure import read_data
from dgpuhash.bench.papers.drawn.table import DRAWN, as_asked
from dgpuhash.bench.report.grid import bytes_text
from dgpuhash.bench.report.of_papers import AXES, seeds_text
from dgpuhash.bench.report.reading import Row
from dgpuhash.errors import UnsupportedError, install_command

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# Wong's palette, whose colours people with colour blindness tell apart; a library keeps its own.
_LIBRARIES = (
    ("dgpuhash", "#0072B2"),
    ("cudf-polars", "#CC79A7"),
    ("cudf", "#D55E00"),
    ("dask", "#E69F00"),
    ("best peer", "#009E73"),
    ("cucollections", "#009E73"),
    ("pandas", "#56B4E9"),
    ("polars", "#7B4FA3"),
    ("duckdb", "#A08A00"),
    ("kraken", "#D55E00"),
    ("metacache", "#E69F00"),
    ("warpcore", "#009E73"),
)
_OTHERS = (
    *("#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#7B4FA3", "#A08A00", "#5B3A29", "#1B9E9E"),
    *("#D55E00", "#E69F00"),
)
# Lines of bare memory accesses, and of ideal scaling.
BARE, IDEAL = "#555555", "#9A9A9A"


def colour_of(name: str, number: int = 0) -> str:
    """Return the colour of a library by name, or of others by number.

    Examples
    --------
    >>> colour_of("cuDF 26.10.02") == colour_of("cuDF 27.02") != colour_of("dgpuhash")
    True
    >>> colour_of("find", 1) == colour_of("retrieve", 1) != colour_of("insert", 0)
    True
    """
    for start, colour in _LIBRARIES:
        if name.lower().startswith(start):
            return colour
    return _OTHERS[number % len(_OTHERS)]


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


_MARKERS = "osD^vPX*<>"


@dataclass(frozen=True, slots=True)
class Plot:
    """Axes, panels and lines of one plot of a benchmark.

    Attributes
    ----------
    name : str
        Part of the file's name.
    x, x_label : str
        The field along the horizontal axis, and its name with the unit.
    figure, y_label : str
        The field along the vertical axis, and its name with the unit.
    panels : tuple of str
        Fields of which each combination of values has a panel.
    lines : tuple of str
        Fields of which each combination of values has a line.
    logarithmic : tuple of bool
        Whether the horizontal and the vertical axis are logarithmic.
    base : int
        Base of a logarithmic horizontal axis.
    floors : bool
        Whether to draw the rates of bare accesses, too.
    ideal : bool
        Whether to draw ideal scaling.
    only : str
        The figure of a paper whose rows it shows.
    """

    name: str
    x: str
    x_label: str
    figure: str
    y_label: str
    panels: tuple[str, ...]
    lines: tuple[str, ...]
    logarithmic: tuple[bool, bool] = (True, False)
    base: int = 2
    floors: bool = True
    ideal: bool = False
    only: str = ""

    def shows(self, row: Row) -> bool:
        """Return whether the row has the fields of this plot.

        Plots over ``batch`` alone show the rows of small batches.
        """
        if self.only and row.get("figure") != self.only:
            return False
        if self.x == "multiplicity" and str(row.get("distribution")).startswith("zipf"):
            return False  # its mean says little
        if not all(name in row for name in (self.x, self.figure, *self.lines)):
            return False
        return self.x == "batch" or "batch" not in row


_RATE = "billions of rows a second"
# Axes of the papers' figures along which places double.
_DOUBLING = ("n", "rows_a_batch", "multiplicity", "combined", "node_nbytes")
_PLOTS = {
    bench: tuple(Plot(**row) for row in rows)
    for bench, rows in read_data(__package__, "plots.toml").items()
}


def draw(
    bench: str, rows: Sequence[Row], folder: Path, ending: str = ".png"
) -> list[tuple[str, Path]]:
    """Draw a benchmark's plots into `folder`; return titles and files.

    A plot needs rows at two or more places of its horizontal axis.

    Raises
    ------
    UnsupportedError
        When matplotlib is not installed.
    """
    made = []
    if bench == "papers":
        rows = as_asked(rows)
    for plot in _plots_of_papers(rows) if bench == "papers" else _PLOTS.get(bench, ()):
        shown = [row for row in rows if plot.shows(row)]
        panels = _panels(plot, shown)
        if panels:
            path = folder / f"{bench}-{plot.name}{ending}"
            _draw(plot, panels, path)
            axes = f"{plot.y_label} over {plot.x_label}"
            made.append((f"{_whose(plot)}{axes}{seeds_text(shown)}", path))
    return made


def _whose(plot: Plot) -> str:
    """Return the paper and figure of a plot, as a prefix of its title."""
    if not plot.only:
        return ""
    figure = DRAWN[plot.only]
    return f"{figure.paper}, {figure.number}, {figure.title}: "


def _plots_of_papers(rows: Sequence[Row]) -> list[Plot]:
    """Return a plot for each drawn figure that the rows have."""
    made = []
    for name in dict.fromkeys(row["figure"] for row in rows if row["figure"] in DRAWN):
        figure = DRAWN[name]
        (first, *_) = (row for row in rows if row["figure"] == name)
        counted = "amount" in first
        label = first["unit"] if counted else _RATE
        axes = ((figure.axis in _DOUBLING), counted)
        made.append(
            Plot(name, figure.axis, AXES[figure.axis], "amount" if counted else "rate", label,
                 ("verb",), ("line",), axes, floors=False, only=name)
        )  # fmt: skip
    return made


def _panels(plot: Plot, rows: Sequence[Row]) -> dict[tuple[Any, ...], list[Row]]:
    """Return the rows of each panel with at least two positions on the axis."""
    made: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        made.setdefault(tuple(row.get(name) for name in plot.panels), []).append(row)
    return {key: theirs for key, theirs in made.items() if len({row[plot.x] for row in theirs}) > 1}


def _draw(plot: Plot, panels: dict[tuple[Any, ...], list[Row]], path: Path) -> None:
    figure_of, locator_of, null_formatter = matplotlib_classes()
    columns = min(2, len(panels))
    down = math.ceil(len(panels) / columns)
    size = (0.5 + 6 * columns, 0.5 + 3.8 * down)
    figure = figure_of(figsize=size, layout="constrained", dpi=120)
    drawn: list[Axes] = []
    # A name has one colour and one marker in all panels, and one place in the legend.
    numbers: dict[str, int] = {}
    for place, (key, theirs) in enumerate(panels.items(), 1):
        axes = figure.add_subplot(down, columns, place, sharey=drawn[0] if drawn else None)
        _panel(axes, plot, theirs, locator_of(subs=(1, 2, 5)), numbers)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_minor_formatter(null_formatter)
        axes.set_title(_title(plot, key), fontsize=10)
        drawn.append(axes)
    if not plot.logarithmic[1]:
        # Once all panels, which share the axis, have their lines.
        drawn[0].set_ylim(bottom=0)
    one_legend(figure, drawn, 2 * columns)
    label_origin(figure, [row for theirs in panels.values() for row in theirs])
    figure.savefig(path)


def one_legend(figure: Any, panels: Iterable[Axes], columns: int = 6, **style: Any) -> None:
    """Draw one legend for all panels, each name once; below them by default."""
    handles: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    style = style or {"loc": "outside lower center", "frameon": False, "fontsize": 8}
    figure.legend(handles.values(), handles, ncols=columns, **style)


def label_origin(figure: Any, rows: Sequence[Row]) -> None:
    """Write the rows' device and commit into the upper right corner."""
    machine: dict[str, str] = next((row["machine"] for row in rows if "machine" in row), {})
    said = [str(machine["device"])] if "device" in machine else []
    said += [f"commit {machine['commit'][:7]}"] if machine.get("commit") else []
    if said:
        figure.suptitle(", ".join(said), fontsize=7, color="#777777", x=0.99, ha="right")


def _panel(
    axes: Axes, plot: Plot, rows: Sequence[Row], locator: Any, numbers: dict[str, int]
) -> None:
    """Draw one panel: a line for each name, and dashed ones of bare accesses.

    Bare accesses have the colour of their line, or gray if lines are libraries; lines with the same
    bare accesses share one.
    """
    lines = _lines(rows, plot.lines)
    doubled = any(len({row[plot.x] for row in theirs}) < len(theirs) for theirs in lines.values())
    if doubled and all("n" in row for row in rows):
        # A line has two points at one place: they differ in their numbers of rows.
        chunk = "rows" if any(row.get("mode") == "strong" for row in rows) else "n"
        lines = _lines(rows, (*plot.lines, chunk))
    floors: set[tuple[Any, ...]] = set()
    for name, theirs in lines.items():
        number = numbers.setdefault(name, len(numbers))
        theirs = sorted(theirs, key=lambda row: row[plot.x])
        places = [row[plot.x] for row in theirs]
        marker, colour = _MARKERS[number % len(_MARKERS)], _colour(plot, name, number)
        # There are as many colours as markers; further lines are dotted.
        style = "-" if number < len(_MARKERS) else ":"
        axes.plot(places, [row[plot.figure] for row in theirs], marker=marker, label=name,
                  color=colour, linestyle=style)  # fmt: skip
        marks = [(row[plot.x], row["peer"]) for row in theirs if "peer" in row]
        if marks:
            axes.plot(*zip(*marks, strict=True), marker=marker, color=colour, linestyle="",
                      markerfacecolor="none", label=f"{name}, paper")  # fmt: skip
        if plot.ideal and plot.figure == "rate" and len(theirs) > 1:
            first = theirs[0][plot.figure]
            axes.plot((places[0], places[-1]), (first, first * places[-1] / places[0]),
                      color=IDEAL, linestyle=":", linewidth=1, label="ideal")  # fmt: skip
        floor = tuple(
            (row[plot.x], row["floor"]) for row in theirs if plot.floors and "floor" in row
        )
        if floor and floor not in floors:
            floors.add(floor)
            of_all = plot.lines == ("library",)
            axes.plot(*zip(*floor, strict=True), linestyle="--", linewidth=1,
                      label="bare accesses" if of_all else f"bare accesses of {name}",
                      color=BARE if of_all else colour)  # fmt: skip
    if plot.ideal and plot.figure == "efficiency":
        axes.axhline(1, color=IDEAL, linestyle=":", linewidth=1, label="ideal")
    across, up = plot.logarithmic
    if across:
        axes.set_xscale("log", base=plot.base)
    axes.set_xticks(sorted({row[plot.x] for row in rows}))
    axes.set_xticklabels(
        [_tick_label(plot, each) for each in sorted({row[plot.x] for row in rows})]
    )
    if up:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(locator)
        axes.yaxis.set_major_formatter(_plain)
    axes.set_xlabel(plot.x_label)
    axes.set_ylabel(plot.y_label)
    axes.grid(visible=True, alpha=0.3)


def _colour(plot: Plot, name: str, number: int) -> str:
    """Return a library's own colour, or one by number for our own verbs."""
    ours = name.startswith("dgpuhash")
    named = plot.lines == ("library",) or ("library" in plot.lines and not ours)
    return colour_of(name if named else "", number)


def _lines(rows: Sequence[Row], names: Sequence[str]) -> dict[str, list[Row]]:
    """Group rows by the label of their line."""
    lines: dict[str, list[Row]] = {}
    for row in rows:
        said = (f"{row[name]:,} rows" if name in ("n", "rows") else str(row[name])
                for name in names)  # fmt: skip
        lines.setdefault(" ".join(said), []).append(row)
    return lines


def _plain(value: float, _: object) -> str:
    return f"{value:g}"


def _tick_label(plot: Plot, value: float) -> str:
    """Format a tick label: bytes with units, powers of two as powers."""
    if plot.x in ("footprint", "leaving"):
        return bytes_text(int(value))
    if value >= 2**12 and value == int(value) and int(value).bit_count() == 1:
        return f"$2^{{{int(value).bit_length() - 1}}}$"
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def _title(plot: Plot, key: tuple[Any, ...]) -> str:
    said = {
        "pairs": "{} bits", "n": "{:,} rows", "load": "load {}", "hit_rate": "hit rate {}",
        "distribution": "{} keys", "verb": "{}", "mode": "{} scaling", "workers": "{} workers",
        "protocol": "{}", "scale": "scale {:g}",
    }  # fmt: skip
    named = zip(plot.panels, key, strict=True)
    told = ", ".join(said[name].format(each) for name, each in named if each is not None)
    return f"{DRAWN[plot.only].number}: {told}" if plot.only else told


def matplotlib_classes() -> tuple[Any, Any, Any]:
    """Return matplotlib's Figure and LogLocator, and a NullFormatter."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import LogLocator, NullFormatter
    except ImportError as error:
        raise UnsupportedError(
            f"plots need matplotlib ({error}); {install_command('bench')}; or leave them out with "
            "--no-plots"
        ) from error
    return Figure, LogLocator, NullFormatter()
