"""Settings and options that are impossible or do not fit."""

from __future__ import annotations

import pytest
from kmer.bad_input.common import FIRSTS, RULES, run, written
from kmer.worlds import arrays

from dgpuhash.errors import SequenceError, SpecError, TaxonomyError
from dgpuhash.kmer import (
    KmerCounts,
    MinimizerIndex,
    SketchIndex,
    load_index,
)


def test_impossible_settings_are_refused(tmp_path, folder):
    taxonomy = folder / "taxonomy"
    for settings in (
        {"k": 0}, {"k": 33}, {"k": 65}, {"k": -1}, {"k": 2.5}, {"k": "x"}, {"sketch": 0},
        {"window": 0}, {"window": 15}, {"stride": 0}, {"stride": 128}, {"cap": 0}, {"l": 5},
        {"mask": "upper"}, {"order": "size"}, {"kmer": 3},
    ):  # fmt: skip
        with pytest.raises(SpecError, match=next(iter(settings))):
            SketchIndex.build(folder / "0.fa", taxonomy=taxonomy, **settings)
    for settings in (
        {"k": 0}, {"k": 30}, {"k": 65}, {"l": 0}, {"l": 32}, {"spaces": 8}, {"spaces": -1},
        {"k": 35.5}, {"window": 127}, {"mask": "upper"},
    ):  # fmt: skip
        with pytest.raises(SpecError, match=next(iter(settings))):
            MinimizerIndex.build(folder / "0.fa", taxonomy=taxonomy, **settings)
    for k in (0, 65):
        error = run("build", folder / "0.fa", "-k", k, "--rule", "metacache", "-o",
                    tmp_path / "out", code=2)  # fmt: skip
        assert f"k={k}" in error
        assert "use 1 to 32" in error


@pytest.mark.parametrize(
    ("rule", "options"),
    [
        ("metacache", {"lowest": "rank"}), ("metacache", {"highest": ""}),
        ("metacache", {"lowest": "genus", "highest": "species"}), ("metacache", {"hitmin": -1}),
        ("metacache", {"hitdiff": 101}), ("metacache", {"hitdiff": float("nan")}),
        ("metacache", {"maxcand": 0}), ("metacache", {"insertsize": -1}),
        ("metacache", {"cov_percentile": -1}), ("metacache", {"confidence": 0.1}),
        ("kraken2", {"confidence": 1.1}), ("kraken2", {"confidence": float("nan")}),
        ("kraken2", {"confidence": "much"}), ("kraken2", {"minimum_hit_groups": -1}),
        ("kraken2", {"minimum_base_quality": 94}), ("kraken2", {"maxcand": 2}),
    ],
    ids=str,
)  # fmt: skip
def test_impossible_options_are_refused_before_reads_are_read(tmp_path, indexes, rule, options):
    index = load_index(indexes[rule])
    reads = written(tmp_path / "bad.fq", "junk")
    with pytest.raises((SpecError, TaxonomyError)):
        index.classify(reads, **options)
    with pytest.raises((SpecError, TaxonomyError)):
        index.call(*arrays(FIRSTS), **options)


def test_k_may_be_more_than_the_letters_of_some_records_but_not_of_all(tmp_path, folder):
    few = written(tmp_path / "few.fa", ">a taxid|8\nACGTACGTAC\n>b taxid|9\nACG\n")
    assert KmerCounts.count(few, 10).total == 1
    with pytest.raises(SequenceError, match="longest record has 10 letters; use a smaller k"):
        KmerCounts.count(few, 11)
    for kind in RULES.values():
        index = kind.build(few, taxonomy=folder / "taxonomy")
        assert len(index.targets.names) == 2
        assert not index.call(*arrays(["ACGTACGTAC" * 9])).taxids.any()


def test_one_k_and_another_do_not_mix(tmp_path):
    reads = written(tmp_path / "reads.fq", GOOD)
    counts = KmerCounts.count(reads, 21)
    with pytest.raises(SpecError, match="k is 21 here and 22"):
        counts.merge(KmerCounts.count(reads, 22))
    with pytest.raises(SequenceError, match="pass 21 letters"):
        counts.query(["A" * 22])
