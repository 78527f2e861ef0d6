"""Parquet files: their common dtypes, and errors that name the file."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dgpuhash.cli.files import read
from dgpuhash.errors import FormatError


def written(tmp_path, *columns):
    """Write files with one column each and return their pattern."""
    for number, values in enumerate(columns):
        pq.write_table(pa.table({"v": values}), tmp_path / f"{number}.parquet")
    return f"{tmp_path}/?.parquet"


@pytest.mark.parametrize(
    ("first", "second", "dtype"),
    [
        (pa.array([1, 2]), pa.array([1.5, None]), "float64"),
        (pa.array([1, 2], pa.int8()), pa.array([300, None], pa.int32()), "Int32"),
        (pa.array([2**60 + 1, 5]), pa.array([2**60 + 3, None]), "Int64"),
        (pa.array([2**60 + 1, 5]), pa.nulls(2), "Int64"),
        (pa.array([2**64 - 1], pa.uint64()), pa.array([1], pa.uint64()), "uint64"),
        (pa.array([True, None]), pa.array([False]), "boolean"),
        (pa.nulls(2), pa.array([1.5, 2.5]), "float64"),
        (pa.array(["a", "b"]), pa.array(["a", None], pa.large_string()), "str"),
        (
            pa.array(["a", "b"]).dictionary_encode(),
            pa.array(["c", None]).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string())),
            "category",
        ),
    ],
    ids=str,
)
def test_columns_get_the_type_that_the_files_have_in_common(tmp_path, first, second, dtype):
    frame = read.read(written(tmp_path, first, second))
    assert frame["v"].dtype == dtype
    found = frame.compute()["v"]
    expected = [*first.to_pylist(), *second.to_pylist()]
    assert found.astype(object).where(found.notna(), None).tolist() == expected


def test_no_number_becomes_another_one(tmp_path):
    frame = read.read(written(tmp_path, pa.array([2**60 + 1]), pa.array([1.5])))
    with pytest.raises(FormatError, match=r"0\.parquet cannot be read as parquet: .* not in range"):
        frame.compute()


def test_types_that_have_nothing_in_common_are_refused(tmp_path):
    pattern = written(tmp_path, pa.array([1]), pa.array(["a"]))
    with pytest.raises(
        FormatError, match=r"1\.parquet has .* than .*0\.parquet: .*int64 vs string"
    ):
        read.read(pattern)


@pytest.mark.parametrize("dtype", ["int64", "boolean"])
def test_values_that_are_not_of_the_type_given(tmp_path, dtype):
    pattern = written(tmp_path, pa.array([5.0, None, 7.5]))
    with pytest.raises(FormatError, match=r"\?\.parquet has values .*; give --dtype a type that"):
        read.read(pattern, {"v": dtype}).compute()


def test_damaged_pages_name_the_file(tmp_path):
    pattern = written(tmp_path, pa.array(["a", "b"]), pa.array(["c", "d"]))
    path = tmp_path / "1.parquet"
    content = bytearray(path.read_bytes())
    content[4:40] = bytes(36)
    path.write_bytes(content)
    with pytest.raises(FormatError, match=f"^{path} cannot be read as parquet: "):
        read.read(pattern).compute()


def test_an_index_without_a_name_is_no_column(tmp_path):
    rows = pd.DataFrame({"k": range(9)})
    rows[:4].to_parquet(tmp_path / "0.parquet")
    rows[4:].iloc[[2, 0]].to_parquet(tmp_path / "1.parquet")
    assert read.read(f"{tmp_path}/?.parquet").compute()["k"].tolist() == [0, 1, 2, 3, 6, 4]


def test_folders_named_by_a_column(tmp_path):
    rows = pd.DataFrame({"k": range(4), "year": [2012, 2013, 2012, 2013]})
    rows.to_parquet(tmp_path / "a.parquet", partition_cols=["year"])
    found = read.read(f"{tmp_path}/a.parquet").compute()
    assert found["year"].astype("int64").tolist() == [2012, 2012, 2013, 2013]
    # Of other types, too.
    for number, path in enumerate((tmp_path / "a.parquet").rglob("*.parquet")):
        pq.write_table(pa.table({"k": pa.array([1, 2], [pa.int8(), pa.int16()][number])}), path)
    found = read.read(f"{tmp_path}/a.parquet")
    assert found["k"].dtype == "int16"
    assert found.compute()["year"].astype("int64").tolist() == [2012, 2012, 2013, 2013]
