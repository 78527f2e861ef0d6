"""Dtypes of results that do not depend on the values of a frame."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dgpuhash.frames.dataframes.promotion import check_promoted
from dgpuhash.frames.groupby.aggregates.values import Values
from dgpuhash.frames.groupby.reduction import Wanted

__all__ = ["settled"]

_WIDE = {"int": "int64", "uint": "uint64", "bool": "int64"}
# NumPy's dtypes that hold any sum or deviation of its float16.
_OF_HALVES = dict.fromkeys(("sum", "prod", "var"), "float32")
_OF_HALVES |= dict.fromkeys(("median", "std", "sem"), "float64")
_VALUES = frozenset({"min", "max", "first", "last"})


def settled(found: Any, values: Values, wanted: Wanted, *, full: bool) -> Any:
    """Return an aggregate in the dtype that it has of any values of such a column.

    Sums and products of integers have 64 bits; NumPy's integers are float64, and booleans objects,
    where a group may have no value; sums and deviations of float16 are float32 or float64. Texts of
    a column of objects are objects.

    Parameters
    ----------
    found : array
    values : Values
        Of the dtype of the column.
    wanted : Wanted
    full : bool
        Whether each group has rows.
    """
    how, kind = wanted.how, values.kind
    if kind == "object" and isinstance(getattr(found, "dtype", None), pd.StringDtype):
        return found.to_numpy(dtype=object)
    if values.dtype == np.float16:
        return found.astype(_OF_HALVES.get(how, found.dtype))
    if kind not in _WIDE or not isinstance(found, np.ndarray | pd.api.extensions.ExtensionArray):
        return found
    if how in {"sum", "prod"}:
        least = wanted.options.least(0)
        lacking = least > 1 or (least == 1 and not full)
        return _as(found, values, _WIDE[kind], lacking=lacking)
    if how in _VALUES and values.storage == "numpy":
        lacking = wanted.options.least(-1) > 1 or not full
        if lacking and kind == "bool" and how in {"first", "last"}:
            return found.astype(object)
        return _as(found, values, str(values.plain), lacking=lacking)
    if how == "quantile" and values.storage == "numpy" and not full:
        check_promoted(found, np.dtype(np.float64), values.series.name)
        return found.astype(np.float64)
    return found


def _as(found: Any, values: Values, name: str, *, lacking: bool) -> Any:
    if values.storage == "numpy":
        if lacking:
            check_promoted(found, np.dtype(np.float64), values.series.name)
        return found.astype(np.float64 if lacking else np.dtype(name))
    if values.storage == "masked":
        return found.astype({"int64": "Int64", "uint64": "UInt64"}[name])
    return found.astype(pd.ArrowDtype(pa.type_for_alias(name)))
