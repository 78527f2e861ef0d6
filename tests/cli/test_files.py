"""Reader of the files that commands get."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dgpuhash.cli.files import read
from dgpuhash.errors import FormatError, UnsupportedError

FRAME = pd.DataFrame(
    {"key": ["a", None, "c"], "number": [1, 2, 3], "share": [0.5, float("nan"), 2.5]}
)


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.csv.gz", "a.tsv"])
def test_reads_each_kind(tmp_path, name):
    path = tmp_path / name
    if "parquet" in name:
        FRAME.to_parquet(path)
    else:
        FRAME.to_csv(path, index=False, sep="\t" if "tsv" in name else ",")
    pd.testing.assert_frame_equal(read.read(str(path)).compute(), FRAME)


def test_each_file_is_read_by_its_own_ending(tmp_path):
    (tmp_path / "a.tsv.d").mkdir()
    path = tmp_path / "a.tsv.d" / "a.csv"
    FRAME.to_csv(path, index=False)
    pd.testing.assert_frame_equal(read.read(str(path)).compute(), FRAME)
    for other in ("b.csv.gz", "b.tsv"):
        FRAME.to_csv(path.with_name(other), index=False)
        with pytest.raises(FormatError, match="one separator and compression"):
            read.read(f"{path.parent}/*")
        path.with_name(other).unlink()
    FRAME.to_parquet(path.with_name("b.parquet"))
    with pytest.raises(UnsupportedError, match="one kind"):
        read.read(f"{path.parent}/*")


def test_types_of_columns_that_are_not_there(tmp_path):
    FRAME.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(FormatError, match=r"'keys'.*there are \['key'"):
        read.read(str(tmp_path / "a.csv"), {"keys": "str"})


def test_a_glob_reads_its_files_in_the_order_of_their_names(tmp_path):
    for part in (2, 0, 1):
        pd.DataFrame({"part": [part]}).to_parquet(tmp_path / f"part-{part}.parquet")
    found = read.read(str(tmp_path / "part-*.parquet")).compute()
    assert found["part"].tolist() == [0, 1, 2]


def test_reads_a_url(tmp_path):
    FRAME.to_parquet(tmp_path / "a.parquet")
    assert len(read.read(f"file://{tmp_path}/a.parquet")) == 3


def test_column_types_of_parquet_can_be_given(tmp_path):
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"key": [1, None, 3], "flag": [None, True, False]}), path)
    found = read.read(path, {"key": "Int64", "flag": "boolean"})
    assert found.dtypes.equals(found.compute().dtypes)
    assert found["key"].dtype == "Int64"
    for wrong in ({"nope": "Int64"}, {"key": "Qnt64"}):
        with pytest.raises(FormatError, match=r"nope|Qnt64"):
            read.read(path, wrong)


def test_column_types_of_csv_can_be_given(tmp_path):
    (tmp_path / "a.csv").write_text("zip,rows\n01234,1\n")
    found = read.read(str(tmp_path / "a.csv"), {"zip": "str"}).compute()
    assert found["zip"].tolist() == ["01234"]


def test_a_missing_file_is_named():
    with pytest.raises(FileNotFoundError, match=r"absent-\*\.parquet"):
        read.read("/nowhere/absent-*.parquet")


def test_an_unknown_filesystem_is_refused():
    with pytest.raises(UnsupportedError, match="cannot be opened"):
        read.read("nosuch://bucket/a.parquet")


def test_a_file_that_is_no_parquet_is_refused(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"not parquet")
    with pytest.raises(FormatError, match="cannot be read as parquet"):
        read.read(str(tmp_path / "a.parquet"))


def test_a_file_whose_name_has_marks_of_globs_is_itself(tmp_path):
    FRAME.to_csv(tmp_path / "a[1].csv", index=False)
    FRAME[:1].to_csv(tmp_path / "a1.csv", index=False)
    found = read.read(str(tmp_path / "a[1].csv")).compute()
    pd.testing.assert_frame_equal(found, FRAME)


@pytest.mark.parametrize("name", ["a.csv", "a", "a.v2"])
def test_a_directory_is_read_as_the_files_in_it(tmp_path, name):
    parts = tmp_path / name
    (parts / "more").mkdir(parents=True)
    FRAME[:2].to_csv(parts / "0.csv", index=False)
    FRAME[2:].to_csv(parts / "more" / "1.csv", index=False)
    for other in ("_SUCCESS", ".0.csv.crc", "_old.csv", "notes.txt"):
        (parts / other).write_text("no row")
    for pattern in (str(parts), f"{parts}/", f"{tmp_path}/*"):
        found = read.read(pattern).compute().reset_index(drop=True)
        pd.testing.assert_frame_equal(found, FRAME)
    (tmp_path / "b.parquet").mkdir()
    with pytest.raises(FileNotFoundError, match=r"b\.parquet: there is no file in it"):
        read.read(str(tmp_path / "b.parquet"))
    FRAME.to_parquet(parts / "1.parquet")
    if name == "a.csv":
        pd.testing.assert_frame_equal(read.read(str(parts)).compute().reset_index(drop=True), FRAME)
    else:
        with pytest.raises(UnsupportedError, match="names Parquet and CSV files"):
            read.read(str(parts))


def test_a_compressed_parquet_file_is_refused(tmp_path):
    (tmp_path / "a.parquet.gz").touch()
    with pytest.raises(UnsupportedError, match="compressed internally"):
        read.read(str(tmp_path / "a.parquet.gz"))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("columns", "said"), [("kvw", r"it has \['w'\]"), ("kw", r"it has \['w'\] and lacks \['v'\]")]
)
def test_files_with_other_columns_are_refused(tmp_path, ending, columns, said):
    for number, names in enumerate(("kv", "vk", columns)):
        rows = pd.DataFrame({name: [ord(name)] for name in names})
        if ending == "csv":
            rows.to_csv(tmp_path / f"{number}.csv", index=False)
        else:
            rows.to_parquet(tmp_path / f"{number}.parquet")
    same = read.read(f"{tmp_path}/[01].{ending}").compute()
    assert (same["k"] == ord("k")).all()
    assert (same["v"] == ord("v")).all()
    with pytest.raises(FormatError, match=rf"2\.{ending} has other columns than .*0\..*{said}; "):
        read.read(f"{tmp_path}/*.{ending}")
