"""The tables of TPC-H: Parquet files made by tpchgen-cli, and frames of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Container
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeAlias

import dask.dataframe as dd
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds

__all__ = ["Frame", "Tables", "generate", "load", "load_lazily"]

# A DataFrame of pandas, or a lazy one of Dask.
Frame: TypeAlias = Any


@dataclass(frozen=True)
class Tables:
    """The eight tables.

    Prices and quantities are exact decimals and days are dates of Arrow, keys are int64.
    """

    region: Frame
    nation: Frame
    supplier: Frame
    customer: Frame
    part: Frame
    partsupp: Frame
    orders: Frame
    lineitem: Frame


def generate(folder: Path, scale: float = 0.01, parts: int = 4) -> None:
    """Write the tables to a new folder, which is there when all of them are.

    A table is a folder of its name with `parts` files; region and nation are always one. At scale
    1, lineitem has 6,001,215 rows.
    """
    begun = folder.with_name(f"{folder.name}.begun")
    program = [str(Path(sys.executable).with_name("tpchgen-cli")), "parquet", "--quiet"]
    options = [f"--scale-factor={scale}", f"--parts={parts}", f"--output-dir={begun}"]
    subprocess.run([*program, *options, "--overwrite"], check=True)
    begun.rename(folder)


def load(folder: Path, columns: Container[str]) -> Tables:
    """Return pandas frames of some columns of the tables that `generate` wrote to `folder`.

    Their dtypes are those which Dask gives them.
    """
    return Tables(**{field.name: _read(folder / field.name, columns) for field in fields(Tables)})


def _read(folder: Path, columns: Container[str]) -> pd.DataFrame:
    files = ds.dataset(folder, format="parquet")
    table = files.to_table([name for name in files.schema.names if name in columns])
    return table.to_pandas(types_mapper=_dtype, split_blocks=True, self_destruct=True)


def _dtype(kind: pa.DataType) -> Any:
    if pa.types.is_decimal(kind) or pa.types.is_date(kind):
        return pd.ArrowDtype(kind)
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return pd.StringDtype("pyarrow") if is_text or pa.types.is_string_view(kind) else None


def load_lazily(folder: Path) -> Tables:
    """Return lazy frames of the tables in `folder`, a partition for each file."""
    # A frame of some columns of files that are split further must not be persisted, which a merge
    # may do.
    return Tables(
        **{
            field.name: dd.read_parquet(folder / field.name, split_row_groups=False)
            for field in fields(Tables)
        }
    )
