"""What established tools stumble over."""

from __future__ import annotations

import random

import numpy as np
import pytest
from kmer import models as model
from kmer.bad_input.inputs import FIRSTS, NAMES, RULES, WORLD, by_rule, written
from kmer.taxonomy_model import Model
from kmer.worlds import TAXA, arrays, fasta, fastq

from dgpuhash.errors import TaxonomyError
from dgpuhash.kmer import (
    KmerCounts,
    Taxonomy,
    load_index,
    read_sequences,
)
from dgpuhash.kmer.sequences import files as sequence_files


@pytest.mark.parametrize("k", [1, 2, 4, 6])
def test_palindromes_of_small_k_are_those_that_are_there(tmp_path, k):
    """KMC 3.2.1 finds k-mers that are not in the text."""
    records = [
        ("", "ACGT" * 20 + "N" + "AATT" * 3, ""),
        ("", "GGATCC" * 4, ""),
        ("", "AT" * 30, ""),
    ]
    text = "".join(f">{at}\n{letters}\n" for at, (_, letters, _) in enumerate(records))
    counts = KmerCounts.count(written(tmp_path / "palindromes.fa", text), k)
    expected = model.kmer_counts(records, k)
    assert counts.query(list(expected)).tolist() == list(expected.values())
    assert (len(counts), counts.total) == (len(expected), sum(expected.values()))
    every = ["".join("ACGT"[at // 4**place % 4] for place in range(k)) for at in range(4**k)]
    others = [
        each for each in every[:5000] if min(each, model.reverse_complement(each)) not in expected
    ]
    assert not counts.query(others).any()


@by_rule
def test_a_taxid_that_the_taxonomy_lacks_is_told_and_loses_no_reads(tmp_path, folder, rule):
    """MetaCache says that all are ranked, and loses their reads."""
    taxonomy = Taxonomy.read(folder / "taxonomy")
    draw = random.Random(4)
    letters = ["".join(draw.choices("ACGT", k=400)) for _ in range(2)]
    file = written(
        tmp_path / "refs.fa", f">known taxid|8\n{letters[0]}\n>lost taxid|777\n{letters[1]}\n"
    )
    with pytest.raises(TaxonomyError, match=r"1 reference whose taxid is not .*lost of .*: 777"):
        RULES[rule].build(file, taxonomy=taxonomy)
    index = RULES[rule].build(file, taxonomy=taxonomy, allow_unplaced=1)
    assert any("777" in note for note in index.stats().get("notes", ["777"]))
    reads = [each[at : at + 100] for each in letters for at in (0, 90, 200)]
    calls = index.call(*arrays(reads)).taxids.tolist()
    assert calls == ([-1] * 3 + [-2] * 3 if rule == "metacache" else [8] * 3 + [0] * 3)
    if rule == "metacache":
        # Without a taxon there is none to call at a higher rank.
        assert index.call(*arrays(reads), lowest="species").taxids.tolist() == [8] * 3 + [0] * 3


def test_half_a_read_of_n_against_confidence(indexes):
    """Kraken 2 counts k-mers with other letters; its manual says that it does not."""
    index = load_index(indexes["kraken2"])
    made = model.MinimizerModel(WORLD.references, WORLD.taxonomy)
    reads = [
        each.letters[10:110].upper().replace("U", "T") + "N" * 100
        for each in WORLD.references
        if len(each.letters) > 110
    ]
    seen = set()
    for confidence in (0, 0.2, 0.3, 0.38, 0.5, 0.9):
        for ignored in (False, True):
            options = {"confidence": confidence, "ignore_ambiguous": ignored}
            calls = index.call(*arrays(reads), **options).taxids.tolist()
            assert calls == [made.call(each, **options).taxid for each in reads]
            seen.add(tuple(calls))
    assert len(seen) > 3


@pytest.mark.parametrize("form", ["fasta", "fastq"])
def test_a_record_longer_than_any_buffer(tmp_path, folder, form):
    """Buffers have 1 MiB of text; some readers end at 4 MiB."""
    n = 4_600_000
    assert n > sequence_files.CHUNK_NBYTES
    letters = np.frombuffer(b"ACGT", np.uint8)[np.random.default_rng(2).integers(0, 4, n)]
    text = letters.tobytes()
    content = b">long taxid|8\n" + text
    if form == "fastq":
        content = b"@long taxid|8\n" + text + b"\n+\n" + b"I" * n + b"\n"
    file = written(tmp_path / "long", content)
    assert KmerCounts.count(file, 31).total == n - 30
    some = [text[at : at + 200].decode() for at in (0, 2**20 - 100, 2**22 - 100, n - 200)]
    for rule, kind in RULES.items():
        index = kind.build(file, taxonomy=folder / "taxonomy")
        assert index.targets.lengths.tolist() == [n]
        expected = -1 if rule == "metacache" else 8
        assert index.call(*arrays(some)).taxids.tolist() == [expected] * 4
        (batch,) = index.classify(file)
        assert batch.calls.taxids.tolist() == [expected]
        hits = batch.calls.hits.tolist()
        assert hits[0] > n // 112 * 16 if rule == "metacache" else hits == [n - 34]


@pytest.mark.parametrize("overlap", [None, 3])
def test_reads_are_never_cut(tmp_path, monkeypatch, overlap):
    monkeypatch.setattr(sequence_files, "CHUNK_NBYTES", 7)
    file = written(tmp_path / "reads.fq", fastq(NAMES[:9], FIRSTS[:9]))
    batches = list(read_sequences(file, overlap=overlap, batch_letters=10))
    assert [batch.sequence(row) for batch in batches for row in range(len(batch))] == [
        each.encode() for each in FIRSTS[:9]
    ]
    assert not any(batch.is_cut or batch.continues for batch in batches)


@pytest.mark.parametrize(("overlap", "stride"), [(30, 1), (30, 31), (3, 9), (0, 1)])
def test_pieces_may_share_more_than_a_batch(tmp_path, monkeypatch, overlap, stride):
    """Letters that are there already are no reason to take a batch."""
    monkeypatch.setattr(sequence_files, "CHUNK_NBYTES", 7)
    letters = "".join(random.Random(1).choices("ACGT", k=200))
    file = written(tmp_path / "one.fa", f">one\n{letters[:90]}\n{letters[90:]}\n")
    for size in (0, 1, 20):
        found = ""
        for batch in read_sequences(file, overlap=overlap, stride=stride, batch_letters=size):
            assert batch.starts[0] <= len(found)
            found = found[: int(batch.starts[0])] + batch.sequence(0).decode()
        assert found == letters


@by_rule
def test_the_same_genome_twice(tmp_path, folder, rule):
    """Under one name it is told; under two, reads are of both."""
    taxonomy = folder / "taxonomy"
    one = WORLD.files[0]
    with pytest.raises(TaxonomyError, match="id is there already"):
        RULES[rule].build([folder / "0.fa", folder / "0.fa"], taxonomy=taxonomy)
    for taxid in (one[0].taxid, 16):
        twins = [*one, *(each._replace(name=f"twin.{each.name}", taxid=taxid) for each in one)]
        file = written(tmp_path / "twins.fa", fasta(twins))
        index = RULES[rule].build(file, taxonomy=taxonomy)
        reads = [each.letters[at : at + 120] for each in one for at in range(0, 600, 90)]
        calls = index.call(*arrays(reads)).taxids.tolist()
        if rule == "metacache":
            made = model.SketchModel(twins, Model(TAXA))
            assert calls == [call for call, _ in made.classify((each, "") for each in reads)]
            assert not any(call < 0 for call in calls)
        else:
            made = model.MinimizerModel(twins, Model(TAXA))
            assert calls == [made.call(each).taxid for each in reads]
        assert set(calls) - {0}
