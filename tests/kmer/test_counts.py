"""Counts of k-mers beside those of Jellyfish and KMC, and beside plain Python."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kmer import models as model

import dgpuhash
from dgpuhash.backend import unnamed_file
from dgpuhash.errors import ExistsError, FormatError, OutOfMemoryError, SequenceError, SpecError
from dgpuhash.kmer import KmerCounts
from dgpuhash.kmer.counts import counting, kmer_counts

HERE = Path(__file__).parent / "data"
# Genomes, reads and what the established tools make of them.
DATA = Path(
    os.environ.get("DGPUHASH_KMER_DATA", Path(__file__).resolve().parents[3] / "shared" / "kmer")
)
EXPECTED = list(csv.DictReader((HERE / "expected_kmers.tsv").open(), delimiter="\t"))
SMALL = {"edge": HERE / "edge.fa", "phage_lambda": HERE / "phage_lambda.fna.gz"}


def name_of(row):
    return f"{row['dataset']}-{row['k']}-{row['canonical']}"


def dumped(counts, *, is_sorted=True):
    text = io.BytesIO()
    counts.dump(text, sort=is_sorted)
    return text.getvalue()


def digest(text):
    return hashlib.sha256(text).hexdigest()


def check(counts, row):
    stats = counts.stats()
    assert stats["distinct"] == int(row["distinct"]) == len(counts)
    assert stats["total"] == int(row["total"]) == counts.total
    assert stats["singletons"] == int(row["singletons"])
    assert stats["max_count"] == int(row["max_count"])
    found, numbers = (each.tolist() for each in counts.histogram())
    lines = "".join(f"{count}\t{n}\n" for count, n in zip(found, numbers, strict=True))
    assert digest(lines.encode()) == row["hist_sha256"]
    assert digest(dumped(counts)) == row["dump_sha256"]
    if row["S2_sum_code_x_count"] != "-":
        codes, each = map(counts._backend.to_host, counts.items())
        assert f"{int((codes * each).sum()):016x}" == row["S2_sum_code_x_count"]
        hashes = counts._backend.to_host(mixed(codes))
        assert f"{int((hashes * each).sum()):016x}" == row["S3_sum_fmix64_x_count"]


def mixed(words):
    """MurmurHash3's finalizer."""
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        words = (words ^ words >> np.uint64(33)) * np.uint64(factor)
    return words ^ words >> np.uint64(33)


@pytest.mark.parametrize("row", [row for row in EXPECTED if row["dataset"] in SMALL], ids=name_of)
def test_small_inputs_count_as_the_established_tools_count(row, device):
    counts = KmerCounts.count(
        SMALL[row["dataset"]], int(row["k"]), canonical=row["canonical"] == "1", device=device.name
    )
    check(counts, row)


@pytest.mark.genomes
@pytest.mark.skipif(not DATA.is_dir(), reason="DGPUHASH_KMER_DATA names no folder of genomes")
def test_a_genome_counts_as_the_established_tools_count(device):
    (row,) = (row for row in EXPECTED if name_of(row) == "ecoli_MG1655-31-1")
    genome = DATA / "genomes" / "ecoli_MG1655.fna.gz"
    check(KmerCounts.count(genome, int(row["k"]), device=device.name), row)


@pytest.mark.genomes
@pytest.mark.slow
@pytest.mark.parametrize(
    "row", [row for row in EXPECTED if row["dataset"] not in SMALL], ids=name_of
)
def test_genomes_count_as_the_established_tools_count(row):
    genome = DATA / "genomes" / f"{row['dataset']}.fna.gz"
    check(KmerCounts.count(genome, int(row["k"]), canonical=row["canonical"] == "1"), row)


@pytest.mark.parametrize("other", ["edge_crlf.fa", "edge_nonl.fa", "edge.fq"])
def test_other_forms_of_the_same_text_count_alike(other):
    expected = dumped(KmerCounts.count(HERE / "edge.fa", 21))
    assert dumped(KmerCounts.count(HERE / other, 21)) == expected


LETTERS = st.text("ACGTacgtNUR-", max_size=90)


@given(
    records=st.lists(st.tuples(LETTERS, st.randoms(use_true_random=False)), min_size=1, max_size=8),
    k=st.sampled_from([1, 2, 3, 4, 7, 16, 31, 32, 33, 40, 64]),
    canonical=st.booleans(),
    bounds=st.sampled_from([(1, None), (2, None), (1, 1), (2, 5)]),
    min_quality=st.sampled_from([0, 3, 20]),
)
def test_options_do_what_the_model_does(
    tmp_path_factory, records, k, canonical, bounds, min_quality
):
    text = "".join(
        f"@{number}\n{letters}\n+\n{''.join(chr(draw.randint(33, 73)) for _ in letters)}\n"
        for number, (letters, draw) in enumerate([*records, ("ACGT" * 17, random.Random(1))])
    )
    file = tmp_path_factory.mktemp("reads") / "reads.fq"
    file.write_text(text)
    settings = {
        "canonical": canonical,
        "min_count": bounds[0],
        "max_count": bounds[1],
        "min_quality": min_quality,
    }
    expected = model.kmer_counts(model.records_of(text), k, **settings)
    counts = KmerCounts.count(file, k, **settings)
    assert dumped(counts) == model.dump(expected)
    assert sorted(dumped(counts, is_sorted=False).splitlines(True)) == sorted(
        model.dump(expected).splitlines(True)
    )
    found, numbers = counts.histogram()
    assert dict(zip(found.tolist(), numbers.tolist(), strict=True)) == model.histogram(expected)
    asked = [*expected, "A" * k, "t" * k]
    own = [model.reverse_complement(kmer.upper()) for kmer in asked]
    wanted = [
        expected.get(min(kmer.upper(), other) if canonical else kmer.upper(), 0)
        for kmer, other in zip(asked, own, strict=True)
    ]
    assert counts.query(asked).tolist() == wanted


@pytest.mark.parametrize("k", [5, 31, 50])
def test_records_cut_into_pieces_lose_and_repeat_no_kmer(tmp_path, monkeypatch, k):
    draw = random.Random(k)
    letters = ["".join(draw.choices("ACGTN", [9, 9, 9, 9, 1], k=n)) for n in (900, 3, 5000, 0, 77)]
    text = "".join(f">{n}\n{each[:70]}\n{each[70:]}\n" for n, each in enumerate(letters))
    (tmp_path / "long.fa").write_text(text)
    monkeypatch.setattr(kmer_counts, "BATCH_LETTERS", 100)
    monkeypatch.setattr("dgpuhash.kmer.sequences.files.CHUNK_NBYTES", 64)
    told = []
    counts = KmerCounts.count(tmp_path / "long.fa", k, progress=told.append)
    assert len(told) > 40
    assert dumped(counts) == model.dump(model.kmer_counts(model.records_of(text), k))
    stats = counts.stats()
    assert (stats["records"], stats["letters"]) == (5, sum(map(len, letters))) == (5, sum(told))


def drawn(n, seed):
    return np.frombuffer(b"ACGT", np.uint8)[np.random.default_rng(seed).integers(0, 4, n)]


@pytest.mark.parametrize("k", [31, 47])
def test_less_memory_gives_the_same_counts(tmp_path, monkeypatch, k):
    monkeypatch.setattr(kmer_counts, "_LEAST_MEMORY", 2**20)
    letters = drawn(600_000, 3)
    (tmp_path / "one.fa").write_bytes(b">one line\n" + letters.tobytes())
    counts = KmerCounts.count(tmp_path / "one.fa", k, memory=2**20)
    expected = KmerCounts.from_letters(letters, [0, len(letters)], k)
    for own, its in zip(counts.items(sort=True), expected.items(sort=True), strict=True):
        assert np.array_equal(own, its)
    assert counts.total == len(letters) - k + 1
    stats = counts.stats()
    assert stats["spilled"] > 2**18
    assert stats["groups"] > 200
    assert not counts._groups[len(counts._groups) - 1].low.flags.owndata
    counts.save(tmp_path / "mapped.dgkc")
    assert dumped(KmerCounts.load(tmp_path / "mapped.dgkc")) == dumped(expected)


def test_memory_does_not_grow_with_the_input(tmp_path):
    peaks = []
    for n in (2_000_000, 12_000_000):
        path = tmp_path / f"{n}.fa"
        path.write_bytes(b">one\n" + drawn(n, n).tobytes())
        program = (
            "import sys; from dgpuhash.kmer import KmerCounts\n"
            "counts = KmerCounts.count(sys.argv[1], memory=2**24)\n"
            "assert counts.total == int(sys.argv[2]) - 30\n"
            "counts.save(sys.argv[1] + '.dgkc')\n"
            "status = dict(line.split(':') for line in open('/proc/self/status'))\n"
            "print(int(status['VmHWM'].split()[0]) // 1024)"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, path, str(n)],
            capture_output=True, text=True, timeout=250, check=True,
        )  # fmt: skip
        peaks.append(int(done.stdout))
    # VmHWM is of the program alone: ru_maxrss starts with what the process had that started it.
    # The larger result alone has 100 MiB, and its super-k-mers 13.
    assert peaks[1] < peaks[0] + 24


def test_a_full_disk_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(kmer_counts, "_LEAST_MEMORY", 2**16)
    with Path("/dev/full").open("wb", buffering=0) as full:
        monkeypatch.setattr(unnamed_file.tempfile, "TemporaryFile", lambda **_: full)
        monkeypatch.setattr(full, "seek", lambda at: at, raising=False)
        (tmp_path / "one.fa").write_bytes(b">one\n" + drawn(100_000, 1).tobytes())
        with pytest.raises(OutOfMemoryError, match="TMPDIR"):
            KmerCounts.count(tmp_path / "one.fa", memory=2**16)


@pytest.mark.parametrize("k", [21, 40])
def test_merged_counts_are_those_of_both(monkeypatch, k):
    one, other = drawn(20_000, 1), np.concatenate([drawn(3_000, 2), drawn(20_000, 1)[:9_000]])
    monkeypatch.setitem(counting._GROUP_KMERS, "cpu", 1_000)
    first = KmerCounts.from_letters(one, [0, len(one)], k)
    monkeypatch.setitem(counting._GROUP_KMERS, "cpu", 4_000)
    second = KmerCounts.from_letters(other, [0, 3_000, len(other)], k)
    assert first.stats()["groups"] > second.stats()["groups"] > 1
    merged = first.merge(second)
    both = KmerCounts.from_letters(
        np.concatenate([one, other]), [0, len(one), len(one) + 3_000, len(one) + len(other)], k
    )
    assert dumped(merged) == dumped(both)
    assert merged.stats()["kmers"] == both.stats()["kmers"]
    kmers = [line.split(b"\t")[0] for line in dumped(merged).splitlines()[:500]]
    assert np.array_equal(merged.query(kmers), both.query(kmers))
    with pytest.raises(SpecError, match="k is"):
        first.merge(KmerCounts.from_letters(one, [0, len(one)], k + 1))
    with pytest.raises(SpecError, match="canonical is"):
        first.merge(KmerCounts.from_letters(one, [0, len(one)], k, canonical=False))


@pytest.mark.parametrize("k", [13, 60])
def test_saved_counts_are_loaded_whole_or_not_at_all(tmp_path, monkeypatch, k):
    monkeypatch.setitem(counting._GROUP_KMERS, "cpu", 500)
    letters = np.concatenate([drawn(2_000, 1), np.full(400, ord("A"), np.uint8)])
    counts = KmerCounts.from_letters(letters, [0, len(letters)], k, canonical=False)
    path = tmp_path / "saved.dgkc"
    counts.save(path)
    loaded = KmerCounts.load(path)
    assert dumped(loaded) == dumped(counts)
    assert loaded.stats() == counts.stats()
    assert (loaded.k, loaded.canonical) == (k, False)
    with pytest.raises(ExistsError):
        counts.save(path)
    counts.save(path, overwrite=True)
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    with pytest.raises(FormatError, match="damaged"):
        KmerCounts.load(path)
    dgpuhash.CountMap.from_keys([1, 2]).save(tmp_path / "table.dgph")
    with pytest.raises(FormatError, match="no k-mer counts"):
        KmerCounts.load(tmp_path / "table.dgph")


def test_arrays_of_a_device_are_counted_there(device):
    letters = drawn(3_000, 8)
    expected = KmerCounts.from_letters(letters, [0, 1_000, 3_000], 11)
    counts = KmerCounts.from_letters(
        device.array(letters), device.array([0, 1_000, 3_000], np.int64), 11
    )
    assert counts._backend.name == device.name
    assert type(counts.items()[0]) is type(device.array(letters))
    assert dumped(counts) == dumped(expected)


@pytest.mark.parametrize("size", [1, 16, 50, 10_000])
def test_slices_of_arrays_lose_and_repeat_no_kmer(monkeypatch, device, size):
    monkeypatch.setitem(kmer_counts._SLICE_LETTERS, device.name, size)
    sizes = [0, 0, 30, 5, 0, 200, 11, 12, 0]
    letters, offsets = drawn(sum(sizes), 4), np.append(0, np.cumsum(sizes))
    text = letters.tobytes().decode()
    records = [("", text[at : at + n], "") for at, n in zip(offsets[:-1], sizes, strict=True)]
    counts = KmerCounts.from_letters(device.array(letters), device.array(offsets), 12)
    assert dumped(counts) == model.dump(model.kmer_counts(records, 12))
    assert counts.stats()["records"] == len(sizes)


@pytest.mark.parametrize("k", [0, -1, 65])
def test_impossible_k_is_refused(k):
    with pytest.raises(SpecError, match=f"k={k}; use 1 to 64"):
        KmerCounts.count(HERE / "edge.fa", k)


def test_other_impossible_settings_are_refused():
    edge, letters = HERE / "edge.fa", drawn(10, 1)
    with pytest.raises(SpecError, match="min_count"):
        KmerCounts.count(edge, min_count=3, max_count=2)
    with pytest.raises(SpecError, match="memory"):
        KmerCounts.count(edge, memory=1000)
    with pytest.raises(SequenceError, match="longest record has 10 letters; use a smaller k"):
        KmerCounts.from_letters(letters, [0, 10], 11)
    for offsets in ([], [0, 9], [1, 10], [0, 7, 5, 10]):
        with pytest.raises(SequenceError, match="do not divide 10 letters"):
            KmerCounts.from_letters(letters, np.array(offsets, np.int64), 3)
    counts = KmerCounts.from_letters(letters, [0, 10], 3)
    for wrong in ("AC", "ACGT", "ANA", "", "\u00e4C"):
        with pytest.raises(SequenceError, match="pass 3 letters"):
            counts.query(["ACG", wrong])
    assert counts.query([]).tolist() == []
    assert "k-mers of 3 letters" in repr(counts)


def test_letters_without_a_kmer_give_empty_counts():
    counts = KmerCounts.from_letters(np.frombuffer(b"NNNNACNNN", np.uint8), [0, 9], 3)
    assert (len(counts), counts.total, dumped(counts)) == (0, 0, b"")
    assert [each.tolist() for each in counts.histogram()] == [[], []]
    assert counts.query(["ACG"]).tolist() == [0]
    assert counts.merge(counts).stats()["max_count"] == 0


def test_high_counts_have_a_place_in_the_histogram():
    letters = np.concatenate([np.full(70_003, ord("A"), np.uint8), drawn(50, 1)])
    counts = KmerCounts.from_letters(letters, [0, 70_003, len(letters)], 4)
    found, numbers = (each.tolist() for each in counts.histogram())
    assert found[-1] == counts.stats()["max_count"] >= 70_000
    assert sum(numbers) == len(counts)
    assert sum(count * n for count, n in zip(found, numbers, strict=True)) == counts.total
    merged = counts.merge(counts.merge(counts))
    assert merged.histogram()[0].tolist() == [3 * count for count in found]


def test_the_same_genome_twice_counts_twice(tmp_path):
    text = gzip.decompress(SMALL["phage_lambda"].read_bytes())
    (tmp_path / "twice.fa").write_bytes(text + text)
    once, twice = KmerCounts.count(SMALL["phage_lambda"]), KmerCounts.count(tmp_path / "twice.fa")
    assert len(once) == len(twice)
    assert twice.total == 2 * once.total
