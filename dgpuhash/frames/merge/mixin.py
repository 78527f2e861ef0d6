"""Base class with the verb `merge` of an index on one device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any

from dgpuhash.frames.dataframes import check_same_library
from dgpuhash.frames.int_float_warning import warn_int_float_merge
from dgpuhash.frames.keyed_rows import KeyedRows
from dgpuhash.frames.matches import Matches
from dgpuhash.frames.merge.standing import are_merged, merge_all_rows
from dgpuhash.frames.merge_result import (
    ALL_ROWS,
    DEFAULT_SUFFIXES,
    Suffixes,
    assemble,
    check_how,
    join_columns,
    needed_columns,
)
from dgpuhash.tables.memory_errors import function_translates_memory_errors
from dgpuhash.tables.rwlock import ReadWriteLock, read_locked
from dgpuhash.typing import AnyFrame, Frame, IndexHow

__all__ = ["MergeMixin"]


class MergeMixin(ABC):
    """Base of `FrameIndex`: its merge, whichever rows of it match."""

    _frames: Any
    _rows: KeyedRows
    _turns: ReadWriteLock

    @property
    @abstractmethod
    def meta(self) -> Any:
        """Empty frame with the stored columns."""

    @abstractmethod
    def match(
        self, keys: Any, *, how: str = "inner", on: Any = None, columns: Any = None
    ) -> Matches:
        """Return the rows of the index whose keys equal those of `keys`."""

    @function_translates_memory_errors
    @read_locked
    def merge(
        self,
        left: Frame,
        on: Hashable | Sequence[Hashable] | None = None,
        *,
        left_on: Hashable | Sequence[Hashable] | None = None,
        how: IndexHow = "inner",
        columns: Sequence[Hashable] | None = None,
        suffixes: Suffixes = DEFAULT_SUFFIXES,
    ) -> AnyFrame:
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

        Raises
        ------
        ColumnError, KeyTypeError, UnsupportedError, SpecError
            When columns are missing, incomparable or overlap, or `how` or `suffixes` is invalid.

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
        check_same_library(left, self._frames)
        names = join_columns(left, asked := self._rows.encoder_for(left), on, left_on)
        warn_int_float_merge(left, names, self._rows)
        keys, moved = asked.names, needed_columns(self.meta, asked, names, columns)
        pandas = self._frames.name == "pandas" and not asked.is_untyped
        if kind in ALL_ROWS or (
            kind == "left" and pandas and are_merged(left, self.meta, names, keys)
        ):
            encoded = asked.encode(left, list(names))
            ours, theirs = None, self._rows.partners(encoded) if kind == "left" else None
            if theirs is None:
                ours, theirs = self._rows.pairs(encoded)
            wanted = [label for label in self.meta if label in {*moved, *keys}]
            stored = self._rows.store.frame()[wanted]
            if kind in ALL_ROWS and self._rows.erased:
                rows = self._rows.table.items()[1]
                theirs = self._frames.xp.searchsorted(rows, theirs)
                stored = self._rows.store.take(rows, wanted)
            return merge_all_rows(left, stored, (ours, theirs), kind, names, keys, suffixes)
        matches = self.match(left, how=kind, on=list(names), columns=moved)
        return assemble(
            left, *matches, index_meta=self.meta, left_on=names, right_on=keys,
            how=kind, suffixes=suffixes, alone=asked.is_untyped,
        )  # fmt: skip
