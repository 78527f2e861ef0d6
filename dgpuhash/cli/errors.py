"""User errors as one line on standard error with exit code 2.

They have no traceback.
"""

from __future__ import annotations

from typing import Any

import click

from dgpuhash.cli.group import Commands
from dgpuhash.errors import DgpuhashError, ExistsError, KeyTypeError

__all__ = ["OneLineErrors", "one_line"]


class UserError(click.ClickException):
    """Mistake of the user, reported in one line."""

    exit_code = 2


class OneLineErrors(Commands):
    """Command group that reports expected errors in one line, exit code 2.

    The line is ``Error: …``. Errors of any other type are bugs of dgpuhash and keep their
    traceback. When the reader of the output, such as ``head``, closes the pipe, click ends the
    command silently.
    """

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; report expected errors in one line."""
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
    """Return the error's message on one line.

    Examples
    --------
    >>> one_line(ValueError("first part;\\n  second part"))
    'first part; second part'
    """
    message = " ".join(str(error).split())
    return message or type(error).__name__
