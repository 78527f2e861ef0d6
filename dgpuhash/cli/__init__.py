"""Command `dgpuhash`, also available as `dask dgpuhash`."""

from __future__ import annotations

import click

from dgpuhash.cli.errors import OneLineErrors

__all__ = ["main"]


@click.group(
    "dgpuhash", cls=OneLineErrors, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="dgpuhash", prog_name="dgpuhash")
def main() -> None:
    """Build a hash index on a Dask cluster once; join and look up many times."""


def _register() -> None:
    from dgpuhash.cli import bench, build, cache, demo, groupby, info, join, kmer, lookup

    for command in (
        demo.demo,
        info.info,
        build.build,
        join.join,
        groupby.groupby,
        lookup.lookup,
        kmer.kmer,
        bench.bench,
        cache.cache,
    ):
        main.add_command(command)


_register()
