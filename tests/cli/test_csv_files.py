"""CSV files in blocks: their dtypes, and the location of faults."""

from __future__ import annotations

import bz2
import csv
import gzip
import lzma
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from kmer.workers.texts import bgzf

from dgpuhash.cli.files import arrow_readers, csv_files, csv_rows
from dgpuhash.cli.files import read as files
from dgpuhash.errors import FormatError

# GPU machines may lack it.
zstandard = pytest.importorskip("zstandard")


def rows_of(tmp_path, first, last, count=1000):
    """Write a CSV file of many rows like `first`, and one like `last`."""
    path = tmp_path / "a.csv"
    path.write_text("k,my col\n" + f"{first}\n" * count + f"{last}\n")
    return str(path)


@pytest.fixture
def narrow(monkeypatch):
    """Set samples and blocks to few bytes."""
    monkeypatch.setattr(csv_files, "SAMPLE_NBYTES", 100)
    monkeypatch.setattr(csv_files, "BLOCK_NBYTES", 1000)


def test_types_are_those_of_the_sample_and_not_of_its_first_rows(tmp_path):
    found = files.read(rows_of(tmp_path, "1,1", "x,1.5"))
    assert found.dtypes.tolist() == ["str", "float64"]
    assert found.compute()["k"].iloc[-1] == "x"


def test_blocks_are_together_the_file(tmp_path, narrow):
    rows = pd.DataFrame({"k": range(5000), "v": ["é" * (number % 7) for number in range(5000)]})
    rows.to_csv(tmp_path / "a.csv", index=False)
    rows.to_csv(tmp_path / "b.csv", index=False, columns=["v", "k"])
    frame = files.read(f"{tmp_path}/?.csv")
    assert frame.npartitions > 20
    expected = pd.concat([rows, rows], ignore_index=True).replace("", float("nan"))
    pd.testing.assert_frame_equal(frame.compute().reset_index(drop=True), expected)


def test_quotes_may_hold_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_files, "SAMPLE_NBYTES", 9)
    (tmp_path / "a.csv").write_text('k,v\n1,"a\nb\nc"\n2,d\n')
    assert files.read(f"{tmp_path}/a.csv").compute()["v"].tolist() == ["a\nb\nc", "d"]


@pytest.mark.parametrize(
    "text",
    [
        *("a\nb\n\nc", '"', '""\n"', ",\n", '\n",\n"', '5" pipe', "x" * 70 + "\n" + "y" * 70),
        *("\r\n", "\n" * 300, '"\n' * 150, '"' * 301, "é\n"),
    ],
)
@pytest.mark.parametrize("block", [37, 1000])
def test_quotes_may_hold_lines_wherever_blocks_end(tmp_path, monkeypatch, text, block):
    monkeypatch.setattr(csv_files, "SAMPLE_NBYTES", 100)
    monkeypatch.setattr(csv_files, "BLOCK_NBYTES", block)
    monkeypatch.setattr(csv_files, "_TAIL_NBYTES", 8)
    monkeypatch.setattr(csv_rows, "_NEAR_NBYTES", 4)
    rows = pd.DataFrame({"k": range(8), "v": [text, "plain", f"x{text}y", text] * 2})
    rows["w"] = rows["v"].where(rows["k"] % 3 > 0, "last")
    for number, options in enumerate([{}, {"quoting": csv.QUOTE_ALL}, {"encoding": "utf-8-sig"}]):
        rows.to_csv(tmp_path / f"{number}.csv", index=False, **options)
    frame = files.read(f"{tmp_path}/?.csv")
    assert frame.npartitions >= 3
    expected = pd.concat([rows] * 3, ignore_index=True)
    pd.testing.assert_frame_equal(frame.compute().reset_index(drop=True), expected)


@pytest.mark.parametrize("seed", range(8))
def test_quotes_anywhere_are_read_as_pandas_reads_them(tmp_path, monkeypatch, seed):
    """Also those that begin no field, or end within one."""
    monkeypatch.setattr(csv_files, "_TAIL_NBYTES", 3)
    monkeypatch.setattr(csv_rows, "_NEAR_NBYTES", 2)
    monkeypatch.setattr(csv_files, "BLOCK_NBYTES", 7 + 5 * seed)
    rng = np.random.default_rng(seed)
    path = tmp_path / "a.tsv"
    for _ in range(15):
        text = "".join(rng.choice(list('""""aa \n\n,\r'), 60))
        path.write_bytes(f"k\n{text}\nz\n".encode())
        try:
            expected = pd.read_csv(path, sep="\t", dtype="str")
        except pd.errors.ParserError:
            with pytest.raises(FormatError, match="EOF inside string"):
                files.read(str(path), {"k": "str"}).compute()
            continue
        found = files.read(str(path), {"k": "str"}).compute()
        pd.testing.assert_frame_equal(found.reset_index(drop=True), expected)


def test_quotes_that_are_not_closed_do_not_fill_the_memory(tmp_path, narrow, monkeypatch):
    monkeypatch.setattr(csv_files, "LONGEST_ROW_NBYTES", 5000)
    monkeypatch.setattr(csv_files, "_TAIL_NBYTES", 100)
    (tmp_path / "a.csv").write_text("k,v\n" + "1,a\n" * 400 + '2,"b\n' + "3,c\n" * 10_000)
    said = (
        "from byte 1,000 on, cannot be read as csv: a row goes on for more than 5,000 bytes; close"
    )
    with pytest.raises(FormatError, match=said):
        files.read(f"{tmp_path}/a.csv").compute()


def test_each_byte_is_read_once(tmp_path, narrow, monkeypatch):
    """But for the sample, and ends of blocks."""
    monkeypatch.setattr(csv_files, "_TAIL_NBYTES", 100)
    rows = pd.DataFrame({"k": range(5000), "v": ["a\nb"] * 5000})
    rows.to_csv(tmp_path / "a.csv", index=False)
    frame, read = files.read(f"{tmp_path}/a.csv"), []
    whole = csv_files.open_stream

    @contextmanager
    def counted(*args, **options):
        with whole(*args, **options) as stream:
            yield SimpleNamespace(
                seek=stream.seek, read=lambda size: read.append(data := stream.read(size)) or data
            )

    monkeypatch.setattr(csv_files, "open_stream", counted)
    pd.testing.assert_frame_equal(frame.compute().reset_index(drop=True), rows)
    assert sum(map(len, read)) < 1.15 * (tmp_path / "a.csv").stat().st_size


def test_text_that_looks_like_numbers_stays_text(tmp_path, narrow):
    path = tmp_path / "a.csv"
    path.write_text("zip\n" + "X1\n" * 50 + "01234\n" * 1000)
    assert files.read(str(path)).compute()["zip"].unique().tolist() == ["X1", "01234"]


def test_the_first_file_may_have_no_rows(tmp_path):
    (tmp_path / "0.csv").write_text("k\n")
    (tmp_path / "1.csv").write_text("k\n7\n")
    found = files.read(f"{tmp_path}/?.csv")
    assert found["k"].dtype == "int64"
    assert found.compute()["k"].tolist() == [7]


@pytest.mark.parametrize(
    ("first", "last", "dtype"),
    [
        *(("1,1", "2,x", "str"), ("1,1", "2,", "Int64"), ("1,1", "2,1.5", "float64")),
        *(("1,1", f"2,{2**64 - 1}", "UInt64"), ("1,True", "2,", "boolean")),
    ],
)
def test_types_that_change_are_told_for_a_shell(tmp_path, narrow, first, last, dtype):
    path = rows_of(tmp_path, first, last)
    with pytest.raises(FormatError, match=f"do not fit .* --dtype 'my col={dtype}'$"):
        files.read(path).compute()
    assert len(files.read(path, {"my col": dtype}).compute()) == 1001


@pytest.mark.parametrize("first", ["", "5", "NA", "1.0"])
def test_integers_beside_nulls_are_not_rounded(tmp_path, narrow, first):
    path = tmp_path / "a.csv"
    path.write_text("k,v\n" + f"1,{first}\n" * 1000 + f"2,{2**53 + 1}\n2,\n")
    with pytest.raises(FormatError, match=r"do not fit .* --dtype v=Int64$"):
        files.read(str(path)).compute()
    assert files.read(str(path), {"v": "Int64"}).compute()["v"].iloc[-2] == 2**53 + 1


def test_large_floats_beside_nulls_are_floats(tmp_path):
    (tmp_path / "a.csv").write_text(f"v\n1e300\nNA\n{2**60}\n")
    assert files.read(f"{tmp_path}/a.csv").compute()["v"].dtype == "float64"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("k,v\n" + "1,2\n" * 1000 + "1,2,3\n", "Expected 2 fields.* no row may have more fields"),
        ("k,v\n" + "5,1,2\n" * 1000, "more fields than the header"),
        (("k,v\n" + "a,1\n" * 1000 + "é,3\n").encode("latin1"), "codec.* write the file in UTF-8"),
        ("", "No columns"),
    ],
)
@pytest.mark.parametrize("sample", [100, 16_000_000])
def test_faults_name_the_file(tmp_path, monkeypatch, content, said, sample):
    monkeypatch.setattr(csv_files, "SAMPLE_NBYTES", sample)
    path = tmp_path / "a.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(FormatError, match=f"^{path} cannot be read as csv: .*{said}"):
        files.read(str(path)).compute()


def test_a_fault_of_a_later_block_says_where(tmp_path, narrow):
    path = rows_of(tmp_path, "1,1", "1,2,3")
    with pytest.raises(FormatError, match=rf"{path}, from byte 4,000 on, cannot be read"):
        files.read(path).compute()


def test_values_that_are_not_of_the_type_given(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_files, "SAMPLE_NBYTES", 100)
    path = rows_of(tmp_path, "1,1", "2,x")
    with pytest.raises(FormatError, match=r"a\.csv cannot be read as csv: .*'x'.*--dtype"):
        files.read(path, {"my col": "int64"}).compute()


@pytest.mark.parametrize("sample", [100, 16_000_000])
@pytest.mark.parametrize("ending", [".csv", ".jsonl"])
def test_compressed_files_that_end_early(tmp_path, monkeypatch, sample, ending):
    """Also behind the end of a block or a frame, which other readers take for the file's."""
    monkeypatch.setattr(csv_files, "SAMPLE_NBYTES", sample)
    monkeypatch.setattr(arrow_readers, "SAMPLE_NBYTES", sample)
    text = b"k\n" + b"1\n" * 999 if ending == ".csv" else b'{"k": 1}\n' * 999
    for compression, content in (
        (".gz", bgzf(text, 99)[: -len(bgzf(b"", 1))]),
        (".bz2", bz2.compress(text) + b"BZ"),
        (".xz", lzma.compress(text) + b"\xfd7z"),
        (".zst", zstandard.compress(text) + b"\x28\xb5"),
        (".zst", zstandard.compress(text)[:-1]),
    ):
        path = tmp_path / f"a{ending}{compression}"
        path.write_bytes(content)
        with pytest.raises(FormatError, match=rf"^{path} cannot be read as .* it is whole$"):
            files.read(str(path)).compute()


@pytest.mark.parametrize("sample", [100, 16_000_000])
def test_a_truncated_or_foreign_compressed_file(tmp_path, monkeypatch, sample):
    monkeypatch.setattr(csv_files, "SAMPLE_NBYTES", sample)
    whole = gzip.compress(b"k,v\n" + b"".join(b"%d,%d\n" % (n, n * n) for n in range(9999)))
    path = tmp_path / "a.csv.gz"
    for content in (whole[:-12], whole[:2000] + b"\0" * 99 + whole[2099:], b"k,v\n1,2\n"):
        path.write_bytes(content)
        with pytest.raises(FormatError, match=rf"^{path} cannot be read as csv: .* it is whole$"):
            files.read(str(path)).compute()


def test_integers_beside_nulls_are_nullable(tmp_path):
    (tmp_path / "a.csv").write_text("k,n,f,g\n1,9007199254740993,1.0,\n,,,\n3,-2,2.5,\n")
    found = files.read(str(tmp_path / "a.csv"))
    assert found.dtypes.astype(str).to_dict() == {
        "k": "Int64", "n": "Int64", "f": "float64", "g": "float64",
    }  # fmt: skip
    rows = found.compute()
    assert rows["n"].tolist() == [9007199254740993, pd.NA, -2]
    assert rows.dtypes.equals(found.dtypes)
