"""What is wrong with files, reads and settings, for all that reads them."""

from __future__ import annotations

import gzip
import random
import resource
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner
from kmer import model
from kmer.worlds import TAXA, World, arrays, fasta, fastq, rows
from kmer.taxonomy_model import Model

from dgpuhash.cli import main
from dgpuhash.errors import SequenceError, SpecError, TaxonomyError
from dgpuhash.kmer import (
    KmerCounts,
    MinimizerIndex,
    SketchIndex,
    Taxonomy,
    load_index,
    read_sequences,
)
from dgpuhash.kmer.sequences import files as sequence_files

WORLD = World(5, pairs=40)
NAMES = [f"read{at}" for at in range(len(WORLD.pairs))]
FIRSTS, SECONDS = ([pair[at] for pair in WORLD.pairs] for at in (0, 1))
RULES = {"metacache": SketchIndex, "kraken2": MinimizerIndex}
by_rule = pytest.mark.parametrize("rule", RULES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return WORLD.write(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def indexes(folder):
    """Return the path of a saved index of each rule."""
    taxonomy, paths = folder / "taxonomy", {}
    for rule, kind in RULES.items():
        paths[rule] = folder / f"{rule}.dgki"
        kind.build(sorted(folder.glob("*.fa")), taxonomy=taxonomy).save(paths[rule])
    return paths


def run(*arguments, code=0):
    result = CliRunner().invoke(main, ["kmer", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


def written(path, content):
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


GOOD = fastq(NAMES, FIRSTS)
PACKED = gzip.compress(GOOD.encode())
DAMAGED = bytes(each ^ (at in range(900, 910)) * 0x5A for at, each in enumerate(PACKED))
BAD = {
    "cut short": (PACKED[: len(PACKED) // 2], "cut short"),
    "without an end": (PACKED[:-4], "cut short"),
    "damaged": (DAMAGED, "(damaged|cut short|bytes of no text|record)"),
    "junk behind it": (PACKED + b"junk", "damaged"),
    "junk": (random.Random(1).randbytes(3000), "line 1: .*neither FASTA nor FASTQ"),
    "a table": ("read\ttaxid\nr\t1\n", "line 1: .*neither FASTA nor FASTQ"),
    "an archive": (b"PK\x03\x04" + bytes(100), "line 1: .*neither FASTA nor FASTQ"),
    "UTF-16": (fasta(WORLD.files[0]).encode("utf-16"), "line 1: .*neither FASTA nor FASTQ"),
    "no header": ("ACGTACGT\n" * 9, "line 1: .*neither FASTA nor FASTQ"),
    "mixed": (GOOD + ">a\nACGT\n", "record 40, line 161: .*other format"),
    "short quality": (GOOD + "@a\nACGT\n+\nIII\n", "record 41, line 164: .*shorter"),
    "no plus": (GOOD + "@a\nACGT\nIIII\n", r"record 41, line 163: .*'\+'"),
    "half a record": (GOOD + "@a\nACGT\n", "record 41, line 163: .*ends within it"),
    "bytes of no text": (GOOD + "@a\nA\x00GT\n+\nIIII\n", "record 41, line 162: .*no text"),
    "protein": (">p\n" + "MKVLAAGIVGLLLAQWERTYPLSFE" * 3 + "\n", "record 1, .*protein"),
    "empty": ("", "no sequences"),
    "blank lines": ("\n\n \n", "no sequences"),
}


@pytest.mark.parametrize("chunk", [64, 2**20])
@pytest.mark.parametrize("kind", BAD)
def test_bad_files_give_no_result_at_all(tmp_path, monkeypatch, folder, indexes, kind, chunk):
    """Also where much of the file was read and classified before."""
    monkeypatch.setattr(sequence_files, "CHUNK_NBYTES", chunk)
    content, said = BAD[kind]
    bad = written(tmp_path / "bad", content)
    out = tmp_path / "out"
    commands = [("count", bad, "-k", 21, "-o", out)]
    for rule, index in indexes.items():
        commands.append(
            ("build", bad, "--rule", rule, "--taxonomy", folder / "taxonomy", "-o", out,
             "--allow-unplaced", 1000)
        )  # fmt: skip
        commands.append(("classify", index, bad, "-o", out, "--report", tmp_path / "report"))
    for command in commands:
        error = run(*command, code=2)
        assert len(error.splitlines()) == 1
        assert str(bad) in error
        assert [path.name for path in tmp_path.iterdir()] == ["bad"]
    with pytest.raises(SequenceError, match=said):
        list(read_sequences(bad))


@by_rule
def test_an_index_stays_as_it_was_where_files_to_add_are_bad(tmp_path, folder, rule):
    taxonomy = folder / "taxonomy"
    index = RULES[rule].build(folder / "0.fa", taxonomy=taxonomy)
    before = index.stats(), rows(index.call(*arrays(FIRSTS), detail=True))
    bad = written(tmp_path / "bad.fa", fasta(WORLD.files[1]) + "@x\n")
    for wrong, error in (
        (bad, SequenceError),
        (folder / "0.fa", TaxonomyError),
        (written(tmp_path / "unknown.fa", ">new taxid|99\nACGT\n"), TaxonomyError),
    ):
        with pytest.raises(error):
            index.add([folder / "1.fa", wrong], taxonomy=taxonomy)
        assert (index.stats(), rows(index.call(*arrays(FIRSTS), detail=True))) == before
    index.add(folder / "1.fa", taxonomy=taxonomy)
    assert len(index.targets.names) == len(WORLD.files[0]) + len(WORLD.files[1])


@by_rule
def test_reads_that_are_no_pairs_have_no_calls(tmp_path, indexes, rule):
    def file(name, names, reads):
        return written(tmp_path / name, fastq(names, reads))

    r1 = file("r1.fq", [f"{name}/1" for name in NAMES], FIRSTS)
    wrong = {
        "has no mate": file("less.fq", [f"{name}/2" for name in NAMES[:-1]], SECONDS[:-1]),
        "'read0/1' and its mate .*'read1/2'": file(
            "shifted.fq", [f"{name}/2" for name in NAMES[1:] + NAMES[:1]], SECONDS
        ),
        "'read7/1' and its mate .*'other 2:N:0'": file(
            "other.fq", [*NAMES[:7], "other 2:N:0", *NAMES[8:]], SECONDS
        ),
    }
    inputs = set(tmp_path.iterdir())
    index = load_index(indexes[rule])
    for said, r2 in wrong.items():
        with pytest.raises(SequenceError, match=said):
            index.classify(r1, r2).write(tmp_path / "out")
        assert set(tmp_path.iterdir()) == inputs
    with pytest.raises(SequenceError, match="odd number of records"):
        index.classify(wrong["has no mate"], interleaved=True).to_pandas()
    # Illumina's names of today.
    one = file("one.fq", [f"{name} 1:N:0:A" for name in NAMES], FIRSTS)
    two = file("two.fq", [f"{name} 2:N:0:A" for name in NAMES], SECONDS)
    found = index.classify(one, two).to_pandas()
    assert found["read"].tolist() == NAMES
    assert found["taxid"].tolist() == index.call(*arrays(FIRSTS), *arrays(SECONDS)).taxids.tolist()


SAME = {
    "plain text named .gz": ("reads.gz", str),
    "packed, without an ending": ("reads", lambda text: gzip.compress(text.encode())),
    "CRLF": ("reads.fq", lambda text: text.replace("\n", "\r\n")),
    "CR": ("reads.fq", lambda text: text.replace("\n", "\r")),
    "a mark of UTF-8": ("reads.fq", lambda text: "\ufeff" + text),
    "no last line end": ("reads.fq", lambda text: text.rstrip("\n")),
    "blank lines": ("reads.fq", lambda text: "\n\n" + text.replace("\n@read3", "\n\n@read3") + "\n"),
}


@by_rule
@pytest.mark.parametrize("form", SAME)
def test_forms_of_the_same_text_are_the_same(tmp_path, indexes, rule, form):
    name, change = SAME[form]
    # The last one is not empty: its quality has a line of its own.
    usual = written(tmp_path / "usual.fq", GOOD)
    other = written(tmp_path / name, change(GOOD))
    index = load_index(indexes[rule])
    expected, found = (index.classify(file).to_pandas() for file in (usual, other))
    assert found.equals(expected)
    assert set(expected["taxid"]) > {0}


@by_rule
@pytest.mark.parametrize("form", ["tsv", "kraken"])
def test_each_read_has_a_line_always(tmp_path, indexes, rule, form):
    """Empty ones, short ones, those without a base, and where all reads are so."""
    reads = ["", "A", "ACGT", "N" * 200, ""]
    names = [f"r{at}" for at in range(len(reads))]
    for sequences in (reads, [""] * 5):
        one = written(tmp_path / "1.fq", fastq(names, sequences))
        two = written(tmp_path / "2.fq", fastq(names, sequences[::-1]))
        as_fasta = written(
            tmp_path / "1.fa",
            "".join(f">{n}\n{each}\n" for n, each in zip(names, sequences, strict=True)),
        )
        for files in ([one], [as_fasta], [one, two]):
            lines = run(
                "classify", indexes[rule], *files, *["--paired"] * (len(files) - 1),
                "--format", form,
            ).splitlines()  # fmt: skip
            assert [line.split("\t")[form == "kraken"] for line in lines] == names
            assert {line.split("\t")[1 + (form == "kraken")] for line in lines} == {"0"}
    index = load_index(indexes[rule])
    none = index.call(*arrays([]), detail=True)
    assert (len(none), none.detail_offsets.tolist()) == (0, [0])


def test_impossible_settings_are_refused(tmp_path, folder):
    taxonomy = folder / "taxonomy"
    for settings in (
        {"k": 0}, {"k": 33}, {"k": 65}, {"k": -1}, {"k": 2.5}, {"k": "x"}, {"sketch": 0},
        {"window": 0}, {"window": 15}, {"stride": 0}, {"stride": 128}, {"cap": 0}, {"l": 5},
        {"mask": "upper"}, {"order": "size"}, {"kmer": 3},
    ):  # fmt: skip
        with pytest.raises(SpecError, match=next(iter(settings))):
            SketchIndex.build(folder / "0.fa", taxonomy=taxonomy, **settings)
    for settings in (
        {"k": 0}, {"k": 30}, {"k": 65}, {"l": 0}, {"l": 32}, {"spaces": 8}, {"spaces": -1},
        {"k": 35.5}, {"window": 127}, {"mask": "upper"},
    ):  # fmt: skip
        with pytest.raises(SpecError, match=next(iter(settings))):
            MinimizerIndex.build(folder / "0.fa", taxonomy=taxonomy, **settings)
    for k in (0, 65):
        error = run("build", folder / "0.fa", "-k", k, "--rule", "metacache", "-o",
                    tmp_path / "out", code=2)  # fmt: skip
        assert f"k={k}" in error
        assert "use 1 to 32" in error


@pytest.mark.parametrize(
    ("rule", "options"),
    [
        ("metacache", {"lowest": "rank"}), ("metacache", {"highest": ""}),
        ("metacache", {"lowest": "genus", "highest": "species"}), ("metacache", {"hitmin": -1}),
        ("metacache", {"hitdiff": 101}), ("metacache", {"hitdiff": float("nan")}),
        ("metacache", {"maxcand": 0}), ("metacache", {"insertsize": -1}),
        ("metacache", {"cov_percentile": -1}), ("metacache", {"confidence": 0.1}),
        ("kraken2", {"confidence": 1.1}), ("kraken2", {"confidence": float("nan")}),
        ("kraken2", {"confidence": "much"}), ("kraken2", {"minimum_hit_groups": -1}),
        ("kraken2", {"minimum_base_quality": 94}), ("kraken2", {"maxcand": 2}),
    ],
    ids=str,
)  # fmt: skip
def test_impossible_options_are_refused_before_reads_are_read(tmp_path, indexes, rule, options):
    index = load_index(indexes[rule])
    reads = written(tmp_path / "bad.fq", "junk")
    with pytest.raises((SpecError, TaxonomyError)):
        index.classify(reads, **options)
    with pytest.raises((SpecError, TaxonomyError)):
        index.call(*arrays(FIRSTS), **options)


def test_k_may_be_more_than_the_letters_of_some_records_but_not_of_all(tmp_path, folder):
    few = written(tmp_path / "few.fa", ">a taxid|8\nACGTACGTAC\n>b taxid|9\nACG\n")
    assert KmerCounts.count(few, 10).total == 1
    with pytest.raises(SequenceError, match="longest record has 10 letters; use a smaller k"):
        KmerCounts.count(few, 11)
    for kind in RULES.values():
        index = kind.build(few, taxonomy=folder / "taxonomy")
        assert len(index.targets.names) == 2
        assert not index.call(*arrays(["ACGTACGTAC" * 9])).taxids.any()


def test_one_k_and_another_do_not_mix(tmp_path):
    reads = written(tmp_path / "reads.fq", GOOD)
    counts = KmerCounts.count(reads, 21)
    with pytest.raises(SpecError, match="k is 21 here and 22"):
        counts.merge(KmerCounts.count(reads, 22))
    with pytest.raises(SequenceError, match="pass 21 letters"):
        counts.query(["A" * 22])


@pytest.mark.parametrize("k", [1, 2, 4, 6, 8])
def test_palindromes_of_small_k_are_those_that_are_there(tmp_path, k):
    """KMC 3.2.1 finds k-mers that are not in the text."""
    records = [("", "ACGT" * 20 + "N" + "AATT" * 3, ""), ("", "GGATCC" * 4, ""), ("", "AT" * 30, "")]
    text = "".join(f">{at}\n{letters}\n" for at, (_, letters, _) in enumerate(records))
    counts = KmerCounts.count(written(tmp_path / "palindromes.fa", text), k)
    expected = model.kmer_counts(records, k)
    assert counts.query(list(expected)).tolist() == list(expected.values())
    assert (len(counts), counts.total) == (len(expected), sum(expected.values()))
    every = ["".join("ACGT"[at // 4**place % 4] for place in range(k)) for at in range(4**k)]
    others = [each for each in every[:5000] if min(each, model.reverse_complement(each)) not in expected]
    assert not counts.query(others).any()


@by_rule
def test_a_taxid_that_the_taxonomy_lacks_is_told_and_loses_no_reads(tmp_path, folder, rule):
    """MetaCache says that all are ranked, and loses their reads."""
    taxonomy = Taxonomy.read(folder / "taxonomy")
    draw = random.Random(4)
    letters = ["".join(draw.choices("ACGT", k=400)) for _ in range(2)]
    file = written(
        tmp_path / "refs.fa", f">known taxid|8\n{letters[0]}\n>lost taxid|777\n{letters[1]}\n"
    )
    with pytest.raises(TaxonomyError, match=r"1 reference whose taxid is not .*lost of .*: 777"):
        RULES[rule].build(file, taxonomy=taxonomy)
    index = RULES[rule].build(file, taxonomy=taxonomy, allow_unplaced=1)
    assert any("777" in note for note in index.stats().get("notes", ["777"]))
    reads = [each[at : at + 100] for each in letters for at in (0, 90, 200)]
    calls = index.call(*arrays(reads)).taxids.tolist()
    assert calls == ([-1] * 3 + [-2] * 3 if rule == "metacache" else [8] * 3 + [0] * 3)
    if rule == "metacache":
        # Without a taxon there is none to call at a higher rank.
        assert index.call(*arrays(reads), lowest="species").taxids.tolist() == [8] * 3 + [0] * 3


def test_half_a_read_of_n_against_confidence(indexes):
    """Kraken 2 counts k-mers with other letters; its manual says that it does not."""
    index = load_index(indexes["kraken2"])
    made = model.MinimizerModel(WORLD.references, WORLD.taxonomy)
    reads = [
        each.letters[10:110].upper().replace("U", "T") + "N" * 100
        for each in WORLD.references
        if len(each.letters) > 110
    ]
    seen = set()
    for confidence in (0, 0.2, 0.3, 0.38, 0.5, 0.9):
        for ignored in (False, True):
            options = {"confidence": confidence, "ignore_ambiguous": ignored}
            calls = index.call(*arrays(reads), **options).taxids.tolist()
            assert calls == [made.call(each, **options).taxid for each in reads]
            seen.add(tuple(calls))
    assert len(seen) > 3


@pytest.mark.parametrize("form", ["fasta of one line", "fasta", "fastq"])
def test_a_record_longer_than_any_buffer(tmp_path, folder, form):
    """5 Mbp, and buffers of 1 MiB of text; some readers end at 4 MiB."""
    n = 5_000_000
    assert sequence_files.CHUNK_NBYTES < n
    letters = np.frombuffer(b"ACGT", np.uint8)[np.random.default_rng(2).integers(0, 4, n)]
    text = letters.tobytes()
    if form == "fastq":
        content = b"@long taxid|8\n" + text + b"\n+\n" + b"I" * n + b"\n"
    elif form == "fasta":
        lines = (text[at : at + 80] for at in range(0, n, 80))
        content = b">long taxid|8\n" + b"\n".join(lines) + b"\n"
    else:
        content = b">long taxid|8\n" + text
    file = written(tmp_path / "long", content)
    assert KmerCounts.count(file, 31).total == n - 30
    some = [text[at : at + 200].decode() for at in (0, 2**20 - 100, 2**22 - 100, n - 200)]
    for rule, kind in RULES.items():
        index = kind.build(file, taxonomy=folder / "taxonomy")
        assert index.targets.lengths.tolist() == [n]
        expected = -1 if rule == "metacache" else 8
        assert index.call(*arrays(some)).taxids.tolist() == [expected] * 4
        (batch,) = index.classify(file)
        assert batch.calls.taxids.tolist() == [expected]
        hits = batch.calls.hits.tolist()
        assert hits[0] > n // 112 * 16 if rule == "metacache" else hits == [n - 34]


@by_rule
def test_the_same_genome_twice(tmp_path, folder, rule):
    """Under one name it is told; under two, reads are of both."""
    taxonomy = folder / "taxonomy"
    one = WORLD.files[0]
    with pytest.raises(TaxonomyError, match="id is there already"):
        RULES[rule].build([folder / "0.fa", folder / "0.fa"], taxonomy=taxonomy)
    for taxid in (one[0].taxid, 16):
        twins = [*one, *(each._replace(name=f"twin.{each.name}", taxid=taxid) for each in one)]
        file = written(tmp_path / "twins.fa", fasta(twins))
        index = RULES[rule].build(file, taxonomy=taxonomy)
        reads = [each.letters[at : at + 120] for each in one for at in range(0, 600, 90)]
        calls = index.call(*arrays(reads)).taxids.tolist()
        if rule == "metacache":
            made = model.SketchModel(twins, Model(TAXA))
            assert calls == [call for call, _ in made.classify((each, "") for each in reads)]
            assert not any(call < 0 for call in calls)
        else:
            made = model.MinimizerModel(twins, Model(TAXA))
            assert calls == [made.call(each).taxid for each in reads]
        assert set(calls) - {0}


def test_a_full_disk_leaves_no_output(tmp_path, folder, indexes):
    """A real limit on the size of files, in a process of its own."""
    reads = written(tmp_path / "reads.fq", GOOD * 40)
    before = sorted(path.name for path in tmp_path.iterdir())
    commands = [
        ["count", str(reads), "-k", "21", "-o", "counts.dgkc"],
        *(
            command
            for rule, index in indexes.items()
            for command in (
                ["build", *map(str, sorted(folder.glob("*.fa"))), "--rule", rule, "--taxonomy",
                 str(folder / "taxonomy"), "-o", "db.dgki"],
                ["classify", str(index), str(reads), "-o", "calls"],
                ["classify", str(index), str(reads), "-o", "calls.gz", "--format", "tsv"],
                ["classify", str(index), str(reads), "-o", "calls.parquet", "--format", "parquet"],
                ["classify", str(index), str(reads), "-o", "/dev/null", "--report", "report",
                 "--report-zero-counts"],
            )
        ),
    ]  # fmt: skip
    program = (
        "import resource, signal, sys, click.testing\n"
        "from dgpuhash.cli import main\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))\n"
        f"for command in {commands!r}:\n"
        "    done = click.testing.CliRunner().invoke(main, ['kmer', *command])\n"
        "    print(done.exit_code, done.stderr.replace(chr(10), ' '))\n"
    )
    assert resource.RLIMIT_FSIZE is not None
    found = subprocess.run(
        # -B: under the limit, compiled modules would be cut as well.
        [sys.executable, "-B", "-c", program],
        capture_output=True, text=True, timeout=250, cwd=tmp_path, check=True,
    )  # fmt: skip
    for command, line in zip(commands, found.stdout.splitlines(), strict=True):
        code, _, said = line.partition(" ")
        assert code not in ("0", ""), (command, line, found.stderr)
        assert "File too large" in said or "large" in said.lower(), (command, line)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
