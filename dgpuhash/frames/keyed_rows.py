"""Stored rows with the table that finds them by key; hits are verified."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

from dgpuhash.backend import is_out_of_memory
from dgpuhash.errors import ColumnError, OutOfMemoryError
from dgpuhash.frames.dataframes import frames_of
from dgpuhash.frames.keys.encoding import EncodedKeys, KeyEncoder, same_keys
from dgpuhash.frames.keys.table import AUTO, KeyTable, KeyTableMethod
from dgpuhash.frames.row_store import RowStore
from dgpuhash.tables.commit import assigner

__all__ = ["KeyedRows", "first_duplicate"]


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
        self, meta: Any, encoder: KeyEncoder, device: str, method: KeyTableMethod = AUTO
    ) -> None:
        frames = frames_of(meta)
        self._xp = frames.xp
        self._encoder = encoder
        self.store = RowStore(meta)
        self._new_table = partial(KeyTable, encoder.code_dtype, device, frames.device, method)
        self.table = self._new_table()
        self._told: dict[Hashable, bool] = {}

    def __len__(self) -> int:
        return len(self.table)

    def encoder_for(self, keys: Any) -> KeyEncoder:
        """Return the encoder for a query with these keys, a frame.

        As in pandas, key columns of incomparable types are accepted where only one side has rows.
        """
        if bool(len(self)) != bool(len(keys)):
            return self._encoder.untyped()
        return self._encoder if len(self) else self._encoder.without_rows(self.store.meta)

    @property
    def key_names(self) -> tuple[Hashable, ...]:
        """Labels of the key columns."""
        return self._encoder.names

    def told(self, label: Hashable, kind: Any, ask: Callable[[Any, Any], bool]) -> bool:
        """Return ``ask(column, kind)`` for a stored column, cached until a change.

        `label` names the column; erased rows are left out.
        """
        asked = label, kind
        if asked not in self._told:
            rows = self.store.frame()
            if self.erased:
                rows = self.store.take(self.table.items()[1], [label])
            self._told[asked] = ask(rows[label], kind)
        return self._told[asked]

    @property
    def erased(self) -> int:
        """Number of erased rows, which cannot be found but still take memory."""
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
        """Raise UnsupportedError if the table's method cannot insert, or erase, these rows."""
        method = self.table.method
        method.require(verb, self.table.table)
        if verb == "insert" and not method.lists:
            codes = self._encoder.encode_rows(rows).codes
            stored = bool(self.table.contains(codes).any())
            if stored or len(self._xp.unique(codes)) < len(codes):
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

    def pairs(self, encoded: EncodedKeys) -> tuple[Any, Any]:
        """Return the matches as pairs of query position and stored row number.

        The positions ascend.
        """
        return self.verified_pairs(encoded, *self.table.find(encoded.codes, encoded.valid))

    def verified_pairs(self, encoded: EncodedKeys, query_rows: Any, rows: Any) -> tuple[Any, Any]:
        """Return the pairs that have equal keys, out of pairs found by code.

        `query_rows` may be None for the positions of all keys, in order.
        """
        if encoded.ambiguous is False or len(rows) == 0 or self._proved(encoded):
            return query_rows, rows
        xp = self._xp
        if query_rows is None:
            query_rows = xp.arange(len(rows))
        if encoded.ambiguous is True:
            asked = xp.arange(len(rows))
        else:
            asked = xp.flatnonzero(encoded.codes[query_rows] == encoded.ambiguous)
            if len(asked) == 0:
                return query_rows, rows
        keys = self.store.take(rows[asked], self._encoder.names)
        matches = xp.ones(len(rows), dtype=bool)
        matches[asked] = same_keys(
            encoded.columns, query_rows[asked], self._encoder.normalise(keys), None
        )
        if bool(matches.all()):
            return query_rows, rows
        return query_rows[matches], rows[matches]

    def _proved(self, encoded: EncodedKeys) -> bool:
        """Return whether equal codes prove equal keys as no side has a null."""
        return (
            self._encoder.packing == "reserved"
            and encoded.columns[0].nulls is None
            and self.store.arrays(self._encoder.names) is not None
        )

    def found(self, encoded: EncodedKeys) -> Any:
        """Return a mask of the query rows that match a stored row."""
        if encoded.ambiguous is False:
            found = self.table.contains(encoded.codes)
            return found if encoded.valid is None else found & encoded.valid
        found = self._xp.zeros(len(encoded), dtype=bool)
        found[self.pairs(encoded)[0]] = True
        return found

    def erase(self, encoded: EncodedKeys) -> int:
        """Erase the rows whose keys match; return how many were erased.

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
        """Raise ColumnError when a key of `rows` is repeated or already stored."""
        double = first_duplicate(encoded, self._xp)
        if double < 0 and len(self):
            known = self.pairs(encoded)[0]
            double = int(known[0]) if len(known) else -1
        if double >= 0:
            names = list(self._encoder.names)
            key = frames_of(rows).keep(rows[names], self._xp.asarray([double]))
            raise ColumnError(
                f"the index on {names!r} is unique, and {key.to_dict('records')[0]!r} is a key of "
                "more than one row; drop the doubles (drop_duplicates), or build with unique=False"
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


def first_duplicate(encoded: EncodedKeys, xp: Any) -> int:
    """Return a row whose key repeats an earlier row's key, or -1 if none does."""
    rows = xp.arange(len(encoded))
    while len(rows):
        order = rows[xp.argsort(encoded.codes[rows], kind="stable")]
        codes = encoded.codes[order]
        starts = xp.concatenate([xp.ones(1, dtype=bool), codes[1:] != codes[:-1]])
        if bool(starts.all()):
            return -1
        # Compare each row with the first row of its code; rows that differ go to the next round.
        heads = order[starts][xp.cumsum(starts) - 1]
        later, heads = order[~starts], heads[~starts]
        same = same_keys(encoded.columns, later, encoded.columns, heads)
        if bool(same.any()):
            return int(later[same].min())
        rows = xp.sort(later)
    return -1
