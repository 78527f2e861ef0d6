"""``df.dgpuhash``: accessor of pandas frames with merge, groupby, drop_duplicates, isin."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy as np
import pandas as pd

from dgpuhash.errors import ColumnError, KeyTypeError
from dgpuhash.frames.dataframes import frames_of
from dgpuhash.frames.dataframes.pandas_agreement import agree
from dgpuhash.frames.merge.arguments import MergeOptions, Suffixes
from dgpuhash.frames.merge.distinct import check_keep, kept_rows, null_kinds, occurs
from dgpuhash.frames.merge.keys import MissingKeyError, join_keys
from dgpuhash.frames.merge.kinds import sides_of_one_library
from dgpuhash.frames.merge.verb import merge
from dgpuhash.tables.memory_errors import function_translates_memory_errors
from dgpuhash.typing import (
    AnyFrame,
    Build,
    Frame,
    GroupingLike,
    JoinKeysLike,
    KeepEqual,
    MergeHow,
    NamedColumn,
    Promote,
    RowIndex,
    Validate,
)

if TYPE_CHECKING:
    from distributed import Client

    from dgpuhash.frames.groupby.group_by import GroupBy

# In a room above this one.
_GROUPBY = "dgpuhash.frames.groupby:groupby"


class FrameAccessor:
    """Accessor ``df.dgpuhash``, registered by ``import dgpuhash``.

    Examples
    --------
    >>> import pandas as pd
    >>> planes = pd.DataFrame({"tailnum": ["N1", "N2"], "seats": [55, 182]})
    >>> flights = pd.DataFrame({"flight": [7, 8], "tailnum": ["N2", "N9"]})
    >>> flights.dgpuhash.merge(planes, how="left")
       flight tailnum  seats
    0       7      N2  182.0
    1       8      N9    NaN
    """

    def __init__(self, frame: pd.DataFrame) -> None:
        self._frame = frame

    @overload
    def merge(
        self,
        right: pd.DataFrame | pd.Series,
        how: MergeHow = "inner",
        on: JoinKeysLike | None = None,
        left_on: JoinKeysLike | None = None,
        right_on: JoinKeysLike | None = None,
        **options: Unpack[MergeOptions],
    ) -> pd.DataFrame: ...
    @overload
    def merge(
        self,
        right: Frame | NamedColumn,
        how: MergeHow = "inner",
        on: JoinKeysLike | None = None,
        left_on: JoinKeysLike | None = None,
        right_on: JoinKeysLike | None = None,
        **options: Unpack[MergeOptions],
    ) -> AnyFrame: ...
    def merge(
        self,
        right: Frame | NamedColumn,
        how: MergeHow = "inner",
        on: JoinKeysLike | None = None,
        left_on: JoinKeysLike | None = None,
        right_on: JoinKeysLike | None = None,
        left_index: bool = False,
        right_index: bool = False,
        sort: bool = False,
        suffixes: Suffixes = ("_x", "_y"),
        indicator: bool | str = False,
        validate: Validate | None = None,
        *,
        nulls_equal: bool = True,
        columns: Sequence[Hashable] | None = None,
        promote: Promote | None = None,
        build: Build = "auto",
        npartitions: int | None = None,
        client: Client | None = None,
    ) -> AnyFrame:
        """Merge this frame with `right`: rows with equal keys side by side.

        Parameters
        ----------
        right : DataFrame or named Series
        how, on, left_on, right_on, left_index, right_index, sort, suffixes, indicator, validate
            As for `dgpuhash.merge`; this frame is its `left`.
        nulls_equal, columns, promote, build, npartitions, client
            As there.

        Raises
        ------
        ColumnError, ShapeError, KeyTypeError, SpecError, UnsupportedError, OutOfMemoryError
            As for `dgpuhash.merge`.

        Examples
        --------
        >>> import pandas as pd
        >>> seen = pd.DataFrame({"k": [1, 2, 3]})
        >>> seen.dgpuhash.merge(pd.DataFrame({"k": [2]}), how="anti")
           k
        0  1
        2  3
        """
        return merge(
            self._frame, right, how, on, left_on, right_on, left_index=left_index,
            right_index=right_index, sort=sort, suffixes=suffixes, indicator=indicator,
            validate=validate, nulls_equal=nulls_equal, columns=columns, promote=promote,
            build=build, npartitions=npartitions, client=client,
        )  # fmt: skip

    def groupby(
        self,
        by: GroupingLike | None = None,
        *,
        level: Hashable | Sequence[Hashable] = None,
        sort: bool = True,
        dropna: bool = True,
        observed: bool = True,
        as_index: bool = True,
    ) -> GroupBy:
        """Group the rows by key, for aggregation.

        Parameters
        ----------
        by, level, sort, dropna, observed, as_index
            As for `dgpuhash.groupby`.

        Raises
        ------
        ColumnError, ShapeError, SpecError, KeyTypeError, UnsupportedError, OutOfMemoryError
            As for `dgpuhash.groupby`.

        Examples
        --------
        >>> import pandas as pd
        >>> visits = pd.DataFrame({"who": ["Ada", "Bo", "Ada"], "day": [1, 1, 2]})
        >>> visits.dgpuhash.groupby("who")["day"].max().to_dict()
        {'Ada': 2, 'Bo': 1}
        """
        made: GroupBy = resolve_name(_GROUPBY)(
            self._frame, by, level=level, sort=sort, dropna=dropna, observed=observed,
            as_index=as_index,
        )  # fmt: skip
        return made

    @function_translates_memory_errors
    def drop_duplicates(
        self, subset: Hashable | Sequence[Hashable] | None = None, *, keep: KeepEqual = "first"
    ) -> pd.DataFrame:
        """Return one row of each key, with its index label.

        Parameters
        ----------
        subset : label or list of labels, optional
            The columns that are the key; default: all.
        keep : {"first", "last", False}
            Which row of a key is kept; False keeps only rows whose key no other row has.

        Returns
        -------
        DataFrame
            Order, labels and dtypes are those of `pandas.DataFrame.drop_duplicates`.

        Raises
        ------
        ColumnError
            When a column is missing, or `subset` is empty.
        KeyTypeError
            When a column holds what cannot be compared, such as lists.
        SpecError
            When ``keep`` is unknown.

        Examples
        --------
        >>> import pandas as pd
        >>> visits = pd.DataFrame({"who": ["Ada", "Bo", "Ada"], "day": [1, 1, 2]})
        >>> visits.dgpuhash.drop_duplicates("who", keep="last")
           who  day
        1   Bo    1
        2  Ada    2
        """
        check_keep(keep)
        frame = self._frame
        if frame.empty:
            return frame.copy(deep=False)
        return frame.iloc[kept_rows(_value_columns(frame, column_places(frame, subset)), keep)]

    @function_translates_memory_errors
    def isin(
        self,
        values: Frame | NamedColumn | RowIndex,
        on: Hashable | Sequence[Hashable] | None = None,
    ) -> pd.Series:
        """Return a boolean Series: whether each row's key occurs in another frame.

        Parameters
        ----------
        values : DataFrame, named Series, Index, FrameIndex or DistributedIndex
            Where the keys are looked for; the levels of an Index are the keys.
        on : label or list of labels, optional
            The key columns, of both frames; or those of this frame, in the order of an index's.
            Default: the columns that both frames have, or those called as the keys of an index.

        Raises
        ------
        ColumnError, ShapeError
            When a key column is missing, or their number is not that of the index.
        KeyTypeError
            When keys are never equal or cannot be keys.

        Examples
        --------
        >>> import pandas as pd
        >>> flights = pd.DataFrame({"tailnum": ["N2", "N9"], "day": [1, 1]}, index=[7, 8])
        >>> flights.dgpuhash.isin(pd.DataFrame({"tailnum": ["N1", "N2"]}))
        7     True
        8    False
        dtype: bool
        """
        frame = self._frame
        if isinstance(values, pd.Index):
            names: Any = list(values.names) if on is None else on
            if on is None and None in names:
                raise ColumnError("the levels of the Index have no names; name columns with on=")
            other = pd.DataFrame(index=values)
            keys = join_keys(frame, other, None, names, None, left_index=False, right_index=True)
        elif hasattr(values, "contains") and not isinstance(values, pd.DataFrame | pd.Series):
            return self._stored_in(values, on)
        else:
            ours, theirs, _ = sides_of_one_library(frame, values)
            theirs = theirs.to_frame() if isinstance(theirs, pd.Series) else theirs
            if not isinstance(theirs, pd.DataFrame):
                raise KeyTypeError(
                    f"keys were given as a {type(values).__name__}; give a DataFrame, an Index "
                    f"or a FrameIndex"
                )
            keys = join_keys(ours, theirs, on, None, None, left_index=False, right_index=False)
        for pair in keys.pairs:
            agree(pair)
        return pd.Series(occurs(*keys.sides), frame.index)

    def _stored_in(self, index: Any, on: Any) -> pd.Series:
        """Return for each row whether an index of this library has its key."""
        names = list(index.on if hasattr(index, "on") else index.encoder.names)
        asked = names if on is None else list(on) if isinstance(on, list | tuple) else [on]
        if len(asked) != len(names):
            raise ColumnError(f"{len(asked)} key columns {asked!r} for an index on {names!r}")
        missing = [label for label in asked if label not in self._frame.columns]
        if missing:
            raise MissingKeyError(missing)
        return index.contains(self._frame[asked].set_axis(names, axis=1))


def column_places(frame: pd.DataFrame, subset: Any) -> list[int]:
    """Return the positions of the columns that `subset` names."""
    if subset is None:
        return list(range(frame.shape[1]))
    one = isinstance(subset, str) or not np.iterable(subset)
    one = one or (isinstance(subset, tuple) and subset in frame.columns)
    names = [subset] if one else list(subset)
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise MissingKeyError(pd.Index(missing))
    if not names:
        raise ColumnError(f"subset is empty; choose from {list(frame.columns)!r}")
    return [place for place, name in enumerate(frame.columns) if name in set(names)]


def _value_columns(frame: pd.DataFrame, places: Sequence[int]) -> pd.DataFrame:
    """Return the values of some columns as key columns, named by numbers."""
    columns: list[Any] = []
    for place in places:
        column = frame.iloc[:, place]
        series = pd.Series(column.array, dtype=column.dtype, copy=False)
        columns.extend(key_columns(series, frame.columns[place]))
        if series.dtype == object and len(places) == 1 and series.hasnans:
            columns.append(null_kinds(series))
    return pd.DataFrame(dict(enumerate(columns)), copy=False)


def key_columns(series: pd.Series, label: Hashable) -> list[pd.Series]:
    """Return key columns that are equal where values of a Series of any dtype are equal."""
    if series.dtype != object or pd.api.types.infer_dtype(series, skipna=True) == "string":
        try:
            found = frames_of(series).key_columns(series, series, label)
            return [ours.series for ours, _ in found]
        except KeyTypeError:
            # What no type of keys holds; Python compares it, as pandas does.
            pass
    numbers: dict[Any, int] = {}
    values, nulls = series.astype(object), series.isna().to_numpy()
    try:
        numbered = [
            -1 if null else numbers.setdefault(value, len(numbers))
            for value, null in zip(values, nulls, strict=True)
        ]
    except TypeError as error:
        raise KeyTypeError(
            f"column {label!r} has values that cannot be compared ({error}); leave it out, or "
            "convert it with .astype('str')"
        ) from error
    return [pd.Series(numbered, dtype="int64")]
