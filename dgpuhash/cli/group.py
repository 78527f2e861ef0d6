"""Command groups with full-sentence help and late import of their commands."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, MutableMapping
from difflib import get_close_matches
from typing import Any

import click
from click.shell_completion import CompletionItem

# Beyond the length of any sentence, at which click would cut it off.
_WHOLE = 1 << 20
# Share of letters above which a name may be another one, mistyped.
_ALIKE = 0.7


class Commands(click.Group):
    """Command group that lists commands without importing them or cutting their help.

    Examples
    --------
    >>> from click.testing import CliRunner
    >>> said = "Sum up the rows of all the files that were named, and of those in their folders."
    >>> group = Commands("files", {"sum": click.Command("sum", help=said)})
    >>> said in " ".join(CliRunner().invoke(group, ["--help"]).output.split())
    True
    """

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names of the commands, and what each does."""
        rows = list(self._sentences(ctx).items())
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the named command; suggest only commands with a similar spelling."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            names = self.list_commands(ctx)
            if args[0] in names or args[0].startswith("-"):
                raise
            alike = get_close_matches(args[0], names, cutoff=_ALIKE)
            hint = f" Did you mean {alike[0]!r}?" if alike else f" There are {', '.join(names)}."
            raise click.UsageError(f"No such command {args[0]!r}.{hint}", ctx) from error

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options that start with the typed text."""
        options = click.Command.shell_complete(self, ctx, incomplete)
        commands = self._sentences(ctx).items()
        named = [CompletionItem(n, help=said) for n, said in commands if n.startswith(incomplete)]
        return [*named, *options]

    def _sentences(self, ctx: click.Context) -> dict[str, str]:
        if isinstance(self.commands, Later):
            return self.commands.sentences
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        return {
            name: command.get_short_help_str(_WHOLE)
            for name, command in commands.items()
            if command is not None and not command.hidden
        }


class Later(MutableMapping[str, click.Command]):
    """Commands by name, each imported from the module of its name at first use.

    So that no command waits for libraries of the others.

    Attributes
    ----------
    sentences : dict of str
        What each command does, in the words of its help.
    """

    def __init__(self, package: str, sentences: Mapping[str, str]) -> None:
        self.sentences = dict(sentences)
        self._package = package
        self._found: dict[str, Any] = dict.fromkeys(sentences)

    def __getitem__(self, name: str) -> click.Command:
        found = self._found[name]
        if found is None:
            found = getattr(importlib.import_module(f"{self._package}.{name}"), name)
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
