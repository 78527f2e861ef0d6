"""Each option of both rules where it changes what is called, beside the model."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kmer import model
from kmer.taxonomy_model import SLOTS
from kmer.tiers import TINY
from kmer.worlds import World, arrays, fasta, rows

from dgpuhash.kmer.classify import Classification
from dgpuhash.kmer.minimizers.index import MinimizerIndex
from dgpuhash.kmer.references import References
from dgpuhash.kmer.sequences import files as sequence_files
from dgpuhash.kmer.sketches import building
from dgpuhash.kmer.sketches.index import SketchIndex

WORLD = World(1)
SMALL = {"k": 11, "sketch": 8, "window": 40}


@cache
def sketch_model(**built):
    return model.SketchModel(WORLD.references, WORLD.taxonomy, **built)


@cache
def minimizer_model(**built):
    return model.MinimizerModel(WORLD.references, WORLD.taxonomy, **built)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return WORLD.write(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def built(folder):
    """Return indexes of the references, each made once."""

    @cache
    def of(rule, **settings):
        files = sorted(folder.glob("*.fa"))
        return rule.build(files, taxonomy=folder / "taxonomy", **settings)

    return of


def by_sketches(made, pairs, **options):
    """Return the call and the top list of each pair, as the model has them."""
    return [
        (taxid, [(each.taxid, each.hits) for each in top])
        for taxid, top in made.classify(pairs, **options)
    ]


def by_minimizers(made, pairs, *, with_mates=True, **options):
    """Return what the model finds of each pair, or of the first mates alone."""
    calls = []
    qualities = WORLD.qualities if "minimum_base_quality" in options else [("", "")] * len(pairs)
    for (letters, mate), quality in zip(pairs, qualities, strict=True):
        calls.append(
            made.call(letters, mate if with_mates else None, qualities=quality, **options)
        )
    return calls


def called(index, pairs, *, with_mates=True, qualities=None, **options):
    firsts, seconds = zip(*pairs, strict=True)
    mates = arrays(seconds) if with_mates else ()
    if qualities:
        one, other = (arrays(each)[0] for each in zip(*qualities, strict=True))
        options |= {"qualities": one, "mate_qualities": other if with_mates else None}
    return index.call(*arrays(firsts), *mates, detail=True, **options)


SKETCHED = [
    ({"k": 12}, {}),
    ({"k": 15}, {}),
    ({"k": 16, "window": 127}, {}),
    ({"k": 17, "window": 60}, {}),
    ({"k": 24, "window": 60}, {}),
    ({"k": 31, "window": 80}, {}),
    ({"k": 32, "window": 70}, {}),
    *(({"sketch": n}, {}) for n in (1, 3, 4, 5, 6, 16, 64)),
    ({"window": 61}, {}),
    ({"window": 11}, {}),
    *(({"stride": n}, {}) for n in (7, 29, 31, 40)),
    *(({"cap": n}, {}) for n in (1, 2, 3)),
    ({"cap": 3, "remove_overpopulated": True}, {}),
    *(({}, {"lowest": rank}) for rank in ("subspecies", "species", "genus", "family", "domain")),
    *(({}, {"highest": rank}) for rank in ("sequence", "species", "genus")),
    ({}, {"lowest": "species", "highest": "species"}),
    *(({}, {"hitmin": n}) for n in (1, 4, 9, 30)),
    *(({}, {"hitdiff": share}) for share in (0, 33.3, 80)),
    *(({}, {"maxcand": n}) for n in (1, 3, 5, 100)),
    ({}, {"maxcand": 3, "lowest": "species", "hitdiff": 40}),
    ({}, {"insertsize": 400}),
    ({}, {"insertsize": 5000}),
    *(({}, {"cov_percentile": share}) for share in (12.5, 45, 90)),
    ({}, {"cov_percentile": 45, "lowest": "species", "maxcand": 4}),
]


@pytest.mark.parametrize(("settings", "options"), SKETCHED, ids=str)
def test_each_option_of_sketches_does_what_the_model_does(built, settings, options):
    settings = SMALL | settings
    expected = by_sketches(sketch_model(**settings), WORLD.pairs, **options)
    usual = by_sketches(sketch_model(**SMALL), WORLD.pairs)
    assert expected != usual
    index = built(SketchIndex, **settings)
    assert rows(called(index, WORLD.pairs, **options)) == expected


MINIMIZED = [
    *(({"k": k, "l": 15}, {}) for k in (15, 17, 22, 40)),
    *(({"k": 24, "l": l, "spaces": n}, {}) for l, n in ((16, 3), (12, 2), (23, 5), (4, 0), (1, 0))),
    ({"k": 35, "l": 31, "spaces": 7}, {}),
    *(({"k": 35, "l": 31, "spaces": n}, {}) for n in (0, 1, 6)),
    ({"k": 31, "l": 31}, {}),
    ({"spaces": 0}, {}),
    ({"spaces": 3}, {}),
    *(({}, {"confidence": share}) for share in (0.12, 0.21, 0.5, 0.99, 1.0)),
    *(({}, {"minimum_hit_groups": n}) for n in (0, 1, 4, 20)),
    *(({}, {"minimum_base_quality": n}) for n in (3, 21, 41)),
    *(({}, {"quick": True, "minimum_hit_groups": n}) for n in (0, 1, 2, 5)),
    ({}, {"ignore_ambiguous": True, "confidence": 0.3}),
]
FEW = {"k": 20, "l": 15, "spaces": 2}


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


def digests(made):
    return {
        "locations": model.digest(made.locations()),
        "features": model.digest(made.feature_counts()),
    }


@pytest.mark.parametrize(
    "settings", [settings for settings, options in SKETCHED if not options], ids=str
)
def test_features_of_references_are_where_the_model_says(built, settings):
    settings = SMALL | settings
    assert built(SketchIndex, **settings).digests() == digests(sketch_model(**settings))


def made_later(rule, folder, first, then, **settings):
    """Return an index that got some files after it was built of others."""
    files = [folder / f"{number}.fa" for number in (*first, *then)]
    index = rule.build(files[: len(first)], taxonomy=folder / "taxonomy", **settings)
    index.add(files[len(first) :], taxonomy=folder / "taxonomy")
    return index, [each for number in (*first, *then) for each in WORLD.files[number]]


LATER = [((0, 1), (2, 3)), ((2,), (0, 1, 3)), ((0, 3), (1,))]


@pytest.mark.parametrize("removes", [False, True], ids=["kept", "removed"])
@pytest.mark.parametrize("cap", [1, 2, 3, 5])
@pytest.mark.parametrize(("first", "then"), LATER)
def test_sketches_added_later_count_as_if_they_were_there(folder, first, then, cap, removes):
    settings = SMALL | {"cap": cap, "remove_overpopulated": removes}
    index, references = made_later(SketchIndex, folder, first, then, **settings)
    made = model.SketchModel(references, WORLD.taxonomy, **settings)
    assert index.digests() == digests(made)
    assert made.lists or cap == 1
    expected = by_sketches(made, WORLD.pairs[:40])
    assert rows(called(index, WORLD.pairs[:40])) == expected


@pytest.mark.parametrize(("first", "then"), LATER)
def test_minimizers_added_later_count_as_if_they_were_there(folder, first, then):
    index, references = made_later(MinimizerIndex, folder, first, then, **FEW)
    made = model.MinimizerModel(references, WORLD.taxonomy, **FEW)
    expected = by_minimizers(made, WORLD.pairs, confidence=0.1)
    calls = called(index, WORLD.pairs, confidence=0.1)
    assert rows(calls) == [(each.taxid, each.runs()) for each in expected]


@pytest.fixture
def in_pieces(monkeypatch):
    """Cut references into pieces of about a hundred letters."""
    monkeypatch.setitem(References.batches.__kwdefaults__, "batch_letters", 60)
    monkeypatch.setitem(building._BATCH_LETTERS, "cpu", 60)
    monkeypatch.setattr(sequence_files, "CHUNK_NBYTES", 23)


@pytest.mark.usefixtures("in_pieces")
@pytest.mark.parametrize(
    "settings", [{}, {"stride": 7}, {"stride": 40}, {"window": 11}, {"cap": 2}, {"k": 24}], ids=str
)
def test_features_of_records_in_many_pieces_are_all_there(folder, settings):
    settings = SMALL | settings
    index = SketchIndex.build(folder, taxonomy=folder / "taxonomy", **settings)
    assert index.digests() == digests(sketch_model(**settings))


@pytest.mark.parametrize("stride", [1, 7, 29, 30, 40])
@pytest.mark.parametrize("cut", [False, True], ids=["whole", "in pieces"])
def test_records_that_end_with_a_window(tmp_path, request, stride, cut):
    """One window's letters are one window; after a later one that ends them a shorter follows."""
    window, draw = 40, World(3, pairs=9)
    sizes = [window + steps * stride + more for steps in (0, 1, 2) for more in (-1, 0, 1)]
    # Some of these end with the first window of their last piece.
    sizes += range(440, 520)
    references = [
        model.Reference(f"of{n}.{size}", draw.letters(size)) for n, size in enumerate(sizes)
    ]
    (tmp_path / "all.fa").write_text(fasta(references))
    if cut:
        request.getfixturevalue("in_pieces")
    settings = SMALL | {"window": window, "stride": stride}
    index = SketchIndex.build(tmp_path, taxonomy=None, **settings)
    made = model.SketchModel(references, WORLD.taxonomy, **settings)
    assert index.digests() == digests(made)
    pairs = [(each.letters, other.letters) for each in references[:9] for other in references[:9]]
    assert rows(called(index, pairs)) == by_sketches(made, pairs)


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
    batches = list(Classification(index, *reads, batch_letters=64 * 150))
    assert len(batches) >= 50
    assert [taxid for batch in batches for taxid in batch.calls.taxids.tolist()] == expected


EXPECTED = {SketchIndex: "metacache.sequence.calls.tsv", MinimizerIndex: "kraken2.calls.tsv"}


@given(
    seed=st.integers(0, 2**32),
    k=st.integers(1, 62),
    l=st.integers(1, 31),
    share=st.floats(0, 1),
    confidence=st.sampled_from([0, 0.07, 0.3, 1]),
    groups=st.integers(0, 5),
    with_mates=st.booleans(),
)
def test_minimizers_of_any_world_call_as_the_model_does(
    tmp_path_factory, seed, k, l, share, confidence, groups, with_mates  # noqa: E741
):
    world = World(seed, pairs=12, scale=120)
    settings = {"k": min(max(k, l), l + 31), "l": l, "spaces": int(share * (l // 4))}
    options = {"confidence": confidence, "minimum_hit_groups": groups}
    made = model.MinimizerModel(world.references, world.taxonomy, **settings)
    folder = world.write(tmp_path_factory.mktemp("any"))
    index = MinimizerIndex.build(folder, taxonomy=folder / "taxonomy", **settings)
    expected = by_minimizers(made, world.pairs, with_mates=with_mates, **options)
    calls = called(index, world.pairs, with_mates=with_mates, **options)
    assert rows(calls) == [(each.taxid, each.runs()) for each in expected]


@given(
    seed=st.integers(0, 2**32),
    k=st.integers(1, 32),
    windows=st.tuples(st.integers(0, 60), st.floats(0, 1)),
    sketch=st.integers(1, 20),
    cap=st.sampled_from([1, 2, 3, 7, 254]),
    removes=st.booleans(),
    ranks=st.tuples(st.sampled_from(SLOTS[:-1]), st.sampled_from(SLOTS)),
    hits=st.tuples(st.sampled_from([None, 0, 1, 3]), st.floats(0, 100)),
    maxcand=st.integers(1, 6),
    insertsize=st.sampled_from([0, 300]),
    cov_percentile=st.sampled_from([0, 17, 61]),
)
def test_sketches_of_any_world_call_as_the_model_does(
    tmp_path_factory, seed, k, windows, sketch, cap, removes,
    ranks, hits, maxcand, insertsize, cov_percentile,
):  # fmt: skip
    world = World(seed, pairs=12, scale=120)
    window = k + windows[0]
    settings = {
        "k": k, "sketch": sketch, "window": window, "stride": max(1, int(windows[1] * window)),
        "cap": cap, "remove_overpopulated": removes,
    }  # fmt: skip
    low, high = sorted(ranks, key=SLOTS.index)
    options = {
        "lowest": low, "highest": high, "hitmin": hits[0], "hitdiff": hits[1], "maxcand": maxcand,
        "insertsize": insertsize, "cov_percentile": cov_percentile,
    }  # fmt: skip
    made = model.SketchModel(world.references, world.taxonomy, **settings)
    folder = world.write(tmp_path_factory.mktemp("any"))
    index = SketchIndex.build(folder, taxonomy=folder / "taxonomy", **settings)
    assert index.digests() == digests(made)
    for with_mates in (True, False):
        pairs = world.pairs if with_mates else [(letters, "") for letters, _ in world.pairs]
        expected = by_sketches(made, pairs, **options)
        assert rows(called(index, pairs, with_mates=with_mates, **options)) == expected
