"""`dgpuhash build`: build an index of files and save it."""

from __future__ import annotations

import time
from typing import Annotated

import click

from dgpuhash.cli.cluster import Scheduler, client_for
from dgpuhash.cli.columns import Columns, KeyColumns, Types
from dgpuhash.cli.signature import command, option
from dgpuhash.cli.threads import threads_option


@threads_option
@command
def build(
    source: str,
    *,
    on: KeyColumns,
    output: Annotated[str, option("-o", "--output")],
    columns: Columns = None,
    unique: Annotated[bool | None, option("--unique/--duplicates", default=None)] = None,
    overwrite: Annotated[bool, option("--force")] = False,
    dtypes: Types = (),
    scheduler: Scheduler = None,
) -> None:
    """Build an index of SOURCE and save it.

    SOURCE is Parquet, CSV, JSON lines or Arrow: a path, a quoted glob or a URL.

    Parameters
    ----------
    output : str
        Where to save the index, e.g. planes.dgph.
    columns : list of str, optional
        Columns to keep beside the keys.
    unique : bool, optional
        Insist on unique keys, or expect duplicates; found out without it.
    overwrite : bool
        Replace a saved index that is there.
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
