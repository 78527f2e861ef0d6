"""Merges and groupbys of polars and PyArrow frames, with the values of frames that are drawn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa

import dgpuhash
from dgpuhash.errors import DgpuhashError, KeyTypeError, UnsupportedError
from suites.generated import groupbys, merges, oracle
from suites.generated.columns import KINDS, NAN, NULL, Column, Value, fits, read
from suites.generated.frames import Lazily, Outcome
from suites.generated.groupbys import Groupby
from suites.generated.merges import Merge

__all__ = ["OfTables", "failure", "of_tables"]

LIBRARIES = ("polars", "pyarrow")
Rows = list[oracle.Row]
# Verbs whose labels are the keys alone.
_VERBS = {*groupbys.REDUCTIONS} - {"idxmin", "idxmax", "quantile"}
# What polars and Arrow have in place of some dtypes of pandas.
_ARROW = {
    "boolean": "bool_()", "bool": "bool_()", "str": "string()", "string": "large_string()",
    "object text": "string()", "category str": "string()", "object bytes": "binary()",
    "category object bytes": "binary()", "object date": "date32()",
    "category arrow date32()": "date32()", "category Int64": "int64()",
    "category float64": "float64()", "category M8[us]": "timestamp('us')",
}  # fmt: skip


@dataclass(frozen=True)
class OfTables:
    """A merge or groupby of frames of other libraries.

    Attributes
    ----------
    case : Merge or Groupby
        Its columns have Arrow's dtypes.
    libraries : pair of str
        Those of the left and the right side.
    dictionary : bool
        Whether text is encoded by a dictionary; polars' categories.
    """

    case: Merge | Groupby
    libraries: tuple[str, str]
    dictionary: bool

    @property
    def lazily(self) -> Lazily:
        """How Dask gets the frames: it gets none."""
        return self.case.lazily

    def fewer(self) -> Iterator[OfTables]:
        """Yield cases with one thing less."""
        if self.dictionary:
            yield replace(self, dictionary=False)
        yield from (replace(self, case=case) for case in self.case.fewer())

    def __str__(self) -> str:
        return f"# of {self.libraries}, dictionary={self.dictionary}\n{self.case}"

    def tables(self) -> list[Any]:
        """Return the frames in their libraries."""
        case = self.case
        frames = case.frames() if isinstance(case, Merge) else (case.frame(),)
        return [
            _as_table(frame, library, dictionary=self.dictionary)
            for frame, library in zip(frames, self.libraries, strict=False)
        ]


def of_tables(case: Merge | Groupby, random: Random) -> Any:
    """Return a case with frames of other libraries, or as it is where Arrow has no such keys."""
    if isinstance(case, Merge):
        if case.named == "index":
            case = replace(case, named="on")
        labels = [*case.by.get("on", ()), *case.by.get("left_on", ()), *case.by.get("right_on", ())]
        sides = [_with_arrow_kinds(side) for side in (case.left, case.right)]
        whole = [
            {*side} >= {*labels} & {*drawn}
            for side, drawn in zip(sides, (case.left, case.right), strict=True)
        ]
        if not all(whole):
            return case
        case = replace(case, left=sides[0], right=sides[1])
    else:
        columns = _with_arrow_kinds(case.columns)
        hows = tuple(how for how in case.hows if how in _VERBS)
        if columns.keys() != case.columns.keys() or not hows:
            return case
        case = replace(case, columns=columns, hows=hows)
    libraries = random.choice(LIBRARIES), random.choice([*LIBRARIES, "pandas"])
    return OfTables(case, libraries, random.random() < 0.3)


def _with_arrow_kinds(columns: dict[str, Column]) -> dict[str, Column]:
    """Return the columns that Arrow has, of kinds of Arrow."""
    made = {}
    for label, column in columns.items():
        kind = _arrow_kind(column.kind)
        pairs = [pair for pair in column.drawn if pair is not None]
        if kind in KINDS and all(KINDS[kind].pool(pair[0], [pair[1]]) for pair in pairs):
            made[label] = Column(kind, column.drawn)
    return made


def _arrow_kind(kind: str) -> str:
    if kind in _ARROW:
        return f"arrow {_ARROW[kind]}"
    unit = kind.rstrip("]").replace("[", " ").partition(" ")[2]
    for start, arrow in (
        ("M8[", f"timestamp('{unit}')"), ("m8[", f"duration('{unit}')"),
        ("zoned", f"timestamp('{unit}', 'Europe/Berlin')"),
    ):  # fmt: skip
        if kind.startswith(start):
            return f"arrow {arrow}"
    return kind if kind.startswith("arrow ") else f"arrow {kind.lower()}()"


def _as_table(frame: pd.DataFrame, library: str, *, dictionary: bool) -> Any:
    if library == "pandas":
        return frame
    columns = {}
    for label in frame:
        column = pa.chunked_array(frame[label].array.__arrow_array__())
        text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        columns[label] = column.dictionary_encode() if dictionary and text else column
    table = pa.table(columns)
    return pl.from_arrow(table) if library == "polars" else table


def _columns(made: Any) -> dict[str, pd.Series]:
    """Return the columns of a result as Series of Arrow's dtypes."""
    table = made.to_arrow() if isinstance(made, pl.DataFrame) else made
    columns = {}
    for label, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        for views, plain in (
            ("string_view", pa.large_string()),
            ("binary_view", pa.large_binary()),
        ):
            if str(column.type) == views:
                column = column.cast(plain)
        columns[label] = pd.Series(pd.array(column, dtype=pd.ArrowDtype(column.type)))
    return columns


def _rows(columns: dict[str, pd.Series]) -> tuple[Rows, list[bool]]:
    floats = [oracle.is_float(column.dtype) for column in columns.values()]
    return list(zip(*map(read, columns.values()), strict=True)), floats


def failure(given: OfTables) -> str:
    """Return what is wrong with a case, empty for nothing."""
    if isinstance(given.case, Merge):
        return _merge_failure(given, given.case)
    return _groupby_failure(given, given.case)


def _merge_failure(given: OfTables, case: Merge) -> str:
    left, right = case.frames()
    wanted = merges.wanted_of(case, left, right)
    sides = given.tables()
    ours = Outcome.of(lambda: dgpuhash.merge(*sides, case.how, **case.by, **case.options))
    if ours.error is not None:
        if not isinstance(ours.error, DgpuhashError):
            return f"an error of another library: {ours.told}"
        return "" if _may_refuse(case, left, right, wanted) else f"refused: {ours.told}"
    if not isinstance(ours.made, (pl.DataFrame, pa.Table)[LIBRARIES.index(given.libraries[0])]):
        return f"a {type(ours.made).__name__}"
    columns = _columns(ours.made)
    origins = columns.pop("_merge", None)
    if list(columns) != wanted.labels:
        return f"columns {list(columns)}, not {wanted.labels}"
    if (origins is None) == case.options.get("indicator", False):
        return "the indicator is not there"
    rows, floats = _rows(columns)
    if reason := oracle.difference(rows, wanted.rows, floats):
        return reason
    for side, frame in zip(sides, (left, right), strict=True):
        labels = [label for label in frame if label in "abcd" and label in columns]
        stored = _columns(_arrow_of(side))
        for label in labels:
            if not _same_type(columns[label].dtype, stored[label].dtype):
                return f"{label} is {columns[label].dtype}, not {stored[label].dtype}"
    return ""


def _arrow_of(side: Any) -> Any:
    return _as_table(side, "pyarrow", dictionary=False) if isinstance(side, pd.DataFrame) else side


def _same_type(found: Any, wanted: Any) -> bool:
    """Return whether two dtypes hold the same values; polars has no seconds, and one text."""
    texts = {"string[pyarrow]", "large_string[pyarrow]", "string"}
    if str(found) in texts:
        return str(wanted) in texts
    same = found == wanted or found.pyarrow_dtype == getattr(wanted, "pyarrow_dtype", None)
    binary = {"binary[pyarrow]", "large_binary[pyarrow]"}
    return same or {str(found), str(wanted)} <= binary or found.kind == wanted.kind in "mM"


def _may_refuse(case: Merge, left: Any, right: Any, wanted: Any) -> bool:
    """Return whether keys have no value in common, or no type holds all of them."""
    for ours, theirs in case.key_labels():
        domains = [{*KINDS[side[label].kind].domains} for side, label in
                   ((case.left, ours), (case.right, theirs))]  # fmt: skip
        dtypes = left[ours].dtype, right[theirs].dtype
        if not domains[0] & domains[1] or (dtypes[0].kind == "b") != (dtypes[1].kind == "b"):
            return True
        if dtypes[0] != dtypes[1] and case.how in ("right", "outer", "right_anti"):
            values = [*read(left[ours]), *read(right[theirs])]
            # Arrow has no float of greater integers.
            if not all(_is_small(value) for value in values):
                return True
        if dtypes[0] != dtypes[1] and dtypes[0].kind in "mM":
            # No unit may hold the values of both.
            both = [*read(left[ours]), *read(right[theirs])]
            if not all(value == NULL or fits(value.value, "ns") for value in both):
                return True
    return False


def _is_small(value: Value) -> bool:
    if value.domain != "number" or value.value is NAN or value.type == "float":
        return True
    return bool(abs(value.value) <= 2**53)


def _groupby_failure(given: OfTables, case: Groupby) -> str:
    frame, (table, *_) = case.frame(), given.tables()
    for how in case.hows:
        theirs = Outcome.of(lambda how=how: groupbys.call(_pandas_groups(case, frame), how))
        ours = Outcome.of(
            lambda how=how: groupbys.call(dgpuhash.groupby(table, case.by, **case.options), how)
        )
        if ours.error is not None:
            if not isinstance(ours.error, (DgpuhashError, type(theirs.error))):
                return f"{how}: an error of another library: {ours.told}"
            void = theirs.error is not None or not len(theirs.made)
            # Categories have no order, and none are added up.
            void |= given.dictionary and isinstance(ours.error, KeyTypeError)
            if not void and not isinstance(ours.error, UnsupportedError):
                return f"{how}: refused: {ours.told}"
            continue
        if how in ("any", "all") and any(value.value is NAN for value in read(frame["v"])):
            # Whether NaN is true is no matter of a rule.
            continue
        rows, floats = _rows(_columns(ours.made))
        rows = [_without_nan(row) for row in rows]
        right = Outcome() if theirs.error else Outcome.of(
            lambda how=how, theirs=theirs: groupbys.rule(case, frame, how, theirs.made)
        )  # fmt: skip
        near = 1e-6 if any("float[" in str(each.dtype) for each in _columns(ours.made).values()) \
            else 1e-9  # fmt: skip
        ways = [] if theirs.error is not None else [groupbys.rows_of(theirs.made)[0]]
        ways += [right.made] if right.error is None and right.made is not None else []
        # polars has no seconds.
        tick = 10**9 if how in ("median", "std", "sem", "mean") else None
        reasons = [
            oracle.difference(rows, list(map(_without_nan, each)), [True] * len(floats),
                              near=near, tick=tick)
            for each in ways
        ]  # fmt: skip
        if ways and all(reasons):
            return f"{how}: {reasons[-1]}"
    return ""


def _pandas_groups(case: Groupby, frame: pd.DataFrame) -> Any:
    return frame.groupby(case.by, observed=True, **case.options)


def _without_nan(row: oracle.Row) -> oracle.Row:
    """Return a row with nulls for NaN: polars has the one where pandas has the other."""
    return tuple(NULL if isinstance(v, Value) and v.value is NAN else v for v in row)
