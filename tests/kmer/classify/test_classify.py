"""Classification of files: order, batches, counts, reports, abundances."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from kmer.classify.fakes import FakeIndex
from kmer.taxonomy_model import Model

from dgpuhash.errors import ExistsError, SequenceError, SpecError, TaxonomyError
from dgpuhash.kmer import Taxonomy
from dgpuhash.kmer.classify import Classification
from dgpuhash.kmer.references import Targets

HERE = Path(__file__).parent.parent / "data"
TARGETS = Targets(
    ["NC_1.1", "NC_2.1"], ["a.fa"], np.zeros(2, np.int32), np.arange(2), np.array([900, 800]),
    np.array([511145, 272620]),
)  # fmt: skip


@pytest.fixture(scope="module")
def taxonomy():
    return Taxonomy.read(HERE / "taxonomy")


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Let small files be many batches."""
    monkeypatch.setattr("dgpuhash.kmer.sequences.files.CHUNK_NBYTES", 512)


@pytest.fixture(scope="module")
def reads(tmp_path_factory):
    """Reads, also empty ones, as single files and pairs of files."""
    rng = random.Random(3)
    folder = tmp_path_factory.mktemp("reads")
    made = []
    for number in range(400):
        first, second = ("".join(rng.choices("ACGTN", k=rng.choice([0, 3, 30]))) for _ in range(2))
        made.append((f"read{number}", first, second))
    for mate in (1, 2):
        (folder / f"r{mate}.fq").write_text(
            "".join(
                f"@{name}/{mate} of it\n{each[mate - 1]}\n+\n{'I' * len(each[mate - 1])}\n"
                for name, *each in made
            )
        )
    both = zip(
        (folder / "r1.fq").read_text().split("@")[1:],
        (folder / "r2.fq").read_text().split("@")[1:],
        strict=True,
    )
    (folder / "both.fq").write_text("".join(f"@{one}@{other}" for one, other in both))
    return folder, made


def classified(index, folder, paired, **options):
    files = {
        "single": (folder / "r1.fq",),
        "paired": (folder / "r1.fq", folder / "r2.fq"),
        "interleaved": (folder / "both.fq",),
    }[paired]
    return Classification(
        index, *files, interleaved=paired == "interleaved", batch_letters=300, **options
    )


def expected(index, made, paired):
    rows = []
    for name, first, second in made:
        sides = [first, second][: 1 + (paired != "single")]
        taxid, hits, _ = index.call_of(*(each.encode() for each in sides))
        rows.append(
            (name if paired != "single" else f"{name}/1", taxid, hits, sum(map(len, sides)))
        )
    return pd.DataFrame(rows, columns=["read", "taxid", "hits", "length"])


@pytest.mark.parametrize("paired", ["single", "paired", "interleaved"])
def test_reads_come_in_order_in_many_batches(taxonomy, reads, paired):
    folder, made = reads
    index = FakeIndex(taxonomy, TARGETS)
    found = classified(index, folder, paired)
    assert "not read yet" in repr(found)
    frame = found.to_pandas()
    assert len(index.batches) > 10
    assert sum(index.batches) == len(made)
    wanted = expected(index, made, paired)
    for name in wanted:
        assert frame[name].tolist() == wanted[name].tolist()
    ranks = {562: "species", 573: "species", 1280: "species", 2: "domain", -1: "sequence"}
    texts = frame["rank"].astype(object).where(frame["rank"].notna(), "")
    for taxid, rank in zip(frame["taxid"], texts, strict=True):
        assert rank == ("" if not taxid else "sequence" if taxid < 0 else rank)
        if taxid > 2:
            assert rank == ranks[taxid]
    summary = found.summary()
    what = "reads" if paired == "single" else "pairs"
    assert summary[what] == len(made)
    assert summary["classified"] == int((wanted["taxid"] != 0).sum())
    assert summary["letters"] == int(wanted["length"].sum())
    share = 100 * summary["classified"] / len(made)
    assert f"{len(made)} {what}" in repr(found)
    assert f"{share:.1f} % with a call" in repr(found)


def test_reports_are_those_of_all_calls(taxonomy, reads, tmp_path):
    folder, made = reads
    index = FakeIndex(taxonomy, TARGETS)
    found = classified(index, folder, "paired")
    found.report(tmp_path / "report")
    passes = len(index.batches)
    calls = expected(index, made, "paired")["taxid"].replace({-1: 511145, -2: 272620}).tolist()
    model = Model.read(HERE / "taxonomy")
    assert (tmp_path / "report").read_text().splitlines() == model.kreport(calls)
    for zero_counts in (False, True):
        lines = found.report_lines(style="mpa", zero_counts=zero_counts)
        assert list(lines) == model.mpa_report(calls, zero_counts=zero_counts)
    found.report(tmp_path / "all", zero_counts=True)
    assert (tmp_path / "all").read_text().splitlines() == model.kreport(calls, zero_counts=True)
    # Reads are not classified again for another report.
    assert len(index.batches) == passes
    with pytest.raises(ExistsError, match="exists already"):
        found.report(tmp_path / "all")
    with pytest.raises(SpecError, match="style='krona'; use one of kraken, mpa"):
        found.report_lines(style="krona")


def test_counts_are_kept_after_calls_are_written(taxonomy, reads, tmp_path):
    folder, made = reads
    index = FakeIndex(taxonomy, TARGETS)
    letters, nbytes = [], []
    found = classified(index, folder, "single", progress=letters.append, consumed=nbytes.append)
    found.write(tmp_path / "calls.tsv", form="tsv")
    passes = len(index.batches)
    calls, counts = found.counts
    wanted = Counter(expected(index, made, "single")["taxid"].tolist())
    assert dict(zip(calls.tolist(), counts.tolist(), strict=True)) == wanted
    assert calls.tolist() == sorted(wanted)
    assert len(index.batches) == passes
    assert sum(letters) == found.summary()["letters"]
    assert sum(nbytes) == (folder / "r1.fq").stat().st_size


def test_a_pass_that_was_left_is_not_counted(taxonomy, reads):
    folder, made = reads
    index = FakeIndex(taxonomy, TARGETS)
    found = classified(index, folder, "single")
    first = next(iter(found))
    assert 0 < len(first) < len(made)
    assert found.counts[1].sum() == len(made)


def test_abundance_of_a_rank_has_all_reads(taxonomy, reads):
    folder, _ = reads
    found = classified(FakeIndex(taxonomy, TARGETS), folder, "paired")
    frame = found.abundance("species")
    assert frame["reads"].sum() == pytest.approx(len(reads[1]))
    assert frame["share"].sum() == pytest.approx(1)
    assert set(frame["rank"][:-1]) == {"species"}
    assert frame["name"].iloc[-1] == "unclassified"
    with pytest.raises(TaxonomyError, match="'strain' is not a rank of lineages"):
        found.abundance("strain")


def test_qualities_are_passed_where_letters_are_masked(taxonomy, reads):
    folder, _ = reads
    index = FakeIndex(taxonomy, TARGETS)
    list(classified(index, folder, "paired"))
    assert all(each == [None, None] for each in index.qualities)
    index = FakeIndex(taxonomy, TARGETS)
    batches = list(classified(index, folder, "paired", minimum_base_quality=20))
    for called, qualities in zip(batches, index.qualities[1:], strict=True):
        assert qualities[0].tobytes() == b"I" * len(called.reads.letters)
        assert qualities[1].tobytes() == b"I" * len(called.mates.letters)


def test_an_index_may_look_at_all_reads_before(taxonomy, reads):
    class Looking(FakeIndex):
        looks = 0

        def prepare(self, batches, *, minimum):
            self.looks += 1
            self.seen = sum(len(each[1]) - 1 for each in batches())
            return {"confidence": minimum}

        def call(self, *arrays, minimum=None, confidence=None, **options):
            assert minimum is None or not len(arrays[0])
            assert minimum or confidence == 0.5
            return super().call(*arrays, **options)

    folder, made = reads
    index = Looking(taxonomy, TARGETS)
    found = classified(index, folder, "paired", minimum=0.5)
    assert found.counts[1].sum() == index.seen == len(made)
    found.to_pandas()
    assert index.looks == 1


def test_impossible_options_are_refused_before_files_are_read(taxonomy, reads, tmp_path):
    folder, _ = reads
    index = FakeIndex(taxonomy, TARGETS)
    with pytest.raises(SpecError, match="confidence=2; use 0 to 1"):
        classified(index, folder, "single", confidence=2)
    with pytest.raises(FileNotFoundError, match="no such file"):
        Classification(index, tmp_path / "none.fq")
    with pytest.raises(SpecError, match="in two files, or interleaved in one"):
        Classification(index, folder / "r1.fq", folder / "r2.fq", interleaved=True)
    with pytest.raises(SequenceError, match="standard input can be read once"):
        _ = Classification(index, "-").counts


def test_without_a_taxonomy_there_are_sequences_alone(reads, tmp_path):
    folder, _ = reads
    index = FakeIndex(None, TARGETS, "metacache", [-1, 0, -2])
    found = classified(index, folder, "paired")
    found.write(tmp_path / "calls.tsv")
    assert set(found.to_pandas()["rank"].dropna()) == {"sequence"}
    with pytest.raises(TaxonomyError, match=r"the index has no taxonomy, .*; build it with one"):
        found.report(tmp_path / "report")
    assert not (tmp_path / "report").exists()
