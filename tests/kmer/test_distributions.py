"""Distributions of reads and the estimates from them, beside Bracken's rule in plain Python."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from click.testing import CliRunner
from kmer.models.bracken import distribution, shares
from kmer.models.dust import dust
from kmer.models.minimizers import MinimizerModel
from kmer.tiers import TINY
from kmer.worlds import World

from dgpuhash.cli import main
from dgpuhash.errors import SpecError
from dgpuhash.kmer import MinimizerIndex, load_index
from dgpuhash.kmer.distributions import ReadDistribution, chosen_distribution
from dgpuhash.kmer.formats.redistribution import share_reads
from dgpuhash.kmer.minimizers import read_windows

WORLD = World(11, pairs=40, scale=400)
SMALL = {"k": 20, "l": 15, "spaces": 2}
LENGTHS = [20, 33, 75]


def run(*arguments, code=0):
    result = CliRunner().invoke(main, ["kmer", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return WORLD.write(tmp_path_factory.mktemp("world"))


def counts_of(found: ReadDistribution) -> Counter[tuple[int, int]]:
    rows = zip(found.taxids.tolist(), found.calls.tolist(), found.reads.tolist(), strict=True)
    return Counter({(own, call): reads for own, call, reads in rows})


@pytest.mark.parametrize("ambiguous", ["kraken2", "exact"])
@pytest.mark.parametrize("size", [2**20, 50, 333])
def test_reads_of_references_are_counted(folder, monkeypatch, ambiguous, size):
    monkeypatch.setitem(read_windows.BATCH_LETTERS, "cpu", size)
    index = MinimizerIndex.build(
        folder / "*.fa", taxonomy=folder / "taxonomy", distributions=LENGTHS[::-1],
        ambiguous=ambiguous, **SMALL,
    )  # fmt: skip
    made = MinimizerModel(WORLD.references, WORLD.taxonomy, ambiguous=ambiguous, **SMALL)
    assert list(index.distributions) == LENGTHS
    for length, found in index.distributions.items():
        expected = distribution(made, WORLD.references, length)
        assert counts_of(found) == expected
        assert len({*zip(found.taxids.tolist(), found.calls.tolist(), strict=True)}) == len(
            found.reads
        )


def test_reads_of_masked_references_are_masked(folder):
    index = MinimizerIndex.build(
        folder / "*.fa", taxonomy=folder / "taxonomy", distributions=[40], mask="dust", **SMALL
    )
    references = [each._replace(letters=dust(each.letters)) for each in WORLD.references]
    made = MinimizerModel(references, WORLD.taxonomy, **SMALL)
    assert counts_of(index.distributions[40]) == distribution(made, references, 40)


@pytest.mark.parametrize("rank", ["species", "genus", "family", "phylum"])
@pytest.mark.parametrize("threshold", [0, 1, 10, 25])
def test_reads_are_shared_by_the_rule(folder, rank, threshold):
    index = MinimizerIndex.build(
        folder / "*.fa", taxonomy=folder / "taxonomy", distributions=[33], **SMALL
    )
    random = np.random.default_rng(threshold)
    taxids = np.array([0, *WORLD.taxonomy.taxa])
    reads = random.integers(0, 40, len(taxids))
    found = share_reads(
        index.taxonomy, taxids[np.isin(taxids, index.taxonomy.taxids)],
        reads[np.isin(taxids, index.taxonomy.taxids)], index.distributions[33], rank,
        threshold=threshold,
    )  # fmt: skip
    calls = Counter({
        taxid: n for taxid, n in zip(taxids.tolist(), reads.tolist(), strict=True)
        if n and taxid in index.taxonomy.taxids
    })  # fmt: skip
    expected = shares(WORLD.taxonomy, calls, counts_of(index.distributions[33]), rank, threshold)
    columns = (found.taxids.tolist(), found.reads.tolist(), found.added.tolist())
    result = {taxid: (own, added) for taxid, own, added in zip(*columns, strict=True)}
    assert result == {
        taxid: (own, pytest.approx(added)) for taxid, (own, added) in expected.items()
    }
    assert sum(found.added) <= sum(n for taxid, n in calls.items() if taxid) + 1e-6


def test_a_saved_index_keeps_them_and_another_one_has_none(folder, tmp_path):
    files = [folder / f"{number}.fa" for number in range(3)]
    given = {"taxonomy": folder / "taxonomy", **SMALL}
    index = MinimizerIndex.build(files, distributions=[33, 75], **given)
    index.save(tmp_path / "db.dgki")
    loaded = load_index(tmp_path / "db.dgki")
    for length in (33, 75):
        assert counts_of(loaded.distributions[length]) == counts_of(index.distributions[length])
    other = MinimizerIndex.build(folder / "3.fa", **given)
    assert loaded.merge(other).distributions == other.distributions == {}
    loaded.add(folder / "3.fa", taxonomy=folder / "taxonomy")
    assert loaded.distributions == {}
    loaded.save(tmp_path / "more.dgki")
    assert load_index(tmp_path / "more.dgki").distributions == {}


def test_commands_build_them_and_report_by_them(tmp_path):
    reads = [TINY.folder / f"reads_{mate}.fq.gz" for mate in (1, 2)]
    db, calls = tmp_path / "db.dgki", tmp_path / "calls"
    run(
        "build", TINY.folder / "genomes", "--rule", "kraken2", "--taxonomy", TINY.taxonomy_folder,
        "--distributions", "100,150", "-o", db,
    )  # fmt: skip
    run("classify", db, *reads, "--paired", "-o", calls)
    text = run("report", calls, "--db", db, "--abundance", "species", "--read-length", 150)
    head, *rows = [line.split("\t") for line in text.splitlines()]
    assert head[:3] == ["name", "taxonomy_id", "taxonomy_lvl"]
    index = load_index(db)
    found = share_reads(
        index.taxonomy, *np.unique(TINY.calls("kraken2.calls.tsv"), return_counts=True),
        index.distributions[150],
    )  # fmt: skip
    assert [int(row[1]) for row in rows] == found.taxids.tolist()
    assert [int(row[3]) for row in rows] == found.reads.tolist()
    assert [int(row[5]) for row in rows] == [int(x) for x in found.reads + found.added]
    assert sum(float(row[6]) for row in rows) == pytest.approx(1, abs=1e-2)
    lines = run("inspect", db, "--distribution", 100).splitlines()
    assert lines == list(index.distributions[100].lines())
    said = run("report", calls, "--db", db, "--abundance", "species", code=2)
    assert "distributions of reads of 100, 150 letters; choose one with --read-length" in said
    said = run("report", calls, "--db", db, "--abundance", "species", "--read-length", 75, code=2)
    assert "no distribution of reads of 75 letters; choose one of 100, 150" in said
    said = run("report", calls, "--db", db, "--abundance", "clade", "--read-length", 150, code=2)
    assert "rank 'clade' of estimated reads; use one of domain, phylum" in said
    given = ["--abundance", "species", "--read-length", 150]
    assert "lower --threshold" in run(
        "report", calls, "--db", db, *given, "--threshold", 10**6, code=2
    )
    assert "name it with --db" in run("report", calls, "--gtdb", "x", *given, code=2)
    assert "name a rank" in run("report", calls, "--db", db, "--read-length", 150, code=2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--rule", "kraken2", "--distributions", "34"], "distributions=34; use 35 to 1,000,000"),
        (
            ["--rule", "kraken2", "--distributions", "1e2"],
            "'1e2' are no lengths; write",
        ),
        (["--rule", "kraken2", "--distributions", ""], "'' are no lengths"),
        (["--rule", "metacache", "--distributions", "100"], "is an option of the rule of Kraken 2"),
    ],
)
def test_other_lengths_are_refused(tmp_path, given, said):
    files = [TINY.folder / "genomes", "--taxonomy", TINY.taxonomy_folder]
    assert said in run("build", *files, *given, "-o", tmp_path / "x.dgki", code=2)
    assert list(tmp_path.iterdir()) == []


def test_an_index_without_distributions_says_how_to_get_some():
    with pytest.raises(SpecError, match="has no distributions of reads; build it with --distrib"):
        chosen_distribution({}, None)


def test_commands_say_that_distributions_are_left_out(folder, tmp_path):
    settings = ["--rule", "kraken2", "--taxonomy", folder / "taxonomy", "-k", 20, "-l", 15]
    one, other, both = (tmp_path / f"{name}.dgki" for name in ("one", "other", "both"))
    given = [*settings, "--spaces", 2, "-o"]
    run("build", folder / "0.fa", "--distributions", 75, *given, one)
    run("build", folder / "1.fa", *given, other)
    said = "note: the distributions of reads are left out"
    more = ["add", one, folder / "1.fa", "--taxonomy", folder / "taxonomy"]
    for command in (["merge", one, other], ["merge", other, one], more):
        result = CliRunner().invoke(main, ["kmer", *map(str, command), "-o", str(both), "--force"])
        assert result.exit_code == 0, result.output
        assert result.stderr.count(said) == 1
        assert load_index(both).distributions == {}
    more = ["add", other, folder / "0.fa", "--taxonomy", folder / "taxonomy"]
    result = CliRunner().invoke(main, ["kmer", *map(str, more)])
    assert result.exit_code == 0
    assert said not in result.stderr
