"""Validation of arguments and conversion to the form that kernels take."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.backend import Backend
from dgpuhash.errors import KeyTypeError, ShapeError
from dgpuhash.tables.arguments.casts import cast, dtype_code
from dgpuhash.tables.arguments.encoding import carrier_dtype
from dgpuhash.tables.arguments.interop import ArrayArgument
from dgpuhash.tables.arguments.objects import dtype_for, objects_as_dtype


def as_device_array(backend: Backend, taken: ArrayArgument, dtype: np.dtype[Any], what: str) -> Any:
    """Return the argument as a contiguous array of `dtype` on the backend.

    The array has the dtype that carries `dtype` on this backend (see `carrier_dtype`).

    Raises
    ------
    ShapeError
        When the argument does not have one dimension.
    KeyTypeError
        When the cast would change values.
    """
    if has_python_values(taken):
        host = one_dimension(taken.data, what, dtype)
        if host.dtype == object and dtype.kind in "biufmM" and len(host):
            return host_as_device_array(backend, objects_as_dtype(host, dtype, what), dtype)
        return host_as_device_array(backend, cast(host, dtype, what, by_value=True), dtype)
    array = backend.asarray(taken.data)
    if array.ndim == 1 and len(array) == 0:
        return host_as_device_array(backend, np.zeros(0, dtype), dtype)
    if array.dtype == dtype and array.ndim == 1:
        return array
    carried = carrier_dtype(backend, dtype)
    if carried == dtype:
        return backend.asarray(cast(one_dimension(array, what), dtype, what))
    if taken.dtype is not None and taken.dtype != dtype:
        raise KeyTypeError(
            f"{what} of dtype {taken.dtype} do not fit the table's {dtype}; "
            f"convert them with .astype({dtype_code(dtype)})"
        )
    if carried.itemsize == dtype.itemsize:
        return backend.asarray(cast(one_dimension(array, what), carried, what))
    if array.dtype != carried or array.ndim != 2 or array.shape[1] != dtype.itemsize:
        raise ShapeError(
            f"{what} of dtype {dtype} travel on a GPU as uint8 rows of {dtype.itemsize} bytes, and "
            f"these are {array.dtype} of shape {array.shape}; pass x.view('u1').reshape(len(x), -1)"
        )
    return array


def host_as_device_array(backend: Backend, host: np.ndarray, dtype: np.dtype[Any]) -> Any:
    """Return a host array of `dtype` as a contiguous array on the backend.

    The array has the dtype that carries `dtype` there (see `carrier_dtype`).
    """
    carried = carrier_dtype(backend, dtype)
    if carried != dtype:
        wide = carried.itemsize != dtype.itemsize
        host = np.ascontiguousarray(host).view(carried)
        host = host.reshape(-1, dtype.itemsize) if wide else host
    return backend.from_host(np.ascontiguousarray(host))


def has_python_values(taken: ArrayArgument) -> bool:
    """Return whether the argument consists of Python values.

    Python values are converted by value, whatever dtype NumPy gives them.
    """
    return taken.location is None or _of_objects(taken)


def checked_offsets(
    backend: Backend, offsets: Any, lists: int, values: int, cap: int | None
) -> Any:
    """Return the offsets (int64) of so many lists of values on the backend.

    Raises
    ------
    ShapeError
        When they do not part the values, a list is empty, or longer than `cap`.
    """
    ends = backend.asarray(offsets, np.int64)
    if len(ends) != lists + 1:
        raise ShapeError(f"{len(ends):,} offsets of {lists:,} keys; pass one more than keys")
    sizes = ends[1:] - ends[:-1]
    # Differences of numbers far apart may overflow.
    if not bool((ends[0] == 0) & (ends[-1] == values) & (ends[1:] > ends[:-1]).all()):
        raise ShapeError(
            f"offsets do not part {values:,} values into {lists:,} lists; begin with 0, end with "
            "the number of values, and go up"
        )
    if cap is not None and lists and int(sizes.max()) > cap:
        raise ShapeError(
            f"a list of {int(sizes.max()):,} values is longer than cap={cap:,}; insert its pairs"
        )
    return ends


def default_row(default: Any, dtype: np.dtype[Any]) -> np.ndarray:
    """Return one host element of `dtype` that stands for absent values.

    `None` gives zero bytes.

    Raises
    ------
    KeyTypeError
        When `dtype` does not hold `default`.
    """
    if default is None:
        return np.zeros(1, dtype)
    return np.ascontiguousarray(_element(default, dtype).reshape(1))


def _element(given: Any, dtype: np.dtype[Any]) -> np.ndarray:
    """Return a default, or a field of one, in the shape of one element."""
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


def natural_dtype(taken: ArrayArgument, what: str | None = None) -> np.dtype[Any]:
    """Return the dtype that the user sees in an argument.

    If `what` names the argument, Python objects are inspected for the dtype that holds all of them.

    Raises
    ------
    KeyTypeError
        When no dtype holds all of the argument's objects.
    """
    if what is not None and _of_objects(taken) and taken.data.ndim == 1 and len(taken.data):
        return dtype_for(taken.data, what)
    if taken.dtype is not None:
        return taken.dtype
    if taken.location == "cuda":
        return np.dtype(backends.get("cuda").asarray(taken.data).dtype)
    return np.dtype(taken.data.dtype)


def _of_objects(taken: ArrayArgument) -> bool:
    return type(taken.data) is np.ndarray and taken.data.dtype.kind == "O"


def same_length(keys: Any, values: Any) -> None:
    """Check that there is one value for each key.

    Raises
    ------
    ShapeError
        When the lengths differ.
    """
    if len(keys) != len(values):
        raise ShapeError(
            f"{len(keys):,} keys came with {len(values):,} values; pass one value for each key"
        )


def one_dimension(array: Any, what: str, dtype: np.dtype[Any] | None = None) -> Any:
    """Return the array unchanged; it must have one dimension.

    Raises ShapeError, which tells the remedy, otherwise. Elements become `dtype`, if that is known.
    """
    if array.ndim != 1:
        if dtype is not None and dtype.names is not None:
            raise ShapeError(
                f"{what} have shape {array.shape} and must be an array of records; pass "
                f"numpy.array(rows, {dtype}) of rows that are tuples"
            )
        raise ShapeError(
            f"{what} have shape {array.shape} and must have one dimension; pass one column "
            f"({what}[:, 0]) or all elements ({what}.ravel())"
        )
    return array
