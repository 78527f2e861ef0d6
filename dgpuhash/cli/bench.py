"""`dgpuhash bench`."""

from __future__ import annotations

from typing import Any

import click

__all__ = ["bench"]


@click.command()
@click.argument("name", type=click.Choice(["limits", "tables"]))
@click.option("--device", type=click.Choice(["cpu", "cuda"]), help="A GPU where there is one.")
@click.option("--json", "json_path", metavar="FILE", help="Write the figures there, one a line.")
@click.option("--repeats", type=click.IntRange(1), help="Measurements of each figure.")
@click.option("--size", "sizes", type=click.IntRange(1), multiple=True, help="tables: pairs.")
@click.option("--load", "loads", type=float, multiple=True, help="tables: share of slots in use.")
def bench(
    name: str,
    device: str | None,
    json_path: str | None,
    repeats: int | None,
    sizes: tuple[int, ...],
    loads: tuple[float, ...],
) -> None:
    """Measure this machine's limits, or the tables beside those limits."""
    from dgpuhash.bench import run

    if name != "tables" and (sizes or loads):
        raise click.UsageError("--size and --load are for `bench tables`")
    given: dict[str, Any] = {"repeats": repeats, "sizes": list(sizes), "loads": list(loads)}
    run(
        name,
        device=device,
        json_path=json_path,
        **{option: value for option, value in given.items() if value},
    )
