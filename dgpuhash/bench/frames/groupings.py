"""Joins and groupbys of the db-benchmark of h2o.ai and DuckDB: queries, data and answers.

The frames have the shapes of its J1 and G1: keys by a permutation, 90 % of them on both sides; keys
of 100 kinds, and of as many kinds as hundredths of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from dgpuhash.bench.figure import read_data
from dgpuhash.bench.peers import Grouping, Join, Library, Pandas
from dgpuhash.errors import SpecError

#: Values are multiples of 1 / SCALE up to 100: sums of up to 10**9 of them are exact floats.
SCALE = 2**16


@dataclass(frozen=True, slots=True)
class Checksum:
    """Checksum of the rows of an answer; checksums of its parts add up.

    Attributes
    ----------
    rows : int
    v1, v2 : float
        The sums of the values, without nulls.
    pairs : int
        The sum of the products of the two values of each row, times `SCALE` squared and modulo
        2**64: other partners give another one.

    Examples
    --------
    >>> Checksum.of(np.array([1.0, 2.0]), np.array([0.5, np.nan]))
    Checksum(rows=2, v1=3.0, v2=0.5, pairs=2147483648)
    """

    rows: int
    v1: float
    v2: float
    pairs: int

    @classmethod
    def of(cls, v1: Any, v2: Any = None) -> Checksum:
        """Return the checksum of two columns of floats, with NaN for nulls.

        Semi-joins have no `v2`.
        """
        left = np.nan_to_num(v1)
        if v2 is None:
            return cls(len(left), float(left.sum()), 0.0, 0)
        right = np.nan_to_num(v2)
        pairs = int(((left * SCALE).astype(np.uint64) * (right * SCALE).astype(np.uint64)).sum())
        return cls(len(left), float(left.sum()), float(right.sum()), pairs)

    def __add__(self, other: Checksum) -> Checksum:
        pairs = (self.pairs + other.pairs) % 2**64
        return Checksum(self.rows + other.rows, self.v1 + other.v1, self.v2 + other.v2, pairs)


def checksum_of_frame(frame: Any) -> Checksum:
    """Return the checksum of a frame of pandas or polars, of a partition, or of an Arrow table."""
    names = frame.column_names if hasattr(frame, "column_names") else frame.columns
    v2 = frame["v2"].to_numpy() if "v2" in names else None
    return Checksum.of(frame["v1"].to_numpy(), v2)


FEWEST_ROWS = 100
_SEED = 108
_FEWEST_KEYS = 10
# Left rows for each row of a right side.
_ROWS_PER_KEY = {"small": 10**6, "medium": 10**3, "big": 1}
_TEXT_OF = {"id1": "id4", "id2": "id5", "id3": "id6"}
_LARGEST_VALUE = 100


_QUESTIONS = read_data(__package__, "questions.toml")
JOINS = {row["name"]: Join(**row) for row in _QUESTIONS["joins"]}


class JoinFrames:
    """Frames of the joins, generated equally for each number of rows.

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
        """Return both sides of a join, as fresh frames."""
        left, right = self.left, self.rights[join.right]
        if join.narrow:
            return left[[join.on, "v1"]], right[[join.on, "v2"]]
        return left.copy(deep=False), right.copy(deep=False)

    def __len__(self) -> int:
        return len(self.left)

    def work(self, library: Library, join: Join) -> Callable[[], Any]:
        """Return a function that runs a library's query."""
        return library.join(join, *self.sides(join))

    def checksum(self, library: Library, join: Join, made: Any) -> Checksum:
        """Return the checksum of a library's answer."""
        return reduce(add, library.of_parts(made, checksum_of_frame))

    def expected(self, join: Join) -> Checksum:
        """Return the checksum of pandas' answer."""
        pandas = Pandas()
        return self.checksum(pandas, join, self.work(pandas, join)())


def _split(random: np.random.Generator, count: int) -> tuple[Any, Any]:
    """Return `count` keys for each side, 90 % of them common."""
    shared = count * 9 // 10
    keys = 1 + random.permutation(2 * count - shared)
    return keys[:count], np.concatenate([keys[:shared], keys[count:]])


def _frame(
    random: np.random.Generator, keys: dict[str, Any], rows: int, value: str
) -> pd.DataFrame:
    """Return a frame with every key at least once, in random order, and a value."""
    columns = {name: _sample(random, kinds, rows) for name, kinds in keys.items()}
    texts = {_TEXT_OF[name]: _texts(ids) for name, ids in columns.items()}
    values = random.integers(0, _LARGEST_VALUE * SCALE, rows) / SCALE
    return pd.DataFrame({**columns, **texts, value: values})


def _sample(random: np.random.Generator, kinds: Any, rows: int) -> Any:
    more = random.choice(kinds, rows - len(kinds))
    return random.permutation(np.concatenate([kinds, more]))


FEWEST_GROUPED = 100
_KINDS = 100
_DIGITS = {"id1": 3, "id2": 3, "id3": 10}
# Of sums of the same numbers in another order.
_TOLERANCE = 1e-9


_SIX = tuple(f"id{number}" for number in range(1, 7))
GROUPINGS = {row["name"]: Grouping(**row) for row in _QUESTIONS["groupings"]}


@dataclass(frozen=True, slots=True, eq=False)
class Totals:
    """Order-independent checksum of an answer by group.

    Attributes
    ----------
    rows : int
    sums : tuple of float
        Of each column of aggregates.
    weighted : tuple of float
        The same, after a product of each value with a number that its key tells.

    Examples
    --------
    >>> made = Totals.of([np.array([1, 2])], [np.array([0.5, 1.5])])
    >>> made.rows, made.sums
    (2, (2.0,))
    >>> made == Totals.of([np.array([2, 1])], [np.array([1.5, 0.5])])
    True
    >>> made == Totals.of([np.array([2, 1])], [np.array([0.5, 1.5])])
    False
    """

    rows: int
    sums: tuple[float, ...]
    weighted: tuple[float, ...]

    @classmethod
    def of(cls, keys: list[Any], values: list[Any]) -> Totals:
        """Return the totals of integer keys and values beside them."""
        weight: Any = 1
        for key in keys:
            weight = (weight * 31 + key) % 8191
        columns = [np.nan_to_num(value.astype(np.float64)) for value in values]
        weighted = [float((column * weight).sum()) for column in columns]
        return cls(
            len(weight), tuple(float(column.sum()) for column in columns),
            (float(weight.sum()), *weighted),
        )  # fmt: skip

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Totals):
            return NotImplemented
        ours, theirs = (*self.sums, *self.weighted), (*other.sums, *other.weighted)
        return self.rows == other.rows and all(
            math.isclose(left, right, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
            for left, right in zip(ours, theirs, strict=True)
        )

    __hash__ = None  # type: ignore[assignment]


class GroupFrames:
    """Frame to group, generated equally for each number of rows.

    Parameters
    ----------
    rows : int

    Attributes
    ----------
    frame : pandas.DataFrame
        Texts ``id1``, ``id2`` and ``id3``, integers ``id4``, ``id5`` and ``id6``, integers ``v1``
        and ``v2``, and floats ``v3``.

    Raises
    ------
    SpecError
        When there are too few rows for keys of every kind.

    Examples
    --------
    >>> frames = GroupFrames(1000)
    >>> list(frames.frame)
    ['id1', 'id2', 'id3', 'id4', 'id5', 'id6', 'v1', 'v2', 'v3']
    >>> frames.expected(GROUPINGS["q1"]).rows
    100
    """

    def __init__(self, rows: int) -> None:
        if rows < FEWEST_GROUPED:
            raise SpecError(f"--rows {rows}; give at least {FEWEST_GROUPED}")
        random = np.random.default_rng(_SEED)
        columns: dict[str, Any] = {}
        for name in _SIX:
            ids = random.integers(
                1, (rows // _KINDS if name in ("id3", "id6") else _KINDS) + 1, rows
            )
            columns[name] = _texts(ids, _DIGITS[name]) if name in _DIGITS else ids
        columns["v1"] = random.integers(1, 6, rows)
        columns["v2"] = random.integers(1, 16, rows)
        columns["v3"] = random.integers(0, _LARGEST_VALUE * SCALE, rows) / SCALE
        self.frame: pd.DataFrame = pd.DataFrame(columns)

    def __len__(self) -> int:
        return len(self.frame)

    def asked(self, grouping: Grouping) -> pd.DataFrame:
        """Return the columns of a query, as a fresh frame."""
        return self.frame[grouping.columns]

    def work(self, library: Library, grouping: Grouping) -> Callable[[], Any]:
        """Return a function that runs a library's query."""
        return library.group(grouping, self.asked(grouping))

    def checksum(self, library: Library, grouping: Grouping, made: Any) -> Totals:
        """Return the totals of a library's answer."""
        answer: pa.Table = library.grouped(grouping, made, self.asked(grouping))
        keys = [_ids_of(answer[name]) for name in grouping.by]
        return Totals.of(
            keys, [answer[name].to_numpy() for name in answer.column_names[len(keys) :]]
        )

    def expected(self, grouping: Grouping) -> Totals:
        """Return the totals of pandas' answer."""
        pandas = Pandas()
        return self.checksum(pandas, grouping, self.work(pandas, grouping)())


def _texts(ids: Any, digits: int = 1) -> Any:
    """Return numbers as strings such as ``"id007"``, in pandas' string dtype."""
    numbers = pc.utf8_lpad(pc.cast(pa.array(ids), pa.string()), digits, padding="0")
    return pd.array(pc.binary_join_element_wise("id", numbers, ""), dtype="str")


def _ids_of(keys: Any) -> Any:
    """Return the numbers of keys, from strings or numbers."""
    if pa.types.is_integer(keys.type):
        return keys.to_numpy()
    return pc.cast(pc.utf8_slice_codeunits(keys.cast(pa.large_string()), 2), pa.int64()).to_numpy()
