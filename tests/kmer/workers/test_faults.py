"""Workers that are killed: the right calls all the same."""

from __future__ import annotations

import gzip
import threading
from itertools import chain, islice

import pytest
from clusters import cluster_of, kill
from kmer.tiers import TINY

from dgpuhash.kmer import KmerCounts, MinimizerIndex, SketchIndex

READS = [TINY.folder / f"reads_{mate}.fq.gz" for mate in (1, 2)]


@pytest.fixture(scope="module")
def processes():
    with cluster_of(2, processes=True) as client:
        yield client


def killing(client, before):
    """Kill a worker when the scheduler has so many tasks done, and wait for the thread's end."""

    def strike():
        def done(dask_scheduler):
            return sum(task.state == "memory" for task in dask_scheduler.tasks.values())

        while client.run_on_scheduler(done) < before:
            pass
        kill(client, min(client.nthreads()), noticed=False)

    thread = threading.Thread(target=strike)
    thread.start()
    return thread


def test_a_worker_killed_in_a_build(processes):
    processes.wait_for_workers(2)
    thread = killing(processes, 5)
    made = SketchIndex.build(
        TINY.folder / "genomes", taxonomy=TINY.taxonomy_folder, client=processes,
        mode="independent",
    )  # fmt: skip
    thread.join()
    assert made.digests()["locations"] == TINY.digest("locations")


@pytest.mark.parametrize("packing", ["plain", "gz"])
def test_a_worker_killed_in_classify(processes, tmp_path, packing):
    """Of plain files all workers read ranges; of these it is the one that reads."""
    processes.wait_for_workers(2)
    made = MinimizerIndex.build(
        TINY.folder / "genomes", taxonomy=TINY.taxonomy_folder, client=processes,
        mode="distributed" if packing == "plain" else "replicated",
    )  # fmt: skip
    times = 1 if packing == "plain" else 4
    files = []
    for file in READS:
        files.append(tmp_path / file.stem)
        text = file.read_bytes() * times
        files[-1].write_bytes(gzip.decompress(text) if packing == "plain" else text)
    batches = iter(made.classify(*files, batch_letters=2**16))
    found = [batch.calls.taxids.tolist() for batch in islice(batches, 2)]
    kill(processes, min(processes.nthreads()), noticed=False)
    found += [batch.calls.taxids.tolist() for batch in batches]
    assert list(chain.from_iterable(found)) == TINY.calls("kraken2.calls.tsv") * times
    assert len(found) > 3


def test_a_worker_killed_in_a_count(processes):
    processes.wait_for_workers(2)
    expected = KmerCounts.count(TINY.folder / "genomes")
    thread = killing(processes, 4)
    found = KmerCounts.count(TINY.folder / "genomes", client=processes)
    thread.join()
    for one, other in zip(found.items(sort=True), expected.items(sort=True), strict=True):
        assert one.tolist() == other.tolist()
