"""The matches of a query in pages that are bounded in bytes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple

from dgpuhash.frames.dataframes import frames_of
from dgpuhash.frames.keyed_rows import KeyedRows
from dgpuhash.frames.keys.encoding import EncodedKeys
from dgpuhash.frames.matches import Matches
from dgpuhash.tables.select import taken

__all__ = ["POSITION_NBYTES", "Page", "Rest", "first_page"]

# Of a position in the query, which goes with every matched row.
POSITION_NBYTES = 8
# Share of a page that is planned for: matched rows may be wider than others.
FILLED = 0.9


class Rest(NamedTuple):
    """What a page leaves to those after it.

    Attributes
    ----------
    key : int
        Position of the first key of the query that is not answered completely.
    skip : int
        What that key has had; more than 0 only when all its rows do not fit a page.
    cuts : list of int
        Further positions, ascending: keys between two of them fill about a page.
    """

    key: int
    skip: int
    cuts: list[int]


class Page(NamedTuple):
    """The first matches of a query, and what is left.

    To go on, ask for the keys from ``rest.key`` to the first cut with ``skip=rest.skip``, and then
    for those between the cuts: whoever answers keeps nothing from page to page, and no key is
    sent for every page.

    Attributes
    ----------
    matches : Matches
        Whole keys; or else some of the rows of one key, in their order.
    rest : Rest or None
        None after the last page.
    """

    matches: Matches
    rest: Rest | None


def first_page(
    stored: KeyedRows,
    encoded: EncodedKeys,
    columns: Sequence[Hashable],
    nbytes: int,
    skip: int = 0,
    plain: bool = False,
    named: bool = True,
) -> Page:
    """The matches of the first keys, as many as fit.

    Parameters
    ----------
    stored : KeyedRows
    encoded : EncodedKeys
        The keys of the query.
    columns : sequence of labels
        The stored columns that are wanted.
    nbytes : int
        What the page may have; a single row may have more.
    skip : int
        Rows of the first key that other pages had; rows that only share its code count.
    plain : bool
        Give the columns as a tuple of arrays where `RowStore.arrays` does.
    named : bool
        Give positions also where they are those of all keys; else they are None then.
    """
    arrays = stored.store.arrays(columns) if plain else None
    if arrays is None:
        named = True
        row_nbytes = stored.store.row_nbytes(columns)
    else:
        row_nbytes = sum(array.dtype.itemsize for array in arrays)
    room = max(1, int(nbytes / (row_nbytes + POSITION_NBYTES)))
    candidates = None
    most = len(encoded) * stored.table.rows_per_code
    if skip == 0 and (most <= room or stored.table.one_row_per_code):
        # All of it most likely fits, or takes no more than the keys: nothing is counted first.
        found = stored.table.find(encoded.codes, encoded.valid, named=named)
        stop = len(found[1])
        if stop > room:
            candidates = Candidates.of(stored, encoded)
            stop = candidates.stop(skip, room)
            if found[0] is None:
                found = candidates.xp.arange(len(found[1])), found[1]
    else:
        candidates = Candidates.of(stored, encoded)
        stop = candidates.stop(skip, room)
        keys = slice(0, candidates.keys_before(stop))
        valid = None if encoded.valid is None else encoded.valid[keys]
        found = stored.table.find(encoded.codes[keys], valid, slice(skip, stop))
    while True:
        some = (each if each is None else each[: stop - skip] for each in found)
        query_rows, rows = stored.proven(encoded, *some)
        if arrays is not None:
            frame = tuple(taken(array, rows) for array in arrays)
            break
        frame = stored.store.take(rows, columns)
        positions = POSITION_NBYTES * len(rows)
        if stop - skip <= 1 or stored.store.fits(frame, nbytes - positions):
            break
        size = frames_of(frame).rows_nbytes(frame) + positions
        candidates = candidates or Candidates.of(stored, encoded)
        room = max(1, int((stop - skip) * FILLED * nbytes / size))
        stop = candidates.stop(skip, room)
    rest = None if candidates is None else candidates.after(stop, room)
    return Page(Matches(query_rows, frame), rest)


@dataclass(frozen=True, slots=True)
class Candidates:
    """The stored rows that share a code with a key of a query, numbered key by key.

    Attributes
    ----------
    ends : int64 array
        For each key, the number after that of its last candidate.
    """

    ends: Any
    xp: ModuleType

    @classmethod
    def of(cls, stored: KeyedRows, encoded: EncodedKeys) -> Candidates:
        """Those of all keys."""
        counts = stored.table.count(encoded.codes, encoded.valid)
        return cls(counts.cumsum(), frames_of(stored.store.meta).xp)

    def stop(self, start: int, room: int) -> int:
        """Where a page ends: after the last key that fits; when none does, where it is full."""
        whole = self._keys(start + room, "right")
        end = self._end(whole)
        return end if end > start else min(start + room, self._end(len(self.ends)))

    def keys_before(self, stop: int) -> int:
        """How many keys, from the first on, have the candidates before `stop`."""
        return self._keys(stop, "left") + 1

    def after(self, stop: int, room: int) -> Rest | None:
        """What is left, in pages of `room` candidates."""
        key = self._keys(stop, "right")
        if key == len(self.ends):
            return None
        skip = stop - self._end(key)
        step = max(1, int(room * FILLED))
        planned = self.xp.arange(stop + step, self._end(len(self.ends)), step)
        cuts = set(self.xp.searchsorted(self.ends, planned, side="right").tolist())
        if skip:
            # A key that does not fit a page is asked for alone.
            cuts.add(key + 1)
        return Rest(key, skip, sorted(cut for cut in cuts if key < cut < len(self.ends)))

    def _end(self, keys: int) -> int:
        return int(self.ends[keys - 1]) if keys else 0

    def _keys(self, number: int, side: str) -> int:
        numbers = self.xp.asarray([number])
        return int(self.xp.searchsorted(self.ends, numbers, side=side)[0])
