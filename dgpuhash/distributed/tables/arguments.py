"""Arguments of a verb: Dask or client arrays, checked, as a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dask.array as da
import numpy as np
from dask.array.core import Array
from distributed import Client, Future, futures_of

from dgpuhash import backend as backends
from dgpuhash.distributed.cluster.client import check_same_cluster
from dgpuhash.distributed.tables.batch import Batch, DaskBatch, HostBatch
from dgpuhash.errors import KeyTypeError, ShapeError, UnsupportedError
from dgpuhash.spec import native_dtype
from dgpuhash.tables.arguments.casts import cast, dtype_code, keeps_values
from dgpuhash.tables.arguments.exact import comparable
from dgpuhash.tables.arguments.interop import as_argument
from dgpuhash.tables.arguments.lookup_keys import as_lookup_keys
from dgpuhash.tables.arguments.validate import as_device_array, natural_dtype, same_length


def check_arrays() -> None:
    """Raise UnsupportedError where Dask's arrays are expressions.

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
) -> Batch:
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
    """Check that the array's values fit `dtype`; return `Batch.mixed`.

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
