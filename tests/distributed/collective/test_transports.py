"""All-to-all between ranks in lockstep, one suite for every transport."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
import pytest
from clusters import cluster_of, until
from distributed import Client
from hosts import pretended_hosts

from dgpuhash.distributed.cluster.broadcast import run_on_workers
from dgpuhash.distributed.collective.base import Collective, Destination
from dgpuhash.distributed.collective.dask_comm import CommCollective
from dgpuhash.distributed.collective.group import Group, collective_of, form_group
from dgpuhash.distributed.collective.local import LocalCollective
from dgpuhash.distributed.shards.plugin import ShardHost
from dgpuhash.errors import (
    ClosedError,
    DgpuhashError,
    IndexLost,
    ShapeError,
    SpecError,
    UnsupportedError,
)

pytestmark = pytest.mark.cluster

# Seconds from a loss to the error.
SOON = 30


class Ranks(Protocol):
    """Group of ranks over any transport."""

    size: int

    def run(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Run ``function(collective, *args)`` on all ranks at once."""


class Threads:
    """Ranks that are threads of the test."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._ends = LocalCollective.group(size, limit=120)

    def run(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        with ThreadPoolExecutor(self.size) as threads:
            calls = [threads.submit(attempt, function, end, *args) for end in self._ends]
            results = [call.result() for call in calls]
        errors = [result for result in results if isinstance(result, Exception)]
        errors.sort(key=lambda error: isinstance(error, IndexLost))
        if errors:
            raise errors[0]
        return results


def attempt(function: Callable[..., Any], end: Collective, *args: Any) -> Any:
    try:
        return function(end, *args)
    except Exception as error:
        end.abort(str(error))
        return error


class Workers:
    """Ranks that are workers of a cluster."""

    def __init__(self, client: Client, group: Group) -> None:
        self.client, self.group, self.size = client, group, len(group.workers)

    def run(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        return self.group.run(self.client, on_rank, function, args)


def on_rank(host: Any, collective: Collective, function: Any, args: tuple[Any, ...]) -> Any:
    return function(collective, *args)


def kinds_and_sizes() -> Iterator[Any]:
    for kind in ("local", "inproc", "tcp", "ucxx"):
        marks = [pytest.mark.ucxx] if kind == "ucxx" else []
        for size in (1, 2, 3):
            yield pytest.param((kind, size), marks=marks, id=f"{kind}-{size}")


# As between any ranks, but for what is small and goes by way of others.
TWO_LEVEL = pytest.param(("two-level", 3), id="two-level-3")


@pytest.fixture(params=[*kinds_and_sizes(), TWO_LEVEL])
def ranks(request: pytest.FixtureRequest) -> Iterator[Ranks]:
    kind, size = request.param
    if kind == "local":
        yield Threads(size)
        return
    fixtures = {"inproc": "threads", "ucxx": "over_ucxx"}
    client = request.getfixturevalue(fixtures.get(kind, "three_processes"))
    workers = sorted(client.nthreads())[:size]
    if kind == "two-level":
        # Two workers on one host, and one on another.
        with pretended_hosts(client, dict(zip(workers, (1, 2, 1), strict=True))):
            group = form_group(client, workers, "two-level")
    else:
        group = form_group(client, workers, "comm")
    yield Workers(client, group)
    group.close(client)


@pytest.fixture(scope="module")
def three_processes() -> Iterator[Client]:
    with cluster_of(3, processes=True) as client:
        yield client


def columns_of(source: int, counts: np.ndarray) -> list[np.ndarray]:
    """Return columns whose rows name their source, target and number."""
    rows = int(counts.sum())
    number = np.arange(rows)
    target = np.repeat(np.arange(len(counts)), counts)
    label = (source * 1000 + target) * 10**9 + number
    return [
        label,
        label.astype(np.float32),
        (label % 7).astype(np.uint8),
        label % 2 == 0,
        label.astype("datetime64[ns]"),
        label.astype("S20"),
        np.stack([label, -label], axis=1).astype(np.int16),
        np.zeros(rows, [("a", "i4"), ("b", "f8")]),
    ]


def counts_between(size: int, shape: str) -> np.ndarray:
    """Return the rows from each rank to each."""
    rng = np.random.default_rng(size)
    if shape == "none":
        return np.zeros((size, size), np.int64)
    if shape == "one empty":
        counts = rng.integers(1, 100, (size, size))
        counts[0] = 0
        counts[:, -1] = 0
        return counts
    if shape == "all to one":
        counts = np.zeros((size, size), np.int64)
        counts[:, 0] = 50_000
        return counts
    return rng.integers(0, 3000, (size, size))


def exchange_and_check(collective: Collective, shape: str) -> int:
    between = counts_between(collective.size, shape)
    rank = collective.rank
    got = collective.all_to_all(columns_of(rank, between[rank]), between[rank])
    assert got.counts.tolist() == between[:, rank].tolist()
    assert got.counts.dtype == np.int64
    edges = np.concatenate([np.zeros((len(between), 1), int), between.cumsum(axis=1)], axis=1)
    parts = [
        [column[edges[source, rank] : edges[source, rank + 1]] for column in sent]
        for source in range(len(between))
        for sent in [columns_of(source, between[source])]
    ]
    for column, wanted in zip(got.columns, zip(*parts, strict=True), strict=True):
        whole = np.concatenate(wanted)
        assert column.dtype == whole.dtype
        assert np.array_equal(column, whole)
    return len(got.columns[0])


@pytest.mark.parametrize("shape", ["even", "none", "one empty", "all to one"])
def test_rows_arrive_in_the_order_of_ranks(ranks, shape):
    assert ranks.run(exchange_and_check, shape) == list(
        counts_between(ranks.size, shape).sum(axis=0)
    )


def exchange_much(collective: Collective, rows: int) -> None:
    rank, size = collective.rank, collective.size
    counts = np.full(size, rows)
    counts[rank] = 3
    sent = np.arange(counts.sum()) + rank * 10**10
    wide = np.stack([sent] * 3, axis=1)
    got = collective.all_to_all([sent, wide], counts)
    for source in range(size):
        start, count = int(got.counts[:source].sum()), int(got.counts[source])
        assert count == (3 if source == rank else rows)
        before = rows * rank if rank <= source else rows * (rank - 1) + 3
        wanted = np.arange(before, before + count) + source * 10**10
        assert np.array_equal(got.columns[0][start : start + count], wanted)
        assert (got.columns[1][start : start + count] == wanted[:, None]).all()


@pytest.mark.parametrize("ranks", [*kinds_and_sizes()], indirect=True)
def test_more_than_a_message_holds(ranks):
    ranks.run(exchange_much, (130 << 20) // 32)


def exchange_in_flight(collective: Collective, transfers: int) -> None:
    rank, size = collective.rank, collective.size
    under_way = []
    for turn in range(transfers):
        rows = 200_000 if turn % 2 else turn
        column = np.full(rows * size, 100 * turn + rank)
        under_way.append(collective.start([column, column / 2], [rows] * size))
        assert collective.gather((turn, rank)) == [(turn, other) for other in range(size)]
    for turn, transfer in enumerate(under_way):
        rows = 200_000 if turn % 2 else turn
        got = transfer.wait()
        wanted = np.repeat(100 * turn + np.arange(size), rows)
        assert np.array_equal(got.columns[0], wanted)
        assert np.array_equal(got.columns[1], wanted / 2)


def test_several_in_flight(ranks):
    ranks.run(exchange_in_flight, 6)


def overwrite_what_was_sent(collective: Collective) -> None:
    size = collective.size
    column = np.empty(size * 300_000, np.int64)
    for turn in range(5):
        column[:] = turn
        got = collective.all_to_all([column], [300_000] * size)
        assert (got.columns[0] == turn).all()


def test_what_was_sent_is_the_senders_again_after_the_wait(ranks):
    ranks.run(overwrite_what_was_sent)


@pytest.mark.parametrize(
    ("columns", "counts", "error"),
    [
        ([np.arange(3)], [], ShapeError),
        ([np.arange(3)], [2], ShapeError),
        ([np.arange(3), np.arange(4)], [3], ShapeError),
        ([np.arange(3)], [-3], ShapeError),
        ([], [0], ShapeError),
        ([np.array([None, 1])], [2], UnsupportedError),
    ],
)
def test_what_does_not_fit_is_refused(columns, counts, error):
    (end,) = LocalCollective.group(1)
    with pytest.raises(error):
        end.all_to_all(columns, counts)


def exchange_other_dtypes(collective: Collective) -> None:
    dtype = np.int32 if collective.rank == 1 else np.int64
    collective.all_to_all([np.zeros(collective.size, dtype)], [1] * collective.size)


def test_ranks_with_other_dtypes_are_refused(ranks):
    if ranks.size > 1:
        with pytest.raises(DgpuhashError, match="same"):
            ranks.run(exchange_other_dtypes)
        with pytest.raises(IndexLost, match="given up"):
            ranks.run(exchange_and_check, "even")


def fail_alone(collective: Collective, victim: int) -> None:
    if collective.rank == victim:
        raise MemoryError("rank is full")
    exchange_and_check(collective, "even")


def test_an_error_on_one_rank_ends_the_others(ranks):
    with pytest.raises(MemoryError, match="rank is full"):
        ranks.run(fail_alone, ranks.size - 1)
    with pytest.raises(IndexLost, match="rank is full"):
        ranks.run(exchange_and_check, "even")


def abort_while_others_wait(collective: Collective) -> str:
    if collective.rank == 0:
        time.sleep(0.3)
        collective.abort("the cook is ill")
        return ""
    try:
        collective.start([np.zeros(collective.size)], [1] * collective.size).wait()
    except IndexLost as error:
        return str(error)
    return "answered"


def test_abort(ranks):
    reasons = ranks.run(abort_while_others_wait)
    assert all("the cook is ill" in reason for reason in reasons[1:])


def close_while_waiting(collective: Collective) -> str:
    if collective.rank == 0:
        return ""
    timer = threading.Timer(0.3, collective.close)
    timer.start()
    try:
        collective.gather(1)
    except ClosedError:
        return "closed"
    except IndexLost:
        return "lost"
    return "answered"


def test_close_while_waiting(ranks):
    ends = ranks.run(close_while_waiting)[1:]
    assert set(ends) <= {"closed", "lost"}
    if ends:
        assert "closed" in ends
        with pytest.raises((ClosedError, IndexLost)):
            ranks.run(exchange_and_check, "even")


def be_late(collective: Collective) -> None:
    if collective.rank != 0:
        collective.gather(1)


def test_local_ranks_that_wait_too_long_give_up():
    for end in (ends := LocalCollective.group(2, limit=0.2))[:1]:
        with pytest.raises(IndexLost, match="did not come"):
            end.gather(1)
    with pytest.raises(IndexLost, match="did not come"):
        ends[1].gather(1)


def set_limit(host: Any, name: str) -> None:
    host.ends[name]._limit = 0.3


def test_workers_that_wait_too_long_give_up(three_processes):
    workers = sorted(three_processes.nthreads())
    group = form_group(three_processes, workers)
    run_on_workers(three_processes, workers, set_limit, group.name)
    with pytest.raises(IndexLost, match="same calls"):
        Workers(three_processes, group).run(be_late)
    group.close(three_processes)


class ReadOnce:
    """Argument that only one worker of this process can load."""

    left = 1

    def __reduce__(self) -> Any:
        return read_once, ()


def read_once() -> None:
    ReadOnce.left -= 1
    if ReadOnce.left < 0:
        raise MemoryError("no room for the arguments")


def wait_for_all(collective: Collective, _: Any) -> None:
    collective.gather(None)


def test_ranks_that_wait_for_one_that_was_not_called(threads):
    group = form_group(threads, sorted(threads.nthreads()))
    start = time.monotonic()
    with pytest.raises(IndexLost, match="no room"):
        Workers(threads, group).run(wait_for_all, ReadOnce())
    assert time.monotonic() - start < SOON
    group.close(threads)


def has_end(host: Any, name: str) -> bool:
    return name in host.ends


def test_a_group_that_was_closed_is_not_there(three_processes):
    group = form_group(three_processes, sorted(three_processes.nthreads()))
    group.close(three_processes)
    until(lambda: not any(run_on_workers(three_processes, group.workers, has_end, group.name)))
    with pytest.raises(IndexLost, match="call it again"):
        group.run(three_processes, exchange_and_check, "even")


def leave_and_gather(host: ShardHost, collective: Collective) -> None:
    if collective.rank == 1:
        host.worker.loop.add_callback(host.ends[collective.membership.name].close)
    collective.gather(collective.rank)


def test_a_group_that_is_closed_while_it_is_at_work(three_processes):
    group = form_group(three_processes, sorted(three_processes.nthreads()))
    with pytest.raises(IndexLost):
        for _ in range(50):
            group.run(three_processes, leave_and_gather)
    group.close(three_processes)


def test_an_unknown_exchange_is_refused(three_processes):
    with pytest.raises(SpecError, match=r"'pigeons'; give 'auto', .*, 'peer' or 'two-level'$"):
        form_group(three_processes, sorted(three_processes.nthreads()), "pigeons")


def exchange_for_long(collective: Collective) -> None:
    for _ in range(10_000):
        exchange_much(collective, 200_000)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_that_dies_in_the_middle(number):
    """Within seconds, also for ranks that the client does not ask about; no thread waits on."""
    with cluster_of(3, processes=True) as client:
        workers = sorted(client.nthreads())
        group = form_group(client, workers)
        pids = client.run(os.getpid)
        threading.Timer(1.0, os.kill, (pids[workers[1]], number)).start()
        start = time.monotonic()
        with pytest.raises(IndexLost):
            Workers(client, group).run(exchange_for_long)
        assert time.monotonic() - start < 1 + SOON
        left = [worker for worker in workers if worker != workers[1]]
        assert run_on_workers(client, left, what_it_says, group.name, limit=SOON) == [
            "lost",
            "lost",
        ]
        anew = form_group(client, left)
        assert len(Workers(client, anew).run(exchange_and_check, "even")) == 2


def what_it_says(host: Any, name: str) -> str:
    try:
        collective_of(host, name).gather(1)
    except IndexLost:
        return "lost"
    return "answered"


def to_places(end: Collective, between: np.ndarray) -> tuple[Any, list[np.ndarray]]:
    """Exchange spaced rows into spaced rows, those of the last rank first."""
    counts, came = between[end.rank], between[:, end.rank]
    columns = columns_of(end.rank, counts)
    starts = np.cumsum(counts) - counts
    apart = [np.concatenate([column[:1], column, column[:1]]) for column in columns]
    if len(columns[0]) == 0:
        apart, starts = columns, starts * 0
    room = [np.zeros(int(came.sum()) + 3, column.dtype) for column in columns[:3]]
    first = int(came.sum()) + 1 - np.cumsum(came)
    skip = len(columns[0]) > 0
    moved = end.start(apart[:3], counts, starts=starts + skip, to=Destination(room, first)).wait()
    assert all(one is other for one, other in zip(moved.columns, room, strict=True))
    wanted = [np.zeros_like(column) for column in room]
    for source in range(end.size):
        mine = columns_of(source, between[source])
        begin = int(between[source, : end.rank].sum())
        place = slice(first[source], first[source] + came[source])
        for column, theirs in zip(wanted, mine, strict=False):
            column[place] = theirs[begin : begin + came[source]]
    return room, wanted


@pytest.mark.parametrize("shape", ["none", "one empty", "all to one", "some"])
def test_from_places_to_places(ranks, shape):
    for room, wanted in ranks.run(to_places, counts_between(ranks.size, shape)):
        for column, expected in zip(room, wanted, strict=True):
            np.testing.assert_array_equal(column, expected)


def too_far(end: Collective) -> None:
    rows = np.arange(4)
    end.start([rows], np.ones(end.size, int), starts=np.full(end.size, 4))


def no_room(end: Collective) -> None:
    rows = np.arange(end.size)
    room = Destination([np.zeros(end.size, int)], np.full(end.size, end.size))
    end.start([rows], np.ones(end.size, int), to=room).wait()


def rows_apart(end: Collective) -> None:
    room = Destination([np.zeros(2 * end.size, int)[::2]], np.arange(end.size))
    end.start([np.arange(end.size)], np.ones(end.size, int), to=room).wait()


@pytest.mark.parametrize("wrong", [too_far, no_room, rows_apart])
def test_places_that_do_not_fit(wrong):
    with pytest.raises(ShapeError):
        Threads(2).run(wrong)


def gathered(end: Collective) -> list[int]:
    return [
        len(value)
        for number in range(20)
        for value in end.gather(b"x" * (end.rank + 1 << (17 if number == 7 else number % 5)))
    ]


def test_large_and_small_values_are_gathered(ranks):
    wanted = [
        rank + 1 << (17 if number == 7 else number % 5)
        for number in range(20)
        for rank in range(ranks.size)
    ]
    assert ranks.run(gathered) == [wanted] * ranks.size


def test_a_rank_alone_asks_nobody_for_values():
    alone = CommCollective(SimpleNamespace(rank=0, size=1, broken=None))
    assert alone.gather("mine") == ["mine"]
    alone.membership.broken = IndexLost("given up")
    with pytest.raises(IndexLost, match="given up"):
        alone.gather("mine")
