"""Groups of the rows of polars and PyArrow frames, which have no index: keys are columns."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.api.types import is_object_dtype

from dgpuhash.errors import UnsupportedError
from dgpuhash.frames.dataframes.arrow_columns import chunked, held
from dgpuhash.frames.dataframes.interop import is_arrow
from dgpuhash.frames.groupby import assembly
from dgpuhash.frames.groupby.group_by import GroupBy
from dgpuhash.frames.groupby.grouping_keys import levels_of
from dgpuhash.frames.groupby.groups import Groups
from dgpuhash.frames.merge.kinds import Kind, from_pandas

# Their results have labels beside the keys; what these are called as a column, None to leave out.
_LABELLED = {"nlargest": None, "nsmallest": None, "cov": "column", "corr": "column"}
_OF_FUNCTIONS = frozenset({"apply"})


def keys_of_table(by: Any, level: Any, kind: Kind) -> Any:
    """Return the keys of a groupby, arrays of other libraries as Series of pandas.

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
    return pd.Series(held(chunked(array)), name=getattr(key, "name", None))


class TableGroupBy:
    """Groups of the rows of a polars or PyArrow frame, made by `dgpuhash.groupby`.

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
        self, groups: GroupBy, labelled: GroupBy, dtypes: dict[Any, Any], kind: Kind
    ) -> None:
        self._groups, self._labelled = groups, labelled
        self._dtypes, self._kind = dtypes, kind

    @classmethod
    def of(cls, frame: Any, groups: Groups, kind: Kind) -> TableGroupBy:
        """Return the groups of a frame of another library, given as `as_pandas` makes it."""
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
                f"{name} of a {self._kind.library} frame; group frame.to_pandas(), whose groups "
                "can be given to a function"
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
        """Return a frame whose labels are columns, the last level of which is called `last`."""
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
    """Return lists and arrays of values as a column of Arrow's lists; None for other columns."""
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
