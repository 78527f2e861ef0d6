"""Maintenance of distributed tables: contents, growth, copy, save, loss."""

from __future__ import annotations

import copy
import gc
import json
import os
import subprocess
import sys
import threading
from contextlib import suppress

import dask.array as da
import numpy as np
import pyarrow as pa
import pytest
from clusters import cluster_of, interrupting, kill, parts_held, until
from distributed import futures_of, wait

from dgpuhash.distributed import DistributedMap, DistributedMultiMap, DistributedSet
from dgpuhash.distributed.shards import table_store as hosted
from dgpuhash.distributed.shards.table_shard import TableShard
from dgpuhash.distributed.storage.arrow_files import delayed_batches
from dgpuhash.distributed.tables import base, contents
from dgpuhash.distributed.tables.leases import TableLease
from dgpuhash.errors import (
    ClosedError,
    ExistsError,
    FormatError,
    IndexLost,
    OutOfMemoryError,
    SpecError,
    UnsupportedError,
)
from dgpuhash.tables import MultiMap
from dgpuhash.tables.arguments.checksums import body_digest

pytestmark = pytest.mark.cluster

DTYPES = [
    ("int64", "float32"),
    ("float32", "bool"),
    ("datetime64[ns]", "datetime64[D]"),
    ("timedelta64[h]", "S5"),
    ("uint8", "complex128"),
    ("int16", np.dtype([("a", "i2"), ("b", "f8")])),
    ("float16", "float16"),
]


def pairs_of(key, value, n=200):
    """Return distinct keys, and values."""
    keys = np.arange(n).astype("i8" if key == "datetime64[ns]" else "i4").astype(key)
    keys = np.unique(keys)
    raw = np.random.default_rng(5).integers(0, 2, (len(keys), np.dtype(value).itemsize), "u1")
    return keys, raw.view(value).reshape(len(keys))


def rows(*columns):
    """Return the rows of columns, sorted."""
    return sorted(zip(*(np.asarray(column).tolist() for column in columns), strict=True), key=repr)


# The cluster over UCXX serves all modules, so its workers hold more than the tables of one test.
FRESH = pytest.mark.parametrize("client", ["threads", "processes"], indirect=True)


def test_contents_lie_on_the_workers(client):
    keys = da.random.default_rng(1).integers(0, 500, 3000, chunks=700).persist()
    with DistributedMap.from_arrays(keys, keys * 3, client=client) as table:
        stored, values = table.items()
        table.upsert(keys, -keys)
        assert stored.chunks == values.chunks
        assert stored.chunks[0] == tuple(table.stats()["size"])
        wait(stored)
        where = client.who_has(futures_of(stored))
        assert {number: list(held) for (_, number), held in where.items()} == {
            rank: [worker] for rank, worker in enumerate(table.workers)
        }
        wanted = np.unique(keys.compute())
        assert np.sort(stored.compute()).tolist() == wanted.tolist()
        assert (values == stored * 3).all().compute()
        assert np.sort(table.keys().compute()).tolist() == wanted.tolist()
        assert table.values().sum().compute() == -wanted.sum()
        assert table.find(table.keys())[1].all().compute()


@pytest.mark.parametrize(("key", "value"), DTYPES)
def test_contents_and_saves_of_all_dtypes(threads, tmp_path, key, value):
    keys, values = pairs_of(key, value)
    with DistributedMap(key, value) as table:
        table.insert(keys, values)
        assert rows(*(column.compute() for column in table.items())) == rows(keys, values)
        table.save(tmp_path / "saved")
        with DistributedMap.load(tmp_path / "saved", workers=table.workers[:2]) as loaded:
            assert (loaded.key_dtype, loaded.value_dtype) == (table.key_dtype, table.value_dtype)
            assert len(loaded.workers) == 2
            assert rows(*(column.compute() for column in loaded.items())) == rows(keys, values)


def test_set(client, tmp_path):
    with DistributedSet.from_keys(np.array([np.nan, -0.0, 1.5, np.nan]), client=client) as table:
        assert len(table.items()) == 3
        assert sorted(table.keys().compute().tolist(), key=repr) == [
            0.0,
            1.5,
            pytest.approx(np.nan, nan_ok=True),
        ]
        table.save(tmp_path / "saved")
        with DistributedSet.load(tmp_path / "saved", client=client) as loaded:
            assert loaded.contains([np.nan, 0.0, 1.5, 2.5]).tolist() == [True, True, True, False]


def test_lists_keep_their_order(client, tmp_path):
    random = np.random.default_rng(0)
    keys, values = random.integers(0, 40, 5000), np.arange(5000)
    wanted = MultiMap.from_arrays(keys, values).find(np.arange(45))
    with DistributedMultiMap.from_arrays(keys, values, client=client) as table:
        assert table.n_keys == 40
        assert len(table.keys()) == 40
        assert np.sort(table.keys().compute()).tolist() == list(range(40))
        stored, lists = (column.compute() for column in table.items())
        assert (keys[lists] == stored).all()
        assert (lists == table.values().compute()).all()
        again = MultiMap.from_arrays(stored, lists).find(np.arange(45))
        assert [column.tolist() for column in again] == [column.tolist() for column in wanted]
        table.save(tmp_path / "saved")
        for workers in (1, len(table.workers)):
            with DistributedMultiMap.load(
                tmp_path / "saved", client=client, workers=table.workers[:workers]
            ) as loaded:
                again = loaded.find(np.arange(45))
                assert [one.tolist() for one in again] == [one.tolist() for one in wanted]


def test_lists_are_brought_together(threads):
    keys = np.arange(2000)
    with DistributedMultiMap("int64", "int64") as table:
        for step in range(4):
            table.insert(keys, keys + step)
        before = table.find(keys)[0].tolist()
        grown = table.nbytes
        table.compact()
        assert table.nbytes == table.stats()["nbytes"].sum() < grown
        assert table.find(keys)[0].tolist() == before


def test_contents_of_an_empty_table(threads, tmp_path):
    with DistributedMap("int64", "S3") as table:
        assert [column.compute().tolist() for column in table.items()] == [[], []]
        table.save(tmp_path / "saved")
        with DistributedMap.load(tmp_path / "saved") as loaded:
            assert len(loaded) == 0
            assert loaded.insert([1], np.array([b"abc"])).all()


def test_contents_that_fail_leave_nothing(threads, monkeypatch):
    items, failing = TableShard.items, []

    def fail(self):
        failing.append(self)
        if len(failing) == 2:
            raise OutOfMemoryError("on purpose")
        return items(self)

    with DistributedSet.from_keys(np.arange(100)) as table:
        monkeypatch.setattr(TableShard, "items", fail)
        with pytest.raises(OutOfMemoryError, match="on purpose"):
            table.keys()
        until(lambda: not any(
            "-keys-" in str(key)
            for held in threads.run(lambda dask_worker: list(dask_worker.data)).values()
            for key in held
        ))  # fmt: skip
        assert len(table) == 100


@FRESH
def test_room_and_copies(client):
    keys = np.arange(3000)
    with DistributedMap("int64", "int64", client=client) as table:
        table.reserve(3000)
        table.insert(keys[:10], keys[:10])
        capacity = table.stats()["capacity"].tolist()
        table.insert(keys, keys)
        assert table.stats()["capacity"].tolist() == capacity
        table.reserve(50_000)
        assert table.stats()["capacity"].sum() >= 50_000
        assert table.epoch == 2
        with pytest.raises(SpecError, match="reserve"):
            table.reserve(-1)
        for copied in (table.copy(), copy.copy(table), copy.deepcopy(table)):
            with copied:
                assert copied.workers == table.workers
                copied.erase(keys[:100])
                table.upsert(keys[:1], keys[:1] + 7)
                assert (len(copied), len(table)) == (2900, 3000)
                assert copied.find([0, 500])[1].tolist() == [False, True]
        assert table.find([0])[0].tolist() == [7]
        until(lambda: parts_held(client) == [len(table.workers)] * 2)


def test_a_save_is_read_by_arrow_and_replaced(threads, tmp_path):
    folder = tmp_path / "saved"
    with DistributedMap.from_arrays(np.arange(1000), np.arange(1000) / 8) as table:
        table.save(folder)
        first = sorted(path.name for path in folder.iterdir())
        table.erase(np.arange(500))
        table.save(str(folder))
        names = sorted(path.name for path in folder.iterdir())
        assert len(names) == len(first) == 4
        assert set(names) & set(first) == {"manifest.json"}
        read = pa.concat_tables(
            pa.ipc.open_file(path).read_all() for path in folder.glob("*.arrow")
        )
        assert read.schema == pa.schema([("key", pa.int64()), ("value", pa.float64())])
        assert sorted(read["key"].to_pylist()) == list(range(500, 1000))
        with pytest.raises(ExistsError, match="holds no saved table; choose another place"):
            table.save(tmp_path)
        with pytest.raises(FormatError, match="a map and not a set"):
            DistributedSet.load(folder)
        with pytest.raises(FormatError, match="contains no saved table"):
            DistributedMap.load(tmp_path)
        memory = "memory://tables/saved"
        # A file system of this process, which threads share.
        table.save(memory)
        with DistributedMap.load(memory) as loaded:
            assert len(loaded) == 500


def forge(folder, change):
    """Change the manifest's body and correct its checksum."""
    path = folder / "manifest.json"
    whole = json.loads(path.read_text())
    change(whole["table"])
    whole["blake2b"] = body_digest(whole["table"])
    path.write_text(json.dumps(whole))


@pytest.mark.parametrize("damage", ["bytes", "size", "claim", "file", "kind", "doubles", "column"])
def test_damaged_saves_are_refused(threads, tmp_path, damage):
    folder = tmp_path / "saved"
    with DistributedMap.from_arrays(np.arange(1000), np.arange(1000)) as table:
        table.save(folder)
    part = sorted(folder.glob("*.arrow"))[0]
    if damage == "bytes":
        data = bytearray(part.read_bytes())
        data[len(data) // 2] ^= 1
        part.write_bytes(data)
    elif damage == "size":
        part.write_bytes(part.read_bytes()[:-1])
    elif damage == "claim":
        forge(folder, lambda body: body.update(size=body["size"] + 1))
    elif damage == "file":
        forge(folder, lambda body: body["parts"][0].update(file="../x"))
    elif damage == "kind":
        forge(folder, lambda body: body.update(spec=body["spec"].replace("map", "heap")))
    elif damage == "column":
        forge(folder, lambda body: body.update(spec=body["spec"].replace("<i8", "<u8", 1)))
    else:
        forge(folder, lambda body: body.update(
            parts=[body["parts"][0]] * 2, size=2 * sum(body["parts"][0]["batches"])
        ))  # fmt: skip
    with pytest.raises(FormatError, match="damaged"):
        DistributedMap.load(folder)
    until(lambda: parts_held(threads) == [0, 0])


def test_saved_to_while_it_is_loaded(threads, tmp_path, monkeypatch):
    """A save removes the files that it replaces, which is no damage."""
    with DistributedMap.from_arrays(np.arange(1000), np.arange(1000)) as table:
        table.save(tmp_path / "saved")
        saves = iter([table.save] * 2)

        def meanwhile(*args):
            for save in saves:
                save(tmp_path / "saved")
                break
            return delayed_batches(*args)

        monkeypatch.setattr("dgpuhash.distributed.tables.saved.delayed_batches", meanwhile)
        with DistributedMap.load(tmp_path / "saved") as loaded:
            assert len(loaded) == 1000
    assert not list(saves)
    until(lambda: parts_held(threads) == [0, 0])


def test_a_place_that_workers_do_not_share_is_refused(processes):
    with DistributedSet.from_keys(np.arange(100)) as table:
        with pytest.raises(UnsupportedError, match=r"does not see.*network file system"):
            table.save("memory://apart")
        with pytest.raises(FormatError, match="contains no saved table"):
            DistributedSet.load("memory://apart")
        assert len(table) == 100


def test_a_save_that_fails_leaves_what_was_there(threads, tmp_path, monkeypatch):
    from dgpuhash.distributed.tables import contents

    folder = tmp_path / "saved"
    write = contents.write_table
    calls = threading.Semaphore(1)

    def full(*args):
        if not calls.acquire(blocking=False):
            raise OSError("no space left on device")
        return write(*args)

    with DistributedSet.from_keys(np.arange(100)) as table:
        for there in (False, True):
            monkeypatch.setattr(contents, "write_table", full)
            with pytest.raises(OSError, match="no space"):
                table.save(folder)
            monkeypatch.undo()
            calls.release()
            assert folder.exists() == there
            assert [path.name for path in tmp_path.iterdir()] == ["saved"] * there
            table.save(folder)
            assert len(list(folder.iterdir())) == 4
        with DistributedSet.load(folder) as loaded:
            assert len(loaded) == 100


def test_an_interrupted_save_waits_for_those_who_write_before_it_removes(
    threads, tmp_path, monkeypatch
):
    folder = tmp_path / "saved"
    with DistributedSet.from_keys(np.arange(100)) as table:
        table.save(folder)
        before = sorted(folder.iterdir())
        with monkeypatch.context() as patched:
            patched.setattr(contents, "write_table", interrupting(contents.write_table))
            with pytest.raises(KeyboardInterrupt):
                table.save(folder)
        # After this nobody is at work.
        assert table.contains(np.arange(100)).all()
        assert sorted(folder.iterdir()) == before


def test_the_next_save_removes_what_workers_wrote_when_nobody_waited(threads, tmp_path):
    folder = tmp_path / "saved"
    with DistributedSet.from_keys(np.arange(100)) as table:
        table.save(folder)
        names = [path.name for path in folder.glob("*.arrow")]
        for name in (names[0].replace("-0000", "-1000"), "part-of-another.arrow"):
            (folder / name).touch()
        table.save(folder)
        left = [path.name for path in folder.iterdir()]
        assert len(left) == len(names) + 2
        assert "part-of-another.arrow" in left


@FRESH
def test_a_dropped_handle_frees_its_parts(client):
    until(lambda: parts_held(client) == [0, 0])
    table = DistributedMap.from_arrays(np.arange(100), np.arange(100), client=client)
    copied = table.copy()
    assert parts_held(client) != [0, 0]
    thread = threading.Thread(target=table.find, args=([1],))
    thread.start()
    thread.join()
    del table, thread
    gc.collect()
    assert len(copied) == 100
    # On the event loop, as the collector may run there.
    handles = [copied]
    del copied
    client.loop.add_callback(handles.clear)
    until(lambda: parts_held(client) == [0, 0])


def test_a_table_that_another_thread_closes_meanwhile(threads, monkeypatch):
    before = parts_held(threads)
    table = DistributedSet.from_keys([1, 2])
    batch_of = base.batch_of

    def late(*args):
        table.close()
        return batch_of(*args)

    monkeypatch.setattr(base, "batch_of", late)
    with pytest.raises(ClosedError, match="was closed"):
        table.contains([1])
    # Its parts are opened after it was closed.
    table = DistributedSet("int64")
    with suppress(ClosedError):
        table.insert([1])
    until(lambda: parts_held(threads) == before)


def test_a_close_that_is_interrupted_is_ended_by_the_collector(threads, monkeypatch):
    def interrupted(self, *args, **kwargs):
        raise KeyboardInterrupt

    before = parts_held(threads)
    table = DistributedSet.from_keys([1, 2])
    with monkeypatch.context() as patched:
        patched.setattr(TableLease, "free", interrupted)
        with pytest.raises(KeyboardInterrupt):
            table.close()
    with pytest.raises(ClosedError):
        table.contains([1])
    del table
    gc.collect()
    until(lambda: parts_held(threads) == before)


def test_a_handle_outlives_its_client():
    with cluster_of(1, processes=False) as client:
        table = DistributedSet.from_keys([1, 2], client=client)
        other = DistributedSet.from_keys([1, 2], client=client)
    other.close()
    del table
    gc.collect()


PROGRAM = """
import sys
from distributed import Client
from dgpuhash.distributed import DistributedSet

client = Client(sys.argv[1])
table = DistributedSet.from_keys([1, 2, 3], client=client)
print(len(table))
"""


def test_a_program_that_ends_frees_its_parts(processes):
    until(lambda: parts_held(processes) == [0, 0])
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM, processes.scheduler.address],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (found.returncode, found.stdout.strip()) == (0, "3"), found.stderr
    assert "Traceback" not in found.stderr
    until(lambda: parts_held(processes) == [0, 0])
    assert processes.run(lambda: True)


PLANNING = """
import sys
import dask.array as da
from distributed import Client
from dgpuhash.distributed import DistributedSet
from dgpuhash.errors import UnsupportedError

table = DistributedSet.from_keys([1, 2, 3], client=Client(sys.argv[1]))
rows = da.arange(9)
for verb, *given in (table.insert, rows), (DistributedSet.from_keys, rows), (table.keys,):
    try:
        verb(*given)
    except UnsupportedError as error:
        assert "array.query-planning is on" in str(error)
        print(len(table), table.contains([3, 4]).tolist())
"""


def test_arrays_that_are_expressions_change_nothing(processes):
    found = subprocess.run(
        [sys.executable, "-c", PLANNING, processes.scheduler.address],
        capture_output=True, text=True, timeout=120, check=False,
        env=os.environ | {"DASK_ARRAY__QUERY_PLANNING": "True"},
    )  # fmt: skip
    wanted = ["3 [True, False]"] * 3
    assert (found.returncode, found.stdout.splitlines()) == (0, wanted), found.stderr


@pytest.fixture
def nannied():
    with cluster_of(3, processes=True) as client, client.as_current():
        yield client


def sizes_before_and_tables(client, table):
    """Return the ids of the workers' tables, to see which were replaced."""
    return client.run(
        lambda dask_worker: [
            id(hosted.part.table) for hosted in dask_worker.plugins["dgpuhash"].tables.values()
        ],
        workers=[worker for worker in table.workers if worker in client.nthreads()],
    )


def test_lost_parts_alone_are_rebuilt(nannied, tmp_path):
    keys = np.arange(3000)
    with DistributedMap.from_arrays(keys, keys * 2) as table:
        with pytest.raises(IndexLost, match="was not saved after its last change"):
            table.rebuild()
        table.save(tmp_path / "saved")
        assert table.rebuild() == ()
        before = sizes_before_and_tables(nannied, table)
        one, two, three = table.workers
        size = table.stats()["size"].tolist()
        kill(nannied, two)
        with pytest.raises(IndexLost, match=r"rebuild\(\)"):
            table.find(keys)
        with pytest.raises(IndexLost, match=r"with a shard is gone.*rebuild\(\)"):
            len(table)
        nannied.wait_for_workers(3, timeout=120)
        with pytest.raises(IndexLost, match=r"rebuild\(\)"):
            table.find(keys)
        for path in sorted((tmp_path / "saved").glob("*.arrow"))[::2]:
            # What is not lost is not read.
            path.write_bytes(bytes(path.stat().st_size))
        assert table.rebuild() == (1,)
        after = sizes_before_and_tables(nannied, table)
        assert [after[one], after[three]] == [before[one], before[three]]
        assert table.workers[::2] == [one, three]
        assert table.stats()["size"].tolist() == size
        values, found = table.find(keys)
        assert found.all()
        assert (values == keys * 2).all()
        assert table.rebuild() == ()
        table.upsert([1], [5])
        with pytest.raises(IndexLost, match="was not saved after its last change"):
            table.rebuild()
        assert len(table) == 3000


def test_a_copy_of_a_table_that_lost_a_worker(nannied):
    with DistributedSet.from_keys(np.arange(100), client=nannied) as table:
        kill(nannied, table.workers[0])
        with pytest.raises(IndexLost, match="make the table again"):
            table.copy()


def test_all_parts_are_rebuilt_on_fewer_workers(tmp_path):
    keys, values = np.arange(3000) % 700, np.arange(3000)
    wanted = MultiMap.from_arrays(keys, values).find(np.arange(700))
    with cluster_of(3, processes=True) as client, client.as_current():
        with DistributedMultiMap.from_arrays(keys, values) as table:
            table.save(tmp_path / "saved")
            gone = table.workers[0]
            client.retire_workers([gone])
            until(lambda: gone not in client.nthreads())
            with pytest.raises(IndexLost):
                len(table)
            assert table.rebuild() == (0, 1)
            assert len(table.workers) == 2
            found = table.find(np.arange(700))
            assert [column.tolist() for column in found] == [each.tolist() for each in wanted]
            assert table.rebuild() == ()
        until(lambda: parts_held(client) == [0, 0])


def test_room_that_could_not_be_made_is_not_asked_for_again(threads, tmp_path, monkeypatch):
    def no_memory(*args):
        raise OutOfMemoryError("on purpose")

    with DistributedSet.from_keys(np.arange(1000)) as table:
        with monkeypatch.context() as patched:
            patched.setattr(contents, "reserve_table_shard", no_memory)
            with pytest.raises(OutOfMemoryError):
                table.reserve(10**12)
        table.save(tmp_path / "saved")
        threads.run(lambda dask_worker: dask_worker.plugins["dgpuhash"].tables.clear())
        assert len(table.rebuild()) == len(table.workers)
        assert table.contains(np.arange(1000)).all()
        table.reserve(5_000)


def test_room_that_was_reserved_before_there_is_data(threads):
    with DistributedSet("int64", client=threads) as table:
        table.reserve(2**47)
        with pytest.raises(OutOfMemoryError, match="smaller capacity"):
            table.insert(np.arange(10))
        assert table.insert(np.arange(10)).all()
        assert len(table) == 10


def test_a_clear_that_failed_leaves_the_table_lost(threads, monkeypatch):
    def fails(*args):
        raise KeyError("on purpose")

    with DistributedSet.from_keys(np.arange(10)) as table:
        monkeypatch.setattr(hosted, "clear_table_shard", fails)
        with pytest.raises(KeyError):
            table.clear()
        with pytest.raises(IndexLost, match="its clear failed"):
            table.contains([1])
        with pytest.raises(IndexLost, match="its clear failed"):
            table.clear()


def test_a_change_that_failed_is_taken_back_by_a_rebuild(threads, tmp_path, monkeypatch):
    serve = TableShard.serve

    def no_memory(self, verb, columns, counts, to):
        if verb.changes and (columns[0] == 5).any():
            raise OutOfMemoryError("on purpose")
        return serve(self, verb, columns, counts, to)

    with DistributedSet.from_keys(np.arange(100)) as table:
        table.save(tmp_path / "saved")
        monkeypatch.setattr(TableShard, "serve", no_memory)
        with pytest.raises(OutOfMemoryError):
            table.erase(np.arange(10))
        with pytest.raises(OutOfMemoryError):
            table.rebuild()
        monkeypatch.undo()
        with pytest.raises(IndexLost, match="rebuild"):
            table.contains([5])
        assert table.rebuild() != ()
        assert table.contains(np.arange(100)).all()
        assert len(table) == 100
        table.save(tmp_path / "saved")
        with DistributedSet.from_keys([1]) as other:
            with pytest.raises(FileExistsError, match=r"another saved table.*overwrite=True"):
                other.save(tmp_path / "saved")
            other.save(tmp_path / "saved", overwrite=True)
        threads.run(lambda dask_worker: dask_worker.plugins["dgpuhash"].tables.clear())
        with pytest.raises(FormatError, match="holds another state"):
            table.rebuild()
    with pytest.raises(ClosedError):
        table.rebuild()
