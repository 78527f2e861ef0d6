"""Row numbers by key code: a map while every code has one row, a multimap from the first double."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.tables import HashMap, MultiMap

__all__ = ["KeyTable"]

ALL = slice(None)


class KeyTable:
    """Pairs (code, row number) on one device, found by code.

    Parameters
    ----------
    code_dtype : dtype
        uint32 or uint64.
    device : {"cpu", "cuda"}
        Where the table lives. Codes and rows come and go as arrays of `home`.
    home : {"cpu", "cuda"}
        Where the frames' columns live: on the host for pandas.
    """

    def __init__(self, code_dtype: np.dtype[Any], device: str, home: str) -> None:
        self._code_dtype = code_dtype
        # Rows as wide as codes make the slots packed pairs.
        self._row_dtype = code_dtype
        self._backend = backends.get(device)
        self._moves = device != home
        self._table: HashMap | MultiMap = self._map()
        self._pairs = 0

    def __len__(self) -> int:
        return self._pairs

    @property
    def one_row_per_code(self) -> bool:
        """No code has had two rows since there were none."""
        return isinstance(self._table, HashMap)

    @property
    def rows_per_code(self) -> float:
        """Rows of a code, on average."""
        if isinstance(self._table, HashMap):
            return 1.0
        return self._pairs / max(1, self._table.n_keys)

    @property
    def table(self) -> HashMap | MultiMap:
        """The table itself, for its statistics."""
        return self._table

    def insert(self, codes: Any, rows: Any) -> None:
        """Add a row number for each code, or none; inside a code, ascending order is kept."""
        if len(codes) == 0:
            return
        codes, rows = self._in(codes), self._in(rows)
        self._widen(int(rows[-1]))
        rows = _unsigned(rows, self._row_dtype)
        if self._pairs == 0:
            self._table = self._filled(codes, rows)
        elif isinstance(self._table, HashMap):
            self._insert_in_map(self._table, codes, rows)
        else:
            self._table.insert(codes, rows)
        self._pairs += len(codes)

    def count(self, codes: Any, valid: Any = None) -> Any:
        """How many rows `find` gives for each code, as int64."""
        if isinstance(self._table, HashMap):
            counts = self._table.contains(self._in(codes)).astype(np.int64)
        else:
            counts = self._table.count(self._in(codes))
        return self._out(counts if valid is None else counts * self._in(valid))

    def find(
        self, codes: Any, valid: Any = None, window: slice = ALL, *, named: bool = True
    ) -> tuple[Any, Any]:
        """Who has which row: positions in `codes`, ascending, and rows, both int64.

        Of all these pairs, those in `window`. Unless all are `named`, positions are None where each
        code has one row.
        """
        codes = self._in(codes)
        xp = self._backend.xp
        if isinstance(self._table, HashMap):
            named = named or valid is not None or window != ALL
            query_rows, rows = self._table._match(codes, named=named)
            if query_rows is None:
                return None, self._out(_signed(rows))
            if valid is not None:
                kept = self._in(valid)[query_rows]
                query_rows, rows = query_rows[kept], rows[kept]
            return self._out(query_rows[window]), self._out(_signed(rows[window]))
        asked = None if valid is None else xp.flatnonzero(self._in(valid))
        rows, offsets = self._table.find(codes if asked is None else codes[asked], stable=True)
        numbers = xp.arange(*window.indices(len(rows)))
        rows = rows[window]
        # CuPy's repeat takes no device array of counts; a search in the offsets serves both.
        query_rows = xp.searchsorted(offsets, numbers, side="right") - 1
        if asked is not None:
            query_rows = asked[query_rows]
        return self._out(query_rows.astype(xp.int64)), self._out(_signed(rows))

    def contains(self, codes: Any) -> Any:
        """Mask of the codes that have a row."""
        return self._out(self._table.contains(self._in(codes)))

    def erase(self, codes: Any) -> int:
        """Forget all rows of these codes; returns how many those were."""
        codes = self._in(codes)
        if isinstance(self._table, HashMap):
            gone = int(self._table.erase(codes).sum())
        else:
            counts = self._table.count(codes)
            gone = int(counts[self._table.erase(codes)].sum())
        self._pairs -= gone
        return gone

    def erase_pairs(self, codes: Any, rows: Any) -> int:
        """Forget these pairs only, leaving other rows of the same codes; returns how many."""
        xp = self._backend.xp
        distinct = xp.unique(self._in(codes))
        positions, stored = self.find(self._out(distinct))
        positions, stored = self._in(positions), self._in(stored)
        kept = ~xp.isin(stored, self._in(rows))
        left = self._by_row(distinct[positions[kept]], stored[kept])
        gone = self.erase(self._out(distinct)) - len(left[0])
        try:
            self.insert(*left)
        except BaseException:
            self.insert(*self._by_row(distinct[positions], stored))
            raise
        return gone

    def items(self) -> tuple[Any, Any]:
        """All codes and their rows, in the order of the rows."""
        codes, rows = self._table.items()
        order = self._backend.stable_order(rows)
        return self._out(codes[order]), self._out(rows[order].astype(self._backend.xp.int64))

    def codes(self) -> Any:
        """The codes, each as often as it has rows, in no particular order."""
        return self._out(self._table.items()[0])

    @property
    def nbytes(self) -> int:
        """Memory that the table holds, in bytes."""
        return self._table.nbytes

    def _filled(self, codes: Any, rows: Any) -> HashMap | MultiMap:
        """A table of the first rows; which of them are doubles is not asked."""
        device = self._backend.name
        made = HashMap.from_arrays(codes, rows, device=device)
        if len(made) == len(codes):
            return made
        del made
        return MultiMap.from_arrays(codes, rows, device=device)

    def _insert_in_map(self, table: HashMap, codes: Any, rows: Any) -> None:
        """As `insert`; the map stays as it was until a multimap has what it cannot hold."""
        late = ~table.insert(codes, rows)
        if not bool(late.any()):
            return
        try:
            self._table = self._as_multimap(table, codes[late], rows[late])
        except BaseException:
            table.erase(codes[~late])
            raise

    def _map(self) -> HashMap:
        return HashMap(self._code_dtype, self._row_dtype, device=self._backend.name)

    def _as_multimap(self, table: HashMap, codes: Any, rows: Any) -> MultiMap:
        """The pairs of a map, and more."""
        xp = self._backend.xp
        stored_codes, stored_rows = table.items()
        codes = xp.concatenate([stored_codes, codes])
        rows = xp.concatenate([stored_rows, rows])
        order = self._backend.stable_order(rows)
        made = MultiMap(self._code_dtype, self._row_dtype, device=self._backend.name)
        made.insert(codes[order], rows[order])
        return made

    def _widen(self, last_row: int) -> None:
        if last_row <= np.iinfo(self._row_dtype).max:
            return
        codes, rows = self._table.items()
        order = self._backend.stable_order(rows)
        wide = np.dtype(np.uint64)
        made = type(self._table)(self._code_dtype, wide, device=self._backend.name)
        made.insert(codes[order], rows[order].astype(wide))
        self._table, self._row_dtype = made, wide

    def _by_row(self, codes: Any, rows: Any) -> tuple[Any, Any]:
        """Pairs as `insert` takes them."""
        order = self._backend.stable_order(rows)
        return self._out(codes[order]), self._out(rows[order])

    def _in(self, array: Any) -> Any:
        return self._backend.from_host(array) if self._moves else array

    def _out(self, array: Any) -> Any:
        return self._backend.to_host(array) if self._moves else array


def _signed(rows: Any) -> Any:
    return rows.view(np.int64) if rows.dtype.itemsize == 8 else rows.astype(np.int64)


def _unsigned(rows: Any, dtype: np.dtype[Any]) -> Any:
    return rows.view(dtype) if rows.dtype.itemsize == dtype.itemsize else rows.astype(dtype)
