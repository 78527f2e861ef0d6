"""KeyedRows: stored rows with the hash table of their keys; matches are verified."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np

from dgpuhash.backend import is_out_of_memory
from dgpuhash.errors import ColumnError, OutOfMemoryError, TableBroken
from dgpuhash.frames.dataframes import frames_of
from dgpuhash.frames.keys.encoding import EncodedKeys, KeyEncoder
from dgpuhash.frames.keys.table import AUTO, KeyTable, KeyTableMethod
from dgpuhash.frames.matches import drop_matches, unequal_matches
from dgpuhash.frames.row_store import RowStore, SpilledRowStore
from dgpuhash.frames.spill.file import SpillFile
from dgpuhash.tables.commit import assigner
from dgpuhash.typing import Device


class KeyedRows:
    """Stored rows and a hash table of their key codes.

    A hit whose code does not prove equal keys is verified against the stored key columns.

    Parameters
    ----------
    meta : DataFrame
        An empty frame with the columns and dtypes of the rows.
    encoder : KeyEncoder
    device : {"cpu", "cuda"}
        Where the key table lives.
    method : KeyTableMethod
    """

    def __init__(
        self, meta: Any, encoder: KeyEncoder, device: Device, method: KeyTableMethod = AUTO
    ) -> None:
        self._frames = frames = frames_of(meta)
        self._xp = frames.xp
        self._encoder = encoder
        self.store: RowStore | SpilledRowStore = RowStore(meta)
        hashed = encoder.packing == "hashed"
        self._new_table = partial(
            KeyTable, encoder.code_dtype, device, frames.device, method, hashed=hashed
        )
        self.table: BrokenTable | KeyTable = self._new_table()
        self._told: dict[Hashable, bool] = {}

    def __len__(self) -> int:
        return len(self.table)

    def encoder_for(self, keys: Any) -> KeyEncoder:
        """Return the encoder for a query with these keys, a frame.

        As in pandas, key columns of incomparable types are accepted where only one side has rows.
        """
        rows = len(self.table)
        if bool(rows) != bool(len(keys)):
            return self._encoder.untyped()
        return self._encoder if rows else self._encoder.without_rows(self.store.meta)

    def told(self, label: Hashable, kind: Any, ask: Callable[[Any, Any], bool]) -> bool:
        """Return ``ask(column, kind)`` for a stored column, cached until a change.

        `label` names the column; erased rows are left out.
        """
        asked = label, kind
        if asked not in self._told:
            rows = self.store.frame()
            if self.erased:
                rows = self.store.take(self.table.rows(), [label])
            self._told[asked] = ask(rows[label], kind)
        return self._told[asked]

    @property
    def erased(self) -> int:
        """Number of erased rows that still take memory."""
        return len(self.store) - len(self.table)

    def fitting(self, frame: Any, unique: bool | None) -> tuple[Any, EncodedKeys]:
        """Return the rows of `frame` in the stored dtypes, and their codes.

        `insert` takes both.

        Raises
        ------
        ColumnError
            When a column has another type, integers would be rounded, or `unique` is True and a key
            has two rows.
        KeyTypeError
            When a key value does not fit.
        """
        rows = self.store.conform(frame)
        encoded = self._encoder.encode_rows(rows)
        self.store.check_rounding(rows)
        if unique:
            self.refuse_doubles(rows, encoded)
        return rows, encoded

    def check_change(self, verb: str, rows: Any) -> None:
        """Raise UnsupportedError if the table's method does not support the change."""
        method = self.table.method
        for needed in ("insert", "erase") if verb == "upsert" else (verb,):
            method.require(needed, self.table.table)
        if verb != "erase" and not method.lists:
            encoded = self._encoder.encode_rows(rows)
            stored = int(self.table.contains(encoded.codes).sum())
            if verb == "upsert":
                stored -= len(self.pairs(encoded)[1])
            if stored or len(self._xp.unique(encoded.codes)) < len(encoded):
                method.multimap()

    def insert(self, rows: Any, encoded: EncodedKeys, arrays: Sequence[Any] | None = None) -> None:
        """Add rows with the stored columns, and their codes.

        `arrays` are the columns of `rows` as arrays, where `rows` was made from arrays.
        """
        first, store = len(self.store), self.store.appended(rows, arrays)
        self.table.insert(
            encoded.codes,
            self._xp.arange(first, first + len(rows)),
            then=assigner(self, store=store, _told={}),
            undone=assigner(self, store=self.store, _told={}),
        )

    def insert_arrays(self, arrays: Sequence[Any], unique: bool | None) -> None:
        """Add rows given as arrays of the stored columns (see `Frames.arrays`).

        Raises ColumnError when `unique` is True and a key has two rows, or integers would be
        rounded.
        """
        meta = self.store.meta
        frames, columns = frames_of(meta), dict(zip(meta, arrays, strict=True))
        encoded = self._encoder.encode_arrays(
            [columns[name] for name in self._encoder.names], frames
        )
        rows = frames.from_arrays(arrays, meta)
        self.store.check_rounding(rows)
        if unique:
            self.refuse_doubles(rows, encoded)
        self.insert(rows, encoded, arrays)

    def upsert(self, rows: Any, encoded: EncodedKeys) -> None:
        """Replace all rows of the given rows' keys by these rows, given their codes.

        No two of `rows` have one key. Frees memory as `erase` does.
        """
        query_rows, stored = self.pairs(encoded)
        if len(stored) == 0:
            self.insert(rows, encoded)
            return
        if self._fit_in_place(encoded, len(stored)):
            self._overwrite(rows, encoded, len(stored))
        else:
            self._exchange(rows, encoded, encoded.codes[query_rows], stored)
        if self.erased > len(self):
            self._compact()

    def _fit_in_place(self, encoded: EncodedKeys, stored: int) -> bool:
        """Return whether each code has at most one row, before and after an upsert.

        `stored` is the number of rows with the keys of the upsert.
        """
        if not self.table.one_row_per_code:
            return False
        if encoded.ambiguous is False:
            return True
        distinct = len(self._xp.unique(encoded.codes)) == len(encoded)
        return distinct and int(self.table.contains(encoded.codes).sum()) == stored

    def _overwrite(self, rows: Any, encoded: EncodedKeys, stored: int) -> None:
        """Run an upsert as one change of a map."""
        before, first = self.store, len(self.store)
        # Until the table names them, nobody finds the new rows.
        assigner(self, store=before.appended(rows), _told={})()
        try:
            self.table.overwrite(encoded.codes, self._xp.arange(first, first + len(rows)), stored)
        except Exception as error:
            if isinstance(error, OutOfMemoryError) or is_out_of_memory(error):
                self.store = before
            raise

    def _exchange(self, rows: Any, encoded: EncodedKeys, codes: Any, stored: Any) -> None:
        """Run an upsert as an erase and an insert, both or none.

        `codes` and `stored` are the pairs to erase.
        """
        before = self.store
        try:
            if encoded.ambiguous is False:
                self.table.erase(codes)
            else:
                self.table.erase_pairs(codes, stored)
            self.insert(rows, encoded)
        except BaseException:
            # An insert that is done has set the store.
            if self.store is before:
                self._put_back(codes, stored)
            raise

    def _put_back(self, codes: Any, stored: Any) -> None:
        """Insert pairs again that an erase may have removed.

        Until they are there, the index is broken.
        """
        table = self.table
        self.table = BrokenTable()  # type: ignore[assignment]
        found = table.find(self._xp.unique(codes))[1]
        order = self._xp.argsort(stored)
        order = order[~self._xp.isin(stored[order], found)]
        table.insert(codes[order], stored[order])
        assigner(self, table=table, _told={})()

    def insert_spilled(self, keys: Any, file: SpillFile, spans: Any, unique: bool | None) -> None:
        """Add the first rows: key columns, and others in a file (`SpilledRowStore`).

        Raises as `insert_arrays`.
        """
        store = SpilledRowStore(self.store.meta, file, spans)
        keys = store.conform(keys)
        encoded = self._encoder.encode_rows(keys)
        store.check_file()
        if unique:
            self.refuse_doubles(keys, encoded)
        self.store = store
        self.insert(keys, encoded)

    def pairs(self, encoded: EncodedKeys) -> tuple[Any, Any]:
        """Return the matches as pairs of query position and stored row number.

        The positions ascend.
        """
        if encoded.ambiguous is True and not self._frames.selects_pairs:
            found = self.partners(encoded)
            if found is not None:
                positions = np.flatnonzero(found >= 0)
                return positions, found[positions]
        return self.verified_pairs(encoded, *self.table.find(encoded.codes, encoded.valid))

    def find_matches(self, encoded: EncodedKeys, *, inner: bool = False) -> tuple[Any, Any]:
        """Return the row of each key, -1 for none; or None and the matches as `pairs`.

        For an inner merge a GPU selects the matches in one pass, and positions in the query may be
        None where each key has one row.
        """
        if inner and self._frames.selects_pairs:
            pairs = self.table.find(encoded.codes, encoded.valid, named=False)
            return None, self.verified_pairs(encoded, *pairs)
        partners = self.partners(encoded)
        return partners, (self.pairs(encoded) if partners is None else None)

    def by_stored(self, met: tuple[Any, Any]) -> tuple[None, tuple[Any, Any]]:
        """Return the matches `met` as pairs of stored row and key, sorted by row."""
        partners, pairs = met
        if partners is not None:
            asked = self._xp.flatnonzero(partners >= 0)
            pairs = asked, partners[asked]
        order = self._frames.row_order(pairs[1])
        return None, (pairs[1][order], pairs[0][order])

    def of_matches(self, met: tuple[Any, Any]) -> tuple[Any, Any]:
        """Return the matches of an inner or left merge, with their stored rows.

        Where rows have been inserted and few match, these are read alone, in the order of the
        matches.
        """
        partners, pairs = met
        if pairs is None:
            asked = self._xp.flatnonzero(partners >= 0)
            pairs = asked, partners[asked]
        asked, rows = pairs
        if len(rows) and self.store.in_pages(len(rows)):
            return (None, (asked, self._xp.arange(len(rows)))), self.store.take(rows)
        return met, self.store.whole()

    def without_erased(self, met: tuple[Any, Any], stored: Any) -> tuple[Any, Any]:
        """Return the matches `met` and the stored rows, renumbered without erased ones."""
        rows, (partners, pairs) = self.table.rows(), met
        if partners is None:
            met = None, (pairs[0], self._xp.searchsorted(rows, pairs[1]))
        else:
            met = self._xp.where(partners < 0, -1, self._xp.searchsorted(rows, partners)), None
        return met, frames_of(stored).take(stored, rows)

    def verified_pairs(self, encoded: EncodedKeys, query_rows: Any, rows: Any) -> tuple[Any, Any]:
        """Return those pairs of equal codes that also have equal keys.

        `query_rows` may be None for the positions of all keys, in order.
        """
        unequal = self._unequal(encoded, query_rows, rows)
        return (query_rows, rows) if unequal is None else drop_matches(query_rows, rows, unequal)

    def partners(self, encoded: EncodedKeys) -> Any | None:
        """Return the stored row of each key, -1 for none.

        None where a key may have several rows.
        """
        rows: Any = self.table.partners(encoded.codes, encoded.valid)
        unequal = None if rows is None else self._unequal(encoded, None, rows)
        if unequal is not None:
            rows[unequal] = -1
        return rows

    def _unequal(self, encoded: EncodedKeys, query_rows: Any, rows: Any) -> Any | None:
        """Return the positions of matches with equal codes and different keys."""
        none = encoded.ambiguous is False or len(rows) == 0 or len(self) == 0
        if none or self._proved(encoded):
            return None
        return unequal_matches(encoded, query_rows, rows, self._stored_keys)

    def _stored_keys(self, rows: Any) -> tuple[Any, None]:
        return self._encoder.normalise(self.store.take(rows, self._encoder.names)), None

    def _proved(self, encoded: EncodedKeys) -> bool:
        """Return whether equal codes imply equal keys, without nulls on either side."""
        store = self.store
        return (
            self._encoder.packing == "reserved"
            and encoded.columns[0].nulls is None
            and not store.paged
            and store.arrays(self._encoder.names) is not None
        )

    def found(self, encoded: EncodedKeys) -> Any:
        """Return a mask of the query rows with a stored match."""
        if encoded.ambiguous is False or (len(encoded) and len(self) and self._proved(encoded)):
            found = self.table.contains(encoded.codes)
            return found if encoded.valid is None else found & encoded.valid
        found = self._xp.zeros(len(encoded), dtype=bool)
        found[self.pairs(encoded)[0]] = True
        return found

    def erase(self, encoded: EncodedKeys) -> int:
        """Erase the rows with matching keys; return their number.

        Frees their memory when erased rows outnumber the others.
        """
        self._told = {}
        if encoded.ambiguous is False:
            valid = encoded.valid
            gone = self.table.erase(encoded.codes if valid is None else encoded.codes[valid])
        else:
            query_rows, rows = self.pairs(encoded)
            gone = self.table.erase_pairs(encoded.codes[query_rows], rows)
        if self.erased > len(self):
            self._compact()
        return gone

    def refuse_doubles(self, rows: Any, encoded: EncodedKeys) -> None:
        """Raise ColumnError if a key of `rows` is repeated or already stored."""
        double = encoded.first_repeat()
        if double < 0 and len(self):
            known = self.pairs(encoded)[0]
            double = int(known[0]) if len(known) else -1
        if double >= 0:
            names = list(self._encoder.names)
            key = frames_of(rows).keep(rows[names], self._xp.asarray([double]))
            raise ColumnError(
                f"the index on {names!r} is unique, and {key.to_dict('records')[0]!r} is a key "
                f"of more than one row; drop the duplicates (drop_duplicates), or build with "
                f"unique=False"
            )

    def refuse_repeats(self, keys: Any, encoded: EncodedKeys | None = None) -> None:
        """Raise ColumnError if a key of an upsert is repeated.

        `keys` is a frame with the key columns; others are ignored. `encoded` are its codes.
        """
        encoded = self._encoder.encode_rows(keys) if encoded is None else encoded
        double = encoded.first_repeat()
        if double >= 0:
            names = list(self._encoder.names)
            key = frames_of(keys).keep(keys[names], self._xp.asarray([double]))
            raise ColumnError(
                f"{key.to_dict('records')[0]!r} is a key of more than one row of the upsert, "
                "which stores one row per key; drop the duplicates (drop_duplicates), or erase "
                "the keys and insert all rows"
            )

    def _compact(self) -> None:
        """Free the memory of erased rows, if the other rows can be copied."""
        try:
            codes, rows = self.table.items()
            table = self._new_table()
            table.insert(codes, self._xp.arange(len(rows)))
            store = self.store.kept(rows)
        except Exception as error:
            # Out of memory for the copy: the next erase tries again.
            if not isinstance(error, OutOfMemoryError) and not is_out_of_memory(error):
                raise
            return
        assigner(self, table=table, store=store)()


class BrokenTable:
    """Stand-in for a key table while pairs are missing from it."""

    def __getattr__(self, name: str) -> NoReturn:
        raise TableBroken(
            "an upsert failed halfway, and the rows that it had removed could not be put back; "
            "build the index anew, or load a save"
        )

    def __len__(self) -> int:
        return int(self.__getattr__("pairs"))
