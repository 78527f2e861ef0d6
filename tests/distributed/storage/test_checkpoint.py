"""Checkpoints: any number of workers, atomic files, detected damage."""

from __future__ import annotations

import errno
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import dask
import dask.dataframe as dd
import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from clusters import assert_same, interrupting
from fsspec.implementations.memory import MemoryFileSystem

import dgpuhash
from dgpuhash.distributed import DistributedIndex, DistributedMultiMap, DistributedSet
from dgpuhash.distributed.ingest import history
from dgpuhash.distributed.storage import change_log as log
from dgpuhash.distributed.storage import checkpoint
from dgpuhash.distributed.storage.folder import Folder
from dgpuhash.errors import (
    ExistsError,
    FormatError,
    IndexLost,
    KeyTypeError,
    SpecError,
    UnsupportedError,
)

pytestmark = pytest.mark.cluster


@pytest.fixture
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    n = 400
    return pd.DataFrame(
        {
            "city": pd.Series(rng.choice(["Oslo", "Rome", None, "Bonn"], n), dtype="str"),
            "hour": pd.date_range("2026-01-01", periods=50, freq="h", tz="UTC")[np.arange(n) % 50],
            "count": pd.array(rng.integers(0, 9, n), dtype="Int64"),
            "kind": pd.Categorical(rng.choice(["a", "b"], n)),
            "load": rng.random(n),
        }
    )


@pytest.fixture
def saved(threads, frame, tmp_path) -> Path:
    with DistributedIndex.build(frame, on=["city", "hour"], client=threads) as index:
        index.save(tmp_path / "saved")
    return tmp_path / "saved"


def stored(index: DistributedIndex) -> pd.DataFrame:
    keys = index.merge(dd.from_pandas(index_keys(index), npartitions=2, sort=False)).compute()
    return keys.reset_index(drop=True)


def index_keys(index: DistributedIndex) -> pd.DataFrame:
    hours = pd.date_range("2026-01-01", periods=50, freq="h", tz="UTC")
    cities = pd.Series(["Oslo", "Rome", None, "Bonn"], dtype="str")
    return pd.DataFrame({"city": cities}).merge(pd.DataFrame({"hour": hours}), how="cross")


@pytest.mark.parametrize(("before", "after"), [(1, 3), (2, 1), (3, 2), (2, 3)])
def test_loads_onto_any_number_of_workers(threads, frame, tmp_path, before, after):
    workers = sorted(threads.nthreads())
    with DistributedIndex.build(
        frame, on=["city", "hour"], client=threads, workers=workers[:before]
    ) as index:
        index.save(tmp_path / "saved")
    files = sorted((tmp_path / "saved").glob("*.arrow"))
    rows = pa.concat_tables(pa.ipc.open_file(path).read_all() for path in files)
    assert len(files) == before
    columns = list(frame)
    pd.testing.assert_frame_equal(
        rows.to_pandas().sort_values(columns, ignore_index=True),
        frame.sort_values(columns, ignore_index=True),
    )
    with DistributedIndex.load(tmp_path / "saved", threads, workers=workers[-after:]) as index:
        assert len(index.stats()) == after
        wanted = index_keys(index).merge(frame, on=["city", "hour"])
        assert_same(stored(index), wanted)
        assert index.meta.dtypes.equals(frame.dtypes)


def test_changed_and_saved_over_itself(client, frame, tmp_path):
    where = tmp_path / "saved"
    with DistributedIndex.build(frame[:100], on=["city", "hour"], client=client) as index:
        index.save(where)
        first = set(where.iterdir())
        index.insert(frame[100:])
        index.save(str(where))
        assert len(first & set(where.iterdir())) == 1
        wanted = stored(index)
    with DistributedIndex.load(str(where), client) as loaded:
        assert_same(stored(loaded), wanted)


def test_rebuild_from_the_last_save_by_another_handle(threads, frame, tmp_path):
    with DistributedIndex.build(frame[:300], on=["city", "hour"], client=threads) as index:
        index.save(tmp_path / "saved")
        other = DistributedIndex.open(index.name, threads)
        other.insert(frame[300:])
        wanted = stored(other)
        other.rebuild(whole=True)
        assert_same(stored(other), wanted)
        with pytest.raises(IndexLost, match="never saved in this state"):
            index.rebuild(whole=True)


def test_rebuild_from_a_save_when_the_source_was_of_an_index_that_is_gone(threads, tmp_path):
    numbers = pd.DataFrame({"k": np.arange(50), "v": np.arange(50)})
    asked = dd.from_pandas(
        pd.DataFrame({"k": np.arange(60), "z": np.arange(60) * 3}), npartitions=2
    )
    with DistributedIndex.build(numbers, on="k", client=threads) as first:
        index = DistributedIndex.build(first.merge(asked), on="z", client=threads)
    with index:
        with pytest.raises(IndexLost):
            index.rebuild(whole=True)
        index.save(tmp_path / "saved")
        index.rebuild(whole=True)
        assert len(index) == 50


def test_rebuild_from_another_save_when_the_one_that_was_loaded_is_gone(threads, frame, tmp_path):
    with DistributedIndex.build(frame[:300], on=["city", "hour"], client=threads) as index:
        index.save(tmp_path / "first")
    with DistributedIndex.load(tmp_path / "first", threads) as loaded:
        loaded.insert(frame[300:])
        wanted = stored(loaded)
        shutil.rmtree(tmp_path / "first")
        with pytest.raises(FormatError, match="first contains no saved index"):
            loaded.rebuild(whole=True)
        loaded.save(tmp_path / "second")
        loaded.rebuild(whole=True)
        assert_same(stored(loaded), wanted)


def test_rows_that_were_persisted_and_are_gone(threads, frame, tmp_path):
    kept = dd.from_pandas(frame, npartitions=3, sort=False).persist()
    with DistributedIndex.build(kept, on=["city", "hour"], client=threads) as index:
        threads.cancel(kept)
        for change in (lambda: index.rebuild(whole=True), lambda: index.insert(kept)):
            with pytest.raises(UnsupportedError, match="on no worker any more"):
                change()
        wanted = stored(index)
        index.save(tmp_path / "saved")
        index.rebuild(whole=True)
        assert_same(stored(index), wanted)


def test_a_damaged_log_is_told_though_the_source_is_there(threads, frame, tmp_path):
    with DistributedIndex.build(
        frame, on="count", client=threads, durable=tmp_path / "log"
    ) as index:
        damage_byte(shard_of(tmp_path / "log"))
        with pytest.raises(FormatError, match="checksum"):
            index.rebuild(whole=True)
        assert len(index) == len(frame)


def test_any_filesystem(threads, frame):
    url = "memory://folder/saved"
    with DistributedIndex.build(frame, on=["city", "hour"], client=threads) as index:
        index.save(url)
        index.save(url)
        wanted = stored(index)
    with DistributedIndex.load(url, threads) as loaded:
        assert_same(stored(loaded), wanted)
    assert len(fsspec.filesystem("memory").ls("/folder/saved")) == 4


@pytest.mark.parametrize(
    "url", ["memory://", "memory:///", "memory://a b/ü#%20:", b"memory://bytes"]
)
def test_urls_of_any_form(threads, frame, url):
    files = fsspec.filesystem("memory")
    files.rm("/", recursive=True)
    with DistributedIndex.build(frame, on="count", client=threads) as index:
        index.save(url)
        index.save(url)
    assert len(files.find("/")) == 4
    with DistributedIndex.load(url, threads) as loaded:
        assert len(loaded) == len(frame)
    files.rm("/", recursive=True)


class Reading(MemoryFileSystem):
    """Read-only file system, like HTTP's."""

    protocol = "reading"

    def _open(self, path, mode="rb", **options):
        if mode != "rb":
            raise NotImplementedError
        return super()._open(path, mode, **options)


def test_a_file_system_that_only_reads(threads, frame):
    fsspec.register_implementation("reading", Reading, clobber=True)
    said = "^reading://saved cannot be written: its file system is read-only; choose another place$"
    with DistributedIndex.build(frame, on="count", client=threads) as index:
        with pytest.raises(UnsupportedError, match=said):
            index.save("reading://saved")
        with pytest.raises(UnsupportedError, match=said):
            DistributedIndex.build(frame, on="count", client=threads, durable="reading://saved")
        assert len(index) == len(frame)


def test_urls_that_cannot_be(threads, frame):
    """Where fsspec takes a name for a pattern, files would get other names."""
    fsspec.register_implementation("absent", "absent.Files", errtxt="Install it", clobber=True)
    before = fsspec.filesystem("memory").find("/")
    with DistributedIndex.build(frame, on="count", client=threads) as index:
        for url, said in {
            "memory://what?/saved": r"\?, which .* pattern",
            "memory://saved[1]/x*y": r"\* \[, which .* pattern",
            "absent://saved": "Install it",
        }.items():
            with pytest.raises(SpecError, match=said):
                index.save(url)
            with pytest.raises(SpecError, match=said):
                DistributedIndex.build(frame, on="count", client=threads, durable=url)
    assert fsspec.filesystem("memory").find("/") == before


def test_a_local_name_may_look_like_a_pattern(threads, frame, tmp_path):
    where = tmp_path / "what?[1]*"
    with DistributedIndex.build(frame, on="count", client=threads) as index:
        index.save(where)
        index.save(f"file://{where}")
    with DistributedIndex.load(where, threads) as loaded:
        assert len(loaded) == len(frame)


@pytest.mark.parametrize(
    "moment",
    [
        "storage.manifest.check_sizes",
        "storage.checkpoint.records",
        "storage.checkpoint.changes_in",
        "ingest.history.delayed_frames",
    ],
)
def test_saved_to_while_it_is_loaded(threads, frame, tmp_path, monkeypatch, moment):
    """A save removes the files that it replaces, which is no damage."""
    module = f"dgpuhash.distributed.{moment}"
    with DistributedIndex.build(
        frame[:300], on="count", client=threads, durable=tmp_path / "log"
    ) as index:
        index.insert(frame[300:350])
        index.insert(frame[350:])
        wanted = iter([index.save] * 2)
        whole = getattr(importlib.import_module(module.rpartition(".")[0]), moment.split(".")[-1])

        def meanwhile(*args):
            # A save looks for records, too.
            monkeypatch.setattr(module, whole)
            for save in wanted:
                save(tmp_path / "log")
                monkeypatch.setattr(module, meanwhile)
                break
            return whole(*args)

        monkeypatch.setattr(module, meanwhile)
        with DistributedIndex.load(tmp_path / "log", threads) as loaded:
            assert len(loaded) == len(frame)
        assert not list(wanted)


def test_saved_to_again_and_again(threads, frame, tmp_path, monkeypatch):
    monkeypatch.setitem(dask.config.get("dgpuhash.retries"), "load", 3)
    with DistributedIndex.build(frame, on="count", client=threads) as index:
        index.save(tmp_path / "saved")
        whole = history.batches_of

        def meanwhile(*args):
            found = whole(*args)
            index.save(tmp_path / "saved")
            return found

        monkeypatch.setattr(history, "batches_of", meanwhile)
        with pytest.raises(FormatError, match="saved to again each of 3 times"):
            DistributedIndex.load(tmp_path / "saved", threads)
        assert len(Folder(tmp_path / "saved").names()) == 4


def test_a_place_that_workers_do_not_share_is_refused(processes, frame):
    with DistributedIndex.build(frame, on=["city", "hour"], client=processes) as index:
        with pytest.raises(UnsupportedError, match=r"does not see.*network file system"):
            index.save("memory://apart")
        with pytest.raises(UnsupportedError, match="does not see"):
            DistributedIndex.build(frame, on="city", client=processes, durable="memory://log")
    assert not fsspec.filesystem("memory").glob("/apart/*")


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_a_save_in_an_archive_can_be_read(threads, saved, frame, kind):
    archive = shutil.make_archive(str(saved), kind, saved.parent, saved.name)
    with DistributedIndex.load(f"{kind}://{saved.name}::{archive}", threads) as loaded:
        assert_same(stored(loaded), index_keys(loaded).merge(frame, on=["city", "hour"]))
        with pytest.raises((OSError, ValueError), match=r"not both|Read-only"):
            loaded.save(f"{kind}://other::{archive}")


def test_no_pickle(saved):
    manifest = json.loads((saved / "manifest.json").read_text())
    assert manifest["format"] == "dgpuhash index"
    assert {path.suffix for path in saved.iterdir()} == {".json", ".arrow"}


def damage_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def shard_of(saved: Path) -> Path:
    return max(saved.glob("*.arrow"), key=lambda path: path.stat().st_size)


def edit(saved: Path, change) -> None:
    """Change the manifest and correct its checksum, as an attacker would."""
    from dgpuhash.tables.arguments.checksums import body_digest

    path = saved / "manifest.json"
    whole = json.loads(path.read_text())
    change(whole["index"])
    whole["blake2b"] = body_digest(whole["index"])
    path.write_text(json.dumps(whole))


DAMAGE = {
    "a flipped bit": lambda saved: damage_byte(shard_of(saved)),
    "a short file": lambda saved: shard_of(saved).write_bytes(b"ARROW1"),
    "a missing file": lambda saved: shard_of(saved).unlink(),
    "no manifest": lambda saved: (saved / "manifest.json").unlink(),
    "an empty manifest": lambda saved: (saved / "manifest.json").write_bytes(b""),
    "a foreign manifest": lambda saved: (saved / "manifest.json").write_text('{"a": [1]}'),
    "a changed manifest": lambda saved: (saved / "manifest.json").write_text(
        (saved / "manifest.json").read_text().replace('"unique": null', '"unique": true')
    ),
    "another version": lambda saved: (saved / "manifest.json").write_text(
        (saved / "manifest.json").read_text().replace('"version": 3', '"version": 9')
    ),
    "a path outside": lambda saved: edit(
        saved, lambda body: body["shards"][0].update(file="../../etc/passwd")
    ),
    "a negative size": lambda saved: edit(
        saved, lambda body: body["shards"][0].update(batches=[-1])
    ),
    "an odd specimen": lambda saved: edit(saved, lambda body: body.update(specimen="AAAA")),
    "rows that are not there": lambda saved: edit(
        saved, lambda body: body["shards"][0].update(batches=[10**12])
    ),
    "batches that are not there": lambda saved: edit(
        saved, lambda body: body["shards"][0].update(batches=[1] * 5)
    ),
    "another encoder": lambda saved: edit(saved, lambda body: body.update(encoder={"names": 3})),
}


@pytest.mark.parametrize("damage", ["a flipped bit", "a short file", "a missing file"])
def test_damage_names_the_file(threads, saved, damage):
    name = shard_of(saved).name
    DAMAGE[damage](saved)
    with pytest.raises(FormatError, match=name):
        DistributedIndex.load(saved, threads)


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_damaged_and_hostile_files_are_refused(threads, saved, damage):
    damage(saved)
    with pytest.raises(FormatError):
        DistributedIndex.load(saved, threads, name="damaged")
    with pytest.raises(IndexLost, match="no index 'damaged'"):
        DistributedIndex.open("damaged", threads)


def test_other_things_are_not_overwritten(threads, frame, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    (tmp_path / "file").write_text("dear")
    (tmp_path / "empty").mkdir()
    with DistributedIndex.build(frame, on="count", client=threads) as index:
        for name in ("mine", "file"):
            for overwrite in (False, True):
                with pytest.raises(FileExistsError, match="no saved index"):
                    index.save(tmp_path / name, overwrite=overwrite)
        index.save(tmp_path / "empty")
    assert (tmp_path / "mine" / "letter.txt").read_text() == "dear"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file", "mine"]
    with pytest.raises(FormatError, match="contains no saved index"):
        DistributedIndex.load(tmp_path / "mine", threads)


def test_a_save_of_another_index_is_replaced_when_told_so(threads, frame, tmp_path, monkeypatch):
    where = tmp_path / "saved"
    with (
        DistributedIndex.build(frame[:300], on="count", client=threads) as index,
        DistributedIndex.build(frame[:100], on="count", client=threads) as other,
    ):
        index.save(where)
        before = {path.name: path.read_bytes() for path in where.iterdir()}
        with monkeypatch.context() as patch:
            patch.setattr(checkpoint, "write_rows", None)
            with pytest.raises(ExistsError, match=r"another saved index.*overwrite=True"):
                other.save(where)
        assert {path.name: path.read_bytes() for path in where.iterdir()} == before
        with DistributedIndex.load(where, threads) as loaded:
            # What it was loaded from is its own.
            loaded.save(where)
            # Whose save that was is another's now.
            with pytest.raises(ExistsError):
                index.save(where)
        other.save(where, overwrite=True)
        assert len(list(where.iterdir())) == 4
    with DistributedIndex.load(where, threads) as loaded:
        assert len(loaded) == 100


def test_one_that_comes_meanwhile_is_not_replaced(threads, frame, tmp_path, monkeypatch):
    where = tmp_path / "saved"
    with (
        DistributedIndex.build(frame[:300], on="count", client=threads) as index,
        DistributedIndex.build(frame[:100], on="count", client=threads) as other,
    ):
        index.save(where)
        shared = checkpoint.check_shared

        def meanwhile(*args):
            monkeypatch.setattr(checkpoint, "check_shared", shared)
            other.save(where, overwrite=True)
            return shared(*args)

        monkeypatch.setattr(checkpoint, "check_shared", meanwhile)
        with pytest.raises(ExistsError, match="another saved index"):
            index.save(where)
    with DistributedIndex.load(where, threads) as loaded:
        assert len(loaded) == 100
    assert len(list(where.iterdir())) == 4


def test_one_load_opens_any_folder(threads, frame, tmp_path, monkeypatch):
    keys = np.arange(50)
    with DistributedIndex.build(frame, on="count", client=threads) as index:
        index.save(tmp_path / "index")
    with DistributedSet.from_keys(keys) as some:
        some.save(tmp_path / "set")
    with DistributedMultiMap.from_arrays(keys % 7, keys) as lists:
        lists.save("memory://any/lists")
    for place, kind, size in (
        (tmp_path / "index", DistributedIndex, len(frame)),
        (tmp_path / "set", DistributedSet, 50),
        ("memory://any/lists", DistributedMultiMap, 50),
    ):
        with dgpuhash.load(place) as loaded:
            assert type(loaded) is kind
            assert len(loaded) == size
    with dgpuhash.load(tmp_path / "set", client=threads) as loaded:
        assert len(loaded) == 50
    (tmp_path / "set" / "manifest.json").write_text('{"format": "of others"}')
    with pytest.raises(FormatError, match="foreign or damaged"):
        dgpuhash.load(tmp_path / "set")


class FullFileSystem(MemoryFileSystem):
    """File system that is full after the first kilobytes."""

    protocol = "full"
    store: dict = {}  # noqa: RUF012
    pseudo_dirs = [""]  # noqa: RUF012

    def open(self, path, mode="rb", **options):
        file = super().open(path, mode, **options)
        if "w" in mode and "shard" in path:
            whole = file.write

            def write(data):
                if file.tell() > 2000:
                    raise OSError(errno.ENOSPC, "No space left on device")
                return whole(data)

            file.write = write
        return file


class RememberingFileSystem(MemoryFileSystem):
    """File system that caches listings, as those of object stores do.

    It does not see later writes of others.
    """

    protocol = "remembering"
    store: dict = {}  # noqa: RUF012
    pseudo_dirs = [""]  # noqa: RUF012

    def ls(self, path, detail=True, **options):
        path = self._strip_protocol(path).rstrip("/")
        if path not in self.dircache:
            self.dircache[path] = super().ls(path, detail=True, **options)
        return [each if detail else each["name"] for each in self.dircache[path]]

    def info(self, path, **options):
        path = self._strip_protocol(path)
        listed = self.dircache.get(path.rpartition("/")[0])
        if listed is None:
            return super().info(path, **options)
        found = [each for each in listed if each["name"] == path]
        if not found:
            raise FileNotFoundError(path)
        return found[0]

    def isfile(self, path):
        return self.exists(path) and self.info(path)["type"] == "file"

    def exists(self, path, **options):
        try:
            return bool(self.info(path))
        except FileNotFoundError:
            return False

    def invalidate_cache(self, path=None):
        path = self._strip_protocol(path or "/")
        for each in (path, path.rpartition("/")[0]):
            self.dircache.pop(each, None)


def test_what_others_wrote_since_a_folder_was_listed_is_seen(threads, frame):
    fsspec.register_implementation("remembering", RememberingFileSystem, clobber=True)
    url = "remembering://folder/log"
    with DistributedIndex.build(frame[:300], on="count", client=threads, durable=url) as index:
        index.insert(frame[300:])
        RememberingFileSystem().ls(url)
        index.save(url)
        assert len(Folder(url).names()) == 4
    with DistributedIndex.load(url, threads) as loaded:
        assert len(loaded) == len(frame)


def test_a_disk_that_fills_up_leaves_nothing(threads, frame):
    fsspec.register_implementation("full", FullFileSystem, clobber=True)
    with DistributedIndex.build(frame, on="count", client=threads) as index:
        with pytest.raises(OSError, match="No space left"):
            index.save("full://folder/saved")
        files = FullFileSystem().find("/")
        assert [file for file in files if "saved" in file] == []
        assert len(index) == len(frame)
        with pytest.raises(FormatError):
            DistributedIndex.load("full://folder/saved", threads)


def test_a_local_save_that_fails_leaves_what_was_there(threads, frame, tmp_path, monkeypatch):
    with DistributedIndex.build(frame, on="count", client=threads) as index:
        index.save(tmp_path / "good")
        before = sorted((tmp_path / "good").iterdir())

        def full(*args):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("dgpuhash.distributed.storage.folder.Folder.replace", full)
        for name in ("good", "new"):
            with pytest.raises(OSError, match="No space left"):
                index.save(tmp_path / name)
    assert sorted((tmp_path / "good").iterdir()) == before
    assert [path.name for path in tmp_path.iterdir()] == ["good"]
    with DistributedIndex.load(tmp_path / "good", threads) as loaded:
        assert len(loaded) == len(frame)


def test_an_interrupted_save_or_insert_leaves_what_was_there(threads, frame, tmp_path, monkeypatch):
    where = tmp_path / "log"
    with DistributedIndex.build(frame[:300], on="count", client=threads, durable=where) as index:

        def files():
            # A save at a log begins with a record without rows.
            return {path.name for path in where.iterdir() if path.suffix != ".record"}

        before = files()
        for module, verb in (
            (checkpoint, lambda: index.save(where)),
            (log, lambda: index.insert(frame[300:])),
        ):
            with monkeypatch.context() as patched:
                patched.setattr(module, "write_rows", interrupting(module.write_rows))
                with pytest.raises(KeyboardInterrupt):
                    verb()
            assert len(index) == 300
            assert files() == before


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), KeyboardInterrupt()])
@pytest.mark.parametrize("place", ["saved", "log", "new", "empty", "memory://interrupted"])
def test_a_save_that_fails_when_its_manifest_is_there(
    threads, frame, tmp_path, monkeypatch, place, error
):
    """What that names stays, or what was there before does."""
    log = tmp_path / "log"
    where = place if "://" in place else f"{tmp_path}/{place}"
    (tmp_path / "empty").mkdir()
    if "://" in where:
        Folder(where).remove(Folder(where).names())
    with DistributedIndex.build(frame[:300], on="count", client=threads, durable=log) as index:
        if place in ("saved", "memory://interrupted"):
            index.save(where)
        index.insert(frame[300:])
        wanted = Folder(where)
        replace, create, rename = Folder.replace, Folder.create, Folder.rename

        def failing(whole, last):
            def put(folder, *args):
                whole(folder, *args)
                if last(folder, *args):
                    raise error

            return put

        def is_manifest(folder, name, *_):
            return folder.url == wanted.url and name == "manifest.json"

        with monkeypatch.context() as patch:
            patch.setattr(Folder, "replace", failing(replace, is_manifest))
            patch.setattr(Folder, "create", failing(create, is_manifest))
            patch.setattr(Folder, "rename", failing(rename, lambda *_: True))
            with pytest.raises(type(error)):
                index.save(where)
    for folder in (where, log):
        with DistributedIndex.load(folder, threads) as loaded:
            assert len(loaded) == len(frame)
    assert not list(tmp_path.glob("*.part"))


def test_a_name_that_is_there_is_filled_in_place(threads, frame, tmp_path, monkeypatch):
    """It may be the working folder of somebody, or a link."""
    for name in ("here", "far"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("far")
    monkeypatch.chdir(tmp_path / "here")
    with DistributedIndex.build(frame, on="count", client=threads) as index:
        for where in (".", tmp_path / "link"):
            index.save(where)
            index.save(where)
            with DistributedIndex.load(where, threads) as loaded:
                assert len(loaded) == len(frame)
    assert Path.cwd() == tmp_path / "here"
    assert len(list((tmp_path / "far").iterdir())) == len(list(Path.cwd().iterdir())) == 4


@pytest.mark.parametrize("there", [True, False])
def test_two_that_begin_in_one_folder(tmp_path, there):
    """The second is refused, and leaves nothing of its own."""
    path = tmp_path if there else tmp_path / "new"

    def write(name):
        def rows(folder):
            with folder.writing(name) as file:
                file.write(b"rows")
            if name == "second":
                Folder(path).fill(["first"], "last", write("first"), fresh=True)
            return name.encode()

        return rows

    with pytest.raises(ExistsError, match="at the same time; choose another place"):
        Folder(path).fill(["second"], "last", write("second"), fresh=True)
    assert sorted(each.name for each in path.iterdir()) == ["first", "last"]
    assert (path / "last").read_bytes() == b"first"
    assert there or list(tmp_path.iterdir()) == [path]


def test_the_names_of_all_new_folders_are_on_the_disk(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr("dgpuhash.distributed.storage.folder._sync", synced.append)
    Folder(tmp_path / "a" / "b" / "log").fill([], "last", lambda folder: b"", fresh=True)
    assert {str(tmp_path), f"{tmp_path}/a", f"{tmp_path}/a/b"} <= set(synced)


SAVER = """
import os, pathlib, signal, sys
from distributed import Client
from dgpuhash.distributed import DistributedIndex

pathlib.Path.replace = lambda *args: os.kill(os.getpid(), signal.SIGKILL)
with Client(sys.argv[1]) as client:
    DistributedIndex.open("kept", client).save(sys.argv[2])
"""


@pytest.mark.parametrize("kind", ["fresh", "replaced", "logged"])
def test_the_next_save_removes_what_a_killed_client_left(processes, frame, tmp_path, kind):
    where, fresh = tmp_path / "saved", kind == "fresh"
    durable = where if kind == "logged" else None
    with DistributedIndex.build(
        frame, on="count", client=processes, name="kept", durable=durable
    ) as index:
        if kind == "replaced":
            index.save(where)
        program = [sys.executable, "-c", SAVER, processes.scheduler.address, where]
        assert subprocess.run(program, timeout=120).returncode == -signal.SIGKILL
        shards = [path for path in tmp_path.rglob("shard-*") if path.is_file()]
        assert len(shards) == (2 if fresh else 4)
        index.save(where)
        assert [path.name for path in tmp_path.iterdir()] == ["saved"]
        assert len(list(where.iterdir())) == 3
    with DistributedIndex.load(where, processes) as loaded:
        assert len(loaded) == len(frame)


def test_a_failure_is_told_though_its_folder_is_not_removed_at_once(tmp_path, monkeypatch):
    """As where a worker that goes on puts a file there meanwhile."""
    rmdir, refused = os.rmdir, []

    def rmdir_later(path, **options):
        if not refused:
            refused.append(path)
            raise OSError(errno.ENOTEMPTY, "Directory not empty")
        rmdir(path, **options)

    def write(folder):
        with folder.writing("rows") as file:
            file.write(b"rows")
        raise IndexLost("a worker is gone")

    monkeypatch.setattr(os, "rmdir", rmdir_later)
    with pytest.raises(IndexLost, match="a worker is gone"):
        Folder(tmp_path / "saved").fill(["rows"], "last", write, fresh=True)
    assert refused
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("values", "error", "hint"),
    [([1, "two"], UnsupportedError, "Arrow"), (["a", "\ud800"], KeyTypeError, "not valid UTF-8")],
)
def test_columns_that_arrow_cannot_hold_are_refused(threads, tmp_path, values, error, hint):
    # In one shard.
    frame = pd.DataFrame({"k": [1, 1], "v": pd.Series(values, dtype=object)})
    with (
        DistributedIndex.build(frame, on="k", client=threads) as index,
        pytest.raises(error, match=hint),
    ):
        index.save(tmp_path / "refused")
    assert list(tmp_path.iterdir()) == []


class Server(MemoryFileSystem):
    """File system like HTTP's, whose server can refuse requests.

    It can also hide the list of files, or their sizes.
    """

    protocol = "server"
    lists = says_sizes = True
    refused = "nothing"

    def ls(self, path, detail=True, **options):
        found = self._told(path) or super().ls(path, detail=detail, **options)
        return found if self.lists else []

    def size(self, path):
        return super().size(path) if self.says_sizes else None

    def cat_file(self, path, **options):
        return self._told(path) or super().cat_file(path, **options)

    def _open(self, path, mode="rb", **options):
        return self._told(path) or super()._open(path, mode, **options)

    def _told(self, path):
        if self.refused in path:
            raise LookupError("403 Forbidden")


@pytest.fixture
def server(monkeypatch) -> type[Server]:
    fsspec.register_implementation("server", Server, clobber=True)
    monkeypatch.setattr(Server, "store", {})
    monkeypatch.setattr(Server, "pseudo_dirs", [""])
    return Server


def test_a_log_whose_files_are_not_listed_is_refused(threads, frame, server, monkeypatch):
    """Or its changes would be left out."""
    url = "server://folder/log"
    with DistributedIndex.build(frame[:300], on="count", client=threads, durable=url) as index:
        index.insert(frame[300:])
        index.save("server://folder/saved")
    monkeypatch.setattr(server, "lists", False)
    with pytest.raises(FormatError, match=r"does not list its files.*copy of that folder"):
        DistributedIndex.load(url, threads)
    with DistributedIndex.load("server://folder/saved", threads) as loaded:
        assert len(loaded) == len(frame)
    monkeypatch.setattr(server, "refused", "/folder/log")
    monkeypatch.setattr(server, "_open", MemoryFileSystem._open)
    monkeypatch.setattr(server, "cat_file", MemoryFileSystem.cat_file)
    with pytest.raises(FormatError, match=r"server://folder/log cannot be read .*403"):
        DistributedIndex.load(url, threads)


def test_sizes_that_a_server_does_not_say(threads, frame, server, monkeypatch):
    with DistributedIndex.build(frame, on="count", client=threads) as index:
        index.save("server://saved")
    monkeypatch.setattr(server, "says_sizes", False)
    with DistributedIndex.load("server://saved", threads) as loaded:
        assert len(loaded) == len(frame)


@pytest.mark.parametrize("refused", ["manifest.json", "shard-"])
def test_what_a_server_does_not_send(threads, frame, server, monkeypatch, refused):
    with DistributedIndex.build(frame, on="count", client=threads) as index:
        index.save("server://saved")
    monkeypatch.setattr(server, "refused", refused)
    with pytest.raises(FormatError, match=rf"{refused}.* cannot be read.*403.*simplecache::"):
        DistributedIndex.load("server://saved", threads)


def test_a_damaged_archive(threads, saved):
    archive = Path(shutil.make_archive(str(saved), "zip", saved.parent, saved.name))
    url, whole = f"zip://{saved.name}::{archive}", archive.read_bytes()
    with zipfile.ZipFile(archive) as zipped:
        entries = {Path(each.filename).name: each for each in zipped.infolist()}
        directory = zipped.start_dir
    manifest, shard = entries["manifest.json"], next(map(entries.get, sorted(entries)[1:]))
    own = f"{saved.name}/manifest.json".encode()
    places = {
        "a shard's bytes": (_data_of(shard) + shard.compress_size // 2, "cannot be read"),
        "the manifest's bytes": (_data_of(manifest) + manifest.compress_size // 2, "cannot be"),
        "the manifest's header": (manifest.header_offset, "cannot be read"),
        "its name there": (manifest.header_offset + 31, "cannot be read"),
        "its name in the directory": (whole.index(own, directory) + 8, "no saved index|cannot be"),
        "the archive's end": (len(whole) - 22, "cannot be read"),
    }
    for place, message in places.values():
        data = bytearray(whole)
        data[place] ^= 0xFF
        archive.write_bytes(data)
        with pytest.raises(FormatError, match=message):
            DistributedIndex.load(url, threads)


def _data_of(entry: zipfile.ZipInfo) -> int:
    """Return the offset of a file's bytes, after its header and name.

    The header has 30 bytes.
    """
    return entry.header_offset + 30 + len(entry.filename)


def test_a_name_that_would_be_cut_off_is_refused(threads, frame, tmp_path):
    with DistributedIndex.build(frame, on="count", client=threads) as index:
        for url in (tmp_path / "saved::2", f"file://{tmp_path}/saved::2"):
            with pytest.raises(SpecError, match="choose a name without"):
                index.save(url)
    assert not list(tmp_path.iterdir())
