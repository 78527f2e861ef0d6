"""Find the row pairs of a merge, and their order."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dgpuhash import backend
from dgpuhash.frames.dataframes.strings import ArrowStrings
from dgpuhash.frames.key_columns import KeyColumn, LogicalType
from dgpuhash.frames.keys.encoding import EncodedKeys, KeyColumns, KeyEncoder
from dgpuhash.frames.matches import drop_matches, unequal_matches, with_unmatched
from dgpuhash.frames.merge.keys import JoinKeys
from dgpuhash.tables.columns.direct import DirectTable
from dgpuhash.tables.columns.join import RowsByKey
from dgpuhash.tables.select import rows_where

# The one right row of each left one, -1 for none; or None, and pairs of left and right rows. Left
# rows of these may be None where each has one right row.
Found = tuple[Any, Any]


@dataclass(frozen=True, slots=True)
class RowPairs:
    """Row pairs of a merge: positions in both sides, -1 for an absent row.

    Attributes
    ----------
    left, right : int64 array or None
        None stands for all rows of the side, in order.
    """

    left: Any
    right: Any

    def rows(self, side: str, n: int) -> Any:
        """Return the positions in a side of `n` rows."""
        found, other = (self.left, self.right)[:: 1 if side == "left" else -1]
        if found is not None:
            return found
        xp: Any = np if other is None else backend.get(None, other).xp
        return xp.arange(n, dtype=np.int64)

    def size(self, left: int) -> int:
        """Return the number of pairs, given the rows of the left side."""
        return left if self.left is None else len(self.left)

    def kept(self, mask: Any, left: int, right: int) -> RowPairs:
        """Return the pairs in a mask, given the rows of both sides."""
        return RowPairs(self.rows("left", left)[mask], self.rows("right", right)[mask])

    def lacks(self, side: str) -> bool:
        """Return whether a pair lacks a row of a side."""
        found = self.left if side == "left" else self.right
        return found is not None and len(found) > 0 and bool(found.min() < 0)

    def absent(self, side: str) -> Any | None:
        """Return a mask of the pairs without a row of a side, None if there are none."""
        return (self.left if side == "left" else self.right) < 0 if self.lacks(side) else None


def pairs_of(
    left: KeyColumns, right: KeyColumns, how: str, *, nulls_equal: bool = True
) -> RowPairs:
    """Return the row pairs of a merge, by the keys of both sides.

    Rows are in the order of the left side, or of the right one for ``how="right"``, and then in
    that of the other; right rows without a match come last for ``how="outer"``.

    Parameters
    ----------
    left, right : KeyColumns
    how : {"inner", "left", "right", "outer"}
    nulls_equal : bool
        Whether nulls match each other.
    """
    if how == "right":
        swapped = pairs_of(right, left, "left", nulls_equal=nulls_equal)
        return RowPairs(swapped.right, swapped.left)
    rows = len(left), len(right)
    found = _find_matches(left, right, rows, nulls_equal=nulls_equal, inner=how == "inner")
    return row_pairs(found, how, *rows, left.frames.xp)


def row_pairs(found: Found, how: str, left: int, right: int, xp: Any) -> RowPairs:
    """Return the row pairs of an inner, left or outer merge, given the sides' sizes.

    Those of the right side count in outer merges alone.
    """
    ours, (theirs, pairs) = None, found
    if theirs is None:
        asked, stored = pairs
        if how == "inner":
            return RowPairs(None if asked is None else _whole(asked, left, xp), stored)
        ours, theirs = with_unmatched(left, asked, stored, xp)
    elif how == "inner":
        asked = (theirs >= 0).nonzero()[0]
        return RowPairs(None, theirs) if len(asked) == left else RowPairs(asked, theirs[asked])
    if how == "outer":
        # Rows without a partner mark the last place.
        alone = xp.ones(right + 1, bool)
        alone[theirs] = False
        others = rows_where(backend.get(None, alone), alone[:-1])
        if len(others):
            ours = xp.arange(left) if ours is None else ours
            ours = xp.concatenate([ours, xp.full(len(others), -1)])
            theirs = xp.concatenate([theirs, others])
    return RowPairs(ours, theirs)


def _find_matches(
    left: KeyColumns, right: KeyColumns, rows: tuple[int, int], *, nulls_equal: bool, inner: bool
) -> Found:
    """Return the right row of each left row, -1 for none; or None and the matching pairs.

    Pairs ascend in the left rows. The side with fewer rows is indexed.
    """
    if 0 in rows:
        xp = left.frames.xp
        return None, (xp.empty(0, np.int64), xp.empty(0, np.int64))
    if len(left.columns) > 1 or left.columns[0].strings is not None:
        left, right = with_short_words(left, right)
    if rows[0] * 2 < rows[1]:
        keys = StoredKeys(left, encoder_of(right, left), rows[1])
        return None, keys.pairs_by_row(right, nulls_equal=nulls_equal)
    keys = StoredKeys(right, encoder_of(left, right), rows[0])
    return keys.find_matches(left, nulls_equal=nulls_equal, inner=inner)


class StoredKeys:
    """Keys of a frame as a hash table, for merges with other frames.

    Parameters
    ----------
    stored : KeyColumns
    encoder : KeyEncoder
        Of all columns.
    asked : int
        How many keys are asked for.
    """

    def __init__(self, stored: KeyColumns, encoder: KeyEncoder, asked: int) -> None:
        self._frames, self._asked = stored.frames, asked
        self._encoder, self._known = encoder.for_call(stored)

    def __len__(self) -> int:
        return len(self._known)

    @functools.cached_property
    def _direct(self) -> DirectTable | None:
        if self._frames.selects_pairs or not self._known.proves:
            return None
        return DirectTable.rows_of(self._known.codes, self._asked)

    @functools.cached_property
    def _rows(self) -> RowsByKey:
        return RowsByKey(backend.get(self._frames.device), self._known.codes)

    def pairs(self, asked: KeyColumns, how: str) -> RowPairs:
        """Return the row pairs of an inner or left merge of other keys with these."""
        found = self.find_matches(asked, inner=how == "inner")
        return row_pairs(found, how, len(asked), len(self), self._frames.xp)

    def find_matches(
        self, asked: KeyColumns, *, nulls_equal: bool = True, inner: bool = False
    ) -> Found:
        """Return the stored row of each key, -1 for none; or None and pairs of rows.

        For an inner merge a GPU selects the pairs in one pass.
        """
        wanted = self._encoder.encode_columns(asked, nulls_equal=nulls_equal)
        key = wanted.columns[0]
        if self._direct is not None and (wanted.proves or not key.type.nan_is_value):
            partners, known = self._direct.find(wanted.codes), wanted.valid
            if not wanted.proves:
                # Their code may be that of a number, and no stored key is null.
                known = ~key.nulls if known is None else known & ~key.nulls
            if known is not None:
                partners[~known] = -1
            return partners, None
        if self._rows.one_row_each and not (inner and self._frames.selects_pairs):
            partners = self._rows.first(wanted.codes)[0]
            if wanted.valid is not None:
                partners[~wanted.valid] = -1
            unequal = self._unequal(wanted, None, partners)
            if unequal is not None:
                partners[unequal] = -1
            return partners, None
        pairs = self._rows.pairs(wanted.codes, wanted.valid, named=not inner)
        unequal = self._unequal(wanted, *pairs)
        return None, pairs if unequal is None else drop_matches(*pairs, unequal)

    def pairs_by_row(self, asked: KeyColumns, *, nulls_equal: bool) -> tuple[Any, Any]:
        """Return the positions of equal keys here and in `asked`, sorted by those here."""
        wanted = self._encoder.encode_columns(asked, nulls_equal=nulls_equal)
        stored, rows = self._rows.pairs_by_row(wanted.codes, wanted.valid)
        unequal = self._unequal(wanted, rows, stored)
        found = (rows, stored) if unequal is None else drop_matches(rows, stored, unequal)
        return found[::-1]

    def _unequal(self, wanted: EncodedKeys, rows: Any, found: Any) -> Any | None:
        """Return the positions of matches with equal codes and different keys."""
        proved = wanted.ambiguous is False or (wanted.proves and self._known.proves)
        if proved or not len(self):
            return None
        return unequal_matches(wanted, rows, found, lambda hits: (self._known.columns, hits))


def with_short_words(left: KeyColumns, right: KeyColumns) -> tuple[KeyColumns, KeyColumns]:
    """Return both sides' keys with integers in place of strings of at most 7 bytes.

    Longer ones are hashed, and compared where their hashes are equal.
    """
    both = [_short_words(*each) for each in zip(left.columns, right.columns, strict=True)]
    return replace(left, columns=[ours for ours, _ in both]), replace(
        right, columns=[theirs for _, theirs in both]
    )


def _short_words(left: KeyColumn, right: KeyColumn) -> tuple[KeyColumn, KeyColumn]:
    """Return the strings of both columns as integers; other columns unchanged."""
    ours, theirs = left.strings, right.strings
    if not (isinstance(ours, ArrowStrings) and isinstance(theirs, ArrowStrings)):
        return left, right
    # Where few strings show a longer one, the many are not read.
    few, many = sorted((ours, theirs), key=len)
    words = few.short_words()
    others = None if words is None else many.short_words()
    if others is None:
        return left, right
    kind = LogicalType("uint", 64, nullable=left.nulls is not None or right.nulls is not None)
    own, other = (words, others) if few is ours else (others, words)
    return KeyColumn(kind, own, left.nulls), KeyColumn(kind, other, right.nulls)


def encoder_of(asked: KeyColumns, stored: KeyColumns) -> KeyEncoder:
    """Return the encoder of stored keys, with the probe keys' types for all-null columns."""
    types = list(stored.stored_types)
    for place, (ours, other) in enumerate(zip(stored.columns, asked.columns, strict=True)):
        if ours.type.kind == "null" != other.type.kind:
            types[place] = replace(other.type, nullable=True)
    return KeyEncoder.for_types(tuple(types))


def _whole(rows: Any, n: int, xp: Any = np) -> Any:
    """Return None if these rows are all of `n` in order, else the rows."""
    return None if len(rows) == n and (n == 0 or bool((rows == xp.arange(n)).all())) else rows


def cross(left: int, right: int, xp: Any = np) -> RowPairs:
    """Return the pairs of every `left` row with every `right` row."""
    return RowPairs(xp.repeat(xp.arange(left), right), xp.tile(xp.arange(right), left))


def sorted_by_key(pairs: RowPairs, keys: JoinKeys) -> RowPairs:
    """Return the row pairs in a stable sort order of their keys, nulls last.

    As in pandas nulls of datetimes and categories come first, but in merges by some indexes.
    """
    left, right = map(len, keys.pairs[0].values)
    ours, theirs = pairs.rows("left", left), pairs.rows("right", right)
    if len(ours) < 2:
        return pairs
    frames = keys.library
    order = frames.key_order(keys, frames.xp.where(ours >= 0, ours, left + theirs))
    ours = _whole(ours[order], left, frames.xp)
    return RowPairs(ours, _whole(theirs[order], right, frames.xp))


def first_repeat(keys: KeyColumns) -> int:
    """Return a row with the key of an earlier row, or -1."""
    if len(keys) < 2:
        return -1
    return KeyEncoder.for_types(keys.stored_types).for_call(keys)[1].first_repeat()
