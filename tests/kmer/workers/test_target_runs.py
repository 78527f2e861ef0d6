"""Runs of references have each target once, whole, wherever files are split."""

from __future__ import annotations

import gzip

import pytest
from kmer.workers.texts import bgzf
from kmer.worlds import World, fasta

from dgpuhash.kmer import MinimizerIndex, SketchIndex, Taxonomy
from dgpuhash.kmer.cluster import Workers
from dgpuhash.kmer.references import References
from dgpuhash.kmer.target_runs import TargetRun, dealt_runs, headers_of, runs_on

SMALL = World(2, pairs=12, scale=200)
PACKINGS = {
    "plain": (bytes, True),
    "bgzf": (lambda text: bgzf(text, 300), True),
    "gz": (gzip.compress, False),
    "blank lines": (lambda text: b"\n\n" + text, False),
}


@pytest.mark.parametrize("packing", PACKINGS)
def test_runs_have_their_targets(clients, tmp_path, monkeypatch, packing):
    monkeypatch.setattr("dgpuhash.kmer.worker_reads.COUNTED_NBYTES", 1000)
    pack, is_cut = PACKINGS[packing]
    for number, some in enumerate([SMALL.references, SMALL.references[:2]]):
        text = fasta([each._replace(name=f"{each.name}.{number}") for each in some])
        (tmp_path / f"{number}.fa").write_bytes(pack(text.encode()))
    found = References(tmp_path)
    told = [headers_of(file) for file in found.files]
    found.know(*([each[field] for each in told] for field in range(3)))
    expected = [each.letters for each in (*SMALL.references, *SMALL.references[:2])]
    for n in (1, 3, 7, 40):
        runs = runs_on(Workers(clients[3]), found, n)
        assert [run.first for run in runs[1:]] == [run.last for run in runs[:-1]]
        letters = {}
        for run in runs:
            for batch in run.batches(overlap=10, batch_letters=90):
                for row, target in enumerate(batch.targets.tolist()):
                    assert run.first <= target < run.last
                    start, end = batch.offsets[row : row + 2].tolist()
                    piece = batch.letters[start:end].tobytes().decode()
                    before = letters.get(target, "")[: int(batch.starts[row])]
                    letters[target] = before + piece
        assert [letters.get(at, "") for at in range(len(expected))] == expected
        cuts = [file.cut for run in runs for file in run.files if file.cut is not None]
        assert bool(cuts) == (is_cut and n > 1)


def test_each_worker_has_as_many_runs(clients, folder):
    workers, found = Workers(clients[3]), References(folder)
    found.place(Taxonomy.read(folder / "taxonomy"))
    letters = int(found.targets.lengths.sum())
    for most in (letters, letters // 4, letters // 7):
        dealt = dealt_runs(workers, found, most)
        n = len(dealt) // 3
        assert len(dealt) == 3 * n >= letters / most > len(dealt) - 3
        assert [address for _, address in dealt] == workers.addresses * n
        assert [run.first for run, _ in dealt[1:]] == [run.last for run, _ in dealt[:-1]]


@pytest.mark.parametrize("index", [MinimizerIndex, SketchIndex])
def test_runs_are_asked_of_all_workers(clients, folder, monkeypatch, index):
    """Not of the one alone that has the index's taxonomy, where nobody takes work of others."""
    asked, submit = [], Workers.submit

    def told(self, call, *args, near=None, **options):
        if any(isinstance(each, TargetRun) for each in args):
            asked.append((call.__name__, near))
        return submit(self, call, *args, near=near, **options)

    monkeypatch.setattr(Workers, "submit", told)
    index.build(folder, taxonomy=folder / "taxonomy", client=clients[3], mode="distributed")
    where = [near for name, near in asked if name == "keys_of_run"]
    assert where == Workers(clients[3]).addresses
