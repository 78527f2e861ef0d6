"""The index of sketches: tiers, files, additions, saved forms, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from kmer import models as model
from kmer.tiers import DATA, MINI, TINY
from kmer.worlds import World, arrays

from dgpuhash.backend.native import native
from dgpuhash.errors import (
    DgpuhashError,
    ExistsError,
    FormatError,
    SequenceError,
    SpecError,
    TaxonomyError,
)
from dgpuhash.kmer import KmerCounts, SketchIndex, Taxonomy, load_index
from dgpuhash.kmer.references import References
from dgpuhash.kmer.sketches import building
from dgpuhash.kmer.sketches import reads as sketched_reads
from dgpuhash.kmer.sketches.building import digests_of

WORLD = World(5, pairs=60)
SMALL = {"k": 11, "sketch": 8, "window": 40}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return WORLD.write(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def index(folder):
    return SketchIndex.build(folder, taxonomy=folder / "taxonomy", **SMALL)


def of_pairs(index, pairs, **options):
    firsts, seconds = zip(*pairs, strict=True)
    return index.call(*arrays(firsts), *arrays(seconds), **options)


def same(one, other):
    assert one.taxids.tolist() == other.taxids.tolist()
    assert one.hits.tolist() == other.hits.tolist()
    for name in ("detail_offsets", "detail_taxids", "detail_counts"):
        first, second = getattr(one, name), getattr(other, name)
        assert first is second is None or first.tolist() == second.tolist()


TIERS = [
    pytest.param(TINY, id="tiny"),
    pytest.param(
        MINI,
        id="mini",
        marks=[
            pytest.mark.genomes,
            pytest.mark.skipif(not DATA.is_dir(), reason="DGPUHASH_KMER_DATA names no folder"),
        ],
    ),
]


@pytest.mark.parametrize("tier", TIERS)
def test_files_are_classified_as_metacache_does(tier, device):
    index = SketchIndex.build(
        tier.folder / "genomes", taxonomy=tier.taxonomy_folder, device=device.name
    )
    assert index.digests() == {
        "locations": tier.digest("locations"),
        "features": tier.digest("featurecounts"),
    }
    reads = [tier.folder / f"reads_{mate}.fq.gz" for mate in (1, 2)]
    for rank in ("sequence", "species"):
        found = [
            taxid
            for batch in index.classify(*reads, lowest=rank)
            for taxid in batch.calls.taxids.tolist()
        ]
        assert found == tier.calls(f"metacache.{rank}.calls.tsv")


@pytest.mark.parametrize("cap", [1, 2, 3])
def test_caps_keep_the_first_locations(cap):
    """Feature lists of the tier cut off, whatever they were before."""
    folder, taxonomy = TINY.folder / "genomes", TINY.taxonomy_folder
    made = SketchIndex.build(folder, taxonomy=taxonomy, cap=cap)
    features, offsets, locations = SketchIndex.build(folder, taxonomy=taxonomy).table.lists()
    ranks = np.arange(len(locations)) - np.repeat(offsets[:-1], np.diff(offsets))
    cut = np.append(0, np.cumsum(np.minimum(np.diff(offsets), cap)))
    assert made.digests() == digests_of(features, cut, locations[ranks < cap])
    assert made.stats()["longest_list"] == cap
    assert made.stats()["locations"] == cut[-1]


def test_slices_and_threads_change_nothing(index, monkeypatch):
    expected = of_pairs(index, WORLD.pairs, detail=True, lowest="species", maxcand=4)
    threads = native().threads()
    try:
        for letters, hits in ((1, 2**20), (700, 1), (2**20, 300), (2**20, 1)):
            monkeypatch.setitem(sketched_reads._SLICE_LETTERS, "cpu", letters)
            monkeypatch.setitem(sketched_reads._COUNTED_HITS, "cpu", hits)
            for number in (1, 3):
                native().set_threads(number)
                found = of_pairs(index, WORLD.pairs, detail=True, lowest="species", maxcand=4)
                same(found, expected)
    finally:
        native().set_threads(threads)


def test_many_hits_are_counted_beside_the_stack(tmp_path):
    """Reads with more hits than a lane has places for, and mates with none."""
    repeat, rest = WORLD.letters(200), WORLD.letters(3000)
    (tmp_path / "a.fa").write_text(f">a\n{repeat * 40}{rest}\n>b\n{repeat * 25}\n")
    index = SketchIndex.build(tmp_path / "a.fa", taxonomy=None, **SMALL)
    assert index.stats()["longest_list"] > 64
    references = [model.Reference("a", repeat * 40 + rest), model.Reference("b", repeat * 25)]
    made = model.SketchModel(references, WORLD.taxonomy, **SMALL)
    pairs = [(repeat * 2, ""), ("", repeat), (rest[:900], repeat[:90]), (rest, repeat * 3)]
    expected = made.classify(pairs, maxcand=3)
    found = of_pairs(index, pairs, maxcand=3, detail=True)
    assert found.taxids.tolist() == [taxid for taxid, _ in expected]
    assert found.detail_taxids.tolist() == [each.taxid for _, top in expected for each in top]
    assert found.detail_counts.tolist() == [each.hits for _, top in expected for each in top]
    assert max(found.detail_counts) > 100


def test_what_was_saved_calls_alike(index, folder, tmp_path):
    path = tmp_path / "world.dgki"
    index.save(path)
    with pytest.raises(ExistsError):
        index.save(path)
    index.save(path, overwrite=True)
    loaded = load_index(path)
    assert isinstance(loaded, SketchIndex)
    assert loaded.settings == index.settings
    assert loaded.digests() == index.digests()
    assert {**loaded.stats(), "nbytes": 0} == {**index.stats(), "nbytes": 0}
    same(of_pairs(loaded, WORLD.pairs, detail=True), of_pairs(index, WORLD.pairs, detail=True))
    options = {"lowest": "genus", "cov_percentile": 40}
    same(of_pairs(loaded, WORLD.pairs, **options), of_pairs(index, WORLD.pairs, **options))
    extra = tmp_path / "more.fa"
    extra.write_text(f">more\n{WORLD.letters(500)}\n")
    with pytest.raises(TaxonomyError):
        loaded.add(extra)
    assert loaded.digests() == index.digests()
    loaded.add(extra, allow_unplaced=1, taxonomy=folder / "taxonomy")
    assert loaded.targets.names == [*index.targets.names, "more"]
    assert loaded.targets.taxids[-1] == 0


def test_features_dropped_once_stay_dropped(tmp_path):
    """Also those that references added after a load bring again."""
    shared, own = WORLD.letters(150), [WORLD.letters(150) for _ in range(3)]
    files = []
    for number, letters in enumerate(own):
        file = tmp_path / f"{number}.fa"
        file.write_text(f">r{number}\n{letters}{shared}\n")
        files.append(file)
    settings = {**SMALL, "cap": 2, "remove_overpopulated": True, "order": "given"}
    whole = SketchIndex.build(files, taxonomy=None, **settings)
    parts = SketchIndex.build(files[:2], taxonomy=None, **settings)
    assert parts.stats()["dropped"] > 0
    parts.save(tmp_path / "parts.dgki")
    parts = SketchIndex.load(tmp_path / "parts.dgki")
    parts.add(References(files[2], order="given", known=parts.targets))
    assert parts.digests() == whole.digests()
    assert parts.stats() == {**whole.stats(), "nbytes": parts.stats()["nbytes"]}


@pytest.mark.parametrize("stride", [7, 30, 40])
def test_references_in_arrays_are_as_those_in_files(folder, device, monkeypatch, stride):
    """In one piece or many, which end within references, between them and with windows."""
    given = [(each.letters, each.taxid) for each in WORLD.references]
    given[2:2] = [("", 0), ("ACGT", 0), ("N" * 100, 8), ("A" * 40, 9)]
    given += [("", 0)]
    letters, offsets = map(device.array, arrays([each for each, _ in given]))
    taxids, settings = [taxid for _, taxid in given], {**SMALL, "stride": stride}
    references = [model.Reference(str(at), *each) for at, each in enumerate(given, 1)]
    made = model.SketchModel(references, WORLD.taxonomy, **settings)
    taxonomy = folder / "taxonomy"
    for size in (1, 100, 317, 2**20):
        monkeypatch.setitem(building._BATCH_LETTERS, device.name, size)
        index = SketchIndex.from_letters(letters, offsets, taxids, taxonomy=taxonomy, **settings)
        assert index.digests()["locations"] == model.digest(made.locations())
    assert index.device == device.name
    assert index.targets.names == [str(at) for at in range(1, len(given) + 1)]
    assert index.targets.taxids.tolist() == taxids
    # Numbers go on behind those that are there.
    half = len(given) // 2
    end = int(offsets[half])
    part = SketchIndex.from_letters(
        letters[:end], offsets[: half + 1], taxids[:half], taxonomy=taxonomy, **settings
    )
    part.add_letters(letters[end:], offsets[half:] - offsets[half], taxids[half:])
    assert part.digests() == index.digests()
    assert part.targets.names == index.targets.names
    for wrong in ({"names": ["1"]}, {"names": part.targets.names}):
        with pytest.raises(SequenceError):
            part.add_letters(letters, offsets, taxids, **wrong)
    with pytest.raises(TaxonomyError):
        part.add_letters(letters, offsets, [5000] * len(given), names=map(str, range(-99, 0)))
    assert part.digests() == index.digests()


def test_damaged_and_other_files_are_refused(index, tmp_path):
    KmerCounts.from_letters(np.frombuffer(b"ACGT", np.uint8), [0, 4], k=2).save(tmp_path / "x")
    for read in (SketchIndex.load, load_index):
        with pytest.raises(FormatError, match="not an index of sequences"):
            read(tmp_path / "x")
    index.save(tmp_path / "y")
    text = bytearray((tmp_path / "y").read_bytes())
    text[-70] ^= 1
    (tmp_path / "y").write_bytes(text)
    with pytest.raises(FormatError, match="checksum"):
        SketchIndex.load(tmp_path / "y")
    with pytest.raises(FileNotFoundError):
        SketchIndex.load(tmp_path / "z")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"k": 0}, "1 to 32"),
        ({"k": 33}, "1 to 32"),
        ({"k": 20, "window": 19}, "windows of k or more"),
        ({"sketch": 0}, "1 to 256"),
        ({"stride": 0}, "1 to 127"),
        ({"stride": 128}, "1 to 127"),
        ({"cap": 0}, "1 to"),
        ({"cap": 2.5}, "whole number"),
        ({"l": 31}, "no setting 'l'"),
        ({"mask": "upper"}, "mask"),
        ({"order": "size"}, "order"),
    ],
)
def test_impossible_settings(folder, settings, told):
    with pytest.raises(SpecError, match=told):
        SketchIndex.build(folder, taxonomy=None, **settings)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"lowest": "strain"}, "not a rank of lineages"),
        ({"lowest": "family", "highest": "genus"}, "swap"),
        ({"hitmin": -1}, "hitmin"),
        ({"hitdiff": 101}, "percent"),
        ({"hitdiff": float("nan")}, "percent"),
        ({"maxcand": 0}, "maxcand"),
        ({"insertsize": "long"}, "whole number"),
        ({"cov_percentile": "half"}, "number"),
        ({"confidence": 0.1}, "confidence"),
    ],
)
def test_impossible_options(index, options, told):
    for call in (
        lambda: of_pairs(index, WORLD.pairs, **options),
        lambda: index.classify("-", **options),
    ):
        with pytest.raises(DgpuhashError, match=told):
            call()


def test_batches_that_are_none(index):
    letters = np.frombuffer(b"ACGTACGTACGTACGT", np.uint8)
    for offsets in ([], [1, 16], [0, 15], [0, 12, 9, 16]):
        with pytest.raises(SequenceError, match="do not divide"):
            index.call(letters, offsets)
    with pytest.raises(SequenceError, match="1 reads and 2 mates"):
        index.call(letters, [0, 16], letters, [0, 3, 16])
    none = index.call(letters[:0], [0], detail=True)
    assert (len(none), none.detail_offsets.tolist()) == (0, [0])


def test_without_a_taxonomy_there_are_sequences_only(folder):
    index = SketchIndex.build(folder, taxonomy=None, **SMALL)
    assert index.taxonomy is None
    found = of_pairs(index, WORLD.pairs)
    assert found.taxids.min() < 0 == found.taxids.max()
    assert not of_pairs(index, WORLD.pairs, lowest="species").taxids.any()


def test_an_empty_index_finds_nothing():
    index = SketchIndex.build(
        TINY.folder / "genomes" / "dwv.fna.gz", taxonomy=TINY.taxonomy_folder, k=32, window=32
    )
    assert len(index) == 1
    assert repr(index).startswith("<SketchIndex: 1 sequences, ")
    assert isinstance(index.taxonomy, Taxonomy)
    assert len(index.taxonomy) < len(Taxonomy.read(TINY.taxonomy_folder))
    assert not of_pairs(index, [("ACGT" * 20, "")]).taxids.any()
