"""Convert array-like arguments, and give results in the kind of the argument.

A result is of the argument's kind where that kind holds the result's dtype exactly.

Accepts NumPy and CuPy arrays, pandas and cuDF Series and Index, Arrow arrays, objects with DLPack,
the CUDA array interface or the buffer protocol, and Python sequences. If a pandas argument has a
nullable or an Arrow dtype, results have one too. Libraries are looked up in ``sys.modules``: an
object of a library cannot exist before the library is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple, Protocol

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.backend import Backend
from dgpuhash.errors import KeyTypeError, ShapeError
from dgpuhash.tables.arguments.casts import cast, dtype_code
from dgpuhash.tables.arguments.encoding import carrier_dtype
from dgpuhash.tables.arguments.objects import array_of, dtype_for, objects_as_dtype
from dgpuhash.typing import Device

_DLPACK_HOST = 1
_COMMON_UNITS = {"s", "ms", "us", "ns"}
_DAYS = np.dtype("M8[D]")


class ResultWrapper(Protocol):
    """Function that turns a result array into the kind of the argument."""

    def __call__(
        self, result: Any, dtype: np.dtype[Any], *, by_row: bool = True, own: bool = False
    ) -> Any:
        """Return `result`, with values of `dtype`, in that kind.

        `by_row`: element *i* belongs to row *i* of the argument, and takes that row's index label.

        `own`: the elements come from the argument itself, and get exactly its dtype.
        """


def _as_is(result: Any, dtype: np.dtype[Any], *, by_row: bool = True, own: bool = False) -> Any:
    return result


class ArrayArgument(NamedTuple):
    """An array argument: data, location, dtype, and how to wrap results."""

    data: Any
    """A NumPy array, or an object in device memory that the backend can adopt."""
    location: Device | None
    """'cpu', 'cuda', or None for Python sequences, which fit a table on any device."""
    dtype: np.dtype[Any] | None = None
    """The dtype that the user sees, if `data` holds it as plain integers."""
    wrap: ResultWrapper = _as_is
    """Turns results into the kind of the argument."""


def as_argument(thing: Any, what: str) -> ArrayArgument:
    """Return `thing` as an array argument; `what` names it in errors.

    Raises
    ------
    KeyTypeError
        For text, categories, objects and every type without a fixed-size NumPy dtype.
    ShapeError
        When nulls are present, or `thing` is a scalar or a table.
    """
    if isinstance(thing, np.ma.MaskedArray):
        _refuse_nulls(int(np.ma.count_masked(thing)), what, f"{what}.compressed()")
        return ArrayArgument(np.asarray(thing.data), "cpu")
    if isinstance(thing, np.ndarray):
        return ArrayArgument(thing, "cpu")
    for library, adopt in _LIBRARIES:
        module = sys.modules.get(library)
        taken = adopt(module, thing, what) if module is not None else None
        if taken is not None:
            return taken
    if hasattr(thing, "__cuda_array_interface__"):
        return ArrayArgument(thing, "cuda")
    if hasattr(thing, "__dlpack__") and hasattr(thing, "__dlpack_device__"):
        if int(thing.__dlpack_device__()[0]) != _DLPACK_HOST:
            return ArrayArgument(thing, "cuda")
        try:
            return ArrayArgument(np.from_dlpack(thing), "cpu")
        except (BufferError, RuntimeError, TypeError) as error:
            raise KeyTypeError(
                f"{what} could not be read through DLPack ({error}); "
                "pass a plain tensor of a NumPy dtype (detach it, cast bfloat16)"
            ) from error
    if hasattr(thing, "__arrow_c_array__") or hasattr(thing, "__arrow_c_stream__"):
        import pyarrow

        of_one = hasattr(thing, "__arrow_c_array__")
        try:
            adopted = pyarrow.array(thing) if of_one else pyarrow.chunked_array(thing)
        except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError) as error:
            raise KeyTypeError(
                f"{what} could not be read through Arrow ({error}); pass an array of a NumPy dtype"
            ) from error
        return as_argument(adopted, what)
    return _sequence(thing, what)


def _sequence(thing: Any, what: str) -> ArrayArgument:
    if isinstance(thing, str | bytes) or not (
        isinstance(thing, Sequence | memoryview) or hasattr(thing, "__array__")
    ):
        raise ShapeError(
            f"{what} is a single {type(thing).__name__}, not an array; pass an array or a list"
        )
    try:
        data = array_of(thing, what) if isinstance(thing, Sequence) else np.asarray(thing)
    except ValueError as error:
        raise ShapeError(f"{what} is a ragged list ({error}); pass one number a row") from error
    return ArrayArgument(data, None if isinstance(thing, Sequence) else "cpu")


def _cupy(cupy: ModuleType, thing: Any, what: str) -> ArrayArgument | None:
    return ArrayArgument(thing, "cuda") if isinstance(thing, cupy.ndarray) else None


def _pandas(pd: ModuleType, thing: Any, what: str) -> ArrayArgument | None:
    if isinstance(thing, pd.DataFrame):
        raise ShapeError(
            f"{what} is a DataFrame; pass one column, or index several with dgpuhash.FrameIndex"
        )
    if not isinstance(thing, pd.Series | pd.Index | pd.api.extensions.ExtensionArray):
        return None
    dtype = thing.dtype
    if not isinstance(dtype, np.dtype):
        plain = getattr(dtype, "numpy_dtype", None)
        zone = getattr(getattr(dtype, "pyarrow_dtype", None), "tz", None)
        if plain is None or np.dtype(plain).kind not in "biufmM" or zone is not None:
            raise _no_dtype(what, dtype)
        nulls = int(pd.isna(thing).sum())
        _refuse_nulls(nulls, what, f"{what}.dropna()")
        data = thing.to_numpy(dtype=plain)
    else:
        data = thing.to_numpy()

    def wrap(result: Any, dtype: np.dtype[Any], *, by_row: bool = True, own: bool = False) -> Any:
        if dtype.kind == "V" or not has_common_unit(dtype):
            return result
        made = as_extension_array(result, thing.dtype, own=own)
        if isinstance(thing, pd.Series):
            return pd.Series(made, index=thing.index if by_row else None)
        if isinstance(thing, pd.Index):
            return result if made is result and dtype == np.float16 else pd.Index(made)
        return pd.array(result, dtype=dtype) if made is result else made

    return ArrayArgument(data, "cpu", None, wrap)


def as_extension_array(result: np.ndarray, dtype: Any, *, own: bool = False) -> Any:
    """Return a result as a pandas array of the nullable or Arrow `dtype`.

    The result is returned unchanged if it is on a GPU, `dtype` is a plain NumPy dtype, or pandas
    has no such array.
    Nothing becomes a null: NaN stays NaN. `own`: the result has exactly `dtype`, which holds all of
    its values.

    Examples
    --------
    >>> import pandas as pd, pyarrow as pa
    >>> str(as_extension_array(np.array([True, False]), pd.Int64Dtype()).dtype)
    'boolean'
    >>> str(as_extension_array(np.array([1.5]), pd.ArrowDtype(pa.int8())).dtype)
    'double[pyarrow]'
    """
    pd = sys.modules.get("pandas")
    on_host = isinstance(result, np.ndarray)
    if pd is None or not on_host or not isinstance(dtype, pd.api.extensions.ExtensionDtype):
        return result
    if dtype.construct_array_type() is pd.arrays.NumpyExtensionArray:
        # A NumPy array in a pandas wrapper.
        return result
    if isinstance(dtype, pd.ArrowDtype):
        import pyarrow as pa

        try:
            made = pa.array(result)
        except pa.ArrowException:
            return result
        made = made.cast(dtype.pyarrow_dtype) if own else made
        return pd.array(made, pd.ArrowDtype(made.type))
    masked = {
        "b": pd.arrays.BooleanArray,
        "i": pd.arrays.IntegerArray,
        "u": pd.arrays.IntegerArray,
        "f": pd.arrays.FloatingArray,
    }.get(result.dtype.kind)
    if (
        masked is None
        or not hasattr(dtype, "numpy_dtype")
        or result.dtype.itemsize > 8
        or result.dtype == np.float16
    ):
        return result
    return masked(result, np.zeros(len(result), bool))


def _cudf(cudf: ModuleType, thing: Any, what: str) -> ArrayArgument | None:
    if isinstance(thing, cudf.DataFrame):
        raise ShapeError(
            f"{what} is a DataFrame; pass one column, or index several with dgpuhash.FrameIndex"
        )
    if not isinstance(thing, cudf.Series | cudf.Index):
        return None
    dtype = thing.dtype
    if not isinstance(dtype, np.dtype) or dtype.kind not in "biufmM":
        raise _no_dtype(what, dtype)
    # `isna` and `hasnans` count NaN as null; tables treat NaN as a value.
    series = thing.to_series() if isinstance(thing, cudf.Index) else thing
    _refuse_nulls(int(series.null_count), what, f"{what}.dropna()")
    data = thing.astype("int64").values if dtype.kind in "mM" else thing.values

    def wrap(result: Any, dtype: np.dtype[Any], *, by_row: bool = True, own: bool = False) -> Any:
        plain = dtype.kind in "biufmM" and dtype != np.float16 and has_common_unit(dtype)
        if not plain or getattr(result, "ndim", 1) != 1:
            return result
        if isinstance(thing, cudf.Series):
            made = cudf.Series(result, index=thing.index if by_row else None)
        else:
            made = cudf.Index(result)
        return made.astype(dtype) if dtype.kind in "mM" else made

    return ArrayArgument(data, "cuda", dtype if dtype.kind in "mM" else None, wrap)


def _arrow(pa: ModuleType, thing: Any, what: str) -> ArrayArgument | None:
    if isinstance(thing, pa.Table | pa.RecordBatch):
        raise ShapeError(
            f"{what} is an Arrow table; pass one column, or index several with dgpuhash.FrameIndex"
        )
    if not isinstance(thing, pa.Array | pa.ChunkedArray):
        return None
    kind = thing.type
    of_day = pa.types.is_time(kind) or pa.types.is_interval(kind)
    if not pa.types.is_primitive(kind) or of_day or getattr(kind, "tz", None) is not None:
        raise _no_dtype(what, kind)
    _refuse_nulls(thing.null_count, what, f"{what}.drop_null()")
    flat = thing.combine_chunks() if isinstance(thing, pa.ChunkedArray) else thing

    def wrap(result: Any, dtype: np.dtype[Any], *, by_row: bool = True, own: bool = False) -> Any:
        if dtype == _DAYS:
            made = pa.array(result)
            # Arrow's date32 has 32 bits for days and wraps larger numbers silently.
            kept = np.array_equal(made.to_numpy(zero_copy_only=False), result, equal_nan=True)
            return made if kept else result
        if dtype.kind in "cV" or dtype == np.longdouble or not has_common_unit(dtype):
            return result
        made = pa.array(result)
        return made.cast(kind) if own else made

    data = flat.to_numpy(zero_copy_only=False)
    return ArrayArgument(data, "cpu", None, wrap)


_LIBRARIES = (("cupy", _cupy), ("pandas", _pandas), ("cudf", _cudf), ("pyarrow", _arrow))


def has_common_unit(dtype: np.dtype[Any]) -> bool:
    """Return whether pandas, cuDF and Arrow support `dtype`'s time unit.

    True for every dtype that is not a time.

    Examples
    --------
    >>> [has_common_unit(np.dtype(each)) for each in ("M8[ms]", "M8[10ms]", "m8[D]", "int8")]
    [True, False, False, True]
    """
    if dtype.kind not in "mM":
        return True
    unit, multiple = np.datetime_data(dtype.str)
    return multiple == 1 and unit in _COMMON_UNITS


def _refuse_nulls(nulls: int, what: str, remedy: str) -> None:
    if nulls:
        raise ShapeError(
            f"{what} hold {nulls:,} nulls, and a table has no null key or value; drop them "
            f"({remedy}), fill them, or use dgpuhash.FrameIndex, which matches nulls as pandas does"
        )


def _no_dtype(what: str, dtype: object) -> KeyTypeError:
    return KeyTypeError(
        f"{what} of dtype {dtype} have no fixed-size NumPy form; for text and categories use "
        "dgpuhash.FrameIndex, for zoned times pass .dt.tz_convert('UTC').dt.tz_localize(None)"
    )


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
    """Return checked offsets (int64) of lists of values on the backend.

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
            f"offsets do not divide {values:,} values into {lists:,} lists; begin with 0, end "
            f"with the number of values, and increase"
        )
    if cap is not None and lists and int(sizes.max()) > cap:
        raise ShapeError(
            f"a list of {int(sizes.max()):,} values is longer than cap={cap:,}; insert "
            "its pairs one by one"
        )
    return ends


def default_row(default: Any, dtype: np.dtype[Any]) -> np.ndarray:
    """Return one host element of `dtype` for absent values.

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
            raise KeyTypeError(f"default={given!r} is not a value of dtype {dtype}")
        made = np.zeros((), dtype)
        for name, part in zip(dtype.names, given, strict=True):
            made[name] = _element(part, dtype[name])
        return made
    base, shape = dtype.subdtype or (dtype, ())
    try:
        array = np.asarray(given)
    except (TypeError, ValueError) as error:
        raise KeyTypeError(f"default={given!r} is not a value of dtype {dtype}") from error
    if array.shape != shape:
        raise ShapeError(
            f"default={given!r} has {array.ndim} dimensions; pass one "
            f"{f'of shape {shape}' if shape else 'scalar'}"
        )
    return cast(array.reshape(-1), base, "a default", by_value=True).reshape(shape)


def natural_dtype(taken: ArrayArgument, what: str | None = None) -> np.dtype[Any]:
    """Return the dtype of an argument from the user's point of view.

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
    """Raise unless there is one value for each key.

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
    """Return the array unchanged; raise unless it has one dimension.

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
