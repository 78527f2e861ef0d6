"""Groupbys that are drawn, on one device and on Dask, beside pandas and plain Python."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from random import Random
from typing import Any

import dask
import numpy as np
import pandas as pd

import dgpuhash
from dgpuhash.distributed import DistributedGroupBy
from dgpuhash.errors import DgpuhashError, UnsupportedError
from suites.generated import frames, oracle
from suites.generated.columns import (
    KINDS,
    NAN,
    NULL,
    POOLS,
    UNITS,
    Column,
    Value,
    draw_column,
    draw_pool,
    read,
)
from suites.raising import no_other_engine

__all__ = ["BETWEEN", "Groupby", "draw_groupby", "failure"]

# Verbs of the groups of a column, by name, with their arguments.
REDUCTIONS: dict[str, tuple[Any, ...]] = {
    "count": (), "size": (), "sum": (), "prod": (), "mean": (), "median": (), "var": (), "std": (),
    "sem": (), "min": (), "max": (), "first": (), "last": (), "any": (), "all": (), "nunique": (),
    "idxmin": (), "idxmax": (), "quantile": (0.3,),
}  # fmt: skip
OTHERS: dict[str, tuple[Any, ...]] = {
    "head": (2,), "tail": (1,), "nth": (0,), "nlargest": (2,), "nsmallest": (1,), "unique": (),
    "value_counts": (), "cov": (), "corr": (), "agg": (list,),
}  # fmt: skip
TRANSFORMS = ("sum", "mean", "count", "min", "first", "nunique", "size")
STATES = ("size", "count", "sum", "mean", "var", "std", "sem", "prod", "min", "max", "first",
          "last", "any", "all")  # fmt: skip
RETRACTABLE = {"count", "size", "sum", "mean", "var", "std", "sem"}
# What has a rule, and how far floats may be off.
_NEAR = {"var": 1e-9, "std": 1e-9, "sem": 1e-9, "cov": 1e-9, "corr": 1e-9}
_FLOAT32_NEAR = 1e-6
# What may be off by a rounding of moments, too.
BETWEEN = ("quantile", "median", "std", "sem")


@dataclass(frozen=True)
class Groupby:
    """A groupby that is drawn.

    Attributes
    ----------
    columns : dict
        Columns by their labels: keys are `k` and `j`, values `v` and `w`.
    hows : tuple of str
        Verbs; ``"transform sum"`` for transforms.
    options : dict
        More arguments of the groupby.
    lazily : Lazily
        How Dask gets the frames.
    """

    columns: dict[str, Column]
    hows: tuple[str, ...]
    options: dict[str, Any]
    lazily: frames.Lazily

    def frame(self) -> pd.DataFrame:
        """Return the frame."""
        return frames.frame_of(self.columns)

    @property
    def by(self) -> list[str]:
        """The labels of the keys."""
        return [label for label in self.columns if label in "kj"]

    def fewer(self) -> Iterator[Groupby]:
        """Yield groupbys with one thing less."""
        if len(self.hows) > 1:
            yield from (replace(self, hows=(how,)) for how in self.hows)
        for label in "jw":
            if label in self.columns and not (label == "w" and {"cov", "corr"} & set(self.hows)):
                left = {name: each for name, each in self.columns.items() if name != label}
                yield replace(self, columns=left)
        yield from (replace(self, columns=some) for some in frames.fewer_rows(self.columns))
        for option in self.options:
            left = {name: each for name, each in self.options.items() if name != option}
            yield replace(self, options=left)
        yield from (replace(self, lazily=plainer) for plainer in self.lazily.fewer())

    def __str__(self) -> str:
        more = "".join(f", {name}={value!r}" for name, value in self.options.items())
        lines = [f"p = {frames.frame_code(self.columns)}"]
        for how in self.hows:
            chosen = _column(how)
            name, _, other = how.partition(" ")
            given = repr(other) if other else ", ".join(
                "list" if each is list else repr(each) for each in arguments(how)
            )  # fmt: skip
            lines.append(f"dgpuhash.groupby(p, {self.by}{more})[{chosen!r}].{name}({given})")
        return "\n".join(lines) + str(self.lazily)


def _column(how: str) -> Any:
    return ["v", "w"] if how in ("cov", "corr") else "v"


def arguments(how: str) -> tuple[Any, ...]:
    """Return the arguments of a verb."""
    if how.startswith("transform "):
        return (how.partition(" ")[2],)
    return REDUCTIONS.get(how, OTHERS.get(how, ()))


def call(groups: Any, how: str) -> Any:
    """Return the answer of a verb of groups, of ours, pandas' or Dask's."""
    return getattr(groups[_column(how)], how.partition(" ")[0])(*arguments(how))


def draw_groupby(random: Random, verbs: int) -> Groupby:
    """Return a groupby with drawn columns and so many verbs."""
    rows = random.choice([0, 1, 4, 8, 12])
    domain = random.choice(list(POOLS))
    kind = random.choice([kind for kind in KINDS.values() if domain in kind.domains])
    nulls = random.choice([0, 0.2, 0.6])
    columns = {"k": draw_column(random, kind, draw_pool(random, domain, [kind]), rows, nulls)}
    if random.random() < 0.3:
        other = KINDS[random.choice(["int64", "str", "Int8", "M8[s]", "category str", "bool"])]
        few = [("number", 1), ("number", 0), ("text", "a"), ("text", "b"), ("naive", 0)]
        columns["j"] = draw_column(random, other, few, rows, nulls)
    value = random.choice(list(KINDS.values()))
    some = draw_pool(random, random.choice(value.domains), [value])
    columns["v"] = draw_column(random, value, some, rows, random.choice([0, 0.3]))
    able = [*REDUCTIONS, *REDUCTIONS, *OTHERS, *(f"transform {name}" for name in TRANSFORMS)]
    hows = tuple(dict.fromkeys(random.choices(able, k=verbs)))
    if {"cov", "corr"} & set(hows):
        numbers = [kind for kind in KINDS.values() if kind.domains == ("number",)]
        other = random.choice(numbers)
        pool = draw_pool(random, "number", [other])
        columns["w"] = draw_column(random, other, pool, rows, random.choice([0, 0.3]))
    options: dict[str, Any] = {}
    for name, share in (("dropna", 0.3), ("sort", 0.15)):
        if random.random() < share:
            options[name] = False
    return Groupby(columns, hows, options, frames.Lazily.draw(random))


Rows = list[oracle.Row]


def rows_of(result: Any) -> tuple[Rows, list[bool]]:
    """Return labels and values of each row of a result, and which of them are floats."""
    levels = [result.index.get_level_values(level) for level in range(result.index.nlevels)]
    columns = [result] if result.ndim == 1 else [result.iloc[:, i] for i in range(result.shape[1])]
    arrays = [*levels, *columns]
    values = [read(array) for array in arrays]
    return list(zip(*values, strict=True)), [oracle.is_float(array.dtype) for array in arrays]


def near_of(how: str, result: Any) -> float:
    """Return how far floats of a result may be off."""
    columns = [result] if result.ndim == 1 else [result.iloc[:, i] for i in range(result.shape[1])]
    if any(getattr(column.dtype, "itemsize", 8) == 4 for column in columns):
        return _FLOAT32_NEAR
    if any(str(column.dtype) in ("float[pyarrow]", "Float32") for column in columns):
        return _FLOAT32_NEAR
    return _NEAR.get(how.partition(" ")[2] or how, 1e-12)


def rule(case: Groupby, frame: pd.DataFrame, how: str, result: Any) -> Rows | None:
    """Return the rows that plain Python has for a verb, None where it has no rule.

    Parameters
    ----------
    result : Series
        Tells the dtype of the values, which says how dates and spans are cut.
    """
    if result.ndim != 1 or how in ("head", "tail", "nth", "value_counts", "nlargest", "nsmallest"):
        return None
    groups, keys = _groups(case, frame)
    values, labels = read(frame["v"]), read(frame.index)
    verb = how.removeprefix("transform ")
    if frame["v"].dtype == np.dtype(object) and verb in ("sum", "prod"):
        verb = f"{verb} of objects"
    made: dict[Any, Value] = {}
    for name, (_, rows) in groups.items():
        found = oracle.aggregate(verb, [values[row] for row in rows])
        if found is NotImplemented:
            return None
        if how in ("idxmin", "idxmax"):
            # Of a value its place in the group.
            found = labels[rows[found]]
        made[name] = _cut_to_unit(found, result.dtype)
    if not how.startswith("transform "):
        return [(*groups[name][0], value) for name, value in made.items()]
    of_rows = [made.get(tuple(part.key for part in key), NULL) for key in keys]
    return list(zip(labels, of_rows, strict=True))


def _groups(
    case: Groupby, frame: pd.DataFrame
) -> tuple[dict[Any, tuple[oracle.Row, list[int]]], Rows]:
    """Return the key and the rows of each group, and the keys of all rows."""
    groups: dict[Any, tuple[oracle.Row, list[int]]] = {}
    keys = list(zip(*(read(frame[label]) for label in case.by), strict=True))
    drops = case.options.get("dropna", True)
    for row, key in enumerate(keys):
        if not (drops and NULL in key):
            groups.setdefault(tuple(part.key for part in key), (key, []))[1].append(row)
    return groups, keys


def _with_endless(case: Groupby, frame: pd.DataFrame, rows: Rows) -> Rows:
    """Return pandas' covariances, null where an infinity takes part.

    pandas leaves infinities out, but only of groups in which something is null.
    """
    groups, labels = _groups(case, frame)[0], ("v", "w")
    columns = {label: read(frame[label]) for label in labels}

    def endless(key: oracle.Row, *pair: str) -> bool:
        of_group = groups[tuple(part.key for part in key)][1]
        both = [[columns[label][row].value for label in pair] for row in of_group]
        return any(
            None not in values and NAN not in values and {math.inf, -math.inf} & {*values}
            for values in both
        )

    return [
        (*row[:-2], *(NULL if endless(row[:-3], row[-3].value, label) else value
                      for label, value in zip(labels, row[-2:], strict=True)))
        for row in rows
    ]  # fmt: skip


def _cut_to_unit(value: Value, dtype: Any) -> Value:
    """Return a moment or span that is a fraction, cut towards zero to the unit of a dtype."""
    if not isinstance(value.value, Fraction):
        return value
    size = size_of_unit(dtype)
    return value._replace(value=int(value.value / size) * size)


def size_of_unit(dtype: Any) -> int:
    """Return the nanoseconds of the unit of moments or spans, 1 for other dtypes."""
    if isinstance(dtype, pd.ArrowDtype):
        return UNITS[getattr(dtype.pyarrow_dtype, "unit", "ns")]
    if getattr(dtype, "kind", "O") in "mM":
        return UNITS[getattr(dtype, "unit", None) or np.datetime_data(dtype)[0]]
    return 1


def failure(case: Groupby, client: Any = None, *, standing: bool = False) -> str:
    """Return what is wrong with a groupby, empty for nothing.

    On one device, and with a client also in five cuts on Dask, or as groups that stand.
    """
    frame = case.frame()
    answers: dict[str, frames.Outcome] = {}
    for how in case.hows:
        theirs = frames.Outcome.of(
            lambda how=how: call(frame.groupby(case.by, **_pandas(case)), how)
        )
        with no_other_engine():
            ours = frames.Outcome.of(
                lambda how=how: call(dgpuhash.groupby(frame, case.by, **case.options), how)
            )
        if reason := _device_failure(case, frame, how, ours, theirs):
            return f"{how}: {reason}"
        answers[how] = ours
    if client is None:
        return ""
    if standing:
        return _standing_failure(case, frame)
    return _lazy_failure(case, frame, answers)


def _is_no_number(frame: pd.DataFrame, how: str) -> bool:
    """Return whether a verb of two columns gets one that is no plain column of numbers."""
    kinds = [
        str(getattr(frame[label].dtype, "kind", "O")) for label in ("v", "w") if label in frame
    ]
    return how in ("cov", "corr") and not set(kinds) <= set("iufb")


def _pandas(case: Groupby) -> dict[str, Any]:
    return {"observed": True, **case.options}


def _device_failure(
    case: Groupby, frame: pd.DataFrame, how: str, ours: frames.Outcome, theirs: frames.Outcome
) -> str:
    if ours.error is not None:
        if not isinstance(ours.error, (DgpuhashError, type(theirs.error))):
            return f"an error of another library: {ours.told}"
        if theirs.error is not None or isinstance(ours.error, UnsupportedError):
            return ""
        if how in ("idxmin", "idxmax") and NAN in [each.value for each in read(frame["v"])]:
            # pandas has the place of a NaN where a group has nothing else.
            return ""
        # Of no groups, and of some objects, pandas has every aggregate.
        keys = zip(*(read(frame[label]) for label in case.by), strict=True)
        none = case.options.get("dropna", True) and all(NULL in key for key in keys)
        void = none or not len(theirs.made) or getattr(frame["v"].dtype, "kind", "O") == "O"
        return "" if void or _is_no_number(frame, how) else f"refused: {ours.told}"
    wanted = rule(case, frame, how, ours.made)
    near = near_of(how, ours.made)
    tick = size_of_unit(ours.made.dtype) if how in BETWEEN else None
    rows, floats = rows_of(ours.made)
    if wanted is not None and (
        reason := oracle.difference(rows, wanted, floats, near=near, tick=tick)
    ):
        return f"{ours.made.dtype}: {reason}"
    if theirs.error is not None:
        return ""
    if not len(theirs.made):
        # Labels and dtypes of no groups are whatever pandas' code path leaves.
        return f"{len(rows)} rows, in pandas none" if rows else ""
    pandas, theirs_floats = rows_of(theirs.made)
    if how == "cov":
        pandas = _with_endless(case, frame, pandas)
    if _changes_keys(case, frame, how, pandas):
        return ""
    if wanted is not None and oracle.difference(
        pandas, wanted, theirs_floats, near=near, tick=tick
    ):
        return _unlike_dtypes(ours.made, theirs.made)
    if reason := oracle.difference(rows, pandas, floats, near=near, tick=tick):
        return f"unlike pandas: {reason}"
    return _unlike(ours.made, theirs.made, how)


def _unlike(found: Any, wanted: Any, how: str) -> str:
    """Return how a result with pandas' rows differs from it: order, labels and dtypes."""
    if reason := _unlike_dtypes(found, wanted):
        return reason
    ours, theirs = rows_of(found)[0], rows_of(wanted)[0]
    labels = [[row[: found.index.nlevels] for row in rows] for rows in (ours, theirs)]
    if how == "value_counts":
        # pandas sorts a group's values of one count by NumPy's quicksort: by chance of processors.
        labels = [[(*row[:-2], row[-1]) for row in rows] for rows in (ours, theirs)]
    if any(len({one.domain for one in level}) > 1 for level in zip(*labels[1], strict=True)):
        # pandas has no order of its own for texts beside numbers, nor for nulls among objects.
        return ""
    if labels[0] != labels[1]:
        return f"in another order than in pandas: {labels[0][:3]}, not {labels[1][:3]}"
    return ""


def _unlike_dtypes(found: Any, wanted: Any) -> str:
    if type(found) is not type(wanted):
        return f"a {type(found).__name__}, in pandas a {type(wanted).__name__}"
    if found.ndim == 1 and found.name != wanted.name:
        return f"called {found.name!r}, in pandas {wanted.name!r}"
    if found.ndim == 1 and found.dtype in (object, "float32", "Float32", "float[pyarrow]"):
        # Whether pandas has float64 depends on the values.
        # So it does for objects.
        wanted = wanted.astype(found.dtype)
    reason = frames.unlike_meta(found, wanted)
    return reason.replace("in meta", "in pandas").replace("meta has", "in pandas")


# On Dask.


def _lazy_failure(case: Groupby, frame: pd.DataFrame, answers: dict[str, frames.Outcome]) -> str:
    parts = frames.cuts(frame, frame["k"])
    asked = {
        (cut, how): frames.Outcome.of(
            lambda cut=cut, how=how: call(
                dgpuhash.groupby(case.lazily.of(parts[cut]), case.by, **case.options),
                how,
            )
        )
        for cut in frames.CUTS
        for how in case.hows
    }
    lazily = {each: made for each, made in asked.items() if made.error is None}
    for each, found in computed(lazily).items():
        if reason := _cut_failure(each[1], answers[each[1]], lazily[each].made._meta, found):
            return f"Dask, {each[1]}, cut {each[0]}: {reason}"
    for each, made in asked.items():
        if made.error is not None and (reason := _refusal(answers[each[1]], made)):
            return f"Dask, {each[1]}, cut {each[0]}: {reason}"
    return ""


def computed(asked: dict[Any, frames.Outcome]) -> dict[Any, frames.Outcome]:
    """Return the partitions of lazy frames, computed at once unless one fails."""
    found = frames.Outcome.of(
        lambda: dask.compute(*[made.made.to_delayed().tolist() for made in asked.values()])
    )
    if found.error is None:
        return {each: frames.Outcome(parts) for each, parts in zip(asked, found.made, strict=True)}
    return {
        each: frames.Outcome.of(lambda made=made: dask.compute(*made.made.to_delayed()))
        for each, made in asked.items()
    }


def _refusal(device: frames.Outcome, found: frames.Outcome) -> str:
    if not isinstance(found.error, (DgpuhashError, type(device.error))):
        return f"an error of another library: {found.told}"
    if device.error is not None or isinstance(found.error, UnsupportedError):
        return ""
    return f"refused: {found.told}"


def _changes_keys(case: Groupby, frame: pd.DataFrame, how: str, rows: Rows) -> bool:
    """Return whether pandas rounds keys that are objects, or miscounts values beside null keys."""
    if how == "value_counts":
        values = read(frame["v"])
        if isinstance(frame["v"].dtype, pd.CategoricalDtype):
            # Of groups with null keys nulls are counted as the last category.
            changed = NULL in values and not case.options.get("dropna", True)
        else:
            changed = bool({row[len(case.by)] for row in rows} - set(values))
        return changed or any(NULL in read(frame[label]) for label in case.by)
    if how in ("head", "tail", "nth") or how.startswith("transform "):
        return False
    for place, label in enumerate(case.by):
        known = set(read(frame[label]))
        if frame[label].dtype == np.dtype(object) and {row[place] for row in rows} - known:
            return True
    return False


def guessed(meta: Any) -> set[str]:
    """Return ``"labels"`` where keys are objects, whose dtype pandas guesses for labels."""
    levels = [meta.index.get_level_values(level) for level in range(meta.index.nlevels)]
    return {"labels"} if any(getattr(level.dtype, "kind", "") == "O" for level in levels) else set()


def _cut_failure(how: str, device: frames.Outcome, meta: Any, found: frames.Outcome) -> str:
    if found.error is not None:
        return _refusal(device, found)
    if device.error is not None:
        return f"answered, and one device refuses: {device.told}"
    rows: Rows = []
    for number, part in enumerate(found.made):
        if reason := frames.unlike_meta(part, meta):
            return f"partition {number}: {reason}"
        some, floats = rows_of(part)
        rows += some
    wanted, wanted_floats = rows_of(device.made)
    both = [one or two for one, two in zip(floats, wanted_floats, strict=True)]
    return oracle.difference(rows, wanted, both, near=near_of(how, device.made))


def _standing_failure(case: Groupby, frame: pd.DataFrame) -> str:
    """Return what is wrong with groups that rows are added to and taken off again."""
    hows = [how for how in case.hows if how in STATES] or ["count", "sum"]
    options = {name: value for name, value in case.options.items() if name in ("dropna", "sort")}
    third = len(frame) // 3
    batches = [frame.iloc[:third], frame.iloc[third : 2 * third], frame.iloc[2 * third :]]
    named = {how: ("v", how) for how in hows}

    def device(rows: pd.DataFrame) -> frames.Outcome:
        return frames.Outcome.of(
            lambda: dgpuhash.groupby(rows, case.by, **case.options).agg(**named)
        )

    def standing(take: pd.DataFrame | None) -> Any:
        state = DistributedGroupBy.build(batches[0], case.by, named, **options)
        try:
            for batch in batches[1:]:
                state.update(batch)
            if take is not None:
                state.retract(take)
            lazily = state.result()
            parts = dask.compute(*lazily.to_delayed())
            unlike = [frames.unlike_meta(part, lazily._meta) for part in parts]
            return [reason for reason in unlike if reason], lazily.compute()
        finally:
            state.close()

    tries = [("update", frame, None)]
    if set(hows) <= RETRACTABLE:
        tries.append(("retract", frame.drop(batches[1].index), batches[1]))
    for verb, rows, take in tries:
        wanted, found = device(rows), frames.Outcome.of(lambda take=take: standing(take))
        if found.error is not None:
            if "cannot be a key" in found.told:
                # As of an index, which has an encoding for each dtype that it takes.
                continue
            if reason := _refusal(wanted, found):
                return f"{verb}, {hows}: {reason}"
            continue
        if wanted.error is not None:
            return f"{verb}, {hows}: answered, and one device refuses: {wanted.told}"
        unlike, made = found.made
        if unlike:
            return f"{verb}, {hows}: {unlike[0]}"
        ours, floats = rows_of(made)
        theirs, more = rows_of(wanted.made)
        both = [one or two for one, two in zip(floats, more, strict=True)]
        near = max(1e-6 if verb == "retract" else 0.0, *(near_of(how, made) for how in hows))
        if reason := oracle.difference(ours, theirs, both, near=near):
            return f"{verb}, {hows}: {reason}"
    return ""
