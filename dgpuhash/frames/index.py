"""FrameIndex: rows of one device, indexed by key columns."""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any, Unpack

from dgpuhash.errors import ColumnError, DeviceError, KeyTypeError
from dgpuhash.frames.dataframes import check_same_library, frames_of
from dgpuhash.frames.int_float_warning import warn_int_float_merge
from dgpuhash.frames.key_input import Query
from dgpuhash.frames.keyed_rows import KeyedRows
from dgpuhash.frames.keys.encoding import EncodedKeys, KeyColumns, KeyEncoder
from dgpuhash.frames.keys.table import AUTO, KeyTableMethod
from dgpuhash.frames.labels import key_names, stored_columns
from dgpuhash.frames.lookup import Lookup, lookup_rows
from dgpuhash.frames.lookup_mixin import LookupMixin
from dgpuhash.frames.matches import Matches
from dgpuhash.frames.merge.arguments import (
    ALL_ROWS,
    DEFAULT_SUFFIXES,
    FILTERS,
    Suffixes,
    check_how,
    check_promote,
    check_suffixes,
    join_columns,
    needed_columns,
)
from dgpuhash.frames.merge.keys import index_keys, key_values, reconcile_keys
from dgpuhash.frames.merge.result import MergePlan
from dgpuhash.frames.merge.rows import RowPairs, row_pairs, sorted_by_key
from dgpuhash.frames.pages import Page, RowLimit, first_page
from dgpuhash.frames.row_store import RowStore
from dgpuhash.frames.serialization import read_index, write_index
from dgpuhash.frames.spill.file import SpillFile
from dgpuhash.frames.stats import FrameStats
from dgpuhash.tables import HashMap, MultiMap
from dgpuhash.tables.arguments.file_layout import interpreting
from dgpuhash.tables.memory_errors import function_translates_memory_errors
from dgpuhash.tables.rwlock import ReadWriteLock, read_locked, write_locked
from dgpuhash.typing import AnyFrame, Array, Device, Frame, IndexHow, KeyTableSettings, Promote


class FrameIndex(LookupMixin):
    """Index of the rows of a pandas or cuDF frame by their key columns.

    Build one with `build`. A distributed index has one `FrameIndex` per shard; alone it serves one
    process. cuDF works on CUDA's default stream: synchronize another current one before and after.

    Examples
    --------
    >>> import pandas as pd
    >>> planes = pd.DataFrame({"tailnum": ["N1", "N2"], "seats": [55, 182]})
    >>> index = FrameIndex.build(planes, on="tailnum")
    >>> flights = pd.DataFrame({"flight": [7, 8, 9], "tailnum": ["N2", None, "N1"]})
    >>> index.merge(flights, how="left")
       flight tailnum  seats
    0       7      N2  182.0
    1       8     NaN    NaN
    2       9      N1   55.0
    """

    def __init__(
        self, meta: Frame, encoder: KeyEncoder, *, unique: bool | None, device: Device | None,
        method: KeyTableMethod = AUTO,
    ) -> None:  # fmt: skip
        self._frames = frames_of(meta)
        if self._frames.device == "cuda" and device == "cpu":
            raise DeviceError(
                "a cuDF frame was given with device='cpu'; pass frame.to_pandas(), or device=None"
            )
        self._device = device or self._frames.device
        self._encoder = encoder
        self._unique = unique
        self._method, self._rows = method, KeyedRows(meta, encoder, self._device, method)
        self._turns = ReadWriteLock()

    @classmethod
    @function_translates_memory_errors
    def build(
        cls, frame: Frame, on: Hashable | Sequence[Hashable],
        columns: Sequence[Hashable] | None = None, unique: bool | None = None, *,
        encoder: KeyEncoder | None = None, device: Device | None = None, method: str = "auto",
        **settings: Unpack[KeyTableSettings],
    ) -> FrameIndex:  # fmt: skip
        """Return an index of the rows of `frame`.

        Parameters
        ----------
        frame : pandas or cuDF DataFrame
            May be empty; rows can be inserted later.
        on : label or list of labels
            The key columns.
        columns : list of labels, optional
            The columns kept beside the key columns; default: all.
        unique : bool, optional
            True: refuse a second row of a key, now and in `insert`. None, False: allow it.
        encoder : KeyEncoder, optional
            The encoder of the distributed index that this shard belongs to; default: from `frame`.
        device : {"cpu", "cuda"}, optional
            Where the key table lives; default: where the frame lives.
        method, **settings
            How the key table stores its keys: a name of `dgpuhash.methods`, and its settings.

        Raises
        ------
        ColumnError
            When a column is missing or duplicated, or `unique` is True and a key has two rows.
        KeyTypeError
            When a column cannot be a key.
        SpecError, UnsupportedError
            When there is no such method or setting, or it has no multimap for a key of many rows.
        DeviceError, OutOfMemoryError
            When there is no such device, or not enough memory for the rows or the key table.

        Examples
        --------
        >>> import pandas as pd
        >>> visits = pd.DataFrame({"who": ["Ada", "Bo", "Ada"], "day": [1, 1, 2]})
        >>> len(FrameIndex.build(visits, on="who"))
        3
        >>> FrameIndex.build(visits, on=["who", "day"], unique=True).is_unique
        True
        """
        names = key_names(frame, on)
        stored = frame[stored_columns(frame, names, columns)]
        encoder = encoder or KeyEncoder.for_frame(frame, on)
        chosen = KeyTableMethod.of(method, settings)
        index = cls(stored, encoder, unique=unique, device=device, method=chosen)
        index.insert(stored)
        return index

    @property
    def encoder(self) -> KeyEncoder:
        """Encoder of the key columns."""
        return self._encoder

    @property
    def meta(self) -> Any:
        """Empty frame with the stored columns."""
        return self._rows.store.meta

    @property
    def device(self) -> Device:
        """Device of the key table: ``"cpu"`` or ``"cuda"``."""
        return self._device

    @property
    def is_unique(self) -> bool:
        """Whether no key has two rows; reads all keys if a code ever repeated."""
        if self._rows.table.one_row_per_code:
            return True
        keys = self._encoder.encode(self.frame(list(self._encoder.names)))
        return keys.first_repeat() < 0

    def __len__(self) -> int:
        return len(self._rows)

    @function_translates_memory_errors
    @read_locked
    def codes(self) -> Array:
        """Return the key codes of all rows, in no particular order."""
        return self._rows.table.codes()

    @function_translates_memory_errors
    @read_locked
    def frame(self, columns: Sequence[Hashable] | None = None) -> AnyFrame:
        """Return the rows, numbered from 0 in insertion order, with `columns`."""
        return self._rows.store.take(self._rows.table.rows(), columns)

    @function_translates_memory_errors
    @write_locked
    def insert(self, frame: Frame) -> None:
        """Add the rows of `frame`, which must have the stored columns.

        Raises
        ------
        ColumnError
            When a column is missing or of another type, integers would be rounded beside floats, or
            a key of a unique index would have two rows; the index does not change.
        KeyTypeError
            When a key value does not fit the index's key column; the index does not change.
        OutOfMemoryError
            When the key table cannot grow; the index does not change.

        Examples
        --------
        >>> import pandas as pd
        >>> index = FrameIndex.build(pd.DataFrame({"k": [1], "v": ["a"]}), on="k")
        >>> index.insert(pd.DataFrame({"k": [1, 2], "v": ["b", "c"]}))
        >>> index.lookup([1])["v"].tolist()
        ['a', 'b']
        """
        check_same_library(frame, self._frames)
        key_names(frame, list(self._rows.store.meta.columns))
        join_columns(frame, self._encoder if len(frame) else self._encoder.untyped())
        self._turns.begin()
        self._rows.insert(*self._rows.fitting(frame, self._unique))

    @function_translates_memory_errors
    @write_locked
    def upsert(self, frame: Frame) -> int:
        """Replace all rows of the keys in `frame` by its rows; return their number.

        Nulls are keys as others are. Raises as `insert`; and ColumnError when two rows of `frame`
        have one key, UnsupportedError when the method of the key table cannot erase.

        Examples
        --------
        >>> import pandas as pd
        >>> index = FrameIndex.build(pd.DataFrame({"k": [1, 1, 2], "v": ["a", "b", "c"]}), on="k")
        >>> index.upsert(pd.DataFrame({"k": [1, 3], "v": ["d", "e"]}))
        2
        >>> index.frame()["v"].tolist()
        ['c', 'd', 'e']
        """
        check_same_library(frame, self._frames)
        key_names(frame, list(self._rows.store.meta.columns))
        join_columns(frame, self._encoder if len(frame) else self._encoder.untyped())
        self._turns.begin()
        rows, encoded = self._rows.fitting(frame, unique=False)
        self._rows.refuse_repeats(rows, encoded)
        self._rows.check_change("upsert", rows)
        self._rows.upsert(rows, encoded)
        return len(rows)

    def check_change(self, verb: str, rows: Frame) -> None:
        """Raise UnsupportedError if the key table's method does not support the change."""
        self._rows.check_change(verb, rows)

    def refuse_repeats(self, keys: Frame) -> None:
        """Raise ColumnError if the keys of an upsert repeat."""
        self._rows.refuse_repeats(keys)

    @property
    def store(self) -> RowStore:
        """Row storage of the index."""
        return self._rows.store

    @function_translates_memory_errors
    @write_locked
    def insert_arrays(self, arrays: Sequence[Array]) -> None:
        """Add rows as arrays of the stored columns and dtypes (`Frames.arrays`)."""
        self._turns.begin()
        self._rows.insert_arrays(arrays, self._unique)

    @function_translates_memory_errors
    @write_locked
    def insert_spilled(
        self, keys: Frame, file: SpillFile, spans: Sequence[tuple[int, int]]
    ) -> None:
        """Add the first rows: a frame of their keys, with the other columns in `file`."""
        self._turns.begin()
        self._rows.insert_spilled(keys, file, spans, self._unique)

    @function_translates_memory_errors
    @read_locked
    def match(
        self, keys: Frame | tuple[Array, ...], *, how: str = "inner",
        on: Hashable | Sequence[Hashable] | None = None, columns: Sequence[Hashable] | None = None,
    ) -> Matches:  # fmt: skip
        """Return the index rows whose keys equal those of `keys`.

        Parameters
        ----------
        keys : DataFrame, or tuple of arrays
            A frame with the key columns; others are ignored. Or the key columns as `Frames.arrays`
            gives them, of the stored dtypes.
        how : {"inner", "left", "semi", "anti"}
            Inner and left are the same here: `merge` adds the unmatched left rows.
        on : label or list of labels, optional
            The key columns of `keys`; default: those of the index.
        columns : list of labels, optional
            The columns of the index to return; default: all.

        Raises
        ------
        ColumnError, KeyTypeError, UnsupportedError
            When columns are missing, key columns cannot be compared, or `how` is another join.

        Examples
        --------
        >>> import pandas as pd
        >>> index = FrameIndex.build(pd.DataFrame({"k": [1, 2, 1], "v": [10, 20, 30]}), on="k")
        >>> index.match(pd.DataFrame({"k": [2, 9, 1]}), columns=["v"]).query_rows
        array([0, 2, 2])
        """
        check_how(how)
        encoded = self._encoded(keys, on)
        xp = self._frames.xp
        if how in {"semi", "anti"}:
            found = self._rows.found(encoded)
            return Matches(xp.flatnonzero(found if how == "semi" else ~found), None)
        query_rows, rows = self._rows.pairs(encoded)
        return Matches(query_rows, self._rows.store.take(rows, columns))

    @function_translates_memory_errors
    @read_locked
    def merge(
        self, left: Frame, on: Hashable | Sequence[Hashable] | None = None, *,
        left_on: Hashable | Sequence[Hashable] | None = None, how: IndexHow = "inner",
        columns: Sequence[Hashable] | None = None, suffixes: Suffixes = DEFAULT_SUFFIXES,
        promote: Promote | None = None,
    ) -> AnyFrame:  # fmt: skip
        """Return ``left.merge(index.frame(), …)`` without hashing the index again.

        Parameters
        ----------
        left : DataFrame
        on : label or list of labels, optional
            Key columns of the same name on both sides; default: the index's.
        left_on : label or list of labels, optional
            Key columns of `left`, where their names differ.
        how : {"inner", "left", "right", "outer", "semi", "anti"}
            Semi: the rows of `left` with a match, with their labels; anti: those without one.
        columns : list of labels, optional
            Columns of the index to add; default: all.
        suffixes : tuple
            For columns of the same name on both sides.
        promote : {"nullable", "pandas"}, optional
            What integers and booleans of a side that lacks rows become, as for `dgpuhash.merge`.

        Raises
        ------
        ColumnError, KeyTypeError, UnsupportedError, SpecError
            When columns are missing, incomparable or overlap, `how`, `suffixes` or `promote` is
            invalid, or an integer would be rounded.

        Warns
        -----
        UserWarning
            When integers are compared with floats that are not all integers, as pandas warns.

        Notes
        -----
        Null keys (None, NaN, NaT, NA) match each other. NaN of nullable or Arrow floats is a null
        or a key of its own, as in pandas for the two dtypes. Large integers and floats are compared
        exactly, where pandas rounds the integers to float64.
        """
        kind = check_how(how, all_rows=True)
        check_promote(promote)
        check_suffixes(suffixes)
        check_same_library(left, self._frames)
        rows, encoder = self._rows, self._rows.encoder_for(left)
        names = join_columns(left, encoder, on, left_on, typed=False)
        given = key_values(left, names)
        encoded = encoder.encode_columns(KeyColumns.of_series(given, names, self._frames))
        if columns is not None:
            columns = [*needed_columns(self.meta, encoder, names, columns), *encoder.names]
        warn_int_float_merge(left, names, given, rows, encoder)
        if kind == "semi" and self._frames.selects_pairs and rows.table.one_row_per_code:
            return self._frames.keep(left, rows.pairs(encoded)[0])
        if kind in FILTERS:
            found = rows.found(encoded)
            return self._frames.keep_where(left, found, kind)
        met = rows.find_matches(encoded, inner=kind == "inner")
        few = kind not in ALL_ROWS and rows.store.paged
        met, stored = rows.of_matches(met) if few else (met, rows.store.whole())
        if columns is not None:
            stored = stored[[label for label in stored if label in columns]]
        if kind in ALL_ROWS and rows.erased:
            met, stored = rows.without_erased(met, stored)
        keys = index_keys(given, names, stored, encoder.names)
        plan = MergePlan.of(
            left, stored, reconcile_keys(keys), kind, suffixes=suffixes,
            promote=promote or self._frames.promotion,
        )  # fmt: skip
        xp, probes = self._frames.xp, len(encoded.codes)
        if kind == "right":
            # A left merge of the stored rows with their matches.
            turned = row_pairs(rows.by_stored(met), "left", len(stored), probes, xp)
            pairs = RowPairs(turned.right, turned.left)
        else:
            pairs = row_pairs(met, kind, probes, len(stored) if kind == "outer" else 0, xp)
        if kind in ALL_ROWS:
            plan = replace(plan, keys=keys)
        if kind == "outer":
            pairs = sorted_by_key(pairs, keys)
        return plan.frame(pairs, plan.index(pairs))

    @function_translates_memory_errors
    @read_locked
    def page(
        self, keys: Frame | tuple[Array, ...], *, nbytes: int,
        columns: Sequence[Hashable] | None = None, skip: int = 0, plain: bool = False,
        named: bool = True, marks: Array | None = None, limit: RowLimit | None = None,
    ) -> Page:  # fmt: skip
        """Return an inner `match` in pages of `nbytes`; options as `first_page`."""
        wanted = list(self.meta if columns is None else columns)
        how = nbytes, skip, plain, named, marks, limit
        return first_page(self._readable, self._encoded(keys), wanted, *how)

    @property
    def _readable(self) -> KeyedRows:
        """The rows as readers see them."""
        return self._rows

    @read_locked
    def no_marks(self) -> Array:
        """Return an empty array of marks for `page`."""
        return self._frames.xp.zeros(len(self._rows.store), dtype="uint8")

    @function_translates_memory_errors
    @read_locked
    def unmarked(self, marks: Array) -> Array:
        """Return the positions in `store` of the rows without a mark, in insertion order."""
        rows = self._rows.table.rows()
        return rows if marks is None else rows[marks[rows] == 0]

    def _query(self, keys: Any) -> Query:
        return Query.of(keys, self._encoder, self.meta)

    @function_translates_memory_errors
    @read_locked
    def _look_up(self, asked: Any, *, keyed: bool, promote: str | None) -> Lookup:
        rows, encoder = self._readable, self._rows.encoder_for(asked)
        names = join_columns(asked, encoder, typed=False)
        given = key_values(asked, names)
        columns = KeyColumns.of_series(given, names, self._frames)
        met = rows.find_matches(encoder.encode_columns(columns))
        met, stored = rows.of_matches(met) if rows.store.paged else (met, rows.store.whole())
        keys = index_keys(given, names, stored, names)
        return lookup_rows(asked, keys, stored, met, keyed=keyed, promote=promote)

    @function_translates_memory_errors
    @read_locked
    def _found(self, asked: Any) -> Any:
        return self._rows.found(self._rows.encoder_for(asked).encode(asked))

    @function_translates_memory_errors
    @write_locked
    def erase(self, keys: Frame, *, on: Hashable | Sequence[Hashable] | None = None) -> int:
        """Remove all rows of these keys; return their number. Raises as `match`.

        Parameters
        ----------
        keys : DataFrame
            A frame with the key columns; others are ignored.
        on : label or list of labels, optional
            Its key columns; default: the index's.

        Examples
        --------
        >>> import pandas as pd
        >>> index = FrameIndex.build(pd.DataFrame({"k": [1, 2, 1]}), on="k")
        >>> index.erase(pd.DataFrame({"k": [1, 7]})), len(index)
        (2, 1)
        """
        check_same_library(keys, self._frames)
        self._turns.begin()
        return self._rows.erase(self._rows.encoder_for(keys).encode(keys, on))

    @property
    def one_row_per_key(self) -> bool:
        """Whether each key is known to have at most one row."""
        return self._rows.table.one_row_per_code

    @property
    def table(self) -> HashMap | MultiMap:
        """Hash table of the keys, for its statistics."""
        return self._rows.table.table

    def stats(self) -> FrameStats:
        """Return rows, bytes, key encoding, table type and device."""
        return FrameStats.of(self._rows, self._encoder.packing, self._device)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows and the key table."""
        return self._rows.store.nbytes + self._rows.table.nbytes

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the index to one file, at a path or an fsspec URL, atomically.

        The file holds the rows as an Arrow stream, a JSON description and checksums; no pickle.

        Raises
        ------
        ExistsError, OSError
            When `path` exists and `overwrite` is False, or writing fails. As `HashSet.save`.
        UnsupportedError
            When a column cannot be written as Arrow.
        """
        how = self._encoder, self._unique, self._method
        write_index(path, self.frame, *how, overwrite=overwrite)

    @classmethod
    @function_translates_memory_errors
    def load(cls, path: str | os.PathLike[str], *, device: Device | None = None) -> FrameIndex:
        """Load the index saved at `path`, inserting its keys again.

        Parameters
        ----------
        path : path or URL
        device : {"cpu", "cuda"}, optional
            ``"cuda"`` reads the rows into cuDF; default: pandas rows and a table on the CPU.

        Raises
        ------
        FormatError, OSError, DeviceError, UnsupportedError
            When the file is damaged, foreign or missing, or the device or cuDF is missing.
        """
        rows, index = read_index(path, "cudf" if device == "cuda" else "pandas")
        with interpreting(path, (ColumnError, KeyTypeError)):
            made = cls(rows, **index, device=device)
            made.insert(rows)
        return made

    def __repr__(self) -> str:
        return f"<{self.stats().title(self.meta, self._encoder.names)}>"

    def _repr_html_(self) -> str:
        return self.stats().html(self.meta, self._encoder.names)

    def _encoded(self, keys: Any, on: Hashable | Sequence[Hashable] | None = None) -> EncodedKeys:
        if isinstance(keys, tuple):
            return self._encoder.encode_arrays(keys, self._frames)
        check_same_library(keys, self._frames)
        return self._rows.encoder_for(keys).encode(keys, on)
