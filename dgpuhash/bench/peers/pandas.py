"""pandas: merges, groupbys, and the hash table of an Index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa

from dgpuhash.bench.peers.base import Grouping, Join, Library, Task, Work

LARGEST = 2


class Pandas(Library):
    """pandas on one core; semi-joins by ``isin``."""

    package: ClassVar[str] = "pandas"

    def join(self, join: Join, left: Any, right: Any) -> Work:
        if join.how == "semi":
            return lambda: left[left[join.on].isin(right[join.on])]
        if join.how == "anti":
            return lambda: left[~left[join.on].isin(right[join.on])]
        chosen = list(join.columns)
        if chosen:
            return lambda: left.merge(right, how=join.how, on=join.on)[chosen]
        return lambda: left.merge(right, how=join.how, on=join.on)

    def group(self, grouping: Grouping, frame: Any) -> Work:
        key, column = grouping.by[0], grouping.columns[-1]
        match grouping.how:
            case "nlargest":
                # As in the benchmark: much faster than nlargest of groups.
                return lambda: (
                    frame.sort_values(column, ascending=False)
                    .groupby(key, sort=False)
                    .head(LARGEST)
                )
            case "drop_duplicates":
                return frame.drop_duplicates  # type: ignore[no-any-return]
            case "value_counts":
                return lambda: frame[key].value_counts()
        return by_groups(grouping, lambda by, **options: frame.groupby(by, **options))

    def grouped(self, grouping: Grouping, made: Any, frame: Any) -> pa.Table:
        by = list(grouping.by)
        if grouping.how == "transform":
            made = pd.DataFrame({by[0]: frame[by[0]], "a0": made})
        elif isinstance(made, pd.Series):
            made = made.rename("a0").reset_index(level=by)
        elif made.index.names == by:
            made = made.reset_index()
        chosen = [*by, *(name for name in made.columns if name not in by)]
        return pa.Table.from_pandas(made[chosen], preserve_index=False)

    def columns(self, keys: Any, others: Any = None) -> dict[str, Task]:
        column = pd.Series(keys)
        return {
            "isin": Task(lambda: column.isin(others), lambda made: (made.to_numpy(),)),
            "factorize": Task(lambda: pd.factorize(keys), lambda made: made),
            "value_counts": Task(
                column.value_counts, lambda made: (made.index.to_numpy(), made.to_numpy())
            ),
            "unique": Task(lambda: pd.unique(keys), lambda made: (np.asarray(made),)),
        }

    def upsert(self, old: dict[str, Any], new: dict[str, Any]) -> Task:
        """Return the work to replace the rows of `old` by those of `new` with equal keys.

        Array: the number of rows.
        """
        lefts, rights = pd.DataFrame(old), pd.DataFrame(new)
        return Task(
            lambda: pd.concat([lefts, rights]).drop_duplicates("key", keep="last"),
            lambda made: (len(made),),
        )


def by_groups(grouping: Grouping, groupby: Callable[..., Any]) -> Work:
    """Return a query in the verbs common to pandas, Dask and this package."""
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
    named = dict(zip(grouping.names, grouping.aggregates, strict=True))
    if grouping.name != "q7":
        return lambda: groupby(one, sort=False, as_index=False).agg(**named)

    def spread() -> Any:
        groups = groupby(one, sort=False).agg(**named)
        return groups["a0"] - groups["a1"]

    return spread
