"""Writer of the files of `join`: a file is whole or absent."""

from __future__ import annotations

import errno
import os
from decimal import Decimal
from pathlib import Path

import dask
import dask.dataframe as dd
import fsspec
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client

from dgpuhash.cli.files import read, write
from dgpuhash.errors import UnsupportedError

FRAME = pd.DataFrame(
    {"key": ["a", None, "c"], "number": [1, 2, 3], "share": [0.5, float("nan"), 2.5]}
)


@pytest.fixture(scope="module")
def client():
    with Client(processes=False, n_workers=1, dashboard_address=None) as made:
        yield made


WAYS = ["a.parquet", "a.csv", "a.tsv", "a.csv.gz", "a.tsv.bz2", "a.csv.xz"]


@pytest.mark.parametrize("target", WAYS + [f"made/{name}/" for name in WAYS])
def test_what_is_written_is_read_again(tmp_path, client, target):
    into = f"{tmp_path}/{target}"
    with dask.config.set({"dataframe.convert-string": False}):
        frame = dd.from_pandas(FRAME, npartitions=2)
    rows = write.write(frame, into, client)
    assert rows == 3
    again = read.read(into).compute()
    pd.testing.assert_frame_equal(again.reset_index(drop=True), FRAME)
    if "parquet" not in target:
        # By what pandas takes from the endings.
        names = Path(into).glob("*") if target.endswith("/") else [Path(into)]
        parts = [pd.read_csv(name, sep="\t" if "tsv" in target else ",") for name in sorted(names)]
        pd.testing.assert_frame_equal(pd.concat(parts, ignore_index=True), FRAME)


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
    write.write(read.read(f"{tmp_path}/part-*.parquet"), into, client)
    found = pq.read_table(into)
    assert found["value"].to_pylist() == values.to_pylist()
    assert pa.types.is_string(values.type) or found.schema.field("value").type.id == values.type.id


def test_objects_of_several_types_are_refused(tmp_path, client):
    frame = pd.DataFrame({"value": pd.Series(["a", b"b", 1.5], dtype=object)})
    with dask.config.set({"dataframe.convert-string": False}):
        mixed = dd.from_pandas(frame, npartitions=3)
    with pytest.raises(UnsupportedError, match=r"'value'.* several types.*\.csv"):
        write.write(mixed, str(tmp_path / "a.parquet"), client)
    assert not any(tmp_path.iterdir())


def test_an_empty_result_keeps_its_columns(tmp_path, client):
    target = str(tmp_path / "a.parquet")
    assert write.write(dd.from_pandas(FRAME.iloc[:0], npartitions=1), target, client) == 0
    assert list(pd.read_parquet(target)) == list(FRAME)


def broken():
    """Return a frame whose second partition cannot be computed."""

    def fail(part):
        if 3 in part["number"].values:
            raise RuntimeError("this partition cannot be computed")
        return part

    return dd.from_pandas(FRAME, npartitions=2).map_partitions(fail, meta=FRAME.iloc[:0])


def test_a_failure_leaves_the_old_file(tmp_path, client):
    target = tmp_path / "a.parquet"
    target.write_bytes(b"old")
    with pytest.raises(RuntimeError, match="cannot be computed"):
        write.write(broken(), str(target), client)
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


@pytest.mark.parametrize("target", ["a.parquet", "a.csv", "a.parquet/", "a.csv/"])
def test_a_place_that_cannot_be_written_is_told_before_the_work(client, monkeypatch, target):
    for way in ("compute", "persist"):
        monkeypatch.setattr(client, way, lambda *args, **options: pytest.fail("work began"))
    frame = dd.from_pandas(FRAME, npartitions=1)
    with pytest.raises(OSError, match=f"^/proc/{target} cannot be written: No such .* choose"):
        write.write(frame, f"/proc/{target}", client)


class Reading(fsspec.AbstractFileSystem):
    """Read-only file system without files, like HTTP's."""

    protocol = "reading"

    def exists(self, path):
        return False

    def _open(self, path, mode="rb", **options):
        raise NotImplementedError


@pytest.mark.parametrize("target", ["a.parquet", "a.csv.gz", "a.parquet/", "a.csv/"])
def test_a_file_system_that_only_reads(client, target):
    fsspec.register_implementation("reading", Reading, clobber=True)
    frame = dd.from_pandas(FRAME, npartitions=1)
    said = f"^reading://{target} cannot be written: its file system is read-only; choose another"
    with pytest.raises(UnsupportedError, match=said):
        write.write(frame, f"reading://{target}", client)


def test_an_unknown_ending_is_refused():
    with pytest.raises(UnsupportedError, match=r"use \.parquet, \.csv"):
        write.check_target("out.xlsx")


def test_a_target_in_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="make it first"):
        write.check_target(str(tmp_path / "absent" / "a.parquet"))


def test_a_directory_that_is_not_empty_is_refused(tmp_path):
    (tmp_path / "a.parquet").mkdir()
    (tmp_path / "a.parquet" / "part").touch()
    with pytest.raises(UnsupportedError, match="not empty"):
        write.check_target(str(tmp_path / "a.parquet") + "/")


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
        write.check_target(f"file://{tmp_path}/{target}", [f"{tmp_path}/{source}"])
    write.check_target(f"{tmp_path}/part-2.parquet", [f"{tmp_path}/{source}"])


@pytest.mark.parametrize("slash", ["", "/"])
def test_compressed_parquet_is_refused(tmp_path, slash):
    with pytest.raises(UnsupportedError, match=r"compressed internally; .* ends with \.parquet"):
        write.check_target(f"{tmp_path}/a.parquet.gz{slash}")


def test_a_directory_without_its_slash_is_refused(tmp_path):
    for name in ("a.parquet", "b.csv"):
        (tmp_path / name).mkdir()
        with pytest.raises(UnsupportedError, match=f"{name} is a directory; name another file, or"):
            write.check_target(f"{tmp_path}/{name}")


def test_a_file_is_not_moved_into_a_directory(tmp_path, client):
    (tmp_path / "a.csv").mkdir()
    with pytest.raises(OSError, match=r"a\.csv cannot be written: Is a directory"):
        write.write(
            dd.from_pandas(FRAME, npartitions=1), f"{tmp_path}/a.csv", client, overwrite=True
        )
    assert [*tmp_path.rglob("*")] == [tmp_path / "a.csv"]


@pytest.mark.parametrize("target", ["a.parquet", "a.csv.gz", "memory://targets/a.csv"])
def test_a_file_that_comes_meanwhile_is_not_replaced(tmp_path, client, monkeypatch, target):
    frame, results = dd.from_pandas(FRAME, npartitions=1), write._results
    target = target if "://" in target else f"{tmp_path}/{target}"
    filesystem, path = fsspec.url_to_fs(target)

    def meanwhile(*args):
        yield from results(*args)
        with filesystem.open(path, "wb") as file:
            file.write(b"mine")

    with monkeypatch.context() as patch:
        patch.setattr(write, "_results", meanwhile)
        with pytest.raises(FileExistsError, match=r"exists already; .*overwrite=True"):
            write.write(frame, target, client)
        assert filesystem.cat_file(path) == b"mine"
    with pytest.raises(FileExistsError):
        write.check_target(target)
    write.check_target(target, overwrite=True)
    write.write(frame, target, client, overwrite=True)
    assert len(read.read(target).compute()) == 3
    filesystem.rm(path)
    assert not any(tmp_path.iterdir())


def test_a_directory_that_is_filled_meanwhile_stays(tmp_path, client, monkeypatch):
    (tmp_path / "a.csv").mkdir()
    fill = write._fill

    def meanwhile(*args):
        rows = fill(*args)
        (tmp_path / "a.csv" / "mine").touch()
        return rows

    monkeypatch.setattr(write, "_fill", meanwhile)
    with pytest.raises(UnsupportedError, match=r"a\.csv/ is not empty; .*name another directory"):
        write.write(dd.from_pandas(FRAME, npartitions=1), f"{tmp_path}/a.csv/", client)
    assert [*tmp_path.rglob("*")] == [tmp_path / "a.csv", tmp_path / "a.csv" / "mine"]


@pytest.mark.parametrize("target", ["a.parquet/", "a.csv/"])
@pytest.mark.parametrize("there", [False, True])
def test_a_directory_is_whole_or_as_it_was(tmp_path, client, target, there):
    into = tmp_path / target
    if there:
        into.mkdir()
    with pytest.raises(RuntimeError, match="cannot be computed"):
        write.write(broken(), f"{tmp_path}/{target}", client)
    assert [*tmp_path.rglob("*")] == [into] * there
    # Nobody else's folder is filled or removed, whatever it is called.
    other = into.with_name(f"{into.name}.partial")
    other.mkdir()
    (other / f"part-9{into.suffix}").touch()
    write.check_target(f"{tmp_path}/{target}")
    write.write(dd.from_pandas(FRAME, npartitions=2), f"{tmp_path}/{target}", client)
    assert len(read.read(str(into)).compute()) == 3
    assert sorted(tmp_path.iterdir()) == [into, other]
    assert len([*other.iterdir()]) == 1


def test_a_directory_that_others_write_into_is_removed(tmp_path, client, monkeypatch):
    rmdir = os.rmdir
    late = ["part-7.csv", "part-8.csv"]

    def with_a_late_file(path, **options):
        if late and str(path).endswith(".partial"):
            (Path(path) / late.pop()).touch()
        rmdir(path, **options)

    monkeypatch.setattr(os, "rmdir", with_a_late_file)
    with pytest.raises(RuntimeError, match="cannot be computed"):
        write.write(broken(), f"{tmp_path}/a.csv/", client)
    assert not late
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("target", ["a.parquet/", "a.csv/"])
def test_of_a_directory_that_is_not_local_nothing_stays_after_a_failure(client, target):
    memory = fsspec.filesystem("memory")
    with memory.open("/targets/kept.csv", "w") as stream:
        stream.write("a\n")
    with pytest.raises(RuntimeError, match="cannot be computed"):
        write.write(broken(), f"memory://targets/{target}", client)
    assert memory.find("/targets") == ["/targets/kept.csv"]
    write.write(dd.from_pandas(FRAME, npartitions=2), f"memory://targets/{target}", client)
    assert len(read.read(f"memory://targets/{target}").compute()) == 3
    memory.rm("/targets", recursive=True)


@pytest.mark.parametrize("target", ["a.parquet", "a.csv", "a.csv.gz"])
def test_a_full_disk(tmp_path, client, monkeypatch, target):
    monkeypatch.setattr(write, "_partial", lambda path: f"{path}.partial")
    (tmp_path / f"{target}.partial").symlink_to("/dev/full")
    said = f"^{tmp_path}/{target} cannot be written: No space left on device; make room there"
    with pytest.raises(OSError, match=said):
        write.write(dd.from_pandas(FRAME, npartitions=2), f"{tmp_path}/{target}", client)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("target", ["a.parquet/", "a.csv/"])
def test_a_full_disk_of_workers(tmp_path, client, monkeypatch, target):
    def fail(*args, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(write, "_save", fail)
    with pytest.raises(OSError, match=f"{target} cannot be written: No space .*; make room there"):
        write.write(dd.from_pandas(FRAME, npartitions=1), f"{tmp_path}/{target}", client)
    assert not any(tmp_path.iterdir())


def test_files_of_a_directory_have_the_order_of_the_partitions(tmp_path, client):
    rows = pd.DataFrame({"n": range(12)})
    written = []
    into = f"{tmp_path}/a.parquet/"
    frame = dd.from_pandas(rows, npartitions=12)
    assert write.write(frame, into, client, written=lambda: written.append(1)) == 12
    assert len(written) == 12
    pd.testing.assert_frame_equal(read.read(into).compute().reset_index(drop=True), rows)
