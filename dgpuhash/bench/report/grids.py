"""Figures as tables of text, for a terminal or a document."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from dgpuhash.bench.kmer.tables import tables_of_kmers
from dgpuhash.bench.report.grid import (
    BRACKETS,
    WORDS,
    Grid,
    bytes_text,
    cell_text,
    figure_text,
    number_text,
    pivot,
)
from dgpuhash.bench.report.of_papers import grids_of_papers

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
    "scaling": (
        *("build", "insert", "find", "multi build", "multi find", "merge", "build + merge"),
        *("bulk insert", "bulk find", "replicated merge"),
    ),
}
_STEPS = ("partition", "exchange", "insert", "lookup", "answers", "other")


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
        return pivot("random access, billions a second", rows, ("limit",), "footprint", ())
    if bench == "exchange":
        title = "GB/s that leave each worker, in brackets the share of bare copies in the same run"
        return pivot(title, rows, ("workers", "protocol", "leaving"), "exchange", ())
    if bench == "papers":
        return grids_of_papers(rows)
    if bench == "cpu":
        return _batches(rows)
    if bench == "frames":
        cases = [row for row in rows if "amount" not in row]
        return _questions([row for row in rows if "amount" in row]) + _cases(cases)
    if bench == "growth":
        title = "billions of rows a second, milliseconds, table's bytes and lines a lookup; beside "
        title += "a table with room, its first slices, and other keys"
        return pivot(title, rows, ("n", "batch"), "verb", ())
    if bench == "aggregates":
        return pivot("milliseconds", rows, ("n", "groups", "verb"), "library", ())
    if bench == "groupbys":
        title = "milliseconds until the client knows, rows of a worker"
        return pivot(title, rows, ("n", "workers", "groups", "verb"), "library", ())
    if bench == "refresh":
        return _rounds(rows)
    if bench == "kmer":
        return [Grid(*each) for each in tables_of_kmers(rows)]
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
        title = f"billions of rows a second, {BRACKETS}"
        made += pivot(title, other, ("pairs", "n", "distribution", "load", "method"), "verb", verbs)
    else:
        beside = "in brackets as many random keys beside that" if bench == "close" else BRACKETS
        title = f"milliseconds, {beside}"
        index = {
            "group": ("pairs", "n", "groups", "distribution", "library"),
            "join": ("n", "build", "distribution", "hit_rate", "library"),
            "close": ("n", "distribution"),
        }[bench]
        made += pivot(title, other, index, "verb", verbs)
    title = "microseconds of one call, and until it returns"
    if any("overhead" in row for row in batches):
        title += ", of which more than an empty launch"
    made += pivot(title, batches, ("pairs", "n", "batch", "method"), "verb", verbs)
    return made + _memory(memory)


def _batches(rows: Sequence[Row]) -> list[Grid]:
    """Return a table for each kind of keys: a line for each verb and library."""
    title = "keys: microseconds of a call, in brackets the wall and the CPU time in dgpuhash's"
    numbers = sorted({row["n"] for row in rows})
    return [
        grid
        for kind in dict.fromkeys(row["keys"] for row in rows)
        for grid in pivot(
            f"{kind} {title}", [row for row in rows if row["keys"] == kind], ("verb", "library"),
            "n", numbers, _beside_ours,
        )
    ]  # fmt: skip


def _beside_ours(row: Row) -> str:
    if "ratio" not in row:
        return number_text(row["time"])
    wall, cpu = (
        f"{each:.1f}" if each >= 1 else f"{each:.2f}" for each in (row["ratio"], row["cpu_ratio"])
    )
    return f"{number_text(row['time'])} ({wall}, {cpu})"


def _questions(rows: Sequence[Row]) -> list[Grid]:
    """Return the tables of the questions about frames: a column for each library.

    For each number of rows there is one of CPU times, with what ours take beside the best of the
    other libraries, and one of wall times.

    Examples
    --------
    >>> row = {"n": 1000, "verb": "j1", "how": "inner", "unit": "CPU s", "seconds": 0.25}
    >>> theirs = {**row, "library": "pandas", "amount": 0.5}
    >>> ours = {**row, "library": "dgpuhash", "amount": 0.25, "peer": 0.5}
    >>> cpu, wall = _questions([theirs, ours])
    >>> cpu.header, cpu.lines
    (('question', 'verb', 'pandas', 'dgpuhash', 'dgpuhash / best'),
     [('j1', 'inner', '0.5', '0.25', '0.50')])
    >>> wall.header, wall.lines
    (('question', 'verb', 'pandas', 'dgpuhash'), [('j1', 'inner', '0.25', '0.25')])
    """
    made = []
    for n in dict.fromkeys(row["n"] for row in rows):
        own = [row for row in rows if row["n"] == n]
        beside = [
            {**row, "library": f"{row['library']} / best", "ratio": row["amount"] / row["peer"]}
            for row in own
            if "peer" in row
        ]
        of_joins = f"{n:,} rows, of joins on the left"
        title = (
            f"CPU seconds of all processes, {of_joins}, and ours beside the best of the others in "
            "the same process, or on a cluster as large"
        )
        index = ("verb", "how"), "library", ()
        made += pivot(title, own + beside, *index, _cpu_seconds)
        title = f"wall seconds, {of_joins}"
        made += pivot(title, own, *index, lambda row: f"{row['seconds']:.3g}")
    return [_renamed(grid, {"verb": "question", "how": "verb"}) for grid in made]


def _cases(rows: Sequence[Row]) -> list[Grid]:
    """Return the tables of merges and of groupbys beside the device's libraries."""
    title = "milliseconds of a call, in brackets the speed beside the best other library's"
    bare = "and beside that of join_indices and bare gathers"
    index = ("verb", "n", "build", "groups"), "library", ()
    made = pivot(f"merges: {title}, {bare}", [row for row in rows if "build" in row], *index, _case)
    made += pivot(f"groupbys: {title}", [row for row in rows if "build" not in row], *index, _case)
    called = [row for row in rows if {"calls", "c_calls"} <= row.keys()]
    made += pivot("calls of Python functions, and of others", called, *index, _calls)
    return [_renamed(grid, {"verb": "case"}) for grid in made]


def _rounds(rows: Sequence[Row]) -> list[Grid]:
    """Return the tables of rounds of changes: a line for each fraction, a column a library."""
    rounds = [row for row in rows if row["verb"] == "round"]
    own = [row for row in rounds if "standing_bytes" in row]
    index = ("scale", "fraction", "n"), "library", ()
    title = "milliseconds of a round, over the fastest anew, and of its change and answers"
    made = pivot(title, rounds, *index, _of_round)
    made += pivot("rows changed a second", rounds, *index, _rows_a_second)
    made += pivot(
        "CPU milliseconds of a round", rounds, *index, lambda row: number_text(row["cpu"])
    )
    title = "bytes beside the rows of tables: key tables and groups"
    made += pivot(title, own, *index, lambda row: bytes_text(row["standing_bytes"]))
    even = [row for row in rows if row["verb"] == "break-even"]
    title = "fraction of the orders from which on all anew takes less time"
    return made + pivot(title, even, ("scale",), "library", (), lambda row: f"{row['amount']:.2%}")


def _rows_a_second(row: Row) -> str:
    return number_text(1e3 * row["n"] / row["time"])


def _of_round(row: Row) -> str:
    steps = " + ".join(map(number_text, row["steps"].values()))
    return f"{number_text(row['time'])} ({row['share']:.2f}) = {steps}"


def _calls(row: Row) -> str:
    return f"{row['calls']:,} + {row['c_calls']:,}"


def _case(row: Row) -> str:
    if "problem" in row:
        return figure_text(row)
    beside = [f"{row['peer'] / max(row['time'], 1e-9):.2f}"] if "peer" in row else []
    beside += [f"{row['ratio']:.0%}"] if "ratio" in row and "peer" in row else []
    return number_text(row["time"]) + (f" ({', '.join(beside)})" if beside else "")


def _cpu_seconds(row: Row) -> str:
    return f"{row['ratio']:.2f}" if "ratio" in row else f"{row['amount']:.3g}"


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
    made = pivot(title, limits, ("mode", "workers", "n"), "limit", ())
    title = f"billions of rows a second of all workers, {BRACKETS}, without the exchange"
    made += pivot(title, verbs, index, "verb", order)
    title = "milliseconds until the client knows, and of them at work on the slowest worker"
    made += pivot(title, verbs, index, "verb", order, _milliseconds)
    title = "efficiency: the rate beside that of one worker times their number"
    made += pivot(title, beside, index, "verb", order, _efficiency)
    made = [_renamed(one, {WORDS["n"]: "rows a worker"}) for one in made]
    told = [row for row in verbs if "steps" in row]
    if told:
        names = [name for name in _STEPS if any(name in row["steps"] for row in told)]
        lines = []
        for row in told:
            whole = sum(row["steps"].values())
            parts = [_share(row["steps"].get(name), whole) for name in names]
            parts.append(_share(row.get("overlap"), whole))
            parts.append(_efficiency(row) if "efficiency" in row else "")
            where = (cell_text(name, row[name]) for name in ("mode", "verb", "workers", "rows"))
            lines.append((*where, *parts, bytes_text(row["exchanged_bytes"])))
        title = (
            "milliseconds of each step and its share, in a run apart with a clock between the "
            "steps: of builds and inserts by tasks, and of bulk verbs, whose overlap is what they "
            "take less than their steps; other lookups do not tell theirs"
        )
        header = ("mode", "verb", "workers", "rows", *names, "overlap", "efficiency", "exchanged")
        made.append(Grid(title, header, lines))
    return made


def _share(milliseconds: float | None, whole: float) -> str:
    if not milliseconds or not whole:
        return ""
    return f"{number_text(milliseconds)} ({milliseconds / whole:.0%})"


def _model(rows: Sequence[Row]) -> list[Grid]:
    figures: list[tuple[str, ...]] = [
        (row["figure"], f"{figure_text(row)} {row['unit']}", row["source"])
        for row in rows
        if "figure" in row
    ]
    made = [Grid("figures that the model is made of", ("figure", "is", "from"), figures)]
    simulated = [row for row in rows if "messages" in row]
    if simulated:
        return [*made, _simulated(simulated)]
    index = ("mode", "verb", "workers", "hosts", "rows")
    lines = []
    names = ("partition", "insert", "lookup", "exchange", "other")
    for row in rows:
        if "verb" in row:
            where = tuple(cell_text(name, row[name]) for name in index)
            phases = (number_text(row["phases"][name]) if name in row["phases"] else ""
                      for name in names)  # fmt: skip
            overlap = number_text(row["overlap"]) if row["overlap"] else ""
            said = (
                overlap,
                number_text(1e3 * row["seconds"]),
                number_text(row["rate"]),
                _efficiency(row),
            )
            checked = ("", "")
            if "error" in row:
                taken = ", taken from it" if row["calibrates"] else ""
                checked = (
                    number_text(1e3 * row["measured_seconds"]),
                    f"{row['error']:+.0%}{taken}",
                )
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


def _simulated(rows: Sequence[Row]) -> Grid:
    """Return the simulated verbs, a line for each transport."""
    index = ("verb", "workers", "hosts", "exchange")
    lines = [
        (
            *(cell_text(name, row[name]) for name in index),
            number_text(1e3 * row["seconds"]),
            *(number_text(row[name]) for name in ("working", "links", "talking", "copying")),
            row["bound"],
            *(f"{row[name]:,}" for name in ("messages", "far_messages", "most_messages")),
            *(bytes_text(row[name]) for name in ("nvlink_bytes", "nic_bytes")),
        )
        for row in rows
    ]
    header = (
        *index,
        "ms",
        "kernels",
        "links at least",
        "messages of a rank",
        "copies",
        "longest",
        "messages",
        "between hosts",
        "most of a rank",
        "in hosts",
        "over NICs",
    )
    return Grid("a simulation: milliseconds, messages and bytes by link", header, lines)


def _milliseconds(row: Row) -> str:
    parts = (row[name] for name in ("seconds", "worker_seconds") if name in row)
    return " / ".join(number_text(1e3 * each) for each in parts)


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
            tuple(WORDS[name] for name in index) + tuple(shown),
            [
                tuple(cell_text(name, row.get(name, "auto")) for name in index)
                + tuple(made(row) for made in shown.values())
                for row in rows
            ],
        )
    ]
