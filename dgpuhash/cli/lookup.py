"""`dgpuhash lookup`: print the rows of a saved index for some keys."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable
from typing import Any

import click
import pandas as pd

from dgpuhash.cli.cluster import client_for, scheduler_option
from dgpuhash.errors import KeyTypeError, ShapeError

__all__ = ["lookup"]


@click.command()
@click.argument("index")
@click.argument("keys", nargs=-1, required=True)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "json"]),
    default="table",
    show_default=True,
)
@scheduler_option
def lookup(index: str, keys: tuple[str, ...], form: str, scheduler: str | None) -> None:
    """Print the rows of the saved INDEX for KEYS; exit code 1 if none.

    Separate the parts of a key of several columns by commas: EWR,2013-01-01T06:00:00Z. Quote a part
    that has a comma in it, as in CSV; put keys that begin with - after --.
    """
    from dgpuhash.distributed import DistributedIndex

    with client_for(scheduler) as client, DistributedIndex.load(index, client) as loaded:
        asked = parse_keys(keys, loaded.meta[loaded.on])
        found = loaded.contains(asked)
        # Absent keys would turn integer columns into floats.
        rows = loaded.lookup(asked[found])
    if form == "csv":
        rows.to_csv(sys.stdout, index=False)
    elif form == "json":
        # pandas writes an empty line for a frame without rows.
        if len(rows):
            click.echo(rows.to_json(orient="records", lines=True, date_format="iso"), nl=False)
    else:
        from rich.console import Console

        from dgpuhash.demo.report import table_of

        Console().print(table_of(rows, texts=_exact))
    for key in (key for key, there in zip(keys, found, strict=True) if not there):
        click.echo(f"not in {index}: {key}", err=True)
    if rows.empty:
        raise click.exceptions.Exit(1)


def _exact(column: pd.Series) -> Iterable[str]:
    """Return the values as text that a later lookup accepts; nulls as a dash."""
    return column.astype(str).where(column.notna(), "-")


def parse_keys(keys: tuple[str, ...], meta: pd.DataFrame) -> pd.DataFrame:
    """Return `keys` as a frame with the columns and dtypes of `meta`.

    Raises
    ------
    ShapeError
        When a key has another number of parts than `meta` has columns.
    KeyTypeError
        When a part cannot be read as its column's dtype.

    Examples
    --------
    >>> meta = pd.DataFrame({"origin": pd.Series(dtype="str"), "hour": pd.Series(dtype="int64")})
    >>> parse_keys(("EWR,5", "JFK,6"), meta)
      origin  hour
    0    EWR     5
    1    JFK     6
    """
    names = list(meta.columns)
    parts = [[key] if len(names) == 1 else next(csv.reader([key]), []) for key in keys]
    for key, split in zip(keys, parts, strict=True):
        if len(split) != len(names):
            raise ShapeError(
                f"key {key!r} has {len(split)} parts and the index is on {', '.join(names)}; "
                'write a part for each, with commas between ("…" around one that has commas)'
            )
    columns = {}
    for position, name in enumerate(names):
        dtype = meta[name].dtype
        if isinstance(dtype, pd.CategoricalDtype):
            # The dtype of the values: the categories may be unknown in Dask's sense.
            dtype = dtype.categories.dtype
        texts = pd.Series([split[position] for split in parts])
        try:
            columns[name] = _parsed(texts, dtype)
        except (ValueError, TypeError, OverflowError) as error:
            raise KeyTypeError(f"column {name} is {dtype}: {error}; write such a value") from error
    return pd.DataFrame(columns)


def _parsed(texts: pd.Series, dtype: Any) -> pd.Series:
    if pd.api.types.is_bool_dtype(dtype):
        # astype converts every text to True.
        values = texts.str.lower().map({"true": True, "false": False})
        if values.isna().any():
            raise ValueError(f"{texts[values.isna()].iloc[0]!r} is neither true nor false")
        texts = values
    return texts.astype(dtype)
