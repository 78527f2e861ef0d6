"""Joins of the db-benchmark of h2o.ai and DuckDB: questions, frames, answers.

The frames have the shape of its J1: keys by a permutation, 90 % of them on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from dgpuhash.bench.frames.checksum import SCALE, Checksum, checksum_of_frame
from dgpuhash.bench.peers import Join, Library
from dgpuhash.errors import SpecError

FEWEST_ROWS = 100
_SEED = 108
_FEWEST_KEYS = 10
# Left rows for each row of a right side.
_ROWS_PER_KEY = {"small": 10**6, "medium": 10**3, "big": 1}
_TEXT_OF = {"id1": "id4", "id2": "id5", "id3": "id6"}
_LARGEST_VALUE = 100


JOINS = {
    each.name: each
    for each in (
        Join("j1", "inner", "small", "id1"),
        Join("j2", "inner", "medium", "id2"),
        Join("j3", "left", "medium", "id2"),
        Join("j4", "inner", "medium", "id5"),
        Join("j5", "inner", "big", "id3"),
        Join("j5n", "inner", "big", "id3", narrow=True),
        Join("j5outer", "outer", "big", "id3", narrow=True),
        Join("j5right", "right", "big", "id3", narrow=True),
        Join("j5semi", "semi", "big", "id3", narrow=True),
        Join("j5anti", "anti", "big", "id3", narrow=True),
    )
}


class JoinFrames:
    """Frames of the joins, the same ones for each number of rows.

    Parameters
    ----------
    rows : int
        Rows of the left frame, and of the big one of the right frames.

    Attributes
    ----------
    left : pandas.DataFrame
        Integers ``id1``, ``id2`` and ``id3``, of as many kinds as the right frames have rows, the
        same as texts in ``id4``, ``id5`` and ``id6``, and a value ``v1``.
    rights : dict of pandas.DataFrame
        ``small``, ``medium`` and ``big``, in which ``id1``, ``id2`` or ``id3`` are unique, with a
        value ``v2``.

    Raises
    ------
    SpecError
        When there are too few rows for keys of every kind.

    Examples
    --------
    >>> frames = JoinFrames(1000)
    >>> list(frames.left), frames.left["id1"].nunique()
    (['id1', 'id2', 'id3', 'id4', 'id5', 'id6', 'v1'], 10)
    >>> frames.expected(JOINS["j5n"]).rows
    900
    """

    def __init__(self, rows: int) -> None:
        if rows < FEWEST_ROWS:
            raise SpecError(f"--rows {rows}; give at least {FEWEST_ROWS}")
        random = np.random.default_rng(_SEED)
        lefts, rights = {}, {}
        kinds = {}
        for number, (name, ratio) in enumerate(_ROWS_PER_KEY.items(), 1):
            kinds[name] = max(rows // ratio, _FEWEST_KEYS)
            lefts[f"id{number}"], rights[f"id{number}"] = _split(random, kinds[name])
        self.left: pd.DataFrame = _frame(random, lefts, rows, "v1")
        self.rights: dict[str, pd.DataFrame] = {
            name: _frame(random, dict(list(rights.items())[:number]), kinds[name], "v2")
            for number, name in enumerate(_ROWS_PER_KEY, 1)
        }

    def sides(self, join: Join) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return both sides of a join, as frames that were not used before."""
        left, right = self.left, self.rights[join.right]
        if join.narrow:
            return left[[join.on, "v1"]], right[[join.on, "v2"]]
        return left.copy(deep=False), right.copy(deep=False)

    def __len__(self) -> int:
        return len(self.left)

    def work(self, library: Library, join: Join) -> Callable[[], Any]:
        """Return what a library does for a question."""
        return library.join(join, *self.sides(join))

    def checksum(self, library: Library, join: Join, made: Any) -> Checksum:
        """Return the checksum of a library's answer."""
        return reduce(add, library.of_parts(made, checksum_of_frame))

    def expected(self, join: Join) -> Checksum:
        """Return the checksum of a join, which no library is asked for.

        Keys are small integers, and unique on the right: an array tells the right row of each.
        """
        right = self.rights[join.right]
        key = next((ids for ids, text in _TEXT_OF.items() if text == join.on), join.on)
        asked, stored = self.left[key].to_numpy(), right[key].to_numpy()
        v1, v2 = self.left["v1"].to_numpy(), right["v2"].to_numpy()
        row_of = np.full(max(asked.max(), stored.max()) + 1, -1)
        row_of[stored] = np.arange(len(stored))
        partners = row_of[asked]
        found = partners >= 0
        if join.how in ("semi", "anti"):
            return Checksum.of(v1[found if join.how == "semi" else ~found])
        kept = np.ones_like(found) if join.how in ("left", "outer") else found
        added = np.where(found, v2[partners], np.nan)
        made = Checksum.of(v1[kept], added[kept])
        if join.how in ("right", "outer"):
            alone = np.ones(len(v2), bool)
            alone[partners[found]] = False
            made += Checksum.of(np.full(int(alone.sum()), np.nan), v2[alone])
        return made


def _split(random: np.random.Generator, count: int) -> tuple[Any, Any]:
    """Return `count` keys for each side, of which 90 % are the same."""
    shared = count * 9 // 10
    keys = 1 + random.permutation(2 * count - shared)
    return keys[:count], np.concatenate([keys[:shared], keys[count:]])


def _frame(
    random: np.random.Generator, keys: dict[str, Any], rows: int, value: str
) -> pd.DataFrame:
    """Return a frame of every key at least once, in random order, and a value."""
    columns = {name: _sample(random, kinds, rows) for name, kinds in keys.items()}
    texts = {_TEXT_OF[name]: _texts(ids) for name, ids in columns.items()}
    values = random.integers(0, _LARGEST_VALUE * SCALE, rows) / SCALE
    return pd.DataFrame({**columns, **texts, value: values})


def _sample(random: np.random.Generator, kinds: Any, rows: int) -> Any:
    more = random.choice(kinds, rows - len(kinds))
    return random.permutation(np.concatenate([kinds, more]))


def _texts(ids: Sequence[int]) -> Any:
    """Return ``"id7"`` for 7, as pandas' own texts."""
    numbers = pc.cast(pa.array(ids), pa.string())
    return pd.array(pc.binary_join_element_wise("id", numbers, ""), dtype="str")
