"""`dgpuhash kmer`: files in, files and text out."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from click.testing import CliRunner
from kmer import models as model

from dgpuhash.cli import main
from dgpuhash.cli.kmer.progress import LetterProgress, nbytes_of
from dgpuhash.kmer import KmerCounts

EDGE = Path(__file__).parent / "data" / "edge.fa"
RECORDS = model.records_of(EDGE.read_text())


def run(*arguments, code=0, text=None):
    result = CliRunner().invoke(main, ["kmer", *map(str, arguments)], input=text)
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


@pytest.mark.parametrize("k", [21, 40])
def test_files_are_counted_shown_and_merged(tmp_path, k):
    expected = model.kmer_counts(RECORDS, k)
    path = tmp_path / "edge.dgkc"
    said = run("count", EDGE, "-k", k, "-o", path)
    assert f"edge.dgkc: {len(expected):,} k-mers of {k} letters" in said
    assert "from 15 records of 2,051 letters" in said
    assert run("dump", "--sorted", path).encode() == model.dump(expected)
    assert sorted(run("dump", path).splitlines()) == model.dump(expected).decode().splitlines()
    lines = (f"{count}\t{n}\n" for count, n in model.histogram(expected).items())
    assert run("histogram", path) == "".join(lines)
    both = tmp_path / "both.dgkc"
    said = run("merge", path, path, path, "-o", both)
    assert f"both.dgkc: {len(expected):,} k-mers of {k} letters" in said
    some = list(expected)[:5]
    asked = [*some, "A" * (k - 1) + "C"]
    wanted = "".join(f"{kmer}\t{3 * expected.get(kmer, 0)}\n" for kmer in asked)
    assert run("query", both, *asked) == wanted
    assert run("query", both, "-", text="\n".join(asked) + "\n\n") == wanted
    stats = dict(line.split("\t") for line in run("stats", both).splitlines())
    assert (stats["k"], stats["canonical"]) == (str(k), "true")
    assert stats["total"] == str(3 * sum(expected.values()))
    assert float(stats["bytes_per_kmer"]) > 0


def test_options_reach_the_counts(tmp_path):
    settings = {"canonical": False, "min_count": 2, "max_count": 30, "min_quality": 5}
    reads = EDGE.with_suffix(".fq")
    expected = model.kmer_counts(model.records_of(reads.read_text()), 11, **settings)
    path = tmp_path / "reads.dgkc"
    run(
        "count", reads, "-k", 11, "-o", path, "--no-canonical", "--min-count", 2,
        "--max-count", 30, "--min-quality", 5, "--memory", "16MiB", "--device", "cpu",
    )  # fmt: skip
    assert run("dump", "--sorted", path).encode() == model.dump(expected)


def test_the_input_and_several_files_are_counted(tmp_path):
    path = tmp_path / "twice.dgkc"
    text = gzip.compress(EDGE.read_bytes())
    run("count", "-", EDGE, "-k", 31, "-o", path, text=text)
    expected = model.kmer_counts(RECORDS + RECORDS, 31)
    assert run("dump", "--sorted", path).encode() == model.dump(expected)


def test_errors_are_one_line_and_leave_no_output(tmp_path):
    path, short = tmp_path / "out.dgkc", tmp_path / "short.fa.gz"
    short.write_bytes(gzip.compress(EDGE.read_bytes())[:-200])
    for sources, settings, said in (
        ([short], [], "short.fa.gz is cut short"),
        ([EDGE, tmp_path / "none.fa"], [], "no such file"),
        ([EDGE], ["-k", 65], "k=65; use 1 to 64"),
        ([EDGE], ["-k", 64, "--memory", "much"], "--memory much: not a number of bytes"),
        ([EDGE], ["--memory", "1kB"], "use 16,777,216 bytes or more"),
        ([EDGE], ["--min-count", 0], "min_count=0"),
    ):
        error = run("count", *sources, "-o", path, *settings, code=2)
        assert said in error
        assert len(error.splitlines()) == 1
        assert list(tmp_path.iterdir()) == [short]
    error = run("count", EDGE, "-o", tmp_path / "none" / "out.dgkc", code=2)
    assert "out.dgkc cannot be written: No such file or directory; choose" in error
    KmerCounts.count(EDGE, 5).save(path)
    assert "--force" in run("count", EDGE, "-o", path, code=2)
    assert "k is 5" not in run("count", EDGE, "-k", 6, "-o", path, "--force")
    assert KmerCounts.load(path).k == 6
    KmerCounts.count(EDGE, 5).save(tmp_path / "five.dgkc")
    assert "k is 6 here and 5" in run(
        "merge", path, tmp_path / "five.dgkc", "-o", tmp_path / "all.dgkc", code=2
    )
    assert "'ACGTN' is not a k-mer" in run("query", tmp_path / "five.dgkc", "ACGTN", code=2)
    assert "was not saved by dgpuhash" in run("histogram", EDGE, code=2)


def test_progress_has_letters_their_rate_and_an_end():
    progress = LetterProgress(nbytes_of([str(EDGE), str(EDGE)]))
    task = progress.bar.tasks[0]
    assert task.total == 2 * EDGE.stat().st_size
    counts = KmerCounts.count(
        [EDGE, EDGE], 21, progress=progress.letters, consumed=progress.consumed
    )
    assert task.completed == task.total
    assert task.description.startswith(f"{counts.stats()['letters']:,} letters, ")
    assert task.description.endswith(" million a second")
    assert nbytes_of(["-", str(EDGE)]) is None
    told = progress.of(lambda: 5000)
    told(100)
    assert (task.completed, task.total) == (counts.stats()["letters"] + 100, 5000)
