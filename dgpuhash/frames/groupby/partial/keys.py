"""Encode group keys and their categories consistently across parts."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa

from dgpuhash.errors import ColumnError, UnsupportedError
from dgpuhash.frames.dataframes import as_series, frames_of
from dgpuhash.frames.dataframes.pandas_casts import is_unknown
from dgpuhash.frames.groupby.assembly import frame_of
from dgpuhash.frames.groupby.grouping_keys import GroupingKey, grouping_keys, levels_of
from dgpuhash.frames.keys.categories import in_dtype, together
from dgpuhash.frames.merge.index import index_of

if TYPE_CHECKING:
    from dgpuhash.frames.groupby.partial.plan import GroupPlan


def without_unknown_categories(frame: Any) -> Any:
    """Return an empty frame or Series with unknown categories as objects.

    Dask has frames of which only the partitions know the categories.
    """
    if frame.ndim == 1:
        return frame.astype(object) if is_unknown(frame.dtype) else frame
    places = [place for place, dtype in enumerate(frame.dtypes) if is_unknown(dtype)]
    if not places:
        return frame
    columns = [as_series(frame.iloc[:, place]) for place in range(frame.shape[1])]
    arrays = [
        column.astype(object).to_numpy() if place in places else column.array
        for place, column in enumerate(columns)
    ]
    return frame_of(arrays, frame.columns, frame.index)


def known_keys(frame: Any, by: Any, level: Any, *, observed: bool) -> list[GroupingKey]:
    """Return the keys of an empty frame, with unknown categories as objects.

    Raises
    ------
    UnsupportedError
        When groups of categories that no row has are asked for, and these are not known.
    """
    keys = grouping_keys(frame, by, level)
    made = [replace(key, values=without_unknown_categories(key.values)) for key in keys]
    if not observed and any(map(is_unknown, (key.values.dtype for key in keys))):
        raise UnsupportedError(
            "observed=False needs known categories; make them known with .cat.as_known()"
        )
    return made


def as_dtype(column: pd.Series, dtype: Any, label: Any) -> pd.Series:
    """Return a column of a part in the plan's dtype.

    Raises
    ------
    ColumnError
        When it has other values, or categories in another order that counts.
    """
    if isinstance(dtype, pd.CategoricalDtype) and isinstance(column.dtype, pd.CategoricalDtype):
        return _with_categories(column, dtype, label)
    if column.dtype == dtype:
        return column
    try:
        made = column.astype(dtype)
        back = made.astype(column.dtype)
        same = bool(((back == column) | (column.isna() & made.isna())).all())
        if same and {made.dtype.kind, column.dtype.kind} == {"i", "u"}:
            # Great numbers without a sign come back from negative ones.
            same = bool(((made < 0) == (column < 0)).all())
        reason = "" if same else ", which does not have its values"
    except (TypeError, ValueError, OverflowError, pa.ArrowInvalid) as error:
        reason = f" ({error})"
    if reason:
        raise ColumnError(
            f"column {label!r} is {column.dtype} in a partition, and {dtype} in the plan{reason}; "
            "give all partitions one dtype with .astype"
        )
    return made


def _with_categories(column: pd.Series, dtype: Any, label: Any) -> pd.Series:
    """Return a categorical column with a dtype's categories in its order."""
    own = column.cat.categories
    if own.equals(dtype.categories) and column.dtype == dtype:
        return column
    if column.cat.ordered and dtype.ordered:
        places = dtype.categories.get_indexer(own)
        if (np.diff(places[places >= 0]) < 0).any():
            raise ColumnError(
                f"column {label!r} has the ordered categories {reprlib.repr(own.tolist())} in a "
                "partition, and those of the frame's meta are "
                f"{reprlib.repr(dtype.categories.tolist())}; give all partitions one order, or "
                "none with .cat.as_unordered()"
            )
    made = column.cat.set_categories(dtype.categories, ordered=dtype.ordered)
    lost = column[made.isna() & column.notna()]
    if len(lost):
        raise ColumnError(
            f"column {label!r} has the category {lost.iloc[0]!r} in a partition, and those of the "
            f"frame's meta are {reprlib.repr(dtype.categories.tolist())}; make the categories "
            "unknown to Dask with .cat.as_unknown(), so that all are read from the partitions"
        )
    return made


def portable(columns: Sequence[pd.Series], names: Sequence[Any]) -> pd.DataFrame:
    """Return key columns, named by number, in dtypes that all parts share.

    They are equal where the keys are, in whatever part these are.
    """
    made: list[Any] = []
    for column, name in zip(columns, names, strict=True):
        if isinstance(column.dtype, pd.CategoricalDtype):
            made.append(pd.Series(column.cat.codes.to_numpy().astype(np.int32)))
        else:
            frames = frames_of(column)
            as_text = frames.compares_as_text(column.dtype, column.dtype)
            found = frames.key_columns(column, column, name, as_text=as_text)
            made.extend(ours.series for ours, _ in found)
    return pd.DataFrame({f"p{place}": each for place, each in enumerate(made)}, copy=False)


# Of the categorical columns of a part, then of its labels; None where they are those of the plan.
Categories: TypeAlias = tuple[pd.Index | None, ...]


def categories_of(plan: GroupPlan, part: Any) -> Categories:
    """Return a part's categories that the plan lacks; an empty tuple if there are none.

    Ordered ones are those of the plan, or the part is refused where it is reduced.

    Raises
    ------
    ColumnError
        When they are of another type than those of the plan.
    """
    found = tuple(_other(own, like) for own, like in categorical_columns(plan, part))
    return found if any(each is not None for each in found) else ()


def categorical_columns(plan: GroupPlan, part: Any) -> Iterator[tuple[Any, Any]]:
    """Yield a part's categorical columns and levels with the plan's categories and its own."""
    source = plan.source
    if source.ndim == 1:
        pairs = [(part, source)]
    else:
        narrow = part.shape[1] != source.shape[1]
        pairs = [
            (part.iloc[:, number if narrow else place], source.iloc[:, place])
            for number, place in enumerate(plan.places)
            if isinstance(source.dtypes.iloc[place], pd.CategoricalDtype)
        ]
    levels = [
        level.rename(name)
        for level, name in zip(levels_of(source.index), source.index.names, strict=True)
    ]
    if any(isinstance(level.dtype, pd.CategoricalDtype) for level in levels):
        pairs += zip(levels_of(part.index), levels, strict=True)
    yield from (pair for pair in pairs if isinstance(pair[1].dtype, pd.CategoricalDtype))


def _other(own: Any, like: Any) -> pd.Index | None:
    """Return a column's categories in the plan's type, None if they are the same."""
    known = like.dtype.categories
    if like.dtype.ordered or not isinstance(own.dtype, pd.CategoricalDtype):
        return None
    given = own.dtype.categories
    if given.equals(known):
        return None
    if not len(known):
        return given  # type: ignore[no-any-return]
    made = in_dtype(given, known.dtype)
    if made is None:
        raise ColumnError(
            f"column {like.name!r} has the categories {reprlib.repr(given.tolist())} in a "
            f"partition, and those of the frame's meta are {known.dtype}; make the categories "
            "unknown to Dask with .cat.as_unknown(), so that all are read from the partitions"
        )
    return made


def extend_categories(plan: GroupPlan, categories: Categories) -> GroupPlan:
    """Return the plan with a part's categories appended, codes unchanged."""
    if not categories:
        return plan
    known = [like.dtype.categories for _, like in categorical_columns(plan, plan.source)]
    given = zip(known, categories, strict=True)
    return _plan_with_categories(
        plan, [own if more is None else together([own, more]) for own, more in given]
    )


def _plan_with_categories(plan: GroupPlan, categories: Sequence[pd.Index]) -> GroupPlan:
    """Return a plan with other categories in its categorical columns and levels."""
    given = iter(categories)

    def changed(column: Any) -> Any:
        dtype = column.dtype
        if not isinstance(dtype, pd.CategoricalDtype):
            return column
        dtype = pd.CategoricalDtype(next(given), dtype.ordered)
        return pd.Series(pd.Categorical([], dtype=dtype), column.index, name=column.name)

    source = plan.source.copy(deep=False)
    if source.ndim == 1:
        source = changed(source)
    else:
        for place in plan.places:
            source.isetitem(place, changed(source.iloc[:, place]))
    levels = [changed(pd.Series(level)) for level in levels_of(source.index)]
    if any(isinstance(level.dtype, pd.CategoricalDtype) for level in levels):
        source.index = index_of(levels, list(source.index.names))
    return replace(plan, source=source)


def unite_categories(plan: GroupPlan, found: Sequence[Categories]) -> GroupPlan:
    """Return the plan with the union of all parts' categories, in their order.

    Parameters
    ----------
    plan : GroupPlan
    found : sequence of Categories
        Those of each part, in their order.
    """
    if not any(found):
        return plan
    known = [like.dtype.categories for _, like in categorical_columns(plan, plan.source)]
    columns: list[list[Any]] = [
        [own if not each or each[place] is None else each[place] for each in found]
        for place, own in enumerate(known)
    ]
    # Most parts have those of the plan.
    once = [{id(each): each for each in column}.values() for column in columns]
    return _plan_with_categories(plan, [together(each) for each in once])


def recoded(states: pd.DataFrame, dtypes: Mapping[Any, Any]) -> pd.DataFrame:
    """Return states or rows with their categorical columns in these dtypes."""
    made = states.copy(deep=False)
    for label, like in dtypes.items():
        if not isinstance(like, pd.CategoricalDtype) or label not in states:
            continue
        column = states[label]
        if isinstance(column.dtype, pd.CategoricalDtype):
            made[label] = column.cat.set_categories(like.categories, ordered=like.ordered)
        else:
            made[label] = pd.Series(pd.Categorical(column.to_numpy(), dtype=like), column.index)
    return made
