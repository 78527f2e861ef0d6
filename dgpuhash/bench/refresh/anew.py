"""The same answers anew: DuckDB and Polars change tables in memory and run the queries on them."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from contextlib import suppress
from importlib.resources import files
from typing import Any

import pyarrow as pa

from dgpuhash.bench.refresh.tables import Change

#: The queries of TPC-H by their numbers.
QUERIES = {
    int(number): text.strip().removesuffix(";")
    for number, _, text in (
        each.partition("\n")
        for each in files(__package__).joinpath("queries.sql").read_text().split("\n-- ")[1:]
    )
}
Answers = dict[int, list[tuple[Any, ...]]]


class Anew(ABC):
    """Library that changes its own tables and computes all answers from them.

    Attributes
    ----------
    name : str
        The library's name and version.
    """

    name: str

    def prepare(self, change: Change) -> Any:
        """Return a change in the library's own form, outside the time."""
        return change

    @abstractmethod
    def change(self, change: Any) -> None:
        """Insert the new rows of a change, and delete the old ones."""

    @abstractmethod
    def answers(self) -> Answers:
        """Return the rows of each query's answer."""

    def cpu_seconds(self) -> float:
        """Return the CPU time so far of all processes that it runs in."""
        return time.process_time()

    @property
    def standing_bytes(self) -> int:
        """Bytes of what it keeps beside the rows of tables."""
        return 0


class DuckDB(Anew):
    """DuckDB with tables in memory, on all cores."""

    def __init__(self, tables: dict[str, pa.Table]) -> None:
        import duckdb

        self.name: str = f"DuckDB {duckdb.__version__}"
        self._database = duckdb.connect()
        self._database.execute("set preserve_insertion_order = false")
        for name, table in tables.items():
            self._database.register("rows", table)
            self._database.execute(f"create table {name} as select * from rows")
            self._database.unregister("rows")

    def change(self, change: Any) -> None:
        database = self._database
        come = {"orders": change.orders, "lineitem": change.lineitem}
        for name, key in (("orders", "o_orderkey"), ("lineitem", "l_orderkey")):
            database.register("rows", come[name])
            database.execute(f"insert into {name} select * from rows")
            database.register("rows", change.keys)
            database.execute(f"delete from {name} where {key} in (select o_orderkey from rows)")
        database.unregister("rows")

    def answers(self) -> Answers:
        return {number: self._database.sql(text).fetchall() for number, text in QUERIES.items()}


class Polars(Anew):
    """Polars with frames in memory, on all cores or one GPU.

    Parameters
    ----------
    tables : dict
    on_gpu : bool
        Whether cudf-polars runs the queries that it has. Frames of Polars are in the memory of the
        host, and copied for each query.
    """

    def __init__(self, tables: dict[str, pa.Table], *, on_gpu: bool = False) -> None:
        import polars

        self._polars: Any = polars
        self._tables: dict[str, Any] = {
            name: polars.from_arrow(table) for name, table in tables.items()
        }
        self._engines: dict[int, Any] = dict.fromkeys(QUERIES, "auto")
        self.name: str = f"Polars {polars.__version__}"
        if on_gpu:
            gpu = polars.GPUEngine(raise_on_fail=True)
            for number in QUERIES:
                # What cudf-polars lacks is Polars' work, and said.
                with suppress(polars.exceptions.PolarsError, NotImplementedError):
                    self._answer(number, gpu)
                    self._engines[number] = gpu
            others = [str(number) for number, each in self._engines.items() if each is not gpu]
            without = f", without queries {' '.join(others)}" if others else ""
            self.name = f"cudf-polars, polars {polars.__version__}{without}"

    def change(self, change: Any) -> None:
        lib, tables = self._polars, self._tables
        come = {"orders": change.orders, "lineitem": change.lineitem}
        keys = lib.from_arrow(change.keys)
        for name, key in (("orders", "o_orderkey"), ("lineitem", "l_orderkey")):
            stay = tables[name].join(keys, left_on=key, right_on="o_orderkey", how="anti")
            tables[name] = lib.concat([stay, lib.from_arrow(come[name])])

    def answers(self) -> Answers:
        return {number: self._answer(number, each) for number, each in self._engines.items()}

    def _answer(self, number: int, engine: Any) -> list[tuple[Any, ...]]:
        found = self._polars.SQLContext(self._tables).execute(QUERIES[number])
        rows: list[tuple[Any, ...]] = found.collect(engine=engine).rows()
        return rows
