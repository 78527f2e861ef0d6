"""``dgpuhash.groupby``: groups of a frame's rows, as pandas means them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import pandas as pd

from dgpuhash.errors import KeyTypeError
from dgpuhash.frames.groupby.group_by import GroupBy
from dgpuhash.frames.groupby.grouping_keys import grouping_keys
from dgpuhash.frames.groupby.groups import Groups
from dgpuhash.frames.groupby.tables import TableGroupBy, keys_of_table
from dgpuhash.frames.merge.kinds import PANDAS, as_pandas
from dgpuhash.tables.memory_errors import function_translates_memory_errors
from dgpuhash.typing import Frame, GroupingLike, NamedColumn

if TYPE_CHECKING:
    from distributed import Client

# In a room above this one.
_LAZILY = "dgpuhash.distributed.groupby.verb:groupby_lazily"


@function_translates_memory_errors
def groupby(
    frame: Frame | NamedColumn,
    by: GroupingLike | None = None,
    *,
    level: Hashable | Sequence[Hashable] = None,
    sort: bool = True,
    dropna: bool = True,
    observed: bool = True,
    as_index: bool = True,
    npartitions: int | None = None,
    client: Client | None = None,
) -> Any:
    """Return the groups of the rows of a frame that have equal keys, to be aggregated.

    Parameters
    ----------
    frame : DataFrame of pandas, cuDF, Dask, polars or PyArrow; Series of pandas, cuDF or Dask
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
        Whether keys are the labels of results; otherwise they are their first columns, as always
        for polars and PyArrow.
    npartitions : int, optional
        Of Dask frames: partitions of results, each with a hash range of the keys. Groups come in
        order within each. Default: the number of workers, or a fourth of the frame's partitions
        where that is more; 1 where dtypes tell that groups are few.
    client : distributed.Client, optional
        Of the cluster of Dask frames; default: the current client.

    Returns
    -------
    GroupBy, CudfGroupBy, LazyGroupBy for Dask frames, TableGroupBy for polars' and PyArrow's
        ``[column]`` or ``[columns]`` chooses what is aggregated; aggregates are methods, or named
        in ``agg``.

    Raises
    ------
    ColumnError, ShapeError, SpecError
        When a key is missing or ambiguous, an array has another length, or no key is named.
    KeyTypeError
        When values cannot be keys.
    UnsupportedError
        When the frame is of another library, there is no client for a Dask frame, a key is a
        `pandas.Grouper` of a frequency, or ``observed=False`` makes more than 10,000,000 groups.
    OutOfMemoryError
        When groups do not fit the memory.

    Notes
    -----
    Groups, their order, labels and dtypes are pandas' own, or of cuDF frames cuDF's. No hash is
    trusted: the keys of a group are compared. Floats are added up with compensation; variances are
    computed from deviations, in a second pass over the rows.

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
    if hasattr(frame, "__dask_graph__"):
        return resolve_name(_LAZILY)(
            frame, by, level=level, sort=sort, dropna=dropna, observed=observed,
            as_index=as_index, npartitions=npartitions, client=client,
        )  # fmt: skip
    if type(frame).__module__.partition(".")[0] == "cudf":
        return _of_cudf(frame, by, level, sort, dropna, observed, as_index)
    kind = PANDAS
    if not isinstance(frame, pd.DataFrame | pd.Series):
        frame, kind = as_pandas(frame)
    if kind != PANDAS:
        by = keys_of_table(by, level, kind)
    if not isinstance(frame, pd.DataFrame | pd.Series):
        raise KeyTypeError(
            f"a pandas DataFrame or Series is needed, not {type(frame).__name__}; make one with "
            "pandas.DataFrame(…)"
        )
    if isinstance(by, pd.Grouper):
        # A Grouper alone has its own, as in pandas.
        sort, dropna = by.sort, by.dropna
    keys = grouping_keys(frame, by, level)
    groups = Groups(
        keys, len(frame), sort=bool(sort), dropna=bool(dropna), observed=bool(observed)
    )  # fmt: skip
    groups.keeps_nan = kind.library == "polars"
    if kind != PANDAS:
        return TableGroupBy.of(frame, groups, kind)
    return GroupBy(frame, groups, as_index=bool(as_index))


def _of_cudf(
    frame: Any, by: Any, level: Any, sort: bool, dropna: bool, observed: bool, as_index: bool
) -> Any:
    """Return the groups of the rows of a cuDF frame."""
    from dgpuhash.frames.groupby.cudf.group_by import CudfGroupBy
    from dgpuhash.frames.groupby.cudf.groups import CudfGroups
    from dgpuhash.frames.groupby.cudf.keys import observed_keys

    if not hasattr(frame, "iloc"):
        raise KeyTypeError(f"a cuDF DataFrame or Series is needed, not {type(frame).__name__}")
    keys = observed_keys(frame, by, level, observed=bool(observed))
    groups = CudfGroups(keys, len(frame), sort=bool(sort), dropna=bool(dropna))
    return CudfGroupBy(frame, groups, as_index=bool(as_index))
