"""KeyTable: map key codes to row numbers; a multimap once a code repeats."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.backend import is_out_of_memory
from dgpuhash.backend.launches import Step
from dgpuhash.errors import FormatError, SpecError, UnsupportedError
from dgpuhash.tables import HashMap, MultiMap
from dgpuhash.tables.columns.direct import DirectTable
from dgpuhash.tables.commit import assigner
from dgpuhash.tables.select import spread
from dgpuhash.tables.stores.method import methods, table_spec
from dgpuhash.typing import Device


@dataclass(frozen=True, slots=True)
class KeyTableMethod:
    """Method of an index's key tables, with all settings.

    Examples
    --------
    >>> KeyTableMethod.of("auto", {})
    KeyTableMethod(name='auto', settings=())
    """

    name: str = "auto"
    settings: tuple[tuple[str, int | float | str], ...] = ()

    @classmethod
    def of(cls, name: str, settings: Mapping[str, Any]) -> KeyTableMethod:
        """Return the method of this name, with defaults where settings are missing.

        Raises
        ------
        SpecError
            When there is no such method, or a setting is not its own or impossible.
        """
        row = methods().get(name)
        kind = "map" if row is None or "map" in row.nouns else "multimap"
        spec = table_spec(
            kind, np.uint64, np.uint64, max_load=None, seed=None, method=name, settings=settings
        )
        sorted_pairs: Any = spec.settings
        return cls(name, sorted_pairs)

    def to_json(self) -> dict[str, Any]:
        """Return the method for a save; nothing for ``"auto"``."""
        if self == AUTO:
            return {}
        return {"method": self.name, "settings": dict(self.settings)}

    @classmethod
    def from_json(cls, header: Mapping[str, Any], where: str) -> KeyTableMethod:
        """Return the method of a save.

        Raises
        ------
        FormatError
            When there is no such method.
        """
        try:
            return cls.of(header.get("method", "auto"), header.get("settings", {}))
        except SpecError as error:
            raise FormatError(f"{where}: {error}") from error

    @property
    def maps(self) -> bool:
        """Whether the method has maps."""
        return "map" in methods()[self.name].nouns

    @property
    def lists(self) -> bool:
        """Whether the method has multimaps."""
        return "multimap" in methods()[self.name].nouns

    @property
    def ordered(self) -> bool:
        """Whether its multimaps keep the order of a key's values."""
        return methods()[self.name].ordered

    @property
    def options(self) -> dict[str, Any]:
        """The method as arguments of a table."""
        return {"method": self.name, **dict(self.settings)}

    def multimap(self) -> type[MultiMap]:
        """Return the class of multimaps.

        Raises
        ------
        UnsupportedError
            When the method has none.
        """
        if not self.lists:
            able = [each.name for each in methods().values() if "multimap" in each.nouns]
            raise UnsupportedError(
                f"several rows have one key, and method {self.name!r} has no multimaps; drop the "
                f"duplicates, or use one of the methods that have: {', '.join(able)}"
            )
        return MultiMap

    def require(self, verb: str, table: HashMap | MultiMap) -> None:
        """Raise UnsupportedError if tables of the method lack a verb."""
        methods()[self.name].require(verb, table.kind)


AUTO = KeyTableMethod()
ALL = slice(None)
_no_op: Step = functools.partial(bool)


def _are_sparse(rows: Any) -> bool:
    """Return whether row numbers are few beside the largest one."""
    return len(rows) == 0 or int(rows.max()) >= 8 * len(rows)


class KeyTable:
    """Hash table of pairs (code, row number) on one device.

    Parameters
    ----------
    code_dtype : dtype
        uint32 or uint64.
    device : {"cpu", "cuda"}
        Where the table lives. Arguments and results are arrays on `home`.
    home : {"cpu", "cuda"}
        Where the frames' columns live: on the host for pandas.
    method : KeyTableMethod
    hashed : bool
        Whether codes are hashes, which never lie close together.
    """

    def __init__(
        self, code_dtype: np.dtype[Any], device: Device, home: str, method: KeyTableMethod = AUTO,
        *, hashed: bool = True,
    ) -> None:  # fmt: skip
        self._code_dtype, self._method = code_dtype, method
        self._backend = backends.get(device)
        self._moves = device != home
        # Row numbers as wide as codes, so that a slot is one packed pair.
        self._held: HashMap | MultiMap = self._empty(code_dtype, maps=method.maps)
        # Last batch, if it may repeat codes: codes, rows and the mask of those that the map took.
        self._unsettled: tuple[Any, Any, Any] | None = None
        # None: unknown, as an erase was interrupted.
        self._known_pairs: int | None = 0
        # Rows by code, once as many were asked for as there are; False where codes lie far apart.
        self._hashed = hashed
        self._direct: DirectTable | bool | None = None
        self._asked = 0

    def __len__(self) -> int:
        return self._pairs

    @property
    def one_row_per_code(self) -> bool:
        """Whether no code has had two rows since the table was last empty."""
        return isinstance(self._table, HashMap)

    @property
    def rows_per_code(self) -> float:
        """Average number of rows per code."""
        if isinstance(self._table, HashMap):
            return 1.0
        return self._pairs / max(1, self._table.n_keys)

    @property
    def method(self) -> KeyTableMethod:
        """Method of the table."""
        return self._method

    @property
    def table(self) -> HashMap | MultiMap:
        """Underlying map or multimap, for its statistics."""
        return self._table

    @property
    def _table(self) -> HashMap | MultiMap:
        if self._unsettled is not None:
            self._settle()
        return self._held

    @property
    def _pairs(self) -> int:
        if self._known_pairs is None:
            self._known_pairs = len(self._table)
        return self._known_pairs

    def insert(self, codes: Any, rows: Any, then: Step = _no_op, undone: Step = _no_op) -> None:
        """Add one row number for each code, all of them or none.

        `rows` ascend, and so do the rows of one code. The step `then` runs together with the
        change, and `undone` if the change is undone.
        """
        if len(codes) == 0:
            then()
            return
        self._changes()
        codes, rows = self._in(codes), self._in(rows)
        table = self._wide_enough(int(rows[-1]))
        assert table.value_dtype is not None
        rows = _as_unsigned(rows, table.value_dtype)
        pairs = self._pairs + len(codes)
        if pairs == len(codes):
            made = self._filled(codes, rows)
            self._backend.in_one_call([assigner(self, _held=made, _known_pairs=pairs), then])
        elif isinstance(table, MultiMap):
            table._insert_then(codes, rows, assigner(self, _known_pairs=pairs), then)
        else:
            self._insert_in_map(table, codes, rows, then, undone)

    def overwrite(self, codes: Any, rows: Any, stored: int) -> None:
        """Set the only row of each of these distinct codes.

        The table is a map, `rows` ascend, and `stored` of the codes have a row.
        """
        self._changes()
        codes, rows = self._in(codes), self._in(rows)
        table = self._wide_enough(int(rows[-1]))
        assert isinstance(table, HashMap) and table.value_dtype is not None
        pairs = self._pairs + len(codes) - stored
        self._known_pairs = None
        table.upsert(codes, _as_unsigned(rows, table.value_dtype))
        self._known_pairs = pairs

    def count(self, codes: Any, valid: Any = None) -> Any:
        """Return the number of rows that `find` returns for each code, as int64."""
        if isinstance(self._table, HashMap):
            counts = self._table.contains(self._in(codes)).astype(np.int64)
        else:
            counts = self._table.count(self._in(codes))
        return self._out(counts if valid is None else counts * self._in(valid))

    def find(
        self, codes: Any, valid: Any = None, window: slice = ALL, *, named: bool = True
    ) -> tuple[Any, Any]:
        """Return the matches as positions in `codes` and row numbers, both int64.

        Positions ascend. `valid` masks the codes to find, and `window` selects a slice of all these
        pairs. Unless `named`, positions are None where each code has exactly one row.
        """
        codes = self._in(codes)
        xp = self._backend.xp
        if isinstance(self._table, HashMap):
            named = named or valid is not None or window != ALL
            query_rows, rows = self._matches(self._table, codes, named=named)
            if query_rows is None:
                return None, self._out(rows)
            if valid is not None:
                kept = self._in(valid)[query_rows]
                query_rows, rows = query_rows[kept], rows[kept]
            return self._out(query_rows[window]), self._out(rows[window])
        asked = None if valid is None else xp.flatnonzero(self._in(valid))
        rows, offsets = self._lists(codes if asked is None else codes[asked])
        if window != ALL:
            first, last, _ = window.indices(len(rows))
            rows, offsets = rows[first:last], offsets.clip(first, last) - first
        asked = xp.arange(len(codes)) if asked is None else asked
        query_rows = spread(self._backend, asked, offsets, len(rows))
        return self._out(query_rows), self._out(_as_signed(rows))

    def partners(self, codes: Any, valid: Any = None) -> Any | None:
        """Return the row of each code as int64, -1 for none.

        None where a code may have several rows. `valid` masks the codes to find.
        """
        table = self._table
        if not isinstance(table, HashMap):
            return None
        direct = self._direct_for(table, len(codes))
        if direct is not None:
            found = direct.find(codes)
        else:
            rows, there = table.find(self._in(codes))
            found = self._out(_as_signed(rows))
            found[~self._out(there)] = -1
        if valid is not None:
            found[~valid] = -1
        return found

    def _matches(self, table: HashMap, codes: Any, *, named: bool) -> tuple[Any, Any]:
        """Return positions of codes with a row (None for all, unless `named`), and the rows."""
        direct = self._direct_for(table, len(codes))
        if direct is None:
            query_rows, rows = table._match(codes, named=named)
            return query_rows, _as_signed(rows)
        found = direct.find(codes)
        query_rows = np.flatnonzero(found >= 0)
        if len(query_rows) == len(found):
            return query_rows if named else None, found
        return query_rows, found[query_rows]

    def _direct_for(self, table: HashMap, asked: int) -> DirectTable | None:
        """Return a direct-address array of rows by code if this lookup makes it pay, or None."""
        direct = self._direct
        if direct is None and not self._hashed and self._backend.name == "cpu":
            self._asked += asked
            if self._asked >= len(table):
                codes, rows = table.items()
                self._direct = direct = DirectTable.rows_of(codes, self._asked, rows) or False
        return direct if isinstance(direct, DirectTable) else None

    def _changes(self) -> None:
        """Drop caches of the stored codes before a change."""
        self._direct, self._asked = None, 0

    def _lists(self, codes: Any) -> tuple[Any, Any]:
        """Return the rows of each code, ascending, and their offsets."""
        assert isinstance(self._table, MultiMap)
        if self._method.ordered:
            return self._table.find(codes, stable=True)
        rows, offsets = self._table.find(codes)
        xp, order = self._backend.xp, self._backend.stable_order(rows)
        owners = spread(self._backend, xp.arange(len(codes)), offsets, len(rows))[order]
        return rows[order[self._backend.stable_order(owners)]], offsets

    def contains(self, codes: Any) -> Any:
        """Return a mask of the codes with a row."""
        table = self._table
        direct = self._direct_for(table, len(codes)) if isinstance(table, HashMap) else None
        if direct is not None:
            return direct.find(codes) >= 0
        return self._out(self._table.contains(self._in(codes)))

    def erase(self, codes: Any) -> int:
        """Erase all rows of these codes; return their number."""
        self._changes()
        codes, pairs = self._in(codes), self._pairs
        counts = None if self.one_row_per_code else self._table.count(codes)
        self._known_pairs = None
        erased = self._table.erase(codes)
        gone = int((erased if counts is None else counts[erased]).sum())
        self._known_pairs = pairs - gone
        return gone

    def erase_pairs(self, codes: Any, rows: Any) -> int:
        """Erase only these pairs of code and row; return their number.

        Other rows of the same codes stay.
        """
        self._changes()
        xp = self._backend.xp
        distinct = xp.unique(self._in(codes))
        positions, stored = self.find(self._out(distinct))
        positions, stored = self._in(positions), self._in(stored)
        going = xp.isin(stored, self._in(rows))
        touched = xp.unique(positions[going])
        left = ~going & xp.isin(positions, touched)
        if not bool(left.any()):
            return self.erase(self._out(distinct[touched]))
        # Different keys with the same code are rare, so copy the table.
        made, pairs = self._table.copy(), self._pairs
        made.erase(distinct[touched])
        order, dtype = self._backend.stable_order(stored[left]), made.value_dtype
        assert dtype is not None
        made.insert(distinct[positions[left]][order], _as_unsigned(stored[left][order], dtype))
        gone = int(going.sum())
        assigner(self, _held=made, _known_pairs=pairs - gone)()
        return gone

    def items(self) -> tuple[Any, Any]:
        """Return all codes and their rows, in the order of the rows."""
        codes, rows = self._table.items()
        order = self._row_order(rows)
        return self._out(codes[order]), self._out(rows[order].astype(self._backend.xp.int64))

    def rows(self) -> Any:
        """Return the rows of all codes, ascending."""
        rows, xp = self._table.items()[1], self._backend.xp
        if _are_sparse(rows):
            return self._out(xp.sort(rows).astype(xp.int64))
        there = xp.zeros(int(rows.max()) + 1, dtype=bool)
        there[rows] = True
        return self._out(xp.flatnonzero(there))

    def codes(self) -> Any:
        """Return each code once per row, in no particular order."""
        return self._out(self._table.items()[0])

    @property
    def nbytes(self) -> int:
        """Bytes of memory of the table."""
        direct = self._direct
        return self._table.nbytes + (direct.nbytes if isinstance(direct, DirectTable) else 0)

    def _filled(self, codes: Any, rows: Any) -> HashMap | MultiMap:
        """Return a table of the first rows: a map, or a multimap if codes repeat.

        Builds in bulk, and does not ask which codes repeat.
        """
        options = {"device": self._backend.name, **self._method.options}
        if self._method.maps:
            made = HashMap.from_arrays(codes, rows, **options)
            if len(made) == len(codes):
                return made
            del made
        return self._method.multimap().from_arrays(codes, rows, **options)

    def _insert_in_map(
        self, table: HashMap, codes: Any, rows: Any, then: Step, undone: Step
    ) -> None:
        """Insert into a map, and replace it by a multimap if a code repeats.

        The arguments are those of `insert`.
        """
        pairs = self._pairs

        def after(fresh: Any) -> list[Step]:
            late = codes, rows, fresh
            return [assigner(self, _unsettled=late, _known_pairs=pairs + len(codes)), then]

        fresh = table._insert_then(codes, rows, after)
        try:
            self._settle()
        except Exception as error:
            if isinstance(error, UnsupportedError) or is_out_of_memory(error):
                before = assigner(self, _unsettled=None, _known_pairs=pairs)
                table._erase_then(codes[fresh], before, undone)
            raise

    def _settle(self) -> None:
        """Replace the map by a multimap if the last batch repeated a code.

        Several threads may do this at the same time.
        """
        late, table = self._unsettled, self._held
        if late is None:
            return
        codes, rows, fresh = late
        refused = ~fresh
        if bool(refused.any()):
            assert isinstance(table, HashMap)
            made = self._as_multimap(table, codes[refused], rows[refused])
            assigner(self, _held=made, _unsettled=None)()
        else:
            self._unsettled = None

    def _empty(self, row_dtype: np.dtype[Any], *, maps: bool) -> HashMap | MultiMap:
        """Return a table without pairs."""
        kind = HashMap if maps else self._method.multimap()
        device = self._backend.name
        return kind(self._code_dtype, row_dtype, device=device, **self._method.options)

    def _as_multimap(self, table: HashMap, codes: Any, rows: Any) -> MultiMap:
        """Return a multimap of the pairs of a map and the given pairs."""
        xp = self._backend.xp
        stored_codes, stored_rows = table.items()
        codes = xp.concatenate([stored_codes, codes])
        rows = xp.concatenate([stored_rows, rows])
        order = self._row_order(rows)
        made = self._empty(rows.dtype, maps=False)
        assert isinstance(made, MultiMap)
        made.insert(codes[order], rows[order])
        return made

    def _row_order(self, rows: Any) -> Any:
        """Return the sort order of distinct row numbers, without a sort if they are dense."""
        if _are_sparse(rows):
            return self._backend.stable_order(rows)
        xp, most = self._backend.xp, int(rows.max()) + 1
        places, there = xp.empty(most, dtype=xp.int64), xp.zeros(most, dtype=bool)
        places[rows], there[rows] = xp.arange(len(rows)), True
        return places[there]

    def _wide_enough(self, last_row: int) -> HashMap | MultiMap:
        """Return the table, with row numbers widened to 64 bits if necessary."""
        table = self._table
        assert table.value_dtype is not None
        if last_row > np.iinfo(table.value_dtype).max:
            codes, rows = table.items()
            order = self._row_order(rows)
            wide = np.dtype(np.uint64)
            table = self._empty(wide, maps=isinstance(table, HashMap))
            table.insert(codes[order], rows[order].astype(wide))
            self._held = table
        return table

    def _in(self, array: Any) -> Any:
        return self._backend.from_host(array) if self._moves else array

    def _out(self, array: Any) -> Any:
        return self._backend.to_host(array) if self._moves else array


def _as_signed(rows: Any) -> Any:
    return rows.view(np.int64) if rows.dtype.itemsize == 8 else rows.astype(np.int64)


def _as_unsigned(rows: Any, dtype: np.dtype[Any]) -> Any:
    return rows.view(dtype) if rows.dtype.itemsize == dtype.itemsize else rows.astype(dtype)
