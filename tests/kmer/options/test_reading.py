"""Options of how references are read, beside the model of what is read then."""

from __future__ import annotations

import random

import pytest
from kmer import models as model
from kmer.options.world import WORLD, called
from kmer.taxonomy_model import Model
from kmer.worlds import TAXA, fasta, rows

from dgpuhash.errors import TaxonomyError
from dgpuhash.kmer import MinimizerIndex, SketchIndex

SETTINGS = {
    SketchIndex: {"k": 11, "sketch": 8, "window": 40},
    MinimizerIndex: {"k": 20, "l": 15, "spaces": 2},
}
PAIRS = WORLD.pairs[:40]
by_rule = pytest.mark.parametrize("rule", SETTINGS)


def expected_of(rule, references):
    """Return the call and the details of each pair, as the model has them."""
    taxonomy = Model(TAXA)
    if rule is SketchIndex:
        made = model.SketchModel(references, taxonomy, **SETTINGS[rule])
        return [
            (taxid, [(each.taxid, each.hits) for each in top])
            for taxid, top in made.classify(PAIRS)
        ]
    made = model.MinimizerModel(references, taxonomy, **SETTINGS[rule])
    calls = [made.call(*pair) for pair in PAIRS]
    return [(each.taxid, each.runs()) for each in calls]


@by_rule
def test_small_letters_are_masked_where_that_is_asked_for(folder, rule):
    masked = str.maketrans("acgtun", "NNNNNN")
    references = [
        each._replace(letters=each.letters.translate(masked)) for each in WORLD.references
    ]
    expected = expected_of(rule, references)
    assert expected != expected_of(rule, WORLD.references)
    for mask, wanted in (("lowercase", expected), ("none", expected_of(rule, WORLD.references))):
        index = rule.build(folder, taxonomy=folder / "taxonomy", mask=mask, **SETTINGS[rule])
        assert rows(called(index, PAIRS)) == wanted


@by_rule
def test_references_are_numbered_by_path_or_as_they_are_given(folder, rule):
    given = [folder / f"{number}.fa" for number in (2, 0, 3, 1)]
    for order, numbers in (("path", (0, 1, 2, 3)), ("given", (2, 0, 3, 1))):
        index = rule.build(given, taxonomy=folder / "taxonomy", order=order, **SETTINGS[rule])
        references = [each for number in numbers for each in WORLD.files[number]]
        assert index.targets.names == [each.name for each in references]
        assert rows(called(index, PAIRS)) == expected_of(rule, references)


@by_rule
def test_unplaced_references_are_told_and_have_no_taxa(tmp_path, folder, rule):
    draw = random.Random(3)
    references = [
        each._replace(taxid=0) if draw.random() < 0.4 else each for each in WORLD.references
    ]
    n = sum(each.taxid == 0 for each in references)
    text = "".join(fasta([each]).replace(" taxid|0", "") for each in references)
    (tmp_path / "some.fa").write_text(text)
    for allowed in (0, n - 1):
        with pytest.raises(TaxonomyError, match=f"{n} references without a taxid"):
            rule.build(tmp_path, taxonomy=folder / "taxonomy", allow_unplaced=allowed)
    index = rule.build(tmp_path, taxonomy=folder / "taxonomy", allow_unplaced=n, **SETTINGS[rule])
    expected = expected_of(rule, references)
    assert expected != expected_of(rule, WORLD.references)
    assert rows(called(index, PAIRS)) == expected


@by_rule
def test_letters_u_are_t_by_one_rule_and_break_kmers_by_the_other(tmp_path, folder, rule):
    letters = "".join(random.Random(5).choices("ACGT", k=300))
    # As Kraken 2 has them, minimizers at ambiguous letters count; here none do.
    settings = SETTINGS[rule] | ({"ambiguous": "exact"} if rule is MinimizerIndex else {})
    taxids = {}
    for name, text in (("t", letters), ("u", letters.replace("T", "U"))):
        (tmp_path / name).write_text(f">{name} taxid|8\n{text}\n")
        index = rule.build(tmp_path / name, taxonomy=folder / "taxonomy", **settings)
        for read in (letters, letters.replace("T", "u")):
            (taxid,) = called(index, [(read, "")], with_mates=False).taxids.tolist()
            taxids[name + read[letters.index("T")]] = taxid
    if rule is SketchIndex:
        assert taxids == {"tT": -1, "tu": -1, "uT": -1, "uu": -1}
    else:
        assert taxids == {"tT": 8, "tu": 0, "uT": 0, "uu": 0}
