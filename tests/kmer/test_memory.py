"""Peaks of memory of builds and calls, in a program of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

TAXONOMY = Path(__file__).parent / "data" / "taxonomy"
# VmHWM is of the program alone: ru_maxrss starts with what the process had that started it.
PROGRAM = """
import json, sys
from dgpuhash.kmer import MinimizerIndex, SketchIndex, references
from dgpuhash.kmer.sketches import building
from dgpuhash.tables.bucket_list import part_lists, streaming

rule, taxonomy, folder, *sizes = sys.argv[1:]
# What is there at once is a few MB.
references.BATCH_LETTERS, building.HELD_NBYTES = 2**18, 2**21
streaming._PART_ROWS["cpu"] = part_lists._SAMPLED_VALUES["cpu"] = 2**16

def peak():
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(status["VmHWM"].split()[0]) / 1024

# What an index has is no part of what its build takes.
built, called = [], []
for n in sizes:
    index = None
    index = (SketchIndex if rule == "metacache" else MinimizerIndex).build(
        f"{folder}/{n}.fa", taxonomy=taxonomy
    )
    highest = peak()
    stats = index.stats()
    assert stats["letters"] == int(n)
    built.append(highest - stats["nbytes"] / 2**20)
for n in sizes:
    calls = index.classify(f"{folder}/{n}.fq", batch_letters=2**17)
    assert sum((each.calls.taxids != 0).sum() for each in calls) > int(n) // 110
    called.append(peak())
print(json.dumps([built, called]))
"""


@pytest.mark.parametrize("rule", ["metacache", "kraken2"])
def test_memory_does_not_grow_with_the_input(tmp_path, rule):
    sizes = (2_000_000, 20_000_000)
    letters = np.frombuffer(b"ACGT", np.uint8)[np.random.default_rng(1).integers(0, 4, sizes[1])]
    lines = np.full((sizes[1] // 100, 207), ord("I"), np.uint8)
    for column, letter in ((0, "@"), (1, "r"), (2, "\n"), (103, "\n"), (104, "+"), (105, "\n")):
        lines[:, column] = ord(letter)
    lines[:, 3:103], lines[:, 206] = letters.reshape(-1, 100), ord("\n")
    for n in sizes:
        (tmp_path / f"{n}.fa").write_bytes(b">one|kraken:taxid|562\n" + letters[:n].tobytes())
        (tmp_path / f"{n}.fq").write_bytes(lines[: n // 100].tobytes())
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, rule, TAXONOMY, tmp_path, *map(str, sizes)],
        capture_output=True, text=True, timeout=250, check=True,
    )  # fmt: skip
    built, called = json.loads(done.stdout)
    # Features and locations of the larger input alone have 33 MiB, its reads 39.
    assert built[1] < built[0] + 20
    assert called[1] < called[0] + 16
