"""`dgpuhash kmer estimate`: predict the size of an index before building it."""

from __future__ import annotations

from typing import Any

import click

from dgpuhash.cli.kmer.options import (
    BuildSettings,
    Device,
    Mask,
    Mode,
    ReferencePaths,
    Rule,
    Scheduler,
    client_of,
    settings_of,
)
from dgpuhash.cli.kmer.progress import letter_progress
from dgpuhash.cli.signature import command


@command
def estimate(
    references: ReferencePaths,
    *,
    rule: Rule,
    mask: Mask = "none",
    settings: BuildSettings,
    quick: bool = False,
    scheduler: Scheduler = None,
    mode: Mode = "auto",
    device: Device = "cpu",
) -> None:
    """Print how many bytes an index of REFS takes, and whether its build fits the memory.

    All letters are read, unless --quick; numbers are within 15 percent.

    Parameters
    ----------
    quick : bool
        By the files' sizes alone, within 40 percent.
    """
    from dgpuhash.kmer import MinimizerIndex, SketchIndex
    from dgpuhash.kmer.references import References

    chosen = settings_of(rule, settings)
    kind: Any = SketchIndex if rule == "metacache" else MinimizerIndex
    with client_of(scheduler) as client, letter_progress() as progress:
        read = References(references, mask=mask, progress=progress.letters)
        made = kind.estimate(
            read, quick=quick, device=device, client=client, mode=mode, mask=mask, **chosen
        )
    click.echo("\n".join(made.lines()))
