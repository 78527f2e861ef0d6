"""Reading and writing the files that the commands are given."""

from __future__ import annotations

from decimal import Decimal

import dask
import dask.dataframe as dd
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client

from dgpuhash.cli import files
from dgpuhash.errors import FormatError, UnsupportedError

FRAME = pd.DataFrame(
    {"key": ["a", None, "c"], "number": [1, 2, 3], "share": [0.5, float("nan"), 2.5]}
)


@pytest.fixture(scope="module")
def client():
    with Client(processes=False, n_workers=1, dashboard_address=None) as made:
        yield made


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.csv.gz", "a.tsv"])
def test_reads_each_kind(tmp_path, name):
    path = tmp_path / name
    if "parquet" in name:
        FRAME.to_parquet(path)
    else:
        FRAME.to_csv(path, index=False, sep="\t" if "tsv" in name else ",")
    pd.testing.assert_frame_equal(files.read(str(path)).compute(), FRAME)


def test_each_file_is_read_by_its_own_ending(tmp_path):
    (tmp_path / "a.tsv.d").mkdir()
    path = tmp_path / "a.tsv.d" / "a.csv"
    FRAME.to_csv(path, index=False)
    pd.testing.assert_frame_equal(files.read(str(path)).compute(), FRAME)
    for other in ("b.csv.gz", "b.tsv"):
        FRAME.to_csv(path.with_name(other), index=False)
        with pytest.raises(FormatError, match="one separator and compression"):
            files.read(f"{path.parent}/*")
        path.with_name(other).unlink()
    FRAME.to_parquet(path.with_name("b.parquet"))
    with pytest.raises(UnsupportedError, match="one kind"):
        files.read(f"{path.parent}/*")


def test_types_of_columns_that_are_not_there(tmp_path):
    FRAME.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(FormatError, match=r"'keys'.*there are \['key'"):
        files.read(str(tmp_path / "a.csv"), {"keys": "str"})


def test_a_glob_reads_its_files_in_the_order_of_their_names(tmp_path):
    for part in (2, 0, 1):
        pd.DataFrame({"part": [part]}).to_parquet(tmp_path / f"part-{part}.parquet")
    found = files.read(str(tmp_path / "part-*.parquet")).compute()
    assert found["part"].tolist() == [0, 1, 2]


def test_reads_a_url(tmp_path):
    FRAME.to_parquet(tmp_path / "a.parquet")
    assert len(files.read(f"file://{tmp_path}/a.parquet")) == 3


def test_column_types_of_parquet_can_be_given(tmp_path):
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"key": [1, None, 3], "flag": [None, True, False]}), path)
    found = files.read(path, {"key": "Int64", "flag": "boolean"})
    assert found.dtypes.equals(found.compute().dtypes)
    assert found["key"].dtype == "Int64"
    for wrong in ({"nope": "Int64"}, {"key": "Qnt64"}):
        with pytest.raises(FormatError, match=r"nope|Qnt64"):
            files.read(path, wrong)


def test_column_types_of_csv_can_be_given(tmp_path):
    (tmp_path / "a.csv").write_text("zip,rows\n01234,1\n")
    found = files.read(str(tmp_path / "a.csv"), {"zip": "str"}).compute()
    assert found["zip"].tolist() == ["01234"]


@pytest.mark.parametrize("target", ["a.parquet", "a.csv", "made/a.parquet/", "made/a.csv/"])
def test_what_is_written_is_read_again(tmp_path, client, target):
    into = f"{tmp_path}/{target}"
    with dask.config.set({"dataframe.convert-string": False}):
        frame = dd.from_pandas(FRAME, npartitions=2)
    rows = files.write(frame, into, client)
    assert rows == (None if target.endswith("/") else 3)
    again = files.read(into + "*" * target.endswith("csv/")).compute()
    pd.testing.assert_frame_equal(again.reset_index(drop=True), FRAME)


@pytest.mark.parametrize("target", ["a.parquet", "made/a.parquet/"])
@pytest.mark.parametrize(
    "values",
    [
        pa.array([None, 5, None, 7], pa.date32()),
        pa.array([None, Decimal("1.10"), None, Decimal("22.20")]),
        pa.array([None, b"\xff", None, b""]),
        pa.array([None, [1], None, [2, 3]]),
        pa.array([None, "x", None, "y"]).dictionary_encode(),
        pa.array([True, None, None, False]),
        pa.nulls(4, pa.string()),
    ],
    ids=lambda values: str(values.type),
)
def test_objects_keep_their_types(tmp_path, client, values, target):
    table = pa.table({"key": range(4), "value": values})
    for number in range(2):
        pq.write_table(table[2 * number :][:2], tmp_path / f"part-{number}.parquet")
    into = f"{tmp_path}/{target}"
    files.write(files.read(f"{tmp_path}/part-*.parquet"), into, client)
    found = pq.read_table(into)
    assert found["value"].to_pylist() == values.to_pylist()
    assert pa.types.is_string(values.type) or found.schema.field("value").type.id == values.type.id


def test_objects_of_several_types_are_refused(tmp_path, client):
    frame = pd.DataFrame({"value": pd.Series(["a", b"b", 1.5], dtype=object)})
    with dask.config.set({"dataframe.convert-string": False}):
        mixed = dd.from_pandas(frame, npartitions=3)
    with pytest.raises(UnsupportedError, match=r"'value'.* several types.*\.csv"):
        files.write(mixed, str(tmp_path / "a.parquet"), client)
    assert not any(tmp_path.iterdir())


def test_an_empty_result_keeps_its_columns(tmp_path, client):
    target = str(tmp_path / "a.parquet")
    assert files.write(dd.from_pandas(FRAME.iloc[:0], npartitions=1), target, client) == 0
    assert list(pd.read_parquet(target)) == list(FRAME)


def test_a_failure_leaves_the_old_file(tmp_path, client):
    target = tmp_path / "a.parquet"
    target.write_bytes(b"old")

    def fail(part):
        if len(part):
            raise RuntimeError("this partition cannot be computed")
        return part

    broken = dd.from_pandas(FRAME, npartitions=1).map_partitions(fail, meta=FRAME.iloc[:0])
    with pytest.raises(RuntimeError, match="cannot be computed"):
        files.write(broken, str(target), client)
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


@pytest.mark.parametrize("target", ["a.parquet", "a.csv", "a.parquet/", "a.csv/"])
def test_a_place_that_cannot_be_written_is_told_before_the_work(client, monkeypatch, target):
    for way in ("compute", "persist"):
        monkeypatch.setattr(client, way, lambda *args, **options: pytest.fail("work began"))
    frame = dd.from_pandas(FRAME, npartitions=1)
    with pytest.raises(OSError, match=f"^/proc/{target} cannot be written: No such .* choose"):
        files.write(frame, f"/proc/{target}", client)


def test_a_missing_file_is_named():
    with pytest.raises(FileNotFoundError, match=r"absent-\*\.parquet"):
        files.read("/nowhere/absent-*.parquet")


def test_an_unknown_ending_is_refused():
    with pytest.raises(UnsupportedError, match=r"use \.parquet or \.csv"):
        files.check_target("out.xlsx")


def test_an_unknown_filesystem_is_refused():
    with pytest.raises(UnsupportedError, match="cannot be opened"):
        files.read("nosuch://bucket/a.parquet")


def test_a_file_that_is_no_parquet_is_refused(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"not parquet")
    with pytest.raises(FormatError, match="cannot be read as parquet"):
        files.read(str(tmp_path / "a.parquet"))


def test_a_target_in_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="make it first"):
        files.check_target(str(tmp_path / "absent" / "a.parquet"))


def test_a_directory_that_is_not_empty_is_refused(tmp_path):
    (tmp_path / "a.parquet").mkdir()
    (tmp_path / "a.parquet" / "part").touch()
    with pytest.raises(UnsupportedError, match="not empty"):
        files.check_target(str(tmp_path / "a.parquet") + "/")


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("part-0.parquet", "part-0.parquet"),
        ("part-*.parquet", "part-1.parquet"),
        ("part-?.parquet", "link.parquet"),
        ("many.parquet", "many.parquet/part-0.parquet"),
    ],
)
def test_a_target_that_is_a_source_is_refused(tmp_path, source, target):
    for name in ("part-0.parquet", "part-1.parquet", "many.parquet/part-0.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        FRAME.to_parquet(tmp_path / name)
    (tmp_path / "link.parquet").symlink_to(tmp_path / "part-0.parquet")
    with pytest.raises(UnsupportedError, match="is one of the sources; name another file"):
        files.check_target(f"file://{tmp_path}/{target}", f"{tmp_path}/{source}")
    files.check_target(f"{tmp_path}/part-2.parquet", f"{tmp_path}/{source}")
