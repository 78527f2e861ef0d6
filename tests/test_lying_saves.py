"""Saves whose manifests lie, with right checksums: they are loaded, or raise FormatError."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from clusters import cluster_of
from kmer.worlds import World, fasta
from lying import lies_of_file, lies_of_folder

import dgpuhash
from dgpuhash import BloomFilter, CountMap, FrameIndex, HashMap, HashSet, MultiMap
from dgpuhash.distributed import (
    DistributedCountMap,
    DistributedGroupBy,
    DistributedIndex,
    DistributedMap,
    DistributedSet,
)
from dgpuhash.errors import FormatError
from dgpuhash.kmer import KmerCounts, MinimizerIndex, SketchIndex, Taxonomy, load_index

NUMBERS = np.arange(40)
FRAME = pd.DataFrame({
    "k": NUMBERS % 20, "t": ["a", "b"] * 20, "c": pd.Categorical(["a", "b"] * 20),
    "x": NUMBERS / 2, "i": pd.array(NUMBERS, "Int8"),
    "d": pd.date_range("2020", periods=40, tz="UTC"),
})  # fmt: skip


def filtered() -> BloomFilter:
    made = BloomFilter("int64", 1000)
    made.insert(NUMBERS)
    return made


def sequences(folder: Path) -> list[Path]:
    """Write references and their taxonomy to a folder; return the files."""
    world = World(3, pairs=20)
    world.taxonomy.write(folder / "taxonomy")
    files = [folder / f"{number}.fa" for number in range(len(world.files))]
    for path, references in zip(files, world.files, strict=True):
        path.write_text(fasta(references))
    return files


def kmers(kind: Any) -> Callable[[Path], Any]:
    return lambda folder: kind.build(sequences(folder), taxonomy=folder / "taxonomy")


FILES: dict[str, tuple[Callable[[Path], Any], Callable[[Path], Any]]] = {
    "set": (lambda _: HashSet.from_keys(NUMBERS), dgpuhash.load),
    "map": (lambda _: HashMap.from_arrays(NUMBERS.astype("M8[s]"), NUMBERS), dgpuhash.load),
    "lists": (lambda _: MultiMap.from_arrays(NUMBERS % 7, NUMBERS), dgpuhash.load),
    "counts": (lambda _: CountMap.from_keys(NUMBERS % 7), dgpuhash.load),
    "filter": (lambda _: filtered(), dgpuhash.load),
    "index": (lambda _: FrameIndex.build(FRAME, ["k", "t"]), dgpuhash.load),
    "index of categories": (lambda _: FrameIndex.build(FRAME, "c", unique=False), dgpuhash.load),
    "index of times": (lambda _: FrameIndex.build(FRAME, "d", unique=True), dgpuhash.load),
    "k-mers": (
        lambda _: KmerCounts.from_letters(np.frombuffer(b"ACGTACCGTTA" * 9, "u1"), [0, 99], k=7),
        KmerCounts.load,
    ),
    "sketches": (kmers(SketchIndex), load_index),
    "minimizers": (kmers(MinimizerIndex), load_index),
    "taxonomy": (
        lambda folder: sequences(folder) and Taxonomy.read(folder / "taxonomy"), Taxonomy.load,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_files(tmp_path, name):
    make, load = FILES[name]
    make(tmp_path).save(tmp_path / "saved")
    assert load(tmp_path / "saved") is not None
    for lie in lies_of_file(tmp_path / "saved", 60, 20):
        with told(lie):
            load(tmp_path / "saved")


@contextmanager
def told(lie: str) -> Iterator[None]:
    """Let damaged files pass; say beside any other error what the lie was."""
    try:
        yield
    except FormatError:
        pass
    except BaseException as error:
        error.add_note(lie)
        raise


NAMED: dict[str, Any] = {
    "a": ("x", "sum"),
    "b": ("x", "var"),
    "e": ("i", "max"),
    "f": ("c", "first"),
}
FOLDERS: dict[str, tuple[Any, Callable[[], Any]]] = {
    "groups": (DistributedGroupBy, lambda: DistributedGroupBy.build(FRAME, ["k", "t"], **NAMED)),
    "groups of categories": (
        DistributedGroupBy, lambda: DistributedGroupBy.build(FRAME, "c", d=("c", "first")),
    ),
    "index": (DistributedIndex, lambda: DistributedIndex.build(FRAME, ["d", "t"])),
    "unique index": (DistributedIndex, lambda: DistributedIndex.build(FRAME, "x", unique=True)),
    "map": (DistributedMap, lambda: DistributedMap.from_arrays(NUMBERS, NUMBERS)),
    "set": (DistributedSet, lambda: DistributedSet.from_keys(NUMBERS)),
    "counts": (DistributedCountMap, lambda: DistributedCountMap.from_keys(NUMBERS % 7)),
}  # fmt: skip


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with cluster_of(2, processes=False) as made:
        yield made


@pytest.mark.cluster
@pytest.mark.parametrize("name", FOLDERS)
def test_folders(client, tmp_path, name):
    kind, make = FOLDERS[name]
    with client.as_current():
        with make() as made:
            made.save(str(tmp_path / "saved"))
        kind.load(str(tmp_path / "saved")).close()
        for lie in lies_of_folder(tmp_path / "saved" / "manifest.json", 40, 20):
            with told(lie):
                kind.load(str(tmp_path / "saved")).close()
