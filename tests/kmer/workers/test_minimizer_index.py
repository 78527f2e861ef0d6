"""Indexes of minimizers on workers: the calls, reports and contents of one device."""

from __future__ import annotations

import pickle
from itertools import chain

import pytest
from kmer.tiers import TINY, lines_without_codes
from kmer.workers.pairs import MODES, WORLD, fields_of, of_pairs
from kmer.worlds import arrays

from dgpuhash.errors import SpecError
from dgpuhash.kmer import MinimizerIndex, load_index
from dgpuhash.kmer.minimizers import on_workers
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


@pytest.mark.parametrize(
    ("workers", "mode"), [(3, "distributed"), (2, "independent"), (2, "replicated")]
)
def test_distributions_are_those_of_one_device(
    clients, folder, tmp_path, monkeypatch, workers, mode
):
    """Counted on workers, and kept by files that they write and read."""
    monkeypatch.setattr(on_workers, "_COUNTED_LETTERS", 2000)
    given = {"taxonomy": folder / "taxonomy", "distributions": [40, 20], **SMALL}
    one, path = MinimizerIndex.build(folder, **given).distributions, tmp_path / "x.dgki"
    told = []
    made = MinimizerIndex.build(
        folder, client=clients[workers], mode=mode, progress=told.append, **given
    )
    made.save(path)
    there = load_index(path, client=clients[2], mode=mode)
    there.save(path, overwrite=True)
    again = load_index(path)
    for index in (made, made.gather(), there, again):
        assert list(index.distributions) == [20, 40]
        for length, found in index.distributions.items():
            assert list(found.lines()) == list(one[length].lines())
    assert sum(told) == 2 * again.stats()["letters"]
    assert items(again) == items(made)


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


READS = [TINY.folder / f"reads_{mate}.fq.gz" for mate in (1, 2)]
BUILT = {"references": TINY.folder / "genomes", "taxonomy": TINY.taxonomy_folder}


@pytest.fixture(scope="module")
def reported():
    return list(MinimizerIndex.build(**BUILT).classify(*READS, minimizer_data=True).report_lines())


@pytest.mark.parametrize(
    ("workers", "mode"),
    [(1, "distributed"), (2, "replicated"), (3, "independent"), (3, "distributed"),
     (8, "distributed")],
)  # fmt: skip
def test_minimizers_of_reads_are_counted(clients, reported, workers, mode, monkeypatch):
    """All and distinct ones, as on one device, however reads are parted into batches."""
    monkeypatch.setattr(on_workers, "_JOINED", 2)
    monkeypatch.setattr(files, "CHUNK_NBYTES", 2**16)
    made = MinimizerIndex.build(client=clients[workers], mode=mode, **BUILT)
    found = made.classify(*READS, batch_letters=2**16, minimizer_data=True)
    assert sum(len(batch.calls) for batch in found) == 4398
    assert list(found.report_lines()) == reported


def test_minimizers_of_batches_count_once(clients, folder, expected):
    """Those whose calls were made and never taken do not count."""
    made = MinimizerIndex.build(
        folder, taxonomy=folder / "taxonomy", client=clients[3], mode="distributed", **SMALL
    )
    seen, alone = made.seen_minimizers(), expected.seen_minimizers()
    assert [each.tolist() for each in seen.by_clade()] == [
        each.tolist() for each in alone.by_clade()
    ]
    firsts, seconds = zip(*WORLD.pairs, strict=True)
    batch = [*arrays(firsts), *arrays(seconds)]
    calls = [of_pairs(made, seen=seen), of_pairs(expected, seen=alone)]
    assert fields_of(calls[0]) == fields_of(calls[1])
    several = ((number, (batch, {})) for number in range(5))
    number, found = next(made.call_many(several, {"seen": seen}))
    assert (number, fields_of(found)) == (0, fields_of(calls[1]))
    of_pairs(expected, seen=alone)
    for one, other in zip(seen.by_clade(), alone.by_clade(), strict=True):
        assert one.tolist() == other.tolist()
        assert one.any()


def test_copies_have_no_addresses(expected):
    """Those of the tree's arrays would be another process's."""
    again = pickle.loads(pickle.dumps(expected))
    assert again._rule.tree.packed != expected._rule.tree.packed
    assert fields_of(of_pairs(again)) == fields_of(of_pairs(expected))


def test_what_is_wrong_is_told(clients, folder):
    made = MinimizerIndex.build(
        folder, taxonomy=folder / "taxonomy", client=clients[2], mode="distributed", **SMALL
    )
    with pytest.raises(SpecError, match="confidence"):
        of_pairs(made, confidence=2)
