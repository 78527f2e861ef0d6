"""Batches of any size and on any device, as the established tools call their reads."""

from __future__ import annotations

import pytest
from kmer import models as model
from kmer.options.world import WORLD
from kmer.tiers import TINY
from kmer.worlds import arrays, rows

from dgpuhash.kmer import MinimizerIndex, SketchIndex
from dgpuhash.kmer.sequences import files as sequence_files

EXPECTED = {SketchIndex: "metacache.sequence.calls.tsv", MinimizerIndex: "kraken2.calls.tsv"}


@pytest.mark.parametrize("rule", [SketchIndex, MinimizerIndex])
def test_batches_of_any_size_are_called_alike(monkeypatch, rule):
    """Batches of 64 pairs, and what MetaCache or Kraken 2 says of them."""
    index = rule.build(TINY.folder / "genomes", taxonomy=TINY.taxonomy_folder)
    expected = TINY.calls(EXPECTED[rule])
    assert len(expected) > 50 * 64
    for size in (64, len(expected)):
        found = []
        for at in range(0, len(expected), size):
            firsts, seconds = zip(*TINY.pairs[at : at + size], strict=True)
            found += index.call(*arrays(firsts), *arrays(seconds)).taxids.tolist()
        assert found == expected
    reads = [TINY.folder / f"reads_{mate}.fq.gz" for mate in (1, 2)]
    monkeypatch.setattr(sequence_files, "CHUNK_NBYTES", 2**14)
    batches = list(index.classify(*reads, batch_letters=64 * 150))
    assert len(batches) >= 50
    assert [taxid for batch in batches for taxid in batch.calls.taxids.tolist()] == expected


ON_DEVICES = {
    SketchIndex: [
        {},
        {"lowest": "species", "hitdiff": 30, "maxcand": 5},
        {"highest": "genus", "hitmin": 2, "insertsize": 900},
        {"cov_percentile": 40},
    ],
    MinimizerIndex: [
        {},
        {"confidence": 0.3},
        {"confidence": 0.2, "ignore_ambiguous": True, "minimum_hit_groups": 1},
        {"minimum_base_quality": 21},
        {"quick": True},
    ],
}


@pytest.mark.parametrize("k", [16, 31])
@pytest.mark.parametrize("rule", ON_DEVICES)
def test_indexes_of_a_device_call_as_the_model_does(device, folder, rule, k):
    files = sorted(folder.glob("*.fa"))
    settings = {"k": k, "window": 50} if rule is SketchIndex else {"k": k + 4, "l": k - 3}
    settings |= {"cap": 3} if rule is SketchIndex else {"spaces": 2}
    index = rule.build(files[:2], taxonomy=folder / "taxonomy", device=device.name, **settings)
    index.add(files[2:], taxonomy=folder / "taxonomy")
    made = (model.SketchModel if rule is SketchIndex else model.MinimizerModel)(
        WORLD.references, WORLD.taxonomy, **settings
    )
    pairs = WORLD.pairs[:50]
    sides = [tuple(map(device.array, arrays(side))) for side in zip(*pairs, strict=True)]
    qualities = [device.array(arrays(side)[0]) for side in zip(*WORLD.qualities[:50], strict=True)]
    for options in ON_DEVICES[rule]:
        if rule is SketchIndex:
            expected = [
                (taxid, [(each.taxid, each.hits) for each in top])
                for taxid, top in made.classify(pairs, **options)
            ]
            calls = index.call(*sides[0], *sides[1], detail=True, **options)
        else:
            masks = "minimum_base_quality" in options
            found = [
                made.call(*pair, qualities=quality if masks else ("", ""), **options)
                for pair, quality in zip(pairs, WORLD.qualities, strict=False)
            ]
            expected = [(each.taxid, each.runs()) for each in found]
            given = {"qualities": qualities[0], "mate_qualities": qualities[1]} if masks else {}
            calls = index.call(*sides[0], *sides[1], detail=True, **given, **options)
        assert type(calls.taxids) is type(sides[0][0])
        if "quick" in options:
            assert calls.taxids.tolist() == [taxid for taxid, _ in expected]
        else:
            assert rows(calls) == expected
