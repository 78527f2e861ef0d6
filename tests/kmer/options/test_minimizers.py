"""Each option of minimizers where it changes what is called, beside the model."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kmer import models as model
from kmer.options.world import LATER, WORLD, called, made_later
from kmer.worlds import World, rows

from dgpuhash.kmer import MinimizerIndex
from dgpuhash.kmer.references import References
from dgpuhash.kmer.sequences import files as sequence_files

FEW = {"k": 20, "l": 15, "spaces": 2}


@cache
def minimizer_model(**built):
    return model.MinimizerModel(WORLD.references, WORLD.taxonomy, **built)


def by_minimizers(made, pairs, *, with_mates=True, **options):
    """Return what the model finds of each pair, or of the first mates alone."""
    calls = []
    qualities = WORLD.qualities if "minimum_base_quality" in options else [("", "")] * len(pairs)
    for (letters, mate), quality in zip(pairs, qualities, strict=True):
        calls.append(made.call(letters, mate if with_mates else None, qualities=quality, **options))
    return calls


MINIMIZED = [
    *(({"k": k, "l": 15}, {}) for k in (15, 17, 22, 40)),
    *(
        ({"k": 24, "l": size, "spaces": n}, {})
        for size, n in ((16, 3), (12, 2), (23, 5), (4, 0), (1, 0))
    ),
    ({"k": 35, "l": 31, "spaces": 7}, {}),
    *(({"k": 35, "l": 31, "spaces": n}, {}) for n in (0, 1, 6)),
    ({"k": 31, "l": 31}, {}),
    ({"spaces": 0}, {}),
    ({"spaces": 3}, {}),
    ({"toggle": 0}, {}),
    ({"toggle": 2**64 - 1}, {}),
    *(({}, {"confidence": share}) for share in (0.12, 0.21, 0.5, 0.99, 1.0)),
    *(({}, {"minimum_hit_groups": n}) for n in (0, 1, 4, 20)),
    *(({}, {"minimum_base_quality": n}) for n in (3, 21, 41)),
    *(({"ambiguous": "exact"}, {"minimum_base_quality": n}) for n in (0, 3, 21)),
    *(({}, {"quick": True, "minimum_hit_groups": n}) for n in (0, 1, 2, 5)),
    ({}, {"ignore_ambiguous": True, "confidence": 0.3}),
]


@pytest.mark.parametrize("with_mates", [True, False], ids=["pairs", "reads"])
@pytest.mark.parametrize(("settings", "options"), MINIMIZED, ids=str)
def test_each_option_of_minimizers_does_what_the_model_does(built, settings, options, with_mates):
    settings = FEW | settings
    expected = by_minimizers(
        minimizer_model(**settings), WORLD.pairs, with_mates=with_mates, **options
    )
    usual = dict(options, confidence=0.3) if "ignore_ambiguous" in options else {}
    usual.pop("ignore_ambiguous", None)
    others = by_minimizers(minimizer_model(**FEW), WORLD.pairs, with_mates=with_mates, **usual)
    assert [each.line("") for each in expected] != [each.line("") for each in others]
    if settings == FEW:
        assert [each.taxid for each in expected] != [each.taxid for each in others]
    index = built(MinimizerIndex, **settings)
    qualities = WORLD.qualities if "minimum_base_quality" in options else None
    calls = called(index, WORLD.pairs, with_mates=with_mates, qualities=qualities, **options)
    assert calls.taxids.tolist() == [each.taxid for each in expected]
    if "quick" not in options:
        assert [runs for _, runs in rows(calls)] == [each.runs() for each in expected]
        assert calls.hits.tolist() == [each.hits(WORLD.taxonomy) for each in expected]


def test_minimizers_of_references_have_the_taxa_that_the_model_says(built):
    expected = Counter(minimizer_model(**FEW).taxids.values())
    index = built(MinimizerIndex, **FEW)
    taxids, counts = index.taxon_counts()
    assert dict(zip(taxids.tolist(), counts.tolist(), strict=True)) == expected
    assert len(index) == expected.total()


@pytest.mark.parametrize(("first", "then"), LATER)
def test_minimizers_added_later_count_as_if_they_were_there(folder, first, then):
    index, references = made_later(MinimizerIndex, folder, first, then, **FEW)
    made = model.MinimizerModel(references, WORLD.taxonomy, **FEW)
    expected = by_minimizers(made, WORLD.pairs, confidence=0.1)
    calls = called(index, WORLD.pairs, confidence=0.1)
    assert rows(calls) == [(each.taxid, each.runs()) for each in expected]


@pytest.mark.usefixtures("in_pieces")
@pytest.mark.parametrize("settings", [FEW, {"k": 35, "l": 31, "spaces": 7}], ids=str)
def test_minimizers_of_records_in_many_pieces_are_all_there(folder, settings):
    pieces = Counter(
        target
        for batch in References(sorted(folder.glob("*.fa"))).batches(overlap=34)
        for target in batch.targets.tolist()
    )
    assert sum(n >= 3 for n in pieces.values()) > 5
    files = sorted(folder.glob("*.fa"))
    index = MinimizerIndex.build(files, taxonomy=folder / "taxonomy", **settings)
    taxids, counts = index.taxon_counts()
    expected = Counter(minimizer_model(**settings).taxids.values())
    assert dict(zip(taxids.tolist(), counts.tolist(), strict=True)) == expected


@given(
    seed=st.integers(0, 2**32),
    k=st.integers(1, 62),
    size=st.integers(1, 31),
    share=st.floats(0, 1),
    confidence=st.sampled_from([0, 0.07, 0.3, 1]),
    groups=st.integers(0, 5),
    with_mates=st.booleans(),
)
def test_minimizers_of_any_world_call_as_the_model_does(
    tmp_path_factory, seed, k, size, share, confidence, groups, with_mates
):
    world = World(seed, pairs=12, scale=120)
    k = min(max(k, size), size + 31)
    settings = {"k": k, "l": size, "spaces": int(share * (size // 4))}
    options = {"confidence": confidence, "minimum_hit_groups": groups}
    made = model.MinimizerModel(world.references, world.taxonomy, **settings)
    folder = world.write(tmp_path_factory.mktemp("any"))
    index = MinimizerIndex.build(folder, taxonomy=folder / "taxonomy", **settings)
    expected = by_minimizers(made, world.pairs, with_mates=with_mates, **options)
    calls = called(index, world.pairs, with_mates=with_mates, **options)
    assert rows(calls) == [(each.taxid, each.runs()) for each in expected]


@pytest.mark.parametrize("paired", [True, False], ids=["pairs", "reads"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"confidence": 0.21},
        {"minimum_hit_groups": 4},
        {"minimum_base_quality": 21},
        {"quick": True},
        {"ignore_ambiguous": True, "confidence": 0.3},
    ],
    ids=str,
)
def test_lines_and_reports_by_minimizers(monkeypatch, built, reads, tmp_path, paired, options):
    expected = by_minimizers(minimizer_model(**FEW), WORLD.pairs, with_mates=paired, **options)
    monkeypatch.setattr(sequence_files, "CHUNK_NBYTES", 400)
    found = built(MinimizerIndex, **FEW).classify(
        *reads[: 1 + paired], batch_letters=600, **options
    )
    assert sum(1 for _ in found) > 10
    found.write(tmp_path / "calls")
    lines = (tmp_path / "calls").read_text().splitlines()
    ends = "" if paired else "/1"
    assert lines == [each.line(f"pair{at}{ends}") for at, each in enumerate(expected)]
    calls = [each.taxid for each in expected]
    assert list(found.report_lines()) == WORLD.taxonomy.kreport(calls)
    assert list(found.report_lines(style="mpa")) == WORLD.taxonomy.mpa_report(calls)
