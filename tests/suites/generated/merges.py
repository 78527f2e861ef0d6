"""Merges that are drawn, on one device and on Dask, beside pandas and plain Python."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import dask
import numpy as np
import pandas as pd

import dgpuhash
from dgpuhash.errors import DgpuhashError
from suites.generated import oracle
from suites.generated.columns import (
    KINDS,
    POOLS,
    Column,
    draw_column,
    draw_pool,
    read,
)
from suites.generated.frames import (
    CUTS,
    Lazily,
    Outcome,
    cuts,
    fewer_rows,
    frame_code,
    frame_of,
    unlike_meta,
)
from suites.raising import no_other_engine

__all__ = ["Merge", "draw_merge", "failure"]

HOWS = ("inner", "left", "right", "outer", "semi", "anti", "left_anti", "right_anti")
NAMED = ("on", "names", "index", "two")


@dataclass(frozen=True)
class Merge:
    """A merge that is drawn.

    Attributes
    ----------
    left, right : dict
        Each column by its label; keys are called `k`, `j` and, of the right side
        where the names differ, `l`.
    how, named : str
    options : dict
        More arguments of ours.
    lazily : Lazily
        How Dask gets the frames.
    """

    left: dict[str, Column]
    right: dict[str, Column]
    how: str
    named: str
    options: dict[str, Any]
    lazily: Lazily

    def frames(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return both sides."""
        sides = [frame_of(side) for side in (self.left, self.right)]
        if self.named == "index":
            sides = [side.set_index("k") for side in sides]
        return sides[0], sides[1]

    @property
    def by(self) -> dict[str, Any]:
        """The arguments that name the keys."""
        return {
            "on": {"on": "k"},
            "names": {"left_on": "k", "right_on": "l"},
            "two": {"on": ["k", "j"]},
            "index": {"left_index": True, "right_index": True},
        }[self.named]

    def key_labels(self) -> list[tuple[str, str]]:
        """Return the labels of the keys of both sides."""
        return {
            "on": [("k", "k")], "index": [("k", "k")], "names": [("k", "l")],
            "two": [("k", "k"), ("j", "j")],
        }[self.named]  # fmt: skip

    def fewer(self) -> Iterator[Merge]:
        """Yield merges with one thing less."""
        keys = self.key_labels()
        for side, number in (("left", 0), ("right", 1)):
            columns = getattr(self, side)
            for label in columns:
                if label not in {pair[number] for pair in keys}:
                    yield replace(self, **{side: {k: v for k, v in columns.items() if k != label}})
            yield from (replace(self, **{side: some}) for some in fewer_rows(columns))
        for option in self.options:
            yield replace(self, options={k: v for k, v in self.options.items() if k != option})
        yield from (replace(self, lazily=plainer) for plainer in self.lazily.fewer())

    def __str__(self) -> str:
        sides = [
            frame_code(side) + (".set_index('k')" if self.named == "index" else "")
            for side in (self.left, self.right)
        ]
        more = "".join(f", {k}={v!r}" for k, v in {**self.by, **self.options}.items())
        return (
            f"p = {sides[0]}\nq = {sides[1]}\ndgpuhash.merge(p, q, {self.how!r}{more}){self.lazily}"
        )


def draw_merge(random: Random) -> Merge:
    """Return a merge with drawn columns."""
    domain = random.choice(list(POOLS))
    able = [kind for kind in KINDS.values() if domain in kind.domains]
    ours = random.choice(able)
    theirs = ours if random.random() < 0.3 else random.choice(able)
    if random.random() < 0.05:
        theirs = random.choice(list(KINDS.values()))
    pool = draw_pool(random, domain, [kind for kind in (ours, theirs) if domain in kind.domains])
    named, rows = random.choice(NAMED), [random.choice([0, 1, 3, 6, 12]) for _ in range(2)]
    nulls = random.choice([0, 0, 0.2, 0.6, 1])
    sides: list[dict[str, Column]] = []
    names = ("k", "l" if named == "names" else "k")
    for name, kind, n, values in zip(names, (ours, theirs), rows, ("ab", "cd"), strict=True):
        side = {name: draw_column(random, kind, pool, n, nulls)}
        if named == "two":
            other = KINDS[random.choice(["int64", "str", "Int8", "M8[s]", "object mixed"])]
            few = [("number", 1), ("text", "a"), ("naive", 0)]
            side["j"] = draw_column(random, other, few, n, nulls)
        for label in values[: random.choice([0, 1, 2])]:
            stored = random.choice(list(KINDS.values()))
            some = draw_pool(random, random.choice(stored.domains), [stored])
            side[label] = draw_column(random, stored, some, n, random.choice([0, 0.3]))
        sides.append(side)
    options: dict[str, Any] = {}
    how = random.choice(HOWS)
    if how not in ("semi", "anti") and random.random() < 0.1:
        options["indicator"] = True
    if random.random() < 0.1:
        options["nulls_equal"] = False
    return Merge(sides[0], sides[1], how, named, options, Lazily.draw(random))


@dataclass(frozen=True)
class Wanted:
    """What a merge is by plain Python, with pandas' order and dtypes.

    Attributes
    ----------
    labels : list of str
        Of the columns; labels of rows come first where they are keys.
    rows : list of tuple of Value
    pandas : Outcome
    """

    labels: list[str]
    rows: list[oracle.Row]
    pandas: Outcome


def wanted_of(case: Merge, left: pd.DataFrame, right: pd.DataFrame) -> Wanted:
    """Return what is to come out."""
    columns = [columns_of(case, side) for side in (left, right)]
    keys = case.key_labels()
    found = oracle.pairs(
        [columns[0][ours] for ours, _ in keys],
        [columns[1][theirs] for _, theirs in keys],
        case.how,
        nulls_equal=case.options.get("nulls_equal", True),
    )
    values = [{label: read(column) for label, column in side.items()} for side in columns]
    if case.how in ("semi", "anti"):
        values[1] = {}
    labels = list(dict.fromkeys([*values[0], *values[1]]))
    both = [(values[0].get(label, []), values[1].get(label, [])) for label in labels]
    # Labels of right merges are those of the right side.
    right_first = case.how == "right" and case.named == "index"
    rows = oracle.merged_rows(both, found, right_first=right_first)
    return Wanted(labels, rows, pandas_of(case, left, right))


def pandas_of(case: Merge, left: pd.DataFrame, right: pd.DataFrame) -> Outcome:
    """Return the merge by pandas."""
    if "nulls_equal" in case.options:
        return Outcome(error=NotImplementedError("pandas has no nulls_equal"))
    options = {**case.by, **case.options}
    if case.how not in ("semi", "anti"):
        return Outcome.of(lambda: left.merge(right, case.how, **options))

    def filtered() -> pd.DataFrame:
        found = left.assign(row=range(len(left))).merge(right, "inner", **options)["row"]
        return left[pd.Series(range(len(left))).isin(found).to_numpy() == (case.how == "semi")]

    return Outcome.of(filtered)


def columns_of(case: Merge, frame: pd.DataFrame) -> dict[str, pd.Series]:
    """Return the columns of a side or result, with its labels where they are keys."""
    columns = {label: frame[label] for label in frame.columns if label != "_merge"}
    return (
        {"k": pd.Series(frame.index.array, dtype=frame.index.dtype), **columns}
        if case.named == "index"
        else columns
    )


def rows_of(case: Merge, frame: pd.DataFrame) -> tuple[list[str], list[oracle.Row], list[bool]]:
    """Return the labels of a result's columns, its rows, and which columns are floats."""
    columns = columns_of(case, frame)
    values = [read(column) for column in columns.values()]
    labels, floats = list(columns), [oracle.is_float(each.dtype) for each in columns.values()]
    return labels, list(zip(*values, strict=True)), floats


def failure(case: Merge, client: Any = None) -> str:
    """Return what is wrong with a merge, empty for nothing.

    On one device, and with a client also in five cuts on Dask.
    """
    left, right = case.frames()
    wanted = wanted_of(case, left, right)
    with no_other_engine():
        ours = Outcome.of(lambda: dgpuhash.merge(left, right, case.how, **case.by, **case.options))
    reason = _device_failure(case, left, right, wanted, ours)
    if reason or client is None:
        return reason
    return _lazy_failure(case, left, right, wanted, ours)


def _device_failure(
    case: Merge, left: pd.DataFrame, right: pd.DataFrame, wanted: Wanted, ours: Outcome
) -> str:
    pandas = wanted.pandas
    right_in_pandas = pandas.error is None and not _wrong(case, wanted, pandas.made)
    if ours.error is not None:
        if not isinstance(ours.error, (DgpuhashError, type(pandas.error))):
            return f"an error of another library: {ours.told}"
        if pandas.error is not None:
            return ""
        if right_in_pandas:
            return f"refused: {ours.told}"
        if "pandas has no dtype for the values of both" in ours.told:
            return ""
        return "" if _rounds(case, wanted, pandas.made) else f"refused, unrounded: {ours.told}"
    if reason := _wrong(case, wanted, ours.made):
        return reason
    if pandas.error is not None:
        return ""
    if right_in_pandas:
        return _unlike(case, ours.made, pandas.made)
    return ""


def _wrong(case: Merge, wanted: Wanted, made: pd.DataFrame) -> str:
    """Return how the values of a result differ from what is wanted."""
    labels, rows, floats = rows_of(case, made)
    if labels != wanted.labels:
        return f"columns {labels}, not {wanted.labels}"
    return oracle.difference(rows, wanted.rows, floats)


def _rounds(case: Merge, wanted: Wanted, made: pd.DataFrame) -> bool:
    """Return whether a wanted value is none of the dtype that the column of a result has."""
    _, _, floats = rows_of(case, made)
    return any(
        one and not oracle.exact_in_float(row[place])
        for row in wanted.rows
        for place, one in enumerate(floats)
    )


def _unlike(case: Merge, found: pd.DataFrame, wanted: pd.DataFrame) -> str:
    """Return how a frame of pandas' rows differs from its own: dtypes, labels, order."""
    if not len(wanted):
        # Of no rows pandas has the dtype of whichever side its code path leaves.
        return ""
    if reason := unlike_meta(found, wanted, free_keys(case, found, wanted)):
        return reason.replace("in meta", "in pandas").replace("meta has", "in pandas")
    if "_merge" in wanted and found["_merge"].tolist() != wanted["_merge"].tolist():
        return f"_merge is {found['_merge'].tolist()}, in pandas {wanted['_merge'].tolist()}"
    (_, ours, floats), (_, theirs, _) = rows_of(case, found), rows_of(case, wanted)
    keys = [row[: len(case.key_labels())] for row in theirs]
    if any(
        len({key.domain for key in column} - {"null"}) > 1 for column in zip(*keys, strict=True)
    ):
        # pandas has no order of its own for texts beside numbers.
        return ""
    if oracle.in_order(ours, theirs, floats):
        same = case.named == "index" or read(found.index) == read(wanted.index)
        return "" if same else f"labels {list(found.index)}, in pandas {list(wanted.index)}"
    sorted_alike = keys == [row[: len(case.key_labels())] for row in ours]
    if sorted_alike and case.named == "index" and not min(map(len, case.frames())):
        # pandas sorts labels beside none by a quicksort, which orders equal ones as the CPU does.
        return ""
    told = [[tuple(value.value for value in row[:2]) for row in rows] for rows in (ours, theirs)]
    return f"in another order than in pandas: {told[0][:4]}, not {told[1][:4]}"


def free_keys(case: Merge, found: pd.DataFrame, wanted: pd.DataFrame) -> set[str]:
    """Return the keys of two dtypes that may have our dtype, ``"labels"`` for those of rows."""
    left, right = case.frames()
    if case.named == "index":
        # Of objects pandas guesses the dtype.
        same = left.index.dtype == right.index.dtype and left.index.dtype != np.dtype(object)
        return set() if same else {"labels"}
    return {
        label
        for pair in case.key_labels()
        if left[pair[0]].dtype != right[pair[1]].dtype
        for label in {*pair} & {*wanted.columns} & {*found.columns}
        if _is_free(wanted[label].dtype, found[label].dtype)
    }


def _is_free(dtype: Any, found: Any) -> bool:
    """Return whether keys of two dtypes may have another one than pandas gives.

    Where pandas has objects, ours may have a dtype; and moments the finer unit, which pandas takes
    where it has moved rows.
    """
    moments = [getattr(each, "kind", "O") in "mM" for each in (dtype, found)]
    return getattr(dtype, "kind", "") == "O" or all(moments)


# On Dask.


def cuts_of(case: Merge, side: pd.DataFrame, number: int) -> dict[str, list[pd.DataFrame]]:
    """Return partitions of a side, the left one being number 0, by name of the cut."""
    label = case.key_labels()[0][number]
    return cuts(side, columns_of(case, side)["k"] if case.named == "index" else side[label])


def _lazy_failure(
    case: Merge, left: pd.DataFrame, right: pd.DataFrame, wanted: Wanted, device: Outcome
) -> str:
    ours, theirs = (cuts_of(case, side, number) for number, side in enumerate((left, right)))
    # The cuts of both sides come together in another way each.
    both = list(zip(CUTS, (*CUTS[1:], CUTS[0]), strict=True))
    merges = {
        cut: Outcome.of(
            lambda cut=cut: dgpuhash.merge(
                case.lazily.of(ours[cut[0]]),
                case.lazily.of(theirs[cut[1]]),
                case.how, **case.by, **case.options,
            )
        )
        for cut in both
    }  # fmt: skip
    lazily = {cut: made for cut, made in merges.items() if made.error is None}
    parts = Outcome.of(
        lambda: dask.compute(*[made.made.to_delayed().tolist() for made in lazily.values()])
    )
    computed = (
        {cut: Outcome(found) for cut, found in zip(lazily, parts.made, strict=True)}
        if parts.error is None
        else {
            cut: Outcome.of(lambda made=made: dask.compute(*made.made.to_delayed()))
            for cut, made in lazily.items()
        }
    )
    for cut in both:
        outcome = computed.get(cut, merges[cut])
        meta = None if outcome.error is not None else merges[cut].made._meta
        if reason := _cut_failure(case, left, right, wanted, device, meta, outcome):
            return f"Dask, cut {cut}: {reason}"
    return ""


def _cut_failure(
    case: Merge, left: Any, right: Any, wanted: Wanted, device: Outcome, meta: Any, found: Outcome
) -> str:
    empty = not (len(left) and len(right))
    if found.error is not None:
        if not isinstance(found.error, (DgpuhashError, type(wanted.pandas.error))):
            return f"an error of another library: {found.told}"
        if empty or device.error is not None or wanted.pandas.error is not None:
            return ""
        keys = [wanted.labels.index(label) for pair in case.key_labels() for label in pair
                if label in wanted.labels]  # fmt: skip
        # Keys of two dtypes may have none that holds all of them.
        if all(oracle.exact_in_float(row[place]) for row in wanted.rows for place in keys):
            return f"refused: {found.told}"
        return ""
    parts = list(found.made)
    for number, part in enumerate(parts):
        if reason := unlike_meta(part, meta):
            return f"partition {number}: {reason}"
    rows: list[oracle.Row] = []
    for part in parts:
        labels, some, floats = rows_of(case, part)
        if labels != wanted.labels:
            return f"columns {labels}, not {wanted.labels}"
        rows += some
    if reason := oracle.difference(rows, wanted.rows, floats):
        return reason
    return _lazy_dtypes(case, left, right, meta)


def _lazy_dtypes(case: Merge, left: pd.DataFrame, right: pd.DataFrame, meta: pd.DataFrame) -> str:
    """Return which column that is no key has another dtype than its side and `how` tell."""
    lacks = {
        "left": case.how in ("right", "outer", "right_anti"),
        "right": case.how in ("left", "outer", "left_anti"),
    }
    for side, frame in (("left", left), ("right", right)):
        for label in "abcd":
            if label in frame and label in meta:
                dtype = frame[label].dtype
                dtype = oracle.nullable_dtype(dtype) if lacks[side] else dtype
                if not oracle.same_dtype(meta[label].dtype, dtype):
                    return f"{label} is {meta[label].dtype}, not {dtype}"
    return ""
