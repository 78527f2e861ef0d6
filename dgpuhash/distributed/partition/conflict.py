"""Conflict resolution: one row for a key that several workers store."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from enum import Enum
from typing import Any

from dgpuhash.errors import ColumnError, SpecError
from dgpuhash.frames import frames_of

__all__ = ["Conflict"]

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
        if self not in _REDUCED:
            return
        kinds = _SUMMED if self is Conflict.SUM else _COMPARED
        for label in meta.columns:
            dtype = meta[label].dtype
            if label in names:
                continue
            if getattr(dtype, "kind", "O") not in kinds:
                raise ColumnError(
                    f"conflict={self.value!r}, and column {label!r} is {dtype}; keep other columns "
                    "out with columns=, or use conflict='first' or 'last'"
                )
            narrow = getattr(dtype, "itemsize", _SUM_NBYTES) < _SUM_NBYTES and dtype.kind != "f"
            if self is Conflict.SUM and narrow:
                raise ColumnError(
                    f"sums of column {label!r} may not fit {dtype}; convert it with "
                    ".astype('int64')"
                )

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


def parse_conflict(name: str) -> Conflict:
    """Return the rule of this name, or raise SpecError."""
    try:
        return Conflict(name)
    except ValueError:
        named = ", ".join(repr(rule.value) for rule in Conflict)
        raise SpecError(f"conflict={name!r}; use one of {named}") from None


_REDUCED = {Conflict.MIN, Conflict.MAX, Conflict.SUM}
