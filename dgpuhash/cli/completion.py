"""`dgpuhash completion`: print the shell script for completing commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes commands in a shell.

    bash and zsh: eval "$(dgpuhash completion bash)" in ~/.bashrc or ~/.zshrc; fish: dgpuhash
    completion fish > ~/.config/fish/completions/dgpuhash.fish.
    """
    found = get_completion_class(shell)
    assert found is not None
    made = found(click.Command("dgpuhash"), {}, "dgpuhash", "_DGPUHASH_COMPLETE")
    # Its own way to this text runs bash to learn its version.
    click.echo(made.source_template % made.source_vars())
