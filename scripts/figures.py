"""Writes the README's section of measured figures from the receipts.

figures.py            rewrites the section
figures.py --check    exits 1 when the section is not what the receipts say
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
START, END = "<!-- figures: written by scripts/figures.py -->\n", "<!-- end of figures -->\n"
NONE = "None are published yet: `make gpu` on a machine with a GPU measures them.\n"
VERBS = ("insert", "find", "absent")


def section(receipts: dict[str, dict[str, Any]]) -> str:
    """The Markdown between the markers."""
    if "gpu" not in receipts:
        return NONE
    receipt = receipts["gpu"]
    machine, versions = receipt["machine"], receipt["versions"]
    software = ", ".join(
        f"{name} {versions[name]}"
        for name in ("cupy-cuda13x", "cupy-cuda12x", "nvidia-cuda-nvrtc")
        if name in versions
    )
    lines = [
        f"{machine['gpu']}, driver {machine['driver']}, {software}, {receipt['date']}. Random "
        "unique keys; answers are checked on the timed data. Billions of keys a second, and in "
        "brackets the share of the machine's own floor for that access, measured in the same "
        "run: random compare-and-swap over as many bytes for insert, random 64-byte "
        "gathers for lookups.",
        "",
        "| key/value bits | pairs | load | insert | find | absent |",
        "|---|---:|---:|---:|---:|---:|",
        *table_rows(
            [row for row in receipt["figures"] if row["bench"] == "tables" and "rate" in row]
        ),
        "",
        "Proved by `make gpu`: " + "; ".join(proofs(receipts)) + ".",
    ]
    return "\n".join(lines) + "\n"


def table_rows(figures: list[dict[str, Any]]) -> list[str]:
    """One line for each width, size and load."""
    by_table: dict[tuple[str, int, float], dict[str, str]] = {}
    for row in figures:
        key = row["pairs"], row["n"], row["load"]
        cells = by_table.setdefault(key, {})
        cells[row["verb"]] = f"{row['rate']:.2f} ({row['ratio']:.0%})"
    return [
        f"| {pairs} | {n:,} | {load} | " + " | ".join(cells.get(verb, "") for verb in VERBS) + " |"
        for (pairs, n, load), cells in by_table.items()
    ]


def proofs(receipts: dict[str, dict[str, Any]]) -> list[str]:
    """What ran where, for each receipt."""
    found = []
    for receipt in receipts.values():
        passed = sum(counts["passed"] for counts in receipt["tests"].values())
        failed = sum(counts["failed"] for counts in receipt["tests"].values())
        outcome = f"{passed} tests passed" + (f", {failed} failed" if failed else "")
        found.append(f"{outcome} on {receipt['machine']['gpu']}")
    return found


def rewritten(readme: str, receipts: dict[str, dict[str, Any]]) -> str:
    """`readme` with the section that `receipts` ask for."""
    before, _, rest = readme.partition(START)
    _, _, after = rest.partition(END)
    return before + START + section(receipts) + END + after


def main() -> int:
    receipts = {}
    for name in ("gpu", "multigpu"):
        path = ROOT / "receipts" / f"{name}.json"
        if path.exists():
            receipts[name] = json.loads(path.read_text())
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
