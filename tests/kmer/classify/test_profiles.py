"""Krona's text, CAMI's profiles, BIOM tables and reads by their calls, beside plain Python."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from datetime import datetime

import numpy as np
import pytest
from click.testing import CliRunner
from kmer.classify.fakes import CALLS, FakeIndex
from kmer.tiers import TINY

from dgpuhash.cli import main
from dgpuhash.errors import ExistsError, SpecError, TaxonomyError
from dgpuhash.kmer import Taxonomy
from dgpuhash.kmer.classify import Classification
from dgpuhash.kmer.formats.classified import mates_targets
from dgpuhash.kmer.references import Targets

MODEL = TINY.taxonomy
TARGETS = Targets(
    ["NC_1.1", "NC_2.1"], ["a.fa"], np.zeros(2, np.int32), np.arange(2), np.array([900, 800]),
    np.array([511145, 0]),
)  # fmt: skip
TAXIDS = {-1: 511145, -2: 0}
CAMI_RANKS = ["superkingdom", "phylum", "class", "order", "family", "genus", "species"]
PAIRS = [TINY.folder / f"reads_{mate}.fq.gz" for mate in (1, 2)]
# The reads of tier tiny by their taxa, as Kraken 2 calls them.
TINY_COUNTS = Counter(TINY.calls("kraken2.calls.tsv"))


def run(*arguments, code=0):
    result = CliRunner().invoke(main, ["kmer", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


def lineage(taxid):
    """Return taxids from below the root down to one."""
    path = []
    while taxid != MODEL.root:
        path.append(taxid)
        taxid = MODEL.taxa[taxid][0]
    return path[::-1]


def krona(counts):
    lines = set()
    for taxid, count in counts.items():
        path = [MODEL.taxa[each][2] for each in lineage(taxid)] if taxid else ["unclassified"]
        lines.add("\t".join([str(count), *path]))
    return lines


def cami(counts, sample):
    """Return the lines of a profile."""
    total, clades = sum(counts.values()), Counter()
    for taxid, count in counts.items():
        clades.update(dict.fromkeys(lineage(taxid) if taxid else [], count))
    lines = [
        f"@SampleID:{sample}", "@Version:0.10.0", f"@Ranks:{'|'.join(CAMI_RANKS)}",
        "@@TAXID\tRANK\tTAXPATH\tTAXPATHSN\tPERCENTAGE",
    ]  # fmt: skip
    for level, rank in enumerate(CAMI_RANKS):
        taxa = [taxid for taxid in clades if MODEL.taxa[taxid][1] == rank]
        for taxid in sorted(taxa, key=lambda each: (-clades[each], each)):
            by_rank = {MODEL.taxa[each][1]: each for each in lineage(taxid)}
            path = [by_rank.get(each) for each in CAMI_RANKS[: level + 1]]
            columns = [
                str(taxid), rank, "|".join(str(each or "") for each in path),
                "|".join(MODEL.taxa[each][2] if each else "" for each in path),
                f"{100 * clades[taxid] / total:.6f}",
            ]  # fmt: skip
            lines.append("\t".join(columns))
    return lines


def biom(samples):
    """Return rows and cells of a table."""
    taxids = sorted({taxid for counts in samples for taxid in counts if taxid})
    rows = []
    for taxid in taxids:
        by_rank = {MODEL.taxa[each][1]: MODEL.taxa[each][2] for each in lineage(taxid)}
        path = [
            f"{letter}__{by_rank.get(rank, '')}"
            for letter, rank in zip("kpcofgs", CAMI_RANKS, strict=True)
        ]
        rows.append({"id": str(taxid), "metadata": {"taxonomy": path}})
    cells = [
        [row, column, counts[taxid]]
        for row, taxid in enumerate(taxids)
        for column, counts in enumerate(samples)
        if counts[taxid]
    ]
    return rows, cells


@pytest.fixture(scope="module")
def taxonomy():
    return Taxonomy.read(TINY.taxonomy_folder)


@pytest.fixture(scope="module")
def reads(tmp_path_factory):
    """Pairs as FASTQ and first mates as FASTA, with headers of several words, or of none."""
    folder = tmp_path_factory.mktemp("profiles")
    rng = np.random.default_rng(6)
    heads = ["a/{} x  y", "b", "", "c\tz", "d/{} kraken:taxid|3"]
    rows = []
    for number in range(120):
        sides = ["".join(rng.choice(list("ACGTN"), rng.choice([0, 3, 30]))) for _ in range(2)]
        rows.append((heads[number % len(heads)], *sides))
    for mate in (1, 2):
        (folder / f"r{mate}.fq").write_text("".join(fastq(row, mate) for row in rows))
    (folder / "r.fa").write_text("".join(fasta(row) for row in rows if row[1]))
    return folder, rows


def fastq(row, mate, mark=""):
    return f"@{row[0].format(mate)}{mark}\n{row[mate]}\n+\n{'5' * len(row[mate])}\n"


def fasta(row, mark=""):
    return f">{row[0].format(1)}{mark}\n{row[1]}\n"


def classified(taxonomy, *files, calls=CALLS, **options):
    return Classification(
        FakeIndex(taxonomy, TARGETS, calls=calls), *files, batch_letters=300, **options
    )


def called(calls, row, mates=2):
    return calls[sum(sum(side.encode()) for side in row[1 : 1 + mates]) % len(calls)]


@pytest.mark.parametrize("calls", [CALLS, [0], [1, 0, 2, 131567, -1, 511145], [-2, 562]])
def test_profiles_are_of_taxa(taxonomy, reads, tmp_path, calls):
    folder, rows = reads
    counts = Counter()
    for row in rows:
        call = called(calls, row)
        counts[TAXIDS.get(call, call)] += 1
    found = classified(taxonomy, folder / "r1.fq", folder / "r2.fq", calls=calls)
    found.write_krona(tmp_path / "krona")
    lines = (tmp_path / "krona").read_text().splitlines()
    assert set(lines) == krona(counts)
    assert len(lines) == len(counts)
    found.write_cami(tmp_path / "cami.gz", sample="gut 1/a")
    text = gzip.decompress((tmp_path / "cami.gz").read_bytes()).decode()
    assert text.splitlines() == cami(counts, "gut_1_a")
    found.write_biom(tmp_path / "biom", sample="gut")
    table = json.loads((tmp_path / "biom").read_text())
    rows, cells = biom([counts])
    assert (table["rows"], table["data"], table["shape"]) == (rows, cells, [len(rows), 1])
    with pytest.raises(ExistsError):
        found.write_krona(tmp_path / "krona")
    found.write_krona(tmp_path / "krona", overwrite=True)


def test_profiles_need_a_taxonomy(reads, tmp_path):
    found = classified(None, reads[0] / "r1.fq")
    for write in (found.write_krona, found.write_cami, found.write_biom):
        with pytest.raises(
            TaxonomyError, match=r"the index has no taxonomy, .*; build it with one"
        ):
            write(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    run("build", TINY.folder / "genomes", "--rule", "metacache", "-o", tmp_path / "bare",
        "--allow-unplaced", 99)  # fmt: skip
    for option in ("--krona", "--cami", "--biom", "--report"):
        given = [reads[0] / "r1.fq", "-o", tmp_path / "calls", option, tmp_path / "out"]
        error = run("classify", tmp_path / "bare", *given, code=2)
        assert "the index has no taxonomy, which taxa and ranks need; build it with one" in error
        assert [each.name for each in tmp_path.iterdir()] == ["bare"]


def mark_of(call):
    return f" kraken:taxid|{TAXIDS.get(call, call)}"


def text_of(path):
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()


def test_pairs_are_written_by_their_calls(taxonomy, reads, tmp_path):
    folder, rows = reads
    found = classified(taxonomy, folder / "r1.fq", folder / "r2.fq")
    with_call, without = tmp_path / "yes#.fq.gz", tmp_path / "no.fq"
    found.write(tmp_path / "calls", classified=with_call, unclassified=without)
    pairs = [(row, called(CALLS, row)) for row in rows]
    for mate in (1, 2):
        assert text_of(tmp_path / f"yes_{mate}.fq.gz") == "".join(
            fastq(row, mate, mark_of(call)) for row, call in pairs if call
        )
    both = "".join(fastq(row, mate) for row, call in pairs if not call for mate in (1, 2))
    assert text_of(without) == both != ""
    assert len((tmp_path / "calls").read_text().splitlines()) == len(rows)
    found.write(None, classified=tmp_path / "all.fq")
    assert text_of(tmp_path / "all.fq") == "".join(
        fastq(row, mate, mark_of(call)) for row, call in pairs if call for mate in (1, 2)
    )


def test_single_reads_keep_their_format(taxonomy, reads, tmp_path):
    folder, rows = reads
    rows = [(row, called(CALLS, row, mates=1)) for row in rows if row[1]]
    found = classified(taxonomy, folder / "r.fa")
    found.write(None, classified=tmp_path / "yes.fa", unclassified=tmp_path / "no.fa.gz")
    assert text_of(tmp_path / "yes.fa") == "".join(
        fasta(row, mark_of(call)) for row, call in rows if call
    )
    assert text_of(tmp_path / "no.fa.gz") == "".join(fasta(row) for row, call in rows if not call)


def test_names_of_reads_fit_them_and_nothing_is_half(taxonomy, reads, tmp_path):
    folder, _ = reads
    found = classified(taxonomy, folder / "r1.fq")
    calls = tmp_path / "calls"
    for name, said in (
        ("a#.fq", r"a#\.fq has a #, which is for pairs"),
        ("#b#", "#b# has 2 #; write"),
    ):
        with pytest.raises(SpecError, match=said):
            found.write(calls, classified=tmp_path / name)
    (tmp_path / "cut.fq").write_text((folder / "r1.fq").read_text() + "@cut\nACGT\n+\n")
    (tmp_path / "no").write_text("old")
    with pytest.raises(ExistsError):
        found.write(calls, classified=tmp_path / "yes", unclassified=tmp_path / "no")
    with pytest.raises(ValueError, match=r"cut\.fq"):
        classified(taxonomy, tmp_path / "cut.fq").write(
            calls, classified=tmp_path / "yes", unclassified=tmp_path / "new"
        )
    assert sorted(each.name for each in tmp_path.iterdir()) == ["cut.fq", "no"]
    assert mates_targets("a#b", paired=True) == ["a_1b", "a_2b"]


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    path = tmp_path_factory.mktemp("index") / "tiny.dgki"
    run(
        "build", TINY.folder / "genomes", "--rule", "kraken2", "--taxonomy", TINY.taxonomy_folder,
        "-o", path,
    )  # fmt: skip
    return path


def test_tiny_in_all_formats(index, tmp_path):
    outputs = ["--krona", tmp_path / "k", "--cami", tmp_path / "c", "--biom", tmp_path / "b"]
    reads = ["--classified-out", tmp_path / "yes#.fq", "--unclassified-out", tmp_path / "no#.fq"]
    assert run("classify", index, *PAIRS, "--paired", *outputs, *reads) == ""
    assert set((tmp_path / "k").read_text().splitlines()) == krona(TINY_COUNTS)
    assert (tmp_path / "c").read_text().splitlines() == cami(TINY_COUNTS, "reads_1")
    table = json.loads((tmp_path / "b").read_text())
    assert [table["rows"], table["data"]] == [*biom([TINY_COUNTS])]
    assert table["columns"] == [{"id": "reads_1", "metadata": None}]
    assert table["format"] == "Biological Observation Matrix 1.0.0"
    assert datetime.fromisoformat(table["date"])
    calls = TINY.calls("kraken2.calls.tsv")
    for mate, path in enumerate(PAIRS, 1):
        records = re.findall(r"@(.*)(\n.*\n\+\n.*\n)", gzip.decompress(path.read_bytes()).decode())
        both = list(zip(records, calls, strict=True))
        for name, expected in (
            ("yes", [f"@{head} kraken:taxid|{call}{rest}" for (head, rest), call in both if call]),
            ("no", [f"@{head}{rest}" for (head, rest), call in both if not call]),
        ):
            assert (tmp_path / f"{name}_{mate}.fq").read_text() == "".join(expected)


def test_samples_have_profiles_of_their_own_and_one_table(index, tmp_path):
    table = tmp_path / "samples.tsv"
    table.write_text(f"sample\tr1\tr2\nboth\t{PAIRS[0]}\t{PAIRS[1]}\none\t{PAIRS[0]}\n")
    each = ["--krona", tmp_path / "{sample}.k", "--cami", tmp_path / "{sample}.c"]
    reads = ["--unclassified-out", tmp_path / "{sample}.fq"]
    run("classify", index, "--samples", table, *each, *reads, "--biom", tmp_path / "b")
    single = run("classify", index, PAIRS[0], "--format", "tsv")
    counts = Counter(int(line.split("\t")[1]) for line in single.splitlines())
    found = json.loads((tmp_path / "b").read_text())
    assert [found["rows"], found["data"]] == [*biom([TINY_COUNTS, counts])]
    assert [column["id"] for column in found["columns"]] == ["both", "one"]
    for name, expected in (("both", TINY_COUNTS), ("one", counts)):
        assert set((tmp_path / f"{name}.k").read_text().splitlines()) == krona(expected)
        assert (tmp_path / f"{name}.c").read_text().splitlines() == cami(expected, name)
    assert (tmp_path / "one.fq").read_text().count("\n") == 4 * counts[0]
    assert (tmp_path / "both.fq").read_text().count("\n") == 8 * TINY_COUNTS[0]
    before = sorted(tmp_path.iterdir())
    for given, said in (
        (["--krona", tmp_path / "k"], "--krona"),
        (["--classified-out", tmp_path / "k"], "--classified-out"),
        (["--biom", tmp_path / "{sample}"], "--biom has a column for each sample; leave {sample}"),
        (["--classified-out", tmp_path / "{sample}#"], "one# has a #, which is for pairs"),
        (["--cami", tmp_path / "{sample}", "--krona", tmp_path / "{sample}"], "two outputs go to"),
        (["--biom", tmp_path / "b"], "exists already"),
    ):
        error = run("classify", index, "--samples", table, *given, code=2)
        assert said in error
        assert len(error.splitlines()) == 1
        assert sorted(tmp_path.iterdir()) == before
