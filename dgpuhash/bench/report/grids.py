"""Choose the text tables of each benchmark's figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from dgpuhash.bench.report.grid import (
    BRACKETS,
    Grid,
    bytes_text,
    figure_text,
    listing,
    number_text,
    pivot,
)
from dgpuhash.bench.report.of_papers import grids_of_papers

Row = dict[str, Any]
_STEPS = ("partition", "exchange", "insert", "lookup", "answers", "other")
_PHASES = ("partition", "insert", "lookup", "exchange", "other")


@dataclass(frozen=True, slots=True)
class Pivot:
    """Table of a benchmark's rows.

    Attributes
    ----------
    title : str
    index : str
        Fields of which each combination of values has a line.
    column : str
        The field whose values have a column each.
    order : tuple of str
        Values whose columns come first.
    shown : callable
        Formats the cell of a row.
    where : callable
        Which rows it shows.
    names : tuple of (str, str)
        Names of header cells, and others in their place.
    """

    title: str
    index: str
    column: str
    order: tuple[str, ...] = ()
    shown: Callable[[Row], str] = figure_text
    where: Callable[[Row], Any] = lambda row: True
    names: tuple[tuple[str, str], ...] = ()

    def grids(self, rows: Sequence[Row]) -> list[Grid]:
        """Return the table; none if no row is shown."""
        own = [row for row in rows if self.where(row)]
        made = pivot(self.title, own, self.index.split(), self.column, self.order, self.shown)
        names = dict(self.names)
        return [
            replace(grid, header=tuple(names.get(name, name) for name in grid.header))
            for grid in made
        ]


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
    made = [grid for table in _PIVOTS.get(bench, ()) for grid in table.grids(rows)]
    return [*made, *_MORE[bench](rows)] if bench in _MORE else made


def _batches(rows: Sequence[Row]) -> Iterator[Grid]:
    """Yield a table for each kind of keys: a line for each verb and library."""
    title = "keys: microseconds of a call, in brackets the wall and the CPU time in dgpuhash's"
    numbers = sorted({row["n"] for row in rows})
    for kind in dict.fromkeys(row["keys"] for row in rows):
        own = [row for row in rows if row["keys"] == kind]
        yield from pivot(f"{kind} {title}", own, ("verb", "library"), "n", numbers, _beside_ours)


def _beside_ours(row: Row) -> str:
    if "ratio" not in row:
        return number_text(row["time"])
    wall, cpu = (
        f"{each:.1f}" if each >= 1 else f"{each:.2f}" for each in (row["ratio"], row["cpu_ratio"])
    )
    return f"{number_text(row['time'])} ({wall}, {cpu})"


def _questions(rows: Sequence[Row]) -> Iterator[Grid]:
    """Yield the tables of queries on frames: a column for each library.

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
    for n in dict.fromkeys(row["n"] for row in rows):
        own = [row for row in rows if row["n"] == n]
        beside = [
            {**row, "library": f"{row['library']} / best", "ratio": row["amount"] / row["peer"]}
            for row in own
            if "peer" in row
        ]
        of_joins = f"{n:,} rows, of joins on the left"
        wall = Pivot(
            f"wall seconds, {of_joins}", "verb how", "library", (),
            lambda row: f"{row['seconds']:.3g}", names=(("verb", "question"), ("how", "verb")),
        )  # fmt: skip
        title = (
            f"CPU seconds of all processes, {of_joins}, and ours beside the best of the others in "
            "the same process, or on a cluster as large"
        )
        yield from replace(wall, title=title, shown=_cpu_seconds).grids(own + beside)
        yield from wall.grids(own)


def _cpu_seconds(row: Row) -> str:
    return f"{row['ratio']:.2f}" if "ratio" in row else f"{row['amount']:.3g}"


def _frames(rows: Sequence[Row]) -> Iterator[Grid]:
    yield from _questions([row for row in rows if "amount" in row])
    cases = [row for row in rows if "amount" not in row]
    yield from (grid for table in _CASES for grid in table.grids(cases))


def _case(row: Row) -> str:
    if "problem" in row:
        return figure_text(row)
    beside = [f"{row['peer'] / max(row['time'], 1e-9):.2f}"] if "peer" in row else []
    beside += [f"{row['ratio']:.0%}"] if "ratio" in row and "peer" in row else []
    return number_text(row["time"]) + (f" ({', '.join(beside)})" if beside else "")


def _of_round(row: Row) -> str:
    steps = " + ".join(map(number_text, row["steps"].values()))
    return f"{number_text(row['time'])} ({row['share']:.2f}) = {steps}"


def _steps(rows: Sequence[Row]) -> Iterator[Grid]:
    """Yield the table of the steps of builds, inserts and bulk verbs."""
    stepped = [row for row in rows if "steps" in row]
    if stepped:
        title = (
            "milliseconds of each step and its share, in a run apart with a clock between the "
            "steps: of builds and inserts by tasks, and of bulk verbs, whose overlap is what they "
            "take less than their steps; other lookups do not tell theirs"
        )
        names = [name for name in _STEPS if any(name in row["steps"] for row in stepped)]
        yield listing(
            title, stepped, "mode", "verb", "workers", "rows",
            *((name, lambda row, name=name: _share(row, row["steps"].get(name))) for name in names),
            ("overlap", lambda row: _share(row, row.get("overlap"))),
            ("efficiency", lambda row: _efficiency(row) if "efficiency" in row else ""),
            ("exchanged", lambda row: bytes_text(row["exchanged_bytes"])),
        )  # fmt: skip


def _share(row: Row, milliseconds: float | None) -> str:
    whole = sum(row["steps"].values())
    if not milliseconds or not whole:
        return ""
    return f"{number_text(milliseconds)} ({milliseconds / whole:.0%})"


def _milliseconds(row: Row) -> str:
    parts = (row[name] for name in ("seconds", "worker_seconds") if name in row)
    return " / ".join(number_text(1e3 * each) for each in parts)


def _efficiency(row: Row) -> str:
    return f"{row['efficiency']:.2f}"


def _model(rows: Sequence[Row]) -> Iterator[Grid]:
    """Yield the figures of the model, then what it predicts, or what it simulated."""
    figures = [row for row in rows if "figure" in row]
    yield listing(
        "figures that the model is made of", figures, "figure",
        ("is", lambda row: f"{figure_text(row)} {row['unit']}"),
        ("from", lambda row: row["source"]),
    )  # fmt: skip
    in_all = lambda row: number_text(1e3 * row["seconds"])  # noqa: E731
    if simulated := [row for row in rows if "messages" in row]:
        yield listing(
            "a simulation: milliseconds, messages and bytes by link", simulated,
            "verb", "workers", "hosts", "exchange", ("ms", in_all),
            *_fields(number_text, kernels="working", links_at_least="links",
                     messages_of_a_rank="talking", copies="copying"),
            ("longest", lambda row: row["bound"]),
            *_fields("{:,}".format, messages="messages", between_hosts="far_messages",
                     most_of_a_rank="most_messages"),
            *_fields(bytes_text, in_hosts="nvlink_bytes", over_NICs="nic_bytes"),
        )  # fmt: skip
        return
    yield listing(
        "a model: milliseconds that it predicts of each phase",
        [row for row in rows if "verb" in row],
        "mode", "verb", "workers", "hosts", "rows",
        *((name, lambda row, name=name: _number(row["phases"], name)) for name in _PHASES),
        ("overlap", lambda row: number_text(row["overlap"]) if row["overlap"] else ""),
        ("in all", in_all),
        ("G/s", lambda row: number_text(row["rate"])),
        ("efficiency", _efficiency),
        ("longest", lambda row: row["bound"]),
        ("measured", lambda row: _number(row, "measured_seconds", 1e3)),
        ("error", _error),
    )  # fmt: skip


def _number(row: Row, name: str, scale: float = 1) -> str:
    return number_text(scale * row[name]) if name in row else ""


def _error(row: Row) -> str:
    if "error" not in row:
        return ""
    return f"{row['error']:+.0%}{', taken from it' if row['calibrates'] else ''}"


def _fields(text: Callable[[Any], str], **names: str) -> list[tuple[str, Callable[[Row], str]]]:
    """Return columns of fields, each under a name in which ``_`` stands for a space."""

    def shown(field: str) -> Callable[[Row], str]:
        return lambda row: text(row[field])

    return [(name.replace("_", " "), shown(field)) for name, field in names.items()]


def _kmers(rows: Sequence[Row]) -> Iterator[Grid]:
    """Yield a table for each verb, rule and number of rows: a line for each program.

    Of those on workers a line has a number of workers.

    Examples
    --------
    >>> row = {"n": 2000, "verb": "count", "input": "gz", "amount": 3.0, "unit": "CPU s",
    ...        "seconds": 2.0, "floor": 1.0, "ratio": 0.5, "peak_nbytes": 2**30}
    >>> ours = {**row, "library": "dgpuhash", "peer": 4.0}
    >>> theirs = {**row, "library": "KMC", "seconds": 4.0, "ratio": 0.25, "differing": 0}
    >>> (grid,) = _kmers([ours, theirs])
    >>> grid.title
    'count of 2,000 letters, 2 threads'
    >>> for cells in zip(grid.header, *grid.lines):
    ...     print(*cells, sep=" | ")
    input | gz | gz
    program | dgpuhash | KMC
    seconds | 2 | 4
    CPU seconds | 3 | 3
    a second | 0.001 M | 0.0005 M
    reading alone | 1 (50%) | 1 (25%)
    seconds of ours |  | 2.00 times
    answers that differ |  | 0
    GiB at most | 1 | 1
    """
    served = [row for row in rows if row["verb"] == "serve"]
    alone = [row for row in rows if "workers" not in row and row["verb"] != "serve"]
    for of_table in dict.fromkeys(map(_of_kmers, alone)):
        verb, rule, n, on_device, threads = of_table
        own = [row for row in alone if _of_kmers(row) == of_table]
        ours = {row["input"]: row["seconds"] for row in own if row["library"] == "dgpuhash"}
        by = f" by the rule of {rule}" if rule else ""
        where = "in the memory of the device" if on_device else f"{threads} threads"
        yield listing(
            f"{verb}{by} of {n:,} {'pairs of reads' if verb == 'classify' else 'letters'}, {where}",
            own, "input", ("program", lambda row: row["library"]),
            *_times("bare accesses" if on_device else "reading alone"),
            ("seconds of ours", partial(_beside_our_seconds, ours)),
            ("answers that differ", _differing),
            ("GiB at most", _gibibytes),
        )  # fmt: skip
    for rule, threads in dict.fromkeys((row["rule"], row["threads"]) for row in served):
        yield listing(
            f"calls by a server by the rule of {rule}, milliseconds, {threads} threads",
            [row for row in served if (row["rule"], row["threads"]) == (rule, threads)],
            ("pairs", lambda row: f"{row['n']:,}"), "case", "clients",
            ("program", lambda row: row["library"]),
            ("median", lambda row: _milliseconds_of(row["seconds"])),
            ("slowest", lambda row: _milliseconds_of(row["slowest"]) if "slowest" in row else ""),
            ("index in the client's process", _beside_floor),
            ("CPU", lambda row: _milliseconds_of(row["amount"])),
            ("not installed", lambda row: row.get("absent", "")),
            ("answers that differ", _differing), ("GiB", _gibibytes),
        )  # fmt: skip
    on_workers = sorted((row for row in rows if "workers" in row), key=lambda row: row["mode"])
    for verb, rule in dict.fromkeys((row["verb"], row["rule"]) for row in rows if "workers" in row):
        yield listing(
            f"{verb} by the rule of {rule}, on workers with as much each",
            [row for row in on_workers if (row["verb"], row["rule"]) == (verb, rule)],
            "mode", ("workers", lambda row: str(row["workers"])),
            ("letters or pairs", lambda row: f"{row['n']:,}"), *_times("reading alone"),
            ("efficiency", lambda row: _efficiency(row) if "efficiency" in row else ""),
            ("GiB of a worker at most", _gibibytes),
        )  # fmt: skip


def _milliseconds_of(seconds: float) -> str:
    return f"{1000 * seconds:.3g}"


def _beside_floor(row: Row) -> str:
    return f"{_milliseconds_of(row['floor'])} ({row['seconds'] / row['floor']:.2f} times)"


def _of_kmers(row: Row) -> tuple[str, str, int, bool, int]:
    on_device = row["input"] == "letters"
    return row["verb"], row.get("rule", ""), row["n"], on_device, row.get("threads", 2)


def _times(floor: str) -> list[tuple[str, Callable[[Row], str]]]:
    """Return the columns of times; `floor` names that of the least."""
    return [
        ("seconds", lambda row: f"{row['seconds']:.3g}"),
        ("CPU seconds", lambda row: f"{row['amount']:.3g}"),
        ("a second", _a_second),
        (floor, lambda row: f"{row['floor']:.3g} ({row['ratio']:.0%})"),
    ]


def _a_second(row: Row) -> str:
    scale, unit = (1e3, "k") if row["verb"] == "classify" else (1e6, "M")
    return f"{row['n'] / row['seconds'] / scale:.3g} {unit}"


def _differing(row: Row) -> str:
    return f"{row['differing']:,}" if "differing" in row else ""


def _gibibytes(row: Row) -> str:
    return f"{row['peak_nbytes'] / 2**30:.2g}"


def _beside_our_seconds(ours: dict[str, float], row: Row) -> str:
    if row["library"] == "dgpuhash" or row["input"] not in ours:
        return ""
    return f"{row['seconds'] / ours[row['input']]:.2f} times"


def _memory(rows: Sequence[Row]) -> Iterator[Grid]:
    own = [row for row in rows if row["verb"] == "memory"]
    if own:
        methods = any("method" in row for row in own)
        yield listing(
            "memory at rest and while built", [{"method": "auto", **row} for row in own],
            "pairs", "n", "distribution", "load", *(["method"] if methods else []),
            ("table", lambda row: bytes_text(row["table_bytes"])),
            ("of stored pairs / load", lambda row: f"{row['at_rest']:.2f}"),
            ("besides while built, of batch", lambda row: f"{row['while_built']:.2f}"),
        )  # fmt: skip


def _whole(row: Row) -> bool:
    return row["verb"] != "memory" and "batch" not in row


_VERBS = ("insert", "build", "find", "contains", "absent", "erase")
_RATES = Pivot(
    f"billions of rows a second, {BRACKETS}", "pairs n distribution load method", "verb", _VERBS,
    where=_whole,
)  # fmt: skip
_TIMES = f"milliseconds, {BRACKETS}"
_CALL = "microseconds of one call, and until it returns"
_ROUND = Pivot("", "scale fraction n", "library", where=lambda row: row["verb"] == "round")
_SCALED = Pivot(
    "", "mode workers n library", "verb",
    (
        *("build", "insert", "find", "multi build", "multi find", "merge", "build + merge"),
        *("bulk insert", "bulk find", "replicated merge"),
    ),
    where=lambda row: "verb" in row, names=(("rows", "rows a worker"),),
)  # fmt: skip
_CASE = Pivot("", "verb n build groups", "library", shown=_case, names=(("verb", "case"),))
_SPEED = "milliseconds of a call, in brackets the speed beside the best other library's"
_CASES = (
    replace(
        _CASE, title=f"merges: {_SPEED}, and beside that of join_indices and bare gathers",
        where=lambda row: "build" in row,
    ),
    replace(_CASE, title=f"groupbys: {_SPEED}", where=lambda row: "build" not in row),
    replace(
        _CASE, title="calls of Python functions, and of others",
        where=lambda row: {"calls", "c_calls"} <= row.keys(),
        shown=lambda row: f"{row['calls']:,} + {row['c_calls']:,}",
    ),
)  # fmt: skip
_PIVOTS: dict[str, tuple[Pivot, ...]] = {
    "limits": (Pivot("random access, billions a second", "limit", "footprint"),),
    "tables": (
        _RATES,
        Pivot(_CALL, "pairs n batch method", "verb", _VERBS,
              where=lambda row: "batch" in row and "overhead" not in row),
        Pivot(f"{_CALL}, of which more than an empty launch", "pairs n batch method", "verb",
              _VERBS, where=lambda row: "overhead" in row),
    ),
    "multi": (replace(_RATES, order=("build", "retrieve", "retrieve 1…n")),),
    "group": (
        Pivot(_TIMES, "pairs n groups distribution library", "verb",
              ("sum + count", "factorize", "value_counts", "unique")),
    ),
    "join": (
        Pivot(_TIMES, "n build distribution hit_rate library", "verb",
              ("inner", "left", "semi", "standing", "merge")),
    ),
    "close": (
        Pivot("milliseconds, in brackets as many random keys beside that", "n distribution", "verb",
              ("HashSet", "HashMap", "MultiMap", "slices", "factorize", "unique", "value_counts",
               "group_reduce", "isin", "join_indices")),
    ),
    "growth": (
        Pivot("billions of rows a second, milliseconds, table's bytes and lines a lookup; beside a "
              "table with room, its first slices, and other keys", "n batch", "verb"),
    ),
    "aggregates": (Pivot("milliseconds", "n groups verb", "library"),),
    "groupbys": (
        Pivot("milliseconds until the client knows, rows of a worker", "n workers groups verb",
              "library"),
    ),
    "refresh": (
        replace(_ROUND, shown=_of_round, title="milliseconds of a round, over the fastest anew, "
                "and of its change and answers"),
        replace(_ROUND, title="rows changed a second",
                shown=lambda row: number_text(1e3 * row["n"] / row["time"])),
        replace(_ROUND, title="CPU milliseconds of a round",
                shown=lambda row: number_text(row["cpu"])),
        replace(_ROUND, title="bytes beside the rows of tables: key tables and groups",
                where=lambda row: "standing_bytes" in row,
                shown=lambda row: bytes_text(row["standing_bytes"])),
        Pivot("fraction of the orders from which on all anew takes less time", "scale", "library",
              (), lambda row: f"{row['amount']:.2%}", lambda row: row["verb"] == "break-even"),
    ),
    "exchange": (
        Pivot("GB/s that leave each worker, in brackets the share of bare copies in the same run",
              "workers protocol leaving", "exchange"),
    ),
    "scaling": (
        replace(_SCALED, index="mode workers n", column="limit", order=(),
                where=lambda row: "limit" in row,
                title="what each worker's machine allows while all work, billions of rows a "
                "second; latency, and each of many messages, in milliseconds"),
        replace(_SCALED, title=f"billions of rows a second of all workers, {BRACKETS}, without the "
                "exchange"),
        replace(_SCALED, shown=_milliseconds, title="milliseconds until the client knows, and of "
                "them at work on the slowest worker"),
        replace(_SCALED, shown=_efficiency, where=lambda row: "efficiency" in row,
                title="efficiency: the rate beside that of one worker times their number"),
    ),
}  # fmt: skip
_MORE: dict[str, Callable[[Sequence[Row]], Iterator[Grid]]] = {
    "tables": _memory,
    "multi": _memory,
    "cpu": _batches,
    "frames": _frames,
    "kmer": _kmers,
    "papers": lambda rows: iter(grids_of_papers(rows)),
    "scaling": _steps,
    "model": _model,
}
