"""`dgpuhash join`: join files with a saved index."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import click
import numpy as np
import pandas as pd

from dgpuhash.cli.cluster import client_for, scheduler_option
from dgpuhash.cli.columns import ColumnNames, JoinKind, columns_option, types_option
from dgpuhash.errors import ColumnError

__all__ = ["join"]

# Column with the position of each row in its partition, during a left join.
ROW = "dgpuhash row"


@click.command()
@click.argument("source")
@click.argument("index")
@columns_option("--on", help="Key columns of SOURCE, where named otherwise.")
@click.option(
    "--how",
    type=JoinKind(),
    default="inner",
    show_default=True,
    help="semi and anti keep the rows of SOURCE that have, or have no, partner.",
)
@click.option(
    "-o",
    "--output",
    required=True,
    help="A .parquet, .csv or .csv.gz file, or a directory of them such as out.parquet/.",
)
@click.option(
    "--suffixes",
    type=ColumnNames(),
    default="_x,_y",
    show_default=True,
    help="Endings for columns that both sides have.",
)
@click.option(
    "--force", "overwrite", is_flag=True, help="Replace a file that is there; no directory."
)
@types_option
@scheduler_option
def join(
    source: str,
    index: str,
    on: list[str] | None,
    how: str,
    output: str,
    suffixes: list[str],
    overwrite: bool,
    dtypes: tuple[tuple[str, str], ...],
    scheduler: str | None,
) -> None:
    """Join the rows of SOURCE (Parquet or CSV) with the saved INDEX."""
    from dgpuhash.cli.files import read, write
    from dgpuhash.distributed import DistributedIndex

    if len(suffixes) != 2 or suffixes[0] == suffixes[1]:
        raise click.BadParameter(
            "give two endings that differ, e.g. _left,_right", param_hint="--suffixes"
        )
    write.check_target(output, source, overwrite=overwrite)
    frame = read.read(source, dict(dtypes))
    start = time.perf_counter()
    with client_for(scheduler) as client, DistributedIndex.load(index, client) as loaded:
        same_names = on is None or set(on) == set(loaded.on)
        options: dict[str, Any] = {"on": on} if same_names else {"left_on": on}
        endings = suffixes[0], suffixes[1]
        merge: Callable[..., Any] = partial(loaded.merge, suffixes=endings, **options)
        joined = merge(frame, how=how)
        if how == "left":
            joined = _left_join(merge, frame)
        rows = write.write(joined, output, client, overwrite=overwrite)
    amount = "" if rows is None else f"{rows:,} rows "
    click.echo(f"{output}: {amount}in {time.perf_counter() - start:.1f} s")


def _left_join(merge: Callable[..., Any], frame: Any) -> Any:
    """Return a left join with the same exact dtypes in all partitions.

    pandas' left join turns the integers of a partition into floats when a row has no partner, which
    can round them; here such columns get nullable dtypes. The caller has run `merge` before, so
    that errors do not name the join's own column.
    """
    if ROW in frame.columns:
        raise ColumnError(f"a column is called {ROW!r}, as one of the join's own; rename it")
    numbered = frame.map_partitions(_numbered, meta=_numbered(frame._meta))
    found, alone = merge(numbered, how="inner"), merge(numbered, how="anti")
    meta = _concat_in_order(found._meta, alone._meta)
    return found.map_partitions(_concat_in_order, alone, meta=meta, enforce_metadata=False)


def _numbered(part: pd.DataFrame) -> pd.DataFrame:
    return part.assign(**{ROW: range(len(part))})


def _concat_in_order(found: pd.DataFrame, alone: pd.DataFrame) -> pd.DataFrame:
    """Return the matched and unmatched rows of a partition in row order."""
    width = alone.shape[1]
    added = found.columns[width:]
    nullable = {
        label: "boolean" if dtype.kind == "b" else dtype.name.replace("i", "I").replace("u", "U")
        for label, dtype in found[added].dtypes.items()
        if isinstance(dtype, np.dtype) and dtype.kind in "biu"
    }
    found = found.astype(nullable)
    # `found` has the labels with suffixes.
    alone = alone.set_axis(found.columns[:width], axis=1).reindex(columns=found.columns)
    joined = pd.concat([found, alone.astype(found[added].dtypes)])
    return joined.sort_values(ROW, kind="stable", ignore_index=True).drop(columns=ROW)
