"""Recommend casts in error messages, as code to copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dgpuhash.tables.arguments.casts import dtype_code


def astype(dtype: Any) -> str:
    """Return code that converts a column to a dtype of pandas or cuDF.

    Examples
    --------
    >>> astype(np.dtype("int64")), astype(pd.ArrowDtype(pa.int8()))
    (".astype('int64')", ".astype('int8[pyarrow]')")
    >>> astype(pd.ArrowDtype(pa.decimal128(6, 2)))
    '.astype(pandas.ArrowDtype(pyarrow.decimal128(6, 2)))'
    """
    return f".astype({_code(dtype)})"


def _code(dtype: Any) -> str:
    if isinstance(dtype, np.dtype):
        return dtype_code(dtype)
    try:
        if pd.api.types.pandas_dtype(str(dtype)) == dtype:
            return repr(str(dtype))
    except (TypeError, ValueError, NotImplementedError):
        pass
    if isinstance(dtype, pd.ArrowDtype):
        return f"pandas.ArrowDtype({_arrow_code(dtype.pyarrow_dtype)})"
    if hasattr(dtype, "precision"):
        return f"cudf.{type(dtype).__name__}({dtype.precision}, {dtype.scale})"
    return repr(str(dtype))


def _arrow_code(kind: pa.DataType) -> str:
    """Return the code of a type of Arrow."""
    if pa.types.is_decimal(kind):
        return f"pyarrow.decimal{kind.bit_width}({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        zone = f", tz={kind.tz!r}" if kind.tz else ""
        return f"pyarrow.timestamp({kind.unit!r}{zone})"
    if pa.types.is_duration(kind) or pa.types.is_time(kind):
        bits = f"{kind.bit_width}" if pa.types.is_time(kind) else ""
        return f"pyarrow.{'time' if bits else 'duration'}{bits}({kind.unit!r})"
    if pa.types.is_fixed_size_binary(kind):
        return f"pyarrow.binary({kind.byte_width})"
    if pa.types.is_list(kind):
        return f"pyarrow.list_({_arrow_code(kind.value_type)})"
    if pa.types.is_struct(kind):
        fields = ", ".join(f"({field.name!r}, {_arrow_code(field.type)})" for field in kind)
        return f"pyarrow.struct([{fields}])"
    if pa.types.is_dictionary(kind):
        parts = _arrow_code(kind.index_type), _arrow_code(kind.value_type)
        return f"pyarrow.dictionary({', '.join(parts)})"
    return f"pyarrow.type_for_alias({str(kind)!r})"


def cast_remedy(column: Any, wanted: Any, what: str, verb: str = "inserting") -> str:
    """Return a recommendation for a pandas column whose dtype is not the stored one.

    Parameters
    ----------
    column : Series
    wanted : dtype
    what : str
        That has the dtype, such as ``"the index"``.
    verb : str
    """
    if not isinstance(wanted, pd.CategoricalDtype) and _keeps(column, wanted):
        return f"convert it with {astype(wanted)} before {verb}"
    both = [each for each in (column.dtype, wanted) if pd.api.types.is_numeric_dtype(each)]
    if len(both) == 2 and not any(map(_is_exact, both)):
        code = astype(column.dtype)
    else:
        code = ".astype('str')"
    return f"build {what} from {code} of its column, and convert this one too"


def _is_exact(dtype: Any) -> bool:
    """Return whether floats would round numbers of a dtype."""
    return isinstance(dtype, pd.ArrowDtype) and pa.types.is_decimal(dtype.pyarrow_dtype)


def _keeps(column: Any, wanted: Any) -> bool:
    """Return whether a cast is known to succeed without changing values."""
    try:
        made = column.astype(wanted)
        nulls = column.isna()
        if bool((made.isna() != nulls).any()):
            return False
        if pd.api.types.is_numeric_dtype(wanted) or column.dtype == np.dtype(object):
            there = zip(column[~nulls], made[~nulls], strict=True)
            kept = [one == other or one == str(other) for one, other in there]
            return all(kept)
    except (TypeError, ValueError, OverflowError, ArithmeticError, pa.ArrowException):
        return False
    return True
