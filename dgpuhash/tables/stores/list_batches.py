"""Execute mixed batches of multimaps: each key's operations in row order."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.errors import ShapeError, SpecError, UnsupportedError
from dgpuhash.tables.arguments.encoding import words_of
from dgpuhash.tables.arguments.interop import as_argument, as_device_array, same_length
from dgpuhash.tables.memory_errors import translates_memory_errors
from dgpuhash.tables.rwlock import write_locked
from dgpuhash.tables.select import spread
from dgpuhash.tables.stores.method import methods
from dgpuhash.tables.stores.mixed import OP_DTYPE, Op, count_stores, values_missing
from dgpuhash.typing import Array, KeysLike, ValuesLike


class ListBatch:
    """Rows of a mixed batch by key and row, with the stored values.

    A span is rows of one key up to an erasure: what it inserts is seen within it alone, and what
    was stored before in the first one of its key.

    Parameters
    ----------
    store : ListStore
    ops : array of uint8
    words : array
        Key words.
    """

    def __init__(self, store: Any, ops: Any, words: Any) -> None:
        self._store, self._words, xp = store, words, store.backend.xp
        self._order = store.backend.stable_order(words)
        keys, kinds = words[self._order], ops[self._order]
        self._finds, self._inserts = kinds == int(Op.FIND), kinds == int(Op.INSERT)
        self._erases = kinds >= int(Op.ERASE)
        first = xp.ones(len(keys), bool)
        first[1:] = keys[1:] != keys[:-1]
        opens = first.copy()
        opens[1:] |= self._erases[:-1]
        begins, spans = xp.flatnonzero(first), xp.flatnonzero(opens)
        of_key, of_span = xp.cumsum(first) - 1, xp.cumsum(opens) - 1
        self._unique = keys[begins]
        stored = store.counts(self._unique)
        before = xp.cumsum(self._inserts) - self._inserts
        self._stored = xp.where(first[spans], stored[of_key[spans]], 0)[of_span]
        self._first_new = before[spans][of_span]
        self._new = before - self._first_new
        erased = xp.cumsum(self._erases)
        last = erased[xp.append(begins[1:], len(keys)) - 1] if len(keys) else erased
        self._lasts = self._inserts & (erased == last[of_key])
        self._gone = (last > xp.append(0, last[:-1])) & (stored > 0)

    def flags(self) -> Any:
        """Return whether each row found, created or removed its key."""
        there = self._stored + self._new > 0
        return self._in_rows(there != self._inserts)

    def found(self, rows: Any) -> tuple[Any, Any]:
        """Return the values found by each row, and offsets; `rows` are those to insert."""
        store, xp = self._store, self._store.backend.xp
        stored, new = (
            self._in_rows(xp.where(self._finds, each, 0)) for each in (self._stored, self._new)
        )
        offsets = xp.append(0, xp.cumsum(stored + new))
        old, _ = store.find(self._words[xp.flatnonzero(stored)])
        values = xp.empty((int(offsets[-1]), *old.shape[1:]), old.dtype)
        values[self._places(stored, offsets[:-1])] = old
        if rows is not None:
            inserted = rows[self._order[self._inserts]]
            firsts = self._in_rows(self._first_new)
            values[self._places(new, offsets[:-1] + stored)] = inserted[self._places(new, firsts)]
        return values, offsets

    def apply(self, rows: Any) -> Any:
        """Apply the batch; return the same store or a replacement."""
        store, xp = self._store, self._store.backend.xp
        lasting = xp.sort(self._order[self._lasts])
        gone = self._unique[self._gone]
        if len(gone) and len(lasting):
            store = store.copy()
        if len(gone):
            store.erase(gone)
        if len(lasting):
            store.insert(self._words[lasting], rows[lasting])
        return store

    def _in_rows(self, column: Any) -> Any:
        made = self._store.backend.xp.empty_like(column)
        made[self._order] = column
        return made

    def _places(self, counts: Any, starts: Any) -> Any:
        """Return the positions of lists with these sizes and starts."""
        backend = self._store.backend
        ends = backend.xp.append(0, backend.xp.cumsum(counts))
        total = int(ends[-1])
        return spread(backend, starts - ends[:-1], ends, total) + backend.xp.arange(total)


class ExecutesLists:
    """Mixin of multimaps: execute mixed batches."""

    @translates_memory_errors
    @write_locked
    def execute(
        self: Any, ops: KeysLike, keys: KeysLike, values: ValuesLike | None = None
    ) -> tuple[Array, Array, Array]:
        """Find all values of keys, append values and remove keys, in one call.

        Operations on the same key happen one after another, in the order of their rows.

        Parameters
        ----------
        ops : array of uint8
            An `Op` for each row: FIND, INSERT, ERASE or ERASE_ALL; both of these remove the key.
        keys : array
            Keys of any number of rows may be equal.
        values : array, optional
            A value for each row; only those of inserts are read. None where there are none.

        Returns
        -------
        values : array
            All values that the first row finds, the second, and so on.
        offsets : array of int64
            One more than `keys`: row *i* found ``values[offsets[i]:offsets[i + 1]]``.
        flags : array of bool
            Whether the row's key was found, created or removed.

        Raises
        ------
        KeyTypeError, ShapeError, DeviceError, SpecError
            When an argument does not fit the table, or a code is none of these operations.
        UnsupportedError
            When multimaps of this method erase no keys, or the table has a `cap`.
        CapacityError, OutOfMemoryError
            When the table cannot grow; it is unchanged. A batch that both removes stored keys and
            appends values works on a copy.

        Examples
        --------
        >>> from dgpuhash import MultiMap, Op
        >>> lists = MultiMap.from_arrays([1, 1, 2], [10, 11, 20])
        >>> ops = [Op.FIND, Op.ERASE_ALL, Op.INSERT, Op.FIND]
        >>> lists.execute(ops, [1, 1, 1, 1], [0, 0, 12, 0])
        (array([10, 11, 12]), array([0, 2, 2, 2, 3]), array([ True,  True,  True,  True]))
        """
        methods()[self._spec.method].require("erase", self.kind)
        if self._spec.cap is not None:
            raise UnsupportedError(
                "a MultiMap with a cap has no order of a key's values, which mixed batches keep; "
                "call insert, find and erase, or make it without cap="
            )
        given = as_argument(ops, "ops")
        taken, bits = self._keys(keys)
        store = self._lists
        codes = as_device_array(store.backend, given, OP_DTYPE, "ops")
        if len(codes) != len(bits):
            raise ShapeError(f"{len(codes):,} ops for {len(bits):,} keys; pass one for each key")
        stored, rows = count_stores(store.backend, codes), None
        check_list_codes(store.backend, codes)
        if values is not None:
            same_length(keys, values)
            rows = as_device_array(
                store.backend, as_argument(values, "values"), self._value, "values"
            )
        elif stored:
            raise values_missing(stored)
        batch = ListBatch(store, codes, words_of(bits))
        found, offsets = batch.found(rows)
        flags = batch.flags()
        self._store = batch.apply(rows)
        return (
            taken.wrap(found, self._value, by_row=False),
            taken.wrap(offsets, np.dtype(np.int64), by_row=False),
            taken.wrap(flags, np.dtype(bool)),
        )


def check_list_codes(backend: Backend, codes: Any, first: int = 0) -> None:
    """Raise SpecError for the first code of an upsert; `first` is the number of row 0."""
    upserts = backend.xp.flatnonzero(codes == int(Op.UPSERT))
    if len(upserts):
        raise SpecError(
            f"ops[{first + int(upserts[0])}] is UPSERT, which a MultiMap does not support; use "
            f"ERASE_ALL "
            "and INSERT"
        )
