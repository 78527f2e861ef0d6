"""Readers of Kraken 2's reports, run on ours (``make peers``): KrakenTools, Bracken, Krona."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner
from kmer.tiers import TINY

from dgpuhash.cli import main
from dgpuhash.kmer import read_sequences

FOLDER = Path(os.environ.get("DGPUHASH_PEERS", Path(__file__).parents[3] / "build" / "peers"))
# Debian's, which has Biopython.
PYTHON = "/usr/bin/python3"
READS = [TINY.folder / f"reads_{mate}.fq.gz" for mate in (1, 2)]
pytestmark = [
    pytest.mark.genomes,
    pytest.mark.slow,
    pytest.mark.skipif(not (FOLDER / "Bracken").is_dir(), reason="make peers fetches them"),
]


def ours(*arguments):
    result = CliRunner().invoke(main, ["kmer", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.stdout


def theirs(*command, cwd=None):
    run = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def krakentools(script, *arguments):
    return theirs(PYTHON, FOLDER / "KrakenTools" / script, *arguments)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An index with distributions, and calls and reports by it."""
    made = tmp_path_factory.mktemp("readers")
    ours(
        "build", TINY.folder / "genomes", "--rule", "kraken2", "--taxonomy", TINY.taxonomy_folder,
        "--distributions", "100,150", "-o", made / "db.dgki",
    )  # fmt: skip
    ours(
        "classify", made / "db.dgki", *READS, "--paired", "-o", made / "calls", "--report",
        made / "report", "--krona", made / "krona",
    )  # fmt: skip
    return made


def test_krakentools_read_reports(folder, tmp_path):
    krakentools("kreport2mpa.py", "-r", folder / "report", "-o", tmp_path / "mpa")
    found = ours("report", folder / "calls", "--db", folder / "db.dgki", "--report-style", "mpa")
    assert sorted((tmp_path / "mpa").read_text().splitlines()) == sorted(
        found.replace(" ", "_").splitlines()
    )
    krakentools("kreport2krona.py", "-r", folder / "report", "-o", tmp_path / "krona")
    totals = [
        sum(int(line.split("\t")[0]) for line in path.read_text().splitlines())
        for path in (tmp_path / "krona", folder / "krona")
    ]
    assert totals == [len(TINY.names)] * 2
    reports = [folder / "report"] * 2
    krakentools("combine_kreports.py", "-r", *reports, "-o", tmp_path / "both")
    text = (tmp_path / "both").read_text()
    assert f"#Total Number of Reads: {2 * len(TINY.names)}\n" in text


def test_krakentools_extract_the_reads_that_extract_does(folder, tmp_path):
    counts = Counter(TINY.calls("kraken2.calls.tsv"))
    taxid = next(taxid for taxid, _ in counts.most_common() if taxid)
    krakentools(
        "extract_kraken_reads.py", "-k", folder / "calls", "-s1", READS[0], "-s2", READS[1], "-t",
        taxid, "--include-children", "-r", folder / "report", "--fastq-output", "-o",
        tmp_path / "1.fq", "-o2", tmp_path / "2.fq",
    )  # fmt: skip
    ours(
        "extract", folder / "calls", *READS, "--paired", "--taxa", f"{taxid}+", "--db",
        folder / "db.dgki", "-o", tmp_path / "ours_#.fq",
    )  # fmt: skip
    for mate in (1, 2):
        found = []
        for path in (tmp_path / f"{mate}.fq", tmp_path / f"ours_{mate}.fq"):
            (batch,) = read_sequences(path)
            rows = range(len(batch))
            found.append({batch.name(row).split()[0]: batch.sequence(row) for row in rows})
        assert found[0] == found[1]
        assert len(found[0]) >= counts[taxid]


@pytest.mark.parametrize(("rank", "letter"), [("species", "S"), ("genus", "G"), ("family", "F")])
@pytest.mark.parametrize("threshold", [0, 10, 200])
@pytest.mark.parametrize("length", [100, 150])
def test_bracken_estimates_the_same_reads(folder, tmp_path, rank, letter, threshold, length):
    db = folder / "db.dgki"
    (tmp_path / "counts").write_text(ours("inspect", db, "--distribution", length))
    theirs(
        PYTHON, FOLDER / "Bracken" / "src" / "est_abundance.py", "-i", folder / "report", "-k",
        tmp_path / "counts", "-o", tmp_path / "bracken", "-l", letter, "-t", threshold,
        "--out-report", tmp_path / "new",
    )  # fmt: skip
    found = ours(
        "report", folder / "calls", "--db", db, "--abundance", rank, "--read-length", length,
        "--threshold", threshold,
    )  # fmt: skip
    assert found == (tmp_path / "bracken").read_text()


@pytest.mark.skipif(
    shutil.which("kraken2-build") is None or shutil.which("g++") is None,
    reason="make peers installs Kraken 2; Bracken's program needs g++",
)
def test_distributions_are_those_of_bracken_after_kraken(folder, tmp_path):
    program, source = tmp_path / "kmer2read_distr", FOLDER / "Bracken" / "src"
    theirs("g++", "-O2", "-fopenmp", "-o", program, *sorted(source.glob("*.cpp")))
    db = tmp_path / "db"
    db.mkdir()
    shutil.copytree(TINY.taxonomy_folder, db / "taxonomy")
    for file in sorted((TINY.folder / "genomes").iterdir()):
        text = theirs("gzip", "-dc", file)
        (tmp_path / "one.fa").write_text(text)
        theirs("kraken2-build", "--db", db, "--no-masking", "--add-to-library", tmp_path / "one.fa")
    theirs("kraken2-build", "--db", db, "--build")
    library = sorted((db / "library").rglob("*.fna"))
    (db / "all.kraken").write_text(theirs("kraken2", "--db", db, *library))
    for length in (100, 150):
        theirs(
            program, "--seqid2taxid", db / "seqid2taxid.map", "--taxonomy", db / "taxonomy",
            "--kraken", db / "all.kraken", "--output", db / "reads", "-k", 35, "-l", length,
        )  # fmt: skip
        theirs(
            PYTHON,
            source / "generate_kmer_distribution.py",
            "-i",
            db / "reads",
            "-o",
            db / "counts",
        )
        found = ours("inspect", folder / "db.dgki", "--distribution", length)
        assert _rows(found) == _rows((db / "counts").read_text())


def _rows(text: str) -> dict[str, list[str]]:
    rows = (line.split("\t") for line in text.splitlines()[1:])
    return {call: sorted(counts.split()) for call, counts in rows}


@pytest.mark.skipif(shutil.which("perl") is None, reason="Krona's importer is in Perl")
def test_krona_imports_our_text(folder, tmp_path):
    importer = FOLDER / "Krona" / "KronaTools" / "scripts" / "ImportText.pl"
    theirs("perl", importer, "-o", tmp_path / "krona.html", folder / "krona")
    page = (tmp_path / "krona.html").read_text()
    values = re.findall(r'<node name="([^"]+)">\s*<magnitude><val>(\d+)', page)
    assert int(dict(values)["all"]) == len(TINY.names)
    assert int(dict(values)["unclassified"]) == TINY.calls("kraken2.calls.tsv").count(0)
