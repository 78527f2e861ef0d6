"""Counts that workers made are those of one device."""

from __future__ import annotations

import gzip
import io

import pytest
from kmer.tiers import TINY
from kmer.workers.texts import bgzf

from dgpuhash.errors import SequenceError, SpecError
from dgpuhash.kmer import KmerCounts
from dgpuhash.kmer.counts import on_workers


def dump(counts):
    text = io.BytesIO()
    counts.dump(text, sort=True)
    return text.getvalue()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Some genomes as plain text, and one as it is."""
    folder = tmp_path_factory.mktemp("genomes")
    genomes = sorted((TINY.folder / "genomes").iterdir())[:3]
    for file in genomes[:2]:
        (folder / file.stem).write_bytes(gzip.decompress(file.read_bytes()))
    return [*sorted(folder.iterdir()), genomes[2]]


@pytest.mark.parametrize(
    ("workers", "k", "options"),
    [(8, 31, {}), (2, 4, {"canonical": False, "min_count": 2}), (1, 40, {"memory": 2**24})],
)
def test_counts_are_those_of_one_device(clients, files, monkeypatch, workers, k, options):
    expected = KmerCounts.count(files, k, **options)
    for nbytes in (2**20, 6000):
        monkeypatch.setattr(on_workers, "RANGE_NBYTES", nbytes)
        found = KmerCounts.count(files, k, client=clients[workers], **options)
        assert dump(found) == dump(expected)
        for name in ("records", "letters", "kmers"):
            assert found.told[name] == expected.told[name]
        assert found.merge(expected).total == 2 * expected.total


def test_they_are_saved_as_any(clients, files, tmp_path):
    found = KmerCounts.count(files, client=clients[2])
    found.save(tmp_path / "x.dgkc")
    assert dump(KmerCounts.load(tmp_path / "x.dgkc")) == dump(found)


def test_what_is_wrong_is_told_as_ever(clients, tmp_path, monkeypatch):
    """Records and lines are those of the file, in whichever range they are."""
    monkeypatch.setattr(on_workers, "RANGE_NBYTES", 50)
    file = tmp_path / "r.fa"
    file.write_text(">r\nACGTACGT\n" * 20 + "@q\nACGT\n+\nIIII\n")
    with pytest.raises(SequenceError) as expected:
        KmerCounts.count(file, 3)
    with pytest.raises(SequenceError) as found:
        KmerCounts.count(file, 3, client=clients[2])
    assert str(found.value) == str(expected.value)
    monkeypatch.setattr(on_workers, "RANGE_NBYTES", 50_000)
    # What a range alone would look at as a protein is none in the whole.
    file.write_text(">r\n" + "ACGTACGTAC\n" * 9000 + "E" * 99 + "\n" + "ACGTACGTAC\n" * 9)
    assert len(KmerCounts.count(file, 3, client=clients[2])) == len(KmerCounts.count(file, 3))
    with pytest.raises(SequenceError, match="the longest record has"):
        KmerCounts.count(files_of_one(tmp_path), 9, client=clients[2])
    with pytest.raises(SequenceError, match="standard input"):
        KmerCounts.count("-", client=clients[2])
    with pytest.raises(SpecError, match="min_count"):
        KmerCounts.count(file, min_count=0, client=clients[2])


def files_of_one(folder):
    file = folder / "short.fa"
    file.write_text(">r\nACGT\n")
    return file


def test_files_that_end_early_are_never_counted(clients, tmp_path, monkeypatch):
    """Of BGZF also between two blocks, where each range of it is whole."""
    monkeypatch.setattr(on_workers, "RANGE_NBYTES", 50)
    whole = bgzf(b">r\nACGTACGT\n" * 40, 48)
    packed = tmp_path / "r.fa.gz"
    packed.write_bytes(whole)
    assert KmerCounts.count(packed, 3, client=clients[2]).total == 240
    for end in range(20, len(whole), 31):
        packed.write_bytes(whole[:end])
        with pytest.raises(SequenceError, match="cut short"):
            KmerCounts.count(packed, 3, client=clients[2])
