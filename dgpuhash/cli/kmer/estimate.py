"""`dgpuhash kmer estimate`: predict the size of an index before building it."""

from __future__ import annotations

from typing import Any

import click

from dgpuhash.cli.kmer.options import client_of, cluster_options, device, of_rule, size_options
from dgpuhash.cli.kmer.progress import letter_progress
from dgpuhash.typing import Device


@click.command()
@click.argument("references", nargs=-1, required=True, metavar="REFS...")
@size_options
@click.option("--quick", is_flag=True, help="By the files' sizes alone, within 40 percent.")
@cluster_options
@device
def estimate(
    references: tuple[str, ...],
    rule: str,
    mask: str,
    quick: bool,
    scheduler: str | None,
    mode: str,
    device: Device,
    **given: Any,
) -> None:
    """Print how many bytes an index of REFS takes, and whether its build fits the memory.

    All letters are read, unless --quick; numbers are within 15 percent.
    """
    from dgpuhash.kmer import MinimizerIndex, SketchIndex
    from dgpuhash.kmer.references import References

    settings = of_rule(rule, given)
    kind: Any = SketchIndex if rule == "metacache" else MinimizerIndex
    with client_of(scheduler) as client, letter_progress() as progress:
        read = References(references, mask=mask, progress=progress.letters)
        made = kind.estimate(
            read, quick=quick, device=device, client=client, mode=mode, mask=mask, **settings
        )
    click.echo("\n".join(made.lines()))
