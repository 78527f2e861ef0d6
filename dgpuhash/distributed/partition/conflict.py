"""Resolve a key with rows on several workers to one row."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from enum import Enum
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.errors import ColumnError, SpecError
from dgpuhash.frames import frames_of
from dgpuhash.tables.arguments.encoding import value_words, values_of

_SUMMED = "iuf"
_COMPARED = "iufmM"
_SUM_NBYTES = 8


class Conflict(Enum):
    """How an independent index of unique keys resolves a second row of a key."""

    #: The second row is refused.
    ERROR = "error"
    #: The answer is the first row: by change, then by partition.
    FIRST = "first"
    #: The answer is the last row.
    LAST = "last"
    #: The answer has the least value of each column, without nulls.
    MIN = "min"
    #: The answer has the greatest value of each column, without nulls.
    MAX = "max"
    #: The answer has the sum of each column, without nulls.
    SUM = "sum"

    def check(self, meta: Any, names: Sequence[Hashable]) -> None:
        """Raise ColumnError for a stored column that cannot be combined.

        The key columns, `names`, are not checked.
        """
        for label in meta.columns:
            dtype = meta[label].dtype
            if label in names:
                continue
            if not self._combines(dtype):
                raise ColumnError(
                    f"conflict={self.value!r}, and column {label!r} is {dtype}; keep other columns "
                    "out with columns=, or use conflict='first' or 'last'"
                )
            if self._outgrows(dtype):
                raise ColumnError(
                    f"sums of column {label!r} may not fit {dtype}; convert it with "
                    ".astype('int64')"
                )

    def check_values(self, dtype: np.dtype[Any]) -> None:
        """Raise SpecError for values of a table that cannot be combined."""
        if not self._combines(dtype):
            raise SpecError(
                f"conflict={self.value!r} with values of {dtype}; use conflict='first' or 'last'"
            )
        if self._outgrows(dtype):
            raise SpecError(
                f"sums of values may not fit {dtype}; make the table with values of 'int64'"
            )

    def _combines(self, dtype: Any) -> bool:
        """Return whether values of `dtype` can be combined."""
        kinds = _SUMMED if self is Conflict.SUM else _COMPARED
        return self not in _REDUCED or getattr(dtype, "kind", "O") in kinds

    def _outgrows(self, dtype: Any) -> bool:
        """Return whether values of `dtype` may be too narrow for their sum."""
        narrow = getattr(dtype, "itemsize", _SUM_NBYTES) < _SUM_NBYTES and dtype.kind != "f"
        return self is Conflict.SUM and narrow

    def settle(self, query_rows: Any, frame: Any, names: Sequence[Hashable]) -> tuple[Any, Any]:
        """Resolve ordered matches to one row for each query.

        Returns the query rows and the frame of their answers; `names` are the key columns.

        Examples
        --------
        >>> import numpy as np, pandas as pd
        >>> rows = pd.DataFrame({"k": [4, 4, 9], "v": [5, 2, 1]})
        >>> Conflict.MIN.settle(np.array([0, 0, 3]), rows, ["k"])
        (array([0, 3]),    k  v
        0  4  2
        1  9  1)
        """
        frames = frames_of(frame)
        xp = frames.xp
        if self is Conflict.ERROR or len(query_rows) < 2:
            return query_rows, frame
        starts = xp.ones(len(query_rows), dtype=bool)
        starts[1:] = query_rows[1:] != query_rows[:-1]
        if bool(starts.all()):
            return query_rows, frame
        heads = xp.flatnonzero(starts)
        if self is Conflict.LAST:
            ends = xp.append(heads[1:], xp.asarray([len(query_rows)]))
            return query_rows[heads], frames.take(frame, ends - 1)
        kept = frames.take(frame, heads)
        if self in _REDUCED:
            values = [label for label in frame.columns if label not in names]
            if values:
                groups = xp.cumsum(starts) - 1
                reduced = frames.reduce(frame[values], groups, self.value)
                for label in values:
                    kept[label] = reduced[label]
        return query_rows[heads], kept

    def merge(
        self,
        backend: Backend,
        columns: Sequence[Any],
        found: Sequence[Any],
        dtype: np.dtype[Any],
    ) -> Any:
        """Merge a column of value words from several workers into one.

        Parameters
        ----------
        backend : Backend
        columns : sequence of array
            Words, or rows of bytes, of values for the same keys, in the order of the workers.
        found : sequence of array of bool
            Which rows of each column are values. Where no worker has one, the first column counts.
        dtype : dtype
            What the words mean.

        Examples
        --------
        >>> import numpy as np
        >>> from dgpuhash import backend
        >>> words, found = [np.array([[5, 0], [2, 9]], "u4"), np.array([[1, 0], [1, 1]], bool)]
        >>> Conflict.MIN.merge(backend.get("cpu"), words, found, np.dtype("int32"))
        array([2, 9], dtype=uint32)
        """
        xp, reduced = backend.xp, self in _REDUCED
        given = list(zip(columns, found, strict=True))
        if self is Conflict.LAST:
            given.reverse()
        if reduced:
            given = [(_numbers(backend, words, dtype), there) for words, there in given]
        kept, told = given[0]
        # A null counts only where no worker has a value.
        have = told & ~_nulls(kept, dtype) if reduced else told
        for column, there in given[1:]:
            fits = there & ~_nulls(column, dtype) if reduced else there
            new = (fits & ~have) | (there & ~told)
            chosen = xp.where(new[:, None] if kept.ndim > 1 else new, column, kept)
            if reduced:
                chosen = xp.where(fits & have, _OPERATIONS[self](xp)(kept, column), chosen)
            kept, told, have = chosen, told | there, have | fits
        return value_words(kept, dtype) if reduced else kept


def _numbers(backend: Backend, words: Any, dtype: np.dtype[Any]) -> Any:
    """Return words as numbers, times as int64."""
    values = values_of(backend, words, dtype)
    return values.view(np.int64) if dtype.kind in "mM" else values


def _nulls(numbers: Any, dtype: np.dtype[Any]) -> Any:
    """Return a mask of NaN, or of NaT."""
    if dtype.kind in "mM":
        return numbers == np.iinfo(np.int64).min
    return numbers != numbers


def parse_conflict(name: str) -> Conflict:
    """Return the rule of this name, or raise SpecError."""
    try:
        return Conflict(name)
    except ValueError:
        named = ", ".join(repr(rule.value) for rule in Conflict)
        raise SpecError(f"conflict={name!r}; use one of {named}") from None


_REDUCED = {Conflict.MIN, Conflict.MAX, Conflict.SUM}
_OPERATIONS = {
    Conflict.MIN: lambda xp: xp.minimum,
    Conflict.MAX: lambda xp: xp.maximum,
    Conflict.SUM: lambda xp: xp.add,
}
