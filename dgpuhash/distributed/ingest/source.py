"""Convert input rows of any form into partitions for a shuffle."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dask.dataframe as dd
from dask.delayed import Delayed
from distributed import Client, Future, futures_of

from dgpuhash import config
from dgpuhash.distributed.cluster.broadcast import run_watched
from dgpuhash.distributed.cluster.client import check_same_cluster
from dgpuhash.distributed.cluster.dask_internals import FromDelayed, FromGraph
from dgpuhash.distributed.cluster.locality import KEY_PREFIX
from dgpuhash.distributed.cluster.rpc import REMEDY
from dgpuhash.distributed.cluster.serialization import Cache, schema_key
from dgpuhash.errors import DeviceError, IndexLost, OutOfMemoryError, ShapeError, UnsupportedError
from dgpuhash.frames import (
    KeyEncoder,
    check_arrow_types,
    frames_of,
    key_names,
    make_frame,
    stored_columns,
)
from dgpuhash.frames.labels import column_labels

# Where workers are to share the work, in pieces of this size at least.
LEAST_PIECE_NBYTES = 1 << 20


def collection_of(data: Any, names: Sequence[Hashable]) -> Any:
    """Return `data` as a Dask, pandas or cuDF DataFrame.

    Parameters
    ----------
    data : Dask, pandas or cuDF DataFrame or Series, Dask array, mapping of arrays, or array
    names : sequence of labels
        Name of the column of an array or a nameless Series.

    Raises
    ------
    UnsupportedError
        When an array is given for several `names`, and as for `check_all_partitions`.
    ShapeError
        When a column is not one-dimensional.
    """
    # Delayed objects seem to have any attribute, as frames do.
    first = data[0] if isinstance(data, list) and data else data
    if isinstance(first, Delayed | Future):
        raise UnsupportedError(
            "the columns of delayed frames and futures are not known; make a Dask DataFrame of "
            "them with dask.dataframe.from_delayed([…], meta=…)"
        )
    check_all_partitions(data)
    if isinstance(data, dd.DataFrame):
        return data
    if _is_frame(data):
        # `rebuild` reads the frame again later, when the user may have changed it.
        return data.copy(deep=False)
    if isinstance(data, Mapping):
        return make_frame(data)
    if len(names) != 1:
        raise UnsupportedError(
            f"one array was given for the columns {list(names)!r}; give a DataFrame, or a "
            f"dictionary with an "
            "array for each column"
        )
    if isinstance(data, dd.Series):
        return data.to_frame(name=names[0])
    if hasattr(data, "dask") and hasattr(data, "chunks"):
        if data.ndim != 1:
            raise ShapeError(
                f"an array of shape {data.shape} for the column {names[0]!r}; give a flat one, "
                "or dask.dataframe.from_dask_array(array, columns=[…])"
            )
        if data.dtype.names:
            raise UnsupportedError(
                f"an array with the fields {list(data.dtype.names)} for the column {names[0]!r}; "
                "give a dictionary with an array for each field, as data[field]"
            )
        return dd.from_dask_array(data, columns=[names[0]])
    return make_frame({names[0]: data})


def frame_of(data: Any) -> Any:
    """Return `data` if it is a Dask, pandas or cuDF DataFrame, or raise.

    Raises
    ------
    UnsupportedError
        When `data` is something else, and as for `check_all_partitions`.
    """
    check_all_partitions(data)
    if not _is_frame(data):
        raise UnsupportedError(
            f"a {type(data).__name__} cannot be merged; give a Dask, pandas or cuDF DataFrame "
            "(of a Series: .to_frame())"
        )
    return data


def check_all_partitions(data: Any) -> None:
    """Raise UnsupportedError for a persisted Dask frame with missing partitions.

    Dask may fuse several partitions of a source. Where only fused ones were persisted, the frame
    still counts the partitions of the source.
    """
    if not isinstance(data, dd.DataFrame | dd.Series):
        return
    for made in data.expr.find_operations(FromGraph):
        there, named = made.operand("layer"), made.operand("keys")
        results = sum(key in there for key in named)
        if results < made.npartitions:
            raise UnsupportedError(
                f"the frame {made.operand('name_prefix')!r} was persisted with "
                f"{made.npartitions:,} partitions, and has {results:,} results: Dask puts several "
                "partitions of some sources into one and loses count, so it cannot compute the "
                "frame either; make it from its source again, and give it without .persist(), or "
                "as frame.repartition(npartitions=frame.npartitions).persist()"
            )


def meta_of(collection: Any) -> Any:
    """Return an empty frame with the columns of `collection`."""
    return collection._meta if isinstance(collection, dd.DataFrame) else collection.iloc[:0]


def check_library(collection: Any, index_meta: Any) -> None:
    """Raise DeviceError for frames of another library than the index's.

    The libraries are pandas and cuDF.
    """
    given, stored = frames_of(meta_of(collection)).name, frames_of(index_meta).name
    if given != stored:
        raise DeviceError(
            f"{given} frames were given for an index of {stored} rows; convert them with "
            f".to_backend({stored!r}) (a Dask DataFrame), or build the index from {given} frames"
        )


def partitions_of(
    client: Client,
    collection: Any,
    columns: Sequence[Hashable],
    workers: Sequence[str],
    *,
    pieces: int = 1,
) -> list[Any]:
    """Return the partitions as Delayed or Future objects, in row order.

    They have these `columns`. A Dask DataFrame stays where it is: each partition is read by the
    task that needs it, and partitions of a persisted frame have all columns. Other frames are sent
    to `workers` in pieces, in as many as `pieces` where these are not small.

    Raises
    ------
    ColumnError
        When a column is missing, or has a type that pandas cannot take rows of.
    UnsupportedError
        When another cluster holds partitions, or no worker holds them any more.
    OutOfMemoryError
        When all `workers` are paused, as their memory is nearly full.
    IndexLost
        When one of `workers` is lost.
    """
    meta = meta_of(collection)
    check_arrow_types(meta[list(key_names(meta, list(columns)))])
    if isinstance(collection, dd.DataFrame):
        held = persisted_futures(collection)
        futures = futures_of(collection) if held is None else held
        check_same_cluster(client, futures, "rows")
        # Dask computes partitions of a lost worker again, and cancels those that it cannot.
        if any(future.status == "cancelled" for future in futures):
            raise UnsupportedError(
                "the rows were persisted, and are on no worker any more: they were cancelled, or "
                "lost with a worker; make the frame again from its source"
            )
        if held is not None:
            return held
    projected = collection[list(columns)]
    if isinstance(projected, dd.DataFrame):
        return list(projected.to_delayed())
    nbytes = frames_of(projected).nbytes(projected)
    step = max(1, len(projected) * config.nbytes("placement.piece") // max(nbytes, 1))
    if nbytes > pieces * LEAST_PIECE_NBYTES:
        step = min(step, -(-len(projected) // pieces))
    cut = [projected.iloc[start : start + step] for start in range(0, len(projected), step)]
    if not cut:
        return []
    try:
        return list(scatter_to_workers(client, workers, cut))
    except KeyError as error:
        # Dask's scheduler raises it for a worker that is gone.
        raise IndexLost(f"worker {error} with a shard of the index is gone; {REMEDY}") from error


def persisted_futures(collection: Any) -> list[Future] | None:
    """Return the partitions of a persisted Dask DataFrame, in order.

    None unless workers hold each partition, or compute it now.
    """
    expression = collection.expr
    if isinstance(expression, FromDelayed) and not expression.verify_meta:
        given = expression.delayed_container.operands
        if all(isinstance(each, Future) for each in given):
            return [given[number] for number in expression._partitions]
    futures: dict[Any, Future] = {future.key: future for future in futures_of(collection)}
    if not futures:
        return None
    graph = collection.__dask_graph__()
    found = []
    for key in collection.__dask_keys__():
        while key not in futures:
            # A persisted partition has one key in the frame, and another one on the workers.
            key = getattr(graph.get(key), "target", None)
            if key is None:
                return None
        found.append(futures[key])
    return found


def _is_frame(data: Any) -> bool:
    return isinstance(data, dd.DataFrame) or (hasattr(data, "iloc") and hasattr(data, "columns"))


# Schemas that are cached, by kind of frame and wanted columns.
KINDS = 8


@dataclass(frozen=True, slots=True)
class IndexSchema:
    """Schema of an index: its key columns, stored columns, and key encoder.

    Attributes
    ----------
    names : tuple of labels
        The key columns.
    meta : DataFrame
        An empty frame like the stored rows.
    encoder : KeyEncoder
        With seeds of its own, even where the rest is shared.
    """

    names: tuple[Hashable, ...]
    meta: Any
    encoder: KeyEncoder

    @classmethod
    def of(
        cls,
        collection: Any,
        on: Hashable | Sequence[Hashable],
        columns: Sequence[Hashable] | None,
    ) -> IndexSchema:
        """Return the schema of an index of `collection`.

        See `DistributedIndex.build`.

        Raises
        ------
        ColumnError, KeyTypeError
            When a column is missing or duplicated, or cannot be a key.
        """
        meta = meta_of(collection)
        # Not for the client's own frames: the empty frame of one would keep all its rows alive.
        kind = schema_key(meta) if isinstance(collection, dd.DataFrame) else None
        # A tuple: the repr of long indexes and arrays of labels is shortened.
        wanted = None if columns is None else tuple(column_labels(columns))
        name = None if kind is None else repr((kind, on, wanted))
        schema = _schemas.get(name, lambda: cls._of_frame(meta, on, wanted))
        return replace(schema, encoder=schema.encoder.reseeded())

    @classmethod
    def _of_frame(
        cls,
        meta: Any,
        on: Hashable | Sequence[Hashable],
        wanted: tuple[Hashable, ...] | None,
    ) -> IndexSchema:
        names = key_names(meta, on)
        stored = meta[stored_columns(meta, names, wanted)].iloc[:0]
        return cls(names, stored, KeyEncoder.for_frame(stored, list(names)))


_schemas = Cache[str, IndexSchema](most=KINDS)


def scatter_to_workers(
    client: Client, workers: Sequence[str], pieces: Sequence[Any]
) -> list[Future]:
    """Scatter the pieces to `workers`; return their futures, in order.

    Raises
    ------
    OutOfMemoryError
        When all these workers stay paused until Dask's timeout.
    IndexLost
        When one of these workers is lost.
    """

    name = f"{KEY_PREFIX}scattered-{uuid.uuid4().hex}"
    named = {f"{name}-{number}": piece for number, piece in enumerate(pieces)}

    def begin() -> Awaitable[dict[str, Future]]:
        return client.scatter(named, workers=list(workers), asynchronous=True)

    try:
        return list(run_watched(client, workers, begin).values())
    except TimeoutError as error:
        raise OutOfMemoryError(
            f"no worker of {list(workers)} takes rows ({error}): Dask pauses workers whose memory "
            "is nearly full; free some, or give them more (nothing was changed)"
        ) from error
