"""Distributed sets, maps and multimaps on threads and processes."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import pickle
import re
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from html import escape
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import cluster_of, parts_held, set_status, until
from distributed import Client, Status, futures_of, wait
from distributed.client import FutureCancelledError

from dgpuhash.backend.cpu import CpuBackend
from dgpuhash.distributed import DistributedMap, DistributedMultiMap, DistributedSet
from dgpuhash.distributed.cluster import scheduler
from dgpuhash.distributed.cluster.broadcast import run_on_workers
from dgpuhash.distributed.cluster.device_thread import DeviceThread
from dgpuhash.distributed.collective.dask_comm import CommCollective
from dgpuhash.distributed.pipeline.verb import VerbExecution
from dgpuhash.distributed.shards import table_store
from dgpuhash.distributed.shards.plugin import ShardHost
from dgpuhash.distributed.shards.table_shard import TableShard
from dgpuhash.distributed.tables import base, batch
from dgpuhash.distributed.tables.batch import HostBatch, KeyBatch
from dgpuhash.errors import (
    ClosedError,
    DeviceError,
    IndexLost,
    KeyTypeError,
    OutOfMemoryError,
    ShapeError,
    SpecError,
    UnsupportedError,
)
from dgpuhash.tables import HashMap, MultiMap
from dgpuhash.tables.arguments.interop import as_argument
from dgpuhash.tables.open_addressing import batch_insert, cardinality
from dgpuhash.tables.open_addressing.bulk_stream import StreamedBuild
from dgpuhash.tables.open_addressing.slots import Slots
from dgpuhash.tables.stats import format_bytes

pytestmark = pytest.mark.cluster


def lists_of(keys, values, asked):
    """Return the answer of a local multimap."""
    return MultiMap.from_arrays(keys, values).find(asked)


def places_of(client, array):
    """Return the workers of each chunk."""
    held = client.who_has(futures_of(array))
    return {number: tuple(where) for (_, number), where in held.items()}


def test_answers_stay_with_their_questions(client):
    keys = client.persist(da.random.default_rng(1).integers(0, 500, 3000, chunks=(700, 0, 2300)))
    wait(keys)
    with DistributedMap.from_arrays(keys, keys * 3, client=client) as table:
        assert len(table) == len(np.unique(keys.compute()))
        asked = client.persist(da.arange(400, 600, chunks=90))
        values, found = table.find(asked, default=-1)
        assert values.chunks == found.chunks == asked.chunks
        assert values.dtype == np.int64
        assert places_of(client, values) == places_of(client, asked)
        wanted = np.arange(400, 600)
        there = np.isin(wanted, keys.compute())
        assert found.compute().tolist() == there.tolist()
        assert values.compute().tolist() == np.where(there, wanted * 3, -1).tolist()
        assert table.contains(asked).compute().tolist() == there.tolist()
        assert table.count(asked).compute().tolist() == there.astype(int).tolist()
        fresh = table.insert(asked, asked)
        assert int(fresh.sum().compute()) == (~there).sum()
        table.upsert(asked, -asked)
        assert table.find(asked)[0].compute().tolist() == (-wanted).tolist()
        assert int(table.erase(asked).sum().compute()) == 200
        assert not table.contains(asked).compute().any()
        assert table.epoch == 4


def test_answers_are_freed_with_their_arrays(processes):
    def kept():
        held = processes.run(lambda dask_worker: [key[0] for key in dask_worker.data])
        return [name for names in held.values() for name in names if "-contains-" in name]

    with DistributedSet.from_keys(np.arange(100)) as table:
        answer = table.contains(da.arange(50, chunks=10))
        assert len(kept()) == 5
        del answer
        gc.collect()
        until(lambda: not kept())


def test_arrays_of_the_client(client):
    labels = pd.Index([5, 3, 9])
    with DistributedMap("int32", "float32", client=client) as table:
        fresh = table.insert(pd.Series([7, 8, 7], labels, "int32"), [1.5, 2.5, 9.5], keep="first")
        pd.testing.assert_series_equal(fresh, pd.Series([True, True, False], labels))
        values, found = table.find(pd.Series([8, 9, 7], labels, "int16"), default=-1)
        pd.testing.assert_series_equal(values, pd.Series([2.5, -1, 1.5], labels, "float32"))
        assert found.tolist() == [True, False, True]
        assert table.find([])[0].shape == (0,)
        values, found = table.find([8])
        assert type(values) is np.ndarray
        many = np.random.default_rng(3).integers(0, 10**6, 50_000).astype(np.int32)
        table.upsert(many, many.astype(np.float32))
        assert (table.find(many)[0] == many).all()
        assert len(table) == len(set(many.tolist()) | {7, 8})


def test_multi_map(client):
    random = np.random.default_rng(0)
    keys, values = random.integers(0, 40, 5000), np.arange(5000)
    asked = random.integers(0, 60, 300)
    wanted, offsets = lists_of(keys, values, asked)
    chunks = (900, 100, 3000, 0, 1000)
    with DistributedMultiMap.from_arrays(
        da.from_array(keys, chunks), da.from_array(values, 1250), client=client, piece_rows=333
    ) as table:
        assert len(table) == 5000
        got = table.find(asked)
        assert got[0].tolist() == wanted.tolist()
        assert got[1].tolist() == offsets.tolist()
        questions = da.from_array(asked, (100, 0, 150, 50))
        values, ends = table.find(questions)
        assert values.compute().tolist() == wanted.tolist()
        assert ends.chunks == ((101, 1, 151, 51),)
        first = 0
        for chunk in ends.blocks:
            lists = chunk.compute()
            assert lists[0] == 0
            assert (
                np.diff(lists).tolist() == np.diff(offsets)[first : first + len(lists) - 1].tolist()
            )
            first += len(lists) - 1
        assert table.count(questions).compute().tolist() == np.diff(offsets).tolist()
        assert int(table.erase(np.arange(20)).sum()) == 20
        assert len(table) == (keys >= 20).sum()


def test_matches_are_pairs_of_rows_and_values(client):
    random = np.random.default_rng(4)
    keys, values = random.integers(0, 60, 200), np.arange(200)
    asked = random.integers(0, 90, 300)
    pairs = pd.DataFrame({"key": asked, "row": np.arange(300)}).merge(
        pd.DataFrame({"key": keys, "value": values}), on="key", how="left"
    ).dropna()  # fmt: skip
    chunks = (0, 100, 150, 50)
    with DistributedMultiMap.from_arrays(keys, values, client=client) as table:
        for given in (asked, da.from_array(asked, chunks)):
            rows, found = table.match(given)
            assert np.asarray(rows).tolist() == pairs["row"].tolist()
            assert np.asarray(found).tolist() == pairs["value"].tolist()
        sizes = [int(pairs["row"].between(first, last).sum()) for first, last in
                 ((0, -1), (0, 99), (100, 249), (250, 299))]  # fmt: skip
        assert rows.chunks == found.chunks == (tuple(sizes),)
        assert [len(column) for column in table.match([99])] == [0, 0]
    words = np.array([f"{number:05}" for number in range(200)], "S5")
    with DistributedMap("int64", "S5", client=client) as table:
        table.insert(keys, words, keep="first")
        local = HashMap("int64", "S5")
        local.insert(keys, words, keep="first")
        wanted = [column.tolist() for column in local.match(asked)]
        assert [column.tolist() for column in table.match(asked)] == wanted
        lazy = table.match(da.from_array(asked, chunks), deduplicate=True, bloom_filter=True)
        assert [column.compute().tolist() for column in lazy] == wanted


def test_set_of_floats(client):
    with DistributedSet("float64", client=client) as table:
        fresh = table.insert(np.array([np.nan, -0.0, np.nan, 0.0, 1.0]))
        assert fresh.sum() == 3
        assert table.contains([np.nan, 0.0, 2.0]).tolist() == [True, True, False]
        table.clear()
        assert len(table) == 0


def test_all_chunks_on_one_worker(client):
    worker = sorted(client.nthreads())[-1]
    keys = da.arange(1000, chunks=100)
    with client.as_current():
        keys = client.persist(keys, workers=[worker], allow_other_workers=False)
        wait(keys)
    with DistributedSet.from_keys(keys, client=client, piece_rows=64) as table:
        assert len(table) == 1000
        assert min(table.stats()["size"]) > 200
        found = table.contains(keys)
        assert found.compute().all()
        assert set(places_of(client, found).values()) == {(worker,)}


def test_chunks_on_workers_without_a_part(threads):
    first, *others = sorted(threads.nthreads())
    keys = threads.persist(da.arange(100, chunks=10), workers=others, allow_other_workers=False)
    wait(keys)
    with DistributedMap.from_arrays(keys, keys, workers=[first]) as table:
        assert table.workers == [first]
        values, found = table.find(keys)
        assert found.compute().all()
        assert values.compute().tolist() == list(range(100))


def test_chunks_of_unknown_length(threads):
    keys = da.arange(100, chunks=30)
    keys = keys[keys % 3 == 0]
    with DistributedMap.from_arrays(keys, keys + 1, client=threads) as table:
        assert len(table) == 34
        values, _ = table.find(keys)
        assert values.compute().tolist() == list(range(1, 101, 3))


def test_stats_and_repr(threads):
    with DistributedMap("int64", "int64", 3000, piece_rows=np.int64(500)) as table:
        assert repr(table) == (
            "<DistributedMap int64 -> int64: 0 pairs, 0 B, distributed over 3 workers, "
            "no device yet, exchange comm, epoch 0>"
        )
        table.insert(np.arange(3000), np.arange(3000))
        stats = table.stats()
        held = f"3,000 pairs, {format_bytes(int(stats['nbytes'].sum()))}"
        assert repr(table) == (
            f"<DistributedMap int64 -> int64: {held}, distributed over 3 workers, cpu, "
            "exchange comm, epoch 1>"
        )
        assert escape(repr(table)) in table._repr_html_()
        assert "lines_per_lookup" in table._repr_html_()
        assert stats["part"].tolist() == [0, 1, 2]
        assert stats["worker"].tolist() == table.workers
        assert stats["size"].sum() == 3000
        assert set(stats["device"]) == {"cpu"}
        assert stats["size"].max() <= stats["capacity"].max()
        assert table.device == "cpu"
        # Of five pieces: keys and where they stood, keys that came, and two bytes of answers.
        table.contains(da.arange(30_000, chunks=10_000))
        assert 0 < table.stats()["exchange_nbytes"].max() <= 5 * 500 * (8 + 8 + 8 + 2)
    assert repr(table).endswith("closed>")


def columns_of_html(html: str) -> dict[str, list[str]]:
    names, cells = re.findall("<th>(.*?)</th>", html), re.findall("<td>(.*?)</td>", html)
    return {name: cells[at :: len(names)] for at, name in enumerate(names)}


def test_a_handle_shows_its_parts_without_a_call(threads, monkeypatch):
    keys = np.arange(1000) % 7

    def said(table):
        with monkeypatch.context() as gone:
            gone.setattr(table, "_client", None)
            text, html = repr(table), table._repr_html_()
        assert escape(text) in html
        return text, html

    with DistributedMultiMap("int64", "int64") as table:
        assert "0 pairs of 0 keys" in said(table)[0] and "<table" not in said(table)[1]
        table.insert(keys, keys)
        text, html = said(table)
        assert ": 1,000 pairs of 7 keys, " in text and "lines_per_lookup" not in html
        assert all(f"<td>{worker}</td>" in html for worker in table.workers)
        shown, stats = columns_of_html(html), table.stats()
        for figure in ("part", "worker", "size", "nbytes"):
            assert shown[figure] == stats[figure].astype(str).tolist()
        assert sum(map(int, shown["n_keys"])) == table.n_keys == 7
        assert list(columns_of_html(said(table)[1])) == stats.columns.tolist()
        for change, left in (
            (lambda: table.erase([0]), ": 857 pairs of 6 keys, "),
            (lambda: table.reserve(10**5), ": 857 pairs of 6 keys, "),
            (table.compact, ": 857 pairs of 6 keys, "),
            (table.clear, ": 0 pairs of 0 keys, "),
        ):
            table.stats()
            change()
            text, html = said(table)
            assert left in text and "lines_per_lookup" not in html
        with table.copy() as other:
            assert ": 0 pairs of 0 keys, " in said(other)[0]
    assert said(table)[1].endswith("closed&gt;</p>")


@pytest.mark.parametrize(
    ("keys", "values", "error"),
    [
        (da.ones(5, chunks=2), da.arange(5, chunks=2), KeyTypeError),
        (da.arange(5, chunks=2), da.arange(6, chunks=2), ShapeError),
        (da.ones((5, 1), dtype=int, chunks=2), da.arange(5, chunks=2), ShapeError),
        (da.arange(5, chunks=2), np.arange(5), UnsupportedError),
        (np.arange(5), da.arange(5, chunks=2), UnsupportedError),
        (np.arange(5), np.arange(4), ShapeError),
        (np.arange(5), np.arange(5) * 1j, KeyTypeError),
        (["a"], [1], KeyTypeError),
        (pd.DataFrame({"k": [1]}), [1], ShapeError),
        (da.from_array(np.array(["a"], object), 1), da.arange(1), KeyTypeError),
        ([5], None, ShapeError),
        (da.ma.masked_equal(da.arange(5, chunks=2), 3), da.arange(5, chunks=2), ShapeError),
        (da.arange(5, chunks=2), da.ma.masked_equal(da.arange(5, chunks=2), 3), ShapeError),
    ],
)
def test_what_does_not_fit_changes_nothing(threads, keys, values, error):
    with DistributedMap.from_arrays([1, 2], [3, 4]) as table:
        with pytest.raises(error):
            table.insert(keys, values)
        with pytest.raises(SpecError):
            table.insert([1], [2], keep="best")
        with pytest.raises(KeyTypeError):
            table.find([1], default="x")
        assert table.epoch == 1
        assert table.find([1, 5])[1].tolist() == [True, False]


def test_a_series_is_refused(threads):
    with DistributedSet("int64") as table, pytest.raises(UnsupportedError, match="to_dask_array"):
        table.contains(dd.from_pandas(pd.Series([1]), npartitions=1))


def test_chunks_that_are_not_what_they_say_change_nothing(client):
    honest = da.arange(10, chunks=5)
    lying = honest.map_blocks(lambda chunk: chunk + 0.5, dtype=np.int64, meta=np.zeros(0, int))
    with DistributedSet.from_keys(honest, client=client) as table:
        with pytest.raises(KeyTypeError, match="float64"):
            table.insert(lying)
        assert len(table) == 10
        with pytest.raises(KeyTypeError, match="float64"):
            table.contains(lying)
        assert table.contains(honest).compute().all()
        assert table.insert([99]).tolist() == [True]


@pytest.mark.parametrize(
    ("chunk", "said"),
    [
        (np.arange(3), "a chunk of 3 rows was said to have 2"),
        (np.arange(1), "a chunk of 1 rows was said to have 2"),
        (np.zeros((2, 2), int), "must have one dimension"),
        (5, "a single int"),
        (None, "a single NoneType"),
    ],
)
def test_chunks_of_another_shape_change_nothing(client, chunk, said):
    honest = da.arange(2)
    lying = da.from_delayed(dask.delayed(chunk), shape=(2,), dtype=np.int64)
    with DistributedMap.from_arrays(honest, honest, client=client) as table:
        for verb in (
            lambda: table.insert(lying, honest),
            lambda: table.upsert(honest, lying),
            lambda: table.erase(lying),
            lambda: table.find(lying),
        ):
            with pytest.raises(ShapeError, match=said):
                verb()
        assert table.find(honest)[0].compute().tolist() == [0, 1]
        assert (len(table), table.epoch) == (2, 1)


def test_an_error_that_others_were_told_of_is_waited_for(threads, monkeypatch):
    """The others answer before the rank that has failed, with less."""
    monkeypatch.setattr(scheduler, "ABORT_SECONDS", 0.0)
    run = DeviceThread.run

    async def late(thread, work, *args, **options):
        try:
            return await run(thread, work, *args, **options)
        except ShapeError:
            await asyncio.sleep(0.5)
            raise

    monkeypatch.setattr(DeviceThread, "run", late)
    lying = da.from_delayed(dask.delayed(np.arange(3)), shape=(2,), dtype=np.int64)
    with DistributedSet.from_keys([1, 2]) as table:
        with pytest.raises(ShapeError, match="a chunk of 3 rows"):
            table.contains(lying)
        assert table.contains([2, 3]).tolist() == [True, False]


def test_looking_at_an_empty_table_decides_on_no_device(threads):
    with DistributedMultiMap("int64", "int64") as table:
        assert (len(table), table.n_keys) == (0, 0)
        assert len(table.stats()) == 0
        table.clear()
        assert table.device is None
        table.insert([1, 1], [2, 3])
        assert (len(table), table.n_keys, table.device) == (2, 1, "cpu")
        table.clear()
        assert (len(table), table.n_keys) == (0, 0)
    with pytest.raises(ClosedError):
        len(table)


def test_no_memory_for_the_rows_changes_nothing(threads, monkeypatch):
    def full(self, arrays, first):
        raise MemoryError("on purpose")

    with DistributedSet.from_keys(np.arange(10)) as table:
        monkeypatch.setattr(VerbExecution, "_words", full)
        with pytest.raises(OutOfMemoryError, match="on purpose"):
            table.insert([11])
        monkeypatch.undo()
        assert table.insert([11, 0]).tolist() == [True, False]


def test_no_rows_in_several_chunks(client):
    nothing = da.zeros(0, dtype=np.int64, chunks=((0, 0, 0),))
    for values in (nothing, da.zeros(0, dtype=np.int64)):
        with DistributedMap.from_arrays(nothing, values, client=client) as table:
            assert table.insert(nothing, values).chunks == nothing.chunks
            table.upsert(nothing, values)
            assert len(table) == 0


def test_arrays_of_another_client(processes):
    keys = da.arange(10, chunks=4)
    with (
        DistributedSet.from_keys(keys) as table,
        Client(processes.scheduler.address, set_as_default=False) as other,
        cluster_of(1, processes=False) as elsewhere,
    ):
        assert table.contains(other.persist(keys)).compute(scheduler=processes).all()
        with pytest.raises(UnsupportedError, match=r"another cluster.*client\.compute\(keys\)"):
            table.contains(elsewhere.persist(keys))


def test_a_table_stays_with_its_program(threads):
    said = pytest.raises(UnsupportedError, match="DistributedSet cannot be pickled")
    with DistributedSet.from_keys([1]) as table, said:
        pickle.dumps(table)


def test_a_closed_client(processes):
    with Client(processes.scheduler.address, set_as_default=False) as other:
        table = DistributedSet.from_keys([1], client=other)
    for verb in (lambda: table.contains([1]), lambda: len(table), table.rebuild):
        with pytest.raises(ClosedError, match=r"client of this DistributedSet is closed.*again"):
            verb()
    table.close()


def test_a_task_that_fails_changes_nothing(threads):
    def fail(chunk):
        raise ZeroDivisionError("on purpose")

    keys = da.arange(10, chunks=5)
    with DistributedSet.from_keys(keys) as table:
        with pytest.raises(ZeroDivisionError):
            table.insert(keys.map_blocks(fail, dtype=np.int64, meta=np.zeros(0, int)))
        assert table.contains(keys).compute().all()


@pytest.mark.parametrize("of", ["keys", "values", "source"])
def test_arrays_that_were_cancelled_change_nothing(threads, of):
    # Cancelled chunks of other names than those before.
    keys = da.from_array(np.arange(10), chunks=5, name=f"cancelled {of}").persist()
    values = (keys + 0).persist()
    wait([keys, values])
    with DistributedMap.from_arrays(keys, values) as table:
        threads.cancel(values if of == "values" else keys)
        keys, values = (keys + 1, values + 1) if of == "source" else (keys, values)
        with pytest.raises(UnsupportedError, match=r"cancelled.*persist the array again"):
            table.upsert(keys, values)
        assert table.contains(np.arange(10)).all()
        assert (table.epoch, len(table)) == (1, 10)


def test_a_restart_while_chunks_are_waited_for_is_a_loss(threads, monkeypatch):
    def restarted(client, *args, **kwargs):
        monkeypatch.setattr(client, "generation", client.generation + 1)
        chunk.cancel(reason="scheduler-restart")
        raise IndexLost("the cluster restarted")

    chunk = threads.submit(time.sleep, 0.5)
    monkeypatch.setattr(batch, "run_watched", restarted)
    with pytest.raises(IndexLost, match="the cluster restarted"):
        batch.wait_for_chunks(threads, sorted(threads.nthreads()), [chunk])


def test_a_restart_before_chunks_are_moved_is_a_loss(threads, monkeypatch):
    def restarted(client, *args):
        monkeypatch.setattr(client, "generation", client.generation + 1)
        raise FutureCancelledError("chunk", "scheduler-restart")

    with DistributedSet.from_keys([1]) as table:
        monkeypatch.setattr(base, "batch_of", restarted)
        with pytest.raises(IndexLost, match="are gone; call rebuild"):
            table.contains([1])


def test_a_chunk_that_was_lost_meanwhile_is_waited_for(threads, monkeypatch):
    def fail():
        raise ZeroDivisionError("on purpose")

    futures = [threads.submit(int), threads.submit(fail)]
    attended = batch.run_watched

    def losing(*args: Any, **options: Any) -> Any:
        found = attended(*args, **options)
        if not began:
            began.append(True)
            futures[0]._state.lose()
            threads.loop.call_later(0.2, futures[0]._state.finish)
        return found

    began: list[bool] = []
    monkeypatch.setattr(batch, "run_watched", losing)
    with pytest.raises(ZeroDivisionError):
        batch.wait_for_chunks(threads, list(threads.nthreads()), futures)
    assert futures[0].status == "finished"


def test_a_task_that_runs_out_of_memory_changes_nothing(threads):
    def full(chunk):
        raise MemoryError("on purpose")

    keys = da.arange(10, chunks=5)
    wide = keys.map_blocks(full, dtype=np.int64, meta=np.zeros(0, int))
    said = r"ran out of memory: on purpose; free memory, or process fewer rows at once"
    with pytest.raises(OutOfMemoryError, match=said):
        DistributedMap.from_arrays(wide, wide)
    with DistributedSet.from_keys(keys) as table:
        for verb in (table.insert, table.contains):
            with pytest.raises(OutOfMemoryError, match=said):
                verb(wide)
        assert table.contains(keys).compute().all()


def test_rows_that_no_worker_takes_change_nothing(threads, monkeypatch):
    monkeypatch.setattr(threads, "_timeout", 0.2)
    keys = np.arange(100)
    with DistributedSet("int64") as table:
        table.insert(keys)
        threads.run(set_status, Status.paused)
        try:
            running = threads.cluster.scheduler.running
            until(lambda: not running)
            with pytest.raises(OutOfMemoryError, match="pauses workers whose memory"):
                table.insert(keys + 100)
        finally:
            threads.run(set_status, Status.running)
        until(lambda: len(running) == 3)
        assert len(table) == 100
        assert table.insert(keys + 100).all()


def test_no_chunk_goes_to_a_worker_that_is_paused(threads):
    first, second, other = sorted(threads.nthreads())
    running = threads.cluster.scheduler.running
    keys = da.arange(60, chunks=10)
    apart = threads.persist(keys + 30, workers=[other])
    there = threads.persist(keys + 0, workers=[first])
    both = threads.persist(keys + 1, workers=[first])
    wait([apart, there, both])
    threads.replicate(futures_of(both), workers=[first, other])
    with DistributedMap("int64", "int64", workers=[first, second]) as table:
        threads.run(set_status, Status.paused, workers=[first])
        try:
            until(lambda: len(running) == 2)
            table.upsert(there, apart)
            assert table.contains(da.concatenate([there, apart, both])).sum().compute() == 149
        finally:
            threads.run(set_status, Status.running, workers=[first])
            until(lambda: len(running) == 3)


def test_answers_that_the_client_has_no_memory_for(threads, monkeypatch):
    def full(*arguments):
        raise MemoryError("on purpose")

    with DistributedSet.from_keys(np.arange(10)) as table:
        monkeypatch.setattr(HostBatch, "answer", full)
        with pytest.raises(OutOfMemoryError, match="DistributedSet ran out of memory: on purpose"):
            table.contains([1])


def test_arrays_of_the_client_are_whole_before_another_thread_copies_them(threads, monkeypatch):
    done, scattered = [], batch.scatter_to_workers

    def noted(*arguments):
        done.append("scattered")
        return scattered(*arguments)

    monkeypatch.setattr(batch, "scatter_to_workers", noted)
    monkeypatch.setattr(CpuBackend, "synchronize", lambda self: done.append("waited"))
    HostBatch(
        threads, list(threads.nthreads()), as_argument(np.arange(3), "keys"), [np.arange(3)] * 2
    )
    assert done == ["waited", "scattered", "scattered"]


def test_a_change_that_fails_halfway_loses_the_table(threads, monkeypatch):
    serve = TableShard.serve

    def no_memory(self, verb, columns, counts, to):
        if (columns[0] == 5).any():
            raise OutOfMemoryError("on purpose")
        return serve(self, verb, columns, counts, to)

    with DistributedSet.from_keys(np.arange(100)) as table:
        monkeypatch.setattr(TableShard, "serve", no_memory)
        with pytest.raises(OutOfMemoryError, match="on purpose"):
            table.contains(da.arange(10, chunks=4))
        monkeypatch.undo()
        assert table.contains(da.arange(10, chunks=4)).compute().all()
        monkeypatch.setattr(TableShard, "serve", no_memory)
        with pytest.raises(OutOfMemoryError, match="on purpose"):
            table.erase(da.arange(10, chunks=4))
        monkeypatch.undo()
        for verb in (lambda: table.contains([1]), lambda: len(table), table.stats):
            with pytest.raises(IndexLost, match=r"its erase failed.*make the table again"):
                verb()
        assert "lost" in repr(table)
    with DistributedSet.from_keys(np.arange(100)) as table:
        assert len(table) == 100


@pytest.mark.parametrize("step", ["place", "hold", "claim"])
@pytest.mark.parametrize("kind", [OutOfMemoryError, TimeoutError])
def test_rows_that_are_placed_in_part_lose_the_table(threads, monkeypatch, tmp_path, step, kind):
    """A batch that comes range by range is seen whole, or never; a save brings the table back."""
    monkeypatch.setattr(batch_insert, "bulk_pays", lambda *batch: True)
    monkeypatch.setattr(
        cardinality, "new_key_flags", lambda home, *_: home.from_host(np.array([True]))
    )
    target, name = (Slots, "hold") if step == "hold" else (StreamedBuild, step)
    real, failed = getattr(target, name), []

    def failing(self, *args, **options):
        answer = real(self, *args, **options)
        placing = any(each.function == "finish" for each in inspect.stack())
        if not failed and (step != "hold" or placing):
            failed.append(kind)
            raise kind("on purpose")
        return answer

    keys = np.random.default_rng(5).permutation(20_000)
    if step == "claim":
        keys = np.concatenate([keys, keys[:5]])
    with DistributedMap("int64", "int64", 30_000) as table:
        # An erase of nothing decides on the device: a table without keys is saved.
        table.erase(keys[:1])
        table.save(tmp_path / "saved")
        monkeypatch.setattr(target, name, failing)
        with pytest.raises(kind, match="on purpose"):
            table.insert(keys, keys * 3)
        assert failed
        for verb in (
            lambda: table.contains(keys),
            lambda: table.find(keys),
            lambda: table.insert(keys, keys),
            lambda: len(table),
            table.keys,
            table.copy,
            lambda: table.save(tmp_path / "other"),
        ):
            with pytest.raises(IndexLost, match=r"its insert failed.*call rebuild\(\)"):
                verb()
        assert "lost" in repr(table) and "lost" in table._repr_html_()
        assert table.rebuild()
        assert len(table) == 0 and not table.contains(keys[:100]).any()
        assert table.insert(keys, keys * 3).sum() == len(table) == 20_000
        values, found = table.find(keys)
        assert found.all() and (values == keys * 3).all()


def give_up_exchange(host: ShardHost) -> None:
    for end in host.ends.values():
        end.abort("a rank was silent for a while")


@pytest.mark.parametrize("verb", ["find", "insert"])
def test_a_group_that_was_given_up_while_nothing_was_asked(threads, verb):
    keys = np.arange(1000)
    with DistributedMap.from_arrays(keys, keys * 3, client=threads) as table:
        run_on_workers(threads, table.workers, give_up_exchange)
        if verb == "insert":
            assert table.insert(keys + 500, keys).sum() == 500
        assert len(table) == (1500 if verb == "insert" else 1000)
        values, found = table.find(keys[:500])
        assert found.all()
        assert values.tolist() == (keys[:500] * 3).tolist()
        assert "lost" not in repr(table)


def test_a_host_array_for_a_closed_table(threads):
    table = DistributedSet.from_keys([1])
    table.close()
    table.close()
    with pytest.raises(ClosedError):
        table.contains([1])
    held = lambda dask_worker: len(dask_worker.plugins["dgpuhash"].tables)  # noqa: E731
    until(lambda: not any(threads.run(held).values()))


def test_a_device_that_is_not_there(threads):
    with pytest.raises(DeviceError):
        DistributedSet("int64", device="tpu")
    with pytest.raises(SpecError):
        DistributedSet("int64", piece_rows=0)


def test_threads_share_tables(threads):
    tables = [DistributedMap("int64", "int64") for _ in range(2)]
    failed = []

    def work(number):
        try:
            keys = np.arange(number * 100, number * 100 + 100)
            for table in tables if number % 2 else tables[::-1]:
                table.insert(keys, keys)
                assert table.find(keys)[1].all()
        except BaseException as error:
            failed.append(error)

    running = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for each in running:
        each.start()
    for each in running:
        each.join()
    assert not failed
    for table in tables:
        assert len(table) == 400
        table.close()


def test_no_call_waits_on_the_event_loop_of_its_client(threads):
    async def of(call):
        return call()

    def called(call):
        return asyncio.run_coroutine_threadsafe(of(call), threads.loop.asyncio_loop).result(30)

    table = DistributedSet.from_keys([1, 2])
    calls = [lambda: table.contains([1]), table.__len__, table.clear, table.rebuild, table.copy]
    for call in calls:
        with pytest.raises(UnsupportedError, match="off its event loop"):
            called(call)
    assert len(table) == 2
    called(table.close)
    until(lambda: parts_held(threads) == [0, 0])


def test_a_table_in_a_task(processes):
    def work():
        keys = np.arange(1000)
        with DistributedSet.from_keys(keys) as table:
            return int(table.contains(keys * 2).sum())

    assert processes.submit(work).result(timeout=120) == 500


@pytest.mark.parametrize("verb", ["insert", "find"])
def test_a_worker_killed_at_work(verb):
    with cluster_of(2, processes=True) as client:
        keys = da.random.default_rng(4).integers(0, 2**40, 10**6, chunks=2 * 10**5)
        keys = client.persist(keys)
        wait(keys)
        table = DistributedMap("int64", "int64", client=client, piece_rows=10_000)
        table.insert(keys, keys)
        (pid,) = client.run(os.getpid, workers=[table.workers[1]]).values()
        timer = threading.Timer(0.2, os.kill, (pid, signal.SIGKILL))
        timer.start()
        start = time.monotonic()
        with pytest.raises(IndexLost, match="make the table again"):
            while time.monotonic() < start + 30:
                if verb == "insert":
                    table.insert(keys + 1, keys)
                else:
                    table.find(keys)
        assert time.monotonic() - start < 30
        client.wait_for_workers(2, timeout=120)
        for again in (lambda: len(table), lambda: table.find([1]), lambda: table.insert([1], [2])):
            with pytest.raises(IndexLost, match="make the table again"):
                again()
        table.close()
        with DistributedMap.from_arrays([1, 2], [3, 4], client=client) as made:
            assert made.find([1])[0].tolist() == [3]


@pytest.fixture
def landing(monkeypatch):
    """Record the requested destination buffers of each rank.

    Ranks that are threads have none.
    """
    asked = defaultdict(list)

    def made(end: Any, nbytes: Sequence[int]) -> None:
        asked[end.rank].append(list(nbytes))

    monkeypatch.setattr(CommCollective, "lands", lambda end, device: device == "cpu")
    monkeypatch.setattr(CommCollective, "landing", made)
    monkeypatch.setattr(table_store, "LANDING", {"comm"})
    monkeypatch.setattr(base, "SMALL_SHARE", 1000)
    return asked


def test_landing_memory_is_made_when_a_table_is_opened(threads, landing):
    keys = np.arange(60, dtype=np.int32)
    with DistributedMap("int32", "int64", 6000) as table:
        assert landing == {}
        table.insert(keys, keys)
        (first,) = landing[0]
        assert landing == {rank: [first] for rank in range(3)}
        # A part of 2,000 keys, or somewhat more: of 4 + 8 bytes, and a flag.
        assert first == [table._share * 13] * 3
        table.insert(keys + 60, keys)
        assert len(table) == 120
        assert len(landing[1]) == 1
    with DistributedSet("int64", 100) as table:
        table.insert(keys)
    assert len(landing[1]) == 1


def test_a_group_that_is_lost_when_landing_memory_is_made(threads, landing, monkeypatch):
    def lost(end: Any, nbytes: Sequence[int]) -> None:
        raise IndexLost("on purpose")

    with DistributedSet("int64", 6000) as table:
        with monkeypatch.context() as scarce:
            scarce.setattr(CommCollective, "landing", lost)
            table.insert(np.arange(60))
        assert len(table) == 60
        assert table.contains(np.arange(100)).sum() == 60


def test_chunks_that_were_moved_go_with_their_arrays(client):
    """Without the collector: device memory would wait for it."""
    workers = sorted(client.nthreads())
    keys = client.persist(da.arange(4_000, chunks=1_000), workers=workers[:1])
    values = client.persist(keys * 2, workers=workers[1:2])
    wait([keys, values])
    gc.collect()
    gc.disable()
    try:
        with DistributedMap("int64", "int64", client=client) as table:
            names = {keys.name, values.name}
            table.upsert(keys, values)
            del keys, values
            until(lambda: not names & {label[0] for label in labels_of(client)})
            until(lambda: not any("itself" in str(label) for label in labels_of(client)))
            assert len(table) == 4_000
    finally:
        gc.enable()


@pytest.fixture
def undropped(threads):
    """Stop Dask's active memory manager, which drops replicas."""
    threads.amm.stop()
    yield
    threads.amm.start()


def replicated(client, homes, beside):
    """Return keys on each of `homes`, and values on `beside` only."""
    keys = client.persist(da.arange(4_000, chunks=1_000), workers=homes[:1])
    client.replicate(keys, workers=homes)
    values = client.persist(da.arange(4_000, chunks=1_000) * 2, workers=[beside])
    wait(values)
    return keys, values


def test_chunks_that_several_workers_have_stay_where_their_values_are(
    threads, undropped, monkeypatch
):
    _, first, second = sorted(threads.nthreads())
    monkeypatch.delattr(KeyBatch, "place")
    keys, values = replicated(threads, [first, second], second)
    with DistributedMap("int64", "int64", client=threads) as table:
        table.upsert(keys, values)
        assert_finds(table)


@pytest.mark.parametrize("dropping", [0, 1])
def test_chunks_that_dask_drops_from_one_of_several_workers(
    threads, undropped, dropping, monkeypatch
):
    *homes, beside = sorted(threads.nthreads())
    keys, values = replicated(threads, homes, beside)
    place = KeyBatch.place

    def dropped(batch, *args):
        place(batch, *args)
        labels = list(threads.who_has(keys))
        threads.run_on_scheduler(drops, homes[dropping], labels)
        until(lambda: all(len(having) == 1 for having in threads.who_has(keys).values()))

    monkeypatch.setattr(KeyBatch, "place", dropped)
    with DistributedMap("int64", "int64", client=threads) as table:
        table.upsert(keys, values)
        assert_finds(table)


@pytest.mark.parametrize("moves", [1, base.MOST_MOVES, base.MOST_MOVES + 1])
def test_chunks_that_are_moved_away_again(threads, undropped, moves, monkeypatch):
    *homes, beside = sorted(threads.nthreads())
    keys, values = replicated(threads, homes, beside)
    place, tries = KeyBatch.place, []

    def moved(batch, *args):
        tries.append(args)
        if len(tries) >= moves:
            place(batch, *args)

    monkeypatch.setattr(KeyBatch, "place", moved)
    with DistributedMap("int64", "int64", client=threads) as table:
        if moves > base.MOST_MOVES:
            with pytest.raises(IndexLost, match="lies elsewhere, though it was moved; call it"):
                table.upsert(keys, values)
            assert len(tries) == base.MOST_MOVES
        table.upsert(keys, values)
        assert_finds(table)


def assert_finds(table):
    asked = np.arange(4_100)
    values, found = table.find(asked, default=-2)
    assert values.tolist() == np.where(asked < 4_000, asked * 2, -2).tolist()
    assert found.tolist() == (asked < 4_000).tolist()


def drops(worker, labels, dask_scheduler):
    dask_scheduler.request_remove_replicas(worker, labels, stimulus_id="test")


def labels_of(client):
    return [label for held in client.has_what().values() for label in held]


def test_arrays_of_other_clients(threads):
    with DistributedSet.from_keys(np.arange(5), client=threads) as table:
        with Client(threads.cluster, set_as_default=False) as other:
            with other.as_current():
                rows = da.arange(10, chunks=3).persist()
                wrong = da.arange(10, chunks=3).map_blocks(fails, dtype="i8", meta=np.zeros(0, int))
                wrong = wrong.persist()
            assert int(table.contains(rows).sum().compute()) == 5
            with pytest.raises(ZeroDivisionError):
                table.contains(wrong)
        with pytest.raises(UnsupportedError, match="closed"):
            table.contains(rows)


def fails(block):
    return 1 // 0


def test_a_client_that_is_closed_meanwhile(threads):
    client = Client(threads.cluster, set_as_default=False)
    table = DistributedSet.from_keys([1], client=client)
    raised = []

    def change():
        try:
            while True:
                table.insert(np.arange(20_000))
                table.clear()
        except Exception as error:
            raised.append(error)

    changing = threading.Thread(target=change)
    changing.start()
    time.sleep(0.3)
    client.close()
    changing.join(30)
    assert [type(error) for error in raised] == [ClosedError]
