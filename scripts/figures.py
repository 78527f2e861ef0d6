"""Writes what documents quote of receipts: README tables, pages of docs/, the plots.

figures.py            rewrites them
figures.py --check    exits 1 when one of them is not what the receipts say
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import losses
import plots
from benchmarks import page, page_of_dataframes, page_of_papers

ROOT = Path(__file__).resolve().parents[1]
README, WHEN_NOT, PAGE, DATAFRAMES, PAPERS, FOLDER = (
    ROOT / "README.md",
    ROOT / "docs" / "guide" / "when-not-to-use.md",
    ROOT / "docs" / "benchmarks.md",
    ROOT / "docs" / "dataframes.md",
    ROOT / "docs" / "papers.md",
    ROOT / "docs" / "figures",
)
END = "<!-- end -->\n"
NONE = "None are published yet: `make gpu` on a machine with a GPU measures them.\n"
Receipts = dict[str, dict[str, Any]]

# The six rows of the README: what, the receipt's row, and the peer's, or None for the same receipt.
_BIG = {"bench": "tables", "pairs": "32/32", "n": 1 << 28, "load": 0.8}
_SMALL = {**_BIG, "n": 1 << 22}
_GROUP = {"bench": "group", "n": 1 << 27, "groups": 1 << 24}
_JOIN = {"bench": "join", "n": 1 << 27, "build": 1 << 27}
ROWS = (
    ("insert 2²⁸ pairs of 4 + 4 bytes, load 0.8", {**_BIG, "verb": "insert"}),
    ("find them", {**_BIG, "verb": "find"}),
    ("find absent keys", {**_BIG, "verb": "absent"}),
    ("insert 2²² such pairs (within the L2 cache)", {**_SMALL, "verb": "insert"}),
    ("group 2²⁷ int64 rows, 2²⁴ groups, sum and count", {**_GROUP, "verb": "sum + count"}),
    ("inner join of 2²⁷ with 2²⁷ int64 keys, row numbers", {**_JOIN, "verb": "inner"}),
)
# Where merges were measured, in the order of the table. A merge of two frames builds its table.
MERGED = ("scaling-4", "peers-2", "dataframes", "cpu")
_LEFT_OUT = ("8·10⁷ rows a side", "2²⁷ rows with 2²⁴")
_WHOLE_MERGE = "inner merge"


def speed(receipts: Receipts) -> str:
    """The README's rows of speed, beside the bare accesses and the best peer."""
    if "figures" not in receipts:
        return NONE
    gpu = f"{plots.device(receipts['figures'])}, {when(receipts['figures'])}"
    peers = f"best peer ({when(receipts['peers'])})" if "peers" in receipts else "best peer"
    lines = [f"| {gpu} | dgpuhash | bare accesses | {peers} |", "|---|---:|---:|---:|"]
    for what, wanted in ROWS:
        (ours,) = found(receipts, "figures", {**wanted, "library": "dgpuhash"})
        others = [
            row
            for name in ("figures", "peers")
            for row in found(receipts, name, wanted)
            if row.get("library", "dgpuhash") != "dgpuhash"
        ]
        if "rate" in ours:
            best = max(others, key=lambda row: row["rate"], default=None)
        else:
            best = min(others, key=lambda row: row["time"], default=None)
        cells = (value(ours), value({**ours, kind(ours): ours["floor"]}), named(best))
        lines.append(f"| {what} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def found(receipts: Receipts, name: str, wanted: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a receipt that say what is wanted; those that name no library are ours."""
    rows = receipts.get(name, {}).get("figures", [])
    return [
        row
        for row in rows
        if "batch" not in row
        and all({"library": "dgpuhash", **row}.get(key) == each for key, each in wanted.items())
    ]


def kind(row: dict[str, Any]) -> str:
    return "rate" if "rate" in row else "time"


def value(row: dict[str, Any]) -> str:
    """A figure with its unit."""
    return f"{row[kind(row)]:.3g} {'G/s' if kind(row) == 'rate' else 'ms'}"


def named(row: dict[str, Any] | None) -> str:
    """A peer's figure and the peer."""
    if row is None:
        return ""
    peer = row.get("which", row["library"])
    return value(row) if peer == "best peer" else f"{value(row)} ({peer})"


def break_even(receipts: Receipts) -> str:
    """From which merge on a build has paid, beside the fastest library that joins anew."""
    head = "| data | build, ms | a merge, ms | fastest other, ms | pays from merge | measured |"
    lines = [head, "|---|---:|---:|---:|---:|---|"]
    for data, build, merge, (library, other), run in measured(receipts):
        built = figure(build) if build else "in the merge"
        pays = pays_from(build, merge, other)
        cells = (data, built, figure(merge), f"{figure(other)} ({library})", pays, run)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n" if len(lines) > 2 else NONE


def pays_from(build: float, merge: float, other: float) -> str:
    """The number of the first merge with which build and merges have taken less than the other."""
    return f"{max(1, math.ceil(build / (other - merge)))}" if other > merge else "never"


def figure(milliseconds: float) -> str:
    return f"{milliseconds:.3g}" if milliseconds < 1000 else f"{milliseconds:,.0f}"


def measured(receipts: Receipts) -> Iterator[tuple[str, float, float, tuple[str, float], str]]:
    """Build, merge and the fastest other library's merge, each with its data and its run."""
    for receipt in (receipts[name] for name in MERGED if name in receipts):
        cases: dict[str, dict[str, dict[str, float]]] = {}
        for row in receipt["figures"]:
            if row["bench"] == "frames" and row["verb"] == _WHOLE_MERGE:
                data, taken = f"{count(row['n'])} rows with {count(row['build'])}", row["time"]
            elif row["bench"] == "scaling" and "seconds" in row:
                data, taken = f"{count(row['rows'])} rows a side", 1e3 * row["seconds"]
            else:
                continue
            verb = "merge" if row["verb"] == _WHOLE_MERGE else row["verb"]
            cases.setdefault(data, {}).setdefault(row["library"], {})[verb] = taken
        for data, libraries in cases.items():
            libraries.pop("join_indices + gathers", None)
            ours = libraries.pop("dgpuhash")
            # One size of each kind of cluster.
            if not libraries or data in _LEFT_OUT:
                continue
            build = ours.get("build + merge", ours["merge"]) - ours["merge"]
            library = min(libraries, key=lambda each: libraries[each]["merge"])
            best = (f"{library}{left_out(libraries)}", libraries[library]["merge"])
            yield f"{plots.device(receipt)}: {data}", build, ours["merge"], best, when(receipt)


def left_out(libraries: Iterable[str]) -> str:
    """Say where Dask-cuDF ran without cudf-polars, the fastest library on several GPUs."""
    several = any("cudf" in each and "Dask" in each for each in libraries)
    measured_all = any(each.startswith("cudf-polars") for each in libraries)
    return "; cudf-polars was not run" if several and not measured_all else ""


def when(receipt: dict[str, Any]) -> str:
    """The date and commit of a run; those of no commit were written by hand."""
    commit = receipt.get("commit", "")[:7]
    return f"{receipt['date'][:10]}, {commit or 'by hand'}"


def count(rows: int) -> str:
    """A number of rows, as a power where it is one or a few times one.

    Examples
    --------
    >>> count(1 << 27), count(400_000_000), count(1234)
    ('2²⁷', '4·10⁸', '1,234')
    """
    digits = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
    if rows > 1 and rows.bit_count() == 1:
        return f"2{str(rows.bit_length() - 1).translate(digits)}"
    first, rest = str(rows)[0], str(rows)[1:]
    return f"{rows:,}" if not rest or int(rest) else f"{first}·10{str(len(rest)).translate(digits)}"


def rewritten(text: str, blocks: dict[str, str]) -> str:
    """`text` with each block between its markers."""
    for name, written in blocks.items():
        start = f"<!-- {name}: written by scripts/figures.py -->\n"
        before, marked, rest = text.partition(start)
        if not marked:
            raise SystemExit(f"a page has no line {start.strip()!r}")
        _, _, after = rest.partition(END)
        text = before + start + written + END + after
    return text


def blocks_of_readme(receipts: Receipts) -> dict[str, str]:
    return {"speed": speed(receipts), "break-even": break_even(receipts)}


def kept() -> Receipts:
    """The receipts by name."""
    paths = sorted((ROOT / "receipts").glob("*.json"))
    return {path.stem: json.loads(path.read_text()) for path in paths}


def main() -> int:
    receipts = kept()
    made = {
        README: rewritten(README.read_text(), blocks_of_readme(receipts)),
        WHEN_NOT: rewritten(WHEN_NOT.read_text(), losses.tables(receipts)),
        PAGE: page(receipts),
        DATAFRAMES: page_of_dataframes(receipts),
        PAPERS: page_of_papers(receipts),
    }
    if sys.argv[1:] == ["--check"]:
        wrong = [path for path, text in made.items() if not same(path, text)]
        for path in wrong + (stale := plots.stale(receipts, FOLDER)):
            name = path.relative_to(ROOT)
            print(f"{name} shows other figures than receipts/; run scripts/figures.py")
        return int(bool(wrong or stale))
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    plots.draw_all(receipts, FOLDER)
    return 0


def same(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


if __name__ == "__main__":
    sys.exit(main())
