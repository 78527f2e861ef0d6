"""DuckDB: joins and groupbys in SQL, from and to Arrow tables."""

from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa

from dgpuhash.bench.peers.base import Grouping, Join, Library, Task, Work
from dgpuhash.bench.peers.pandas import LARGEST


class DuckDB(Library):
    """DuckDB on all cores, from and to Arrow tables; groups of its own tables."""

    title, package = "DuckDB", "duckdb"
    hows: ClassVar[dict[str, str]] = {**Library.hows, "outer": "full"}

    def database(self, **frames: Any) -> Any:
        """Return a connection that reads pandas frames as Arrow tables."""
        connection = self._library.connect()
        connection.execute("set preserve_insertion_order = false")
        for name, frame in frames.items():
            connection.register(name, pa.Table.from_pandas(frame, preserve_index=False))
        return connection

    def join(self, join: Join, left: Any, right: Any) -> Work:
        connection = self.database(l=left, r=right)
        chosen = ", ".join(f'"{name}"' for name in join.columns) or "*"
        query = f"select {chosen} from l {self.hows[join.how]} join r using ({join.on})"
        return lambda: connection.sql(query).to_arrow_table()

    def group(self, grouping: Grouping, frame: Any) -> Work:
        connection = self.database(given=frame)
        connection.execute("create table f as select * from given")
        query = sql_of(grouping)
        return lambda: connection.sql(query).to_arrow_table()

    def grouped(self, grouping: Grouping, made: Any, frame: Any) -> pa.Table:
        table: pa.Table = made
        return table

    def flat(self, made: Any) -> Any:
        return made.to_pandas()

    def columns(self, keys: Any, others: Any = None) -> dict[str, Task]:
        connection = self.database(t=pa.table({"key": keys}).to_pandas())

        def task(text: str) -> Task:
            return Task(
                lambda: connection.sql(text).to_arrow_table(),
                lambda made: tuple(each.to_numpy() for each in made.columns),
            )

        return {
            "value_counts": task("select key, count(*) from t group by key order by 2 desc"),
            "unique": task("select distinct key from t"),
        }


def sql_of(grouping: Grouping) -> str:
    """Return the query in DuckDB's SQL, on a table ``f``.

    Examples
    --------
    >>> sql_of(Grouping("q3", "groupby", ("id3",), (("v1", "sum"), ("v3", "mean"))))
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
            wanted = f"unnest(max({column}, {LARGEST})) a0"
        case "corr":
            wanted = f"pow(corr({', '.join(name for name, _ in grouping.aggregates)}), 2) a0"
        case _:
            wanted = ", ".join(
                f"{_in_sql(name, how)} {label}"
                for label, (name, how) in zip(grouping.names, grouping.aggregates, strict=True)
            )
    if grouping.name == "q7":
        wanted = "max(v1) - min(v2) a0"
    return f"select {keys}, {wanted} from f group by {keys}"


def _in_sql(column: str, how: str) -> str:
    if how in ("nunique", "size"):
        return f"count(distinct {column})" if how == "nunique" else "count(*)"
    return f"{ {'mean': 'avg', 'std': 'stddev_samp'}.get(how, how) }({column})"
