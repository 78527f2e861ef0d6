"""Command `dgpuhash`, also available as `dask dgpuhash`."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, MutableMapping

import click

from dgpuhash.cli.errors import OneLineErrors

__all__ = ["main"]


class _Modules(MutableMapping[str, click.Command]):
    """Commands by name, each in the module of its name, which is imported when it is asked for.

    So that no command waits for libraries of the others.
    """

    def __init__(self, *names: str) -> None:
        self._found: dict[str, click.Command | None] = dict.fromkeys(names)

    def __getitem__(self, name: str) -> click.Command:
        found = self._found[name]
        if found is None:
            found = getattr(importlib.import_module(f"dgpuhash.cli.{name}"), name)
            assert isinstance(found, click.Command)
            self._found[name] = found
        return found

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._found[name] = command

    def __delitem__(self, name: str) -> None:
        del self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


@click.group(
    "dgpuhash",
    cls=OneLineErrors,
    commands=_Modules(
        "bench", "build", "cache", "demo", "groupby", "info", "join", "kmer", "lookup"
    ),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="dgpuhash", prog_name="dgpuhash")
def main() -> None:
    """Build a hash index on a Dask cluster once; join and look up many times."""
