"""Page through the matches of a query, with a size limit in bytes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple, Protocol

from dgpuhash.frames.dataframes import frames_of
from dgpuhash.frames.keyed_rows import KeyedRows
from dgpuhash.frames.keys.encoding import EncodedKeys
from dgpuhash.frames.matches import Matches
from dgpuhash.tables.select import gather_rows

# Bytes of the query position that is sent with every matched row.
POSITION_NBYTES = 8
# Planned fill of a page: matched rows may be wider than the average row.
PAGE_FILL = 0.9
# Pairs of a key and a stored row from which on matches are counted before they are listed.
COUNTED = 1 << 24


class RowLimit(Protocol):
    """Memory limit for the rows of a result."""

    def allows(self, rows: int, row_nbytes: float) -> bool:
        """Return whether some more rows fit."""

    def expect(self, rows: int, row_nbytes: float) -> None:
        """Count rows; raise OutOfMemoryError if they do not fit."""


class Cursor(NamedTuple):
    """Cursor: the start of the next page, and the size of pages.

    Attributes
    ----------
    key : int
        Position of the first key of the query whose rows are not all sent.
    skip : int
        Candidates of that key that were already sent; above 0 only for a key wider than a page.
    cuts : list of int
        Further positions, ascending: keys between two of them fill about a page.
    left : int
        Candidates that were not sent yet.
    """

    key: int
    skip: int
    cuts: list[int]
    left: int = 0


class Page(NamedTuple):
    """Matches of the first keys of a query, and the cursor for the other keys.

    For the next page, query the keys from ``rest.key`` to the first cut with ``skip=rest.skip``,
    and then the keys between consecutive cuts. The index keeps no state between pages, and a key is
    not sent again for every page.

    Attributes
    ----------
    matches : Matches
        All rows of some keys; or some rows of one key, in insertion order.
    rest : Rest or None
        None after the last page.
    """

    matches: Matches
    rest: Cursor | None


def first_page(
    stored: KeyedRows, encoded: EncodedKeys, columns: Sequence[Hashable], nbytes: int,
    skip: int = 0, plain: bool = False, named: bool = True, marks: Any = None,
    limit: RowLimit | None = None,
) -> Page:  # fmt: skip
    """Return the matches of the first keys of a query, up to `nbytes`.

    Parameters
    ----------
    stored : KeyedRows
    encoded : EncodedKeys
        The keys of the query.
    columns : sequence of labels
        The stored columns that are wanted.
    nbytes : int
        Maximum bytes of the page; a page of one row may be larger.
    skip : int
        Candidates of the first key that earlier pages sent; rows that only share its code count.
    plain : bool
        Return the columns as a tuple of arrays where `RowStore.arrays` can.
    named : bool
        Return query positions even when each key has exactly one row; otherwise they are None then.
    marks : uint8 array, optional
        For each stored row, set to 1 where it is on the page.
    limit : RowLimit, optional
        What is told the number of rows before they are there, and may refuse them.
    """
    arrays = stored.store.arrays(columns) if plain else None
    if arrays is None:
        named = True
        row_nbytes = stored.store.row_nbytes(columns)
    else:
        row_nbytes = sum(array.dtype.itemsize for array in arrays)
    room = max(1, int(nbytes / (row_nbytes + POSITION_NBYTES)))
    one_row = stored.table.one_row_per_code
    candidates = None
    most = len(encoded) * stored.table.rows_per_code
    # A few keys may have most of the rows, and a list of all their matches no place.
    bound = len(encoded) * (1 if one_row else len(stored))
    if limit is not None and not limit.allows(bound, row_nbytes):
        candidates = Candidates.of(stored, encoded)
        limit.expect(candidates.rows, row_nbytes)
    skewed = bound > COUNTED and frames_of(stored.store.meta).device == "cpu" and limit is None
    if skip == 0 and (one_row or (most <= room and not skewed)):
        # All matches likely fit, or take no more memory than the keys: skip the count pass.
        found = stored.table.find(encoded.codes, encoded.valid, named=named)
        stop = len(found[1])
        if stop > room:
            candidates = candidates or Candidates.of(stored, encoded)
            stop = candidates.stop(skip, room)
            if found[0] is None:
                found = candidates.xp.arange(len(found[1])), found[1]
    else:
        candidates = candidates or Candidates.of(stored, encoded)
        stop = candidates.stop(skip, room)
        keys = slice(0, candidates.keys_before(stop))
        valid = None if encoded.valid is None else encoded.valid[keys]
        found = stored.table.find(encoded.codes[keys], valid, slice(skip, stop))
    while True:
        some = (each if each is None else each[: stop - skip] for each in found)
        query_rows, rows = stored.verified_pairs(encoded, *some)
        if arrays is not None:
            frame = tuple(gather_rows(array, rows) for array in arrays)
            break
        frame = stored.store.take(rows, columns)
        positions = POSITION_NBYTES * len(rows)
        if stop - skip <= 1 or stored.store.fits(frame, nbytes - positions):
            break
        size = frames_of(frame).rows_nbytes(frame) + positions
        candidates = candidates or Candidates.of(stored, encoded)
        room = max(1, int((stop - skip) * PAGE_FILL * nbytes / size))
        stop = candidates.stop(skip, room)
    if marks is not None:
        marks[rows] = 1
    rest = None if candidates is None else candidates.after(stop, room)
    return Page(Matches(query_rows, frame), rest)


@dataclass(frozen=True, slots=True)
class Candidates:
    """Stored rows whose code equals that of a query key, numbered key by key.

    Attributes
    ----------
    ends : int64 array
        For each key, one past the number of its last candidate.
    """

    ends: Any
    xp: ModuleType

    @classmethod
    def of(cls, stored: KeyedRows, encoded: EncodedKeys) -> Candidates:
        """Return the candidates of all keys of a query."""
        counts = stored.table.count(encoded.codes, encoded.valid)
        return cls(counts.cumsum(), frames_of(stored.store.meta).xp)

    @property
    def rows(self) -> int:
        """Number of all candidates."""
        return self._end(len(self.ends))

    def stop(self, start: int, room: int) -> int:
        """Return the end of a page of at most `room` candidates from `start`.

        The page ends after the last key that fits whole; if none fits, where the page is full.
        """
        whole = self._keys(start + room, "right")
        end = self._end(whole)
        return end if end > start else min(start + room, self._end(len(self.ends)))

    def keys_before(self, stop: int) -> int:
        """Return the number of leading keys with all candidates before `stop`."""
        return self._keys(stop, "left") + 1

    def after(self, stop: int, room: int) -> Cursor | None:
        """Return the cursor for the candidates from `stop`, in pages of `room`.

        None when no candidate is left.
        """
        key = self._keys(stop, "right")
        if key == len(self.ends):
            return None
        skip = stop - self._end(key)
        step = max(1, int(room * PAGE_FILL))
        planned = self.xp.arange(stop + step, self._end(len(self.ends)), step)
        cuts = set(self.xp.searchsorted(self.ends, planned, side="right").tolist())
        if skip:
            # A key wider than a page gets pages of its own.
            cuts.add(key + 1)
        further = sorted(cut for cut in cuts if key < cut < len(self.ends))
        return Cursor(key, skip, further, self.rows - stop)

    def _end(self, keys: int) -> int:
        return int(self.ends[keys - 1]) if keys else 0

    def _keys(self, number: int, side: str) -> int:
        numbers = self.xp.asarray([number])
        return int(self.xp.searchsorted(self.ends, numbers, side=side)[0])
