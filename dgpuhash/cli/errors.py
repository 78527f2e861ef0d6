"""User errors as one line on standard error and exit code 2, without a traceback."""

from __future__ import annotations

from typing import Any

import click

from dgpuhash.errors import DgpuhashError, ExistsError, KeyTypeError

__all__ = ["OneLineErrors", "one_line"]


class UserError(click.ClickException):
    """A mistake of the user's, in one line."""

    exit_code = 2


class OneLineErrors(click.Group):
    """A group whose commands end a foreseen error with ``Error: …`` and exit code 2.

    Errors of any other type are mistakes of ours: they keep their traceback. Who reads the output,
    such as ``head``, and has enough, is no error: click ends the command without a word.
    """

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; see the class."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise
        except (DgpuhashError, OSError) as error:
            said = one_line(error)
            if isinstance(error, KeyTypeError) and "--dtype" not in said and self._takes_types(ctx):
                said += "; here --dtype NAME=TYPE reads a column as another type"
            if isinstance(error, ExistsError):
                said = said.replace("overwrite=True", "--force")
            raise UserError(said) from error

    def _takes_types(self, ctx: click.Context) -> bool:
        command = self.get_command(ctx, ctx.invoked_subcommand or "")
        return any(option.name == "dtypes" for option in command.params) if command else False


def one_line(error: BaseException) -> str:
    """The error's message on one line.

    Examples
    --------
    >>> one_line(ValueError("first part;\\n  second part"))
    'first part; second part'
    """
    message = " ".join(str(error).split())
    return message or type(error).__name__
