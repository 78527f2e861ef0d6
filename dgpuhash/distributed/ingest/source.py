"""Rows in any form as partitions for a bulk phase."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dask.dataframe as dd
from dask.dataframe.dask_expr.io._delayed import FromDelayed
from dask.dataframe.dask_expr.io.io import FromGraph
from dask.delayed import Delayed
from distributed import Client, Future, futures_of

from dgpuhash.distributed.cluster.client import check_home
from dgpuhash.distributed.cluster.rpc import REMEDY
from dgpuhash.distributed.cluster.scatter import scattered
from dgpuhash.distributed.cluster.serialization import kind_of_meta, remember
from dgpuhash.errors import DeviceError, IndexLost, ShapeError, UnsupportedError
from dgpuhash.frames import (
    KeyEncoder,
    check_arrow_types,
    frames_of,
    kept_columns,
    key_names,
    make_frame,
)
from dgpuhash.frames.labels import column_labels

__all__ = [
    "Kept",
    "check_library",
    "check_whole",
    "collection_of",
    "frame_of",
    "meta_of",
    "partitions_of",
    "persisted",
]

# Frames of a client's own travel in pieces of this size.
PIECE_NBYTES = 32 << 20


def collection_of(data: Any, names: Sequence[Hashable]) -> Any:
    """`data` as a Dask DataFrame, or as a pandas or cuDF one.

    Parameters
    ----------
    data : Dask, pandas or cuDF DataFrame or Series, Dask array, mapping of arrays, or array
    names : sequence of labels
        What the column of an array or a nameless Series is called.

    Raises
    ------
    UnsupportedError
        When an array is given and there are several `names`, and as for `check_whole`.
    ShapeError
        When a column has not one dimension.
    """
    check_whole(data)
    if isinstance(data, dd.DataFrame):
        return data
    if _is_frame(data):
        # `rebuild` reads it again, when its user may have changed it.
        return data.copy(deep=False)
    if isinstance(data, Mapping):
        return make_frame(data)
    first = data[0] if isinstance(data, list) and data else data
    if isinstance(first, Delayed | Future):
        raise UnsupportedError(
            "the columns of delayed frames and futures are not known; make a Dask DataFrame of "
            "them with dask.dataframe.from_delayed([…], meta=…)"
        )
    if len(names) != 1:
        raise UnsupportedError(
            f"one array for the columns {list(names)!r}; give a DataFrame, or a dictionary with an "
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
    """`data`, when it is a Dask, pandas or cuDF DataFrame.

    Raises
    ------
    UnsupportedError
        When it is something else, and as for `check_whole`.
    """
    check_whole(data)
    if not _is_frame(data):
        raise UnsupportedError(
            f"a {type(data).__name__} cannot be merged; give a Dask, pandas or cuDF DataFrame "
            "(of a Series: .to_frame())"
        )
    return data


def check_whole(data: Any) -> None:
    """Raise UnsupportedError for a persisted Dask frame of which partitions are nowhere.

    Dask may read several partitions of a source together. Where only that was persisted, the frame
    goes on to count the partitions that there were.
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
    """An empty frame with the columns of `collection`."""
    return collection._meta if isinstance(collection, dd.DataFrame) else collection.iloc[:0]


def check_library(collection: Any, index_meta: Any) -> None:
    """Raise DeviceError when `collection` has frames of another library than the index."""
    given, stored = frames_of(meta_of(collection)).name, frames_of(index_meta).name
    if given != stored:
        raise DeviceError(
            f"{given} frames for an index of {stored} rows; convert them with "
            f".to_backend({stored!r}) (a Dask DataFrame), or build the index from {given} frames"
        )


def partitions_of(
    client: Client, collection: Any, columns: Sequence[Hashable], workers: Sequence[str]
) -> list[Any]:
    """The partitions with these columns, as Delayed or Future objects, in the order of rows.

    A Dask DataFrame stays where it is: each partition is read by the task that needs it, and of a
    persisted one has all columns. Other frames go to `workers` in pieces.

    Raises
    ------
    ColumnError
        When a column is missing, or pandas takes no rows of it.
    UnsupportedError
        When another cluster holds partitions, or nobody does any more.
    OutOfMemoryError
        When all `workers` are paused, as their memory is nearly full.
    IndexLost
        When one of `workers` is lost.
    """
    meta = meta_of(collection)
    check_arrow_types(meta[list(key_names(meta, list(columns)))])
    if isinstance(collection, dd.DataFrame):
        held = persisted(collection)
        futures = futures_of(collection) if held is None else held
        check_home(client, futures, "rows")
        # What is lost with a worker Dask makes again; what it cannot make is cancelled.
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
    step = max(1, len(projected) * PIECE_NBYTES // max(nbytes, 1))
    pieces = [projected.iloc[start : start + step] for start in range(0, len(projected), step)]
    if not pieces:
        return []
    try:
        return list(scattered(client, workers, pieces))
    except KeyError as error:
        # So says Dask's scheduler.
        raise IndexLost(f"worker {error} with a shard of the index is gone; {REMEDY}") from error


def persisted(collection: Any) -> list[Future] | None:
    """The partitions of a Dask DataFrame, in order, when workers hold each or compute it now."""
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
            # What is persisted has one name in the frame, and another one on the workers.
            key = getattr(graph.get(key), "target", None)
            if key is None:
                return None
        found.append(futures[key])
    return found


def _is_frame(data: Any) -> bool:
    return isinstance(data, dd.DataFrame) or (hasattr(data, "iloc") and hasattr(data, "columns"))


# Kinds of frames that are remembered, with the columns that were asked for.
KINDS = 8
_known: dict[str, Kept] = {}


@dataclass(frozen=True, slots=True)
class Kept:
    """The columns that are kept.

    Attributes
    ----------
    names : tuple of labels
        The key columns.
    meta : DataFrame
        An empty frame like the stored rows.
    encoder : KeyEncoder
        With seeds of its own, also where all else is shared.
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
    ) -> Kept:
        """What an index of `collection` keeps; see `DistributedIndex.build`.

        Raises
        ------
        ColumnError, KeyTypeError
            When a column is missing or doubled, or cannot be a key.
        """
        meta = meta_of(collection)
        # The empty frame of a client's own frame would hold all its rows.
        kind = kind_of_meta(meta) if isinstance(collection, dd.DataFrame) else None
        # Long indexes and arrays of labels are shortened where they are shown.
        wanted = None if columns is None else tuple(column_labels(columns))
        asked = repr((kind, on, wanted))
        found = None if kind is None else _known.get(asked)
        if found is None:
            names = key_names(meta, on)
            stored = meta[kept_columns(meta, names, wanted)].iloc[:0]
            found = cls(names, stored, KeyEncoder.for_frame(stored, list(names)))
            if kind is not None:
                remember(_known, asked, found, KINDS)
        return replace(found, encoder=found.encoder.reseeded())
