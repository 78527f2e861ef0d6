"""Indexes of minimizers on workers: the calls, reports and contents of one device."""

from __future__ import annotations

import pickle
from itertools import chain

import pytest
from kmer.tiers import TINY, lines_without_codes
from kmer.workers.pairs import MODES, fields_of, of_pairs

from dgpuhash.errors import SpecError
from dgpuhash.kmer import MinimizerIndex, load_index
from dgpuhash.kmer.minimizers.on_workers import DistributedMinimizerIndex
from dgpuhash.kmer.sequences import files

SMALL = {"k": 14, "l": 11, "spaces": 2}


def items(index):
    made = index.gather() if hasattr(index, "gather") else index
    keys, nodes = made._table.items()
    return dict(zip(keys.tolist(), made.taxonomy.taxids[nodes].tolist(), strict=True))


@pytest.mark.parametrize(
    ("workers", "mode"), [(3, "distributed"), (2, "independent"), (2, "replicated")]
)
def test_tier_tiny(clients, workers, mode, monkeypatch):
    made = MinimizerIndex.build(
        TINY.folder / "genomes", taxonomy=TINY.taxonomy_folder, client=clients[workers], mode=mode
    )
    reads = [TINY.folder / f"reads_{mate}.fq.gz" for mate in (1, 2)]
    # Many batches, of 64 pairs or fewer.
    monkeypatch.setattr(files, "CHUNK_NBYTES", 64 * 230)
    found = made.classify(*reads, batch_letters=64 * 150)
    batches = [batch.calls.taxids.tolist() for batch in found]
    assert list(chain.from_iterable(batches)) == TINY.calls("kraken2.calls.tsv")
    assert len(batches) >= 50
    expected = lines_without_codes(TINY.text("kraken2.report").splitlines())
    assert lines_without_codes(list(found.report_lines())) == expected


@pytest.fixture(scope="module")
def expected(folder):
    return MinimizerIndex.build(folder, taxonomy=folder / "taxonomy", **SMALL)


@pytest.mark.parametrize(
    ("workers", "mode"),
    [
        (3, "distributed"),
        (1, "distributed"),
        (2, "independent"),
        (3, "independent"),
        (2, "replicated"),
    ],
)
def test_calls_and_contents(clients, folder, expected, workers, mode):
    made = MinimizerIndex.build(
        folder, taxonomy=folder / "taxonomy", client=clients[workers], mode=mode, **SMALL
    )
    assert items(made) == items(expected)
    assert list(made.inspect()) == list(expected.inspect())
    for options in ({"detail": True}, {"confidence": 0.3, "minimum_hit_groups": 1}):
        assert fields_of(of_pairs(made, **options)) == fields_of(of_pairs(expected, **options))


@pytest.mark.parametrize("mode", MODES)
def test_files_and_additions(clients, folder, expected, tmp_path, mode):
    first, *others = sorted(folder.glob("*.fa"))
    settings = {**SMALL, "taxonomy": folder / "taxonomy", "order": "given"}
    made = MinimizerIndex.build(first, client=clients[2], mode=mode, **settings)
    made.save(tmp_path / "first.dgki")
    again = DistributedMinimizerIndex.load(tmp_path / "first.dgki", client=clients[3], mode=mode)
    for index in (made, again):
        index.add(others, taxonomy=folder / "taxonomy")
        assert items(index) == items(expected)
        assert fields_of(of_pairs(index)) == fields_of(of_pairs(expected))
    again.save(tmp_path / "all.dgki")
    assert items(load_index(tmp_path / "all.dgki")) == items(expected)


def test_copies_have_no_addresses(expected):
    """Those of the tree's arrays would be another process's."""
    again = pickle.loads(pickle.dumps(expected))
    assert again._tree.packed != expected._tree.packed
    assert fields_of(of_pairs(again)) == fields_of(of_pairs(expected))


def test_what_is_wrong_is_told(clients, folder):
    made = MinimizerIndex.build(
        folder, taxonomy=folder / "taxonomy", client=clients[2], mode="distributed", **SMALL
    )
    with pytest.raises(SpecError, match="confidence"):
        of_pairs(made, confidence=2)
    with pytest.raises(SpecError, match="minimizer_data"):
        made.classify(folder / "0.fa", minimizer_data=True)
