"""Draws the figures of the documents from the receipts, as SVG, and those of README as PNG too.

Each file carries what it was drawn from, so that `stale` can tell without drawing again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from svg import compact

from dgpuhash.bench.papers.drawn.table import DRAWN as FIGURES_OF_PAPERS
from dgpuhash.bench.papers.drawn.table import as_asked
from dgpuhash.bench.report.of_papers import AXES
from dgpuhash.bench.report.plots import BARE, IDEAL, colour_of, one_legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["DRAWN", "Drawing", "draw_all", "stale"]

Row = dict[str, Any]
Receipts = dict[str, dict[str, Any]]

STYLE = {
    "font.size": 9,
    # Verdana's letters are as wide.
    "font.sans-serif": ["DejaVu Sans", "Verdana"],
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E3E3E3",
    "grid.linewidth": 0.7,
    "lines.linewidth": 1.8,
    "lines.markersize": 4.5,
    "legend.frameon": False,
    "svg.hashsalt": "dgpuhash",
    "svg.fonttype": "none",
}
IN_README = ("merge", "tables")
BILLION = "billion rows a second"
# Where legends are.
ABOVE = "outside upper left"


@dataclass(frozen=True, slots=True)
class Drawing:
    """One figure: its file's name, what it shows, and the receipts that it is drawn from.

    Receipts `beside` are drawn, too, where they are there and have figures of the benchmark `of`.
    `page` of docs/ shows it.
    """

    name: str
    title: str
    receipts: tuple[str, ...]
    size: tuple[float, float]
    draw: Callable[[Figure, Receipts], None]
    beside: tuple[str, ...] = ()
    of: str = ""
    page: str = "benchmarks"

    def used(self, receipts: Receipts) -> Receipts:
        """The receipts that it is drawn from, by name."""
        there = (name for name in self.beside if name in receipts)
        more = (name for name in there if rows_of(receipts[name], self.of))
        return {name: receipts[name] for name in (*self.receipts, *more)}


def draw_all(receipts: Receipts, folder: Path) -> None:
    """Draw each figure whose receipts are there."""
    import matplotlib
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    for drawing in drawable(receipts):
        with matplotlib.rc_context(STYLE):
            figure = Figure(figsize=drawing.size, layout="constrained")
            figure.get_layout_engine().set(w_pad=0.08, h_pad=0.06)
            drawing.draw(figure, drawing.used(receipts))
            figure.supxlabel(
                origin(drawing, receipts), fontsize=6.5, color="#777777", x=1, ha="right"
            )
            stamp = stamp_of(drawing, receipts)
            for path in files_of(drawing, folder):
                unnamed = ("Date", "Creator") if path.suffix == ".svg" else ("Software",)
                metadata = {"Description": stamp, **dict.fromkeys(unnamed)}
                figure.savefig(path, dpi=160, metadata=metadata)
                if path.suffix == ".svg":
                    path.write_text(compact(path.read_text()))


def files_of(drawing: Drawing, folder: Path) -> list[Path]:
    """The files of a drawing: package indexes, which show README, render no SVG."""
    endings = ("svg", "png") if drawing.name in IN_README else ("svg",)
    return [folder / f"{drawing.name}.{ending}" for ending in endings]


def drawable(receipts: Receipts) -> list[Drawing]:
    return [each for each in DRAWN if all(name in receipts for name in each.receipts)]


def stale(receipts: Receipts, folder: Path) -> list[Path]:
    """The files that are absent, or were drawn from other receipts."""
    found = []
    for drawing in drawable(receipts):
        stamp = stamp_of(drawing, receipts).encode()
        for path in files_of(drawing, folder):
            if not path.exists() or stamp not in path.read_bytes():
                found.append(path)
    return found


def stamp_of(drawing: Drawing, receipts: Receipts) -> str:
    """The receipts of a drawing by name and commit, and a digest of their figures."""
    used = drawing.used(receipts)
    named = ", ".join(f"{name} {one.get('commit', one['date'])[:10]}" for name, one in used.items())
    digest = hashlib.sha256(json.dumps(used, sort_keys=True).encode()).hexdigest()
    return f"drawn from receipts {named}; sha256 {digest[:16]}"


def origin(drawing: Drawing, receipts: Receipts) -> str:
    """The line in the corner: devices, commits and dates."""
    said = []
    for one in drawing.used(receipts).values():
        commit = f"commit {one['commit'][:7]}, " if "commit" in one else "peers' run, "
        said.append(f"{device(one)}, {commit}{one['date'][:10]}")
    return "   ·   ".join(said)


def device(receipt: dict[str, Any]) -> str:
    return receipt["machine"]["gpu"].replace(" x NVIDIA ", " \N{MULTIPLICATION SIGN} ")


def rows_of(receipt: dict[str, Any], bench: str, **wanted: Any) -> list[Row]:
    """The rows of one benchmark that say what is wanted; those that name no library are ours."""
    return [
        row
        for row in ({"library": "dgpuhash", **each} for each in receipt["figures"])
        if row["bench"] == bench
        and "batch" not in row
        and all(row.get(key) == value for key, value in wanted.items())
    ]


def line(axes: Axes, rows: Iterable[Row], x: str, y: str, label: str, **style: Any) -> None:
    places = sorted(rows, key=lambda row: row[x])
    colour = style.pop("color", None) or colour_of(label)
    style = {"marker": "o", **style}
    axes.plot(
        [row[x] for row in places], [row[y] for row in places], label=label, color=colour, **style
    )


def bare(axes: Axes, rows: Iterable[Row], x: str) -> None:
    line(
        axes, rows, x, "floor", "bare accesses to memory",
        color=BARE, marker="", linestyle="--", linewidth=1.1,
    )  # fmt: skip


# --- The figures. ---

# What stands to the left of each bar.
_MERGES = {"merge": "merge with the standing index", "build + merge": "build + first merge"}


def merges(figure: Figure, receipts: Receipts) -> None:
    """Bars of the time until a client has a merge, each library's, on four and on two GPUs."""
    panels = {
        name: sorted(
            (
                row
                for row in rows_of(receipts[name], "scaling", n=10**8)
                if row.get("verb") in _MERGES
            ),
            key=lambda row: row["seconds"],
        )
        for name in ("scaling-4", "peers-2")
    }
    heights = [len(rows) + 0.8 for rows in panels.values()]
    below = figure.subplots(len(panels), 1, sharex=True, height_ratios=heights)
    for axes, (name, rows) in zip(below, panels.items(), strict=True):
        for place, row in enumerate(rows):
            ours = row["library"] == "dgpuhash"
            milliseconds = 1e3 * row["seconds"]
            axes.barh(place, milliseconds, color=colour_of(row["library"]), height=0.66)
            axes.text(milliseconds + 5, place, f"{milliseconds:.0f} ms", va="center",
                      fontweight="bold" if ours else "normal")  # fmt: skip
        names = [
            f"dgpuhash: {_MERGES[row['verb']]}"
            if row["library"] == "dgpuhash"
            else cudf_named(row["library"])
            for row in rows
        ]
        axes.set_yticks(range(len(rows)), names)
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set_xlim(0, 550)
        limit = next((row for row in rows if row["verb"] == "merge" and "floor" in row), None)
        if limit:
            least = 1e3 * limit["rows"] / limit["floor"] / 1e9
            axes.axvline(least, color=BARE, linestyle="--", linewidth=1.1)
            axes.annotate(f"bare accesses of a merge, without the exchange: {least:.1f} ms",
                          (least, len(rows) - 0.45), (12, len(rows) - 0.42), va="center",
                          color=BARE, fontsize=7.5)  # fmt: skip
        axes.set_ylim(-0.5, len(rows) - (0.05 if limit else 0.4))
        axes.set_title(f"{device(receipts[name])}: {rows[0]['rows'] / 1e8:.0f}·10⁸ rows joined "
                       f"with as many, 30 % match")  # fmt: skip
    below[-1].set_xlabel("milliseconds until the client has the result")


def cudf_named(library: str) -> str:
    """Dask's own merge by the frames that it merges."""
    return "Dask-cuDF: merge" if "cudf" in library and "Dask" in library else f"{library}: merge"


def tables(figure: Figure, receipts: Receipts) -> None:
    """Rates over load beside the best of other tables and the bare accesses."""
    verbs = {"insert": "insert", "find": "find stored keys", "absent": "find absent keys"}
    beside = figure.subplots(1, 3, sharex=True, sharey=True)
    for axes, (verb, title) in zip(beside, verbs.items(), strict=True):
        wanted = {"pairs": "32/32", "n": 1 << 28, "verb": verb}
        ours = rows_of(receipts["figures"], "tables", **wanted)
        line(axes, ours, "load", "rate", "dgpuhash")
        peers = rows_of(receipts["peers"], "tables", library="best peer", **wanted)
        line(axes, peers, "load", "rate", "best peer (cuCollections, CCCL, BGHT, WarpCore)",
             marker="s")  # fmt: skip
        bare(axes, ours, "load")
        axes.set_title(title)
        axes.set_xlabel("load")
        axes.set_ylim(0, 40)
        axes.set_xticks([0.5, 0.6, 0.7, 0.8, 0.9])
    beside[0].set_ylabel(f"{BILLION}\n(2²⁸ pairs of 4 + 4 bytes)")
    one_legend(figure, beside, loc=ABOVE)


def scaling(figure: Figure, receipts: Receipts) -> None:
    """Rates over the number of GPUs, beside the ideal of the fewest that ran."""
    panels = {"bulk insert": "insert, 2²⁷ pairs a GPU", "bulk find": "find, 2²⁷ pairs a GPU",
              "merge": "merge, 10⁸ rows a GPU"}  # fmt: skip
    rates = (0.5, 1, 2, 4, 8, 16, 32, 64)
    beside = figure.subplots(1, 3, sharex=True, sharey=True)
    for axes, (verb, title) in zip(beside, panels.items(), strict=True):
        for name, marker in (("scaling-2", "D"), ("scaling-4", "o")):
            rows = rows_of(receipts[name], "scaling", verb=verb)
            label = f"dgpuhash at {receipts[name]['commit'][:7]}"
            ours = [row for row in rows if row["library"] == "dgpuhash" and row["n"] >= 10**8]
            line(axes, ours, "workers", "rate", label, marker=marker)
            if verb != "merge":
                ideal(
                    axes,
                    min(ours, key=lambda row: row["workers"]),
                    max(row["workers"] for row in ours),
                )
            theirs = [row for row in rows if row["library"] != "dgpuhash" and row["n"] >= 10**8]
            for row in theirs:
                line(axes, [row], "workers", "rate", "Dask-cuDF", marker=marker, linestyle="",
                     color=colour_of(row["library"]))  # fmt: skip
            if verb == "merge" and name == "scaling-2":
                ideal(axes, ours[0], 4)
        axes.set_title(title)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.set_xlim(0.9, 4.5)
        axes.set_ylim(0.5, 72)
        axes.set_xticks([1, 2, 4], ["1", "2", "4"])
        axes.set_yticks(rates, [f"{each:g}" for each in rates])
        axes.set_xlabel("GPUs")
    beside[0].set_ylabel(BILLION)
    one_legend(figure, beside, loc=ABOVE)


def ideal(axes: Axes, row: Row, most: int) -> None:
    """The rate of a row's workers times how many more there are."""
    rate, workers = row["rate"], row["workers"]
    axes.plot([workers, most], [rate, rate * most / workers], color=IDEAL, linestyle=":",
              linewidth=1.3, label="ideal")  # fmt: skip


def exchange(figure: Figure, receipts: Receipts) -> None:
    """Bytes a second that leave each GPU, by what carries them."""
    names = {"peer": "peer memory (CUDA IPC)", "nccl": "NCCL", "comm": "Dask's comm (UCXX)"}
    beside = figure.subplots(1, 2, sharex=True, sharey=True)
    for axes, receipt in zip(beside, ("scaling-2", "scaling-4"), strict=True):
        for number, (carrier, label) in enumerate(names.items()):
            rows = rows_of(receipts[receipt], "exchange", exchange=carrier)
            line(axes, rows, "leaving", "rate", label, color=colour_of(carrier, number))
        line(axes, rows, "leaving", "floor", "bare peer copies", color=BARE, marker="",
             linestyle="--", linewidth=1.1)  # fmt: skip
        axes.set_xscale("log", base=2)
        axes.set_xticks([1 << 24, 1 << 28, 1 << 31], ["16 MiB", "256 MiB", "2 GiB"])
        axes.set_xlabel("bytes that leave each GPU")
        axes.set_title(device(receipts[receipt]))
        axes.set_ylim(bottom=0)
    beside[0].set_ylabel("GB/s that leave each GPU")
    one_legend(figure, beside, loc=ABOVE)


def columns(figure: Figure, receipts: Receipts) -> None:
    """Times of grouping and joins of int64 columns, beside cuDF and the bare accesses."""
    rows = receipts["figures"]
    panels = [("group", "groups", verb) for verb in ("sum + count", "factorize", "value_counts")]
    panels += [("join", "build", verb) for verb in ("inner", "left", "semi")]
    grid = figure.subplots(2, 3, sharey=True)
    for axes, (bench, x, verb) in zip(grid.flat, panels, strict=True):
        theirs = rows_of(rows, bench, verb=verb)
        for library in dict.fromkeys(row["library"] for row in theirs):
            line(axes, [row for row in theirs if row["library"] == library], x, "time", library,
                 marker="o" if library == "dgpuhash" else "s")  # fmt: skip
        bare(axes, [row for row in theirs if row["library"] == "dgpuhash"], x)
        axes.set_xscale("log", base=10)
        axes.set_yscale("log")
        axes.set_yticks([1, 2, 5, 10, 20, 50, 100], ["1", "2", "5", "10", "20", "50", "100"])
        axes.minorticks_off()
        axes.set_xlabel("groups" if bench == "group" else "rows that the table is made of")
        axes.set_title(f"{verb} join" if bench == "join" else verb)
    for left in grid[:, 0]:
        left.set_ylabel("ms for 2²⁷ rows")
    one_legend(figure, grid.flat, loc=ABOVE)


def construction(figure: Figure, receipts: Receipts) -> None:
    """Bars of the time to index a billion letters, beside what WarpCore's Fig. 8 and its text say.

    Hatched as in the paper: on several GPUs, and of the data that they were given there.
    """
    bars = sorted([*_built(receipts), *_PAPER_BUILDS], key=lambda bar: bar[1])
    axes = figure.subplots()
    for place, (name, seconds, hatch) in enumerate(bars):
        colour = colour_of(name.partition(":")[0])
        axes.barh(place, seconds, color=colour if not hatch else "white", edgecolor=colour,
                  hatch=hatch, height=0.66)  # fmt: skip
        axes.text(seconds * 1.08, place, f"{seconds:.3g} s", va="center",
                  fontweight="bold" if name.startswith("dgpuhash") else "normal")  # fmt: skip
    axes.set_yticks(range(len(bars)), [name for name, *_ in bars])
    axes.set_xscale("log")
    axes.set_xlim(bars[0][1] / 3, bars[-1][1] * 4)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_title("An index of genomes")
    axes.set_xlabel("seconds for a billion letters\nhatched: the paper's 120 GB, and several GPUs")


# Of 120 GB: 36 s on eight GPUs, 592 times as fast as Kraken 2 and 317 times as MetaCache.
_PAPER_BUILDS = (
    ("WarpCore: its paper, bucket lists, 8 x V100", 36 / 120, "///"),
    ("Kraken 2: WarpCore's paper", 592 * 36 / 120, "///"),
    ("MetaCache: WarpCore's paper", 317 * 36 / 120, "///"),
)


def _built(receipts: Receipts) -> Iterable[tuple[str, float, str]]:
    """What builds of whole genomes took: a name, seconds for a billion letters, and a hatch.

    Of files those of the most letters that a receipt has.
    """
    for name, receipt in receipts.items():
        where, rows = device(receipt), rows_of(receipt, "kmer")
        larger = any(row["verb"] == "construction" for row in rows)
        for row in rows:
            several = row.get("workers", 1) > 1
            of_files = row["verb"] == "build" and (several or (name == "kmer" and not larger))
            if not (of_files or row["verb"] == "construction"):
                continue
            by = f", rule of {_RULES[row['rule']]}" if row["library"] == "dgpuhash" else ""
            kind = "letters on the device" if row["input"] == "letters" else "files"
            label = f"{row['library']}: {where}{by}, {kind}"
            yield label, 1e9 * row["seconds"] / row["n"], "///" if several else ""


_RULES = {"kraken2": "Kraken 2", "metacache": "MetaCache"}


def simulation(figure: Figure, receipts: Receipts) -> None:
    """Simulated times of verbs over the number of GPUs, by transport, beside the links alone."""
    panels = {"bulk insert": "insert, 2²⁷ pairs a GPU", "merge": "merge, 2²⁷ rows a GPU",
              "groupby": "groupby, 2²⁷ rows a GPU"}  # fmt: skip
    names = {"peer": "one host", "comm": "a message from each to each", "two-level": "two levels"}
    times = (5, 20, 100, 500, 2000, 10_000)
    beside = figure.subplots(1, 3, sharex=True, sharey=True)
    for axes, (verb, title) in zip(beside, panels.items(), strict=True):
        rows = rows_of(receipts["simulation"], "model", verb=verb)
        told = [{**row, "ms": 1e3 * row["seconds"]} for row in rows if "messages" in row]
        for number, (way, label) in enumerate(names.items()):
            theirs = [row for row in told if row["exchange"] == way]
            line(axes, theirs, "workers", "ms", label, color=colour_of(way, number))
        links = [row for row in told if row["exchange"] == "two-level"]
        line(axes, links, "workers", "links", "links alone", color=BARE, marker="",
             linestyle="--", linewidth=1.1)  # fmt: skip
        axes.set_title(title)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks([8, 32, 128, 512], ["8", "32", "128", "512"])
        axes.set_yticks(times, [f"{each:,}" for each in times])
        axes.minorticks_off()
        axes.set_xlabel("GPUs, in hosts of eight")
    beside[0].set_ylabel("milliseconds, simulated")
    one_legend(figure, beside, loc=ABOVE)


def dataframes(figure: Figure, receipts: Receipts) -> None:
    """Speeds of merges and groupbys beside the best other library's, and shares of bare gathers."""
    rows = [row for row in rows_of(receipts["dataframes"], "frames") if "peer" in row]
    cases = list(dict.fromkeys(case_of(row) for row in rows))[::-1]
    places = {name: place for place, name in enumerate(cases)}
    beside = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    for number, library in enumerate(dict.fromkeys(row["library"] for row in rows)):
        own = [row for row in rows if row["library"] == library]
        style = {"marker": "oD"[number % 2], "linestyle": "", "color": colour_of("", number)}
        speeds = [row["peer"] / row["time"] for row in own]
        beside[0].plot(speeds, [places[case_of(row)] for row in own], label=library, **style)
        merges = [row for row in own if "ratio" in row]
        shares = [row["ratio"] for row in merges]
        beside[1].plot(shares, [places[case_of(row)] for row in merges], label=library, **style)
    beside[0].set_xscale("log", base=2)
    ticks = (0.125, 0.25, 0.5, 1, 2, 4, 8, 16)
    beside[0].set_xticks(ticks, [f"{each:g}" for each in ticks])
    beside[0].set_xlabel("times as fast as the best other library")
    beside[1].set_xlim(left=0)
    beside[1].set_xlabel("share of join_indices\nand bare gathers")
    for axes in beside:
        axes.axvline(1, color=BARE, linestyle="--", linewidth=1.1)
        axes.tick_params(axis="y", length=0)
    beside[0].set_yticks(range(len(cases)), cases)
    beside[0].set_ylim(-0.7, len(cases) - 0.3)
    one_legend(figure, beside, loc=ABOVE)


def changes(figure: Figure, receipts: Receipts) -> None:
    """Times of a round over the fastest anew by the fraction that changes, and the break-even."""
    rows = rows_of(receipts["refresh"], "refresh")
    rounds = [row for row in rows if row["verb"] == "round"]
    axes = figure.subplots()
    for library in dict.fromkeys(row["library"] for row in rounds):
        line(axes, [row for row in rounds if row["library"] == library], "fraction", "share",
             library)  # fmt: skip
    axes.axhline(1, color=BARE, linestyle="--", linewidth=1.1)
    for row in rows:
        if row["verb"] == "break-even":
            axes.axvline(row["fraction"], color=IDEAL, linestyle=":")
            axes.annotate(f"break-even {row['amount']:.2%}", (row["fraction"], 1), rotation=90,
                          textcoords="offset points", xytext=(-10, 4), fontsize=7)  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    ticks = sorted({row["fraction"] for row in rounds})
    axes.set_xticks(ticks, [f"{100 * each:g}%" for each in ticks])
    axes.set_yticks([0.1, 0.2, 0.5, 1, 2, 5], ["0.1", "0.2", "0.5", "1", "2", "5"])
    axes.minorticks_off()
    axes.set_xlabel(f"orders that change in a round, TPC-H's scale {rounds[0]['scale']:g}")
    axes.set_ylabel("time of a round\nover the fastest anew")
    one_legend(figure, [axes], loc=ABOVE)


def accuracy(figure: Figure, receipts: Receipts) -> None:
    """Precision over recall of calls at three ranks, by rule, ours within the peer's."""
    rows = rows_of(receipts["accuracy"], "accuracy")
    names = list(dict.fromkeys(row["set"] for row in rows))
    panels = figure.subplots(1, len(names))
    for axes, name in zip(panels, names, strict=True):
        for row in (each for each in rows if each["set"] == name):
            is_ours = row["library"] == "dgpuhash"
            label = f"dgpuhash, rule of {_RULES[row['rule']]}" if is_ours else row["library"]
            axes.plot(
                row["recall"], row["precision"], label=label, linestyle="",
                marker=_OF_RANKS[row["rank"]], markersize=5 if is_ours else 12,
                markerfacecolor=colour_of(_RULES[row["rule"]]) if is_ours else "none",
                color=colour_of(_RULES[row["rule"]]),
            )  # fmt: skip
        pairs = next(row["n"] for row in rows if row["set"] == name)
        axes.set_title(f"{name}, {pairs:,} pairs")
        axes.set_xlabel("recall: right calls of all pairs")
        axes.set_ylim(0.92, 1.005)
    panels[0].set_ylabel(
        "precision: right calls of all\nat the rank; circle species,\nsquare genus, triangle family"
    )
    one_legend(figure, panels, columns=4, loc=ABOVE)


_OF_RANKS = {"species": "o", "genus": "s", "family": "^"}
# The panels of each plot of papers: how the names of its figures begin, in how many rows.
PAPERS = {
    "thesis-probing": ("thesis-3.", "Alcantara 2011, chapter 3: probing", 3),
    "thesis-chaining": ("thesis-4.", "Alcantara 2011, chapter 4: chaining", 3),
    "thesis-two-level": ("thesis-5.", "Alcantara 2011, chapter 5: two-level cuckoo hashing", 3),
    "thesis-cuckoo": ("thesis-6.", "Alcantara 2011, chapter 6: cuckoo hashing", 3),
    "slabhash": ("slabhash-", "SlabHash 2018", 3),
    "dachash": ("dachash-", "DACHash 2021", 3),
    "warpcore": ("warpcore-", "WarpCore 2020", 2),
}


def papers(begin: str, down: int, figure: Figure, receipts: Receipts) -> None:
    """A panel for each figure of a paper and verb, with a line for each table."""
    rows = [row for row in receipts["papers"]["figures"] if row["figure"].startswith(begin)]
    panels: dict[tuple[str, str], list[Row]] = {}
    for row in as_asked([row for row in rows if row["figure"] in FIGURES_OF_PAPERS]):
        if "line" in row and FIGURES_OF_PAPERS[row["figure"]].axis in row:
            panels.setdefault((row["figure"], row["verb"]), []).append(row)
    across = -(-len(panels) // down)
    for place, ((name, verb), own) in enumerate(panels.items(), 1):
        axes, drawn = figure.add_subplot(across, down, place), FIGURES_OF_PAPERS[name]
        height = "rate" if "rate" in own[0] else "amount"
        for number, label in enumerate(dict.fromkeys(row["line"] for row in own)):
            theirs = [row for row in own if row["line"] == label]
            line(axes, theirs, drawn.axis, height, label, color=colour_of("", number),
                 linewidth=1, markersize=2.5)  # fmt: skip
        axes.set_title(f"{drawn.number}: {verb}", fontsize=8)
        axes.set_xlabel(AXES[drawn.axis], fontsize=7)
        axes.set_ylabel(own[0]["unit"], fontsize=7)
        axes.set_ylim(bottom=0)
        if max(row[drawn.axis] for row in own) > 100:
            axes.set_xscale("log", base=2)
        axes.tick_params(labelsize=6)
        axes.legend(fontsize=5, ncols=2)


def case_of(row: Row) -> str:
    """A case with its sizes, as powers where they are some."""
    sizes = [row["n"], *(row[name] for name in ("build", "groups") if name in row)]
    size = " \N{MULTIPLICATION SIGN} ".join(map(size_text, sizes))
    return f"{row['verb']}: {size} {'groups' if 'groups' in row else 'rows'}"


def size_text(size: int) -> str:
    return f"$2^{{{size.bit_length() - 1}}}$" if size.bit_count() == 1 else f"{size:,}"


DRAWN = (
    Drawing("merge", "Time of a merge on several GPUs, beside Dask-cuDF and cudf-polars",
            ("scaling-4", "peers-2"), (7.2, 3.5), merges),
    Drawing("tables", "Rates of a map over its load, beside the best of other tables on a GPU",
            ("figures", "peers"), (8.2, 3.0), tables),
    Drawing("columns", "Times of grouping and joins of columns, beside cuDF",
            ("figures",), (8.2, 4.8), columns),
    Drawing("scaling", "Rates over the number of GPUs, beside the ideal",
            ("scaling-4", "scaling-2"), (8.2, 3.4), scaling),
    Drawing("exchange", "What leaves each GPU a second, by what carries it",
            ("scaling-4", "scaling-2"), (7.2, 3.2), exchange),
    Drawing("simulation", "Simulated: times of verbs on up to 1,024 GPUs, by how they exchange",
            ("simulation",), (8.2, 3.2), simulation),
    Drawing("construction", "Time to index a billion letters, after WarpCore's Fig. 8",
            ("kmer",), (8.2, 3.4), construction, ("letters", "scaling-2", "scaling-4"), "kmer"),
    Drawing("dataframes", "Speed of merges and groupbys of frames, beside cuDF",
            ("dataframes",), (8.2, 9.0), dataframes, page="dataframes"),
    Drawing("changes", "Time of a round of changes over all anew, by the fraction that changes",
            ("refresh",), (7.2, 3.2), changes, page="changes"),
    Drawing("accuracy", "Precision and recall of calls at species, genus and family",
            ("accuracy",), (8.2, 3.4), accuracy, page="kmer-tools"),
    *(Drawing(name, title, ("papers",), (9.0, 10.0 if down == 3 else 6.0),
              partial(papers, begin, down), page="papers")
      for name, (begin, title, down) in PAPERS.items()),
)  # fmt: skip
