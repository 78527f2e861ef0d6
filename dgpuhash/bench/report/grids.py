"""Figures as tables of text, for a terminal or a document."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["Grid", "bytes_text", "figure_text", "grids"]

Row = dict[str, Any]

_VERBS = {
    "tables": ("insert", "build", "find", "contains", "absent", "erase"),
    "multi": ("build", "retrieve", "retrieve 1…n"),
    "group": ("sum + count", "factorize", "value_counts", "unique"),
    "join": ("inner", "left", "semi", "standing", "merge"),
    "close": (
        *("HashSet", "HashMap", "MultiMap", "slices", "factorize", "unique", "value_counts"),
        *("group_reduce", "isin", "join_indices"),
    ),
    "cpu": ("build", "probe", "join", "group sum"),
    "scaling": (
        *("build", "insert", "find", "multi build", "multi find", "merge", "build + merge"),
        *("bulk insert", "bulk find", "replicated merge"),
    ),
}
_STEPS = ("partition", "exchange", "insert", "lookup", "answers", "other")
_WORDS = {
    "pairs": "bits", "n": "rows", "build": "built rows", "load": "load", "groups": "groups",
    "distribution": "keys", "library": "library", "batch": "batch", "limit": "access",
    "leaving": "bytes", "method": "method",
}  # fmt: skip
# Of a figure of a paper.
_SETTINGS = (
    *("chain", "load", "width", "multiplicity", "distribution", "footprint", "bits_per_key"),
    "passed",
)
_BRACKETS = "in brackets the share of the bare accesses in the same run"


@dataclass(frozen=True, slots=True)
class Grid:
    """Titled table of text cells."""

    title: str
    header: tuple[str, ...]
    lines: list[tuple[str, ...]]


def grids(bench: str, rows: Sequence[Row]) -> list[Grid]:
    """Return the tables that show one benchmark's rows.

    There are none if there are no rows.

    Examples
    --------
    >>> row = {"verb": "find", "pairs": "32/32", "n": 1024, "load": 0.5, "distribution": "unique",
    ...        "rate": 30.0, "unit": "G/s", "floor": 40.0, "ratio": 0.75}
    >>> (grid,) = grids("tables", [row])
    >>> grid.header, grid.lines
    (('bits', 'rows', 'keys', 'load', 'find'), [('32/32', '1,024', 'unique', '0.5', '30 (75%)')])
    """
    if bench == "limits":
        return _pivot("random access, billions a second", rows, ("limit",), "footprint", ())
    if bench == "exchange":
        title = "GB/s that leave each worker, in brackets the share of bare copies in the same run"
        return _pivot(title, rows, ("workers", "protocol", "leaving"), "exchange", ())
    if bench == "papers":
        return _papers(rows)
    if bench == "scaling":
        return _scaling(rows)
    if bench == "model":
        return _model(rows)
    made = []
    memory = [row for row in rows if row["verb"] == "memory"]
    batches = [row for row in rows if "batch" in row]
    other = [row for row in rows if row["verb"] != "memory" and "batch" not in row]
    verbs = _VERBS[bench]
    if bench in ("tables", "multi"):
        title = f"billions of rows a second, {_BRACKETS}"
        made += _pivot(
            title, other, ("pairs", "n", "distribution", "load", "method"), "verb", verbs
        )
    else:
        beside = "in brackets as many random keys beside that" if bench == "close" else _BRACKETS
        title = f"milliseconds, {beside}"
        index = {
            "group": ("pairs", "n", "groups", "distribution", "library"),
            "join": ("n", "build", "distribution", "hit_rate", "library"),
            "close": ("n", "distribution"),
            "cpu": ("n", "library"),
        }[bench]
        made += _pivot(title, other, index, "verb", verbs)
    if bench == "cpu":
        # Twice as many rows are looked up, joined and summed.
        made = [_renamed(one, {_WORDS["n"]: "distinct keys"}) for one in made]
    title = "microseconds of one call, and until it returns"
    if any("overhead" in row for row in batches):
        title += ", of which more than an empty launch"
    made += _pivot(title, batches, ("pairs", "n", "batch", "method"), "verb", verbs)
    return made + _memory(memory)


def figure_text(row: Row) -> str:
    """Format the figure of a row with its ratio to the floor."""
    if "launch" in row:
        parts = (_number(row[name]) for name in ("time", "launch", "overhead") if name in row)
        return " / ".join(parts)
    if row.get("unit") == "TB/s":
        return f"{row['rate']:.3g} TB/s"
    text = _number(row[next(name for name in ("rate", "time", "amount") if name in row)])
    return f"{text} ({row['ratio']:.0%})" if "ratio" in row else text


def _pivot(
    title: str,
    rows: Sequence[Row],
    index: Sequence[str],
    column: str,
    order: Sequence[str],
    shown: Callable[[Row], str] | None = None,
) -> list[Grid]:
    """Pivot rows: a line for each `index`, a column for each `column` value."""
    if not rows:
        return []
    index = [name for name in index if any(name in row for row in rows)]
    seen = list(dict.fromkeys(row[column] for row in rows))
    columns = [each for each in order if each in seen] + [
        each for each in seen if each not in order
    ]
    lines: dict[tuple[str, ...], dict[Any, str]] = {}
    for row in rows:
        key = tuple(_text(name, row.get(name, "")) for name in index)
        lines.setdefault(key, {})[row[column]] = (shown or figure_text)(row)
    # Lines that differ only in the library are adjacent.
    whose = index.index("library") if "library" in index else len(index)
    asked = list(dict.fromkeys(key[:whose] + key[whose + 1 :] for key in lines))
    ordered = sorted(lines, key=lambda key: asked.index(key[:whose] + key[whose + 1 :]))
    header = tuple(_WORDS.get(name, name.replace("_", " ")) for name in index)
    return [
        Grid(
            title,
            header + tuple(_text(column, each) for each in columns),
            [key + tuple(lines[key].get(each, "") for each in columns) for key in ordered],
        )
    ]


def _renamed(grid: Grid, names: dict[str, str]) -> Grid:
    return replace(grid, header=tuple(names.get(name, name) for name in grid.header))


def _scaling(rows: Sequence[Row]) -> list[Grid]:
    limits = [row for row in rows if "limit" in row]
    verbs = [row for row in rows if "verb" in row]
    beside = [row for row in verbs if "efficiency" in row]
    index, order = ("mode", "workers", "n", "library"), _VERBS["scaling"]
    title = (
        "what each worker's machine allows while all work, billions of rows a second; latency, and "
        "each of many messages, in milliseconds"
    )
    made = _pivot(title, limits, ("mode", "workers", "n"), "limit", ())
    title = f"billions of rows a second of all workers, {_BRACKETS}, without the exchange"
    made += _pivot(title, verbs, index, "verb", order)
    title = "milliseconds until the client knows, and of them at work on the slowest worker"
    made += _pivot(title, verbs, index, "verb", order, _milliseconds)
    title = "efficiency: the rate beside that of one worker times their number"
    made += _pivot(title, beside, index, "verb", order, _efficiency)
    made = [_renamed(one, {_WORDS["n"]: "rows a worker"}) for one in made]
    told = [row for row in verbs if "steps" in row]
    if told:
        names = [name for name in _STEPS if any(name in row["steps"] for row in told)]
        lines = []
        for row in told:
            whole = sum(row["steps"].values())
            parts = [_share(row["steps"].get(name), whole) for name in names]
            parts.append(_share(row.get("overlap"), whole))
            parts.append(_efficiency(row) if "efficiency" in row else "")
            where = (_text(name, row[name]) for name in ("mode", "verb", "workers", "rows"))
            lines.append((*where, *parts, bytes_text(row["exchanged_bytes"])))
        title = (
            "milliseconds of each step and its share, in a run apart with a clock between the "
            "steps: of builds and inserts by tasks, and of bulk verbs, whose overlap is what they "
            "take less than their steps; other lookups do not tell theirs"
        )
        header = ("mode", "verb", "workers", "rows", *names, "overlap", "efficiency", "exchanged")
        made.append(Grid(title, header, lines))
    return made


def _papers(rows: Sequence[Row]) -> list[Grid]:
    """Return a table for each figure: what was asked, ours, and what others reached."""
    made = []
    for figure in dict.fromkeys(row["figure"] for row in rows):
        own = [row for row in rows if row["figure"] == figure]
        index = [
            name for name in ("pairs", "n", *_SETTINGS, "verb") if any(name in row for row in own)
        ]
        lines = []
        for row in own:
            there = f"{row['peer']:.3g} ({row['source']})" if "peer" in row else ""
            ahead = f"{row['rate'] / row['peer']:.2f}" if "peer" in row else ""
            what = (_text(name, row.get(name, "")) for name in index)
            lines.append((*what, figure_text(row), there, ahead))
        header = (
            *(_WORDS.get(name, name.replace("_", " ")) for name in index),
            "G/s",
            "theirs",
            "ratio",
        )
        made.append(Grid(f"{figure}: billions of rows a second, {_BRACKETS}", header, lines))
    return made


def _share(milliseconds: float | None, whole: float) -> str:
    if not milliseconds or not whole:
        return ""
    return f"{_number(milliseconds)} ({milliseconds / whole:.0%})"


def _model(rows: Sequence[Row]) -> list[Grid]:
    figures: list[tuple[str, ...]] = [
        (row["figure"], f"{figure_text(row)} {row['unit']}", row["source"])
        for row in rows
        if "figure" in row
    ]
    made = [Grid("figures that the model is made of", ("figure", "is", "from"), figures)]
    index = ("mode", "verb", "workers", "hosts", "rows")
    lines = []
    names = ("partition", "insert", "lookup", "exchange", "other")
    for row in rows:
        if "verb" in row:
            where = tuple(_text(name, row[name]) for name in index)
            phases = (_number(row["phases"][name]) if name in row["phases"] else ""
                      for name in names)  # fmt: skip
            overlap = _number(row["overlap"]) if row["overlap"] else ""
            said = (overlap, _number(1e3 * row["seconds"]), _number(row["rate"]), _efficiency(row))
            checked = ("", "")
            if "error" in row:
                taken = ", taken from it" if row["calibrates"] else ""
                checked = (_number(1e3 * row["measured_seconds"]), f"{row['error']:+.0%}{taken}")
            lines.append((*where, *phases, *said, row["bound"], *checked))
    header = (
        *index,
        *names,
        "overlap",
        "in all",
        "G/s",
        "efficiency",
        "longest",
        "measured",
        "error",
    )
    return [*made, Grid("a model: milliseconds that it predicts of each phase", header, lines)]


def _milliseconds(row: Row) -> str:
    parts = (row[name] for name in ("seconds", "worker_seconds") if name in row)
    return " / ".join(_number(1e3 * each) for each in parts)


def _efficiency(row: Row) -> str:
    return f"{row['efficiency']:.2f}"


def _memory(rows: Sequence[Row]) -> list[Grid]:
    if not rows:
        return []
    shown: dict[str, Callable[[Row], str]] = {
        "table": lambda row: bytes_text(row["table_bytes"]),
        "of stored pairs / load": lambda row: f"{row['at_rest']:.2f}",
        "besides while built, of batch": lambda row: f"{row['while_built']:.2f}",
    }
    index = ["pairs", "n", "distribution", "load"]
    if any("method" in row for row in rows):
        index.append("method")
    return [
        Grid(
            "memory at rest and while built",
            tuple(_WORDS[name] for name in index) + tuple(shown),
            [
                tuple(_text(name, row.get(name, "auto")) for name in index)
                + tuple(made(row) for made in shown.values())
                for row in rows
            ],
        )
    ]


def _number(figure: float) -> str:
    return f"{figure:.3g}" if figure < 1000 else f"{figure:,.0f}"


def _text(name: str, value: Any) -> str:
    if name in ("footprint", "leaving"):
        return bytes_text(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def bytes_text(nbytes: int) -> str:
    """Format bytes in B, KiB, MiB or GiB to three significant digits."""
    for scale, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if nbytes >= scale:
            return f"{nbytes / scale:.3g} {unit}"
    return f"{nbytes} B"
