"""Tables of docs/guide/when-not-to-use.md: measured cases in which another library is faster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from dgpuhash.bench.frames.groupings import GROUPINGS, JOINS

Row = dict[str, Any]
Receipts = dict[str, dict[str, Any]]

HEAD = "| case | dgpuhash | faster library | its figure | times as fast |\n|---|---:|---|---:|---:|"
# A reference without frames, and an index that another call has built.
NO_PEERS = ("join_indices", "dgpuhash standing")
# Longer tables end in a sentence.
MOST_LINES = 24
# Rows of `peers` that a newer receipt has measured again.
MEASURED_AGAIN = {"peers": "frames"}
# What tells two measured cases of a receipt apart.
CASE = (
    *("bench", "verb", "n", "build", "groups", "keys", "pairs", "load", "multiplicity", "how"),
    *("rule", "input", "fraction", "scale", "workers", "mode", "limit"),
)


def tables(receipts: Receipts) -> dict[str, str]:
    """The text of each block of the page, by the block's name."""
    return {name: table(name, receipts.get(name)) for name in BLOCKS}


def table(name: str, receipt: dict[str, Any] | None) -> str:
    """Where, when and how often another library was faster, and each case by its ratio."""
    if receipt is None:
        return "Not measured yet.\n"
    named = BLOCKS[name]
    rows = [row for row in receipt["figures"] if row["bench"] != MEASURED_AGAIN.get(name)]
    cases = list(compared(rows))
    lost = sorted((case for case in cases if case[-1] > 1), key=lambda case: -case[-1])
    lines = [f"{origin(receipt)} Another library is faster in {len(lost)} of {len(cases)} cases."]
    if lost:
        lines += ["", HEAD]
    for ours, theirs, ratio in lost[:MOST_LINES]:
        cells = (named(ours), figure(ours), library(theirs), figure(theirs), f"{ratio:.2f}")
        lines.append(f"| {' | '.join(cells)} |")
    if lost[MOST_LINES:]:
        ratio = lost[MOST_LINES][-1]
        more = len(lost) - MOST_LINES
        lines += ["", f"In {more} more cases it is at most {ratio:.2f} times as fast."]
    return "\n".join(lines) + "\n"


def compared(rows: Iterable[Row]) -> Iterator[tuple[Row, Row, float]]:
    """Our row of each case, the best other library's, and how many times as fast that is."""
    cases: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if "batch" not in row and not row.get("library", "dgpuhash").startswith(NO_PEERS):
            cases.setdefault(tuple(row.get(name) for name in CASE), []).append(row)
    for alike in cases.values():
        ours = [row for row in alike if row.get("library", "dgpuhash") == "dgpuhash"]
        theirs = [row for row in alike if row not in ours and "problem" not in row]
        if ours and theirs:
            best = max(theirs, key=speed)
            yield ours[0], best, speed(best) / speed(ours[0])


def speed(row: Row) -> float:
    """A rate, or the inverse of a time."""
    return float(row["rate"] if "rate" in row else 1 / seconds(row))


def seconds(row: Row) -> float:
    scales = {"us": 1e-6, "ms": 1e-3}
    return float(row["time"] * scales[row["unit"]] if "time" in row else row["amount"])


def figure(row: Row) -> str:
    """A rate in billions a second, a time in its best unit; processor time where it was taken."""
    if "rate" in row:
        return f"{row['rate']:.3g} G/s"
    taken, suffix = seconds(row), "" if "time" in row else " CPU"
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if taken >= size:
            return f"{taken / size:.3g}{suffix} {unit}"
    return f"{taken / 1e-6:.3g}{suffix} µs"


def library(row: Row) -> str:
    return str(row.get("which", row["library"]))


def origin(receipt: dict[str, Any]) -> str:
    """Machine, date and commit of a receipt, and whether it was written by hand."""
    machine = receipt["machine"]["gpu"].replace(" x NVIDIA ", " \N{MULTIPLICATION SIGN} ")
    commit = f"commit {receipt['commit'][:7]}" if "commit" in receipt else "taken by hand"
    return f"{machine}, {receipt['date'][:10]}, {commit}."


def frame_case(row: Row) -> str:
    """A case of `bench frames`: the name of the db-benchmark's question, or the verb, and sizes."""
    verb = row["verb"]
    if verb in JOINS:
        join = JOINS[verb]
        sides = " of two columns" if join.narrow else ""
        what = f"{verb}: {join.how} merge{sides} with the {join.right} frame by {join.on}"
    elif verb in GROUPINGS:
        group = GROUPINGS[verb]
        asked = dict.fromkeys(name for _, name in group.aggregates)
        what = f"{verb}: {', '.join(asked) or group.how} by {', '.join(group.by)}"
    else:
        what = str(verb)
    if f"{row['n']:,} rows" not in what:
        what += f", {row['n']:,} rows"
    if "build" in row and row["build"] != row["n"]:
        what += f" with {row['build']:,}"
    return f"{what}, {row['groups']:,} groups" if "groups" in row else what


def batch_case(row: Row) -> str:
    return f"{row['verb']}, {row['n']:,} {row['keys']} keys"


def round_case(row: Row) -> str:
    return f"a round that changes {row['fraction']:.2%} of the orders, scale {row['scale']:g}"


def pairs_case(row: Row) -> str:
    if row["bench"] == "frames":
        return f"{row['verb']}, {row['n']:,} rows with {row['build']:,}"
    return f"{row['verb']} {row['n']:,} pairs of {row['pairs']} bits, load {row['load']}"


def letters_case(row: Row) -> str:
    return f"{row['verb']} of {row['n']:,} {'letters' if row['verb'] == 'count' else 'reads'}"


def groups_case(row: Row) -> str:
    sizes = f"{row['n']:,} rows on each of {row['workers']} GPUs, {row['groups']:,} groups"
    return f"{row['verb']} of {sizes}"


BLOCKS: dict[str, Callable[[Row], str]] = {
    "dataframes": frame_case,
    "scaling-2": groups_case,
    "frames": frame_case,
    "batches": batch_case,
    "refresh": round_case,
    "kmer": letters_case,
    "peers": pairs_case,
}
