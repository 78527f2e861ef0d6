"""Calls, reports, digests and files do not depend on workers, modes, batches or ranges."""

from __future__ import annotations

import time

import pytest
from distributed import stealing
from kmer.workers.pairs import WORLD
from kmer.worlds import fastq

from dgpuhash.kmer import MinimizerIndex, SketchIndex
from dgpuhash.kmer.minimizers import rule as minimizer_rule
from dgpuhash.kmer.sequences import reads as reading
from dgpuhash.kmer.sketches import building, on_workers

SKETCHES = {"k": 11, "sketch": 8, "window": 40, "remove_overpopulated": True, "order": "given"}
MINIMIZERS = {"k": 14, "l": 11, "spaces": 2, "order": "given"}
# Workers, mode, cap, letters of a batch.
CASES = [
    (4, "distributed", 2, 900),
    (4, "independent", 2, 900),
    (8, "independent", 3, 3000),
    (8, "distributed", 1, 3000),
    (8, "replicated", 1, 2**20),
]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files of mates, of which ranges and batches are."""
    folder = tmp_path_factory.mktemp("reads")
    names = [f"read{number} of some" for number in range(len(WORLD.pairs))]
    for mate, reads in enumerate(zip(*WORLD.pairs, strict=True), 1):
        (folder / f"{mate}.fq").write_text(fastq(names, list(reads)))
    return [folder / "1.fq", folder / "2.fq"]


@pytest.fixture(scope="module")
def of_one():
    """Keep what one device makes, by settings."""
    return {}


def built(kind, folder, settings, **cluster):
    """Return an index of some files, to which others were added."""
    first, second, *others = sorted(folder.glob("*.fa"))
    made = kind.build([first, second], taxonomy=folder / "taxonomy", **settings, **cluster)
    made.add(others)
    return made


def outputs(index, files, folder, **options):
    """Return all that is written of an index and of reads."""
    folder.mkdir()
    found = index.classify(*files, **options)
    form = "kraken" if index.rule == "kraken2" else "metacache"
    found.write(folder / "calls", form=form, classified=folder / "c#.fq")
    contents = index.digests() if index.rule == "metacache" else list(index.inspect())
    written = {path.name: path.read_bytes() for path in folder.iterdir()}
    told = index.stats()
    for name in list(told):
        # Sizes of tables, and how the index lies.
        if name.startswith("nbytes") or name in ("load", "mode", "why", "parts"):
            del told[name]
    return contents, list(found.report_lines()), written, told


@pytest.mark.parametrize(("workers", "mode", "cap", "batch_letters"), CASES)
def test_sketches(
    clients, folder, files, of_one, tmp_path, monkeypatch, workers, mode, cap, batch_letters
):
    settings = {**SKETCHES, "cap": cap}
    if cap not in of_one:
        of_one[cap] = outputs(built(SketchIndex, folder, settings), files, tmp_path / "one")
    monkeypatch.setattr(reading, "COUNTED_NBYTES", 2000)
    # Digests are of several ranges of features.
    monkeypatch.setattr(on_workers, "_LINES_OF_TASK", 300)
    # Records are cut into three pieces and more.
    monkeypatch.setitem(building._BATCH_LETTERS, "cpu", 300)
    made = built(SketchIndex, folder, settings, client=clients[workers], mode=mode)
    found = outputs(made, files, tmp_path / "some", batch_letters=batch_letters)
    assert found == of_one[cap]


@pytest.mark.parametrize(
    ("workers", "mode", "cap", "batch_letters"), [CASES[at] for at in (0, 2, 4)]
)
def test_minimizers(
    clients, folder, files, of_one, tmp_path, monkeypatch, workers, mode, cap, batch_letters
):
    if "minimizers" not in of_one:
        made = built(MinimizerIndex, folder, MINIMIZERS)
        of_one["minimizers"] = outputs(made, files, tmp_path / "one")
    monkeypatch.setattr(reading, "COUNTED_NBYTES", 2000)
    # Minimizers of a run are all folded before they are dealt out, or none are.
    monkeypatch.setattr(minimizer_rule, "_MOSTLY", 2 if cap == 1 else 0)
    made = built(MinimizerIndex, folder, MINIMIZERS, client=clients[workers], mode=mode)
    found = outputs(made, files, tmp_path / "some", batch_letters=batch_letters)
    assert found == of_one["minimizers"]


@pytest.mark.parametrize("mode", ["distributed", "independent"])
@pytest.mark.parametrize(
    ("kind", "settings"), [(SketchIndex, SKETCHES), (MinimizerIndex, MINIMIZERS)]
)
def test_parts_stay_with_workers_that_are_busy(
    clients, folder, files, kind, settings, mode, monkeypatch
):
    client = clients[2]
    made = kind.build(folder, taxonomy=folder / "taxonomy", client=client, mode=mode, **settings)
    held = client.who_has(made._parts)
    assert sorted(map(len, held.values())) == [1, 1]
    # Now Dask expects that nothing is sent sooner than a part.
    monkeypatch.setattr(client.cluster.scheduler, "bandwidth", 1e15)
    (busy,) = held[made._parts[0].key]
    sleeps = [client.submit(time.sleep, 0.1, workers=[busy], pure=False) for _ in range(5)]
    calls = [batch.calls.taxids for batch in made.classify(*files, batch_letters=900)]
    assert len(calls) > 5
    assert client.who_has(made._parts) == held
    # Idle workers take no task over that would take its part with it.
    groups = {each.name for each in client.cluster.scheduler.task_prefixes.values()}
    assert groups & stealing.fast_tasks
    del sleeps
