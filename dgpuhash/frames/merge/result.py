"""The frame that a merge returns: columns, labels and dtypes, as pandas gives them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from dgpuhash.errors import ColumnError, SpecError
from dgpuhash.frames.dataframes import frames_of
from dgpuhash.frames.dataframes.pandas_casts import cast_exactly, is_unknown
from dgpuhash.frames.dataframes.pandas_take import take_rows
from dgpuhash.frames.dataframes.promotion import (
    check_promoted,
    coalesce_exactly,
    nullable_frame,
    nullable_index,
    values_of_codes,
)
from dgpuhash.frames.merge.agreement import agree
from dgpuhash.frames.merge.arguments import Suffixes
from dgpuhash.frames.merge.index import beside, index_of, join_index, with_level
from dgpuhash.frames.merge.keys import JoinKeys, MergeError, as_series
from dgpuhash.frames.merge.rows import RowPairs

__all__ = ["ORIGINS", "MergePlan", "cannot_hold", "suffixed", "without"]

# What the column of an indicator holds.
ORIGINS = ("left_only", "right_only", "both")


@dataclass(frozen=True)
class MergePlan:
    """How two frames are put together, whichever of their rows match.

    Attributes
    ----------
    left, right : DataFrame
        With all of their columns and levels.
    keys : JoinKeys
    how : {"inner", "left", "right", "outer"}
    labels : pair of Index
        What the columns of each side are called in the result.
    indicator : label or None
        The column that tells on which side a row was found.
    promote : {"nullable", "pandas", "each"}
        What integers and booleans become on a side that may lack rows: nullable ones, from dtypes
        alone; floats and objects as in pandas, or ColumnError where that would round one; each:
        as pandas where rows lack.
    rounded : list or None
        Gets the labels of columns of which integers were rounded; None: that is an error.
    """

    left: Any
    right: Any
    keys: JoinKeys
    how: str
    labels: tuple[pd.Index, pd.Index]
    indicator: Hashable | None
    promote: str = "pandas"
    rounded: list[Hashable | None] | None = None
    # The labels of columns, as an index or a list.
    _labels_of: ClassVar[Callable[[Any], Any]] = attrgetter("columns")

    @classmethod
    def of(
        cls, left: Any, right: Any, keys: JoinKeys, how: str, *,
        suffixes: Suffixes = ("_x", "_y"), indicator: bool | str = False, promote: str = "pandas",
    ) -> MergePlan:  # fmt: skip
        """Return the plan for two frames.

        Raises
        ------
        MergeError, ColumnError, KeyTypeError, SpecError
            When columns overlap and suffixes do not tell them apart, the indicator's name is taken,
            or keys are never equal.
        """
        kind: type[MergePlan] = MergePlan
        if frames_of(left).name == "cudf":
            from dgpuhash.frames.merge.cudf.plan import CudfPlan

            kind = CudfPlan
        rest = kind.without(right, keys.dropped)
        name = _indicator_name(indicator, left, rest)
        left, rest = kind._agreed(left, rest, keys, how, nullable=promote == "nullable")
        labels = suffixed(kind._labels_of(left), kind._labels_of(rest), suffixes)
        made = kind(left, rest, keys, how, labels, name, promote)
        return made._nullable() if promote == "nullable" else made

    def over(self, left: Any, right: Any, keys: JoinKeys, *, cast: Any = True) -> MergePlan:
        """Return the plan for other rows of both sides; `cast` keys to the dtypes of this one's."""
        there = {*right, *right.index.names}
        right = self.without(right, [label for label in keys.dropped if label in there])
        if cast:
            left, right = self._cast_keys(left, self.left), self._cast_keys(right, self.right)
        rounded: list[Hashable | None] | None = [] if self.promote == "each" else None
        made = replace(self, left=left, right=right, keys=keys, rounded=rounded)
        return made._nullable() if self.promote == "nullable" else made

    def _nullable(self) -> MergePlan:
        """Return the plan with nullable dtypes on the sides that may lack rows.

        Keys that are made of both sides lack none.
        """
        keys, sides = self.keys, [self.left, self.right]
        indexes = [keys.right_index, keys.left_index]
        whole = set() if all(indexes) else {pair.name for pair in keys.pairs if pair.is_one_column}
        # Of indexes that share all levels, labels are keys, too.
        levels = [side.index.nlevels for side in sides]
        shared = {pair.name for pair in keys.pairs} if all(indexes) else set()
        labelled = not all(indexes) or levels != [len(keys.pairs)] * 2
        for place, lacking in enumerate(({"right", "outer"}, {"left", "outer"})):
            if self.how in lacking:
                side = nullable_frame(sides[place], whole)
                if indexes[place] and labelled:
                    side = side.set_axis(nullable_index(side.index, shared), axis=0)
                sides[place] = side
        return replace(self, left=sides[0], right=sides[1])

    def _cast_keys(self, frame: Any, like: Any) -> Any:
        """Return a side with the dtypes that the plan gives its keys."""
        labels = {pair.name for pair in self.keys.pairs}
        for label in labels:
            if label in like.columns and frame[label].dtype != like[label].dtype and any(
                agree(pair) for pair in self.keys.pairs if pair.name == label
            ):  # fmt: skip
                frame = frame.copy(deep=False)
                column, wanted = frame[label], like[label].dtype
                plain = not isinstance(wanted, pd.CategoricalDtype) and wanted != np.dtype(object)
                if plain and isinstance(column.dtype, pd.CategoricalDtype):
                    column = values_of_codes(column, nullable=True)
                if column.dtype != wanted:
                    column = _conformed(column, wanted, f"column {label!r}")
                frame[label] = column
        return frame

    @classmethod
    def without(cls, frame: Any, dropped: Sequence[Hashable]) -> Any:
        """Return a side without columns and levels that the other one stands for."""
        return without(frame, dropped)

    @classmethod
    def conformed(cls, frame: Any, meta: Any, *, kept: bool = False) -> Any:
        """Return a result with the dtypes of `meta`, where they differ.

        Columns whose values a dtype of `meta` cannot hold may be `kept` as they are.

        Raises
        ------
        ColumnError
            When a dtype of `meta` cannot hold the values of others.
        """
        for place, (ours, wanted) in enumerate(zip(frame.dtypes, meta.dtypes, strict=True)):
            if ours != wanted and not isinstance(wanted, pd.CategoricalDtype):
                # As a Series: of an array of objects pandas makes texts.
                column = frame.iloc[:, place]
                if not kept or cast_exactly(column, wanted) is not None:
                    frame.isetitem(place, _conformed(column, wanted, f"column {column.name!r}"))
        index: Any = frame.index
        wanted = meta.index.dtype
        if index.nlevels == 1 and index.dtype != wanted:
            if not isinstance(wanted, pd.CategoricalDtype):
                labels = _conformed(index.to_series(), wanted, f"index {index.name!r}")
                frame.index = index_of([labels], [index.name], guess=False)
            elif is_unknown(wanted) and not isinstance(index.dtype, pd.CategoricalDtype):
                # Of two sides' categories, which are others.
                frame.index = pd.CategoricalIndex(index)
        return frame

    @classmethod
    def _agreed(
        cls, left: Any, right: Any, keys: JoinKeys, how: str, *, nullable: bool = False
    ) -> tuple[Any, Any]:
        """Return both sides with their keys in dtypes of the result."""
        for pair in keys.pairs:
            dtypes = (
                None if keys.left_index and keys.right_index else agree(pair, nullable=nullable)
            )
            if dtypes is not None:
                left, right = (
                    _cast(frame, pair.name, dtype)
                    for frame, dtype in zip((left, right), dtypes, strict=True)
                )
        return left, right

    def index(self, pairs: RowPairs) -> pd.Index:
        """Return the labels of the given rows."""
        return join_index(
            self.left.index, self.right.index, self.keys, self.how, pairs, self.rounded
        )

    def frame(self, pairs: RowPairs, index: Any) -> Any:
        """Return the result with the given rows of both sides, and their labels."""
        keys = self._key_columns(pairs)
        order, first = sorted(keys), 0
        parts = [keys[place] for place in order]
        take = frames_of(self.left).take_or_null
        for frame, rows in ((self.left, pairs.left), (self.right, pairs.right)):
            places = range(first, first + frame.shape[1])
            others = [place for place in places if place not in keys]
            if len(others) < len(places):
                frame = frame.take([place - first for place in others], axis=1)
            order, first = order + others, places.stop
            frame = frame.copy(deep=False) if rows is None else take(frame, rows, self.rounded)
            parts.append(frame)
        for part in parts:
            # Of one object pandas compares no labels.
            part.index = index
        result: Any = pd.concat(parts, axis=1, ignore_index=True)
        if order != sorted(order):
            result = result.take(np.argsort(order), axis=1)
        result.columns = beside(*self.labels)
        if self.indicator is not None:
            result[self.indicator] = _origins(pairs, len(index))
        self._add_keys(result, pairs)
        self._restore_levels(result)
        left, right = self.left, self.right
        result.attrs = left.attrs if left.attrs == right.attrs else {}
        if not (left.flags.allows_duplicate_labels and right.flags.allows_duplicate_labels):
            result.flags.allows_duplicate_labels = False
        return result

    def _key_columns(self, pairs: RowPairs) -> dict[int, pd.Series]:
        """Return the key columns that are made of both sides, as one of them lacks rows.

        They are by their position among the columns of the left side and then of the right one.
        """
        columns: dict[int, pd.Series] = {}
        if self.keys.left_index and self.keys.right_index:
            return columns
        if pairs.left is None and pairs.right is None:
            return columns
        for pair in self.keys.pairs:
            name, ours = pair.name, pair.name in self.left.columns
            own, other = (self.left, pair.right) if ours else (self.right, pair.left)
            if name is None or name not in own.columns:
                continue
            lacks = pairs.absent("left" if ours else "right") is not None
            if not lacks and "M" not in {pair.left.dtype.kind, pair.right.dtype.kind}:
                continue
            column = as_series(own[name])
            moments = column.dtype.kind == "M" == other.dtype.kind and column.dtype != other.dtype
            named = pair.is_one_column and any(name in labels for labels in self.labels)
            if named and (lacks or moments):
                place = own.columns.tolist().index(name) + (0 if ours else self.left.shape[1])
                left, right = (column, other) if ours else (other, column)
                columns[place] = _combined(left, right, pairs, self.rounded)
        return columns

    def _add_keys(self, result: Any, pairs: RowPairs) -> None:
        """Add the keys that are columns of neither side."""
        for place, pair in enumerate(self.keys.pairs):
            if self.keys.left_index and self.keys.right_index:
                return
            name = pair.name
            if not pair.is_one_column or name in self.labels[0] or name in result.columns:
                continue
            column = _combined(pair.left, pair.right, pairs, self.rounded)
            if name is not None and name in result.index.names:
                result.index = with_level(result.index, name, column)
            else:
                result.insert(place, name or f"key_{place}", column.set_axis(result.index))

    def _restore_levels(self, result: Any) -> None:
        """Make an index of keys that were levels of both sides."""
        names = [
            pair.name
            for pair in self.keys.pairs
            if pair.of_levels and pair.name not in result.index.names
        ]
        if names:
            result.index = index_of([result.pop(name) for name in names], names, guess=False)


def suffixed(left: Any, right: Any, suffixes: Suffixes) -> tuple[Any, Any]:
    """Return what the columns of both sides, given as indexes or lists, are called in a result.

    Raises
    ------
    SpecError, ColumnError, MergeError
        When `suffixes` is no pair, or does not tell columns of one name apart.
    """
    if isinstance(suffixes, dict | set | str) or not pd.api.types.is_list_like(suffixes):
        raise SuffixTypeError(
            f"Passing 'suffixes' as a {type(suffixes)}, is not supported. Provide 'suffixes' as a "
            "tuple instead."
        )
    # Lists: an index of texts takes long to go through.
    there = set(right if isinstance(right, list) else right.tolist())
    if not any(label in left for label in there):
        return left, right
    both = [label for label in dict.fromkeys(list(left)) if label in there]
    ours, theirs = suffixes
    if not ours and not theirs:
        raise ColumnError(
            f"columns overlap but no suffix specified: {pd.Index(both)}; rename them, or give "
            "suffixes=('_left', '_right')"
        )
    taken = set(both)
    made = _renamed(left, taken, ours), _renamed(right, taken, theirs)
    doubled: set[Hashable] = set()
    for before, after in zip((left, right), made, strict=True):
        again = zip(after, _again(after), _again(before), strict=True)
        doubled |= {label for label, now, then in again if now and not then}
    doubled |= set(made[0]) & (there - taken)
    doubled |= set(made[1]) & (set(left) - taken)
    if doubled:
        raise MergeError(
            f"Passing 'suffixes' which cause duplicate columns {doubled} is not allowed."
        )
    return made


def _renamed(columns: Any, taken: set[Hashable], suffix: str | None) -> Any:
    """Return the columns with a suffix behind those that both sides have."""
    if suffix is None or not taken:
        return columns
    if not isinstance(columns, pd.MultiIndex):
        named = [f"{label}{suffix}" if label in taken else label for label in columns]
        return (
            named
            if isinstance(columns, list)
            else pd.Index(named, name=columns.name, tupleize_cols=False)
        )
    first = {label[0] for label in taken}  # type: ignore[index]
    tuples = [
        tuple(f"{part}{suffix}" if part in first else part for part in label) for label in columns
    ]
    levels = [pd.Series(level) for level in zip(*tuples, strict=True)]
    return index_of(levels, list(columns.names))


def _again(labels: Any) -> list[bool]:
    """Return of each label whether it stands before, too."""
    seen: set[Hashable] = set()
    told = []
    for label in labels:
        told.append(label in seen)
        seen.add(label)
    return told


def _conformed(column: pd.Series, wanted: Any, what: str) -> pd.Series:
    if wanted == np.float64 and column.dtype.kind in "iu":
        check_promoted(column.array, wanted, column.name, remedy="give promote='nullable'")
    objects = wanted == np.dtype(object)
    made = column.astype(wanted) if objects else cast_exactly(column, wanted)
    if made is None:
        raise cannot_hold(what, column.dtype, wanted)
    return made


def cannot_hold(what: str, own: Any, wanted: Any) -> ColumnError:
    """Return the error of a partition whose values have no place in the promised dtype."""
    return ColumnError(
        f"{what} of a partition is {own}, and Dask took it for {wanted}, which cannot "
        "hold its values; give the frame its true dtypes (meta=, .astype)"
    )


class SuffixTypeError(SpecError, TypeError):
    """Suffixes that are no pair of texts."""


def without(frame: Any, dropped: Sequence[Hashable]) -> pd.DataFrame:
    """Return a frame without some columns and index levels."""
    columns = [label for label in dropped if label in frame.columns]
    levels = [label for label in dropped if label not in columns]
    if columns:
        kept = np.ones(frame.shape[1], bool)
        for label in columns:
            kept[frame.columns.get_loc(label)] = False
        frame = frame.take(kept.nonzero()[0], axis=1)
    if levels:
        if frame.index.nlevels == len(levels):
            frame = frame.set_axis(pd.RangeIndex(len(frame)), axis=0)
        else:
            frame = frame.set_axis(frame.index.droplevel(levels), axis=0)
    return frame


def _cast(frame: pd.DataFrame, label: Hashable, dtype: Any) -> pd.DataFrame:
    if label is None or label not in frame.columns or frame[label].dtype == dtype:
        return frame
    made, column = frame.copy(deep=False), frame[label]
    if isinstance(column.dtype, pd.CategoricalDtype) and dtype.kind in "biu":
        column = values_of_codes(column, nullable=not isinstance(dtype, np.dtype))
    made[label] = column.astype(dtype)
    return made


def _indicator_name(
    indicator: bool | str, left: pd.DataFrame, right: pd.DataFrame
) -> Hashable | None:
    if not isinstance(indicator, bool | str):
        raise SpecError("indicator option can only accept boolean or string arguments")
    if indicator is False or indicator == "":
        return None
    name = "_merge" if indicator is True else indicator
    there = {*left.columns, *right.columns}
    for taken in ("_left_indicator", "_right_indicator"):
        if taken in there:
            raise ColumnError(
                "Cannot use `indicator=True` option when data contains a column named "
                f"{taken}; rename it"
            )
    if name in there:
        raise ColumnError(
            f"Cannot use name of an existing column for indicator column: {name!r}; give another"
        )
    return name


def _origins(pairs: RowPairs, n: int) -> Any:
    codes = np.full(n, 2, np.int8)
    for side, code in (("left", 1), ("right", 0)):
        absent = pairs.absent(side)
        if absent is not None:
            codes[absent] = code
    return pd.Categorical.from_codes(codes, categories=pd.Index(ORIGINS))


def _combined(
    left: Any, right: Any, pairs: RowPairs, rounded: list[Hashable | None] | None
) -> pd.Series:
    """Return a key of each row, the left one where there is one, numbered from 0."""
    ours, theirs = pairs.rows("left", len(left)), pairs.rows("right", len(right))
    gone = ours < 0
    if gone.all() and (len(ours) or pairs.left is not None):
        return take_rows(right, theirs)
    if not gone.any() and len(ours) and (theirs < 0).all():
        return take_rows(left, ours)
    kinds = left.dtype, right.dtype
    if kinds[0] != kinds[1] and all(isinstance(each, pd.DatetimeTZDtype) for each in kinds):
        right = right.dt.tz_convert(kinds[0].tz)
    plain = isinstance(left.dtype, np.dtype) and left.dtype.kind in "biufmM"
    if plain and left.dtype == right.dtype and len(left):
        # -1 takes the last row, which the right one replaces.
        values = left.to_numpy().take(ours, mode="wrap")
        values[gone] = right.to_numpy().take(theirs[gone])
        return pd.Series(values, copy=False)
    return coalesce_exactly(left, right, ours, theirs, left.name, rounded)
