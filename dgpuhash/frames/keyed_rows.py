"""Stored rows together with the table that finds them by key; every hit is a true match."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

from dgpuhash.backend import ran_out
from dgpuhash.errors import ColumnError, OutOfMemoryError
from dgpuhash.frames.dataframes import frames_of
from dgpuhash.frames.keys.encoding import EncodedKeys, KeyEncoder, same_keys
from dgpuhash.frames.keys.table import KeyTable
from dgpuhash.frames.row_store import RowStore
from dgpuhash.tables.commit import assigning

__all__ = ["KeyedRows", "first_double"]


class KeyedRows:
    """Rows and a table of their key codes; hits that codes do not prove are verified here.

    Parameters
    ----------
    meta : DataFrame
        An empty frame like the rows.
    encoder : KeyEncoder
    device : {"cpu", "cuda"}
        Where the key table lives.
    """

    def __init__(self, meta: Any, encoder: KeyEncoder, device: str) -> None:
        frames = frames_of(meta)
        self._xp = frames.xp
        self._encoder = encoder
        self.store = RowStore(meta)
        self._new_table = partial(KeyTable, encoder.code_dtype, device, frames.device)
        self.table = self._new_table()
        self._told: dict[Hashable, bool] = {}

    def __len__(self) -> int:
        return len(self.table)

    def asked_by(self, keys: Any) -> KeyEncoder:
        """How questions are encoded, of which `keys` is a frame.

        As for pandas, columns that would never be equal compare where one of them has rows alone.
        """
        if bool(len(self)) != bool(len(keys)):
            return self._encoder.untyped()
        return self._encoder if len(self) else self._encoder.without_rows(self.store.meta)

    @property
    def key_names(self) -> tuple[Hashable, ...]:
        """The key columns."""
        return self._encoder.names

    def told(self, label: Hashable, kind: Any, ask: Callable[[Any, Any], bool]) -> bool:
        """What `ask` says of a column and `kind`, which is found out once, until rows change."""
        asked = label, kind
        if asked not in self._told:
            rows = self.store.frame()
            if self.erased:
                rows = self.store.take(self.table.items()[1], [label])
            self._told[asked] = ask(rows[label], kind)
        return self._told[asked]

    @property
    def erased(self) -> int:
        """Rows that cannot be found any more, but still take memory."""
        return len(self.store) - len(self.table)

    def fitting(self, frame: Any, unique: bool | None) -> tuple[Any, EncodedKeys]:
        """The rows of `frame` as they are stored, and their codes, for `insert`.

        Raises
        ------
        ColumnError
            When they are of other types, integers would be rounded, or `unique` keys are not.
        KeyTypeError
            When a key value does not fit.
        """
        rows = self.store.conform(frame)
        encoded = self._encoder.encode_rows(rows)
        self.store.refuse_rounding(rows)
        if unique:
            self.refuse_doubles(rows, encoded)
        return rows, encoded

    def insert(self, rows: Any, encoded: EncodedKeys, arrays: Sequence[Any] | None = None) -> None:
        """Add rows that have the stored columns, perhaps made of `arrays`, with their codes."""
        first, store = len(self.store), self.store.appended(rows, arrays)
        self.table.insert(
            encoded.codes,
            self._xp.arange(first, first + len(rows)),
            then=assigning(self, store=store, _told={}),
            undone=assigning(self, store=self.store, _told={}),
        )

    def insert_arrays(self, arrays: Sequence[Any], unique: bool | None) -> None:
        """Add rows whose stored columns these are, as `Frames.arrays` gives them."""
        meta = self.store.meta
        frames, columns = frames_of(meta), dict(zip(meta, arrays, strict=True))
        encoded = self._encoder.encode_arrays(
            [columns[name] for name in self._encoder.names], frames
        )
        rows = frames.from_arrays(arrays, meta)
        self.store.refuse_rounding(rows)
        if unique:
            self.refuse_doubles(rows, encoded)
        self.insert(rows, encoded, arrays)

    def pairs(self, encoded: EncodedKeys) -> tuple[Any, Any]:
        """Who matches what: positions in the query, ascending, and stored row numbers."""
        return self.proven(encoded, *self.table.find(encoded.codes, encoded.valid))

    def proven(self, encoded: EncodedKeys, query_rows: Any, rows: Any) -> tuple[Any, Any]:
        """Those of the pairs, found by code, that have equal keys.

        `query_rows` may be None for those of all keys, in order.
        """
        if encoded.doubts is False or len(rows) == 0 or self._proved(encoded):
            return query_rows, rows
        xp = self._xp
        if query_rows is None:
            query_rows = xp.arange(len(rows))
        if encoded.doubts is True:
            asked = xp.arange(len(rows))
        else:
            asked = xp.flatnonzero(encoded.codes[query_rows] == encoded.doubts)
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
        """Whether codes are equal for equal keys only, since there are no nulls on either side."""
        return (
            self._encoder.packing == "reserved"
            and encoded.columns[0].nulls is None
            and self.store.arrays(self._encoder.names) is not None
        )

    def found(self, encoded: EncodedKeys) -> Any:
        """Mask of the queries that match a row."""
        if encoded.doubts is False:
            found = self.table.contains(encoded.codes)
            return found if encoded.valid is None else found & encoded.valid
        found = self._xp.zeros(len(encoded), dtype=bool)
        found[self.pairs(encoded)[0]] = True
        return found

    def erase(self, encoded: EncodedKeys) -> int:
        """Forget the rows that match; their memory is freed when they outnumber the others."""
        self._told = {}
        if encoded.doubts is False:
            valid = encoded.valid
            gone = self.table.erase(encoded.codes if valid is None else encoded.codes[valid])
        else:
            query_rows, rows = self.pairs(encoded)
            gone = self.table.erase_pairs(encoded.codes[query_rows], rows)
        if self.erased > len(self):
            self._compact()
        return gone

    def refuse_doubles(self, rows: Any, encoded: EncodedKeys) -> None:
        """Raise ColumnError when one of `rows` has the key of another one, or of a stored one."""
        double = first_double(encoded, self._xp)
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
        """Free the memory of erased rows, where there is enough for a copy of the others."""
        try:
            codes, rows = self.table.items()
            table = self._new_table()
            table.insert(codes, self._xp.arange(len(rows)))
            store = self.store.kept(rows)
        except Exception as error:
            # When rows are erased again there may be.
            if not isinstance(error, OutOfMemoryError) and not ran_out(error):
                raise
            return
        assigning(self, table=table, store=store)()


def first_double(encoded: EncodedKeys, xp: Any) -> int:
    """A row whose key another row of the batch has too; -1 when all are distinct."""
    rows = xp.arange(len(encoded))
    while len(rows):
        order = rows[xp.argsort(encoded.codes[rows], kind="stable")]
        codes = encoded.codes[order]
        starts = xp.concatenate([xp.ones(1, dtype=bool), codes[1:] != codes[:-1]])
        if bool(starts.all()):
            return -1
        # The first row of each code stands for it; rows that differ from it are tried again.
        heads = order[starts][xp.cumsum(starts) - 1]
        later, heads = order[~starts], heads[~starts]
        same = same_keys(encoded.columns, later, encoded.columns, heads)
        if bool(same.any()):
            return int(later[same].min())
        rows = xp.sort(later)
    return -1
