"""Option ``--threads``: the number of threads of a command in this process."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from dgpuhash.errors import SpecError

_Command = TypeVar("_Command", bound=Callable[..., Any] | click.Command)
# What the kernels read, as `dgpuhash.backend.cpu` has it.
VARIABLE = "DGPUHASH_NUM_THREADS"
# What Arrow reads when it is imported.
_ARROW = "OMP_NUM_THREADS"
# As many as the pool of kernels takes.
_MOST = 1024


def threads_option(command: _Command) -> _Command:
    """Add ``--threads`` to a command; its value holds until the command ends."""
    return click.option(
        "--threads",
        type=click.IntRange(1, _MOST),
        envvar=VARIABLE,
        show_envvar=True,
        expose_value=False,
        callback=_use,
        help="Threads that compute; default: one for each CPU that this process may use.",
    )(command)


def threads_of_process() -> int:
    """Return the threads for computing, from ``--threads``, its variable or the usable CPUs."""
    return int(os.environ.get(VARIABLE) or len(os.sched_getaffinity(0)))


def check_threads_of_workers(scheduler: str) -> None:
    """Raise if a command line names both ``--threads`` and a cluster.

    Raises
    ------
    SpecError
        When it does.
    """
    ctx = click.get_current_context(silent=True)
    if ctx and ctx.get_parameter_source("threads") is ParameterSource.COMMANDLINE:
        raise SpecError(
            f"--threads sets the threads of this process, but --scheduler {scheduler} has "
            f"workers with threads of their own; leave out --threads, and start workers with "
            f"'dask worker --nthreads'"
        )


def _use(ctx: click.Context, _: click.Parameter, threads: int | None) -> None:
    """Set the threads of kernels and Arrow until the context closes."""
    if threads is None:
        return
    named = ctx.get_parameter_source("threads") is ParameterSource.COMMANDLINE
    before = {name: os.environ.get(name) for name in (VARIABLE, _ARROW)}
    for name, value in before.items():
        if named or value is None:
            os.environ[name] = str(threads)
    from dgpuhash.backend.native import native

    native().set_threads(threads)
    ctx.call_on_close(lambda: _restore(before))


def _restore(before: dict[str, str | None]) -> None:
    from dgpuhash import config
    from dgpuhash.backend.native import native

    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    # Zero threads are those that the environment says.
    native().set_threads(0 if before[VARIABLE] else config.threads() or 0)
