"""The tables of TPC-H: Parquet files made by tpchgen-cli, and lazy Dask frames of them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, fields
from pathlib import Path

import dask.dataframe as dd

__all__ = ["Tables", "generate", "load"]


@dataclass(frozen=True)
class Tables:
    """The eight tables, as lazy frames with all their columns.

    Prices and quantities are exact decimals and days are dates of Arrow, keys are int64.
    """

    region: dd.DataFrame
    nation: dd.DataFrame
    supplier: dd.DataFrame
    customer: dd.DataFrame
    part: dd.DataFrame
    partsupp: dd.DataFrame
    orders: dd.DataFrame
    lineitem: dd.DataFrame


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


def load(folder: Path) -> Tables:
    """Return frames of the tables that `generate` wrote to `folder`, a partition for each file."""
    # A frame of some columns of files that are split further must not be persisted, which a merge
    # may do.
    return Tables(
        **{
            field.name: dd.read_parquet(folder / field.name, split_row_groups=False)
            for field in fields(Tables)
        }
    )
