"""The frame that a merge returns: columns, labels and dtypes, as pandas gives them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from dgpuhash.errors import ColumnError, SpecError
from dgpuhash.frames.dataframes import frames_of
from dgpuhash.frames.merge.agreement import agree
from dgpuhash.frames.merge.arguments import Suffixes
from dgpuhash.frames.merge.index import beside, index_of, join_index, with_level
from dgpuhash.frames.merge.keys import JoinKeys, KeyPair, MergeError
from dgpuhash.frames.merge.rows import RowPairs

__all__ = ["ORIGINS", "MergePlan", "suffixed", "without"]

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
    promotes : bool
        Whether integers of a cuDF side that lacks rows become floats, as in cuDF itself; else they
        have nulls.
    """

    left: Any
    right: Any
    keys: JoinKeys
    how: str
    labels: tuple[pd.Index, pd.Index]
    indicator: Hashable | None
    promotes: bool = True

    @classmethod
    def of(
        cls, left: Any, right: Any, keys: JoinKeys, how: str, *,
        suffixes: Suffixes = ("_x", "_y"), indicator: bool | str = False, promotes: bool = True,
    ) -> MergePlan:  # fmt: skip
        """Return the plan for two frames.

        Raises
        ------
        MergeError, ColumnError, KeyTypeError, SpecError
            When columns overlap and suffixes do not tell them apart, the indicator's name is taken,
            or keys are never equal.
        """
        if cls is MergePlan and frames_of(left).name == "cudf":
            from dgpuhash.frames.merge.cudf.plan import CudfPlan

            return CudfPlan.of(
                left, right, keys, how, suffixes=suffixes, indicator=indicator, promotes=promotes
            )
        rest = cls.without(right, keys.dropped)
        name = _indicator_name(indicator, left, rest)
        left, rest = cls._agreed(left, rest, keys, how)
        labels = suffixed(left.columns, rest.columns, suffixes)
        return cls(left, rest, keys, how, labels, name, promotes)

    def over(self, left: Any, right: Any, keys: JoinKeys) -> MergePlan:
        """Return the plan for other rows of both sides; keys get the dtypes that they have here."""
        there = {*right.columns, *right.index.names}
        right = self.without(right, [label for label in keys.dropped if label in there])
        left, right = self._cast_keys(left, self.left), self._cast_keys(right, self.right)
        return replace(self, left=left, right=right, keys=keys)

    def _cast_keys(self, frame: Any, like: Any) -> Any:
        """Return a side with the dtypes that the plan gives its keys."""
        labels = {pair.name for pair in self.keys.pairs}
        for label in labels:
            if label in like.columns and frame[label].dtype != like[label].dtype and any(
                agree(pair) for pair in self.keys.pairs if pair.name == label
            ):  # fmt: skip
                frame = frame.copy(deep=False)
                frame[label] = frame[label].astype(like[label].dtype)
        return frame

    @classmethod
    def without(cls, frame: Any, dropped: Sequence[Hashable]) -> Any:
        """Return a side without columns and levels that the other one stands for."""
        return without(frame, dropped)

    @classmethod
    def conformed(cls, frame: Any, meta: Any) -> Any:
        """Return a result with the dtypes of `meta`, where they differ."""
        for place, (ours, wanted) in enumerate(zip(frame.dtypes, meta.dtypes, strict=True)):
            if ours != wanted and not isinstance(wanted, pd.CategoricalDtype):
                # As a Series: of an array of objects pandas makes texts.
                column = frame.iloc[:, place]
                made = column.astype(wanted)
                if ours.kind == "f" and wanted.kind in "iub" and not made.eq(column).all():
                    raise ColumnError(
                        f"column {frame.columns[place]!r} of a partition is {ours}, and Dask took "
                        f"it for {wanted}, which cannot hold its values; give the frame its true "
                        "dtypes (meta=, .astype)"
                    )
                frame.isetitem(place, made)
        index: Any = frame.index
        wanted = meta.index.dtype
        if (
            index.nlevels == 1
            and index.dtype != wanted
            and not isinstance(wanted, pd.CategoricalDtype)
        ):
            frame.index = index.astype(wanted)
        return frame

    @classmethod
    def _agreed(cls, left: Any, right: Any, keys: JoinKeys, how: str) -> tuple[Any, Any]:
        """Return both sides with their keys in dtypes of the result."""
        for pair in keys.pairs:
            dtypes = None if keys.left_index and keys.right_index else agree(pair)
            if dtypes is not None:
                left, right = (
                    _cast(frame, pair.name, dtype)
                    for frame, dtype in zip((left, right), dtypes, strict=True)
                )
        return left, right

    def index(self, pairs: RowPairs) -> pd.Index:
        """Return the labels of the given rows."""
        return join_index(self.left.index, self.right.index, self.keys, self.how, pairs)

    def frame(self, pairs: RowPairs, index: Any) -> Any:
        """Return the result with the given rows of both sides, and their labels."""
        sides, first, keys = [], 0, self._key_columns(pairs)
        for frame, rows in ((self.left, pairs.left), (self.right, pairs.right)):
            part = _taken(frame, rows, keys)
            # Plain numbers are labels that pandas need not join.
            part.columns = pd.RangeIndex(first, first + frame.shape[1])
            part.index = pd.RangeIndex(len(index))
            sides.append(part)
            first += frame.shape[1]
            keys = {name: column for name, column in keys.items() if name not in frame.columns}
        result: Any = pd.concat(sides, axis=1)
        result.columns, result.index = beside(*self.labels), index
        if self.indicator is not None:
            result[self.indicator] = _origins(pairs, len(index))
        self._add_keys(result, pairs)
        self._restore_levels(result)
        left, right = self.left, self.right
        result.attrs = left.attrs if left.attrs == right.attrs else {}
        unique = left.flags.allows_duplicate_labels and right.flags.allows_duplicate_labels
        if not unique:
            result.flags.allows_duplicate_labels = False
        return result

    def _key_columns(self, pairs: RowPairs) -> dict[Hashable, pd.Series]:
        """Return the key columns that are made of both sides, as one of them lacks rows."""
        columns: dict[Hashable, pd.Series] = {}
        if self.keys.left_index and self.keys.right_index:
            return columns
        if pairs.left is None and pairs.right is None:
            return columns
        there = {*self.labels[0].tolist(), *self.labels[1].tolist()}
        for pair in self.keys.pairs:
            if pair.is_one_column and pair.name in there:
                sides = self._completed(pair.name, pair, pairs)
                if sides is not None:
                    columns[pair.name] = _combined(*sides, pairs)
        return columns

    def _add_keys(self, result: Any, pairs: RowPairs) -> None:
        """Add the keys that are columns of neither side."""
        for place, pair in enumerate(self.keys.pairs):
            if self.keys.left_index and self.keys.right_index:
                return
            name = pair.name
            if not pair.is_one_column or name in result.columns:
                continue
            column = _combined(pair.left, pair.right, pairs)
            if name is not None and name in result.index.names:
                result.index = with_level(result.index, name, column)
            else:
                result.insert(place, name or f"key_{place}", column.set_axis(result.index))

    def _completed(
        self, name: Hashable, pair: KeyPair, pairs: RowPairs
    ) -> tuple[pd.Series, pd.Series] | None:
        """Return the columns of both sides from which a key column is made, None if it is whole."""
        ours = name in self.left.columns
        if not ours and name not in self.right.columns:
            return None
        own, other = (self.left, pair.right) if ours else (self.right, pair.left)
        column = own[name].reset_index(drop=True)
        moments = column.dtype.kind == "M" == other.dtype.kind and column.dtype != other.dtype
        if pairs.absent("left" if ours else "right") is None and not moments:
            return None
        return (column, other) if ours else (other, column)

    def _restore_levels(self, result: Any) -> None:
        """Make an index of keys that were levels of both sides."""
        names = [
            pair.name
            for pair in self.keys.pairs
            if pair.of_levels and pair.name not in result.index.names
        ]
        if names:
            result.index = index_of([result.pop(name) for name in names], names)


def suffixed(left: pd.Index, right: pd.Index, suffixes: Suffixes) -> tuple[pd.Index, pd.Index]:
    """Return what the columns of both sides are called beside each other.

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
    there = set(right.tolist())
    both = [label for label in dict.fromkeys(left.tolist()) if label in there]
    if not both:
        return left, right
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


def _renamed(columns: pd.Index, taken: set[Hashable], suffix: str | None) -> pd.Index:
    """Return the columns with a suffix behind those that both sides have."""
    if suffix is None or not taken:
        return columns
    if not isinstance(columns, pd.MultiIndex):
        named = [f"{label}{suffix}" if label in taken else label for label in columns]
        return pd.Index(named, name=columns.name, tupleize_cols=False)
    first = {label[0] for label in taken}  # type: ignore[index]
    tuples = [
        tuple(f"{part}{suffix}" if part in first else part for part in label) for label in columns
    ]
    levels = [pd.Series(level) for level in zip(*tuples, strict=True)]
    return index_of(levels, list(columns.names))


def _again(labels: pd.Index) -> list[bool]:
    """Return of each label whether it stands before, too."""
    seen: set[Hashable] = set()
    told = []
    for label in labels:
        told.append(label in seen)
        seen.add(label)
    return told


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
        frame = frame.iloc[:, kept.nonzero()[0]]
    if levels:
        if frame.index.nlevels == len(levels):
            frame = frame.set_axis(pd.RangeIndex(len(frame)), axis=0)
        else:
            frame = frame.set_axis(frame.index.droplevel(levels), axis=0)
    return frame


def _cast(frame: pd.DataFrame, label: Hashable, dtype: Any) -> pd.DataFrame:
    if label is None or label not in frame.columns or frame[label].dtype == dtype:
        return frame
    made = frame.copy(deep=False)
    made[label] = made[label].astype(dtype)
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


def _taken(frame: pd.DataFrame, rows: Any, whole: dict[Hashable, pd.Series]) -> pd.DataFrame:
    """Return the rows of a frame, nulls for -1; all of them share its columns.

    Columns of `whole` have these rows already.
    """
    labels = frame.columns.tolist() if whole else []
    done = {place: whole[label] for place, label in enumerate(labels) if label in whole}
    if rows is None:
        part = frame.copy(deep=False)
        for place, column in done.items():
            part.isetitem(place, column.array)
        return part
    if not done:
        return frames_of(frame).take_or_null(frame, rows)
    others = [place for place in range(frame.shape[1]) if place not in done]
    part = frames_of(frame).take_or_null(frame.iloc[:, others], rows)
    part.columns = pd.Index(others)
    for place, column in done.items():
        part.insert(place, place, column)
    return part


def _combined(left: Any, right: Any, pairs: RowPairs) -> pd.Series:
    """Return a key of each row, the left one where there is one, numbered from 0."""
    ours, theirs = pairs.rows("left", len(left)), pairs.rows("right", len(right))
    gone = ours < 0
    if gone.all() and (len(ours) or pairs.left is not None):
        return right.take(theirs).reset_index(drop=True)
    if not gone.any() and len(ours) and (theirs < 0).all():
        return left.take(ours).reset_index(drop=True)
    kinds = left.dtype, right.dtype
    if kinds[0] != kinds[1] and all(isinstance(each, pd.DatetimeTZDtype) for each in kinds):
        right = right.dt.tz_convert(kinds[0].tz)
    plain = isinstance(left.dtype, np.dtype) and left.dtype.kind in "biufmM"
    if plain and left.dtype == right.dtype and len(left):
        # -1 takes the last row, which the right one replaces.
        values = left.to_numpy().take(ours, mode="wrap")
        values[gone] = right.to_numpy().take(theirs[gone])
        return pd.Series(values, copy=False)
    both = pd.concat([left, right], ignore_index=True)
    return both.take(np.where(gone, len(left) + theirs, ours)).reset_index(drop=True)
