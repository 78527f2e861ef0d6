"""Each option of sketches where it changes what is called, beside the model."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kmer import models as model
from kmer.options.world import LATER, WORLD, called, made_later
from kmer.taxonomy_model import SLOTS
from kmer.worlds import World, fasta, rows

from dgpuhash.kmer import SketchIndex
from dgpuhash.kmer.sequences import files as sequence_files

SMALL = {"k": 11, "sketch": 8, "window": 40}


@cache
def sketch_model(**built):
    return model.SketchModel(WORLD.references, WORLD.taxonomy, **built)


def by_sketches(made, pairs, **options):
    """Return the call and the top list of each pair, as the model has them."""
    return [
        (taxid, [(each.taxid, each.hits) for each in top])
        for taxid, top in made.classify(pairs, **options)
    ]


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
    calls = called(built(SketchIndex, **settings), WORLD.pairs, **options)
    assert rows(calls) == expected
    assert calls.hits.tolist() == [top[0][1] if top else 0 for _, top in expected]


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
    sizes += range(200, 260)
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


@pytest.mark.parametrize("paired", [True, False], ids=["pairs", "reads"])
@pytest.mark.parametrize(
    "options",
    [{}, {"lowest": "species", "hitdiff": 40, "maxcand": 4}, {"cov_percentile": 45}],
    ids=str,
)
def test_lines_reports_and_abundances_by_sketches(
    monkeypatch, built, reads, tmp_path, paired, options
):
    pairs = WORLD.pairs if paired else [(letters, "") for letters, _ in WORLD.pairs]
    made = sketch_model(**SMALL)
    expected = by_sketches(made, pairs, **options)
    calls = [taxid for taxid, _ in expected]
    monkeypatch.setattr(sequence_files, "CHUNK_NBYTES", 400)
    found = built(SketchIndex, **SMALL).classify(*reads[: 1 + paired], batch_letters=600, **options)
    assert sum(1 for _ in found) > 10
    ends = "" if paired else "/1"
    found.write(tmp_path / "calls", form="tsv")
    lines = (tmp_path / "calls").read_text().splitlines()
    assert lines == [f"pair{at}{ends}\t{taxid}" for at, taxid in enumerate(calls)]
    found.write(tmp_path / "kraken", form="kraken")
    tops = [line.split("\t")[4] for line in (tmp_path / "kraken").read_text().splitlines()]
    assert tops == [
        " ".join(f"{taxid}:{hits}" for taxid, hits in top) or "0:0" for _, top in expected
    ]
    assert list(found.report_lines()) == WORLD.taxonomy.kreport(list(map(made.lift, calls)))
    for rank in ("sequence", "species", "genus", "family", "domain"):
        shares = found.abundance(rank).set_index("taxid")["reads"].to_dict()
        assert shares.pop(0) == calls.count(0)
        assert shares == pytest.approx(made.abundances(calls, rank))
