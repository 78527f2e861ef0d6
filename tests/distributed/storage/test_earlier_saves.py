"""Saves of earlier programs are read: tables, indexes and k-mers, in files and folders.

`write` has written those in ``saves.zip``.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from distributed import Client

import dgpuhash
from dgpuhash import BloomFilter, CountMap, FrameIndex, HashMap, HashSet, KeyIds, MultiMap
from dgpuhash.distributed import (
    DistributedBloomFilter,
    DistributedCountMap,
    DistributedGroupBy,
    DistributedIndex,
    DistributedMap,
    DistributedMultiMap,
    DistributedSet,
)
from dgpuhash.kmer import SketchIndex

SAVES = Path(__file__).with_name("saves.zip")
KEYS = np.arange(0, 40, 2)
FRAME = pd.DataFrame({"k": KEYS, "name": [f"n{key % 6}" for key in KEYS], "v": KEYS / 4})
ASKED = np.array([3, 38, 0])
LETTERS = "".join("ACGT"[each] for each in np.random.default_rng(7).integers(0, 4, 600))


def write(folder: Path, client: Client) -> None:
    """Save one of each kind."""
    HashSet.from_keys(KEYS).save(folder / "set")
    HashMap.from_arrays(KEYS, KEYS * 10).save(folder / "map")
    MultiMap.from_arrays(KEYS // 4, KEYS).save(folder / "lists")
    CountMap.from_keys(KEYS // 4).save(folder / "counts")
    BloomFilter.from_keys(KEYS).save(folder / "filter")
    KeyIds.from_keys(KEYS).save(folder / "ids")
    FrameIndex.build(FRAME, on="k").save(folder / "rows")
    (folder / "a.fa").write_text(f">a\n{LETTERS}\n")
    SketchIndex.build(folder / "a.fa", taxonomy=None).save(folder / "kmers")
    (folder / "a.fa").unlink()
    there: dict[str, Any] = {
        "set": DistributedSet.from_keys(KEYS, client=client),
        "map": DistributedMap.from_arrays(KEYS, KEYS * 10, client=client),
        "independent map": DistributedMap.from_arrays(
            KEYS, KEYS * 10, mode="independent", conflict="max", client=client
        ),
        "lists": DistributedMultiMap.from_arrays(KEYS // 4, KEYS, client=client),
        "counts": DistributedCountMap.from_keys(KEYS // 4, client=client),
        "filter": DistributedBloomFilter.from_keys(KEYS, client=client),
        "rows": DistributedIndex.build(FRAME, on="k", client=client),
        "groups": DistributedGroupBy.build(FRAME, "name", total=("v", "sum"), client=client),
    }
    for name, each in there.items():
        each.save(f"{folder}/workers {name}")
        each.close()


@contextmanager
def loaded(path: Path, client: Client) -> Iterator[Any]:
    found = dgpuhash.load(path, client=client)
    try:
        yield found
    finally:
        if hasattr(found, "close"):
            found.close()


ANSWERS = {
    "set": lambda found: found.contains(ASKED).tolist() == [False, True, True],
    "map": lambda found: found.find(ASKED, -1)[0].tolist() == [-1, 380, 0],
    "lists": lambda found: np.sort(found.find([9])[0]).tolist() == [36, 38],
    "counts": lambda found: found.find([9, 10])[0].tolist() == [2, 0],
    "filter": lambda found: bool(found.contains(KEYS).all()),
    "ids": lambda found: found.ids_of(ASKED)[1].tolist() == [False, True, True],
    "rows": lambda found: list(found.lookup(ASKED[1:].tolist())["name"]) == ["n2", "n0"],
    "groups": lambda found: (
        found.lookup(["n2", "n4"])["total"].tolist()
        == FRAME.groupby("name")["v"].sum()[["n2", "n4"]].tolist()
    ),
}


@pytest.mark.parametrize("by", ["earlier programs", "this program"])
def test_saves_are_read(by, threads, tmp_path):
    if by == "this program":
        write(tmp_path, threads)
    else:
        with zipfile.ZipFile(SAVES) as archive:
            archive.extractall(tmp_path)
    names = {each.name for each in tmp_path.iterdir()}
    assert len(names) == 16
    kmers = SketchIndex.load(tmp_path / "kmers")
    assert kmers.targets.names == ["a"] and kmers.targets.lengths.tolist() == [600]
    for name in sorted(names - {"kmers"}):
        with loaded(tmp_path / name, threads) as found:
            assert ANSWERS[name.removeprefix("workers ").removeprefix("independent ")](found), name
