"""The cuDF frame that a merge returns: columns, labels and dtypes, as pandas gives them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from dgpuhash.errors import UnsupportedError
from dgpuhash.frames.dataframes import frames_named, frames_of
from dgpuhash.frames.dataframes.cudf_casts import agreed, cast, exact_cast
from dgpuhash.frames.dataframes.cudf_columns import (
    column_of_series,
    columns_of,
    frame_of,
    index_of_column,
    numbered,
    series_of_column,
    take_columns,
    take_series,
)
from dgpuhash.frames.dataframes.promotion import check_promoted
from dgpuhash.frames.merge.index import beside
from dgpuhash.frames.merge.keys import JoinKeys, KeyPair, as_series
from dgpuhash.frames.merge.result import ORIGINS, MergePlan, cannot_hold
from dgpuhash.frames.merge.rows import RowPairs

__all__ = ["CudfPlan", "index_of", "key_order", "order_of"]


class CudfPlan(MergePlan):
    """How two cuDF frames are put together, whichever of their rows match.

    As in cuDF, integers become floats on a side that lacks rows; columns that can hold nulls stay
    as they are, such as bool and text.
    """

    @classmethod
    def without(cls, frame: Any, dropped: Sequence[Hashable]) -> Any:
        columns, index = dict(columns_of(frame)), frame.index
        levels = [label for label in dropped if columns.pop(label, None) is None]
        if len(levels) == index.nlevels:
            index = _numbers(len(frame))
        elif levels:
            index = index.droplevel(levels)
        return frame_of(columns.items(), index, like=frame)

    @staticmethod
    def _labels_of(frame: Any) -> Any:  # type: ignore[override]
        columns = columns_of(frame)
        return frame.columns if columns.multiindex else list(columns)

    @classmethod
    def conformed(cls, frame: Any, meta: Any, *, kept: bool = False) -> Any:
        for label in meta.columns:
            wanted, own = meta[label].dtype, frame[label].dtype
            if own != wanted:
                numbers = own.kind in "iuf" and wanted.kind in "iuf"
                if not numbers or exact_cast(frame[label], wanted) is not None:
                    frame[label] = cast(frame[label], wanted)
                elif not kept:
                    raise cannot_hold(f"column {label!r}", own, wanted)
        if frame.index.nlevels == 1 and frame.index.dtype != meta.index.dtype:
            labels = cast(as_series(frame.index), meta.index.dtype)
            frame.index = index_of([labels], [meta.index.name])
        return frame

    @classmethod
    def _agreed(
        cls, left: Any, right: Any, keys: JoinKeys, how: str, *, nullable: bool = False
    ) -> tuple[Any, Any]:
        if keys.left_index and keys.right_index:
            return left, right
        sides = [left, right]
        for pair in keys.pairs:
            if not pair.is_one_column:
                continue
            dtype = agreed(pair.left, pair.right, how)
            for place, frame in enumerate(sides):
                columns = columns_of(frame)
                column = columns.get(pair.name)
                if column is not None and column.dtype != dtype:
                    # By position: cuDF would assign a Series by row labels.
                    made = column_of_series(cast(series_of_column(column), dtype))
                    parts = {**dict(columns), pair.name: made}
                    sides[place] = frame_of(parts.items(), frame.index, like=frame)
        return sides[0], sides[1]

    def _nullable(self) -> CudfPlan:
        # All columns of cuDF can hold nulls.
        return self

    def _cast_keys(self, frame: Any, like: Any) -> Any:
        # They are cast where a result is made.
        return frame

    # Rows.

    def _absent(self, side: str, pairs: RowPairs) -> Any | None:
        """Return a mask of the rows that a side lacks, None where it has all."""
        return None if self.how in {"inner", side} else pairs.absent(side)

    def index(self, pairs: RowPairs) -> Any:
        keys = self.keys
        if keys.left_index and keys.right_index:
            return self._index_of_both(pairs)
        if keys.right_index or keys.left_index:
            side = "left" if keys.right_index else "right"
            return self._index_of_one(side, pairs)
        for rows, frame in ((pairs.left, self.left), (pairs.right, self.right)):
            if rows is None:
                return _numbers(len(frame))
        return _numbers(len(pairs.left))

    def _index_of_one(self, side: str, pairs: RowPairs) -> Any:
        """Return the labels of one side, null where it lacks a row."""
        index = (self.left if side == "left" else self.right).index
        rows = pairs.left if side == "left" else pairs.right
        if rows is None:
            return index
        levels = [self._level(index, level, side, pairs) for level in range(index.nlevels)]
        return index_of(levels, list(index.names))

    def _level(self, index: Any, level: Any, side: str, pairs: RowPairs) -> Any:
        """Return the labels of a level, null where its side lacks a row."""
        rows = pairs.left if side == "left" else pairs.right
        made = take_series(as_series(index.get_level_values(level)), rows, nulls=True)
        if self.promote != "pandas" or self._absent(side, pairs) is None:
            return made
        return series_of_column(_promoted(column_of_series(made), made.name))

    def _index_of_both(self, pairs: RowPairs) -> Any:
        left, right, how = self.left.index, self.right.index, self.how
        made = [self._combined(pair, pairs) for pair in self.keys.pairs]
        if left.nlevels == right.nlevels == len(made):
            return index_of(made, list(right.names if how == "right" else left.names))
        # Indexes that share some of their levels: these, and then the others.
        parts = {pair.name: column for pair, column in zip(self.keys.pairs, made, strict=True)}
        for side, index in (("left", left), ("right", right)):
            for name in index.names:
                if name not in parts:
                    parts[name] = self._level(index, name, side, pairs)
        if (left.nlevels > 1) != (right.nlevels > 1):
            order = list((left if left.nlevels > 1 else right).names)
        else:
            first, then = (right, left) if how == "right" else (left, right)
            order = [*first.names, *(name for name in then.names if name not in first.names)]
        return index_of([parts[name] for name in order], order)

    def _combined(self, pair: KeyPair, pairs: RowPairs) -> Any:
        """Return a key of each row, the left one where there is one, in the dtype of both."""
        dtype = agreed(pair.left, pair.right, self.how)
        if self.how == "right":
            return take_series(cast(pair.right, dtype), pairs.right, nulls=True)
        ours = take_series(cast(pair.left, dtype), pairs.left, nulls=True)
        gone = self._absent("left", pairs)
        if gone is None:
            return ours
        theirs = take_series(cast(pair.right, dtype), pairs.right, nulls=True)
        return ours.where(frames_of(ours).series(~gone), theirs)

    # Columns.

    def frame(self, pairs: RowPairs, index: Any) -> Any:
        columns: dict[Hashable, Any] = {}
        shared = {
            pair.name: pair
            for pair in self.keys.pairs
            if pair.is_one_column and not (self.keys.left_index and self.keys.right_index)
        }
        for side, frame, labels in zip(
            ("left", "right"), (self.left, self.right), self.labels, strict=True
        ):
            rows = pairs.left if side == "left" else pairs.right
            own, absent = columns_of(frame), self._absent(side, pairs) is not None
            called = list(zip(own, labels, strict=True))
            keys = {label for name, label in called if name == label and label in shared}
            # Keys that this side lacks are those of the other one.
            others = [own[name] for name, label in called if not (absent and label in keys)]
            found = iter(take_columns(others, rows, nulls=absent))
            for label in labels:
                if label in columns:
                    raise UnsupportedError(
                        f"two columns called {label!r}, which a cuDF frame cannot hold; give other "
                        "suffixes="
                    )
                if absent and label in keys:
                    columns[label] = column_of_series(self._combined(shared[label], pairs))
                    continue
                column = next(found)
                if label in keys:
                    pair = shared[label]
                    dtype = agreed(pair.left, pair.right, self.how)
                    if column.dtype != dtype:
                        column = column_of_series(cast(series_of_column(column), dtype))
                elif absent and self.promote == "pandas":
                    column = _promoted(column, label)
                columns[label] = column
        if self.indicator is not None:
            columns[self.indicator] = column_of_series(_origins(pairs, len(index)))
        return self._with_keys(columns, shared, pairs, index)

    def _with_keys(
        self, columns: dict[Any, Any], shared: dict[Any, KeyPair], pairs: RowPairs, index: Any
    ) -> Any:
        """Return the frame of columns and labels, with keys that are columns of neither side."""
        parts = list(columns.items())
        for place, pair in enumerate(self.keys.pairs):
            name = pair.name
            if shared.get(name) is not pair or name in columns:
                continue
            column = self._combined(pair, pairs)
            if name is not None and name in index.names:
                levels = [
                    column if other == name else as_series(index.get_level_values(other))
                    for other in index.names
                ]
                index = index_of(levels, list(index.names))
            else:
                parts.insert(place, (name or f"key_{place}", column_of_series(column)))
        levels = [
            pair.name for pair in self.keys.pairs if pair.of_levels and pair.name not in index.names
        ]
        if levels:
            found = dict(parts)
            index = index_of([series_of_column(found.pop(name)) for name in levels], levels)
            parts = list(found.items())
        made = frame_of(parts, index)
        if not parts:
            made.columns = beside(self.left.columns, self.right.columns)
        elif columns_of(self.left).multiindex:
            like = self.left.columns
            full = [
                label if isinstance(label, tuple) else (label, *[""] * (like.nlevels - 1))
                for label, _ in parts
            ]
            made.columns = type(like).from_tuples(full, names=like.names)
        return made


def index_of(levels: Sequence[Any], names: Sequence[Hashable | None]) -> Any:
    """Return a cuDF index of one level or several, which are Series.

    Raises
    ------
    UnsupportedError
        When the only level holds decimals, of which cuDF makes no index.
    """
    import cudf

    if len(levels) == 1:
        if type(levels[0].dtype).__name__.startswith("Decimal"):
            raise UnsupportedError(
                f"an index of {levels[0].dtype}, which cuDF does not make; give as_index=False, "
                "or convert the key with .astype('str')"
            )
        return index_of_column(column_of_series(levels[0]), names[0])
    columns = (column_of_series(level).copy(deep=False) for level in levels)
    frame = frame_of(enumerate(columns), _numbers(len(levels[0])))
    return cudf.MultiIndex.from_frame(frame, names=list(names))


def levels_of_index(index: Any) -> list[Any]:
    """Return the levels of a cuDF index as Series numbered from 0."""
    return [numbered(index.get_level_values(level)) for level in range(index.nlevels)]


def two_rows(meta: Any) -> Any:
    """Return a frame of two rows like an empty one."""
    from dask.dataframe.dispatch import meta_nonempty

    levels = levels_of_index(meta.index)
    # Dask-cuDF makes no labels of the dtypes of pandas that have nulls.
    if not any(hasattr(level.dtype, "numpy_dtype") for level in levels):
        return meta_nonempty(meta)
    made = meta_nonempty(meta.reset_index(drop=True))
    labels = meta_nonempty(frames_named("cudf").make(dict(enumerate(levels))))
    made.index = index_of([labels[level] for level in range(len(levels))], list(meta.index.names))
    return made


def key_order(keys: JoinKeys, places: Any) -> Any:
    """Return the order of the rows of both sides, one behind the other, by their keys.

    Nulls come last, those of categoricals first as in pandas; rows of equal keys stay in order.

    Parameters
    ----------
    keys : JoinKeys
    places : int64 array
        The rows of each side's keys, those of the right one behind those of the left one.
    """
    frames, columns = frames_named("cudf"), []
    for pair in keys.pairs:
        dtype = agreed(pair.left, pair.right, "outer")
        sides = [cast(side, dtype) for side in (pair.left, pair.right)]
        both = frames.take(frames.concat([side.to_frame(0) for side in sides]), places)[0]
        if hasattr(dtype, "categories"):
            both = both.cat.codes.astype("int64").fillna(-1)
        columns.append(both)
    return order_of(columns)


def order_of(columns: Sequence[Any]) -> Any:
    """Return the positions of rows in the order of several Series, nulls last, equal ones in order.

    Categories are in their own order.
    """
    import pylibcudf as plc

    sorted_by = []
    for series in columns:
        if hasattr(series.dtype, "categories"):
            series = series.cat.codes.astype("int64").where(series.notna())
        sorted_by.append(series.to_pylibcudf()[0])
    order = plc.sorting.stable_sorted_order(
        plc.Table(sorted_by),
        [plc.types.Order.ASCENDING] * len(sorted_by),
        [plc.types.NullOrder.AFTER] * len(sorted_by),
    )
    return frames_named("cudf").array(type(columns[0]).from_pylibcudf(order))


def _numbers(n: int) -> Any:
    import cudf

    return cudf.RangeIndex(n)


def _promoted(column: Any, name: Hashable | None) -> Any:
    """Return a column of a side that lacks rows: plain integers are floats."""
    if not isinstance(column.dtype, np.dtype) or column.dtype.kind not in "iu":
        return column
    series = series_of_column(column)
    if column.dtype.itemsize == 8 and series.count():
        ends = series.min(), series.max()
        if int(ends[0]) < -(2**53) or int(ends[1]) > 2**53:
            check_promoted(
                series.dropna().to_numpy(), np.dtype(np.float64), name,
                remedy="give promote='nullable'",
            )  # fmt: skip
    return column_of_series(series.astype(np.float64))


def _origins(pairs: RowPairs, n: int) -> Any:
    import cudf

    frames = frames_named("cudf")
    codes = frames.xp.full(n, 2, np.int8)
    for side, code in (("left", 1), ("right", 0)):
        absent = pairs.absent(side)
        if absent is not None:
            codes[absent] = code
    texts = cudf.Series(list(ORIGINS)).take(codes).reset_index(drop=True)
    return texts.astype(cudf.CategoricalDtype(list(ORIGINS)))
