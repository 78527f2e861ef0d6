"""Reports of counts by taxon beside those of Kraken 2, and plain Python."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from kmer.taxonomy_model import Model
from kmer.tiers import DATA

from dgpuhash.errors import ShapeError, TaxonomyError
from dgpuhash.kmer import Taxonomy
from dgpuhash.kmer.formats.report import kreport, mpa_report, taxon_texts

HERE = Path(__file__).parent / "data"


@pytest.fixture(scope="module")
def taxonomy():
    return Taxonomy.read(HERE / "taxonomy")


@pytest.fixture(scope="module")
def model():
    return Model.read(HERE / "taxonomy")


def calls_of(folder):
    lines = (folder / "kraken2.calls.tsv").read_text().splitlines()
    return [int(line.split("\t")[1]) for line in lines]


MINI = pytest.param(DATA / "tiers" / "mini", marks=pytest.mark.genomes)


@pytest.mark.parametrize("tier", [HERE / "tiny", MINI], ids=["tiny", "mini"])
def test_reports_are_those_of_kraken2(tier, taxonomy, model):
    calls = calls_of(tier)
    found = [line.split("\t") for line in kreport(taxonomy, calls)]
    expected = [line.split("\t") for line in (tier / "kraken2.report").read_text().splitlines()]
    # That build of Kraken 2 prints some letters as nothing.
    without = [[row[:3] + row[4:] for row in rows] for rows in (found, expected)]
    assert without[0] == without[1]
    for row, other in zip(found, expected, strict=True):
        assert other[3] in (row[3], row[3].lstrip("RDO"))
    assert ["\t".join(row) for row in found] == model.kreport(calls)


@pytest.mark.parametrize("zero_counts", [False, True])
def test_reports_are_those_of_plain_python(taxonomy, model, zero_counts):
    rng = np.random.default_rng(2)
    for n in (0, 1, 7, 400):
        calls = rng.choice([0, *model.taxa], n).tolist()
        assert list(kreport(taxonomy, calls, zero_counts=zero_counts)) == model.kreport(
            calls, zero_counts=zero_counts
        )
        assert list(mpa_report(taxonomy, calls, zero_counts=zero_counts)) == model.mpa_report(
            calls, zero_counts=zero_counts
        )


def test_counts_are_added_and_merged_taxids_followed(taxonomy):
    counts = Counter([562, 562, 0, 573, 1034808])
    found = list(kreport(taxonomy, [*counts, 573], [*counts.values(), 4]))
    assert found == list(kreport(taxonomy, [562, 562, 0, 573, 562, 573, 573, 573, 573]))


def test_minimizers_are_two_columns(taxonomy):
    some = np.arange(len(taxonomy.taxids))
    lines = list(kreport(taxonomy, [562, 0], minimizers=(some * 3, some * 2)))
    plain = list(kreport(taxonomy, [562, 0]))
    for line, other in zip(lines, plain, strict=True):
        fields = line.split("\t")
        number = int(taxonomy.numbers([int(fields[6])])[0])
        assert fields[3:5] == [str(number * 3), str(number * 2)]
        assert "\t".join(fields[:3] + fields[5:]) == other


def test_names_stand_for_taxids(taxonomy):
    assert taxon_texts(taxonomy, [562, 0, 1034808]).tolist() == [
        "Escherichia coli (taxid 562)",
        "unclassified (taxid 0)",
        "Escherichia coli (taxid 1034808)",
    ]


def test_counts_that_do_not_fit_are_refused(taxonomy):
    with pytest.raises(ShapeError, match=r"pass one count for each taxid"):
        list(kreport(taxonomy, [562, 0], [1]))
    with pytest.raises(ShapeError, match=r"pass one of each of the taxonomy's 181 numbers"):
        list(kreport(taxonomy, [562], minimizers=([1], [1])))
    with pytest.raises(TaxonomyError, match=r"1 taxid not in the taxonomy: 7"):
        list(mpa_report(taxonomy, [7]))
