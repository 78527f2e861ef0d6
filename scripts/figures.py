"""Writes the README's section of measured figures from the receipts.

figures.py            rewrites the section
figures.py --check    exits 1 when the section is not what the receipts say
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from dgpuhash.bench.report.document import markdown_table
from dgpuhash.bench.report.grids import grids

ROOT = Path(__file__).resolve().parents[1]
START, END = "<!-- figures: written by scripts/figures.py -->\n", "<!-- end of figures -->\n"
NONE = "None are published yet: `make gpu` on a machine with a GPU measures them.\n"
# What the README shows, and what a rate or a time is of.
SHOWN = {
    "tables": "Sets and maps of random keys",
    "multi": "Multimaps",
    "group": "Grouping of int64 keys and values",
    "join": "Joins of int64 columns to row numbers",
    "close": "Keys in the order of another table",
}


def section(receipts: dict[str, dict[str, Any]]) -> str:
    """The Markdown between the markers."""
    if "figures" not in receipts:
        return NONE
    receipt = receipts["figures"]
    lines = [
        f"{measured_on(receipt, one_of(receipt['machine']['gpu']))} "
        "Answers are checked on the timed data. In brackets: the share of what the same run "
        "measured for the bare accesses to memory, such as random compare-and-swaps over as many "
        "bytes for insert and random gathers for lookups; `dgpuhash bench` says which for each. "
        "Large batches are inserted in the order of the table, which takes fewer accesses than "
        "those: over 100 %.",
        "",
    ]
    for bench, title in SHOWN.items():
        rows = [row for row in receipt["figures"] if row["bench"] == bench]
        lines += shown(title, bench, [row for row in rows if "batch" not in row])
        lines += in_words(rows)
    for receipt in of_all("scaling", receipts):
        lines += of_several(receipt)
    if proved := proofs(receipts):
        lines.append("Proved by `make gpu`: " + "; ".join(proved) + ".")
    return "\n".join(lines).rstrip() + "\n"


def measured_on(receipt: dict[str, Any], gpu: str) -> str:
    """A sentence of the machine, the software and the time of a run."""
    machine, versions = receipt["machine"], receipt["versions"]
    names = ("cupy-cuda13x", "cupy-cuda12x", "nvidia-cuda-nvrtc")
    software = ", ".join(f"{name} {versions[name]}" for name in names if name in versions)
    return f"{gpu}, driver {machine['driver']}, {software}, {receipt['date']}."


def of_all(part: str, receipts: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """The receipts of a part, of more GPUs first."""
    names = [name for name in receipts if name.partition("-")[0] == part]
    names.sort(key=lambda name: int(name.partition("-")[2] or 1), reverse=True)
    return [receipts[name] for name in names]


def of_several(receipt: dict[str, Any]) -> list[str]:
    """The exchange, the distributed tables and merges on several GPUs."""
    lines = [
        f"{measured_on(receipt, receipt['machine']['gpu'])} Pairs of 8 + 8 bytes, answers checked; "
        f"`make gpu MODE=scaling` at commit {receipt['commit'][:7]}.{remark(receipt)}",
        "",
    ]
    for bench in ("exchange", "scaling"):
        for grid in grids(bench, [row for row in receipt["figures"] if row["bench"] == bench]):
            lines += [f"{grid.title[0].upper()}{grid.title[1:]}:", "", *markdown_table(grid), ""]
    return lines


def one_of(gpus: str) -> str:
    """Where several are, each benchmark has one to itself."""
    return gpus if gpus.startswith("1 x ") else f"One of {gpus}"


def shown(title: str, bench: str, rows: list[dict[str, Any]]) -> list[str]:
    """A table of one benchmark's rates or times, with what they are of above it."""
    made = grids(bench, [row for row in rows if row["verb"] != "memory"])
    lines = []
    for grid in made:
        unit = "ms" if any("time" in row for row in rows) else "billions of rows a second"
        lines += [f"{title}, {unit}:", "", *markdown_table(grid), ""]
    return lines


def in_words(rows: list[dict[str, Any]]) -> list[str]:
    """Sentences of what tables take in memory and of what small batches take in time."""
    said = []
    memory = [row for row in rows if row["verb"] == "memory"]
    if memory:
        said.append(
            f"They take {span(memory, 'at_rest')} times the bytes of their pairs divided by the "
            f"load, and while they are built {span(memory, 'while_built')} times those of the "
            "batch besides."
        )
    batches = [row for row in rows if "batch" in row and row["verb"] == "find"]
    if batches:
        calls = "; ".join(
            f"{row['batch']:,} keys {row['time']:,.0f} µs, of which {row['launch']:,.0f} until the "
            f"call returns{added(row)}"
            for row in batches
            if row["pairs"] == batches[0]["pairs"]
        )
        said.append(f"One call of `find` on {batches[0]['n']:,} pairs: {calls}.")
    return [*said, ""] if said else []


def added(row: dict[str, Any]) -> str:
    """What of a call is this package's doing; receipts of old do not tell."""
    return f" and {row['overhead']:,.0f} more than an empty launch" if "overhead" in row else ""


def span(rows: list[dict[str, Any]], figure: str) -> str:
    """The least and the largest of a figure, once where they are the same."""
    ends = (f"{end(row[figure] for row in rows):.2f}" for end in (min, max))
    return " to ".join(dict.fromkeys(ends))


def proofs(receipts: dict[str, dict[str, Any]]) -> list[str]:
    """What ran where, for each receipt."""
    found = []
    for receipt in of_all("gpu", receipts) + of_all("multigpu", receipts):
        # Under compute-sanitizer the same tests run again.
        counted = [
            receipt["tests"][each] for each in ("tests", "multigpu") if each in receipt["tests"]
        ]
        passed = sum(counts["passed"] for counts in counted)
        failed = sum(counts["failed"] for counts in counted)
        outcomes = [f"{passed} tests passed"] if counted else []
        outcomes += [f"{failed} failed"] if failed else []
        outcomes += [
            f"{receipt['tests'][tool]['passed']} {'again' if counted else 'passed'} under {tool}"
            for tool in ("memcheck", "racecheck")
            if tool in receipt["tests"]
        ]
        outcome = ", ".join(outcomes)
        where = f"{receipt['machine']['gpu']} at commit {receipt['commit'][:7]}"
        found.append(f"{outcome} on {where}{remark(receipt)}")
    return found


def remark(receipt: dict[str, Any]) -> str:
    return f" ({receipt['remark']})" if "remark" in receipt else ""


def rewritten(readme: str, receipts: dict[str, dict[str, Any]]) -> str:
    """`readme` with the section that `receipts` ask for."""
    before, _, rest = readme.partition(START)
    _, _, after = rest.partition(END)
    return before + START + section(receipts) + END + after


def main() -> int:
    kept = sorted((ROOT / "receipts").glob("*.json"))
    receipts = {path.stem: json.loads(path.read_text()) for path in kept}
    readme = ROOT / "README.md"
    old = readme.read_text()
    new = rewritten(old, receipts)
    if sys.argv[1:] == ["--check"]:
        if new != old:
            print("README.md quotes other figures than receipts/; run scripts/figures.py")
        return int(new != old)
    readme.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
