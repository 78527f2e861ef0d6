"""Precision and recall of calls on the k-mer data sets, ours beside those that other tools made.

accuracy.py            classifies the reads of both sets and writes receipts/accuracy.json

Names of reads carry the taxid of the genome that they were drawn from. A pair counts as called at a
rank where its call has a taxon of that rank; precision is the share of right ones among these, and
recall that among all pairs.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dgpuhash.kmer import MinimizerIndex, SketchIndex, Taxonomy, read_sequences

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests" / "kmer" / "data"
DATA = Path(os.environ.get("DGPUHASH_KMER_DATA", ROOT.parent / "shared" / "kmer"))
SETS = {
    "12 viral genomes": (TESTS / "tiny", TESTS / "taxonomy"),
    "6 bacteria and a phage": (DATA / "tiers" / "mini", DATA / "taxonomy"),
}
RANKS = ("species", "genus", "family")
# By rule: the index, options of calls, the peer and its calls.
RULES: dict[str, tuple[Any, dict[str, Any], str, str]] = {
    "kraken2": (MinimizerIndex, {}, "Kraken 2 2.1.2", "kraken2.calls.tsv"),
    "metacache": (
        SketchIndex, {"lowest": "species"}, "MetaCache 2.6.0", "metacache.species.calls.tsv",
    ),
}  # fmt: skip


def figures() -> Iterator[dict[str, Any]]:
    """Yield a row for each set, rule, library and rank."""
    for name, (folder, taxa) in SETS.items():
        taxonomy = Taxonomy.read(taxa)
        reads = [folder / f"reads_{mate}.fq.gz" for mate in (1, 2)]
        truth = true_taxids(reads[0])
        for rule, (kind, options, peer, expected) in RULES.items():
            index = kind.build(folder / "genomes", taxonomy=taxonomy)
            frame = index.classify(*reads, **options).to_pandas()
            theirs = taxids_in(folder / expected)
            libraries = {
                "dgpuhash": frame["taxid"].to_numpy(),
                peer: np.array([theirs[read] for read in frame["read"]]),
            }
            for library, calls in libraries.items():
                for rank in RANKS:
                    shares = precision_and_recall(taxonomy, truth, calls, rank)
                    yield {
                        "bench": "accuracy", "set": name, "n": len(calls), "rule": rule,
                        "library": library, "rank": rank, **shares,
                    }  # fmt: skip


def precision_and_recall(
    taxonomy: Taxonomy, truth: np.ndarray, calls: np.ndarray, rank: str
) -> dict[str, float]:
    """Return both shares of calls at a rank."""
    wanted, called = (np.asarray(taxonomy.lift(taxids, rank)) for taxids in (truth, calls))
    right = int(((wanted == called) & (wanted > 0)).sum())
    return {
        "precision": right / max(int((called > 0).sum()), 1),
        "recall": right / max(int((wanted > 0).sum()), 1),
    }


def true_taxids(reads: Path) -> np.ndarray:
    """Return the taxid in the header of each read."""
    found = [
        re.search(r"taxid\|(\d+)", batch.name(row))
        for batch in read_sequences(reads)
        for row in range(len(batch))
    ]
    return np.array([int(each[1]) for each in found if each], np.int64)


def taxids_in(file: Path) -> dict[str, int]:
    """Return the taxid of each read in a file of calls."""
    rows = (line.split("\t") for line in file.read_text().splitlines())
    return {read: int(taxid) for read, taxid in rows}


def processor() -> str:
    """Return the name of this machine's processor."""
    found = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
    return found[1] if found else platform.machine()


def main() -> None:
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    receipt = {
        "date": datetime.date.today().isoformat(),
        "commit": commit.stdout.strip(),
        "machine": {"gpu": f"{len(os.sched_getaffinity(0))} cores of an {processor()}"},
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
        "remark": "`scripts/accuracy.py`; calls of Kraken 2 and MetaCache are those of the sets",
        "figures": list(figures()),
    }
    path = ROOT / "receipts" / "accuracy.json"
    path.write_text(json.dumps(receipt, indent=1) + "\n")
    print(f"{path}: {len(receipt['figures'])} figures")


if __name__ == "__main__":
    main()
