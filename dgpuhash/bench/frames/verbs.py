"""How libraries answer questions about groups, and what of their answers is compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pyarrow as pa

import dgpuhash
from dgpuhash.bench.frames.groupings import Grouping
from dgpuhash.errors import UnsupportedError
from dgpuhash.frames.merge.distinct import distinct_rows

_LARGEST = 2


def pandas_of(grouping: Grouping, frame: pd.DataFrame) -> Callable[[], Any]:
    """Return what pandas does for a question."""
    key, column = grouping.by[0], grouping.columns[-1]
    match grouping.how:
        case "nlargest":
            # As in the benchmark: much faster than nlargest of groups.
            return lambda: (
                frame.sort_values(column, ascending=False).groupby(key, sort=False).head(_LARGEST)
            )
        case "drop_duplicates":
            return frame.drop_duplicates
        case "value_counts":
            return lambda: frame[key].value_counts()
        case _:
            return _by_groups(grouping, frame, lambda by, **options: frame.groupby(by, **options))


def ours_of(grouping: Grouping, frame: pd.DataFrame) -> Callable[[], Any]:
    """Return what this package does for a question."""
    key, column = grouping.by[0], grouping.columns[-1]

    def groupby(by: Any, **options: Any) -> Any:
        return dgpuhash.groupby(frame, by, **options)

    match grouping.how:
        case "nlargest":
            return lambda: groupby(key, sort=False)[column].nlargest(_LARGEST)
        case "drop_duplicates":
            # cuDF's frames have no accessor; of Dask frames of cuDF each partition is asked so.
            if not hasattr(frame, "dgpuhash"):
                return lambda: distinct_rows(frame, range(len(frame.columns)), "first")
            return frame.dgpuhash.drop_duplicates
        case "value_counts":
            return lambda: groupby(key, sort=False).size().sort_values(ascending=False)
        case _:
            return _by_groups(grouping, frame, groupby)


def dask_of(grouping: Grouping, frame: Any) -> Callable[[], Any]:
    """Return what Dask does for a question about a Dask frame.

    Raises
    ------
    UnsupportedError
        When it has no such aggregate.
    """
    key, column = grouping.by[0], grouping.columns[-1]

    def groupby(by: Any, *, as_index: bool = True, **options: Any) -> Any:
        # Keys are an index there, which every answer is compared with.
        return frame.groupby(by, **options)

    match grouping.how:
        case "drop_duplicates":
            return frame.drop_duplicates
        case "value_counts":
            return lambda: frame[key].value_counts(sort=False)
        case "transform":
            meta = (column, "float64")
            return lambda: groupby(key, sort=False)[column].transform("mean", meta=meta)
        case "groupby" | "nunique":
            return _by_groups(grouping, frame, groupby)
    raise UnsupportedError(f"Dask has no {grouping.how} of groups; take another library")


def _by_groups(
    grouping: Grouping, frame: pd.DataFrame, groupby: Callable[..., Any]
) -> Callable[[], Any]:
    """Return what both answer with the same words."""
    by = list(grouping.by)
    one, column = by[0] if len(by) == 1 else by, grouping.columns[-1]
    match grouping.how:
        case "corr":
            left, right = (name for name, _ in grouping.aggregates)
            return lambda: groupby(by, sort=False)[[left, right]].corr()[right].iloc[::2] ** 2
        case "nunique":
            return lambda: groupby(one, sort=False)[column].nunique()
        case "transform":
            return lambda: groupby(one, sort=False)[column].transform("mean")
        case "aggregate":
            hows = [how for _, how in grouping.aggregates]
            return lambda: groupby(one, sort=False)[column].agg(hows if len(hows) > 1 else hows[0])
    asked = dict(zip(grouping.names, grouping.aggregates, strict=True))
    if grouping.name != "q7":
        return lambda: groupby(one, sort=False, as_index=False).agg(**asked)

    def span() -> Any:
        made = groupby(one, sort=False).agg(**asked)
        return made["a0"] - made["a1"]

    return span


def grouped_by_frames(grouping: Grouping, made: Any, frame: pd.DataFrame) -> pa.Table:
    """Return the keys and aggregates of an answer of pandas' own kinds."""
    if grouping.how == "transform":
        made = pd.DataFrame({grouping.by[0]: frame[grouping.by[0]], "a0": made})
    elif isinstance(made, pd.Series):
        made = made.rename("a0").reset_index(level=list(grouping.by))
    elif made.index.names == list(grouping.by):
        made = made.reset_index()
    chosen = [*grouping.by, *(name for name in made.columns if name not in grouping.by)]
    return pa.Table.from_pandas(made[chosen], preserve_index=False)


def polars_of(polars: Any, grouping: Grouping, frame: Any) -> Callable[[], Any]:
    """Return what Polars does for a question."""
    by, col = list(grouping.by), polars.col
    column = grouping.columns[-1]
    match grouping.how:
        case "drop_duplicates":
            return lambda: frame.unique()
        case "value_counts":
            return lambda: frame[column].value_counts(sort=True, name="a0")
        case "transform":
            mean = col(column).mean().over(by).alias("a0")
            return lambda: frame.select(*by, mean)
        case "nlargest":
            largest = col(column).top_k(_LARGEST).alias("a0")
            return lambda: frame.group_by(by).agg(largest).explode("a0")
        case "corr":
            asked = [(polars.corr(*(name for name, _ in grouping.aggregates)) ** 2).alias("a0")]
        case _:
            asked = [
                (polars.len() if how == "size" else _of_polars(col(name), how)).alias(label)
                for label, (name, how) in zip(grouping.names, grouping.aggregates, strict=True)
            ]
    if grouping.name == "q7":
        asked = [(col("v1").max() - col("v2").min()).alias("a0")]
    return lambda: frame.group_by(by).agg(asked)


def _of_polars(column: Any, how: str) -> Any:
    return column.n_unique() if how == "nunique" else getattr(column, how)()


def sql_of(grouping: Grouping) -> str:
    """Return the question in DuckDB's SQL, of a table ``f``.

    Examples
    --------
    >>> from dgpuhash.bench.frames.groupings import GROUPINGS
    >>> sql_of(GROUPINGS["q3"])
    'select id3, sum(v1) a0, avg(v3) a1 from f group by id3'
    """
    keys, column = ", ".join(grouping.by), grouping.columns[-1]
    match grouping.how:
        case "drop_duplicates":
            return f"select distinct {keys} from f"
        case "value_counts":
            return f"select {keys}, count(*) a0 from f group by {keys} order by a0 desc"
        case "transform":
            return f"select {keys}, avg({column}) over (partition by {keys}) a0 from f"
        case "nlargest":
            asked = f"unnest(max({column}, {_LARGEST})) a0"
        case "corr":
            asked = f"pow(corr({', '.join(name for name, _ in grouping.aggregates)}), 2) a0"
        case _:
            asked = ", ".join(
                f"{_in_sql(name, how)} {label}"
                for label, (name, how) in zip(grouping.names, grouping.aggregates, strict=True)
            )
    if grouping.name == "q7":
        asked = "max(v1) - min(v2) a0"
    return f"select {keys}, {asked} from f group by {keys}"


def _in_sql(column: str, how: str) -> str:
    if how in ("nunique", "size"):
        return f"count(distinct {column})" if how == "nunique" else "count(*)"
    return f"{ {'mean': 'avg', 'std': 'stddev_samp'}.get(how, how) }({column})"
