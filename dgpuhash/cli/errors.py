"""Print user errors as one line on standard error and exit with code 2.

They have no traceback.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from typing import Any

import click

from dgpuhash.cli.group import Commands
from dgpuhash.cli.interrupts import end_soon_after_interrupt
from dgpuhash.errors import DgpuhashError, ExistsError, KeyTypeError

# Errors of a disk, or of a user's share of it, that is full.
NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


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
        """Run the command; report expected errors in one line, and end soon after Ctrl-C."""
        try:
            with end_soon_after_interrupt():
                made = super().invoke(ctx)
            sys.stdout.flush()
            return made
        except BrokenPipeError:
            raise
        except (DgpuhashError, OSError) as error:
            said = one_line(error)
            if isinstance(error, KeyTypeError) and "--dtype" not in said and self._takes_types(ctx):
                said += "; here --dtype NAME=TYPE reads a column as another type"
            if isinstance(error, ExistsError):
                said = said.replace("overwrite=True", "--force")
            if isinstance(error, OSError) and error.errno in NO_ROOM and not error.filename:
                said = f"the output cannot be written: {error.strerror}; make room, or choose "
                said += "another place for it"
                _discard_output()
            raise UserError(said) from error

    def _takes_types(self, ctx: click.Context) -> bool:
        command = self.get_command(ctx, ctx.invoked_subcommand or "")
        return any(option.name == "dtypes" for option in command.params) if command else False


def _discard_output() -> None:
    """Redirect buffered output to the null device, so that Python does not write it at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def one_line(error: BaseException) -> str:
    """Return the error's message on one line.

    Examples
    --------
    >>> one_line(ValueError("first part;\\n  second part"))
    'first part; second part'
    """
    message = " ".join(str(error).split())
    return message or type(error).__name__
