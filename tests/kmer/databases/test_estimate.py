"""Sizes of indexes before they are built, and builds that are refused."""

from __future__ import annotations

import bz2
import gzip
import random
from collections import Counter

import numpy as np
import pytest
from click.testing import CliRunner
from kmer.tiers import DATA, HERE, MINI, TINY

from dgpuhash import backend as backends
from dgpuhash.cli import main
from dgpuhash.errors import OutOfMemoryError, SequenceError, SpecError
from dgpuhash.kmer import MinimizerIndex, SketchIndex
from dgpuhash.kmer.databases import estimate, estimators, owners
from dgpuhash.kmer.databases.estimate import Memory
from dgpuhash.kmer.databases.estimators import letters_by_size
from dgpuhash.kmer.databases.owners import DistinctSample
from dgpuhash.kmer.sketches import building
from dgpuhash.kmer.sketches.rule import SketchRule
from dgpuhash.kmer.sketches.settings import SketchSettings

RULES = [SketchIndex, MinimizerIndex]
TIERS = [
    pytest.param(TINY, id="tiny"),
    pytest.param(
        MINI,
        id="mini",
        marks=[
            pytest.mark.genomes,
            pytest.mark.skipif(not DATA.is_dir(), reason="DGPUHASH_KMER_DATA names no folder"),
        ],
    ),
]


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("rule", RULES)
def test_estimates_are_near_real_builds(tier, rule, tmp_path, monkeypatch):
    genomes = tier.folder / "genomes"
    index = rule.build(genomes, taxonomy=tier.taxonomy_folder)
    index.save(tmp_path / "x.dgki")
    stats, nbytes = index.stats(), (tmp_path / "x.dgki").stat().st_size
    stored = stats["distinct" if rule is MinimizerIndex else "locations"]
    keys = stats["distinct" if rule is MinimizerIndex else "features"]
    for most_keys, quick in ((2**12, True), (2**12, False), (2**18, False)):
        monkeypatch.setattr(owners, "_MOST_KEYS", most_keys)
        made = rule.estimate(genomes, quick=quick)
        assert made.error == (0.4 if quick else 0.15)
        assert made.fits and not made.remedies
        for found, true in (
            (made.letters, stats["letters"]),
            (made.distinct, keys),
            (made.nbytes, stats["nbytes"]),
            (made.file_nbytes, nbytes),
        ):
            assert found == pytest.approx(true, rel=made.error)
        if rule is SketchIndex or not quick:
            assert made.stored == pytest.approx(stored, rel=made.error)
        assert made.build_nbytes > made.nbytes
    assert rule.estimate(genomes).letters == stats["letters"]


def test_samples_count_all_or_none(device, monkeypatch):
    monkeypatch.setattr(owners, "_MOST_KEYS", 500)
    draw = random.Random(3)
    keys = [draw.randrange(2**40) for _ in range(4000)]
    many = [key for key in keys for _ in range(draw.choice([1, 1, 3]))]
    draw.shuffle(many)
    counts = Counter(many)
    one, two = DistinctSample(), DistinctSample()
    for at in range(0, len(many), 700):
        some = device.array(np.array(many[at : at + 700], np.uint64))
        (one if at < 3000 else two).add(backends.get(device.name), some)
    one.join(two)
    found = one.counts()
    assert one.found == len(many)
    assert 125 < len(found) <= 500 and one.scale >= 8
    assert len(found) * one.scale == pytest.approx(len(counts), rel=0.2)
    chosen = {int(key): int(count) for key, count in zip(one._keys, found, strict=True)}
    assert chosen == {key: counts[key] for key in chosen}


def test_caps_and_masks_make_indexes_smaller():
    genomes = TINY.folder / "genomes"
    for settings in ({"cap": 1}, {"cap": 2, "remove_overpopulated": True}, {"window": 300}):
        made = SketchIndex.estimate(genomes, **settings)
        stats = SketchIndex.build(genomes, taxonomy=None, **settings).stats()
        assert (made.distinct, made.stored) == (stats["features"], stats["locations"])
        assert made.nbytes == pytest.approx(stats["nbytes"], rel=0.02)
    with pytest.raises(SpecError, match="cap"):
        SketchIndex.estimate(genomes, cap=0)


def test_letters_of_files_by_their_sizes(tmp_path):
    draw = random.Random(4)
    letters = ["".join(draw.choices("ACGT", k=30_000)) for _ in range(3)]
    fasta = "".join(f">r{at}\n{each}\n" for at, each in enumerate(letters)).encode()
    fastq = "".join(
        f"@r\n{letters[0][at : at + 100]}\n+\n{'I' * 100}\n" for at in range(0, 9000, 100)
    )
    for name, text, true in (
        ("a.fa", fasta, 90_000),
        ("a.fa.gz", gzip.compress(fasta), 90_000),
        ("a.fa.bz2", bz2.compress(fasta), 90_000),
        ("a.fq", fastq.encode(), 9000),
        ("cut.gz", gzip.compress(fasta)[:12], 0),
    ):
        (tmp_path / name).write_bytes(text)
        assert letters_by_size([str(tmp_path / name)]) == pytest.approx(true, rel=0.15, abs=50)
    files = [str(tmp_path / "a.fa")] * 100
    assert letters_by_size(files) == pytest.approx(9_000_000, rel=0.01)
    with pytest.raises(SequenceError, match="standard input"):
        letters_by_size(["-"])
    with pytest.raises(FileNotFoundError):
        SketchIndex.estimate(tmp_path / "none.fa", quick=True)


@pytest.mark.parametrize("rule", RULES)
def test_builds_that_do_not_fit_are_refused(rule, monkeypatch):
    given = {"taxonomy": TINY.taxonomy_folder}
    genomes = TINY.folder / "genomes"
    for name in ("_SKETCHED_NBYTES", "_MINIMIZED_NBYTES"):
        monkeypatch.setattr(estimate, name, {"cpu": 0})
    monkeypatch.setattr(building, "HELD_NBYTES", 0)
    enough = rule.estimate(genomes).build_nbytes
    read = []
    sampled = estimators.Estimator.sample
    monkeypatch.setattr(
        estimators.Estimator, "sample", lambda *args: read.append(1) or sampled(*args)
    )

    def limited(nbytes):
        monkeypatch.setattr(Memory, "of", lambda backend: Memory(nbytes, backend.name))

    # Where there is room beyond doubt nothing is read for it.
    limited(2 * enough)
    index = rule.build(genomes, **given)
    assert read == []
    # Where there may be, all is read once more.
    limited(round(enough * 0.9))
    rule.build(genomes, **given)
    assert read == [1]
    limited(round(enough * 0.3))
    with pytest.raises(OutOfMemoryError, match=r"4 workers of that memory and mode=distributed"):
        rule.build(genomes, **given)
    assert not rule.estimate(genomes).fits
    # An addition needs room beside what is there.
    targets = index.targets.names
    with pytest.raises(OutOfMemoryError):
        index.add(HERE / "edge.fa", allow_unplaced=1000, **given)
    assert index.targets.names == targets


class Many(DistinctSample):
    """A sample of 10^8 keys, each of which came 20 times."""

    scale = 10**5

    def counts(self):
        return np.full(1000, 20)


@pytest.mark.parametrize(
    ("gigabytes", "told"),
    [
        (20, []),
        (10, ["2 workers", "cap=7", "window=254"]),
        (2.2, ["9 workers", "cap=1", "window=1016"]),
        (0.01, []),
    ],
)
def test_what_would_fit_is_told(monkeypatch, gigabytes, told):
    memory = Memory(int(gigabytes * 10**9), "cpu")
    monkeypatch.setattr(Memory, "of", lambda backend: memory)
    settings = SketchSettings(cap=30)
    made = SketchRule.estimator("cpu", settings)._of(14 * 10**9, Many())
    assert (made.distinct, made.stored) == (10**8, 2 * 10**9)
    assert made.fits == (gigabytes == 20)
    assert [remedy.removesuffix(" of that memory and mode=distributed") for remedy in made.remedies
            ] == told  # fmt: skip
    assert list(made.lines())[-1] == (f"remedy\t{made.remedies[-1]}" if told else
                                      f"fits\t{str(made.fits).lower()}")  # fmt: skip


def test_memory_is_what_is_free_and_allowed(monkeypatch, tmp_path):
    backend = backends.get("cpu")
    monkeypatch.setattr(type(backend), "memory", lambda self: (10**9, 10**10))
    monkeypatch.setattr(estimate, "_LIMIT", tmp_path / "memory.max")
    assert Memory.of(backend) == Memory(10**9, "cpu")
    for text, nbytes in (("max", 10**9), (str(10**8), 10**8), (str(10**12), 10**9)):
        (tmp_path / "memory.max").write_text(f"{text}\n")
        assert Memory.of(backend).nbytes == nbytes


def test_the_command():
    def run(*arguments, code=0):
        result = CliRunner().invoke(main, ["kmer", "estimate", *map(str, arguments)])
        assert result.exit_code == code, result.output
        return result.stdout if code == 0 else result.stderr

    genomes = TINY.folder / "genomes"
    told = dict(line.split("\t") for line in run(genomes, "--rule", "kraken2").splitlines())
    assert (told["minimizers"], told["letters"]) == ("74250", "233194")
    assert (told["within"], told["fits"]) == ("15%", "true")
    told = dict(
        line.split("\t")
        for line in run(genomes, "--rule", "metacache", "--quick", "--cap", 3).splitlines()
    )
    assert (told["within"], told["rule"]) == ("40%", "metacache")
    assert int(told["features"]) <= int(told["locations"])
    assert "is an option of the rule of MetaCache" in run(
        genomes, "--rule", "kraken2", "--cap", 3, code=2
    )
