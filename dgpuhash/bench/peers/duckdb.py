"""DuckDB: joins and group-bys in SQL over registered columns.

Results are Arrow tables.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from dgpuhash.bench.peers.base import Peer, Task


class DuckDB(Peer):
    """DuckDB on all cores.

    Raises
    ------
    ImportError
        When DuckDB is not installed.
    """

    def __init__(self) -> None:
        import duckdb

        self._duckdb = duckdb
        self.name: str = f"DuckDB {duckdb.__version__}"

    def joins(self, left: Any, right: Any) -> dict[str, Task]:
        query = self._query(
            l=pa.table({"key": left, "row": np.arange(len(left))}),
            r=pa.table({"key": right, "row": np.arange(len(right))}),
        )

        def rows(made: Any) -> tuple[Any, Any]:
            if made.num_columns == 1:
                return made.column(0).to_numpy(), None
            right_rows = made.column(1).fill_null(-1)
            return made.column(0).to_numpy(), right_rows.to_numpy()

        pairs = "select l.row, r.row as other from l {} join r on l.key = r.key"
        return {
            "inner": Task(query(pairs.format("inner")), rows),
            "left": Task(query(pairs.format("left")), rows),
            "semi": Task(query("select row from l semi join r on l.key = r.key"), rows),
        }

    def groups(self, keys: Any, values: Any) -> dict[str, Task]:
        query = self._query(t=pa.table({"key": keys, "value": values}))

        def columns(made: Any) -> tuple[Any, ...]:
            found = [each.to_numpy() for each in made.columns]
            return (*found, *[None] * (3 - len(found)))

        return {
            "sum + count": Task(
                query("select key, count(*), sum(value)::bigint from t group by key"), columns
            ),
            "value_counts": Task(
                query("select key, count(*) from t group by key order by 2 desc"), columns
            ),
            "unique": Task(query("select distinct key from t"), columns),
        }

    def _query(self, **tables: Any) -> Any:
        """Return a function that makes a callable of a query over `tables`."""
        connection = self._duckdb.connect()
        connection.execute("set preserve_insertion_order = false")
        for name, table in tables.items():
            connection.register(name, table)
        return lambda text: lambda: connection.sql(text).to_arrow_table()
