"""Merge generated Dask frames with `dgpuhash.merge`, and compare each merge with pandas.

``python -m suites.generated_merge --cases 10000`` draws joins, kinds of keys, shares of nulls,
doubled keys, numbers of partitions and how keys are named. Values are compared after sorting, and
columns, dtypes and labels of every partition with the meta that the lazy merge told. Case 17 of
seed 3 is always the same: ``--seed 3 --only 17`` repeats it.
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import sys
import time
import warnings
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client, LocalCluster

import dgpuhash
from suites.raising import no_other_engine

sys.path.append(str(Path(__file__).parents[1] / "support"))

from strategies import KEY_COLUMNS

HOWS = ("inner", "left", "right", "outer", "semi", "anti", "left_anti", "right_anti")
# How keys are named: a column of one name or two, two columns, indexes, levels, or one of each.
NAMED = ("on", "names", "two", "index", "level", "column_index", "index_column", "level_column")
FEW, MANY = (1, 2, 7), (127, 128, 129, 130)
# Different keys of a kind that has fewer than the others.
FEWEST = {"categories": 6}


@dataclass(frozen=True)
class Case:
    """What is merged, and how.

    Attributes
    ----------
    number : int
    how, named, kind : str
    nulls : float
        Share of keys that are null.
    distinct : int
        Number of different keys.
    rows, parts : pair of int
        Rows and partitions of each side.
    known : bool
        Whether divisions of indexes are known.
    options : dict
        More arguments of the merge.
    """

    number: int
    how: str
    named: str
    kind: str
    nulls: float
    distinct: int
    rows: tuple[int, int]
    parts: tuple[int, int]
    known: bool
    options: dict[str, Any]

    def __str__(self) -> str:
        told = (
            f"{self.how} {self.named} {self.kind} nulls={self.nulls} distinct={self.distinct} "
            f"rows={self.rows} parts={self.parts}"
        )
        return (
            told + (" known" if self.known else "") + (f" {self.options}" if self.options else "")
        )


def case_of(number: int, rng: np.random.Generator) -> Case:
    """Return a case with drawn arguments."""
    how, named = str(rng.choice(HOWS)), str(rng.choice(NAMED))
    kind = str(rng.choice(sorted(KEY_COLUMNS)))
    distinct = min(int(rng.choice([1, 4, 24])), FEWEST.get(kind, 24))
    parts = [int(rng.choice(MANY if rng.random() < 0.01 else FEW)) for _ in range(2)]
    rows = [int(rng.choice([0, 1, 12, 40], p=[0.05, 0.1, 0.45, 0.4])) for _ in range(2)]
    options: dict[str, Any] = {}
    build = str(rng.choice(["auto", "auto", "replicate", "left"]))
    if build == "replicate" and not how.startswith("right"):
        options["build"] = build
    if build == "left" and how == "inner":
        options["build"] = build
    if how not in ("semi", "anti") and rng.random() < 0.2:
        options["indicator"] = True
    known = bool(rng.random() < 0.5) and named in ("index", "level")
    nulls = 0.0 if known else float(rng.choice([0, 0.1, 0.6, 1]))
    pairs = (rows[0], rows[1]), (parts[0], parts[1])
    return Case(number, how, named, kind, nulls, distinct, *pairs, known, options)


def frames_of(case: Case, rng: np.random.Generator) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return both sides of a case, whose keys are columns `k` and `j`."""
    sides = []
    for n in case.rows:
        keys = [
            None if rng.random() < case.nulls else int(key)
            for key in rng.integers(case.distinct, size=n)
        ]
        numbers = np.arange(n)
        columns = {
            "k": KEY_COLUMNS[case.kind](keys),
            "j": rng.integers(3, size=n),
            "number": numbers + 100 * len(sides),
            "flag": rng.random(n) < 0.5,
            "text": pd.Series([f"t{each % 5}" for each in numbers], dtype="str"),
            "some": pd.array(numbers, dtype="Int64"),
            "sort": pd.Categorical([f"s{each % 3}" for each in numbers], ["s0", "s1", "s2"]),
        }
        sides.append(pd.DataFrame(columns))
    left, right = sides
    if case.named != "two":
        left = left.drop(columns="j")
        right = right.drop(columns="j")
    if case.named == "names":
        right = right.rename(columns={"k": "other"})
    if case.named in ("index", "level", "index_column", "level_column"):
        left = left.set_index("k")
    if case.named in ("index", "level", "column_index"):
        right = right.set_index("k")
    return left, right


def keys_of(case: Case) -> dict[str, Any]:
    """Return the arguments of a merge that name its keys."""
    return {
        "on": {"on": "k"},
        "names": {"left_on": "k", "right_on": "other"},
        "two": {"on": ["k", "j"]},
        "index": {"left_index": True, "right_index": True},
        "level": {"on": "k"},
        "column_index": {"left_on": "k", "right_index": True},
        "index_column": {"left_index": True, "right_on": "k"},
        "level_column": {"on": "k"},
    }[case.named]


def lazy(frame: pd.DataFrame, parts: int, rng: np.random.Generator, *, known: bool) -> Any:
    """Return a Dask frame of so many partitions, some of which may be empty."""
    if known and len(frame):
        return dd.from_pandas(frame, npartitions=parts)
    cuts = [0, *sorted(rng.integers(len(frame) + 1, size=parts - 1).tolist()), len(frame)]
    pieces = [frame.iloc[start:stop] for start, stop in pairwise(cuts)]
    return dd.from_map(_itself, pieces, meta=frame.iloc[:0])


def _itself(piece: pd.DataFrame) -> pd.DataFrame:
    return piece


def expected_of(left: pd.DataFrame, right: pd.DataFrame, case: Case) -> pd.DataFrame:
    """Return the merge by pandas."""
    options = keys_of(case)
    if case.how not in ("semi", "anti"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted: Any = left.merge(
                right, how=case.how, indicator="indicator" in case.options, **options
            )
        return wanted  # type: ignore[no-any-return]
    counted = left.assign(row=np.arange(len(left)))
    found = counted.merge(right, how="inner", **options)["row"]
    return left[np.isin(np.arange(len(left)), found) == (case.how == "semi")]


def rows_of(frames: list[pd.DataFrame], *, labels: bool) -> list[tuple[str, ...]]:
    """Return the rows as sorted tuples of texts, with their labels if these say something."""
    rows = []
    for frame in frames:
        columns = [frame.iloc[:, place] for place in range(frame.shape[1])]
        columns += [frame.index.to_series()] if labels else []
        told = [[_told(each) for each in column.tolist()] for column in columns]
        rows += list(zip(*told, strict=True))
    return sorted(rows)


def _told(value: Any) -> str:
    if pd.isna(value):
        return "null"
    if isinstance(value, float) and value.is_integer():
        # pandas has floats where a side lacks rows.
        value = int(value)
    return str(value)


def difference(case: Case, merged: Any, parts: list[pd.DataFrame], wanted: pd.DataFrame) -> str:
    """Return how a lazy merge differs from that of pandas, empty where it does not."""
    meta = merged._meta
    for number, part in enumerate(parts):
        if list(part.columns) != list(meta.columns):
            return f"columns of partition {number}: {list(part.columns)}"
        if list(part.index.names) != list(meta.index.names):
            return f"names of labels of partition {number}: {part.index.names}"
        dtypes = zip(
            [*part.dtypes, part.index.dtype], [*meta.dtypes, meta.index.dtype], strict=True
        )
        for label, (dtype, told) in zip([*meta.columns, "labels"], dtypes, strict=True):
            if not _same(dtype, told):
                return f"{label} of partition {number} is {dtype}, the meta says {told}"
    if list(meta.columns) != list(wanted.columns):
        return f"columns {list(meta.columns)}, not {list(wanted.columns)}"
    if len(wanted) and min(case.rows):
        for label, dtype in wanted.dtypes.items():
            told = meta.dtypes[label]
            if not (_same(dtype, told) or _may_lack_rows(dtype, told)):
                return f"{label} is {told}, in pandas {dtype}"
    # Of an empty side pandas takes the labels of the other one, where only one index is a key.
    mixed = case.named in ("column_index", "index_column") and min(case.rows) > 0
    labels = mixed or case.named in ("index", "level") or case.how in ("semi", "anti")
    found, right = rows_of(parts, labels=labels), rows_of([wanted], labels=labels)
    if found != right:
        more, fewer = Counter(found) - Counter(right), Counter(right) - Counter(found)
        return f"{len(found)} rows, not {len(right)}: {list(more)[:2]} for {list(fewer)[:2]}"
    divisions = merged.divisions
    if merged.known_divisions:
        for number, part in enumerate(parts):
            there = part.index.dropna().to_numpy(dtype=object)
            if len(there) and not (
                divisions[number] <= min(there) <= max(there) <= divisions[number + 1]
            ):
                return f"labels of partition {number} lie outside of its divisions"
    return ""


def _same(dtype: Any, other: Any) -> bool:
    if isinstance(dtype, pd.CategoricalDtype) and isinstance(other, pd.CategoricalDtype):
        return True
    return bool(dtype == other)


def _may_lack_rows(dtype: Any, told: Any) -> bool:
    """Return whether a meta has a nullable dtype for what pandas made of integers and booleans.

    Moments get the finer unit of both sides, whichever rows there are.
    """
    if all(isinstance(each, pd.DatetimeTZDtype) for each in (dtype, told)):
        return True
    if isinstance(told, pd.BooleanDtype):
        return dtype in (np.dtype(bool), np.dtype(object))
    integers = pd.api.types.is_integer_dtype(told) and not isinstance(told, np.dtype)
    return bool(integers and dtype in (np.dtype("float64"), told.numpy_dtype))


def reason_of(case: Case, rng: np.random.Generator) -> str:
    """Return what is wrong with a merge, empty for nothing."""
    left, right = frames_of(case, rng)
    sides = [
        lazy(side, parts, rng, known=case.known)
        for side, parts in zip((left, right), case.parts, strict=True)
    ]
    wanted = expected_of(left, right, case)
    try:
        with no_other_engine():
            merged = dgpuhash.merge(*sides, case.how, **keys_of(case), **case.options)
            parts = list(dask.compute(*merged.to_delayed()))
        return difference(case, merged, parts, wanted)
    except Exception as error:
        return f"{type(error).__name__}: {error}".partition("\n")[0]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m suites.generated_merge", description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000, help="default: 10,000")
    parser.add_argument("--seed", type=int, default=0, help="of all cases; default: 0")
    parser.add_argument("--only", type=int, help="number of the one case to run")
    parser.add_argument(
        "--timeout", type=float, default=120, help="of a case in seconds; default: 120"
    )
    given = parser.parse_args()
    numbers = range(given.cases) if given.only is None else [given.only]
    failed: list[tuple[Case, str]] = []
    with ExitStack() as stack:
        cluster = LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None,
            memory_limit=0, silence_logs=logging.CRITICAL,
        )  # fmt: skip
        stack.enter_context(cluster)
        stack.enter_context(Client(cluster))
        # Labels are compared as they are.
        stack.enter_context(dask.config.set({"dataframe.convert-string": False}))
        start = time.perf_counter()
        for done, number in enumerate(numbers, start=1):
            rng = np.random.default_rng([given.seed, number])
            case = case_of(number, rng)
            # What hangs says where its threads are, and ends the program.
            faulthandler.dump_traceback_later(given.timeout, exit=True)
            if reason := reason_of(case, rng):
                failed.append((case, reason))
                print(f"failed: {number}", flush=True)
            faulthandler.cancel_dump_traceback_later()
            if done % 500 == 0:
                seconds = time.perf_counter() - start
                print(f"{done:>7} cases, {len(failed)} failed, {seconds:.0f} s", flush=True)
    print(f"{len(numbers)} cases, {len(failed)} failed")
    for case, reason in failed:
        print(f"{case.number:>6}  {case}\n        {reason[:300]}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
