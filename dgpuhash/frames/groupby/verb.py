"""Entry point ``dgpuhash.groupby`` for pandas, cuDF, polars and PyArrow frames."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.api.types import is_object_dtype

from dgpuhash.errors import KeyTypeError, UnsupportedError
from dgpuhash.frames.dataframes.arrow_columns import as_chunked, key_array
from dgpuhash.frames.dataframes.interop import is_arrow
from dgpuhash.frames.groupby import assembly
from dgpuhash.frames.groupby.group_by import GroupBy
from dgpuhash.frames.groupby.grouping_keys import grouping_keys, levels_of
from dgpuhash.frames.groupby.groups import Groups
from dgpuhash.frames.merge.kinds import PANDAS, FrameKind, as_pandas, from_pandas
from dgpuhash.tables.memory_errors import function_translates_memory_errors
from dgpuhash.typing import Frame, GroupingLike, NamedColumn

if TYPE_CHECKING:
    from distributed import Client

# Their results have labels beside the keys; what these are called as a column, None to leave out.
_LABELLED = {"nlargest": None, "nsmallest": None, "cov": "column", "corr": "column"}
_OF_FUNCTIONS = frozenset({"apply"})


def keys_of_table(by: Any, level: Any, kind: FrameKind) -> Any:
    """Return the keys of a groupby, with arrays of other libraries as pandas Series.

    Raises
    ------
    UnsupportedError
        When levels of an index are asked for.
    """
    if level is not None:
        raise UnsupportedError(
            f"level={level!r}, but a {kind.library} frame has no index; name columns with by="
        )
    return [_key(each) for each in by] if isinstance(by, list) else _key(by)


def _key(key: Any) -> Any:
    if not is_arrow(key):
        return key
    array = pa.array(key) if hasattr(key, "__arrow_c_array__") else pa.chunked_array(key)
    return pd.Series(key_array(as_chunked(array)), name=getattr(key, "name", None))


class TableGroupBy:
    """Groupby of a polars or PyArrow frame, returned by `dgpuhash.groupby`.

    It has the methods of `GroupBy`, whose results are frames of the same library. Keys are their
    first columns; results for each row, as those of ``transform``, have no keys. Labels of two
    levels are joined, as in ``price_sum``.

    Examples
    --------
    >>> import dgpuhash, pyarrow as pa
    >>> sales = pa.table({"shop": ["a", "b", "a"], "price": [2.5, 1.0, 3.5]})
    >>> dgpuhash.groupby(sales, "shop")["price"].sum().to_pydict()
    {'shop': ['a', 'b'], 'price': [6.0, 1.0]}
    """

    def __init__(
        self, groups: GroupBy, labelled: GroupBy, dtypes: dict[Any, Any], kind: FrameKind
    ) -> None:
        self._groups, self._labelled = groups, labelled
        self._dtypes, self._kind = dtypes, kind

    @classmethod
    def of(cls, frame: Any, groups: Groups, kind: FrameKind) -> TableGroupBy:
        """Return the groupby of another library's frame, converted by `as_pandas`."""
        columns, labelled = GroupBy(frame, groups, as_index=False), GroupBy(frame, groups)
        return cls(columns, labelled, dict(frame.dtypes), kind)

    # Without this, Python would iterate by numbers as labels of columns.
    __iter__ = None

    def __len__(self) -> int:
        return len(self._groups)

    def __repr__(self) -> str:
        return repr(self._groups).replace("GroupBy", "TableGroupBy", 1)

    def __dir__(self) -> list[str]:
        return [name for name in dir(self._groups) if name not in _OF_FUNCTIONS]

    def __getitem__(self, key: Any) -> TableGroupBy:
        return TableGroupBy(self._groups[key], self._labelled[key], self._dtypes, self._kind)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in _OF_FUNCTIONS:
            raise UnsupportedError(
                f"{name} is not supported for {self._kind.library} frames; group frame.to_pandas() "
                "instead, which supports functions"
            )
        found = getattr(self._labelled if name in _LABELLED else self._groups, name)
        if isinstance(found, GroupBy):
            return self[name]
        return self._returning(found, name) if callable(found) else found

    def _returning(self, method: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(method)
        def called(*args: Any, **kwargs: Any) -> Any:
            made = method(*args, **kwargs)
            if isinstance(made, pd.Series):
                made = made.to_frame("size" if made.name is None else made.name)
            if name == "quantile":
                made = made.rename(columns={f"level_{len(self._groups._groups.keys)}": "quantile"})
            if name in _LABELLED:
                made = self._with_labels(made, _LABELLED[name])
            origins = {label: each[0] for label, each in kwargs.items() if isinstance(each, tuple)}
            return self._of_library(made, origins)

        return called

    def _with_labels(self, made: pd.DataFrame, last: str | None) -> pd.DataFrame:
        """Return a frame with index levels as columns, the last one named `last`."""
        levels = levels_of(made.index)
        names = [*made.index.names[:-1], last]
        columns = {
            name: level.array for name, level in zip(names, levels, strict=True) if name is not None
        }
        arrays = [*columns.values(), *(made.iloc[:, place].array for place in range(made.shape[1]))]
        labels = pd.Index([*columns, *made.columns])
        return assembly.frame_of(arrays, labels, pd.RangeIndex(len(made)))

    def _of_library(self, made: pd.DataFrame, origins: dict[str, Any]) -> Any:
        """Return a result as a frame of the library.

        `origins`: the columns that columns of other names were aggregated from.
        """
        if made.columns.nlevels > 1:
            flat = ["_".join(filter(None, map(str, label))) for label in made.columns]
            origins = dict(zip(flat, made.columns.get_level_values(0), strict=True))
            made = made.set_axis(flat, axis=1)
        if self._kind.library == "pandas":
            return from_pandas(made, self._kind)
        fields: list[Any] = []
        lists: dict[str, Any] = {}
        for place, (name, dtype) in enumerate(made.dtypes.items()):
            origin: Any = origins.get(str(name), name)
            # Counts and sums have types of their own.
            if origin in self._dtypes and dtype == self._dtypes[origin]:
                fields.append(self._kind.schema.field(origin).with_name(name))
            elif is_object_dtype(dtype):
                lists[str(name)] = _as_lists(made.iloc[:, place])
        made = made.assign(**{name: each for name, each in lists.items() if each is not None})
        schema = pa.schema(fields, self._kind.schema.metadata)
        return from_pandas(made, replace(self._kind, schema=schema))


def _as_lists(column: pd.Series) -> Any:
    """Return lists and arrays as an Arrow list column; None for other columns."""
    kinds = list | np.ndarray | pd.api.extensions.ExtensionArray
    if not len(column) or not all(isinstance(each, kinds) for each in column):
        return None
    arrays = [pa.array(each, from_pandas=True) for each in column]
    schemas = [pa.schema([("value", each.type)]) for each in arrays]
    widest = pa.unify_schemas(schemas, promote_options="permissive").field("value").type
    values = pa.concat_arrays([each.cast(widest) for each in arrays])
    ends = np.cumsum([0, *map(len, arrays)])
    lists = pa.LargeListArray.from_arrays(pa.array(ends), values)
    return pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([lists])), index=column.index)


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
    """Group the rows of a frame by key, for aggregation.

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
    # Of the type: frames look for an attribute among their columns.
    if hasattr(type(frame), "__dask_graph__"):
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
    """Return the groupby of a cuDF frame."""
    from dgpuhash.frames.groupby.cudf.group_by import CudfGroupBy
    from dgpuhash.frames.groupby.cudf.groups import CudfGroups, observed_keys

    if not hasattr(frame, "iloc"):
        raise KeyTypeError(f"a cuDF DataFrame or Series is needed, not {type(frame).__name__}")
    keys = observed_keys(frame, by, level, observed=bool(observed))
    groups = CudfGroups(keys, len(frame), sort=bool(sort), dropna=bool(dropna))
    return CudfGroupBy(frame, groups, as_index=bool(as_index))
