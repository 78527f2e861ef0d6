"""`dgpuhash lookup`: print the rows of a saved index for some keys."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import click

from dgpuhash.cli.cluster import Scheduler, client_for
from dgpuhash.cli.signature import command, option
from dgpuhash.cli.threads import threads_option
from dgpuhash.errors import KeyTypeError, ShapeError

if TYPE_CHECKING:
    import pandas as pd


@threads_option
@command
def lookup(
    index: str,
    keys: tuple[str, ...],
    *,
    form: Annotated[Literal["table", "csv", "json"], option("--format")] = "table",
    scheduler: Scheduler = None,
) -> None:
    """Print the rows of the saved INDEX for KEYS.

    The exit code is 1 where there are none. KEYS that are - are read from standard input, a key a
    line. Separate the parts of a key of several columns by commas: EWR,2013-01-01T06:00:00Z. Quote
    a part that has a comma in it, as in CSV; put other keys that begin with - after --.
    """
    from dgpuhash.cli.files import scan, texts

    if keys == ("-",):
        keys = tuple(line.rstrip("\r\n") for line in sys.stdin)
    scanned = None
    if scheduler is None:
        # Keys of one column are taken whole, as `parse_keys` takes them.
        scanned = scan.find_rows(index, keys, _parts)
    rows, there = _looked_up(index, keys, scheduler) if scanned is None else scanned
    if form == "csv":
        texts.write_csv(rows, sys.stdout)
    elif form == "json":
        for line in texts.json_lines(rows):
            click.echo(line, nl=False)
    else:
        texts.print_table(rows)
    for key in (key for key, is_there in zip(keys, there, strict=True) if not is_there):
        click.echo(f"not in {index}: {key}", err=True)
    if not rows.num_rows:
        raise click.exceptions.Exit(1)


def _looked_up(index: str, keys: Sequence[str], scheduler: str | None) -> tuple[Any, Any]:
    """Return the rows of keys as an Arrow table, and a mask of the keys found."""
    from dgpuhash.cli.progress import RowProgress
    from dgpuhash.distributed import DistributedIndex
    from dgpuhash.frames import frames_of

    with client_for(scheduler) as client, RowProgress(client) as progress:
        progress.step(f"loading {index}")
        with DistributedIndex.load(index, client) as loaded:
            progress.step("looking up")
            asked = parse_keys(keys, loaded.meta[loaded.on])
            there = loaded.contains(asked)
            # Absent keys would turn integer columns into floats.
            rows = loaded.lookup(asked[there])
    table = frames_of(rows).to_arrow(rows)
    return table.rename_columns([str(label) for label in rows.columns]), there


def _parts(key: str, columns: int) -> list[str]:
    """Split the text of a key into the values of its columns."""
    return [key] if columns == 1 else next(csv.reader([key]), [])


def parse_keys(keys: Sequence[str], meta: pd.DataFrame) -> pd.DataFrame:
    """Return `keys` as a frame with the columns and dtypes of `meta`.

    Raises
    ------
    ShapeError
        When a key has another number of parts than `meta` has columns.
    KeyTypeError
        When a part cannot be read as its column's dtype.

    Examples
    --------
    >>> import pandas as pd
    >>> meta = pd.DataFrame({"origin": pd.Series(dtype="str"), "hour": pd.Series(dtype="int64")})
    >>> parse_keys(("EWR,5", "JFK,6"), meta)
      origin  hour
    0    EWR     5
    1    JFK     6
    """
    import pandas as pd

    names = list(meta.columns)
    parts = [_parts(key, len(names)) for key in keys]
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
            columns[name] = _parse(texts, dtype)
        except (ValueError, TypeError, OverflowError) as error:
            raise KeyTypeError(f"column {name} is {dtype}: {error}; write such a value") from error
    return pd.DataFrame(columns)


def _parse(texts: pd.Series, dtype: Any) -> pd.Series:
    import pandas as pd

    if pd.api.types.is_bool_dtype(dtype):
        # astype converts every text to True.
        values = texts.str.lower().map({"true": True, "false": False})
        if values.isna().any():
            raise ValueError(f"{texts[values.isna()].iloc[0]!r} is neither true nor false")
        texts = values
    return texts.astype(dtype)
