"""`dgpuhash kmer build … extract`: tiers by the command line, and what else its options do."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner
from kmer.tiers import DATA, MINI, TINY, lines_without_codes

from dgpuhash.cli import main
from dgpuhash.kmer import Taxonomy, load_index
from dgpuhash.kmer.formats.report import mpa_report

READS = [TINY.folder / f"reads_{mate}.fq.gz" for mate in (1, 2)]
GENOMES = sorted((TINY.folder / "genomes").iterdir())
RULES = ["metacache", "kraken2"]


def run(*arguments, code=0, text=None):
    result = CliRunner().invoke(main, ["kmer", *map(str, arguments)], input=text)
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


@pytest.fixture(scope="module")
def indexes(tmp_path_factory):
    """The file of an index of tier tiny by each rule."""
    folder = tmp_path_factory.mktemp("indexes")
    for rule in RULES:
        run(
            "build", TINY.folder / "genomes", "--rule", rule, "--taxonomy", TINY.taxonomy_folder,
            "-o", folder / f"{rule}.dgki",
        )  # fmt: skip
    return {rule: folder / f"{rule}.dgki" for rule in RULES}


@pytest.fixture(scope="module")
def written(indexes, tmp_path_factory):
    """Calls and reports of tier tiny by each rule, in the rule's own format."""
    folder = tmp_path_factory.mktemp("written")
    for rule, index in indexes.items():
        run(
            "classify", index, *READS, "--paired", "-o", folder / f"{rule}.calls", "--report",
            folder / f"{rule}.report", "--abundance", "species", "--abundance-output",
            folder / f"{rule}.abundances",
        )  # fmt: skip
    return folder


def columns_of(path, *places):
    """Return some columns of calls, without the head of a table."""
    lines = path.read_text().splitlines()
    rows = lines[2:] if lines[0].startswith("# --format table") else lines
    return [tuple(line.split("\t")[place] for place in places) for line in rows]


def test_tiny_is_called_as_metacache_calls_it(indexes, written, tmp_path):
    found = columns_of(written / "metacache.calls", 0, 1)
    assert [name for name, _ in found] == TINY.names
    assert [int(call) for _, call in found] == TINY.calls("metacache.sequence.calls.tsv")
    path = tmp_path / "species"
    run("classify", indexes["metacache"], *READS, "--paired", "--lowest", "species", "-o", path)
    calls = [int(call) for (call,) in columns_of(path, 1)]
    assert calls == TINY.calls("metacache.species.calls.tsv")
    text = (written / "metacache.abundances").read_text()
    assert text == TINY.text("metacache.abundances.txt")
    assert run("inspect", indexes["metacache"], "--lineages") == TINY.text("metacache.lineages.txt")


def test_tiny_has_the_top_lists_of_metacache(indexes, tmp_path):
    path = tmp_path / "calls"
    run(
        "classify", indexes["metacache"], *READS, "--paired", "--lowest", "species", "--format",
        "metacache", "-o", path,
    )  # fmt: skip
    lines = [line.split("\t|\t") for line in path.read_text().splitlines()[1:]]
    with gzip.open(TINY.folder / "metacache.tophits.txt.gz", "rt") as file:
        expected = [line.split("\t|\t") for line in file if not line.startswith("#")]
    for (name, tops, called), row in zip(lines, expected, strict=True):
        assert (f"{name}/1", tops, called) == (row[1], row[2].strip(), row[4].strip())


def test_tiny_is_called_and_reported_as_kraken2_does(written):
    rows = columns_of(written / "kraken2.calls", 0, 1, 2, 3)
    assert [name for _, name, _, _ in rows] == TINY.names
    assert [int(call) for _, _, call, _ in rows] == TINY.calls("kraken2.calls.tsv")
    lengths = [f"{len(first)}|{len(second)}" for first, second in TINY.pairs]
    for (status, _, call, size), length in zip(rows, lengths, strict=True):
        assert (status == "U") == (call == "0")
        assert size == length
    for (runs,), pair in zip(columns_of(written / "kraken2.calls", 4), TINY.pairs, strict=True):
        sides = [sum(int(run.split(":")[1]) for run in side.split()) for side in runs.split("|:|")]
        assert sides == [max(len(letters) - 34, 0) for letters in pair]
    lines = (written / "kraken2.report").read_text().splitlines()
    expected = TINY.text("kraken2.report").splitlines()
    assert lines_without_codes(lines) == lines_without_codes(expected)
    codes = [line.split("\t")[3] for line in lines[:4]]
    assert codes == ["U", "R", "D", "D1"]


@pytest.mark.genomes
@pytest.mark.skipif(not DATA.is_dir(), reason="DGPUHASH_KMER_DATA names no folder of tiers")
def test_mini_is_called_as_both_tools_call_it(tmp_path):
    reads = [MINI.folder / f"reads_{mate}.fq.gz" for mate in (1, 2)]
    for rule, name in (("metacache", "metacache.sequence"), ("kraken2", "kraken2")):
        calls, report, abundances = (tmp_path / f"{rule}.{each}" for each in ("c", "r", "a"))
        run(
            "run", *reads, "--paired", "--references", MINI.folder / "genomes", "--rule", rule,
            "--taxonomy", MINI.taxonomy_folder, "-o", calls, "--format", "tsv", "--report",
            report, "--abundance", "species", "--abundance-output", abundances,
        )  # fmt: skip
        assert [int(call) for (call,) in columns_of(calls, 1)] == MINI.calls(f"{name}.calls.tsv")
        if rule == "metacache":
            assert abundances.read_text() == MINI.text("metacache.abundances.txt")
        else:
            lines = report.read_text().splitlines()
            expected = MINI.text("kraken2.report").splitlines()
            assert lines_without_codes(lines) == lines_without_codes(expected)


@pytest.mark.parametrize("rule", RULES)
def test_run_and_add_give_what_one_build_does(indexes, written, tmp_path, rule):
    expected = (written / f"{rule}.calls").read_text()
    text = run(
        "run", *READS, "--paired", *(f"--references={path}" for path in GENOMES), "--rule", rule,
        "--taxonomy", TINY.taxonomy_folder,
    )  # fmt: skip
    assert text == expected
    path = tmp_path / "grown.dgki"
    taxonomy = ("--taxonomy", TINY.taxonomy_folder)
    said = run("build", *GENOMES[:5], "--rule", rule, *taxonomy, "-o", path)
    assert "grown.dgki: 33 sequences of" in said
    assert "grown.dgki: 40 sequences of 12 taxa, 233,194 letters" in run(
        "add", path, *GENOMES[5:], *taxonomy
    )
    assert run("classify", path, *READS, "--paired") == expected
    assert "whose id is there already" in run("add", path, GENOMES[0], *taxonomy, code=2)
    assert len(load_index(path).targets.names) == 40


def test_settings_and_options_reach_the_index(indexes, tmp_path):
    path = tmp_path / "small.dgki"
    taxonomy = ("--taxonomy", TINY.taxonomy_folder)
    run(
        "build", *GENOMES, "--rule", "metacache", *taxonomy, "-o", path, "-k", 12, "--sketch", 4,
        "--window", 60, "--cap", 2, "--remove-overpopulated", "--mask", "lowercase",
    )  # fmt: skip
    stats = dict(line.split("\t") for line in run("inspect", path).splitlines())
    settings = ("k", "sketch", "window", "stride", "cap", "remove_overpopulated", "mask")
    assert [stats[name] for name in settings] == [
        "12", "4", "60", "49", "2", "true", "lowercase",
    ]  # fmt: skip
    run(
        "build",
        *GENOMES,
        "--rule",
        "kraken2",
        *taxonomy,
        "-o",
        path,
        "-l",
        20,
        "--spaces",
        4,
        "--force",
    )
    assert dict(line.split("\t") for line in run("inspect", path).splitlines())["l"] == "20"
    rows = run("inspect", path, "--targets").splitlines()
    assert rows[1].split("\t")[:5] == ["-1", "NC_004830.2", "198112", "10140", "1"]
    assert len(rows) == 41
    assert "100.00" in run("inspect", path, "--report").splitlines()[0]
    for options in (["--confidence", 0.9], ["--minimum-hit-groups", 40], ["--quick"]):
        loose = run("classify", indexes["kraken2"], READS[0], "--format", "tsv")
        assert run("classify", indexes["kraken2"], READS[0], "--format", "tsv", *options) != loose
    loose = run("classify", indexes["metacache"], READS[0])
    for options in (["--hitmin", 12], ["--lowest", "genus"], ["--maxcand", 1, "--hitdiff", 10]):
        assert run("classify", indexes["metacache"], READS[0], *options) != loose


def test_samples_are_classified_by_an_index_loaded_once(indexes, written, tmp_path, monkeypatch):
    loads = []

    def counted(*arguments, **settings):
        loads.append(arguments)
        return load_index(*arguments, **settings)

    monkeypatch.setattr("dgpuhash.kmer.load_index", counted)
    table = tmp_path / "samples.tsv"
    table.write_text(f"sample\tr1\tr2\nboth\t{READS[0]}\t{READS[1]}\none\t{READS[0]}\n")
    outputs = ["-o", tmp_path / "{sample}.calls", "--report", tmp_path / "{sample}.report"]
    run("classify", indexes["kraken2"], "--samples", table, *outputs)
    assert len(loads) == 1
    assert (tmp_path / "both.calls").read_text() == (written / "kraken2.calls").read_text()
    assert (tmp_path / "both.report").read_text() == (written / "kraken2.report").read_text()
    single = run("classify", indexes["kraken2"], READS[0])
    assert (tmp_path / "one.calls").read_text() == single
    assert single.startswith("C\thiv1.129/1\t11676\t150\t")
    for arguments, said in (
        (["--samples", table, "-o", tmp_path / "all"], "write {sample} into its name"),
        (["--samples", table, READS[0], *outputs], "leave out READS and --paired"),
        ([], "no READS; name files"),
    ):
        assert said in run("classify", indexes["kraken2"], *arguments, code=2)


def test_single_interleaved_and_piped_reads(indexes, written, tmp_path):
    firsts, seconds = (gzip.decompress(path.read_bytes()).decode().split("\n@") for path in READS)
    both = tmp_path / "both.fq"
    pairs = zip(firsts, seconds, strict=True)
    text = "\n".join(f"@{each.strip().removeprefix('@')}" for pair in pairs for each in pair) + "\n"
    both.write_text(text)
    expected = (written / "kraken2.calls").read_text()
    assert run("classify", indexes["kraken2"], both, "--interleaved") == expected
    assert run("classify", indexes["kraken2"], "-", "--interleaved", text=text) == expected
    path = tmp_path / "calls.parquet"
    run("classify", indexes["kraken2"], *READS, "--paired", "-o", path, "--format", "parquet")
    frame = pd.read_parquet(path)
    assert frame["read"].tolist() == TINY.names
    assert frame["taxid"].tolist() == TINY.calls("kraken2.calls.tsv")


@pytest.mark.parametrize("rule", RULES)
def test_reports_of_calls_are_those_of_reads(indexes, written, tmp_path, rule):
    index, expected = indexes[rule], (written / f"{rule}.report").read_text()
    calls = [written / f"{rule}.calls"]
    for form, name in (("tsv", "c.tsv.gz"), ("kraken", "c.kraken"), ("parquet", "c.parquet")):
        calls.append(tmp_path / name)
        names = ["--use-names"] if form == "kraken" else []
        run("classify", index, *READS, "--paired", "-o", calls[-1], "--format", form, *names)
    for path in calls:
        assert run("report", path, "--db", index) == expected
    path = tmp_path / "report.mpa"
    run("report", calls[0], calls[1], "--db", index, "--report-style", "mpa", "-o", path)
    taxonomy = Taxonomy.read(TINY.taxonomy_folder)
    name = "kraken2.calls.tsv" if rule == "kraken2" else "metacache.sequence.calls.tsv"
    targets = load_index(index).targets.taxids
    taxids = Counter(int(targets[-1 - call]) if call < 0 else call for call in TINY.calls(name))
    twice = [2 * count for count in taxids.values()]
    assert path.read_text().splitlines() == list(mpa_report(taxonomy, [*taxids], twice))
    if rule == "kraken2":
        other = run("report", calls[0], "--taxonomy", TINY.taxonomy_folder)
        assert other == expected
        whole = run("report", calls[0], "--taxonomy", TINY.taxonomy_folder, "--report-zero-counts")
        assert set(expected.splitlines()) < set(whole.splitlines())
    assert "a report needs a taxonomy" in run("report", calls[0], code=2)


def records_of(path):
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    lines = text.decode().splitlines()
    return ["\n".join(lines[at : at + 4]) for at in range(0, len(lines), 4)]


def test_reads_of_taxa_are_extracted_with_their_mates(indexes, written, tmp_path):
    sides = [records_of(path) for path in READS]
    taxonomy = Taxonomy.read(TINY.taxonomy_folder)
    calls = TINY.calls("kraken2.calls.tsv")
    for taxa, exclude in (["11320+,0"], False), (["335341"], False), (["11320+", "0"], True):
        single = [int(each) for text in taxa for each in text.split(",") if "+" not in each]
        clades = [int(each[:-1]) for text in taxa for each in text.split(",") if "+" in each]
        rows = [
            row for row, call in enumerate(calls)
            if bool(call in single or (call and set(clades) & set(taxonomy.lineage(call))))
            != exclude
        ]  # fmt: skip
        given = [option for text in taxa for option in ("--taxa", text)]
        given += ["--exclude"] if exclude else []
        run(
            "extract", written / "kraken2.calls", *READS, "--paired", *given, "--db",
            indexes["kraken2"], "-o", tmp_path / "out_#.fq.gz", "--force",
        )  # fmt: skip
        for mate in (1, 2):
            found = records_of(tmp_path / f"out_{mate}.fq.gz")
            assert found == [sides[mate - 1][row] for row in rows]
        run(
            "extract", written / "kraken2.calls", *READS, "--paired", *given, "--taxonomy",
            TINY.taxonomy_folder, "-o", tmp_path / "both.fq", "--force",
        )  # fmt: skip
        both = [side[row] for row in rows for side in sides]
        assert records_of(tmp_path / "both.fq") == both
        assert both


def test_sequences_are_extracted_by_their_own_calls(indexes, tmp_path):
    fasta, calls, out = (tmp_path / name for name in ("all.fa", "calls", "out.fa"))
    fasta.write_text("".join(gzip.decompress(path.read_bytes()).decode() for path in GENOMES))
    run("classify", indexes["metacache"], fasta, "-o", calls)
    run("extract", calls, fasta, "--taxa", "-1,11320+", "--db", indexes["metacache"], "-o", out)
    names = [line[1:].split()[0] for line in out.read_text().splitlines() if line[0] == ">"]
    taxids = dict(zip(load_index(indexes["metacache"]).targets.names, range(40), strict=True))
    taxonomy = Taxonomy.read(TINY.taxonomy_folder)
    assert names == [
        each.name for number, each in enumerate(TINY.references)
        if number == 0 or 11320 in taxonomy.lineage(each.taxid)
    ]  # fmt: skip
    assert len(taxids) == 40
    letters = {each.name: each.letters for each in TINY.references}
    sequences = [line for line in out.read_text().splitlines() if line[0] != ">"]
    assert sequences == [letters[name] for name in names]


def test_extract_takes_the_reads_that_were_classified(indexes, written, tmp_path):
    calls, out = written / "kraken2.calls", tmp_path / "out"
    short = tmp_path / "short"
    short.write_text("\n".join(calls.read_text().splitlines()[:3000]))
    none = tmp_path / "none"
    none.write_text("one\ttwo\n")
    pairs = [*READS, "--paired"]
    for given, said in (
        ([short, *pairs, "--taxa", 0], "has 3,000 calls, and there are more reads"),
        ([calls, READS[0], "--taxa", 0], "it is 'hiv1.129' here and 'hiv1.129/1' among the reads"),
        ([none, *pairs, "--taxa", 0], "none, lines from 1 on: no calls"),
        ([calls, *pairs, "--taxa", "562+"], "taxa with + need a taxonomy"),
        ([calls, *pairs, "--taxa", "x"], "'x' is not a taxid; write taxids such as 562"),
        ([calls, READS[0], "--taxa", 0, "-o", "a#.fq"], "a#.fq has a #, which is for pairs"),
    ):
        outputs = [] if "-o" in given else ["-o", out]
        error = run("extract", *given, *outputs, code=2)
        assert said in error
        assert len(error.splitlines()) == 1
        assert not out.exists()
    cut = tmp_path / "cut.fq"
    cut.write_text("\n".join(records_of(READS[0])[:10]) + "\n")
    run("classify", indexes["kraken2"], READS[0], "-o", tmp_path / "single")
    error = run("extract", tmp_path / "single", cut, "--taxa", 0, "-o", out, code=2)
    assert "single has calls of more than 10 reads; pass all reads" in error
    assert not out.exists()


def test_errors_are_one_line_and_leave_no_output(indexes, tmp_path):
    broken = tmp_path / "broken.fq.gz"
    broken.write_bytes(READS[1].read_bytes()[:-2000])
    index, out = indexes["kraken2"], tmp_path / "out"
    taxonomy = ["--taxonomy", TINY.taxonomy_folder]
    unplaced = tmp_path / "unplaced.fa"
    unplaced.write_text(">unknown\nACGTACGTACGTACGTACGTACGTACGTACGTACGTACGTACGTACGT\n")
    before = sorted(tmp_path.iterdir())
    build = ["build", *GENOMES, "-o", out]
    for given, said in (
        (["classify", index, broken, "-o", out, "--report", tmp_path / "report"], "is cut short"),
        (["classify", index, READS[0], broken, "--paired", "-o", out], "is cut short"),
        (["classify", index, READS[0], "--paired"], "--paired and 1 READS"),
        (
            ["classify", index, *READS, "--lowest", "genus"],
            "--lowest is an option of the rule of MetaCache",
        ),
        (["classify", index, *READS, "--rule", "metacache"], "was built by --rule kraken2"),
        (["classify", index, *READS, "--confidence", 2], "confidence=2.0; use 0 to 1"),
        (
            ["classify", index, *READS, "--abundance", "strain"],
            "'strain' is not a rank of lineages",
        ),
        (["classify", index, *READS, "-o", "-", "--report", "-"], "two outputs go to the stand"),
        (["classify", index, *READS, "--format", "metacache"], "format 'metacache' has cand"),
        (["classify", index, *READS, "-o", index], "exists already; choose another name, or"),
        (["classify", READS[0], READS[1]], "was not saved by dgpuhash"),
        (["classify", tmp_path / "none.dgki", *READS], "No such file"),
        ([*build, "--rule", "kraken2"], "the rule of Kraken 2 needs a taxonomy"),
        (
            [*build, "--rule", "kraken2", *taxonomy, "--sketch", 3],
            "--sketch is an option of the rule of",
        ),
        ([*build, "--rule", "metacache", *taxonomy, "-k", 40], "k=40"),
        ([*build, unplaced, "--rule", "kraken2", *taxonomy], "1 reference without a taxid: unk"),
        ([*build, "--rule", "metacache", "--taxonomy", tmp_path], "nodes.dmp is not there"),
        (["inspect", index, "--targets", "--report"], "pass one"),
        (["inspect", indexes["metacache"], "--report"], "has no minimizers"),
    ):
        error = run(*given, code=2)
        assert said in error
        assert len(error.splitlines()) == 1
        assert sorted(tmp_path.iterdir()) == before
    run(*build, unplaced, "--rule", "kraken2", *taxonomy, "--allow-unplaced", 1)
    assert out.is_file()


def test_a_table_of_what_was_found_is_shown(indexes, tmp_path):
    result = CliRunner().invoke(
        main, ["kmer", "classify", str(indexes["kraken2"]), *map(str, READS), "--paired",
               "-o", str(tmp_path / "calls")],
    )  # fmt: skip
    titles, row = result.stderr.splitlines()
    assert titles.split()[:5] == ["pairs", "classified", "%", "unclassified", "letters"]
    assert row.split()[:5] == ["4,398", "2,405", "54.68", "1,993", "1,319,400"]


def test_reports_may_have_minimizers(indexes, written):
    given = [*READS, "--paired", "--report", "-", "--report-minimizer-data"]
    lines = run("classify", indexes["kraken2"], *given).splitlines()
    plain = (written / "kraken2.report").read_text().splitlines()
    assert len(lines) == len(plain)
    for line, other in zip(lines, plain, strict=True):
        fields = line.split("\t")
        assert fields[:3] + fields[5:] == other.split("\t")
        if fields[6] != "0":
            assert 0 < int(fields[4]) <= int(fields[3])
    error = run("classify", indexes["metacache"], *given, code=2)
    assert "--report-minimizer-data is an option of the rule of Kraken 2" in error


def test_quick_calls_have_no_runs(indexes):
    lines = run("classify", indexes["kraken2"], *READS, "--paired", "--quick").splitlines()
    rows = [line.split("\t") for line in lines]
    assert [row[4] for row in rows] == [f"{row[2]}:Q" for row in rows]
    assert len({row[2] for row in rows}) > 9


def test_outputs_may_be_devices(indexes):
    run("classify", indexes["kraken2"], READS[0], "-o", "/dev/null", "--report", "/dev/null")
    assert Path("/dev/null").is_char_device()


def test_places_come_from_gtdb_files_and_headers(tmp_path):
    letters = "".join(each.letters for each in TINY.references[:1])
    gtdb, accessions = tmp_path / "gtdb.tsv", tmp_path / "accessions"
    lineage = "d__Archaea;p__Nanoarchaeota"
    gtdb.write_text(f"GB_GCA_000000001.1\t{lineage}\nRS_GCF_000000002.1\td__Bacteria\n")
    named = tmp_path / "GCA_000000001.1_x.fna"
    named.write_text(f">one\n{letters}\n")
    out = tmp_path / "out.dgki"
    run("build", named, "--rule", "kraken2", "--gtdb", gtdb, "-o", out)
    assert run("classify", out, named, "--use-names").split("\t")[2].startswith("Nanoarchaeota (")
    # 1034808 was merged into 562.
    fasta = tmp_path / "some.fa"
    fasta.write_text(f">one taxid|1034808\n{letters}\n>two.1\n{letters[::-1]}\n")
    accessions.write_text("two.1\t573\n")
    taxonomy = ["--taxonomy", TINY.taxonomy_folder]
    for rule in RULES:
        result = CliRunner().invoke(
            main, ["kmer", "build", *map(str, [fasta, "--rule", rule, *taxonomy, "-o", out,
                   "--force", "--accessions", accessions])],
        )  # fmt: skip
        assert "note: taxid 1034808 of one of " in result.stderr
        assert "was merged into 562" in result.stderr
        rows = run("inspect", out, "--targets").splitlines()[1:]
        assert [row.split("\t")[2] for row in rows] == ["562", "573"]
    error = run("build", named, "--rule", "kraken2", "--gtdb", gtdb, *taxonomy, "-o", "x", code=2)
    assert "--taxonomy and --gtdb are two taxonomies; pass one" in error


def test_reads_of_taxa_with_few_minimizers_count_for_those_above(indexes, tmp_path):
    index = indexes["kraken2"]
    given = [*READS, "--paired", "--report", "-", "--report-minimizer-data"]
    rows = [line.split("\t") for line in run("classify", index, *given).splitlines()]
    clades = {int(row[6]): int(row[4]) for row in rows}
    taxonomy = Taxonomy.read(TINY.taxonomy_folder)
    calls = TINY.calls("kraken2.calls.tsv")
    for least in (1, 20, 300, 1500, 10**9):
        expected: Counter[int] = Counter()
        for taxid, reads in Counter(calls).items():
            while taxid > 1 and clades[taxid] < least:
                taxid = taxonomy.parent(taxid)
            expected[taxid] += reads
        text = run("classify", index, *given, "--minimum-minimizers", least)
        found = [line.split("\t") for line in text.splitlines()]
        assert {int(row[6]): int(row[2]) for row in found if int(row[2])} == expected
        # What reads have does not change, only whose they are.
        assert all(int(row[4]) == clades[int(row[6])] for row in found)
        krona, paths = tmp_path / f"{least}.krona", ["-o", tmp_path / f"{least}.calls"]
        run(
            "classify", index, *READS, "--paired", "--krona", krona, *paths,
            "--minimum-minimizers", least,
        )  # fmt: skip
        numbers = [int(line.partition("\t")[0]) for line in krona.read_text().splitlines()]
        assert sorted(numbers) == sorted(expected.values())
        rows = columns_of(tmp_path / f"{least}.calls", 2)
        assert [int(call) for (call,) in rows] == calls
    other = [*READS, "--paired", "--minimum-minimizers", 5]
    error = run("classify", indexes["metacache"], *other, "--report", "-", code=2)
    assert "--minimum-minimizers is an option of the rule of Kraken 2" in error
    assert "request one of them, e.g. --report FILE" in run("classify", index, *other, code=2)
