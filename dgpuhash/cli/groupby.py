"""`dgpuhash groupby`: aggregate the rows of files by key."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any

import click

from dgpuhash.cli.cluster import Scheduler, client_for
from dgpuhash.cli.columns import AggregateCall, AggregateOption, KeyColumns, Types
from dgpuhash.cli.signature import command, option
from dgpuhash.cli.threads import threads_option
from dgpuhash.errors import ColumnError, DgpuhashError, SpecError

if TYPE_CHECKING:
    import pandas as pd
    from distributed import Client

# Rows of files have no labels for these to give.
_LABELS = ("idxmin", "idxmax")
_MOST_SHOWN = 40
# Of files and pipes, where nothing is cut off.
_WIDEST = 10_000


@threads_option
@command
def groupby(
    files: tuple[str, ...],
    *,
    by: KeyColumns,
    aggregates: Annotated[tuple[AggregateOption, ...], option("--agg", type=AggregateCall())],
    sort: Annotated[bool, option("--sort/--no-sort")] = True,
    dropna: Annotated[bool, option("--dropna/--keep-nulls")] = True,
    output: Annotated[str | None, option("-o", "--output")] = None,
    overwrite: Annotated[bool, option("--force")] = False,
    dtypes: Types = (),
    scheduler: Scheduler = None,
) -> None:
    """Aggregate the rows of FILES that have equal keys.

    FILES are Parquet, CSV, JSON lines or Arrow (paths, quoted globs or URLs). Their partitions pass
    by, and what is kept of them are the groups; aggregates such as median keep the rows of their
    columns.

    Parameters
    ----------
    aggregates : tuple of Aggregate
        An aggregate and the name of its column, e.g. 'total=sum(price)', or 'n=count()' for the
        number of rows. Options are written behind the column: 'top=quantile(price, q=0.9)'.
    sort : bool
        Put groups in the order of their keys, in one partition.
    dropna : bool
        Leave out rows with a null among their keys.
    output : str, optional
        A .parquet, .csv, .csv.gz, .jsonl or .arrow file, a directory of them such as
        out.parquet/, or - for standard output (CSV; -.jsonl and -.arrow say otherwise).
        Default: a table on the terminal.
    overwrite : bool
        Replace a file that is there; no directory.
    """
    import dgpuhash
    from dgpuhash.cli.files import read, write
    from dgpuhash.cli.files.streams import is_stream
    from dgpuhash.cli.progress import RowProgress

    if output is not None:
        write.check_target(output, files, overwrite=overwrite)
    start = time.perf_counter()
    with client_for(scheduler) as client:
        frame = read.read(files, dict(dtypes), decimals=True)
        named = _named_aggregates(frame._meta, by, aggregates)
        read_columns = dict.fromkeys([*by, *(each.column for each in aggregates if each.column)])
        _tell_rows(frame._meta, by, named)
        with RowProgress(client) as progress:
            counted = progress.counted(frame[list(read_columns)], "files", {})
            groups = dgpuhash.groupby(
                counted, by, sort=sort, dropna=dropna, as_index=False,
                npartitions=1 if sort else None, client=client,
            )  # fmt: skip
            made = groups.agg(**named)
            if output is None:
                shown = _gather(made, client)
                rows = len(shown)
            else:
                written = progress.writing(made.npartitions)
                rows = write.write(made, output, client, overwrite=overwrite, written=written)
            passed = progress.rows["files"]
    if output is None:
        _show(shown)
    told = f"{rows:,} group{'' if rows == 1 else 's'} of {passed:,} rows by {', '.join(by)}"
    seconds = time.perf_counter() - start
    click.echo(
        f"{output or ', '.join(files)}: {told} in {seconds:.1f} s",
        err=output is None or is_stream(output),
    )


# What SQL and others call aggregates.
_CALLED = {
    **dict.fromkeys(("avg", "average"), "mean"),
    **dict.fromkeys(("stddev", "stddev_samp", "stdev"), "std"),
    **dict.fromkeys(("variance", "var_samp"), "var"),
    **dict.fromkeys(("n", "len", "length", "rows"), "size"),
    **dict.fromkeys(("distinct", "count_distinct", "n_unique", "approx_distinct"), "nunique"),
    **dict.fromkeys(("minimum", "least"), "min"),
    **dict.fromkeys(("maximum", "greatest"), "max"),
    **dict.fromkeys(("total", "add"), "sum"),
    **dict.fromkeys(("percentile", "percentile_cont"), "quantile"),
    **dict.fromkeys(("collect_list", "array_agg", "implode"), "list"),
    **dict.fromkeys(("any_value", "first_value"), "first"),
    "product": "prod", "last_value": "last", "bool_or": "any", "bool_and": "all",
}  # fmt: skip


def _named_aggregates(
    meta: pd.DataFrame, by: Sequence[str], aggregates: Iterable[AggregateOption]
) -> dict[str, pd.NamedAgg]:
    """Return the options' aggregates as named aggregates for ``agg``.

    Raises
    ------
    ColumnError
        When a column is not there.
    SpecError
        When an aggregate is unknown or has no column, or two columns of the result have one name.
    """
    import pandas as pd

    from dgpuhash.frames import key_names
    from dgpuhash.frames.groupby.aggregates.table import AGGREGATES

    key_names(meta, list(by))
    known = [name for name in AGGREGATES if name not in _LABELS]
    made: dict[str, pd.NamedAgg] = {}
    for each in aggregates:
        if each.how not in known:
            typed = each.how.lower()
            meant = _CALLED.get(typed) or "".join(get_close_matches(typed, known, 1))
            hint = f"; do you mean {meant}?" if meant else ""
            raise SpecError(
                f"--agg: no aggregate {each.how!r} of files{hint}; there is {', '.join(known)}"
            )
        if not each.column and each.how not in {"count", "size"}:
            raise SpecError(f"--agg: {each.how}() needs a column, as in '{each.how}(price)'")
        if each.column and each.column not in meta.columns:
            raise ColumnError(
                f"--agg: no column {each.column!r}; the files have {list(meta.columns)!r}"
            )
        how = each.how if each.column else "size"
        made[each.label] = pd.NamedAgg(each.column or by[0], how, **each.options)
    counts = Counter([*by, *(each.label for each in aggregates)])
    twice = [label for label, count in counts.items() if count > 1]
    if twice:
        raise SpecError(
            f"--agg: several columns called {twice[0]!r}; name each, as in 'total=sum(price)'"
        )
    return made


def _tell_rows(meta: pd.DataFrame, by: Sequence[str], named: dict[str, pd.NamedAgg]) -> None:
    """Print which aggregates buffer rows in memory.

    Raises
    ------
    SpecError
        When an aggregate has no such option.
    """
    from dgpuhash.frames.groupby.partial import GroupByCall, GroupPlan

    keeping: list[str] = []
    for label, each in named.items():
        try:
            plan = GroupPlan.of(meta, list(by), how=GroupByCall("agg", options={label: each}))
        except TypeError as error:
            if isinstance(error, DgpuhashError):
                raise
            raise SpecError(f"--agg: {error}") from error
        if plan.needs_rows:
            keeping.append(str(each.aggfunc))
    if keeping:
        click.echo(
            f"{', '.join(dict.fromkeys(keeping))}: the rows of the columns that are read stay in "
            "memory until the end",
            err=True,
        )


def _gather(made: Any, client: Client) -> pd.DataFrame:
    import pandas as pd

    parts = client.gather(client.compute(made.to_delayed()))
    return parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)


def _show(made: pd.DataFrame) -> None:
    """Print the first groups as a table."""
    from rich.console import Console

    from dgpuhash.demo.report import table_of

    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDEST)
    console.print(table_of(made.head(_MOST_SHOWN), texts=_texts))
    if len(made) > _MOST_SHOWN:
        click.echo(f"and {len(made) - _MOST_SHOWN:,} more groups; write all with -o", err=True)


def _texts(column: pd.Series) -> Iterable[str]:
    """Return the values as text, with a dash for nulls."""
    return column.astype(str).where(column.notna(), "-")
