"""Generate tables of TPC-H and their changes by refresh functions RF1 and RF2."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from dgpuhash.errors import SpecError

# Columns that the queries read. Money is in cents and rates in percent, as integers are exact.
COLUMNS = {
    "region": "r_regionkey, r_name",
    "nation": "n_nationkey, n_name, n_regionkey",
    "supplier": "s_suppkey::integer as s_suppkey, s_nationkey",
    "part": "p_partkey::integer as p_partkey, p_name",
    "partsupp": "ps_partkey::integer as ps_partkey, ps_suppkey::integer as ps_suppkey, "
    "(ps_supplycost * 100)::bigint as ps_supplycost",
    "customer": "c_custkey::integer as c_custkey, c_name, c_address, c_nationkey, c_phone, "
    "c_mktsegment, c_comment, (c_acctbal * 100)::bigint as c_acctbal",
    "orders": "o_orderkey, o_custkey::integer as o_custkey, o_orderdate, o_orderpriority, "
    "(o_totalprice * 100)::bigint as o_totalprice, o_shippriority",
    "lineitem": "l_orderkey, l_partkey::integer as l_partkey, l_suppkey::integer as l_suppkey, "
    "l_quantity::smallint as l_quantity, (l_extendedprice * 100)::bigint as l_extendedprice, "
    "(l_discount * 100)::smallint as l_discount, (l_tax * 100)::smallint as l_tax, l_returnflag, "
    "l_linestatus, l_shipdate, l_commitdate, l_receiptdate, l_shipmode",
}
_FEW = ("l_returnflag", "l_linestatus", "l_shipmode", "o_orderpriority", "c_mktsegment")
# Of each 32 order keys the tables have the first 8, and new orders the next 8.
_GAP = 8


@dataclass(frozen=True)
class Round:
    """Change of one round.

    Attributes
    ----------
    orders, lineitem : pyarrow.Table
        Rows that come (RF1).
    keys : pyarrow.Table
        The keys ``o_orderkey`` of orders that go with their lines (RF2).
    rows : int
        Orders and lines that come and go.
    """

    orders: pa.Table
    lineitem: pa.Table
    keys: pa.Table
    rows: int


def generate(folder: Path, scale: float = 0.01, parts: int = 4) -> None:
    """Write the tables of TPC-H as Parquet files into a new folder.

    A table is a folder of its name with `parts` files; region and nation are always one. At scale
    1, lineitem has 6,001,215 rows. The folder is there when all of them are.
    """
    begun = folder.with_name(f"{folder.name}.begun")
    options = [f"--scale-factor={scale}", f"--parts={parts}", f"--output-dir={begun}"]
    program = [_program("tpchgen-cli"), "parquet", "--quiet"]
    subprocess.run([*program, *options, "--overwrite"], check=True)
    begun.rename(folder)


def _program(name: str) -> str:
    """Return the path of a wheel's program, wherever it was installed."""
    beside = Path(sys.executable).with_name(name)
    # pip puts programs there with --target.
    places = [beside, *(Path(each, "bin", name) for each in sys.path)]
    path = next((str(each) for each in places if each.is_file()), None) or shutil.which(name)
    if path is None:
        raise FileNotFoundError(f"no program {name}; install it with 'pip install {name}'")
    # Wheels that are unpacked without pip lose the right to run.
    Path(path).chmod(0o755)
    return path


def read_tables(folder: Path) -> dict[str, pa.Table]:
    """Return the tables of `COLUMNS`, orders and lineitem by their keys."""
    import duckdb

    database: Any = duckdb.connect()
    order = {"orders": " order by o_orderkey", "lineitem": " order by l_orderkey"}
    return {
        name: database.sql(
            f"select {columns} from read_parquet('{folder / name / '*.parquet'}')"
            + order.get(name, "")
        ).to_arrow_table()
        for name, columns in COLUMNS.items()
    }


def changes(tables: dict[str, pa.Table], fractions: list[float], seed: int = 1) -> Iterator[Round]:
    """Yield a change for each share of the orders that comes and goes.

    Orders go in the order of their keys. New ones have keys of the gaps that TPC-H leaves, and the
    other columns, lines included, of an order drawn at random.

    Raises
    ------
    SpecError
        When more orders are to go than there are.
    """
    orders, lines = tables["orders"], tables["lineitem"]
    keys = orders["o_orderkey"].to_numpy()
    # TPC-H fills the keys 0 to 7 of each 32.
    assert (keys % (4 * _GAP) < _GAP).all()
    starts = np.searchsorted(lines["l_orderkey"].to_numpy(), np.append(keys, keys[-1] + 1))
    counts = np.diff(starts)
    random = np.random.default_rng(seed)
    sizes = [max(1, round(share * len(keys))) for share in fractions]
    if sum(sizes) > len(keys):
        raise SpecError(
            f"{sum(sizes):,} orders would be deleted in all, but there are only {len(keys):,}; "
            f"take fewer rounds, or a "
            "smaller fraction"
        )
    stop = 0
    for size in sizes:
        start, stop = stop, stop + size
        drawn = random.integers(0, len(keys), size)
        fresh, many = keys[start:stop] + _GAP, counts[drawn]
        firsts = np.repeat(starts[drawn] - np.cumsum(many) + many, many)
        yield Round(
            _with_keys(orders.take(drawn), fresh),
            _with_keys(lines.take(firsts + np.arange(len(firsts))), np.repeat(fresh, many)),
            pa.table({"o_orderkey": keys[start:stop]}),
            2 * size + len(firsts) + int(counts[start:stop].sum()),
        )


def _with_keys(table: pa.Table, keys: Any) -> pa.Table:
    """Return a table with other order keys, its first column."""
    return table.set_column(0, table.column_names[0], pa.array(keys))


class Tables:
    """Arrow tables as frames, with texts of few values as categories common to all.

    Parameters
    ----------
    tables : dict
        All tables.
    library : module
        pandas or cuDF.
    """

    def __init__(self, tables: dict[str, pa.Table], library: Any = pd) -> None:
        self._library = library
        self._dtypes = {
            name: library.CategoricalDtype(pc.unique(table[name]).sort().to_pylist())
            for table in tables.values()
            for name in set(_FEW) & set(table.column_names)
        }

    def frame(self, table: pa.Table) -> Any:
        """Return a table with dates as datetimes."""
        dates = [pa.types.is_date(each.type) for each in table.schema]
        kinds = [
            pa.field(each.name, pa.timestamp("ms")) if date else each
            for each, date in zip(table.schema, dates, strict=True)
        ]
        frame = self._library.DataFrame.from_arrow(table.cast(pa.schema(kinds)))
        return frame.astype({name: self._dtypes[name] for name in self._dtypes if name in frame})
