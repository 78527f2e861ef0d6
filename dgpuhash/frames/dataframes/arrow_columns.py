"""Convert columns of Arrow tables to pandas arrays usable as keys, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dgpuhash.errors import UnsupportedError

_NOT_ARROW = (pa.ArrowException, TypeError, ValueError, OverflowError)


def key_array(column: Any) -> Any:
    """Return an Arrow column as a pandas array of an Arrow dtype usable as a key."""
    categorical = _categorical(column, key_array)
    if categorical is not None:
        return categorical
    return pd.arrays.ArrowExtensionArray(_cast(column, _held_type(column.type)))


def with_times(column: Any) -> Any:
    """Return an Arrow column as `key_array` does, but with times of day instead of durations.

    For frames that no `arrow_column` turns back.
    """
    categorical = _categorical(column, with_times)
    if categorical is not None:
        return categorical
    times = pa.types.is_time(column.type)
    return pd.arrays.ArrowExtensionArray(column) if times else key_array(column)


def _held_type(kind: Any) -> Any:
    """Return the type in which pandas stores values of an Arrow type.

    There is one type of text and one of bytes, so that keys of both sides have the same one.
    """
    if is_text(kind):
        return pa.large_string()
    if is_bytes(kind):
        return pa.binary()
    return pa.duration(kind.unit) if pa.types.is_time(kind) else kind


def plain(column: Any) -> Any:
    """Return an Arrow column as a pandas array of an ordinary pandas dtype."""
    kind = column.type
    categorical = _categorical(column, plain)
    if categorical is not None:
        return categorical
    if is_text(kind):
        return column.cast(pa.large_string()).to_pandas().astype("str").array
    moments = pa.types.is_timestamp(kind) or pa.types.is_duration(kind)
    numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    if moments or (numbers and not column.null_count):
        return column.to_pandas().array
    if numbers and kind != pa.float16():
        fill = False if pa.types.is_boolean(kind) else 0
        arrays: dict[str, Any] = {"b": pd.arrays.BooleanArray, "f": pd.arrays.FloatingArray}
        values = column.fill_null(fill).to_numpy()
        nulls = column.is_null().to_numpy()
        return arrays.get(values.dtype.kind, pd.arrays.IntegerArray)(values.copy(), nulls)
    return key_array(column) if is_bytes(kind) else pd.arrays.ArrowExtensionArray(column)


def _categorical(column: Any, array_of: Any) -> Any:
    """Return a dictionary column as a categorical array; None for other columns.

    `array_of` makes an array of the categories.
    """
    if not pa.types.is_dictionary(column.type) or not _is_flat(column.type.value_type):
        return None
    whole = pa.chunked_array(column).unify_dictionaries().combine_chunks()
    values = whole.dictionary
    if values.null_count or len(values.unique()) < len(values):
        # Arrow allows both, pandas neither.
        whole = whole.dictionary_decode().dictionary_encode()
    codes = whole.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    categories = pd.Index(array_of(pa.chunked_array([whole.dictionary])))
    return pd.Categorical.from_codes(codes, categories=categories, ordered=column.type.ordered)


def to_arrow(series: Any, label: object) -> Any:
    """Return a pandas column as an Arrow one.

    Raises
    ------
    UnsupportedError
        When Arrow cannot hold its values.
    """
    try:
        return as_chunked(pa.array(series, from_pandas=True))
    except (*_NOT_ARROW, UnicodeError) as error:
        raise UnsupportedError(
            f"column {label!r} is {series.dtype}, which cannot be converted to Arrow ({error}); "
            "convert it with astype first"
        ) from error


def arrow_column(series: Any, wanted: Any) -> Any:
    """Return a column of a result as an Arrow column.

    Parameters
    ----------
    series : Series
    wanted : pyarrow.DataType or None
        What the column was before `key_array`; another type comes back where values were promoted.

    Raises
    ------
    UnsupportedError
        When it holds objects of several types.
    """
    if isinstance(series.dtype, pd.CategoricalDtype):
        return as_chunked(_dictionary(series.array, wanted))
    if series.dtype != object:
        return _restore(as_chunked(pa.array(series, from_pandas=True)), wanted)
    told: Exception | None = None
    for type_ in dict.fromkeys((_objects_type(wanted), None)):
        try:
            made = pa.array(series, type_, from_pandas=True)
            for value, back in zip(series[series.notna()], made.drop_null(), strict=True):
                if not np.all(value == back.as_py()):
                    raise ValueError(f"it would make {back.as_py()!r} of {value!r}")
            return _restore(as_chunked(made), wanted)
        except _NOT_ARROW as error:
            told = error
    raise UnsupportedError(
        f"column {series.name!r} has objects for which Arrow has no type ({told}); cast the "
        "keys of both sides to one type first"
    ) from told


def _objects_type(wanted: Any) -> Any:
    if wanted is None:
        return None
    return _held_type(wanted.value_type if pa.types.is_dictionary(wanted) else wanted)


def _dictionary(array: Any, wanted: Any) -> Any:
    """Return a categorical array as an Arrow array, in the given dictionary type if any."""
    codes = np.asarray(array.codes)
    indices = pa.array(codes, mask=codes < 0)
    values = as_chunked(pa.array(array.categories))
    if wanted is not None and pa.types.is_dictionary(wanted):
        values = _restore(values, wanted.value_type)
        if len(values) <= np.iinfo(wanted.index_type.to_pandas_dtype()).max:
            indices = indices.cast(wanted.index_type)
    return pa.DictionaryArray.from_arrays(indices, values.combine_chunks(), ordered=array.ordered)


def _restore(column: Any, wanted: Any) -> Any:
    """Return a column in its original type, after storing or combining it in another."""
    if wanted is None or column.type == wanted:
        return column
    if pa.types.is_null(column.type):
        return as_chunked(pa.nulls(len(column), wanted))
    if pa.types.is_dictionary(wanted):
        column = _restore(column, wanted.value_type)
        # The categories of ordered ones are fixed, and these are other ones.
        if wanted.ordered or column.type != wanted.value_type:
            return column
        return _cast(column.dictionary_encode(), wanted)
    if column.type == _held_type(wanted):
        return _cast(column, wanted)
    if pa.types.is_timestamp(column.type) and pa.types.is_timestamp(wanted) and wanted.tz:
        return column.cast(pa.timestamp(column.type.unit, wanted.tz))
    return column


def _cast(column: Any, kind: Any) -> Any:
    """Return a column in another type, or unchanged if that type cannot represent it."""
    if column.type == kind:
        return column
    steps = [kind]
    if pa.types.is_time(column.type) or pa.types.is_time(kind):
        ticks = {32: [pa.int32(), pa.int64()], 64: [pa.int64()]}
        steps = [*ticks[column.type.bit_width], kind]
        if kind.bit_width == 32:
            steps = [pa.int64(), pa.int32(), kind]
    try:
        made = column
        for step in steps:
            made = made.cast(step)
    except pa.ArrowInvalid:
        return column
    return made


def as_chunked(array: Any) -> Any:
    """Return an Arrow array as a chunked one."""
    return array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])


def takes_rows(kind: Any) -> bool:
    """Return whether pandas can gather rows of a column of an Arrow type, as a `key_array`."""
    try:
        pa.nulls(1, _held_type(kind)).take(pa.array([0]))
    except pa.ArrowNotImplementedError:
        return False
    return True


def is_text(kind: Any) -> bool:
    """Return whether an Arrow type is a string type."""
    return bool(kind in {pa.string(), pa.large_string(), pa.string_view()})


def is_bytes(kind: Any) -> bool:
    """Return whether an Arrow type is a binary type."""
    any_length = kind in {pa.binary(), pa.large_binary(), pa.binary_view()}
    return bool(any_length or pa.types.is_fixed_size_binary(kind))


def _is_flat(kind: Any) -> bool:
    """Return whether pandas categories may have values of an Arrow type."""
    flat = pa.types.is_primitive(kind) or pa.types.is_decimal(kind)
    return bool(flat or is_text(kind) or is_bytes(kind))
