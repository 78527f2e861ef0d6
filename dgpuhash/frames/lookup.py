"""Look up keys in an index: the left merge, query rows and a mask of keys found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dgpuhash.frames.dataframes import frames_of
from dgpuhash.frames.merge.keys import JoinKeys, reconcile_keys
from dgpuhash.frames.merge.result import MergePlan
from dgpuhash.frames.merge.rows import row_pairs
from dgpuhash.typing import AnyFrame, Array


@dataclass(frozen=True, slots=True)
class Lookup:
    """Result of `FrameIndex.find`: merged rows, query rows and a found mask.

    Attributes
    ----------
    frame : DataFrame
        The left merge of the keys with the index: the key columns as given, then the stored
        columns, null where a key is not stored. In input order; one row per key when keys are
        unique, else all rows of a key in insertion order. pandas, or cuDF for GPU keys.
    query_rows : int64 array
        For each row of `frame`, the position of its key in the input.
    found : bool array
        For each key of the input, whether it is stored.

    Examples
    --------
    >>> import pandas as pd
    >>> from dgpuhash import FrameIndex
    >>> visits = pd.DataFrame({"who": ["Ada", "Bo", "Ada"], "day": [1, 1, 2]})
    >>> answer = FrameIndex.build(visits, on="who").find(pd.DataFrame({"who": ["Eve", "Ada"]}))
    >>> answer.frame
       who  day
    0  Eve  NaN
    1  Ada  1.0
    2  Ada  2.0
    >>> answer.query_rows.tolist(), answer.found.tolist()
    ([0, 1, 1], [False, True])
    """

    frame: AnyFrame
    query_rows: Array
    found: Array


def lookup_rows(
    asked: Any, keys: JoinKeys, stored: Any, found: tuple[Any, Any], *, keyed: bool = True,
    promote: str | None = None,
) -> Lookup:  # fmt: skip
    """Return the `Lookup` of the keys in the frame `asked`.

    Parameters
    ----------
    asked : DataFrame
        The key columns.
    keys : JoinKeys
        They and those of the index.
    stored : DataFrame
        Rows of the index, with all columns that the keys name.
    found : pair
        The row of `stored` for each key, -1 for none; or None, and pairs of a key and a row, in the
        order of the keys.
    keyed : bool
        Whether the key columns are wanted, too; without them the rows are merged with nothing.
    promote : {"nullable", "pandas"}, optional
        As for `FrameIndex.merge`.
    """
    frames, n = frames_of(asked), len(asked)
    xp, promote = frames.xp, promote or frames.promotion
    pairs = row_pairs(found, "left", n, len(stored), xp)
    if keyed:
        plan = MergePlan.of(asked, stored, reconcile_keys(keys), "left", promote=promote)
        frame = plan.frame(pairs, plan.index(pairs))
    else:
        stored = stored.copy(deep=False)
        stored.attrs = {}
        for name in keys.dropped:
            del stored[name]
        stored = frames.nullable(stored) if promote == "nullable" else stored
        frame = frames.take_or_null(stored, pairs.rows("right", len(stored)))
    if found[0] is None:
        there = xp.zeros(n, dtype=bool)
        there[found[1][0]] = True
    else:
        there = found[0] >= 0
    return Lookup(frame, pairs.rows("left", n), there)
