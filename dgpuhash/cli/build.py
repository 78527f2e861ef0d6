"""`dgpuhash build`: build an index of files and save it."""

from __future__ import annotations

import time

import click

from dgpuhash.cli.cluster import client_for, scheduler_option
from dgpuhash.cli.columns import columns_option, types_option
from dgpuhash.cli.threads import threads_option


@click.command()
@click.argument("source")
@columns_option("--on", required=True, help="Key columns.")
@click.option("-o", "--output", required=True, help="Where to save the index, e.g. planes.dgph.")
@columns_option("--columns", help="Columns to keep beside the keys.")
@click.option(
    "--unique/--duplicates",
    default=None,
    help="Insist on unique keys, or expect duplicates; found out without it.",
)
@click.option("--force", "overwrite", is_flag=True, help="Replace a saved index that is there.")
@types_option
@scheduler_option
@threads_option
def build(
    source: str,
    on: list[str],
    output: str,
    columns: list[str] | None,
    unique: bool | None,
    overwrite: bool,
    dtypes: tuple[tuple[str, str], ...],
    scheduler: str | None,
) -> None:
    """Build an index of SOURCE and save it.

    SOURCE is Parquet, CSV, JSON lines or Arrow: a path, a quoted glob or a URL.
    """
    from dgpuhash.cli.files import read, write
    from dgpuhash.cli.progress import RowProgress
    from dgpuhash.distributed import DistributedIndex
    from dgpuhash.distributed.storage.checkpoint import check_target

    check_target(output, overwrite=overwrite)
    frame = read.read(source, dict(dtypes))
    kept = [*dict.fromkeys([*on, *columns])] if columns else list(frame.columns)
    if set(kept) < set(frame.columns):
        # Before rows are counted, so that no other columns are read.
        frame = frame[kept]
    start = time.perf_counter()
    with client_for(scheduler) as client, RowProgress(client) as progress:
        counted = progress.counted(frame, source, {})
        with DistributedIndex.build(
            counted, on=on, columns=columns, unique=unique, client=client
        ) as index:
            rows = len(index)
            progress.step(f"{rows:,} rows indexed, saving")
            with write.name_write_errors(output):
                index.save(output, overwrite=overwrite)
    click.echo(f"{output}: {rows:,} rows on {', '.join(on)} in {time.perf_counter() - start:.1f} s")
