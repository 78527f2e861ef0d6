"""Which rows of two frames a merge puts side by side, and in which order."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from dgpuhash import backend
from dgpuhash.frames.dataframes import frames_of
from dgpuhash.frames.keyed_rows import first_duplicate
from dgpuhash.frames.keys.direct import DirectTable
from dgpuhash.frames.keys.encoding import EncodedKeys, KeyEncoder, same_keys
from dgpuhash.frames.keys.order import sorted_rows
from dgpuhash.frames.keys.table import KeyTable
from dgpuhash.frames.matches import with_unmatched
from dgpuhash.frames.merge.keys import JoinKeys, KeyPair

__all__ = [
    "RowPairs",
    "StoredKeys",
    "complete",
    "cross",
    "encoder_of",
    "first_repeat",
    "matched",
    "pairs_of",
    "sortable",
    "sorted_by_key",
]


# The one right row of each left one, -1 for none; or None, and pairs of left and right rows.
Found = tuple[Any, Any]


@dataclass(frozen=True, slots=True)
class RowPairs:
    """Rows of a merge: positions in both sides, -1 where a side has no row.

    Attributes
    ----------
    left, right : int64 array or None
        None stands for all rows of the side, in order.
    """

    left: Any
    right: Any

    def rows(self, side: str, n: int) -> Any:
        """Return the positions in a side that has `n` rows."""
        found, other = self.left, self.right
        if side == "right":
            found, other = other, found
        if found is not None:
            return found
        on_host = other is None or isinstance(other, np.ndarray)
        xp: Any = np if on_host else backend.get(None, other).xp
        return xp.arange(n, dtype=np.int64)

    def size(self, left: int) -> int:
        """Return how many they are; the left side has so many rows."""
        return left if self.left is None else len(self.left)

    def kept(self, mask: Any, left: int, right: int) -> RowPairs:
        """Return the rows in a mask; the sides have so many."""
        return RowPairs(self.rows("left", left)[mask], self.rows("right", right)[mask])

    def absent(self, side: str) -> Any | None:
        """Return a mask of the rows that a side lacks, None where it has all."""
        found = self.left if side == "left" else self.right
        if found is None or not len(found):
            return None
        mask = found < 0
        return mask if mask.any() else None


def pairs_of(
    left: pd.DataFrame, right: pd.DataFrame, how: str, *, nulls_equal: bool = True
) -> RowPairs:
    """Return the rows of a merge by all columns of two frames of keys.

    Rows are in the order of the left side, or of the right one for ``how="right"``, and then in
    that of the other; right rows without a match come last for ``how="outer"``.

    Parameters
    ----------
    left, right : DataFrame
        Their columns are compared by position.
    how : {"inner", "left", "right", "outer"}
    nulls_equal : bool
        Whether nulls match each other.
    """
    if how == "right":
        swapped = pairs_of(right, left, "left", nulls_equal=nulls_equal)
        return RowPairs(swapped.right, swapped.left)
    found = _met(left, right, nulls_equal=nulls_equal)
    return _pairs(found, how, len(left), len(right), frames_of(left).xp)


def _pairs(found: Found, how: str, left: int, right: int, xp: Any) -> RowPairs:
    """Return the rows of an inner, left or outer merge of sides with so many rows."""
    ours, (theirs, pairs) = None, found
    if theirs is None:
        asked, stored = pairs
        if how == "inner":
            return RowPairs(_whole(asked, left, xp), stored)
        ours, theirs = with_unmatched(left, asked, stored, xp)
    elif how == "inner":
        asked = xp.flatnonzero(theirs >= 0)
        return RowPairs(None, theirs) if len(asked) == left else RowPairs(asked, theirs[asked])
    if how == "outer":
        # Rows without a partner mark the last place.
        there = xp.zeros(right + 1, bool)
        there[theirs] = True
        others = xp.flatnonzero(~there[:-1])
        if len(others):
            ours = xp.arange(left) if ours is None else ours
            ours = xp.concatenate([ours, xp.full(len(others), -1)])
            theirs = xp.concatenate([theirs, others])
    return RowPairs(ours, theirs)


def matched(left: pd.DataFrame, right: pd.DataFrame, *, nulls_equal: bool = True) -> Any:
    """Return the positions of equal keys in two frames, ascending in the left one.

    The side with fewer rows is indexed.
    """
    theirs, pairs = _met(left, right, nulls_equal=nulls_equal)
    return pairs if theirs is None else _both(theirs, frames_of(left).xp)


def _met(left: Any, right: Any, *, nulls_equal: bool) -> Found:
    """Return the right row of each left one, -1 for none; or None, and pairs as `matched` does."""
    frames = frames_of(left)
    xp = frames.xp
    if len(left) == 0 or len(right) == 0:
        return None, (xp.empty(0, np.int64), xp.empty(0, np.int64))
    if not nulls_equal:
        masks = [complete(frame) for frame in (left, right)]
        if not all(bool(mask.all()) for mask in masks):
            kept = [xp.flatnonzero(mask) for mask in masks]
            ours, theirs = matched(*(
                frames.take(frame, rows) for frame, rows in zip((left, right), kept, strict=True)
            ))  # fmt: skip
            return None, (kept[0][ours], kept[1][theirs])
    if len(left) * 2 < len(right):
        partners, pairs = _partners(right, left)
        stored, asked = pairs if partners is None else _both(partners, xp)
        order = sorted_rows([asked]) if xp is np else xp.argsort(asked, kind="stable")
        return None, (asked[order], stored[order])
    return _partners(left, right)


def _both(partners: Any, xp: Any) -> tuple[Any, Any]:
    """Return the positions of rows that have a partner, and their partners."""
    rows = xp.flatnonzero(partners >= 0)
    return rows, partners[rows]


def _partners(asked: Any, stored: Any) -> Found:
    """Return the stored row of each asked one, -1 for none; or None, and pairs of rows."""
    encoder = encoder_of(asked, stored, list(stored.columns))
    return StoredKeys(stored, encoder, len(asked)).met(asked)


class StoredKeys:
    """Keys of a frame, which the keys of other frames are compared with.

    Parameters
    ----------
    stored : DataFrame
        The keys.
    encoder : KeyEncoder
        Of all columns.
    asked : int
        How many keys are asked for.
    """

    def __init__(self, stored: Any, encoder: KeyEncoder, asked: int) -> None:
        frames, self._known = frames_of(stored), encoder.encode_rows(stored)
        self._encoder, self._xp, self._device = encoder, frames.xp, frames.device
        direct = self._xp is np and self._known.proves
        self._direct = DirectTable.rows_of(self._known.codes, asked) if direct else None

    def __len__(self) -> int:
        return len(self._known)

    @functools.cached_property
    def _table(self) -> KeyTable:
        table = KeyTable(self._encoder.code_dtype, self._device, self._device)
        table.insert(self._known.codes, self._xp.arange(len(self)))
        return table

    def pairs(self, asked: Any, how: str) -> RowPairs:
        """Return the rows of an inner or left merge of a frame of keys with these."""
        return _pairs(self.met(asked), how, len(asked), len(self), self._xp)

    def met(self, asked: Any) -> Found:
        """Return the stored row of each asked key, -1 for none; or None, and pairs of rows."""
        wanted, xp = self._encoder.encode(asked, list(asked.columns)), self._xp
        key = wanted.columns[0]
        if self._direct is not None and (wanted.proves or not key.type.nan_is_value):
            partners, known = self._direct.find(wanted.codes), wanted.valid
            if not wanted.proves:
                # Their code may be that of a number, and no stored key is null.
                known = ~key.nulls if known is None else known & ~key.nulls
            if known is not None:
                partners[~known] = -1
            return partners, None
        partners = self._table.partners(wanted.codes, wanted.valid) if xp is np else None
        if partners is not None:
            rows, same = self._verified(wanted, None, partners)
            if same is not None:
                partners[~same if rows is None else rows[~same]] = -1
            return partners, None
        rows, found = self._table.find(wanted.codes, wanted.valid)
        at, same = self._verified(wanted, rows, found)
        if same is not None:
            kept = xp.ones(len(rows), bool)
            kept[slice(None) if at is None else at] = same
            rows, found = rows[kept], found[kept]
        return None, (rows, found)

    def _verified(self, wanted: EncodedKeys, rows: Any, found: Any) -> tuple[Any, Any]:
        """Return positions of matches that codes do not prove, and which are of equal keys.

        Positions are None for all, and the mask is None where there are no such matches. `rows` of
        the asked keys are None for one stored row each, -1 for none.
        """
        xp = self._xp
        if wanted.ambiguous is False or (wanted.proves and self._known.proves) or not len(self):
            return None, None
        at = None
        if wanted.ambiguous is not True:
            codes = wanted.codes if rows is None else wanted.codes[rows]
            at = xp.flatnonzero(codes == wanted.ambiguous)
        elif rows is None and int(xp.count_nonzero(found >= 0)) * 2 < len(found):
            at = xp.flatnonzero(found >= 0)
        asked, stored = (at, found) if at is None else (at, found[at])
        if rows is not None:
            asked = rows if at is None else rows[at]
        if len(stored) == 0:
            return None, None
        if rows is None:
            stored = xp.maximum(stored, 0)
        return at, same_keys(wanted.columns, asked, self._known.columns, stored)


def encoder_of(asked: pd.DataFrame, stored: pd.DataFrame, names: list[Any]) -> KeyEncoder:
    """Return the encoder of the stored keys, in types of the others where all of them are null."""
    encoder, frames = KeyEncoder.for_frame(stored, names), frames_of(stored)
    types = list(encoder.types)
    for place, name in enumerate(names):
        if frames.key_column(stored[name], name).type.kind == "null":
            other = frames.key_column(asked[name], name).type
            types[place] = types[place] if other.kind == "null" else replace(other, nullable=True)
    return replace(encoder, types=tuple(types))


def complete(keys: Any) -> Any:
    """Return a mask of the rows of which no key is null."""
    frames = frames_of(keys)
    if frames.name == "pandas":
        return keys.notna().all(axis=1).to_numpy()
    there = frames.xp.ones(len(keys), bool)
    for label in keys:
        nulls = frames.key_column(keys[label], label).nulls
        there = there if nulls is None else there & ~nulls
    return there


def _whole(rows: Any, n: int, xp: Any = np) -> Any:
    """Return None where these rows are all of `n` in order."""
    return None if len(rows) == n and (n == 0 or bool((rows == xp.arange(n)).all())) else rows


def cross(left: int, right: int, xp: Any = np) -> RowPairs:
    """Return every row of `left` rows beside each of `right`."""
    return RowPairs(xp.repeat(xp.arange(left), right), xp.tile(xp.arange(right), left))


def sorted_by_key(pairs: RowPairs, keys: JoinKeys) -> RowPairs:
    """Return the rows in the order of their keys, nulls last; equal keys stay in order."""
    left, right = (len(frame) for frame in keys.frames)
    ours, theirs = pairs.rows("left", left), pairs.rows("right", right)
    if len(ours) < 2:
        return pairs
    frames = frames_of(keys.frames[0])
    places = frames.xp.where(ours >= 0, ours, left + theirs)
    if frames.name == "cudf":
        from dgpuhash.frames.merge.cudf.plan import key_order

        order = key_order(keys, places)
        return RowPairs(ours[order], theirs[order])
    levels: list[Any] = []
    for pair, columns in reversed(list(zip(keys.pairs, keys.columns, strict=True))):
        for each in reversed([_codes(pair)] if _are_categories(pair) else columns):
            values, nulls = each if _are_categories(pair) else _comparable(*each)
            levels.append(values[places])
            if nulls is not None:
                levels.append(nulls[places])
    order = sorted_rows(levels[::-1])
    ours = _whole(ours[order], left)
    return RowPairs(ours, _whole(theirs[order], right))


def sortable(column: pd.Series) -> tuple[Any, Any | None]:
    """Return the values of a column as NumPy sorts them, and a mask of its nulls.

    Raises KeyTypeError when they cannot be keys.
    """
    values, nulls = _comparable(column, column.iloc[:0])
    if nulls is None and column.isna().any():
        nulls = column.isna().to_numpy()
    return values, nulls


def _are_categories(key: KeyPair) -> bool:
    return isinstance(key.left.dtype, pd.CategoricalDtype) and key.left.dtype == key.right.dtype


def _codes(key: KeyPair) -> tuple[Any, Any]:
    """Return the codes of categories, by which pandas sorts them: their nulls come first."""
    right = key.right.astype(key.left.dtype)
    codes = np.concatenate([key.left.cat.codes.to_numpy(), right.cat.codes.to_numpy()])
    return codes, None


def _comparable(left: Any, right: Any) -> tuple[Any, Any | None]:
    """Return the values of both sides, one behind the other, as NumPy sorts them, and nulls."""
    columns: list[Any] = [frames_of(side.to_frame()).key_column(side, 0) for side in (left, right)]
    kinds = [column.type.kind for column in columns]
    if "null" in kinds:
        return _beside_nulls(columns, kinds)
    if columns[0].strings is not None:
        texts = pa.concat_arrays([column.strings.flat() for column in columns])
        ranks = pc.rank(texts, "ascending", tiebreaker="dense")
        return ranks.to_numpy(), None
    values = [column.values for column in columns]
    units = [column.type.unit for column in columns]
    if units[0] != units[1]:
        stamps = [
            each.astype(np.int64).view(f"M8[{unit}]")
            for each, unit in zip(values, units, strict=True)
        ]
        values = [np.concatenate(stamps).view(np.int64), np.empty(0, np.int64)]
    if all(side.dtype.kind in "mM" and not _is_arrow(side.dtype) for side in (left, right)):
        # Their null is the least of their values, and pandas sorts it so.
        return np.concatenate(values), None
    if all(column.nulls is None for column in columns):
        return np.concatenate(values), None
    null = np.concatenate([
        np.zeros(len(column), bool) if column.nulls is None else column.nulls for column in columns
    ])  # fmt: skip
    return np.where(null, 0, np.concatenate(values)), null


def _is_arrow(dtype: Any) -> bool:
    return isinstance(dtype, pd.ArrowDtype)


def _beside_nulls(columns: list[Any], kinds: list[str]) -> tuple[Any, Any]:
    """Return what is compared where one side is nulls alone."""
    sides = []
    for column, kind in zip(columns, kinds, strict=True):
        if kind == "null":
            sides.append((np.zeros(len(column)), np.ones(len(column), bool)))
        elif column.strings is not None:
            texts = column.strings.flat()
            ranks = pc.rank(texts, "ascending", tiebreaker="dense")
            sides.append((ranks.to_numpy(), texts.is_null().to_numpy(zero_copy_only=False)))
        else:
            null = np.zeros(len(column), bool) if column.nulls is None else column.nulls
            sides.append((column.values, null))
    values, nulls = (np.concatenate(side) for side in zip(*sides, strict=True))
    return np.where(nulls, 0, values), nulls


def first_repeat(keys: pd.DataFrame) -> int:
    """Return a row whose key an earlier row has, or -1."""
    if len(keys) < 2:
        return -1
    encoder = KeyEncoder.for_frame(keys, list(keys.columns))
    return first_duplicate(encoder.encode(keys), frames_of(keys).xp)
