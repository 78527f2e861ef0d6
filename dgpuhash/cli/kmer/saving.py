"""Where commands save what they made."""

from __future__ import annotations

from typing import Any

import click

__all__ = ["output", "saved_as"]

output = click.option(
    "-o", "--output", required=True, help="Where to save, e.g. db.dgki or counts.dgkc."
)


def saved_as(made: Any, output: str, overwrite: bool) -> None:
    """Save counts or an index; an error names the output."""
    try:
        made.save(output, overwrite=overwrite)
    except OSError:
        # It imports Dask, which takes longer than most counts do.
        from dgpuhash.cli.files.write import name_write_errors

        with name_write_errors(output):
            raise
