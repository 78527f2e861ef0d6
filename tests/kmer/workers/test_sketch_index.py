"""Indexes of sketches on workers: the calls and the locations of one device."""

from __future__ import annotations

from itertools import chain

import pytest
from kmer.tiers import TINY
from kmer.workers.pairs import MODES, WORLD, fields_of, of_pairs

from dgpuhash.errors import ClosedError, DgpuhashError, SpecError
from dgpuhash.kmer import SketchIndex, load_index
from dgpuhash.kmer.sequences import files
from dgpuhash.kmer.sketches import building
from dgpuhash.kmer.sketches.on_workers import DistributedSketchIndex

SMALL = {"k": 11, "sketch": 8, "window": 40}


@pytest.mark.parametrize(
    ("workers", "mode"), [(3, "distributed"), (3, "independent"), (2, "replicated")]
)
def test_tier_tiny(clients, workers, mode, monkeypatch):
    made = SketchIndex.build(
        TINY.folder / "genomes", taxonomy=TINY.taxonomy_folder, client=clients[workers], mode=mode
    )
    assert made.digests() == {
        "locations": TINY.digest("locations"),
        "features": TINY.digest("featurecounts"),
    }
    reads = [TINY.folder / f"reads_{mate}.fq.gz" for mate in (1, 2)]
    # Many batches, of 64 pairs or fewer.
    monkeypatch.setattr(files, "CHUNK_NBYTES", 64 * 230)
    found = [
        batch.calls.taxids.tolist()
        for batch in made.classify(*reads, lowest="species", batch_letters=64 * 150)
    ]
    assert list(chain.from_iterable(found)) == TINY.calls("metacache.species.calls.tsv")
    assert len(found) >= 50


@pytest.mark.parametrize(
    ("workers", "mode", "cap", "removes"),
    [
        (3, "distributed", 1, False),
        (1, "distributed", 2, True),
        (1, "independent", 2, True),
        (2, "independent", 3, False),
        (3, "independent", 2, True),
        (3, "independent", 1, False),
        (2, "replicated", 2, True),
    ],
)
def test_caps_and_pieces_over_workers(clients, workers, mode, cap, removes, folder, monkeypatch):
    """Records in many pieces, and features over the cap, or dropped, at any number of parts."""
    settings = {**SMALL, "cap": cap, "remove_overpopulated": removes}
    expected = SketchIndex.build(folder, taxonomy=folder / "taxonomy", **settings)
    monkeypatch.setitem(building._BATCH_LETTERS, "cpu", 150)
    found = SketchIndex.build(
        folder, taxonomy=folder / "taxonomy", client=clients[workers], mode=mode, **settings
    )
    assert found.digests() == expected.digests()
    told, of_one = found.stats(), expected.stats()
    for name in ("features", "locations", "dropped", "found", "targets"):
        assert told[name] == of_one[name]
    for options in (
        {"detail": True, "maxcand": 3},
        {"detail": True, "lowest": "genus", "hitmin": 2},
        {"cov_percentile": 30},
    ):
        assert fields_of(of_pairs(found, **options)) == fields_of(of_pairs(expected, **options))


@pytest.mark.parametrize("mode", MODES)
def test_files_are_those_of_one_device(clients, folder, tmp_path, mode):
    expected = SketchIndex.build(folder, taxonomy=folder / "taxonomy", cap=3, **SMALL)
    made = SketchIndex.build(
        folder, taxonomy=folder / "taxonomy", client=clients[3], mode=mode, cap=3, **SMALL
    )
    made.save(tmp_path / "made.dgki")
    assert load_index(tmp_path / "made.dgki").digests() == expected.digests()
    expected.save(tmp_path / "one.dgki")
    for n in (2, 3):
        again = DistributedSketchIndex.load(tmp_path / "one.dgki", client=clients[n], mode=mode)
        assert again.digests() == expected.digests()
        assert fields_of(of_pairs(again)) == fields_of(of_pairs(expected))


@pytest.mark.parametrize("mode", MODES)
def test_additions_go_on(clients, folder, mode):
    paths = sorted(folder.glob("*.fa"))
    settings = {**SMALL, "cap": 2, "remove_overpopulated": True, "order": "given"}
    settings["taxonomy"] = folder / "taxonomy"
    expected = SketchIndex.build(paths[:2], **settings)
    made = SketchIndex.build(paths[:2], client=clients[2], mode=mode, **settings)
    for file in paths[2:]:
        for index in (expected, made):
            index.add(file)
    assert made.digests() == expected.digests()
    assert fields_of(of_pairs(made)) == fields_of(of_pairs(expected))


def test_what_is_wrong_is_told(clients, folder):
    with pytest.raises(SpecError, match="mode='all'"):
        SketchIndex.build(folder, taxonomy=None, client=clients[1], mode="all")
    made = SketchIndex.build(folder, taxonomy=None, client=clients[2], **SMALL)
    assert made.mode == "replicated" and "a worker's" in made.why
    with pytest.raises(SpecError, match="maxcand"):
        of_pairs(made, maxcand=0)
    with pytest.raises(DgpuhashError, match="is there already"):
        made.add(folder)
    assert len(made) == len(WORLD.references)
    made.close()
    with pytest.raises(ClosedError):
        of_pairs(made)
