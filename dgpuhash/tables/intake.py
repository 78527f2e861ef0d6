"""Arguments checked and brought into the form that kernels take."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.backend import Backend
from dgpuhash.errors import KeyTypeError, ShapeError
from dgpuhash.tables.arrays import Taken
from dgpuhash.tables.bits import carrier
from dgpuhash.tables.casts import cast

__all__ = ["adopt", "default_row", "natural_dtype", "same_length"]


def adopt(backend: Backend, taken: Taken, dtype: np.dtype[Any], what: str) -> Any:
    """The argument as a contiguous array of `dtype`, or of what carries it on this backend.

    Raises
    ------
    ShapeError
        When it does not have one dimension.
    KeyTypeError
        When the cast would change values.
    """
    if taken.location is None:
        host = cast(_one_dimension(taken.data, what), dtype, what, by_value=True)
        carried = carrier(backend, dtype)
        if carried != dtype:
            wide = carried.itemsize != dtype.itemsize
            host = np.ascontiguousarray(host).view(carried)
            host = host.reshape(-1, dtype.itemsize) if wide else host
        return backend.from_host(np.ascontiguousarray(host))
    array = backend.asarray(taken.data)
    if array.dtype == dtype and array.ndim == 1:
        return array
    carried = carrier(backend, dtype)
    if carried == dtype:
        return backend.asarray(cast(_one_dimension(array, what), dtype, what))
    if taken.dtype is not None and taken.dtype != dtype:
        raise KeyTypeError(
            f"{what} of dtype {taken.dtype} do not fit the table's {dtype}; "
            f"convert them with .astype('{dtype}')"
        )
    if carried.itemsize == dtype.itemsize:
        return backend.asarray(cast(_one_dimension(array, what), carried, what))
    if array.dtype != carried or array.ndim != 2 or array.shape[1] != dtype.itemsize:
        raise ShapeError(
            f"{what} of dtype {dtype} travel on a GPU as uint8 rows of {dtype.itemsize} bytes, and "
            f"these are {array.dtype} of shape {array.shape}; pass x.view('u1').reshape(len(x), -1)"
        )
    return array


def default_row(default: Any, dtype: np.dtype[Any]) -> np.ndarray:
    """One host element of `dtype` that stands for absent values; zero bytes for None.

    Raises
    ------
    KeyTypeError
        When `default` is no value of `dtype`.
    """
    if default is None:
        return np.zeros(1, dtype)
    return np.ascontiguousarray(_element(default, dtype).reshape(1))


def _element(given: Any, dtype: np.dtype[Any]) -> np.ndarray:
    """A default, or a part of one, as an array of the shape that one element has."""
    if isinstance(given, tuple) and dtype.names is not None:
        if len(given) != len(dtype.names):
            raise KeyTypeError(f"default={given!r} is no value of dtype {dtype}")
        made = np.zeros((), dtype)
        for name, part in zip(dtype.names, given, strict=True):
            made[name] = _element(part, dtype[name])
        return made
    base, shape = dtype.subdtype or (dtype, ())
    try:
        array = np.asarray(given)
    except (TypeError, ValueError) as error:
        raise KeyTypeError(f"default={given!r} is no value of dtype {dtype}") from error
    if array.shape != shape:
        raise ShapeError(
            f"default={given!r} has {array.ndim} dimensions; pass one "
            f"{f'of shape {shape}' if shape else 'scalar'}"
        )
    return cast(array.reshape(-1), base, "a default", by_value=True).reshape(shape)


def natural_dtype(taken: Taken) -> np.dtype[Any]:
    """The dtype that the user sees in an argument."""
    if taken.dtype is not None:
        return taken.dtype
    if taken.location == "cuda":
        return np.dtype(backends.get("cuda").asarray(taken.data).dtype)
    return np.dtype(taken.data.dtype)


def same_length(keys: Any, values: Any) -> None:
    """Check that each key has a value.

    Raises
    ------
    ShapeError
        When the lengths differ.
    """
    if len(keys) != len(values):
        raise ShapeError(
            f"{len(keys):,} keys came with {len(values):,} values; pass one value for each key"
        )


def _one_dimension(array: Any, what: str) -> Any:
    if array.ndim != 1:
        raise ShapeError(
            f"{what} have shape {array.shape} and must have one dimension; pass one column "
            f"({what}[:, 0]) or all elements ({what}.ravel())"
        )
    return array
