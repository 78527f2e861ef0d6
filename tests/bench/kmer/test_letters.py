"""Letters on a device, and genomes that differ a little: what is drawn, timed and checked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dgpuhash import backend as backends
from dgpuhash import bench
from dgpuhash.bench.kmer.inputs import Inputs
from dgpuhash.bench.kmer.letters import READ_LETTERS, Genomes, Mutants, mutant, pairs_of
from dgpuhash.bench.kmer.on_device import OnDevice
from dgpuhash.bench.report.grids import grids
from dgpuhash.bench.report.reading import problem_of
from dgpuhash.errors import DgpuhashError, SpecError
from dgpuhash.kmer import KmerCounts, MinimizerIndex, read_sequences

LENGTH = 48502
CPU = backends.get("cpu")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_every_question_of_letters(data: Path, device: str) -> None:
    rows = bench.run(
        "kmer", kinds=["letters"], quick=True, pairs=2000, quiet=True, device=device,
        questions=["count", *(f"{verb}-{rule}" for rule in ("kraken2", "metacache")
                              for verb in ("build", "classify", "construction"))],
        letters=3 * LENGTH,
    )  # fmt: skip
    assert [(row["verb"], row.get("rule"), row["n"]) for row in rows] == [
        ("count", None, LENGTH),
        *((verb, rule, n) for rule in ("kraken2", "metacache")
          for verb, n in (("build", LENGTH), ("classify", 2000), ("construction", 3 * LENGTH))),
    ]  # fmt: skip
    for row in rows:
        assert problem_of({**row, "benchmark": "kmer"}) is None
        assert row["seconds"] > 0 < row["floor"]
        assert row["ratio"] == pytest.approx(row["floor"] / row["seconds"], rel=0.01)
    titles = [grid.title for grid in grids("kmer", rows)]
    assert titles[0] == "count of 48,502 letters, in the memory of the device"
    assert all("bare accesses" in grid.header for grid in grids("kmer", rows))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_what_is_drawn_is_the_same_everywhere(inputs: Inputs, device: str) -> None:
    used = backends.get(device)
    genomes = Genomes(used, inputs.plain, None)
    letters = used.to_host(genomes.letters)
    (batch,) = read_sequences(inputs.plain)
    assert letters.tobytes() == batch.sequence(0)
    other = used.to_host(mutant(genomes, 3))
    assert 0.005 < (other != letters).mean() < 0.01
    assert set(other.tolist()) == set(b"ACGT")
    reads = pairs_of(genomes, 500)
    assert (used.to_host(reads.sources) == 0).all()
    text = letters.tobytes()
    mates = used.to_host(reads.mates).reshape(-1, READ_LETTERS)
    exact = 0
    for row, read in enumerate(used.to_host(reads.letters).reshape(-1, READ_LETTERS)):
        place = text.find(read.tobytes())
        if place < 0:
            continue
        end = text[place + 500 - READ_LETTERS : place + 500]
        turned = np.frombuffer(end[::-1].translate(bytes.maketrans(b"ACGT", b"TGCA")), np.uint8)
        assert (mates[row] == turned).mean() > 0.9
        exact += 1
    assert exact > 50
    if device != "cpu":
        here = pairs_of(Genomes(CPU, inputs.plain, None), 500)
        np.testing.assert_array_equal(here.letters, used.to_host(reads.letters))


def test_strangers_have_k_mers_of_their_own(inputs: Inputs) -> None:
    genomes = Genomes(CPU, inputs.plain, None)
    counts = []
    for number in range(10):
        letters = genomes.stranger(number).letters
        assert sorted(set(letters.tolist())) == sorted(b"ACGT")
        counts.append(KmerCounts.from_letters(letters, genomes.offsets, 31))
    np.testing.assert_array_equal(genomes.stranger(0).letters, genomes.letters)
    kmers = [set(each.items()[0].tolist()) for each in counts]
    for number in range(1, 8):
        assert not kmers[number] & kmers[0]
        # Repeats, also of the other strand, are where they were.
        np.testing.assert_array_equal(
            np.sort(counts[number].items()[1]), np.sort(counts[0].items()[1])
        )
    assert len(set.union(*kmers[:8])) == 8 * len(kmers[0])
    # Those beyond are of mutants.
    assert kmers[8] & kmers[0]
    assert kmers[9] & kmers[1]
    assert not kmers[9] & kmers[8]


def test_files_of_mutants_are_those_letters(inputs: Inputs) -> None:
    mutants = Mutants(inputs, 2 * LENGTH + 1)
    assert (mutants.copies, mutants.letters) == (3, 3 * LENGTH)
    genomes = Genomes(CPU, inputs.plain, None)
    for number, batch in enumerate(read_sequences(mutants.plain)):
        expected = mutant(genomes, number) if number else genomes.letters
        assert batch.sequence(0) == expected.tobytes()
    index = MinimizerIndex.build(mutants.plain, taxonomy=inputs.taxonomy)
    assert index.taxon_counts()[0].tolist() == [10710]


def test_wrong_answers_are_not_measured(inputs: Inputs, monkeypatch: pytest.MonkeyPatch) -> None:
    here = OnDevice(CPU, inputs, 1000, 1)
    count = KmerCounts.from_letters

    def less(letters: np.ndarray, offsets: np.ndarray, k: int) -> KmerCounts:
        return count(letters[:-1], [0, len(letters) - 1], k)

    monkeypatch.setattr(KmerCounts, "from_letters", less)
    with pytest.raises(DgpuhashError, match="48,471 k-mers were counted of 48,472"):
        here.row("count", "")
    monkeypatch.setattr(
        MinimizerIndex, "call",
        lambda self, letters, *_: type("Calls", (), {"taxids": np.zeros(len(letters) // 150, int)}),
    )  # fmt: skip
    with pytest.raises(DgpuhashError, match=r"0\.0% of the reads were called"):
        here.row("build", "kraken2")


def test_genomes_that_are_too_short(tmp_path: Path) -> None:
    path = tmp_path / "short.fa"
    path.write_text(">short\nACGT\n")
    with pytest.raises(SpecError, match="more than 500 letters"):
        pairs_of(Genomes(CPU, [path], None), 5)
