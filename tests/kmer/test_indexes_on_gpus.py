"""Indexes on workers with a GPU each: the calls and reports of one CPU, in any mode."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from clusters import gpu_cluster
from distributed import Client
from kmer.tiers import TINY
from kmer.workers.pairs import MODES

from dgpuhash.kmer import MinimizerIndex, SketchIndex

pytestmark = [pytest.mark.gpu, pytest.mark.multigpu, pytest.mark.cluster, pytest.mark.timeout(180)]

READS = [TINY.folder / f"reads_{mate}.fq.gz" for mate in (1, 2)]
BUILT = {"references": TINY.folder / "genomes", "taxonomy": TINY.taxonomy_folder}


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Yield the client of a worker on each GPU."""
    with gpu_cluster() as made:
        yield made


@pytest.fixture(scope="module", params=[MinimizerIndex, SketchIndex])
def rule(request: pytest.FixtureRequest) -> tuple[type, list[int], list[str]]:
    """Return a kind of index, and its calls and report on a CPU."""
    found = request.param.build(**BUILT, device="cpu").classify(*READS)
    calls = [taxid for batch in found for taxid in batch.calls.taxids.tolist()]
    return request.param, calls, list(found.report_lines())


@pytest.mark.parametrize("mode", MODES)
def test_calls_are_those_of_a_cpu(
    client: Client, rule: tuple[type, list[int], list[str]], mode: str
) -> None:
    kind, calls, lines = rule
    made = kind.build(**BUILT, client=client, mode=mode, device="cuda")
    found = made.classify(*READS, batch_letters=2**16)
    assert [taxid for batch in found for taxid in batch.calls.taxids.tolist()] == calls
    assert list(found.report_lines()) == lines
    # One process has all of it then.
    gathered = made.gather("cpu").classify(*READS)
    assert [taxid for batch in gathered for taxid in batch.calls.taxids.tolist()] == calls


def test_minimizers_of_reads_are_counted(client: Client) -> None:
    expected = MinimizerIndex.build(**BUILT, device="cpu").classify(*READS, minimizer_data=True)
    made = MinimizerIndex.build(**BUILT, client=client, mode="distributed", device="cuda")
    found = made.classify(*READS, batch_letters=2**16, minimizer_data=True)
    assert list(found.report_lines()) == list(expected.report_lines())
