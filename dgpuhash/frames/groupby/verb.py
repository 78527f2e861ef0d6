"""``dgpuhash.groupby``: groups of a frame's rows, as pandas means them."""

from __future__ import annotations

from typing import Any

import pandas as pd

from dgpuhash.errors import KeyTypeError, UnsupportedError
from dgpuhash.frames.groupby.group_by import GroupBy
from dgpuhash.frames.groupby.grouping_keys import grouping_keys
from dgpuhash.frames.groupby.groups import Groups
from dgpuhash.tables.memory_errors import function_translates_memory_errors

__all__ = ["groupby"]

_LIBRARIES = {"cudf": "to_pandas()", "dask": "compute()", "polars": "to_pandas()"}


@function_translates_memory_errors
def groupby(
    frame: Any,
    by: Any = None,
    *,
    level: Any = None,
    sort: bool = True,
    dropna: bool = True,
    observed: bool = True,
    as_index: bool = True,
) -> GroupBy:
    """Return the groups of the rows of a frame that have equal keys, to be aggregated.

    Parameters
    ----------
    frame : DataFrame or Series of pandas
    by : label, list of labels, array, Series, Index, mapping or function
        The keys: columns, index levels by name, values for each row, or what a mapping or function
        makes of the labels of the rows.
    level : int, label or list of these, optional
        Levels of the index, in place of `by`.
    sort : bool
        Whether groups come in the order of their keys, nulls last; otherwise in order of first
        appearance.
    dropna : bool
        Whether rows with a null among their keys are in no group.
    observed : bool
        Whether only categories that occur are groups. False: all combinations of categories.
    as_index : bool
        Whether keys are the labels of results; otherwise they are their first columns.

    Returns
    -------
    GroupBy
        ``[column]`` or ``[columns]`` chooses what is aggregated; aggregates are methods, or named
        in ``agg``.

    Raises
    ------
    ColumnError, ShapeError, SpecError
        When a key is missing or ambiguous, an array has another length, or no key is named.
    KeyTypeError
        When values cannot be keys.
    UnsupportedError
        When the frame is none of pandas, a key is a `pandas.Grouper`, or ``observed=False`` makes
        more than 10,000,000 groups.
    OutOfMemoryError
        When groups do not fit the memory.

    Notes
    -----
    Groups, their order, labels and dtypes are pandas' own. No hash is trusted: the keys of a group
    are compared. Floats are added up with compensation; variances are computed from deviations, in
    a second pass over the rows.

    Examples
    --------
    >>> import dgpuhash, pandas as pd
    >>> sales = pd.DataFrame({"shop": ["a", "b", "a"], "price": [2.5, 1.0, 3.5]})
    >>> dgpuhash.groupby(sales, "shop")["price"].sum()
    shop
    a    6.0
    b    1.0
    Name: price, dtype: float64
    >>> groups = dgpuhash.groupby(sales, "shop", as_index=False)
    >>> groups.agg(total=("price", "sum"), sold=("price", "count"))
      shop  total  sold
    0    a    6.0     2
    1    b    1.0     1
    """
    library = type(frame).__module__.partition(".")[0]
    if not isinstance(frame, pd.DataFrame | pd.Series):
        if library in _LIBRARIES:
            raise UnsupportedError(
                f"a groupby of a {library} frame; convert it with .{_LIBRARIES[library]} first"
            )
        raise KeyTypeError(
            f"a pandas DataFrame or Series is needed, not {type(frame).__name__}; make one with "
            "pandas.DataFrame(…)"
        )
    keys = grouping_keys(frame, by, level)
    groups = Groups(
        keys, len(frame), sort=bool(sort), dropna=bool(dropna), observed=bool(observed)
    )  # fmt: skip
    return GroupBy(frame, groups, as_index=bool(as_index))
