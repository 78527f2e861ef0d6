"""Resolve the keys of a merge: columns, index levels and arrays of both sides."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dgpuhash.backend import device_of
from dgpuhash.errors import ColumnError, KeyTypeError, ShapeError
from dgpuhash.frames.dataframes import (
    as_series,
    frames_named,
    frames_of,
    frames_of_values,
    series_of_key,
)
from dgpuhash.frames.dataframes.base import Compared, Frames
from dgpuhash.frames.dataframes.pandas_casts import is_unknown
from dgpuhash.frames.keys.categories import unite_categories
from dgpuhash.frames.keys.encoding import KeyColumns

_ARRAYS = (np.ndarray, pd.api.extensions.ExtensionArray, pd.Index, pd.Series)


class MergeError(ColumnError, pd.errors.MergeError):
    """Keys, suffixes or options of a merge that contradict each other."""


class MissingKeyError(ColumnError, KeyError):
    """A key that a side of a merge lacks."""

    def __str__(self) -> str:
        return repr(self.args[0])


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A key of both sides.

    Attributes
    ----------
    name : label or None
        What the result calls it; None where both sides give an array.
    left_label, right_label : label or None
        The column or index level of each side; None for an array, and for an index as a whole.
    values : pair
        Its values on both sides: Series numbered from 0, or columns of cuDF.
    of_levels : bool
        Whether it is an index level of that name on both sides.
    dtypes : pair of dtypes
        Those of the values.
    """

    name: Hashable | None
    left_label: Hashable | None
    right_label: Hashable | None
    values: tuple[Any, Any]
    of_levels: bool = False
    dtypes: tuple[Any, Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ours, theirs = self.values
        # cuDF makes several calls to read one.
        object.__setattr__(self, "dtypes", (ours.dtype, theirs.dtype))

    @property
    def left(self) -> pd.Series:
        """Its values on the left, as a Series numbered from 0."""
        return series_of_key(self.values[0], self.left_label)

    @property
    def right(self) -> pd.Series:
        """Its values on the right, as a Series numbered from 0."""
        return series_of_key(self.values[1], self.right_label)

    @property
    def is_one_column(self) -> bool:
        """Whether the result has one column for both sides."""
        ours, theirs = self.left_label, self.right_label
        return not (isinstance(ours, str) and isinstance(theirs, str)) or ours == theirs


@dataclass(frozen=True)
class JoinKeys:
    """The keys of a merge.

    Attributes
    ----------
    pairs : list of KeyPair
    left_index, right_index : bool
        Whether a side is compared by its index.
    as_text : list of bool, optional
        Whether each is compared by its tagged text; default: as dtypes ask for. Of partitions it is
        the same whatever dtypes they come with.
    """

    pairs: list[KeyPair]
    left_index: bool = False
    right_index: bool = False
    as_text: list[bool] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # What was read of the columns may lie on a GPU, and can be read again.
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @property
    def dropped(self) -> list[Hashable]:
        """Columns and levels of the right side that the left one replaces in the result."""
        return [
            pair.right_label
            for pair in self.pairs
            if pair.left_label is not None and pair.left_label == pair.right_label
        ]

    def check_agreement(self) -> None:
        """Raise KeyTypeError if no value of one side's key can equal one of the other's."""
        for pair in () if self.left_index and self.right_index else self.pairs:
            if pair.dtypes[0] != pair.dtypes[1]:
                frames_of(pair.left).agree(pair, "inner")

    @functools.cached_property
    def key_columns(self) -> list[list[tuple[Compared, Compared]]]:
        """The columns to compare of both sides, for each key."""
        as_text: Sequence[bool | None] = self.as_text or [None] * len(self.pairs)
        return [
            self.library.key_columns(*pair.values, pair.name, as_text=each)
            for pair, each in zip(self.pairs, as_text, strict=True)
        ]

    @functools.cached_property
    def library(self) -> Frames:
        """Functions of the keys' DataFrame library."""
        return frames_of_values(self.pairs[0].values[0]) if self.pairs else frames_named("pandas")

    @property
    def columns(self) -> list[list[tuple[Any, Any]]]:
        """The columns to compare for each key, as key columns."""
        return [[(ours.series, theirs.series) for ours, theirs in key] for key in self.key_columns]

    @functools.cached_property
    def sides(self) -> tuple[KeyColumns, KeyColumns]:
        """The keys of both sides in encodable form."""
        frames = self.library
        sides = [pair for key in self.key_columns for pair in key]
        left, right = [ours.column for ours, _ in sides], [theirs.column for _, theirs in sides]
        names = range(len(left))
        return KeyColumns(names, left, frames), KeyColumns(names, right, frames)

    @functools.cached_property
    def frames(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Both sides' columns to compare, as frames with numbers for labels."""
        flat = [columns for key in self.columns for columns in key]
        sides = ([series_of_key(pair[side]) for pair in flat] for side in (0, 1))
        left, right = (self.library.of_columns(dict(enumerate(columns))) for columns in sides)
        return left, right


def join_keys(
    left: pd.DataFrame, right: pd.DataFrame, on: Any, left_on: Any, right_on: Any, *,
    left_index: bool, right_index: bool,
) -> JoinKeys:  # fmt: skip
    """Return the keys for the arguments of a merge.

    Raises
    ------
    MergeError
        When arguments exclude each other, or name no key.
    MissingKeyError, ColumnError, ShapeError
        When a side lacks a key, a label is ambiguous, or numbers of keys differ.
    """
    on, left_on, right_on = _list(on), _list(left_on), _list(right_on)
    if on is None and left_on is None and right_on is None:
        if left_index and right_index:
            return JoinKeys(_index_pairs(left.index, right.index), True, True)
        if left_index:
            raise MergeError("Must pass right_on or right_index=True")
        if right_index:
            raise MergeError("Must pass left_on or left_index=True")
        left_on = right_on = _common_columns(left, right)
    elif on is not None:
        for taken, what in (
            (left_on is not None or right_on is not None, '"left_on" and "right_on"'),
            (left_index or right_index, '"left_index" and "right_index"'),
        ):
            if taken:
                raise MergeError(
                    f'Can only pass argument "on" OR {what}, not a combination of both.'
                )
        left_on = right_on = on
    else:
        _check_sides("left", left_on, left_index, right_on, right_index)
        _check_sides("right", right_on, right_index, left_on, left_index)
    if left_index or right_index:
        # One side names its keys, the other is compared by the levels of its index.
        frame, index = (left, right.index) if right_index else (right, left.index)
        named = left_on if right_index else right_on
        what, side = ("left_on", "right") if right_index else ("right_on", "left")
        _check_levels(named, index, what, side)
        pairs = []
        for (label, values, _), level in zip(_keys_in(frame, named), _levels(index), strict=True):
            if right_index:
                pairs.append(KeyPair(label, label, None, (values, level)))
            else:
                pairs.append(KeyPair(label, None, label, (level, values)))
        return JoinKeys(pairs, left_index, right_index)
    if len(left_on) != len(right_on):
        raise ShapeError(
            f"len(right_on) must equal len(left_on): {len(right_on)} keys for {len(left_on)}"
        )
    if not left_on:
        raise MergeError("no key column was given; name some with on=")
    pairs = []
    for ours, theirs in zip(_keys_in(left, left_on), _keys_in(right, right_on), strict=True):
        name, levels = theirs[0] if ours[0] is None else ours[0], ours[2] and theirs[2]
        same = bool(levels) and ours[0] == theirs[0]
        pairs.append(KeyPair(name, ours[0], theirs[0], (ours[1], theirs[1]), same))
    return JoinKeys(pairs)


def _list(given: Any) -> list[Any] | None:
    if given is None:
        return None
    return list(given) if isinstance(given, tuple | list) else [given]


def _check_sides(
    side: str, given: list[Any] | None, index: bool, others: list[Any] | None, other_index: bool
) -> None:
    """Raise MergeError unless exactly one of a side's keys and its index is given."""
    other = "right" if side == "left" else "left"
    if given is None:
        return
    if index:
        raise MergeError(f'Can only pass argument "{side}_on" OR "{side}_index" not both.')
    if others is None and not other_index:
        raise MergeError(f'Must pass "{other}_on" OR "{other}_index".')
    if others is not None and other_index:
        raise MergeError(f'Can only pass argument "{other}_on" OR "{other}_index" not both.')


def _check_levels(given: list[Any], index: pd.Index, what: str, side: str) -> None:
    if len(given) != index.nlevels:
        raise ShapeError(f'len({what}) must equal the number of levels in the index of "{side}"')


def _common_columns(left: pd.DataFrame, right: pd.DataFrame) -> list[Hashable]:
    there = set(right.columns)
    common: list[Hashable] = [label for label in dict.fromkeys(left.columns) if label in there]
    if not common:
        raise MergeError(
            "No common columns to perform merge on. Merge options: left_on=None, right_on=None, "
            "left_index=False, right_index=False"
        )
    for frame in (left, right):
        labels = [label for label in frame.columns if label in set(common)]
        if len(labels) > len(common):
            raise MergeError(f"Data columns not unique: {pd.Index(common)!r}")
    return common


def _keys_in(frame: pd.DataFrame, keys: Sequence[Any]) -> list[tuple[Any, pd.Series, bool]]:
    """Return the label and values of each key, and whether it is an index level.

    Labels of arrays are None.
    """
    found, frames = [], frames_of(frame)
    for key in keys:
        if not isinstance(key, str) and _is_array(key):
            if len(key) != len(frame):
                raise ShapeError(
                    f"a key has {len(key):,} rows, its frame {len(frame):,}; pass as many"
                )
            found.append((None, as_series(key), False))
        else:
            found.append((key, *_values(frames, frame, key)))
    return found


def _values(frames: Frames, frame: pd.DataFrame, label: Any) -> tuple[Any, bool]:
    """Return the column or index level with this label, and whether it is a level."""
    try:
        hash(label)
    except TypeError:
        raise KeyTypeError(f"{label!r} is neither a label nor an array; give one of them") from None
    names = list(frame.index.names)
    column, in_index = frames.key_values(frame, label), label is not None and label in names
    if column is not None and in_index:
        raise ColumnError(
            f"'{label}' is both an index level and a column label, which is ambiguous."
        )
    if in_index:
        return as_series(frame.index.get_level_values(names.index(label))), True
    if column is None:
        raise MissingKeyError(label)
    if getattr(column, "ndim", 1) > 1:
        more = ""
        if isinstance(frame.columns, pd.MultiIndex):
            more = (
                "\nFor a multi-index, the label must be a tuple with elements corresponding to "
                "each level."
            )
        raise ColumnError(f"The column label '{label}' is not unique.{more}")
    return column, False


def _levels(index: pd.Index) -> list[pd.Series]:
    return [as_series(index.get_level_values(level)) for level in range(index.nlevels)]


def _is_array(values: Any) -> bool:
    return isinstance(values, _ARRAYS) or device_of(values) == "cuda"


def of_objects(column: Any, dtype: Any) -> Any:
    """Return a partition's column as objects, if all partitions have this dtype."""
    objects = np.dtype(object)
    return column.astype(object) if dtype == objects and column.dtype != objects else column


def _index_pairs(left: pd.Index, right: pd.Index) -> list[KeyPair]:
    """Return the levels to join two indexes by: those of equal names, or all in order."""
    if left.nlevels == right.nlevels and (
        left.nlevels == 1 or list(left.names) == list(right.names)
    ):
        levels = [(number, number) for number in range(left.nlevels)]
    else:
        shared = [name for name in left.names if name in right.names]
        if not shared:
            raise ShapeError("cannot join with no overlapping index names")
        levels = [(left.names.index(name), right.names.index(name)) for name in shared]
    return [
        KeyPair(
            left.names[ours], None, None,
            (as_series(left.get_level_values(ours)), as_series(right.get_level_values(theirs))),
        )
        for ours, theirs in levels
    ]  # fmt: skip


def key_values(frame: Any, labels: Sequence[Hashable]) -> list[Any]:
    """Return columns of a frame in the form for reading keys; see `KeyPair`."""
    frames = frames_of(frame)
    return [frames.key_values(frame, label) for label in labels]


def index_keys(
    given: Sequence[Any], left_on: Sequence[Hashable], stored: Any, right_on: Sequence[Hashable],
    *, labelled: bool = True,
) -> JoinKeys:  # fmt: skip
    """Return the keys of a merge with an index, by its key columns.

    Parameters
    ----------
    given : sequence of Series or columns
        The keys of the left side; see `key_values`.
    left_on : sequence of labels
    stored : DataFrame
        The rows of the index, or a few rows like them.
    right_on : sequence of labels
        Its key columns.
    labelled : bool
        Whether they are columns of the right side, too.

    Raises
    ------
    ColumnError
        When a key has the label of another column of the index, and would be there twice.
    KeyTypeError
        When a datetime or duration of Arrow meets one of NumPy: pandas merges no such keys.
    """
    twice: list[Hashable] = []
    pairs: list[KeyPair] = []
    own = key_values(stored, right_on)
    for ours, theirs, *values in zip(left_on, right_on, given, own, strict=True):
        pair = KeyPair(ours, ours, theirs if labelled else None, (values[0], values[1]))
        if labelled and ours != theirs and pair.is_one_column and ours in set(stored):
            twice.append(ours)
        dtypes = pair.dtypes
        arrow = isinstance(dtypes[0], pd.ArrowDtype), isinstance(dtypes[1], pd.ArrowDtype)
        if arrow[0] != arrow[1] and all(dtype.kind in "mM" for dtype in dtypes):
            raise KeyTypeError(
                f"pandas does not merge {ours!r} with the index's {theirs!r}, of {dtypes[0]} and "
                f"{dtypes[1]}; convert one side with .astype"
            )
        pairs.append(pair)
    if twice:
        raise ColumnError(
            f"the key columns {twice!r} have the labels of other columns of the index; rename them "
            "to texts on one side"
        )
    return JoinKeys(pairs)


def reconcile_keys(keys: JoinKeys) -> JoinKeys:
    """Return the keys of an index, without values of incompatible dtypes.

    An index compares objects of nulls alone with keys of every dtype, and warns itself about floats
    that meet integers.
    """
    pairs = list(keys.pairs)
    for place, pair in enumerate(pairs):
        dtypes = pair.dtypes
        if dtypes[0] == dtypes[1]:
            continue
        kinds = {getattr(dtype, "kind", "O") for dtype in dtypes}
        sides = zip(dtypes, (pair.left, pair.right), strict=True)
        nulls = any(dtype == np.dtype(object) and side.isna().all() for dtype, side in sides)
        if nulls or ("f" in kinds and not kinds.isdisjoint("iu")):
            # A side without rows agrees with any other, but for one without rows.
            none = pair.right if len(pair.left) else pair.left
            pairs[place] = replace(pair, values=(pair.values[0], none[:0]))
    return JoinKeys(pairs)


def matched_keys(keys: JoinKeys, probing: str, query_rows: Any, *, fetched: bool) -> JoinKeys:
    """Return the keys of a probe partition and of its matches.

    Values of found rows are those of the rows that they match: in the dtype of their side where it
    is another one, or their labels are `fetched`.
    """
    pairs, left_probes = [], probing == "left"
    for pair in keys.pairs:
        mine, theirs = (pair.left, pair.right) if left_probes else (pair.right, pair.left)
        values = mine
        if fetched or mine.dtype != theirs.dtype:
            values = _cast_key(mine.take(query_rows).reset_index(drop=True), theirs.dtype)
        both = (mine, values) if left_probes else (values, mine)
        pairs.append(replace(pair, values=both))
    return JoinKeys(pairs, keys.left_index, keys.right_index)


def _cast_key(values: pd.Series, dtype: Any) -> pd.Series:
    if is_unknown(dtype):
        return values
    try:
        return values.astype(dtype)
    except (TypeError, ValueError, pa.ArrowException):
        return values


def with_all_categories(
    left: pd.DataFrame, right: pd.DataFrame, keys: JoinKeys, chosen: Sequence[bool]
) -> tuple[pd.DataFrame, pd.DataFrame, JoinKeys]:
    """Return both sides and their keys with the categories of both sides."""
    pairs = []
    for pair, one in zip(keys.pairs, chosen, strict=True):
        dtypes = pair.left.dtype, pair.right.dtype
        if not (one and all(isinstance(dtype, pd.CategoricalDtype) for dtype in dtypes)):
            pairs.append(pair)
            continue
        ours, theirs = unite_categories(pair.left, pair.right)
        pairs.append(replace(pair, values=(ours, theirs)))
        left = _with_categories(left, pair.left_label, ours)
        right = _with_categories(right, pair.right_label, theirs)
    return left, right, JoinKeys(pairs, keys.left_index, keys.right_index)


def _with_categories(frame: pd.DataFrame, label: Hashable, like: pd.Series) -> pd.DataFrame:
    if label is None or label not in frame.columns:
        return frame
    made = frame.copy(deep=False)
    made[label] = made[label].cat.set_categories(like.cat.categories)
    return made
