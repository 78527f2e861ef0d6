"""Settings and options that are impossible or do not fit."""

from __future__ import annotations

import random

import pytest
from kmer.bad_input.inputs import FIRSTS, NAMES, RULES, by_rule, run, written
from kmer.worlds import arrays, fastq, rows

from dgpuhash.errors import FormatError, SequenceError, SpecError, TaxonomyError
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
    reads = written(tmp_path / "reads.fq", fastq(NAMES, FIRSTS))
    counts = KmerCounts.count(reads, 21)
    with pytest.raises(SpecError, match="k is 21 here and 22"):
        counts.merge(KmerCounts.count(reads, 22))
    with pytest.raises(SequenceError, match="pass 21 letters"):
        counts.query(["A" * 22])


def test_an_index_of_one_rule_is_none_of_the_other(tmp_path, indexes):
    reads = written(tmp_path / "reads.fq", fastq(NAMES, FIRSTS))
    KmerCounts.count(reads, 21).save(tmp_path / "counts.dgkc")
    for rule, other in (("metacache", "kraken2"), ("kraken2", "metacache")):
        said = f"was built by --rule {rule}, but --rule {other} was given"
        assert said in run("classify", indexes[rule], reads, "--rule", other, code=2)
        with pytest.raises(FormatError, match=rule):
            RULES[other].load(indexes[rule])
        with pytest.raises(FormatError):
            KmerCounts.load(indexes[rule])
        with pytest.raises(FormatError):
            RULES[rule].load(tmp_path / "counts.dgkc")
    for wrong in (tmp_path / "counts.dgkc", reads, written(tmp_path / "empty", "")):
        with pytest.raises(FormatError):
            load_index(wrong)
        error = run("classify", wrong, reads, "-o", tmp_path / "out", code=2)
        assert len(error.splitlines()) == 1
        assert not (tmp_path / "out").exists()
    # Options of the other rule.
    assert "--confidence" in run(
        "classify", indexes["metacache"], reads, "--confidence", 0.1, code=2
    )
    assert "--hitmin" in run("classify", indexes["kraken2"], reads, "--hitmin", 3, code=2)


@by_rule
def test_a_damaged_index_is_never_loaded(tmp_path, indexes, rule):
    whole = indexes[rule].read_bytes()
    expected = rows(load_index(indexes[rule]).call(*arrays(FIRSTS), detail=True))
    draw = random.Random(9)
    places = [*range(0, 64, 7), *(draw.randrange(len(whole)) for _ in range(60)), len(whole) - 1]
    refused = 0
    for at in places:
        changed = bytearray(whole)
        changed[at] ^= 1 << draw.randrange(8)
        try:
            index = load_index(written(tmp_path / "damaged.dgki", bytes(changed)))
        except FormatError:
            refused += 1
        else:
            # Between arrays there are a few bytes that nothing reads.
            assert whole[at] == 0
            assert rows(index.call(*arrays(FIRSTS), detail=True)) == expected
        with pytest.raises(FormatError):
            load_index(written(tmp_path / "short.dgki", whole[:at]))
    assert refused > len(places) - 5
    with pytest.raises(FormatError):
        load_index(written(tmp_path / "longer.dgki", whole + b"more"))
