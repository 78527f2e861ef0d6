"""Command `dgpuhash`, also available as `dask dgpuhash`."""

from __future__ import annotations

import click

from dgpuhash.cli.errors import OneLineErrors
from dgpuhash.cli.group import Later

__all__ = ["main"]

# The first sentences of the commands' help, which is in their modules.
_COMMANDS = {
    "bench": "Measure this machine's limits, and dgpuhash relative to them.",
    "build": "Build an index of SOURCE and save it.",
    "cache": "Manage the folder of compiled GPU kernels.",
    "cluster": "Show or copy the programs that start clusters.",
    "completion": "Print the script that completes commands in a shell.",
    "demo": "Join flights, check them against pandas, and time joins.",
    "groupby": "Aggregate the rows of FILES that have equal keys.",
    "info": "Show versions and devices, or the contents of a saved INDEX.",
    "join": "Join the rows of LEFT with those of RIGHT.",
    "kmer": "Count k-mers of sequences, and classify reads by them.",
    "lookup": "Print the rows of the saved INDEX for KEYS.",
}


@click.group(
    "dgpuhash",
    cls=OneLineErrors,
    commands=Later("dgpuhash.cli", _COMMANDS),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="dgpuhash", prog_name="dgpuhash")
def main() -> None:
    """Build a hash index on a Dask cluster once; join and look up many times."""
