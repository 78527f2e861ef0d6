"""`dgpuhash join`."""

from __future__ import annotations

import time
from typing import Any

import click

from dgpuhash.cli.cluster import client_for, scheduler_option
from dgpuhash.cli.columns import ColumnNames, HowToJoin, columns_option, types_option

__all__ = ["join"]


@click.command()
@click.argument("source")
@click.argument("index")
@columns_option("--on", help="Key columns of SOURCE, where named otherwise.")
@click.option(
    "--how",
    type=HowToJoin(),
    default="inner",
    show_default=True,
    help="semi and anti keep the rows of SOURCE that have, or have no, partner.",
)
@click.option(
    "-o",
    "--output",
    required=True,
    help="A .parquet or .csv file, or a directory of them such as out.parquet/.",
)
@click.option(
    "--suffixes",
    type=ColumnNames(),
    default="_x,_y",
    show_default=True,
    help="Endings for columns that both sides have.",
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
    dtypes: tuple[tuple[str, str], ...],
    scheduler: str | None,
) -> None:
    """Join the rows of SOURCE (Parquet or CSV) with the saved INDEX."""
    from dgpuhash.cli import files
    from dgpuhash.distributed import DistributedIndex

    if len(suffixes) != 2:
        raise click.BadParameter("give two endings, e.g. _left,_right", param_hint="--suffixes")
    files.check_target(output, source)
    frame = files.read(source, dict(dtypes))
    start = time.perf_counter()
    with client_for(scheduler) as client, DistributedIndex.load(index, client) as loaded:
        same_names = on is None or set(on) == set(loaded.on)
        keys: dict[str, Any] = {"on": on} if same_names else {"left_on": on}
        joined = loaded.merge(frame, **keys, how=how, suffixes=(suffixes[0], suffixes[1]))
        rows = files.write(joined, output, client)
    amount = "" if rows is None else f"{rows:,} rows "
    click.echo(f"{output}: {amount}in {time.perf_counter() - start:.1f} s")
