"""Exchanges by NCCL and its fallbacks, on simulated GPUs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import dask.array as da
import numpy as np
import pytest
from clusters import until
from distributed import Client
from paper_gpus import DeviceArray, install
from paper_nccl import Communicator, NcclStream

from dgpuhash.distributed import DistributedMap
from dgpuhash.distributed.collective import group as group_module
from dgpuhash.distributed.collective import nccl
from dgpuhash.distributed.collective.base import Collective, Destination, TransportError
from dgpuhash.distributed.collective.group import Group, form_group
from dgpuhash.distributed.collective.group_cache import run_collective
from dgpuhash.distributed.ingest.commit import shard_addresses
from dgpuhash.distributed.shards.table_shard import TableShard
from dgpuhash.errors import DgpuhashError, IndexLost

pytestmark = pytest.mark.cluster


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    Communicator.made.clear()
    with install(monkeypatch):
        yield


@pytest.fixture
def group(threads: Client, paper: None) -> Iterator[Group]:
    group = form_group(threads, sorted(threads.nthreads()), "nccl")
    yield group
    group.close(threads)


def sent_by(rank: int, counts: np.ndarray, turn: int) -> list[Any]:
    """Return rows that name their source, their target and their number."""
    target = np.repeat(np.arange(len(counts)), counts)
    label = 1 + np.arange(len(target)) + 10**6 * target + 10**8 * rank + 10**10 * turn
    columns = [label, (label % 251).astype("u1"), np.stack([label, -label, label], 1)]
    return [column.view(DeviceArray) for column in columns]


def counts_in(turn: int, size: int) -> np.ndarray:
    """Return the rows from each rank to each."""
    rng = np.random.default_rng(turn)
    counts = rng.integers(0, 3000, (size, size)) * rng.integers(0, 2, (size, size))
    if turn % 5 == 0:
        counts[:, 0] = 50_000
    return counts


def came_to(rank: int, turn: int, size: int) -> list[np.ndarray]:
    between = counts_in(turn, size)
    parts = []
    for source in range(size):
        first = int(between[source, :rank].sum())
        columns = sent_by(source, between[source], turn)
        parts.append([column[first : first + between[source, rank]] for column in columns])
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def exchange_many(host: Any, collective: Collective, turns: int) -> None:
    """Run several transfers at once, and drop or keep their results.

    Sent rows are overwritten as soon as allowed.
    """
    rank, size = collective.rank, collective.size
    rng = random.Random(rank)
    under_way: list[Any] = []
    kept = []

    def wait_for_the_first() -> None:
        turn, columns, transfer = under_way.pop(0)
        got = transfer.wait()
        for column in columns:
            column[...] = 0
        assert got.counts.tolist() == counts_in(turn, size)[:, rank].tolist()
        for column, wanted in zip(got.columns, came_to(rank, turn, size), strict=True):
            np.testing.assert_array_equal(column, wanted)
        if rng.random() < 0.2:
            kept.append((turn, got))

    for turn in range(turns):
        counts = counts_in(turn, size)[rank]
        columns = sent_by(rank, counts, turn)
        under_way.append((turn, columns, collective.start(columns, counts)))
        # As many as all ranks have started, or a rank waits for one that waits for it.
        while len(under_way) > turn % 15:
            wait_for_the_first()
    while under_way:
        wait_for_the_first()
    for turn, got in kept:
        np.testing.assert_array_equal(got.columns[0], came_to(rank, turn, size)[0])


def test_rows_arrive_whole_whatever_is_late(threads, group):
    group.run(threads, exchange_many, 60)


def exchange_to_places(host: Any, collective: Collective) -> None:
    rank, size = collective.rank, collective.size
    for turn in range(10):
        between = counts_in(turn, size)
        came, columns = between[:, rank], sent_by(rank, between[rank], turn)
        shape = (int(came.sum()) + 5, 3)
        room = np.zeros(shape, np.int64).view(DeviceArray)
        starts = np.cumsum(came) - came + np.arange(size)
        transfer = collective.start(columns[2:], between[rank], to=Destination([room], starts))
        got = transfer.wait()
        assert got.columns[0] is room
        wanted = np.split(came_to(rank, turn, size)[2], np.cumsum(came)[:-1])
        for start, rows in zip(starts, wanted, strict=True):
            np.testing.assert_array_equal(room[start : start + len(rows)], rows)
        assert int(np.count_nonzero(room.any(axis=1))) == int(came.sum())


def test_to_places_of_the_callers(threads, group):
    group.run(threads, exchange_to_places)


def exchange_other_dtypes(host: Any, collective: Collective) -> None:
    dtype = np.int32 if collective.rank == 1 else np.int64
    rows = np.zeros(collective.size, dtype).view(DeviceArray)
    collective.all_to_all([rows], [1] * collective.size)


def test_ranks_with_other_columns_are_refused(threads, group):
    with pytest.raises(DgpuhashError, match="same"):
        group.run(threads, exchange_other_dtypes)
    with pytest.raises(IndexLost, match="given up"):
        group.run(threads, exchange_many, 1)


def refuse_the_second(number: int) -> str | None:
    return "no memory for buffers" if number == 1 else None


@pytest.mark.parametrize("trouble", ["refused", "error", "never"])
def test_ranks_without_nccl_take_the_comm(threads, paper, monkeypatch, trouble):
    monkeypatch.setattr(group_module, "transports_between", lambda places: ["nccl", "comm"])
    if trouble == "refused":
        monkeypatch.setattr(Communicator, "refuse", refuse_the_second)
    elif trouble == "error":
        monkeypatch.setattr(Communicator, "check_async_error", lambda self: 3)
    else:
        monkeypatch.setattr(nccl, "CONNECT", 0.1)
        monkeypatch.setattr(Communicator, "recv", lambda *_: None)
        monkeypatch.setattr(NcclStream, "step", lambda stream: None)
    Communicator.made.clear()
    group = form_group(threads, sorted(threads.nthreads()))
    assert group.exchange == "comm"
    group.run(threads, exchange_many, 3)
    group.close(threads)
    assert all(each.aborted for each in Communicator.made)


def test_neighbours_of_a_host_are_neighbours_for_nccl(threads, paper, monkeypatch):
    Communicator.made.clear()
    group = form_group(threads, sorted(threads.nthreads()), "nccl")
    order = sorted(Communicator.made, key=lambda each: f"bus {each.thread}")
    assert [each.number for each in order] == [0, 1, 2]
    group.close(threads)


def fail_in_nccl(host: Any, collective: Any) -> None:
    if collective.rank == 1:
        collective._nccl.error = 6
        collective._stream.step = lambda: None
    exchange_many(host, collective, 3)


def refuse_to_send(host: Any, collective: Any) -> None:
    if collective.rank == 1:
        collective._nccl.send = refuse
    exchange_many(host, collective, 3)


def refuse(*_: Any) -> None:
    raise RuntimeError("no such communicator")


def test_groups_go_on_after_one_whose_call_was_refused(threads, paper):
    workers = sorted(threads.nthreads())
    refused = form_group(threads, workers, "nccl")
    with pytest.raises(TransportError, match="no such communicator"):
        refused.run(threads, refuse_to_send)
    refused.close(threads)
    anew = form_group(threads, workers, "nccl")
    anew.run(threads, exchange_many, 3)
    anew.close(threads)


def test_an_error_of_nccl_ends_the_exchange_of_all(threads, paper):
    Communicator.made.clear()
    group = form_group(threads, sorted(threads.nthreads()), "nccl")
    with pytest.raises(TransportError, match="NCCL failed on rank 1 with error 6"):
        group.run(threads, fail_in_nccl)
    group.close(threads)
    until(lambda: all(each.aborted for each in Communicator.made))
    anew = form_group(threads, sorted(threads.nthreads()), "nccl")
    anew.run(threads, exchange_many, 3)
    anew.close(threads)


def break_nccl(client: Client) -> None:
    """Stop NCCL's streams; one rank gets NCCL's error."""
    for number, worker in enumerate(client.cluster.workers.values()):
        for end in worker.plugins["dgpuhash"].ends.values():
            if isinstance(end, nccl.NcclCollective):
                end._stream.step = lambda: None
                end._nccl.error = 6 if number == 1 else 0


def column(values: np.ndarray) -> Any:
    return da.from_array(values, chunks=len(values) // 5)


@pytest.fixture
def table(threads: Client, paper: None) -> Iterator[DistributedMap]:
    with DistributedMap("i8", "i8", client=threads, exchange="nccl", piece_rows=400) as table:
        keys = np.arange(5000)
        table.upsert(column(keys), column(keys * 2))
        assert "exchange nccl" in repr(table)
        yield table


def check_pairs(table: DistributedMap, pairs: int) -> None:
    keys = np.arange(-100, pairs + 100)
    values, found = table.find(column(keys))
    inside = (keys >= 0) & (keys < pairs)
    np.testing.assert_array_equal(found.compute(), inside)
    np.testing.assert_array_equal(values.compute()[inside], 2 * keys[inside])


@pytest.mark.parametrize("verb", ["find", "insert"])
def test_verbs_go_on_over_the_comm_where_nccl_failed(threads, table, dask_logs, verb):
    break_nccl(threads)
    more = np.arange(5000, 9000)
    if verb == "insert":
        assert table.insert(column(more), column(more * 2)).compute().all()
    check_pairs(table, 9000 if verb == "insert" else 5000)
    assert "exchange comm" in repr(table)
    said = [
        each.message for each in dask_logs.records if each.name == "distributed.dgpuhash.exchange"
    ]
    assert len(said) == 1
    assert "'nccl' failed" in said[0]
    assert "NCCL failed on rank 1 with error 6" in said[0]


def test_a_change_that_was_begun_is_lost_and_the_next_goes_over_the_comm(
    threads, table, monkeypatch, tmp_path
):
    table.save(tmp_path / "saved")
    serve, calls = TableShard.serve, iter(range(1000))

    def serve_then_break(part: TableShard, *args: Any) -> Any:
        if next(calls) == 3:
            break_nccl(threads)
        return serve(part, *args)

    monkeypatch.setattr(TableShard, "serve", serve_then_break)
    more = np.arange(5000, 9000)
    with pytest.raises(IndexLost, match="NCCL failed on rank 1 with error 6"):
        table.erase(column(more))
    with pytest.raises(IndexLost, match="is lost"):
        len(table)
    table.rebuild()
    assert "exchange comm" in repr(table)
    check_pairs(table, 5000)


def which_way(host: Any, collective: Collective) -> str:
    exchange_many(host, collective, 2)
    return type(collective).__name__


def test_standing_groups_go_on_over_the_comm(threads, paper, monkeypatch, dask_logs):
    monkeypatch.setattr(group_module, "transports_between", lambda places: ["nccl", "comm"])
    shards = shard_addresses(threads)
    assert run_collective(threads, shards, which_way) == ["NcclCollective"] * 3
    break_nccl(threads)
    for _ in range(2):
        assert run_collective(threads, shards, which_way) == ["CommCollective"] * 3
    said = [
        each.message for each in dask_logs.records if each.name == "distributed.dgpuhash.exchange"
    ]
    assert len(said) == 1


def test_a_way_that_failed_with_a_worker_is_taken_again(threads):
    there = Group("a group", tuple(threads.nthreads()), "nccl")
    gone = Group("a group", (*there.workers, "tcp://127.0.0.1:9"), "nccl")
    error = TransportError("on purpose")
    assert there.transport_after(threads, error, "auto") == "comm"
    assert gone.transport_after(threads, error, "auto") == "auto"
    assert there.transport_after(threads, IndexLost("on purpose"), "nccl") == "nccl"
