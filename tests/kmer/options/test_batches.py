"""Batches of any size, as the established tools call their reads."""

from __future__ import annotations

import pytest
from kmer.tiers import TINY
from kmer.worlds import arrays

from dgpuhash.kmer import MinimizerIndex, SketchIndex
from dgpuhash.kmer.sequences import files as sequence_files

EXPECTED = {SketchIndex: "metacache.sequence.calls.tsv", MinimizerIndex: "kraken2.calls.tsv"}


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
    batches = list(index.classify(*reads, batch_letters=64 * 150))
    assert len(batches) >= 50
    assert [taxid for batch in batches for taxid in batch.calls.taxids.tolist()] == expected
