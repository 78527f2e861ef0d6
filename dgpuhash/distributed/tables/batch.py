"""Arguments of one call: checked arrays, chunks on workers, and the result's form."""

from __future__ import annotations

import itertools
import math
import uuid
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Collection, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import dask.array as da
import numpy as np
from dask.array.core import Array
from dask.core import flatten
from distributed import Client, Future, futures_of, wait

from dgpuhash import backend as backends
from dgpuhash.distributed.cluster.broadcast import gather_watched, run_watched
from dgpuhash.distributed.cluster.client import (
    check_same_cluster,
    holders_of,
    unpaused_workers,
    workers_of,
)
from dgpuhash.distributed.cluster.locality import InputSpec, TaskOutput
from dgpuhash.distributed.ingest.source import scatter_to_workers
from dgpuhash.distributed.pipeline.slices import Chunk
from dgpuhash.distributed.shards.table_store import VerbResult, answer_name, answer_of
from dgpuhash.errors import IndexLost, KeyTypeError, ShapeError, UnsupportedError
from dgpuhash.spec import native_dtype
from dgpuhash.tables.arguments.casts import cast, dtype_code, keeps_values
from dgpuhash.tables.arguments.encoding import carrier_dtype
from dgpuhash.tables.arguments.exact import comparable
from dgpuhash.tables.arguments.interop import (
    ArrayArgument,
    as_argument,
    as_device_array,
    default_row,
    host_as_device_array,
    natural_dtype,
    same_length,
)
from dgpuhash.tables.arguments.lookup_keys import LookupKeys, as_lookup_keys
from dgpuhash.typing import Device

# Host arrays are spread over the workers in chunks of at least this many rows.
SMALL_ROWS = 1 << 12


@dataclass(frozen=True, slots=True)
class AnswerColumn:
    """Column of a result in user form.

    Attributes
    ----------
    dtype : dtype
    by_row : bool
        Whether element *i* belongs to row *i* of the keys.
    offsets : bool
        Whether the elements are offsets into another column, from 0 in each chunk.
    numbers : bool
        Whether the elements are row numbers.
    default : scalar, optional
        Value in rows whose key is absent.
    """

    dtype: np.dtype[Any]
    by_row: bool = True
    offsets: bool = False
    numbers: bool = False
    default: Any = None


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """Column of a result on the workers: one array per chunk, under one name."""

    name: str
    futures: list[Future]
    shapes: list[tuple[int, ...]]


class KeyBatch(ABC):
    """Chunks of keys, and values, for the length of a call.

    Attributes
    ----------
    columns : list of list of Future
        The chunks of the keys, and of the values.
    rows : list of int
        Rows of each chunk.
    hosted : bool
        Whether the chunks are host arrays wherever the table is.
    mixed : bool
        Whether keys may lie outside the table's dtype; such keys are absent.
    """

    columns: list[list[Future]]
    rows: list[int]
    hosted: bool
    mixed: bool = False

    @property
    @abstractmethod
    def device(self) -> Device | None:
        """Device that the argument requires of the table; None: any."""

    @abstractmethod
    def answer(self, client: Client, shown: AnswerColumn, kept: StoredColumn) -> Any:
        """Return the results of all chunks, in the form of the argument."""

    @property
    def needed(self) -> InputSpec:
        """Chunks that a verb needs; keys and values of a chunk share a worker."""
        labels = [future.key for column in self.columns for future in column]
        return InputSpec(labels, partial(chunks_by_worker, self.rows))

    def place(self, client: Client, workers: Sequence[str]) -> None:
        """Move chunks to `workers`, the values to their keys.

        Dask drops replicas where it likes, so the home of a chunk that several workers have gets a
        copy under a name of its own. Nothing goes to workers that Dask has paused.
        """
        held = holders_of(client, [future for column in self.columns for future in column])
        moving = []
        for number in range(len(self.rows)):
            holders = [held.get(column[number].key, ()) for column in self.columns]
            having = set().union(*holders)
            if len(having) != 1 or not having <= set(workers):
                moving.append((number, holders))
        homes = unpaused_workers(client, workers) if moving else []
        for number, holders in moving:
            there = _having(homes, holders) or _having(homes, holders[:1])
            # Chunks that none of `workers` has are spread.
            home = homes[there[0] if there else number % len(homes)]
            for column, holding in zip(self.columns, holders, strict=True):
                if set(holding) != {home}:
                    column[number] = client.submit(
                        _itself, column[number], workers=[home], pure=False
                    )
        wait_for_chunks(client, workers, [future for column in self.columns for future in column])


def chunks_by_worker(
    rows: Sequence[int],
    workers: Sequence[str],
    labels: Sequence[Hashable],
    holders: Mapping[Hashable, Collection[str]],
) -> list[list[Chunk]] | str:
    """Return the chunks of each worker, or the first chunk that is on none."""
    found: list[list[Chunk]] = [[] for _ in workers]
    first = 0
    for number, count in enumerate(rows):
        own = tuple(labels[number :: len(rows)])
        ranks = _having(workers, [holders[label] for label in own])
        if not ranks:
            return f"chunk {number} lies elsewhere"
        found[ranks[0]].append(Chunk(number, own, first, count))
        first += count
    return found


def _having(workers: Sequence[str], holders: Sequence[Collection[str]]) -> list[int]:
    """Return the ranks of the workers that store all arrays."""
    return [rank for rank, one in enumerate(workers) if all(one in having for having in holders)]


class DaskBatch(KeyBatch):
    """Batch of Dask arrays, processed on the workers that store them."""

    def __init__(self, client: Client, workers: Sequence[str], arrays: Sequence[Any]) -> None:
        with client.as_current():
            keys, *others = [_with_chunk_sizes(client, workers, array) for array in arrays]
        arrays = [keys, *(self._beside(array, keys) for array in others)]
        self._keys = keys
        self.rows: list[int] = [int(rows) for rows in keys.chunks[0]]
        self.columns: list[list[Future[Any]]] = [_futures(client, array) for array in arrays]
        self.hosted = False
        wait_for_chunks(client, workers, [future for column in self.columns for future in column])

    @staticmethod
    def _beside(values: Any, keys: Any) -> Any:
        """Return the values in the chunks of the keys."""
        same_length(keys, values)
        if not len(values):
            # Dask leaves the chunks of an empty array as they are.
            values = values.blocks[[0] * keys.numblocks[0]]
        elif values.chunks[0] != keys.chunks[0]:
            values = values.rechunk({0: keys.chunks[0]})
        return values.rechunk({1: -1}) if values.ndim == 2 else values

    @property
    def device(self) -> Device | None:
        return backends.device_of(self._keys._meta)

    def answer(self, client: Client, shown: AnswerColumn, kept: StoredColumn) -> Any:
        return array_of(kept, shown.dtype, self.device)


class HostBatch(KeyBatch):
    """Batch of the client's own arrays, spread over the workers in order."""

    def __init__(
        self,
        client: Client,
        workers: Sequence[str],
        taken: ArrayArgument,
        arrays: Sequence[Any],
        asked: LookupKeys | None = None,
    ) -> None:
        self._taken, self._workers = taken, list(workers)
        self._asked = asked or LookupKeys(arrays[0], len(arrays[0]))
        # Dask copies the arrays on another thread, whose stream does not wait for this one's.
        backends.get(None, *arrays).synchronize()
        rows = len(arrays[0])
        parts = max(1, min(len(workers), rows // SMALL_ROWS))
        edges = [rows * part // parts for part in range(parts + 1)]
        cuts = list(itertools.pairwise(edges))
        self.rows: list[int] = [stop - start for start, stop in cuts]
        self.columns: list[list[Future[Any]]] = [
            scatter_to_workers(client, workers, [array[start:stop] for start, stop in cuts])
            for array in arrays
        ]
        self.hosted: bool = taken.location != "cuda"

    @property
    def device(self) -> Device | None:
        return "cuda" if self._taken.location == "cuda" else None

    def answer(self, client: Client, shown: AnswerColumn, kept: StoredColumn) -> Any:
        parts = gather_watched(client, self._workers, kept.futures)
        xp = backends.get(None, *parts).xp
        if shown.offsets:
            ends = np.cumsum([int(part[-1]) for part in parts])
            parts[1:] = [part[1:] + end for part, end in zip(parts[1:], ends, strict=False)]
        joined = parts[0] if len(parts) == 1 else xp.concatenate(parts)
        if self.hosted and joined.dtype != shown.dtype:
            joined = np.ascontiguousarray(joined).view(shown.dtype).reshape(len(joined))
        return self._taken.wrap(self._of_all(joined, shown), shown.dtype, by_row=shown.by_row)

    def _of_all(self, joined: Any, shown: AnswerColumn) -> Any:
        """Return the result for all keys, from those that fit the dtype."""
        if self._asked.rows is None:
            return joined
        if shown.by_row:
            absent = default_row(shown.default, shown.dtype)
            return self._asked.by_row(
                joined, host_as_device_array(backends.get(None, joined), absent, shown.dtype)
            )
        if shown.offsets:
            return self._asked.offsets(joined)
        return self._asked.numbers(joined) if shown.numbers else joined


def array_of(kept: StoredColumn, dtype: np.dtype[Any], device: Device | None) -> Any:
    """Return a Dask array of chunks on the workers."""
    used = backends.get(device)
    carried = carrier_dtype(used, dtype)
    _, *inner = kept.shapes[0]
    meta = used.xp.zeros((0,) * (1 + len(inner)), carried)
    graph = {
        (kept.name, number, *(0 for _ in inner)): future
        for number, future in enumerate(kept.futures)
    }
    chunks = (tuple(shape[0] for shape in kept.shapes), *((size,) for size in inner))
    return da.Array(graph, kept.name, chunks, dtype=carried, meta=meta)


def _with_chunk_sizes(client: Client, workers: Sequence[str], array: Any) -> Any:
    """Return the array with known chunk lengths, computing it if they are unknown."""
    if not any(math.isnan(rows) for rows in array.chunks[0]):
        return array
    array = client.persist(array)
    chunks = _futures(client, array)
    wait_for_chunks(client, workers, chunks)
    counts = [client.submit(_rows_of, chunk, pure=False) for chunk in chunks]
    rows = gather_watched(client, workers, counts)
    return da.Array(array.dask, array.name, (tuple(rows), *array.chunks[1:]), meta=array._meta)


def _futures(client: Client, array: Any) -> list[Future]:
    """Return the array's chunks on the workers; compute a lazy array there."""
    keys = list(flatten(array.__dask_keys__()))
    if len(futures_of(array)) == len(keys):
        graph = array.__dask_graph__()
        chunks = [graph.get(key) for key in keys]
        if all(isinstance(chunk, Future) for chunk in chunks):
            return chunks
    held = {future.key: future for future in futures_of(client.persist(array))}
    return [held[key] for key in keys]


def wait_for_chunks(client: Client, workers: Sequence[str], futures: Sequence[Future]) -> None:
    """Wait until all futures are finished; raise a task's error.

    Raises
    ------
    UnsupportedError
        When a chunk is on no worker any more, although all `workers` are reachable.
    IndexLost
        When one of `workers` has left, or all leave, or one that runs a task is silent.
    """
    generation = client.generation

    def begin() -> Awaitable[Any]:
        with client.as_current():
            return wait(futures)

    try:
        # Chunks are lost with a worker; Dask computes again those that it can.
        while ahead := [each.key for each in futures if each.status in ("pending", "lost")]:
            run_watched(client, workers, begin, keys=ahead)
        failed = [future for future in futures if future.status != "finished"]
        if failed:
            gather_watched(failed[0].client, workers, failed[:1])
    except IndexLost as lost:
        forgotten = any(future.status == "cancelled" for future in futures)
        # A restart cancels the futures before the workers leave.
        restarted = client.generation != generation
        if not forgotten or restarted or not set(workers) <= set(workers_of(client)):
            raise
        raise UnsupportedError(
            "chunks of a Dask array are on no worker any more: they were cancelled, or lost with a "
            "worker that has no part; compute or persist the array again (the table is as it was)"
        ) from lost


def _itself(array: Any) -> Any:
    return array


def _rows_of(chunk: Any) -> int:
    try:
        return len(chunk)
    except TypeError:
        # The verb that reads the chunk raises the right error.
        return 0


def answer_columns(made: Sequence[TaskOutput[VerbResult]], columns: int) -> list[StoredColumn]:
    """Return the columns of a result, whose chunks stay on the workers."""
    shapes = {stored.key: stored.shape for each in made for stored in each.result.stored}
    futures = {key: future for each in made for key, future in each.data.items()}
    kept = []
    for column in range(columns):
        name = answer_name(made[0].result.answer, column)
        keys = sorted(key for key in shapes if key[0] == name)
        kept.append(
            StoredColumn(name, [futures[key] for key in keys], [shapes[key] for key in keys])
        )
    return kept


class EarlyAnswer:
    """Result arrays of a batch, created before they are computed if shapes are known.

    Each attempt to compute them has names of its own.

    Parameters
    ----------
    client : distributed.Client
    batch : KeyBatch
    verb : str
    shown : sequence of Shown
        Columns of the answer.
    """

    def __init__(
        self, client: Client, batch: KeyBatch, verb: str, shown: Sequence[AnswerColumn]
    ) -> None:
        self._client, self._batch, self._verb, self._shown = client, batch, verb, shown
        self._token = ""
        self._made: list[tuple[StoredColumn, Any]] = []

    def needed(self) -> InputSpec:
        """Return the data that the next attempt needs."""
        self._token = uuid.uuid4().hex
        return replace(self._batch.needed, token=self._token)

    def make(self) -> None:
        """Create the results with one row for each row of the batch.

        Call it while workers compute them. If it fails, `answers` makes them.
        """
        if not isinstance(self._batch, DaskBatch) or not all(each.by_row for each in self._shown):
            return
        answer, rows = answer_of(self._verb, self._token), self._batch.rows
        with suppress(Exception):
            for number, column in enumerate(self._shown):
                name = answer_name(answer, number)
                futures: list[Future] = [
                    Future((name, chunk), self._client) for chunk in range(len(rows))
                ]
                kept = StoredColumn(name, futures, [(each,) for each in rows])
                self._made.append((kept, self._batch.answer(self._client, column, kept)))

    def forget(self) -> None:
        """Drop the results of a failed attempt.

        The attempt's error may keep this object alive for long.
        """
        self._made.clear()

    def answers(self, kept: Sequence[StoredColumn]) -> tuple[Any, ...]:
        """Return the results, whose `kept` columns are on the workers by now."""
        made = [(foreseen.name, foreseen.shapes) for foreseen, _ in self._made]
        # Two threads may have made the first future of a chunk at once: the client tracks one.
        ready = all(
            future.status == "finished" for foreseen, _ in self._made for future in foreseen.futures
        )
        if ready and made == [(each.name, each.shapes) for each in kept]:
            return tuple(array for _, array in self._made)
        columns = zip(self._shown, kept, strict=True)
        return tuple(self._batch.answer(self._client, *column) for column in columns)


def check_arrays() -> None:
    """Raise UnsupportedError if Dask's arrays are expressions.

    Nothing here makes arrays of that kind.
    """
    if da.Array is not Array:
        raise UnsupportedError(
            "Dask's array.query-planning is on, and distributed tables take and give no arrays of "
            "that kind; turn it off before dask.array is imported, as "
            "DASK_ARRAY__QUERY_PLANNING=False in the environment does"
        )


def batch_of(
    client: Client,
    workers: Sequence[str],
    arrays: Sequence[tuple[Any, np.dtype[Any], str]],
    stores: bool,
) -> KeyBatch:
    """Return a call's arguments as a batch, with dtypes and lengths checked.

    They are checked as far as they are known.

    Parameters
    ----------
    client : distributed.Client
    workers : sequence of str
        Workers of the table, over which the client's own arrays are spread.
    arrays : sequence of (array, dtype, name)
        Keys first.
    stores : bool
        Whether the table is to store the keys; keys to look up may be of another dtype.

    Raises
    ------
    KeyTypeError, ShapeError, UnsupportedError
        When the arguments do not fit the table, or each other, or are on no worker any more.
    IndexLost
        When a worker is lost, or silent, before the arrays are on the workers.
    OutOfMemoryError
        When all workers are paused, as their memory is nearly full.
    """
    lazy = [_is_dask(array, name) for array, _, name in arrays]
    if all(lazy):
        mixed = [
            _check_dask(client, array, dtype, name, stores=stores) for array, dtype, name in arrays
        ]
        batch = DaskBatch(client, workers, [array for array, *_ in arrays])
        batch.mixed = mixed[0]
        return batch
    if any(lazy):
        raise UnsupportedError(
            "keys and values must both be Dask arrays, or both arrays of the client's; make one "
            "of the other with dask.array.from_array(values, chunks=keys.chunks)"
        )
    taken = [as_argument(array, name) for array, _, name in arrays]
    home = backends.get(None, *(each.data for each in taken if each.location == "cuda"))
    if not stores:
        asked = as_lookup_keys(home, taken[0], *arrays[0][1:])
        return HostBatch(client, workers, taken[0], [asked.keys], asked)
    keys, *values = [
        as_device_array(home, each, dtype, name)
        for each, (_, dtype, name) in zip(taken, arrays, strict=True)
    ]
    for column in values:
        same_length(keys, column)
    return HostBatch(client, workers, taken[0], [keys, *values])


def dtype_of(array: Any, name: str) -> np.dtype[Any]:
    """Return the dtype of an argument, for a new table."""
    if _is_dask(array, name):
        return np.dtype(array.dtype)
    return natural_dtype(as_argument(array, name), name)


def _is_dask(array: Any, name: str) -> bool:
    if isinstance(array, da.Array):
        check_arrays()
        return True
    if hasattr(array, "dask") or isinstance(array, Future):
        raise UnsupportedError(
            f"{name} are a {type(array).__name__}; give a Dask array (of a Series: "
            ".to_dask_array(lengths=True)), or an array of the client's"
        )
    return False


def _check_dask(
    client: Client, array: da.Array, dtype: np.dtype[Any], name: str, *, stores: bool
) -> bool:
    """Check that the array's values fit `dtype`; return `KeyBatch.mixed`.

    Values to look up only need to be comparable with `dtype`.
    """
    check_same_cluster(client, futures_of(array), name)
    on_gpu = backends.device_of(array._meta) == "cuda"
    if on_gpu and array.ndim == 2 and array.dtype == np.uint8 and array.shape[1] == dtype.itemsize:
        return False
    if array.ndim != 1:
        raise ShapeError(
            f"{name} have shape {array.shape} and must have one dimension; pass one column "
            f"({name}[:, 0]) or all elements ({name}.ravel())"
        )
    if array.shape[0] == 0 or array.dtype == dtype:
        return bool(array.dtype != dtype)
    if array.dtype.hasobject:
        raise KeyTypeError(
            f"{name} of dtype {array.dtype} have no fixed-size NumPy form; convert them with "
            f".astype({dtype_code(dtype)})"
        )
    if on_gpu and dtype.kind in "mM" and array.dtype == np.int64:
        return False
    if not stores and comparable(native_dtype(array.dtype), dtype):
        return dtype.kind in "mM" or not keeps_values(array.dtype, dtype)
    cast(np.zeros(0, array.dtype), dtype, name)
    return False
