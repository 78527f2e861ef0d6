"""The model of both rules beside MetaCache and Kraken 2 themselves."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from kmer import models as model
from kmer.models import minimizers
from kmer.taxonomy_model import Model
from kmer.tiers import DATA, MINI, TINY, lines_without_codes

TIERS = [
    pytest.param(TINY, id="tiny"),
    pytest.param(
        MINI,
        id="mini",
        marks=[
            pytest.mark.genomes,
            pytest.mark.slow,
            pytest.mark.skipif(not DATA.is_dir(), reason="DGPUHASH_KMER_DATA names no folder"),
        ],
    ),
]


@pytest.mark.parametrize("tier", TIERS)
def test_the_model_is_metacache(tier):
    made = model.SketchModel(tier.references, tier.taxonomy)
    assert model.digest(made.locations()) == tier.digest("locations")
    assert model.digest(made.feature_counts()) == tier.digest("featurecounts")
    lineages = [(each.name, made.lineages[at]) for at, each in enumerate(tier.references, 1)]
    assert [(name, lineage[:-1]) for name, lineage in lineages] == tier.lineages()
    # A part of all is enough here: calls of sequences are made of the same hits.
    some = slice(None, None, 4)
    by_species = made.classify(tier.pairs[some], lowest="species")
    assert [taxid for taxid, _ in by_species] == tier.calls("metacache.species.calls.tsv")[some]
    tops = [
        (
            ",".join(f"{each.taxid}:{each.hits}" for each in top),
            " ".join(f"[{each.first * 112},{each.last * 112 + 127}]" for each in top),
        )
        for _, top in by_species
    ]
    assert tops == tier.top_lists()[some]

    def name_of(taxid):
        if taxid == 0:
            return ""
        return tier.references[-taxid - 1].name if taxid < 0 else tier.taxonomy.taxa[taxid][2]

    calls = [taxid for taxid, _ in made.classify(tier.pairs)]
    assert calls == tier.calls("metacache.sequence.calls.tsv")
    called, estimated = tier.abundances()
    assert {name_of(taxid): count for taxid, count in Counter(calls).items()} == called
    shares = {name_of(each): count for each, count in made.abundances(calls, "species").items()}
    assert {**shares, "": called[""]} == pytest.approx(estimated)


@pytest.mark.parametrize("tier", TIERS)
def test_the_model_is_kraken(tier, monkeypatch):
    # With two threads Kraken 2 cuts its blocks in two.
    monkeypatch.setattr(minimizers, "BLOCK", 2**13)
    made = model.MinimizerModel(tier.references, tier.taxonomy)
    calls = [made.call(*pair).taxid for pair in tier.pairs]
    assert calls == tier.calls("kraken2.calls.tsv")
    report = tier.text("kraken2.report").splitlines()
    assert lines_without_codes(tier.taxonomy.kreport(calls)) == lines_without_codes(report)
    distinct = int(tier.text("kraken2.inspect.txt").split("\t")[1])
    assert distinct == len(made.taxids)


def test_windows_are_those_that_metacache_makes():
    made = model.SketchModel([], Model({1: (1, "no rank", "root")}), k=4, window=10, stride=6)
    for length, spans in {
        0: [],
        3: [(0, 3)],
        10: [(0, 10)],
        11: [(0, 10), (6, 11)],
        # One more follows where a window ended at the last letter.
        16: [(0, 10), (6, 16), (12, 16)],
        18: [(0, 10), (6, 16), (12, 18)],
    }.items():
        assert list(made.spans(length)) == spans
    assert len(list(made.sketches("ACG"))) == 0
    # A window without a valid k-mer has its number, too.
    assert list(map(len, made.sketches("N" * 16)))[:2] == [0, 0]


def test_the_top_list_needs_no_order():
    """Per taxon the most hits and the lowest target with them, by hits and then by target."""
    draw = random.Random(1)
    taxa = {1: (1, "no rank", "root"), **{n: (1, "species", f"s{n}") for n in range(2, 6)}}
    for _ in range(300):
        made = model.SketchModel([], Model(taxa), k=2, window=4)
        n = draw.randint(1, 9)
        for _ in range(n):
            made.lineages.append(Model(taxa).ranked(draw.choice([0, 2, 3, 4, 5])))
        found = [draw.randint(1, 4) for _ in range(n)]
        # One feature that all have, in as many windows as there are hits.
        feature = next(made.sketches("AAC"))[0]
        made.lists = {feature: [(at, 0) for at, hits in enumerate(found, 1) for _ in range(hits)]}
        maxcand = draw.randint(1, 4)
        top = made.candidates("AAC", lowest="species", maxcand=maxcand)
        best = {}
        for target, hits in enumerate(found, 1):
            taxid = made.lineages[target][4]
            if taxid and (taxid not in best or hits > best[taxid][0]):
                best[taxid] = hits, target
        ordered = sorted(best.values(), key=lambda each: (-each[0], each[1]))[:maxcand]
        assert [(each.hits, each.target) for each in top] == ordered
