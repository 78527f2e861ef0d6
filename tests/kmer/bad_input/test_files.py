"""Files that are damaged, are no sequences or no pairs, for all that reads them."""

from __future__ import annotations

import gzip
import random
import resource
import subprocess
import sys

import pytest
from kmer.bad_input.inputs import FIRSTS, NAMES, RULES, SECONDS, WORLD, by_rule, run, written
from kmer.workers.texts import bgzf
from kmer.worlds import arrays, fasta, fastq, rows

from dgpuhash.errors import SequenceError, TaxonomyError
from dgpuhash.kmer import (
    load_index,
    read_sequences,
)
from dgpuhash.kmer.sequences import files as sequence_files

GOOD = fastq(NAMES, FIRSTS)
PACKED = gzip.compress(GOOD.encode())
DAMAGED = bytes(each ^ (at in range(900, 910)) * 0x5A for at, each in enumerate(PACKED))
# Blocks of whole records, without the empty one that ends them.
BLOCKS = bgzf(fasta(WORLD.files[0]).encode(), 200)[: -len(bgzf(b"", 1))]
BAD = {
    "cut short": (PACKED[: len(PACKED) // 2], "cut short"),
    "BGZF without its last block": (BLOCKS, "cut short: the empty block that ends BGZF"),
    "BGZF padded by zeros": (BLOCKS + bytes(40), "cut short: the empty block that ends BGZF"),
    "BGZF that is cut behind another": (bgzf(b">a\nACGT\n", 3) + BLOCKS, "cut short: the empty"),
    "without an end": (PACKED[:-4], "cut short"),
    "damaged": (DAMAGED, "(damaged|cut short|bytes of no text|record)"),
    "junk behind it": (PACKED + b"junk", "(damaged|cut short)"),
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
    odd = written(tmp_path / "odd.fq", fastq(["a", "a", "b"], FIRSTS[9:12]))
    with pytest.raises(SequenceError, match="odd number of records: record 3, 'b'"):
        index.classify(odd, interleaved=True).to_pandas()
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
    "blank lines": (
        "reads.fq",
        lambda text: "\n\n" + text.replace("\n@read3", "\n\n@read3") + "\n",
    ),
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


def test_a_full_disk_leaves_no_output(tmp_path, folder, indexes):
    """A real limit on the size of files, in a process of its own."""
    reads = written(tmp_path / "reads.fq", GOOD * 40)
    before = sorted(path.name for path in tmp_path.iterdir())
    refs = [*map(str, sorted(folder.glob("*.fa"))), "--taxonomy", str(folder / "taxonomy")]
    db = str(indexes["metacache"])
    commands = [
        ["count", str(reads), "-k", "21", "-o", "counts.dgkc"],
        *(["build", *refs, "--rule", rule, "-o", "db.dgki"] for rule in RULES),
        ["classify", str(indexes["kraken2"]), str(reads), "-o", "calls"],
        ["classify", db, str(reads), "-o", "calls.gz"],
        ["classify", db, str(reads), "-o", "calls.parquet", "--format", "parquet"],
        ["classify", db, str(reads), "-o", "/dev/null", "--report", "report",
         "--report-zero-counts"],
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
        assert code == "2", (command, line, found.stderr)
        assert "too large" in said, (command, line)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
