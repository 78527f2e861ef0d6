"""Polars: joins and groupbys on all cores."""

from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa

from dgpuhash.bench.peers.base import Grouping, Join, Library, Task, Work
from dgpuhash.bench.peers.pandas import LARGEST


class Polars(Library):
    """Polars on all cores, with eager frames."""

    package: ClassVar[str] = "polars"
    hows: ClassVar[dict[str, str]] = {**Library.hows, "outer": "full"}

    def own(self, frame: Any) -> Any:
        """Return a frame of pandas as one of Polars."""
        return self._library.from_arrow(pa.Table.from_pandas(frame, preserve_index=False))

    def join(self, join: Join, left: Any, right: Any) -> Work:
        lefts, rights, how, on = self.own(left), self.own(right), self.hows[join.how], join.on
        chosen, options = join.columns, {"coalesce": True} if how == "full" else {}
        if chosen:
            return lambda: lefts.join(rights, on=on, how=how, **options).select(*chosen)
        return lambda: lefts.join(rights, on=on, how=how, **options)

    def group(self, grouping: Grouping, frame: Any) -> Work:
        rows, pl, by = self.own(frame), self._library, list(grouping.by)
        col, column = pl.col, grouping.columns[-1]
        match grouping.how:
            case "drop_duplicates":
                return lambda: rows.unique()
            case "value_counts":
                return lambda: rows[column].value_counts(sort=True, name="a0")
            case "transform":
                mean = col(column).mean().over(by).alias("a0")
                return lambda: rows.select(*by, mean)
            case "nlargest":
                largest = col(column).top_k(LARGEST).alias("a0")
                return lambda: rows.group_by(by).agg(largest).explode("a0")
            case "corr":
                wanted = [(pl.corr(*(name for name, _ in grouping.aggregates)) ** 2).alias("a0")]
            case _:
                words = {"nunique": "n_unique", "size": "len"}
                wanted = [
                    getattr(col(name), words.get(how, how))().alias(label)
                    for label, (name, how) in zip(grouping.names, grouping.aggregates, strict=True)
                ]
        if grouping.name == "q7":
            wanted = [(col("v1").max() - col("v2").min()).alias("a0")]
        return lambda: rows.group_by(by).agg(wanted)

    def grouped(self, grouping: Grouping, made: Any, frame: Any) -> pa.Table:
        table: pa.Table = made.to_arrow()
        return table

    def flat(self, made: Any) -> Any:
        return made.to_pandas()

    def columns(self, keys: Any, others: Any = None) -> dict[str, Task]:
        pl = self._library
        column, among = pl.Series("key", keys), pl.Series(others)
        return {
            "isin": Task(lambda: column.is_in(among.implode()), lambda made: (made.to_numpy(),)),
            "value_counts": Task(
                column.value_counts, lambda made: tuple(each.to_numpy() for each in made)
            ),
            "unique": Task(column.unique, lambda made: (made.to_numpy(),)),
        }

    def upsert(self, old: dict[str, Any], new: dict[str, Any]) -> Task:
        """Return the same as `Pandas.upsert`."""
        lefts, rights = self._library.DataFrame(old), self._library.DataFrame(new)
        return Task(lambda: lefts.update(rights, on="key", how="full"), lambda made: (len(made),))
