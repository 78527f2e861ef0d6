"""`dgpuhash demo`: run the demo."""

from __future__ import annotations

import click


@click.command()
@click.option("--workers", type=click.IntRange(1, 64), help="Worker processes.")
@click.pass_context
def demo(ctx: click.Context, workers: int | None) -> None:
    """Join flights, check them against pandas, and time joins.

    They are timed beside Dask's own merge.
    """
    from dgpuhash.demo import run

    ctx.exit(run(workers))
